//! The chains of contrastive divergence: where they start, how they run, and their moments.

use super::ContrastiveOptions;
use super::parameters::Parameters;
use super::snapshot::{Snapshot, foreign};
use crate::Result;
use crate::error::Error;
use mpf_core::rng::substream;
use mpf_core::{Cancel, TracePoint};
use mpf_ising::{Samples, States, n_active};
use mpf_samplers::{Gibbs, Sampler};
use rand::{Rng, RngExt};
use rayon::prelude::*;

/// Chains that share a random stream and a task. Part of what a seed means.
const CHUNK: usize = 512;
/// Most chains that counts are spread over: one of 64 units takes 12 bytes.
const MAX_CHAINS: f64 = 5e7;

/// ⟨x_i⟩ of every unit and ⟨x_i x_j⟩ of the free pairs; sums until divided by their weight.
#[derive(Clone, Debug)]
pub(super) struct Moments {
    pub(super) units: Vec<f64>,
    pub(super) pairs: Vec<f64>,
    /// By number of active units.
    pub(super) counts: Vec<f64>,
    weight: f64,
}

/// A share of states below which the differences of shares are noise.
const RARE: f64 = 1e-3;

fn counts(states: &States, weight: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut counts = vec![0.0; states.n_units() + 1];
    for (m, row) in states.rows().enumerate() {
        counts[n_active(row)] += weight(m);
    }
    counts
}

impl Moments {
    pub(super) fn of_samples(samples: &Samples, pairs: &[(usize, usize)]) -> Self {
        let means = samples.pair_means();
        Self {
            units: means.diag().to_vec(),
            pairs: pairs.iter().map(|&pair| means[pair]).collect(),
            counts: counts(samples.states(), |m| {
                samples.weight(m) / samples.total_weight()
            }),
            weight: 1.0,
        }
    }

    /// Sums over at most one chunk of states; `weights` is empty when all are 1.
    fn sum(states: &States, weights: &[f64], pairs: &[(usize, usize)]) -> Self {
        let columns = states.columns();
        let words = states.n_samples().div_ceil(64);
        let column = |unit: usize| &columns[unit * words..(unit + 1) * words];
        let total = |mask: &mut dyn Iterator<Item = u64>| -> f64 {
            if weights.is_empty() {
                return f64::from(mask.map(u64::count_ones).sum::<u32>());
            }
            let mut sum = 0.0;
            for (w, mut rest) in mask.enumerate() {
                while rest != 0 {
                    sum += weights[64 * w + rest.trailing_zeros() as usize];
                    rest &= rest - 1;
                }
            }
            sum
        };
        Self {
            units: (0..states.n_units())
                .map(|i| total(&mut column(i).iter().copied()))
                .collect(),
            pairs: pairs
                .iter()
                .map(|&(i, j)| total(&mut column(i).iter().zip(column(j)).map(|(a, b)| a & b)))
                .collect(),
            counts: counts(states, |m| weights.get(m).copied().unwrap_or(1.0)),
            weight: if weights.is_empty() {
                states.n_samples() as f64
            } else {
                weights.iter().sum()
            },
        }
    }

    fn add(&mut self, other: &Self) {
        for (sums, parts) in [
            (&mut self.units, &other.units),
            (&mut self.pairs, &other.pairs),
            (&mut self.counts, &other.counts),
        ] {
            sums.iter_mut()
                .zip(parts)
                .for_each(|(sum, part)| *sum += part);
        }
        self.weight += other.weight;
    }

    /// Returns these means minus those of `other`.
    fn minus(mut self, other: &Self) -> Self {
        let (w, v) = (self.weight, other.weight);
        let means = self.units.iter_mut().chain(&mut self.pairs);
        for (mean, other) in means.zip(other.units.iter().chain(&other.pairs)) {
            *mean = *mean / w - other / v;
        }
        for (share, other) in self.counts.iter_mut().zip(&other.counts) {
            let (model, data) = (*share / w, other / v);
            *share = (model - data) / (0.5 * (model + data) + RARE);
        }
        self
    }
}

/// The chains and the data that they are contrasted with.
pub(super) struct Chains<'a> {
    samples: &'a Samples,
    sweeps: usize,
    seed: u64,
    cancel: Cancel,
    /// For every chain the distinct sample that it starts from; reordered when there are batches.
    origins: Vec<u32>,
    /// Whether chains carry the weights of their samples.
    weighted: bool,
    batch_size: usize,
    /// Where in `origins` the next batch begins.
    next: usize,
    epoch: u64,
    /// Where persistent chains are, and their weights.
    persistent: Option<(States, Vec<f64>)>,
}

/// What one task did.
struct ChunkRun {
    data: Option<Moments>,
    chains: Moments,
    states: States,
}

impl<'a> Chains<'a> {
    pub(super) fn new(options: &ContrastiveOptions, samples: &'a Samples) -> Result<Self> {
        // Chains know their sample by 32 bits.
        if u32::try_from(samples.n_distinct()).is_err() {
            return Err(Error::TooManySamples {
                n_samples: samples.n_distinct(),
                limit: u32::MAX as usize,
            });
        }
        let counts = samples.weights().unwrap_or(&[]);
        let weighted =
            counts.iter().any(|w| w.fract() != 0.0) || samples.total_weight() > MAX_CHAINS;
        let origins: Vec<u32> = (0..samples.n_distinct())
            .flat_map(|m| {
                let n = if weighted {
                    1
                } else {
                    samples.weight(m) as usize
                };
                std::iter::repeat_n(m as u32, n)
            })
            .collect();
        let batch_size = options
            .batch_size
            .map_or(origins.len(), |b| b.min(origins.len()));
        let mut chains = Self {
            samples,
            sweeps: options.sweeps,
            seed: options.seed,
            cancel: options.cancel.clone(),
            // Past the end: the first batch shuffles.
            next: origins.len(),
            origins,
            weighted,
            batch_size,
            epoch: 0,
            persistent: None,
        };
        if options.persistent {
            chains.next_batch();
            let batch = &chains.origins[chains.next - chains.batch_size..chains.next];
            chains.persistent = Some((chains.states(batch), chains.weights(batch)));
        }
        Ok(chains)
    }

    pub(super) fn snapshot(&self, parameters: &Parameters, trace: &[TracePoint]) -> Snapshot {
        Snapshot {
            couplings: parameters.couplings.clone(),
            sum: parameters.sum.clone(),
            trace: trace.to_vec(),
            origins: if self.is_full_batch() {
                Vec::new()
            } else {
                self.origins.clone()
            },
            next: self.next,
            epoch: self.epoch,
            persistent: self.persistent.clone(),
        }
    }

    /// Continues from `earlier`.
    pub(super) fn resume(&mut self, earlier: Snapshot) -> Result<()> {
        if !self.is_full_batch() {
            let n = self.samples.n_distinct();
            let known = earlier.origins.iter().all(|&m| (m as usize) < n);
            if earlier.origins.len() != self.origins.len() || !known {
                return Err(foreign("other samples").into());
            }
            self.origins = earlier.origins;
        }
        if earlier.next > self.origins.len() {
            return Err(foreign("batches of another size").into());
        }
        (self.next, self.epoch) = (earlier.next, earlier.epoch);
        let shape = |chains: &Option<(States, Vec<f64>)>| {
            let chains = chains.as_ref();
            chains.map(|(states, weights)| (states.n_units(), states.n_samples(), weights.len()))
        };
        if shape(&self.persistent) != shape(&earlier.persistent) {
            return Err(foreign("other chains").into());
        }
        self.persistent = earlier.persistent;
        Ok(())
    }

    pub(super) fn is_full_batch(&self) -> bool {
        self.batch_size == self.origins.len()
    }

    /// Returns whether the next batch is the first of an epoch.
    fn shuffles_next(&self) -> bool {
        !self.is_full_batch() && self.next.saturating_add(self.batch_size) > self.origins.len()
    }

    /// Moves on to the next batch, which then ends at `next`.
    fn next_batch(&mut self) {
        if self.is_full_batch() {
            self.next = self.origins.len();
            return;
        }
        if self.shuffles_next() {
            // Streams from the top of the range are not those of an update.
            let mut rng = substream(self.seed, u64::MAX - self.epoch);
            for last in (1..self.origins.len()).rev() {
                self.origins.swap(last, rng.random_range(0..=last));
            }
            self.epoch = self.epoch.wrapping_add(1);
            self.next = 0;
        }
        self.next += self.batch_size;
    }

    fn states(&self, origins: &[u32]) -> States {
        let mut states = States::new(self.samples.n_units()).expect("samples have units");
        for &m in origins {
            states.push(self.samples.states().row(m as usize));
        }
        states
    }

    /// Returns the weights of chains; none when all are 1.
    fn weights(&self, origins: &[u32]) -> Vec<f64> {
        if !self.weighted {
            return Vec::new();
        }
        origins
            .iter()
            .map(|&m| self.samples.weight(m as usize))
            .collect()
    }

    /// Returns ⟨·⟩_k − ⟨·⟩_0 of one update. `data` are the moments of all data, for full batches. `None`
    /// when cancelled on the way: all is then as it was before.
    pub(super) fn run(
        &mut self,
        gibbs: &Gibbs,
        pairs: &[(usize, usize)],
        update: usize,
        data: Option<&Moments>,
    ) -> Option<Moments> {
        let place = (self.next, self.epoch);
        let order = self.shuffles_next().then(|| self.origins.clone());
        self.next_batch();
        let batch = &self.origins[self.next - self.batch_size..self.next];
        let seed = substream(self.seed, update as u64).next_u64();
        let this = &*self;
        let runs: Option<Vec<ChunkRun>> = (0..self.batch_size.div_ceil(CHUNK))
            .into_par_iter()
            .map(|chunk| {
                let range = chunk * CHUNK..this.batch_size.min((chunk + 1) * CHUNK);
                let mut rng = substream(seed, chunk as u64);
                this.run_chunk(gibbs, pairs, batch, range, data.is_none(), &mut rng)
            })
            .collect();
        let Some(runs) = runs else {
            (self.next, self.epoch) = place;
            if let Some(order) = order {
                self.origins = order;
            }
            return None;
        };
        let sum = |part: fn(&ChunkRun) -> Option<&Moments>| {
            let mut parts = runs.iter().filter_map(part);
            let first = parts.next()?.clone();
            Some(parts.fold(first, |mut sum, part| {
                sum.add(part);
                sum
            }))
        };
        let chains = sum(|run| Some(&run.chains))?;
        let batch_data = sum(|run| run.data.as_ref());
        if let Some((states, _)) = &mut self.persistent {
            *states = States::new(states.n_units()).expect("samples have units");
            for run in &runs {
                states.append(&run.states);
            }
        }
        Some(chains.minus(data.or(batch_data.as_ref())?))
    }

    /// Runs the chains of a chunk; `None` when cancelled on the way.
    fn run_chunk<R: Rng + ?Sized>(
        &self,
        gibbs: &Gibbs,
        pairs: &[(usize, usize)],
        batch: &[u32],
        range: std::ops::Range<usize>,
        with_data: bool,
        rng: &mut R,
    ) -> Option<ChunkRun> {
        let goes_on = || (!self.cancel.is_cancelled()).then_some(());
        let origins = &batch[range.clone()];
        let data_weights = self.weights(origins);
        let (starts, weights) = match &self.persistent {
            None => (self.states(origins), data_weights.clone()),
            Some((states, weights)) => (
                states.slice(range.clone()),
                weights.get(range).unwrap_or(&[]).to_vec(),
            ),
        };
        let mut states = States::new(self.samples.n_units()).expect("samples have units");
        for row in starts.rows() {
            // A state of many units takes as long as a sweep.
            goes_on()?;
            let mut state = gibbs.state(row).expect("rows have the model's units");
            gibbs.step(&mut state, rng);
            for _ in 1..self.sweeps {
                goes_on()?;
                gibbs.step(&mut state, rng);
            }
            states.push(state.row());
        }
        Some(ChunkRun {
            data: with_data.then(|| Moments::sum(&self.states(origins), &data_weights, pairs)),
            chains: Moments::sum(&states, &weights, pairs),
            states,
        })
    }
}
