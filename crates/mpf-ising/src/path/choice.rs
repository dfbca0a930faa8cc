//! The points of a path, their held-out scores, and the choice among them.

use super::Penalty;
use crate::fit::Fit;
use serde::{Deserialize, Serialize};

/// One fit on a path.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PathPoint {
    /// λ₁ or λ₂.
    pub lambda: f64,
    /// The number of couplings that differ from zero.
    pub n_couplings: usize,
    /// The objective without penalties; +∞ on overflow.
    pub objective: f64,
    /// The extended Bayesian information criterion; +∞ on overflow, `None` on a ridge path.
    pub ebic: Option<f64>,
    /// The fit, with its KKT residual.
    pub fit: Fit,
}

/// The held-out score of one λ. Numbers are +∞ on overflow, which a strong coupling causes that the
/// held-out samples contradict, and never NaN.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HeldOutScore {
    /// The mean over all held-out samples of the estimator's own objective, without penalties.
    pub mean: f64,
    /// Its standard error, from the spread over folds.
    pub standard_error: f64,
    /// The objective on every fold.
    pub folds: Vec<f64>,
}

/// How a point of a path is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// The smallest held-out score: for prediction.
    #[default]
    Minimum,
    /// The largest λ whose score is within one standard error of the smallest: for few couplings.
    OneStandardError,
    /// The smallest EBIC: for the graph.
    Ebic,
}

/// The end of a path at which its chosen point lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Edge {
    /// The choice is the largest λ; a larger one may be better.
    Largest,
    /// The choice, or the smallest score that it is judged by, is at the smallest λ; a smaller one
    /// may be better.
    Smallest,
}

/// A path of fits to all data, from the largest λ, and the held-out scores of its λ's.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[must_use = "ask for the `chosen` point"]
pub struct CrossValidation {
    /// The penalty that was varied.
    pub penalty: Penalty,
    /// How the point is chosen.
    pub rule: Rule,
    /// Fits to all data.
    pub path: Vec<PathPoint>,
    /// Held-out scores, one per point of the path.
    pub scores: Vec<HeldOutScore>,
}

impl HeldOutScore {
    pub(super) fn new(folds: Vec<f64>, sizes: &[f64]) -> Self {
        let total: f64 = sizes.iter().sum();
        let mean = folds.iter().zip(sizes).map(|(s, n)| s * n).sum::<f64>() / total;
        // Without folds nothing is known.
        let mean = if folds.is_empty() {
            f64::INFINITY
        } else {
            mean
        };
        let squares: f64 = folds.iter().map(|s| (s - mean) * (s - mean)).sum();
        let k = folds.len() as f64;
        let standard_error = (squares / (k * (k - 1.0))).sqrt();
        Self {
            mean,
            // ∞ − ∞ is NaN; the error of a mean of which nothing is known is +∞.
            standard_error: if standard_error.is_nan() {
                f64::INFINITY
            } else {
                standard_error
            },
            folds,
        }
    }
}

impl CrossValidation {
    /// Returns the point that the path's own rule chooses.
    ///
    /// # Panics
    /// On a path without points, which no [`PenaltyPath`](super::PenaltyPath) returns.
    pub fn chosen(&self) -> &PathPoint {
        self.chosen_by(self.rule)
            .expect("a path has points, and EBIC where its rule needs it")
    }

    /// Returns the point that `rule` chooses; `None` for EBIC on a ridge path.
    pub fn chosen_by(&self, rule: Rule) -> Option<&PathPoint> {
        self.path.get(self.index_by(rule)?)
    }

    /// Returns the end of the path at which the rule's choice lies, if it does. The largest λ₁ is no
    /// end, since all larger ones leave no couplings either; nor has a single λ ends.
    pub fn edge(&self) -> Option<Edge> {
        let chosen = self.index_by(self.rule)?;
        let last = match self.rule {
            Rule::OneStandardError => self.index_by(Rule::Minimum)?,
            Rule::Minimum | Rule::Ebic => chosen,
        };
        if self.path.len() < 2 {
            None
        } else if last + 1 == self.path.len() {
            Some(Edge::Smallest)
        } else if chosen == 0 && self.penalty == Penalty::L2 {
            Some(Edge::Largest)
        } else {
            None
        }
    }

    pub(super) fn index_by(&self, rule: Rule) -> Option<usize> {
        let smallest = |values: &mut dyn Iterator<Item = f64>| {
            values
                .enumerate()
                .min_by(|a, b| a.1.total_cmp(&b.1))
                .map(|(k, _)| k)
        };
        let minimum = smallest(&mut self.scores.iter().map(|s| s.mean))?;
        match rule {
            Rule::Minimum => Some(minimum),
            Rule::OneStandardError => {
                let best = &self.scores[minimum];
                let limit = best.mean + best.standard_error;
                self.scores.iter().position(|s| s.mean <= limit)
            }
            Rule::Ebic => {
                let ebic: Option<Vec<f64>> = self.path.iter().map(|p| p.ebic).collect();
                smallest(&mut ebic?.into_iter())
            }
        }
    }
}
