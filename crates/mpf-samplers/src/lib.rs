//! Samplers for Ising models and smooth densities.

pub mod error;
pub mod lattice;

pub use error::Error;
pub use lattice::ExactLattice;

/// What a fallible function of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;
