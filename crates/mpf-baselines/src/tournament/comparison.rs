//! The result of a tournament: differences to the best, and a table.

use super::{Comparison, Criterion, Entrant};
use crate::Result;
use crate::error::check_mean;
use mpf_ising::{BlockMean, block_mean};
use std::fmt;

impl Comparison {
    /// Returns the criterion that ranks the methods: the likelihood if all of them have one, or
    /// else the pseudolikelihood.
    pub fn criterion(&self) -> Criterion {
        if self.entrants.iter().all(|e| e.log_likelihood.is_some()) {
            Criterion::LogLikelihood
        } else {
            Criterion::Pseudolikelihood
        }
    }

    /// Returns the place of the best in [`Comparison::entrants`]; `None` if nobody has a score.
    pub fn best_index(&self, criterion: Criterion) -> Option<usize> {
        let losses = self.entrants.iter().map(|entrant| entrant.loss(criterion));
        losses
            .enumerate()
            .filter_map(|(at, loss)| Some((at, loss?)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(at, _)| at)
    }

    /// Returns the score of entrant `a` minus that of `b`, paired by samples; `None` when one has none.
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
impl Entrant {
    /// Returns the score by a criterion, turned so that less is better.
    pub fn loss(&self, criterion: Criterion) -> Option<f64> {
        match criterion {
            Criterion::Mpf => Some(self.mpf.value),
            Criterion::Pseudolikelihood => Some(self.pseudolikelihood.value),
            Criterion::LogLikelihood => self.log_likelihood.map(|ll| -ll.value),
        }
    }
}

impl Criterion {
    /// Returns whether less is better.
    pub fn is_loss(self) -> bool {
        self != Self::LogLikelihood
    }
}

impl fmt::Display for Criterion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mpf => "flow",
            Self::Pseudolikelihood => "pseudolikelihood",
            Self::LogLikelihood => "log-likelihood",
        })
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let criterion = self.criterion();
        let Some(best) = self.best_index(criterion) else {
            return writeln!(f, "no method could be fitted");
        };
        let differences: Vec<BlockMean> = (0..self.entrants.len())
            .map(|at| {
                let found = self.difference(at, best, criterion);
                found.map_err(|_| fmt::Error)?.ok_or(fmt::Error)
            })
            .collect::<Result<_, fmt::Error>>()?;
        let sign = if criterion.is_loss() { 1.0 } else { -1.0 };
        let mut order: Vec<usize> = (0..self.entrants.len()).collect();
        order.sort_by(|&a, &b| {
            (sign * differences[a].value).total_cmp(&(sign * differences[b].value))
        });
        writeln!(
            f,
            "Per held-out sample; own, MPF and PL: less is better; LL, the log-likelihood in nats: \
             more is better. Differences are to the best, in {}.",
            if criterion.is_loss() { "PL" } else { "LL" }
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
        let name = &self.entrants[best].name;
        write!(f, "Best by held-out {criterion}: {name}")?;
        if !ties.is_empty() {
            write!(f, "; within two standard errors of it: {}", ties.join(", "))?;
        }
        writeln!(f, ".")
    }
}

/// Formats a number with as many of four decimals as leave it at most six digits.
fn short(value: f64) -> String {
    let shown = (0..=4).rev().map(|decimals| format!("{value:.decimals$}"));
    let mut shown = shown.filter(|text| text.bytes().filter(u8::is_ascii_digit).count() <= 6);
    shown.next().unwrap_or_else(|| format!("{value:.3e}"))
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn numbers_have_at_most_six_digits() {
        for (value, shown) in [
            (-5.91274, "-5.9127"),
            (99.99994, "99.9999"),
            (99.99996, "100.000"),
            (-3483.9081, "-3483.91"),
            (999_999.4, "999999"),
            (999_999.6, "1.000e6"),
            (1.189e111, "1.189e111"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(short(value), shown);
        }
    }
}
