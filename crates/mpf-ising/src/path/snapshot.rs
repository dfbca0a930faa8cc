//! How far a cross-validation is.

use super::{CrossValidation, Penalty};
use crate::Result;
use crate::couplings::Couplings;
use crate::error::Error;
use serde::{Deserialize, Serialize};

/// The part of a cross-validation that is done: everything that it takes to go on to the same
/// bits, with the same data, folds and options.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PathSnapshot {
    pub(super) found: CrossValidation,
    /// The last fit of every fold, where its next one starts.
    pub(super) folds: Vec<Couplings>,
}

impl PathSnapshot {
    /// Points that are done.
    pub fn n_done(&self) -> usize {
        self.found.path.len()
    }

    /// Whether every number is one that a run can have written.
    fn has_numbers(&self) -> bool {
        let fits = self.found.path.iter().all(|p| {
            let fit = &p.fit;
            let finite = [
                fit.value,
                fit.kkt_residual,
                fit.seconds,
                fit.left_out_fraction,
            ];
            finite.iter().all(|v| v.is_finite())
                && ![p.objective].iter().chain(&p.ebic).any(|v| v.is_nan())
        });
        let scores = self.found.scores.iter().all(|s| {
            let mut all = s.folds.iter().chain([&s.mean, &s.standard_error]);
            all.all(|v| !v.is_nan())
        });
        fits && scores
    }

    /// Refuses to go on with anything else.
    pub(super) fn check(
        &self,
        penalty: Penalty,
        lambdas: &[f64],
        n_units: usize,
        n_folds: usize,
    ) -> Result<()> {
        let (path, scores) = (&self.found.path, &self.found.scores);
        let same_lambdas = path.iter().zip(lambdas).all(|(p, l)| p.lambda == *l);
        let fits = path.iter().map(|p| &p.fit.couplings);
        let checks = [
            (self.found.penalty == penalty, "penalty"),
            (path.len() <= lambdas.len() && same_lambdas, "λ's"),
            (
                !path.is_empty() && path.len() == scores.len(),
                "number of points",
            ),
            (self.folds.len() == n_folds, "number of folds"),
            (
                scores.iter().all(|s| s.folds.len() == n_folds),
                "number of scores",
            ),
            (self.has_numbers(), "kind of numbers, which no run writes"),
            (
                fits.chain(&self.folds).all(|j| j.n_units() == n_units),
                "number of units",
            ),
        ];
        match checks.into_iter().find(|(holds, _)| !holds) {
            None => Ok(()),
            Some((_, what)) => Err(Error::OtherPath { what }),
        }
    }
}
