//! The recipe on a part of the data, scored on the rest.
//!
//! ```text
//! bits = −⟨log₂ p(x)⟩ over the held-out samples = (⟨E⟩ + ln Z)/ln 2
//! ```
//!
//! The held-out samples are the last ones, in one piece: neighbours in time of a sample that is
//! trained on test nothing. ln Z is exact up to 24 units and annealed beyond. Where annealing cannot
//! be relied on, or would take too long, the score is the pseudolikelihood.

use super::polish::{Verdict, polish};
use super::{Recipe, StepData, Trained, with_checkpoint};
use crate::Result;
use crate::error::{Error, check_mean};
use crate::independent::independent_couplings;
use crate::log_z::LogZ;
use crate::method::MethodOptions;
use crate::sample_scores::sample_scores;
use mpf_core::{Cancel, Checkpoint};
use mpf_ising::{BlockMean, Couplings, Data, FitProgress, Samples, States, block_mean};
use serde::{Deserialize, Serialize};
use std::f64::consts::LN_2;

/// Fewer held-out samples than this say nothing.
pub(crate) const MIN_HELD_OUT: usize = 20;
/// The most samples of a stream that are scored: they are spread over the held-out ones.
const MAX_SCORED: usize = 20_000;

/// What the bits of a [`HeldOut`] measure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// −log₂ p(x).
    LogLikelihood {
        /// ln Z of the model that was scored.
        log_z: LogZ,
    },
    /// −Σ_i log₂ p(x_i | the others).
    Pseudolikelihood,
}

/// Scores on held-out samples, in bits per sample; fewer are better.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldOut {
    /// Samples that the recipe was fitted to.
    pub n_training: usize,
    /// Samples that it was not fitted to, and was scored on.
    pub n_held_out: usize,
    /// How many of these were scored, if not all; not part of files.
    #[serde(skip)]
    pub n_scored: Option<usize>,
    /// What was measured.
    pub measure: Measure,
    /// The model's bits. The error includes that of ln Z.
    pub model: BlockMean,
    /// Those of independent units, fitted to the same samples.
    pub independent: BlockMean,
    /// The second minus the first, paired sample by sample: positive for a model worth having.
    pub gain: BlockMean,
}

/// A model scored on held-out samples, with what it takes to compare it with another.
struct Scored {
    /// Bits of every sample.
    bits: Vec<f64>,
    /// The error of ln Z, in bits.
    error: f64,
    measure: Measure,
}

/// Returns ln p(x) of every sample, in nats: with ln Z by enumeration up to 24 units, and by annealing
/// beyond. Where annealing cannot be relied on, and for more than 400 units, returns
/// Σ_i ln p(x_i | the others) instead, and says so.
///
/// # Errors
/// Those of [`Exact::new`](mpf_ising::Exact::new) and
/// [`annealed_log_z`](mpf_samplers::annealed_log_z), cancellation among them.
pub fn log_scores(
    couplings: &Couplings,
    states: &States,
    seed: u64,
    cancel: &Cancel,
) -> Result<(Vec<f64>, Measure)> {
    let log_z = log_z(couplings, seed, cancel)?;
    Ok(log_probabilities(&sample_scores(couplings, states), log_z))
}

/// Returns ln Z, or `None` where it would take too long.
fn log_z(couplings: &Couplings, seed: u64, cancel: &Cancel) -> Result<Option<LogZ>> {
    let annealed = LogZ::quick(couplings.n_units(), seed, cancel);
    LogZ::of(couplings, None, annealed.as_ref())
}

/// Makes log-probabilities of the scores of samples; pseudolikelihoods if ln Z is not known.
pub(crate) fn log_probabilities(scores: &[[f64; 3]], log_z: Option<LogZ>) -> (Vec<f64>, Measure) {
    match log_z.filter(LogZ::is_reliable) {
        Some(log_z) => (
            scores.iter().map(|s| -(s[2] + log_z.value)).collect(),
            Measure::LogLikelihood { log_z },
        ),
        None => (
            scores.iter().map(|s| -s[1]).collect(),
            Measure::Pseudolikelihood,
        ),
    }
}

impl Scored {
    fn new(couplings: &Couplings, held_out: &States, options: &MethodOptions) -> Result<Self> {
        let cancel = &options.minimizer.cancel;
        let log_z = log_z(couplings, options.seed, cancel)?;
        Ok(Self::of(&sample_scores(couplings, held_out), log_z))
    }

    /// Takes the scores of samples, and ln Z if it is known.
    fn of(scores: &[[f64; 3]], log_z: Option<LogZ>) -> Self {
        let (nats, measure) = log_probabilities(scores, log_z);
        Self {
            bits: nats.iter().map(|nats| -nats / LN_2).collect(),
            error: match measure {
                Measure::LogLikelihood { log_z } => log_z.standard_error / LN_2,
                Measure::Pseudolikelihood => 0.0,
            },
            measure,
        }
    }

    fn is_likelihood(&self) -> bool {
        matches!(self.measure, Measure::LogLikelihood { .. })
    }

    fn mean(&self, block_length: usize) -> Result<BlockMean> {
        self.with_error(block_mean(&self.bits, block_length)?)
    }

    /// Returns how many bits fewer this model needs than `other`, a list of bits.
    fn gain_over(&self, other: &[f64], block_length: usize) -> Result<BlockMean> {
        let gains: Vec<f64> = other.iter().zip(&self.bits).map(|(o, s)| o - s).collect();
        self.with_error(block_mean(&gains, block_length)?)
    }

    /// Puts this model beside independent units.
    fn beside(
        &self,
        independent: &[f64],
        n_training: usize,
        block_length: usize,
    ) -> Result<HeldOut> {
        Ok(HeldOut {
            n_training,
            n_held_out: self.bits.len(),
            n_scored: None,
            measure: self.measure,
            model: self.mean(block_length)?,
            independent: block_mean(independent, block_length)?,
            gain: self.gain_over(independent, block_length)?,
        })
    }

    fn with_error(&self, mean: BlockMean) -> Result<BlockMean> {
        let mean = BlockMean {
            standard_error: mean.standard_error.hypot(self.error),
            ..mean
        };
        check_mean("a held-out score", &mean)?;
        Ok(mean)
    }
}

/// Returns the bits of every held-out sample under independent units that were fitted to `training`.
fn independent_bits(training: Data<'_>, held_out: &States) -> Result<Vec<f64>> {
    let null = independent_couplings(&training.means(), training.total_weight())?;
    // Of independent units, the pseudolikelihood is the likelihood.
    let null = sample_scores(&null, held_out);
    Ok(null.iter().map(|s| s[1] / LN_2).collect())
}

/// Puts the scores of any model on held-out samples beside those of independent units.
pub(crate) fn score_held_out(
    scores: &[[f64; 3]],
    log_z: Option<LogZ>,
    training: &Samples,
    held_out: &States,
    block_length: usize,
) -> Result<HeldOut> {
    let independent = independent_bits(training.into(), held_out)?;
    Scored::of(scores, log_z).beside(&independent, training.n_observed(), block_length)
}

/// A part of the data, the fit to it, and its score on the rest.
pub(super) struct Check {
    /// The samples of the part; of a stream, some of them.
    training: Samples,
    held_out: States,
    couplings: Couplings,
    scored: Scored,
    /// Bits of independent units for every held-out sample.
    independent: Vec<f64>,
    block_length: usize,
    pub(super) found: HeldOut,
}

impl Check {
    /// Fits the last stage of `recipe` to the first samples, and scores the fit on the others.
    /// Returns `None` for samples that are too few, or in no order.
    pub(super) fn new(
        recipe: &Recipe,
        trained: &Trained,
        data: StepData<'_>,
    ) -> Result<Option<Self>> {
        let n = match data.all {
            Data::Samples(_) => data.states.map_or(0, States::n_samples),
            Data::Stream(stream) if stream.has_weights() => 0,
            Data::Stream(stream) => stream.n_rows(),
        };
        let n_held_out = (recipe.held_out * n as f64).round() as usize;
        if n_held_out < MIN_HELD_OUT || n_held_out >= n {
            return Ok(None);
        }
        let n_training = n - n_held_out;
        let (training, held_out, couplings, independent) = match data.all {
            Data::Samples(_) => {
                let states = data.states()?;
                let training = Samples::new(&states.slice(0..n_training))?;
                let held_out = states.slice(n_training..n);
                let couplings = fit_part(recipe, trained, (&training).into())?;
                let independent = independent_bits((&training).into(), &held_out)?;
                (training, held_out, couplings, independent)
            }
            Data::Stream(stream) => {
                let (part, rest) = stream.split(n_training..n)?;
                let held_out = rest.spread_states(MAX_SCORED)?;
                let couplings = fit_part(recipe, trained, (&part).into())?;
                let independent = independent_bits((&part).into(), &held_out)?;
                let training = part.spread(Recipe::n_held(stream.n_units()))?;
                (training, held_out, couplings, independent)
            }
        };
        let scored = Scored::new(&couplings, &held_out, &trained.options)?;
        let block_length = trained.block_length.min(held_out.n_samples() / 2);
        let mut found = scored.beside(&independent, n_training, block_length)?;
        if held_out.n_samples() < n_held_out {
            found.n_scored = Some(found.n_held_out);
            found.n_held_out = n_held_out;
        }
        Ok(Some(Self {
            training,
            held_out,
            couplings,
            scored,
            independent,
            block_length,
            found,
        }))
    }

    /// Polishes the fit to the part, and says what that does to the score.
    pub(super) fn try_polishing(
        &self,
        trained: &Trained,
        updates: usize,
        checkpoint: &Checkpoint,
        observer: &(dyn Fn(&FitProgress<'_>) + Sync),
    ) -> Result<Verdict> {
        if !self.scored.is_likelihood() {
            return Ok(Verdict::NotJudged);
        }
        let start = &self.couplings;
        let polished = polish(
            trained,
            start,
            &self.training,
            updates,
            checkpoint,
            observer,
        )?;
        let scored = Scored::new(&polished.couplings, &self.held_out, &trained.options)?;
        if !scored.is_likelihood() {
            return Ok(Verdict::NotJudged);
        }
        let gain = scored.gain_over(&self.scored.bits, self.block_length)?;
        let gain = self.scored.with_error(gain)?;
        let polished = HeldOut {
            measure: scored.measure,
            model: scored.mean(self.block_length)?,
            gain: scored.gain_over(&self.independent, self.block_length)?,
            ..self.found
        };
        Ok(if gain.value > gain.standard_error {
            Verdict::Better { gain, polished }
        } else {
            Verdict::Worse { gain, polished }
        })
    }
}

/// Fits the last stage of `recipe` to a part of the data.
fn fit_part(recipe: &Recipe, trained: &Trained, part: Data<'_>) -> Result<Couplings> {
    let options = &trained.options;
    let checkpoint = &options.minimizer.checkpoint;
    let couplings = checkpoint.unit("fit of a part", |entry| {
        let mut options = with_checkpoint(options, entry.clone());
        // The objectives of refinements are convex: a fit that converges forgets its start.
        if recipe.refiner(part.n_units()).is_some() && trained.fit.stop.is_converged() {
            options.start = Some(trained.fit.couplings.clone());
        }
        let fit = recipe
            .last(part.n_units())
            .fit(part, &options, &mut |_| {})?;
        Ok::<_, Error>(fit.couplings)
    })?;
    options.minimizer.cancel.check()?;
    Ok(couplings)
}
