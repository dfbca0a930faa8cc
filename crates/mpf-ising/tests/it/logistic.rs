//! A second estimator for the tests: pseudolikelihood, as `mpf-baselines` has it. Its sums.

use mpf_core::Objective;
use mpf_core::rng::stream;
use mpf_ising::{
    Estimator, MarginEstimator, MarginLoss, MarginSum, Samples, States, Support, Terms,
};
use rand::RngExt;

/// Pseudolikelihood.
#[derive(Clone, Copy)]
pub struct Logistic;

impl Estimator for Logistic {
    fn objective<'a>(&self, terms: Terms<'a>) -> Box<dyn Objective + 'a> {
        Box::new(MarginSum::new(terms, self.loss()))
    }
}

impl MarginEstimator for Logistic {
    fn loss(&self) -> MarginLoss {
        MarginLoss::Logistic
    }
}

/// Kernels multiply exponentials where they can: the sums are those of single margins all the same.
#[test]
fn sums_are_those_of_single_margins() {
    let (d, n) = (70, 700);
    // Sums of |K| from next to nothing to beyond what products can take, and margins of ±25.
    for (scale, field) in [
        (1e-9, 0.0),
        (0.1, 0.3),
        (3.0, 1.0),
        (40.0, 5.0),
        (0.1, 25.0),
    ] {
        for weighted in [false, true] {
            let mut rng = stream(3, 0);
            let mut states = States::new(d).unwrap();
            for _ in 0..n {
                states.push(&[rng.random::<u64>(), rng.random::<u64>() & 63]);
            }
            let weight = |m: usize| if weighted { 1.0 + (m % 3) as f64 } else { 1.0 };
            let weights: Vec<f64> = (0..n).map(weight).collect();
            let samples = if weighted {
                Samples::weighted(&states, &weights).unwrap()
            } else {
                Samples::new(&states).unwrap()
            };
            let pairs = Support::Full.pairs(d).unwrap();
            let theta: Vec<f64> = (0..d)
                .map(|_| field)
                .chain((0..pairs.len()).map(|_| scale * rng.random_range(-1.0..1.0) / d as f64))
                .collect();
            let terms = Terms::new(&samples, 0..d, pairs.clone()).unwrap();
            let mut grad = vec![0.0; theta.len()];
            let value =
                MarginSum::new(terms, MarginLoss::Logistic).value_and_gradient(&theta, &mut grad);

            let (mut expected, mut slopes) = (0.0, vec![0.0; theta.len()]);
            let total: f64 = weights.iter().sum();
            for (s, w) in states.to_spins().rows().into_iter().zip(&weights) {
                let s: Vec<f64> = s.iter().map(|&s| f64::from(s)).collect();
                let mut fields = theta[..d].to_vec();
                for (&(i, j), k) in pairs.iter().zip(&theta[d..]) {
                    fields[i] += k * s[j];
                    fields[j] += k * s[i];
                }
                let of_unit = |i: usize| MarginLoss::Logistic.value_and_slope(s[i] * fields[i]);
                let units: Vec<(f64, f64)> = (0..d).map(of_unit).collect();
                for (i, (phi, slope)) in units.iter().enumerate() {
                    expected += w * phi / total;
                    slopes[i] += w * slope * s[i] / total;
                }
                for (q, &(i, j)) in pairs.iter().enumerate() {
                    slopes[d + q] += w * (units[i].1 + units[j].1) * s[i] * s[j] / total;
                }
            }
            assert!(
                (value / expected - 1.0).abs() < 1e-13,
                "{value:e} against {expected:e} at {scale}, {field}"
            );
            let largest = slopes.iter().fold(0.0f64, |m, g| m.max(g.abs()));
            for (g, h) in grad.iter().zip(&slopes) {
                assert!((g - h).abs() < 1e-12 * largest);
            }
        }
    }
}
