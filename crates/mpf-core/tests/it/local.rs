//! Local models: against `Flow`, against plain energies, and against enumeration.

use mpf_core::{
    At, Cancel, EnergyModel, Error, ExactLikelihood, Flow, LocalExact, LocalFitOptions,
    LocalFitter, LocalLoss, LocalModel, LocalObjective, Minimizer, Objective, Scales, SiteChanges,
    SiteData, gradient_error,
};
use ndarray::{Array2, array};

/// A ring of d sites with q states: E = Σ_i h(x_i) + J [x_i = x_{i+1}] + T [x_i = x_{i+1} = x_{i+2}].
#[derive(Clone, Copy)]
struct Ring {
    d: usize,
    q: usize,
}

impl Ring {
    fn terms(&self, x: &[u8], at: usize, mut add: impl FnMut(usize, f64)) {
        let (a, b, c) = (x[at], x[(at + 1) % self.d], x[(at + 2) % self.d]);
        add(usize::from(a), 1.0);
        if a == b {
            add(self.q, 1.0);
            if b == c {
                add(self.q + 1, 1.0);
            }
        }
    }
}

impl EnergyModel for Ring {
    type State = [u8];

    fn n_params(&self) -> usize {
        self.q + 2
    }

    fn energy(&self, theta: &[f64], x: &[u8]) -> f64 {
        let mut energy = 0.0;
        (0..self.d).for_each(|at| self.terms(x, at, |k, v| energy += v * theta[k]));
        energy
    }

    fn add_energy_grad(&self, _: &[f64], x: &[u8], scale: f64, out: &mut [f64]) {
        (0..self.d).for_each(|at| self.terms(x, at, |k, v| out[k] += scale * v));
    }
}

impl LocalModel for Ring {
    fn n_sites(&self) -> usize {
        self.d
    }

    fn n_states(&self) -> usize {
        self.q
    }
}

/// The same with only the terms that a change touches.
struct Fast(Ring);

impl EnergyModel for Fast {
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

impl Fast {
    fn near(&self, site: usize) -> impl Iterator<Item = usize> {
        let d = self.0.d;
        (0..3).map(move |k| (site + d - k) % d)
    }
}

impl LocalModel for Fast {
    fn n_sites(&self) -> usize {
        self.0.d
    }

    fn n_states(&self) -> usize {
        self.0.q
    }

    fn site_differences(&self, at: At<'_>, site: usize, differences: &mut [f64]) {
        let At { theta, x, .. } = at;
        let mut y = x.to_vec();
        for (a, difference) in differences.iter_mut().enumerate() {
            y[site] = a as u8;
            *difference = 0.0;
            for at in self.near(site) {
                self.0.terms(&y, at, |k, v| *difference += v * theta[k]);
                self.0.terms(x, at, |k, v| *difference -= v * theta[k]);
            }
        }
    }

    fn add_gradient(&self, at: At<'_>, weights: &[f64], grad: &mut [f64]) {
        let x = at.x;
        for (site, weights) in weights.chunks_exact(self.0.q).enumerate() {
            let mut y = x.to_vec();
            for (a, weight) in weights.iter().enumerate() {
                y[site] = a as u8;
                for at in self.near(site) {
                    self.0.terms(&y, at, |k, v| grad[k] += weight * v);
                    self.0.terms(x, at, |k, v| grad[k] -= weight * v);
                }
            }
        }
    }
}

const THETA: [f64; 5] = [0.3, -0.4, 0.0, -0.7, 0.5];
const LOSSES: [LocalLoss; 3] = [
    LocalLoss::Flow,
    LocalLoss::Pseudolikelihood,
    LocalLoss::Screening,
];

fn drawn(model: &impl LocalModel, theta: &[f64], n: usize, seed: u64) -> Array2<u8> {
    LocalExact::new(model, theta).unwrap().draw(n, seed)
}

fn evaluate(mut objective: impl Objective, theta: &[f64]) -> (f64, Vec<f64>) {
    let mut grad = vec![f64::NAN; theta.len()];
    let value = objective.value_and_gradient(theta, &mut grad);
    (value, grad)
}

fn assert_close(a: &[f64], b: &[f64], tolerance: f64) {
    assert_eq!(a.len(), b.len());
    for (k, (a, b)) in a.iter().zip(b).enumerate() {
        assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{k}: {a} {b}");
    }
}

#[test]
fn the_flow_is_that_of_the_oracle() {
    let ring = Ring { d: 6, q: 3 };
    let samples = drawn(&ring, &THETA, 40, 1);
    let weights: Vec<f64> = (0..40).map(|m| 0.5 + f64::from(m % 3)).collect();
    let data = SiteData::new(samples.view(), 3).unwrap();
    let data = data.weighted(&weights).unwrap();
    assert!(data.n_distinct() < 40);
    let rows: Vec<Vec<u8>> = samples.rows().into_iter().map(|r| r.to_vec()).collect();
    let rule = SiteChanges { n_states: 3 };
    let flow = Flow::new(&ring, &rule, &rows).unwrap();
    let (value, grad) = evaluate(flow.weighted(&weights).unwrap(), &THETA);
    for found in [
        evaluate(
            LocalObjective::new(&ring, &data, LocalLoss::Flow).unwrap(),
            &THETA,
        ),
        evaluate(
            LocalObjective::new(&Fast(ring), &data, LocalLoss::Flow).unwrap(),
            &THETA,
        ),
    ] {
        assert_close(&[found.0], &[value], 1e-13);
        assert_close(&found.1, &grad, 1e-13);
    }
}

#[test]
fn differences_of_terms_are_those_of_energies() {
    let ring = Ring { d: 7, q: 4 };
    let theta = [0.3, -0.4, 0.0, 0.2, -0.7, 0.5];
    let data = SiteData::new(drawn(&ring, &theta, 30, 2).view(), 4).unwrap();
    for loss in LOSSES {
        let slow = evaluate(LocalObjective::new(&ring, &data, loss).unwrap(), &theta);
        let fast = evaluate(
            LocalObjective::new(&Fast(ring), &data, loss).unwrap(),
            &theta,
        );
        assert_close(&[fast.0], &[slow.0], 1e-13);
        assert_close(&fast.1, &slow.1, 1e-12);
    }
}

#[test]
fn gradients_are_those_of_the_values() {
    let ring = Ring { d: 6, q: 3 };
    let data = SiteData::new(drawn(&ring, &THETA, 30, 3).view(), 3).unwrap();
    for loss in LOSSES {
        let mut objective = LocalObjective::new(&ring, &data, loss).unwrap();
        assert!(
            gradient_error(&mut objective, &THETA, 1e-3) < 1e-9,
            "{loss:?}"
        );
    }
    let mut likelihood = ExactLikelihood::new(&ring, &data).unwrap();
    assert!(gradient_error(&mut likelihood, &THETA, 1e-3) < 1e-9);
}

#[test]
fn pseudolikelihood_and_screening_follow_their_definitions() {
    let ring = Ring { d: 5, q: 3 };
    let x = [0u8, 2, 2, 1, 0];
    let samples = Array2::from_shape_vec((1, 5), x.to_vec()).unwrap();
    let data = SiteData::new(samples.view(), 3).unwrap();
    let (mut pseudo, mut screening) = (0.0, 0.0);
    for site in 0..5 {
        let energy = |a: u8| {
            let mut y = x;
            y[site] = a;
            ring.energy(&THETA, &y)
        };
        let z: f64 = (0..3).map(|a| (-energy(a)).exp()).sum();
        pseudo -= ((-energy(x[site])).exp() / z).ln();
        let mean = (0..3).map(energy).sum::<f64>() / 3.0;
        screening += (energy(x[site]) - mean).exp();
    }
    for (loss, expected) in [
        (LocalLoss::Pseudolikelihood, pseudo),
        (LocalLoss::Screening, screening),
    ] {
        let found = evaluate(LocalObjective::new(&ring, &data, loss).unwrap(), &THETA);
        assert!((found.0 - expected).abs() < 1e-13, "{loss:?}");
    }
}

#[test]
fn every_objective_finds_the_truth_from_exact_weights() {
    // Only differences of h matter: the last is not a parameter.
    let ring = Ring { d: 6, q: 3 };
    let exact = LocalExact::new(&ring, &THETA).unwrap();
    let mut all = Array2::zeros((729, 6));
    for (n, mut row) in all.rows_mut().into_iter().enumerate() {
        for (site, x) in row.iter_mut().enumerate() {
            *x = (n / 3usize.pow(site as u32) % 3) as u8;
        }
    }
    let data = SiteData::new(all.view(), 3).unwrap();
    let data = data.weighted(exact.probabilities()).unwrap();
    let gauge = |theta: &[f64]| -> Vec<f64> {
        (0..5)
            .map(|k| if k < 3 { theta[k] - theta[2] } else { theta[k] })
            .collect()
    };
    let mut options = LocalFitOptions::default();
    options.minimizer.gradient_tolerance = 1e-9;
    for loss in LOSSES {
        options.loss = loss;
        let model = Fast(ring);
        let fit = LocalFitter::new(&model, options.clone()).unwrap();
        let fit = fit.fit(&data).unwrap();
        assert!(fit.stop.is_converged());
        assert_close(&gauge(&fit.theta), &gauge(&THETA), 1e-6);
    }
    let mut likelihood = ExactLikelihood::new(&ring, &data).unwrap();
    let fit = Minimizer::default()
        .minimize(&mut likelihood, &[0.0; 5])
        .unwrap();
    assert_close(&gauge(&fit.theta), &gauge(&THETA), 1e-4);
    // ln p of its own states is minus the entropy.
    let entropy: f64 = exact.probabilities().iter().map(|p| p * p.ln()).sum();
    assert!((exact.log_likelihood(&data).unwrap() - entropy).abs() < 1e-12);
    assert!((fit.value + entropy).abs() < 1e-9);
    // State 5 + 3·… has x_0 = 2, x_1 = 1, and the mean of a function is its plain sum.
    let mean = exact.mean(|x| f64::from(x[0]));
    let plain = exact.probabilities().iter().enumerate();
    let plain: f64 = plain.map(|(n, p)| p * (n % 3) as f64).sum();
    assert!((mean - plain).abs() < 1e-14);
}

#[test]
fn scales_change_the_way_and_not_the_minimum() {
    let ring = Ring { d: 6, q: 2 };
    let theta = [0.4, 0.0, -0.5, 0.3];
    let data = SiteData::new(drawn(&ring, &theta, 300, 4).view(), 2).unwrap();
    let fit = |scales: Scales, l1: f64| {
        let mut options = LocalFitOptions {
            l1,
            l2: 0.01,
            scales,
            ..Default::default()
        };
        options.minimizer.gradient_tolerance = 1e-10;
        LocalFitter::new(&Fast(ring), options)
            .unwrap()
            .fit(&data)
            .unwrap()
    };
    for l1 in [0.0, 0.05] {
        let a = fit(Scales::Scores, l1);
        let b = fit(Scales::Given(vec![1.0, 0.1, 10.0, 3.0]), l1);
        assert_close(&a.theta, &b.theta, 1e-7);
        assert_close(&[a.value], &[b.value], 1e-12);
    }
    // λ₁ on a parameter that is free of penalties does nothing.
    let mut options = LocalFitOptions {
        l1: 10.0,
        l2: 0.01,
        penalised: vec![1.0, 1.0, 1.0, 0.0],
        ..Default::default()
    };
    options.minimizer.gradient_tolerance = 1e-10;
    let fit = LocalFitter::new(&Fast(ring), options)
        .unwrap()
        .fit(&data)
        .unwrap();
    assert_eq!(fit.theta[..3], [0.0; 3]);
    assert!(fit.theta[3].abs() > 0.01);
}

#[test]
fn sandwich_and_bootstrap_agree_with_the_spread_of_fits() {
    // θ of independent data sets, and what one of them says of its own error.
    let ring = Ring { d: 8, q: 2 };
    let theta = [0.5, 0.0, -0.4, 0.3];
    // h of state 1 is held by a strong penalty: only the difference is determined.
    let options = LocalFitOptions {
        loss: LocalLoss::Pseudolikelihood,
        l2: 100.0,
        penalised: vec![0.0, 1.0, 0.0, 0.0],
        ..Default::default()
    };
    let model = Fast(ring);
    let fitter = LocalFitter::new(&model, options).unwrap();
    let of = |seed: u64| SiteData::new(drawn(&ring, &theta, 400, seed).view(), 2).unwrap();
    let fits: Vec<Vec<f64>> = (0..100)
        .map(|s| fitter.fit(&of(s)).unwrap().theta)
        .collect();
    let data = of(1000);
    let fit = fitter.fit(&data).unwrap();
    let sandwich = fitter
        .sandwich(&fit.theta, &data, 1)
        .unwrap()
        .standard_errors();
    let boot = fitter
        .bootstrap(&fit.theta, &data, 100, 1, 7)
        .unwrap()
        .standard_errors();
    for k in [0, 2, 3] {
        let mean = fits.iter().map(|f| f[k]).sum::<f64>() / 100.0;
        let spread = fits.iter().map(|f| (f[k] - mean).powi(2)).sum::<f64>() / 99.0;
        // The standard deviation of 100 is known to 7 %, its estimate from one set to some 10 %.
        for found in [sandwich[k], boot[k]] {
            let ratio = found / spread.sqrt();
            assert!((0.6..1.6).contains(&ratio), "{k}: {ratio}");
        }
    }
    // Every sample twice, in blocks of two: the same errors as the single ones.
    let rows = drawn(&ring, &theta, 400, 1000);
    let twice = Array2::from_shape_fn((800, 8), |(m, i)| rows[[m / 2, i]]);
    let twice = SiteData::new(twice.view(), 2).unwrap();
    let blocks = fitter
        .sandwich(&fit.theta, &twice, 2)
        .unwrap()
        .standard_errors();
    for k in [0, 2, 3] {
        assert!((blocks[k] / sandwich[k] - 1.0).abs() < 1e-6);
    }
}

#[test]
fn held_out_scores_prefer_a_fair_penalty() {
    let ring = Ring { d: 8, q: 2 };
    let theta = [0.5, 0.0, -0.4, 0.3];
    let data = SiteData::new(drawn(&ring, &theta, 500, 5).view(), 2).unwrap();
    let fitter = LocalFitter::new(&ring, LocalFitOptions::default()).unwrap();
    let penalties = [(0.0, 100.0), (0.0, 1e-3), (10.0, 0.0)];
    let path = fitter.cross_validate(&data, &penalties, 5).unwrap();
    assert!(path.iter().map(|p| (p.l1, p.l2)).eq(penalties));
    assert!(path[1].score < path[0].score && path[1].score < path[2].score);
    assert!(path.iter().all(|p| p.standard_error > 0.0));
}

#[test]
fn threads_change_no_bit() {
    let ring = Ring { d: 8, q: 2 };
    let theta = [0.5, 0.0, -0.4, 0.3];
    let data = SiteData::new(drawn(&ring, &theta, 500, 5).view(), 2).unwrap();
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.unwrap().install(|| {
            evaluate(
                LocalObjective::new(&ring, &data, LocalLoss::Flow).unwrap(),
                &theta,
            )
        })
    };
    assert_eq!(on(1), on(3));
}

#[test]
fn bad_input_is_named() {
    let ring = Ring { d: 3, q: 2 };
    let bad = SiteData::new(array![[0, 1, 0], [0, 2, 1]].view(), 2);
    assert!(matches!(
        bad,
        Err(Error::Entry {
            index: 4,
            value: 2.0,
            ..
        })
    ));
    assert!(matches!(
        SiteData::new(Array2::zeros((0, 3)).view(), 2),
        Err(Error::Empty { .. })
    ));
    let data = SiteData::new(array![[0, 1], [1, 1]].view(), 2).unwrap();
    let fitter = LocalFitter::new(&ring, LocalFitOptions::default()).unwrap();
    assert!(matches!(
        fitter.fit(&data).err(),
        Some(Error::Count {
            expected: 2,
            found: 3,
            ..
        })
    ));
    let options = LocalFitOptions {
        penalised: vec![1.0],
        ..Default::default()
    };
    assert!(matches!(
        LocalFitter::new(&ring, options).err(),
        Some(Error::Count {
            expected: 4,
            found: 1,
            ..
        })
    ));
    assert!(LocalExact::new(&Ring { d: 21, q: 2 }, &[0.0; 4]).is_err());
    assert!(LocalExact::new(&ring, &[f64::NAN; 4]).is_err());
    let mut options = LocalFitOptions::default();
    options.minimizer.cancel = Cancel::new();
    options.minimizer.cancel.cancel();
    let cancelled = LocalFitter::new(&ring, options).unwrap();
    let data = SiteData::new(array![[0, 1, 1], [1, 1, 0]].view(), 2).unwrap();
    assert_eq!(
        cancelled.bootstrap(&[0.0; 4], &data, 2, 1, 0).err(),
        Some(Error::Cancelled)
    );
    assert_eq!(
        cancelled.sandwich(&[0.0; 4], &data, 1).err(),
        Some(Error::Cancelled)
    );
}
