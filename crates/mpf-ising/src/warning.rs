//! What a fit noticed about its data or its result: not errors, but not to be overlooked.

use crate::bits::Samples;
use crate::couplings::Couplings;
use mpf_core::StopReason;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Something to be careful about. Units are counted from 0. Numbers are those of a fit, or of what
/// was given: finite where that is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Warning {
    /// Units that never change. Their couplings are zero, their biases a pseudo-count's.
    ConstantUnits {
        /// Those that are always 0.
        zeros: Vec<usize>,
        /// Those that are always 1.
        ones: Vec<usize>,
    },
    /// Most flips lead to data states and were left out of the sum.
    MostFlipsLeftOut {
        /// The fraction that was.
        fraction: f64,
    },
    /// Pairs of which some joint value (00, 10, 01 or 11) never occurs: without a penalty their
    /// coupling has no finite optimum.
    SeparablePairs {
        /// The pairs.
        pairs: Vec<(usize, usize)>,
    },
    /// Couplings larger than this many samples can determine.
    RunAwayCouplings {
        /// The pairs with their K, largest first.
        couplings: Vec<(usize, usize, f64)>,
        /// The |K| beyond which couplings are named.
        limit: f64,
    },
    /// Fields so large that the unit never changes, whatever the others do, though in the data it
    /// does.
    RunAwayFields {
        /// The units with their h, largest first.
        fields: Vec<(usize, f64)>,
    },
    /// The minimisation was broken off.
    NotConverged {
        /// Why.
        stop: StopReason,
        /// How far from a minimum it was.
        kkt_residual: f64,
    },
}

impl Warning {
    /// Names the units whose mean is 0 or 1; a NaN is neither.
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

    pub(crate) fn left_out(fraction: f64) -> Option<Self> {
        (fraction > 0.5).then_some(Self::MostFlipsLeftOut { fraction })
    }

    /// Names the pairs of which some joint value never occurs.
    ///
    /// # Panics
    /// When there is no such unit.
    pub fn separable_pairs(samples: &Samples, pairs: &[(usize, usize)]) -> Option<Self> {
        let pairs: Vec<_> = pairs
            .iter()
            .copied()
            .filter(|&(i, j)| samples.joint_values(i, j) != 0b1111)
            .collect();
        (!pairs.is_empty()).then_some(Self::SeparablePairs { pairs })
    }

    /// To see one exception to a coupling K takes about e^{2|K|} samples, so that W samples
    /// determine |K| only up to about ½ ln W.
    ///
    /// Names the pairs beyond that, `weight` being W, and beyond 1 in any case (also for a W that
    /// has no logarithm).
    ///
    /// # Panics
    /// When there is no such unit.
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

    /// Names the units, not constant in the data, that the model leaves in the same state in all
    /// but fewer than one of `weight` samples: |h_i| > Σ_j |K_ij| + ½ ln W, which counts as 1 where
    /// it is less or W has no logarithm.
    ///
    /// # Panics
    /// When there are fewer means than units.
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

    /// Says that a fit stopped before it was done.
    pub fn not_converged(stop: StopReason, kkt_residual: f64) -> Option<Self> {
        (!stop.is_converged()).then_some(Self::NotConverged { stop, kkt_residual })
    }
}

/// The first few of a list, and how many more there are.
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

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConstantUnits { zeros, ones } => {
                let parts: Vec<String> = [(zeros, 0), (ones, 1)]
                    .into_iter()
                    .filter(|(units, _)| !units.is_empty())
                    .map(|(units, value)| {
                        format!("always {value}: unit {}", first(units, usize::to_string))
                    })
                    .collect();
                write!(
                    f,
                    "{}; couplings set to zero and biases to those of half a pseudo-count",
                    parts.join("; ")
                )
            }
            Self::MostFlipsLeftOut { fraction } => write!(
                f,
                "{:.1} % of the flips lead to data states and were left out, which biases the \
                 fit: keep all flips (the default neighbourhood)",
                100.0 * fraction
            ),
            Self::SeparablePairs { pairs } => write!(
                f,
                "some joint value never occurs for units {}: without a penalty these couplings \
                 have no finite optimum",
                first(pairs, |(i, j)| format!("({i}, {j})"))
            ),
            Self::RunAwayCouplings { couplings, limit } => write!(
                f,
                "spin couplings beyond |K| = {limit:.2} are more than these samples can \
                 determine: {}; use a penalty",
                first(couplings, |(i, j, k)| format!("K({i}, {j}) = {k:.2}"))
            ),
            Self::RunAwayFields { fields } => write!(
                f,
                "fields that fix units which vary in the data: {}",
                first(fields, |(i, h)| format!("h({i}) = {h:.2}"))
            ),
            Self::NotConverged { stop, kkt_residual } => {
                write!(f, "not converged ({stop}): KKT residual {kkt_residual:.1e}")
            }
        }
    }
}
