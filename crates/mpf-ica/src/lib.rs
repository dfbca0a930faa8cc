//! Independent component analysis by Minimum Probability Flow, over any continuous data.
//!
//! ```text
//! p(x; J) = exp(−Σ_k |J_k x|) |det J| / 2ᵈ,   x ∈ ℝᵈ,   J square, a filter per row
//! ```
//!
//! The paper's continuous example (main text, Appendices G and H): every sample is joined to the
//! state that Hamiltonian dynamics under the present filters lead it to. The likelihood of this
//! model is exact, so that every fit can be compared with maximum likelihood in nats.
//!
//! [`whiten`] and [`patches`] prepare data, [`dead_leaves`] makes images where there are none,
//! [`Fitter`] fits, [`compare`] says how alike two results are. `PNG` and `JPEG` files need the
//! feature `images`.
//!
//! When *not* to use it: where the likelihood is known, as it is here, maximum likelihood
//! ([`Trainer::maximum_likelihood`]) is a little better and no slower. MPF is for models that
//! have none; ICA is where that can be checked.
//!
//! ```
//! use mpf_ica::whiten::{Method, Whitening};
//! use mpf_ica::{Filters, FitOptions, Fitter, compare::amari_index};
//!
//! // Four independent sources, mixed.
//! let truth = Filters::random(4, 7);
//! let data = truth.draw(5000, &mut mpf_core::rng::stream(1, 0))?;
//! let whitening = Whitening::new(data.view(), Method::Zca)?;
//! let fit = Fitter::new(FitOptions::default())?.fit(whitening.apply(data.view())?.view())?;
//! assert!(!fit.lost_a_direction());
//!
//! // Every filter finds one source, whatever the order, sign and scale.
//! let (_, mixing) = truth.log_determinant_and_inverse()?;
//! let index = amari_index(&fit.filters, whitening.transform().dot(&mixing).view())?;
//! assert!(index < 0.05);
//! # Ok::<(), mpf_ica::Error>(())
//! ```
//!
//! # Numbers
//!
//! What comes back in `Ok` is finite: data, options and filters are checked where they enter, and
//! results that overflowed are errors. Functions that return plain numbers say when those may be
//! ±∞ or NaN; objectives are so where J is too large, which to a minimiser is "step too long".
//! Images and drawn neighbours may hold anything: whitening and the flow refuse what is not finite.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod batch;
pub mod compare;
pub mod connectivity;
pub mod dead_leaves;
pub mod error;
pub mod fit;
pub mod flow;
pub mod hamiltonian;
pub mod likelihood;
pub mod model;
pub mod patches;
pub mod whiten;

pub use connectivity::{HamiltonianNeighbours, Neighbours};
pub use error::Error;
pub use fit::{
    Alternating, Fit, FitOptions, FitProgress, Fitter, Metropolis, Snapshot, Stochastic, Trainer,
};
pub use hamiltonian::Trajectory;
pub use model::{Filters, LaplaceIca};
pub use whiten::Whitening;

/// What a fallible function of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;
