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
//! [`Samples`] packs data into bits, [`Fitter`] fits, [`Exact`] enumerates small models:
//!
//! ```
//! use mpf_ising::{Couplings, Exact, Fitter, Samples};
//! use ndarray::array;
//!
//! let truth = Couplings::new(array![[0.5, -1.0], [-1.0, 0.2]])?;
//! let states = Exact::new(&truth)?.draw(50_000, 1);
//! let fitter: Fitter = Fitter::default();
//! let fit = fitter.fit(&Samples::new(&states)?)?;
//! assert!((fit.couplings.get(0, 1) - truth.get(0, 1)).abs() < 0.05);
//! # Ok::<(), mpf_ising::Error>(())
//! ```
//!
//! The crate draws no samples from large models; `mpf-samplers` does.
//!
//! When *not* to use it: pseudolikelihood is the better estimator on sparse recordings where one
//! state holds most of the samples, and exact maximum likelihood is up to about 20 units. Both are
//! in `mpf-baselines`.
//!
//! # Numbers
//!
//! [`States`], [`Samples`], [`Couplings`] and options are checked when they are made: NaN, infinite
//! numbers, and numbers whose sums would overflow are an [`Error`]. Results are finite unless their
//! documentation says otherwise: objectives are +∞ on overflow ([`IsingFlow`],
//! [`Fitter::objective_value`], held-out scores, EBIC), and [`ErrorBars`] are NaN for parameters
//! that are not free.

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
mod local;
mod missing;
mod model;
mod mosaic;
mod path;
mod potential;
mod preflight;
mod sandwich;
mod stream;
mod support;
mod warning;

// Data.
pub use bits::{Entry, Samples, States, flip_bit, for_each_set_bit, get_bit, n_active};

// Data that are not held in memory.
pub use stream::{Data, RowSource, Stream, serve};

// Models.
pub use couplings::{Couplings, SpinCouplings};
pub use exact::Exact;
pub use lattice::{Boundary, Lattice};
pub use mosaic::mosaic_couplings;

// Fits.
pub use fit::{Fit, FitOptions, FitProgress, Fitter, Mode, Mpf};
pub use flow::Neighbourhood;
pub use missing::{Incomplete, IncompleteFit, MissingRule};
pub use potential::CountPotential;
pub use support::{Biases, Support};
pub use warning::Warning;

// Before a fit.
pub use preflight::{Finding, NamedUnit, PairRelation, Preflight};

// The choice of a penalty.
pub use folds::{FoldAssignment, Folds};
pub use path::{
    CrossValidation, Edge, HeldOutScore, PathOptions, PathPoint, PathProgress, Penalty,
    PenaltyPath, Rule,
};

// Error bars.
pub use blocks::{BlockMean, block_mean};
pub use bootstrap::{BootstrapOptions, bootstrap};
pub use sandwich::{ErrorBars, Unpenalised};

// Estimators of your own.
pub use fit::Estimator;
pub use flow::{MarginSum, Terms};
pub use kernel::MarginLoss;
pub use sandwich::MarginEstimator;

// The flow itself: plain, and fast.
pub use flow::IsingFlow;
pub use local::LocalIsing;
pub use model::IsingModel;

pub use error::Error;

/// Shared with the other crates, benches and tests of this workspace. Not part of the interface:
/// anything here may change.
#[doc(hidden)]
pub mod internal {
    pub use crate::bits::last_word_mask;
    pub use crate::blocks::{n_blocks, part};
    pub use crate::couplings::{n_packed, packed_index};
    pub use crate::error::check_units;
    pub use crate::exact::spin_correlations;
    pub use crate::kernel::{
        Algorithm, Kernel, Lanes, Number, Precision, VectorWork, Vectors, flops_per_second,
        limit_vectors, vectorised,
    };
    pub use crate::local::dot;
    pub use crate::potential::CountKnots;
    pub use crate::preflight::bytes_of_fit;
    pub use crate::sandwich::unpenalised;
    pub use crate::stream::bytes_of_stream;
    pub use crate::support::pairs;
}

/// The result of a fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
