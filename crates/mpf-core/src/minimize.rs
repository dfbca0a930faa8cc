//! L-BFGS-B, with ℓ1, a cancel handle, an observer and a reason for stopping.
//!
//! ```text
//! minimise f(θ) + Σ_k λ_k |θ_k|,   f smooth, λ_k ≥ 0
//! ```
//!
//! Where λ_k > 0 the parameter is split, θ_k = u_k − v_k with u_k, v_k ≥ 0 and penalty
//! λ_k (u_k + v_k), which is smooth on the box; the bounds of L-BFGS-B make the zeros exact. The
//! result carries the KKT residual: the largest entry of the smallest subgradient, which without
//! ℓ1 is the largest entry of the gradient.
//!
//! [`Minimum::seconds`] is *learning* time: the clock stands still inside the observer.

mod basin_backend;
#[cfg(feature = "lbfgsb")]
mod lbfgsb_backend;

use crate::Result;
use crate::error::{Error, check_entries, check_length};
use crate::objective::Objective;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A flag that stops a minimisation from another thread or a signal handler.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for a stop, which comes before the next evaluation. What was learned is kept.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether a stop was asked for.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Why a minimisation stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum StopReason {
    /// The KKT residual is within the gradient tolerance: a minimum.
    Converged,
    /// No step lowers the value any more, short of the gradient tolerance: as good as `f64` or
    /// the objective's smoothness allows.
    NoProgress,
    /// The iteration limit was reached.
    IterationLimit,
    /// The evaluation limit was reached.
    EvaluationLimit,
    /// The time limit was reached.
    TimeLimit,
    /// [`Cancel::cancel`] was called.
    Cancelled,
}

impl StopReason {
    /// Whether the result is a minimum, rather than where the search was broken off.
    pub fn is_converged(self) -> bool {
        self == Self::Converged
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
    /// Converged when the KKT residual is at most this. Default 1e-6.
    pub gradient_tolerance: f64,
    /// How many corrections L-BFGS remembers. Default 10.
    pub memory: usize,
    /// Most iterations. Default 10,000.
    pub max_iterations: usize,
    /// Most evaluations of the objective, the one at the start included. Default unlimited.
    pub max_evaluations: usize,
    /// Most seconds of learning time. Default unlimited.
    pub max_seconds: f64,
    /// The handle that stops the run. Default: one that nobody else holds.
    pub cancel: Cancel,
    /// The implementation.
    pub backend: Backend,
}

impl Default for MinimizerOptions {
    fn default() -> Self {
        Self {
            gradient_tolerance: 1e-6,
            memory: 10,
            max_iterations: 10_000,
            max_evaluations: usize::MAX,
            max_seconds: f64::INFINITY,
            cancel: Cancel::new(),
            backend: Backend::default(),
        }
    }
}

/// L-BFGS-B with checked options.
///
/// ```
/// use mpf_core::{Minimizer, MinimizerOptions, StopReason, objective::from_fn};
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
    /// Iterations so far; 0 is the starting point.
    pub iteration: usize,
    /// Evaluations of the objective so far.
    pub evaluations: usize,
    /// The parameters.
    pub theta: &'a [f64],
    /// The objective with its penalties.
    pub value: f64,
    /// The KKT residual: without ℓ1, the largest entry of the gradient.
    pub gradient_norm: f64,
    /// Learning time in seconds: observers do not count.
    pub seconds: f64,
}

/// A [`Progress`] without its parameters, kept for every iteration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracePoint {
    /// Iterations so far.
    pub iteration: usize,
    /// Evaluations so far.
    pub evaluations: usize,
    /// The objective with its penalties.
    pub value: f64,
    /// The KKT residual.
    pub gradient_norm: f64,
    /// Learning time in seconds.
    pub seconds: f64,
}

/// What a minimisation found, and why it stopped there.
#[derive(Clone, Debug)]
#[must_use = "look at `stop` to see whether this is a minimum"]
pub struct Minimum {
    /// The parameters: those of the last accepted step, whatever the reason for stopping.
    pub theta: Vec<f64>,
    /// The objective there, penalties included.
    pub value: f64,
    /// The largest entry of the smallest subgradient: 0 at a minimum.
    pub kkt_residual: f64,
    /// Why it stopped.
    pub stop: StopReason,
    /// Accepted steps.
    pub iterations: usize,
    /// Evaluations of the objective.
    pub evaluations: usize,
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
        let not_negative = |name, value: f64| {
            if value >= 0.0 {
                Ok(())
            } else {
                Err(Error::Option {
                    name,
                    value,
                    requirement: "a number that is not negative",
                })
            }
        };
        not_negative("gradient_tolerance", options.gradient_tolerance)?;
        not_negative("max_seconds", options.max_seconds)?;
        if options.memory == 0 {
            return Err(Error::Option {
                name: "memory",
                value: 0.0,
                requirement: "at least 1",
            });
        }
        Ok(Self { options })
    }

    /// The options that it was made from.
    pub fn options(&self) -> &MinimizerOptions {
        &self.options
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
    /// # Errors
    /// [`Error::Length`], [`Error::Entry`] for a start that is not finite or a λ that is negative
    /// or not finite, and [`Error::NonFiniteStart`] when the objective is not finite at the start.
    pub fn minimize_l1(
        &self,
        objective: &mut dyn Objective,
        start: &[f64],
        lambda: &[f64],
        mut observer: impl FnMut(&Progress<'_>),
    ) -> Result<Minimum> {
        let n = objective.n_params();
        check_length("start", n, start.len())?;
        check_entries("start", start, "finite", f64::is_finite)?;
        if !lambda.is_empty() {
            check_length("lambda", n, lambda.len())?;
            check_entries("lambda", lambda, "finite and not negative", |v| {
                v >= 0.0 && v.is_finite()
            })?;
        }
        let split = Split::new(n, lambda);
        let mut search = Search {
            grad: vec![0.0; n],
            theta: start.to_vec(),
            split: &split,
            objective,
            options: &self.options,
            observer: &mut observer,
            clock: Clock::start(),
            evaluations: 0,
            accepted: None,
            trace: Vec::new(),
        };
        let stop = search.run(start)?;
        Ok(search.finish(stop))
    }
}

/// How θ is laid out in the box: every parameter once, then those with ℓ1 once more, negated.
struct Split {
    n: usize,
    /// The parameters with λ > 0, and that λ.
    penalised: Vec<(usize, f64)>,
}

impl Split {
    fn new(n: usize, lambda: &[f64]) -> Self {
        Self {
            n,
            penalised: lambda
                .iter()
                .enumerate()
                .filter(|(_, l)| **l > 0.0)
                .map(|(k, &l)| (k, l))
                .collect(),
        }
    }

    /// (u, v) for θ.
    fn boxed(&self, theta: &[f64]) -> Vec<f64> {
        let mut z = theta.to_vec();
        for &(k, _) in &self.penalised {
            z.push((-theta[k]).max(0.0));
            z[k] = theta[k].max(0.0);
        }
        z
    }

    /// Lower bounds: 0 for split parameters, −∞ for free ones.
    fn lower(&self) -> Vec<f64> {
        let mut lower = vec![f64::NEG_INFINITY; self.n];
        for &(k, _) in &self.penalised {
            lower[k] = 0.0;
        }
        lower.resize(self.n + self.penalised.len(), 0.0);
        lower
    }

    /// θ = u − v.
    fn join(&self, z: &[f64], theta: &mut [f64]) {
        theta.copy_from_slice(&z[..self.n]);
        for (&(k, _), v) in self.penalised.iter().zip(&z[self.n..]) {
            theta[k] -= v;
        }
    }

    /// Σ λ (u + v), and the gradient in (u, v) from the gradient in θ.
    fn penalise(&self, z: &[f64], grad: &[f64], out: &mut [f64]) -> f64 {
        out[..self.n].copy_from_slice(grad);
        let mut penalty = 0.0;
        for (at, &(k, lambda)) in self.penalised.iter().enumerate() {
            out[k] = lambda + grad[k];
            out[self.n + at] = lambda - grad[k];
            penalty += lambda * (z[k] + z[self.n + at]);
        }
        penalty
    }

    /// Σ λ |θ|.
    fn l1(&self, theta: &[f64]) -> f64 {
        self.penalised
            .iter()
            .map(|&(k, l)| l * theta[k].abs())
            .sum()
    }

    /// The largest entry of the smallest subgradient of f + Σ λ |θ|.
    fn kkt_residual(&self, theta: &[f64], grad: &[f64]) -> f64 {
        let mut residual = grad.to_vec();
        for &(k, lambda) in &self.penalised {
            residual[k] = if theta[k] == 0.0 {
                (grad[k].abs() - lambda).max(0.0)
            } else {
                grad[k] + lambda * theta[k].signum()
            };
        }
        residual.iter().fold(0.0, |m, r| m.max(r.abs()))
    }
}

/// A stop-watch that can be stopped.
struct Clock {
    elapsed: Duration,
    since: Instant,
}

impl Clock {
    fn start() -> Self {
        Self {
            elapsed: Duration::ZERO,
            since: Instant::now(),
        }
    }

    fn seconds(&self) -> f64 {
        (self.elapsed + self.since.elapsed()).as_secs_f64()
    }

    /// Runs `f` off the clock.
    fn pause<T>(&mut self, f: impl FnOnce() -> T) -> T {
        self.elapsed += self.since.elapsed();
        let result = f();
        self.since = Instant::now();
        result
    }
}

/// The last point that a backend stepped to.
struct Accepted {
    theta: Vec<f64>,
    /// The gradient of f in θ.
    grad: Vec<f64>,
    /// The same point in the box, the value and the gradient that the backend saw there.
    z: Vec<f64>,
    z_value: f64,
    z_grad: Vec<f64>,
    value: f64,
    kkt_residual: f64,
    iteration: usize,
}

/// One minimisation under way: what both backends share.
struct Search<'a> {
    objective: &'a mut dyn Objective,
    options: &'a MinimizerOptions,
    split: &'a Split,
    observer: &'a mut dyn FnMut(&Progress<'_>),
    clock: Clock,
    theta: Vec<f64>,
    grad: Vec<f64>,
    evaluations: usize,
    accepted: Option<Accepted>,
    trace: Vec<TracePoint>,
}

impl Search<'_> {
    fn run(&mut self, start: &[f64]) -> Result<StopReason> {
        let z = self.split.boxed(start);
        let mut z_grad = vec![0.0; z.len()];
        let z_value = match self.evaluate(&z, &mut z_grad) {
            Ok(value) => value,
            // A limit of zero: still say what the start is worth.
            Err(_) => self.evaluate_unlimited(&z, &mut z_grad),
        };
        if !z_value.is_finite() || self.grad.iter().any(|g| !g.is_finite()) {
            return Err(Error::NonFiniteStart {
                value: z_value,
                gradient_index: self.grad.iter().position(|g| !g.is_finite()),
            });
        }
        let stop = self.accept(&z, z_value, &z_grad);
        if let Err(stop) = stop {
            return Ok(stop);
        }
        Ok(match self.options.backend {
            Backend::Basin => basin_backend::run(self, z),
            #[cfg(feature = "lbfgsb")]
            Backend::Lbfgsb => lbfgsb_backend::run(self, z),
        })
    }

    /// The limits that are checked before every evaluation.
    fn check_limits(&self) -> Result<(), StopReason> {
        if self.options.cancel.is_cancelled() {
            Err(StopReason::Cancelled)
        } else if self.evaluations >= self.options.max_evaluations {
            Err(StopReason::EvaluationLimit)
        } else if self.clock.seconds() >= self.options.max_seconds {
            Err(StopReason::TimeLimit)
        } else {
            Ok(())
        }
    }

    /// The value at `z` in the box and its gradient, or the limit that was reached.
    fn evaluate(&mut self, z: &[f64], z_grad: &mut [f64]) -> Result<f64, StopReason> {
        self.check_limits()?;
        let value = self.evaluate_unlimited(z, z_grad);
        let finite = value.is_finite() && self.grad.iter().all(|g| g.is_finite());
        match &self.accepted {
            Some(accepted) if !finite => Ok(accepted.wall(z, z_grad)),
            _ => Ok(value),
        }
    }

    fn evaluate_unlimited(&mut self, z: &[f64], z_grad: &mut [f64]) -> f64 {
        self.evaluations += 1;
        self.split.join(z, &mut self.theta);
        let value = self
            .objective
            .value_and_gradient(&self.theta, &mut self.grad);
        value + self.split.penalise(z, &self.grad, z_grad)
    }

    /// Takes `z` as the current point, tells the observer, and checks what stops between steps.
    fn accept(&mut self, z: &[f64], z_value: f64, z_grad: &[f64]) -> Result<(), StopReason> {
        if self.accepted.as_ref().is_some_and(|a| z_value > a.z_value) {
            // A line search gave up uphill, or on the wall around a non-finite value.
            return Err(StopReason::NoProgress);
        }
        let mut theta = vec![0.0; self.split.n];
        self.split.join(z, &mut theta);
        let mut grad = z_grad[..self.split.n].to_vec();
        let mut smooth = z_value;
        for (at, &(k, lambda)) in self.split.penalised.iter().enumerate() {
            grad[k] -= lambda;
            smooth -= lambda * (z[k] + z[self.split.n + at]);
        }
        let value = smooth + self.split.l1(&theta);
        let kkt_residual = self.split.kkt_residual(&theta, &grad);
        let iteration = self.accepted.as_ref().map_or(0, |a| a.iteration + 1);
        let point = TracePoint {
            iteration,
            evaluations: self.evaluations,
            value,
            gradient_norm: kkt_residual,
            seconds: self.clock.seconds(),
        };
        self.trace.push(point);
        let observer = &mut self.observer;
        self.clock.pause(|| {
            observer(&Progress {
                iteration,
                evaluations: point.evaluations,
                theta: &theta,
                value,
                gradient_norm: kkt_residual,
                seconds: point.seconds,
            });
        });
        self.accepted = Some(Accepted {
            theta,
            grad,
            z: z.to_vec(),
            z_value,
            z_grad: z_grad.to_vec(),
            value,
            kkt_residual,
            iteration,
        });
        if kkt_residual <= self.options.gradient_tolerance {
            Err(StopReason::Converged)
        } else if iteration >= self.options.max_iterations {
            Err(StopReason::IterationLimit)
        } else {
            self.check_limits()
        }
    }

    fn finish(mut self, mut stop: StopReason) -> Minimum {
        let mut last = self.accepted.take().expect("the start is accepted first");
        if last.kkt_residual > self.options.gradient_tolerance {
            self.snap_to_zero(&mut last);
        }
        let within = last.kkt_residual <= self.options.gradient_tolerance;
        if matches!(stop, StopReason::Converged | StopReason::NoProgress) {
            stop = if within {
                StopReason::Converged
            } else {
                StopReason::NoProgress
            };
        }
        Minimum {
            theta: last.theta,
            value: last.value,
            kkt_residual: last.kkt_residual,
            stop,
            iterations: last.iteration,
            evaluations: self.evaluations,
            seconds: self.clock.seconds(),
            trace: self.trace,
        }
    }

    /// Parameters that are zero but for rounding are set to zero, where the KKT conditions at
    /// zero hold: u and v creep to their bounds, and a search that was broken off may leave 1e-12.
    fn snap_to_zero(&mut self, last: &mut Accepted) {
        let tolerance = self.options.gradient_tolerance.min(1e-6);
        let mut snapped = false;
        for &(k, lambda) in &self.split.penalised {
            if last.theta[k] != 0.0
                && last.theta[k].abs() <= tolerance
                && last.grad[k].abs() <= lambda
            {
                last.theta[k] = 0.0;
                snapped = true;
            }
        }
        if snapped {
            self.evaluations += 1;
            let smooth = self
                .objective
                .value_and_gradient(&last.theta, &mut last.grad);
            last.value = smooth + self.split.l1(&last.theta);
            last.kkt_residual = self.split.kkt_residual(&last.theta, &last.grad);
        }
    }
}

impl Accepted {
    /// What a backend sees where the objective is not finite: a wall that rises from the last
    /// accepted point, so that its line search takes a step about ten times shorter.
    ///
    /// With slope s < 0 at the accepted point, the value 4|s| above it and the slope +8|s| at
    /// the far end make every safeguarded interpolation turn back.
    fn wall(&self, z: &[f64], z_grad: &mut [f64]) -> f64 {
        let slope: f64 = z
            .iter()
            .zip(&self.z)
            .zip(&self.z_grad)
            .map(|((p, q), g)| (p - q) * g)
            .sum();
        for (w, g) in z_grad.iter_mut().zip(&self.z_grad) {
            *w = -8.0 * g;
        }
        self.z_value + 4.0 * slope.abs()
    }
}
