//! Blocks of successive samples, and the error of a mean over samples that remember each other.
//!
//! ```text
//! B = ⌊M/L⌋ blocks, lengths L_b differing by at most one
//! var(mean) ≈ B/(B − 1) Σ_b (Σ_{m∈b} (v_m − mean))² / M²
//! ```
//!
//! For L = 1 that is the usual s²/M. Blocks should be several autocorrelation times long, and
//! thirty or more.

use crate::Result;
use crate::error::Error;
use serde::Serialize;
use std::ops::Range;

/// A mean with its standard error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Mean {
    /// The mean.
    pub value: f64,
    /// Its standard error.
    pub standard_error: f64,
}

/// The number of blocks that `n_samples` are cut into.
///
/// # Errors
/// [`Error::BlockLength`] for a length of 0, or less than two blocks.
pub fn n_blocks(n_samples: usize, block_length: usize) -> Result<usize> {
    if block_length == 0 || 2 * block_length > n_samples {
        return Err(Error::BlockLength {
            block_length,
            n_samples,
        });
    }
    Ok(n_samples / block_length)
}

/// Part `at` of `n` things cut into `parts`, sizes differing by at most one.
pub fn part(n: usize, parts: usize, at: usize) -> Range<usize> {
    at * n / parts..(at + 1) * n / parts
}

/// The mean of `values`, which follow each other in time; not finite where a value is not.
///
/// ```
/// use mpf_ising::blocks::mean;
///
/// let found = mean(&[1.0, 2.0, 3.0, 6.0], 1)?;
/// assert_eq!(found.value, 3.0);
/// // s² = (4 + 1 + 0 + 9)/3, over four samples.
/// assert!((found.standard_error - (14.0f64 / 12.0).sqrt()).abs() < 1e-15);
/// # Ok::<(), mpf_ising::Error>(())
/// ```
///
/// # Errors
/// [`Error::BlockLength`].
pub fn mean(values: &[f64], block_length: usize) -> Result<Mean> {
    let n = values.len();
    let blocks = n_blocks(n, block_length)?;
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
    Ok(Mean {
        value,
        standard_error: (freedom * squares).sqrt() / n as f64,
    })
}
