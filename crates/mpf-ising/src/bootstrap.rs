//! Standard errors by the moving-block bootstrap (Künsch 1989), for every method and every d.
//!
//! ```text
//! resample b: ⌈M/L⌉ blocks of L successive samples, starts uniform in 0 … M − L, cut at M samples
//! standard error of θ̂ = standard deviation of θ̂_b over the resamples
//! ```
//!
//! L = 1 is the ordinary bootstrap, for independent samples; otherwise L should be several
//! autocorrelation times. Resamples are fitted in parallel. Resample b draws from substream b of the
//! seed, so the result does not depend on the threads.
//!
//! Not for couplings that an ℓ1 penalty has set to zero: the bootstrap is inconsistent there. The
//! sandwich ([`Fitter::sandwich`](crate::Fitter::sandwich)), where it applies, gives the same in the
//! time of one fit.

use crate::bits::{Samples, States};
use crate::blocks::n_blocks;
use crate::couplings::Couplings;
use crate::error::{Error, check_units};
use crate::sandwich::ErrorBars;
use crate::support::pairs;
use mpf_core::rng::substream;
use mpf_core::{Checkpoint, check_option};
use rand::RngExt;
use rayon::prelude::*;

/// Options of [`bootstrap`].
#[derive(Clone, Debug)]
pub struct BootstrapOptions {
    /// The number of resamples. Default 200, which gives standard errors to 5 %.
    pub n_resamples: usize,
    /// L, the number of successive samples in a block. Default 1.
    pub block_length: usize,
    /// The same seed gives the same resamples. Default 0.
    pub seed: u64,
    /// Keeps the fits that are done. Default: off.
    pub checkpoint: Checkpoint,
}

impl Default for BootstrapOptions {
    fn default() -> Self {
        Self {
            n_resamples: 200,
            block_length: 1,
            seed: 0,
            checkpoint: Checkpoint::default(),
        }
    }
}

/// Returns the standard errors of the couplings that `fit` finds, from fits of resampled `states`.
/// Pairs that `fit` never frees have 0. Parameters beyond 10¹⁵⁰ may have +∞.
///
/// ```
/// use mpf_ising::{BootstrapOptions, Couplings, Exact, Fitter, bootstrap};
/// use ndarray::array;
///
/// let truth = Couplings::new(array![[0.5, -1.0], [-1.0, 0.2]])?;
/// let states = Exact::new(&truth)?.draw(1000, 1);
/// let fitter: Fitter = Fitter::default();
/// let errors = bootstrap(&states, &BootstrapOptions::default(), |resample| {
///     Ok::<_, mpf_ising::Error>(fitter.fit(resample)?.couplings)
/// })?;
/// assert!((0.02..0.06).contains(&errors.couplings[0][1]));
/// # Ok::<(), mpf_ising::Error>(())
/// ```
///
/// # Errors
/// [`Error::BlockLength`]; [`mpf_core::Error::Option`] for fewer than two resamples; those of `fit`;
/// [`Error::UnitCount`] if it returns couplings of other units.
pub fn bootstrap<E: From<Error> + From<mpf_core::Error> + Send>(
    states: &States,
    options: &BootstrapOptions,
    fit: impl Fn(&Samples) -> Result<Couplings, E> + Sync,
) -> Result<ErrorBars, E> {
    let n = states.n_samples();
    n_blocks(n, options.block_length)?;
    let n_resamples = options.n_resamples;
    let enough = n_resamples >= 2;
    check_option("n_resamples", n_resamples as f64, "at least 2", enough)?;
    let fits = (0..options.n_resamples)
        .into_par_iter()
        .map(|b| {
            options.checkpoint.unit(format!("resample {b}"), |_| {
                fit(&resample(states, options, b as u64)?)
            })
        })
        .collect::<Result<Vec<Couplings>, E>>()?;
    let d = states.n_units();
    for fit in &fits {
        check_units("couplings of a resample", d, fit.n_units())?;
    }
    let spins: Vec<_> = fits.iter().map(Couplings::to_spins).collect();
    let pairs: Vec<_> = pairs(d).collect();
    let variances = |n: usize, value: &dyn Fn(usize, usize) -> f64| -> Vec<f64> {
        (0..n)
            .map(|k| variance((0..fits.len()).map(|b| value(b, k))))
            .collect()
    };
    Ok(ErrorBars::from_variances(
        &variances(d, &|b, i| spins[b].fields[i]),
        &variances(d, &|b, i| fits[b].get(i, i)),
        &pairs,
        &variances(pairs.len(), &|b, q| spins[b].couplings[pairs[q]]),
    ))
}

fn resample(states: &States, options: &BootstrapOptions, b: u64) -> Result<Samples, Error> {
    let n = states.n_samples();
    let length = options.block_length;
    let mut rng = substream(options.seed, b);
    let mut counts = vec![0.0; n];
    let mut left = n;
    while left > 0 {
        let start = rng.random_range(0..=n - length);
        let taken = length.min(left);
        counts[start..start + taken]
            .iter_mut()
            .for_each(|c| *c += 1.0);
        left -= taken;
    }
    Samples::weighted(states, &counts)
}

fn variance(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let n = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / n;
    values.map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1.0)
}
