//! Which algorithm computes a sum, how its work is cut, and how much memory it takes.

use super::{PANEL, TILE, Vectors, dense, patterns, sparse};
use crate::bits::Samples;
use std::ops::Range;

/// How the sums are computed. All algorithms give the same numbers up to rounding; the choice is
/// there for tests and benches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// The fastest for the data and the support, as calibrated.
    #[default]
    Auto,
    /// Tables of partial sums: for many set bits.
    Dense,
    /// Set bits one by one: for few.
    Sparse,
    /// Unit by unit: for thin supports and node-wise fits.
    Rows,
    /// Counts of neighbour patterns: for units with at most ten neighbours; others go by rows.
    Patterns,
}

/// The type of the numbers in the sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Precision {
    /// `f64` throughout.
    #[default]
    Double,
    /// `f32` within tiles of samples, `f64` beyond: seven digits or so.
    Single,
}

/// Which code computes an objective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The widest vector instructions to use, if the machine has them. They change the speed, and
    /// nothing of the result but its last digits.
    pub vectors: Vectors,
    /// The numbers of the algorithm `Dense`; the others are always in double precision.
    pub precision: Precision,
    /// Whether to stay on the calling thread, where the caller works in parallel already.
    pub serial: bool,
}

/// Most samples in a chunk.
const CHUNK: usize = 8192;
/// About as many tasks as keep a large machine busy; more would only take memory.
const TASKS: usize = 256;
/// About as many tasks as keep two threads evenly busy with a tile of a stream, after which they wait
/// for each other.
const TILE_TASKS: usize = 32;
/// The part of all couplings below which rows beat panels.
const THIN_BELOW: f64 = 1.0 / 8.0;
/// The fewest units of fits in single precision: others take moments, and a change of their path would
/// save less.
pub(super) const LEAST_SINGLE: usize = 256;

/// Returns an upper bound of how many numbers R takes, for `n_entries` that may differ from zero in
/// the rows of `n_units` of all `n_columns` units.
pub(crate) fn most_entries(n_units: usize, n_columns: usize, n_entries: usize) -> usize {
    if n_units == 1 || is_thin(n_units, n_columns, n_entries) {
        n_entries
    } else {
        let padded = n_units.div_ceil(PANEL).saturating_mul(PANEL);
        padded.saturating_mul(n_columns)
    }
}

/// Returns whether rows beat panels.
fn is_thin(n_units: usize, n_columns: usize, n_entries: usize) -> bool {
    (n_entries as f64) < THIN_BELOW * n_units.saturating_mul(n_columns) as f64
}

/// Returns the fastest algorithm, as calibrated by `cargo bench --bench paths`.
pub(super) fn choose(
    samples: &Samples,
    n_units: usize,
    n_entries: usize,
    largest_degree: usize,
) -> Algorithm {
    let few_patterns = largest_degree <= patterns::MOST_NEIGHBOURS
        && 2usize << largest_degree <= samples.n_distinct();
    if few_patterns {
        Algorithm::Patterns
    } else if n_units == 1 || is_thin(n_units, samples.n_units(), n_entries) {
        Algorithm::Rows
    } else if sparse::is_worth_it(samples) {
        Algorithm::Sparse
    } else {
        Algorithm::Dense
    }
}

/// Returns the algorithm for samples that come in tiles like `tile`: patterns are those of all samples.
pub(crate) fn choose_for_tiles(tile: &Samples, n_entries: usize) -> Algorithm {
    choose(tile, tile.n_units(), n_entries, usize::MAX)
}

/// Returns how many chunks `n` samples are cut into for each of `n_parts` parts.
fn n_chunks(n: usize, n_parts: usize) -> usize {
    let most = TASKS.div_ceil(n_parts);
    n.div_ceil(CHUNK).min(most).max(1)
}

/// The grid of tasks: `n_parts` parts of the units by chunks of `n` samples.
#[derive(Clone, Copy)]
pub(super) struct Grid {
    n: usize,
    n_parts: usize,
    chunks: usize,
}

impl Grid {
    pub(super) fn new(n: usize, n_parts: usize) -> Self {
        let chunks = n_chunks(n, n_parts);
        Self { n, n_parts, chunks }
    }

    /// The grid of a tile of a stream: cut finer where there are few parts.
    pub(super) fn of_tile(n: usize, n_parts: usize) -> Self {
        let fine = TILE_TASKS.div_ceil(n_parts).min(n / dense::TILE);
        let chunks = n_chunks(n, n_parts).max(fine);
        Self { n, n_parts, chunks }
    }

    /// Returns the numbers of the tasks: by part, then by chunk.
    pub(super) fn tasks(self) -> Range<usize> {
        0..self.n_parts * self.chunks
    }

    /// Returns the part and the samples of a task.
    pub(super) fn task(self, number: usize) -> (usize, Range<usize>) {
        let size = self.n.div_ceil(self.chunks);
        // Whole tiles of dense sums: sums in `f32` then end at the same samples for any grid.
        let size = size.next_multiple_of(if size < dense::TILE {
            TILE
        } else {
            dense::TILE
        });
        let (part, chunk) = (number / self.chunks, number % self.chunks);
        (
            part,
            (chunk * size).min(self.n)..((chunk + 1) * size).min(self.n),
        )
    }
}

/// Returns the bytes that the sums hold over all units and couplings of `samples`: R and G, a part
/// of G for every chunk of samples, and the lists of set bits or the bits and scratch of the passes.
pub(crate) fn working_bytes(samples: &Samples) -> usize {
    let (n, d) = (samples.n_distinct(), samples.n_units());
    let (width, lists) = match choose(samples, d, d.saturating_mul(d - 1), d - 1) {
        Algorithm::Sparse => (PANEL, sparse::list_bytes(samples)),
        Algorithm::Dense => {
            // Every thread keeps the scratch of its tasks, in each precision.
            let precisions = if d < LEAST_SINGLE { 1 } else { 2 };
            let scratch = precisions * dense::scratch_bytes(n.min(CHUNK), d);
            let scratch = scratch.saturating_mul(rayon::current_num_threads());
            (16, dense::pass_bytes(samples).saturating_add(scratch))
        }
        // Few units: next to nothing.
        _ => (1, 0),
    };
    let chunks = n_chunks(n, d.div_ceil(width));
    let panels = d.next_multiple_of(PANEL).saturating_mul(d);
    panels
        .saturating_mul(8 * (2 + chunks))
        .saturating_add(lists)
}
