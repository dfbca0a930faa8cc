//! Independent component analysis by Minimum Probability Flow.
//!
//! ```text
//! p(x; J) = exp(−Σ_k |J_k x|) |det J| / 2ᵈ,   x ∈ ℝᵈ,   J square, a filter per row
//! ```
//!
//! The paper's continuous example (main text, Appendices G and H): every sample is joined to the
//! state that Hamiltonian dynamics under the present filters lead it to. The likelihood of this
//! model is exact, so every fit can be compared with maximum likelihood in nats.
//!
//! [`draw_patches`] and [`Whitening`] prepare data, [`DeadLeaves`] draws images where there are
//! none, [`Fitter`] fits, [`match_filters`] and [`amari_index`] compare results. Reading `PNG` and
//! `JPEG` files needs the feature `images`.
//!
//! When *not* to use it: where the likelihood is known, as it is here, maximum likelihood
//! ([`Trainer::maximum_likelihood`]) is a little better and no slower. MPF is for models without
//! one; ICA is where that can be checked.
//!
//! ```
//! use mpf_ica::{Filters, FitOptions, Fitter, Whitening, WhiteningMethod, amari_index};
//!
//! // Four independent sources, mixed.
//! let truth = Filters::random(4, 7);
//! let data = truth.draw(5000, &mut mpf_core::rng::stream(1, 0))?;
//! let whitening = Whitening::new(data.view(), WhiteningMethod::Zca)?;
//! let fit = Fitter::new(FitOptions::default())?.fit(whitening.apply(data.view())?.view())?;
//! assert!(!fit.lost_a_direction());
//!
//! // Every filter finds one source, up to order, sign and scale.
//! let (_, mixing) = truth.log_determinant_and_inverse()?;
//! let index = amari_index(&fit.filters, whitening.transform().dot(&mixing).view())?;
//! assert!(index < 0.05);
//! # Ok::<(), mpf_ica::Error>(())
//! ```
//!
//! # Numbers
//!
//! Data, options and filters are checked where they enter, and a result that overflows is an error:
//! numbers in `Ok` are finite. Two kinds of numbers are not checked. Objectives may be ±∞ or NaN
//! where J is too large, which a minimiser takes as "step too long". Images and drawn
//! [`Neighbours`] may hold any numbers; [`Whitening`] and [`NeighbourFlow`] refuse those that are
//! not finite.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod batch;
mod compare;
mod connectivity;
mod dead_leaves;
mod error;
mod fit;
mod flow;
mod hamiltonian;
mod likelihood;
mod model;
mod patches;
mod whiten;

// Data.
pub use dead_leaves::DeadLeaves;
pub use patches::{Image, draw_patches, prepare_patches, read_image, read_image_folder};
pub use whiten::{Whitening, WhiteningMethod};

// The model and its likelihood.
pub use likelihood::{NegativeLogLikelihood, log_likelihood};
pub use model::{Filters, LaplaceIca};

// Fits.
pub use fit::{
    Alternating, Fit, FitOptions, Fitter, LastPhase, Metropolis, NeighbourRule, Rescue, Stochastic,
    TracePoint, Trainer,
};

// The flow to fixed neighbours.
pub use connectivity::{HamiltonianNeighbours, Neighbours, NoiseNeighbours};
pub use flow::NeighbourFlow;
pub use hamiltonian::Trajectory;

// Comparisons of filters.
pub use compare::{FilterMatch, amari_index, match_filters};

pub use error::Error;

/// What the tests of this crate need: not part of the interface, and free to change.
#[doc(hidden)]
pub mod internal {
    pub use crate::patches::normalise_contrast;
    pub use crate::whiten::covariance;
}

/// The result of a fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
