//! ln Z of any Ising model by annealed importance sampling (Neal 2001).
//!
//! ```text
//! x_1 uniform;   x_{k+1} by one Gibbs sweep at β_k from x_k;   0 = β_0 < β_1 < … < β_n = 1
//! ln w = −Σ_k (β_k − β_{k−1}) E(x_k)          Z = 2^d ⟨w⟩
//! ```
//!
//! over independent chains, β_k = (k/n)², denser where the energy changes fastest. The estimate of
//! Z is unbiased for any number of sweeps; that of ln Z is low by about half of its squared
//! standard error. The standard error comes from the spread of the weights and is only as good as
//! their number: believe it while [`AnnealedEstimate::effective_chains`] is in the tens. Cold
//! models need more sweeps, not more chains. Up to 24 units [`mpf_ising::Exact`], and on narrow
//! lattices [`ExactLattice`](crate::ExactLattice), have no error at all.

use crate::Result;
use crate::gibbs::{Gibbs, Scan};
use crate::sampler::Heated;
use mpf_core::rng::substream;
use mpf_core::{Cancel, check_not_zero, check_option};
use mpf_ising::Couplings;
use rayon::prelude::*;
use serde::Serialize;

/// Options of [`annealed_log_z`], unchecked.
#[derive(Clone, Debug)]
pub struct AnnealedOptions {
    /// Number of chains. Default 200.
    pub n_chains: usize,
    /// Number of temperatures n, with a sweep at each. Default 1000.
    pub n_levels: usize,
    /// The seed of the chains. Default 0.
    pub seed: u64,
    /// The handle that stops the run.
    pub cancel: Cancel,
}

impl Default for AnnealedOptions {
    fn default() -> Self {
        Self {
            n_chains: 200,
            n_levels: 1000,
            seed: 0,
            cancel: Cancel::new(),
        }
    }
}

/// An estimate of ln Z.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AnnealedEstimate {
    /// ln Z.
    pub log_z: f64,
    /// Its standard error.
    pub standard_error: f64,
    /// The number of equally weighted chains that the weights are worth: (Σ w)² / Σ w².
    pub effective_chains: f64,
}

/// Estimates ln Z, the same for any number of threads. O(chains · levels · d) for sparse models.
///
/// ```
/// use mpf_ising::Couplings;
/// use mpf_samplers::{AnnealedOptions, annealed_log_z};
/// use ndarray::array;
///
/// let j = Couplings::new(array![[1.0, -1.0], [-1.0, 0.5]])?;
/// // States 00, 10, 01, 11 have the energies 0, 1, ½, −½.
/// let z = 1.0 + (-1f64).exp() + (-0.5f64).exp() + 0.5f64.exp();
/// let found = annealed_log_z(&j, &AnnealedOptions::default())?;
/// assert!((found.log_z - z.ln()).abs() < 5.0 * found.standard_error);
/// assert!(found.standard_error < 0.01);
/// # Ok::<(), mpf_samplers::Error>(())
/// ```
///
/// # Errors
/// [`mpf_core::Error::Option`] for fewer than two chains or no levels,
/// [`Error::CouplingsTooLarge`](crate::Error::CouplingsTooLarge),
/// [`mpf_core::Error::Cancelled`].
pub fn annealed_log_z(
    couplings: &Couplings,
    options: &AnnealedOptions,
) -> Result<AnnealedEstimate> {
    let log_states = couplings.n_units() as f64 * 2f64.ln();
    annealed_log_z_of(log_states, options, |beta| {
        Gibbs::at_inverse_temperature(couplings, Scan::Sequential, beta)
    })
}

/// As [`annealed_log_z`], for any sampler that `level` makes for a β; `log_states` is ln Z at β = 0,
/// where its random start must be a draw.
///
/// # Errors
/// As [`annealed_log_z`], and those of `level`.
pub fn annealed_log_z_of<G: Heated>(
    log_states: f64,
    options: &AnnealedOptions,
    level: impl Fn(f64) -> Result<G>,
) -> Result<AnnealedEstimate> {
    let (n, levels) = (options.n_chains, options.n_levels);
    check_option("n_chains", n as f64, "at least 2", n >= 2)?;
    check_not_zero("n_levels", levels)?;
    let beta = |k: usize| {
        let share = k as f64 / levels as f64;
        share * share
    };
    let hottest = level(0.0)?;
    let mut chains = (0..n as u64)
        .map(|chain| {
            options.cancel.check()?;
            let mut rng = substream(options.seed, chain);
            let state = hottest.random_start(&mut rng)?;
            Ok((rng, state, 0.0))
        })
        .collect::<Result<Vec<_>>>()?;
    // Levels in the outer loop: only one sampler is held at a time.
    for k in 1..=levels {
        options.cancel.check()?;
        let gibbs = level(beta(k))?;
        let rise = beta(k) - beta(k - 1);
        chains.par_iter_mut().for_each(|(rng, state, log_weight)| {
            *log_weight -= rise * gibbs.energy(state);
            if k < levels {
                gibbs.step(state, rng);
            }
        });
    }
    let log_weights: Vec<f64> = chains.iter().map(|(_, _, w)| *w).collect();
    let largest = log_weights.iter().fold(f64::NEG_INFINITY, |m, w| m.max(*w));
    let weights: Vec<f64> = log_weights.iter().map(|w| (w - largest).exp()).collect();
    let count = n as f64;
    let sum: f64 = weights.iter().sum();
    let squares: f64 = weights.iter().map(|w| w * w).sum();
    let mean = sum / count;
    let variance = weights.iter().map(|w| (w - mean) * (w - mean)).sum::<f64>() / (count - 1.0);
    Ok(AnnealedEstimate {
        log_z: log_states + largest + mean.ln(),
        standard_error: (variance / count).sqrt() / mean,
        effective_chains: sum * sum / squares,
    })
}
