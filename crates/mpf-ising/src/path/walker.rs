//! One data set on its way down the λ's, and the state of all of them between two λ's.

use super::{CrossValidation, PathPoint, Penalty};
use crate::Result;
use crate::bits::Samples;
use crate::couplings::Couplings;
use crate::fit::{Estimator, Fit, FitOptions, Fitter};
use crate::stream::{Data, Stream};
use crate::support::{Biases, Support};
use mpf_core::{Cancel, Checkpoint, StopReason};
use ndarray::{Array2, aview1};
use serde::{Deserialize, Serialize};

/// The most seconds for fields after the time limit.
const FIELDS: f64 = 0.2;

/// Data that a path keeps.
pub(super) enum Held {
    Samples(Samples),
    Stream(Stream),
}

impl Held {
    pub(super) fn data(&self) -> Data<'_> {
        match self {
            Self::Samples(samples) => samples.into(),
            Self::Stream(stream) => stream.into(),
        }
    }
}

/// The fits of one data set, from one λ to the next.
pub(super) struct Walker<'f, E: Estimator> {
    pub(super) fitter: &'f Fitter<E>,
    held: Held,
    penalty: Penalty,
    pub(super) options: FitOptions,
}

impl<'f, E: Estimator> Walker<'f, E> {
    /// Starts without couplings, which is the answer at the largest λ₁, unless the options have
    /// another start.
    pub(super) fn new(fitter: &'f Fitter<E>, held: Held, penalty: Penalty) -> Result<Self> {
        let mut options = fitter.options().clone();
        // The checkpoint of a path keeps whole points, not iterations.
        options.minimizer.checkpoint = Checkpoint::default();
        let mut walker = Self {
            fitter,
            held,
            penalty,
            options,
        };
        walker.restart()?;
        Ok(walker)
    }

    pub(super) fn data(&self) -> Data<'_> {
        self.held.data()
    }

    /// Starts again as [`Walker::new`] did.
    pub(super) fn restart(&mut self) -> Result<()> {
        self.options.start = match &self.fitter.options().start {
            None => Some(independent(self.fitter, self.data())?),
            start => start.clone(),
        };
        Ok(())
    }

    /// Returns `begun`, the best model without couplings, as a fit that the time limit stopped; `None` if
    /// paths start elsewhere.
    pub(super) fn stay(&self, begun: Option<Couplings>) -> Result<Option<Fit>> {
        let options = self.fitter.options();
        let Some(begun) =
            begun.filter(|_| options.start.is_none() && options.biases == Biases::Free)
        else {
            return Ok(None);
        };
        let value = self.fitter.objective_value(&begun, self.data())?;
        Ok(Some(Fit {
            stop: StopReason::TimeLimit,
            ..Fit::closed_form(begun, value, 0.0, Vec::new())
        }))
    }

    pub(super) fn step(&mut self, lambda: f64) -> Result<Fit> {
        match self.penalty {
            Penalty::L1 => self.options.l1 = lambda,
            Penalty::L2 => self.options.l2 = lambda,
        }
        let fitter = self.fitter.with_options(self.options.clone())?;
        let fit = fitter.fit(self.data())?;
        if fit.stop == StopReason::Cancelled {
            return Err(mpf_core::Error::Cancelled.into());
        }
        self.options.start = Some(fit.couplings.clone());
        Ok(fit)
    }
}

/// Returns the best model without couplings.
pub(super) fn independent<E: Estimator>(fitter: &Fitter<E>, data: Data<'_>) -> Result<Couplings> {
    match &fitter.options().biases {
        Biases::Free => Ok(fields_alone(fitter, data)?.couplings),
        Biases::Fixed(biases) => Couplings::new(Array2::from_diag(&aview1(biases))),
        Biases::FixedFields(fields) => Couplings::new(-2.0 * Array2::from_diag(&aview1(fields))),
    }
}

/// Fits the fields of a model without couplings. After the time limit that takes a fraction of a second.
fn fields_alone<E: Estimator>(fitter: &Fitter<E>, data: Data<'_>) -> Result<Fit> {
    let mut options = FitOptions {
        support: Support::Edges(Vec::new()),
        start: None,
        ..fitter.options().clone()
    };
    options.minimizer.checkpoint = Checkpoint::default();
    let cancel = &mut options.minimizer.cancel;
    if cancel.reason() == Some(StopReason::TimeLimit) {
        *cancel = Cancel::new().within(FIELDS);
    }
    fitter.with_options(options)?.fit(data)
}

/// The state of a cross-validation between two λ's.
#[derive(Serialize, Deserialize)]
pub(super) struct PathState {
    pub(super) found: CrossValidation,
    /// The last fit of every fold, from which its next one starts.
    pub(super) folds: Vec<Couplings>,
}

impl PathState {
    /// Checks that the state fits the problem. The λ's that a path can have are `known`, of which
    /// the first `n_larger` are above its grid. Returns how many of those it has.
    pub(super) fn check(
        &self,
        n_units: usize,
        known: &[f64],
        n_larger: usize,
        n_folds: usize,
    ) -> Result<usize> {
        let path = &self.found.path;
        let fits = path.iter().map(|p| &p.fit.couplings);
        let same_units = fits.chain(&self.folds).all(|j| j.n_units() == n_units);
        let first = |p: &PathPoint| known.iter().position(|lambda| *lambda == p.lambda);
        let n_above = path
            .first()
            .and_then(first)
            .and_then(|first| n_larger.checked_sub(first));
        match n_above {
            Some(n_above)
                if (n_above + 1..=known.len()).contains(&path.len())
                    && path.len() == self.found.scores.len()
                    && self.folds.len() == n_folds
                    && same_units =>
            {
                Ok(n_above)
            }
            _ => Err(mpf_core::Error::checkpoint("the path is of another problem").into()),
        }
    }
}
