//! Blocks of successive samples, and the error of a mean over autocorrelated samples.
//!
//! ```text
//! B = ⌊M/L⌋ blocks, lengths L_b differing by at most one
//! var(mean) ≈ B/(B − 1) Σ_b (Σ_{m∈b} (v_m − mean))² / M²
//! ```
//!
//! For L = 1 that is the usual s²/M. Blocks should be several autocorrelation times long and number
//! thirty or more.

use crate::Result;
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A mean with its standard error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BlockMean {
    /// The mean.
    pub value: f64,
    /// Its standard error.
    pub standard_error: f64,
}

/// Returns the number of blocks that `n_samples` samples are cut into.
///
/// # Errors
/// [`Error::BlockLength`] for a length of 0, or fewer than two blocks.
pub fn n_blocks(n_samples: usize, block_length: usize) -> Result<usize> {
    // (Twice the length could overflow.)
    if block_length == 0 || block_length > n_samples / 2 {
        return Err(Error::BlockLength {
            block_length,
            n_samples,
        });
    }
    Ok(n_samples / block_length)
}

/// Returns part `at` of `0..n` cut into `parts` ranges whose sizes differ by at most one.
///
/// # Panics
/// For 0 parts.
pub fn part(n: usize, parts: usize, at: usize) -> Range<usize> {
    // 10¹⁰ samples in as many blocks: the product is beyond 64 bits.
    let border = |at: usize| (at as u128 * n as u128 / parts as u128) as usize;
    border(at)..border(at + 1)
}

/// Returns the mean of `values`, which follow each other in time. NaN or ±∞ only if a value is.
///
/// ```
/// use mpf_ising::block_mean;
///
/// let found = block_mean(&[1.0, 2.0, 3.0, 6.0], 1)?;
/// assert_eq!(found.value, 3.0);
/// // s² = (4 + 1 + 0 + 9)/3, over four samples.
/// assert!((found.standard_error - (14.0f64 / 12.0).sqrt()).abs() < 1e-15);
/// # Ok::<(), mpf_ising::Error>(())
/// ```
///
/// # Errors
/// [`Error::BlockLength`].
pub fn block_mean(values: &[f64], block_length: usize) -> Result<BlockMean> {
    let blocks = n_blocks(values.len(), block_length)?;
    let found = mean_of_blocks(values, blocks);
    let overflowed = !(found.value.is_finite() && found.standard_error.is_finite());
    if !overflowed || values.iter().any(|v| !v.is_finite()) {
        return Ok(found);
    }
    // A sum or a square overflowed: in units of the largest value none does.
    let largest = values.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    let scaled: Vec<f64> = values.iter().map(|v| v / largest).collect();
    let found = mean_of_blocks(&scaled, blocks);
    Ok(BlockMean {
        value: largest * found.value,
        standard_error: largest * found.standard_error,
    })
}

fn mean_of_blocks(values: &[f64], blocks: usize) -> BlockMean {
    let n = values.len();
    let value = values.iter().sum::<f64>() / n as f64;
    let squares: f64 = (0..blocks)
        .map(|b| {
            values[part(n, blocks, b)]
                .iter()
                .map(|v| v - value)
                .sum::<f64>()
        })
        .map(|sum| sum * sum)
        .sum();
    let freedom = blocks as f64 / (blocks - 1) as f64;
    BlockMean {
        value,
        standard_error: (freedom * squares).sqrt() / n as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_lengths_and_parts_of_any_size() {
        for length in [0, 3, 1 << 63, usize::MAX] {
            assert!(matches!(
                n_blocks(5, length),
                Err(Error::BlockLength { .. })
            ));
        }
        let n = 10_000_000_007;
        assert_eq!(part(n, n, n - 1), n - 1..n);
        assert_eq!(part(10, 3, 1), 3..6);
    }

    #[test]
    fn values_near_the_largest_number_have_a_mean() {
        let small = block_mean(&[1.0, 0.25, -0.5, 1.0], 1).unwrap();
        let large = block_mean(&[1.0, 0.25, -0.5, 1.0].map(|v| v * 1e308), 1).unwrap();
        assert!((large.value / 1e308 - small.value).abs() < 1e-15);
        assert!((large.standard_error / 1e308 - small.standard_error).abs() < 1e-15);
        assert!(block_mean(&[1.0, f64::NAN], 1).unwrap().value.is_nan());
    }
}
