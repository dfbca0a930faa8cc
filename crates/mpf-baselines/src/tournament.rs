//! Which method suits these data? All of them, fitted on some blocks and scored on the others.
//!
//! ```text
//! for every fold:  fit without it,  then for every sample m in it
//!   MPF_m = Σ_i exp(−a_mi)    PL_m = Σ_i ln(1 + exp(−2 a_mi))    LL_m = −E(x_m) − ln Z
//! difference of two methods = mean_m (their scores),  error from blocks of successive samples
//! ```
//!
//! Every method is scored by its own objective, by the objectives of MPF and pseudolikelihood, and
//! by the log-likelihood, which none but maximum likelihood optimises: exact up to 24 units and
//! where the couplings lie on a given lattice, by annealed importance sampling otherwise.
//! Differences are paired, sample by sample, so that what all methods find hard cancels; the
//! sampling errors of ln Z are added to theirs.

mod comparison;

use crate::Result;
use crate::error::{Error, check_mean};
use crate::method::{Method, MethodOptions, OwnObjective};
use crate::objectives::Objectives;
use mpf_core::{Cancel, EnergyModel};
use mpf_ising::internal::n_blocks;
use mpf_ising::{
    BlockMean, Couplings, Exact, Fit, FoldAssignment, Folds, IsingModel, Lattice, Samples, States,
    block_mean, for_each_set_bit, get_bit,
};
use mpf_samplers::{AnnealedOptions, ExactLattice, annealed_log_z};
use rayon::prelude::*;
use serde::Serialize;

/// Options of [`Tournament`], unchecked.
#[derive(Clone, Debug)]
pub struct TournamentOptions {
    /// How many folds. Default 5.
    pub n_folds: usize,
    /// How samples are assigned to them. Default: contiguous blocks.
    pub assignment: FoldAssignment,
    /// Samples in a block, for standard errors. Default 1: independent samples.
    pub block_length: usize,
    /// A lattice on which ln Z is exact for couplings that lie on it. Default none.
    pub lattice: Option<Lattice>,
    /// How ln Z is estimated otherwise; `None` for no likelihood then. Default: as
    /// [`AnnealedOptions`].
    pub annealed: Option<AnnealedOptions>,
    /// The handle that stops the run between fits.
    pub cancel: Cancel,
}

impl Default for TournamentOptions {
    fn default() -> Self {
        Self {
            n_folds: 5,
            assignment: FoldAssignment::default(),
            block_length: 1,
            lattice: None,
            annealed: Some(AnnealedOptions::default()),
            cancel: Cancel::new(),
        }
    }
}

/// Where a log-likelihood comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogZSource {
    /// A sum over all states.
    Enumeration,
    /// A transfer matrix.
    Lattice,
    /// Annealed importance sampling.
    Annealed,
}

/// A criterion by which methods are ranked. All are per sample; smaller is better, but for the
/// likelihood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Criterion {
    /// K of MPF over all single flips.
    Mpf,
    /// Minus the log-pseudolikelihood.
    Pseudolikelihood,
    /// The log-likelihood.
    LogLikelihood,
}

/// One method's scores on samples that it has not seen. Finite but for those of MPF.
#[derive(Clone, Debug, Serialize)]
pub struct Entrant {
    /// The method.
    pub name: &'static str,
    /// Its own objective: K, PL, Σ ln RISE or −LL; `None` for those without (CD, mean field). +∞
    /// where K is.
    pub own: Option<f64>,
    /// K of MPF. +∞, with an error that is NaN or +∞, where a sample is so unlikely that it
    /// overflows.
    pub mpf: BlockMean,
    /// Minus the log-pseudolikelihood in nats.
    pub pseudolikelihood: BlockMean,
    /// The log-likelihood in nats; its error includes that of ln Z.
    pub log_likelihood: Option<BlockMean>,
    /// Where ln Z came from.
    pub log_z: Option<LogZSource>,
    /// The part of the likelihood's error that sampling ln Z makes.
    pub log_z_error: f64,
    /// Learning time of all folds.
    pub seconds: f64,
    /// Warnings of all folds, in words.
    pub warnings: Vec<String>,
    #[serde(skip)]
    scores: Vec<[f64; 3]>,
}

/// A method that could not be fit.
#[derive(Clone, Debug, Serialize)]
pub struct Dropout {
    /// The method.
    pub name: &'static str,
    /// Why.
    #[serde(serialize_with = "in_words")]
    pub error: Error,
}

fn in_words<S: serde::Serializer>(error: &Error, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(error)
}

/// All methods side by side.
#[derive(Clone, Debug, Serialize)]
#[must_use]
pub struct Comparison {
    /// The methods that were fitted, in the order given.
    pub entrants: Vec<Entrant>,
    /// The others.
    pub dropouts: Vec<Dropout>,
    block_length: usize,
}

/// Compares methods on held-out samples.
///
/// ```
/// use mpf_baselines::{Criterion, Methods, Tournament};
/// use mpf_ising::{Couplings, Exact};
/// use ndarray::array;
///
/// let truth = Couplings::new(array![[0.5, -1.0], [-1.0, 0.2]])?;
/// let states = Exact::new(&truth)?.draw(2000, 1);
/// let methods = Methods::default();
/// let entered = ["mpf", "independent"].map(|name| (methods.find(name).unwrap(), Default::default()));
/// let table = Tournament::default().run(&entered, &states, |_, _| {})?;
/// assert_eq!(table.best(Criterion::LogLikelihood).unwrap().name, "MPF");
/// let worse = table.difference(1, 0, Criterion::LogLikelihood)?.unwrap();
/// assert!(worse.value < -3.0 * worse.standard_error);
/// # Ok::<(), mpf_baselines::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Tournament {
    options: TournamentOptions,
}

impl Tournament {
    /// With these options; they are checked against the data.
    pub fn new(options: TournamentOptions) -> Self {
        Self { options }
    }

    /// Fits every method without every fold, and scores it there. `observer` is called with the
    /// method's and the fold's number after every fit.
    ///
    /// # Errors
    /// [`mpf_ising::Error::Folds`], [`mpf_ising::Error::BlockLength`], and
    /// [`mpf_ising::Error::Cancelled`]. A method that fails, or whose likelihoods are not finite, is
    /// a [`Dropout`], not an error.
    pub fn run(
        &self,
        methods: &[(&dyn Method, MethodOptions)],
        states: &States,
        mut observer: impl FnMut(usize, usize),
    ) -> Result<Comparison> {
        let options = &self.options;
        n_blocks(states.n_samples(), options.block_length)?;
        let folds = Folds::new(states.n_samples(), options.n_folds, options.assignment)?;
        let parts = (0..folds.n_folds())
            .map(|fold| {
                let (training, held_out) = folds.split(states, fold)?;
                Ok((Samples::new(&training)?, held_out))
            })
            .collect::<Result<Vec<_>>>()?;
        let mut comparison = Comparison {
            entrants: Vec::new(),
            dropouts: Vec::new(),
            block_length: options.block_length,
        };
        for (at, (method, fit_options)) in methods.iter().enumerate() {
            let mut entry = Entry::new(*method, states.n_samples());
            let mut failed = None;
            for (fold, (training, held_out)) in parts.iter().enumerate() {
                if options.cancel.is_cancelled() {
                    return Err(mpf_ising::Error::Cancelled.into());
                }
                let scored = method
                    .fit(training, fit_options, &mut |_| {})
                    .and_then(|fit| self.score(&mut entry, &fit, held_out, folds.held_out(fold)));
                if let Err(error) = scored {
                    failed = Some(error);
                    break;
                }
                observer(at, fold);
            }
            let finished = match failed {
                None => entry.finish(options.block_length),
                Some(error) => Err(error),
            };
            match finished {
                Ok(entrant) => comparison.entrants.push(entrant),
                Err(error) => comparison.dropouts.push(Dropout {
                    name: method.describe().title,
                    error,
                }),
            }
        }
        Ok(comparison)
    }

    fn score(
        &self,
        entry: &mut Entry<'_>,
        fit: &Fit,
        held_out: &States,
        places: &[usize],
    ) -> Result<()> {
        let share = places.len() as f64 / entry.scores.len() as f64;
        let log_z = self.log_z(&fit.couplings)?;
        let value = log_z.map_or(f64::NAN, |z| z.value.value);
        let scores = sample_scores(&fit.couplings, held_out);
        for (&place, score) in places.iter().zip(scores) {
            // The third is the energy.
            entry.scores[place] = [score[0], score[1], -score[2] - value];
        }
        if let Some(log_z) = log_z {
            entry.source = Some(log_z.source);
            entry.log_z_error = entry.log_z_error.hypot(share * log_z.value.standard_error);
        } else {
            entry.has_likelihood = false;
        }
        if entry.method.describe().objective == Some(OwnObjective::LogRise) {
            let objectives = Objectives::of(&fit.couplings, &Samples::new(held_out)?)?;
            entry.log_rise += share * objectives.log_rise;
        }
        entry.seconds += fit.seconds;
        entry
            .warnings
            .extend(fit.warnings.iter().map(ToString::to_string));
        Ok(())
    }

    fn log_z(&self, couplings: &Couplings) -> Result<Option<LogZ>> {
        let known = |value: f64, source| {
            Ok(Some(LogZ {
                value: BlockMean {
                    value,
                    standard_error: 0.0,
                },
                source,
            }))
        };
        if couplings.n_units() <= Exact::MAX_UNITS {
            return known(Exact::new(couplings)?.log_z(), LogZSource::Enumeration);
        }
        if let Some(lattice) = &self.options.lattice {
            match ExactLattice::new(couplings, lattice) {
                Ok(exact) => return known(exact.log_z(), LogZSource::Lattice),
                // Couplings beyond the lattice: not its case.
                Err(mpf_samplers::Error::OffLattice { .. }) => {}
                Err(other) => return Err(other.into()),
            }
        }
        let Some(annealed) = &self.options.annealed else {
            return Ok(None);
        };
        let found = annealed_log_z(couplings, annealed)?;
        Ok(Some(LogZ {
            value: BlockMean {
                value: found.log_z,
                standard_error: found.standard_error,
            },
            source: LogZSource::Annealed,
        }))
    }
}

#[derive(Clone, Copy)]
struct LogZ {
    value: BlockMean,
    source: LogZSource,
}

/// One method under way.
struct Entry<'a> {
    method: &'a dyn Method,
    /// (MPF, PL, LL) of every sample.
    scores: Vec<[f64; 3]>,
    source: Option<LogZSource>,
    has_likelihood: bool,
    log_z_error: f64,
    log_rise: f64,
    seconds: f64,
    warnings: Vec<String>,
}

impl<'a> Entry<'a> {
    fn new(method: &'a dyn Method, n_samples: usize) -> Self {
        Self {
            method,
            scores: vec![[f64::NAN; 3]; n_samples],
            source: None,
            has_likelihood: true,
            log_z_error: 0.0,
            log_rise: 0.0,
            seconds: 0.0,
            warnings: Vec::new(),
        }
    }

    fn finish(self, block_length: usize) -> Result<Entrant> {
        let mean = |k: usize| -> Result<BlockMean> {
            let values: Vec<f64> = self.scores.iter().map(|s| s[k]).collect();
            Ok(block_mean(&values, block_length)?)
        };
        let (mpf, pseudolikelihood) = (mean(0)?, mean(1)?);
        check_mean("the held-out pseudolikelihood", &pseudolikelihood)?;
        let log_likelihood = if self.has_likelihood {
            let of_samples = mean(2)?;
            check_mean("the held-out log-likelihood", &of_samples)?;
            Some(BlockMean {
                standard_error: of_samples.standard_error.hypot(self.log_z_error),
                ..of_samples
            })
        } else {
            None
        };
        let description = self.method.describe();
        Ok(Entrant {
            name: description.title,
            own: description.objective.and_then(|objective| match objective {
                OwnObjective::Flow => Some(mpf.value),
                OwnObjective::Pseudolikelihood => Some(pseudolikelihood.value),
                OwnObjective::LogRise => Some(self.log_rise),
                OwnObjective::LogLikelihood => log_likelihood.map(|ll| -ll.value),
            }),
            mpf,
            pseudolikelihood,
            log_likelihood,
            log_z: self.source.filter(|_| self.has_likelihood),
            log_z_error: self.log_z_error,
            seconds: self.seconds,
            warnings: self.warnings,
            scores: self.scores,
        })
    }
}

/// (MPF, PL, E) of every sample. O(d · active) each.
fn sample_scores(couplings: &Couplings, states: &States) -> Vec<[f64; 3]> {
    let d = states.n_units();
    let spins = couplings.to_spins();
    let (model, theta) = (IsingModel::new(d), couplings.pack());
    let base: Vec<f64> = (0..d)
        .map(|i| spins.fields[i] - spins.couplings.row(i).sum())
        .collect();
    (0..states.n_samples())
        .into_par_iter()
        .map_init(
            || vec![0.0; d],
            |fields, m| {
                let row = states.row(m);
                fields.copy_from_slice(&base);
                for_each_set_bit(row, |j| {
                    for (field, k) in fields.iter_mut().zip(spins.couplings.row(j)) {
                        *field += 2.0 * k;
                    }
                });
                let (mut flow, mut pl) = (0.0, 0.0);
                for (i, &field) in fields.iter().enumerate() {
                    let margin = if get_bit(row, i) { field } else { -field };
                    flow += (-margin).exp();
                    pl += (-2.0 * margin).max(0.0) + (-2.0 * margin.abs()).exp().ln_1p();
                }
                [flow, pl, model.energy(&theta, row)]
            },
        )
        .collect()
}
