//! Leapfrog and HMC: reversibility, order of the energy error, moments.

use mpf_core::rng::{next_seed, stream};
use mpf_samplers::{
    ChainOptions, ChainRunner, Error, Hmc, HmcOptions, PhasePoint, Sampler, SmoothEnergy,
    diagnostics, leapfrog,
};
use mpf_testkit::seed;
use ndarray::{Array1, Array2, ArrayView1, array};
use rand::RngExt;
use rand_distr::StandardNormal;

/// E = ½ (q − μ)ᵀ A (q − μ).
struct Gaussian {
    mean: Array1<f64>,
    precision: Array2<f64>,
}

impl SmoothEnergy for Gaussian {
    fn n_dims(&self) -> usize {
        self.mean.len()
    }

    fn energy_and_gradient(&self, q: &[f64], gradient: &mut [f64]) -> f64 {
        let from_mean = &ArrayView1::from(q) - &self.mean;
        let g = self.precision.dot(&from_mean);
        gradient.copy_from_slice(g.as_slice().unwrap());
        0.5 * from_mean.dot(&g)
    }
}

/// Covariance [[1, 0.8, 0.3], [0.8, 2, 0], [0.3, 0, 0.5]] about (1, −2, 0.5).
fn gaussian() -> (Gaussian, Array2<f64>) {
    let covariance = array![[1.0, 0.8, 0.3], [0.8, 2.0, 0.0], [0.3, 0.0, 0.5]];
    // Adjugate over determinant.
    let c = |a: usize, b: usize| covariance[[a % 3, b % 3]];
    let minor = |i, j| c(i + 1, j + 1) * c(i + 2, j + 2) - c(i + 1, j + 2) * c(i + 2, j + 1);
    let determinant: f64 = (0..3).map(|j| c(0, j) * minor(0, j)).sum();
    let precision = Array2::from_shape_fn((3, 3), |(i, j)| minor(j, i) / determinant);
    let product = precision.dot(&covariance) - Array2::<f64>::eye(3);
    assert!(product.iter().all(|e| e.abs() < 1e-12));
    let mean = array![1.0, -2.0, 0.5];
    (Gaussian { mean, precision }, covariance)
}

/// E = Σ_k |q_k| / b_k, the product of Laplace densities that ICA is made of.
struct Laplace(Vec<f64>);

impl SmoothEnergy for Laplace {
    fn n_dims(&self) -> usize {
        self.0.len()
    }

    fn energy_and_gradient(&self, q: &[f64], gradient: &mut [f64]) -> f64 {
        let mut energy = 0.0;
        for ((g, q), b) in gradient.iter_mut().zip(q).zip(&self.0) {
            *g = q.signum() / b;
            energy += q.abs() / b;
        }
        energy
    }
}

/// E = ¼ Σ q⁴ + ½ Σ (q_k − q_{k+1})²: anharmonic and coupled.
struct Quartic(usize);

impl SmoothEnergy for Quartic {
    fn n_dims(&self) -> usize {
        self.0
    }

    fn energy_and_gradient(&self, q: &[f64], gradient: &mut [f64]) -> f64 {
        let mut energy = 0.0;
        for (g, q) in gradient.iter_mut().zip(q) {
            energy += 0.25 * q.powi(4);
            *g = q.powi(3);
        }
        for k in 1..q.len() {
            let difference = q[k] - q[k - 1];
            energy += 0.5 * difference * difference;
            gradient[k] += difference;
            gradient[k - 1] -= difference;
        }
        energy
    }
}

fn normal(n: usize, seed: u64) -> Vec<f64> {
    let mut rng = stream(seed, 0);
    (0..n).map(|_| rng.sample(StandardNormal)).collect()
}

#[test]
fn leapfrog_is_reversible() {
    let energy = Quartic(7);
    for trial in 0..20 {
        let start = PhasePoint::new(
            &energy,
            &normal(7, seed() + trial),
            &normal(7, next_seed(seed() + trial)),
        )
        .unwrap();
        let mut point = start.clone();
        leapfrog(&energy, &mut point, 0.05, 60);
        assert!((point.position[0] - start.position[0]).abs() > 1e-6);
        point.negate_momentum();
        leapfrog(&energy, &mut point, 0.05, 60);
        point.negate_momentum();
        // Rounding of 120 steps, grown a little by the dynamics.
        for (a, b) in point.position.iter().zip(&start.position) {
            assert!((a - b).abs() < 1e-10);
        }
        for (a, b) in point.momentum.iter().zip(&start.momentum) {
            assert!((a - b).abs() < 1e-10);
        }
        assert!((point.hamiltonian() - start.hamiltonian()).abs() < 1e-10);
    }
}

#[test]
fn leapfrog_keeps_volume() {
    // The determinant of the Jacobian by central differences, in two dimensions of phase space.
    let energy = Quartic(1);
    let map = |q: f64, v: f64| {
        let mut point = PhasePoint::new(&energy, &[q], &[v]).unwrap();
        leapfrog(&energy, &mut point, 0.1, 15);
        (point.position[0], point.momentum[0])
    };
    let (q, v, h) = (0.7, -0.4, 1e-5);
    let (right, left) = (map(q + h, v), map(q - h, v));
    let (up, down) = (map(q, v + h), map(q, v - h));
    let determinant = ((right.0 - left.0) * (up.1 - down.1) - (right.1 - left.1) * (up.0 - down.0))
        / (4.0 * h * h);
    // Central differences: h² of truncation and 1e-16/h of rounding.
    assert!((determinant - 1.0).abs() < 1e-8, "{determinant}");
}

#[test]
fn the_energy_error_shrinks_as_the_square_of_the_step() {
    let energy = Quartic(5);
    let start = PhasePoint::new(&energy, &normal(5, 3), &normal(5, 4)).unwrap();
    // The largest error along a trajectory of time 2.
    let error = |step: f64| {
        let mut point = start.clone();
        let mut largest = 0.0f64;
        for _ in 0..(2.0 / step).round() as usize {
            leapfrog(&energy, &mut point, step, 1);
            largest = largest.max((point.hamiltonian() - start.hamiltonian()).abs());
        }
        largest
    };
    let mut step = 0.05;
    for _ in 0..4 {
        let ratio = error(step) / error(0.5 * step);
        // 4 with corrections of the order of step².
        assert!((ratio - 4.0).abs() < 0.15, "{ratio} at {step}");
        step *= 0.5;
    }
}

fn runner(n_draws: usize) -> ChainRunner {
    ChainRunner::new(ChainOptions {
        seed: seed(),
        n_draws,
        burn_in: 200,
        ..Default::default()
    })
    .unwrap()
}

/// Checks the mean of some function of the draws: six standard errors, themselves known to about
/// a tenth.
#[track_caller]
fn assert_mean(what: &str, chains: &[Vec<f64>], expected: f64) {
    let s = diagnostics::summary(chains).unwrap();
    assert!(s.rhat < 1.02, "{what}: R̂ = {}", s.rhat);
    let error = s.mean - expected;
    assert!(
        error.abs() < 6.0 * s.mcse,
        "{what}: off by {error}, standard error {}",
        s.mcse
    );
}

#[test]
fn a_correlated_gaussian_has_its_moments() {
    let (energy, covariance) = gaussian();
    let mean = energy.mean.clone();
    let (hmc, _, warm_up) =
        Hmc::warm_up(&energy, HmcOptions::default(), &[0.0; 3], 500, seed()).unwrap();
    assert_eq!(warm_up.transitions, 500);
    let run = runner(4000).run(&hmc).unwrap();
    for chain in &run.chains {
        assert_eq!(chain.info.divergences, 0);
        // The target is 0.8; averaging over 500 transitions leaves some of the noise.
        let rate = chain.info.acceptance_rate();
        assert!((0.65..0.95).contains(&rate), "{rate}");
        assert_eq!(chain.draws.dim(), (4000, 3));
    }
    let coordinates: Vec<Vec<Vec<f64>>> = (0..3).map(|k| run.coordinate(k)).collect();
    for i in 0..3 {
        assert_mean("mean", &coordinates[i], mean[i]);
        for j in 0..=i {
            let products: Vec<Vec<f64>> = coordinates[i]
                .iter()
                .zip(&coordinates[j])
                .map(|(a, b)| {
                    a.iter()
                        .zip(b)
                        .map(|(a, b)| (a - mean[i]) * (b - mean[j]))
                        .collect()
                })
                .collect();
            assert_mean("covariance", &products, covariance[[i, j]]);
        }
    }
}

#[test]
fn a_laplace_product_has_its_moments() {
    let scales = vec![0.5, 1.0, 2.0];
    let energy = Laplace(scales.clone());
    let (hmc, _, _) = Hmc::warm_up(&energy, HmcOptions::default(), &[0.1; 3], 500, seed()).unwrap();
    let run = runner(8000).run(&hmc).unwrap();
    for (k, b) in scales.iter().enumerate() {
        let q = run.coordinate(k);
        let map = |f: &dyn Fn(f64) -> f64| -> Vec<Vec<f64>> {
            q.iter()
                .map(|c| c.iter().map(|&x| f(x)).collect())
                .collect()
        };
        assert_mean("mean", &q, 0.0);
        assert_mean("mean of |q|", &map(&f64::abs), *b);
        assert_mean("variance", &map(&|x| x * x), 2.0 * b * b);
    }
}

/// From exact draws, with a step so long that a third is rejected: only the accept step can keep
/// the distribution.
#[test]
fn transitions_stay_at_a_gaussian() {
    let (energy, _) = gaussian();
    let scales = [1.0f64, 2.0, 0.5];
    let diagonal = Gaussian {
        mean: energy.mean.clone(),
        precision: Array2::from_diag(&array![1.0, 0.5, 2.0]),
    };
    let options = HmcOptions {
        step_size: 1.2,
        trajectory: 3.6,
        ..Default::default()
    };
    let hmc = Hmc::new(&diagonal, options).unwrap();
    let mut rng = stream(seed(), 0);
    let n = 20_000;
    let (mut sums, mut squares, mut accepted) = ([0.0; 3], [0.0; 3], 0);
    for _ in 0..n {
        let start: Vec<f64> = (0..3)
            .map(|k| diagonal.mean[k] + scales[k].sqrt() * rng.sample::<f64, _>(StandardNormal))
            .collect();
        let mut state = hmc.state(&start).unwrap();
        for _ in 0..2 {
            accepted += hmc.step(&mut state, &mut rng).accepted;
        }
        for k in 0..3 {
            let z = (state.position()[k] - diagonal.mean[k]) / scales[k].sqrt();
            sums[k] += z;
            squares[k] += z * z - 1.0;
        }
    }
    assert!((0.3..0.9).contains(&(accepted as f64 / (2 * n) as f64)));
    for k in 0..3 {
        // Independent: variances n and 2n. Six standard errors.
        assert!(sums[k].abs() < 6.0 * (n as f64).sqrt(), "{}", sums[k]);
        assert!(
            squares[k].abs() < 6.0 * (2.0 * n as f64).sqrt(),
            "{}",
            squares[k]
        );
    }
}

#[test]
fn warm_up_finds_a_step_from_far_off() {
    let (energy, _) = gaussian();
    for first in [1e-4, 50.0] {
        let options = HmcOptions {
            step_size: first,
            target_acceptance: 0.7,
            ..Default::default()
        };
        let (hmc, mut state, _) = Hmc::warm_up(&energy, options, &[3.0; 3], 1000, seed()).unwrap();
        let mut rng = stream(next_seed(seed()), 0);
        let acceptance: f64 = (0..2000)
            .map(|_| hmc.step(&mut state, &mut rng).acceptance)
            .sum();
        assert!((acceptance / 2000.0 - 0.7).abs() < 0.15, "{acceptance}");
    }
}

/// E = q² for q > 0, forbidden elsewhere.
struct Walled;

impl SmoothEnergy for Walled {
    fn n_dims(&self) -> usize {
        1
    }

    fn energy_and_gradient(&self, q: &[f64], gradient: &mut [f64]) -> f64 {
        gradient[0] = 2.0 * q[0];
        if q[0] > 0.0 {
            q[0] * q[0]
        } else {
            f64::INFINITY
        }
    }
}

#[test]
fn divergences_are_counted_and_rejected() {
    let hmc = Hmc::new(Walled, HmcOptions::default()).unwrap();
    let mut state = hmc.state(&[0.5]).unwrap();
    let mut rng = stream(seed(), 0);
    let mut divergences = 0;
    for _ in 0..500 {
        divergences += hmc.step(&mut state, &mut rng).divergences;
        assert!(state.position()[0] > 0.0 && state.energy().is_finite());
    }
    assert!(divergences > 50, "{divergences}");
}

#[test]
fn bad_input_is_an_error_with_the_number() {
    let new = |change: &dyn Fn(&mut HmcOptions)| {
        let mut options = HmcOptions::default();
        change(&mut options);
        Hmc::new(Quartic(2), options).map(|_| ()).unwrap_err()
    };
    assert_eq!(
        new(&|o| o.step_size = 0.0),
        Error::Core(mpf_core::Error::Option {
            name: "step_size",
            value: 0.0,
            requirement: "positive and finite"
        })
    );
    for (name, error) in [
        ("step_size", new(&|o| o.step_size = f64::NAN)),
        ("trajectory", new(&|o| o.trajectory = -1.0)),
        ("jitter", new(&|o| o.jitter = 1.0)),
        ("divergence", new(&|o| o.divergence = 0.0)),
        ("target_acceptance", new(&|o| o.target_acceptance = 1.0)),
    ] {
        assert!(
            matches!(error, Error::Core(mpf_core::Error::Option { name: found, .. }) if found == name)
        );
    }
    let hmc = Hmc::new(Walled, HmcOptions::default()).unwrap();
    assert!(matches!(
        hmc.state(&[-1.0]),
        Err(Error::NonFiniteStart { energy, gradient_index: None }) if energy == f64::INFINITY
    ));
    assert!(matches!(
        hmc.state(&[1.0, 2.0]),
        Err(Error::Core(mpf_core::Error::Count {
            expected: 1,
            found: 2,
            ..
        }))
    ));
    assert!(matches!(
        Hmc::new(Quartic(0), HmcOptions::default()).map(|_| ()),
        Err(Error::Core(mpf_core::Error::Count { found: 0, .. }))
    ));
}
