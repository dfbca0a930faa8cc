//! L-BFGS-B, with ℓ1, a cancel handle, an observer and a reason for stopping.
//!
//! ```text
//! minimise f(θ) + Σ_k λ_k |θ_k|,   f smooth, λ_k ≥ 0
//! ```
//!
//! Within one orthant the penalty is linear, so L-BFGS-B minimises there with the coordinate
//! planes as bounds, which makes the zeros exact; then the orthant is changed where parameters
//! press against zero from the wrong side, until none does. The result carries the KKT residual:
//! the largest entry of the smallest subgradient, which without ℓ1 is the largest entry of the
//! gradient.
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
        let mut search = Search {
            objective,
            options: &self.options,
            orthant: Orthant::new(n, lambda),
            observer: &mut observer,
            clock: Clock::start(),
            evaluations: 0,
            accepted: None,
            flat_steps: 0,
            trace: Vec::new(),
        };
        let stop = search.run(start)?;
        Ok(search.finish(stop))
    }
}

/// The side of zero on which each penalised parameter is searched for.
struct Orthant {
    n: usize,
    /// The parameters with λ > 0: (index, λ, side ±1).
    penalised: Vec<(usize, f64, f64)>,
}

impl Orthant {
    fn new(n: usize, lambda: &[f64]) -> Self {
        Self {
            n,
            penalised: lambda
                .iter()
                .enumerate()
                .filter(|(_, l)| **l > 0.0)
                .map(|(k, &l)| (k, l, 1.0))
                .collect(),
        }
    }

    /// Puts every parameter on its own side, and those at zero on the side that is downhill.
    /// Whether one that presses against zero has changed sides.
    fn choose(&mut self, theta: &[f64], grad: &[f64]) -> bool {
        let mut released = false;
        for (k, lambda, side) in &mut self.penalised {
            if theta[*k] != 0.0 {
                *side = theta[*k].signum();
            } else if grad[*k] * *side > 0.0 {
                *side = -*side;
                released |= grad[*k].abs() > *lambda;
            }
        }
        released
    }

    /// The box: one bound at zero for penalised parameters, none for the others.
    fn bounds(&self) -> (Vec<f64>, Vec<f64>) {
        let mut lower = vec![f64::NEG_INFINITY; self.n];
        let mut upper = vec![f64::INFINITY; self.n];
        for &(k, _, side) in &self.penalised {
            let bound = if side > 0.0 { &mut lower } else { &mut upper };
            bound[k] = 0.0;
        }
        (lower, upper)
    }

    /// Σ λ · side · θ, which is the penalty inside the orthant, added to the gradient too.
    fn penalise(&self, theta: &[f64], grad: &mut [f64]) -> f64 {
        let mut penalty = 0.0;
        for &(k, lambda, side) in &self.penalised {
            grad[k] += lambda * side;
            penalty += lambda * side * theta[k];
        }
        penalty
    }

    /// The largest entry of the smallest subgradient of f + Σ λ |θ|, over all parameters and
    /// over those at zero whose descent leads out of the orthant.
    fn kkt_residual(&self, theta: &[f64], grad: &[f64]) -> (f64, f64) {
        let mut residual = grad.to_vec();
        let mut blocked = 0.0f64;
        for &(k, lambda, side) in &self.penalised {
            if theta[k] == 0.0 {
                residual[k] = (grad[k].abs() - lambda).max(0.0);
                if grad[k] * side > 0.0 {
                    blocked = blocked.max(residual[k]);
                }
            } else {
                residual[k] = grad[k] + lambda * theta[k].signum();
            }
        }
        let largest = residual.iter().fold(0.0f64, |m, r| m.max(r.abs()));
        (largest, blocked)
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
    /// f + Σ λ |θ|.
    value: f64,
    /// The gradient of f alone.
    smooth_grad: Vec<f64>,
    /// The gradient of f + Σ λ · side · θ, which the backend sees.
    grad: Vec<f64>,
    kkt_residual: f64,
    iteration: usize,
}

/// Why a backend came back.
#[derive(Clone, Copy)]
enum Halt {
    /// The whole minimisation is over.
    Stop(StopReason),
    /// This orthant is done, as far as the backend can tell.
    Orthant,
}

impl From<StopReason> for Halt {
    fn from(stop: StopReason) -> Self {
        Self::Stop(stop)
    }
}

/// One minimisation under way: what both backends share.
struct Search<'a> {
    objective: &'a mut dyn Objective,
    options: &'a MinimizerOptions,
    orthant: Orthant,
    observer: &'a mut dyn FnMut(&Progress<'_>),
    clock: Clock,
    evaluations: usize,
    accepted: Option<Accepted>,
    /// Accepted steps since the value last fell.
    flat_steps: usize,
    trace: Vec<TracePoint>,
}

/// How often a step may leave the value as it is before the search is called off.
const MOST_FLAT_STEPS: usize = 3;

impl Search<'_> {
    fn run(&mut self, start: &[f64]) -> Result<StopReason> {
        let mut grad = vec![0.0; start.len()];
        self.evaluations += 1;
        let value = self.objective.value_and_gradient(start, &mut grad);
        let gradient_index = grad.iter().position(|g| !g.is_finite());
        if !value.is_finite() || gradient_index.is_some() {
            return Err(Error::NonFiniteStart {
                value,
                gradient_index,
            });
        }
        self.orthant.choose(start, &grad);
        let value = value + self.orthant.penalise(start, &mut grad);
        let mut halt = match self.accept(start, value, &grad) {
            Ok(()) => self.run_backend(),
            Err(halt) => halt,
        };
        loop {
            match halt {
                Halt::Stop(stop) => return Ok(stop),
                Halt::Orthant if self.next_orthant() => halt = self.run_backend(),
                Halt::Orthant => return Ok(StopReason::NoProgress),
            }
        }
    }

    fn run_backend(&mut self) -> Halt {
        match self.options.backend {
            Backend::Basin => basin_backend::run(self),
            #[cfg(feature = "lbfgsb")]
            Backend::Lbfgsb => lbfgsb_backend::run(self),
        }
    }

    /// Changes sides where parameters press against zero. Whether there was such a parameter.
    fn next_orthant(&mut self) -> bool {
        let last = self.accepted.as_mut().expect("the start is accepted first");
        let released = self.orthant.choose(&last.theta, &last.smooth_grad);
        last.grad.copy_from_slice(&last.smooth_grad);
        self.orthant.penalise(&last.theta, &mut last.grad);
        released
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

    /// The value at θ in this orthant and its gradient, or the limit that was reached.
    fn evaluate(&mut self, theta: &[f64], grad: &mut [f64]) -> Result<f64, StopReason> {
        let last = self.accepted.as_ref().expect("the start is accepted first");
        if last.theta == theta {
            // Backends evaluate their starting point themselves.
            grad.copy_from_slice(&last.grad);
            return Ok(last.value);
        }
        self.check_limits()?;
        self.evaluations += 1;
        let value = self.objective.value_and_gradient(theta, grad);
        if value.is_finite() && grad.iter().all(|g| g.is_finite()) {
            Ok(value + self.orthant.penalise(theta, grad))
        } else {
            Ok(last.wall(theta, grad))
        }
    }

    /// Takes θ as the current point, tells the observer, and checks what stops between steps.
    fn accept(&mut self, theta: &[f64], value: f64, grad: &[f64]) -> Result<(), Halt> {
        if let Some(last) = &self.accepted {
            // A line search gave up uphill, or on the wall around a non-finite value; or steps
            // are so short that the value no longer resolves them.
            self.flat_steps = if value < last.value {
                0
            } else {
                self.flat_steps + 1
            };
            if value > last.value || self.flat_steps > MOST_FLAT_STEPS {
                return Err(Halt::Orthant);
            }
        }
        let mut smooth_grad = grad.to_vec();
        for &(k, lambda, side) in &self.orthant.penalised {
            smooth_grad[k] -= lambda * side;
        }
        let (kkt_residual, blocked) = self.orthant.kkt_residual(theta, &smooth_grad);
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
                theta,
                value,
                gradient_norm: kkt_residual,
                seconds: point.seconds,
            });
        });
        self.accepted = Some(Accepted {
            theta: theta.to_vec(),
            value,
            smooth_grad,
            grad: grad.to_vec(),
            kkt_residual,
            iteration,
        });
        if kkt_residual <= self.options.gradient_tolerance {
            Err(StopReason::Converged.into())
        } else if iteration >= self.options.max_iterations {
            Err(StopReason::IterationLimit.into())
        } else if blocked >= kkt_residual {
            // What is furthest from its optimum cannot move in this orthant.
            Err(Halt::Orthant)
        } else {
            Ok(self.check_limits()?)
        }
    }

    fn finish(mut self, mut stop: StopReason) -> Minimum {
        let mut last = self.accepted.take().expect("the start is accepted first");
        if stop == StopReason::NoProgress {
            self.snap_to_zero(&mut last);
            if last.kkt_residual <= self.options.gradient_tolerance {
                stop = StopReason::Converged;
            }
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

    /// Sets parameters to zero that are zero but for rounding, where zero is optimal: L-BFGS-B
    /// also stops when a parameter is within the tolerance of its bound.
    fn snap_to_zero(&mut self, last: &mut Accepted) {
        let mut snapped = false;
        for &(k, lambda, _) in &self.orthant.penalised {
            let near = last.theta[k].abs() <= self.options.gradient_tolerance;
            if last.theta[k] != 0.0 && near && last.smooth_grad[k].abs() <= lambda {
                last.theta[k] = 0.0;
                snapped = true;
            }
        }
        if snapped {
            self.evaluations += 1;
            let smooth = self
                .objective
                .value_and_gradient(&last.theta, &mut last.smooth_grad);
            last.value = smooth + self.orthant.penalise(&last.theta, &mut last.grad);
            last.kkt_residual = self.orthant.kkt_residual(&last.theta, &last.smooth_grad).0;
        }
    }
}

impl Accepted {
    /// What a backend sees where the objective is not finite: a wall that rises from the last
    /// accepted point, so that its line search takes a step about ten times shorter.
    ///
    /// With slope s < 0 at the accepted point, the value 4|s| above it and the slope +8|s| at
    /// the far end make every safeguarded interpolation turn back.
    fn wall(&self, theta: &[f64], grad: &mut [f64]) -> f64 {
        let slope: f64 = theta
            .iter()
            .zip(&self.theta)
            .zip(&self.grad)
            .map(|((p, q), g)| (p - q) * g)
            .sum();
        for (w, g) in grad.iter_mut().zip(&self.grad) {
            *w = -8.0 * g;
        }
        self.value + 4.0 * slope.abs()
    }
}
