//! Remarks of a fit about its data or its result that are no errors but matter.

use crate::bits::Samples;
use crate::couplings::Couplings;
use mpf_core::StopReason;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Something to be careful about. Units are counted from 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Warning {
    /// Units that never change. Their couplings are zero, their biases a pseudo-count's.
    ConstantUnits {
        /// Units that are always 0.
        zeros: Vec<usize>,
        /// Units that are always 1.
        ones: Vec<usize>,
    },
    /// Flips that lead to data states were left out of the sum, 5 % of all or more.
    FlipsLeftOut {
        /// The fraction of flips left out.
        fraction: f64,
    },
    /// Pairs of which some joint value (00, 10, 01 or 11) never occurs: without a penalty their
    /// coupling has no finite optimum.
    SeparablePairs {
        /// The pairs, (i, j) with i < j.
        pairs: Vec<(usize, usize)>,
    },
    /// Couplings are larger than the samples can determine.
    RunAwayCouplings {
        /// The pairs with their K, largest first.
        couplings: Vec<(usize, usize, f64)>,
        /// The |K| beyond which couplings are listed.
        limit: f64,
    },
    /// Fields are so large that the model never changes the unit, though it varies in the data.
    RunAwayFields {
        /// The units with their h, largest first.
        fields: Vec<(usize, f64)>,
    },
    /// V of a K-pairwise model is a part of the biases and couplings.
    PotentialNotIdentified {
        /// How many numbers of active units the samples show.
        n_counts: usize,
    },
    /// The minimisation stopped before it converged.
    NotConverged {
        /// Why it stopped.
        stop: StopReason,
        /// The KKT residual there: 0 at a minimum.
        kkt_residual: f64,
    },
}

impl Warning {
    /// Warns of units whose mean is 0 or 1.
    pub fn constant_units(means: &[f64]) -> Option<Self> {
        let those = |value: f64| -> Vec<usize> {
            let units = means.iter().enumerate();
            units
                .filter(|(_, m)| **m == value)
                .map(|(i, _)| i)
                .collect()
        };
        let (zeros, ones) = (those(0.0), those(1.0));
        (!zeros.is_empty() || !ones.is_empty()).then_some(Self::ConstantUnits { zeros, ones })
    }

    /// Warns from 5 % on: with 36 % left out, the slope of estimated on true couplings was 1.68.
    pub(crate) fn left_out(fraction: f64) -> Option<Self> {
        (fraction >= 0.05).then_some(Self::FlipsLeftOut { fraction })
    }

    /// Warns of pairs of which some joint value never occurs.
    ///
    /// # Panics
    /// For a unit that does not exist.
    pub fn separable_pairs(samples: &Samples, pairs: &[(usize, usize)]) -> Option<Self> {
        let pairs: Vec<_> = pairs
            .iter()
            .copied()
            .filter(|&(i, j)| samples.joint_values(i, j) != 0b1111)
            .collect();
        (!pairs.is_empty()).then_some(Self::SeparablePairs { pairs })
    }

    /// Warns of couplings beyond |K| = ½ ln W, or beyond 1 if that is more, where W is `weight`.
    ///
    /// It takes about e^{2|K|} samples to see one exception to a coupling K, so W samples determine
    /// |K| only up to about ½ ln W.
    ///
    /// # Panics
    /// For a unit that does not exist.
    pub fn run_away(couplings: &Couplings, pairs: &[(usize, usize)], weight: f64) -> Option<Self> {
        let limit = (0.5 * weight.ln()).max(1.0);
        let mut found: Vec<(usize, usize, f64)> = pairs
            .iter()
            .map(|&(i, j)| (i, j, -0.5 * couplings.get(i, j)))
            .filter(|(_, _, k)| k.abs() > limit)
            .collect();
        found.sort_by(|a, b| b.2.abs().total_cmp(&a.2.abs()));
        (!found.is_empty()).then_some(Self::RunAwayCouplings {
            couplings: found,
            limit,
        })
    }

    /// Warns of units that vary in the data but hardly ever in the model: fewer than one of `weight`
    /// samples would show a change. That is |h_i| > Σ_j |K_ij| + max(½ ln W, 1).
    ///
    /// # Panics
    /// If there are fewer means than units.
    pub fn run_away_fields(couplings: &Couplings, means: &[f64], weight: f64) -> Option<Self> {
        let spins = couplings.to_spins();
        let mut fields: Vec<(usize, f64)> = spins
            .fields
            .iter()
            .enumerate()
            .filter(|(i, h)| {
                let reach: f64 = spins.couplings.row(*i).iter().map(|k| k.abs()).sum();
                let varies = means[*i] > 0.0 && means[*i] < 1.0;
                varies && h.abs() > reach + (0.5 * weight.ln()).max(1.0)
            })
            .map(|(i, &h)| (i, h))
            .collect();
        fields.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
        (!fields.is_empty()).then_some(Self::RunAwayFields { fields })
    }

    /// Says the warning with the names of the units in place of their numbers.
    ///
    /// # Panics
    /// For a unit that has no name.
    pub fn with_names(&self, names: &[String]) -> String {
        self.in_words(&|unit| names[unit].clone())
    }

    /// Warns of a fit that stopped before it converged.
    pub fn not_converged(stop: StopReason, kkt_residual: f64) -> Option<Self> {
        (!stop.is_converged()).then_some(Self::NotConverged { stop, kkt_residual })
    }
}

/// Lists the first few items and counts the rest.
fn first<T>(items: &[T], show: impl Fn(&T) -> String) -> String {
    const SHOWN: usize = 8;
    let mut text = items
        .iter()
        .take(SHOWN)
        .map(show)
        .collect::<Vec<_>>()
        .join(", ");
    if items.len() > SHOWN {
        text += &format!(" and {} more", items.len() - SHOWN);
    }
    text
}

impl Warning {
    fn in_words(&self, name: &dyn Fn(usize) -> String) -> String {
        match self {
            Self::ConstantUnits { zeros, ones } => {
                let parts: Vec<String> = [(zeros, 0), (ones, 1)]
                    .into_iter()
                    .filter(|(units, _)| !units.is_empty())
                    .map(|(units, value)| {
                        format!("always {value}: unit {}", first(units, |i| name(*i)))
                    })
                    .collect();
                format!(
                    "{}; couplings set to zero and biases to those of half a pseudo-count",
                    parts.join("; ")
                )
            }
            Self::FlipsLeftOut { fraction } => format!(
                "{:.1} % of the flips lead to data states and were left out, which biases the \
                 fit: keep all flips (the default neighbourhood)",
                100.0 * fraction
            ),
            Self::SeparablePairs { pairs } => format!(
                "some joint value never occurs for units {}: without a penalty these couplings \
                 have no finite optimum",
                first(pairs, |(i, j)| format!("({}, {})", name(*i), name(*j)))
            ),
            Self::RunAwayCouplings { couplings, limit } => format!(
                "spin couplings beyond |K| = {limit:.2} are more than these samples can \
                 determine: {}; use a penalty",
                first(couplings, |(i, j, k)| format!(
                    "K({}, {}) = {k:.2}",
                    name(*i),
                    name(*j)
                ))
            ),
            Self::RunAwayFields { fields } => format!(
                "fields that fix units which vary in the data: {}",
                first(fields, |(i, h)| format!("h({}) = {h:.2}", name(*i)))
            ),
            Self::PotentialNotIdentified { n_counts } => format!(
                "the samples show only {n_counts} numbers of active units, where V is a part of biases \
                 and couplings: it is not identified and stays 0 there; fit an Ising model"
            ),
            Self::NotConverged {
                stop: StopReason::Unbounded,
                ..
            } => {
                "the data are separable: a linear rule predicts some unit from the others without \
                  exception, so that its couplings grow without end; use a penalty"
                    .into()
            }
            Self::NotConverged { stop, kkt_residual } => {
                format!("not converged ({stop}): KKT residual {kkt_residual:.1e}")
            }
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.in_words(&|unit| unit.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_have_numbers_or_names() {
        let names = ["a".to_owned(), "b".to_owned()];
        let warning = Warning::SeparablePairs {
            pairs: vec![(0, 1)],
        };
        assert!(warning.to_string().contains("units (0, 1):"));
        assert!(warning.with_names(&names).contains("units (a, b):"));
        let warning = Warning::RunAwayFields {
            fields: vec![(1, 9.0)],
        };
        assert!(warning.with_names(&names).ends_with("h(b) = 9.00"));
    }
}
