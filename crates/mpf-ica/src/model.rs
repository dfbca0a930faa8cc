//! The ICA model with a Laplace prior (the main text's continuous example).
//!
//! ```text
//! p(x; J) = exp(−E(x; J)) |det J| / 2ᵈ,   E(x; J) = Σ_k |J_k x|
//! ∂E/∂x = Jᵀ sign(Jx),   ∂E/∂J = sign(Jx) xᵀ
//! ```
//!
//! J_k, row k of the square J, is a filter. sign(0) = 0: the energy has a kink there, and 0 is
//! the middle of its slopes. The extended model of Appendix H adds a momentum to the state,
//! x = {q, v}, and its kinetic energy to E:
//!
//! ```text
//! H(x; J) = E(q; J) + ½ vᵀv
//! ```

use crate::Result;
use crate::batch::entries;
use crate::error::{Error, check_finite};
use mpf_core::linalg::{log_determinant_and_inverse, singular_values};
use mpf_core::{EnergyModel, check_count, rng};
use mpf_samplers::SmoothEnergy;
use ndarray::{Array2, ArrayView1, ArrayView2};
use rand::{Rng, RngExt};
use rand_distr::StandardNormal;
use serde::{Deserialize, Serialize};

/// Returns 1, 0 or −1 (`f64::signum` has no 0).
#[inline]
pub(crate) fn sign(u: f64) -> f64 {
    f64::from(u > 0.0) - f64::from(u < 0.0)
}

/// Returns J_k x.
#[inline]
fn response(filter: &[f64], x: &[f64]) -> f64 {
    filter.iter().zip(x).map(|(j, x)| j * x).sum()
}

/// The family of Laplace ICA models in d dimensions; θ is J, row by row. Energies are +∞ or NaN on
/// overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaplaceIca {
    n_dims: usize,
}

impl LaplaceIca {
    /// Returns the models in `n_dims` dimensions.
    pub fn new(n_dims: usize) -> Self {
        Self { n_dims }
    }
}

impl EnergyModel for LaplaceIca {
    type State = [f64];

    fn n_params(&self) -> usize {
        self.n_dims * self.n_dims
    }

    fn energy(&self, theta: &[f64], x: &[f64]) -> f64 {
        let filters = theta.chunks_exact(self.n_dims.max(1));
        filters.map(|filter| response(filter, x).abs()).sum()
    }

    fn add_energy_grad(&self, theta: &[f64], x: &[f64], scale: f64, out: &mut [f64]) {
        let n = self.n_dims.max(1);
        for (filter, out) in theta.chunks_exact(n).zip(out.chunks_exact_mut(n)) {
            let slope = scale * sign(response(filter, x));
            for (o, x) in out.iter_mut().zip(x) {
                *o += slope * x;
            }
        }
    }
}

/// The filters J of one model: square and finite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Filters(#[serde(with = "square")] Array2<f64>);

/// Writes square matrices as their entries, row by row.
pub(crate) mod square {
    use ndarray::Array2;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(matrix: &Array2<f64>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(matrix)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Array2<f64>, D::Error> {
        let entries = Vec::<f64>::deserialize(from)?;
        let n = entries.len();
        let side = n.isqrt();
        if n == 0 || side * side != n {
            return Err(D::Error::custom(format!("{n} entries make no square")));
        }
        if let Some(value) = entries.iter().find(|v| !v.is_finite()) {
            return Err(D::Error::custom(format!("an entry is {value}")));
        }
        Array2::from_shape_vec((side, side), entries).map_err(D::Error::custom)
    }
}

impl Filters {
    /// Makes filters from their matrix, one per row.
    ///
    /// # Errors
    /// [`mpf_core::Error::Count`] unless it is square and not empty, [`Error::NonFinite`].
    pub fn new(filters: Array2<f64>) -> Result<Self> {
        let (rows, columns) = filters.dim();
        check_count("filters of the square model", columns.max(1), rows)?;
        check_finite("filters", filters.view())?;
        Ok(Self(filters.as_standard_layout().into_owned()))
    }

    /// Draws the paper's start: independent N(0, 0.01) entries. At d = 100 every filter is then
    /// nearly of unit length (Appendix G).
    ///
    /// # Panics
    /// If `n_dims` is 0.
    pub fn random(n_dims: usize, seed: u64) -> Self {
        assert!(n_dims > 0, "filters have at least one dimension");
        let mut rng = rng::stream(seed, 0);
        let draw = || 0.1 * rng.sample::<f64, _>(StandardNormal);
        Self(Array2::from_shape_simple_fn((n_dims, n_dims), draw))
    }

    /// Returns J.
    pub fn as_array(&self) -> ArrayView2<'_, f64> {
        self.0.view()
    }

    /// Returns d.
    pub fn n_dims(&self) -> usize {
        self.0.nrows()
    }

    /// Returns J row by row: θ of [`LaplaceIca`].
    pub fn theta(&self) -> &[f64] {
        entries(self.0.view())
    }

    /// Makes filters from their rows, one after the other.
    pub(crate) fn from_theta(theta: &[f64]) -> Self {
        let n_dims = theta.len().isqrt();
        let filters = Array2::from_shape_vec((n_dims, n_dims), theta.to_vec());
        Self(filters.expect("θ has d² entries"))
    }

    /// Sets J ← J + `scale` · `direction`.
    pub(crate) fn step(&mut self, scale: f64, direction: ArrayView2<'_, f64>) {
        self.0.scaled_add(scale, &direction);
    }

    /// Replaces filter `k`.
    pub(crate) fn replace(&mut self, k: usize, filter: ArrayView1<'_, f64>) {
        self.0.row_mut(k).assign(&filter);
    }

    /// Returns the singular values of J, from the largest to the smallest.
    ///
    /// # Errors
    /// [`Error::Core`] when the decomposition fails, as it may for entries beyond 1e150.
    pub fn singular_values(&self) -> Result<Vec<f64>> {
        Ok(singular_values(self.0.view())?.1.to_vec())
    }

    /// Returns ln |det J| and J⁻¹, the mixing matrix.
    ///
    /// # Errors
    /// [`Error::SingularFilters`].
    pub fn log_determinant_and_inverse(&self) -> Result<(f64, Array2<f64>)> {
        log_determinant_and_inverse(self.0.view()).map_err(|e| match e {
            mpf_core::Error::Singular { size } => Error::SingularFilters { n_dims: size },
            other => other.into(),
        })
    }

    /// Draws `n` independent samples from p(x; J), one per row: x = J⁻¹s with Laplace sources s.
    ///
    /// # Errors
    /// [`Error::SingularFilters`], and [`Error::NonFinite`] for filters so small that a draw
    /// overflows.
    pub fn draw<R: Rng + ?Sized>(&self, n: usize, rng: &mut R) -> Result<Array2<f64>> {
        let (_, mixing) = self.log_determinant_and_inverse()?;
        let sources = Array2::from_shape_simple_fn((n, self.n_dims()), || {
            // An exponential with a random sign; 1 − u is in (0, 1].
            let size = -(1.0 - rng.random::<f64>()).ln();
            if rng.random::<bool>() { size } else { -size }
        });
        let draws = sources.dot(&mixing.t());
        check_finite("draws", draws.view())?;
        Ok(draws)
    }
}

impl SmoothEnergy for Filters {
    fn n_dims(&self) -> usize {
        self.0.nrows()
    }

    fn energy_and_gradient(&self, q: &[f64], gradient: &mut [f64]) -> f64 {
        gradient.fill(0.0);
        let mut energy = 0.0;
        for filter in self.theta().chunks_exact(q.len()) {
            let u = response(filter, q);
            energy += u.abs();
            let slope = sign(u);
            for (g, j) in gradient.iter_mut().zip(filter) {
                *g += slope * j;
            }
        }
        energy
    }
}
