//! Which samples are held out together.
//!
//! Fold f of k holds out the samples ⌊f M/k⌋ … ⌊(f+1) M/k⌋ − 1. Folds are contiguous blocks by
//! default: recordings are autocorrelated, and holding out a sample tests nothing if its neighbours
//! in time are trained on.

use crate::Result;
use crate::bits::States;
use crate::blocks::part;
use crate::error::Error;
use mpf_core::rng::stream;
use rand::RngExt;

/// How samples are assigned to folds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FoldAssignment {
    /// Contiguous blocks, in the order of the data.
    #[default]
    Blocks,
    /// At random: only for independent samples.
    Random {
        /// The same seed gives the same folds.
        seed: u64,
    },
}

/// A partition of samples.
///
/// ```
/// use mpf_ising::{FoldAssignment, Folds};
///
/// let folds = Folds::new(10, 3, FoldAssignment::Blocks)?;
/// assert_eq!(folds.held_out(1), [3, 4, 5]);
/// # Ok::<(), mpf_ising::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folds {
    n_folds: usize,
    /// The samples, fold after fold.
    order: Vec<usize>,
}

impl Folds {
    /// Assigns `n_samples` samples to `n_folds` folds.
    ///
    /// # Errors
    /// [`Error::Folds`] for fewer than two folds, or fewer samples than folds;
    /// [`Error::OutOfMemory`].
    pub fn new(n_samples: usize, n_folds: usize, assignment: FoldAssignment) -> Result<Self> {
        if n_folds < 2 || n_samples < n_folds {
            return Err(Error::Folds { n_folds, n_samples });
        }
        let mut order: Vec<usize> = Vec::new();
        if order.try_reserve_exact(n_samples).is_err() {
            return Err(Error::OutOfMemory {
                what: "samples to deal to folds",
                count: n_samples,
            });
        }
        order.extend(0..n_samples);
        if let FoldAssignment::Random { seed } = assignment {
            let mut rng = stream(seed, 0);
            for last in (1..n_samples).rev() {
                order.swap(last, rng.random_range(0..=last));
            }
            // Within a fold the order of the data is kept.
            for fold in 0..n_folds {
                order[part(n_samples, n_folds, fold)].sort_unstable();
            }
        }
        Ok(Self { n_folds, order })
    }

    /// Returns the number of folds.
    pub fn n_folds(&self) -> usize {
        self.n_folds
    }

    /// Returns the number of samples.
    pub fn n_samples(&self) -> usize {
        self.order.len()
    }

    /// Returns the samples of a fold, in the order of the data.
    ///
    /// # Panics
    /// For a fold that does not exist.
    pub fn held_out(&self, fold: usize) -> &[usize] {
        &self.order[part(self.order.len(), self.n_folds, fold)]
    }

    /// Returns the samples to train on and the held-out ones, both in the order of the data.
    ///
    /// # Errors
    /// [`Error::FoldSamples`] for another number of samples.
    ///
    /// # Panics
    /// For a fold that does not exist.
    pub fn split(&self, states: &States, fold: usize) -> Result<(States, States)> {
        if states.n_samples() != self.n_samples() {
            return Err(Error::FoldSamples {
                assigned: self.n_samples(),
                found: states.n_samples(),
            });
        }
        let mut training = States::new(states.n_units())?;
        let mut held_out = training.clone();
        let mut out = self.held_out(fold).iter().peekable();
        for (m, row) in states.rows().enumerate() {
            if out.next_if_eq(&&m).is_some() {
                held_out.push(row);
            } else {
                training.push(row);
            }
        }
        Ok((training, held_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::get_bit;

    #[test]
    fn every_sample_is_held_out_once() {
        for assignment in [FoldAssignment::Blocks, FoldAssignment::Random { seed: 3 }] {
            let folds = Folds::new(103, 5, assignment).unwrap();
            let mut seen: Vec<usize> = (0..5).flat_map(|f| folds.held_out(f).to_vec()).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..103).collect::<Vec<_>>());
            assert!((0..5).all(|f| (20..=21).contains(&folds.held_out(f).len())));
        }
        let random = Folds::new(103, 5, FoldAssignment::Random { seed: 3 }).unwrap();
        assert_ne!(random, Folds::new(103, 5, FoldAssignment::Blocks).unwrap());
        assert_ne!(
            random,
            Folds::new(103, 5, FoldAssignment::Random { seed: 4 }).unwrap()
        );
    }

    #[test]
    fn a_split_keeps_the_order() {
        let mut states = States::new(7).unwrap();
        (0..100u64).for_each(|m| states.push(&[m]));
        for assignment in [FoldAssignment::Blocks, FoldAssignment::Random { seed: 1 }] {
            let folds = Folds::new(100, 4, assignment).unwrap();
            let (training, held_out) = folds.split(&states, 2).unwrap();
            let rows: Vec<usize> = held_out.rows().map(|r| r[0] as usize).collect();
            assert_eq!(rows, folds.held_out(2));
            let rest: Vec<u64> = training.rows().map(|r| r[0]).collect();
            assert!(rest.len() == 75 && rest.is_sorted());
            assert!(rest.iter().all(|&m| !rows.contains(&(m as usize))));
            assert!(get_bit(held_out.row(0), 0) == (rows[0] % 2 == 1));
        }
    }

    #[test]
    fn too_few_samples_are_an_error() {
        for (n_samples, n_folds) in [(4, 5), (10, 1), (0, 2)] {
            let error = Folds::new(n_samples, n_folds, FoldAssignment::Blocks).unwrap_err();
            assert_eq!(error, Error::Folds { n_folds, n_samples });
        }
        assert!(matches!(
            Folds::new(usize::MAX, 2, FoldAssignment::Blocks),
            Err(Error::OutOfMemory { .. })
        ));
        let folds = Folds::new(10, 2, FoldAssignment::Blocks).unwrap();
        assert!(matches!(
            folds.split(&States::new(3).unwrap(), 0),
            Err(Error::FoldSamples {
                assigned: 10,
                found: 0
            })
        ));
    }
}
