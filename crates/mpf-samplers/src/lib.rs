//! Samplers for Ising models and smooth densities, and how good their samples are.
//!
//! ```text
//! p(x) ∝ exp(−xᵀJx),  x ∈ {0,1}^d          p(q) ∝ exp(−E(q)),  q ∈ ℝ^d
//! ```
//!
//! | sampler | for | not for |
//! | --- | --- | --- |
//! | [`ExactLattice`] | open lattices up to 14 wide: independent draws, ln Z | anything else |
//! | [`ExactEnumeration`] | up to 24 units: the same by enumeration | more units |
//! | [`Gibbs`] | warm models of any shape | cold spin glasses |
//! | [`SwendsenWang`] | unfrustrated models near their critical point | cold spin glasses |
//! | [`Tempering`] | cold, frustrated models of any shape | warm models: wasteful |
//! | [`Hmc`] | smooth densities | discrete states |
//!
//! [`annealed_log_z`] estimates ln Z where it cannot be summed.
//!
//! A [`Sampler`] is one step of a Markov chain; a [`ChainRunner`] runs any of them, many chains
//! at a time, and [`diagnostics`] says what the draws are worth. A seed gives the same draws for
//! any number of threads.
//!
//! This crate knows no data, no fitting and no files.
//!
//! # Numbers
//!
//! What comes back in `Ok` is finite, except where a function names its NaN or ∞: diagnostics of a
//! constant, rates of what was never tried, a trajectory that ran off. Couplings, ladders, starts
//! and options that would lead to anything else are typed errors. Every draw is finite. Chains that
//! were read from a file are checked before their next step.
//!
//! ```
//! use mpf_ising::{Boundary, IsingModel, Lattice};
//! use mpf_core::EnergyModel;
//! use mpf_samplers::{ChainOptions, ChainRunner, ExactLattice, Gibbs, diagnostics};
//!
//! let lattice = Lattice::new(6, 6, Boundary::Open)?;
//! let j = lattice.spin_glass(1.0, &mut mpf_core::rng::stream(1, 0))?;
//!
//! let run = ChainRunner::new(ChainOptions::default())?.run(&Gibbs::new(&j)?)?;
//! let (model, theta) = (IsingModel::new(36), j.pack());
//! let energy = diagnostics::summary(&run.series(|row| model.energy(&theta, row)))?;
//! assert!(energy.rhat < 1.02 && energy.bulk_ess > 400.0);
//!
//! // ⟨E⟩ = Σ_ij J_ij ⟨x_i x_j⟩, exactly.
//! let exact = (j.as_array() * &ExactLattice::new(&j, &lattice)?.pair_means()).sum();
//! assert!((energy.mean - exact).abs() < 5.0 * energy.mcse);
//! # Ok::<(), mpf_samplers::Error>(())
//! ```

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

pub mod annealed;
pub mod chain;
pub mod diagnostics;
pub mod enumeration;
pub mod error;
pub mod gibbs;
pub mod hmc;
pub mod lattice;
mod run;
pub mod sampler;
pub mod swendsen_wang;
pub mod tempering;

pub use annealed::{AnnealedEstimate, AnnealedOptions, annealed_log_z};
pub use chain::{ChainOptions, ChainProgress, ChainRunner, draw};
pub use enumeration::ExactEnumeration;
pub use error::Error;
pub use gibbs::{Gibbs, Scan};
pub use hmc::{Hmc, HmcOptions, SmoothEnergy};
pub use lattice::ExactLattice;
pub use run::{Chain, Run};
pub use sampler::{ChainSampler, Draws, Sampler, Tally};
pub use swendsen_wang::SwendsenWang;
pub use tempering::{Tempering, TemperingOptions};

/// What a fallible function of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;
