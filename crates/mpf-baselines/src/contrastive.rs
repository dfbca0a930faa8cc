//! Contrastive divergence (Hinton; paper, Eq. `CDstep` and Appendix E).
//!
//! ```text
//! ΔJ_ij = η_t (⟨x_i x_j⟩_k − ⟨x_i x_j⟩_0)        i ≠ j, both entries alike
//! ΔJ_ii = η_t (⟨x_i⟩_k − ⟨x_i⟩_0)
//! ```
//!
//! ⟨·⟩_0 is the mean over the data, ⟨·⟩_k that over chains which started at the data and made k
//! Gibbs sweeps each ([`mpf_samplers::Gibbs`], units 0, 1, …, d − 1). This is Eq. `CDstep` with
//! ∂E/∂J taken entry by entry, ∂E/∂J_ij = x_i x_j, so that J_ij and J_ji each get one share and
//! η means the same on and off the diagonal; η_t falls linearly from 3.0 to 0.1 over the updates.
//! On the paper's 10×10 spin glass (σ² = 10, lattice couplings only, M = 2·10⁴, CD-1) the median
//! ε_J over five J's is then .44, .25, .12 and .08 after 10, 100, 500 and 1000 updates; J's differ
//! by a factor of two to three. (∂E/∂J_ij = 2 x_i x_j of the tied pair would double the steps off
//! the diagonal: .40 and .23 after 10 and 100.)
//!
//! When *not* to use it: it minimises nothing and need not converge, its steps are in the badly
//! scaled parameters of 0/1 units, and its answer depends on η. For Ising models MPF and
//! pseudolikelihood are better in every respect; it is here because the paper compares with it.

use crate::Result;
use crate::error::Error;
use crate::max_likelihood::independent_bias;
use mpf_core::rng::substream;
use mpf_core::{Cancel, StopReason, TracePoint};
use mpf_ising::{Biases, Couplings, Fit, FitProgress, Samples, States, Support, Warning};
use mpf_samplers::{Gibbs, Sampler};
use ndarray::Array2;
use rand::{Rng, RngExt};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// Chains that share a random stream and a task. Part of what a seed means.
const CHUNK: usize = 512;
/// Most chains that counts are spread over: one of 64 units takes 12 bytes.
const MAX_CHAINS: f64 = 5e7;
/// Larger parameters than this are no model of binary data: at a log odds of 37 a unit that could
/// still change would do so once in 10¹⁶ draws.
const LIMIT: f64 = 1000.0;

/// η_t, linear in t from the first update to the last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearningRate {
    /// η of the first update.
    pub first: f64,
    /// η of the last.
    pub last: f64,
}

impl LearningRate {
    fn at(self, update: usize, updates: usize) -> f64 {
        let done = update as f64 / (updates.max(2) - 1) as f64;
        self.first + done * (self.last - self.first)
    }
}

impl Default for LearningRate {
    /// The paper's: from 3.0 to 0.1.
    fn default() -> Self {
        Self {
            first: 3.0,
            last: 0.1,
        }
    }
}

/// Options of [`ContrastiveDivergence`], unchecked.
#[derive(Clone, Debug)]
pub struct ContrastiveOptions {
    /// k: Gibbs sweeps per update. Default 1.
    pub sweeps: usize,
    /// How many updates. Default 1000.
    pub updates: usize,
    /// The learning rate. Default: the paper's.
    pub learning_rate: LearningRate,
    /// Chains per update, drawn from the data without repeats until all have had their turn.
    /// Default `None`, and whatever is not fewer than the data: all, as in the paper.
    pub batch_size: Option<usize>,
    /// Whether chains go on where the last update left them, instead of starting at the data
    /// again: stochastic maximum likelihood. Default no.
    pub persistent: bool,
    /// The free couplings. Default: all.
    pub support: Support,
    /// The biases. Default: free.
    pub biases: Biases,
    /// Where to start. Default: zero (every state equally likely).
    pub start: Option<Couplings>,
    /// What all randomness comes from. Default 0.
    pub seed: u64,
    /// Most seconds of learning time. Default unlimited.
    pub max_seconds: f64,
    /// The handle that stops the run before its next update. Default: one that nobody else holds.
    pub cancel: Cancel,
    /// Goes on from a snapshot of an earlier run on the same data with the same options, instead
    /// of from `start`. Default: none.
    pub resume: Option<ContrastiveSnapshot>,
}

/// CD between two updates: everything that it takes to go on to the same bits. It can be written
/// and read with any `serde` format that keeps every bit of a number. It knows neither data nor
/// options: whoever keeps one must see to it that they are the same.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ContrastiveSnapshot {
    couplings: Couplings,
    /// One point per update.
    trace: Vec<TracePoint>,
    /// The order in which chains take turns; empty where every update has all of them.
    origins: Vec<u32>,
    next: usize,
    /// How often the order was dealt. With it and the number of the update, the seed gives the
    /// random streams of all that follows.
    epoch: u64,
    /// Where persistent chains are, and their weights.
    persistent: Option<(States, Vec<f64>)>,
}

impl ContrastiveSnapshot {
    /// Updates done.
    pub fn updates(&self) -> usize {
        self.trace.len()
    }

    /// Learning time so far, in seconds.
    pub fn seconds(&self) -> f64 {
        self.trace.last().map_or(0.0, |point| point.seconds)
    }
}

impl Default for ContrastiveOptions {
    fn default() -> Self {
        Self {
            sweeps: 1,
            updates: 1000,
            learning_rate: LearningRate::default(),
            batch_size: None,
            persistent: false,
            support: Support::default(),
            biases: Biases::default(),
            start: None,
            seed: 0,
            max_seconds: f64::INFINITY,
            cancel: Cancel::new(),
            resume: None,
        }
    }
}

/// CD-k with checked options.
///
/// Every sample is a chain; of data with weights that are not counts (or with more than 5·10⁷
/// of them), every distinct sample is one chain that carries its weight. The result is the same
/// for any number of threads.
///
/// In the [`Fit`], an iteration is an update, and there is no objective: `value` is the root mean
/// square over the free parameters, and `kkt_residual` the largest size, of the last ⟨·⟩_k − ⟨·⟩_0
/// (noise included, so about 1/√M at best). `stop` is [`StopReason::IterationLimit`] when all
/// updates were made.
///
/// ```
/// use mpf_baselines::{ContrastiveDivergence, ContrastiveOptions};
/// use mpf_ising::{Couplings, Exact, Samples};
/// use ndarray::array;
///
/// let truth = Couplings::new(array![[0.5, -1.0], [-1.0, 0.2]])?;
/// let states = Exact::new(&truth)?.draw(20_000, &mut mpf_core::rng::stream(1, 0));
/// let learner = ContrastiveDivergence::new(ContrastiveOptions {
///     updates: 200,
///     ..Default::default()
/// })?;
/// let fit = learner.fit(&Samples::new(&states)?)?;
/// assert!(fit.couplings.mean_square_error(&truth) < 0.01);
/// # Ok::<(), mpf_baselines::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ContrastiveDivergence {
    options: ContrastiveOptions,
}

impl ContrastiveDivergence {
    /// Checks the options.
    ///
    /// # Errors
    /// [`Error::Option`] for no sweeps, no updates, empty batches, a learning rate that is not
    /// positive and finite, or a time limit that is negative or NaN.
    pub fn new(options: ContrastiveOptions) -> Result<Self> {
        for (name, count) in [
            ("sweeps", options.sweeps),
            ("updates", options.updates),
            ("batch_size", options.batch_size.unwrap_or(1)),
        ] {
            if count == 0 {
                return Err(Error::Option {
                    name,
                    value: 0.0,
                    requirement: "at least 1",
                });
            }
        }
        for (name, rate) in [
            ("learning_rate.first", options.learning_rate.first),
            ("learning_rate.last", options.learning_rate.last),
        ] {
            if !(rate > 0.0 && rate.is_finite()) {
                return Err(Error::Option {
                    name,
                    value: rate,
                    requirement: "positive and finite",
                });
            }
        }
        // NaN is not a limit.
        if options.max_seconds.is_nan() || options.max_seconds < 0.0 {
            return Err(Error::Option {
                name: "max_seconds",
                value: options.max_seconds,
                requirement: "a number that is not negative",
            });
        }
        Ok(Self { options })
    }

    /// Learns.
    ///
    /// # Errors
    /// [`Error::Diverged`] when a parameter runs away;
    /// [`mpf_ising::Error::UnitCount`], [`mpf_ising::Error::NotFinite`] and
    /// [`mpf_ising::Error::Edge`] for a start, biases or a support of other units;
    /// [`Error::OtherSnapshot`] for a snapshot that cannot be one of this run.
    pub fn fit(&self, samples: &Samples) -> Result<Fit> {
        self.fit_observed(samples, |_| {})
    }

    /// As [`ContrastiveDivergence::fit`], calling `observer` after every update.
    ///
    /// # Errors
    /// As [`ContrastiveDivergence::fit`].
    pub fn fit_observed(
        &self,
        samples: &Samples,
        mut observer: impl FnMut(&FitProgress<'_>),
    ) -> Result<Fit> {
        let fitted = self.fit_with_snapshots(samples, |progress, _| observer(progress));
        fitted.map(|(fit, _)| fit)
    }

    /// As [`ContrastiveDivergence::fit_observed`]; the observer can have a snapshot after every
    /// update, and the one of the last update comes with the result.
    ///
    /// # Errors
    /// As [`ContrastiveDivergence::fit`].
    pub fn fit_with_snapshots(
        &self,
        samples: &Samples,
        mut observer: impl FnMut(&FitProgress<'_>, &dyn Fn() -> ContrastiveSnapshot),
    ) -> Result<(Fit, ContrastiveSnapshot)> {
        let options = &self.options;
        let mut clock = Instant::now();
        let mut parameters = Parameters::new(options, samples)?;
        let mut chains = Chains::new(options, samples);
        let data = chains
            .is_full_batch()
            .then(|| Moments::of_samples(samples, &parameters.pairs));
        let mut trace: Vec<TracePoint> = Vec::new();
        let mut seconds = 0.0;
        if let Some(earlier) = &options.resume {
            parameters.resume(earlier)?;
            chains.resume(earlier)?;
            trace.clone_from(&earlier.trace);
            seconds = earlier.seconds();
        }
        let stop = loop {
            let update = trace.len();
            if update >= options.updates {
                break StopReason::IterationLimit;
            }
            if options.cancel.is_cancelled() {
                break StopReason::Cancelled;
            }
            if seconds + clock.elapsed().as_secs_f64() >= options.max_seconds {
                break StopReason::TimeLimit;
            }
            let gibbs = Gibbs::new(&parameters.couplings)?;
            let moments = chains.run(&gibbs, &parameters.pairs, update, data.as_ref());
            let rate = options.learning_rate.at(update, options.updates);
            let (value, gradient_norm) = parameters.update(&moments, rate, update + 1)?;
            seconds += clock.elapsed().as_secs_f64();
            trace.push(TracePoint {
                iteration: update + 1,
                evaluations: update + 1,
                value,
                gradient_norm,
                seconds,
            });
            let point = trace[update];
            observer(
                &FitProgress::new(point, &|| parameters.couplings.clone()),
                &|| chains.snapshot(&parameters, &trace),
            );
            clock = Instant::now();
        };
        let snapshot = chains.snapshot(&parameters, &trace);
        let last = trace.last();
        let kkt_residual = last.map_or(0.0, |p| p.gradient_norm);
        let couplings = parameters.couplings;
        let weight = samples.total_weight();
        let mut warnings = Vec::new();
        warnings.extend(Warning::constant_units(&parameters.means));
        warnings.extend(Warning::run_away(&couplings, &parameters.pairs, weight));
        warnings.extend(Warning::run_away_fields(
            &couplings,
            &parameters.means,
            weight,
        ));
        if stop != StopReason::IterationLimit {
            warnings.extend(Warning::not_converged(stop, kkt_residual));
        }
        let fit = Fit {
            couplings,
            value: last.map_or(0.0, |p| p.value),
            stop,
            kkt_residual,
            iterations: trace.len(),
            evaluations: trace.len(),
            seconds,
            left_out_fraction: 0.0,
            asymmetry: None,
            warnings,
            trace,
            snapshot: None,
        };
        Ok((fit, snapshot))
    }
}

/// ⟨x_i⟩ of every unit and ⟨x_i x_j⟩ of the free pairs; sums until divided by their weight.
#[derive(Clone, Debug)]
struct Moments {
    units: Vec<f64>,
    pairs: Vec<f64>,
    weight: f64,
}

impl Moments {
    fn of_samples(samples: &Samples, pairs: &[(usize, usize)]) -> Self {
        let means = samples.pair_means();
        Self {
            units: means.diag().to_vec(),
            pairs: pairs.iter().map(|&pair| means[pair]).collect(),
            weight: 1.0,
        }
    }

    fn none(n_units: usize, n_pairs: usize) -> Self {
        Self {
            units: vec![0.0; n_units],
            pairs: vec![0.0; n_pairs],
            weight: 0.0,
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
            weight: if weights.is_empty() {
                states.n_samples() as f64
            } else {
                weights.iter().sum()
            },
        }
    }

    fn add(&mut self, other: &Self) {
        for (sum, part) in self.units.iter_mut().zip(&other.units) {
            *sum += part;
        }
        for (sum, part) in self.pairs.iter_mut().zip(&other.pairs) {
            *sum += part;
        }
        self.weight += other.weight;
    }

    /// Our means minus those of `other`.
    fn minus(mut self, other: &Self) -> Self {
        let (w, v) = (self.weight, other.weight);
        for (mean, other) in self.units.iter_mut().zip(&other.units) {
            *mean = *mean / w - other / v;
        }
        for (mean, other) in self.pairs.iter_mut().zip(&other.pairs) {
            *mean = *mean / w - other / v;
        }
        self
    }
}

/// The chains and the data that they are contrasted with.
struct Chains<'a> {
    samples: &'a Samples,
    sweeps: usize,
    seed: u64,
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
    fn new(options: &ContrastiveOptions, samples: &'a Samples) -> Self {
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
        chains
    }

    fn snapshot(&self, parameters: &Parameters, trace: &[TracePoint]) -> ContrastiveSnapshot {
        ContrastiveSnapshot {
            couplings: parameters.couplings.clone(),
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

    /// Goes to where `earlier` was.
    fn resume(&mut self, earlier: &ContrastiveSnapshot) -> Result<()> {
        let wrong = |what| Err(Error::OtherSnapshot { what });
        if !self.is_full_batch() {
            // The same chains in another order.
            let sorted = |origins: &[u32]| {
                let mut sorted = origins.to_vec();
                sorted.sort_unstable();
                sorted
            };
            if sorted(&self.origins) != sorted(&earlier.origins) {
                return wrong("other samples");
            }
            self.origins.clone_from(&earlier.origins);
        } else if !earlier.origins.is_empty() {
            return wrong("mini-batches");
        }
        let starts = earlier.next.checked_sub(self.batch_size);
        if starts.is_none() || earlier.next > self.origins.len() {
            return wrong("batches of another size");
        }
        (self.next, self.epoch) = (earlier.next, earlier.epoch);
        let shape = |chains: &Option<(States, Vec<f64>)>| {
            let chains = chains.as_ref();
            chains.map(|(states, weights)| (states.n_units(), states.n_samples(), weights.len()))
        };
        if shape(&self.persistent) != shape(&earlier.persistent) {
            return wrong("other chains");
        }
        self.persistent.clone_from(&earlier.persistent);
        Ok(())
    }

    fn is_full_batch(&self) -> bool {
        self.batch_size == self.origins.len()
    }

    /// Moves on to the next batch, which then ends at `next`.
    fn next_batch(&mut self) {
        if self.is_full_batch() {
            self.next = self.origins.len();
            return;
        }
        if self.next + self.batch_size > self.origins.len() {
            // Streams from the top of the range are not those of an update.
            let mut rng = substream(self.seed, u64::MAX - self.epoch);
            for last in (1..self.origins.len()).rev() {
                self.origins.swap(last, rng.random_range(0..=last));
            }
            self.epoch += 1;
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

    /// Empty when all are 1.
    fn weights(&self, origins: &[u32]) -> Vec<f64> {
        if !self.weighted {
            return Vec::new();
        }
        origins
            .iter()
            .map(|&m| self.samples.weight(m as usize))
            .collect()
    }

    /// ⟨·⟩_k − ⟨·⟩_0 of one update. `data` are the moments of all data, for full batches.
    fn run(
        &mut self,
        gibbs: &Gibbs,
        pairs: &[(usize, usize)],
        update: usize,
        data: Option<&Moments>,
    ) -> Moments {
        self.next_batch();
        let batch = &self.origins[self.next - self.batch_size..self.next];
        let seed = substream(self.seed, update as u64).next_u64();
        let this = &*self;
        let runs: Vec<ChunkRun> = (0..self.batch_size.div_ceil(CHUNK))
            .into_par_iter()
            .map(|chunk| {
                let range = chunk * CHUNK..this.batch_size.min((chunk + 1) * CHUNK);
                let mut rng = substream(seed, chunk as u64);
                this.run_chunk(gibbs, pairs, batch, range, data.is_none(), &mut rng)
            })
            .collect();
        let none = || Moments::none(self.samples.n_units(), pairs.len());
        let (mut chains, mut batch_data) = (none(), none());
        for run in &runs {
            chains.add(&run.chains);
            if let Some(data) = &run.data {
                batch_data.add(data);
            }
        }
        if let Some((states, _)) = &mut self.persistent {
            *states = States::new(states.n_units()).expect("samples have units");
            for run in &runs {
                states.append(&run.states);
            }
        }
        chains.minus(data.unwrap_or(&batch_data))
    }

    fn run_chunk<R: Rng + ?Sized>(
        &self,
        gibbs: &Gibbs,
        pairs: &[(usize, usize)],
        batch: &[u32],
        range: std::ops::Range<usize>,
        with_data: bool,
        rng: &mut R,
    ) -> ChunkRun {
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
            let mut state = gibbs.state(row).expect("rows have the model's units");
            for _ in 0..self.sweeps {
                gibbs.step(&mut state, rng);
            }
            states.push(state.row());
        }
        ChunkRun {
            data: with_data.then(|| Moments::sum(&self.states(origins), &data_weights, pairs)),
            chains: Moments::sum(&states, &weights, pairs),
            states,
        }
    }
}

/// J and which of it is free.
struct Parameters {
    couplings: Couplings,
    pairs: Vec<(usize, usize)>,
    means: Vec<f64>,
    /// Units whose J_ii is learned.
    free_biases: Vec<usize>,
    /// The h of the units that have theirs fixed: J_ii follows from the couplings.
    fixed_fields: Option<Vec<f64>>,
}

impl Parameters {
    fn new(options: &ContrastiveOptions, samples: &Samples) -> Result<Self> {
        let d = samples.n_units();
        options.biases.check(d)?;
        let start = options
            .start
            .clone()
            .map_or_else(|| Couplings::zeros(d), Ok)?;
        if start.n_units() != d {
            return Err(mpf_ising::Error::UnitCount {
                what: "starting couplings",
                expected: d,
                found: start.n_units(),
            }
            .into());
        }
        let means = samples.means();
        let varies: Vec<bool> = means.iter().map(|&m| m > 0.0 && m < 1.0).collect();
        let mut pairs = options.support.pairs(d)?;
        pairs.retain(|&(i, j)| varies[i] && varies[j]);
        let mut j = Array2::zeros((d, d));
        for &(a, b) in &pairs {
            j[[a, b]] = start.get(a, b);
            j[[b, a]] = start.get(a, b);
        }
        let mut free_biases = Vec::new();
        let mut fixed_fields = None;
        match &options.biases {
            Biases::Free => {
                for i in 0..d {
                    if varies[i] {
                        free_biases.push(i);
                        j[[i, i]] = start.get(i, i);
                    } else {
                        j[[i, i]] = independent_bias(means[i], samples.total_weight());
                    }
                }
            }
            Biases::Fixed(biases) => {
                for (i, &bias) in biases.iter().enumerate() {
                    j[[i, i]] = bias;
                }
            }
            Biases::FixedFields(fields) => {
                set_fields(&mut j, fields);
                fixed_fields = Some(fields.clone());
            }
        }
        if pairs.is_empty() && free_biases.is_empty() {
            return Err(mpf_ising::Error::NothingFree.into());
        }
        Ok(Self {
            couplings: Couplings::new(j)?,
            pairs,
            means,
            free_biases,
            fixed_fields,
        })
    }

    /// Goes to where `earlier` was.
    fn resume(&mut self, earlier: &ContrastiveSnapshot) -> Result<()> {
        if earlier.couplings.n_units() != self.couplings.n_units() {
            return Err(Error::OtherSnapshot {
                what: "other units",
            });
        }
        self.couplings = earlier.couplings.clone();
        Ok(())
    }

    /// One step along `off` = ⟨·⟩_k − ⟨·⟩_0. Returns the root mean square and the largest size of
    /// its entries at the free parameters.
    fn update(&mut self, off: &Moments, rate: f64, update: usize) -> Result<(f64, f64)> {
        let mut j = self.couplings.as_array().clone();
        let (mut squares, mut largest) = (0.0, 0.0f64);
        let mut note = |slope: f64| {
            squares += slope * slope;
            largest = largest.max(slope.abs());
        };
        for (&(a, b), &pair) in self.pairs.iter().zip(&off.pairs) {
            // With fixed fields, J_aa and J_bb fall as J_ab grows.
            let slope = match self.fixed_fields {
                None => pair,
                Some(_) => pair - 0.5 * (off.units[a] + off.units[b]),
            };
            note(slope);
            j[[a, b]] += rate * slope;
            j[[b, a]] = j[[a, b]];
        }
        for &i in &self.free_biases {
            note(off.units[i]);
            j[[i, i]] += rate * off.units[i];
        }
        if let Some(fields) = &self.fixed_fields {
            set_fields(&mut j, fields);
        }
        if let Some(((i, k), &value)) = j
            .indexed_iter()
            .find(|(_, v)| v.is_nan() || v.abs() > LIMIT)
        {
            return Err(Error::Diverged {
                update,
                i,
                j: k,
                value,
                limit: LIMIT,
                rate,
            });
        }
        self.couplings = Couplings::new(j)?;
        let n_free = self.pairs.len() + self.free_biases.len();
        Ok(((squares / n_free as f64).sqrt(), largest))
    }
}

/// J_ii = −2 h_i − Σ_{j≠i} J_ij.
fn set_fields(j: &mut Array2<f64>, fields: &[f64]) {
    for (i, h) in fields.iter().enumerate() {
        j[[i, i]] = 0.0;
        j[[i, i]] = -2.0 * h - j.row(i).sum();
    }
}
