//! One way to run any sampler: many chains, burn-in, thinning, progress, a stop button, a
//! checkpoint.
//!
//! ```text
//! chain c:  start → burn_in steps → (thinning steps → record) × n_draws
//! ```
//!
//! Chain c draws everything, its random start included, from stream c of the seed (Xoshiro256++
//! jumped c times, see [`mpf_core::rng`]). The draws therefore depend neither on the number of
//! threads nor on where a run was stopped and resumed, and chain c does not depend on the number
//! of chains. Several processes run some of the chains each, and then have the draws of all.

use crate::Result;
use crate::error::Error;
use crate::run::{Chain, Run};
use crate::sampler::{ChainSampler, Draws, Sampler, Tally};
use mpf_core::rng::{Xoshiro256PlusPlus, streams};
use mpf_core::{Cancel, Checkpoint, OneProcess, Ranks, check_count, check_not_zero, share};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// Options of a [`ChainRunner`], unchecked.
#[derive(Clone, Debug)]
pub struct ChainOptions {
    /// The seed of all draws. Default 0.
    pub seed: u64,
    /// Number of chains. Default 4, the least with which R̂ means something.
    pub n_chains: usize,
    /// States that each chain records. Default 1000.
    pub n_draws: usize,
    /// Steps before the first draw, thrown away. Default 1000.
    pub burn_in: usize,
    /// Steps per draw. Default 1: thinning saves memory, not time.
    pub thinning: usize,
    /// The handle that stops the run.
    pub cancel: Cancel,
    /// Where unfinished chains are kept. Default: nowhere. Resume only with the same sampler; this
    /// is not checked. A checkpoint holds the chains of one rank.
    pub checkpoint: Checkpoint,
    /// The processes that share the chains. Each has to run the same ones with the same options.
    /// Default: this one alone.
    pub ranks: Arc<dyn Ranks>,
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
            checkpoint: Checkpoint::default(),
            ranks: Arc::new(OneProcess),
        }
    }
}

/// Draws `n` states from any sampler: 4 chains from random starts, each with 1000 steps of
/// burn-in, one after another in the result.
///
/// Successive states of a chain are correlated, and a cold model may need a longer burn-in: run a
/// [`ChainRunner`] and look at its [`diagnostics`](crate::diagnostics) where that matters.
///
/// ```
/// use mpf_ising::Couplings;
/// use mpf_samplers::{Gibbs, draw};
/// use ndarray::array;
///
/// let j = Couplings::new(array![[1.0, -1.0], [-1.0, 0.5]])?;
/// let states = draw(&Gibbs::new(&j)?, 500, 1)?;
/// assert_eq!(states.n_samples(), 500);
/// # Ok::<(), mpf_samplers::Error>(())
/// ```
///
/// # Errors
/// [`mpf_core::Error::Option`] for no draws, and those of [`ChainSampler::random_start`].
pub fn draw<S: ChainSampler>(sampler: &S, n: usize, seed: u64) -> Result<S::Draws> {
    let defaults = ChainOptions::default();
    let n_chains = defaults.n_chains.min(n).max(1);
    let runner = ChainRunner::new(ChainOptions {
        seed,
        n_chains,
        n_draws: n.div_ceil(n_chains),
        ..defaults
    })?;
    Ok(runner.run(sampler)?.pooled().first(n))
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

/// The progress of one chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainProgress {
    /// The chain, from 0.
    pub chain: usize,
    /// Steps done, burn-in included.
    pub steps: usize,
    /// Steps to do in all.
    pub total_steps: usize,
}

/// A chain between two steps: everything that the next one depends on.
#[derive(Clone, Serialize, Deserialize)]
struct ChainState<S, D, I> {
    steps: usize,
    state: S,
    rng: Xoshiro256PlusPlus,
    chain: Chain<D, I>,
}

type ChainOf<S> =
    ChainState<<S as Sampler>::State, <S as ChainSampler>::Draws, <S as Sampler>::Info>;

impl ChainRunner {
    /// Checks the options.
    ///
    /// # Errors
    /// [`mpf_core::Error::Option`] for no chains, no draws or a thinning of 0,
    /// [`Error::TooManySteps`].
    pub fn new(options: ChainOptions) -> Result<Self> {
        check_not_zero("n_chains", options.n_chains)?;
        check_not_zero("n_draws", options.n_draws)?;
        check_not_zero("thinning", options.thinning)?;
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

    /// Returns the options.
    pub fn options(&self) -> &ChainOptions {
        &self.options
    }

    /// Runs all chains from random starts.
    ///
    /// # Errors
    /// Those of [`ChainSampler::random_start`]; [`mpf_core::Error::Checkpoint`] for a checkpoint
    /// of other chains.
    pub fn run<S: ChainSampler>(&self, sampler: &S) -> Result<Run<S::Draws, S::Info>> {
        self.run_with_progress(sampler, |_| {})
    }

    /// As [`ChainRunner::run`], and calls `progress` about a hundred times per chain, from the
    /// thread that runs it.
    ///
    /// # Errors
    /// As [`ChainRunner::run`].
    pub fn run_with_progress<S: ChainSampler>(
        &self,
        sampler: &S,
        progress: impl Fn(&ChainProgress) + Sync,
    ) -> Result<Run<S::Draws, S::Info>> {
        let mut generators = streams(self.options.seed, self.options.n_chains);
        let starts = generators
            .iter_mut()
            .map(|rng| sampler.random_start(rng))
            .collect::<Result<Vec<_>>>()?;
        self.run_chains(sampler, starts, generators, &progress)
    }

    /// Runs all chains from the given states, one each.
    ///
    /// # Errors
    /// [`mpf_core::Error::Count`] when there is not one start per chain, [`Error::ForeignStart`]
    /// for a start of another sampler, [`mpf_core::Error::Checkpoint`] for a checkpoint of other
    /// chains.
    pub fn run_from<S: ChainSampler>(
        &self,
        sampler: &S,
        starts: Vec<S::State>,
        progress: impl Fn(&ChainProgress) + Sync,
    ) -> Result<Run<S::Draws, S::Info>> {
        check_count("starts of chains", self.options.n_chains, starts.len())?;
        if let Some(chain) = starts.iter().position(|start| !sampler.accepts(start)) {
            return Err(Error::ForeignStart { chain });
        }
        let generators = streams(self.options.seed, self.options.n_chains);
        self.run_chains(sampler, starts, generators, &progress)
    }

    /// Resumes the chains of the checkpoint, or starts new ones, and runs them to the end.
    fn run_chains<S: ChainSampler>(
        &self,
        sampler: &S,
        starts: Vec<S::State>,
        generators: Vec<Xoshiro256PlusPlus>,
        progress: &(dyn Fn(&ChainProgress) + Sync),
    ) -> Result<Run<S::Draws, S::Info>> {
        let (checkpoint, ranks) = (&self.options.checkpoint, &*self.options.ranks);
        let own = self.own_chains();
        let mut chains = match checkpoint.resume::<Vec<ChainOf<S>>>()? {
            Some(chains) => {
                self.check_restored(sampler, &chains)?;
                chains
            }
            None => starts
                .into_iter()
                .zip(generators)
                .skip(own.start)
                .take(own.len())
                .map(|(state, rng)| ChainState {
                    steps: 0,
                    state,
                    rng,
                    chain: Chain {
                        draws: sampler.no_draws(),
                        info: S::Info::default(),
                    },
                })
                .collect(),
        };
        let total = self.total_steps();
        let piece = total.div_ceil(if checkpoint.is_on() { 100 } else { 1 });
        while chains.iter().any(|chain| chain.steps < total) && !self.options.cancel.is_cancelled()
        {
            self.advance(sampler, &mut chains, piece, progress);
            checkpoint.offer(|| &chains);
        }
        if checkpoint.is_on() {
            checkpoint.note(chains.clone());
        }
        let mut chains: Vec<_> = chains.into_iter().map(|c| c.chain).collect();
        if ranks.n_ranks() > 1 {
            chains = share(ranks, &chains)?.into_iter().flatten().collect();
        }
        Ok(Run {
            cancelled: chains
                .iter()
                .any(|c| c.draws.n_draws() < self.options.n_draws),
            chains,
        })
    }

    /// Checks the shapes of restored chains, so that going on cannot panic.
    fn check_restored<S: ChainSampler>(&self, sampler: &S, chains: &[ChainOf<S>]) -> Result<()> {
        let width = sampler.no_draws().width();
        let fits = |this: &ChainOf<S>| {
            let recorded = this.steps.saturating_sub(self.options.burn_in);
            this.steps <= self.total_steps()
                && this.chain.draws.n_draws() == recorded / self.options.thinning
                && this.chain.draws.width() == width
                && sampler.accepts(&this.state)
        };
        if chains.len() == self.own_chains().len() && chains.iter().all(fits) {
            Ok(())
        } else {
            Err(
                mpf_core::Error::checkpoint("its chains are of another model or other options")
                    .into(),
            )
        }
    }

    /// Moves every chain by `steps` steps, or to its end.
    fn advance<S: ChainSampler>(
        &self,
        sampler: &S,
        chains: &mut [ChainOf<S>],
        steps: usize,
        progress: &(dyn Fn(&ChainProgress) + Sync),
    ) {
        let options = &self.options;
        let total_steps = self.total_steps();
        let first = self.own_chains().start;
        chains.par_iter_mut().enumerate().for_each(|(at, this)| {
            let last = this.steps.saturating_add(steps).min(total_steps);
            while this.steps < last && !options.cancel.is_cancelled() {
                let info = sampler.step(&mut this.state, &mut this.rng);
                this.steps += 1;
                if this.steps > options.burn_in {
                    this.chain.info.add(info);
                    if (this.steps - options.burn_in).is_multiple_of(options.thinning) {
                        sampler.record(&this.state, &mut this.chain.draws);
                    }
                }
                if this.steps == total_steps || this.steps.is_multiple_of(total_steps.div_ceil(100))
                {
                    progress(&ChainProgress {
                        chain: first + at,
                        steps: this.steps,
                        total_steps,
                    });
                }
            }
        });
    }

    /// Returns the chains that this process runs.
    fn own_chains(&self) -> Range<usize> {
        self.options.ranks.own_parts(self.options.n_chains)
    }

    /// Returns the steps of a chain. [`ChainRunner::new`] checked that they can be counted.
    fn total_steps(&self) -> usize {
        self.options.burn_in + self.options.n_draws * self.options.thinning
    }
}
