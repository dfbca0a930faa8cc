//! Independent units: the null model that all methods must beat.
//!
//! ```text
//! J_ii = ln((1 − p_i)/p_i),   p_i the mean of unit i,   no couplings
//! ```

use crate::Result;
use crate::method::{Description, Method, MethodOptions, Observer, OwnObjective};
use mpf_core::Stopwatch;
use mpf_ising::{Couplings, Data, Fit, Samples, Warning};
use ndarray::{Array1, Array2};

/// Fits independent units: the maximum of the likelihood among models without couplings, in closed
/// form. `value` is −LL. A constant unit gets the bias of half a pseudo-count, as in every fit, and
/// a warning.
///
/// # Errors
/// None that checked samples can cause.
pub fn independent(samples: &Samples) -> Result<Fit> {
    let clock = Stopwatch::start();
    let means = samples.means();
    let couplings = independent_couplings(&means, samples.total_weight())?;
    // −ln p(x_i) = x_i J_ii + ln(1 + e^{−J_ii}), averaged.
    let value = means
        .iter()
        .zip(couplings.as_array().diag())
        .map(|(mean, bias)| mean * bias + (-bias).max(0.0) + (-bias.abs()).exp().ln_1p())
        .sum();
    let warnings = Warning::constant_units(&means).into_iter().collect();
    Ok(Fit::closed_form(
        couplings,
        value,
        clock.seconds(),
        warnings,
    ))
}

/// Returns the model without couplings of units with these means over `weight` samples.
pub(crate) fn independent_couplings(means: &[f64], weight: f64) -> Result<Couplings> {
    let biases = means.iter().map(|&mean| independent_bias(mean, weight));
    let biases = Array1::from_iter(biases);
    Ok(Couplings::new(Array2::from_diag(&biases))?)
}

/// Returns J_ii of a unit without couplings whose mean over `weight` samples is `mean`.
pub(crate) fn independent_bias(mean: f64, weight: f64) -> f64 {
    let odds = if mean <= 0.0 || mean >= 1.0 {
        ((1.0 - mean) * weight + 0.5) / (mean * weight + 0.5)
    } else {
        (1.0 - mean) / mean
    };
    odds.min(f64::MAX).ln()
}

/// [`independent`] as one of the methods.
pub(crate) struct Independent;

impl Method for Independent {
    fn describe(&self) -> Description {
        Description {
            objective: Some(OwnObjective::LogLikelihood),
            ..Description::new("independent", "independent", "No couplings: the null model")
        }
    }

    fn fit(&self, data: Data<'_>, _: &MethodOptions, _: Observer<'_>) -> Result<Fit> {
        independent(self.in_memory(data)?)
    }
}
