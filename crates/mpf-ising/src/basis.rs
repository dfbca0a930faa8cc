//! Standardised units, in which L-BFGS needs tens of iterations instead of thousands.
//!
//! With f_i = (x_i − m_i)/σ_i, where m_i and σ_i = √(m_i(1 − m_i)) come from the data,
//!
//! ```text
//! −E = Σ_i b_i f_i + Σ_{i<j} C_ij f_i f_j + const
//! C_ij = 4 σ_i σ_j K_ij,   b_i = 2 σ_i (h_i + Σ_j K_ij μ_j),   μ_j = 2 m_j − 1
//! ```
//!
//! The objective is the same function in better coordinates. Each C is a multiple of its K, so an
//! ℓ1 penalty on K is a weighted one on C, with the same exact zeros.
//!
//! In these units a loss has curvatures of order 1, but a ridge on K has λ/(4 σ_i σ_j)², which for
//! rarely active units is larger by many orders of magnitude. With ridges λ_K on the couplings and
//! λ_h on the fields, the coordinates are therefore those in which loss and ridge *together* have
//! curvatures of order 1:
//!
//! ```text
//! C_ij = √((4 σ_i σ_j)² + λ_K) K_ij
//! b_i = √((2 σ_i)² + λ_h) (h_i + γ_i Σ_j K_ij μ_j),   γ_i = (2 σ_i)²/((2 σ_i)² + λ_h)
//! ```
//!
//! γ_i is the shift at which b_i and C_ij do not disturb each other while couplings are weak: the
//! quadratic (2σ_i)² (h_i + Σ_j K_ij μ_j)² + λ_h h_i² has no product of the two. Without a ridge
//! all of this is the plain standardised form, to the bit.

use mpf_core::Objective;
use std::ops::Range;

/// How the field of a unit follows from the parameters: h_i = α_i + Σ_j β_ij K_ij.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Field {
    /// α = b/√((2σ)² + λ_h), β_ij = −γ μ_j.
    Free {
        /// √((2σ)² + λ_h).
        width: f64,
        /// γ.
        shift: f64,
    },
    /// α = h, β = 0.
    Fixed(f64),
    /// J_ii is fixed: α = −J_ii/2, β = 1.
    FixedBias(f64),
}

impl Field {
    /// Returns the free field of a unit with this mean, with a ridge of λ_h on it.
    pub(crate) fn free(mean: f64, ridge: f64) -> Self {
        let deviation = (mean * (1.0 - mean)).sqrt();
        let width = (2.0 * deviation).hypot(ridge.sqrt());
        let part = 2.0 * deviation / width;
        Self::Free {
            width,
            shift: part * part,
        }
    }
}

/// K = scale · C, and the fields in which K appears with their β.
#[derive(Clone, Debug)]
struct Pair {
    scale: f64,
    links: [Option<(usize, f64)>; 2],
}

/// The map from θ = (b of the free units, C of the pairs) to (h of all units, K of the pairs).
#[derive(Clone, Debug)]
pub(crate) struct Basis {
    fields: Vec<Field>,
    pairs: Vec<Pair>,
    n_free_fields: usize,
    /// The units of V at its knots, if there is one.
    potential: Vec<f64>,
    /// What is left out of V, orthonormal in these units.
    potential_null: Vec<Vec<f64>>,
}

impl Basis {
    /// Makes the map for `units` (all or one) and `pairs` with at least one end among them, whose
    /// couplings have ridges of λ_K each.
    pub(crate) fn new(
        units: Range<usize>,
        pairs: &[(usize, usize)],
        means: &[f64],
        ridges: impl Iterator<Item = f64>,
        field_of: impl Fn(usize) -> Field,
    ) -> Self {
        let fields: Vec<Field> = units.clone().map(field_of).collect();
        let deviation = |i: usize| (means[i] * (1.0 - means[i])).sqrt();
        let link = |i: usize, j: usize| {
            units.contains(&i).then(|| {
                let at = i - units.start;
                let beta = match fields[at] {
                    Field::Free { shift, .. } => shift * (1.0 - 2.0 * means[j]),
                    Field::Fixed(_) => 0.0,
                    Field::FixedBias(_) => 1.0,
                };
                (at, beta)
            })
        };
        Self {
            n_free_fields: fields
                .iter()
                .filter(|f| matches!(f, Field::Free { .. }))
                .count(),
            pairs: pairs
                .iter()
                .zip(ridges)
                .map(|(&(i, j), ridge)| Pair {
                    scale: (4.0 * (deviation(i) * deviation(j)))
                        .hypot(ridge.sqrt())
                        .recip(),
                    links: [link(i, j), link(j, i)],
                })
                .collect(),
            fields,
            potential: Vec::new(),
            potential_null: Vec::new(),
        }
    }

    /// Adds V at its knots, in these units and without `null`, to the parameters.
    pub(crate) fn with_potential(
        mut self,
        scales: impl Iterator<Item = f64>,
        null: Vec<Vec<f64>>,
    ) -> Self {
        (self.potential, self.potential_null) = (scales.collect(), null);
        self
    }

    /// Takes out of `v` what is left out of V.
    fn project(&self, v: &mut [f64]) {
        for q in &self.potential_null {
            let along: f64 = q.iter().zip(&*v).map(|(q, v)| q * v).sum();
            v.iter_mut().zip(q).for_each(|(v, q)| *v -= along * q);
        }
    }

    pub(crate) fn n_params(&self) -> usize {
        self.n_free_fields + self.pairs.len() + self.potential.len()
    }

    /// Iterates over whether each field is free.
    pub(crate) fn free_fields(&self) -> impl Iterator<Item = bool> {
        self.fields.iter().map(|f| matches!(f, Field::Free { .. }))
    }

    /// Writes (h, K) of θ.
    pub(crate) fn to_spins(&self, theta: &[f64], spins: &mut [f64]) {
        let (b, c) = theta.split_at(self.n_free_fields);
        let (h, k) = spins.split_at_mut(self.fields.len());
        let mut b = b.iter();
        for (h, field) in h.iter_mut().zip(&self.fields) {
            *h = match *field {
                Field::Free { width, .. } => b.next().expect("one b per free field") / width,
                Field::Fixed(value) => value,
                Field::FixedBias(bias) => -0.5 * bias,
            };
        }
        for ((k, c), Pair { scale, links }) in k.iter_mut().zip(c).zip(&self.pairs) {
            *k = scale * c;
            for (at, beta) in links.iter().flatten() {
                h[*at] += beta * *k;
            }
        }
        let n = self.pairs.len();
        let v = &mut k[n..];
        v.copy_from_slice(&c[n..]);
        self.project(v);
        for (v, scale) in v.iter_mut().zip(&self.potential) {
            *v *= scale;
        }
    }

    /// Returns upper bounds of Σ |h| and Σ |K|.
    pub(crate) fn sums(&self, theta: &[f64]) -> (f64, f64) {
        let (b, c) = theta.split_at(self.n_free_fields);
        let mut b = b.iter();
        let alphas = self.fields.iter().map(|field| match *field {
            Field::Free { width, .. } => b.next().map_or(0.0, |b| (b / width).abs()),
            Field::Fixed(value) => value.abs(),
            Field::FixedBias(bias) => (0.5 * bias).abs(),
        });
        let alphas: f64 = alphas.sum();
        let scaled = c.iter().zip(&self.pairs).map(|(c, p)| (p.scale * c).abs());
        let couplings: f64 = scaled.sum();
        // No |β| is larger than 1, and each K is in two fields at most.
        (alphas + 2.0 * couplings, couplings)
    }

    /// Returns θ of (h, K); fixed fields are ignored.
    pub(crate) fn coordinates(&self, spins: &[f64]) -> Vec<f64> {
        let (h, k) = spins.split_at(self.fields.len());
        let mut alpha = h.to_vec();
        let mut c = Vec::with_capacity(self.pairs.len());
        for (k, Pair { scale, links }) in k.iter().zip(&self.pairs) {
            c.push(k / scale);
            for (at, beta) in links.iter().flatten() {
                alpha[*at] -= beta * k;
            }
        }
        let b = alpha
            .iter()
            .zip(&self.fields)
            .filter_map(|(a, field)| match field {
                Field::Free { width, .. } => Some(width * a),
                _ => None,
            });
        let v = k[self.pairs.len()..].iter().zip(&self.potential);
        b.chain(c).chain(v.map(|(v, scale)| v / scale)).collect()
    }

    /// Writes ∂/∂θ, given ∂/∂(h, K).
    fn pull_back(&self, spin_grad: &[f64], grad: &mut [f64]) {
        let (gh, gk) = spin_grad.split_at(self.fields.len());
        let (gb, gc) = grad.split_at_mut(self.n_free_fields);
        let mut gb = gb.iter_mut();
        for (g, field) in gh.iter().zip(&self.fields) {
            if let Field::Free { width, .. } = field {
                *gb.next().expect("one b per free field") = g / width;
            }
        }
        for ((gc, gk), Pair { scale, links }) in gc.iter_mut().zip(gk).zip(&self.pairs) {
            let through: f64 = links
                .iter()
                .flatten()
                .map(|(at, beta)| beta * gh[*at])
                .sum();
            *gc = scale * (gk + through);
        }
        let n = self.pairs.len();
        for ((gu, gv), scale) in gc[n..].iter_mut().zip(&gk[n..]).zip(&self.potential) {
            *gu = scale * gv;
        }
        self.project(&mut gc[n..]);
    }

    /// Returns λ |K| as a weight on |C|, for every parameter.
    pub(crate) fn l1_weights(&self, lambdas: impl Iterator<Item = f64>) -> Vec<f64> {
        let mut weights = vec![0.0; self.n_free_fields];
        weights.extend(self.pairs.iter().zip(lambdas).map(|(p, l)| l * p.scale));
        weights.resize(self.n_params(), 0.0);
        weights
    }
}

/// An objective of (h, K), in the coordinates θ.
pub(crate) struct Standardized<'b, O> {
    inner: O,
    basis: &'b Basis,
    spins: Vec<f64>,
    spin_grad: Vec<f64>,
}

impl<'b, O: Objective> Standardized<'b, O> {
    pub(crate) fn new(inner: O, basis: &'b Basis) -> Self {
        let n = inner.n_params();
        Self {
            inner,
            basis,
            spins: vec![0.0; n],
            spin_grad: vec![0.0; n],
        }
    }
}

impl<O: Objective> Objective for Standardized<'_, O> {
    fn n_params(&self) -> usize {
        self.basis.n_params()
    }

    fn value_and_gradient(&mut self, theta: &[f64], grad: &mut [f64]) -> f64 {
        self.basis.to_spins(theta, &mut self.spins);
        let value = self
            .inner
            .value_and_gradient(&self.spins, &mut self.spin_grad);
        self.basis.pull_back(&self.spin_grad, grad);
        value
    }

    fn set_rough(&mut self, rough: bool) -> bool {
        self.inner.set_rough(rough)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpf_core::{from_fn, gradient_error};
    use std::iter::repeat;

    #[test]
    fn round_trip_and_chain_rule() {
        round_trip(0.0, 0.0);
        round_trip(0.3, 0.0);
        round_trip(0.02, 1.7);
    }

    fn round_trip(on_couplings: f64, on_fields: f64) {
        let means = [0.5, 0.2, 0.1, 0.9];
        let pairs = [(0, 1), (0, 2), (1, 3), (2, 3)];
        let fields = |i: usize| match i {
            0 => Field::FixedBias(0.7),
            1 => Field::Fixed(-0.4),
            _ => Field::free(means[i], on_fields),
        };
        let basis = Basis::new(0..4, &pairs, &means, repeat(on_couplings), fields);
        assert_eq!(basis.n_params(), 2 + 4);
        let theta = [0.3, -0.8, 0.5, 1.1, -0.6, 0.2];
        let mut spins = [0.0; 8];
        basis.to_spins(&theta, &mut spins);
        // Unit 1 has its field fixed; unit 0 has J_00 = −2 h_0 + 2 Σ K fixed.
        assert_eq!(spins[1], -0.4);
        assert!((-2.0 * spins[0] + 2.0 * (spins[4] + spins[5]) - 0.7).abs() < 1e-14);
        let sum = |values: &[f64]| values.iter().map(|v| v.abs()).sum::<f64>();
        let (fields, couplings) = basis.sums(&theta);
        assert!((couplings - sum(&spins[4..])).abs() < 1e-14);
        assert!(fields >= sum(&spins[..4]));
        let back = basis.coordinates(&spins);
        assert!(back.iter().zip(theta).all(|(a, b)| (a - b).abs() < 1e-14));

        let curved = from_fn(8, |t: &[f64], g: &mut [f64]| {
            let mut value = 0.0;
            for (k, (t, g)) in t.iter().zip(g).enumerate() {
                let a = 0.3 + k as f64;
                value += (a * t).sin();
                *g = a * (a * t).cos();
            }
            value
        });
        let mut objective = Standardized::new(curved, &basis);
        assert!(gradient_error(&mut objective, &theta, 1e-3) < 1e-8);
    }

    #[test]
    fn without_a_ridge_units_are_standardised_to_the_bit() {
        for k in 1..2000 {
            let means = [f64::from(k) / 2003.0, f64::from(k * k % 1999 + 1) / 2003.0];
            let free = |i: usize| Field::free(means[i], 0.0);
            let basis = Basis::new(0..2, &[(0, 1)], &means, repeat(0.0), free);
            let sigma = means.map(|m| (m * (1.0 - m)).sqrt());
            assert_eq!(basis.pairs[0].scale, 0.25 / (sigma[0] * sigma[1]));
            assert_eq!(basis.pairs[0].links[1], Some((1, 1.0 - 2.0 * means[0])));
            let Field::Free { width, .. } = basis.fields[0] else {
                panic!("the field is free");
            };
            assert_eq!(width, 2.0 * sigma[0]);
        }
    }

    /// With units that are independent, the loss of pseudolikelihood has the curvature
    /// (2σ_i)² (h_i + Σ_j K_ij μ_j)² + Σ_j (4σ_iσ_j)² K_ij² in row i.
    #[test]
    fn loss_and_ridge_together_have_curvatures_of_order_one() {
        let means = [0.001, 0.02, 0.4];
        let pairs = [(0, 1), (0, 2), (1, 2)];
        for on_couplings in [1e-6, 1e-3, 1.0, 1e3] {
            for on_fields in [0.0, on_couplings] {
                let free = |i: usize| Field::free(means[i], on_fields);
                let basis = Basis::new(0..3, &pairs, &means, repeat(on_couplings), free);
                let curvature = |theta: &[f64]| {
                    let mut spins = [0.0; 6];
                    basis.to_spins(theta, &mut spins);
                    let (h, k) = spins.split_at(3);
                    let width = |i: usize| 2.0 * (means[i] * (1.0 - means[i])).sqrt();
                    let mut sum = 0.0;
                    for (i, &h) in h.iter().enumerate() {
                        let mut centre = h;
                        for (&(p, q), k) in pairs.iter().zip(k) {
                            if p == i || q == i {
                                let j = p + q - i;
                                centre += k * (2.0 * means[j] - 1.0);
                                sum += (width(i) * width(j) * k).powi(2);
                            }
                        }
                        sum += (width(i) * centre).powi(2) + on_fields * h * h;
                    }
                    sum + on_couplings * k.iter().map(|k| k * k).sum::<f64>()
                };
                for k in 0..6 {
                    let mut unit = [0.0; 6];
                    unit[k] = 1.0;
                    // One row or two, each with its part of the field's ridge.
                    let c = curvature(&unit);
                    assert!(
                        (0.99..=4.0).contains(&c),
                        "{on_couplings} {on_fields} {k}: {c}"
                    );
                    // A field and its couplings do not mix.
                    for l in 0..3usize.min(k) {
                        let mut both = unit;
                        both[l] = 1.0;
                        let mut other = [0.0; 6];
                        other[l] = 1.0;
                        let mixed = curvature(&both) - c - curvature(&other);
                        assert!(mixed.abs() < 1e-9, "{k} {l}: {mixed}");
                    }
                }
            }
        }
    }

    #[test]
    fn b_and_c_are_the_coefficients_of_standardised_units() {
        // −E of the spins, evaluated through f, at all states of two units.
        let means = [0.3, 0.6];
        let sigma = [0.21f64.sqrt(), 0.24f64.sqrt()];
        let free = |i: usize| Field::free(means[i], 0.0);
        let basis = Basis::new(0..2, &[(0, 1)], &means, repeat(0.0), free);
        let (b0, b1, c) = (0.4, -0.3, 0.9);
        let mut spins = [0.0; 3];
        basis.to_spins(&[b0, b1, c], &mut spins);
        let difference = |x: [f64; 2]| {
            let f = [0, 1].map(|i| (x[i] - means[i]) / sigma[i]);
            let s = x.map(|x| 2.0 * x - 1.0);
            let standard = b0 * f[0] + b1 * f[1] + c * f[0] * f[1];
            standard - (spins[0] * s[0] + spins[1] * s[1] + spins[2] * s[0] * s[1])
        };
        for x in [[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]] {
            assert!((difference(x) - difference([0.0, 0.0])).abs() < 1e-14);
        }
    }
}
