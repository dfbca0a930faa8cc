//! Chains of draws made ready: checked, split, scaled, ranked.

use super::Summary;
use super::normal::normal_quantile;
use crate::Result;
use crate::error::Error;
use mpf_core::check_count;

/// A power of two, 2^k, that draws are multiplied by lest their squares overflow or vanish: 1 unless
/// the largest draw lies beyond 2^±400.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    /// 2^⌊k/2⌋ and 2^⌈k/2⌉: for the smallest draws 2^k itself overflows.
    factors: (f64, f64),
}

impl Scale {
    fn of<C: AsRef<[f64]>>(chains: &[C]) -> Self {
        let all = chains.iter().flat_map(AsRef::as_ref);
        let largest = all.fold(0.0f64, |m, x| m.max(x.abs()));
        let power = |k: i32| 2f64.powi(k);
        if largest == 0.0 || (power(-400)..power(400)).contains(&largest) {
            return Self {
                factors: (1.0, 1.0),
            };
        }
        let k = -largest.log2().floor() as i32;
        Self {
            factors: (power(k.div_euclid(2)), power(k - k.div_euclid(2))),
        }
    }

    fn is_one(self) -> bool {
        self.factors == (1.0, 1.0)
    }

    fn apply(self, x: f64) -> f64 {
        x * self.factors.0 * self.factors.1
    }

    pub(super) fn undo(self, x: f64) -> f64 {
        x / self.factors.0 / self.factors.1
    }
}

/// Returns all draws, scaled.
pub(super) fn pooled<C: AsRef<[f64]>>(chains: &[C]) -> (Vec<f64>, Scale) {
    let scale = Scale::of(chains);
    let all = chains.iter().flat_map(AsRef::as_ref);
    (all.map(|x| scale.apply(*x)).collect(), scale)
}

/// As [`split`], scaled: for diagnostics of the draws themselves rather than of their order.
pub(super) fn scaled_split<C: AsRef<[f64]>>(chains: &[C]) -> Result<Vec<Vec<f64>>> {
    let mut halves = split(chains)?;
    // The draw that was left out does not count.
    let scale = Scale::of(&halves);
    if !scale.is_one() {
        let all = halves.iter_mut().flatten();
        all.for_each(|x| *x = scale.apply(*x));
    }
    Ok(halves)
}

/// Checks the chains and cuts each into halves, leaving out the middle one of an odd number of
/// draws.
pub(super) fn split<C: AsRef<[f64]>>(chains: &[C]) -> Result<Vec<Vec<f64>>> {
    let n = chains.first().map_or(0, |c| c.as_ref().len());
    if n < Summary::MIN_DRAWS {
        return Err(Error::TooFewDraws {
            what: "a diagnostic",
            needed: Summary::MIN_DRAWS,
            found: n,
        });
    }
    let mut halves = Vec::with_capacity(2 * chains.len());
    for (chain, draws) in chains.iter().map(C::as_ref).enumerate() {
        check_count("draws of a chain", n, draws.len())?;
        if let Some(draw) = draws.iter().position(|x| !x.is_finite()) {
            return Err(Error::NonFiniteDraw {
                chain,
                draw,
                value: draws[draw],
            });
        }
        halves.push(draws[..n / 2].to_vec());
        halves.push(draws[n - n / 2..].to_vec());
    }
    Ok(halves)
}

/// Returns the mean, and the variance with n − 1.
pub(super) fn mean_and_variance(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let square: f64 = values.iter().map(|x| (x - mean) * (x - mean)).sum();
    (mean, square / (n - 1.0))
}

pub(super) fn is_constant(chains: &[Vec<f64>]) -> bool {
    let first = chains[0][0];
    chains.iter().flatten().all(|x| *x == first)
}

/// Returns the q-quantile of sorted values, interpolated linearly between the neighbours of
/// (n − 1) q.
pub(super) fn quantile(sorted: &[f64], q: f64) -> f64 {
    let place = (sorted.len() - 1) as f64 * q;
    let below = place.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    let share = place - below as f64;
    let gap = sorted[above] - sorted[below];
    if gap.is_finite() {
        sorted[below] + share * gap
    } else {
        sorted[below] * (1.0 - share) + sorted[above] * share
    }
}

/// Replaces every draw by Φ⁻¹((r − 3/8)/(N + 1/4)), r its rank among all N; ties share theirs.
pub(super) fn rank_normalise(chains: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let n = chains[0].len();
    let value = |at: usize| chains[at / n][at % n];
    let mut order: Vec<usize> = (0..n * chains.len()).collect();
    order.sort_by(|&a, &b| value(a).total_cmp(&value(b)));
    let mut normal = vec![vec![0.0; n]; chains.len()];
    let mut before = 0;
    for ties in order.chunk_by(|&a, &b| value(a) == value(b)) {
        let rank = before as f64 + 0.5 * (ties.len() + 1) as f64;
        before += ties.len();
        let z = normal_quantile((rank - 0.375) / (order.len() as f64 + 0.25));
        for &at in ties {
            normal[at / n][at % n] = z;
        }
    }
    normal
}
