//! A minimisation between two iterations, as data.

use super::TracePoint;
use super::search::Accepted;
use serde::{Deserialize, Serialize};

/// Everything that a minimisation needs to go on as if it had never stopped: the same steps, bit
/// by bit. Made after every iteration when
/// [`MinimizerOptions::snapshots`](super::MinimizerOptions::snapshots) is set; continued by
/// [`Minimizer::resume`](super::Minimizer::resume).
///
/// It can be written and read with any `serde` format that keeps every bit of a number. It does
/// not know the objective: whoever keeps one must see to it that data and settings are the same.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// The parameters with λ > 0: (index, λ, side of zero).
    pub(super) penalised: Vec<(usize, f64, f64)>,
    pub(super) accepted: Accepted,
    pub(super) flat_steps: usize,
    pub(super) evaluations: usize,
    pub(super) seconds: f64,
    pub(super) trace: Vec<TracePoint>,
    /// What the backend remembers, encoded; `None` at the very start.
    pub(super) memory: Option<Vec<u8>>,
    /// Whether the backend had nothing left to do in this orthant.
    pub(super) orthant_done: bool,
}

impl Snapshot {
    /// Iterations done.
    pub fn iteration(&self) -> usize {
        self.accepted.iteration
    }

    /// The parameters: finite, in every snapshot that [`Minimizer::resume`](super::Minimizer::resume)
    /// takes.
    pub fn theta(&self) -> &[f64] {
        &self.accepted.theta
    }

    /// Learning time so far, in seconds: finite, likewise.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Whether this belongs to a minimisation with `n` parameters and these penalties.
    pub(super) fn fits(&self, n: usize, lambda: &[f64]) -> bool {
        let lengths = [
            self.accepted.theta.len(),
            self.accepted.grad.len(),
            self.accepted.smooth_grad.len(),
        ];
        let own = self.penalised.iter().map(|&(k, l, _)| (k, l));
        let theirs = lambda.iter().copied().enumerate().filter(|p| p.1 > 0.0);
        lengths == [n; 3] && own.eq(theirs)
    }

    /// Whether every number is one that a minimisation can have written.
    pub(super) fn is_finite(&self) -> bool {
        let sides = self.penalised.iter().map(|p| p.2);
        let mut trace = self
            .trace
            .iter()
            .flat_map(|p| [p.value, p.gradient_norm, p.seconds]);
        self.accepted.is_finite()
            && sides.map(f64::abs).all(|side| side == 1.0)
            // Thirty million years: far from what a clock can count to.
            && (0.0..1e15).contains(&self.seconds)
            && trace.all(f64::is_finite)
    }
}
