//! One model, one data set, every objective.
//!
//! ```text
//! LL   = −⟨E⟩_data − ln Z                              exact, up to 24 units
//! K    = mean_m Σ_i exp(−a_mi)                         MPF, all single flips
//! PL   = mean_m Σ_i ln(1 + exp(−2 a_mi))
//! RISE = mean_m exp(−a_mi) for every unit i; they sum to K.  logRISE = Σ_i ln RISE_i
//! ```

use crate::Result;
use crate::error::Error;
use crate::pseudolikelihood::Pseudolikelihood;
use crate::sample_scores::margin_shifts;
use mpf_ising::internal::check_units;
use mpf_ising::{Couplings, Exact, FitOptions, Fitter, Samples, get_bit};
use serde::Serialize;

/// The objectives of a model on a data set, without penalties. Never NaN.
///
/// ```
/// use mpf_baselines::Objectives;
/// use mpf_ising::{Couplings, Samples};
/// use ndarray::array;
///
/// let samples = Samples::from_binary(array![[0, 1], [1, 1], [0, 0]].view())?;
/// // All margins are zero: one per flip, ln 2 per unit.
/// let at_zero = Objectives::of(&Couplings::zeros(2)?, &samples)?;
/// assert!((at_zero.mpf - 2.0).abs() < 1e-15);
/// assert!((at_zero.pseudolikelihood - 2.0 * 2f64.ln()).abs() < 1e-15);
/// assert!((at_zero.log_likelihood.unwrap() + 2.0 * 2f64.ln()).abs() < 1e-15);
/// # Ok::<(), mpf_baselines::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Objectives {
    /// The mean log-likelihood in nats per sample (maximised, unlike the others); `None` beyond
    /// [`Exact::MAX_UNITS`] units.
    pub log_likelihood: Option<f64>,
    /// K of MPF over all single flips. +∞ when couplings are so large that it overflows.
    pub mpf: f64,
    /// Minus the log-pseudolikelihood, in nats per sample. +∞ only near the end of `f64`.
    pub pseudolikelihood: f64,
    /// RISE of every unit. Their sum is `mpf`. +∞ where it overflows.
    pub rise: Vec<f64>,
    /// logRISE summed over the units; finite.
    pub log_rise: f64,
}

impl Objectives {
    /// Computes all of them. O(M d²), and O(2^d d) where the likelihood is. `mpf` and `rise` are +∞
    /// where they are too large for a number, and so is the pseudolikelihood for couplings near the
    /// largest number; `log_rise` is finite, and so is the likelihood.
    ///
    /// # Errors
    /// [`mpf_ising::Error::UnitCount`] when model and data differ in size; [`Error::NotFinite`] for
    /// a likelihood that overflows.
    pub fn of(couplings: &Couplings, samples: &Samples) -> Result<Self> {
        let d = couplings.n_units();
        check_units("samples", d, samples.n_units())?;
        let log_likelihood = if d <= Exact::MAX_UNITS {
            let value = Exact::new(couplings)?.log_likelihood(samples)?;
            if !value.is_finite() {
                let what = "the log-likelihood";
                return Err(Error::NotFinite { what, value });
            }
            Some(value)
        } else {
            None
        };
        let log_rise_by_unit = node_values(couplings, samples);
        let rise: Vec<f64> = log_rise_by_unit.iter().map(|v| v.exp()).collect();
        Ok(Self {
            log_likelihood,
            mpf: rise.iter().sum(),
            pseudolikelihood: Fitter::new(Pseudolikelihood, FitOptions::default())?
                .objective_value(couplings, samples)?,
            rise,
            log_rise: log_rise_by_unit.iter().sum(),
        })
    }
}

/// Returns ln RISE_i of every unit i.
fn node_values(couplings: &Couplings, samples: &Samples) -> Vec<f64> {
    let spins = couplings.to_spins();
    let margins: Vec<Vec<f64>> = (samples.states().rows())
        .map(|row| {
            let shifts = margin_shifts(couplings, row);
            let spin = |j: usize| if get_bit(row, j) { 1.0 } else { -1.0 };
            let margin = |i: usize| {
                let others = spins.couplings.row(i).into_iter().enumerate();
                let field = spins.fields[i] + others.map(|(j, k)| k * spin(j)).sum::<f64>();
                spin(i) * field + shifts[usize::from(get_bit(row, i))]
            };
            (0..samples.n_units()).map(margin).collect()
        })
        .collect();
    (0..samples.n_units())
        .map(|i| {
            let largest = margins
                .iter()
                .map(|m| -m[i])
                .fold(f64::NEG_INFINITY, f64::max);
            let terms = margins.iter().enumerate();
            let sum: f64 = terms
                .map(|(m, a)| samples.weight(m) * (-a[i] - largest).exp())
                .sum();
            largest + (sum / samples.total_weight()).ln()
        })
        .collect()
}
