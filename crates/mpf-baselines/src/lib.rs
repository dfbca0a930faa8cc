//! The rivals of Minimum Probability Flow, at their best.
//!
//! ```text
//! p(x; J) = exp(−xᵀJx) / Z(J),   x ∈ {0,1}^d,   J symmetric, biases on the diagonal
//! ```
//!
//! The same data type ([`Samples`](mpf_ising::Samples)), the same minimiser, the same kind of
//! result ([`Fit`](mpf_ising::Fit)) as MPF, so that a comparison compares the methods (paper,
//! Table E-1).
//!
//! | method | for | not for |
//! | --- | --- | --- |
//! | [`Pseudolikelihood`] | the default choice at convergence: on most data better than MPF | the first iterations, where MPF leads |
//! | [`rise()`], [`log_rise()`] | sparse graphs, row by row with ℓ1 | dense weak couplings |
//! | [`ContrastiveDivergence`] | models where only sampling is cheap | Ising models: slow, noisy, no objective |
//! | [`MeanField`] | weak couplings, an answer in milliseconds | strong couplings (σ² = 10: useless) |
//! | [`MaximumLikelihood`] | up to 20 units: the yardstick | more units |
//! | [`independent`] | the null model that all must beat | |
//!
//! [`Tournament`] says which of them suits given data, on samples that they have not seen.
//! [`Objectives`] puts the objectives of one model on one data set side by side.
//!
//! This crate knows no files and no experiments; those are in `xtask`.
//!
//! # Numbers
//!
//! What comes back in `Ok` is finite, but for K of MPF and RISE as a score: they are +∞ for a model
//! that finds a sample all but impossible, and then their standard errors are not finite either.
//! Options, starts, biases, moments and snapshots that would lead to anything else are typed
//! errors, and so is learning that runs away.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod block_length;
mod contrastive;
mod drift;
mod error;
mod goodness;
mod independent;
mod local_contrastive;
mod log_z;
mod machine;
mod max_likelihood;
mod mean_field;
mod method;
mod mpf;
mod objectives;
mod pseudolikelihood;
mod rbm;
mod recipe;
mod rise;
mod sample_scores;
mod tournament;

// Estimators and learners.
pub use contrastive::{ContrastiveDivergence, ContrastiveOptions, LearningRate};
pub use independent::independent;
pub use max_likelihood::{MaximumLikelihood, NegativeLogLikelihood};
pub use mean_field::{Expansion, MeanField, MeanFieldFit};
pub use pseudolikelihood::Pseudolikelihood;
pub use rise::{log_rise, rise};

// Machines with hidden units.
pub use local_contrastive::{
    Direction, LocalContrasted, LocalContrastiveOptions, local_contrastive,
};
pub use machine::{
    Machine, MachineFit, MachineOptions, MachineProgress, MachineTrainer, MachineWarning,
};
pub use rbm::Rbm;

// Every method behind one trait.
pub use method::{Description, Method, MethodOptions, Methods, Observer, OwnObjective, Takes};
pub use recipe::{
    ErrorBarsBy, HeldOut, Measure, Polish, Polishing, Recipe, RecipeProgress, Refine, Stage,
    StepFailure, Trained, TrainingData, Verdict, log_scores,
};

// Which model is good?
pub use block_length::block_length;
pub use drift::Drift;
pub use goodness::{
    Agreement, Entropies, GoodnessOfFit, Moments, multi_information_share, pairs, triplets,
};
pub use log_z::{LogZ, LogZSource};
pub use objectives::Objectives;
pub use tournament::{Comparison, Contender, Criterion, Dropout, Entrant, Plan, Tournament};

pub use error::Error;

/// What a fallible function of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The README's code runs as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
