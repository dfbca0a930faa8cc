//! The default backend: `basin`'s port of L-BFGS-B 3.0, stepped one iteration at a time.

use super::StopReason;
use super::search::{Halt, Search};
use crate::checkpoint;
use crate::error::Error;
use basin::{
    BoxBounds, ConstraintDescription, ConstraintSet, ConstraintSolveError, Constraints,
    CostFunction, ExactCheckpoint, Executor, FirstOrderState, Gradient, GradientState, Lbfgsb,
    State, StepOutcome,
};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Presents the search to `basin` as a function on a box, whose error is a reason to stop.
pub(super) struct Boxed<'a, 'b> {
    search: &'a RefCell<&'a mut Search<'b>>,
    lower: Vec<f64>,
    upper: Vec<f64>,
}

impl<'a, 'b> Boxed<'a, 'b> {
    /// Presents the search as a function of all θ.
    pub(super) fn without_bounds(search: &'a RefCell<&'a mut Search<'b>>) -> Self {
        Self {
            search,
            lower: Vec::new(),
            upper: Vec::new(),
        }
    }
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

/// The memory of L-BFGS-B.
pub(super) type Memory = ExactCheckpoint<Lbfgsb<Vec<f64>>, FirstOrderState<Vec<f64>>>;

/// Decodes the memory of an earlier run with `n` parameters.
pub(super) fn recall(bytes: &[u8], n: usize) -> crate::Result<Memory> {
    let (solver, state, counts): (_, FirstOrderState<Vec<f64>>, _) = checkpoint::decode(bytes)?;
    if state.param().len() != n || state.gradient().is_none_or(|g| g.len() != n) {
        return Err(foreign_memory());
    }
    Ok(Memory::from_parts(solver, state, counts))
}

/// The error for a memory that does not belong to the problem.
pub(super) fn foreign_memory() -> Error {
    Error::checkpoint("L-BFGS remembers another problem")
}

/// Minimises within the search's orthant from its last accepted point, or continues with the
/// `memory` of an earlier run.
pub(super) fn run(search: &mut Search<'_>, mut memory: Option<Memory>) -> Halt {
    let (lower, upper) = search.orthant.bounds();
    let mut resumed = memory.is_some();
    let search = RefCell::new(search);
    'arithmetic: loop {
        if search.borrow().must_sharpen() {
            let mut search = search.borrow_mut();
            if let Err(halt) = search.sharpen() {
                return halt;
            }
            memory = match memory.map(|memory| sharpened(memory, &search)) {
                Some(None) => return Halt::ForeignMemory,
                other => other.flatten(),
            };
        }
        let boxed = Boxed {
            search: &search,
            lower: lower.clone(),
            upper: upper.clone(),
        };
        let executor = match memory.take() {
            None => {
                let (options, start) = {
                    let search = search.borrow();
                    (search.options, search.last().theta.clone())
                };
                let solver = Lbfgsb::new()
                    .with_m_capacity(options.memory)
                    .with_absolute_projected_gradient_tolerance(options.gradient_tolerance)
                    .with_relative_cost_reduction_tolerance(None);
                Executor::new(boxed, solver, FirstOrderState::new(start))
            }
            Some(memory) => Executor::resume_from_checkpoint(boxed, memory),
        };
        let mut stepper = match executor.max_iter(u64::MAX).into_stepper() {
            Ok(stepper) => stepper,
            Err(error) => return halt_of(error),
        };
        let mut completed = stepper.iter();
        loop {
            let outcome = if resumed {
                // `basin` indexes its memory without checks: a forged one makes it panic. A panic of
                // the objective is passed on.
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
                Err(error) => return halt_of(error),
            };
            if stepper.iter() > completed {
                completed = stepper.iter();
                let state = stepper.state();
                let grad = state.gradient().expect("a completed step has a gradient");
                let encoded =
                    || checkpoint::encode(&(stepper.solver(), state, stepper.counts())).ok();
                let done = matches!(outcome, StepOutcome::Stopped(_));
                let accepted =
                    search
                        .borrow_mut()
                        .accept(state.param(), state.cost(), grad, encoded, done);
                match accepted {
                    Ok(()) => {}
                    Err(Halt::Rough) => {
                        // The same curvature, from the exact value and gradient.
                        memory = stepper.into_checkpoint();
                        resumed = false;
                        continue 'arithmetic;
                    }
                    Err(halt) => return halt,
                }
            }
            if let StepOutcome::Stopped(_) = outcome {
                return Halt::Orthant;
            }
        }
    }
}

/// Replaces value and gradient of the memory's point by those of the search.
fn sharpened(memory: Memory, search: &Search<'_>) -> Option<Memory> {
    let (solver, mut state, counts) = memory.into_parts();
    let last = search.last();
    let replaced = state.replace(last.theta.clone(), last.value, last.grad.clone());
    replaced.ok()?;
    Some(Memory::from_parts(solver, state, counts))
}

fn halt_of(error: ConstraintSolveError<StopReason>) -> Halt {
    match error {
        ConstraintSolveError::Evaluation(stop) => stop.into(),
        // The box is valid for the objective, but not for what a forged memory holds.
        _ => Halt::ForeignMemory,
    }
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::Snapshot;
    use super::super::{Minimizer, MinimizerOptions, Minimum};
    use super::*;
    use crate::{Cancel, Checkpoint, CheckpointStore, Objective, Settings, from_fn};
    use std::io;
    use std::time::Duration;

    /// A file that stays empty: states are read back from memory.
    struct Nowhere;

    impl CheckpointStore for Nowhere {
        fn read(&self) -> io::Result<Option<Vec<u8>>> {
            Ok(None)
        }

        fn write(&self, _: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn remove(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn checkpoint() -> Checkpoint {
        let settings = Settings::new("test");
        Checkpoint::new(Nowhere, settings, Duration::MAX, &Cancel::new())
    }

    /// Σ (θ_k − k)⁴ + θ_k², which takes more than a few iterations.
    fn quartic(n: usize) -> impl Objective {
        from_fn(n, |theta: &[f64], grad: &mut [f64]| {
            let mut value = 0.0;
            for (k, (g, t)) in grad.iter_mut().zip(theta).enumerate() {
                let off = t - k as f64;
                value += off.powi(4) + t * t;
                *g = 4.0 * off.powi(3) + 2.0 * t;
            }
            value
        })
    }

    fn minimize(
        objective: &mut dyn Objective,
        max_iterations: usize,
        checkpoint: &Checkpoint,
    ) -> crate::Result<Minimum> {
        let start = vec![0.0; objective.n_params()];
        let options = MinimizerOptions {
            max_iterations,
            checkpoint: checkpoint.clone(),
            ..Default::default()
        };
        Minimizer::new(options)?.minimize(objective, &start)
    }

    /// The state of a run with `n` parameters after four iterations.
    fn state(n: usize) -> Snapshot {
        let checkpoint = checkpoint();
        let _ = minimize(&mut quartic(n), 4, &checkpoint).unwrap();
        checkpoint.resume().unwrap().expect("a state is noted")
    }

    fn resume(snapshot: Snapshot) -> crate::Result<Minimum> {
        let checkpoint = checkpoint();
        checkpoint.note(snapshot);
        minimize(&mut quartic(12), 100, &checkpoint)
    }

    #[test]
    fn a_forged_memory_is_an_error_and_no_panic() {
        type Parts = (
            Lbfgsb<Vec<f64>>,
            FirstOrderState<Vec<f64>>,
            basin::EvalCounts,
        );
        let parts = |snapshot: &Snapshot| -> Parts {
            checkpoint::decode(snapshot.memory.as_ref().unwrap()).unwrap()
        };
        let (honest, other) = (state(12), state(5));
        assert!(resume(honest.clone()).is_ok());
        let mixed = {
            let (solver, _, _) = parts(&other);
            let (_, state, counts) = parts(&honest);
            checkpoint::encode(&(solver, state, counts)).unwrap()
        };
        // The memory of five parameters; that memory behind a state of twelve, which `basin` follows
        // out of bounds; and no memory at all.
        let forgeries = [other.memory.unwrap(), mixed, vec![1, 2, 3]];
        for (k, memory) in forgeries.into_iter().enumerate() {
            let forged = Snapshot {
                memory: Some(memory),
                ..honest.clone()
            };
            let refused = resume(forged);
            assert!(matches!(refused, Err(Error::Checkpoint { .. })), "{k}");
        }
    }

    #[test]
    fn forged_numbers_are_errors_or_results() {
        let forgeries: [fn(&mut Snapshot); 7] = [
            |s| s.flat_steps = usize::MAX,
            |s| s.evaluations = usize::MAX,
            |s| s.seconds = f64::NAN,
            |s| s.trace.clear(),
            |s| s.accepted.theta[3] = f64::NAN,
            |s| s.accepted.iteration = usize::MAX,
            |s| s.memory = None,
        ];
        for (k, forge) in forgeries.iter().enumerate() {
            let mut forged = state(12);
            forge(&mut forged);
            let refused = matches!(resume(forged), Err(Error::Checkpoint { .. }));
            assert_eq!(refused, [0, 4].contains(&k), "forgery {k}");
        }
    }

    #[test]
    #[should_panic(expected = "the objective's own")]
    fn a_panic_of_the_objective_is_passed_on_in_a_resumed_run() {
        let checkpoint = checkpoint();
        checkpoint.note(state(12));
        let mut broken = from_fn(12, |_: &[f64], _: &mut [f64]| panic!("the objective's own"));
        let _ = minimize(&mut broken, 100, &checkpoint);
    }
}
