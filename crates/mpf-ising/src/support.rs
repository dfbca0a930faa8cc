//! Which parameters are free.

use crate::Result;
use crate::error::{Error, check_units};
use crate::flow::all_pairs;
use crate::lattice::Lattice;
use ndarray::ArrayView2;

/// The couplings that are free; all others are zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Support {
    /// All couplings.
    #[default]
    Full,
    /// The couplings of these pairs, given in any order.
    Edges(Vec<(usize, usize)>),
}

impl Support {
    /// Frees the couplings between nearest neighbours of a lattice.
    pub fn lattice(lattice: &Lattice) -> Self {
        Self::Edges(lattice.edges())
    }

    /// Frees the pairs (i, j), i ≠ j, where `mask` is true at (i, j) or (j, i).
    ///
    /// # Errors
    /// [`Error::NotSquare`].
    pub fn from_mask(mask: ArrayView2<'_, bool>) -> Result<Self> {
        let (rows, columns) = mask.dim();
        if rows != columns {
            return Err(Error::NotSquare { rows, columns });
        }
        let edges = mask
            .indexed_iter()
            .filter(|((i, j), free)| **free && i != j)
            .map(|(edge, _)| edge)
            .collect();
        Ok(Self::Edges(edges))
    }

    /// Returns an upper bound of the number of free pairs; edges may be given twice.
    pub fn most_pairs(&self, n_units: usize) -> usize {
        match self {
            Self::Full => all_pairs(n_units),
            Self::Edges(edges) => edges.len(),
        }
    }

    /// Returns the number of free pairs of `n_units` units.
    ///
    /// # Errors
    /// [`Error::Edge`] for a pair of equal or unknown units.
    pub fn n_pairs(&self, n_units: usize) -> Result<usize> {
        match self {
            Self::Full => Ok(all_pairs(n_units)),
            Self::Edges(_) => Ok(self.pairs(n_units)?.len()),
        }
    }

    /// Returns the free pairs (i, j), i < j, of `n_units` units, sorted and without repeats.
    ///
    /// # Errors
    /// [`Error::Edge`] for a pair of equal or unknown units; [`Error::OutOfMemory`].
    pub fn pairs(&self, n_units: usize) -> Result<Vec<(usize, usize)>> {
        match self {
            Self::Full => {
                let mut pairs = Vec::new();
                if pairs.try_reserve_exact(all_pairs(n_units)).is_err() {
                    return Err(Error::OutOfMemory {
                        what: "units with all couplings",
                        count: n_units,
                    });
                }
                pairs.extend(self::pairs(n_units));
                Ok(pairs)
            }
            Self::Edges(edges) => {
                if let Some(&(i, j)) = edges.iter().find(|(i, j)| i == j || i.max(j) >= &n_units) {
                    return Err(Error::Edge { i, j, n_units });
                }
                let mut pairs: Vec<_> = edges.iter().map(|&(i, j)| (i.min(j), i.max(j))).collect();
                pairs.sort_unstable();
                pairs.dedup();
                Ok(pairs)
            }
        }
    }
}

/// Iterates over all pairs (i, j), i < j, of `n_units` units, row by row.
pub fn pairs(n_units: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..n_units).flat_map(move |i| (i + 1..n_units).map(move |j| (i, j)))
}

/// Whether the biases are free or fixed. Fits check the values.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Biases {
    /// Free.
    #[default]
    Free,
    /// The diagonal of J is fixed to these values.
    Fixed(Vec<f64>),
    /// The fields h of the spins are fixed to these values (zeros for a model without field).
    FixedFields(Vec<f64>),
}

impl Biases {
    /// Checks that fixed values are finite and one per unit.
    ///
    /// # Errors
    /// [`Error::UnitCount`], [`Error::NotFinite`].
    pub fn check(&self, n_units: usize) -> Result<()> {
        let (Self::Fixed(values) | Self::FixedFields(values)) = self else {
            return Ok(());
        };
        check_units("fixed biases", n_units, values.len())?;
        match values.iter().enumerate().find(|(_, v)| !v.is_finite()) {
            None => Ok(()),
            Some((i, &value)) => Err(Error::NotFinite { i, j: i, value }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn pairs_are_sorted_and_unique() {
        let support = Support::Edges(vec![(2, 0), (0, 1), (0, 2)]);
        assert_eq!(support.pairs(3).unwrap(), [(0, 1), (0, 2)]);
        assert_eq!(Support::Full.pairs(3).unwrap(), [(0, 1), (0, 2), (1, 2)]);
        let mask = array![[true, false, true], [true, false, false], [false; 3]];
        let masked = Support::from_mask(mask.view()).unwrap();
        assert_eq!(masked.pairs(3).unwrap(), [(0, 1), (0, 2)]);
    }

    #[test]
    fn more_pairs_than_can_be_held_are_an_error() {
        for n in [1 << 31, usize::MAX] {
            assert!(matches!(
                Support::Full.pairs(n),
                Err(Error::OutOfMemory { count, .. }) if count == n
            ));
        }
    }

    #[test]
    fn bad_edges_are_errors() {
        for edge in [(1, 1), (0, 3)] {
            let error = Support::Edges(vec![(0, 1), edge]).pairs(3).unwrap_err();
            assert_eq!(
                error,
                Error::Edge {
                    i: edge.0,
                    j: edge.1,
                    n_units: 3
                }
            );
        }
        assert!(Support::from_mask(array![[true, false]].view()).is_err());
    }
}
