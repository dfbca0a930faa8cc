//! The parameters of an Ising model, in the paper's convention and in spins.
//!
//! ```text
//! x ∈ {0,1}^d:   p ∝ exp(−xᵀJx),   J symmetric, biases J_ii on the diagonal
//! s = 2x − 1:    p ∝ exp(Σ_i h_i s_i + Σ_{i<j} K_ij s_i s_j)
//!
//! K_ij = −J_ij/2,   h_i = −½ Σ_j J_ij          (the column sum, diagonal included)
//! J_ij = −2 K_ij,   J_ii = −2 h_i + 2 Σ_j K_ij
//! ```
//!
//! Lower energy is likelier, so an attractive J_ij is negative and an attractive K_ij positive.

use crate::Result;
use crate::bits::{for_each_active_pair, n_active};
use crate::error::{Error, check_units};
use ndarray::{Array1, Array2};
use serde::{Deserialize, Serialize};

/// J of p(x) ∝ exp(−xᵀJx), x ∈ {0,1}^d: symmetric, with the biases on the diagonal, and small enough
/// that no energy, field or difference of energies overflows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "CouplingsFile", into = "CouplingsFile")]
pub struct Couplings {
    j: Array2<f64>,
    /// V(0), …, V(d) of a K-pairwise model, or nothing.
    potential: Vec<f64>,
}

/// The same model over spins s ∈ {−1, +1}^d: p(s) ∝ exp(Σ h_i s_i + Σ_{i<j} K_ij s_i s_j).
/// Unchecked; [`Couplings::from_spins`] checks.
#[derive(Clone, Debug, PartialEq)]
pub struct SpinCouplings {
    /// h, one field per unit.
    pub fields: Array1<f64>,
    /// K, symmetric with a zero diagonal.
    pub couplings: Array2<f64>,
}

impl SpinCouplings {
    /// Returns the model with these fields, and these couplings of pairs; all others are zero.
    ///
    /// # Panics
    /// For a pair of units that have no field.
    pub fn of_pairs(fields: &[f64], pairs: &[(usize, usize)], couplings: &[f64]) -> Self {
        let mut matrix = Array2::zeros((fields.len(), fields.len()));
        for (&(i, j), &k) in pairs.iter().zip(couplings) {
            matrix[[i, j]] = k;
            matrix[[j, i]] = k;
        }
        Self {
            fields: Array1::from(fields.to_vec()),
            couplings: matrix,
        }
    }
}

impl Couplings {
    /// Checks J. Entries that differ from their mirror image by rounding (1e-12, relative) are
    /// averaged.
    ///
    /// # Errors
    /// [`Error::NotSquare`], [`Error::NotFinite`], [`Error::NotSymmetric`], [`Error::TooLarge`].
    pub fn new(mut j: Array2<f64>) -> Result<Self> {
        let (rows, columns) = j.dim();
        if rows != columns || rows == 0 {
            return Err(Error::NotSquare { rows, columns });
        }
        check_finite(&j)?;
        for i in 0..rows {
            for k in 0..i {
                let (lower, upper) = (j[[i, k]], j[[k, i]]);
                if (upper - lower).abs() > 1e-12 * upper.abs().max(lower.abs()).max(1.0) {
                    return Err(Error::NotSymmetric {
                        i: k,
                        j: i,
                        upper,
                        lower,
                    });
                }
                if upper != lower {
                    // Two halves cannot overflow.
                    let mean = 0.5 * upper + 0.5 * lower;
                    j[[i, k]] = mean;
                    j[[k, i]] = mean;
                }
            }
        }
        check_sum(&j)?;
        Ok(Self {
            j,
            potential: Vec::new(),
        })
    }

    /// Returns J = 0: every state is equally likely.
    ///
    /// # Errors
    /// [`Error::NotSquare`] for 0 units, [`Error::OutOfMemory`].
    pub fn zeros(n_units: usize) -> Result<Self> {
        Self::new(square(n_units)?)
    }

    /// Adds V(n) of the number n of active units, 0 to d, to the energy: E = xᵀJx + V(Σ_i x_i), a
    /// K-pairwise model.
    ///
    /// # Errors
    /// [`Error::UnitCount`] for another number of numbers than d + 1, [`Error::Potential`] for one
    /// that is not finite or beyond ±10¹⁵⁰.
    pub fn with_potential(mut self, potential: Vec<f64>) -> Result<Self> {
        check_units("the potential", self.n_units() + 1, potential.len())?;
        let fits = |v: f64| v.abs() <= 1e150;
        if let Some(n_active) = potential.iter().position(|v| !fits(*v)) {
            let value = potential[n_active];
            return Err(Error::Potential { n_active, value });
        }
        self.potential = potential;
        Ok(self)
    }

    /// Returns V(0), …, V(d) of a K-pairwise model; `None` for an Ising model.
    pub fn potential(&self) -> Option<&[f64]> {
        (!self.potential.is_empty()).then_some(&self.potential)
    }

    /// Returns the number of units.
    pub fn n_units(&self) -> usize {
        self.j.nrows()
    }

    /// Returns J.
    pub fn as_array(&self) -> &Array2<f64> {
        &self.j
    }

    /// Returns J_ij; the bias for i = j.
    ///
    /// # Panics
    /// For a unit that does not exist.
    pub fn get(&self, i: usize, j: usize) -> f64 {
        self.j[[i, j]]
    }

    /// Returns E = xᵀJx, with V if there is one, of a packed state, such as a row of [`States`](crate::States). O(active²).
    ///
    /// ```
    /// use mpf_ising::{Couplings, States};
    /// use ndarray::array;
    ///
    /// let couplings = Couplings::new(array![[0.5, -1.0], [-1.0, 0.2]])?;
    /// let states = States::from_binary(array![[1, 0], [1, 1]].view())?;
    /// assert_eq!(couplings.energy(states.row(0)), 0.5);
    /// assert_eq!(couplings.energy(states.row(1)), 0.5 - 2.0 + 0.2);
    /// # Ok::<(), mpf_ising::Error>(())
    /// ```
    ///
    /// # Panics
    /// For a state with a bit beyond the last unit.
    pub fn energy(&self, row: &[u64]) -> f64 {
        let mut energy = self.potential().map_or(0.0, |v| v[n_active(row)]);
        for_each_active_pair(row, |i, k, times| energy += times * self.j[[i, k]]);
        energy
    }

    /// Returns the upper triangle with the diagonal, row by row: d(d+1)/2 numbers.
    pub fn pack(&self) -> Vec<f64> {
        let d = self.n_units();
        (0..d)
            .flat_map(|i| (i..d).map(move |j| self.j[[i, j]]))
            .collect()
    }

    /// Inverts [`Couplings::pack`].
    ///
    /// # Errors
    /// [`Error::UnitCount`] if the length is not d(d+1)/2, [`Error::NotFinite`],
    /// [`Error::TooLarge`], [`Error::OutOfMemory`].
    pub fn unpack(n_units: usize, packed: &[f64]) -> Result<Self> {
        if packed.len() != n_packed(n_units) {
            return Err(Error::UnitCount {
                what: "packed couplings",
                expected: n_units,
                found: ((8.0 * packed.len() as f64 + 1.0).sqrt() / 2.0 - 0.5).floor() as usize,
            });
        }
        let mut j = square(n_units)?;
        for i in 0..n_units {
            for k in i..n_units {
                let value = packed[packed_index(n_units, i, k)];
                j[[i, k]] = value;
                j[[k, i]] = value;
            }
        }
        Self::new(j)
    }

    /// Returns the model over spins s = 2x − 1.
    pub fn to_spins(&self) -> SpinCouplings {
        let mut couplings = self.j.mapv(|v| -0.5 * v + 0.0);
        couplings.diag_mut().fill(0.0);
        SpinCouplings {
            fields: self
                .j
                .columns()
                .into_iter()
                .map(|c| -0.5 * c.sum())
                .collect(),
            couplings,
        }
    }

    /// Converts a model over spins to x = (s + 1)/2. The diagonal of K is ignored, as s_i² = 1.
    ///
    /// # Errors
    /// [`Error::UnitCount`] if fields and couplings differ in size, [`Error::NotFinite`],
    /// [`Error::NotSymmetric`], [`Error::NotSquare`], [`Error::TooLarge`].
    pub fn from_spins(spins: &SpinCouplings) -> Result<Self> {
        let d = spins.couplings.nrows();
        check_units("fields", d, spins.fields.len())?;
        let mut k = spins.couplings.clone();
        if k.ncols() == d {
            k.diag_mut().fill(0.0);
        }
        check_finite(&k)?;
        for (i, &value) in spins.fields.iter().enumerate() {
            if !value.is_finite() {
                return Err(Error::NotFinite { i, j: i, value });
            }
        }
        // All numbers were finite: an infinite one has overflowed.
        let too_large = |error| match error {
            Error::NotFinite { .. } => Error::TooLarge { sum: f64::INFINITY },
            other => other,
        };
        // Adding zero turns −0 into 0.
        let mut j = k.mapv(|v| -2.0 * v + 0.0);
        for (bias, (row, field)) in j
            .diag_mut()
            .iter_mut()
            .zip(k.rows().into_iter().zip(&spins.fields))
        {
            *bias = 2.0 * (row.sum() - field);
        }
        Self::new(j).map_err(too_large)
    }

    /// Returns ε_J = ‖J − other‖²_F / d², the paper's error over all entries, diagonal included. +∞
    /// on overflow.
    ///
    /// # Panics
    /// If the two differ in size.
    pub fn mean_square_error(&self, other: &Self) -> f64 {
        let difference = &self.j - &other.j;
        difference.iter().map(|e| e * e).sum::<f64>() / difference.len() as f64
    }
}

/// Returns d(d+1)/2, saturating.
pub fn n_packed(n_units: usize) -> usize {
    // Halve the even factor: nothing overflows before the product does.
    if n_units.is_multiple_of(2) {
        (n_units / 2).saturating_mul(n_units + 1)
    } else {
        n_units.saturating_mul(n_units / 2 + 1)
    }
}

/// Returns the index of J_ij, i ≤ j, in [`Couplings::pack`].
pub fn packed_index(n_units: usize, i: usize, j: usize) -> usize {
    debug_assert!(i <= j && j < n_units);
    i * n_units + j - i * (i + 1) / 2
}

/// Returns n × n zeros, or an error without the memory.
pub(crate) fn square(n: usize) -> Result<Array2<f64>> {
    check_square(n)?;
    Ok(Array2::zeros((n, n)))
}

/// Refuses a matrix for which the allocator has no memory.
pub(crate) fn check_square(n: usize) -> Result<()> {
    let reserve = |length| {
        let mut memory = Vec::<f64>::new();
        memory.try_reserve_exact(length).ok()?;
        // Keep the compiler from removing an allocation that nothing uses.
        std::hint::black_box(&memory);
        Some(())
    };
    match n.checked_mul(n).and_then(reserve) {
        Some(()) => Ok(()),
        None => Err(Error::OutOfMemory {
            what: "units in one matrix of couplings",
            count: n,
        }),
    }
}

fn check_finite(j: &Array2<f64>) -> Result<()> {
    match j.indexed_iter().find(|(_, v)| !v.is_finite()) {
        None => Ok(()),
        Some(((i, j), &value)) => Err(Error::NotFinite { i, j, value }),
    }
}

/// Checks Σ |J_ij|, twice which bounds every energy and every local field.
fn check_sum(j: &Array2<f64>) -> Result<()> {
    let sum = j.iter().map(|v| v.abs()).sum::<f64>();
    if (2.0 * sum).is_finite() {
        Ok(())
    } else {
        Err(Error::TooLarge { sum })
    }
}

/// What the numbers of a [`CouplingsFile`] mean; every file says it.
const CONVENTION: &str = "p(x) = exp(-x'Jx)/Z, x in {0,1}^d, J symmetric, biases on the diagonal";

/// The stored form of [`Couplings`].
#[derive(Clone, Serialize, Deserialize)]
struct CouplingsFile {
    convention: String,
    n_units: usize,
    couplings: Vec<Vec<f64>>,
    #[serde(default)]
    potential: Vec<f64>,
}

impl From<Couplings> for CouplingsFile {
    fn from(c: Couplings) -> Self {
        Self {
            convention: CONVENTION.to_owned(),
            n_units: c.n_units(),
            couplings: c.j.rows().into_iter().map(|r| r.to_vec()).collect(),
            potential: c.potential,
        }
    }
}

impl TryFrom<CouplingsFile> for Couplings {
    type Error = String;

    fn try_from(file: CouplingsFile) -> Result<Self, String> {
        if file.convention != CONVENTION {
            return Err(format!(
                "the couplings are in the convention {:?}, but {CONVENTION:?} is expected",
                file.convention
            ));
        }
        let d = file.n_units;
        let rows = file.couplings.len();
        if let Some(row) = file.couplings.iter().position(|r| r.len() != d) {
            return Err(format!(
                "row {row} of the couplings has {} entries, but there are {d} units",
                file.couplings[row].len()
            ));
        }
        let flat = file.couplings.into_iter().flatten().collect();
        let j = Array2::from_shape_vec((rows, d), flat).map_err(|e| e.to_string())?;
        let couplings = Self::new(j).map_err(|e| e.to_string())?;
        if file.potential.is_empty() {
            return Ok(couplings);
        }
        couplings
            .with_potential(file.potential)
            .map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::IsingModel;
    use mpf_core::EnergyModel;
    use mpf_core::rng::stream;
    use ndarray::array;
    use rand::RngExt;

    fn random(d: usize, seed: u64) -> Couplings {
        let mut rng = stream(seed, 0);
        let packed: Vec<f64> = (0..n_packed(d))
            .map(|_| rng.random_range(-2.0..2.0))
            .collect();
        Couplings::unpack(d, &packed).unwrap()
    }

    #[test]
    fn packing_round_trips_in_the_stated_order() {
        let c = random(5, 1);
        let packed = c.pack();
        assert_eq!(Couplings::unpack(5, &packed).unwrap(), c);
        for i in 0..5 {
            for j in i..5 {
                assert_eq!(packed[packed_index(5, i, j)], c.get(i, j));
            }
        }
    }

    #[test]
    fn spins_round_trip_and_give_the_same_energies_up_to_a_constant() {
        let d = 6;
        let c = random(d, 2);
        let spins = c.to_spins();
        let back = Couplings::from_spins(&spins).unwrap();
        assert!(
            (back.as_array() - c.as_array())
                .iter()
                .all(|e| e.abs() < 1e-14)
        );

        let model = IsingModel::new(d);
        let theta = c.pack();
        let offset = |state: u64| {
            let s: Vec<f64> = (0..d)
                .map(|u| 2.0 * (state >> u & 1) as f64 - 1.0)
                .collect();
            let mut energy = 0.0;
            for i in 0..d {
                energy -= spins.fields[i] * s[i];
                for j in 0..i {
                    energy -= spins.couplings[[i, j]] * s[i] * s[j];
                }
            }
            assert_eq!(c.energy(&[state]), model.energy(&theta, &[state]));
            c.energy(&[state]) - energy
        };
        for state in 1..1 << d {
            assert!((offset(state) - offset(0)).abs() < 1e-12);
        }
    }

    #[test]
    fn zero_column_sums_mean_zero_field() {
        let c = Couplings::new(array![[1.0, -1.0], [-1.0, 1.0]]).unwrap();
        assert_eq!(c.to_spins().fields, array![0.0, 0.0]);
        assert_eq!(c.to_spins().couplings[[0, 1]], 0.5);
    }

    #[test]
    fn sizes_beyond_memory_are_errors() {
        assert_eq!(
            [0, 1, 2, 3, 6, 1 << 33].map(n_packed),
            [0, 1, 3, 6, 21, usize::MAX]
        );
        for n in [1 << 31, 1 << 33, usize::MAX] {
            assert!(matches!(
                Couplings::zeros(n),
                Err(Error::OutOfMemory { count, .. }) if count == n
            ));
            assert!(Couplings::unpack(n, &[0.0]).is_err());
        }
    }

    #[test]
    fn spins_that_overflow_are_too_large_and_not_infinite() {
        let spins = |field: f64, coupling: f64| SpinCouplings {
            fields: array![field, 0.0],
            couplings: array![[f64::NAN, coupling], [coupling, 0.0]],
        };
        assert!(Couplings::from_spins(&spins(1.0, 2.0)).is_ok());
        for (field, coupling) in [(1.5e308, 0.0), (0.0, -1.5e308)] {
            assert_eq!(
                Couplings::from_spins(&spins(field, coupling)),
                Err(Error::TooLarge { sum: f64::INFINITY })
            );
        }
        assert!(matches!(
            Couplings::from_spins(&spins(f64::INFINITY, 0.0)),
            Err(Error::NotFinite { i: 0, j: 0, .. })
        ));
    }

    #[test]
    fn mean_square_error_counts_every_entry() {
        let a = Couplings::zeros(2).unwrap();
        let b = Couplings::new(array![[1.0, 2.0], [2.0, 0.0]]).unwrap();
        assert_eq!(a.mean_square_error(&b), 9.0 / 4.0);
    }

    #[test]
    fn bad_matrices_are_errors_that_name_the_place() {
        assert_eq!(
            Couplings::new(array![[0.0, 1.0], [1.5, 0.0]]),
            Err(Error::NotSymmetric {
                i: 0,
                j: 1,
                upper: 1.0,
                lower: 1.5
            })
        );
        assert!(matches!(
            Couplings::new(array![[0.0, f64::NAN], [1.0, 0.0]]),
            Err(Error::NotFinite { i: 0, j: 1, .. })
        ));
        assert!(matches!(
            Couplings::new(Array2::zeros((2, 3))),
            Err(Error::NotSquare {
                rows: 2,
                columns: 3
            })
        ));
        // (An infinite sum of finite numbers.)
        assert_eq!(
            Couplings::new(Array2::from_elem((2, 2), 1e308)),
            Err(Error::TooLarge { sum: f64::INFINITY })
        );
        assert!(matches!(
            Couplings::unpack(3, &[0.0; 5]),
            Err(Error::UnitCount { expected: 3, .. })
        ));
    }

    #[test]
    fn json_round_trips_exactly_and_is_checked() {
        let c = random(4, 3);
        let json = serde_json::to_string(&c).unwrap();
        assert_eq!(serde_json::from_str::<Couplings>(&json).unwrap(), c);
        let other = json.replace("{0,1}", "{-1,1}");
        let message = serde_json::from_str::<Couplings>(&other)
            .unwrap_err()
            .to_string();
        assert!(message.contains("convention"), "{message}");
        let short = json.replace("\"n_units\":4", "\"n_units\":3");
        assert!(serde_json::from_str::<Couplings>(&short).is_err());
    }
}
