//! Minimum Probability Flow learning for any energy-based model.
//!
//! ```text
//! p(x; θ) = exp(−E(x; θ)) / Z(θ)
//!
//! K(θ) = 1/W Σ_j w_j Σ_i √(g_ij g_ji) exp(½ [E(x_j; θ) − E(x_i; θ)])
//! ```
//!
//! with j over the data, weighted by w_j (W their sum), and i over the neighbours of j: the
//! states that the connectivity g lets probability flow to. K needs no partition function. Its
//! minimiser estimates θ (Sohl-Dickstein, Battaglino & DeWeese, Eq. `K_finalform`; ε = 1).
//!
//! Three traits carry everything: an [`EnergyModel`] says what E is, a [`Connectivity`] says who
//! the neighbours are, an [`Objective`] is something to minimise. [`Flow`] makes an objective of
//! the first two, plainly; specialised crates compute the same numbers faster and are tested
//! against it. [`Minimizer`] is L-BFGS-B with ℓ1, observers and reasons for stopping.
//!
//! This crate knows no spins, no samplers and no files.
//!
//! ```
//! use mpf_core::{DenseConnectivity, Flow, LinearEnergies, Minimizer};
//! use ndarray::array;
//!
//! // Three states in a ring, E = θ·state, observed 4 : 2 : 1 times.
//! let model = LinearEnergies::new(array![[0.0], [1.0], [2.0]])?;
//! let ring = DenseConnectivity::all_to_all(3);
//! let (states, counts) = ([0usize, 1, 2], [4.0, 2.0, 1.0]);
//! let mut flow = Flow::new(&model, &ring, &states)?.weighted(&counts)?;
//!
//! let fit = Minimizer::default().minimize(&mut flow, &[0.0])?;
//! // p ∝ 2^−state fits these counts exactly, and MPF is consistent: θ = ln 2.
//! assert!((fit.theta[0] - 2f64.ln()).abs() < 1e-6);
//! # Ok::<(), mpf_core::Error>(())
//! ```
//!
//! # Numbers
//!
//! What comes back in `Ok` is finite: data, options and starting points are checked where they
//! enter, and results that overflowed are errors. Functions that return plain numbers say when
//! those may be ±∞ or NaN. Models and objectives may be so at any θ: to the minimiser that is "step
//! too long", and only at its start an error.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

pub mod checkpoint;
pub mod connectivity;
pub mod dynamics;
pub mod energy;
pub mod error;
pub mod flow;
pub mod gradcheck;
pub mod linalg;
pub mod minimize;
pub mod objective;
pub mod rng;
pub mod score;

pub use connectivity::{Connectivity, DenseConnectivity, Drawn, OutsideData, SampledConnectivity};
pub use dynamics::Dynamics;
pub use energy::{EnergyModel, LinearEnergies};
pub use error::Error;
pub use flow::{Flow, Form};
pub use minimize::{
    Cancel, Minimizer, MinimizerOptions, Minimum, Progress, Snapshot, StopReason, TracePoint,
};
pub use objective::{Objective, Ridge};
pub use score::ScoreMatching;

/// What a fallible function of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;
