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
use crate::log_z::{LogZ, LogZSource};
use crate::machine::{MachineFit, MachineOptions, MachineTrainer};
use crate::method::{Method, MethodOptions, OwnObjective};
use crate::objectives::Objectives;
use crate::recipe::{Recipe, Trained, TrainingData, or_time_limit};
use crate::sample_scores::sample_scores;
use mpf_core::{Cancel, StopReason};
use mpf_ising::internal::n_blocks;
use mpf_ising::{BlockMean, FoldAssignment, Folds, Lattice, Samples, States, block_mean};
use mpf_samplers::AnnealedOptions;
use serde::Serialize;

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

/// What a contender fits.
#[derive(Clone)]
pub enum Plan {
    /// An Ising or K-pairwise model.
    Recipe(Box<Recipe>),
    /// A machine with hidden units.
    Machine(Box<MachineOptions>),
}

/// A model that enters a tournament.
#[derive(Clone)]
pub struct Contender {
    /// Its name in tables.
    pub name: String,
    /// What is fitted.
    pub plan: Plan,
}

impl Contender {
    /// Enters one method alone, under its title.
    pub fn alone(method: &'static dyn Method, options: MethodOptions) -> Self {
        Self::new(method.describe().title, Recipe::alone(method, options))
    }

    /// Enters a recipe.
    pub fn new(name: impl Into<String>, recipe: Recipe) -> Self {
        Self {
            name: name.into(),
            plan: Plan::Recipe(Box::new(recipe)),
        }
    }

    /// Enters a machine with hidden units.
    pub fn machine(name: impl Into<String>, options: MachineOptions) -> Self {
        Self {
            name: name.into(),
            plan: Plan::Machine(Box::new(options)),
        }
    }

    /// Returns the objective that it is judged by, for so many units.
    fn objective(&self, n_units: usize) -> Option<OwnObjective> {
        match &self.plan {
            Plan::Recipe(recipe) => recipe.last(n_units).describe().objective,
            Plan::Machine(machine) => match machine.trainer {
                MachineTrainer::Mpf => Some(OwnObjective::Flow),
                MachineTrainer::Pseudolikelihood => Some(OwnObjective::Pseudolikelihood),
                MachineTrainer::Contrastive | MachineTrainer::Persistent => None,
            },
        }
    }
}

/// One method's scores on samples that it has not seen. Finite but for those of MPF.
#[derive(Clone, Debug, Serialize)]
pub struct Entrant {
    /// The name of the contender.
    pub name: String,
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
    /// The name of the contender.
    pub name: String,
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

/// Compares methods on held-out samples. Its options are checked against the data.
///
/// ```
/// use mpf_baselines::{Contender, Criterion, Methods, Recipe, Tournament};
/// use mpf_ising::{Couplings, Exact};
/// use ndarray::array;
///
/// let truth = Couplings::new(array![[0.5, -1.0], [-1.0, 0.2]])?;
/// let states = Exact::new(&truth)?.draw(2000, 1);
/// let auto = Contender::new("auto", Recipe::default());
/// let null = Methods::default().find("independent").unwrap();
/// let null = Contender::alone(null, Default::default());
/// let table = Tournament::default().run(&[auto, null], &states, |_, _| {})?;
/// assert_eq!(table.best_index(Criterion::LogLikelihood), Some(0));
/// let worse = table.difference(1, 0, Criterion::LogLikelihood)?.unwrap();
/// assert!(worse.value < -3.0 * worse.standard_error);
/// # Ok::<(), mpf_baselines::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tournament {
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
    /// The handle that stops the run between fits. Contenders that have not ended when its time is over
    /// drop out.
    pub cancel: Cancel,
}

impl Default for Tournament {
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

impl Tournament {
    /// Fits every contender without every fold, and scores it there. `observer` is called with the
    /// contender's and the fold's number after every fit.
    ///
    /// # Errors
    /// [`mpf_ising::Error::Folds`], [`mpf_ising::Error::BlockLength`], and
    /// [`mpf_core::Error::Cancelled`]. A method that fails, or whose likelihoods are not finite, is
    /// a [`Dropout`], not an error.
    pub fn run(
        &self,
        contenders: &[Contender],
        states: &States,
        mut observer: impl FnMut(usize, usize),
    ) -> Result<Comparison> {
        n_blocks(states.n_samples(), self.block_length)?;
        let folds = Folds::new(states.n_samples(), self.n_folds, self.assignment)?;
        let parts = (0..folds.n_folds())
            .map(|fold| {
                let (training, held_out) = folds.split(states, fold)?;
                Ok((Samples::new(&training)?, training, held_out))
            })
            .collect::<Result<Vec<_>>>()?;
        let mut comparison = Comparison {
            entrants: Vec::new(),
            dropouts: Vec::new(),
            block_length: self.block_length,
        };
        for (at, contender) in contenders.iter().enumerate() {
            let objective = contender.objective(states.n_units());
            let mut judge = |(fold, (samples, training, held_out)): (usize, &(_, _, _))| {
                self.cancel.check()?;
                let found = match &contender.plan {
                    Plan::Recipe(recipe) => {
                        let mut recipe = recipe.clone();
                        let limits = &mut recipe.options.minimizer;
                        limits.cancel = limits.cancel.within(limits.max_seconds);
                        let data = TrainingData {
                            samples,
                            states: Some(training),
                        };
                        let trained = recipe.deliver(data)?;
                        self.cancel.check()?;
                        self.judge_trained(&trained, objective, held_out)?
                    }
                    Plan::Machine(options) => {
                        self.judge_machine(options.fit(samples, &mut |_| {})?, held_out)?
                    }
                };
                observer(at, fold);
                Ok(found)
            };
            let judged: Result<Vec<Judged>> = parts.iter().enumerate().map(&mut judge).collect();
            let name = contender.name.clone();
            match judged.and_then(|all| self.entrant(&name, objective, &all, &folds)) {
                Ok(entrant) => comparison.entrants.push(entrant),
                Err(_) if self.cancel.reason() == Some(StopReason::Cancelled) => {
                    return Err(mpf_core::Error::Cancelled.into());
                }
                Err(error) => comparison.dropouts.push(Dropout {
                    name,
                    error: or_time_limit(error),
                }),
            }
        }
        Ok(comparison)
    }

    fn judge_trained(
        &self,
        trained: &Trained,
        objective: Option<OwnObjective>,
        held_out: &States,
    ) -> Result<Judged> {
        let fit = &trained.fit;
        let (lattice, annealed) = (self.lattice.as_ref(), self.annealed.as_ref());
        let mut warnings: Vec<String> = fit.warnings.iter().map(ToString::to_string).collect();
        let failures = trained.failures.iter();
        warnings.extend(failures.map(|f| format!("{}: {}", f.step, f.error)));
        Ok(Judged {
            scores: sample_scores(&fit.couplings, held_out),
            log_z: LogZ::of(&fit.couplings, lattice, annealed)?,
            log_rise: match objective {
                Some(OwnObjective::LogRise) => {
                    Objectives::of(&fit.couplings, &Samples::new(held_out)?)?.log_rise
                }
                _ => 0.0,
            },
            seconds: fit.seconds,
            warnings,
        })
    }

    fn judge_machine(&self, fit: MachineFit, held_out: &States) -> Result<Judged> {
        let annealed = self.annealed.as_ref();
        Ok(Judged {
            scores: fit.machine.scores(held_out),
            log_z: annealed.map(|a| fit.machine.log_z(a)).transpose()?,
            log_rise: 0.0,
            seconds: fit.seconds,
            warnings: fit.warnings.iter().map(ToString::to_string).collect(),
        })
    }

    /// Puts the folds of a contender together.
    fn entrant(
        &self,
        name: &str,
        objective: Option<OwnObjective>,
        judged: &[Judged],
        folds: &Folds,
    ) -> Result<Entrant> {
        // (MPF, PL, LL) of every sample.
        let mut scores = vec![[f64::NAN; 3]; folds.n_samples()];
        let (mut log_z_error, mut log_rise) = (0.0f64, 0.0);
        for (fold, found) in judged.iter().enumerate() {
            let places = folds.held_out(fold);
            let share = places.len() as f64 / folds.n_samples() as f64;
            let log_z = found.log_z.map_or(f64::NAN, |z| z.value);
            for (&place, score) in places.iter().zip(&found.scores) {
                scores[place] = [score[0], score[1], -score[2] - log_z];
            }
            log_z_error = log_z_error.hypot(share * found.log_z.map_or(0.0, |z| z.standard_error));
            log_rise += share * found.log_rise;
        }
        let mean = |k: usize| -> Result<BlockMean> {
            let values: Vec<f64> = scores.iter().map(|s| s[k]).collect();
            Ok(block_mean(&values, self.block_length)?)
        };
        let (mpf, pseudolikelihood) = (mean(0)?, mean(1)?);
        check_mean("the held-out pseudolikelihood", &pseudolikelihood)?;
        // The source of the last fold, if all have one.
        let sources: Option<Vec<LogZ>> = judged.iter().map(|found| found.log_z).collect();
        let log_z = sources.and_then(|all| Some(all.last()?.source));
        let log_likelihood = if log_z.is_some() {
            let of_samples = mean(2)?;
            check_mean("the held-out log-likelihood", &of_samples)?;
            Some(BlockMean {
                standard_error: of_samples.standard_error.hypot(log_z_error),
                ..of_samples
            })
        } else {
            None
        };
        Ok(Entrant {
            name: name.to_owned(),
            own: objective.and_then(|objective| match objective {
                OwnObjective::Flow => Some(mpf.value),
                OwnObjective::Pseudolikelihood => Some(pseudolikelihood.value),
                OwnObjective::LogRise => Some(log_rise),
                OwnObjective::LogLikelihood => log_likelihood.map(|ll| -ll.value),
            }),
            mpf,
            pseudolikelihood,
            log_likelihood,
            log_z,
            log_z_error,
            seconds: judged.iter().map(|found| found.seconds).sum(),
            warnings: judged.iter().flat_map(|j| j.warnings.clone()).collect(),
            scores,
        })
    }
}

/// A model fitted without a fold, and judged there.
struct Judged {
    /// (MPF, PL, E) of every sample.
    scores: Vec<[f64; 3]>,
    log_z: Option<LogZ>,
    log_rise: f64,
    seconds: f64,
    warnings: Vec<String>,
}
