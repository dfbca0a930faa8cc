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
use crate::error::{Error, check_count, check_option};
use crate::gibbs::{check_row, random_row};
use crate::lattice::ExactLattice;
use crate::sampler::{ChainSampler, Sampler, Tally};
use mpf_core::Cancel;
use mpf_core::rng::{Xoshiro256PlusPlus, streams};
use mpf_ising::States;
use rand::Rng;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chain<D, I> {
    /// The recorded states, in order.
    pub draws: D,
    /// The sum of what the steps after burn-in told.
    pub info: I,
    /// Recorded states; fewer than asked for when the run was cancelled.
    pub n_draws: usize,
}

/// Chains between two steps: everything that it takes to go on to the same draws, the states of
/// the random streams included. Made by [`ChainRunner::begin`], moved by
/// [`ChainRunner::advance`].
///
/// It can be written and read with any `serde` format that keeps every bit of a number. It does
/// not know the sampler: whoever keeps one must see to it that it is the same. What cannot be of
/// the sampler is refused by [`ChainRunner::advance`], by 0 steps too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chains<S, D, I> {
    under_way: Vec<UnderWay<S, D, I>>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct UnderWay<S, D, I> {
    steps: usize,
    state: S,
    rng: Xoshiro256PlusPlus,
    chain: Chain<D, I>,
}

impl<S, D, I> Chains<S, D, I> {
    /// Steps that every chain has done, burn-in included.
    pub fn steps(&self) -> usize {
        let steps = self.under_way.iter().map(|chain| chain.steps);
        steps.min().unwrap_or(0)
    }
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
    /// [`Error::Option`] for no chains, no draws or a thinning of 0, [`Error::TooManySteps`].
    pub fn new(options: ChainOptions) -> Result<Self> {
        for (name, value) in [
            ("n_chains", options.n_chains),
            ("n_draws", options.n_draws),
            ("thinning", options.thinning),
        ] {
            check_option(name, value as f64, "at least 1", value > 0)?;
        }
        let ChainOptions {
            burn_in,
            n_draws,
            thinning,
            ..
        } = options;
        let steps = n_draws.checked_mul(thinning);
        if steps.and_then(|n| n.checked_add(burn_in)).is_none() {
            return Err(Error::TooManySteps {
                burn_in,
                n_draws,
                thinning,
            });
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
        let mut chains = self.begin(sampler)?;
        self.advance(sampler, &mut chains, usize::MAX, progress)?;
        Ok(self.finish(chains))
    }

    /// Runs all chains from the given states, one each.
    ///
    /// # Errors
    /// [`Error::Count`] when there is not one start per chain, [`Error::ForeignChain`] for a start
    /// that is not of this sampler.
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
        let mut chains = Chains::new(sampler, starts, generators);
        self.advance(sampler, &mut chains, usize::MAX, progress)?;
        Ok(self.finish(chains))
    }

    /// All chains at random starts, before their first step.
    ///
    /// # Errors
    /// Those of [`ChainSampler::random_start`].
    pub fn begin<S>(&self, sampler: &S) -> Result<Chains<S::State, S::Draws, S::Info>>
    where
        S: ChainSampler<Info: Tally>,
    {
        let mut generators = streams(self.options.seed, self.options.n_chains);
        let starts = generators
            .iter_mut()
            .map(|rng| sampler.random_start(rng))
            .collect::<Result<Vec<_>>>()?;
        Ok(Chains::new(sampler, starts, generators))
    }

    /// Moves every chain on by `steps` steps, or to its end. In how many pieces chains are run,
    /// and whether they were stored in between, changes no draw; and chains that were run to the
    /// end go on if this runner wants more draws than the one before.
    ///
    /// ```
    /// use mpf_ising::Couplings;
    /// use mpf_samplers::{ChainOptions, ChainRunner, Gibbs};
    /// use ndarray::array;
    ///
    /// let gibbs = Gibbs::new(&Couplings::new(array![[1.0, -1.0], [-1.0, 0.5]])?)?;
    /// let runner = ChainRunner::new(ChainOptions::default())?;
    /// let mut chains = runner.begin(&gibbs)?;
    /// while chains.steps() < 2000 {
    ///     runner.advance(&gibbs, &mut chains, 500, |_| {})?;
    ///     // Here `chains` can be written to a file.
    /// }
    /// assert_eq!(runner.finish(chains), runner.run(&gibbs)?);
    /// # Ok::<(), mpf_samplers::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Count`] for another number of chains than this runner's, [`Error::ForeignChain`]
    /// for chains that cannot be of this sampler and these options.
    pub fn advance<S>(
        &self,
        sampler: &S,
        chains: &mut Chains<S::State, S::Draws, S::Info>,
        steps: usize,
        progress: impl Fn(&ChainProgress) + Sync,
    ) -> Result<()>
    where
        S: ChainSampler<Draws: Send, Info: Tally + Send, State: Send> + Sync,
    {
        let ChainOptions {
            n_draws,
            burn_in,
            thinning,
            ..
        } = self.options;
        check_count("chains", self.options.n_chains, chains.under_way.len())?;
        for (chain, this) in chains.under_way.iter().enumerate() {
            if let Some(what) = self.fault(sampler, this) {
                return Err(Error::ForeignChain { chain, what });
            }
        }
        // It was checked that this does not overflow.
        let total_steps = burn_in + n_draws * thinning;
        let all = chains.under_way.par_iter_mut().enumerate();
        all.for_each(|(number, this)| {
            let last = this.steps.saturating_add(steps).min(total_steps);
            while this.steps < last && !self.options.cancel.is_cancelled() {
                let told = sampler.step(&mut this.state, &mut this.rng);
                this.steps += 1;
                let step = this.steps;
                if step > burn_in {
                    this.chain.info.add(told);
                    if (step - burn_in).is_multiple_of(thinning) {
                        sampler.record(&this.state, &mut this.chain.draws);
                        this.chain.n_draws += 1;
                    }
                }
                if step == total_steps || step.is_multiple_of(total_steps.div_ceil(100)) {
                    progress(&ChainProgress {
                        chain: number,
                        steps: step,
                        total_steps,
                    });
                }
            }
        });
        Ok(())
    }

    /// What is wrong with a chain, if anything is.
    fn fault<S: ChainSampler>(
        &self,
        sampler: &S,
        this: &UnderWay<S::State, S::Draws, S::Info>,
    ) -> Option<&'static str> {
        let ChainOptions {
            n_draws,
            burn_in,
            thinning,
            ..
        } = self.options;
        if this.steps > burn_in + n_draws * thinning {
            return Some("more steps than were asked for");
        }
        let counted = this.steps.saturating_sub(burn_in);
        if this.chain.n_draws != counted / thinning {
            return Some("another number of draws than its steps make");
        }
        // All zeros is the one state that Xoshiro256++ never leaves.
        let mut rng = this.rng.clone();
        if (0..4).all(|_| rng.next_u64() == 0) {
            return Some("a random stream that stands still");
        }
        sampler.fault(&this.state, &this.chain)
    }

    /// What the chains gave so far.
    pub fn finish<S, D, I>(&self, chains: Chains<S, D, I>) -> Run<D, I> {
        let chains: Vec<_> = chains.under_way.into_iter().map(|c| c.chain).collect();
        Run {
            cancelled: chains.iter().any(|c| c.n_draws < self.options.n_draws),
            chains,
        }
    }
}

impl<S, D, I: Tally> Chains<S, D, I> {
    /// Before the first step.
    fn new(
        sampler: &impl ChainSampler<State = S, Draws = D, Info = I>,
        starts: Vec<S>,
        generators: Vec<Xoshiro256PlusPlus>,
    ) -> Self {
        let chains = starts.into_iter().zip(generators);
        Self {
            under_way: chains
                .map(|(state, rng)| UnderWay {
                    steps: 0,
                    state,
                    rng,
                    chain: Chain {
                        draws: sampler.no_draws(),
                        info: I::default(),
                        n_draws: 0,
                    },
                })
                .collect(),
        }
    }
}

impl<I> Run<States, I> {
    /// All draws, chain after chain.
    ///
    /// # Panics
    /// Without chains, and for chains of different units: no [`ChainRunner`] gives such a run.
    pub fn pooled(&self) -> States {
        let mut all = self.chains[0].draws.clone();
        for chain in &self.chains[1..] {
            all.append(&chain.draws);
        }
        all
    }

    /// A number for every draw, by chain: what [`diagnostics`](crate::diagnostics) read. Finite
    /// where `observable` is.
    pub fn series(&self, mut observable: impl FnMut(&[u64]) -> f64) -> Vec<Vec<f64>> {
        self.chains
            .iter()
            .map(|chain| chain.draws.rows().map(&mut observable).collect())
            .collect()
    }
}

impl<I> Run<ndarray::Array2<f64>, I> {
    /// One coordinate of every draw, by chain: what [`diagnostics`](crate::diagnostics) read.
    /// Finite for draws of [`Hmc`](crate::Hmc).
    ///
    /// # Panics
    /// When there is no coordinate `k`.
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
        self.empty().clone()
    }

    fn record(&self, state: &Vec<u64>, draws: &mut States) {
        draws.push(state);
    }

    fn fault(&self, state: &Vec<u64>, chain: &Chain<States, ()>) -> Option<&'static str> {
        fault_of_row(state, self.n_units()).or_else(|| fault_of_draws(chain, self.n_units()))
    }
}

/// What is wrong with a packed row of so many units.
pub(crate) fn fault_of_row(row: &[u64], n_units: usize) -> Option<&'static str> {
    check_row(row, n_units)
        .err()
        .map(|_| "a state of other units")
}

/// What is wrong with draws of so many units.
pub(crate) fn fault_of_draws<I>(chain: &Chain<States, I>, n_units: usize) -> Option<&'static str> {
    if chain.draws.n_units() != n_units {
        Some("draws of other units")
    } else if chain.draws.n_samples() != chain.n_draws {
        Some("another number of draws than it says")
    } else {
        None
    }
}
