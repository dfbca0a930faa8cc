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

pub mod contrastive;
pub mod drift;
pub mod error;
pub mod goodness;
pub mod heldout;
pub mod max_likelihood;
pub mod mean_field;
pub mod method;
pub mod objectives;
pub mod pseudolikelihood;

pub use contrastive::{
    ContrastiveDivergence, ContrastiveOptions, ContrastiveSnapshot, LearningRate,
};
pub use error::Error;
pub use goodness::{Entropies, GoodnessOfFit, Moments};
pub use heldout::{Comparison, Tournament, TournamentOptions};
pub use max_likelihood::{MaximumLikelihood, independent};
pub use mean_field::{Expansion, MeanField, MeanFieldFit};
pub use method::{Fitted, Method, MethodSnapshot};
pub use objectives::Objectives;
pub use pseudolikelihood::{Pseudolikelihood, PseudolikelihoodSum, log_rise, rise};

/// What a fallible function of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;
