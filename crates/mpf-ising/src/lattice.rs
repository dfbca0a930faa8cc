//! Rectangular lattices and the paper's spin glass on them.

use crate::Result;
use crate::couplings::{Couplings, square};
use crate::error::Error;
use rand::Rng;
use rand_distr::{Distribution, StandardNormal};
use serde::{Deserialize, Serialize};

/// The rim of a lattice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Boundary {
    /// Units at the rim have fewer neighbours.
    #[default]
    Open,
    /// Opposite rims are joined.
    Periodic,
}

/// The most units of a lattice: the number of their pairs fits into 64 bits.
const MAX_UNITS: usize = u32::MAX as usize;

/// A rectangular lattice of units; unit (r, c) has the index r · columns + c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "LatticeFile")]
pub struct Lattice {
    rows: usize,
    columns: usize,
    boundary: Boundary,
}

/// The stored form of a [`Lattice`], unchecked.
#[derive(Deserialize)]
struct LatticeFile {
    rows: usize,
    columns: usize,
    boundary: Boundary,
}

impl TryFrom<LatticeFile> for Lattice {
    type Error = Error;

    fn try_from(file: LatticeFile) -> Result<Self> {
        Self::new(file.rows, file.columns, file.boundary)
    }
}

impl Lattice {
    /// Makes a lattice of `rows` × `columns` units.
    ///
    /// # Errors
    /// [`Error::EmptyLattice`]; [`Error::LargeLattice`] for more than 2³² − 1 units.
    pub fn new(rows: usize, columns: usize, boundary: Boundary) -> Result<Self> {
        match rows.checked_mul(columns) {
            Some(0) => return Err(Error::EmptyLattice { rows, columns }),
            Some(n_units) if n_units <= MAX_UNITS => {}
            _ => {
                return Err(Error::LargeLattice {
                    rows,
                    columns,
                    limit: MAX_UNITS,
                });
            }
        }
        Ok(Self {
            rows,
            columns,
            boundary,
        })
    }

    /// Returns the number of units.
    pub fn n_units(&self) -> usize {
        self.rows * self.columns
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Returns whether the rim is open or periodic.
    pub fn boundary(&self) -> Boundary {
        self.boundary
    }

    /// Returns every pair (i, j), i < j, of nearest neighbours, once each.
    pub fn edges(&self) -> Vec<(usize, usize)> {
        let mut edges = Vec::new();
        let step = |at: usize, length: usize| match self.boundary {
            _ if at + 1 < length => Some(at + 1),
            // Joining the ends of a pair would repeat its only edge.
            Boundary::Periodic if length > 2 => Some(0),
            _ => None,
        };
        for r in 0..self.rows {
            for c in 0..self.columns {
                let here = r * self.columns + c;
                let right = step(c, self.columns).map(|c| r * self.columns + c);
                let down = step(r, self.rows).map(|r| r * self.columns + c);
                for there in [right, down].into_iter().flatten() {
                    edges.push((here.min(there), here.max(there)));
                }
            }
        }
        edges
    }

    /// Draws the paper's spin glass: J_ij ~ N(0, `variance`) between nearest neighbours, and biases
    /// such that every column of J sums to 0 (no field, mean activity ½).
    ///
    /// # Errors
    /// [`mpf_core::Error::Option`] for a variance that is negative or not finite;
    /// [`Error::OutOfMemory`].
    pub fn spin_glass<R: Rng + ?Sized>(&self, variance: f64, rng: &mut R) -> Result<Couplings> {
        mpf_core::check_not_negative("variance", variance)?;
        let deviation = variance.sqrt();
        let mut j = square(self.n_units())?;
        for (a, b) in self.edges() {
            let normal: f64 = StandardNormal.sample(rng);
            let value = deviation * normal;
            j[[a, b]] = value;
            j[[b, a]] = value;
            j[[a, a]] -= value;
            j[[b, b]] -= value;
        }
        Couplings::new(j)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpf_core::rng::stream;

    #[test]
    fn edges_are_counted_once() {
        let count = |r, c, boundary| {
            let mut edges = Lattice::new(r, c, boundary).unwrap().edges();
            edges.sort_unstable();
            let n = edges.len();
            edges.dedup();
            assert_eq!(edges.len(), n);
            assert!(edges.iter().all(|(a, b)| a < b));
            n
        };
        assert_eq!(count(10, 10, Boundary::Open), 180);
        assert_eq!(count(10, 10, Boundary::Periodic), 200);
        assert_eq!(count(1, 5, Boundary::Open), 4);
        assert_eq!(count(1, 5, Boundary::Periodic), 5);
        assert_eq!(count(2, 2, Boundary::Periodic), 4);
        assert_eq!(count(1, 1, Boundary::Periodic), 0);
    }

    #[test]
    fn the_spin_glass_has_no_field_and_the_stated_variance() {
        let lattice = Lattice::new(10, 10, Boundary::Open).unwrap();
        let mut square = 0.0;
        let n_models = 50;
        for seed in 0..n_models {
            let j = lattice.spin_glass(10.0, &mut stream(seed, 0)).unwrap();
            assert!(j.to_spins().fields.iter().all(|h| h.abs() < 1e-12));
            square += lattice
                .edges()
                .iter()
                .map(|&(a, b)| j.get(a, b).powi(2))
                .sum::<f64>();
        }
        let n = 180.0 * n_models as f64;
        // The mean of n squared N(0, 10) has standard error 10 √(2/n): five of them.
        assert!((square / n - 10.0).abs() < 5.0 * 10.0 * (2.0 / n).sqrt());
    }

    #[test]
    fn bad_lattices_are_errors() {
        assert!(Lattice::new(0, 3, Boundary::Open).is_err());
        assert!(Lattice::new(usize::MAX, 0, Boundary::Open).is_err());
        for (rows, columns) in [(1 << 16, 1 << 16), (1 << 32, 1 << 32), (usize::MAX, 2)] {
            let error = Lattice::new(rows, columns, Boundary::Open).unwrap_err();
            assert!(matches!(error, Error::LargeLattice { .. }));
        }
        let huge = Lattice::new(1 << 16, (1 << 16) - 1, Boundary::Open).unwrap();
        assert!(matches!(
            huge.spin_glass(1.0, &mut stream(0, 0)),
            Err(Error::OutOfMemory { .. })
        ));
        let empty = r#"{"rows":0,"columns":3,"boundary":"open"}"#;
        assert!(serde_json::from_str::<Lattice>(empty).is_err());
        let lattice = Lattice::new(2, 2, Boundary::Open).unwrap();
        assert!(matches!(
            lattice.spin_glass(-1.0, &mut stream(0, 0)),
            Err(Error::Core(mpf_core::Error::Option {
                name: "variance",
                ..
            }))
        ));
    }
}
