//! How good draws are.
//!
//! ```text
//! τ   = 1 + 2 Σ_{t≥1} ρ_t                        integrated autocorrelation time, in draws
//! ESS = (number of draws) / τ                     MCSE = sd / √ESS
//! R̂²  = (within-chain + between-chain variance) / within-chain variance
//! ```
//!
//! over *split* chains (each cut in halves, so that a drift shows). ρ_t combines all chains and
//! is summed in pairs ρ_{2k} + ρ_{2k+1}, as long as they are positive and made monotone (Geyer's
//! initial sequences). Bulk ESS and R̂ are computed from rank-normalised draws, tail ESS from the
//! indicators of the 5 % and 95 % quantiles (Vehtari, Gelman, Simpson, Carpenter & Bürkner 2021).
//! An AR(1) process with coefficient ρ has τ = (1 + ρ)/(1 − ρ).
//!
//! Every function takes one series per chain, all of one length and finite; of any size, since
//! draws near the ends of `f64` are scaled. A quantity that is the same in all draws (the middle
//! one of an odd number aside) has no diagnostics: they are NaN. All others have finite ones, but
//! for the cases that their functions name. None of them can see a part of the target that no
//! chain has visited.

mod autocovariance;
mod normal;
mod run;

use crate::Result;
use crate::error::{Error, check_count};
use autocovariance::Autocovariance;
use normal::normal_quantile;
use serde::Serialize;

pub use run::RunDiagnostics;
pub(crate) use run::diagnose;

/// Fewest draws per chain: quarter-chains of two.
const MIN_DRAWS: usize = 8;

/// All diagnostics of one quantity; finite or not as those of the single functions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The mean of all draws.
    pub mean: f64,
    /// Their standard deviation; +∞ on overflow.
    #[serde(skip)]
    pub standard_deviation: f64,
    /// The Monte-Carlo standard error of the mean.
    #[serde(rename = "standard_error")]
    pub mcse: f64,
    /// Effective draws for the centre of the distribution. Below 100 per chain, run longer.
    #[serde(rename = "effective_draws")]
    pub bulk_ess: f64,
    /// Effective draws for its 5 % and 95 % quantiles, the worse of the two.
    #[serde(skip)]
    pub tail_ess: f64,
    /// Rank-normalised split R̂. Above 1.01 the chains do not agree yet.
    pub rhat: f64,
    /// The integrated autocorrelation time, in draws.
    pub autocorrelation_time: f64,
}

/// Every diagnostic of one quantity. Those of a constant are NaN.
///
/// # Errors
/// As [`integrated_autocorrelation_time`].
pub fn summary<C: AsRef<[f64]>>(chains: &[C]) -> Result<Summary> {
    let tau = integrated_autocorrelation_time(chains)?;
    let (all, scale) = pooled(chains);
    let (mean, variance) = mean_and_variance(&all);
    Ok(Summary {
        // Rounding may lead beyond the largest draw, but not beyond the largest number.
        mean: scale.undo(mean).clamp(f64::MIN, f64::MAX),
        standard_deviation: scale.undo(variance.sqrt()),
        mcse: scale.undo((variance * tau / all.len() as f64).sqrt()),
        bulk_ess: bulk_ess(chains)?,
        tail_ess: tail_ess(chains)?,
        rhat: rhat(chains)?,
        autocorrelation_time: tau,
    })
}

/// τ of the mean, in draws: as many draws are worth one independent draw. At least
/// 1 / log₁₀(number of draws), so that draws that repel each other do not make the ESS infinite.
/// Finite, but NaN for a constant. O(N) for N draws without memory, O(N log N) at worst.
///
/// # Errors
/// [`Error::TooFewDraws`] (8 per chain are needed), [`Error::Count`] for chains of different
/// lengths, [`Error::NonFiniteDraw`].
pub fn integrated_autocorrelation_time<C: AsRef<[f64]>>(chains: &[C]) -> Result<f64> {
    Ok(split_time(&scaled_split(chains)?))
}

/// The effective sample size of the mean. Finite, but NaN for a constant.
///
/// # Errors
/// As [`integrated_autocorrelation_time`].
pub fn ess<C: AsRef<[f64]>>(chains: &[C]) -> Result<f64> {
    Ok(split_ess(&scaled_split(chains)?))
}

/// The effective sample size of the rank-normalised draws: also of use when the quantity has no
/// variance. Finite, but NaN for a constant.
///
/// # Errors
/// As [`integrated_autocorrelation_time`].
pub fn bulk_ess<C: AsRef<[f64]>>(chains: &[C]) -> Result<f64> {
    Ok(split_ess(&rank_normalise(&split(chains)?)))
}

/// The smaller effective sample size of the indicators x ≤ q₅ and x ≤ q₉₅. One that is constant,
/// as for binary draws, is left out. Finite, but NaN when both are: for a constant, or where 95 %
/// of the draws are the largest.
///
/// # Errors
/// As [`integrated_autocorrelation_time`].
pub fn tail_ess<C: AsRef<[f64]>>(chains: &[C]) -> Result<f64> {
    let split = split(chains)?;
    let mut sorted: Vec<f64> = chains.iter().flat_map(AsRef::as_ref).copied().collect();
    sorted.sort_by(f64::total_cmp);
    let indicator = |q: f64| {
        let cut = quantile(&sorted, q);
        let below: Vec<Vec<f64>> = split
            .iter()
            .map(|c| c.iter().map(|x| f64::from(u8::from(*x <= cut))).collect())
            .collect();
        split_ess(&below)
    };
    // f64::min passes over NaN.
    Ok(indicator(0.05).min(indicator(0.95)))
}

/// Rank-normalised split R̂: the larger of that of the draws, which sees differences of location,
/// and of their distances from the median, which sees differences of scale. NaN for a constant; +∞
/// when the draws, or the distances, are all equal within every half of a chain but not between
/// them; finite else.
///
/// # Errors
/// As [`integrated_autocorrelation_time`].
pub fn rhat<C: AsRef<[f64]>>(chains: &[C]) -> Result<f64> {
    let split = split(chains)?;
    let mut sorted: Vec<f64> = chains.iter().flat_map(AsRef::as_ref).copied().collect();
    sorted.sort_by(f64::total_cmp);
    let median = quantile(&sorted, 0.5);
    // Halves keep their order, and their differences do not overflow.
    let far = sorted.iter().any(|x| x.abs() > 0.25 * f64::MAX);
    let scale = if far { 0.5 } else { 1.0 };
    let distance = |x: &f64| (scale * x - scale * median).abs();
    let folded: Vec<Vec<f64>> = split
        .iter()
        .map(|c| c.iter().map(distance).collect())
        .collect();
    let location = split_rhat(&rank_normalise(&split));
    // Folded binary draws may all be equal, which says nothing.
    Ok(location.max(split_rhat(&rank_normalise(&folded))))
}

/// The Monte-Carlo standard error of the mean: sd / √ESS. Finite, but NaN for a constant, and +∞
/// where it is beyond the largest number.
///
/// # Errors
/// As [`integrated_autocorrelation_time`].
pub fn mcse<C: AsRef<[f64]>>(chains: &[C]) -> Result<f64> {
    let (all, scale) = pooled(chains);
    let error = (mean_and_variance(&all).1 / ess(chains)?).sqrt();
    Ok(scale.undo(error))
}

/// A power of two, 2^k, that draws are multiplied by so that their squares neither overflow nor
/// vanish: 1 for all but draws that are beyond 2^±400 altogether.
#[derive(Clone, Copy)]
struct Scale {
    /// 2^⌊k/2⌋ and 2^⌈k/2⌉: for the smallest numbers 2^k itself is too large.
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

    fn undo(self, x: f64) -> f64 {
        x / self.factors.0 / self.factors.1
    }
}

/// All draws, scaled.
fn pooled<C: AsRef<[f64]>>(chains: &[C]) -> (Vec<f64>, Scale) {
    let scale = Scale::of(chains);
    let all = chains.iter().flat_map(AsRef::as_ref);
    (all.map(|x| scale.apply(*x)).collect(), scale)
}

/// As [`split`], scaled: for what is computed from the draws themselves, not from their order.
fn scaled_split<C: AsRef<[f64]>>(chains: &[C]) -> Result<Vec<Vec<f64>>> {
    let mut halves = split(chains)?;
    // Not that of the draws that were left out.
    let scale = Scale::of(&halves);
    if !scale.is_one() {
        let all = halves.iter_mut().flatten();
        all.for_each(|x| *x = scale.apply(*x));
    }
    Ok(halves)
}

/// Checks the chains and cuts each into halves; the middle one of an odd number of draws is left
/// out.
fn split<C: AsRef<[f64]>>(chains: &[C]) -> Result<Vec<Vec<f64>>> {
    let n = chains.first().map_or(0, |c| c.as_ref().len());
    if n < MIN_DRAWS {
        return Err(Error::TooFewDraws {
            what: "a diagnostic",
            needed: MIN_DRAWS,
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

fn split_ess(chains: &[Vec<f64>]) -> f64 {
    (chains.len() * chains[0].len()) as f64 / split_time(chains)
}

/// Geyer's τ of chains that are already split.
fn split_time(chains: &[Vec<f64>]) -> f64 {
    let n = chains[0].len();
    let (within, between) = variances(chains);
    let total = within * (n - 1) as f64 / n as f64 + between;
    if is_constant(chains) {
        return f64::NAN;
    }
    let mut autocovariance = Autocovariance::new(chains);
    let mut autocorrelation = |lag: usize| 1.0 - (within - autocovariance.at(lag)) / total;
    let mut sum = 0.0;
    let mut smallest = f64::INFINITY;
    for lag in (0..n - 1).step_by(2) {
        // By definition ρ_0 = 1; the estimate would differ by the 1/n of the variances.
        let even = if lag == 0 { 1.0 } else { autocorrelation(lag) };
        let pair = even + autocorrelation(lag + 1);
        if pair <= 0.0 {
            break;
        }
        smallest = pair.min(smallest);
        sum += smallest;
    }
    let draws = (n * chains.len()) as f64;
    (2.0 * sum - 1.0).max(1.0 / draws.log10())
}

/// R̂ of chains that are already split, of which there are at least two.
fn split_rhat(chains: &[Vec<f64>]) -> f64 {
    if is_constant(chains) {
        return f64::NAN;
    }
    // Their means round, so that their variances would be small but not zero.
    if chains.chunks(1).all(is_constant) {
        return f64::INFINITY;
    }
    let n = chains[0].len() as f64;
    let (within, between) = variances(chains);
    ((n - 1.0) / n + between / within).sqrt()
}

/// The mean variance within chains, and the variance of their means.
fn variances(chains: &[Vec<f64>]) -> (f64, f64) {
    let (means, variances): (Vec<f64>, Vec<f64>) =
        chains.iter().map(|c| mean_and_variance(c)).unzip();
    let within = variances.iter().sum::<f64>() / variances.len() as f64;
    (within, mean_and_variance(&means).1)
}

/// The mean, and the variance with n − 1.
fn mean_and_variance(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let square: f64 = values.iter().map(|x| (x - mean) * (x - mean)).sum();
    (mean, square / (n - 1.0))
}

fn is_constant(chains: &[Vec<f64>]) -> bool {
    let first = chains[0][0];
    chains.iter().flatten().all(|x| *x == first)
}

/// The q-quantile of sorted values, interpolated linearly between the neighbours of (n − 1) q.
fn quantile(sorted: &[f64], q: f64) -> f64 {
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

/// Φ⁻¹((r − 3/8)/(N + 1/4)) in place of every draw, r its rank among all N, ties sharing theirs.
fn rank_normalise(chains: &[Vec<f64>]) -> Vec<Vec<f64>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Two short chains, and what the formulas give for them when worked out separately (a
    /// literal transcription in another language; 12 digits).
    const CHAINS: [[f64; 20]; 2] = [
        [
            0.0, 28.0, 37.0, 45.0, 46.0, 49.0, 38.0, 58.0, 46.0, 56.0, 48.0, 65.0, 75.0, 67.0,
            78.0, 75.0, 59.0, 61.0, 53.0, 55.0,
        ],
        [
            23.0, 15.0, 23.0, 16.0, 20.0, 16.0, 41.0, 57.0, 44.0, 43.0, 54.0, 38.0, 50.0, 54.0,
            43.0, 39.0, 53.0, 58.0, 57.0, 67.0,
        ],
    ];

    #[track_caller]
    fn assert_close(found: f64, expected: f64) {
        assert!(
            (found / expected - 1.0).abs() < 1e-12,
            "{found}, not {expected}"
        );
    }

    #[test]
    fn short_chains_with_ties_have_the_stated_diagnostics() {
        assert_close(rhat(&CHAINS).unwrap(), 1.476065069017856);
        assert_close(ess(&CHAINS).unwrap(), 4.0450734069898);
        assert_close(bulk_ess(&CHAINS).unwrap(), 3.9868352728958927);
        assert_close(tail_ess(&CHAINS).unwrap(), 49.57264957264957);
        assert_close(mcse(&CHAINS).unwrap(), 8.918320897957976);
    }

    #[test]
    fn variances_and_plain_rhat_by_hand() {
        // Means 2 and 4; variances 1 and 4 → within 2.5, between 2.
        let chains = [vec![1.0, 2.0, 3.0], vec![2.0, 4.0, 6.0]];
        assert_eq!(variances(&chains), (2.5, 2.0));
        // √(2/3 + 2/2.5).
        assert_close(split_rhat(&chains), (2.0f64 / 3.0 + 0.8).sqrt());
    }

    #[test]
    fn autocorrelation_time_by_hand() {
        // Within 8/7, total 1. Products at lags 1, 2, 3 add up to 5, 2, −1 of 8, and ρ_t is that
        // share less 1/7: 27/56, 6/56, −15/56. The first pair is 83/56, the second negative.
        let chain = vec![-1.0, -1.0, -1.0, -1.0, 1.0, 1.0, 1.0, 1.0];
        let chains = [chain.clone(), chain];
        assert_close(split_time(&chains), 2.0 * 83.0 / 56.0 - 1.0);
        assert_close(split_ess(&chains), 16.0 * 28.0 / 55.0);
        // Draws that alternate have ρ₁ < −1 and would have no τ at all: the floor holds.
        let alternating = vec![vec![0.0, 1.0, 0.0, 1.0, 0.0]; 2];
        assert_close(split_time(&alternating), 1.0);
    }

    #[test]
    fn ranks_are_shared_by_ties() {
        let z = rank_normalise(&[vec![5.0, 1.0], vec![1.0, 9.0]]);
        // Ranks 3, 1.5, 1.5, 4 of 4.
        assert_close(z[0][0], normal_quantile(2.625 / 4.25));
        assert_close(z[0][1], normal_quantile(1.125 / 4.25));
        assert_eq!(z[0][1], z[1][0]);
        assert_close(z[1][1], normal_quantile(3.625 / 4.25));
    }

    #[test]
    fn quantiles_are_interpolated() {
        let sorted = [1.0, 2.0, 4.0, 8.0];
        assert_eq!(quantile(&sorted, 0.0), 1.0);
        assert_eq!(quantile(&sorted, 0.5), 3.0);
        assert_eq!(quantile(&sorted, 1.0), 8.0);
        assert_close(quantile(&sorted, 0.1), 1.3);
    }

    #[test]
    fn constant_and_binary_draws() {
        let constant = [vec![2.0; 20], vec![2.0; 20]];
        assert!(rhat(&constant).unwrap().is_nan());
        assert!(ess(&constant).unwrap().is_nan());
        assert!(summary(&constant).unwrap().mcse.is_nan());
        // x ≤ q₉₅ always holds, but the other tail can be judged.
        let binary = [
            [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0],
            [0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0],
        ];
        assert!(tail_ess(&binary).unwrap() > 1.0);
        assert!(rhat(&binary).unwrap().is_finite());
        // Two chains that never leave different states disagree as much as chains can.
        for n in [12, 20] {
            let stuck = [vec![0.0; n], vec![1.0; n]];
            assert_eq!(rhat(&stuck).unwrap(), f64::INFINITY);
        }
    }

    #[test]
    fn scale_changes_nothing() {
        let scaled = |factor: f64| CHAINS.map(|chain| chain.map(|x| x * factor));
        let plain = summary(&CHAINS).unwrap();
        // Powers of two: the draws, integers up to 78, stay exact, subnormals too.
        for power in [-1040, -1000, -600, 300, 500, 1000, 1017] {
            let factor = 2f64.powi(power / 2) * 2f64.powi(power - power / 2);
            let found = summary(&scaled(factor)).unwrap();
            for (found, expected) in [
                (found.bulk_ess, plain.bulk_ess),
                (found.tail_ess, plain.tail_ess),
                (found.rhat, plain.rhat),
                (found.autocorrelation_time, plain.autocorrelation_time),
            ] {
                assert_close(found, expected);
            }
            if power > -1000 {
                assert_close(found.mean / factor, plain.mean);
                assert_close(found.standard_deviation / factor, plain.standard_deviation);
                assert_close(found.mcse / factor, plain.mcse);
                assert_close(mcse(&scaled(factor)).unwrap(), found.mcse);
            }
        }
        // The largest numbers of both signs: only their standard deviation is larger still.
        let ends = [[
            f64::MAX,
            f64::MIN,
            f64::MAX,
            f64::MAX,
            f64::MIN,
            f64::MIN,
            f64::MAX,
            f64::MIN,
        ]; 2];
        let found = summary(&ends).unwrap();
        assert_eq!(found.mean, 0.0);
        assert_eq!(found.standard_deviation, f64::INFINITY);
        assert!(found.rhat.is_finite() && found.bulk_ess.is_finite());
        assert_close(summary(&[[f64::MAX; 9]]).unwrap().mean, f64::MAX);
    }

    #[test]
    fn bad_chains_are_errors_that_say_where() {
        assert_eq!(
            rhat(&[[1.0; 7]]),
            Err(Error::TooFewDraws {
                what: "a diagnostic",
                needed: 8,
                found: 7
            })
        );
        assert!(matches!(
            ess::<Vec<f64>>(&[]),
            Err(Error::TooFewDraws { found: 0, .. })
        ));
        assert!(matches!(
            ess(&[vec![1.0; 9], vec![1.0; 10]]),
            Err(Error::Count {
                expected: 9,
                found: 10,
                ..
            })
        ));
        let mut chain = vec![1.0; 10];
        chain[3] = f64::NAN;
        assert!(matches!(
            mcse(&[vec![0.5; 10], chain]),
            Err(Error::NonFiniteDraw {
                chain: 1,
                draw: 3,
                ..
            })
        ));
    }
}
