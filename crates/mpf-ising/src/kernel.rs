//! Sums over samples and units of a function of the margin, from the packed bits.
//!
//! For units i with rows R_i· (R_ii = 0) and offsets c_i, over samples m with weights w_m:
//!
//! ```text
//! z_mi = c_i + Σ_j R_ij x_mj          a_mi = −s_mi z_mi,  s = 2x − 1        the margin
//! F    = Σ_m w_m Σ_i φ(a_mi)
//! D_mi = ∂F/∂z_mi = −w_m s_mi φ′(a_mi)
//! r_i  = Σ_m D_mi                     G_ij = Σ_m D_mi x_mj
//! ```
//!
//! With φ = exp(−a), R = J and c = ½ diag J this is the flow over single bit flips:
//! ½[E(x) − E(x with i flipped)] = s_i z_i = −a_i. Pseudolikelihood differs in φ alone.
//!
//! Four algorithms compute the same sums: `dense` looks up tables, `sparse` lists set bits, `row`
//! takes one unit at a time, and `patterns` counts the patterns of few neighbours. The data and the
//! support decide which is used. Work is cut into a fixed grid, units × chunks of samples, and
//! partial sums are added in the grid's order, so the number of threads cannot change a digit. The
//! only arrays of size M × d are the bits, for `dense` once more in the order of its passes, and for
//! `sparse` lists of the set ones.

mod choice;
mod counts;
mod dense;
mod engine;
mod lanes;
mod loss;
mod mask;
mod panel;
mod patterns;
mod peak;
mod row;
mod simd;
mod sparse;

pub use choice::{Algorithm, Kernel, Precision};
pub(crate) use choice::{choose_for_tiles, most_entries, working_bytes};
pub(crate) use counts::Counts;
pub(crate) use dense::TILE as DENSE_TILE;
pub(crate) use engine::{MarginEngine, Tile};
pub use lanes::{Lanes, Number};
pub use loss::MarginLoss;
pub(crate) use mask::FlipMask;
pub use peak::flops_per_second;
pub use simd::{VectorWork, Vectors, limit_vectors, vectorised};

/// Units whose rows of R are kept side by side.
const PANEL: usize = 32;
/// Samples over which kernels keep their intermediate results.
const TILE: usize = 256;
