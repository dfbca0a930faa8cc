//! The sums over sequences that every fit is made of.
//!
//! ```text
//! u_mi(a) = h_i(a) + Σ_{j≠i} J_ij(a, x_mj)
//!
//! pseudolikelihood  F = −Σ_m w_m Σ_i ln [exp u_mi(x_mi) / Σ_a exp u_mi(a)]
//! flow              F =  Σ_m w_m Σ_i Σ_{a≠x_mi} exp ½[u_mi(a) − u_mi(x_mi)]
//! ```
//!
//! The weights add up to one. Both losses are functions of the same u, so one kernel serves both: it
//! adds rows of q numbers of the patterns that the sequences share (`patterns`), takes the loss of
//! every sequence, and adds slopes backwards along the same patterns (`site`). Rows are
//! padded to a multiple of four numbers; the compiler makes vector code of every loop over a row.
//!
//! Sites are independent of one another. Threads take whole sites, so that their number cannot
//! change a digit.

mod engine;
mod patterns;
mod site;

pub(crate) use engine::{Engine, Trees, engine, joint_bytes, pair_index};

/// One number for every state of a site.
type Row<T, const Q: usize> = [T; Q];

/// Most codes of a site: 32 states and the one that is ignored.
pub(crate) const MOST_CODES: usize = 33;

/// The function of the energies that a fit minimises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// Minus the logarithm of the probability of each letter given all others.
    Pseudolikelihood,
    /// The probability flow into sequences that differ in one letter.
    Flow,
}
