//! The default backend: `basin`'s port of L-BFGS-B 3.0, stepped one iteration at a time.

use super::StopReason;
use super::search::{Halt, Search};
use crate::checkpoint;
use basin::{
    BoxBounds, ConstraintDescription, ConstraintSet, Constraints, CostFunction, ExactCheckpoint,
    Executor, FirstOrderState, Gradient, GradientState, Lbfgsb, State, StepOutcome,
};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The search as `basin` sees it: a function on a box, whose error is a reason to stop.
struct Boxed<'a, 'b> {
    search: &'a RefCell<&'a mut Search<'b>>,
    lower: Vec<f64>,
    upper: Vec<f64>,
}

impl CostFunction for Boxed<'_, '_> {
    type Param = Vec<f64>;
    type Output = f64;
    type Error = StopReason;

    fn cost(&self, theta: &Vec<f64>) -> Result<f64, StopReason> {
        self.cost_and_gradient(theta).map(|(value, _)| value)
    }
}

impl Gradient for Boxed<'_, '_> {
    type Gradient = Vec<f64>;

    fn gradient(&self, theta: &Vec<f64>) -> Result<Vec<f64>, StopReason> {
        self.cost_and_gradient(theta).map(|(_, grad)| grad)
    }

    fn cost_and_gradient(&self, theta: &Vec<f64>) -> Result<(f64, Vec<f64>), StopReason> {
        let mut grad = vec![0.0; theta.len()];
        let value = self.cost_and_gradient_into(theta, &mut grad)?;
        Ok((value, grad))
    }

    fn cost_and_gradient_into(
        &self,
        theta: &Vec<f64>,
        grad: &mut Vec<f64>,
    ) -> Result<f64, StopReason> {
        grad.resize(theta.len(), 0.0);
        self.search.borrow_mut().evaluate(theta, grad)
    }
}

impl Constraints for Boxed<'_, '_> {
    type Set = ConstraintSet<BoxBounds<Vec<f64>>>;

    fn constraints(&self) -> <Self::Set as ConstraintDescription>::Borrowed<'_> {
        ConstraintSet::new().with_bounds(BoxBounds::new(Some(&self.lower), Some(&self.upper)))
    }
}

/// What L-BFGS-B remembers.
pub(super) type Memory = ExactCheckpoint<Lbfgsb<Vec<f64>>, FirstOrderState<Vec<f64>>>;

/// Decodes what an earlier run remembered.
pub(super) fn recall(bytes: &[u8]) -> crate::Result<Memory> {
    let (solver, state, counts) = checkpoint::decode(bytes)?;
    Ok(Memory::from_parts(solver, state, counts))
}

/// Minimises within the search's orthant, from its last accepted point, or goes on with what an
/// earlier run remembered there.
pub(super) fn run(search: &mut Search<'_>, memory: Option<Memory>) -> Halt {
    let solver = Lbfgsb::new()
        .with_m_capacity(search.options.memory)
        .with_absolute_projected_gradient_tolerance(search.options.gradient_tolerance)
        .with_relative_cost_reduction_tolerance(None);
    let (lower, upper) = search.orthant.bounds();
    let start = search
        .accepted
        .as_ref()
        .expect("the start is accepted first")
        .theta
        .clone();
    let search = RefCell::new(search);
    let boxed = Boxed {
        search: &search,
        lower,
        upper,
    };
    let resumed = memory.is_some();
    let executor = match memory {
        None => Executor::new(boxed, solver, FirstOrderState::new(start)),
        Some(memory) => Executor::resume_from_checkpoint(boxed, memory),
    };
    let mut stepper = match executor.max_iter(u64::MAX).into_stepper() {
        Ok(stepper) => stepper,
        Err(error) => return stop_of(error).into(),
    };
    let mut completed = stepper.iter();
    loop {
        let outcome = if resumed {
            // `basin` indexes what it remembers without checks: a forged memory makes it panic.
            match catch_unwind(AssertUnwindSafe(|| stepper.step())) {
                Ok(outcome) => outcome,
                Err(panic) if search.borrow().is_evaluating => resume_unwind(panic),
                Err(_) => return Halt::ForeignMemory,
            }
        } else {
            stepper.step()
        };
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => return stop_of(error).into(),
        };
        if stepper.iter() > completed {
            completed = stepper.iter();
            let state = stepper.state();
            let grad = state.gradient().expect("a completed step has a gradient");
            let memory = || checkpoint::encode(&(stepper.solver(), state, stepper.counts())).ok();
            let done = matches!(outcome, StepOutcome::Stopped(_));
            let accepted =
                search
                    .borrow_mut()
                    .accept(state.param(), state.cost(), grad, memory, done);
            if let Err(halt) = accepted {
                return halt;
            }
        }
        if let StepOutcome::Stopped(_) = outcome {
            return Halt::Orthant;
        }
    }
}

fn stop_of(error: basin::ConstraintSolveError<StopReason>) -> StopReason {
    match error {
        basin::ConstraintSolveError::Evaluation(stop) => stop,
        // Every bound is zero or infinite, and never both at once: the box is valid.
        other => unreachable!("{other:?}"),
    }
}
