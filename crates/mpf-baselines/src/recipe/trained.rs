//! What a recipe made of its data.

use super::{HeldOut, Polishing};
use crate::Result;
use crate::drift::Drift;
use crate::error::Error;
use crate::method::MethodOptions;
use mpf_core::StopReason;
use mpf_ising::{CrossValidation, ErrorBars, Fit};
use serde::{Deserialize, Serialize};

/// One fit among those that made a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// What it was: the title of a method, or "persistent CD".
    pub name: String,
    /// Why it stopped.
    pub stop: StopReason,
    /// Iterations, or updates.
    pub iterations: usize,
    /// Evaluations of the objective.
    pub evaluations: usize,
    /// Learning time in seconds.
    pub seconds: f64,
}

impl Stage {
    pub(super) fn new(name: &str, fit: &Fit) -> Self {
        Self {
            name: name.to_owned(),
            stop: fit.stop,
            iterations: fit.iterations,
            evaluations: fit.evaluations,
            seconds: fit.seconds,
        }
    }
}

/// A step after the fit that failed. The fit is not lost.
#[derive(Clone, Debug)]
pub struct StepFailure {
    /// Which step.
    pub step: &'static str,
    /// Why it failed.
    pub error: Error,
}

impl StepFailure {
    /// Takes the error of a step.
    ///
    /// # Errors
    /// That error, if it is one of the checkpoint: the resume has failed, not the step.
    pub(super) fn new(step: &'static str, error: Error) -> Result<Self> {
        match error {
            Error::Core(mpf_core::Error::Checkpoint { .. })
            | Error::Ising(mpf_ising::Error::Core(mpf_core::Error::Checkpoint { .. })) => {
                Err(error)
            }
            error => Ok(Self {
                step,
                error: or_time_limit(error),
            }),
        }
    }
}

/// What a recipe made of its data.
#[derive(Clone, Debug)]
#[must_use = "look at `fit.stop`, `fit.warnings` and `drift` before using the couplings"]
pub struct Trained {
    /// The model. The objective and the residual are those of the last fit's method at these
    /// couplings, also if they were polished after it.
    pub fit: Fit,
    /// The title of the method whose objective `fit` has.
    pub method: &'static str,
    /// All fits, in their order.
    pub stages: Vec<Stage>,
    /// The options of the fits, with the penalty that was chosen.
    pub options: MethodOptions,
    /// λ₂ of the fits.
    pub l2: f64,
    /// The penalties that were tried.
    pub path: Option<CrossValidation>,
    /// How well the recipe predicts samples that it has not seen; `None` if it was not asked to, or
    /// could not be judged.
    pub held_out: Option<HeldOut>,
    /// Whether the final model stays with its data; `None` if that could not be measured.
    pub drift: Option<Drift>,
    /// What came of polishing, if it was tried.
    pub polishing: Option<Polishing>,
    /// Error bars, if they were asked for.
    pub errors: Option<ErrorBars>,
    /// Successive samples in a block, for error bars and held-out scores; 1 without the order of the
    /// samples.
    pub block_length: usize,
    /// Steps after the fit that failed.
    pub failures: Vec<StepFailure>,
}

/// Returns the error of a step that nobody asked to stop: one that the time limit stops reports itself
/// as cancelled.
pub(crate) fn or_time_limit(error: Error) -> Error {
    match error.is_cancelled() {
        true => Error::TimeLimit,
        false => error,
    }
}
