//! Parallel tempering over Gibbs.
//!
//! ```text
//! levels k = 0..R:  p_k(x) ∝ exp(−β_k xᵀJx),   1 = β_0 > β_1 > … > β_{R−1}
//! neighbouring levels swap their states with chance min(1, exp((β_k − β_{k+1})(E_k − E_{k+1})))
//! ```
//!
//! A step sweeps every level by Gibbs, then tries to swap the even or the odd pairs of levels in
//! turn; level 0 is the model. The ladder comes from a warm-up (Syed, Bouchard-Côté, Deligiannidis
//! & Doucet 2022): the rejection rates of the swaps, added up along β, are the barrier Λ(β), and
//! levels are placed at equal distances in Λ, about 2 Λ of them. Then the ladder is frozen, so
//! that what follows is a Markov chain with the right distribution.
//!
//! The paper does not temper, and pays for it: at σ² = 10 its Swendsen-Wang states are far from
//! independent. Use this on cold, frustrated models of any shape. It is wasteful on warm ones,
//! where plain [`Gibbs`] mixes, and on narrow lattices [`ExactLattice`](crate::ExactLattice) has
//! no autocorrelation at all.

use crate::Result;
use crate::error::check_count;
use crate::gibbs::{Gibbs, GibbsState, Scan};
use crate::sampler::{ChainSampler, Sampler, Tally};
use mpf_core::check_option;
use mpf_core::rng::stream;
use mpf_ising::{Couplings, States};
use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

/// Most levels of a ladder.
const MAX_LEVELS: usize = 128;

/// Options of [`Tempering::tune`], unchecked.
#[derive(Clone, Debug, PartialEq)]
pub struct TemperingOptions {
    /// The smallest β of the ladder: one where Gibbs mixes within a few sweeps. Default 0.1.
    pub hottest: f64,
    /// How many levels, or as many as the measured barrier asks for. Default `None`.
    pub n_levels: Option<usize>,
    /// Steps of warm-up in which the ladder is tuned. Default 2000.
    pub warm_up: usize,
    /// The order of the Gibbs sweeps.
    pub scan: Scan,
    /// What the warm-up depends on. Default 0.
    pub seed: u64,
}

impl Default for TemperingOptions {
    fn default() -> Self {
        Self {
            hottest: 0.1,
            n_levels: None,
            warm_up: 2000,
            scan: Scan::Sequential,
            seed: 0,
        }
    }
}

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
pub struct Tempering {
    /// Level 0 is the model itself.
    levels: Vec<Gibbs>,
}

/// Where a [`Tempering`] chain is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TemperingState {
    replicas: Vec<GibbsState>,
    /// The replica at every level.
    at_level: Vec<usize>,
    /// For every replica, whether it has been at the hottest level since it was at the coldest.
    heated: Vec<bool>,
    /// Which pairs the next step tries to swap: (0, 1), (2, 3), … or (1, 2), (3, 4), …
    odd: bool,
}

impl TemperingState {
    /// The state of the model (level 0), packed as a row of [`States`].
    pub fn row(&self) -> &[u64] {
        self.level(0).row()
    }

    /// The state at a level.
    ///
    /// # Panics
    /// When there is no such level.
    pub fn level(&self, level: usize) -> &GibbsState {
        &self.replicas[self.at_level[level]]
    }
}

/// What the swaps of parallel tempering did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SwapCount {
    /// Steps counted.
    pub steps: u64,
    /// Swaps tried between level k and k + 1.
    pub attempts: Vec<u64>,
    /// Swaps made.
    pub accepted: Vec<u64>,
    /// The sum of their acceptance probabilities: the same with less noise.
    pub acceptance: Vec<f64>,
    /// How often a replica came back to level 0 after a visit to the hottest level. None in a
    /// long run means that the ladder is broken, whatever the acceptance rates say.
    pub round_trips: u64,
}

impl SwapCount {
    /// The mean acceptance probability between level k and k + 1: finite, between 0 and 1, but NaN
    /// for a pair never tried.
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
        // What counted nothing yet has no pairs.
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
    /// Parallel tempering on a given ladder: β = 1 first, then downwards.
    ///
    /// # Errors
    /// [`mpf_core::Error::Option`] for a ladder that does not begin at 1, does not fall
    /// strictly, goes below 0 or has a NaN;
    /// [`Error::CouplingsTooLarge`](crate::Error::CouplingsTooLarge).
    pub fn new(couplings: &Couplings, ladder: &[f64], scan: Scan) -> Result<Self> {
        let first = ladder.first().copied().unwrap_or(f64::NAN);
        check_option("ladder[0]", first, "1: the model itself", first == 1.0)?;
        for pair in ladder.windows(2) {
            check_option(
                "ladder",
                pair[1],
                "strictly falling and not negative",
                pair[1] < pair[0] && pair[1] >= 0.0,
            )?;
        }
        let levels = ladder
            .iter()
            .map(|&beta| Gibbs::at_inverse_temperature(couplings, scan, beta))
            .collect::<Result<_>>()?;
        Ok(Self { levels })
    }

    /// Finds a ladder in a warm-up, and freezes it.
    ///
    /// # Errors
    /// [`mpf_core::Error::Option`] for a `hottest` outside 0 ≤ β < 1 or so close to 1
    /// that the levels between cannot be told apart, fewer than 2 or more than 128 levels, or a
    /// warm-up of less than 100 steps;
    /// [`Error::CouplingsTooLarge`](crate::Error::CouplingsTooLarge).
    pub fn tune(couplings: &Couplings, options: &TemperingOptions) -> Result<Self> {
        let hottest = options.hottest;
        check_option(
            "hottest",
            hottest,
            "0 ≤ β < 1",
            (0.0..1.0).contains(&hottest),
        )?;
        let n_levels = options.n_levels.unwrap_or(10);
        check_option(
            "n_levels",
            n_levels as f64,
            "between 2 and 128",
            (2..=MAX_LEVELS).contains(&n_levels),
        )?;
        check_option(
            "warm_up",
            options.warm_up as f64,
            "at least 100",
            options.warm_up >= 100,
        )?;
        let mut ladder: Vec<f64> = (0..n_levels)
            .map(|k| 1.0 - k as f64 / (n_levels - 1) as f64)
            // Denser towards the hot end: near β = 0 the energy changes fastest with β.
            .map(|share| hottest + (1.0 - hottest) * share * share)
            .collect();
        let mut rng = stream(options.seed, 0);
        // Every round is twice as long as the one before and runs on the ladder that it improved;
        // together they are the warm-up.
        for round in 0..5 {
            let sampler = Self::new(couplings, &ladder, options.scan)?;
            let steps = options.warm_up.saturating_mul(1 << round) / 31;
            let mut state = sampler.random_start(&mut rng)?;
            let mut swaps = SwapCount::default();
            for step in 0..steps {
                let told = sampler.step(&mut state, &mut rng);
                if step >= steps / 4 {
                    swaps.add(told);
                }
            }
            let rejections: Vec<f64> = swaps.acceptance_rates().iter().map(|a| 1.0 - a).collect();
            let barrier: f64 = rejections.iter().sum();
            let wanted = (2.0 * barrier).ceil() as usize + 1;
            let n_levels = options.n_levels.unwrap_or(wanted.clamp(2, MAX_LEVELS));
            ladder = equal_rejections(&ladder, &rejections, n_levels);
        }
        Self::new(couplings, &ladder, options.scan)
    }

    /// β of every level, 1 first: finite, falling, none negative.
    pub fn inverse_temperatures(&self) -> Vec<f64> {
        self.levels.iter().map(Gibbs::inverse_temperature).collect()
    }

    /// How many units the model has.
    pub fn n_units(&self) -> usize {
        self.levels[0].n_units()
    }

    /// The Gibbs sampler of a level.
    ///
    /// # Panics
    /// When there is no such level.
    pub fn level(&self, level: usize) -> &Gibbs {
        &self.levels[level]
    }

    /// The chance that levels `level` and `level` + 1 swap when their energies (at β = 1) are
    /// `energy` and `energy_above`. Finite, between 0 and 1, for all energies but NaN and twice the
    /// same infinity: then NaN.
    ///
    /// # Panics
    /// When `level` is the last one, or none.
    pub fn swap_probability(&self, level: usize, energy: f64, energy_above: f64) -> f64 {
        let beta = self.levels[level].inverse_temperature();
        let beta_above = self.levels[level + 1].inverse_temperature();
        let p = ((beta - beta_above) * (energy - energy_above)).exp();
        // `min` would make 1 of NaN.
        if p > 1.0 { 1.0 } else { p }
    }

    /// A chain's state from one packed row per level.
    ///
    /// # Errors
    /// [`Error::Count`](crate::Error::Count) when there is not one row per level, and those of [`Gibbs::state`].
    pub fn state(&self, rows: &States) -> Result<TemperingState> {
        check_count("states of levels", self.levels.len(), rows.n_samples())?;
        check_count("units of a state", self.n_units(), rows.n_units())?;
        let replicas = rows.rows().map(|row| self.levels[0].state(row));
        Ok(self.place(replicas.collect::<Result<_>>()?))
    }

    fn place(&self, replicas: Vec<GibbsState>) -> TemperingState {
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

impl Sampler for Tempering {
    type State = TemperingState;
    type Info = SwapCount;

    /// A Gibbs sweep at every level, then the swaps of every second pair.
    ///
    /// # Panics
    /// When `state` is of another model.
    fn step<R: Rng + ?Sized>(&self, state: &mut TemperingState, rng: &mut R) -> SwapCount {
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

impl ChainSampler for Tempering {
    type Draws = States;

    fn random_start<R: Rng + ?Sized>(&self, rng: &mut R) -> Result<TemperingState> {
        let replicas = self.levels.iter().map(|gibbs| gibbs.random_start(rng));
        Ok(self.place(replicas.collect::<Result<_>>()?))
    }

    fn no_draws(&self) -> States {
        self.levels[0].no_draws()
    }

    fn record(&self, state: &TemperingState, draws: &mut States) {
        draws.push(state.row());
    }

    fn accepts(&self, state: &TemperingState) -> bool {
        let n = self.levels.len();
        let mut levels = state.at_level.clone();
        levels.sort_unstable();
        levels.into_iter().eq(0..n)
            && state.heated.len() == n
            && state.replicas.len() == n
            && state
                .replicas
                .iter()
                .all(|replica| self.levels[0].accepts(replica))
    }
}

/// The ladder of `n_levels` between the same ends with equal shares of the rejections, which are
/// taken to be spread evenly between two levels.
fn equal_rejections(ladder: &[f64], rejections: &[f64], n_levels: usize) -> Vec<f64> {
    // A little everywhere, so that β falls strictly even where nothing was rejected.
    let total: f64 = rejections.iter().sum::<f64>() + 1e-3;
    let floor = 1e-3 / rejections.len() as f64;
    let mut found = vec![ladder[0]];
    let (mut pair, mut below) = (0, 0.0);
    for level in 1..n_levels - 1 {
        let target = total * level as f64 / (n_levels - 1) as f64;
        while pair + 1 < rejections.len() && below + rejections[pair] + floor < target {
            below += rejections[pair] + floor;
            pair += 1;
        }
        let share = ((target - below) / (rejections[pair] + floor)).clamp(0.0, 1.0);
        found.push(ladder[pair] + share * (ladder[pair + 1] - ladder[pair]));
    }
    found.push(ladder[ladder.len() - 1]);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn levels_move_to_where_swaps_are_rejected() {
        // All rejections lie between the first two levels: so do the new levels, but the last.
        let ladder = equal_rejections(&[1.0, 0.5, 0.1], &[0.8, 0.0], 5);
        assert_eq!(ladder.len(), 5);
        assert_eq!((ladder[0], ladder[4]), (1.0, 0.1));
        for (k, expected) in [0.875, 0.75, 0.625].into_iter().enumerate() {
            // The floor of 1e-3 moves them by about that share.
            assert!((ladder[k + 1] - expected).abs() < 1e-3, "{ladder:?}");
        }
    }

    #[test]
    fn equal_rejections_are_left_alone() {
        let ladder = [1.0, 0.6, 0.3, 0.1];
        let found = equal_rejections(&ladder, &[0.4, 0.4, 0.4], 4);
        assert!(
            ladder
                .iter()
                .zip(&found)
                .all(|(a, b)| (a - b).abs() < 1e-12)
        );
        // Nothing rejected at all: equal steps of β, strictly falling.
        let free = equal_rejections(&ladder, &[0.0; 3], 7);
        assert!(free.windows(2).all(|w| w[1] < w[0]));
    }

    #[test]
    fn bad_ladders_are_errors_with_the_number() {
        let j = Couplings::zeros(3).unwrap();
        let error = |ladder: &[f64]| Tempering::new(&j, ladder, Scan::Sequential).unwrap_err();
        assert!(
            matches!(error(&[0.9]), Error::Core(mpf_core::Error::Option { name: "ladder[0]", value, .. }) if value == 0.9)
        );
        assert!(
            matches!(error(&[1.0, 1.0]), Error::Core(mpf_core::Error::Option { name: "ladder", value, .. }) if value == 1.0)
        );
        assert!(matches!(
            error(&[1.0, -0.1]),
            Error::Core(mpf_core::Error::Option { name: "ladder", .. })
        ));
        assert!(matches!(
            error(&[1.0, f64::NAN]),
            Error::Core(mpf_core::Error::Option { name: "ladder", .. })
        ));
        assert!(matches!(
            error(&[]),
            Error::Core(mpf_core::Error::Option {
                name: "ladder[0]",
                ..
            })
        ));
        for options in [
            TemperingOptions {
                hottest: 1.0,
                ..Default::default()
            },
            TemperingOptions {
                n_levels: Some(1),
                ..Default::default()
            },
            TemperingOptions {
                warm_up: 3,
                ..Default::default()
            },
        ] {
            assert!(matches!(
                Tempering::tune(&j, &options),
                Err(Error::Core(mpf_core::Error::Option { .. }))
            ));
        }
    }
}
