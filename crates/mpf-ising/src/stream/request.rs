//! What rank 0 asks the others for, as numbers.

use crate::kernel::{MarginLoss, Precision};
use crate::potential::CountKnots;
use std::ops::Range;
use std::sync::Arc;

/// A sum that is wanted from all ranks.
pub(crate) enum Request {
    /// Nothing more.
    End,
    /// The means, and how many units are active.
    Totals { rows: [Range<usize>; 2] },
    /// Nothing yet: the objective of the sums to come.
    Objective(Objective),
    /// The value and gradient of the last objective.
    Sum {
        precision: Precision,
        theta: Vec<f64>,
    },
}

/// An objective that the other ranks have to know.
pub(crate) struct Objective {
    pub(crate) rows: [Range<usize>; 2],
    pub(crate) loss: MarginLoss,
    pub(crate) pairs: Vec<(usize, usize)>,
    pub(crate) potential: Option<Arc<CountKnots>>,
}

impl Request {
    /// Writes the request as numbers, the kind first.
    pub(super) fn to_numbers(&self) -> Vec<f64> {
        let of_rows = |rows: &[Range<usize>; 2]| {
            let ends = rows.each_ref().map(|r| [r.start as f64, r.end as f64]);
            ends.into_iter().flatten()
        };
        let mut numbers = Vec::new();
        match self {
            Self::End => numbers.push(0.0),
            Self::Totals { rows } => {
                numbers.push(1.0);
                numbers.extend(of_rows(rows));
            }
            Self::Objective(objective) => {
                numbers.push(2.0);
                numbers.extend(of_rows(&objective.rows));
                numbers.extend(match objective.loss {
                    MarginLoss::FlowRate { shift } => [0.0, shift],
                    MarginLoss::Logistic => [1.0, 0.0],
                });
                let knots = objective.potential.as_ref().map_or(&[][..], |p| p.knots());
                numbers.push(knots.len() as f64);
                numbers.extend(knots.iter().map(|n| *n as f64));
                numbers.extend(
                    objective
                        .pairs
                        .iter()
                        .flat_map(|(i, j)| [*i as f64, *j as f64]),
                );
            }
            Self::Sum { precision, theta } => {
                numbers.push(3.0);
                numbers.push(f64::from(u8::from(*precision == Precision::Single)));
                numbers.extend(theta);
            }
        }
        numbers
    }

    /// Reads what [`Request::to_numbers`] wrote.
    ///
    /// # Panics
    /// For anything else: ranks of one version talk to each other.
    pub(super) fn from_numbers(numbers: &[f64]) -> Self {
        let whole = |at: usize| numbers[at] as usize;
        let rows = || [whole(1)..whole(2), whole(3)..whole(4)];
        match whole(0) {
            0 => Self::End,
            1 => Self::Totals { rows: rows() },
            2 => {
                let first_pair = 8 + whole(7);
                let knots: Vec<usize> = (8..first_pair).map(whole).collect();
                Self::Objective(Objective {
                    rows: rows(),
                    loss: match whole(5) {
                        0 => MarginLoss::FlowRate { shift: numbers[6] },
                        _ => MarginLoss::Logistic,
                    },
                    pairs: numbers[first_pair..]
                        .chunks_exact(2)
                        .map(|pair| (pair[0] as usize, pair[1] as usize))
                        .collect(),
                    potential: (!knots.is_empty()).then(|| Arc::new(CountKnots::at(knots))),
                })
            }
            _ => Self::Sum {
                precision: match whole(1) {
                    0 => Precision::Double,
                    _ => Precision::Single,
                },
                theta: numbers[2..].to_vec(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_as_numbers() {
        let rows = [0..7, 9..1_000_000_000_000];
        for knots in [None, Some(vec![0, 2, 5])] {
            let objective = Request::Objective(Objective {
                rows: rows.clone(),
                loss: MarginLoss::Logistic,
                pairs: vec![(0, 1), (3, 70_000)],
                potential: knots.clone().map(|k| Arc::new(CountKnots::at(k))),
            });
            let Request::Objective(found) = Request::from_numbers(&objective.to_numbers()) else {
                panic!("another request");
            };
            assert_eq!(
                (found.rows, found.loss),
                (rows.clone(), MarginLoss::Logistic)
            );
            assert_eq!(found.pairs, [(0, 1), (3, 70_000)]);
            let found = found.potential.map(|p| p.knots().to_vec());
            assert_eq!(found, knots);
        }
        let sum = Request::Sum {
            precision: Precision::Single,
            theta: vec![0.5, -0.0, 1e-300],
        };
        let found = Request::from_numbers(&sum.to_numbers());
        let is_same = |theta: &[f64]| *theta == [0.5, -0.0, 1e-300];
        assert!(
            matches!(&found, Request::Sum { precision: Precision::Single, theta } if is_same(theta))
        );
        let totals = Request::Totals { rows: rows.clone() };
        let found = Request::from_numbers(&totals.to_numbers());
        assert!(matches!(found, Request::Totals { rows: found } if found == rows));
        let end = Request::from_numbers(&Request::End.to_numbers());
        assert!(matches!(end, Request::End));
    }
}
