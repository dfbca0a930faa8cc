//! A fit under way, and its result.

use crate::couplings::Couplings;
use crate::warning::Warning;
use mpf_core::{StopReason, TracePoint};
use serde::{Deserialize, Serialize};
use std::ops::Deref;

/// A fit under way.
pub struct FitProgress<'a> {
    /// Its numbers, which are also those of the progress itself: `progress.value`. In node-wise mode,
    /// units that are done in place of iterations, the objective summed over them, and the largest
    /// residual so far, in the units of [`Fit::kkt_residual`].
    pub point: TracePoint,
    couplings: &'a dyn Fn() -> Couplings,
}

impl Deref for FitProgress<'_> {
    type Target = TracePoint;

    fn deref(&self) -> &TracePoint {
        &self.point
    }
}

impl<'a> FitProgress<'a> {
    /// Reports the progress of a learner that does not go through a [`Fitter`](super::Fitter);
    /// `couplings` returns the current ones.
    pub fn new(point: TracePoint, couplings: &'a dyn Fn() -> Couplings) -> Self {
        Self { point, couplings }
    }

    /// Returns the current couplings. O(d²).
    pub fn couplings(&self) -> Couplings {
        (self.couplings)()
    }
}

/// A fitted model, how it was found, and what to be careful about.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[must_use = "look at `stop` and `warnings` before using the couplings"]
pub struct Fit {
    /// The paper's J.
    pub couplings: Couplings,
    /// The objective at these couplings, penalties included.
    pub value: f64,
    /// Why the minimisation stopped.
    pub stop: StopReason,
    /// The largest entry of the smallest subgradient: 0 at a minimum.
    ///
    /// It is taken in standardised units, in which losses have curvatures of order 1. With an ℓ2
    /// penalty these units shrink where it outweighs the loss, so that both together have:
    /// C_ij = √((4 σ_i σ_j)² + λ₂) K_ij, and likewise for fields with a penalty.
    pub kkt_residual: f64,
    /// Iterations (of all rows together in node-wise mode).
    pub iterations: usize,
    /// Evaluations of the objective (of all rows together in node-wise mode).
    pub evaluations: usize,
    /// Those of them in single precision, far from the minimum; 0 if
    /// [`rough_start`](mpf_core::MinimizerOptions::rough_start) is off, and for less than 256 units or
    /// few set bits.
    #[serde(default)]
    pub single_precision_evaluations: usize,
    /// Learning time in seconds.
    pub seconds: f64,
    /// The fraction of flips that led to data states and were left out.
    pub left_out_fraction: f64,
    /// Node-wise mode: the largest |K_ij − K_ji| before averaging.
    pub asymmetry: Option<f64>,
    /// What to be careful about.
    pub warnings: Vec<Warning>,
    /// One point per iteration; in node-wise mode the last point of every unit, with the index of
    /// the unit in place of the iteration.
    pub trace: Vec<TracePoint>,
}

impl Fit {
    /// Returns a fit that was computed rather than minimised: `stop` is [`StopReason::ClosedForm`].
    pub fn closed_form(
        couplings: Couplings,
        value: f64,
        seconds: f64,
        warnings: Vec<Warning>,
    ) -> Self {
        Self {
            couplings,
            value,
            stop: StopReason::ClosedForm,
            kkt_residual: 0.0,
            iterations: 0,
            evaluations: 0,
            single_precision_evaluations: 0,
            seconds,
            left_out_fraction: 0.0,
            asymmetry: None,
            warnings,
            trace: Vec::new(),
        }
    }
}
