//! Centred coordinates, in which L-BFGS needs fewer steps.
//!
//! ```text
//! h_i(a) = h′_i(a) − Σ_{j≠i} Σ_b J_ij(a, b) f_j(b)            f the frequencies in the data
//! ```
//!
//! Couplings then move u about its mean alone. Without this all couplings of a site move its mean
//! together with its field, a direction in which the objective is L times as curved as in others.

use mpf_core::Objective;

/// Which field and which frequency belong to a coupling.
pub(crate) trait Centring {
    /// Calls `f(field, frequency, coupling)` with places in h, f and J, for both sites of every
    /// coupling that has a field among the parameters.
    fn for_each(&self, f: impl FnMut(usize, usize, usize));
}

/// All sites and pairs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllPairs {
    pub(crate) n_sites: usize,
    pub(crate) n_states: usize,
}

impl Centring for AllPairs {
    #[inline(always)]
    fn for_each(&self, mut f: impl FnMut(usize, usize, usize)) {
        let (n, q) = (self.n_sites, self.n_states);
        let mut k = 0;
        for i in 0..n {
            for j in i + 1..n {
                for a in i * q..(i + 1) * q {
                    for b in j * q..(j + 1) * q {
                        f(a, b, k);
                        f(b, a, k);
                        k += 1;
                    }
                }
            }
        }
    }
}

/// One site with couplings of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneSite {
    pub(crate) n_sites: usize,
    pub(crate) n_states: usize,
    pub(crate) site: usize,
}

impl Centring for OneSite {
    #[inline(always)]
    fn for_each(&self, mut f: impl FnMut(usize, usize, usize)) {
        let q = self.n_states;
        let mut k = 0;
        for j in (0..self.n_sites).filter(|j| *j != self.site) {
            for b in j * q..(j + 1) * q {
                for a in 0..q {
                    f(a, b, k);
                    k += 1;
                }
            }
        }
    }
}

/// An objective of (h, J) as a function of (h′, J).
pub(crate) struct Centred<'a, O, C> {
    objective: O,
    centring: C,
    frequencies: &'a [f64],
    n_fields: usize,
    theta: Vec<f64>,
}

impl<'a, O: Objective, C: Centring> Centred<'a, O, C> {
    pub(crate) fn new(objective: O, centring: C, frequencies: &'a [f64], n_fields: usize) -> Self {
        Self {
            theta: vec![0.0; objective.n_params()],
            objective,
            centring,
            frequencies,
            n_fields,
        }
    }

    /// Replaces (h′, J) by (h, J).
    pub(crate) fn uncentre(&self, theta: &mut [f64]) {
        let (fields, couplings) = theta.split_at_mut(self.n_fields);
        self.centring
            .for_each(|field, f, k| fields[field] -= couplings[k] * self.frequencies[f]);
    }
}

impl<O: Objective, C: Centring> Objective for Centred<'_, O, C> {
    fn n_params(&self) -> usize {
        self.objective.n_params()
    }

    fn value_and_gradient(&mut self, centred: &[f64], grad: &mut [f64]) -> f64 {
        let mut theta = std::mem::take(&mut self.theta);
        theta.copy_from_slice(centred);
        self.uncentre(&mut theta);
        let value = self.objective.value_and_gradient(&theta, grad);
        self.theta = theta;
        let (fields, couplings) = grad.split_at_mut(self.n_fields);
        self.centring
            .for_each(|field, f, k| couplings[k] -= fields[field] * self.frequencies[f]);
        value
    }

    fn set_rough(&mut self, rough: bool) -> bool {
        self.objective.set_rough(rough)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JointObjective, Loss, Penalties, Sequences};
    use mpf_core::gradient_error;

    #[test]
    fn gradients_follow_the_coordinates() {
        let codes = [0u8, 1, 2, 2, 0, 1, 1, 1, 0, 2, 2, 2];
        let sequences = Sequences::new(&codes, 3, 3, &[1.0, 0.5, 2.0, 0.7]).unwrap();
        let penalties = Penalties {
            couplings: 0.1,
            fields: 0.3,
            group: 0.0,
        };
        let plain = JointObjective::new(&sequences, Loss::Flow, penalties);
        let frequencies = sequences.frequencies();
        let centring = AllPairs {
            n_sites: 3,
            n_states: 3,
        };
        let mut centred = Centred::new(plain, centring, &frequencies, 9);
        let theta: Vec<f64> = (0..centred.n_params()).map(|k| (k as f64).sin()).collect();
        assert!(gradient_error(&mut centred, &theta, 1e-5) < 1e-7);
    }
}
