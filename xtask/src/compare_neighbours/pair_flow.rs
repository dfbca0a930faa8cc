//! The flow over single flips and pairs of flips of an Ising model.
//!
//! ```text
//! E = −Σ_i h_i s_i − Σ_{i<j} K_ij s_i s_j,   a_i = s_i (h_i + Σ_j K_ij s_j),   u_i = exp(−a_i)
//! ```
//!
//! The flip of i changes E by 2 a_i; that of i and j by 2 a_i + 2 a_j − 4 K_ij s_i s_j, as s_i s_j stays
//! what it is. With exp(2 K s s′) = cosh 2K + s s′ sinh 2K, both signs of s s′ at once,
//!
//! ```text
//! Σ_i u_i + Σ_{i<j} exp(−½ΔE_ij) = Σ_i u_i + ½ [uᵀ C u + (s∘u)ᵀ S (s∘u)]
//! C = cosh 2K,   S = sinh 2K,   both with zeros on the diagonal
//! ```
//!
//! An evaluation takes six products of matrices where single flips take two.

use mpf_core::Objective;
use mpf_ising::internal::pairs;
use mpf_ising::{Couplings, Samples, SpinCouplings};
use ndarray::{Array1, Array2, ArrayView1, Axis, s};
use rayon::prelude::*;

/// Samples whose exponentials are held at a time.
const CHUNK: usize = 512;

/// The mean over samples of the flow to single and double flips, + ½ λ₂ Σ K². Parameters are h + Kμ
/// and K, scaled by the standard deviations of the spins around their means μ.
pub(super) struct PairFlow {
    spins: Array2<f64>,
    weights: Array1<f64>,
    means: Array1<f64>,
    deviations: Array1<f64>,
    l2: f64,
}

/// What a chunk of samples adds to the sum, and to its slopes.
struct Part {
    value: f64,
    fields: Array1<f64>,
    margins: Array2<f64>,
    /// Σ w u uᵀ and Σ w (s∘u)(s∘u)ᵀ.
    products: [Array2<f64>; 2],
}

impl PairFlow {
    pub(super) fn new(samples: &Samples, l2: f64) -> Self {
        let spins = samples.states().to_spins().mapv(f64::from);
        let total = samples.total_weight();
        let weights = Array1::from_shape_fn(spins.nrows(), |m| samples.weight(m) / total);
        let means = weights.dot(&spins);
        let deviations = means.mapv(|m| (1.0 - m * m).max(1e-3).sqrt());
        Self {
            spins,
            weights,
            means,
            deviations,
            l2,
        }
    }

    /// Returns the model at `theta`.
    pub(super) fn couplings(&self, theta: &[f64]) -> mpf_ising::Result<Couplings> {
        Couplings::from_spins(&self.spin_couplings(theta))
    }

    /// Returns the parameters of independent units.
    pub(super) fn start(&self) -> Vec<f64> {
        let fields = self.means.iter().zip(&self.deviations);
        let mut theta: Vec<f64> = fields
            .map(|(m, d)| m.clamp(-0.99, 0.99).atanh() * d)
            .collect();
        theta.resize(self.n_params(), 0.0);
        theta
    }

    fn spin_couplings(&self, theta: &[f64]) -> SpinCouplings {
        let d = self.means.len();
        let mut couplings = Array2::zeros((d, d));
        for ((i, j), k) in pairs(d).zip(&theta[d..]) {
            let k = k / (self.deviations[i] * self.deviations[j]);
            couplings[[i, j]] = k;
            couplings[[j, i]] = k;
        }
        let fields = &ArrayView1::from(&theta[..d]) / &self.deviations;
        SpinCouplings {
            fields: fields - couplings.dot(&self.means),
            couplings,
        }
    }

    fn part(&self, at: usize, model: &SpinCouplings, tables: &[Array2<f64>; 2]) -> Part {
        let rows = at..self.weights.len().min(at + CHUNK);
        let spins = self.spins.slice(s![rows.clone(), ..]);
        let weights = self.weights.slice(s![rows]).insert_axis(Axis(1));
        let u = (&spins * &(spins.dot(&model.couplings) + &model.fields)).mapv(|a| (-a).exp());
        let v = &spins * &u;
        // What the flip of every unit, and then of a second one, gives.
        let pairs = u.dot(&tables[0]) + &spins * &v.dot(&tables[1]);
        let value = (&u * &(1.0 + 0.5 * &pairs) * weights).sum();
        let slopes = -(&v * &(1.0 + &pairs) * weights);
        Part {
            value,
            fields: slopes.sum_axis(Axis(0)),
            margins: slopes.t().dot(&spins),
            products: [&u, &v].map(|x| (x * &weights).t().dot(x)),
        }
    }
}

impl Objective for PairFlow {
    fn n_params(&self) -> usize {
        let d = self.means.len();
        d * (d + 1) / 2
    }

    fn value_and_gradient(&mut self, theta: &[f64], grad: &mut [f64]) -> f64 {
        let d = self.means.len();
        let model = self.spin_couplings(theta);
        let off_diagonal = |f: fn(f64) -> f64| {
            let mut table = model.couplings.mapv(|k| f(2.0 * k));
            table.diag_mut().fill(0.0);
            table
        };
        let tables = [off_diagonal(f64::cosh), off_diagonal(f64::sinh)];
        let starts: Vec<usize> = (0..self.weights.len()).step_by(CHUNK).collect();
        let parts: Vec<Part> = starts
            .into_par_iter()
            .map(|at| self.part(at, &model, &tables))
            .collect();
        let mut parts = parts.into_iter();
        let mut sum = parts.next().expect("there are samples");
        for part in parts {
            sum.value += part.value;
            sum.fields += &part.fields;
            sum.margins += &part.margins;
            sum.products[0] += &part.products[0];
            sum.products[1] += &part.products[1];
        }
        for (i, g) in grad[..d].iter_mut().enumerate() {
            *g = sum.fields[i] / self.deviations[i];
        }
        for ((i, j), g) in pairs(d).zip(&mut grad[d..]) {
            let k = model.couplings[[i, j]];
            let explicit = 2.0
                * (sum.products[0][[i, j]] * tables[1][[i, j]]
                    + sum.products[1][[i, j]] * tables[0][[i, j]]);
            let by_fields = sum.fields[i] * self.means[j] + sum.fields[j] * self.means[i];
            let slope = sum.margins[[i, j]] + sum.margins[[j, i]] + explicit - by_fields;
            *g = (slope + self.l2 * k) / (self.deviations[i] * self.deviations[j]);
            sum.value += 0.5 * self.l2 * k * k;
        }
        sum.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpf_core::rng::stream;
    use mpf_core::{Connectivity, Flow, gradient_error};
    use mpf_ising::{IsingModel, States};
    use rand::RngExt;

    /// All states that differ in one or two units.
    struct OneOrTwo(usize);

    impl Connectivity<[u64]> for OneOrTwo {
        fn for_each_neighbour(
            &self,
            _: usize,
            x: &[u64],
            scratch: &mut [u64],
            mut visit: impl FnMut(&[u64], f64),
        ) {
            for i in 0..self.0 {
                for j in i..self.0 {
                    // With itself: one flip.
                    scratch[0] = x[0] ^ (1 << i) ^ if i == j { 0 } else { 1 << j };
                    visit(scratch, 0.0);
                }
            }
        }
    }

    #[test]
    fn the_closed_form_is_the_flow_to_one_and_two_flips() {
        let d = 7;
        let mut rng = stream(1, 0);
        let mut states = States::new(d).unwrap();
        for _ in 0..40 {
            states.push(&[rng.random_range(0..1u64 << d)]);
        }
        let samples = Samples::new(&states).unwrap();
        let mut fast = PairFlow::new(&samples, 0.0);
        let theta: Vec<f64> = (0..fast.n_params())
            .map(|_| rng.random_range(-0.6..0.6))
            .collect();
        let model = IsingModel::new(d);
        let rows: Vec<Vec<u64>> = states.rows().map(<[u64]>::to_vec).collect();
        let mut plain = Flow::new(&model, &OneOrTwo(d), &rows).unwrap();
        let mut unused = vec![0.0; theta.len()];
        let packed = fast.couplings(&theta).unwrap().pack();
        let expected = plain.value_and_gradient(&packed, &mut unused);
        let found = fast.value_and_gradient(&theta, &mut unused);
        assert!((found / expected - 1.0).abs() < 1e-12, "{found} {expected}");
        let mut penalised = PairFlow::new(&samples, 0.3);
        assert!(gradient_error(&mut penalised, &theta, 1e-3) < 1e-7);
    }
}
