//! Pseudolikelihood (Besag; paper, Appendix E).
//!
//! ```text
//! −ln Π_i p(x_i | the others), averaged:
//! PL = 1/W Σ_m w_m Σ_i ln(1 + exp(−2 a_mi)),    a_mi = s_mi (h_i + Σ_j K_ij s_mj)
//! ```
//!
//! over spins s = 2x − 1. MPF is the same sum with exp(−a) in place of ln(1 + exp(−2a)), so here
//! is only that function, [`LogisticLoss`]: the packed-bit sums, tied J_ij = J_ji, standardised
//! units, penalties, supports, weights and the node-wise mode are those of
//! [`mpf_ising::Fitter`].
//!
//! For one unit, PL's asymptotic variance is never above MPF's, and on cold spin glasses and
//! sparse recordings it is much below. When *not* to use it: when only a few iterations can be
//! afforded, which is where MPF leads.

use crate::method::{Description, MarginMethod, OwnObjective, Takes};
use mpf_core::Objective;
use mpf_ising::{Estimator, Lanes, MarginEstimator, MarginLoss, MarginSum, Terms};

/// φ(a) = ln(1 + exp(−2a)) = −ln p(x_i | the others).
#[derive(Clone, Copy, Debug, Default)]
pub struct LogisticLoss;

impl MarginLoss for LogisticLoss {
    /// Only exp(−2|a|) is ever taken, so that nothing overflows and small losses keep their
    /// digits.
    ///
    /// φ = y + ln(1 + q) and φ′ = −2 min(q + y, 1)/(1 + q), with q = exp(−2|a|) and
    /// y = max(−2a, 0): for a ≥ 0 the minimum is q, and below 0 it is 1, since e^{−y} + y ≥ 1.
    #[inline(always)]
    fn value_and_slope<V: Lanes>(self, margin: V) -> (V, V) {
        let (one, two) = (V::splat(1.0), V::splat(2.0));
        let q = (-two * margin.abs()).exp();
        let y = (-two * margin).at_least(V::splat(0.0));
        (
            y + q.ln_1p_unit(),
            -two * ((q + y).at_most(one) / (one + q)),
        )
    }

    /// 4 q/(1 + q)², even in a.
    fn curvature(self, margin: f64) -> f64 {
        let odds = (-2.0 * margin.abs()).exp();
        4.0 * odds / ((1.0 + odds) * (1.0 + odds))
    }
}

/// Pseudolikelihood, as an estimator of [`Fitter`](mpf_ising::Fitter).
///
/// ```
/// use mpf_baselines::Pseudolikelihood;
/// use mpf_ising::{Couplings, Exact, FitOptions, Fitter, Samples};
/// use ndarray::array;
///
/// let truth = Couplings::new(array![[0.5, -1.0], [-1.0, 0.2]])?;
/// let states = Exact::new(&truth)?.draw(50_000, 1);
/// let fitter = Fitter::new(Pseudolikelihood, FitOptions::default())?;
/// let fit = fitter.fit(&Samples::new(&states)?)?;
/// assert!(fit.stop.is_converged());
/// assert!(fit.couplings.mean_square_error(&truth) < 0.001);
/// # Ok::<(), mpf_baselines::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Pseudolikelihood;

impl Estimator for Pseudolikelihood {
    fn objective<'a>(&self, terms: Terms<'a>) -> Box<dyn Objective + 'a> {
        Box::new(MarginSum::new(terms, LogisticLoss))
    }
}

impl MarginEstimator for Pseudolikelihood {
    type Loss = LogisticLoss;

    fn loss(&self) -> LogisticLoss {
        LogisticLoss
    }
}

pub(crate) static PL: MarginMethod<Pseudolikelihood> = MarginMethod {
    description: Description {
        name: "pl",
        title: "PL",
        summary: "Pseudolikelihood",
        takes: &[
            Takes::Penalties,
            Takes::NodeWise,
            Takes::Support,
            Takes::Sandwich,
        ],
        objective: Some(OwnObjective::Pseudolikelihood),
        max_units: usize::MAX,
        is_local: true,
        competes: true,
    },
    estimator: |_| Pseudolikelihood,
    always_node_wise: false,
};

#[cfg(test)]
mod tests {
    use super::*;
    use mpf_ising::internal::Portable;

    fn loss(margin: f64) -> (f64, f64) {
        let (value, slope) = LogisticLoss.value_and_slope(Portable::splat(margin));
        let (mut values, mut slopes) = ([0.0; 4], [0.0; 4]);
        value.store(&mut values);
        slope.store(&mut slopes);
        (values[0], slopes[0])
    }

    #[test]
    fn the_loss_is_safe_and_right() {
        // ln(1 + e^{−2a}) and −2/(1 + e^{2a}), where nothing overflows.
        for a in [-30.0f64, -3.0, -0.4, -1e-9, 0.0, 1e-9, 0.7, 12.0] {
            let (value, slope) = loss(a);
            let expected = (-2.0 * a).exp().ln_1p();
            // A few roundings each.
            assert!((value - expected).abs() <= 8.0 * f64::EPSILON * expected);
            let expected = -2.0 / (1.0 + (2.0 * a).exp());
            assert!((slope - expected).abs() <= 8.0 * f64::EPSILON * expected.abs());
            let expected = 1.0 / a.cosh().powi(2);
            let curvature = LogisticLoss.curvature(a);
            // e^{2a} and cosh a each err by |a| roundings of the exponent.
            assert!((curvature - expected).abs() <= 1e-13 * expected);
        }
        assert_eq!(loss(-1e6), (2e6, -2.0));
        assert_eq!(loss(1e6), (0.0, -0.0));
        assert!((loss(20.0).0 / (-40f64).exp() - 1.0).abs() < 1e-15);
    }
}
