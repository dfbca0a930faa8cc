//! Contrastive divergence between two updates.

use mpf_core::TracePoint;
use mpf_ising::{Couplings, States};
use serde::{Deserialize, Serialize};

/// CD between two updates: everything that it takes to go on to the same bits. It can be written
/// and read with any `serde` format that keeps every bit of a number. It knows neither data nor
/// options: whoever keeps one must see to it that they are the same.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ContrastiveSnapshot {
    pub(super) couplings: Couplings,
    /// One point per update.
    pub(super) trace: Vec<TracePoint>,
    /// The order in which chains take turns; empty where every update has all of them.
    pub(super) origins: Vec<u32>,
    pub(super) next: usize,
    /// How often the order was dealt. With it and the number of the update, the seed gives the
    /// random streams of all that follows.
    pub(super) epoch: u64,
    /// Where persistent chains are, and their weights.
    pub(super) persistent: Option<(States, Vec<f64>)>,
}

impl ContrastiveSnapshot {
    /// Updates done.
    pub fn updates(&self) -> usize {
        self.trace.len()
    }

    /// Learning time so far, in seconds.
    pub fn seconds(&self) -> f64 {
        self.trace.last().map_or(0.0, |point| point.seconds)
    }
}
