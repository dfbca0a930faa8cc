//! L-BFGS-B with ℓ1, a cancel handle, an observer, checkpoints and a reason for stopping.
//!
//! ```text
//! minimise f(θ) + Σ_k λ_k |θ_k|,   f smooth, λ_k ≥ 0
//! ```
//!
//! Within one orthant the penalty is linear. L-BFGS-B minimises there with the coordinate planes as
//! bounds, which makes the zeros exact. Then parameters that press against zero from the wrong side
//! change sides, until none does. The result carries the KKT residual: the largest entry of the
//! smallest subgradient, which without ℓ1 is the largest entry of the gradient. Many parameters without
//! ℓ1 have no bounds, and take the same steps by code that knows none.
//!
//! [`Minimum::seconds`] is *learning* time: the clock stands still inside the observer.

mod basin_backend;
#[cfg(feature = "lbfgsb")]
mod lbfgsb_backend;
mod search;
mod snapshot;
mod unbounded;

use crate::Result;
use crate::cancel::Cancel;
use crate::checkpoint::Checkpoint;
use crate::error::{Error, check_count, check_finite, check_not_zero, check_option, check_weights};
use crate::objective::Objective;
use search::Search;
use serde::{Deserialize, Serialize};
use snapshot::Snapshot;
use std::ops::Deref;

/// Why a minimisation stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum StopReason {
    /// The KKT residual is within the gradient tolerance: a minimum.
    Converged,
    /// No step lowers the value any more, although the gradient tolerance is not met and rounding
    /// does not explain it: the objective is not smooth, its gradient is wrong, or its curvatures
    /// differ too much.
    NoProgress,
    /// The iteration limit was reached.
    IterationLimit,
    /// The evaluation limit was reached.
    EvaluationLimit,
    /// The time limit was reached.
    TimeLimit,
    /// [`Cancel::cancel`] was called.
    Cancelled,
    /// Nothing was minimised: the answer has a closed form.
    ClosedForm,
    /// No step lowers the value any more, and the KKT residual, though above the gradient
    /// tolerance, is so small that the decrease it promises drowns in the rounding of the value: a
    /// minimum as far as `f64` can tell.
    MachinePrecision,
    /// The value fell below [`MinimizerOptions::lowest_value`]: there is no minimum.
    Unbounded,
}

impl StopReason {
    /// Returns whether the result is final: a minimum or a closed form.
    pub fn is_converged(self) -> bool {
        matches!(
            self,
            Self::Converged | Self::MachinePrecision | Self::ClosedForm
        )
    }
}

impl std::fmt::Display for StopReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Converged => "converged",
            Self::NoProgress => "no further progress possible",
            Self::IterationLimit => "iteration limit reached",
            Self::EvaluationLimit => "evaluation limit reached",
            Self::TimeLimit => "time limit reached",
            Self::Cancelled => "cancelled",
            Self::ClosedForm => "closed form",
            Self::MachinePrecision => "converged to machine precision",
            Self::Unbounded => "the objective has no minimum",
        })
    }
}

/// Which implementation of L-BFGS-B runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// `basin`, pure Rust.
    #[default]
    Basin,
    /// The crate `lbfgsb`, a wrapper of C code with static state: one at a time, under a lock.
    #[cfg(feature = "lbfgsb")]
    Lbfgsb,
}

/// Options of a [`Minimizer`], unchecked.
#[derive(Clone, Debug)]
pub struct MinimizerOptions {
    /// Converged when the KKT residual is at most this, which may be +∞. A tolerance below what the
    /// value can resolve ends as [`StopReason::MachinePrecision`]. Default 1e-6.
    pub gradient_tolerance: f64,
    /// The number of corrections that L-BFGS remembers. Default 10.
    pub memory: usize,
    /// Most iterations. Default 10,000.
    pub max_iterations: usize,
    /// Most evaluations of the objective, the one at the start included. Default unlimited.
    pub max_evaluations: usize,
    /// Most seconds of learning time. Default unlimited.
    pub max_seconds: f64,
    /// Whether steps far from the minimum may be taken in an objective's faster arithmetic
    /// ([`Objective::set_rough`]); the last steps and the result never are. Default yes.
    pub rough_start: bool,
    /// A value that no minimum can have: below it the run stops. Default −∞.
    pub lowest_value: f64,
    /// Stops the run; the result is the last accepted step.
    pub cancel: Cancel,
    /// The implementation. Default: `basin`.
    pub backend: Backend,
    /// Where the state is kept between iterations, and resumed from. While it is on, every
    /// iteration copies L-BFGS's memory (2 `memory` + 8 times the parameters), off the clock; the
    /// backend `lbfgsb` can only be resumed from its start. Default: nowhere.
    pub checkpoint: Checkpoint,
}

impl Default for MinimizerOptions {
    fn default() -> Self {
        Self {
            gradient_tolerance: 1e-6,
            memory: 10,
            max_iterations: 10_000,
            max_evaluations: usize::MAX,
            max_seconds: f64::INFINITY,
            rough_start: true,
            lowest_value: f64::NEG_INFINITY,
            cancel: Cancel::new(),
            backend: Backend::default(),
            checkpoint: Checkpoint::default(),
        }
    }
}

/// L-BFGS-B with checked options.
///
/// ```
/// use mpf_core::{Minimizer, MinimizerOptions, StopReason, from_fn};
///
/// let mut bowl = from_fn(2, |t: &[f64], g: &mut [f64]| {
///     g.copy_from_slice(&[t[0] - 3.0, 2.0 * t[1]]);
///     0.5 * (t[0] - 3.0).powi(2) + t[1] * t[1]
/// });
/// let minimizer = Minimizer::new(MinimizerOptions {
///     gradient_tolerance: 1e-9,
///     ..Default::default()
/// })?;
/// let minimum = minimizer.minimize(&mut bowl, &[0.0, 1.0])?;
/// assert_eq!(minimum.stop, StopReason::Converged);
/// assert!((minimum.theta[0] - 3.0).abs() < 1e-8);
///
/// // ℓ1 with λ = 1 pulls θ₀ from 3 to 2 and leaves θ₁ exactly zero.
/// let sparse = minimizer.minimize_l1(&mut bowl, &[0.0, 1.0], &[1.0, 1.0], |_| {})?;
/// assert!((sparse.theta[0] - 2.0).abs() < 1e-8);
/// assert_eq!(sparse.theta[1], 0.0);
/// # Ok::<(), mpf_core::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Minimizer {
    options: MinimizerOptions,
}

/// Where a minimisation is after an iteration.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Its numbers, which are also those of the progress itself: `progress.value`.
    pub point: TracePoint,
    /// The parameters.
    pub theta: &'a [f64],
}

impl Deref for Progress<'_> {
    type Target = TracePoint;

    fn deref(&self) -> &TracePoint {
        &self.point
    }
}

/// The numbers of an iteration; the trace keeps them all.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracePoint {
    /// Iterations so far; 0 is the starting point.
    pub iteration: usize,
    /// Evaluations of the objective so far.
    pub evaluations: usize,
    /// The objective with its penalties.
    pub value: f64,
    /// The KKT residual: without ℓ1, the largest entry of the gradient.
    pub gradient_norm: f64,
    /// Learning time in seconds, without observers.
    pub seconds: f64,
}

/// The result of a minimisation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[must_use = "look at `stop` to see whether this is a minimum"]
pub struct Minimum {
    /// The parameters of the last accepted step, whatever the reason for stopping.
    pub theta: Vec<f64>,
    /// The objective at `theta`, penalties included.
    pub value: f64,
    /// The largest entry of the smallest subgradient: 0 at a minimum.
    pub kkt_residual: f64,
    /// Why it stopped.
    pub stop: StopReason,
    /// Accepted steps.
    pub iterations: usize,
    /// Evaluations of the objective.
    pub evaluations: usize,
    /// Those of them in the objective's faster arithmetic.
    pub rough_evaluations: usize,
    /// Learning time in seconds.
    pub seconds: f64,
    /// One point per iteration, the start included.
    pub trace: Vec<TracePoint>,
}

impl Minimizer {
    /// Checks the options.
    ///
    /// # Errors
    /// [`Error::Option`] for a tolerance or time limit that is negative or NaN, and for no memory.
    pub fn new(options: MinimizerOptions) -> Result<Self> {
        for (name, value) in [
            ("gradient_tolerance", options.gradient_tolerance),
            ("max_seconds", options.max_seconds),
        ] {
            check_option(name, value, "a number that is not negative", value >= 0.0)?;
        }
        check_not_zero("memory", options.memory)?;
        Ok(Self { options })
    }

    /// Minimises a smooth objective from `start`.
    ///
    /// # Errors
    /// As [`Minimizer::minimize_l1`].
    pub fn minimize(&self, objective: &mut dyn Objective, start: &[f64]) -> Result<Minimum> {
        self.minimize_l1(objective, start, &[], |_| {})
    }

    /// Minimises objective + Σ_k `lambda[k]` |θ_k| (no penalty when `lambda` is empty) and calls
    /// `observer` at the start and after every iteration.
    ///
    /// A run whose [checkpoint](MinimizerOptions::checkpoint) holds the state of an earlier one
    /// continues from there instead of from `start`. Every later step, and the result, have the same
    /// bits as if the earlier run had not stopped. Limits count from its beginning.
    ///
    /// # Errors
    /// [`Error::Count`], [`Error::Entry`] for a start that is not finite or a λ that is negative
    /// or not finite, [`Error::NonFiniteStart`] when the objective, with its penalties, is not
    /// finite at the start, and [`Error::Checkpoint`] for the state of another minimisation.
    pub fn minimize_l1(
        &self,
        objective: &mut dyn Objective,
        start: &[f64],
        lambda: &[f64],
        mut observer: impl FnMut(&Progress<'_>),
    ) -> Result<Minimum> {
        let n = objective.n_params();
        check_count("entries of the start", n, start.len())?;
        check_finite("start", start)?;
        if !lambda.is_empty() {
            check_count("entries of lambda", n, lambda.len())?;
            check_weights("lambda", lambda)?;
        }
        let search = Search::new(objective, lambda, &self.options, &mut observer);
        match self.options.checkpoint.resume::<Snapshot>()? {
            None => search.run(start),
            Some(snapshot) if snapshot.fits(n, lambda) => search.resume(snapshot),
            Some(_) => Err(Error::checkpoint(
                "it is of an objective with other parameters or penalties",
            )),
        }
    }
}
