//! Contrastive divergence between two updates.

use crate::Result;
use crate::error::Error;
use mpf_core::TracePoint;
use mpf_ising::{Couplings, States};
use serde::{Deserialize, Serialize};

/// CD between two updates: everything that it takes to go on to the same bits. It can be written
/// and read with any `serde` format that keeps every bit of a number. It knows neither data nor
/// options: whoever keeps one must see to it that they are the same. What cannot be of a run is
/// refused when it is resumed.
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

    /// Learning time so far, in seconds; finite, unless the snapshot was changed.
    pub fn seconds(&self) -> f64 {
        self.trace.last().map_or(0.0, |point| point.seconds)
    }

    /// Checks that the course is one of updates: numbered, finite, and with time going on.
    pub(super) fn check_trace(&self) -> Result<()> {
        let mut seconds = 0.0;
        for (k, point) in self.trace.iter().enumerate() {
            let sizes = [point.value, point.gradient_norm, point.seconds - seconds];
            let counted = point.iteration == k + 1 && point.evaluations == k + 1;
            if !counted || sizes.iter().any(|v| !(0.0..f64::INFINITY).contains(v)) {
                return Err(Error::OtherSnapshot {
                    what: "another course",
                });
            }
            seconds = point.seconds;
        }
        Ok(())
    }
}
