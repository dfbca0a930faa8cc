//! Whitens data: y = T(x − mean) has mean 0 and the identity as its covariance.
//!
//! ```text
//! C = V diag(λ) Vᵀ;   ZCA: T = V diag(λ^−½) Vᵀ;   PCA: T = diag(λ^−½) Vᵀ
//! ```
//!
//! ZCA changes the data least: whitened patches still look like patches. PCA orders the new axes by
//! variance, the largest first. There is no ridge: a covariance without an inverse is an error. The
//! mean is that of each dimension over the samples, not that of each patch.

use crate::batch::{BLOCK, blocks, groups, sum_in_order, view_mut};
use crate::error::check_finite;
use crate::{Error, Result};
use mpf_core::check_count;
use mpf_core::linalg::symmetric_eigen;
use ndarray::linalg::general_mat_mul;
use ndarray::{Array1, Array2, ArrayView2, Axis, s};
use rayon::prelude::*;

/// Which whitening transform to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhiteningMethod {
    /// Symmetric: as close to the data as whitened data can be.
    #[default]
    Zca,
    /// Along the principal axes, the largest variance first.
    Pca,
}

/// A transform that whitens data like those it was made from, and its inverse.
///
/// ```
/// use mpf_ica::{Whitening, WhiteningMethod};
/// use ndarray::array;
///
/// let data = array![[1.0, 5.0], [3.0, 5.0], [1.0, 9.0], [3.0, 9.0]];
/// let whitening = Whitening::new(data.view(), WhiteningMethod::Zca)?;
/// let white = whitening.apply(data.view())?;
/// assert!((white[[0, 0]] + 1.0).abs() < 1e-12 && (white[[2, 1]] - 1.0).abs() < 1e-12);
/// # Ok::<(), mpf_ica::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Whitening {
    mean: Array1<f64>,
    transform: Array2<f64>,
    inverse: Array2<f64>,
}

impl Whitening {
    /// Finds the transform that whitens `data`, one sample per row. O(M d² + d³).
    ///
    /// # Errors
    /// [`Error::TooFewSamples`] unless there are more samples than dimensions,
    /// [`Error::NonFinite`], [`Error::SingularCovariance`], and [`Error::Core`] for data so large
    /// that their covariance overflows.
    pub fn new(data: ArrayView2<'_, f64>, method: WhiteningMethod) -> Result<Self> {
        let (n_samples, n_dims) = data.dim();
        if n_samples <= n_dims || n_dims == 0 {
            return Err(Error::TooFewSamples { n_samples, n_dims });
        }
        check_finite("data", data)?;
        let mean = data.sum_axis(Axis(0)) / n_samples as f64;
        let covariance = covariance(data, &mean);
        let (mut values, mut vectors) = symmetric_eigen(covariance.view())?;
        let (smallest, largest) = (values[0], values[n_dims - 1]);
        // Rounding turns a zero eigenvalue into about d·ε of the largest, and subnormal squares have
        // lost their digits.
        let zero = 10.0 * n_dims as f64 * f64::EPSILON * largest;
        let zero = zero.max(f64::MIN_POSITIVE / f64::EPSILON);
        if smallest <= zero {
            return Err(Error::SingularCovariance {
                n_dims,
                rank: values.iter().filter(|v| **v > zero).count(),
                smallest,
                largest,
            });
        }
        if method == WhiteningMethod::Pca {
            values.invert_axis(Axis(0));
            vectors.invert_axis(Axis(1));
        }
        let roots = values.mapv(f64::sqrt);
        let (transform, inverse) = match method {
            WhiteningMethod::Zca => (
                (&vectors / &roots).dot(&vectors.t()),
                (&vectors * &roots).dot(&vectors.t()),
            ),
            WhiteningMethod::Pca => (
                (&vectors / &roots).t().as_standard_layout().into_owned(),
                &vectors * &roots,
            ),
        };
        Ok(Self {
            mean,
            transform,
            inverse,
        })
    }

    /// Returns T(x − mean) for every row x of `data`.
    ///
    /// # Errors
    /// [`mpf_core::Error::Count`] for rows of another length, [`Error::NonFinite`] for data that
    /// are not finite or overflow.
    pub fn apply(&self, data: ArrayView2<'_, f64>) -> Result<Array2<f64>> {
        check_count("columns", self.mean.len(), data.ncols())?;
        let white = times((&data - &self.mean).view(), &self.transform);
        finite_result("data", data, "whitened data", white)
    }

    /// Returns T⁻¹y + mean for every row y of `white`.
    ///
    /// # Errors
    /// As [`Whitening::apply`].
    pub fn invert(&self, white: ArrayView2<'_, f64>) -> Result<Array2<f64>> {
        check_count("columns", self.mean.len(), white.ncols())?;
        let data = times(white, &self.inverse) + &self.mean;
        finite_result("whitened data", white, "data", data)
    }

    /// Returns T.
    pub fn transform(&self) -> ArrayView2<'_, f64> {
        self.transform.view()
    }

    /// Returns T⁻¹.
    pub fn inverse(&self) -> ArrayView2<'_, f64> {
        self.inverse.view()
    }

    /// Returns the mean that is subtracted.
    pub fn mean(&self) -> ndarray::ArrayView1<'_, f64> {
        self.mean.view()
    }
}

/// Returns `found` if it is finite. Otherwise the error names the first entry that is not: of
/// `given` if there is one, or else of `found`.
fn finite_result(
    what: &'static str,
    given: ArrayView2<'_, f64>,
    result: &'static str,
    found: Array2<f64>,
) -> Result<Array2<f64>> {
    if !found.iter().all(|v| v.is_finite()) {
        check_finite(what, given)?;
        check_finite(result, found.view())?;
    }
    Ok(found)
}

/// Returns ⟨(x − mean)(x − mean)ᵀ⟩ over the rows of `data`. Entries beyond 1e150 may overflow to ±∞
/// or NaN; without rows it is NaN.
///
/// # Panics
/// If `mean` has another length than a row.
pub fn covariance(data: ArrayView2<'_, f64>, mean: &Array1<f64>) -> Array2<f64> {
    let (n, d) = data.dim();
    let sums: Vec<Array2<f64>> = groups(n, BLOCK)
        .into_par_iter()
        .map(|group| {
            let mut sum = Array2::zeros((d, d));
            for rows in blocks(group, BLOCK) {
                let x = &data.slice(s![rows, ..]) - mean;
                general_mat_mul(1.0, &x.t(), &x, 1.0, &mut sum);
            }
            sum
        })
        .collect();
    sum_in_order(d, sums.iter()) / n as f64
}

/// Returns `matrix` x for every row x of `data`.
fn times(data: ArrayView2<'_, f64>, matrix: &Array2<f64>) -> Array2<f64> {
    let (n, d) = data.dim();
    let mut product = Array2::zeros((n, d));
    let rows = product.as_slice_mut().expect("standard layout");
    let chunks = rows.par_chunks_mut(BLOCK * d).enumerate();
    chunks.for_each(|(block, to)| {
        let n = to.len() / d;
        let x = data.slice(s![block * BLOCK..block * BLOCK + n, ..]);
        general_mat_mul(1.0, &x, &matrix.t(), 0.0, &mut view_mut(to, n, d));
    });
    product
}
