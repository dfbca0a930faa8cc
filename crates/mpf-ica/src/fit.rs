//! Fits filters: two trainers of MPF, and maximum likelihood, under one interface.
//!
//! ```text
//! alternating   Ĵ ← argmin K(J; D, θ_H), with x′ fixed;  θ_H ← Ĵ;  redraw x′   (Appendix H)
//! stochastic    J ← J − rate · ∇ ln K(J; batch, θ_H = J),  x′ redrawn at every step
//! likelihood    Ĵ ← argmax ⟨ln p(x; J)⟩
//! ```
//!
//! The alternating trainer is the paper's. In a hundred dimensions its inner minimisation leaves
//! the region that the neighbours describe; use the stochastic trainer there.
//!
//! K has no ln |det J| to hold J up, and a fit tends to lose a direction of the data: the filters
//! become nearly dependent, and the likelihood falls by several nats. Both trainers of MPF look
//! for that and replace a filter when they find it; the result lists the replacements.

mod alternating;
mod maximum_likelihood;
mod outcome;
mod run;
mod stochastic;

pub use alternating::{Alternating, NeighbourRule};
pub use outcome::{Fit, LastPhase, Rescue, TracePoint};
pub use stochastic::{Metropolis, Stochastic};

use crate::model::Filters;
use crate::{Error, Result};
use mpf_core::{Cancel, Checkpoint, check_count, check_not_zero, check_option};
use ndarray::ArrayView2;
use run::Run;

/// How J is learned.
#[derive(Clone, Debug)]
pub enum Trainer {
    /// MPF by stochastic gradients, the neighbours drawn anew at every step.
    Stochastic(Stochastic),
    /// The paper's MPF: L-BFGS with the neighbours fixed, then new neighbours.
    Alternating(Alternating),
    /// Maximum likelihood by L-BFGS, the yardstick.
    MaximumLikelihood {
        /// Most iterations. 300 is enough at d = 100, and still creeping.
        max_iterations: usize,
    },
}

impl Trainer {
    /// Returns the stochastic trainer of MPF with its defaults.
    pub fn stochastic() -> Self {
        Self::Stochastic(Stochastic::default())
    }

    /// Returns the paper's trainer of MPF with its defaults.
    pub fn alternating() -> Self {
        Self::Alternating(Alternating::default())
    }

    /// Returns maximum likelihood with at most 300 iterations.
    pub fn maximum_likelihood() -> Self {
        Self::MaximumLikelihood {
            max_iterations: 300,
        }
    }

    /// Returns the most updates, rounds or iterations that it takes.
    pub fn n_steps(&self) -> usize {
        match self {
            Self::Stochastic(trainer) => trainer.n_steps(),
            Self::Alternating(trainer) => trainer.rounds,
            Self::MaximumLikelihood { max_iterations } => *max_iterations,
        }
    }
}

/// Options of a [`Fitter`], unchecked.
#[derive(Clone, Debug)]
pub struct FitOptions {
    /// How J is learned. Default: [`Trainer::stochastic`].
    pub trainer: Trainer,
    /// Where J starts. Default: the paper's N(0, 0.01) entries, drawn by `seed`.
    pub start: Option<Filters>,
    /// The seed of everything random. Default 0.
    pub seed: u64,
    /// Steps of the stochastic trainer between two measurements of the likelihood, which are off
    /// the clock. The other trainers measure it at every step. Default 50.
    pub report_every: usize,
    /// Most seconds of learning time. Default +∞.
    pub max_seconds: f64,
    /// Stops the run; the result is what was learned so far.
    pub cancel: Cancel,
    /// Where the state is kept whenever the likelihood is measured, and resumed from. While it is
    /// on, each measurement copies the trainer's state, off the clock: a few matrices, and for the
    /// stochastic trainer the order of the samples. Default: nowhere.
    pub checkpoint: Checkpoint,
}

impl Default for FitOptions {
    fn default() -> Self {
        Self {
            trainer: Trainer::stochastic(),
            start: None,
            seed: 0,
            report_every: 50,
            max_seconds: f64::INFINITY,
            cancel: Cancel::new(),
            checkpoint: Checkpoint::default(),
        }
    }
}

/// Fits filters to whitened data.
///
/// ```
/// use mpf_ica::{Filters, FitOptions, Fitter, Trainer};
/// use ndarray::array;
///
/// // Two Laplace sources, mixed.
/// let truth = Filters::new(array![[1.0, 0.4], [-0.3, 1.2]])?;
/// let data = truth.draw(5000, &mut mpf_core::rng::stream(1, 0))?;
/// let fit = Fitter::new(FitOptions::default())?.fit(data.view())?;
/// let best = Fitter::new(FitOptions {
///     trainer: Trainer::maximum_likelihood(),
///     ..Default::default()
/// })?
/// .fit(data.view())?;
/// assert!(best.log_likelihood - fit.log_likelihood < 0.005); // nats
/// # Ok::<(), mpf_ica::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Fitter {
    options: FitOptions,
}

impl Fitter {
    /// Checks the options.
    ///
    /// # Errors
    /// [`mpf_core::Error::Option`] for an option outside its range.
    pub fn new(options: FitOptions) -> Result<Self> {
        check_not_zero("report_every", options.report_every)?;
        let seconds = options.max_seconds;
        check_option("max_seconds", seconds, "not negative", seconds >= 0.0)?;
        match &options.trainer {
            Trainer::Stochastic(trainer) => trainer.check()?,
            Trainer::Alternating(trainer) => trainer.check()?,
            Trainer::MaximumLikelihood { .. } => {}
        }
        Ok(Self { options })
    }

    /// Fits the rows of `data`, which should be [whitened](crate::Whitening).
    ///
    /// A run whose [checkpoint](FitOptions::checkpoint) holds the state of an earlier one continues
    /// from there and ends with the same bits. Resume only with the same data and options; this is
    /// not checked.
    ///
    /// # Errors
    /// [`Error::TooFewSamples`] unless there are more samples than dimensions;
    /// [`Error::NonFinite`]; [`Error::SingularFilters`] for a start without an inverse;
    /// [`Error::NotWhitened`] for MPF of data whose scale is far from 1; [`Error::Diverged`] for a
    /// rate that is far too high; [`Error::Overflow`] and [`Error::Core`] for filters that become
    /// too large for their likelihood or their singular values, and [`Error::Core`] for the state
    /// of another fit.
    pub fn fit(&self, data: ArrayView2<'_, f64>) -> Result<Fit> {
        self.fit_observed(data, |_| {})
    }

    /// Fits, and calls `observer` at the start and whenever the likelihood is measured.
    ///
    /// # Errors
    /// As [`Fitter::fit`].
    pub fn fit_observed(
        &self,
        data: ArrayView2<'_, f64>,
        mut observer: impl FnMut(&TracePoint),
    ) -> Result<Fit> {
        let (n_samples, n_dims) = data.dim();
        if n_samples <= n_dims || n_dims == 0 {
            return Err(Error::TooFewSamples { n_samples, n_dims });
        }
        let data = data.as_standard_layout();
        let start = match &self.options.start {
            Some(start) => start.clone(),
            None => Filters::random(n_dims, self.options.seed),
        };
        check_count("filters of the start", n_dims, start.n_dims())?;
        let run = Run::new(data.view(), &self.options, &mut observer)?;
        match &self.options.trainer {
            Trainer::Stochastic(trainer) => trainer.fit(run, start),
            Trainer::Alternating(trainer) => trainer.fit(run, start),
            Trainer::MaximumLikelihood { max_iterations } => {
                maximum_likelihood::fit(run, &start, *max_iterations)
            }
        }
    }
}
