//! The energy, its gradients and the likelihood; whitening.

use crate::common::{WithMomentum, normal, random_filters};
use mpf_core::from_fn;
use mpf_core::gradient_error;
use mpf_core::rng::stream;
use mpf_core::{EnergyModel, Objective};
use mpf_ica::internal::covariance;
use mpf_ica::{
    Error, Filters, LaplaceIca, NegativeLogLikelihood, Whitening, WhiteningMethod, log_likelihood,
};
use mpf_samplers::SmoothEnergy;
use mpf_testkit::seed;
use ndarray::{Array1, Array2, ArrayView2, Axis, array};

/// Responses at least this far from the kink, so that no difference of step 1e-3 crosses it.
fn far_from_kinks(filters: &Filters, data: &Array2<f64>) -> Array2<f64> {
    let keep: Vec<usize> = (0..data.nrows())
        .filter(|&r| {
            let u = filters.as_array().dot(&data.row(r));
            u.iter().all(|u| u.abs() > 0.02)
        })
        .collect();
    data.select(Axis(0), &keep)
}

#[test]
fn energies_by_hand() {
    let model = LaplaceIca::new(2);
    let theta = [1.0, -2.0, 0.5, 3.0];
    // |1·3 − 2·1| + |0.5·3 + 3·1| = 1 + 4.5.
    assert_eq!(model.energy(&theta, &[3.0, 1.0]), 5.5);
    let with_momentum = WithMomentum(model);
    let state = [3.0, 1.0, 2.0, -4.0];
    assert_eq!(with_momentum.energy(&theta, &state), 15.5);
    // sign(Jx) xᵀ with signs (−, +) at x = (1, 1).
    let mut grad = [10.0; 4];
    model.add_energy_grad(&theta, &[1.0, 1.0], 2.0, &mut grad);
    assert_eq!(grad, [8.0, 8.0, 12.0, 12.0]);
    // Jᵀ sign(Jx) at the same place.
    let filters = Filters::new(array![[1.0, -2.0], [0.5, 3.0]]).unwrap();
    let mut gradient = [0.0; 2];
    let energy = filters.energy_and_gradient(&[1.0, 1.0], &mut gradient);
    assert_eq!((energy, gradient), (4.5, [-0.5, 5.0]));
    // On the kink the middle of its slopes.
    filters.energy_and_gradient(&[2.0, 1.0], &mut gradient);
    assert_eq!(gradient, [0.5, 3.0]);
}

#[test]
fn gradients_agree_with_differences() {
    for seed in 0..3 {
        let d = 4;
        let filters = random_filters(d, seed);
        let data = far_from_kinks(&filters, &normal(8, d, seed));
        assert!(data.nrows() > 0);
        let x = data.row(0).to_vec();
        let model = LaplaceIca::new(d);
        let mut in_filters = from_fn(d * d, |theta: &[f64], grad: &mut [f64]| {
            grad.fill(0.0);
            model.add_energy_grad(theta, &x, 1.0, grad);
            model.energy(theta, &x)
        });
        // Piecewise linear: differences are exact but for rounding over h.
        assert!(gradient_error(&mut in_filters, filters.theta(), 1e-3) < 1e-11);
        let mut in_state = from_fn(d, |q: &[f64], grad: &mut [f64]| {
            filters.energy_and_gradient(q, grad)
        });
        assert!(gradient_error(&mut in_state, &x, 1e-3) < 1e-11);
        let mut likelihood = NegativeLogLikelihood::new(data.view()).unwrap();
        // ln |det J| is smooth: h⁴ of the differences.
        assert!(gradient_error(&mut likelihood, filters.theta(), 1e-3) < 1e-10);
    }
}

/// ∫ exp(ln p) over a box by the midpoint rule.
fn integral(filters: &Filters, reach: f64, n: usize) -> f64 {
    let d = filters.n_dims();
    let step = 2.0 * reach / n as f64;
    let at = |k: usize| -reach + (k as f64 + 0.5) * step;
    let total: f64 = (0..n.pow(d as u32))
        .map(|cell| {
            let x = Array2::from_shape_fn((1, d), |(_, i)| at(cell / n.pow(i as u32) % n));
            log_likelihood(filters, x.view()).unwrap().exp()
        })
        .sum();
    total * step.powi(d as i32)
}

#[test]
fn the_density_integrates_to_one() {
    // A lost ln 2 or ln |det J| is off by a factor. The tails beyond the box hold e^−20; the
    // midpoint rule errs by step²/24 of the kink's jump in slope.
    let one = Filters::new(array![[-1.7]]).unwrap();
    assert!((integral(&one, 12.0, 4000) - 1.0).abs() < 1e-5);
    let two = Filters::new(array![[1.3, -0.4], [0.5, 0.9]]).unwrap();
    let total = integral(&two, 26.0, 700);
    assert!((total - 1.0).abs() < 2e-3, "{total}");
}

#[test]
fn the_likelihood_is_minus_the_energy_plus_the_determinant() {
    let filters = random_filters(5, seed());
    let data = normal(700, 5, seed());
    let model = LaplaceIca::new(5);
    let energies = data
        .outer_iter()
        .map(|x| model.energy(filters.theta(), &x.to_vec()));
    let energy = energies.sum::<f64>() / 700.0;
    let (log_determinant, _) = filters.log_determinant_and_inverse().unwrap();
    let expected = -energy - 5.0 * 2f64.ln() + log_determinant;
    let found = log_likelihood(&filters, data.view()).unwrap();
    // Sums of 700 numbers of order 10.
    assert!((found - expected).abs() < 1e-12);
    let mut objective = NegativeLogLikelihood::new(data.view()).unwrap();
    let value = objective.value_and_gradient(filters.theta(), &mut [0.0; 25]);
    assert!((value + expected).abs() < 1e-12);
    // A singular J: "step too long".
    assert_eq!(
        objective.value_and_gradient(&[1.0; 25], &mut [0.0; 25]),
        f64::INFINITY
    );
}

#[test]
fn draws_have_laplace_responses() {
    let filters = random_filters(3, seed());
    let n = 40_000;
    let data = filters.draw(n, &mut stream(seed(), 0)).unwrap();
    let responses = data.dot(&filters.as_array().t());
    // ⟨|u|⟩ = 1 with variance 1, ⟨u⟩ = 0 with variance 2, ⟨u_i u_j⟩ = 0 with variance 4.
    let error = (1.0 / n as f64).sqrt();
    for i in 0..3 {
        let u = responses.column(i);
        let mean: f64 = u.sum() / n as f64;
        assert!(mean.abs() < 5.0 * 2f64.sqrt() * error);
        let size = u.mapv(f64::abs).sum() / n as f64;
        assert!((size - 1.0).abs() < 5.0 * error, "{size}");
        let cross = u.dot(&responses.column((i + 1) % 3)) / n as f64;
        assert!(cross.abs() < 5.0 * 2.0 * error);
    }
}

fn off_identity(data: ArrayView2<'_, f64>) -> f64 {
    let mean = data.mean_axis(Axis(0)).unwrap();
    assert!(mean.iter().all(|m| m.abs() < 1e-10));
    let d = data.ncols();
    let off = covariance(data, &Array1::zeros(d)) - Array2::<f64>::eye(d);
    off.iter().fold(0.0, |m: f64, e| m.max(e.abs()))
}

#[test]
fn whitened_data_have_the_identity_as_covariance() {
    let d = 20;
    // Axes whose scales differ by a thousand, mixed.
    let scales = Array1::from_shape_fn(d, |k| 10f64.powf(-3.0 * k as f64 / d as f64));
    let mixed = (normal(3000, d, 1) * &scales).dot(&random_filters(d, 2).as_array());
    let data = mixed + &normal(1, d, 3);
    for method in [WhiteningMethod::Zca, WhiteningMethod::Pca] {
        let whitening = Whitening::new(data.view(), method).unwrap();
        let white = whitening.apply(data.view()).unwrap();
        // The condition 1e6 of the covariance times 1e-16 leaves ten digits.
        assert!(off_identity(white.view()) < 1e-10);
        let back = whitening.invert(white.view()).unwrap();
        assert!((back - &data).iter().all(|e| e.abs() < 1e-10));
    }
    // ZCA is symmetric; PCA's first axis is that of the largest variance.
    let zca = Whitening::new(data.view(), WhiteningMethod::Zca).unwrap();
    let skew = &zca.transform() - &zca.transform().t();
    assert!(skew.iter().all(|e| e.abs() < 1e-8));
    let pca = Whitening::new(data.view(), WhiteningMethod::Pca).unwrap();
    let lengths: Vec<f64> = pca.transform().outer_iter().map(|r| r.dot(&r)).collect();
    assert!(lengths.windows(2).all(|w| w[0] < w[1]));
}

#[test]
fn data_that_cannot_be_whitened_are_errors() {
    let mut data = normal(200, 5, seed());
    // A patch minus its own mean has one dimension too many.
    let mean = data.mean_axis(Axis(1)).unwrap().insert_axis(Axis(1));
    let centred = &data - &mean;
    assert!(matches!(
        Whitening::new(centred.view(), WhiteningMethod::Zca),
        Err(Error::SingularCovariance {
            n_dims: 5,
            rank: 4,
            ..
        })
    ));
    assert!(matches!(
        Whitening::new(normal(5, 5, 1).view(), WhiteningMethod::Zca),
        Err(Error::TooFewSamples {
            n_samples: 5,
            n_dims: 5
        })
    ));
    data[[7, 2]] = f64::NAN;
    assert!(matches!(
        Whitening::new(data.view(), WhiteningMethod::Zca),
        Err(Error::NonFinite {
            row: 7,
            column: 2,
            ..
        })
    ));
    let whitening = Whitening::new(normal(50, 3, 1).view(), WhiteningMethod::Zca).unwrap();
    assert!(matches!(
        whitening.apply(normal(5, 4, 1).view()),
        Err(Error::Core(mpf_core::Error::Count {
            expected: 3,
            found: 4,
            ..
        }))
    ));
}
