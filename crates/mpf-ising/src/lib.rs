//! Ising models fitted by Minimum Probability Flow over bit-packed samples.
//!
//! ```text
//! p(x; J) = exp(−xᵀJx) / Z(J),   x ∈ {0,1}^d,   J symmetric, biases on the diagonal
//! ```
//!
//! The paper's convention throughout: lower energy is likelier, so an attractive coupling is
//! negative. ±1 spins appear only behind named conversions ([`States::from_spins`],
//! [`Couplings::to_spins`]).
//!
//! [`Samples`] packs data into bits, [`Fitter`] fits, [`Exact`] enumerates small models. Nothing
//! here draws samples from large models; that is `mpf-samplers`.
//!
//! When *not* to use it: on sparse recordings where one state holds most of the samples,
//! pseudolikelihood is the better estimator, and up to about 20 units exact maximum likelihood is.
//!
//! # Numbers
//!
//! [`States`], [`Samples`], [`Couplings`] and options are checked when they are made: what is NaN,
//! infinite, or so large that sums of it would overflow is an [`Error`]. What comes of them is finite
//! unless its documentation says otherwise: objectives are +∞ where a flow is too large for a number
//! ([`IsingFlow`], [`Fitter::objective_value`], held-out scores, EBIC), and [`ErrorBars`] are NaN for
//! what was not free.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod basis;
pub mod bits;
pub mod blocks;
pub mod bootstrap;
pub mod couplings;
pub mod error;
pub mod errors;
pub mod exact;
pub mod fit;
pub mod flow;
pub mod folds;
pub mod kernel;
pub mod lattice;
pub mod missing;
pub mod model;
pub mod mosaic;
pub mod path;
pub mod preflight;
pub mod support;
pub mod warning;

pub use bits::{Samples, States};
pub use bootstrap::{BootstrapOptions, bootstrap, numbered_bootstrap};
pub use couplings::{Couplings, SpinCouplings};
pub use error::Error;
pub use errors::{ErrorBars, MarginEstimator};
pub use exact::Exact;
pub use fit::{
    Estimator, Fit, FitOptions, FitProgress, FitSnapshot, Fitter, Mode, Mpf, NodeSnapshot,
};
pub use flow::{IsingFlow, Neighbourhood};
pub use folds::{Dealing, Folds};
pub use lattice::{Boundary, Lattice};
pub use missing::{Incomplete, IncompleteFit, MissingRule};
pub use model::IsingModel;
pub use path::{CrossValidation, PathOptions, PathPoint, PathSnapshot, Penalty, PenaltyPath, Rule};
pub use preflight::Preflight;
pub use support::{Biases, Support};
pub use warning::Warning;

/// What a fallible function of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The README's code runs as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
