//! The exact likelihood of Laplace ICA, by which every fit is judged.
//!
//! ```text
//! ln p(x; J) = −Σ_k |J_k x| − d ln 2 + ln |det J|                       in nats
//! ∇_J of its mean = (Jᵀ)⁻¹ − ⟨sign(Jx) xᵀ⟩
//! ```
//!
//! (The main text's density.) At the maximum ⟨|J_k x|⟩ = 1 for every filter.

use crate::batch::{BLOCK, blocks, groups, sum_in_order, view, view_mut};
use crate::error::check_finite;
use crate::model::{Filters, sign};
use crate::{Error, Result};
use mpf_core::{Objective, check_count, linalg};
use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView2, s};
use rayon::prelude::*;
use std::f64::consts::LN_2;
use std::ops::Range;

/// −⟨ln p(x; J)⟩ over the rows of `data`, as an [`Objective`] over J, row by row. O(M d² + d³).
///
/// +∞ for singular filters; +∞ or NaN where energies overflow.
pub struct NegativeLogLikelihood<'a> {
    data: ArrayView2<'a, f64>,
    groups: Vec<Group>,
}

struct Group {
    rows: Range<usize>,
    /// Jx of a block, then its signs.
    responses: Vec<f64>,
    energy: f64,
    grad: Array2<f64>,
}

impl<'a> NegativeLogLikelihood<'a> {
    /// Prepares the likelihood of `data`, one sample per row.
    ///
    /// # Errors
    /// [`Error::TooFewSamples`] without samples, [`Error::NonFinite`].
    pub fn new(data: ArrayView2<'a, f64>) -> Result<Self> {
        let (n_samples, d) = data.dim();
        if n_samples == 0 || d == 0 {
            return Err(Error::TooFewSamples {
                n_samples,
                n_dims: d,
            });
        }
        check_finite("data", data)?;
        let group = |rows: Range<usize>| Group {
            responses: vec![0.0; BLOCK.min(rows.len()) * d],
            rows,
            energy: 0.0,
            grad: Array2::zeros((d, d)),
        };
        Ok(Self {
            data,
            groups: groups(n_samples, BLOCK).into_iter().map(group).collect(),
        })
    }

    /// Returns ⟨E⟩ and, if `with_gradient`, leaves the sums for its gradient in the groups.
    fn mean_energy(&mut self, filters: ArrayView2<'_, f64>, with_gradient: bool) -> f64 {
        let (n, d) = self.data.dim();
        let data = self.data;
        self.groups.par_iter_mut().for_each(|group| {
            group.energy = 0.0;
            group.grad.fill(0.0);
            for rows in blocks(group.rows.clone(), BLOCK) {
                let n = rows.len();
                let x = data.slice(s![rows, ..]);
                let responses = &mut group.responses[..n * d];
                let mut product = view_mut(responses, n, d);
                general_mat_mul(1.0, &x, &filters.t(), 0.0, &mut product);
                group.energy += responses.iter().map(|u| u.abs()).sum::<f64>();
                if with_gradient {
                    responses.iter_mut().for_each(|u| *u = sign(*u));
                    let signs = view(responses, n, d);
                    general_mat_mul(1.0, &signs.t(), &x, 1.0, &mut group.grad);
                }
            }
        });
        self.groups.iter().map(|g| g.energy).sum::<f64>() / n as f64
    }

    /// Returns ⟨ln p(x; J)⟩ in nats, without its gradient.
    ///
    /// # Errors
    /// [`mpf_core::Error::Count`] for filters of another size; [`Error::SingularFilters`];
    /// [`Error::Overflow`] where the energies overflow.
    pub fn log_likelihood(&mut self, filters: &Filters) -> Result<f64> {
        let d = self.data.ncols();
        check_count("filters", d, filters.n_dims())?;
        let (log_determinant, _) = filters.log_determinant_and_inverse()?;
        let energy = self.mean_energy(filters.as_array(), false);
        if !energy.is_finite() {
            return Err(Error::Overflow {
                what: "the mean energy of the data",
            });
        }
        Ok(log_determinant - energy - d as f64 * LN_2)
    }
}

/// Returns ⟨ln p(x; J)⟩ in nats over the rows of `data`.
///
/// # Errors
/// As [`NegativeLogLikelihood::new`] and [`NegativeLogLikelihood::log_likelihood`].
pub fn log_likelihood(filters: &Filters, data: ArrayView2<'_, f64>) -> Result<f64> {
    NegativeLogLikelihood::new(data)?.log_likelihood(filters)
}

impl Objective for NegativeLogLikelihood<'_> {
    fn n_params(&self) -> usize {
        self.data.ncols() * self.data.ncols()
    }

    fn value_and_gradient(&mut self, theta: &[f64], grad: &mut [f64]) -> f64 {
        let (n, d) = self.data.dim();
        let filters = view(theta, d, d);
        let Ok((log_determinant, inverse)) = linalg::log_determinant_and_inverse(filters) else {
            return f64::INFINITY;
        };
        let energy = self.mean_energy(filters, true);
        let sum = sum_in_order(d, self.groups.iter().map(|g| &g.grad));
        view_mut(grad, d, d).assign(&(sum / n as f64 - inverse.t()));
        energy + d as f64 * LN_2 - log_determinant
    }
}
