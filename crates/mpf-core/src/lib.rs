//! Minimum Probability Flow learning for any energy-based model.
//!
//! ```text
//! p(x; θ) = exp(−E(x; θ)) / Z(θ)
//!
//! K(θ) = 1/W Σ_j w_j Σ_i √(g_ij g_ji) exp(½ [E(x_j; θ) − E(x_i; θ)])
//! ```
//!
//! Here j runs over the data, weighted by w_j (W their sum), and i over the neighbours of j: the
//! states that the connectivity g lets probability flow to. K needs no partition function. Its
//! minimiser estimates θ (Sohl-Dickstein, Battaglino & DeWeese, Eq. `K_finalform`; ε = 1).
//!
//! Three traits carry everything: an [`EnergyModel`] defines E, a [`Connectivity`] visits the
//! neighbours of a state, an [`Objective`] has a value and a gradient. [`Flow`] combines the first
//! two into the third, plainly; specialised crates compute the same numbers faster and are tested
//! against it. [`Minimizer`] is L-BFGS-B with ℓ1, observers, checkpoints and reasons for stopping.
//!
//! This crate knows no spins, no samplers and no files. For Ising models use `mpf-ising`, which is
//! orders of magnitude faster.
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
//! Data, options and starting points are checked where they enter, and a result that overflows is
//! an error: numbers in `Ok` are finite. Functions that return plain numbers say when those may be
//! ±∞ or NaN. Models and objectives may be ±∞ or NaN at any θ: the minimiser then takes a shorter
//! step, and only a start that is not finite is an error.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod cancel;
mod checkpoint;
mod connectivity;
mod dynamics;
mod energy;
mod error;
mod flow;
mod fnv;
mod gradcheck;
#[doc(hidden)]
pub mod linalg;
mod local;
mod minimize;
mod objective;
mod ranks;
pub mod rng;
mod score;
mod stopwatch;

// Models, neighbours and the flow between them.
pub use connectivity::{Connectivity, DenseConnectivity, Drawn, OutsideData, SampledConnectivity};
pub use energy::{EnergyModel, LinearEnergies, boltzmann};
pub use flow::{Flow, FlowForm};

// Minimisation.
pub use gradcheck::gradient_error;
pub use minimize::{
    Backend, Minimizer, MinimizerOptions, Minimum, Progress, StopReason, TracePoint,
};
pub use objective::{FromFn, Objective, Ridge, from_fn};

// Models of discrete sites.
pub use local::{
    At, ExactLikelihood, LocalErrors, LocalExact, LocalFitOptions, LocalFitter, LocalLoss,
    LocalModel, LocalObjective, LocalPathPoint, Scales, SiteChanges, SiteData,
};

// Score matching, and the dynamics that MPF linearises.
pub use dynamics::{Dynamics, kl_divergence};
pub use score::{
    Cube, ExponentialFamily, GaussianPrecision, ScoreMatching, StateDerivatives, score_closed_form,
};

// Long computations.
pub use cancel::Cancel;
pub use checkpoint::{Checkpoint, CheckpointStore, Settings, WeakCheckpoint};
pub use fnv::Fnv1a;
pub use stopwatch::Stopwatch;

// Sums over several processes.
pub use ranks::{Node, OneProcess, Ranks, TreeSum, hear, share, tell};

pub use error::{
    Error, check_count, check_entries, check_finite, check_not_negative, check_not_zero,
    check_option, check_positive,
};

/// The result of a fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
