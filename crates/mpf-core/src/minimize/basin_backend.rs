//! The default backend: `basin`'s port of L-BFGS-B 3.0, stepped one iteration at a time.

use super::{Halt, Search, StopReason};
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

/// Minimises within the search's orthant, from its last accepted point.
pub(super) fn run(search: &mut Search<'_>) -> Halt {
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
    let executor = Executor::new(boxed, solver, FirstOrderState::new(start)).max_iter(u64::MAX);
    let mut stepper = match executor.into_stepper() {
        Ok(stepper) => stepper,
        Err(error) => return stop_of(error).into(),
    };
    let mut completed = stepper.iter();
    loop {
        let outcome = match stepper.step() {
            Ok(outcome) => outcome,
            Err(error) => return stop_of(error).into(),
        };
        if stepper.iter() > completed {
            completed = stepper.iter();
            let state = stepper.state();
            let grad = state.gradient().expect("a completed step has a gradient");
            let accepted = search
                .borrow_mut()
                .accept(state.param(), state.cost(), grad);
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
