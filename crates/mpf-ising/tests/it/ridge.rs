//! Ridge fits: against Newton's method on data with rarely active units, and how fast they are.

use crate::logistic::Logistic;
use mpf_core::rng::stream;
use mpf_core::{MinimizerOptions, StopReason};
use mpf_ising::{Estimator, Fit, FitOptions, Fitter, MarginLoss, Mode, Mpf, Samples, States};
use mpf_testkit::seed;
use ndarray::{Array1, Array2};
use rand::RngExt;

/// Rows of units that follow one hidden rhythm, unit i active with about `means[i]`. Every unit and
/// every pair of neighbours is active at least once.
fn rare(means: &[f64], n: usize) -> States {
    let d = means.len();
    let mut rng = stream(seed(), 7);
    let mut rows = Array2::<u8>::zeros((n, d));
    for (m, mut row) in rows.rows_mut().into_iter().enumerate() {
        let excited = rng.random::<f64>() < 0.3;
        for (i, x) in row.iter_mut().enumerate() {
            let p = means[i] * if excited { 2.0 } else { 0.55 };
            *x = u8::from(rng.random::<f64>() < p);
        }
        if m < d {
            row[m] = 1;
            row[(m + 1) % d] = 1;
        }
    }
    States::from_binary(rows.view()).unwrap()
}

/// Solves `a x = b` by elimination with pivots.
fn solve(mut a: Array2<f64>, mut b: Array1<f64>) -> Array1<f64> {
    let n = b.len();
    for k in 0..n {
        let pivot = (k..n)
            .max_by(|&p, &q| a[[p, k]].abs().total_cmp(&a[[q, k]].abs()))
            .unwrap();
        for j in 0..n {
            a.swap([k, j], [pivot, j]);
        }
        b.swap(k, pivot);
        for i in k + 1..n {
            let f = a[[i, k]] / a[[k, k]];
            for j in k..n {
                a[[i, j]] -= f * a[[k, j]];
            }
            b[i] -= f * b[k];
        }
    }
    for k in (0..n).rev() {
        let known: f64 = (k + 1..n).map(|j| a[[k, j]] * b[j]).sum();
        b[k] = (b[k] - known) / a[[k, k]];
    }
    b
}

/// Minimises mean Σ_i φ(s_i (h_i + Σ_j K_ij s_j)) over `units`, with ridges `on_k` and `on_h`, by
/// Newton's method. Returns h of the units and K of `pairs`.
fn newton(
    loss: MarginLoss,
    samples: &Samples,
    units: &[usize],
    pairs: &[(usize, usize)],
    (on_k, on_h): (f64, f64),
) -> Array1<f64> {
    let spins = samples.states().to_spins().mapv(f64::from);
    let u = units.len();
    let size = u + pairs.len();
    let ridge = |k: usize| if k < u { on_h } else { on_k };
    // Value, gradient and Hessian.
    let at = |theta: &Array1<f64>| {
        let mut value: f64 = (0..size).map(|k| 0.5 * ridge(k) * theta[k].powi(2)).sum();
        let mut grad = Array1::from_shape_fn(size, |k| ridge(k) * theta[k]);
        let mut hessian = Array2::from_diag(&Array1::from_shape_fn(size, ridge));
        for (m, s) in spins.rows().into_iter().enumerate() {
            let weight = samples.weight(m) / samples.total_weight();
            for (at, &i) in units.iter().enumerate() {
                // ∂a/∂θ, where it is not zero.
                let mut slopes = vec![(at, s[i])];
                for (k, &(p, q)) in pairs.iter().enumerate() {
                    if p == i || q == i {
                        slopes.push((u + k, s[p] * s[q]));
                    }
                }
                let a: f64 = slopes.iter().map(|&(k, f)| theta[k] * f).sum();
                let (v, g) = loss.value_and_slope(a);
                value += weight * v;
                for &(k, f) in &slopes {
                    grad[k] += weight * g * f;
                    for &(l, e) in &slopes {
                        hessian[[k, l]] += weight * loss.curvature(a) * f * e;
                    }
                }
            }
        }
        (value, grad, hessian)
    };
    let mut theta = Array1::zeros(size);
    for _ in 0..200 {
        let (value, grad, hessian) = at(&theta);
        let step = solve(hessian, grad.clone());
        let decrease = step.dot(&grad);
        // Below this, whole steps are exact.
        let mut length = 1.0;
        while decrease > 1e-10 && at(&(&theta - length * &step)).0 > value - 0.1 * length * decrease
        {
            length *= 0.5;
        }
        theta -= &(length * &step);
        if decrease < 1e-24 {
            return theta;
        }
    }
    panic!("Newton's method did not converge");
}

const MEANS: [f64; 5] = [0.001, 0.002, 0.02, 0.3, 0.5];

fn check_newton<E: Estimator + Clone>(
    estimator: &E,
    loss: MarginLoss,
    l2: f64,
    l2_on_fields: bool,
    mode: Mode,
) {
    let d = MEANS.len();
    let samples = Samples::new(&rare(&MEANS, 3000)).unwrap();
    let options = FitOptions {
        l2,
        l2_on_fields,
        mode,
        ..Default::default()
    };
    let fit = Fitter::new(estimator.clone(), options).unwrap();
    let fit = fit.fit(&samples).unwrap();
    assert!(fit.stop.is_converged() && fit.kkt_residual <= 1e-6);
    let pairs: Vec<_> = (0..d)
        .flat_map(|i| (i + 1..d).map(move |j| (i, j)))
        .collect();
    let on_h = if l2_on_fields { l2 } else { 0.0 };
    let all: Vec<usize> = (0..d).collect();
    let mut k = Array2::<f64>::zeros((d, d));
    let mut h = Array1::<f64>::zeros(d);
    let rows: Vec<(&[usize], f64)> = match mode {
        Mode::Joint => vec![(&all, 1.0)],
        Mode::NodeWise => all.chunks(1).map(|unit| (unit, 0.5)).collect(),
    };
    for (units, share) in rows {
        let mut own = pairs.clone();
        own.retain(|(i, j)| units.contains(i) || units.contains(j));
        let theta = newton(loss, &samples, units, &own, (share * l2, on_h));
        for (at, &i) in units.iter().enumerate() {
            h[i] = theta[at];
        }
        for (&(i, j), theta) in own.iter().zip(theta.iter().skip(units.len())) {
            // The mean of the two rows, or the one joint value.
            k[[i, j]] += if mode == Mode::Joint { 1.0 } else { 0.5 } * theta;
        }
    }
    let found = fit.couplings.to_spins();
    let means = samples.means();
    let width = |i: usize| 2.0 * (means[i] * (1.0 - means[i])).sqrt();
    // A gradient of at most 1e-6 in each of 15 coordinates, over curvatures above .1. Fields move
    // with the couplings.
    for &(i, j) in &pairs {
        let off = (found.couplings[[i, j]] - k[[i, j]]).abs();
        let off = off * (width(i) * width(j)).hypot(l2.sqrt());
        assert!(off < 4e-5, "K({i}, {j}) of λ₂ = {l2}: {off:e}");
    }
    for i in 0..d {
        let by_couplings: f64 = (0..d)
            .map(|j| found.couplings[[i, j]] - k[[i.min(j), i.max(j)]])
            .sum();
        let off = (found.fields[i] - h[i]).abs() - by_couplings.abs();
        assert!(off * width(i) < 4e-5, "h({i}) of λ₂ = {l2}: {off:e}");
    }
}

#[test]
fn ridge_fits_of_rare_units_are_those_of_newton() {
    for l2 in [1.0 / 3000.0, 0.1, 10.0, 1000.0] {
        for on_fields in [false, true] {
            for mode in [Mode::Joint, Mode::NodeWise] {
                check_newton(&Mpf::default(), MarginLoss::FLOW, l2, on_fields, mode);
                check_newton(&Logistic, MarginLoss::Logistic, l2, on_fields, mode);
            }
        }
    }
}

fn ridge_fit<E: Estimator + Clone>(estimator: E, samples: &Samples, options: FitOptions) -> Fit {
    let fit = Fitter::new(estimator, options)
        .unwrap()
        .fit(samples)
        .unwrap();
    assert!(fit.stop.is_converged(), "{}", fit.stop);
    fit
}

/// Twenty units, a quarter of them active in about one of a thousand samples.
fn twenty() -> Samples {
    let means: Vec<f64> = (0..20).map(|i| [0.001, 0.01, 0.1, 0.4][i % 4]).collect();
    Samples::new(&rare(&means, 2000)).unwrap()
}

#[test]
fn ridge_fits_take_tens_of_iterations() {
    let samples = twenty();
    // Twice the most that was measured for either estimator: 95, 46, 31, 27 and 26.
    for (l2, most) in [(5e-4, 190), (0.01, 92), (1.0, 62), (100.0, 54), (1e4, 52)] {
        for l2_on_fields in [false, true] {
            let options = FitOptions {
                l2,
                l2_on_fields,
                ..Default::default()
            };
            let mpf = ridge_fit(Mpf::default(), &samples, options.clone());
            let pl = ridge_fit(Logistic, &samples, options);
            for n in [mpf.iterations, pl.iterations] {
                assert!(n <= most, "{n} iterations at λ₂ = {l2}");
            }
        }
    }
}

#[test]
fn a_start_from_another_estimator_saves_iterations() {
    let samples = twenty();
    for l2 in [5e-4, 0.01, 1.0] {
        let options = FitOptions {
            l2,
            ..Default::default()
        };
        let mpf = ridge_fit(Mpf::default(), &samples, options.clone());
        let cold = ridge_fit(Logistic, &samples, options.clone());
        let start = Some(mpf.couplings);
        let warm = ridge_fit(Logistic, &samples, FitOptions { start, ..options });
        assert!(warm.iterations < cold.iterations);
        // Both are within 1e-6 of a gradient of zero.
        assert!((warm.value - cold.value).abs() < 1e-9);
    }
}

#[test]
fn a_tolerance_below_rounding_is_met_to_machine_precision() {
    let samples = twenty();
    for mode in [Mode::Joint, Mode::NodeWise] {
        let options = FitOptions {
            l2: 5e-4,
            mode,
            minimizer: MinimizerOptions {
                gradient_tolerance: 1e-14,
                ..Default::default()
            },
            ..Default::default()
        };
        let fit = ridge_fit(Mpf::default(), &samples, options.clone());
        assert_eq!(fit.stop, StopReason::MachinePrecision);
        assert!(fit.warnings.is_empty(), "{:?}", fit.warnings);
        // √(2 · 100 ε · 20), the most that rounding explains.
        assert!(fit.kkt_residual < 1e-6, "{}", fit.kkt_residual);
    }
}
