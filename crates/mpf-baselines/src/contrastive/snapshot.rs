//! The state of contrastive divergence between two updates.

use super::parameters::Sum;
use mpf_core::TracePoint;
use mpf_ising::{Couplings, States};
use serde::{Deserialize, Serialize};

/// What the next update needs, to the same bits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Snapshot {
    pub(super) couplings: Couplings,
    /// The couplings to average.
    pub(super) sum: Sum,
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

/// Returns the error for a snapshot that cannot be of this run.
pub(super) fn foreign(what: &str) -> mpf_core::Error {
    mpf_core::Error::checkpoint(format!("it is of a run with {what}"))
}
