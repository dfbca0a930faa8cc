//! The Ising model E(x; J) = xᵀJx and its bit-flip neighbourhoods, written plainly.
//!
//! ```text
//! E(x) = Σ_i J_ii x_i + 2 Σ_{i<j} J_ij x_i x_j,        x_i² = x_i ∈ {0,1}
//! ```
//!
//! With [`mpf_core::Flow`] these make the slow, obvious objective that [`crate::flow`] is tested
//! against.

use crate::bits::{flip_bit, for_each_set_bit, last_word_mask};
use crate::couplings::{n_packed, packed_index};
use mpf_core::{Connectivity, EnergyModel};

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

    /// O(active²).
    fn energy(&self, theta: &[f64], x: &[u64]) -> f64 {
        let mut energy = 0.0;
        for_each_set_bit(x, |i| {
            energy += theta[packed_index(self.n_units, i, i)];
            for_each_set_bit(x, |j| {
                if j > i {
                    energy += 2.0 * theta[packed_index(self.n_units, i, j)];
                }
            });
        });
        energy
    }

    fn add_energy_grad(&self, _theta: &[f64], x: &[u64], scale: f64, out: &mut [f64]) {
        for_each_set_bit(x, |i| {
            out[packed_index(self.n_units, i, i)] += scale;
            for_each_set_bit(x, |j| {
                if j > i {
                    out[packed_index(self.n_units, i, j)] += 2.0 * scale;
                }
            });
        });
    }
}

/// All states one bit flip away (Eq. `g_ij_ising`), and on request the state with every bit
/// flipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitFlips {
    /// The number of units of a state.
    pub n_units: usize,
    /// Whether the complement of the state is a neighbour too.
    pub complement: bool,
}

impl Connectivity<[u64]> for BitFlips {
    fn for_each_neighbour(
        &self,
        _sample: usize,
        x: &[u64],
        scratch: &mut [u64],
        mut visit: impl FnMut(&[u64], f64),
    ) {
        scratch.copy_from_slice(x);
        for unit in 0..self.n_units {
            flip_bit(scratch, unit);
            visit(scratch, 0.0);
            flip_bit(scratch, unit);
        }
        if self.complement {
            for word in scratch.iter_mut() {
                *word = !*word;
            }
            scratch[x.len() - 1] &= last_word_mask(self.n_units);
            visit(scratch, 0.0);
        }
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

    #[test]
    fn neighbours_differ_by_one_bit_or_by_all() {
        let rule = BitFlips {
            n_units: 70,
            complement: true,
        };
        let x = [0x5555_u64, 0b10_1010];
        let mut distances = Vec::new();
        rule.for_each_neighbour(0, &x, &mut [0; 2], |y, ln_weight| {
            assert_eq!(ln_weight, 0.0);
            assert_eq!(y[1] >> 6, 0);
            distances.push((x[0] ^ y[0]).count_ones() + (x[1] ^ y[1]).count_ones());
        });
        assert_eq!(distances.len(), 71);
        assert!(distances[..70].iter().all(|&d| d == 1));
        assert_eq!(distances[70], 70);
    }
}
