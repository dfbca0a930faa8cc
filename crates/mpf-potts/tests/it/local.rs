//! The Potts model as a local model: against plain energies, the kernel against it, and draws.

use crate::random_theta;
use mpf_core::{
    At, EnergyModel, LocalExact, LocalLoss, LocalModel, LocalObjective, Objective, SiteData,
};
use mpf_potts::{JointObjective, Loss, Penalties, Potts, Sequences};
use mpf_samplers::{ChainOptions, ChainRunner, LocalGibbs};
use mpf_testkit::seed;
use ndarray::Array2;

/// The same model with nothing but its energy.
struct Plain(Potts);

impl EnergyModel for Plain {
    type State = [u8];

    fn n_params(&self) -> usize {
        self.0.n_params()
    }

    fn energy(&self, theta: &[f64], x: &[u8]) -> f64 {
        self.0.energy(theta, x)
    }

    fn add_energy_grad(&self, theta: &[f64], x: &[u8], scale: f64, out: &mut [f64]) {
        self.0.add_energy_grad(theta, x, scale, out);
    }
}

impl LocalModel for Plain {
    fn n_sites(&self) -> usize {
        self.0.n_sites()
    }

    fn n_states(&self) -> usize {
        self.0.n_states()
    }
}

fn model(n_sites: usize, q: usize) -> Potts {
    let n = n_sites * q + n_sites * (n_sites - 1) / 2 * q * q;
    Potts::new(n_sites, q, random_theta(n, 0.8, 21))
}

fn assert_close(a: &[f64], b: &[f64]) {
    assert_eq!(a.len(), b.len());
    for (k, (a, b)) in a.iter().zip(b).enumerate() {
        assert!((a - b).abs() < 1e-12 * (1.0 + b.abs()), "{k}: {a} {b}");
    }
}

#[test]
fn differences_and_gradients_follow_a_walk() {
    let (n, q) = (5, 4);
    let fast = model(n, q);
    let plain = Plain(fast.clone());
    let theta = fast.theta();
    let mut x = [3, 0, 1, 2, 2];
    let mut kept = vec![0.0; fast.n_surroundings()];
    fast.surroundings(theta, &x, &mut kept);
    for (site, new) in [(0, 1), (4, 0), (2, 3), (0, 2), (3, 0)] {
        let old = std::mem::replace(&mut x[site], new);
        fast.update(theta, &x, site, old, &mut kept);
        let mut afresh = kept.clone();
        fast.surroundings(theta, &x, &mut afresh);
        assert_close(&kept, &afresh);
        for site in 0..n {
            let at = At {
                theta,
                x: &x,
                surroundings: &kept,
            };
            let (mut a, mut b) = ([0.0; 4], [0.0; 4]);
            fast.site_differences(at, site, &mut a);
            plain.site_differences(at, site, &mut b);
            assert_close(&a, &b);
            let mut weights = [0.0; 20];
            weights[4 * site..4 * site + 4].copy_from_slice(&[0.3, -0.7, 1.1, 0.2]);
            weights[4 * site + usize::from(x[site])] = 0.0;
            let (mut a, mut b) = (vec![0.0; theta.len()], vec![0.0; theta.len()]);
            fast.add_gradient(at, &weights, &mut a);
            plain.add_gradient(at, &weights, &mut b);
            assert_close(&a, &b);
        }
    }
}

/// Held-out scores by mpf-core are those of the kernel.
#[test]
fn the_kernel_is_the_generic_path() {
    let (n, q) = (6, 21);
    let model = model(n, q);
    let rows = Array2::from_shape_fn((40, n), |(m, i)| ((7 * m + 5 * i + m * i) % q) as u8);
    let weights: Vec<f64> = (1..=40).map(f64::from).collect();
    let data = SiteData::new(rows.view(), q).unwrap();
    let data = data.weighted(&weights).unwrap();
    let codes = rows.as_slice().unwrap();
    let sequences = Sequences::new(codes, n, q, &weights).unwrap();
    for (own, generic) in [
        (Loss::Flow, LocalLoss::Flow),
        (Loss::Pseudolikelihood, LocalLoss::Pseudolikelihood),
    ] {
        let mut own = JointObjective::new(&sequences, own, Penalties::default());
        let mut generic = LocalObjective::new(&model, &data, generic).unwrap();
        let (mut a, mut b) = (vec![0.0; model.n_params()], vec![0.0; model.n_params()]);
        let value = own.value_and_gradient(model.theta(), &mut a);
        let expected = generic.value_and_gradient(model.theta(), &mut b);
        assert!((value / expected - 1.0).abs() < 1e-12);
        assert_close(&a, &b);
    }
}

/// Gibbs sweeps of the samplers: pairs of letters as often as in the enumerated model.
#[test]
fn draws_have_the_statistics_of_the_model() {
    let (n, q) = (4, 3);
    let model = model(n, q);
    let exact = LocalExact::new(&model, model.theta()).unwrap();
    let gibbs = LocalGibbs::new(&model, model.theta(), 1.0).unwrap();
    let options = ChainOptions {
        seed: seed(),
        n_chains: 40,
        n_draws: 500,
        burn_in: 50,
        thinning: 2,
        ..ChainOptions::default()
    };
    let run = ChainRunner::new(options).unwrap().run(&gibbs).unwrap();
    for (i, j) in [(0, 1), (0, 3), (1, 2), (2, 3)] {
        for (a, b) in [(0, 0), (0, 1), (2, 1), (2, 2)] {
            let both = |x: &[u8]| f64::from(u8::from(x[i] == a && x[j] == b));
            let means = run.chains.iter().map(|chain| {
                let rows = chain.draws.rows().into_iter();
                rows.map(|row| both(&row.to_vec())).sum::<f64>() / 500.0
            });
            let means: Vec<f64> = means.collect();
            let mean = means.iter().sum::<f64>() / 40.0;
            let squares = means.iter().map(|m| (m - mean).powi(2));
            // Chains are independent of one another; 16 comparisons beyond 5 standard errors are
            // no accident.
            let error = (squares.sum::<f64>() / 39.0 / 40.0).sqrt();
            let expected = exact.mean(both);
            let gap = (mean - expected).abs();
            assert!(gap < 5.0 * error, "{i}{j} {a}{b}: {mean} {expected}");
        }
    }
}
