//! Restricted Boltzmann machines, with their hidden units summed out.
//!
//! ```text
//! F(x) = b·x − Σ_k ln(1 + exp(−a_k)) (+ 2 Σ_{i<j} J_ij x_i x_j),     a_k = c_k + W_k·x
//! ```
//!
//! is the energy of the visible units; the last term makes the machine semi-restricted. θ is W by
//! hidden units, then c, b and J above the diagonal, row by row. The surroundings of a state are the
//! inputs a_k (and the fields of J), so that the flip of a visible unit costs O(hidden):
//!
//! ```text
//! Δ_i = σ_i b_i − Σ_k [ln(1 + exp(−a_k − σ_i W_ki)) − ln(1 + exp(−a_k))],     σ_i = 1 − 2 x_i
//! ```
//!
//! F is not linear in θ: objectives have several minima, and W = 0 is a saddle. Start from
//! [`Rbm::random_start`], and from several of them.

use crate::Result;
use mpf_core::rng::stream;
use mpf_core::{EnergyModel, LocalModel, check_option};
use rand::RngExt;

/// An RBM of some visible and hidden units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rbm {
    n_visible: usize,
    n_hidden: usize,
    semi_restricted: bool,
}

/// Returns ln(1 + e^x).
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// Returns 1/(1 + e^−x).
fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

impl Rbm {
    /// Makes the model; `semi_restricted` adds couplings between visible units.
    ///
    /// # Errors
    /// [`mpf_core::Error::Option`] without visible or hidden units.
    pub fn new(n_visible: usize, n_hidden: usize, semi_restricted: bool) -> Result<Self> {
        for (name, n) in [("n_visible", n_visible), ("n_hidden", n_hidden)] {
            check_option(name, n as f64, "at least 1", n >= 1)?;
        }
        Ok(Self {
            n_visible,
            n_hidden,
            semi_restricted,
        })
    }

    /// Returns the number of hidden units.
    pub fn n_hidden(&self) -> usize {
        self.n_hidden
    }

    /// Returns parameters to start from: W uniform within ±`scale`, the rest 0.
    pub fn random_start(&self, scale: f64, seed: u64) -> Vec<f64> {
        let mut rng = stream(seed, 0);
        let mut theta = vec![0.0; self.n_params()];
        for w in &mut theta[..self.n_visible * self.n_hidden] {
            *w = scale * rng.random_range(-1.0..1.0);
        }
        theta
    }

    /// Returns parameters with W uniform within ±`scale` and c and b such that a state and its
    /// complement are equally likely: c_k = −½ Σ_i W_ki, b_i = −½ Σ_k W_ki.
    pub fn random_balanced(&self, scale: f64, seed: u64) -> Vec<f64> {
        let mut theta = self.random_start(scale, seed);
        let [c, b, _] = self.offsets();
        for k in 0..self.n_hidden {
            for i in 0..self.n_visible {
                let half = 0.5 * theta[k * self.n_visible + i];
                theta[c + k] -= half;
                theta[b + i] -= half;
            }
        }
        theta
    }

    /// Returns the hidden units that do nothing at `theta`: none of their weights exceeds 0.01 in
    /// absolute value. Fewer hidden units, or another start, would do as well.
    pub fn dead_units(&self, theta: &[f64]) -> Vec<usize> {
        let rows = theta[..self.n_visible * self.n_hidden].chunks_exact(self.n_visible);
        let is_dead = |row: &[f64]| row.iter().all(|w| w.abs() < 0.01);
        let dead = rows.enumerate().filter(|(_, row)| is_dead(row));
        dead.map(|(k, _)| k).collect()
    }

    /// Returns W of hidden unit k.
    fn weights<'a>(&self, theta: &'a [f64], k: usize) -> &'a [f64] {
        &theta[k * self.n_visible..(k + 1) * self.n_visible]
    }

    /// Returns where c, b and J begin.
    fn offsets(&self) -> [usize; 3] {
        let c = self.n_visible * self.n_hidden;
        [c, c + self.n_hidden, c + self.n_hidden + self.n_visible]
    }

    /// Calls `f(J's place in θ, j)` for the other visible units j of `site`.
    fn for_each_coupling(&self, site: usize, mut f: impl FnMut(usize, usize)) {
        if !self.semi_restricted {
            return;
        }
        let (d, first) = (self.n_visible, self.offsets()[2]);
        // Above the diagonal, the column of the site, then its row.
        let place = |i: usize, j: usize| first + i * (2 * d - i - 1) / 2 + j - i - 1;
        (0..site).for_each(|i| f(place(i, site), i));
        (site + 1..d).for_each(|j| f(place(site, j), j));
    }
}

impl EnergyModel for Rbm {
    type State = [u8];

    fn n_params(&self) -> usize {
        let d = self.n_visible;
        let couplings = if self.semi_restricted {
            d * (d - 1) / 2
        } else {
            0
        };
        self.offsets()[2] + couplings
    }

    fn energy(&self, theta: &[f64], x: &[u8]) -> f64 {
        let [c, b, _] = self.offsets();
        let mut energy = 0.0;
        for k in 0..self.n_hidden {
            let terms = self.weights(theta, k).iter().zip(x);
            let input = theta[c + k] + terms.map(|(w, &x)| w * f64::from(x)).sum::<f64>();
            energy -= softplus(-input);
        }
        for (i, _) in x.iter().enumerate().filter(|(_, x)| **x == 1) {
            energy += theta[b + i];
            self.for_each_coupling(i, |at, j| {
                // Each pair is visited from both sides.
                energy += theta[at] * f64::from(x[j]);
            });
        }
        energy
    }

    fn add_energy_grad(&self, theta: &[f64], x: &[u8], scale: f64, out: &mut [f64]) {
        let [c, b, _] = self.offsets();
        for k in 0..self.n_hidden {
            let terms = self.weights(theta, k).iter().zip(x);
            let input = theta[c + k] + terms.map(|(w, &x)| w * f64::from(x)).sum::<f64>();
            let slope = scale * logistic(-input);
            out[c + k] += slope;
            let row = &mut out[k * self.n_visible..(k + 1) * self.n_visible];
            for (g, &x) in row.iter_mut().zip(x) {
                *g += slope * f64::from(x);
            }
        }
        for (i, _) in x.iter().enumerate().filter(|(_, x)| **x == 1) {
            out[b + i] += scale;
            self.for_each_coupling(i, |at, j| out[at] += scale * f64::from(x[j]));
        }
    }
}

/// The surroundings are the inputs of the hidden units, then 2 Σ_j J_ij x_j of the visible ones.
impl LocalModel for Rbm {
    fn n_sites(&self) -> usize {
        self.n_visible
    }

    fn n_surroundings(&self) -> usize {
        self.n_hidden + self.n_visible
    }

    fn surroundings(&self, theta: &[f64], x: &[u8], surroundings: &mut [f64]) {
        let [c, ..] = self.offsets();
        let (inputs, fields) = surroundings.split_at_mut(self.n_hidden);
        for (k, input) in inputs.iter_mut().enumerate() {
            let terms = self.weights(theta, k).iter().zip(x);
            *input = theta[c + k] + terms.map(|(w, &x)| w * f64::from(x)).sum::<f64>();
        }
        for (i, field) in fields.iter_mut().enumerate() {
            *field = 0.0;
            self.for_each_coupling(i, |at, j| *field += 2.0 * theta[at] * f64::from(x[j]));
        }
    }

    fn update(&self, theta: &[f64], x: &[u8], site: usize, _: u8, surroundings: &mut [f64]) {
        let change = if x[site] == 1 { 1.0 } else { -1.0 };
        let (inputs, fields) = surroundings.split_at_mut(self.n_hidden);
        for (k, input) in inputs.iter_mut().enumerate() {
            *input += change * theta[k * self.n_visible + site];
        }
        self.for_each_coupling(site, |at, j| fields[j] += 2.0 * change * theta[at]);
    }

    fn site_differences(
        &self,
        theta: &[f64],
        x: &[u8],
        surroundings: &[f64],
        site: usize,
        differences: &mut [f64],
    ) {
        let own = usize::from(x[site]);
        let sign = if own == 1 { -1.0 } else { 1.0 };
        let (inputs, fields) = surroundings.split_at(self.n_hidden);
        let mut difference = sign * (theta[self.offsets()[1] + site] + fields[site]);
        for (k, input) in inputs.iter().enumerate() {
            let after = input + sign * theta[k * self.n_visible + site];
            difference += softplus(-input) - softplus(-after);
        }
        differences[own] = 0.0;
        differences[1 - own] = difference;
    }

    fn add_site_gradient(
        &self,
        theta: &[f64],
        x: &[u8],
        surroundings: &[f64],
        site: usize,
        weights: &[f64],
        grad: &mut [f64],
    ) {
        let [c, b, _] = self.offsets();
        let sign = if x[site] == 1 { -1.0 } else { 1.0 };
        let weight = weights[0] + weights[1];
        grad[b + site] += weight * sign;
        self.for_each_coupling(site, |at, j| {
            grad[at] += 2.0 * weight * sign * f64::from(x[j]);
        });
        for (k, input) in surroundings[..self.n_hidden].iter().enumerate() {
            let row = k * self.n_visible;
            let after = weight * logistic(-input - sign * theta[row + site]);
            let change = after - weight * logistic(-input);
            grad[c + k] += change;
            for (g, &x) in grad[row..row + self.n_visible].iter_mut().zip(x) {
                *g += change * f64::from(x);
            }
            grad[row + site] += sign * after;
        }
    }

    fn add_gradient(
        &self,
        theta: &[f64],
        x: &[u8],
        surroundings: &[f64],
        weights: &[f64],
        grad: &mut [f64],
    ) {
        let [c, b, _] = self.offsets();
        let weights = weights.as_chunks::<2>().0;
        // Weights of own states are 0.
        let flips = || {
            weights
                .iter()
                .zip(x)
                .map(|([down, up], &x)| (down + up, f64::from(x)))
        };
        for (k, input) in surroundings[..self.n_hidden].iter().enumerate() {
            let rows = k * self.n_visible..(k + 1) * self.n_visible;
            let here = logistic(-input);
            let mut change = 0.0;
            let numbers = theta[rows.clone()].iter().zip(&mut grad[rows.clone()]);
            for ((w, g), (weight, x)) in numbers.zip(flips()) {
                let sign = 1.0 - 2.0 * x;
                let after = weight * logistic(-input - sign * w);
                *g += sign * after;
                change += after - weight * here;
            }
            grad[c + k] += change;
            for (g, &x) in grad[rows].iter_mut().zip(x) {
                *g += change * f64::from(x);
            }
        }
        for (i, (weight, x_i)) in flips().enumerate() {
            let slope = weight * (1.0 - 2.0 * x_i);
            grad[b + i] += slope;
            self.for_each_coupling(i, |at, j| grad[at] += 2.0 * slope * f64::from(x[j]));
        }
    }
}
