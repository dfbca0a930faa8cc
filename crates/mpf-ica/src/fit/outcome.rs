//! What a fit reports on its way and at its end.

use super::run::median;
use crate::Result;
use crate::model::Filters;
use mpf_core::StopReason;
use ndarray::ArrayView1;
use serde::{Deserialize, Serialize};

/// Where a fit is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracePoint {
    /// Steps so far; 0 is the start.
    pub step: usize,
    /// ⟨ln p⟩ over the data, in nats.
    pub log_likelihood: f64,
    /// Learning time in seconds, without observers and measurements of the likelihood.
    pub seconds: f64,
}

/// A filter that was replaced because J had lost a direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rescue {
    /// The steps taken before.
    pub step: usize,
    /// The row of J that was replaced.
    pub filter: usize,
    /// The smallest singular value of J before the replacement.
    pub smallest_singular_value: f64,
    /// The median singular value of J before the replacement.
    pub median_singular_value: f64,
}

/// The last phase of the [stochastic trainer](crate::Stochastic), judged without a likelihood.
///
/// Two sets of filters, J before the phase and J′ after it, are compared on held-out samples x and
/// on neighbours that are the same for both: y, which Metropolis transitions under J lead x to, and
/// y′, which transitions under J′ do.
///
/// ```text
/// F(θ) = ⟨½ [E(x; θ) − E(y; θ)] + ½ [E(x; θ) − E(y′; θ)]⟩
/// ```
///
/// F is the mean exponent of the flow to both neighbours, without the terms that θ does not enter;
/// the flow itself would hang on a few samples of the tails. Where the transitions forget x,
/// F(J) − F(J′) is the trapezoidal rule for the gain in ⟨ln p(x)⟩, whose slope on the way from J to
/// J′ is ⟨∂E⟩ over the model minus ⟨∂E⟩ over the data. So the transitions are doubled until the
/// change settles.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LastPhase {
    /// Samples that were held out.
    pub held_out: usize,
    /// Transitions from x to y and to y′.
    pub transitions: usize,
    /// Whether the last doubling of the transitions left the change as it was, within two of its
    /// standard errors.
    pub settled: bool,
    /// F of J, in nats.
    pub flow_before: f64,
    /// F of J′, in nats.
    pub flow_after: f64,
    /// The standard error of `flow_after` − `flow_before`, from the samples' own differences.
    pub standard_error: f64,
    /// Whether the flow settled and fell by more than its standard error, so that J′ is the result.
    pub kept: bool,
    /// ⟨ln p⟩ of J over the data. For the reader: it decides nothing.
    pub log_likelihood_before: f64,
    /// ⟨ln p⟩ of J′ over the data.
    pub log_likelihood_after: f64,
}

/// The result of a fit.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[must_use = "look at `stop`, `rescued` and the singular values"]
pub struct Fit {
    /// J.
    pub filters: Filters,
    /// ⟨ln p⟩ over the data, in nats.
    pub log_likelihood: f64,
    /// Why it stopped. The trainers of MPF run to the end of their schedule, which is
    /// [`StopReason::IterationLimit`].
    pub stop: StopReason,
    /// Updates, rounds or iterations.
    pub steps: usize,
    /// Learning time in seconds.
    pub seconds: f64,
    /// The mean probability that Metropolis would accept the last trajectories,
    /// ⟨min(1, e^(H − H′))⟩; `None` without trajectories.
    pub acceptance: Option<f64>,
    /// The fraction of weights that were clipped.
    pub clipped_fraction: f64,
    /// The filters that were replaced, in order.
    pub rescued: Vec<Rescue>,
    /// How the stochastic trainer's last phase was judged; `None` without one, and if it was cut
    /// short.
    pub last_phase: Option<LastPhase>,
    /// The smallest singular value of J.
    pub smallest_singular_value: f64,
    /// The median singular value of J.
    pub median_singular_value: f64,
    /// The likelihood on the way.
    pub trace: Vec<TracePoint>,
}

impl Fit {
    /// A direction counts as lost when the smallest singular value of J is below this fraction of
    /// the median one.
    pub const LOST_RATIO: f64 = 0.3;

    /// Returns a fit of no steps.
    pub(super) fn new(filters: Filters, log_likelihood: f64) -> Result<Self> {
        let values = filters.singular_values()?;
        Ok(Self {
            filters,
            log_likelihood,
            stop: StopReason::IterationLimit,
            steps: 0,
            seconds: 0.0,
            acceptance: None,
            clipped_fraction: 0.0,
            rescued: Vec::new(),
            last_phase: None,
            smallest_singular_value: values[values.len() - 1],
            median_singular_value: median(ArrayView1::from(&values)),
            trace: Vec::new(),
        })
    }

    /// Returns whether J has lost a direction of the data: its likelihood is then several nats too
    /// low.
    pub fn lost_a_direction(&self) -> bool {
        self.smallest_singular_value < Self::LOST_RATIO * self.median_singular_value
    }
}
