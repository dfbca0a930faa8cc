//! Diagnostics of draws: effective sample size, R̂, standard errors.
//!
//! ```text
//! τ   = 1 + 2 Σ_{t≥1} ρ_t                        integrated autocorrelation time, in draws
//! ESS = (number of draws) / τ                     MCSE = sd / √ESS
//! R̂²  = (within-chain + between-chain variance) / within-chain variance
//! ```
//!
//! over *split* chains: each is cut in halves, which makes a drift show. ρ_t combines all chains
//! and is summed in pairs ρ_{2k} + ρ_{2k+1}, as long as they are positive and made monotone
//! (Geyer's initial sequences). Bulk ESS and R̂ are computed from rank-normalised draws, tail ESS from the
//! indicators of the 5 % and 95 % quantiles (Vehtari, Gelman, Simpson, Carpenter & Bürkner 2021).
//! An AR(1) process with coefficient ρ has τ = (1 + ρ)/(1 − ρ).
//!
//! Every function takes one series per chain, all finite and of one length. Draws near the ends of
//! `f64` are scaled, so their squares do not overflow. The diagnostics of a constant (the middle
//! one of an odd number of draws aside) are NaN; others are finite, but for the cases that their
//! functions name.
//!
//! [`Run::diagnose`](crate::Run::diagnose) looks at the energy and the number of active units, at
//! every unit, and at the overlaps of chains: modes of equal energy differ only in the latter two.
//! No diagnostic can see a part of the target that no chain has visited.

mod autocovariance;
mod bits;
mod normal;
mod run;
mod series;
#[cfg(test)]
mod tests;

use crate::Result;
use autocovariance::Autocovariance;
use serde::Serialize;
use series::{
    is_constant, mean_and_variance, pooled, quantile, rank_normalise, scaled_split, split,
};

pub use run::{Quantity, RunDiagnostics, Worst};

/// All diagnostics of one quantity.
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

impl Summary {
    /// Fewest draws per chain: quarter-chains of two.
    pub const MIN_DRAWS: usize = 8;
}

/// Computes every diagnostic of one quantity.
///
/// # Errors
/// As [`integrated_autocorrelation_time`].
pub fn summary<C: AsRef<[f64]>>(chains: &[C]) -> Result<Summary> {
    let tau = integrated_autocorrelation_time(chains)?;
    let (all, scale) = pooled(chains);
    let (mean, variance) = mean_and_variance(&all);
    Ok(Summary {
        // Rounding may lead beyond the largest draw; it must not overflow.
        mean: scale.undo(mean).clamp(f64::MIN, f64::MAX),
        standard_deviation: scale.undo(variance.sqrt()),
        mcse: scale.undo((variance * tau / all.len() as f64).sqrt()),
        bulk_ess: bulk_ess(chains)?,
        tail_ess: tail_ess(chains)?,
        rhat: rhat(chains)?,
        autocorrelation_time: tau,
    })
}

/// Returns τ of the mean: τ draws are worth one independent draw. At least
/// 1 / log₁₀(number of draws), lest draws that repel each other make the ESS infinite. NaN for a
/// constant. O(N) for N draws without memory, O(N log N) at worst.
///
/// # Errors
/// [`Error::TooFewDraws`](crate::Error::TooFewDraws) ([`Summary::MIN_DRAWS`] per chain are needed),
/// [`mpf_core::Error::Count`] for chains of different lengths,
/// [`Error::NonFiniteDraw`](crate::Error::NonFiniteDraw).
pub fn integrated_autocorrelation_time<C: AsRef<[f64]>>(chains: &[C]) -> Result<f64> {
    Ok(split_time(&scaled_split(chains)?))
}

/// Returns the effective sample size of the mean; NaN for a constant.
///
/// # Errors
/// As [`integrated_autocorrelation_time`].
pub fn ess<C: AsRef<[f64]>>(chains: &[C]) -> Result<f64> {
    Ok(split_ess(&scaled_split(chains)?))
}

/// Returns the effective sample size of the rank-normalised draws, also of use when the quantity
/// has no variance; NaN for a constant.
///
/// # Errors
/// As [`integrated_autocorrelation_time`].
pub fn bulk_ess<C: AsRef<[f64]>>(chains: &[C]) -> Result<f64> {
    Ok(split_ess(&rank_normalise(&split(chains)?)))
}

/// Returns the smaller effective sample size of the indicators x ≤ q₅ and x ≤ q₉₅, leaving out a
/// constant one, as for binary draws. NaN when both are constant: for a constant, or where 95 % of
/// the draws are the largest.
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

/// Returns the rank-normalised split R̂: the larger of that of the draws, which sees differences of
/// location, and of their distances from the median, which sees differences of scale. NaN for a
/// constant; +∞ when the draws, or the distances, are all equal within every half of a chain but
/// not between them.
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
    // `max` passes over NaN: folded binary draws may all be equal, which says nothing.
    Ok(location.max(split_rhat(&rank_normalise(&folded))))
}

/// Returns the Monte-Carlo standard error of the mean, sd / √ESS; NaN for a constant, +∞ on
/// overflow.
///
/// # Errors
/// As [`integrated_autocorrelation_time`].
pub fn mcse<C: AsRef<[f64]>>(chains: &[C]) -> Result<f64> {
    let (all, scale) = pooled(chains);
    let error = (mean_and_variance(&all).1 / ess(chains)?).sqrt();
    Ok(scale.undo(error))
}

fn split_ess(chains: &[Vec<f64>]) -> f64 {
    (chains.len() * chains[0].len()) as f64 / split_time(chains)
}

/// Returns Geyer's τ of chains that are already split.
fn split_time(chains: &[Vec<f64>]) -> f64 {
    if is_constant(chains) {
        return f64::NAN;
    }
    let mut autocovariance = Autocovariance::new(chains);
    time_of(chains.len(), chains[0].len(), variances(chains), |lag| {
        autocovariance.at(lag)
    })
}

/// Returns Geyer's τ of `n_chains` split chains of `n` draws from their variances and
/// autocovariances.
fn time_of(
    n_chains: usize,
    n: usize,
    (within, between): (f64, f64),
    mut autocovariance: impl FnMut(usize) -> f64,
) -> f64 {
    let total = within * (n - 1) as f64 / n as f64 + between;
    let mut autocorrelation = |lag: usize| 1.0 - (within - autocovariance(lag)) / total;
    let mut sum = 0.0;
    let mut smallest = f64::INFINITY;
    for lag in (0..n - 1).step_by(2) {
        // ρ_0 = 1 by definition; its estimate would differ by the 1/n of the variances.
        let even = if lag == 0 { 1.0 } else { autocorrelation(lag) };
        let pair = even + autocorrelation(lag + 1);
        if pair <= 0.0 {
            break;
        }
        smallest = pair.min(smallest);
        sum += smallest;
    }
    let draws = (n * n_chains) as f64;
    (2.0 * sum - 1.0).max(1.0 / draws.log10())
}

/// Returns R̂ of chains that are already split, at least two.
fn split_rhat(chains: &[Vec<f64>]) -> f64 {
    if is_constant(chains) {
        return f64::NAN;
    }
    // Means round, which would leave small variances instead of zero.
    if chains.chunks(1).all(is_constant) {
        return f64::INFINITY;
    }
    rhat_of(chains[0].len(), variances(chains))
}

/// Returns R̂ of split chains of `n` draws from their variances; +∞ without any within.
fn rhat_of(n: usize, (within, between): (f64, f64)) -> f64 {
    let n = n as f64;
    ((n - 1.0) / n + between / within).sqrt()
}

/// Returns the mean variance within chains, and the variance of their means.
fn variances(chains: &[Vec<f64>]) -> (f64, f64) {
    let (means, variances): (Vec<f64>, Vec<f64>) =
        chains.iter().map(|c| mean_and_variance(c)).unzip();
    let within = variances.iter().sum::<f64>() / variances.len() as f64;
    (within, mean_and_variance(&means).1)
}
