//! The default backend: `basin`'s port of L-BFGS-B 3.0, stepped one iteration at a time.

use super::{Search, StopReason};
use basin::{
    BoxBounds, ConstraintDescription, ConstraintSet, Constraints, CostFunction, Executor,
    FirstOrderState, Gradient, GradientState, Lbfgsb, State, StepOutcome,
};
use std::cell::RefCell;

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

    fn cost(&self, z: &Vec<f64>) -> Result<f64, StopReason> {
        self.cost_and_gradient(z).map(|(value, _)| value)
    }
}

impl Gradient for Boxed<'_, '_> {
    type Gradient = Vec<f64>;

    fn gradient(&self, z: &Vec<f64>) -> Result<Vec<f64>, StopReason> {
        self.cost_and_gradient(z).map(|(_, grad)| grad)
    }

    fn cost_and_gradient(&self, z: &Vec<f64>) -> Result<(f64, Vec<f64>), StopReason> {
        let mut grad = vec![0.0; z.len()];
        let value = self.cost_and_gradient_into(z, &mut grad)?;
        Ok((value, grad))
    }

    fn cost_and_gradient_into(&self, z: &Vec<f64>, grad: &mut Vec<f64>) -> Result<f64, StopReason> {
        grad.resize(z.len(), 0.0);
        let mut search = self.search.borrow_mut();
        // `basin` evaluates the start itself, which the search has done already.
        if let Some(accepted) = search.accepted.as_ref().filter(|a| a.z == *z) {
            grad.copy_from_slice(&accepted.z_grad);
            return Ok(accepted.z_value);
        }
        search.evaluate(z, grad)
    }
}

impl Constraints for Boxed<'_, '_> {
    type Set = ConstraintSet<BoxBounds<Vec<f64>>>;

    fn constraints(&self) -> <Self::Set as ConstraintDescription>::Borrowed<'_> {
        ConstraintSet::new().with_bounds(BoxBounds::new(Some(&self.lower), Some(&self.upper)))
    }
}

pub(super) fn run(search: &mut Search<'_>, start: Vec<f64>) -> StopReason {
    let solver = Lbfgsb::new()
        .with_m_capacity(search.options.memory)
        .with_absolute_projected_gradient_tolerance(search.options.gradient_tolerance)
        .with_relative_cost_reduction_tolerance(None);
    let lower = search.split.lower();
    let upper = vec![f64::INFINITY; start.len()];
    let search = RefCell::new(search);
    let boxed = Boxed {
        search: &search,
        lower,
        upper,
    };
    let mut stepper = match Executor::new(boxed, solver, FirstOrderState::new(start)).into_stepper()
    {
        Ok(stepper) => stepper,
        Err(error) => return stop_of(error),
    };
    let mut completed = stepper.iter();
    loop {
        let outcome = match stepper.step() {
            Ok(outcome) => outcome,
            Err(error) => return stop_of(error),
        };
        if stepper.iter() > completed {
            completed = stepper.iter();
            let state = stepper.state();
            let grad = state.gradient().expect("a completed step has a gradient");
            if let Err(stop) = search
                .borrow_mut()
                .accept(state.param(), state.cost(), grad)
            {
                return stop;
            }
        }
        if let StepOutcome::Stopped(report) = outcome {
            return if report.termination.is_converged() {
                StopReason::Converged
            } else {
                StopReason::NoProgress
            };
        }
    }
}

fn stop_of(error: basin::ConstraintSolveError<StopReason>) -> StopReason {
    match error {
        basin::ConstraintSolveError::Evaluation(stop) => stop,
        // The box is 0 ≤ z ≤ ∞ or free: it cannot be invalid.
        other => unreachable!("{other:?}"),
    }
}
