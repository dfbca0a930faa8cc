//! Pseudolikelihood (Besag; paper, Appendix E).
//!
//! ```text
//! −ln Π_i p(x_i | the others), averaged:
//! PL = 1/W Σ_m w_m Σ_i ln(1 + exp(−2 a_mi)),    a_mi = s_mi (h_i + Σ_j K_ij s_mj)
//! ```
//!
//! over spins s = 2x − 1. MPF is the same sum with exp(−a) in place of ln(1 + exp(−2a)), so here
//! is only the name of that function, [`MarginLoss::Logistic`]: the packed-bit sums, tied J_ij = J_ji, standardised
//! units, penalties, supports, weights and the node-wise mode are those of
//! [`mpf_ising::Fitter`].
//!
//! For one unit, PL's asymptotic variance is never above MPF's, and on cold spin glasses and
//! sparse recordings it is much below. When *not* to use it: when only a few iterations can be
//! afforded, which is where MPF leads.

use crate::method::{Description, FitterMethod, OwnObjective, Takes};
use mpf_core::Objective;
use mpf_ising::{Estimator, Fitter, MarginEstimator, MarginLoss, MarginSum, Terms};

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
        Box::new(MarginSum::new(terms, self.loss()))
    }

    fn sums_margins(&self) -> bool {
        true
    }
}

impl MarginEstimator for Pseudolikelihood {
    fn loss(&self) -> MarginLoss {
        MarginLoss::Logistic
    }
}

pub(crate) static PL: FitterMethod<Pseudolikelihood> = FitterMethod {
    description: Description {
        takes: &[
            Takes::Penalties,
            Takes::NodeWise,
            Takes::Support,
            Takes::Sandwich,
            Takes::Potential,
        ],
        objective: Some(OwnObjective::Pseudolikelihood),
        is_local: true,
        ..Description::new("pl", "PL", "Pseudolikelihood")
    },
    estimator: |_| Pseudolikelihood,
    sandwich: Fitter::corrected_sandwich,
    always_node_wise: false,
};
