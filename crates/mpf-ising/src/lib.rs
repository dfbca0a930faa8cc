//! Ising models fitted by Minimum Probability Flow over bit-packed samples.

pub mod bits;
pub mod couplings;
pub mod error;
pub mod exact;
pub mod lattice;
pub mod model;

pub use bits::{Samples, States};
pub use couplings::{Couplings, SpinCouplings};
pub use error::Error;
pub use exact::Exact;
pub use lattice::{Boundary, Lattice};
pub use model::IsingModel;

/// What a fallible function of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;
