//! Samplers for Ising models and smooth densities, with diagnostics of their draws.
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
//! | [`LocalGibbs`] | any [`LocalModel`](mpf_core::LocalModel), with [`Tempering`] over it | Ising models: slower |
//! | [`Hmc`] | smooth densities | discrete states |
//!
//! [`annealed_log_z`] estimates ln Z where it cannot be summed.
//!
//! [`draw`] draws from any of them in one call. A [`ChainRunner`] does the same with burn-in,
//! thinning, progress, a stop button and a checkpoint; [`Run::diagnose`] and [`diagnostics`] tell
//! how far to trust its draws. A seed gives the same draws for any number of threads. A sampler of
//! your own implements [`Sampler`], one step of a Markov chain, and [`ChainSampler`].
//!
//! This crate knows no data, no fitting and no files.
//!
//! # Numbers
//!
//! Results are finite, except where a function names its NaN or ∞: diagnostics of a constant, rates
//! of swaps never tried, a trajectory that ran off. Couplings, ladders, starts and options that
//! would lead to others are typed errors. Chains resumed from a checkpoint are checked for their
//! shape, so that a forged one cannot cause a panic; their numbers are trusted.
//!
//! ```
//! use mpf_ising::{Boundary, Lattice};
//! use mpf_samplers::{ChainRunner, ExactLattice, Gibbs};
//!
//! let lattice = Lattice::new(6, 6, Boundary::Open)?;
//! let j = lattice.spin_glass(1.0, &mut mpf_core::rng::stream(1, 0))?;
//!
//! let run = ChainRunner::default().run(&Gibbs::new(&j)?)?;
//! let energy = run.diagnose(&j)?.energy;
//! assert!(energy.rhat < 1.02 && energy.bulk_ess > 400.0);
//!
//! // ⟨E⟩ = Σ_ij J_ij ⟨x_i x_j⟩, exactly.
//! let exact = (j.as_array() * &ExactLattice::new(&j, &lattice)?.pair_means()).sum();
//! assert!((energy.mean - exact).abs() < 5.0 * energy.mcse);
//! # Ok::<(), mpf_samplers::Error>(())
//! ```

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod annealed;
mod chain;
pub mod diagnostics;
mod enumeration;
mod error;
mod gibbs;
mod hmc;
mod lattice;
mod local;
mod row;
mod run;
mod sampler;
mod swendsen_wang;
mod tempering;

// Exact draws from Ising models.
pub use enumeration::ExactEnumeration;
pub use lattice::ExactLattice;

// Markov chains on Ising models.
pub use gibbs::{FlipCount, Gibbs, GibbsState, Scan};
pub use swendsen_wang::{ClusterCount, SwendsenWang};
pub use tempering::{SwapCount, Tempering, TemperingOptions, TemperingState};

// Markov chains on any model of discrete sites.
pub use local::{BinaryGibbs, LocalGibbs, LocalState};

// Markov chains on smooth densities.
pub use hmc::{Hmc, HmcCount, HmcOptions, HmcState, PhasePoint, SmoothEnergy, leapfrog};

// Runs of any of them.
pub use chain::{ChainOptions, ChainProgress, ChainRunner, draw};
pub use run::{Chain, Run};

// A sampler of one's own.
pub use sampler::{ChainSampler, Draws, Heated, Sampler, Tally};

// Partition functions.
pub use annealed::{AnnealedEstimate, AnnealedOptions, annealed_log_z, annealed_log_z_of};

pub use error::Error;

/// The result of a fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
