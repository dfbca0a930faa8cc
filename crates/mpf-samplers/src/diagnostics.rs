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
//! Every function takes one series per chain, all of one length and finite. A quantity that is
//! the same in all draws has no diagnostics: they are NaN. None of them can see a part of the
//! target that no chain has visited.

use crate::Result;
use crate::error::{Error, check_count};

/// Fewest draws per chain: quarter-chains of two.
const MIN_DRAWS: usize = 8;

/// All diagnostics of one quantity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The mean of all draws.
    pub mean: f64,
    /// Their standard deviation.
    pub standard_deviation: f64,
    /// The Monte-Carlo standard error of the mean.
    pub mcse: f64,
    /// Effective draws for the centre of the distribution. Below 100 per chain, run longer.
    pub bulk_ess: f64,
    /// Effective draws for its 5 % and 95 % quantiles, the worse of the two.
    pub tail_ess: f64,
    /// Rank-normalised split R̂. Above 1.01 the chains do not agree yet.
    pub rhat: f64,
    /// The integrated autocorrelation time, in draws.
    pub autocorrelation_time: f64,
}

/// Every diagnostic of one quantity.
///
/// # Errors
/// As [`integrated_autocorrelation_time`].
pub fn summary<C: AsRef<[f64]>>(chains: &[C]) -> Result<Summary> {
    let tau = integrated_autocorrelation_time(chains)?;
    let all: Vec<f64> = chains.iter().flat_map(|c| c.as_ref()).copied().collect();
    let (mean, variance) = mean_and_variance(&all);
    Ok(Summary {
        mean,
        standard_deviation: variance.sqrt(),
        mcse: (variance * tau / all.len() as f64).sqrt(),
        bulk_ess: bulk_ess(chains)?,
        tail_ess: tail_ess(chains)?,
        rhat: rhat(chains)?,
        autocorrelation_time: tau,
    })
}

/// τ of the mean, in draws: as many draws are worth one independent draw. At least
/// 1 / log₁₀(number of draws), so that draws that repel each other do not make the ESS infinite.
/// O(draws · τ).
///
/// # Errors
/// [`Error::TooFewDraws`] (8 per chain are needed), [`Error::Count`] for chains of different
/// lengths, [`Error::NonFiniteDraw`].
pub fn integrated_autocorrelation_time<C: AsRef<[f64]>>(chains: &[C]) -> Result<f64> {
    Ok(split_time(&split(chains)?))
}

/// The effective sample size of the mean.
///
/// # Errors
/// As [`integrated_autocorrelation_time`].
pub fn ess<C: AsRef<[f64]>>(chains: &[C]) -> Result<f64> {
    let split = split(chains)?;
    Ok(split_ess(&split))
}

/// The effective sample size of the rank-normalised draws: also of use when the quantity has no
/// variance.
///
/// # Errors
/// As [`integrated_autocorrelation_time`].
pub fn bulk_ess<C: AsRef<[f64]>>(chains: &[C]) -> Result<f64> {
    Ok(split_ess(&rank_normalise(&split(chains)?)))
}

/// The smaller effective sample size of the indicators x ≤ q₅ and x ≤ q₉₅. One that is constant,
/// as for binary draws, is left out.
///
/// # Errors
/// As [`integrated_autocorrelation_time`].
pub fn tail_ess<C: AsRef<[f64]>>(chains: &[C]) -> Result<f64> {
    let split = split(chains)?;
    let mut sorted: Vec<f64> = chains.iter().flat_map(|c| c.as_ref()).copied().collect();
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
/// and of their distances from the median, which sees differences of scale.
///
/// # Errors
/// As [`integrated_autocorrelation_time`].
pub fn rhat<C: AsRef<[f64]>>(chains: &[C]) -> Result<f64> {
    let split = split(chains)?;
    let mut sorted: Vec<f64> = chains.iter().flat_map(|c| c.as_ref()).copied().collect();
    sorted.sort_by(f64::total_cmp);
    let median = quantile(&sorted, 0.5);
    let folded: Vec<Vec<f64>> = split
        .iter()
        .map(|c| c.iter().map(|x| (x - median).abs()).collect())
        .collect();
    let location = split_rhat(&rank_normalise(&split));
    // Folded binary draws may all be equal, which says nothing.
    Ok(location.max(split_rhat(&rank_normalise(&folded))))
}

/// The Monte-Carlo standard error of the mean: sd / √ESS.
///
/// # Errors
/// As [`integrated_autocorrelation_time`].
pub fn mcse<C: AsRef<[f64]>>(chains: &[C]) -> Result<f64> {
    let all: Vec<f64> = chains.iter().flat_map(|c| c.as_ref()).copied().collect();
    Ok((mean_and_variance(&all).1 / ess(chains)?).sqrt())
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
    let centred: Vec<Vec<f64>> = chains
        .iter()
        .map(|c| {
            let mean = c.iter().sum::<f64>() / n as f64;
            c.iter().map(|x| x - mean).collect()
        })
        .collect();
    let (within, between) = variances(chains);
    let total = within * (n - 1) as f64 / n as f64 + between;
    if is_constant(chains) {
        return f64::NAN;
    }
    let autocorrelation = |lag: usize| {
        let covariance = centred
            .iter()
            .map(|c| c[lag..].iter().zip(c).map(|(a, b)| a * b).sum::<f64>() / n as f64)
            .sum::<f64>()
            / chains.len() as f64;
        1.0 - (within - covariance) / total
    };
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
    sorted[below] + (place - below as f64) * (sorted[above] - sorted[below])
}

/// Φ⁻¹((r − 3/8)/(N + 1/4)) in place of every draw, r its rank among all N, ties sharing theirs.
fn rank_normalise(chains: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let n = chains[0].len();
    let value = |at: usize| chains[at / n][at % n];
    let mut order: Vec<usize> = (0..n * chains.len()).collect();
    order.sort_by(|&a, &b| value(a).total_cmp(&value(b)));
    let mut normal = vec![vec![0.0; n]; chains.len()];
    for ties in order
        .chunk_by(|&a, &b| value(a) == value(b))
        .scan(0, |seen, ties| {
            let first = *seen;
            *seen += ties.len();
            Some((first, ties))
        })
    {
        let (first, ties) = ties;
        let rank = first as f64 + 0.5 * (ties.len() + 1) as f64;
        let z = normal_quantile((rank - 0.375) / (order.len() as f64 + 0.25));
        for &at in ties {
            normal[at / n][at % n] = z;
        }
    }
    normal
}

/// Φ⁻¹ to about 1e-15 (Wichura 1988, AS 241).
#[allow(clippy::excessive_precision)] // As published.
fn normal_quantile(p: f64) -> f64 {
    let ratio = |x: f64, top: &[f64; 8], bottom: &[f64; 7]| {
        let top = top.iter().fold(0.0, |sum, c| sum * x + c);
        let bottom = bottom.iter().fold(0.0, |sum, c| sum * x + c) * x + 1.0;
        top / bottom
    };
    let q = p - 0.5;
    if q.abs() <= 0.425 {
        return q * ratio(0.180625 - q * q, &CENTRE.0, &CENTRE.1);
    }
    let r = (-p.min(1.0 - p).ln()).sqrt();
    let z = if r <= 5.0 {
        ratio(r - 1.6, &MIDDLE.0, &MIDDLE.1)
    } else {
        ratio(r - 5.0, &TAIL.0, &TAIL.1)
    };
    z.copysign(q)
}

/// Numerator, highest power first, and denominator without its constant 1: |p − ½| ≤ 0.425.
const CENTRE: ([f64; 8], [f64; 7]) = (
    [
        2.5090809287301226727e+3,
        3.3430575583588128105e+4,
        6.7265770927008700853e+4,
        4.5921953931549871457e+4,
        1.3731693765509461125e+4,
        1.9715909503065514427e+3,
        1.3314166789178437745e+2,
        3.3871328727963666080e+0,
    ],
    [
        5.2264952788528545610e+3,
        2.8729085735721942674e+4,
        3.9307895800092710610e+4,
        2.1213794301586595867e+4,
        5.3941960214247511077e+3,
        6.8718700749205790830e+2,
        4.2313330701600911252e+1,
    ],
);

/// Down to p = e⁻²⁵.
const MIDDLE: ([f64; 8], [f64; 7]) = (
    [
        7.74545014278341407640e-4,
        2.27238449892691845833e-2,
        2.41780725177450611770e-1,
        1.27045825245236838258e+0,
        3.64784832476320460504e+0,
        5.76949722146069140550e+0,
        4.63033784615654529590e+0,
        1.42343711074968357734e+0,
    ],
    [
        1.05075007164441684324e-9,
        5.47593808499534494600e-4,
        1.51986665636164571966e-2,
        1.48103976427480074590e-1,
        6.89767334985100004550e-1,
        1.67638483018380384940e+0,
        2.05319162663775882187e+0,
    ],
);

/// Beyond.
const TAIL: ([f64; 8], [f64; 7]) = (
    [
        2.01033439929228813265e-7,
        2.71155556874348757815e-5,
        1.24266094738807843860e-3,
        2.65321895265761230930e-2,
        2.96560571828504891230e-1,
        1.78482653991729133580e+0,
        5.46378491116411436990e+0,
        6.65790464350110377720e+0,
    ],
    [
        2.04426310338993978564e-15,
        1.42151175831644588870e-7,
        1.84631831751005468180e-5,
        7.86869131145613259100e-4,
        1.48753612908506148525e-2,
        1.36929880922735805310e-1,
        5.99832206555887937690e-1,
    ],
);
