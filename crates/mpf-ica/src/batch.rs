//! Cuts rows into fixed groups: threads share the work and cannot change a digit.
//!
//! Each matrix product runs on one thread. The groups depend on the number of rows alone; each
//! group sums over its own rows in blocks, and the groups' sums are added in order.

use ndarray::{Array2, ArrayView2, ArrayViewMut2};
use std::ops::Range;

/// Rows of one matrix product: few enough that a block and its responses stay in the cache.
pub(crate) const BLOCK: usize = 256;

/// Most groups, and so most threads, that share a sum.
const MOST_GROUPS: usize = 32;

/// Cuts `n_rows` rows into at most 32 groups of whole blocks of `block` rows.
pub(crate) fn groups(n_rows: usize, block: usize) -> Vec<Range<usize>> {
    let n_blocks = n_rows.div_ceil(block);
    let size = n_blocks.div_ceil(MOST_GROUPS).max(1) * block;
    let starts = (0..n_rows).step_by(size);
    starts.map(|s| s..(s + size).min(n_rows)).collect()
}

/// Cuts `rows` into blocks of `block` rows.
pub(crate) fn blocks(rows: Range<usize>, block: usize) -> impl Iterator<Item = Range<usize>> {
    let end = rows.end;
    rows.step_by(block).map(move |s| s..(s + block).min(end))
}

/// Views the first `n` rows of length `d` in `buffer`.
pub(crate) fn view(buffer: &[f64], n: usize, d: usize) -> ArrayView2<'_, f64> {
    ArrayView2::from_shape((n, d), &buffer[..n * d]).expect("n·d entries")
}

/// Views the first `n` rows of length `d` in `buffer`, to write them.
pub(crate) fn view_mut(buffer: &mut [f64], n: usize, d: usize) -> ArrayViewMut2<'_, f64> {
    ArrayViewMut2::from_shape((n, d), &mut buffer[..n * d]).expect("n·d entries")
}

/// Returns the entries of a matrix in standard layout.
pub(crate) fn entries(matrix: ArrayView2<'_, f64>) -> &[f64] {
    matrix.to_slice().expect("standard layout")
}

/// Returns the entries of a matrix in standard layout, to write them.
pub(crate) fn entries_mut(matrix: &mut Array2<f64>) -> &mut [f64] {
    matrix.as_slice_mut().expect("standard layout")
}

/// Adds the `terms` in their order.
pub(crate) fn sum_in_order<'a>(
    d: usize,
    terms: impl Iterator<Item = &'a Array2<f64>>,
) -> Array2<f64> {
    terms.fold(Array2::zeros((d, d)), |sum, term| sum + term)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_blocks_cover_every_row_once() {
        for n in [1, 255, 256, 257, 2500, 100_000] {
            let groups = groups(n, BLOCK);
            assert!(groups.len() <= MOST_GROUPS);
            let rows: Vec<usize> = groups
                .into_iter()
                .flat_map(|g| blocks(g, BLOCK))
                .inspect(|b| assert!(b.len() <= BLOCK))
                .flatten()
                .collect();
            assert_eq!(rows, (0..n).collect::<Vec<_>>());
        }
    }
}
