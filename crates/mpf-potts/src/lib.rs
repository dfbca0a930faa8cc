//! Potts models of aligned sequences: contacts and mutation effects from protein and RNA families.
//!
//! ```text
//! p(x) ∝ exp[Σ_i h_i(x_i) + Σ_{i<j} J_ij(x_i, x_j)]
//! ```
//!
//! An [`Alignment`] is read from the bytes of a file, weighted by relatedness, and becomes
//! [`Sequences`] of states. [`fit`] minimises their pseudolikelihood or their probability flow over
//! single mutations, whose sums one kernel computes. [`Scores`] ranks the pairs of sites by their
//! couplings; [`Potts::mutations`] gives the energy of every single mutation.
//!
//! This crate opens no files and draws no samples.
//!
//! ```
//! use mpf_potts::{Alignment, FitOptions, Loss, ReadOptions, Scores, fit};
//!
//! // The first and the third column go together, the second is on its own.
//! let text = b">a\nACD\n>b\nAFD\n>c\nGCE\n>d\nGFE\n";
//! let alignment = Alignment::read(text, &ReadOptions::default())?;
//! let sequences = alignment.sequences(&alignment.weights(0.2), false)?;
//! let fit = fit(&sequences, &FitOptions::new(Loss::Pseudolikelihood, &sequences), |_| {})?;
//! let best = Scores::new(&fit.model, Some(0)).ranked()[0];
//! assert_eq!((best.i, best.j), (0, 2));
//! # Ok::<(), mpf_potts::Error>(())
//! ```

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod alignment;
mod alphabet;
mod basis;
mod centred;
mod contacts;
mod error;
mod fit;
mod kernel;
mod local;
mod model;
mod objective;
mod score;
mod sequences;
mod weights;

// Reading.
pub use alignment::{Alignment, Ambiguous, ReadOptions, Site};
pub use alphabet::Alphabet;
pub use sequences::Sequences;
pub use weights::sequence_weights;

// Fitting.
pub use fit::{
    Fit, FitOptions, FitProgress, bytes_of_fit, fit, relative_curvature, seconds_of_iteration,
};
pub use kernel::Loss;
pub use mpf_ising::Mode;
pub use objective::{JointObjective, Penalties};

// Results.
pub use centred::CentredSteps;
pub use contacts::{ContactRule, Distances, judged, precision};
pub use model::Potts;
pub use score::{Pair, Scores};

pub use error::Error;

/// The result of a fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
