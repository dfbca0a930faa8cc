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
use mpf_core::rng::{Xoshiro256PlusPlus, stream, substream};
use mpf_core::{Cancel, Checkpoint, LocalModel, SiteData, StopReason, check_count, check_option};
use mpf_samplers::{LocalGibbs, Sampler};
use rand::{Rng, RngExt};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

type Overwrite = dyn Fn(&mut [f64]) + Send + Sync;

/// Turns a slope into the direction of a step.
#[derive(Clone)]
pub struct Direction(Arc<Overwrite>);

impl Direction {
    /// Makes one of a function that overwrites the slope.
    pub fn new(f: impl Fn(&mut [f64]) + Send + Sync + 'static) -> Self {
        Self(Arc::new(f))
    }
}

impl fmt::Debug for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Direction")
    }
}

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
    /// λ of ½ λ Σ c θ². Default 0.
    pub l2: f64,
    /// c, the share of every parameter in the penalty. Default empty: all 1.
    pub penalised: Vec<f64>,
    /// ⟨∂E/∂θ⟩_data, if it does not depend on θ. Default empty: that of a batch of samples.
    pub data_slope: Vec<f64>,
    /// The direction of a step. Default: the slope.
    pub direction: Option<Direction>,
    /// The seed of everything random. Default 0.
    pub seed: u64,
    /// The handle that stops the run.
    pub cancel: Cancel,
    /// Where unfinished work is kept. Default: nowhere.
    pub checkpoint: Checkpoint,
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
            penalised: Vec::new(),
            data_slope: Vec::new(),
            direction: None,
            seed: 0,
            cancel: Cancel::new(),
            checkpoint: Checkpoint::default(),
        }
    }
}

/// Parameters beyond this have run away.
const LIMIT: f64 = 500.0;

/// What contrastive divergence found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[must_use = "look at `stop` to see whether all updates were made"]
pub struct LocalContrasted {
    /// The parameters, averaged over the last fifth of the updates; the last ones if it was stopped
    /// before.
    pub theta: Vec<f64>,
    /// Updates made.
    pub updates: usize,
    /// [`StopReason::IterationLimit`] after all updates.
    pub stop: StopReason,
}

/// Everything that the next update depends on.
#[derive(Clone, Serialize, Deserialize)]
struct Progress {
    update: usize,
    theta: Vec<f64>,
    velocity: Vec<f64>,
    average: Vec<f64>,
    averaged: f64,
    chains: Vec<Vec<u8>>,
    rng: Xoshiro256PlusPlus,
}

/// Samples with the chance of their weight.
struct Batches<'a> {
    data: &'a SiteData,
    cumulative: Vec<f64>,
}

impl<'a> Batches<'a> {
    fn new(data: &'a SiteData) -> Self {
        let mut sum = 0.0;
        let add = |w: &f64| {
            sum += w;
            sum
        };
        let cumulative = data.weights().iter().map(add).collect();
        Self { data, cumulative }
    }

    fn draw(&self, n: usize, rng: &mut Xoshiro256PlusPlus) -> Vec<Vec<u8>> {
        let last = self.cumulative.len() - 1;
        let draw = |_| {
            let u = rng.random::<f64>() * self.cumulative[last];
            let at = self.cumulative.partition_point(|&c| c <= u);
            self.data.row(at.min(last)).to_vec()
        };
        (0..n).map(draw).collect()
    }
}

fn check(
    model: &impl LocalModel,
    data: &SiteData,
    start: &[f64],
    options: &LocalContrastiveOptions,
) -> Result<()> {
    check_count("sites of the data", model.n_sites(), data.n_sites())?;
    check_count("starting parameters", model.n_params(), start.len())?;
    for (name, list) in [
        ("penalised", &options.penalised),
        ("data_slope", &options.data_slope),
    ] {
        if !list.is_empty() {
            check_count(name, model.n_params(), list.len())?;
        }
    }
    for (name, n) in [
        ("updates", options.updates),
        ("sweeps", options.sweeps),
        ("batch_size", options.batch_size),
    ] {
        check_option(name, n as f64, "at least 1", n >= 1)?;
    }
    let (rate, momentum) = (options.learning_rate, options.momentum);
    let holds = rate > 0.0 && rate.is_finite();
    check_option("learning_rate", rate, "finite and positive", holds)?;
    // A step of the penalty alone would lead beyond 0, further and further.
    let (l2, holds) = (options.l2, options.l2 >= 0.0 && rate * options.l2 <= 2.0);
    check_option("l2", l2, "from 0 to 2/learning_rate (40 by default)", holds)?;
    let holds = (0.0..1.0).contains(&momentum);
    check_option("momentum", momentum, "from 0 to below 1", holds)?;
    Ok(())
}

/// Learns θ from `start`, and calls `observer` with the number of every update. Equal for any number
/// of threads.
///
/// # Errors
/// [`mpf_core::Error::Option`] for options out of range, [`mpf_core::Error::Count`] for data or a
/// start of another model, [`Error::RanAway`], those of a checkpoint.
pub fn local_contrastive(
    model: &impl LocalModel,
    data: &SiteData,
    start: &[f64],
    options: &LocalContrastiveOptions,
    mut observer: impl FnMut(usize),
) -> Result<LocalContrasted> {
    check(model, data, start, options)?;
    let batches = Batches::new(data);
    let mut at = match options.checkpoint.resume::<Progress>()? {
        Some(earlier) if earlier.theta.len() == start.len() => earlier,
        _ => {
            let mut rng = stream(options.seed, 0);
            Progress {
                update: 0,
                theta: start.to_vec(),
                velocity: vec![0.0; start.len()],
                average: vec![0.0; start.len()],
                averaged: 0.0,
                chains: batches.draw(options.batch_size, &mut rng),
                rng,
            }
        }
    };
    let mut stop = StopReason::IterationLimit;
    while at.update < options.updates {
        if let Some(reason) = options.cancel.reason() {
            stop = reason;
            break;
        }
        step(model, &batches, options, &mut at)?;
        observer(at.update);
        options.checkpoint.offer(|| at.clone());
    }
    if options.checkpoint.is_on() {
        options.checkpoint.note(at.clone());
    }
    let theta = match at.averaged {
        0.0 => at.theta,
        n => at.average.iter().map(|a| a / n).collect(),
    };
    Ok(LocalContrasted {
        theta,
        updates: at.update,
        stop,
    })
}

fn step(
    model: &impl LocalModel,
    batches: &Batches<'_>,
    options: &LocalContrastiveOptions,
    at: &mut Progress,
) -> Result<()> {
    let batch = batches.draw(options.batch_size, &mut at.rng);
    let gibbs = LocalGibbs::new(model, &at.theta, 1.0)?;
    let seed = substream(options.seed, 1 + at.update as u64).next_u64();
    let starts = if options.persistent {
        &at.chains
    } else {
        &batch
    };
    at.chains = starts
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
    let share = |k: usize| options.penalised.get(k).copied().unwrap_or(1.0);
    let theta = at.theta.iter().enumerate();
    let mut slope: Vec<f64> = theta.map(|(k, t)| options.l2 * share(k) * t).collect();
    let part = 1.0 / options.batch_size as f64;
    for y in &at.chains {
        model.add_energy_grad(&at.theta, y, -part, &mut slope);
    }
    if options.data_slope.is_empty() {
        for x in &batch {
            model.add_energy_grad(&at.theta, x, part, &mut slope);
        }
    }
    for (s, data) in slope.iter_mut().zip(&options.data_slope) {
        *s += data;
    }
    if let Some(direction) = &options.direction {
        (direction.0)(&mut slope);
    }
    let fraction = at.update as f64 / options.updates as f64;
    let rate = options.learning_rate * (1.0 - 0.9 * fraction);
    for ((t, v), s) in at.theta.iter_mut().zip(&mut at.velocity).zip(&slope) {
        *v = options.momentum * *v - rate * s;
        *t += *v;
    }
    at.update += 1;
    let ran_away = |t: &f64| t.is_nan() || t.abs() > LIMIT;
    if let Some(parameter) = at.theta.iter().position(ran_away) {
        return Err(Error::RanAway {
            update: at.update,
            parameter,
            value: at.theta[parameter],
        });
    }
    if 5 * at.update > 4 * options.updates {
        at.averaged += 1.0;
        for (a, t) in at.average.iter_mut().zip(&at.theta) {
            *a += t;
        }
    }
    Ok(())
}
