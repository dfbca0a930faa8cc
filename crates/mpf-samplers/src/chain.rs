//! One way to run any sampler: many chains, burn-in, thinning, progress and a stop button.
//!
//! ```text
//! chain c:  start → burn_in steps → (thinning steps → record) × n_draws
//! ```
//!
//! Chain c draws everything from stream c of the seed (Xoshiro256++ jumped c times, see
//! [`mpf_core::rng`]), its random start included, so that the draws do not depend on the number
//! of threads, nor chain c on the number of chains.

use crate::Result;
use crate::error::{check_count, check_option};
use crate::gibbs::random_row;
use crate::lattice::ExactLattice;
use crate::sampler::{ChainSampler, Sampler, Tally};
use mpf_core::Cancel;
use mpf_core::rng::{Xoshiro256PlusPlus, streams};
use mpf_ising::States;
use rand::Rng;
use rayon::prelude::*;

/// Options of a [`ChainRunner`], unchecked.
#[derive(Clone, Debug)]
pub struct ChainOptions {
    /// What all draws depend on. Default 0.
    pub seed: u64,
    /// How many chains. Default 4, the least with which R̂ means something.
    pub n_chains: usize,
    /// How many states each chain records. Default 1000.
    pub n_draws: usize,
    /// Steps before the first draw, thrown away. Default 1000.
    pub burn_in: usize,
    /// Steps per draw. Default 1: thinning saves memory, not time.
    pub thinning: usize,
    /// The handle that stops the run. Default: one that nobody else holds.
    pub cancel: Cancel,
}

impl Default for ChainOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            n_chains: 4,
            n_draws: 1000,
            burn_in: 1000,
            thinning: 1,
            cancel: Cancel::new(),
        }
    }
}

/// Runs chains with checked options.
///
/// ```
/// use mpf_ising::Couplings;
/// use mpf_samplers::{ChainOptions, ChainRunner, Gibbs, diagnostics};
/// use ndarray::array;
///
/// let j = Couplings::new(array![[1.0, -1.0], [-1.0, 0.5]])?;
/// let runner = ChainRunner::new(ChainOptions { seed: 7, ..Default::default() })?;
/// let run = runner.run(&Gibbs::new(&j)?)?;
/// assert!(!run.cancelled);
/// assert_eq!(run.pooled().n_samples(), 4 * 1000);
///
/// let first_unit = run.series(|row| (row[0] & 1) as f64);
/// assert!(diagnostics::rhat(&first_unit)? < 1.02);
/// # Ok::<(), mpf_samplers::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ChainRunner {
    options: ChainOptions,
}

/// How far one chain is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainProgress {
    /// Which chain.
    pub chain: usize,
    /// Steps done, burn-in included.
    pub steps: usize,
    /// Steps to do in all.
    pub total_steps: usize,
}

/// What one chain gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain<D, I> {
    /// The recorded states, in order.
    pub draws: D,
    /// The sum of what the steps after burn-in told.
    pub info: I,
    /// Recorded states; fewer than asked for when the run was cancelled.
    pub n_draws: usize,
}

/// What all chains gave.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "look at `cancelled` to see whether the run is complete"]
pub struct Run<D, I> {
    /// One entry per chain.
    pub chains: Vec<Chain<D, I>>,
    /// Whether [`Cancel::cancel`] stopped it early: then chains may differ in length.
    pub cancelled: bool,
}

impl ChainRunner {
    /// Checks the options.
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option) for no chains, no draws or a thinning of 0.
    pub fn new(options: ChainOptions) -> Result<Self> {
        for (name, value) in [
            ("n_chains", options.n_chains),
            ("n_draws", options.n_draws),
            ("thinning", options.thinning),
        ] {
            check_option(name, value as f64, "at least 1", value > 0)?;
        }
        Ok(Self { options })
    }

    /// The options that it was made from.
    pub fn options(&self) -> &ChainOptions {
        &self.options
    }

    /// Runs all chains from random starts.
    ///
    /// # Errors
    /// Those of [`ChainSampler::random_start`].
    pub fn run<S>(&self, sampler: &S) -> Result<Run<S::Draws, S::Info>>
    where
        S: ChainSampler<Draws: Send, Info: Tally + Send, State: Send> + Sync,
    {
        self.run_with_progress(sampler, |_| {})
    }

    /// As [`ChainRunner::run`], and calls `progress` about a hundred times per chain, from the
    /// thread that runs it.
    ///
    /// # Errors
    /// Those of [`ChainSampler::random_start`].
    pub fn run_with_progress<S>(
        &self,
        sampler: &S,
        progress: impl Fn(&ChainProgress) + Sync,
    ) -> Result<Run<S::Draws, S::Info>>
    where
        S: ChainSampler<Draws: Send, Info: Tally + Send, State: Send> + Sync,
    {
        let mut generators = streams(self.options.seed, self.options.n_chains);
        let starts = generators
            .iter_mut()
            .map(|rng| sampler.random_start(rng))
            .collect::<Result<Vec<_>>>()?;
        Ok(self.run_all(sampler, starts, generators, &progress))
    }

    /// Runs all chains from the given states, one each.
    ///
    /// # Errors
    /// [`Error::Count`](crate::Error::Count) when there is not one start per chain.
    pub fn run_from<S>(
        &self,
        sampler: &S,
        starts: Vec<S::State>,
        progress: impl Fn(&ChainProgress) + Sync,
    ) -> Result<Run<S::Draws, S::Info>>
    where
        S: ChainSampler<Draws: Send, Info: Tally + Send, State: Send> + Sync,
    {
        check_count("starts of chains", self.options.n_chains, starts.len())?;
        let generators = streams(self.options.seed, self.options.n_chains);
        Ok(self.run_all(sampler, starts, generators, &progress))
    }

    fn run_all<S>(
        &self,
        sampler: &S,
        starts: Vec<S::State>,
        generators: Vec<Xoshiro256PlusPlus>,
        progress: &(impl Fn(&ChainProgress) + Sync),
    ) -> Run<S::Draws, S::Info>
    where
        S: ChainSampler<Draws: Send, Info: Tally + Send, State: Send> + Sync,
    {
        let ChainOptions {
            n_draws,
            burn_in,
            thinning,
            ..
        } = self.options;
        let total_steps = burn_in + n_draws * thinning;
        let chains: Vec<Chain<S::Draws, S::Info>> = starts
            .into_par_iter()
            .zip(generators)
            .enumerate()
            .map(|(chain, (mut state, mut rng))| {
                let mut draws = sampler.no_draws();
                let mut info = S::Info::default();
                let mut n_draws = 0;
                for step in 1..=total_steps {
                    if self.options.cancel.is_cancelled() {
                        break;
                    }
                    let told = sampler.step(&mut state, &mut rng);
                    if step > burn_in {
                        info.add(told);
                        if (step - burn_in).is_multiple_of(thinning) {
                            sampler.record(&state, &mut draws);
                            n_draws += 1;
                        }
                    }
                    if step == total_steps || step.is_multiple_of(total_steps.div_ceil(100)) {
                        progress(&ChainProgress {
                            chain,
                            steps: step,
                            total_steps,
                        });
                    }
                }
                Chain {
                    draws,
                    info,
                    n_draws,
                }
            })
            .collect();
        Run {
            cancelled: chains.iter().any(|chain| chain.n_draws < n_draws),
            chains,
        }
    }
}

impl<I> Run<States, I> {
    /// All draws, chain after chain.
    pub fn pooled(&self) -> States {
        let mut chains = self.chains.iter();
        let first = chains.next().expect("there is at least one chain");
        let mut all = first.draws.clone();
        for chain in chains {
            all.append(&chain.draws);
        }
        all
    }

    /// A number for every draw, by chain: what [`diagnostics`](crate::diagnostics) read.
    pub fn series(&self, mut observable: impl FnMut(&[u64]) -> f64) -> Vec<Vec<f64>> {
        self.chains
            .iter()
            .map(|chain| chain.draws.rows().map(&mut observable).collect())
            .collect()
    }
}

impl<I> Run<ndarray::Array2<f64>, I> {
    /// One coordinate of every draw, by chain: what [`diagnostics`](crate::diagnostics) read.
    pub fn coordinate(&self, k: usize) -> Vec<Vec<f64>> {
        self.chains
            .iter()
            .map(|chain| chain.draws.column(k).to_vec())
            .collect()
    }
}

/// Every step is an independent draw. [`ExactLattice::draw`] is faster.
impl Sampler for ExactLattice {
    type State = Vec<u64>;
    type Info = ();

    fn step<R: Rng + ?Sized>(&self, state: &mut Vec<u64>, rng: &mut R) {
        self.draw_into(state, rng);
    }
}

impl ChainSampler for ExactLattice {
    type Draws = States;

    fn random_start<R: Rng + ?Sized>(&self, rng: &mut R) -> Result<Vec<u64>> {
        Ok(random_row(self.n_units(), rng))
    }

    fn no_draws(&self) -> States {
        States::new(self.n_units()).expect("a lattice is not empty")
    }

    fn record(&self, state: &Vec<u64>, draws: &mut States) {
        draws.push(state);
    }
}
