//! Polishing: stochastic maximum likelihood from a fitted model, with its penalty and support.

use super::{HeldOut, Trained};
use crate::Result;
use crate::contrastive::{ContrastiveDivergence, ContrastiveOptions, LearningRate};
use crate::drift::Drift;
use mpf_core::Checkpoint;
use mpf_ising::{BlockMean, Couplings, Fit, FitProgress, Samples};
use serde::{Deserialize, Serialize};

/// The learning rate of polishing, in units of J per moment. The paper's schedule, from 3 to 0.1, is
/// for chains that start at J = 0; a fitted model needs smaller steps.
const RATE: LearningRate = LearningRate {
    first: 1.0,
    last: 0.05,
};
/// The part of the updates whose couplings are averaged, as one in this many.
const AVERAGED: usize = 3;

/// Updates of stochastic maximum likelihood (persistent CD) after the fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Polish {
    /// Always this many, kept whatever comes of it.
    Updates(usize),
    /// 200 if the model drifts off its data and its method looked at single flips only, kept if the
    /// held-out log-likelihood gets better.
    #[default]
    IfDrifting,
}

impl Polish {
    /// Chains that one update moves.
    pub const CHAINS: usize = 4000;
    /// The updates of [`Polish::IfDrifting`].
    pub const DEFAULT_UPDATES: usize = 200;

    pub(super) fn updates(self, drift: &Drift, is_local: bool) -> Option<usize> {
        match self {
            Self::Updates(0) => None,
            Self::Updates(updates) => Some(updates),
            Self::IfDrifting if is_local && drift.has_drifted() => Some(Self::DEFAULT_UPDATES),
            Self::IfDrifting => None,
        }
    }
}

/// What polishing did to the held-out log-likelihood.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It rose by more than its standard error.
    Better {
        /// By how many bits per sample.
        gain: BlockMean,
        /// The score after polishing.
        polished: HeldOut,
    },
    /// It did not.
    Worse {
        /// By how many bits per sample it rose.
        gain: BlockMean,
        /// The score after polishing.
        polished: HeldOut,
    },
    /// Too few samples, or a partition function that cannot be estimated.
    NotJudged,
}

impl Verdict {
    pub(super) fn is_better(&self) -> bool {
        matches!(self, Self::Better { .. })
    }
}

/// What came of polishing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Polishing {
    /// Updates that were made.
    pub updates: usize,
    /// Learning time of those that made the model; 0 if they were not kept.
    pub seconds: f64,
    /// Whether the model is the polished one.
    pub is_kept: bool,
    /// What it does to held-out samples.
    pub verdict: Verdict,
}

/// Moves the couplings until means and pairs of the model are those of `samples`, up to the penalty.
pub(super) fn polish(
    trained: &Trained,
    start: &Couplings,
    samples: &Samples,
    updates: usize,
    checkpoint: &Checkpoint,
    observer: &(dyn Fn(&FitProgress<'_>) + Sync),
) -> Result<Fit> {
    let options = &trained.options;
    let learner = ContrastiveDivergence::new(ContrastiveOptions {
        updates,
        persistent: true,
        batch_size: Some(Polish::CHAINS),
        learning_rate: RATE,
        l1: options.l1,
        l2: trained.l2,
        average: updates.div_ceil(AVERAGED),
        support: options.support.clone(),
        start: Some(start.clone()),
        seed: options.seed,
        cancel: options.minimizer.cancel.clone(),
        checkpoint: checkpoint.clone(),
        ..Default::default()
    })?;
    let polished = learner.fit_observed(samples, observer)?;
    options.minimizer.cancel.check()?;
    Ok(polished)
}
