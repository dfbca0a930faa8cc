//! Standard errors of fitted parameters by the sandwich (Godambe) formula.
//!
//! ```text
//! F(θ) = mean_m f_m(θ),   f_m = Σ_i φ(a_mi),   a_mi = s_mi (h_i + Σ_j K_ij s_mj)
//! H = mean_m ∇²f_m [+ ridge],   V = Var(√M mean_m ∇f_m)
//! Cov θ̂ = H⁻¹ V H⁻¹ / M
//! ```
//!
//! MPF, RISE and pseudolikelihood are not likelihoods of the whole sample, so V ≠ H and the inverse
//! Hessian alone is not the covariance. With ∂a_i/∂h_i = s_i and ∂a_i/∂K_ij = s_i s_j,
//!
//! ```text
//! ∇f: W_i for h_i,  W_i s_j + W_j s_i for K_ij,   W_i = φ′(a_i) s_i
//! ∇²f: Σ_i φ″(a_i) u_i u_iᵀ,   u_i = (1 for h_i, s_j for K_ij)
//! ```
//!
//! V is never formed. Instead the influence H⁻¹ ∇f_m of every sample on the estimate is squared, or,
//! for autocorrelated samples, the sum of the influences of a *block* of successive samples. Blocks
//! should be several autocorrelation times long and number 30 or more; then correlations across
//! their borders do not matter. Independent samples are blocks of one.
//!
//! A joint fit has one Hessian over all parameters, p³ work, which stops at
//! [`ErrorBars::MAX_JOINT_PARAMETERS`]. A node-wise fit has one Hessian per unit, d³ work each, and
//! the average of the two rows' K_ij has the average of their influences: 200 units are feasible.
//! For larger models, and for methods without scores, use the [`bootstrap`](crate::bootstrap()).
//!
//! Of a penalised fit, [`Fitter::sandwich`] gives the errors of the shrunken estimate, with ℓ1 those of
//! its non-zero couplings. They do not account for the shrinkage: [`Fitter::corrected_sandwich`] takes
//! it back first, by a fit without the penalty.

mod scores;
pub mod unpenalised;

use crate::Result;
use crate::bits::{Samples, States};
use crate::blocks::n_blocks;
use crate::couplings::Couplings;
use crate::error::Error;
use crate::fit::{Estimator, FitOptions, Fitter, Mode, Mpf};
use crate::flow::Neighbourhood;
use crate::kernel::MarginLoss;
use crate::support::pairs;
use crate::warning::Warning;
use ndarray::Array2;
use scores::{Inverse, Scores};
use serde::Serialize;
pub use unpenalised::Unpenalised;

/// After this many Newton steps an estimate counts as running away.
const MOST_NEWTON_STEPS: usize = 10;

/// An [`Estimator`] whose objective is a sum of φ over the margins, or a monotone function of such a
/// sum: both have the same minimum and the same sandwich there.
pub trait MarginEstimator: Estimator {
    /// Returns φ.
    fn loss(&self) -> MarginLoss;
}

impl MarginEstimator for Mpf {
    fn loss(&self) -> MarginLoss {
        MarginLoss::FLOW
    }
}

/// Standard errors of all parameters. NaN where a parameter was not free, and on the diagonal of
/// `couplings`; +∞ where [`ErrorBars::without_undetermined`] marked them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ErrorBars {
    /// Of the spin fields h_i.
    pub fields: Vec<f64>,
    /// Of the biases J_ii.
    pub biases: Vec<f64>,
    /// Of the spin couplings K_ij, row by row; those of J_ij are twice as large.
    pub couplings: Vec<Vec<f64>>,
    /// The estimate that intervals are centred on, if that is not the fit: see
    /// [`Fitter::corrected_sandwich`].
    pub corrected: Option<Couplings>,
}

impl ErrorBars {
    /// The most parameters of a joint Hessian: 62 units with all couplings free.
    pub const MAX_JOINT_PARAMETERS: usize = 2016;

    /// Returns the standard errors of the paper's J: couplings off the diagonal, biases on it. NaN
    /// where a parameter was not free.
    ///
    /// # Panics
    /// When the lists are not of the same number of units.
    pub fn of_couplings(&self) -> Array2<f64> {
        let d = self.fields.len();
        Array2::from_shape_fn((d, d), |(i, j)| {
            if i == j {
                self.biases[i]
            } else {
                2.0 * self.couplings[i][j]
            }
        })
    }

    /// Marks the couplings of pairs of which some joint value (00, 10, 01 or 11) never occurs in
    /// `samples`: their standard errors become +∞. A penalty gives such a coupling a finite value
    /// and a small variance, but the data only say which sign it has.
    ///
    /// # Panics
    /// For samples of other units.
    #[must_use]
    pub fn without_undetermined(mut self, samples: &Samples) -> Self {
        let pairs: Vec<_> = pairs(self.fields.len())
            .filter(|&(i, j)| {
                !self.couplings[i][j].is_nan() && samples.joint_values(i, j) != 0b1111
            })
            .collect();
        self.mark(pairs);
        self
    }

    /// Makes the standard errors of these couplings +∞.
    pub fn mark(&mut self, pairs: impl IntoIterator<Item = (usize, usize)>) {
        for (i, j) in pairs {
            self.couplings[i][j] = f64::INFINITY;
            self.couplings[j][i] = f64::INFINITY;
        }
    }

    /// Returns the roots of the variances of h, of J_ii and of the K of `pairs`; NaN for other pairs.
    pub fn from_variances(
        fields: &[f64],
        biases: &[f64],
        pairs: &[(usize, usize)],
        couplings: &[f64],
    ) -> Self {
        let d = fields.len();
        let mut errors = vec![vec![f64::NAN; d]; d];
        for (&(i, j), variance) in pairs.iter().zip(couplings) {
            errors[i][j] = variance.sqrt();
            errors[j][i] = variance.sqrt();
        }
        Self {
            fields: fields.iter().map(|v| v.sqrt()).collect(),
            biases: biases.iter().map(|v| v.sqrt()).collect(),
            couplings: errors,
            corrected: None,
        }
    }
}

impl<E: MarginEstimator> Fitter<E> {
    /// Returns the standard errors of `couplings`, a fit of `states` with these options, from
    /// blocks of `block_length` successive samples (1 for independent samples). Parameters that are
    /// not free have NaN.
    ///
    /// # Errors
    /// [`Error::BlockLength`] for blocks of length 0 or fewer than two of them,
    /// [`Error::UnitCount`], [`Error::NotFinite`] for fixed biases, [`Error::Edge`],
    /// [`Error::NoErrorBars`] for options without a formula and if a sum overflows,
    /// [`Error::TooManyParameters`] in joint mode, [`Error::Undetermined`] if the Hessian is
    /// singular, and [`Error::Core`] if its inverse is not finite.
    pub fn sandwich(
        &self,
        couplings: &Couplings,
        states: &States,
        block_length: usize,
    ) -> Result<ErrorBars> {
        let n_blocks = n_blocks(states.n_samples(), block_length)?;
        let (model, inverse) = self.scores(self.options(), couplings, states, &|_, _| true)?;
        model.error_bars(&inverse, n_blocks)
    }

    /// Returns the standard errors of the estimate that the data alone give, without the penalty, and
    /// that estimate. Intervals around a penalised estimate miss the truth, since the penalty pulls it
    /// to zero. Without a penalty this is [`Fitter::sandwich`].
    ///
    /// Couplings that the data do not determine keep the penalty. Their standard errors are +∞; those
    /// of the others are for these held as they are.
    ///
    /// # Errors
    /// As [`Fitter::sandwich`] and [`Fitter::bars_without_penalty`].
    pub fn corrected_sandwich(
        &self,
        couplings: &Couplings,
        states: &States,
        block_length: usize,
    ) -> Result<ErrorBars> {
        let samples = Samples::new(states)?;
        let n_blocks = n_blocks(states.n_samples(), block_length)?;
        if self.options().l1 == 0.0 && self.options().l2 == 0.0 {
            let bars = self.sandwich(couplings, states, block_length)?;
            return Ok(bars.without_undetermined(&samples));
        }
        let plain = FitOptions {
            l1: 0.0,
            l2: 0.0,
            ..self.options().clone()
        };
        // What is refused is refused before the work.
        self.model(&plain, couplings, states, &|_, _| true)?;
        self.bars_without_penalty(couplings, &samples, |found| {
            self.bars_near(&plain, found, states, n_blocks)
        })
    }

    /// Ends a fit without penalty by Newton steps, and returns its standard errors.
    fn bars_near(
        &self,
        plain: &FitOptions,
        found: &Unpenalised,
        states: &States,
        n_blocks: usize,
    ) -> Result<ErrorBars> {
        let is_free = |i, j| found.undetermined.binary_search(&(i, j)).is_err();
        let mut at = found.couplings.clone();
        for _ in 0..MOST_NEWTON_STEPS {
            let (model, inverse) = self.scores(plain, &at, states, &is_free)?;
            let step = model.newton_step(&inverse)?;
            at = Couplings::from_spins(&step.to)?;
            if !step.is_last {
                continue;
            }
            let mut bars = model.error_bars(&inverse, n_blocks)?;
            let weight = states.n_samples() as f64;
            if let Some(Warning::RunAwayCouplings { couplings, .. }) =
                Warning::run_away(&at, &model.pairs, weight)
            {
                bars.mark(couplings.iter().map(|&(i, j, _)| (i, j)));
            }
            bars.corrected = Some(at);
            return Ok(bars);
        }
        let (model, _) = self.scores(plain, &at, states, &is_free)?;
        let (i, j) = model.largest();
        Err(Error::Undetermined { i, j })
    }

    /// Returns the scores of single samples.
    fn model<'a>(
        &self,
        options: &FitOptions,
        couplings: &Couplings,
        states: &'a States,
        is_free: &dyn Fn(usize, usize) -> bool,
    ) -> Result<Scores<'a>> {
        let estimator = self.estimator();
        if estimator.neighbourhood() != Neighbourhood::SingleFlips {
            return Err(Error::NoErrorBars {
                reason: "they are for all single flips, the default neighbourhood",
            });
        }
        if options.potential.is_some() || couplings.potential().is_some() {
            return Err(Error::NoErrorBars {
                reason: "the formula does not know the potential of a K-pairwise model: use the \
                         bootstrap",
            });
        }
        let model = Scores::new(options, couplings, states, estimator.loss(), is_free)?;
        let p = states.n_units() + model.pairs.len();
        if options.mode == Mode::Joint && p > ErrorBars::MAX_JOINT_PARAMETERS {
            return Err(Error::TooManyParameters {
                n_parameters: p,
                limit: ErrorBars::MAX_JOINT_PARAMETERS,
            });
        }
        Ok(model)
    }

    /// Returns the scores of single samples, and H⁻¹.
    fn scores<'a>(
        &self,
        options: &FitOptions,
        couplings: &Couplings,
        states: &'a States,
        is_free: &dyn Fn(usize, usize) -> bool,
    ) -> Result<(Scores<'a>, Inverse)> {
        let model = self.model(options, couplings, states, is_free)?;
        let hessians = model.row_hessians(options)?;
        let inverse = match options.mode {
            Mode::Joint => Inverse::Joint(model.joint_inverse(&hessians)?),
            Mode::NodeWise => Inverse::Rows(model.row_inverses(&hessians)?),
        };
        Ok((model, inverse))
    }
}
