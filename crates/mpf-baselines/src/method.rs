//! Every method behind one name, for comparisons.

use crate::Result;
use crate::contrastive::{ContrastiveDivergence, ContrastiveOptions};
use crate::max_likelihood::{MaximumLikelihood, independent};
use crate::mean_field::{Expansion, MeanField};
use crate::pseudolikelihood::{Pseudolikelihood, log_rise, rise};
use mpf_core::StopReason;
use mpf_ising::{Couplings, Fit, FitOptions, Fitter, Samples, Warning};

/// A way to fit an Ising model, with its options.
#[derive(Clone, Debug)]
pub enum Method {
    /// Minimum probability flow.
    Mpf(FitOptions),
    /// Pseudolikelihood.
    Pseudolikelihood(FitOptions),
    /// RISE: MPF row by row, with its own λ.
    Rise {
        /// λ of every row.
        lambda: f64,
        /// Everything but the penalties, the form and the mode.
        options: FitOptions,
    },
    /// logRISE.
    LogRise {
        /// λ of every row.
        lambda: f64,
        /// Everything but the penalties, the form and the mode.
        options: FitOptions,
    },
    /// Contrastive divergence.
    ContrastiveDivergence(ContrastiveOptions),
    /// Mean field theory, naive or TAP.
    MeanField {
        /// How far the expansion goes.
        expansion: Expansion,
        /// The damping of the inverse.
        lambda: f64,
    },
    /// Exact maximum likelihood, up to 20 units.
    MaximumLikelihood(FitOptions),
    /// Independent units.
    Independent,
}

/// What any method makes of data.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The paper's J.
    pub couplings: Couplings,
    /// Why learning stopped; `None` for closed forms.
    pub stop: Option<StopReason>,
    /// Learning time in seconds.
    pub seconds: f64,
    /// What to be careful about.
    pub warnings: Vec<Warning>,
}

impl From<Fit> for Fitted {
    fn from(fit: Fit) -> Self {
        Self {
            couplings: fit.couplings,
            stop: Some(fit.stop),
            seconds: fit.seconds,
            warnings: fit.warnings,
        }
    }
}

impl Method {
    /// What it is called in tables.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Mpf(_) => "MPF",
            Self::Pseudolikelihood(_) => "PL",
            Self::Rise { .. } => "RISE",
            Self::LogRise { .. } => "logRISE",
            Self::ContrastiveDivergence(_) => "CD",
            Self::MeanField {
                expansion: Expansion::Naive,
                ..
            } => "mean field",
            Self::MeanField { .. } => "TAP",
            Self::MaximumLikelihood(_) => "ML",
            Self::Independent => "independent",
        }
    }

    /// Fits.
    ///
    /// # Errors
    /// Those of the method.
    pub fn fit(&self, samples: &Samples) -> Result<Fitted> {
        Ok(match self {
            Self::Mpf(options) => Fitter::new(options.clone())?.fit(samples)?.into(),
            Self::Pseudolikelihood(options) => {
                Pseudolikelihood::new(options.clone())?.fit(samples)?.into()
            }
            Self::Rise { lambda, options } => rise(*lambda, options.clone())?.fit(samples)?.into(),
            Self::LogRise { lambda, options } => {
                log_rise(*lambda, options.clone())?.fit(samples)?.into()
            }
            Self::ContrastiveDivergence(options) => ContrastiveDivergence::new(options.clone())?
                .fit(samples)?
                .into(),
            Self::MaximumLikelihood(options) => MaximumLikelihood::new(options.clone())?
                .fit(samples)?
                .into(),
            Self::Independent => independent(samples)?.into(),
            Self::MeanField { expansion, lambda } => {
                let fit = MeanField::new(*expansion, *lambda)?.fit(samples)?;
                Fitted {
                    couplings: fit.couplings,
                    stop: None,
                    seconds: fit.seconds,
                    warnings: fit.warnings,
                }
            }
        })
    }
}
