//! Contrastive divergence for any [`LocalModel`].
//!
//! ```text
//! v ← μ v − η_t (⟨∂E/∂θ⟩_data − ⟨∂E/∂θ⟩_chains),     θ ← θ + v
//! ```
//!
//! The chains make k Gibbs sweeps from a batch of samples (CD-k), or go on where the last update left
//! them (persistent CD). η_t falls linearly to a tenth; θ is averaged over the last fifth of the
//! updates. It minimises nothing, and what it finds depends on η and its schedule.

use crate::Result;
use crate::error::Error;
use mpf_core::rng::{stream, substream};
use mpf_core::{Cancel, LocalModel, SiteData, check_count, check_option};
use mpf_samplers::{LocalGibbs, Sampler};
use rand::{Rng, RngExt};
use rayon::prelude::*;

/// Options of [`local_contrastive`], unchecked.
#[derive(Clone, Debug)]
pub struct LocalContrastiveOptions {
    /// Updates. Default 2000.
    pub updates: usize,
    /// k, the sweeps of an update. Default 1.
    pub sweeps: usize,
    /// Whether chains go on from update to update. Default no.
    pub persistent: bool,
    /// Samples, and chains, of an update. Default 100.
    pub batch_size: usize,
    /// η at the first update. Default 0.05.
    pub learning_rate: f64,
    /// μ, below 1. Default 0.5.
    pub momentum: f64,
    /// λ of ½ λ Σ θ², on all parameters. Default 0.
    pub l2: f64,
    /// The seed of everything random. Default 0.
    pub seed: u64,
    /// The handle that stops the run.
    pub cancel: Cancel,
}

impl Default for LocalContrastiveOptions {
    fn default() -> Self {
        Self {
            updates: 2000,
            sweeps: 1,
            persistent: false,
            batch_size: 100,
            learning_rate: 0.05,
            momentum: 0.5,
            l2: 0.0,
            seed: 0,
            cancel: Cancel::new(),
        }
    }
}

/// Parameters beyond this have run away.
const LIMIT: f64 = 1000.0;

/// Learns θ from `start`. Equal for any number of threads.
///
/// # Errors
/// [`mpf_core::Error::Option`] for options out of range, [`mpf_core::Error::Count`] for data or a
/// start of another model, [`Error::RanAway`], [`mpf_core::Error::Cancelled`].
pub fn local_contrastive(
    model: &impl LocalModel,
    data: &SiteData,
    start: &[f64],
    options: &LocalContrastiveOptions,
) -> Result<Vec<f64>> {
    check_count("sites of the data", model.n_sites(), data.n_sites())?;
    check_count("starting parameters", model.n_params(), start.len())?;
    for (name, n) in [
        ("updates", options.updates),
        ("sweeps", options.sweeps),
        ("batch_size", options.batch_size),
    ] {
        check_option(name, n as f64, "at least 1", n >= 1)?;
    }
    let (rate, momentum) = (options.learning_rate, options.momentum);
    check_option(
        "learning_rate",
        rate,
        "finite and positive",
        rate > 0.0 && rate.is_finite(),
    )?;
    let holds = (0.0..1.0).contains(&momentum);
    check_option("momentum", momentum, "from 0 to below 1", holds)?;

    let cumulative: Vec<f64> = data
        .weights()
        .iter()
        .scan(0.0, |sum, w| {
            *sum += w;
            Some(*sum)
        })
        .collect();
    let total = cumulative[cumulative.len() - 1];
    let mut rng = stream(options.seed, 0);
    let mut draw = || {
        let u = rng.random::<f64>() * total;
        let at = cumulative.partition_point(|&c| c <= u);
        data.row(at.min(cumulative.len() - 1)).to_vec()
    };
    let mut chains: Vec<Vec<u8>> = (0..options.batch_size).map(|_| draw()).collect();
    let mut theta = start.to_vec();
    let mut velocity = vec![0.0; theta.len()];
    let (mut average, mut averaged) = (vec![0.0; theta.len()], 0.0);
    for update in 0..options.updates {
        if options.cancel.is_cancelled() {
            return Err(mpf_core::Error::Cancelled.into());
        }
        let batch: Vec<Vec<u8>> = (0..options.batch_size).map(|_| draw()).collect();
        let gibbs = LocalGibbs::new(model, &theta, 1.0)?;
        let seed = substream(options.seed, 1 + update as u64).next_u64();
        let starts = if options.persistent { &chains } else { &batch };
        chains = starts
            .par_iter()
            .enumerate()
            .map(|(chain, x)| {
                let mut rng = substream(seed, chain as u64);
                let mut state = gibbs.state(x)?;
                for _ in 0..options.sweeps {
                    gibbs.step(&mut state, &mut rng);
                }
                Ok(state.sites().to_vec())
            })
            .collect::<Result<_>>()?;
        let mut slope: Vec<f64> = theta.iter().map(|t| options.l2 * t).collect();
        let share = 1.0 / options.batch_size as f64;
        for (x, y) in batch.iter().zip(&chains) {
            model.add_energy_grad(&theta, x, share, &mut slope);
            model.add_energy_grad(&theta, y, -share, &mut slope);
        }
        let rate = rate * (1.0 - 0.9 * update as f64 / options.updates as f64);
        for ((t, v), s) in theta.iter_mut().zip(&mut velocity).zip(&slope) {
            *v = momentum * *v - rate * s;
            *t += *v;
        }
        if let Some(parameter) = theta.iter().position(|t| t.is_nan() || t.abs() > LIMIT) {
            return Err(Error::RanAway {
                update: update + 1,
                parameter,
                value: theta[parameter],
            });
        }
        if 5 * (update + 1) > 4 * options.updates {
            averaged += 1.0;
            for (a, t) in average.iter_mut().zip(&theta) {
                *a += t;
            }
        }
    }
    Ok(average.iter().map(|a| a / averaged).collect())
}
