//! The results of Figure 3, as they are written to `results.json`.

use super::Args;
use crate::output::Settings;
use mpf_core::StopReason;
use mpf_ica::{Filters, Fit, LastPhase, Rescue, TracePoint, Whitening};
use serde::Serialize;

/// `results.json`; every field is described in `docs/results.md`.
#[derive(Serialize)]
pub(super) struct Results {
    pub(super) settings: Settings<Args>,
    /// Mean over the patches, in nats.
    pub(super) log_likelihood: LogLikelihood,
    pub(super) paper: LogLikelihood,
    pub(super) mpf: Method,
    pub(super) ml: Option<Method>,
    pub(super) matched: Option<Matched>,
    pub(super) over_seeds: Vec<Seed>,
    pub(super) reading: Vec<String>,
}

#[derive(Clone, Copy, Serialize)]
pub(super) struct LogLikelihood {
    pub(super) start: f64,
    pub(super) mpf: f64,
    /// `None` when interrupted before.
    pub(super) ml: Option<f64>,
    /// Maximum likelihood minus MPF.
    pub(super) gap: Option<f64>,
}

/// The figures of the main text.
pub(super) const PAPER: LogLikelihood = LogLikelihood {
    start: -189.23,
    mpf: -120.61,
    ml: Some(-120.33),
    gap: Some(0.28),
};

#[derive(Serialize)]
pub(super) struct Method {
    /// Learning time.
    pub(super) seconds: f64,
    pub(super) steps: usize,
    pub(super) stop: StopReason,
    /// Mean probability that Metropolis accepts a trajectory.
    pub(super) acceptance: Option<f64>,
    pub(super) clipped_fraction: f64,
    pub(super) rescues: Vec<Rescue>,
    pub(super) last_phase: Option<LastPhase>,
    pub(super) sigma_min: f64,
    pub(super) sigma_median: f64,
    pub(super) trace: Vec<TracePoint>,
}

impl Method {
    pub(super) fn of(fit: &Fit) -> Self {
        Self {
            seconds: fit.seconds,
            steps: fit.steps,
            stop: fit.stop,
            acceptance: fit.acceptance,
            clipped_fraction: fit.clipped_fraction,
            rescues: fit.rescued.clone(),
            last_phase: fit.last_phase,
            sigma_min: fit.smallest_singular_value,
            sigma_median: fit.median_singular_value,
            trace: fit.trace.clone(),
        }
    }
}

/// The similarity of the two methods' filters, matched one to one.
#[derive(Serialize)]
pub(super) struct Matched {
    pub(super) filters: usize,
    /// With |cos| > 0.9.
    pub(super) alike: usize,
    pub(super) median_similarity: f64,
}

/// One seed of several.
#[derive(Serialize)]
pub(super) struct Seed {
    pub(super) seed: u64,
    pub(super) log_likelihood: LogLikelihood,
    pub(super) rescues: usize,
    pub(super) last_phase: Option<LastPhase>,
    pub(super) sigma_min: f64,
    pub(super) mpf_seconds: f64,
    pub(super) ml_seconds: Option<f64>,
}

/// The filters of both methods, for the pictures and the folder `filters`.
pub(super) struct Pair {
    pub(super) mpf: Filters,
    pub(super) ml: Option<Filters>,
    pub(super) whitenings: Vec<Whitening>,
}
