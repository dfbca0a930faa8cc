//! How many successive samples are correlated?
//!
//! ```text
//! τ = 1 + 2 Σ_k ρ_k of the number of active units, and of single units;   L = 6 max τ
//! ```
//!
//! Means over blocks of six autocorrelation times are nearly independent. At least 30 blocks are left.
//! Samples whose correlation with the next one is within chance are independent: blocks of one.

use crate::Result;
use mpf_ising::{States, get_bit};
use mpf_samplers::diagnostics::{Summary, integrated_autocorrelation_time};
use rayon::prelude::*;

/// Autocorrelation times in a block.
const TIMES: f64 = 6.0;
/// The fewest blocks that error bars are made from.
const MIN_BLOCKS: usize = 30;
/// Single units that are looked at, spread over all.
const UNITS: usize = 64;
/// The correlation of successive samples that chance is allowed, in units of 1/√M: one of a hundred
/// quantities exceeds it in one of 40 recordings.
const CHANCE: f64 = 3.5;

/// Returns the length of blocks that makes their means nearly independent; 1 for samples that are
/// independent already.
///
/// # Errors
/// Those of the autocorrelation time.
pub fn block_length(states: &States) -> Result<usize> {
    let (n, d) = (states.n_samples(), states.n_units());
    if n < 2 * MIN_BLOCKS.max(Summary::MIN_DRAWS) {
        return Ok(1);
    }
    let active = |row: &[u64]| mpf_ising::n_active(row) as f64;
    let step = d.div_ceil(UNITS);
    let times = (0..=d.div_ceil(step))
        .into_par_iter()
        .map(|at| {
            let series: Vec<f64> = match at {
                0 => states.rows().map(active).collect(),
                unit => {
                    let unit = (unit - 1) * step;
                    let bit = |row: &[u64]| f64::from(u8::from(get_bit(row, unit)));
                    states.rows().map(bit).collect()
                }
            };
            if lag_one_correlation(&series).abs() * (n as f64).sqrt() < CHANCE {
                return Ok(1.0);
            }
            Ok(integrated_autocorrelation_time(&[series])?)
        })
        .collect::<Result<Vec<f64>>>()?;
    let longest = times
        .into_iter()
        .filter(|t| t.is_finite())
        .fold(1.0, f64::max);
    if longest <= 1.0 {
        return Ok(1);
    }
    Ok(((TIMES * longest).ceil() as usize).min(n / MIN_BLOCKS))
}

/// Returns ρ_1; 0 for a constant.
fn lag_one_correlation(series: &[f64]) -> f64 {
    let n = series.len() as f64;
    let mean = series.iter().sum::<f64>() / n;
    let variance: f64 = series.iter().map(|v| (v - mean) * (v - mean)).sum();
    let products: f64 = series
        .windows(2)
        .map(|w| (w[0] - mean) * (w[1] - mean))
        .sum();
    if variance > 0.0 {
        products / variance
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpf_core::rng::stream;
    use rand::RngExt;

    /// Two units that keep their value with probability `stay`, for `n` samples.
    fn sticky(stay: f64, n: usize, seed: u64) -> States {
        let mut rng = stream(seed, 0);
        let mut states = States::new(2).unwrap();
        let mut row = 0u64;
        for _ in 0..n {
            for unit in 0..2 {
                if rng.random::<f64>() >= stay {
                    let up = rng.random::<bool>();
                    row = row & !(1 << unit) | u64::from(up) << unit;
                }
            }
            states.push(&[row]);
        }
        states
    }

    #[test]
    fn independent_samples_have_blocks_of_one_and_chains_long_ones() {
        for seed in 0..5 {
            assert_eq!(block_length(&sticky(0.0, 5000, seed)).unwrap(), 1);
            // ρ_k = .9^k: τ = 1.9/.1 = 19, known to about a tenth from 20,000 samples.
            let found = block_length(&sticky(0.9, 20_000, seed)).unwrap();
            assert!((80..=170).contains(&found), "{found}");
        }
        // At least 30 blocks, and no fewer samples than that.
        assert!(block_length(&sticky(0.99, 300, 1)).unwrap() <= 10);
        assert_eq!(block_length(&sticky(0.9, 20, 1)).unwrap(), 1);
    }
}
