//! The state of a minimisation between two iterations, from which it continues to the same bits.

use super::TracePoint;
use super::search::{Accepted, MOST_FLAT_STEPS};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Snapshot {
    /// The parameters with λ > 0: (index, λ, side of zero).
    pub(super) penalised: Vec<(usize, f64, f64)>,
    pub(super) accepted: Accepted,
    pub(super) flat_steps: usize,
    pub(super) evaluations: usize,
    pub(super) rough_evaluations: usize,
    /// Whether the objective's faster arithmetic was in use.
    pub(super) is_rough: bool,
    pub(super) seconds: f64,
    pub(super) trace: Vec<TracePoint>,
    /// The backend's memory, encoded; `None` at the start of a minimisation.
    pub(super) memory: Option<Vec<u8>>,
    /// Whether the backend had nothing left to do in this orthant.
    pub(super) orthant_done: bool,
}

impl Snapshot {
    /// Returns whether this can be of a minimisation with `n` parameters and these penalties.
    pub(super) fn fits(&self, n: usize, lambda: &[f64]) -> bool {
        let lengths = [
            self.accepted.theta.len(),
            self.accepted.grad.len(),
            self.accepted.smooth_grad.len(),
        ];
        let own = self.penalised.iter().map(|&(k, l, _)| (k, l));
        let theirs = lambda.iter().copied().enumerate().filter(|p| p.1 > 0.0);
        lengths == [n; 3]
            && self.accepted.is_finite()
            && self.flat_steps <= MOST_FLAT_STEPS
            && own.eq(theirs)
    }
}
