//! The result of a tournament: differences to the best, and a table.

use super::{Comparison, Criterion, Entrant};
use crate::Result;
use crate::error::check_mean;
use mpf_ising::{BlockMean, block_mean};
use std::fmt;

impl Comparison {
    /// The entrant with the best score; `None` when there is no such score.
    pub fn best(&self, criterion: Criterion) -> Option<&Entrant> {
        self.best_index(criterion).map(|at| &self.entrants[at])
    }

    fn best_index(&self, criterion: Criterion) -> Option<usize> {
        let loss = |entrant: &Entrant| match criterion {
            Criterion::Mpf => Some(entrant.mpf.value),
            Criterion::Pseudolikelihood => Some(entrant.pseudolikelihood.value),
            Criterion::LogLikelihood => entrant.log_likelihood.map(|ll| -ll.value),
        };
        let losses = self.entrants.iter().map(loss);
        losses
            .enumerate()
            .filter_map(|(at, loss)| Some((at, loss?)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(at, _)| at)
    }

    /// The score of entrant `a` minus that of `b`, paired by samples; `None` when one has none.
    /// That of [`Criterion::Mpf`] is not finite where one of the two is not.
    ///
    /// # Errors
    /// [`Error::NotFinite`](crate::Error::NotFinite) for likelihoods whose difference overflows.
    ///
    /// # Panics
    /// When there is no such entrant.
    pub fn difference(
        &self,
        a: usize,
        b: usize,
        criterion: Criterion,
    ) -> Result<Option<BlockMean>> {
        let (a, b) = (&self.entrants[a], &self.entrants[b]);
        let likelihood = criterion == Criterion::LogLikelihood;
        if likelihood && (a.log_likelihood.is_none() || b.log_likelihood.is_none()) {
            return Ok(None);
        }
        let k = criterion as usize;
        let pairs = a.scores.iter().zip(&b.scores);
        let values: Vec<f64> = pairs.map(|(a, b)| a[k] - b[k]).collect();
        let mut found = block_mean(&values, self.block_length)?;
        if criterion != Criterion::Mpf {
            check_mean("the difference of two methods", &found)?;
        }
        if likelihood && !std::ptr::eq(a, b) {
            let of_log_z = a.log_z_error.hypot(b.log_z_error);
            found.standard_error = found.standard_error.hypot(of_log_z);
        }
        Ok(Some(found))
    }
}

/// A table, best by likelihood first (by pseudolikelihood where there is none), with differences
/// to the best, and a verdict.
impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let criterion = if self.entrants.iter().all(|e| e.log_likelihood.is_some()) {
            Criterion::LogLikelihood
        } else {
            Criterion::Pseudolikelihood
        };
        let Some(best) = self.best_index(criterion) else {
            return writeln!(f, "no method could be fitted");
        };
        let differences: Vec<BlockMean> = (0..self.entrants.len())
            .map(|at| {
                let found = self.difference(at, best, criterion);
                found.map_err(|_| fmt::Error)?.ok_or(fmt::Error)
            })
            .collect::<Result<_, fmt::Error>>()?;
        let sign = if criterion == Criterion::LogLikelihood {
            -1.0
        } else {
            1.0
        };
        let mut order: Vec<usize> = (0..self.entrants.len()).collect();
        order.sort_by(|&a, &b| {
            (sign * differences[a].value).total_cmp(&(sign * differences[b].value))
        });
        writeln!(
            f,
            "Per held-out sample; own, MPF and PL: less is better; LL, the log-likelihood in nats: \
             more is better. Differences are to the best, in {}.",
            if criterion == Criterion::LogLikelihood {
                "LL"
            } else {
                "PL"
            }
        )?;
        writeln!(
            f,
            "{:<18} {:>10} {:>10} {:>10} {:>11} {:>11} {:>9} {:>8}",
            "method", "own", "MPF", "PL", "LL", "difference", "± error", "seconds"
        )?;
        for at in order {
            let entrant = &self.entrants[at];
            let number = |value: Option<f64>| value.map_or("–".to_owned(), short);
            writeln!(
                f,
                "{:<18} {:>10} {:>10} {:>10} {:>11} {:>11} {:>9} {:>8.2}",
                entrant.name,
                number(entrant.own),
                number(Some(entrant.mpf.value)),
                number(Some(entrant.pseudolikelihood.value)),
                number(entrant.log_likelihood.map(|ll| ll.value)),
                short(differences[at].value),
                short(differences[at].standard_error),
                entrant.seconds,
            )?;
        }
        for dropout in &self.dropouts {
            writeln!(f, "{:<18} {}", dropout.name, dropout.error)?;
        }
        let ties: Vec<&str> = (0..self.entrants.len())
            .filter(|&at| at != best)
            .filter(|&at| differences[at].value.abs() < 2.0 * differences[at].standard_error)
            .map(|at| self.entrants[at].name.as_str())
            .collect();
        let what = match criterion {
            Criterion::LogLikelihood => "log-likelihood",
            _ => "pseudolikelihood",
        };
        write!(f, "Best by held-out {what}: {}", self.entrants[best].name)?;
        if !ties.is_empty() {
            write!(f, "; within two standard errors of it: {}", ties.join(", "))?;
        }
        writeln!(f, ".")
    }
}

/// Formats a number with four decimals, or with four digits if it is large.
fn short(value: f64) -> String {
    if value.abs() < 1e5 {
        format!("{value:.4}")
    } else {
        format!("{value:.3e}")
    }
}
