//! Gibbs sampling of any Ising model.
//!
//! ```text
//! p(x) ∝ exp(−β xᵀJx),  x ∈ {0,1}^d
//! p(x_i = 1 | rest) = σ(β a_i),   a_i = −J_ii − 2 Σ_{j≠i} J_ij x_j      (log odds at β = 1)
//! ```
//!
//! Every unit's surroundings are kept up to date, so that looking at a unit is O(1) and only a
//! flip costs O(neighbours). With few neighbours each (lattices) the surroundings are a number
//! that indexes a table of probabilities: no exponential, no rounding that builds up. Otherwise
//! they are a_i itself, changed along a sparse or a dense row of J, and summed anew from time to
//! time.
//!
//! The paper samples its forty units (Appendix F) this way. On a cold spin glass single flips
//! hardly move: compare [`diagnostics`](crate::diagnostics) and prefer
//! [`Tempering`](crate::Tempering), or [`ExactLattice`](crate::ExactLattice) where it applies.

mod form;
#[cfg(test)]
mod tests;

use crate::Result;
use crate::error::{Error, check_count, check_magnitude};
use crate::sampler::{ChainSampler, Sampler, Tally};
use form::{Form, FormKind, probability, tell_dense};
use mpf_core::check_option;
use mpf_ising::internal::last_word_mask;
use mpf_ising::{Couplings, States};
use mpf_ising::{flip_bit, for_each_set_bit, get_bit};
use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

/// The order in which units are visited; either way a step is d updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scan {
    /// 0, 1, …, d − 1: the faster one. Leaves p unchanged, but is not reversible.
    #[default]
    Sequential,
    /// Each time any unit with equal chance: reversible, but a sweep leaves a third of the units out.
    Random,
}

/// Sweeps after which log odds are summed anew. A flip rounds by about 1e-16 of the largest, so
/// they stay within about 1e-13.
const REFRESH_SWEEPS: u32 = 1024;

/// Gibbs sampling of one model. A step visits d units.
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
    form: Form,
}

/// Where a [`Gibbs`] chain is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GibbsState {
    row: Vec<u64>,
    local: Local,
}

/// The surroundings of every unit, as the model's [`Form`] needs them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Local {
    Number(Vec<u8>),
    LogOdds {
        values: Vec<f64>,
        sweeps_since_refresh: u32,
    },
}

impl GibbsState {
    /// The state, packed as a row of [`States`].
    pub fn row(&self) -> &[u64] {
        &self.row
    }
}

/// What Gibbs steps did.
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
    /// Sequential Gibbs sampling of p ∝ exp(−xᵀJx).
    ///
    /// # Errors
    /// [`Error::CouplingsTooLarge`].
    pub fn new(couplings: &Couplings) -> Result<Self> {
        Self::with_scan(couplings, Scan::Sequential)
    }

    /// Gibbs sampling in the given order.
    ///
    /// # Errors
    /// [`Error::CouplingsTooLarge`].
    pub fn with_scan(couplings: &Couplings, scan: Scan) -> Result<Self> {
        Self::at_inverse_temperature(couplings, scan, 1.0)
    }

    /// Gibbs sampling of p ∝ exp(−β xᵀJx), as parallel tempering needs it.
    ///
    /// # Errors
    /// [`Error::CouplingsTooLarge`]; [`mpf_core::Error::Option`] for a β that is negative or not finite.
    pub fn at_inverse_temperature(couplings: &Couplings, scan: Scan, beta: f64) -> Result<Self> {
        let kind = FormKind::best_for(couplings);
        Self::with_form(couplings, scan, beta, kind)
    }

    /// With a form that need not be the best one.
    fn with_form(couplings: &Couplings, scan: Scan, beta: f64, kind: FormKind) -> Result<Self> {
        check_option(
            "inverse_temperature",
            beta,
            "finite and not negative",
            beta.is_finite() && beta >= 0.0,
        )?;
        check_magnitude(couplings, beta)?;
        let biases = couplings.as_array().diag().to_vec();
        let form = Form::new(couplings, &biases, beta, kind);
        Ok(Self {
            scan,
            inverse_temperature: beta,
            biases,
            form,
        })
    }

    /// How many units the model has.
    pub fn n_units(&self) -> usize {
        self.biases.len()
    }

    /// β: finite and not negative.
    pub fn inverse_temperature(&self) -> f64 {
        self.inverse_temperature
    }

    /// A chain's state from a packed row.
    ///
    /// # Errors
    /// [`Error::Count`] and [`Error::BitsBeyond`] for a row that is not of this model's units.
    pub fn state(&self, row: &[u64]) -> Result<GibbsState> {
        check_row(row, self.n_units())?;
        let local = match &self.form {
            Form::Table(table) => Local::Number(table.numbers(row)),
            _ => Local::LogOdds {
                values: self.sum_log_odds(row),
                sweeps_since_refresh: 0,
            },
        };
        Ok(GibbsState {
            row: row.to_vec(),
            local,
        })
    }

    /// p(x_unit = 1 | the others) at this β: the very number that a step compares with. Finite,
    /// between 0 and 1.
    ///
    /// # Panics
    /// When `state` is of another model, or there is no such unit.
    pub fn conditional_probability(&self, state: &GibbsState, unit: usize) -> f64 {
        match (&self.form, &state.local) {
            (Form::Table(table), Local::Number(numbers)) => {
                table.probabilities[table.entry(unit, numbers[unit])]
            }
            (_, Local::LogOdds { values, .. }) => {
                probability(self.inverse_temperature * values[unit])
            }
            _ => panic!("{FOREIGN_STATE}"),
        }
    }

    /// Sets one unit, and tells its neighbours if that is a change.
    ///
    /// # Panics
    /// When `state` is of another model, or there is no such unit.
    pub fn set(&self, state: &mut GibbsState, unit: usize, x: bool) {
        if get_bit(&state.row, unit) == x {
            return;
        }
        flip_bit(&mut state.row, unit);
        match (&self.form, &mut state.local) {
            (Form::Table(table), Local::Number(numbers)) => table.tell(numbers, unit),
            (Form::Sparse(sparse), Local::LogOdds { values, .. }) => sparse.tell(values, unit, x),
            (Form::Dense(rows), Local::LogOdds { values, .. }) => tell_dense(rows, values, unit, x),
            _ => panic!("{FOREIGN_STATE}"),
        }
    }

    /// E = xᵀJx of the state (at β = 1); finite. O(d).
    ///
    /// # Panics
    /// When `state` is of another model.
    pub fn energy(&self, state: &GibbsState) -> f64 {
        let mut sum = 0.0;
        match (&self.form, &state.local) {
            (Form::Table(table), Local::Number(numbers)) => for_each_set_bit(&state.row, |i| {
                sum += self.biases[i] - table.log_odds[table.entry(i, numbers[i])];
            }),
            (_, Local::LogOdds { values, .. }) => {
                for_each_set_bit(&state.row, |i| sum += self.biases[i] - values[i]);
            }
            _ => panic!("{FOREIGN_STATE}"),
        }
        0.5 * sum
    }

    /// a of every unit, summed from nothing.
    fn sum_log_odds(&self, row: &[u64]) -> Vec<f64> {
        let mut values: Vec<f64> = self.biases.iter().map(|b| -b).collect();
        for_each_set_bit(row, |i| match &self.form {
            Form::Sparse(sparse) => sparse.tell(&mut values, i, true),
            Form::Dense(rows) => tell_dense(rows, &mut values, i, true),
            Form::Table(_) => unreachable!("tables keep numbers"),
        });
        values
    }

    /// One step with log odds: `tell(values, unit, x)` after every flip.
    fn sweep<R: Rng + ?Sized>(
        &self,
        row: &mut [u64],
        values: &mut [f64],
        rng: &mut R,
        tell: impl Fn(&mut [f64], usize, bool),
    ) -> u64 {
        let beta = self.inverse_temperature;
        let mut flips = 0;
        visit(self.scan, self.n_units(), rng, |unit, u| {
            let x = u < probability(beta * values[unit]);
            if x != get_bit(row, unit) {
                flip_bit(row, unit);
                tell(values, unit, x);
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

    /// d updates.
    ///
    /// # Panics
    /// When `state` is of another model.
    fn step<R: Rng + ?Sized>(&self, state: &mut GibbsState, rng: &mut R) -> FlipCount {
        let d = self.n_units();
        assert_eq!(state.row.len(), d.div_ceil(64), "{FOREIGN_STATE}");
        let GibbsState { row, local } = state;
        let flips = match (&self.form, local) {
            (Form::Table(table), Local::Number(numbers)) => {
                assert_eq!(numbers.len(), d, "{FOREIGN_STATE}");
                table.sweep(self.scan, row, numbers, rng)
            }
            (
                form,
                Local::LogOdds {
                    values,
                    sweeps_since_refresh,
                },
            ) => {
                assert_eq!(values.len(), d, "{FOREIGN_STATE}");
                *sweeps_since_refresh = sweeps_since_refresh.saturating_add(1);
                if *sweeps_since_refresh >= REFRESH_SWEEPS {
                    *sweeps_since_refresh = 0;
                    *values = self.sum_log_odds(row);
                }
                match form {
                    Form::Sparse(sparse) => {
                        self.sweep(row, values, rng, |v, i, x| sparse.tell(v, i, x))
                    }
                    Form::Dense(rows) => {
                        self.sweep(row, values, rng, |v, i, x| tell_dense(rows, v, i, x))
                    }
                    Form::Table(_) => panic!("{FOREIGN_STATE}"),
                }
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
            && match (&self.form, &state.local) {
                (Form::Table(table), Local::Number(numbers)) => {
                    *numbers == table.numbers(&state.row)
                }
                (Form::Table(_), _) | (_, Local::Number(_)) => false,
                (_, Local::LogOdds { values, .. }) => values.len() == self.n_units(),
            }
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

/// Checks that a packed row is of `n_units` units.
pub(crate) fn check_row(row: &[u64], n_units: usize) -> Result<()> {
    check_count("words of a packed state", n_units.div_ceil(64), row.len())?;
    if row[row.len() - 1] & !last_word_mask(n_units) == 0 {
        Ok(())
    } else {
        Err(Error::BitsBeyond { last: n_units - 1 })
    }
}

/// Every unit 0 or 1 with equal chance.
pub(crate) fn random_row<R: Rng + ?Sized>(n_units: usize, rng: &mut R) -> Vec<u64> {
    let mut row: Vec<u64> = (0..n_units.div_ceil(64)).map(|_| rng.random()).collect();
    *row.last_mut().expect("couplings are not empty") &= last_word_mask(n_units);
    row
}
