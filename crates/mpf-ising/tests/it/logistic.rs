//! A second estimator for the tests: pseudolikelihood, as `mpf-baselines` has it.

use mpf_core::Objective;
use mpf_ising::{Estimator, Lanes, MarginEstimator, MarginLoss, MarginSum, Terms};

/// φ(a) = ln(1 + exp(−2a)), from q = exp(−2|a|) and y = max(−2a, 0): φ = y + ln(1 + q) and
/// φ′ = −2 min(q + y, 1)/(1 + q).
#[derive(Clone, Copy)]
pub struct LogisticLoss;

impl MarginLoss for LogisticLoss {
    #[inline(always)]
    fn value_and_slope<V: Lanes>(self, margin: V) -> (V, V) {
        let (zero, one, minus_two) = (V::splat(0.0), V::splat(1.0), V::splat(-2.0));
        let q = (minus_two * margin.abs()).exp();
        let y = (minus_two * margin).at_least(zero);
        let slope = minus_two * (q + y).at_most(one) / (one + q);
        (y + q.ln_1p_unit(), slope)
    }

    fn curvature(self, margin: f64) -> f64 {
        1.0 / margin.cosh().powi(2)
    }
}

/// Pseudolikelihood.
#[derive(Clone, Copy)]
pub struct Logistic;

impl Estimator for Logistic {
    fn objective<'a>(&self, terms: Terms<'a>) -> Box<dyn Objective + 'a> {
        Box::new(MarginSum::new(terms, LogisticLoss))
    }
}

impl MarginEstimator for Logistic {
    type Loss = LogisticLoss;

    fn loss(&self) -> LogisticLoss {
        LogisticLoss
    }
}
