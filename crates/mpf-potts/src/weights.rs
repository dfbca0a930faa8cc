//! Weights of related sequences: 1 / the number of sequences that differ in at most θ of the sites.
//!
//! Two sequences are neighbours if they have the same code, gaps included, at (1 − θ) L sites or
//! more; every sequence is its own neighbour.

use rayon::prelude::*;

/// Sequences that are compared with one another at a time.
const BLOCK: usize = 64;

/// Returns the weight of every one of the rows of `codes`, `n_sites` each. θ = 0 merges only equal
/// sequences; a negative θ gives all of them weight one.
pub fn sequence_weights(codes: &[u8], n_sites: usize, theta: f64) -> Vec<f64> {
    let n = codes.len() / n_sites.max(1);
    if theta < 0.0 {
        return vec![1.0; n];
    }
    let least = (1.0 - theta) * n_sites as f64;
    let most_different = (0..=n_sites)
        .rev()
        .find(|d| (n_sites - d) as f64 >= least)
        .unwrap_or(0);
    let block = BLOCK * n_sites;
    let counts: Vec<Vec<u32>> = codes
        .par_chunks(block)
        .map(|rows| {
            let mut counts = vec![0; rows.len() / n_sites];
            // A block of others stays in the cache while all rows pass.
            for others in codes.chunks(block) {
                for (row, count) in rows.chunks_exact(n_sites).zip(&mut counts) {
                    let near = others
                        .chunks_exact(n_sites)
                        .filter(|other| differ_in_at_most(row, other, most_different));
                    *count += near.count() as u32;
                }
            }
            counts
        })
        .collect();
    counts
        .iter()
        .flatten()
        .map(|c| 1.0 / f64::from(*c))
        .collect()
}

/// Returns whether two rows differ in at most `most` places.
fn differ_in_at_most(a: &[u8], b: &[u8], most: usize) -> bool {
    /// Places that are counted between two looks at the limit; the count fits a byte.
    const PART: usize = 64;
    let mut different = 0;
    for (a, b) in a.chunks(PART).zip(b.chunks(PART)) {
        let part: u8 = a.iter().zip(b).map(|(a, b)| u8::from(a != b)).sum();
        different += usize::from(part);
        if different > most {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_count_neighbours_with_the_border_included() {
        // Ten sites; the second row differs from the first in two (80 % identical), the third in
        // three from the first and one from the second.
        let codes = [
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            [1, 1, 0, 0, 0, 0, 0, 0, 0, 0],
            [1, 1, 1, 0, 0, 0, 0, 0, 0, 0],
        ]
        .concat();
        assert_eq!(sequence_weights(&codes, 10, 0.2), [0.5, 1.0 / 3.0, 0.5]);
        assert_eq!(sequence_weights(&codes, 10, 0.1), [1.0, 0.5, 0.5]);
        assert_eq!(sequence_weights(&codes, 10, -1.0), [1.0; 3]);
    }

    #[test]
    fn many_sites_and_blocks_count_as_few() {
        let (n, sites) = (150, 200);
        let mut codes = vec![0u8; n * sites];
        for (m, row) in codes.chunks_exact_mut(sites).enumerate() {
            // Row m has m ones from the end on: rows m and k differ in |m − k| sites.
            row[sites - m..].fill(1);
        }
        let weights = sequence_weights(&codes, sites, 0.05);
        for (m, weight) in weights.iter().enumerate() {
            let near = (0..n).filter(|k| m.abs_diff(*k) <= 10).count();
            assert_eq!(*weight, 1.0 / near as f64);
        }
    }
}
