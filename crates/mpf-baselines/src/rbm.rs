//! Restricted Boltzmann machines, with their hidden units summed out.
//!
//! ```text
//! F(x) = b·x − Σ_k ln(1 + exp(−a_k)) (+ 2 Σ_{i<j} J_ij x_i x_j),     a_k = c_k + W_k·x
//! ```
//!
//! is the energy of the visible units; the last term makes the machine semi-restricted. θ is W by
//! hidden units, then c, b and J above the diagonal, row by row. With s_k = 1/(1 + exp(a_k)), the mean of
//! hidden unit k, the flip of a visible unit costs O(hidden) products and one logarithm:
//!
//! ```text
//! Δ_i = σ_i (b_i + 2 Σ_j J_ij x_j) − ln Π_k [1 − s_k + s_k exp(−σ_i W_ki)],     σ_i = 1 − 2 x_i
//! ```
//!
//! The exponentials of ±W_ki are those of θ alone, and s_k are kept among the surroundings of a state.
//!
//! F is not linear in θ: objectives have several minima, and W = 0 is a saddle. Start from
//! [`Rbm::random_start`], and from several of them.

use crate::Result;
use crate::machine::Machine;
use mpf_core::rng::stream;
use mpf_core::{At, EnergyModel, LocalModel, SiteData, check_option};
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

/// Returns 1/(1 + e^x) and 1/(1 + e^−x), neither of them as a difference to 1.
fn logistic_pair(x: f64) -> [f64; 2] {
    let small = (-x.abs()).exp();
    let (likely, unlikely) = (1.0 / (1.0 + small), small / (1.0 + small));
    if x > 0.0 {
        [unlikely, likely]
    } else {
        [likely, unlikely]
    }
}

/// Returns Σ a b, in four sums at a time.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<4>(), b.as_chunks::<4>());
    let mut sums = [0.0; 4];
    for (a, b) in a.iter().zip(b) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    let rest = a_rest.iter().zip(b_rest).map(|(a, b)| a * b);
    sums.iter().sum::<f64>() + rest.sum::<f64>()
}

/// Visible units that are worked on at a time.
const BLOCK: usize = 32;

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

    /// Returns a random start of a fit to data, with these biases of independent visible units.
    pub(crate) fn start(&self, biases: &[f64], seed: u64) -> Vec<f64> {
        let mut theta = self.random_start(0.5, seed);
        let b = self.offsets()[1];
        theta[b..b + self.n_visible].copy_from_slice(biases);
        theta
    }

    /// Returns the share of every parameter in a penalty: none for b.
    pub(crate) fn penalised(&self) -> Vec<f64> {
        let b = self.offsets()[1];
        let mut shares = vec![1.0; self.n_params()];
        shares[b..b + self.n_visible].fill(0.0);
        shares
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

    /// Returns the hidden units that do nothing at `theta`: over `data` their means vary by less than
    /// 0.01. Fewer hidden units, or another start, would do as well.
    pub fn dead_units(&self, theta: &[f64], data: &SiteData) -> Vec<usize> {
        let mut surroundings = vec![0.0; self.n_surroundings()];
        let mut ranges = vec![[1.0f64, 0.0f64]; self.n_hidden];
        for m in 0..data.n_distinct() {
            self.surroundings(theta, data.row(m), &mut surroundings);
            let means = &surroundings[self.n_hidden..];
            for ([low, high], mean) in ranges.iter_mut().zip(means) {
                (*low, *high) = (low.min(*mean), high.max(*mean));
            }
        }
        let is_dead = |k: &usize| ranges[*k][1] - ranges[*k][0] < 0.01;
        (0..self.n_hidden).filter(is_dead).collect()
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
            let slope = scale * logistic_pair(input)[0];
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

/// Products stay below e to this.
const LARGEST_LOG: f64 = 600.0;

/// What the prepared θ and the surroundings of a state hold, by their parts.
struct View<'a> {
    /// W, exp(−W) and exp(W), by hidden units.
    weights: [&'a [f64]; 3],
    /// Factors that can be multiplied before their logarithm is taken.
    run: usize,
    /// s_k and 1 − s_k.
    means: [&'a [f64]; 2],
    /// 2 Σ_j J_ij x_j.
    fields: &'a [f64],
    /// x.
    numbers: &'a [f64],
}

impl Rbm {
    fn view<'a>(&self, at: At<'a>) -> View<'a> {
        let (d, h) = (self.n_visible, self.n_hidden);
        let (theta, tables) = at.theta.split_at(self.n_params());
        let (silent, tables) = tables.split_at(d * h);
        let (active, run) = tables.split_at(d * h);
        let (hidden, visible) = at.surroundings.split_at(3 * h);
        View {
            weights: [&theta[..d * h], silent, active],
            run: run[0] as usize,
            means: [&hidden[h..2 * h], &hidden[2 * h..]],
            fields: &visible[..d],
            numbers: &visible[d..],
        }
    }

    /// Writes the means of hidden unit k.
    fn set_means(&self, k: usize, surroundings: &mut [f64]) {
        let [mean, rest] = logistic_pair(surroundings[k]);
        surroundings[self.n_hidden + k] = mean;
        surroundings[2 * self.n_hidden + k] = rest;
    }
}

/// The surroundings are a_k, s_k and 1 − s_k of the hidden units, then 2 Σ_j J_ij x_j and x_i of the
/// visible ones.
impl LocalModel for Rbm {
    fn n_sites(&self) -> usize {
        self.n_visible
    }

    /// Appends exp(−W), exp(W) and how many of their means can be multiplied. A weight that no
    /// [`Machine`] may have makes objectives NaN, so that no fit ends there.
    fn prepare(&self, theta: &mut Vec<f64>) {
        let n_weights = self.n_visible * self.n_hidden;
        theta.reserve(2 * n_weights + 1);
        for sign in [-1.0, 1.0] {
            theta.extend_from_within(..n_weights);
            let end = theta.len() - n_weights;
            theta[end..].iter_mut().for_each(|w| {
                let is_allowed = w.abs() <= Machine::LARGEST_WEIGHT;
                *w = if is_allowed {
                    (sign * *w).exp()
                } else {
                    f64::NAN
                };
            });
        }
        let largest = theta[..n_weights].iter().fold(0.0, |m, w| w.abs().max(m));
        theta.push((LARGEST_LOG / largest).floor().max(1.0));
    }

    fn n_surroundings(&self) -> usize {
        3 * self.n_hidden + 2 * self.n_visible
    }

    fn surroundings(&self, theta: &[f64], x: &[u8], surroundings: &mut [f64]) {
        let [c, ..] = self.offsets();
        let (hidden, visible) = surroundings.split_at_mut(3 * self.n_hidden);
        let (fields, numbers) = visible.split_at_mut(self.n_visible);
        fields.fill(0.0);
        for (number, &x) in numbers.iter_mut().zip(x) {
            *number = f64::from(x);
        }
        for (j, _) in x.iter().enumerate().filter(|(_, x)| **x == 1) {
            self.for_each_coupling(j, |at, i| fields[i] += 2.0 * theta[at]);
        }
        for k in 0..self.n_hidden {
            hidden[k] = theta[c + k] + dot(self.weights(theta, k), numbers);
            self.set_means(k, hidden);
        }
    }

    fn update(&self, theta: &[f64], x: &[u8], site: usize, _: u8, surroundings: &mut [f64]) {
        let change = if x[site] == 1 { 1.0 } else { -1.0 };
        let (hidden, visible) = surroundings.split_at_mut(3 * self.n_hidden);
        for k in 0..self.n_hidden {
            hidden[k] += change * theta[k * self.n_visible + site];
            self.set_means(k, hidden);
        }
        self.for_each_coupling(site, |at, j| visible[j] += 2.0 * change * theta[at]);
        visible[self.n_visible + site] = f64::from(x[site]);
    }

    fn site_differences(&self, at: At<'_>, site: usize, differences: &mut [f64]) {
        let view = self.view(at);
        let own = usize::from(at.x[site]);
        let sign = if own == 1 { -1.0 } else { 1.0 };
        let column = view.weights[1 + own][site..].iter().step_by(self.n_visible);
        let [means, rest] = view.means;
        let (mut product, mut log) = (1.0, 0.0);
        for (k, (e, (s, r))) in column.zip(means.iter().zip(rest)).enumerate() {
            product *= r + s * e;
            if (k + 1) % view.run == 0 {
                log += f64::ln(product);
                product = 1.0;
            }
        }
        log += product.ln();
        differences[own] = 0.0;
        differences[1 - own] =
            sign * (at.theta[self.offsets()[1] + site] + view.fields[site]) - log;
    }

    fn differences(&self, at: At<'_>, differences: &mut [f64]) {
        let view = self.view(at);
        let [_, silent, active] = view.weights;
        let b = &at.theta[self.offsets()[1]..];
        for (block, differences) in differences.chunks_mut(2 * BLOCK).enumerate() {
            let first = block * BLOCK;
            let n = differences.len() / 2;
            let (mut products, mut logs) = ([1.0; BLOCK], [0.0; BLOCK]);
            let numbers = &view.numbers[first..first + n];
            for (k, (s, r)) in view.means[0].iter().zip(view.means[1]).enumerate() {
                let row = k * self.n_visible + first..k * self.n_visible + first + n;
                let tables = silent[row.clone()].iter().zip(&active[row]).zip(numbers);
                for (product, ((down, up), x)) in products.iter_mut().zip(tables) {
                    // One of the two, without a branch.
                    *product *= r + s * (x * up + (1.0 - x) * down);
                }
                if (k + 1) % view.run == 0 {
                    for (log, product) in logs.iter_mut().zip(&mut products) {
                        *log += product.ln();
                        *product = 1.0;
                    }
                }
            }
            for (k, pair) in differences.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                let site = first + k;
                let sign = 1.0 - 2.0 * numbers[k];
                let log = logs[k] + products[k].ln();
                *pair = [0.0; 2];
                pair[usize::from(1 - at.x[site])] = sign * (b[site] + view.fields[site]) - log;
            }
        }
    }

    fn add_gradient(&self, at: At<'_>, weights: &[f64], grad: &mut [f64]) {
        let view = self.view(at);
        let [_, silent, active] = view.weights;
        let [c, b, _] = self.offsets();
        // Weights of own states are 0.
        let weights = weights.as_chunks::<2>().0;
        let total: f64 = weights.iter().map(|[down, up]| down + up).sum();
        let ones = [1.0; BLOCK];
        for (k, (s, r)) in view.means[0].iter().zip(view.means[1]).enumerate() {
            let row = k * self.n_visible..(k + 1) * self.n_visible;
            let mut change = -s * total;
            for first in row.clone().step_by(BLOCK) {
                let block = first..row.end.min(first + BLOCK);
                let sites = block.start - row.start..block.end - row.start;
                let tables = silent[block.clone()].iter().zip(&active[block.clone()]);
                let flips = view.numbers[sites.clone()].iter().zip(&weights[sites]);
                let mut afters = [0.0; BLOCK];
                let out = grad[block].iter_mut().zip(&mut afters);
                for (((g, after), (down, up)), (x, [to_zero, to_one])) in out.zip(tables).zip(flips)
                {
                    let e = s * (x * up + (1.0 - x) * down);
                    *after = (to_zero + to_one) * e / (r + e);
                    *g += (1.0 - 2.0 * x) * *after;
                }
                change += dot(&afters, &ones);
            }
            grad[c + k] += change;
            for (g, x) in grad[row].iter_mut().zip(view.numbers) {
                *g += change * x;
            }
        }
        for (i, [to_zero, to_one]) in weights.iter().enumerate() {
            grad[b + i] += to_one - to_zero;
        }
        for (j, _) in at.x.iter().enumerate().filter(|(_, x)| **x == 1) {
            self.for_each_coupling(j, |place, i| {
                let [down, up] = weights[i];
                grad[place] += 2.0 * (up - down);
            });
        }
    }
}
