//! Independent component analysis by Minimum Probability Flow over Hamiltonian neighbours.
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
pub use fit::{Alternating, Fit, FitOptions, FitProgress, Fitter, Metropolis, Stochastic, Trainer};
pub use hamiltonian::Trajectory;
pub use model::{Filters, LaplaceIca};
pub use whiten::Whitening;

/// What a fallible function of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;
