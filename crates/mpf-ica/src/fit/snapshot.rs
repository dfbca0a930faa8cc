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

    /// Learning time so far, in seconds: finite in every snapshot that can be resumed.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Whether every number is one that a fit can have written. (Matrices are checked as they are
    /// read.)
    pub(super) fn is_finite(&self) -> bool {
        let trace = self.trace.iter();
        let trace = trace.flat_map(|p| [p.log_likelihood, p.seconds]);
        let rescued = self.rescued.iter();
        let rescued = rescued.flat_map(|r| [r.smallest_singular_value, r.median_singular_value]);
        let acceptance = match &self.state {
            State::Stochastic(course) => course.acceptance,
            _ => None,
        };
        let mut all = trace.chain(rescued).chain(acceptance);
        all.all(f64::is_finite) && self.seconds >= 0.0 && self.seconds.is_finite()
    }
}
