//! What is minimised: minimum probability flow, or a rival.

use super::{FitOptions, Mode};
use crate::Result;
use crate::error::Error;
use crate::flow::{LogFlow, MarginSum, Neighbourhood, Terms};
use crate::kernel::MarginLoss;
use mpf_core::{FlowForm, Objective};

/// The objective that a [`Fitter`](super::Fitter) minimises. [`Mpf`] is the estimator of this
/// crate; rivals live elsewhere, implement this trait, and share everything else.
pub trait Estimator: Send + Sync {
    /// Checks that the estimator can do what `options` ask for.
    ///
    /// # Errors
    /// [`Error::NotOffered`] and the like.
    fn check(&self, options: &FitOptions) -> Result<()> {
        let _ = options;
        Ok(())
    }

    /// Checks that the estimator can fit `n_units` units.
    ///
    /// # Errors
    /// [`Error::TooManyUnitsForLikelihood`].
    fn check_units(&self, n_units: usize) -> Result<()> {
        let _ = n_units;
        Ok(())
    }

    /// Returns the flips that the objective sums over.
    fn neighbourhood(&self) -> Neighbourhood {
        Neighbourhood::SingleFlips
    }

    /// Returns the objective of `terms`, over θ = (h of its units, K of its pairs, V at the knots of
    /// a K-pairwise model).
    fn objective<'a>(&self, terms: Terms<'a>) -> Box<dyn Objective + 'a>;

    /// Returns whether the objective is a [`MarginSum`], which can also sum over a
    /// [`Stream`](crate::Stream). Default: no.
    fn sums_margins(&self) -> bool {
        false
    }

    /// Returns a value that the objective only has without a minimum: all states of the data have
    /// it as small as numbers get.
    fn lowest_value(&self) -> f64 {
        f64::NEG_INFINITY
    }

    /// Returns the mean over samples of Σ_i φ, given the value of the joint objective.
    fn mean_loss(&self, value: f64) -> f64 {
        value
    }
}

/// Minimum probability flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mpf {
    /// Where probability may flow. Default: all single flips.
    pub neighbourhood: Neighbourhood,
    /// The flow, or its logarithm. Default: the flow.
    pub form: FlowForm,
}

impl Estimator for Mpf {
    fn check(&self, options: &FitOptions) -> Result<()> {
        let complement = self.neighbourhood == Neighbourhood::SingleFlipsAndComplement;
        if complement && options.mode == Mode::NodeWise {
            return Err(Error::NodeWiseComplement);
        }
        let is_plain = !complement && self.form == FlowForm::Sum;
        if options.potential.is_some() && !is_plain {
            return Err(Error::NotOffered {
                method: "MPF of a K-pairwise model",
                option: "the complement and the logarithm of the flow",
                reason: "V is known to the single flips of the flow itself",
            });
        }
        Ok(())
    }

    fn neighbourhood(&self) -> Neighbourhood {
        self.neighbourhood
    }

    fn objective<'a>(&self, terms: Terms<'a>) -> Box<dyn Objective + 'a> {
        let sum = MarginSum::new(terms, MarginLoss::FLOW);
        match self.form {
            FlowForm::Sum => Box::new(sum),
            FlowForm::Log => Box::new(LogFlow(sum)),
        }
    }

    fn sums_margins(&self) -> bool {
        self.form == FlowForm::Sum
    }

    fn lowest_value(&self) -> f64 {
        match self.form {
            FlowForm::Sum => f64::NEG_INFINITY,
            // The flow itself underflows there.
            FlowForm::Log => f64::MIN_POSITIVE.ln(),
        }
    }

    fn mean_loss(&self, value: f64) -> f64 {
        match self.form {
            FlowForm::Sum => value,
            FlowForm::Log => value.exp(),
        }
    }
}
