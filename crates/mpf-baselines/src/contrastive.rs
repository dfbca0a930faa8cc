//! Contrastive divergence (Hinton; paper, Eq. `CDstep` and Appendix E).
//!
//! ```text
//! ΔJ_ij = η_t (⟨x_i x_j⟩_k − ⟨x_i x_j⟩_0)        i ≠ j, both entries alike
//! ΔJ_ii = η_t (⟨x_i⟩_k − ⟨x_i⟩_0)
//! ΔV(n) = ½ η_t (P_k(n) − P_0(n)) / (½ [P_k(n) + P_0(n)] + 0.001)     K-pairwise models
//! ```
//!
//! ⟨·⟩_0 is the mean over the data, ⟨·⟩_k that over chains which started at the data and made k
//! Gibbs sweeps each ([`mpf_samplers::Gibbs`], units 0, 1, …, d − 1). This is Eq. `CDstep` with
//! ∂E/∂J taken entry by entry, ∂E/∂J_ij = x_i x_j, so that J_ij and J_ji each get one share and
//! η means the same on and off the diagonal; η_t falls linearly from 3.0 to 0.1 over the updates.
//! On the paper's 10×10 spin glass (σ² = 10, lattice couplings only, M = 2·10⁴, CD-1) the median
//! ε_J over five J's is then .44, .25, .12 and .08 after 10, 100, 500 and 1000 updates; J's differ
//! by a factor of two to three. (∂E/∂J_ij = 2 x_i x_j of the tied pair would double the steps off
//! the diagonal: .40 and .23 after 10 and 100.)
//!
//! When *not* to use it: it minimises nothing and need not converge, its steps are in the badly
//! scaled parameters of 0/1 units, and its answer depends on η. For Ising models MPF and
//! pseudolikelihood are better in every respect; it is here because the paper compares with it.

mod chains;
mod options;
mod parameters;
mod snapshot;

pub use options::{ContrastiveOptions, LearningRate};

use crate::Result;
use crate::method::{Description, Method, MethodOptions, Observer, Takes};
use chains::{Chains, Moments};
use mpf_core::{StopReason, Stopwatch, TracePoint};
use mpf_ising::{Data, Fit, FitProgress, Samples, Warning};
use mpf_samplers::Gibbs;
use parameters::Parameters;
use snapshot::Snapshot;

/// CD-k with checked options.
///
/// Every sample is a chain; of data with weights that are not counts (or with more than 5·10⁷
/// of them), every distinct sample is one chain that carries its weight. The result is the same
/// for any number of threads.
///
/// In the [`Fit`], an iteration is an update, and there is no objective: `value` is the root mean
/// square over the free parameters, and `kkt_residual` the largest size, of the last ⟨·⟩_k − ⟨·⟩_0
/// (noise included, so about 1/√M at best). `stop` is [`StopReason::IterationLimit`] when all
/// updates were made. All of it is finite.
///
/// ```
/// use mpf_baselines::{ContrastiveDivergence, ContrastiveOptions};
/// use mpf_ising::{Couplings, Exact, Samples};
/// use ndarray::array;
///
/// let truth = Couplings::new(array![[0.5, -1.0], [-1.0, 0.2]])?;
/// let states = Exact::new(&truth)?.draw(20_000, 1);
/// let learner = ContrastiveDivergence::new(ContrastiveOptions {
///     updates: 200,
///     ..Default::default()
/// })?;
/// let fit = learner.fit(&Samples::new(&states)?)?;
/// assert!(fit.couplings.mean_square_error(&truth) < 0.01);
/// # Ok::<(), mpf_baselines::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ContrastiveDivergence {
    options: ContrastiveOptions,
}

impl ContrastiveDivergence {
    /// Checks the options.
    ///
    /// # Errors
    /// [`mpf_core::Error::Option`] for no sweeps, no updates, empty batches, a learning rate that is
    /// not positive and finite, or a time limit that is negative or NaN.
    pub fn new(options: ContrastiveOptions) -> Result<Self> {
        options.check()?;
        Ok(Self { options })
    }

    /// Learns couplings from samples.
    ///
    /// # Errors
    /// [`Error::Diverged`](crate::Error::Diverged) when a parameter runs away;
    /// [`mpf_core::Error::Option`] for a start that has;
    /// [`mpf_ising::Error::UnitCount`], [`mpf_ising::Error::NotFinite`] and
    /// [`mpf_ising::Error::Edge`] for a start, biases or a support of other units;
    /// [`mpf_ising::Error::TooLarge`] for fixed biases whose energies overflow;
    /// [`Error::TooManySamples`](crate::Error::TooManySamples); [`mpf_core::Error::Checkpoint`] for
    /// the state of another run.
    pub fn fit(&self, samples: &Samples) -> Result<Fit> {
        self.fit_observed(samples, |_| {})
    }

    /// As [`ContrastiveDivergence::fit`], calling `observer` after every update.
    ///
    /// # Errors
    /// As [`ContrastiveDivergence::fit`].
    pub fn fit_observed(
        &self,
        samples: &Samples,
        mut observer: impl FnMut(&FitProgress<'_>),
    ) -> Result<Fit> {
        let options = &self.options;
        let mut clock = Stopwatch::start();
        let mut parameters = Parameters::new(options, samples)?;
        let mut chains = Chains::new(options, samples)?;
        // Persistent chains are not contrasted with the samples that they started from.
        let data = (chains.is_full_batch() || options.persistent)
            .then(|| Moments::of_samples(samples, &parameters.pairs));
        let mut trace: Vec<TracePoint> = Vec::new();
        if let Some(mut earlier) = options.checkpoint.resume::<Snapshot>()? {
            let sum = std::mem::take(&mut earlier.sum);
            parameters.resume(earlier.couplings.clone(), sum)?;
            trace = std::mem::take(&mut earlier.trace);
            chains.resume(earlier)?;
            clock = Stopwatch::start_at(trace.last().map_or(0.0, |point| point.seconds));
        }
        let stop = loop {
            let update = trace.len();
            if update >= options.updates {
                break StopReason::IterationLimit;
            }
            if let Some(reason) = options.cancel.reason() {
                break reason;
            }
            if clock.seconds() >= options.max_seconds {
                break StopReason::TimeLimit;
            }
            let gibbs = Gibbs::new(&parameters.couplings)?;
            let moments = chains.run(&gibbs, &parameters.pairs, update, data.as_ref());
            let Some(moments) = moments else {
                break options.cancel.reason().unwrap_or(StopReason::Cancelled);
            };
            let rate = options.learning_rate.at(update, options.updates);
            let (value, gradient_norm) = parameters.update(&moments, rate, update + 1)?;
            if update + options.average >= options.updates {
                parameters.accumulate();
            }
            let point = TracePoint {
                iteration: update + 1,
                evaluations: update + 1,
                value,
                gradient_norm,
                seconds: clock.seconds(),
            };
            trace.push(point);
            clock.pause(|| {
                let couplings = &parameters.couplings;
                observer(&FitProgress::new(point, &|| couplings.clone()));
                let checkpoint = &options.checkpoint;
                checkpoint.offer(|| chains.snapshot(&parameters, &trace));
            });
        };
        let seconds = trace.last().map_or(0.0, |point| point.seconds);
        if options.checkpoint.is_on() {
            let snapshot = chains.snapshot(&parameters, &trace);
            options.checkpoint.note(snapshot);
        }
        let last = trace.last();
        let kkt_residual = last.map_or(0.0, |p| p.gradient_norm);
        let couplings = parameters.average()?;
        let weight = samples.total_weight();
        let mut warnings = Vec::new();
        warnings.extend(Warning::constant_units(&parameters.means));
        warnings.extend(Warning::run_away(&couplings, &parameters.pairs, weight));
        warnings.extend(Warning::run_away_fields(
            &couplings,
            &parameters.means,
            weight,
        ));
        if stop != StopReason::IterationLimit {
            warnings.extend(Warning::not_converged(stop, kkt_residual));
        }
        let value = last.map_or(0.0, |p| p.value);
        Ok(Fit {
            stop,
            kkt_residual,
            iterations: trace.len(),
            evaluations: trace.len(),
            trace,
            ..Fit::closed_form(couplings, value, seconds, warnings)
        })
    }
}

/// [`ContrastiveDivergence`] as one of the methods.
pub(crate) struct Cd;

impl Method for Cd {
    fn describe(&self) -> Description {
        Description {
            takes: &[Takes::Support, Takes::Updates],
            competes: false,
            ..Description::new("cd", "CD", "Contrastive divergence")
        }
    }

    fn fit(&self, data: Data<'_>, options: &MethodOptions, observer: Observer<'_>) -> Result<Fit> {
        ContrastiveDivergence::new(ContrastiveOptions {
            sweeps: options.sweeps,
            updates: options.updates,
            support: options.support.clone(),
            start: options.start.clone(),
            seed: options.seed,
            max_seconds: options.minimizer.max_seconds,
            cancel: options.minimizer.cancel.clone(),
            checkpoint: options.minimizer.checkpoint.clone(),
            ..Default::default()
        })?
        .fit_observed(self.in_memory(data)?, observer)
    }

    fn steps(&self, _: usize, options: &MethodOptions) -> (&'static str, Option<usize>) {
        ("updates", Some(options.updates))
    }
}
