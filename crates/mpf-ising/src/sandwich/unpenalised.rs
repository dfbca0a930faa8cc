//! The estimate that the data alone give, from a penalised one.
//!
//! Newton steps do not lead there. A pair of rarely active units that are active together once in a
//! while has next to no slope at K = 0, and a curvature that falls with K: a step goes ten times too
//! far, and the curvature is gone. L-BFGS gets there in tens of iterations.

use super::ErrorBars;
use crate::Result;
use crate::bits::Samples;
use crate::couplings::Couplings;
use crate::error::Error;
use crate::fit::{Estimator, Fit, FitOptions, Fitter, Mode};
use crate::warning::Warning;
use mpf_core::{Checkpoint, StopReason};

/// The gradient, in standardised units, from which a Newton step is short.
pub const TOLERANCE: f64 = 1e-5;

/// Iterations until couplings are looked at: of those that run away, more would only lead further.
pub const ITERATIONS: usize = 300;

/// The most times that couplings are looked at, until none runs away and the minimum is near.
const MOST_FITS: usize = 20;

/// The estimate that the data alone give.
#[derive(Clone, Debug)]
pub struct Unpenalised {
    /// The estimate.
    pub couplings: Couplings,
    /// The pairs whose couplings kept the penalty, sorted: the data do not determine them.
    pub undetermined: Vec<(usize, usize)>,
}

impl<E: Estimator> Fitter<E> {
    /// Fits without the penalty, from `couplings` on, until the gradient is 1e-5 in standardised units,
    /// and returns the standard errors that `bars` finds there. Couplings that the data do not determine keep the
    /// penalty, and have standard errors of +∞: those of pairs of which some joint value never occurs,
    /// those that run away ([`Warning::run_away`]), and those for which `bars` returns
    /// [`Error::Undetermined`].
    ///
    /// # Errors
    /// As [`Fitter::fit`], and those of `bars`; [`Error::NoErrorBars`] for more parameters than
    /// samples; [`Error::UndeterminedWithoutPenalty`] if more and more couplings turn out to be
    /// undetermined, or a field; [`mpf_core::Error::Cancelled`].
    pub fn bars_without_penalty(
        &self,
        couplings: &Couplings,
        samples: &Samples,
        bars: impl Fn(&Unpenalised) -> Result<ErrorBars>,
    ) -> Result<ErrorBars> {
        let (d, weight) = (samples.n_units(), samples.total_weight());
        let means = samples.means();
        let varies = |i: usize| means[i] > 0.0 && means[i] < 1.0;
        let mut pairs = self.options().support.pairs(d)?;
        pairs.retain(|&(i, j)| varies(i) && varies(j));
        let (mut free, undetermined): (Vec<_>, Vec<_>) = pairs
            .into_iter()
            .partition(|&(i, j)| samples.determine(i, j));
        let at_once = match self.options().mode {
            Mode::Joint => d + free.len(),
            Mode::NodeWise => d,
        };
        if at_once as f64 >= weight {
            return Err(Error::NoErrorBars {
                reason: "there are more parameters than samples, so that the data do not \
                         determine the couplings without the penalty",
            });
        }
        let mut found = Unpenalised {
            couplings: couplings.clone(),
            undetermined,
        };
        let mut more = Vec::new();
        for n_fits in 1..=MOST_FITS {
            let fit = self.with_penalty_on(&found, samples)?;
            found.couplings = fit.couplings;
            more = match Warning::run_away(&found.couplings, &free, weight) {
                Some(Warning::RunAwayCouplings { couplings, .. }) => {
                    couplings.iter().map(|&(i, j, _)| (i, j)).collect()
                }
                _ if fit.stop == StopReason::IterationLimit && n_fits < MOST_FITS => continue,
                _ => match bars(&found) {
                    Err(Error::Undetermined { i, j }) => vec![(i.min(j), i.max(j))],
                    bars => {
                        let mut bars = bars?;
                        bars.mark(found.undetermined);
                        return Ok(bars);
                    }
                },
            };
            if more.iter().any(|pair| !free.contains(pair)) {
                break;
            }
            free.retain(|pair| !more.contains(pair));
            found.undetermined.extend(&more);
            found.undetermined.sort_unstable();
        }
        let (i, j) = more[0];
        Err(Error::UndeterminedWithoutPenalty { i, j })
    }

    /// Fits with the penalty on undetermined couplings alone.
    fn with_penalty_on(&self, found: &Unpenalised, samples: &Samples) -> Result<Fit> {
        let mut options = FitOptions {
            start: Some(found.couplings.clone()),
            ..self.options().clone()
        };
        options.minimizer.checkpoint = Checkpoint::default();
        options.minimizer.max_iterations = ITERATIONS;
        options.minimizer.gradient_tolerance = TOLERANCE;
        let fitter = self.with_options(options)?;
        let fit = fitter
            .with_penalties_on(found.undetermined.clone())
            .fit(samples)?;
        match fit.stop {
            StopReason::Cancelled | StopReason::TimeLimit => Err(mpf_core::Error::Cancelled.into()),
            _ => Ok(fit),
        }
    }
}
