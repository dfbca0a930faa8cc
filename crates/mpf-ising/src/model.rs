//! The Ising model E(x; J) = xᵀJx, written plainly.
//!
//! ```text
//! E(x) = Σ_i J_ii x_i + 2 Σ_{i<j} J_ij x_i x_j,        x_i² = x_i ∈ {0,1}
//! ```
//!
//! With [`mpf_core::Flow`] it makes the slow, obvious objective that [`crate::flow`] is tested against.

use crate::bits::for_each_active_pair;
use crate::couplings::{n_packed, packed_index};
use mpf_core::EnergyModel;

/// The Ising model over packed states; θ is J as [`Couplings::pack`](crate::Couplings::pack)
/// lays it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IsingModel {
    n_units: usize,
}

impl IsingModel {
    /// Makes the model of `n_units` units.
    pub fn new(n_units: usize) -> Self {
        Self { n_units }
    }
}

impl EnergyModel for IsingModel {
    type State = [u64];

    fn n_params(&self) -> usize {
        n_packed(self.n_units)
    }

    /// Takes O(active²).
    fn energy(&self, theta: &[f64], x: &[u64]) -> f64 {
        let mut energy = 0.0;
        for_each_active_pair(x, |i, j, times| {
            energy += times * theta[packed_index(self.n_units, i, j)];
        });
        energy
    }

    fn add_energy_grad(&self, _theta: &[f64], x: &[u64], scale: f64, out: &mut [f64]) {
        for_each_active_pair(x, |i, j, times| {
            out[packed_index(self.n_units, i, j)] += times * scale;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Couplings;
    use ndarray::array;

    #[test]
    fn energy_is_the_quadratic_form() {
        let j = array![[0.3, -1.0, 0.5], [-1.0, 0.7, 2.0], [0.5, 2.0, -0.4]];
        let c = Couplings::new(j.clone()).unwrap();
        let model = IsingModel::new(3);
        for state in 0u64..8 {
            let x = array![state & 1, state >> 1 & 1, state >> 2 & 1].mapv(|v| v as f64);
            let expected = x.dot(&j.dot(&x));
            assert!((model.energy(&c.pack(), &[state]) - expected).abs() < 1e-15);
        }
    }
}
