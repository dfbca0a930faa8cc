//! Fields and couplings, their gauge, and energies of sequences.
//!
//! ```text
//! E(x) = −Σ_i h_i(x_i) − Σ_{i<j} J_ij(x_i, x_j)
//! ```

use crate::kernel::pair_index;
use crate::objective::n_params;
use mpf_core::{EnergyModel, LocalModel};
use mpf_ising::internal::pairs;

/// A Potts model of `n_sites` sites with `n_states` states each.
///
/// As an [`EnergyModel`] its θ is (h, J): h by site and state, then J_ij(a, b) for i < j by pair, a and
/// b. A code of q or more in a state takes part in no term.
#[derive(Clone, Debug, PartialEq)]
pub struct Potts {
    n_sites: usize,
    n_states: usize,
    theta: Vec<f64>,
}

impl Potts {
    /// Makes a model of its parameters θ = (h, J).
    ///
    /// # Panics
    /// If there are fewer than two sites, or θ has another length.
    pub fn new(n_sites: usize, n_states: usize, theta: Vec<f64>) -> Self {
        assert!(n_sites >= 2, "a model has two sites or more");
        assert_eq!(theta.len(), n_params(n_sites, n_states));
        Self {
            n_sites,
            n_states,
            theta,
        }
    }

    /// Returns the number of sites.
    pub fn n_sites(&self) -> usize {
        self.n_sites
    }

    /// Returns q, the number of states.
    pub fn n_states(&self) -> usize {
        self.n_states
    }

    /// Returns θ = (h, J).
    pub fn theta(&self) -> &[f64] {
        &self.theta
    }

    /// Returns h, by site and state.
    pub fn fields(&self) -> &[f64] {
        &self.theta[..self.n_sites * self.n_states]
    }

    /// Returns J_ij for all i < j, by pair, state of i and state of j.
    pub fn couplings(&self) -> &[f64] {
        &self.theta[self.n_sites * self.n_states..]
    }

    /// Returns J_ij(a, b) for i < j, by a and b.
    pub fn block(&self, i: usize, j: usize) -> &[f64] {
        let size = self.n_states * self.n_states;
        &self.couplings()[pair_index(self.n_sites, i, j) * size..][..size]
    }

    /// Returns the same distribution in the zero-sum gauge: every h_i, and every row and column of
    /// every J_ij, adds up to zero.
    #[must_use]
    pub fn zero_sum(&self) -> Self {
        let (n, q) = (self.n_sites, self.n_states);
        let mut theta = self.theta.clone();
        let (fields, couplings) = theta.split_at_mut(n * q);
        let scale = 1.0 / q as f64;
        for ((i, j), block) in pairs(n).zip(couplings.chunks_exact_mut(q * q)) {
            let Means { rows, columns, all } = Means::of(block, q);
            for (k, value) in block.iter_mut().enumerate() {
                *value += all - rows[k / q] - columns[k % q];
            }
            for a in 0..q {
                fields[i * q + a] += rows[a] - all;
                fields[j * q + a] += columns[a] - all;
            }
        }
        for field in fields.chunks_exact_mut(q) {
            let mean = scale * field.iter().sum::<f64>();
            for h in field {
                *h -= mean;
            }
        }
        Self::new(n, q, theta)
    }

    /// Returns E(x).
    pub fn energy_of(&self, x: &[u8]) -> f64 {
        self.energy(&self.theta, x)
    }

    /// Returns E(x with state a at site i) − E(x) for every site and state; NaN where x has no state.
    pub fn mutations(&self, x: &[u8]) -> Vec<f64> {
        let mut out = vec![0.0; self.n_sites * self.n_states];
        self.surroundings(&self.theta, x, &mut out);
        for (site, &code) in out.chunks_exact_mut(self.n_states).zip(x) {
            let own = site.get(usize::from(code)).copied().unwrap_or(f64::NAN);
            for u in site {
                *u = own - *u;
            }
        }
        out
    }
}

/// The means of a block of couplings, which the zero-sum gauge takes away.
pub(crate) struct Means {
    pub(crate) rows: Vec<f64>,
    pub(crate) columns: Vec<f64>,
    pub(crate) all: f64,
}

impl Means {
    pub(crate) fn of(block: &[f64], q: usize) -> Self {
        let scale = 1.0 / q as f64;
        let (mut rows, mut columns) = (vec![0.0; q], vec![0.0; q]);
        for (k, value) in block.iter().enumerate() {
            rows[k / q] += scale * value;
            columns[k % q] += scale * value;
        }
        let all = scale * rows.iter().sum::<f64>();
        Self { rows, columns, all }
    }
}

impl EnergyModel for Potts {
    type State = [u8];

    fn n_params(&self) -> usize {
        self.theta.len()
    }

    fn energy(&self, theta: &[f64], x: &[u8]) -> f64 {
        let mut energy = 0.0;
        self.for_each_term(x, |k| energy -= theta[k]);
        energy
    }

    fn add_energy_grad(&self, _theta: &[f64], x: &[u8], scale: f64, out: &mut [f64]) {
        self.for_each_term(x, |k| out[k] -= scale);
    }
}

impl Potts {
    /// Calls `f` with the place in θ of every term of −E(x).
    fn for_each_term(&self, x: &[u8], mut f: impl FnMut(usize)) {
        let (n, q) = (self.n_sites, self.n_states);
        let state = |i: usize| Some(usize::from(x[i])).filter(|a| *a < q);
        for (i, a) in (0..n).filter_map(|i| Some((i, state(i)?))) {
            f(i * q + a);
        }
        for (k, (i, j)) in pairs(n).enumerate() {
            if let (Some(a), Some(b)) = (state(i), state(j)) {
                f(n * q + (k * q + a) * q + b);
            }
        }
    }
}
