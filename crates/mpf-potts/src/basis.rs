//! Standardised coordinates, in which L-BFGS needs fewer steps.
//!
//! ```text
//! h_i(a) = h′_i(a) − Σ_{j≠i} Σ_b J_ij(a, b) f_j(b)            f the frequencies in the data
//! h′ = y / √(c_i(a) + λ_h)
//! J  = z / √(c_i(a) f_j(b)[1 − f_j(b)] + c_j(b) f_i(a)[1 − f_i(a)] + λ_J)
//! ```
//!
//! Centred couplings move u about its mean alone. Without this all couplings of a site move its mean
//! together with its field, a direction in which the objective is L times as curved as in others. The
//! roots are those of the curvature without couplings: frequent letters have a larger one than rare
//! letters.

use crate::kernel::Loss;
use crate::sequences::Sequences;
use mpf_core::Objective;
use std::ops::Range;

/// Which field and which frequency belong to a coupling.
pub(crate) trait Centring {
    /// Returns the number of sites that have frequencies.
    fn n_sites(&self) -> usize;

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
    fn n_sites(&self) -> usize {
        self.n_sites
    }

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
    fn n_sites(&self) -> usize {
        self.n_sites
    }

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

/// Returns c_i(a), the curvature of the loss in h_i(a) for a model without couplings that has the
/// `frequencies` of the data.
///
/// ```text
/// pseudolikelihood  c_i(a) = f_i(a) [1 − f_i(a)]
/// flow              c_i(a) = ½ √f_i(a) Σ_{b≠a} √f_i(b)
/// ```
///
/// Ignored gaps leave frequencies of a site whose sum F is below one: f/F takes the place of the f in
/// brackets.
pub(crate) fn site_curvature(loss: Loss, frequencies: &[f64], n_states: usize) -> Vec<f64> {
    let sites = frequencies.chunks_exact(n_states).flat_map(|f| {
        let sum: f64 = f.iter().sum();
        let roots: f64 = f.iter().map(|f| f.sqrt()).sum();
        f.iter().map(move |&f| match loss {
            Loss::Pseudolikelihood => f * (1.0 - f / sum.max(f64::MIN_POSITIVE)),
            Loss::Flow => 0.5 * f.sqrt() * (roots - f.sqrt()),
        })
    });
    sites.collect()
}

/// What the coordinates are made of.
#[derive(Clone, Debug)]
pub(crate) struct Curvature {
    frequencies: Vec<f64>,
    /// c of every site and state.
    of_sites: Vec<f64>,
    /// The variance f(1 − f) of a letter.
    variances: Vec<f64>,
}

impl Curvature {
    pub(crate) fn new(sequences: &Sequences, loss: Loss) -> Self {
        let (n, q) = (sequences.total_weight(), sequences.n_states() as f64);
        let frequencies = sequences.frequencies();
        // One pseudocount per state, as in the fields where fits begin: a letter that was never seen
        // still has a probability.
        let smooth: Vec<f64> = frequencies
            .iter()
            .map(|f| (f * n + 1.0) / (n + q))
            .collect();
        Self {
            frequencies,
            of_sites: site_curvature(loss, &smooth, sequences.n_states()),
            variances: smooth.iter().map(|f| f * (1.0 - f)).collect(),
        }
    }
}

/// An objective of (h, J) as a function of (y, z).
pub(crate) struct Standardized<'a, O, C> {
    objective: O,
    centring: C,
    frequencies: &'a [f64],
    n_fields: usize,
    /// One over the roots.
    scales: Vec<f64>,
    theta: Vec<f64>,
}

impl<'a, O: Objective, C: Centring> Standardized<'a, O, C> {
    /// Wraps an objective whose fields are those of `sites`, with ridges of λ_h and λ_J.
    pub(crate) fn new(
        objective: O,
        centring: C,
        curvature: &'a Curvature,
        sites: Range<usize>,
        [fields, couplings]: [f64; 2],
    ) -> Self {
        let q = curvature.of_sites.len() / centring.n_sites();
        let own = &curvature.of_sites[sites.start * q..sites.end * q];
        let mut scales: Vec<f64> = own.iter().map(|c| c + fields).collect();
        scales.resize(objective.n_params(), couplings);
        let of_pairs = &mut scales[own.len()..];
        centring.for_each(|field, f, k| of_pairs[k] += own[field] * curvature.variances[f]);
        for scale in &mut scales {
            *scale = 1.0 / scale.sqrt();
        }
        Self {
            theta: vec![0.0; objective.n_params()],
            objective,
            centring,
            frequencies: &curvature.frequencies,
            n_fields: own.len(),
            scales,
        }
    }

    /// Returns the coordinates of a model without couplings.
    pub(crate) fn without_couplings(&self, fields: &[f64]) -> Vec<f64> {
        let scaled = fields.iter().zip(&self.scales).map(|(h, scale)| h / scale);
        let mut coordinates: Vec<f64> = scaled.collect();
        coordinates.resize(self.scales.len(), 0.0);
        coordinates
    }

    /// Replaces (y, z) by (h, J).
    pub(crate) fn to_parameters(&self, theta: &mut [f64]) {
        for (theta, scale) in theta.iter_mut().zip(&self.scales) {
            *theta *= scale;
        }
        let (fields, couplings) = theta.split_at_mut(self.n_fields);
        self.centring
            .for_each(|field, f, k| fields[field] -= couplings[k] * self.frequencies[f]);
    }
}

impl<O: Objective, C: Centring> Objective for Standardized<'_, O, C> {
    fn n_params(&self) -> usize {
        self.objective.n_params()
    }

    fn value_and_gradient(&mut self, coordinates: &[f64], grad: &mut [f64]) -> f64 {
        let mut theta = std::mem::take(&mut self.theta);
        theta.copy_from_slice(coordinates);
        self.to_parameters(&mut theta);
        let value = self.objective.value_and_gradient(&theta, grad);
        self.theta = theta;
        let (fields, couplings) = grad.split_at_mut(self.n_fields);
        self.centring
            .for_each(|field, f, k| couplings[k] -= fields[field] * self.frequencies[f]);
        for (g, scale) in grad.iter_mut().zip(&self.scales) {
            *g *= scale;
        }
        value
    }

    fn set_rough(&mut self, rough: bool) -> bool {
        self.objective.set_rough(rough)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpf_core::{from_fn, gradient_error};

    #[test]
    fn gradients_follow_the_coordinates() {
        let codes = [0u8, 1, 2, 2, 0, 1, 1, 1, 0, 2, 2, 2];
        let sequences = Sequences::new(&codes, 3, 3, &[1.0, 0.5, 2.0, 0.7]).unwrap();
        // Any objective of three fields and three couplings of three states each.
        let plain = from_fn(36, |theta: &[f64], grad: &mut [f64]| {
            let weighted = |(k, t): (usize, &f64)| (k as f64).cos() * t;
            let sum: f64 = theta.iter().enumerate().map(weighted).sum();
            for (k, (g, t)) in grad.iter_mut().zip(theta).enumerate() {
                *g = sum * (k as f64).cos() + 2.0 * k as f64 * t;
            }
            let squares = theta.iter().enumerate().map(|(k, t)| k as f64 * t * t);
            0.5 * sum * sum + squares.sum::<f64>()
        });
        let curvature = Curvature::new(&sequences, Loss::Flow);
        let pairs = AllPairs {
            n_sites: 3,
            n_states: 3,
        };
        let mut objective = Standardized::new(plain, pairs, &curvature, 0..3, [0.3, 0.1]);
        let theta: Vec<f64> = (0..objective.n_params())
            .map(|k| (k as f64).sin())
            .collect();
        assert!(gradient_error(&mut objective, &theta, 1e-5) < 1e-7);
    }
}
