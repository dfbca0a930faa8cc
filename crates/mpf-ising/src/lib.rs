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
mod bits;
mod blocks;
mod bootstrap;
mod couplings;
mod error;
mod exact;
mod fit;
mod flow;
mod folds;
mod kernel;
mod lattice;
mod missing;
mod model;
mod mosaic;
mod path;
mod preflight;
mod sandwich;
mod support;
mod warning;

// Data and models.
pub use bits::{Entry, Samples, States, flip_bit, for_each_set_bit, get_bit};
pub use couplings::{Couplings, SpinCouplings};
pub use exact::Exact;
pub use lattice::{Boundary, Lattice};
pub use model::{BitFlips, IsingModel};
pub use mosaic::mosaic_couplings;

// Fits.
pub use fit::{Estimator, Fit, FitOptions, FitProgress, Fitter, Mode, Mpf};
pub use flow::{IsingFlow, MarginSum, Neighbourhood, Terms};
pub use kernel::{FlowRate, Lanes, MarginLoss};
pub use missing::{Incomplete, IncompleteFit, MissingRule};
pub use support::{Biases, Support};

// Before and after a fit.
pub use blocks::{BlockMean, block_mean};
pub use bootstrap::{BootstrapOptions, bootstrap};
pub use folds::{FoldAssignment, Folds};
pub use path::{
    CrossValidation, HeldOutScore, PathOptions, PathPoint, PathProgress, Penalty, PenaltyPath, Rule,
};
pub use preflight::{Finding, Preflight, Relation, Unit};
pub use sandwich::{ErrorBars, MarginEstimator};

pub use error::Error;
pub use warning::Warning;

/// What the other crates, the benches and the tests of this workspace share: not part of the
/// interface, and free to change.
#[doc(hidden)]
pub mod internal {
    pub use crate::bits::last_word_mask;
    pub use crate::blocks::{n_blocks, part};
    pub use crate::couplings::{n_packed, packed_index};
    pub use crate::exact::spin_correlations;
    pub use crate::kernel::{Algorithm, Kernel, Portable, flops_per_second, vectors_available};
    pub use crate::preflight::bytes_of_fit;
}

/// What a fallible function of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The README's code runs as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
