//! The Potts model as a [`LocalModel`]: Gibbs sampling, held-out scores, enumeration and error bars
//! are those of every local model.
//!
//! ```text
//! u_i(a) = h_i(a) + Σ_{j≠i} J_ij(a, x_j)          Δ_ia = u_i(x_i) − u_i(a)
//! ```
//!
//! The surroundings of x are all u. A change of one site adds two rows of couplings to each of the
//! others.

use crate::Potts;
use crate::kernel::pair_index;
use mpf_core::{At, LocalModel};
use mpf_ising::internal::pairs;

impl LocalModel for Potts {
    fn n_sites(&self) -> usize {
        self.n_sites()
    }

    fn n_states(&self) -> usize {
        self.n_states()
    }

    fn n_surroundings(&self) -> usize {
        self.n_sites() * self.n_states()
    }

    fn surroundings(&self, theta: &[f64], x: &[u8], surroundings: &mut [f64]) {
        let (n, q) = (self.n_sites(), self.n_states());
        let (fields, couplings) = theta.split_at(n * q);
        surroundings.copy_from_slice(fields);
        for ((i, j), block) in pairs(n).zip(couplings.chunks_exact(q * q)) {
            let (a, b) = (usize::from(x[i]), usize::from(x[j]));
            if b < q {
                let of_i = surroundings[i * q..].iter_mut();
                for (u, row) in of_i.zip(block.chunks_exact(q)) {
                    *u += row[b];
                }
            }
            if a < q {
                let of_j = surroundings[j * q..].iter_mut();
                for (u, value) in of_j.zip(&block[a * q..(a + 1) * q]) {
                    *u += value;
                }
            }
        }
    }

    fn update(&self, theta: &[f64], x: &[u8], site: usize, old: u8, surroundings: &mut [f64]) {
        let q = self.n_states();
        let couplings = &theta[self.n_sites() * q..];
        let (old, new) = (usize::from(old), usize::from(x[site]));
        for (j, u) in surroundings.chunks_exact_mut(q).enumerate() {
            if j == site {
                continue;
            }
            let block = &couplings[pair_index(self.n_sites(), site, j) * q * q..][..q * q];
            for (state, sign) in [(old, -1.0), (new, 1.0)] {
                if state >= q {
                    continue;
                }
                if site < j {
                    let row = &block[state * q..][..q];
                    u.iter_mut().zip(row).for_each(|(u, c)| *u += sign * c);
                } else {
                    let column = block[state..].iter().step_by(q);
                    u.iter_mut().zip(column).for_each(|(u, c)| *u += sign * c);
                }
            }
        }
    }

    fn site_differences(&self, at: At<'_>, site: usize, differences: &mut [f64]) {
        let u = &at.surroundings[site * self.n_states()..][..self.n_states()];
        // A site without a state has no terms in E(x).
        let own = u.get(usize::from(at.x[site])).copied().unwrap_or(0.0);
        for (difference, u) in differences.iter_mut().zip(u) {
            *difference = own - u;
        }
    }

    fn add_gradient(&self, at: At<'_>, weights: &[f64], grad: &mut [f64]) {
        let (n, q) = (self.n_sites(), self.n_states());
        for (site, weights) in weights.chunks_exact(q).enumerate() {
            let own = usize::from(at.x[site]);
            let sum: f64 = weights.iter().sum();
            let mut add = |first: usize, step: usize| {
                for (a, weight) in weights.iter().enumerate() {
                    grad[first + a * step] -= weight;
                }
                if own < q {
                    grad[first + own * step] += sum;
                }
            };
            add(site * q, 1);
            for (j, &b) in at.x.iter().enumerate() {
                let b = usize::from(b);
                if j == site || b >= q {
                    continue;
                }
                let block = n * q + pair_index(n, site, j) * q * q;
                if site < j {
                    add(block + b, q);
                } else {
                    add(block + b * q, 1);
                }
            }
        }
    }
}
