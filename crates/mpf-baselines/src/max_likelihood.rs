//! Exact maximum likelihood for small models, and independent units.
//!
//! ```text
//! −LL = ln Z(J) + Σ_ij J_ij ⟨x_i x_j⟩_data                       nats per sample
//! ∂(−LL)/∂h_i  = ⟨s_i⟩_model − ⟨s_i⟩_data                         s = 2x − 1
//! ∂(−LL)/∂K_ij = ⟨s_i s_j⟩_model − ⟨s_i s_j⟩_data
//! ```
//!
//! (paper, Eq. `KL likelihood` and the section on maximum likelihood.) Z and the model's moments
//! are summed over all 2^d states in every evaluation: the yardstick that none of the other
//! methods has. It goes through the same [`Fitter`] as MPF, in the same standardised units, with
//! the same penalties and supports. Not for more than [`MAX_UNITS`] units, and slow near that:
//! d = 20 takes about 0.1 s per evaluation.

use crate::Result;
use crate::error::Error;
use crate::pseudolikelihood::refuse_flow_options;
use mpf_core::{Objective, StopReason};
use mpf_ising::Terms;
use mpf_ising::{
    Couplings, Estimator, Exact, Fit, FitOptions, FitProgress, Fitter, Mode, Samples,
    SpinCouplings, Warning,
};
use ndarray::{Array1, Array2};

/// The most units that are fitted by enumeration.
pub const MAX_UNITS: usize = 20;

/// −LL as a function of θ = (h of all units, K of the pairs).
pub struct NegativeLogLikelihood {
    pairs: Vec<(usize, usize)>,
    /// ⟨x_i x_j⟩ of the data, means on the diagonal.
    pair_means: Array2<f64>,
}

impl NegativeLogLikelihood {
    /// Of `samples`, with the couplings of `pairs` free and the others zero.
    ///
    /// # Errors
    /// [`Error::TooManyUnits`]; [`mpf_ising::Error::Edge`] for a pair that is not one.
    pub fn new(samples: &Samples, pairs: Vec<(usize, usize)>) -> Result<Self> {
        check_units(samples.n_units())?;
        let terms = Terms::new(samples, 0..samples.n_units(), pairs)?;
        Ok(Self::of(&terms))
    }

    fn of(terms: &Terms<'_>) -> Self {
        Self {
            pairs: terms.pairs().to_vec(),
            pair_means: terms.samples().pair_means(),
        }
    }
}

impl Objective for NegativeLogLikelihood {
    fn n_params(&self) -> usize {
        self.pair_means.nrows() + self.pairs.len()
    }

    /// +∞, with a zero gradient, for parameters that overflow or are not finite; finite else.
    fn value_and_gradient(&mut self, theta: &[f64], grad: &mut [f64]) -> f64 {
        let d = self.pair_means.nrows();
        let (fields, couplings) = theta.split_at(d);
        let mut spins = SpinCouplings {
            fields: Array1::from(fields.to_vec()),
            couplings: Array2::zeros((d, d)),
        };
        for (&(i, j), &k) in self.pairs.iter().zip(couplings) {
            spins.couplings[[i, j]] = k;
            spins.couplings[[j, i]] = k;
        }
        let Ok(exact) = Couplings::from_spins(&spins).and_then(|j| Exact::new(&j)) else {
            grad.fill(0.0);
            return f64::INFINITY;
        };
        // Model minus data of ⟨x_i x_j⟩; s_i = 2 x_i − 1.
        let off = exact.pair_means() - &self.pair_means;
        let (field_grads, coupling_grads) = grad.split_at_mut(d);
        for (i, g) in field_grads.iter_mut().enumerate() {
            *g = 2.0 * off[[i, i]];
        }
        for (&(i, j), g) in self.pairs.iter().zip(coupling_grads) {
            *g = 4.0 * off[[i, j]] - 2.0 * (off[[i, i]] + off[[j, j]]);
        }
        let energy: f64 = exact
            .couplings()
            .as_array()
            .iter()
            .zip(&self.pair_means)
            .map(|(j, m)| j * m)
            .sum();
        exact.log_z() + energy
    }
}

pub(crate) fn check_units(n_units: usize) -> Result<()> {
    if n_units > MAX_UNITS {
        return Err(Error::TooManyUnits {
            n_units,
            limit: MAX_UNITS,
        });
    }
    Ok(())
}

/// Exact maximum likelihood as one of [`Fitter`]'s estimators.
pub(crate) struct ExactLikelihood;

impl Estimator for ExactLikelihood {
    fn objective<'a>(&self, terms: Terms<'a>) -> Box<dyn Objective + 'a> {
        Box::new(NegativeLogLikelihood::of(&terms))
    }
}

/// Fits by exact maximum likelihood, with checked options. Penalties are added to −LL per sample.
///
/// ```
/// use mpf_baselines::MaximumLikelihood;
/// use mpf_ising::{Exact, FitOptions, Samples};
/// use ndarray::array;
///
/// let data = array![[0, 0], [0, 1], [1, 1], [1, 1], [1, 0], [0, 0]];
/// let samples = Samples::from_binary(data.view())?;
/// let fit = MaximumLikelihood::new(FitOptions::default())?.fit(&samples)?;
/// // At the maximum the model's moments are those of the data.
/// let moments = Exact::new(&fit.couplings)?.pair_means() - samples.pair_means();
/// assert!(moments.iter().all(|off| off.abs() < 1e-6));
/// # Ok::<(), mpf_baselines::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MaximumLikelihood {
    fitter: Fitter,
}

impl MaximumLikelihood {
    /// Checks the options.
    ///
    /// # Errors
    /// [`Error::NotOffered`] for a neighbourhood or a form of MPF's and for the node-wise mode;
    /// those of [`Fitter::new`].
    pub fn new(options: FitOptions) -> Result<Self> {
        const METHOD: &str = "exact maximum likelihood";
        refuse_flow_options(METHOD, &options)?;
        if options.mode == Mode::NodeWise {
            return Err(Error::NotOffered {
                method: METHOD,
                option: "a node-wise mode",
                reason: "the likelihood is not a sum over units; fit jointly",
            });
        }
        Ok(Self {
            fitter: Fitter::new(options)?,
        })
    }

    /// Fits.
    ///
    /// # Errors
    /// [`Error::TooManyUnits`] beyond [`MAX_UNITS`]; those of [`Fitter::fit_with`].
    pub fn fit(&self, samples: &Samples) -> Result<Fit> {
        self.fit_observed(samples, |_| {})
    }

    /// As [`MaximumLikelihood::fit`], calling `observer` after every iteration.
    ///
    /// # Errors
    /// As [`MaximumLikelihood::fit`].
    pub fn fit_observed(
        &self,
        samples: &Samples,
        observer: impl FnMut(&FitProgress<'_>) + Send,
    ) -> Result<Fit> {
        check_units(samples.n_units())?;
        Ok(self.fitter.fit_with(&ExactLikelihood, samples, observer)?)
    }
}

/// Independent units, any number of them: J_ii = ln((1 − p_i)/p_i) with p_i the mean of unit i,
/// no couplings. The maximum of the likelihood among such models, in closed form; `value` is −LL.
///
/// A constant unit gets the bias of half a pseudo-count, as in every fit, and a warning. All
/// finite.
///
/// # Errors
/// None that checked samples can cause.
pub fn independent(samples: &Samples) -> Result<Fit> {
    let clock = std::time::Instant::now();
    let means = samples.means();
    let biases: Vec<f64> = means
        .iter()
        .map(|&mean| independent_bias(mean, samples.total_weight()))
        .collect();
    // −ln p(x_i) = x_i J_ii + ln(1 + e^{−J_ii}), averaged.
    let value = means
        .iter()
        .zip(&biases)
        .map(|(mean, bias)| mean * bias + (-bias).max(0.0) + (-bias.abs()).exp().ln_1p())
        .sum();
    Ok(Fit {
        couplings: Couplings::new(Array2::from_diag(&Array1::from(biases)))?,
        value,
        stop: StopReason::Converged,
        kkt_residual: 0.0,
        iterations: 0,
        evaluations: 0,
        seconds: clock.elapsed().as_secs_f64(),
        left_out_fraction: 0.0,
        asymmetry: None,
        warnings: Warning::constant_units(&means).into_iter().collect(),
        trace: Vec::new(),
        snapshot: None,
    })
}

/// J_ii of a unit without couplings whose mean over `weight` samples is `mean`.
pub(crate) fn independent_bias(mean: f64, weight: f64) -> f64 {
    let odds = if mean <= 0.0 || mean >= 1.0 {
        ((1.0 - mean) * weight + 0.5) / (mean * weight + 0.5)
    } else {
        (1.0 - mean) / mean
    };
    odds.min(f64::MAX).ln()
}
