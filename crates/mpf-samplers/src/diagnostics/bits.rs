//! Diagnostics of one unit, from packed bits.
//!
//! Rank-normalised draws of a unit have two values, as the draws themselves, and R̂ and ESS do not
//! depend on which: they are those of x ∈ {0,1}. With C_t draws that are 1 now and t later,
//!
//! ```text
//! n c_t = C_t − m (Σ_{i<n−t} x_i + Σ_{i≥t} x_i) + (n − t) m²      for a half-chain of mean m
//! ```
//!
//! which takes three counts of bits.

use super::autocovariance::by_transform;
use super::series::mean_and_variance;
use super::{rhat_of, time_of};
use mpf_ising::n_active;

/// Lags that are counted one by one, 64 draws at a time, which costs about as much as a transform.
const DIRECT: usize = 1024;

/// The halves of all chains of one unit.
pub(super) struct Bits {
    halves: Vec<Vec<u64>>,
    n: usize,
    means: Vec<f64>,
}

impl Bits {
    /// Cuts `n_draws` packed draws of every chain into halves, leaving out the middle one of an odd
    /// number.
    pub(super) fn split<'a>(chains: impl Iterator<Item = &'a [u64]>, n_draws: usize) -> Self {
        let n = n_draws / 2;
        let halves: Vec<Vec<u64>> = chains
            .flat_map(|chain| [cut(chain, 0, n), cut(chain, n_draws - n, n)])
            .collect();
        let means = halves
            .iter()
            .map(|half| n_active(half) as f64 / n as f64)
            .collect();
        Self { halves, n, means }
    }

    /// Returns R̂ and the effective draws; NaN for a constant, R̂ = +∞ for chains that stay at
    /// different values.
    pub(super) fn rhat_and_ess(&self) -> (f64, f64) {
        let draws = (self.n * self.halves.len()) as f64;
        if self.means.iter().all(|m| *m == 0.0) || self.means.iter().all(|m| *m == 1.0) {
            return (f64::NAN, f64::NAN);
        }
        let unbiased = self.n as f64 / (self.n - 1) as f64;
        let within = self.means.iter().map(|m| m * (1.0 - m) * unbiased);
        let within = within.sum::<f64>() / self.means.len() as f64;
        let variances = (within, mean_and_variance(&self.means).1);
        let mut transformed: Option<Vec<f64>> = None;
        let time = time_of(self.halves.len(), self.n, variances, |lag| {
            if within == 0.0 {
                0.0
            } else if lag < DIRECT {
                self.autocovariance(lag)
            } else {
                transformed.get_or_insert_with(|| by_transform(&self.centred()))[lag]
            }
        });
        (rhat_of(self.n, variances), draws / time)
    }

    fn autocovariance(&self, lag: usize) -> f64 {
        let rest = self.n - lag;
        let last = rest.div_ceil(64) - 1;
        let in_last = u64::MAX >> (64 * (last + 1) - rest);
        let of_half = |(half, m): (&Vec<u64>, &f64)| {
            let (mut both, mut early, mut late) = (0, 0, 0);
            for k in 0..=last {
                let mask = if k == last { in_last } else { u64::MAX };
                let (now, later) = (half[k] & mask, word_at(half, 64 * k + lag) & mask);
                both += (now & later).count_ones();
                early += now.count_ones();
                late += later.count_ones();
            }
            f64::from(both) - m * f64::from(early + late) + rest as f64 * m * m
        };
        let sum: f64 = self.halves.iter().zip(&self.means).map(of_half).sum();
        sum / (self.n * self.halves.len()) as f64
    }

    fn centred(&self) -> Vec<Vec<f64>> {
        let half = |(half, m): (&Vec<u64>, &f64)| {
            let bit = |i: usize| (half[i / 64] >> (i % 64) & 1) as f64;
            (0..self.n).map(|i| bit(i) - m).collect()
        };
        self.halves.iter().zip(&self.means).map(half).collect()
    }
}

/// Returns 64 bits from bit `at` on, zero beyond the end.
fn word_at(bits: &[u64], at: usize) -> u64 {
    let (k, shift) = (at / 64, at % 64);
    let word = |k: usize| bits.get(k).copied().unwrap_or(0);
    if shift == 0 {
        word(k)
    } else {
        word(k) >> shift | word(k + 1) << (64 - shift)
    }
}

/// Returns `n` bits from bit `from` on.
fn cut(bits: &[u64], from: usize, n: usize) -> Vec<u64> {
    let mut found: Vec<u64> = (0..n.div_ceil(64))
        .map(|k| word_at(bits, from + 64 * k))
        .collect();
    if let Some(last) = found.last_mut() {
        *last &= u64::MAX >> (n.next_multiple_of(64) - n);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::{bulk_ess, rhat};
    use mpf_core::rng::stream;
    use rand::RngExt;

    fn packed(chain: &[f64]) -> Vec<u64> {
        let mut bits = vec![0; chain.len().div_ceil(64)];
        for (i, x) in chain.iter().enumerate() {
            bits[i / 64] |= u64::from(*x == 1.0) << (i % 64);
        }
        bits
    }

    fn of(chains: &[Vec<f64>]) -> (f64, f64) {
        let columns: Vec<Vec<u64>> = chains.iter().map(|c| packed(c)).collect();
        Bits::split(columns.iter().map(Vec::as_slice), chains[0].len()).rhat_and_ess()
    }

    #[test]
    fn a_short_series_by_hand() {
        // Halves 0 1 1 1 and 0 0 1 0: means ¾ and ¼, within 1/4, between 1/8.
        let (rhat, ess) = of(&[vec![0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0]]);
        assert!((rhat - (0.75f64 + 0.5).sqrt()).abs() < 1e-15, "{rhat}");
        // Total 5/16. The c_t are, half by half over 64: −1 and −5, −2 and −2, −3 and +1; their
        // means −3, −2 and −1. ρ_t = 1 − (16 + 3)/20, 1 − (16 + 2)/20, 1 − (16 + 1)/20: the pairs
        // are 1 + 1/20 and 2/20 + 3/20, τ = 2 (1.3) − 1 = 1.6, and 8 draws are worth 5.
        assert!((ess - 5.0).abs() < 1e-13, "{ess}");
    }

    #[test]
    fn bits_have_the_diagnostics_of_their_series() {
        // Lengths about the 64 bits of a word; memories short, and longer than the direct lags.
        for (n, stay) in [
            (8, 0.5),
            (127, 0.2),
            (130, 0.9),
            (1001, 0.97),
            (6000, 0.9997),
        ] {
            let mut rng = stream(n as u64, 0);
            let mut chain = |start: f64| -> Vec<f64> {
                let mut x = start;
                (0..n)
                    .map(|_| {
                        if rng.random::<f64>() > stay {
                            x = f64::from(u8::from(rng.random::<f64>() < 0.3));
                        }
                        x
                    })
                    .collect()
            };
            let chains = [chain(0.0), chain(1.0), chain(1.0)];
            let (found, effective) = of(&chains);
            let expected = (rhat(&chains).unwrap(), bulk_ess(&chains).unwrap());
            // Rounding of a few thousand terms.
            assert!(
                (found / expected.0 - 1.0).abs() < 1e-10,
                "{n}: {found}, {expected:?}"
            );
            assert!(
                (effective / expected.1 - 1.0).abs() < 1e-9,
                "{n}: {effective}, {expected:?}"
            );
        }
    }

    #[test]
    fn frozen_chains_disagree_and_constants_say_nothing() {
        let frozen = [vec![0.0; 20], vec![1.0; 20]];
        assert_eq!(of(&frozen).0, f64::INFINITY);
        assert!(of(&frozen).1 < 5.0);
        assert!(of(&[vec![1.0; 20], vec![1.0; 20]]).0.is_nan());
    }
}
