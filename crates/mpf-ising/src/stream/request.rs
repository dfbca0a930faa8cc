//! What rank 0 asks the others for.

use crate::kernel::{MarginLoss, Precision};
use crate::potential::CountKnots;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A sum that is wanted from all ranks.
#[derive(Serialize, Deserialize)]
pub(crate) enum Request {
    /// Nothing more.
    End,
    /// The means, and how many units are active.
    Totals { rows: [Range<usize>; 2] },
    /// Nothing yet: the objective of the sums to come.
    Objective(Objective),
    /// The value and gradient of the last objective at parameters that follow.
    Sum(Precision),
}

/// An objective that the other ranks have to know.
#[derive(Serialize, Deserialize)]
pub(crate) struct Objective {
    pub(crate) rows: [Range<usize>; 2],
    pub(crate) loss: MarginLoss,
    pub(crate) pairs: Vec<(usize, usize)>,
    pub(crate) potential: Option<CountKnots>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpf_core::{Ranks, TreeSum};
    use std::sync::Mutex;

    /// Tells itself what it was told last.
    #[derive(Debug, Default)]
    struct Echo(Mutex<Vec<f64>>);

    impl Ranks for Echo {
        fn rank(&self) -> usize {
            0
        }

        fn n_ranks(&self) -> usize {
            2
        }

        fn add_up(&self, own: TreeSum) -> Option<Vec<f64>> {
            own.finish()
        }

        fn tell(&self, message: Vec<f64>) -> Vec<f64> {
            std::mem::replace(&mut *self.0.lock().unwrap(), message)
        }
    }

    fn told(request: &Request) -> Request {
        let echo = Echo::default();
        mpf_core::tell(&echo, request).unwrap();
        mpf_core::hear(&echo).unwrap()
    }

    #[test]
    fn requests_survive_being_told() {
        let rows = [0..7, 9..1_000_000_000_000];
        for potential in [None, Some(CountKnots::all(5))] {
            for loss in [MarginLoss::Logistic, MarginLoss::FlowRate { shift: -0.3 }] {
                let objective = Request::Objective(Objective {
                    rows: rows.clone(),
                    loss,
                    pairs: vec![(0, 1), (3, 70_000)],
                    potential: potential.clone(),
                });
                let Request::Objective(found) = told(&objective) else {
                    panic!("another request");
                };
                assert_eq!((found.rows, found.loss), (rows.clone(), loss));
                assert_eq!(found.pairs, [(0, 1), (3, 70_000)]);
                assert_eq!(found.potential, potential);
            }
        }
        for precision in [Precision::Single, Precision::Double] {
            let found = told(&Request::Sum(precision));
            assert!(matches!(found, Request::Sum(found) if found == precision));
        }
        let found = told(&Request::Totals { rows: rows.clone() });
        assert!(matches!(found, Request::Totals { rows: found } if found == rows));
        assert!(matches!(told(&Request::End), Request::End));
    }
}
