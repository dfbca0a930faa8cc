//! One minimisation under way: orthants, limits and accepted steps. Both backends drive this.

use super::basin_backend::{self, Memory};
#[cfg(feature = "lbfgsb")]
use super::lbfgsb_backend;
use super::snapshot::Snapshot;
use super::unbounded::{self, Pairs};
use super::{Backend, MinimizerOptions, Minimum, Progress, StopReason, TracePoint};
use crate::Result;
use crate::error::Error;
use crate::objective::Objective;
use crate::stopwatch::Stopwatch;
use serde::{Deserialize, Serialize};

/// The side of zero on which each penalised parameter is searched.
pub(super) struct Orthant {
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

    /// Returns whether L-BFGS without bounds is worth its own code.
    fn is_large_and_open(&self) -> bool {
        self.n >= unbounded::LEAST && self.penalised.is_empty()
    }

    /// Puts every parameter on its own side, and those at zero on the downhill side. Returns whether
    /// a parameter that pressed against zero changed sides.
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

    /// Returns the box: one bound at zero for penalised parameters, none for the others.
    pub(super) fn bounds(&self) -> (Vec<f64>, Vec<f64>) {
        let mut lower = vec![f64::NEG_INFINITY; self.n];
        let mut upper = vec![f64::INFINITY; self.n];
        for &(k, _, side) in &self.penalised {
            let bound = if side > 0.0 { &mut lower } else { &mut upper };
            bound[k] = 0.0;
        }
        (lower, upper)
    }

    /// Returns Σ λ · side · θ, the penalty inside the orthant, and adds its gradient to `grad`.
    fn penalise(&self, theta: &[f64], grad: &mut [f64]) -> f64 {
        let mut penalty = 0.0;
        for &(k, lambda, side) in &self.penalised {
            grad[k] += lambda * side;
            penalty += lambda * side * theta[k];
        }
        penalty
    }

    /// Returns the smallest subgradient of f + Σ λ |θ|.
    fn subgradient(&self, theta: &[f64], grad: &[f64]) -> Vec<f64> {
        let mut smallest = grad.to_vec();
        for &(k, lambda, _) in &self.penalised {
            smallest[k] = if theta[k] == 0.0 {
                (grad[k].abs() - lambda).max(0.0).copysign(grad[k])
            } else {
                grad[k] + lambda * theta[k].signum()
            };
        }
        smallest
    }

    /// Returns the largest entry of the smallest subgradient, over all parameters and over those at
    /// zero whose descent leads out of the orthant.
    fn kkt_residual(&self, theta: &[f64], grad: &[f64]) -> (f64, f64) {
        let smallest = self.subgradient(theta, grad);
        let largest = smallest.iter().fold(0.0f64, |m, r| m.max(r.abs()));
        let out = self
            .penalised
            .iter()
            .filter(|(k, _, side)| theta[*k] == 0.0 && grad[*k] * side > 0.0);
        let blocked = out.fold(0.0f64, |m, (k, ..)| m.max(smallest[*k].abs()));
        (largest, blocked)
    }
}

/// The last point that a backend stepped to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Accepted {
    pub(super) theta: Vec<f64>,
    /// f + Σ λ |θ|.
    pub(super) value: f64,
    /// The gradient of f alone.
    pub(super) smooth_grad: Vec<f64>,
    /// The gradient of f + Σ λ · side · θ, as the backend sees it.
    pub(super) grad: Vec<f64>,
    kkt_residual: f64,
    /// The residual of the parameters whose descent leads out of the orthant.
    blocked: f64,
    pub(super) iteration: usize,
}

/// What L-BFGS remembers of an earlier run, with bounds or without.
enum Recalled {
    Bounded(Box<Memory>),
    Pairs(Pairs),
}

/// Why a backend returned.
#[derive(Clone, Copy)]
pub(super) enum Halt {
    /// The whole minimisation is over.
    Stop(StopReason),
    /// The backend cannot improve in this orthant.
    Orthant,
    /// The next steps need the objective's exact arithmetic.
    Rough,
    /// The memory to resume from does not belong to this problem.
    ForeignMemory,
}

impl From<StopReason> for Halt {
    fn from(stop: StopReason) -> Self {
        Self::Stop(stop)
    }
}

/// How exactly the objective is computed.
#[derive(Clone, Copy, PartialEq)]
enum Arithmetic {
    /// In the objective's faster arithmetic.
    Rough,
    /// Exactly from the next evaluation on, from a last accepted point that is rough. After the first
    /// evaluation: the exact values minus those that go on from the value of that point.
    Turning(Option<f64>),
    /// Exactly, the last accepted point too.
    Exact,
}

/// One minimisation under way, as both backends share it.
pub(super) struct Search<'a> {
    objective: &'a mut dyn Objective,
    pub(super) options: &'a MinimizerOptions,
    pub(super) orthant: Orthant,
    observer: &'a mut dyn FnMut(&Progress<'_>),
    clock: Stopwatch,
    evaluations: usize,
    rough_evaluations: usize,
    arithmetic: Arithmetic,
    /// Whether the objective is being evaluated, and a panic is its own.
    pub(super) is_evaluating: bool,
    pub(super) accepted: Option<Accepted>,
    /// Accepted steps since the value last fell.
    flat_steps: usize,
    trace: Vec<TracePoint>,
}

/// The number of steps in a row that may leave the value as it is.
pub(super) const MOST_FLAT_STEPS: usize = 3;

/// Rough steps end when the KKT residual is within this many tolerances: a step or two are left. With two
/// tolerances, the couplings of a fit of 500 units were 1.04e-7 from those of exact steps, and 1e-7 is
/// promised.
const ROUGH_RESIDUAL: f64 = 3.0;

/// Rough values are off by up to this part of them: a few roundings of `f32`.
const ROUGH_VALUE: f64 = 2e-7;

/// Rough steps end when one lowers the value by no more than this part of it. Decreases follow from the
/// gradient, which has six digits or more: it resolves twice as many of the value near a minimum.
const ROUGH_DECREASE: f64 = 1e-12;

/// The rounding error of a value, which is a sum of many terms, in units of its last place.
const ROUNDINGS: f64 = 100.0;

impl Arithmetic {
    /// Asks the objective for its faster arithmetic, or for none.
    fn of(objective: &mut dyn Objective, rough: bool) -> Self {
        if objective.set_rough(rough) {
            Self::Rough
        } else {
            Self::Exact
        }
    }
}

impl<'a> Search<'a> {
    /// Sets up a minimisation, not begun.
    pub(super) fn new(
        objective: &'a mut dyn Objective,
        lambda: &[f64],
        options: &'a MinimizerOptions,
        observer: &'a mut dyn FnMut(&Progress<'_>),
    ) -> Self {
        // Only this backend can take up a point whose value changes.
        let rough = options.rough_start && options.backend == Backend::Basin;
        Self {
            orthant: Orthant::new(objective.n_params(), lambda),
            arithmetic: Arithmetic::of(objective, rough),
            objective,
            options,
            observer,
            clock: Stopwatch::start(),
            evaluations: 0,
            rough_evaluations: 0,
            is_evaluating: false,
            accepted: None,
            flat_steps: 0,
            trace: Vec::new(),
        }
    }

    /// Continues from `snapshot`.
    pub(super) fn resume(mut self, snapshot: Snapshot) -> Result<Minimum> {
        self.orthant.penalised = snapshot.penalised;
        self.clock = Stopwatch::start_at(snapshot.seconds);
        self.evaluations = snapshot.evaluations;
        self.rough_evaluations = snapshot.rough_evaluations;
        self.arithmetic = Arithmetic::of(self.objective, snapshot.is_rough);
        self.accepted = Some(snapshot.accepted);
        self.flat_steps = snapshot.flat_steps;
        self.trace = snapshot.trace;
        let recalled = snapshot.memory.map(|bytes| self.recall(&bytes));
        let memory = recalled.transpose()?;
        let orthant_done = snapshot.orthant_done;
        // The decision that followed the snapshot is made again.
        let halt = match self.judge() {
            Ok(()) if orthant_done => Halt::Orthant,
            Ok(()) | Err(Halt::Rough) => self.run_backend(memory),
            Err(halt) => halt,
        };
        let stop = self.run_orthants(halt)?;
        Ok(self.finish(stop))
    }

    /// Minimises from `start`.
    pub(super) fn run(mut self, start: &[f64]) -> Result<Minimum> {
        let mut grad = vec![0.0; start.len()];
        let mut value = self.value_and_gradient(start, &mut grad);
        if self.is_rough() && check_start(value, &grad).is_err() {
            self.arithmetic = Arithmetic::of(self.objective, false);
            value = self.value_and_gradient(start, &mut grad);
        }
        self.orthant.choose(start, &grad);
        let value = value + self.orthant.penalise(start, &mut grad);
        check_start(value, &grad)?;
        let halt = match self.accept(start, value, &grad, || None, false) {
            Ok(()) | Err(Halt::Rough) => self.run_backend(None),
            Err(halt) => halt,
        };
        let stop = self.run_orthants(halt)?;
        Ok(self.finish(stop))
    }

    /// Moves from orthant to orthant until no parameter presses against zero.
    fn run_orthants(&mut self, mut halt: Halt) -> Result<StopReason> {
        loop {
            match halt {
                Halt::Stop(stop) => return Ok(stop),
                Halt::Orthant | Halt::Rough if self.arithmetic != Arithmetic::Exact => {
                    halt = match self.sharpen() {
                        Ok(()) => self.run_backend(None),
                        Err(halt) => halt,
                    };
                }
                Halt::Rough => unreachable!("only rough steps end so"),
                Halt::Orthant if self.next_orthant() => halt = self.run_backend(None),
                Halt::Orthant => return Ok(StopReason::NoProgress),
                Halt::ForeignMemory => return Err(basin_backend::foreign_memory()),
            }
        }
    }

    /// Decodes the memory of an earlier run.
    fn recall(&self, bytes: &[u8]) -> Result<Recalled> {
        let n = self.orthant.n;
        Ok(if self.orthant.is_large_and_open() {
            Recalled::Pairs(Pairs::recall(bytes, n)?)
        } else {
            Recalled::Bounded(Box::new(basin_backend::recall(bytes, n)?))
        })
    }

    fn run_backend(&mut self, memory: Option<Recalled>) -> Halt {
        match self.options.backend {
            Backend::Basin => match memory {
                Some(Recalled::Pairs(pairs)) => unbounded::run(self, Some(pairs)),
                Some(Recalled::Bounded(memory)) => basin_backend::run(self, Some(*memory)),
                None if self.orthant.is_large_and_open() => unbounded::run(self, None),
                None => basin_backend::run(self, None),
            },
            #[cfg(feature = "lbfgsb")]
            Backend::Lbfgsb => lbfgsb_backend::run(self),
        }
    }

    /// Changes sides where parameters press against zero. Returns whether one did.
    fn next_orthant(&mut self) -> bool {
        let last = self.accepted.as_mut().expect("the start is accepted first");
        let released = self.orthant.choose(&last.theta, &last.smooth_grad);
        last.grad.copy_from_slice(&last.smooth_grad);
        self.orthant.penalise(&last.theta, &mut last.grad);
        released
    }

    /// Returns the last accepted point.
    pub(super) fn last(&self) -> &Accepted {
        self.accepted.as_ref().expect("the start is accepted first")
    }

    fn is_rough(&self) -> bool {
        self.arithmetic == Arithmetic::Rough
    }

    /// Returns whether rough steps are over.
    pub(super) fn must_sharpen(&self) -> bool {
        self.is_rough() && self.is_near_the_end(self.last())
    }

    /// Goes on in exact arithmetic from the next step on: the rough gradient is good enough for its
    /// direction, and the last point need not be evaluated again.
    pub(super) fn turn_exact(&mut self) {
        self.objective.set_rough(false);
        self.arithmetic = Arithmetic::Turning(None);
    }

    /// Returns whether the last accepted point is rough, but no evaluation is any more.
    pub(super) fn is_turning(&self) -> bool {
        matches!(self.arithmetic, Arithmetic::Turning(_))
    }

    /// Evaluates the objective.
    fn value_and_gradient(&mut self, theta: &[f64], grad: &mut [f64]) -> f64 {
        self.evaluations += 1;
        self.rough_evaluations += usize::from(self.is_rough());
        self.is_evaluating = true;
        let value = self.objective.value_and_gradient(theta, grad);
        self.is_evaluating = false;
        value
    }

    /// Goes on in exact arithmetic, from the exact value at the last accepted point, and decides
    /// whether that point is the last.
    pub(super) fn sharpen(&mut self) -> Result<(), Halt> {
        self.arithmetic = Arithmetic::of(self.objective, false);
        let mut last = self.accepted.take().expect("the start is accepted first");
        let mut exact = vec![0.0; last.theta.len()];
        let value = self.value_and_gradient(&last.theta, &mut exact);
        if value.is_finite() && exact.iter().all(|g| g.is_finite()) {
            last.smooth_grad.clone_from(&exact);
            last.value = value + self.orthant.penalise(&last.theta, &mut exact);
            last.grad = exact;
            (last.kkt_residual, last.blocked) =
                self.orthant.kkt_residual(&last.theta, &last.smooth_grad);
            if let Some(point) = self.trace.last_mut() {
                point.value = last.value;
                point.gradient_norm = last.kkt_residual;
            }
        }
        self.flat_steps = 0;
        self.accepted = Some(last);
        self.judge()
    }

    /// Checks the limits before an evaluation.
    fn check_limits(&self) -> Result<(), StopReason> {
        if let Some(reason) = self.options.cancel.reason() {
            Err(reason)
        } else if self.evaluations >= self.options.max_evaluations {
            Err(StopReason::EvaluationLimit)
        } else if self.clock.seconds() >= self.options.max_seconds {
            Err(StopReason::TimeLimit)
        } else {
            Ok(())
        }
    }

    /// Evaluates the value at θ in this orthant and its gradient, unless a limit is reached.
    pub(super) fn evaluate(&mut self, theta: &[f64], grad: &mut [f64]) -> Result<f64, StopReason> {
        let last = self.accepted.as_ref().expect("the start is accepted first");
        if last.theta == theta {
            // Backends evaluate their starting point themselves.
            grad.copy_from_slice(&last.grad);
            return Ok(last.value);
        }
        self.check_limits()?;
        if !theta.iter().all(|t| t.is_finite()) {
            return Ok(last.wall(theta, grad));
        }
        // Only a forged memory holds another number of parameters; the backend catches the panic.
        assert_eq!(theta.len(), self.orthant.n);
        let value = self.value_and_gradient(theta, grad);
        let value = value + self.orthant.penalise(theta, grad);
        let last = self.accepted.as_ref().expect("the start is accepted first");
        if !(value.is_finite() && grad.iter().all(|g| g.is_finite())) {
            return Ok(last.wall(theta, grad));
        }
        Ok(match self.arithmetic {
            Arithmetic::Rough => last.resolve(theta, value, grad),
            Arithmetic::Turning(None) => {
                let resolved = last.resolve(theta, value, grad);
                self.arithmetic = Arithmetic::Turning(Some(value - resolved));
                resolved
            }
            Arithmetic::Turning(Some(offset)) => value - offset,
            Arithmetic::Exact => value,
        })
    }

    /// Takes θ as the current point, calls the observer, and decides whether to stop. `memory`
    /// encodes the backend's memory, if it can; `orthant_done` says that the backend is done.
    pub(super) fn accept(
        &mut self,
        theta: &[f64],
        value: f64,
        grad: &[f64],
        memory: impl FnOnce() -> Option<Vec<u8>>,
        orthant_done: bool,
    ) -> Result<(), Halt> {
        if let Some(last) = &self.accepted {
            // The line search gave up uphill or on the wall around a non-finite value, or steps
            // are too short for the value to resolve them.
            self.flat_steps = if value < last.value {
                0
            } else {
                self.flat_steps + 1
            };
            if value > last.value || self.flat_steps > MOST_FLAT_STEPS {
                return Err(Halt::Orthant);
            }
        }
        let mut value = value;
        if let Arithmetic::Turning(offset) = self.arithmetic {
            let offset = offset.unwrap_or(0.0);
            value += offset;
            if let Some(before) = self.trace.last_mut() {
                before.value += offset;
            }
            self.arithmetic = Arithmetic::Exact;
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
        let accepted = Accepted {
            theta: theta.to_vec(),
            value,
            smooth_grad,
            grad: grad.to_vec(),
            kkt_residual,
            blocked,
            iteration,
        };
        let observer = &mut self.observer;
        let checkpoint = &self.options.checkpoint;
        self.clock.pause(|| {
            observer(&Progress { point, theta });
            let memory = checkpoint.is_on().then(memory);
            // A backend that cannot encode its memory can only be resumed from the start.
            if let Some(memory) = memory.filter(|memory| memory.is_some() || iteration == 0) {
                checkpoint.note(Snapshot {
                    penalised: self.orthant.penalised.clone(),
                    accepted: accepted.clone(),
                    flat_steps: self.flat_steps,
                    evaluations: self.evaluations,
                    rough_evaluations: self.rough_evaluations,
                    is_rough: self.arithmetic == Arithmetic::Rough,
                    seconds: point.seconds,
                    trace: self.trace.clone(),
                    memory,
                    orthant_done,
                });
                checkpoint.write_if_due();
            }
        });
        self.accepted = Some(accepted);
        self.judge()
    }

    /// Decides whether the last accepted point ends the minimisation or the orthant.
    fn judge(&self) -> Result<(), Halt> {
        let last = self.accepted.as_ref().expect("the start is accepted first");
        if self.must_sharpen() {
            Err(Halt::Rough)
        } else if last.kkt_residual <= self.options.gradient_tolerance {
            Err(StopReason::Converged.into())
        } else if last.value < self.options.lowest_value {
            Err(StopReason::Unbounded.into())
        } else if last.iteration >= self.options.max_iterations {
            Err(StopReason::IterationLimit.into())
        } else if last.blocked >= last.kkt_residual {
            // The parameter furthest from its optimum cannot move in this orthant.
            Err(Halt::Orthant)
        } else {
            Ok(self.check_limits()?)
        }
    }

    /// Returns whether rough arithmetic can no longer tell better from worse, or the last steps are
    /// to be taken.
    fn is_near_the_end(&self, last: &Accepted) -> bool {
        let decrease = match self.trace.as_slice() {
            [.., before, now] => before.value - now.value,
            _ => f64::INFINITY,
        };
        last.kkt_residual <= ROUGH_RESIDUAL * self.options.gradient_tolerance
            || decrease <= ROUGH_DECREASE * last.value.abs()
    }

    fn finish(mut self, mut stop: StopReason) -> Minimum {
        if self.arithmetic != Arithmetic::Exact {
            // A limit was reached: the result is exact all the same.
            let _ = self.sharpen();
        }
        let mut last = self.accepted.take().expect("the start is accepted first");
        if stop == StopReason::NoProgress {
            self.snap_to_zero(&mut last);
            if last.kkt_residual <= self.options.gradient_tolerance {
                stop = StopReason::Converged;
            } else if self.is_lost_in_rounding(&last) {
                stop = StopReason::MachinePrecision;
            }
        }
        Minimum {
            theta: last.theta,
            value: last.value,
            kkt_residual: last.kkt_residual,
            stop,
            iterations: last.iteration,
            evaluations: self.evaluations,
            rough_evaluations: self.rough_evaluations,
            seconds: self.clock.seconds(),
            trace: self.trace,
        }
    }

    /// Returns whether the value cannot resolve the decrease that the residual r promises.
    ///
    /// With curvature c that decrease is r²/(2c). Along the subgradient c is measured, from a short
    /// step. Steeper directions than that say nothing about the flat ones, in which a residual means
    /// most, so that c counts as 1 at most: what a tolerance on the gradient assumes anyway.
    fn is_lost_in_rounding(&mut self, last: &Accepted) -> bool {
        let rounding = ROUNDINGS * f64::EPSILON * last.value.abs();
        let residual = last.kkt_residual;
        if residual * residual > 2.0 * rounding {
            return false;
        }
        let direction = self.orthant.subgradient(&last.theta, &last.smooth_grad);
        let largest = last.theta.iter().fold(1.0f64, |m, t| m.max(t.abs()));
        let step = f64::EPSILON.sqrt() * largest / residual;
        let there: Vec<f64> = last
            .theta
            .iter()
            .zip(&direction)
            .map(|(t, r)| t - step * r)
            .collect();
        let mut grad = vec![0.0; there.len()];
        self.evaluations += 1;
        self.objective.value_and_gradient(&there, &mut grad);
        let change: f64 = direction
            .iter()
            .zip(last.smooth_grad.iter().zip(&grad))
            .map(|(r, (here, there))| r * (here - there))
            .sum();
        let square: f64 = direction.iter().map(|r| r * r).sum();
        let curvature = (change / (step * square)).min(1.0);
        residual * residual <= 2.0 * rounding * curvature
    }

    /// Sets parameters to zero that are within the tolerance of it, where zero is optimal: L-BFGS-B
    /// also stops when a parameter is that close to its bound.
    fn snap_to_zero(&mut self, last: &mut Accepted) {
        let mut snapped = last.clone();
        for &(k, lambda, _) in &self.orthant.penalised {
            let near = last.theta[k].abs() <= self.options.gradient_tolerance;
            if near && last.smooth_grad[k].abs() <= lambda {
                snapped.theta[k] = 0.0;
            }
        }
        if snapped.theta != last.theta {
            self.evaluations += 1;
            let grad = &mut snapped.smooth_grad;
            let smooth = self.objective.value_and_gradient(&snapped.theta, grad);
            snapped.grad.clone_from(grad);
            snapped.value = smooth + self.orthant.penalise(&snapped.theta, &mut snapped.grad);
            let residual = self
                .orthant
                .kkt_residual(&snapped.theta, &snapped.smooth_grad);
            snapped.kkt_residual = residual.0;
            // Not onto a kink or a pole at zero.
            if snapped.is_finite() {
                *last = snapped;
            }
        }
    }
}

/// Checks that value and gradient are finite at the start.
fn check_start(value: f64, grad: &[f64]) -> Result<()> {
    let gradient_index = grad.iter().position(|g| !g.is_finite());
    if value.is_finite() && gradient_index.is_none() {
        Ok(())
    } else {
        Err(Error::NonFiniteStart {
            value,
            gradient_index,
        })
    }
}

impl Accepted {
    /// Returns whether every number is finite.
    pub(super) fn is_finite(&self) -> bool {
        let vectors = [&self.theta, &self.smooth_grad, &self.grad];
        let numbers = [self.value, self.kkt_residual, self.blocked];
        let mut all = vectors.into_iter().flatten().chain(&numbers);
        all.all(|v| v.is_finite())
    }

    /// Returns the value at θ, or a better one from the gradients if the two differ by no more than rough
    /// rounding: by the trapezoidal rule from here to there, whose error is of third order in the step.
    ///
    /// Sufficient decrease then is a condition on slopes (the approximate Wolfe condition of Hager and
    /// Zhang), which rounding does not disturb where steps are too short for the value.
    fn resolve(&self, theta: &[f64], value: f64, grad: &[f64]) -> f64 {
        let steps = theta
            .iter()
            .zip(&self.theta)
            .map(|(there, here)| there - here);
        let slopes = grad
            .iter()
            .zip(&self.grad)
            .map(|(there, here)| 0.5 * (there + here));
        let change: f64 = steps.zip(slopes).map(|(step, slope)| step * slope).sum();
        let expected = self.value + change;
        if (value - expected).abs() <= ROUGH_VALUE * self.value.abs() {
            expected
        } else {
            value
        }
    }

    /// Returns what a backend sees where the objective is not finite: a wall that rises from the
    /// last accepted point and makes the line search take a step about ten times shorter.
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
        // Above the accepted value even where the slope underflows or overflows.
        (self.value + 4.0 * slope.abs())
            .max(self.value.next_up())
            .min(f64::MAX)
    }
}
