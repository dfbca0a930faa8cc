//! Options of contrastive divergence, and what is refused.

use crate::Result;
use mpf_core::{Cancel, Checkpoint, check_not_negative, check_option};
use mpf_ising::{Couplings, Support};

/// η_t, linear in t from the first update to the last. Both must be positive and finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearningRate {
    /// η of the first update.
    pub first: f64,
    /// η of the last.
    pub last: f64,
}

impl LearningRate {
    /// Returns η of an update; finite and positive, as both ends are.
    pub(super) fn at(self, update: usize, updates: usize) -> f64 {
        let done = update as f64 / (updates.max(2) - 1) as f64;
        self.first + done * (self.last - self.first)
    }
}

impl Default for LearningRate {
    /// Returns the paper's rates: from 3.0 to 0.1.
    fn default() -> Self {
        Self {
            first: 3.0,
            last: 0.1,
        }
    }
}

/// Options of [`ContrastiveDivergence`](super::ContrastiveDivergence), unchecked.
#[derive(Clone, Debug)]
pub struct ContrastiveOptions {
    /// k: Gibbs sweeps per update. Default 1.
    pub sweeps: usize,
    /// How many updates. Default 1000.
    pub updates: usize,
    /// The learning rate. Default: the paper's.
    pub learning_rate: LearningRate,
    /// Chains per update, drawn from the data without repeats until all have had their turn.
    /// Default `None`, and whatever is not fewer than the data: all, as in the paper.
    pub batch_size: Option<usize>,
    /// Whether chains go on where the last update left them, instead of starting at the data
    /// again: stochastic maximum likelihood. Default no.
    pub persistent: bool,
    /// λ₁ on Σ_{i<j} |K_ij|, which every update takes into account; couplings that start at zero
    /// stay there. Default 0.
    pub l1: f64,
    /// λ₂ on ½ Σ_{i<j} K_ij². Default 0.
    pub l2: f64,
    /// Return the mean of the couplings after this many last updates, which has less noise than the
    /// last ones alone. Default 1: the last.
    pub average: usize,
    /// The free couplings. Default: all.
    pub support: Support,
    /// Where to start; within ±1000. Default: zero (every state equally likely).
    pub start: Option<Couplings>,
    /// What all randomness comes from. Default 0.
    pub seed: u64,
    /// Most seconds of learning time; +∞ for no limit, the default.
    pub max_seconds: f64,
    /// The handle that stops the run before its next update. Default: one that nobody else holds.
    pub cancel: Cancel,
    /// Where the state is kept between updates, and resumed from. Default: nowhere.
    pub checkpoint: Checkpoint,
}

impl Default for ContrastiveOptions {
    fn default() -> Self {
        Self {
            sweeps: 1,
            updates: 1000,
            learning_rate: LearningRate::default(),
            batch_size: None,
            persistent: false,
            l1: 0.0,
            l2: 0.0,
            average: 1,
            support: Support::default(),
            start: None,
            seed: 0,
            max_seconds: f64::INFINITY,
            cancel: Cancel::new(),
            checkpoint: Checkpoint::default(),
        }
    }
}

impl ContrastiveOptions {
    pub(super) fn check(&self) -> Result<()> {
        for (name, count) in [
            ("sweeps", self.sweeps),
            ("updates", self.updates),
            ("batch_size", self.batch_size.unwrap_or(1)),
            ("average", self.average),
        ] {
            check_option(name, count as f64, "at least 1", count > 0)?;
        }
        for (name, rate) in [
            ("learning_rate.first", self.learning_rate.first),
            ("learning_rate.last", self.learning_rate.last),
        ] {
            let holds = rate > 0.0 && rate.is_finite();
            check_option(name, rate, "positive and finite", holds)?;
        }
        for (name, lambda) in [("l1", self.l1), ("l2", self.l2)] {
            check_not_negative(name, lambda)?;
        }
        let limit = self.max_seconds;
        let requirement = "a number that is not negative";
        check_option("max_seconds", limit, requirement, limit >= 0.0)?;
        Ok(())
    }
}
