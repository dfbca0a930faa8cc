//! Parallel tempering over Gibbs.
//!
//! ```text
//! levels k = 0..R:  p_k(x) ∝ exp(−β_k xᵀJx),   1 = β_0 > β_1 > … > β_{R−1}
//! neighbouring levels swap their states with chance min(1, exp((β_k − β_{k+1})(E_k − E_{k+1})))
//! ```
//!
//! A step sweeps every level by Gibbs, then tries to swap the even or the odd pairs of levels in
//! turn; level 0 is the model. The ladder is given, or tuned in a warm-up and then frozen: a
//! ladder that kept changing would spoil the distribution.
//!
//! The paper does not temper, and pays for it: at σ² = 10 its Swendsen-Wang states are far from
//! independent. Use this on cold, frustrated models of any shape. It is wasteful on warm ones,
//! where plain [`Gibbs`] mixes, and on narrow lattices [`ExactLattice`](crate::ExactLattice) has
//! no autocorrelation at all.

mod ladder;
#[cfg(test)]
mod tests;

pub use ladder::TemperingOptions;

use crate::Result;
use crate::gibbs::{Gibbs, GibbsState, Scan};
use crate::sampler::{ChainSampler, Heated, Sampler, Tally};
use mpf_core::{check_count, check_option};
use mpf_ising::{Couplings, States};
use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

/// Parallel tempering with a fixed ladder.
///
/// ```
/// use mpf_ising::{Boundary, Lattice};
/// use mpf_samplers::{ChainOptions, ChainRunner, Tempering, TemperingOptions};
///
/// let lattice = Lattice::new(5, 5, Boundary::Open)?;
/// let j = lattice.spin_glass(10.0, &mut mpf_core::rng::stream(1, 0))?;
/// let sampler = Tempering::tune(&j, &TemperingOptions::default())?;
/// assert_eq!(sampler.inverse_temperatures()[0], 1.0);
///
/// let run = ChainRunner::new(ChainOptions::default())?.run(&sampler)?;
/// let swaps = &run.chains[0].info;
/// assert!(swaps.acceptance_rates().iter().all(|rate| *rate > 0.2));
/// assert!(swaps.round_trips > 10);
/// # Ok::<(), mpf_samplers::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tempering<G = Gibbs> {
    /// Level 0 is the model itself.
    levels: Vec<G>,
}

/// A state of a [`Tempering`] chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TemperingState<S = GibbsState> {
    replicas: Vec<S>,
    /// The replica at every level.
    at_level: Vec<usize>,
    /// For every replica, whether it has been at the hottest level since it was at the coldest.
    heated: Vec<bool>,
    /// Whether the next step tries to swap the pairs (1, 2), (3, 4), … or else (0, 1), (2, 3), …
    odd: bool,
}

impl TemperingState {
    /// Returns the state of the model (level 0), packed as a row of [`States`].
    pub fn row(&self) -> &[u64] {
        self.level(0).row()
    }
}

impl<S> TemperingState<S> {
    fn level(&self, level: usize) -> &S {
        &self.replicas[self.at_level[level]]
    }
}

/// A tally of the swaps of parallel tempering.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SwapCount {
    /// Steps made.
    pub steps: u64,
    /// Swaps tried between level k and k + 1.
    pub attempts: Vec<u64>,
    /// Swaps made.
    pub accepted: Vec<u64>,
    /// The sum of their acceptance probabilities: as `accepted`, with less noise.
    pub acceptance: Vec<f64>,
    /// How often a replica came back to level 0 after a visit to the hottest level. If that never
    /// happens in a long run, the ladder is broken, whatever the acceptance rates say.
    pub round_trips: u64,
}

impl SwapCount {
    /// Returns the mean acceptance probability between level k and k + 1; NaN for a pair never
    /// tried.
    pub fn acceptance_rates(&self) -> Vec<f64> {
        self.acceptance
            .iter()
            .zip(&self.attempts)
            .map(|(sum, &n)| sum / n as f64)
            .collect()
    }

    fn none(n_pairs: usize) -> Self {
        Self {
            steps: 0,
            attempts: vec![0; n_pairs],
            accepted: vec![0; n_pairs],
            acceptance: vec![0.0; n_pairs],
            round_trips: 0,
        }
    }
}

impl Tally for SwapCount {
    fn add(&mut self, later: Self) {
        let count = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        count(&mut self.steps, later.steps);
        count(&mut self.round_trips, later.round_trips);
        // An empty tally has no pairs.
        for (sums, more) in [
            (&mut self.attempts, later.attempts),
            (&mut self.accepted, later.accepted),
        ] {
            sums.resize(sums.len().max(more.len()), 0);
            sums.iter_mut().zip(more).for_each(|(sum, n)| count(sum, n));
        }
        let pairs = self.acceptance.len().max(later.acceptance.len());
        self.acceptance.resize(pairs, 0.0);
        for (sum, p) in self.acceptance.iter_mut().zip(later.acceptance) {
            *sum += p;
        }
    }

    fn round_trips(&self) -> Option<u64> {
        Some(self.round_trips)
    }
}

impl Tempering {
    /// Tempers on a given ladder: β = 1 first, then downwards.
    ///
    /// # Errors
    /// [`mpf_core::Error::Option`] for a ladder that does not begin at 1, does not fall
    /// strictly, goes below 0 or has a NaN;
    /// [`Error::CouplingsTooLarge`](crate::Error::CouplingsTooLarge).
    pub fn new(couplings: &Couplings, ladder: &[f64], scan: Scan) -> Result<Self> {
        check_ladder(ladder)?;
        let level = |&beta: &f64| Gibbs::at_inverse_temperature(couplings, scan, beta);
        Self::of_levels(ladder.iter().map(level).collect::<Result<_>>()?)
    }

    /// Returns the number of units.
    pub fn n_units(&self) -> usize {
        self.levels[0].n_units()
    }

    /// Makes a chain's state from one packed row per level.
    ///
    /// # Errors
    /// [`mpf_core::Error::Count`] when there is not one row per level, and those of
    /// [`Gibbs::state`].
    pub fn state(&self, rows: &States) -> Result<TemperingState> {
        check_count("states of levels", self.levels.len(), rows.n_samples())?;
        check_count("units of a state", self.n_units(), rows.n_units())?;
        let replicas = rows.rows().map(|row| self.levels[0].state(row));
        Ok(self.place(replicas.collect::<Result<_>>()?))
    }
}

/// Checks that a ladder falls strictly from 1, and not below 0.
fn check_ladder(ladder: &[f64]) -> Result<()> {
    let first = ladder.first().copied().unwrap_or(f64::NAN);
    check_option("ladder[0]", first, "1: the model itself", first == 1.0)?;
    for pair in ladder.windows(2) {
        let holds = pair[1] < pair[0] && pair[1] >= 0.0;
        check_option(
            "ladder",
            pair[1],
            "strictly falling and not negative",
            holds,
        )?;
    }
    Ok(())
}

impl<G: Heated> Tempering<G> {
    /// Tempers over samplers of one model at falling β, the first of them at 1.
    ///
    /// # Errors
    /// [`mpf_core::Error::Option`] for any other β.
    pub fn of_levels(levels: Vec<G>) -> Result<Self> {
        let ladder: Vec<f64> = levels.iter().map(G::inverse_temperature).collect();
        check_ladder(&ladder)?;
        Ok(Self { levels })
    }

    /// Returns β of every level, falling from 1.
    pub fn inverse_temperatures(&self) -> Vec<f64> {
        self.levels.iter().map(G::inverse_temperature).collect()
    }

    /// Returns the chance that levels `level` and `level` + 1 swap when their energies (at β = 1)
    /// are `energy` and `energy_above`; NaN where their difference is.
    fn swap_probability(&self, level: usize, energy: f64, energy_above: f64) -> f64 {
        let beta = self.levels[level].inverse_temperature();
        let beta_above = self.levels[level + 1].inverse_temperature();
        let p = ((beta - beta_above) * (energy - energy_above)).exp();
        // `min` would make 1 of NaN.
        if p > 1.0 { 1.0 } else { p }
    }

    /// Puts replica k at level k.
    fn place(&self, replicas: Vec<G::State>) -> TemperingState<G::State> {
        let mut heated = vec![false; replicas.len()];
        heated[replicas.len() - 1] = replicas.len() > 1;
        TemperingState {
            at_level: (0..replicas.len()).collect(),
            heated,
            replicas,
            odd: false,
        }
    }
}

impl<G: Heated> Sampler for Tempering<G> {
    type State = TemperingState<G::State>;
    type Info = SwapCount;

    /// Sweeps every level, then tries the swaps of every second pair.
    ///
    /// # Panics
    /// When `state` is of another model.
    fn step<R: Rng + ?Sized>(&self, state: &mut Self::State, rng: &mut R) -> SwapCount {
        let top = self.levels.len() - 1;
        assert_eq!(state.replicas.len(), top + 1, "levels of the state");
        let mut swaps = SwapCount::none(top);
        swaps.steps = 1;
        for (gibbs, &replica) in self.levels.iter().zip(&state.at_level) {
            gibbs.step(&mut state.replicas[replica], rng);
        }
        for k in (usize::from(state.odd)..top).step_by(2) {
            let energy = |level: usize| self.levels[0].energy(state.level(level));
            let p = self.swap_probability(k, energy(k), energy(k + 1));
            swaps.attempts[k] += 1;
            swaps.acceptance[k] += p;
            if rng.random::<f64>() < p {
                swaps.accepted[k] += 1;
                state.at_level.swap(k, k + 1);
            }
        }
        state.odd = !state.odd;
        if top > 0 {
            state.heated[state.at_level[top]] = true;
            let coldest = &mut state.heated[state.at_level[0]];
            swaps.round_trips += u64::from(*coldest);
            *coldest = false;
        }
        swaps
    }
}

impl<G: Heated> ChainSampler for Tempering<G> {
    type Draws = G::Draws;

    fn random_start<R: Rng + ?Sized>(&self, rng: &mut R) -> Result<Self::State> {
        let replicas = self.levels.iter().map(|gibbs| gibbs.random_start(rng));
        Ok(self.place(replicas.collect::<Result<_>>()?))
    }

    fn no_draws(&self) -> G::Draws {
        self.levels[0].no_draws()
    }

    fn record(&self, state: &Self::State, draws: &mut G::Draws) {
        self.levels[0].record(state.level(0), draws);
    }

    fn accepts(&self, state: &Self::State) -> bool {
        let n = self.levels.len();
        let mut levels = state.at_level.clone();
        levels.sort_unstable();
        levels.into_iter().eq(0..n)
            && state.heated.len() == n
            && state.replicas.len() == n
            && state.replicas.iter().all(|r| self.levels[0].accepts(r))
    }
}
