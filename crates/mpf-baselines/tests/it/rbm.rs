//! RBMs: fast differences against energies, and learning against the exact likelihood.

use mpf_baselines::{LocalContrastiveOptions, Machine, Rbm, local_contrastive};
use mpf_core::rng::stream;
use mpf_core::{
    At, EnergyModel, ExactLikelihood, LocalExact, LocalFitOptions, LocalFitter, LocalLoss,
    LocalModel, LocalObjective, Objective, SiteData, gradient_error,
};
use ndarray::array;
use rand::RngExt;

struct Plain(Rbm);

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
}

fn random(rbm: &Rbm, scale: f64, seed: u64) -> Vec<f64> {
    let mut rng = stream(seed, 0);
    (0..rbm.n_params())
        .map(|_| scale * rng.random_range(-1.0..1.0))
        .collect()
}

#[test]
fn the_energy_is_the_sum_over_hidden_units() {
    // Two visible, two hidden: exp(−F) = Σ_h exp(−b·x − Σ_k h_k (c_k + W_k·x)).
    let rbm = Rbm::new(2, 2, false).unwrap();
    let theta = [0.5, -1.0, 0.3, 0.8, 0.2, -0.4, 0.7, -0.6];
    for x in [[0u8, 0], [1, 0], [0, 1], [1, 1]] {
        let dot = |w: &[f64]| w[0] * f64::from(x[0]) + w[1] * f64::from(x[1]);
        let mut sum = 0.0;
        for h in 0..4 {
            let hidden = [f64::from(h & 1), f64::from(h >> 1)];
            let energy = dot(&theta[6..8])
                + hidden[0] * (theta[4] + dot(&theta[0..2]))
                + hidden[1] * (theta[5] + dot(&theta[2..4]));
            sum += (-energy).exp();
        }
        assert!((rbm.energy(&theta, &x) + f64::ln(sum)).abs() < 1e-13);
    }
}

#[test]
fn differences_and_gradients_are_those_of_energies() {
    for semi in [false, true] {
        let rbm = Rbm::new(7, 4, semi).unwrap();
        let theta = random(&rbm, 1.5, 1);
        let data = LocalExact::new(&rbm, &theta).unwrap().draw(50, 2);
        let data = SiteData::new(data.view(), 2).unwrap();
        let plain = Plain(rbm);
        for loss in [LocalLoss::Flow, LocalLoss::Pseudolikelihood] {
            let (mut fast, mut slow) = (vec![0.0; theta.len()], vec![0.0; theta.len()]);
            let mut objective = LocalObjective::new(&rbm, &data, loss).unwrap();
            let a = objective.value_and_gradient(&theta, &mut fast);
            let b = LocalObjective::new(&plain, &data, loss)
                .unwrap()
                .value_and_gradient(&theta, &mut slow);
            assert!((a - b).abs() < 1e-11 * b);
            for (k, (f, s)) in fast.iter().zip(&slow).enumerate() {
                assert!((f - s).abs() < 1e-10, "{k}: {f} {s}");
            }
            assert!(gradient_error(&mut objective, &theta, 1e-3) < 1e-8);
        }
        let mut likelihood = ExactLikelihood::new(&rbm, &data).unwrap();
        assert!(gradient_error(&mut likelihood, &theta, 1e-3) < 1e-8);
        // One site, and surroundings that follow a walk.
        let mut x = data.row(0).to_vec();
        let plain_theta = theta.clone();
        let mut theta = theta;
        rbm.prepare(&mut theta);
        let mut kept = vec![0.0; rbm.n_surroundings()];
        rbm.surroundings(&theta, &x, &mut kept);
        for site in [2, 0, 6, 2] {
            let mut weights = [0.0; 14];
            weights[2 * site + usize::from(1 - x[site])] = 0.7;
            let (mut fast, mut slow) = (vec![0.0; plain_theta.len()], vec![0.0; plain_theta.len()]);
            rbm.add_gradient(at(&theta, &x, &kept), &weights, &mut fast);
            plain.add_gradient(at(&plain_theta, &x, &[]), &weights, &mut slow);
            assert!(fast.iter().zip(&slow).all(|(f, s)| (f - s).abs() < 1e-12));
            x[site] = 1 - x[site];
            rbm.update(&theta, &x, site, 1 - x[site], &mut kept);
            let mut afresh = vec![0.0; kept.len()];
            rbm.surroundings(&theta, &x, &mut afresh);
            assert!(kept.iter().zip(&afresh).all(|(a, b)| (a - b).abs() < 1e-12));
        }
    }
}

fn at<'a>(theta: &'a [f64], x: &'a [u8], surroundings: &'a [f64]) -> At<'a> {
    At {
        theta,
        x,
        surroundings,
    }
}

#[test]
fn large_weights_do_not_overflow() {
    // Products of four means of e^±400 would: their logarithms are taken one by one, or two by two.
    for scale in [250.0, 400.0] {
        let rbm = Rbm::new(7, 4, true).unwrap();
        let theta = random(&rbm, scale, 3);
        let plain = Plain(rbm);
        let mut prepared = theta.clone();
        rbm.prepare(&mut prepared);
        let mut x = vec![0, 1, 1, 0, 0, 1, 0];
        for site in 0..7 {
            x[site] = 1 - x[site];
            let mut kept = vec![0.0; rbm.n_surroundings()];
            rbm.surroundings(&prepared, &x, &mut kept);
            let (mut all, mut slow, mut one) = ([0.0; 14], [0.0; 14], [0.0; 2]);
            rbm.differences(at(&prepared, &x, &kept), &mut all);
            plain.differences(at(&theta, &x, &[]), &mut slow);
            rbm.site_differences(at(&prepared, &x, &kept), site, &mut one);
            assert_eq!(one, all[2 * site..2 * site + 2]);
            for (f, s) in all.iter().zip(&slow) {
                assert!((f - s).abs() < 1e-10 * scale, "{f} {s}");
            }
        }
    }
    // Beyond what a machine may have, objectives are no numbers: a search turns back.
    let rbm = Rbm::new(3, 2, false).unwrap();
    let data = SiteData::new(array![[0, 1, 1], [1, 0, 1]].view(), 2).unwrap();
    let mut flow = LocalObjective::new(&rbm, &data, LocalLoss::Flow).unwrap();
    for (weight, is_finite) in [(499.0, true), (-501.0, false), (f64::NAN, false)] {
        let mut theta = vec![0.0; rbm.n_params()];
        theta[1] = weight;
        let value = flow.value_and_gradient(&theta, &mut vec![0.0; rbm.n_params()]);
        assert_eq!(value.is_finite(), is_finite, "{weight}");
        assert_eq!(Machine::new(rbm, theta).is_ok(), is_finite);
    }
}

#[test]
fn every_trainer_beats_independent_units() {
    let rbm = Rbm::new(6, 3, false).unwrap();
    let truth = rbm.random_balanced(4.0, 5);
    let exact = LocalExact::new(&rbm, &truth).unwrap();
    for i in 0..6 {
        assert!((exact.mean(|x| f64::from(x[i])) - 0.5).abs() < 1e-12);
    }
    let data = SiteData::new(exact.draw(2000, 6).view(), 2).unwrap();
    let best = exact.log_likelihood(&data).unwrap();
    let mean = |i: usize| -> f64 {
        let rows = data.weights().iter().enumerate();
        rows.map(|(m, w)| w * f64::from(data.row(m)[i]))
            .sum::<f64>()
            / data.total_weight()
    };
    let null: f64 = (0..6)
        .map(mean)
        .map(|p| p * p.ln() + (1.0 - p) * (1.0 - p).ln())
        .sum();
    let gap = best - null;
    assert!(gap > 0.1, "{gap}");
    let start = rbm.random_start(0.5, 7);
    let likelihood = |theta: &[f64]| {
        LocalExact::new(&rbm, theta)
            .unwrap()
            .log_likelihood(&data)
            .unwrap()
    };
    for loss in [LocalLoss::Flow, LocalLoss::Pseudolikelihood] {
        let options = LocalFitOptions {
            loss,
            l2: 1e-3,
            start: start.clone(),
            ..Default::default()
        };
        let fit = LocalFitter::new(&rbm, options).unwrap().fit(&data).unwrap();
        assert!(likelihood(&fit.theta) > null + 0.5 * gap, "{loss:?}");
        assert!(rbm.dead_units(&fit.theta, &data).is_empty());
    }
    for persistent in [false, true] {
        let options = LocalContrastiveOptions {
            persistent,
            ..Default::default()
        };
        let found = local_contrastive(&rbm, &data, &start, &options, |_| {}).unwrap();
        assert!(likelihood(&found.theta) > null + 0.5 * gap, "{persistent}");
    }
    // No weights; or a bias so large that the unit is always off.
    assert_eq!(rbm.dead_units(&vec![0.0; rbm.n_params()], &data), [0, 1, 2]);
    let mut silent = truth.clone();
    silent[6 * 3 + 1] = 100.0;
    assert_eq!(rbm.dead_units(&silent, &data), [1]);
    let wild = LocalContrastiveOptions {
        learning_rate: 1e5,
        ..Default::default()
    };
    let error = local_contrastive(&rbm, &data, &start, &wild, |_| {}).unwrap_err();
    assert!(error.to_string().contains("learning_rate"), "{error}");
    let strong = LocalContrastiveOptions {
        l2: 41.0,
        ..Default::default()
    };
    let error = local_contrastive(&rbm, &data, &start, &strong, |_| {}).unwrap_err();
    assert!(error.to_string().contains("l2"), "{error}");
}
