//! Exact, independent draws from any Ising model of up to 24 units, by enumeration.
//!
//! ```text
//! P(n) = Σ_{m≤n} exp(−E(x_m)) / Z over all 2^d states;   u ~ U(0, 1);   draw the first n with P(n) > u
//! ```
//!
//! Means, correlations and ln Z are those of [`mpf_ising::Exact`]; this adds draws that use all
//! threads or run through a [`ChainRunner`](crate::ChainRunner). It holds 8 · 2^d bytes (128 MB at
//! d = 24). Not for a single draw, nor for a lattice narrow enough for
//! [`ExactLattice`](crate::ExactLattice).

use crate::Result;
use crate::row::{RowSampler, draw_in_chunks};
use crate::sampler::{ChainSampler, Sampler};
use mpf_core::rng::DrawTable;
use mpf_ising::{Couplings, Exact, States};
use rand::Rng;

/// Draws that share a random stream. Draws of a seed depend on it.
const CHUNK: usize = 4096;

/// An Ising model with the cumulative probability of every state.
///
/// ```
/// use mpf_ising::Couplings;
/// use mpf_samplers::ExactEnumeration;
///
/// let exact = ExactEnumeration::new(&Couplings::zeros(3)?)?;
/// assert!((exact.exact().log_z() - 8f64.ln()).abs() < 1e-14);
/// assert_eq!(exact.draw(100, 1).n_samples(), 100);
/// # Ok::<(), mpf_samplers::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ExactEnumeration {
    exact: Exact,
    numbers: DrawTable,
}

impl ExactEnumeration {
    /// Enumerates the model. O(2^d d).
    ///
    /// # Errors
    /// [`mpf_ising::Error::TooManyUnits`] beyond 24 units.
    pub fn new(couplings: &Couplings) -> Result<Self> {
        let exact = Exact::new(couplings)?;
        let numbers = DrawTable::new(exact.probabilities());
        Ok(Self { exact, numbers })
    }

    /// Returns the enumeration, with ln Z, means and correlations.
    pub fn exact(&self) -> &Exact {
        &self.exact
    }

    /// Draws `n` independent states. Equal for any number of threads. O(d) each.
    pub fn draw(&self, n: usize, seed: u64) -> States {
        draw_in_chunks(n, CHUNK, seed, &self.no_draws(), |n, rng| {
            let mut states = self.no_draws();
            (0..n).for_each(|_| states.push(&[self.numbers.draw(rng) as u64]));
            states
        })
    }
}

/// Every step is an independent draw. [`ExactEnumeration::draw`] is faster.
impl Sampler for ExactEnumeration {
    type State = Vec<u64>;
    type Info = ();

    fn step<R: Rng + ?Sized>(&self, state: &mut Vec<u64>, rng: &mut R) {
        state[0] = self.numbers.draw(rng) as u64;
    }
}

impl RowSampler for ExactEnumeration {
    fn n_units(&self) -> usize {
        self.exact.couplings().n_units()
    }
}
