//! A fit between two steps, as data.

use super::{Rescue, TracePoint, alternating, stochastic};
use serde::{Deserialize, Serialize};

/// Everything that a fit needs to go on as if it had never stopped: the same steps, bit by bit.
/// Made when the likelihood is measured and [`FitOptions::snapshots`](super::FitOptions::snapshots)
/// is set; continued by [`FitOptions::resume`](super::FitOptions::resume).
///
/// It can be written and read with any `serde` format that keeps every bit of a number. It knows
/// the size of the data only: whoever keeps one must see to it that data and options are the same.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    pub(super) n_samples: usize,
    pub(super) n_dims: usize,
    /// Learning time so far.
    pub(super) seconds: f64,
    pub(super) trace: Vec<TracePoint>,
    pub(super) rescued: Vec<Rescue>,
    pub(super) state: State,
}

/// What a trainer needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum State {
    Stochastic(stochastic::Course),
    Alternating(alternating::Course),
    MaximumLikelihood(mpf_core::Snapshot),
}

impl Snapshot {
    /// Steps done.
    pub fn step(&self) -> usize {
        match &self.state {
            State::Stochastic(course) => course.steps,
            State::Alternating(course) => course.steps,
            State::MaximumLikelihood(snapshot) => snapshot.iteration(),
        }
    }

    /// Learning time so far, in seconds.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }
}
