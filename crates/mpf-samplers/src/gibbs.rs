//! Gibbs sampling of any Ising model.
//!
//! ```text
//! p(x) ∝ exp(−β xᵀJx),  x ∈ {0,1}^d
//! p(x_i = 1 | rest) = σ(β a_i),   a_i = −J_ii − 2 Σ_{j≠i} J_ij x_j      (log odds at β = 1)
//! ```
//!
//! A chain keeps the surroundings of every unit up to date: looking at a unit is O(1), and only a
//! flip costs O(neighbours). With few neighbours each (lattices), the surroundings are a number
//! that indexes a table of probabilities: no exponential, and no rounding that builds up.
//! Otherwise they are a_i itself, updated along a sparse or a dense row of J and summed afresh
//! from time to time.
//!
//! A K-pairwise model adds V(n) of the number n of active units: V(k + 1) − V(k) is taken from a_i
//! where k of the others are active.
//!
//! The paper samples its forty units (Appendix F) this way. On a cold spin glass single flips
//! hardly move: compare [`diagnostics`](crate::diagnostics) and prefer
//! [`Tempering`](crate::Tempering), or [`ExactLattice`](crate::ExactLattice) where it applies.

mod layout;
#[cfg(test)]
mod tests;

use crate::Result;
use crate::error::check_magnitude;
use crate::row::{check_row, random_row};
use crate::sampler::{ChainSampler, Heated, Sampler, Tally};
use layout::{Layout, LayoutKind, Rows, probability};
use mpf_core::check_not_negative;
use mpf_ising::{Couplings, States, flip_bit, for_each_set_bit, get_bit, n_active};
use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

/// The order in which a sweep of d updates visits the units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scan {
    /// 0, 1, …, d − 1: the faster one. Leaves p unchanged, but is not reversible.
    #[default]
    Sequential,
    /// A unit at random for every update: reversible, but a sweep misses a third of the units.
    Random,
}

/// Sweeps after which log odds are summed afresh. A flip rounds by about 1e-16 of the largest, so
/// they stay within about 1e-13.
const REFRESH_SWEEPS: u32 = 1024;

/// Gibbs sampling of one model. A step is a sweep of d updates.
///
/// ```
/// use mpf_ising::Couplings;
/// use mpf_samplers::{Gibbs, Sampler};
/// use ndarray::array;
///
/// // Two units that like to be 1 together: p(1 | 1) = σ(2) with J₀₁ = −1.
/// let j = Couplings::new(array![[0.0, -1.0], [-1.0, 0.0]])?;
/// let gibbs = Gibbs::new(&j)?;
/// let mut state = gibbs.state(&[0b10])?;
/// let p = gibbs.conditional_probability(&state, 0);
/// assert!((p - 1.0 / (1.0 + (-2f64).exp())).abs() < 1e-15);
///
/// let info = gibbs.step(&mut state, &mut mpf_core::rng::stream(1, 0));
/// assert_eq!(info.updates, 2);
/// # Ok::<(), mpf_samplers::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Gibbs {
    scan: Scan,
    inverse_temperature: f64,
    /// J_ii.
    biases: Vec<f64>,
    /// V of a K-pairwise model, or nothing.
    potential: Vec<f64>,
    layout: Layout,
}

/// A state of a [`Gibbs`] chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GibbsState {
    row: Vec<u64>,
    surroundings: Surroundings,
}

/// The surroundings of every unit, as the sampler's [`Layout`] needs them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Surroundings {
    Numbers(Vec<u8>),
    LogOdds {
        values: Vec<f64>,
        sweeps_since_refresh: u32,
    },
}

impl GibbsState {
    /// Returns the state, packed as a row of [`States`].
    pub fn row(&self) -> &[u64] {
        &self.row
    }
}

/// A tally of Gibbs updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlipCount {
    /// Units visited.
    pub updates: u64,
    /// Units that changed.
    pub flips: u64,
}

impl Tally for FlipCount {
    fn add(&mut self, later: Self) {
        self.updates = self.updates.saturating_add(later.updates);
        self.flips = self.flips.saturating_add(later.flips);
    }
}

impl Gibbs {
    /// Samples p ∝ exp(−xᵀJx) in sequential order.
    ///
    /// # Errors
    /// [`Error::CouplingsTooLarge`](crate::Error::CouplingsTooLarge).
    pub fn new(couplings: &Couplings) -> Result<Self> {
        Self::with_scan(couplings, Scan::Sequential)
    }

    /// Samples p ∝ exp(−xᵀJx) in the given order.
    ///
    /// # Errors
    /// [`Error::CouplingsTooLarge`](crate::Error::CouplingsTooLarge).
    pub fn with_scan(couplings: &Couplings, scan: Scan) -> Result<Self> {
        Self::at_inverse_temperature(couplings, scan, 1.0)
    }

    /// Samples p ∝ exp(−β xᵀJx), as parallel tempering needs it.
    ///
    /// # Errors
    /// [`Error::CouplingsTooLarge`](crate::Error::CouplingsTooLarge);
    /// [`mpf_core::Error::Option`] for a β that is negative or not finite.
    pub fn at_inverse_temperature(couplings: &Couplings, scan: Scan, beta: f64) -> Result<Self> {
        let kind = LayoutKind::best_for(couplings);
        Self::with_layout(couplings, scan, beta, kind)
    }

    fn with_layout(couplings: &Couplings, scan: Scan, beta: f64, kind: LayoutKind) -> Result<Self> {
        check_not_negative("inverse_temperature", beta)?;
        check_magnitude(couplings, beta)?;
        let biases = couplings.as_array().diag().to_vec();
        let potential = couplings.potential().unwrap_or(&[]).to_vec();
        let layout = Layout::new(couplings, &biases, beta, kind);
        Ok(Self {
            scan,
            inverse_temperature: beta,
            biases,
            potential,
            layout,
        })
    }

    /// Returns the number of units.
    pub fn n_units(&self) -> usize {
        self.biases.len()
    }

    /// Returns the bytes that a state of a sampler of `couplings` takes for every unit, beside its bit.
    pub fn bytes_per_unit(couplings: &Couplings) -> usize {
        match LayoutKind::best_for(couplings) {
            LayoutKind::Table => size_of::<u8>(),
            LayoutKind::Sparse | LayoutKind::Dense => size_of::<f64>(),
        }
    }

    /// Makes a chain's state from a packed row.
    ///
    /// # Errors
    /// [`mpf_core::Error::Count`] and [`Error::BitsBeyond`](crate::Error::BitsBeyond)
    /// for a row of other units.
    pub fn state(&self, row: &[u64]) -> Result<GibbsState> {
        check_row(row, self.n_units())?;
        let surroundings = match &self.layout {
            Layout::Table(table) => Surroundings::Numbers(table.numbers(row)),
            Layout::Rows(rows) => Surroundings::LogOdds {
                values: self.sum_log_odds(rows, row),
                sweeps_since_refresh: 0,
            },
        };
        Ok(GibbsState {
            row: row.to_vec(),
            surroundings,
        })
    }

    /// Returns p(x_unit = 1 | the others) at this β, the very number that a step compares with.
    ///
    /// # Panics
    /// When `state` is of another model, or there is no such unit.
    pub fn conditional_probability(&self, state: &GibbsState, unit: usize) -> f64 {
        match (&self.layout, &state.surroundings) {
            (Layout::Table(table), Surroundings::Numbers(numbers)) => {
                table.probabilities[table.entry(unit, numbers[unit])]
            }
            (Layout::Rows(_), Surroundings::LogOdds { values, .. }) => {
                let step = self.potential_step(n_active(&state.row), get_bit(&state.row, unit));
                probability(self.inverse_temperature * (values[unit] - step))
            }
            _ => panic!("{FOREIGN_STATE}"),
        }
    }

    /// Sets one unit, and updates its neighbours' surroundings if that is a change.
    ///
    /// # Panics
    /// When `state` is of another model, or there is no such unit.
    pub fn set(&self, state: &mut GibbsState, unit: usize, x: bool) {
        if get_bit(&state.row, unit) == x {
            return;
        }
        flip_bit(&mut state.row, unit);
        match (&self.layout, &mut state.surroundings) {
            (Layout::Table(table), Surroundings::Numbers(numbers)) => {
                table.update_neighbours(numbers, unit);
            }
            (Layout::Rows(rows), Surroundings::LogOdds { values, .. }) => {
                rows.update_neighbours(values, unit, x);
            }
            _ => panic!("{FOREIGN_STATE}"),
        }
    }

    /// Returns E = xᵀJx of the state (at β = 1). O(d).
    ///
    /// # Panics
    /// When `state` is of another model.
    pub fn energy(&self, state: &GibbsState) -> f64 {
        let mut sum = 0.0;
        match (&self.layout, &state.surroundings) {
            (Layout::Table(table), Surroundings::Numbers(numbers)) => {
                for_each_set_bit(&state.row, |i| {
                    sum += self.biases[i] - table.log_odds[table.entry(i, numbers[i])];
                });
            }
            (Layout::Rows(_), Surroundings::LogOdds { values, .. }) => {
                for_each_set_bit(&state.row, |i| sum += self.biases[i] - values[i]);
            }
            _ => panic!("{FOREIGN_STATE}"),
        }
        0.5 * sum + self.potential.get(n_active(&state.row)).unwrap_or(&0.0)
    }

    /// Returns V(k + 1) − V(k), where k of the other units are active, of a unit with value `own`.
    #[inline(always)]
    fn potential_step(&self, n_active: usize, own: bool) -> f64 {
        if self.potential.is_empty() {
            return 0.0;
        }
        let others = n_active - usize::from(own);
        self.potential[others + 1] - self.potential[others]
    }

    /// Sums the log odds of every unit afresh.
    fn sum_log_odds(&self, rows: &Rows, row: &[u64]) -> Vec<f64> {
        let mut values: Vec<f64> = self.biases.iter().map(|b| -b).collect();
        for_each_set_bit(row, |i| rows.update_neighbours(&mut values, i, true));
        values
    }

    /// Sweeps over log odds.
    fn sweep<R: Rng + ?Sized>(
        &self,
        rows: &Rows,
        row: &mut [u64],
        values: &mut [f64],
        rng: &mut R,
    ) -> u64 {
        let beta = self.inverse_temperature;
        let mut flips = 0;
        let mut n = n_active(row);
        visit(self.scan, self.n_units(), rng, |unit, u| {
            let own = get_bit(row, unit);
            let x = u < probability(beta * (values[unit] - self.potential_step(n, own)));
            if x != own {
                flip_bit(row, unit);
                n = if x { n + 1 } else { n - 1 };
                rows.update_neighbours(values, unit, x);
                flips += 1;
            }
        });
        flips
    }
}

const FOREIGN_STATE: &str = "this state was made by another model's sampler";

impl Sampler for Gibbs {
    type State = GibbsState;
    type Info = FlipCount;

    /// Makes d updates.
    ///
    /// # Panics
    /// When `state` is of another model.
    fn step<R: Rng + ?Sized>(&self, state: &mut GibbsState, rng: &mut R) -> FlipCount {
        let d = self.n_units();
        assert_eq!(state.row.len(), d.div_ceil(64), "{FOREIGN_STATE}");
        let GibbsState { row, surroundings } = state;
        let flips = match (&self.layout, surroundings) {
            (Layout::Table(table), Surroundings::Numbers(numbers)) => {
                assert_eq!(numbers.len(), d, "{FOREIGN_STATE}");
                table.sweep(self.scan, row, numbers, rng)
            }
            (
                Layout::Rows(rows),
                Surroundings::LogOdds {
                    values,
                    sweeps_since_refresh,
                },
            ) => {
                assert_eq!(values.len(), d, "{FOREIGN_STATE}");
                *sweeps_since_refresh = sweeps_since_refresh.saturating_add(1);
                if *sweeps_since_refresh >= REFRESH_SWEEPS {
                    *sweeps_since_refresh = 0;
                    *values = self.sum_log_odds(rows, row);
                }
                self.sweep(rows, row, values, rng)
            }
            _ => panic!("{FOREIGN_STATE}"),
        };
        FlipCount {
            updates: d as u64,
            flips,
        }
    }
}

impl ChainSampler for Gibbs {
    type Draws = States;

    fn random_start<R: Rng + ?Sized>(&self, rng: &mut R) -> Result<GibbsState> {
        self.state(&random_row(self.n_units(), rng))
    }

    fn no_draws(&self) -> States {
        States::new(self.n_units()).expect("couplings are not empty")
    }

    fn record(&self, state: &GibbsState, draws: &mut States) {
        draws.push(&state.row);
    }

    fn accepts(&self, state: &GibbsState) -> bool {
        check_row(&state.row, self.n_units()).is_ok()
            && match (&self.layout, &state.surroundings) {
                // A number beyond its table would be a panic.
                (Layout::Table(table), Surroundings::Numbers(numbers)) => {
                    *numbers == table.numbers(&state.row)
                }
                (Layout::Rows(_), Surroundings::LogOdds { values, .. }) => {
                    values.len() == self.n_units()
                }
                _ => false,
            }
    }
}

impl Heated for Gibbs {
    fn inverse_temperature(&self) -> f64 {
        self.inverse_temperature
    }

    fn energy(&self, state: &GibbsState) -> f64 {
        Self::energy(self, state)
    }
}

/// Calls `update` d times with a unit and a uniform number.
#[inline(always)]
fn visit<R: Rng + ?Sized>(scan: Scan, d: usize, rng: &mut R, mut update: impl FnMut(usize, f64)) {
    match scan {
        Scan::Sequential => {
            for unit in 0..d {
                update(unit, rng.random());
            }
        }
        Scan::Random => {
            for _ in 0..d {
                let unit = rng.random_range(0..d);
                update(unit, rng.random());
            }
        }
    }
}
