//! All dense linear algebra of this workspace.
//!
//! `nalgebra` (pure Rust) by default; LAPACK through `ndarray-linalg` with the feature `lapack`.
//! `default_backend` is always compiled: a test compares the two.

use crate::Result;
use crate::cancel::Cancel;
use crate::error::Error;
use ndarray::{Array1, Array2, ArrayView2};
use rayon::prelude::*;

#[cfg(not(feature = "lapack"))]
use default_backend as backend;
#[cfg(feature = "lapack")]
use lapack_backend as backend;

/// Eigenvalues in ascending order, and the eigenvectors as columns in the same order.
pub type Eigen = (Array1<f64>, Array2<f64>);

/// Returns the eigen-decomposition A = V diag(λ) Vᵀ of a symmetric matrix. Only the lower triangle is
/// read. O(n³).
///
/// # Errors
/// [`Error::NotSquare`]; [`Error::Decomposition`] for an empty matrix, NaN or infinite entries, and
/// entries whose squares overflow.
pub fn symmetric_eigen(a: ArrayView2<'_, f64>) -> Result<Eigen> {
    let what = "symmetric eigen-decomposition";
    let size = finite_size(a, what)?;
    // One layout for both backends: LAPACK's idea of "lower" depends on the memory order.
    let symmetric = Array2::from_shape_fn((size, size), |(i, j)| a[[i.max(j), i.min(j)]]);
    backend::symmetric_eigen(symmetric.view())
        .filter(|(values, vectors)| are_finite(values.iter().chain(vectors)))
        .ok_or(Error::Decomposition { what, size })
}

/// Returns (AᵀA + λI)⁺Aᵀ of the symmetric A = V diag(μ) Vᵀ: for λ = 0 the pseudo-inverse of A,
/// damped for λ > 0. Exactly symmetric. O(n³).
///
/// Eigenvalues below n·ε of the largest, and those whose inverse overflows, count as zero.
pub fn symmetric_pseudo_inverse((values, vectors): &Eigen, lambda: f64) -> Array2<f64> {
    let n = values.len();
    let largest = values.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    let zero = n as f64 * f64::EPSILON * largest;
    let damped = values.mapv(|v| {
        if lambda > 0.0 {
            v / (v * v + lambda)
        } else if v.abs() > zero.max(f64::MIN_POSITIVE) {
            1.0 / v
        } else {
            0.0
        }
    });
    let product = (vectors * &damped).dot(&vectors.t());
    Array2::from_shape_fn((n, n), |(i, j)| product[[i.max(j), i.min(j)]])
}

/// Returns ln |det A| and A⁻¹, from one LU decomposition. O(n³).
///
/// # Errors
/// [`Error::NotSquare`]; [`Error::Decomposition`] for an empty matrix and NaN or infinite entries;
/// [`Error::Singular`] for a matrix without an inverse in `f64`.
pub fn log_determinant_and_inverse(a: ArrayView2<'_, f64>) -> Result<(f64, Array2<f64>)> {
    let size = finite_size(a, "LU decomposition")?;
    backend::log_determinant_and_inverse(a)
        .filter(|(log_determinant, inverse)| are_finite(inverse.iter().chain([log_determinant])))
        .ok_or(Error::Singular { size })
}

/// Singular values in descending order, with the left vectors as columns of U and the right
/// vectors as rows of Vᵀ, in the same order.
pub type Svd = (Array2<f64>, Array1<f64>, Array2<f64>);

/// Returns the singular value decomposition A = U diag(σ) Vᵀ of a square matrix. O(n³).
///
/// # Errors
/// [`Error::NotSquare`]; [`Error::Decomposition`] for an empty matrix, NaN or infinite entries, and
/// entries whose squares overflow.
pub fn singular_values(a: ArrayView2<'_, f64>) -> Result<Svd> {
    let what = "singular value decomposition";
    let size = finite_size(a, what)?;
    backend::singular_values(a)
        .filter(|(u, values, vt)| are_finite(u.iter().chain(values).chain(vt)))
        .ok_or(Error::Decomposition { what, size })
}

/// Returns whether no entry of a result overflowed.
fn are_finite<'a>(mut values: impl Iterator<Item = &'a f64>) -> bool {
    values.all(|v| v.is_finite())
}

/// Returns the size of a matrix that is square, finite and not empty.
fn finite_size(a: ArrayView2<'_, f64>, what: &'static str) -> Result<usize> {
    let size = square_size(a)?;
    if size == 0 || !are_finite(a.iter()) {
        return Err(Error::Decomposition { what, size });
    }
    Ok(size)
}

/// Returns the inverse of a symmetric positive definite matrix, exactly symmetric. Only the lower
/// triangle is read. O(n³). Pure Rust with either backend, the same bits for any number of threads.
///
/// # Errors
/// [`Error::NotSquare`]; [`Error::NotPositiveDefinite`] with the first row that is, within
/// rounding, a combination of those before it; [`Error::Decomposition`] when the inverse has
/// entries that are not finite.
pub fn positive_definite_inverse(a: ArrayView2<'_, f64>) -> Result<Array2<f64>> {
    positive_definite_inverse_until(a, &Cancel::new())
}

/// As [`positive_definite_inverse`], until `cancel` is set.
///
/// # Errors
/// Also [`Error::Cancelled`].
pub fn positive_definite_inverse_until(
    a: ArrayView2<'_, f64>,
    cancel: &Cancel,
) -> Result<Array2<f64>> {
    let n = square_size(a)?;
    let factor = cholesky(a, cancel)?;
    let mut inverse = vec![0.0; n * n];
    // By symmetry, columns of the lower triangle are rows of the upper one.
    let panels = inverse.par_chunks_mut((PANEL * n).max(1)).enumerate();
    panels.try_for_each(|(panel, rows)| {
        cancel.check()?;
        let first = PANEL * panel;
        let columns = factor.inverse_columns(first);
        for (lane, row) in rows.chunks_mut(n).enumerate() {
            let entries = row[first..].iter_mut().zip(&columns).skip(lane);
            entries.for_each(|(entry, values)| *entry = values[lane]);
        }
        Ok::<_, Error>(())
    })?;
    drop(factor);
    if !are_finite(inverse.iter()) {
        let what = "Cholesky decomposition";
        return Err(Error::Decomposition { what, size: n });
    }
    let mut inverse = Array2::from_shape_vec((n, n), inverse).expect("n rows of n");
    for i in 0..n {
        for j in 0..i {
            inverse[[i, j]] = inverse[[j, i]];
        }
    }
    Ok(inverse)
}

/// Columns that are solved for together, so that a row of the factor is read once for all of them.
pub const PANEL: usize = 16;

/// One number for every column of a panel.
pub type Lane = [f64; PANEL];

/// Returns the factor of A.
fn cholesky(a: ArrayView2<'_, f64>, cancel: &Cancel) -> Result<Cholesky> {
    // Zero up to rounding.
    let least = 8.0 * a.nrows() as f64 * f64::EPSILON;
    let all: Vec<usize> = (0..a.nrows()).collect();
    let mut factor = Cholesky::default();
    for step in all.chunks(Cholesky::STEP) {
        cancel.check()?;
        let dependent = factor.extend(step, least, |i, j| a[[i, j]]);
        if let Some(&(pivot, _)) = dependent.first() {
            return Err(Error::NotPositiveDefinite { pivot });
        }
    }
    Ok(factor)
}

/// The factor L of A = L Lᵀ over rows of A that are independent of each other.
#[derive(Default)]
pub struct Cholesky {
    /// The rows of A.
    pub kept: Vec<usize>,
    /// The rows of L up to the diagonal.
    rows: Vec<Vec<f64>>,
}

impl Cholesky {
    /// Rows to add at a time: their panels are solved for in parallel.
    pub const STEP: usize = 8 * PANEL;

    /// Adds the rows `step` of the matrix `a`. Those whose diagonal is, up to the share `least` of it,
    /// explained by rows before them, or NaN, are not kept: returns them with L⁻¹ of their entries at
    /// the rows that are.
    pub fn extend(
        &mut self,
        step: &[usize],
        least: f64,
        a: impl Fn(usize, usize) -> f64 + Sync,
    ) -> Vec<(usize, Vec<f64>)> {
        let n_before = self.kept.len();
        let panels = step.par_chunks(PANEL).map(|panel| {
            let mut lanes = vec![[0.0; PANEL]; n_before];
            for (lane, &column) in lanes.iter_mut().zip(&self.kept) {
                for (value, &row) in lane.iter_mut().zip(panel) {
                    *value = a(row, column);
                }
            }
            self.solve_lower(0, &mut lanes);
            lanes
        });
        let solved: Vec<Vec<Lane>> = panels.collect();
        let mut dependent = Vec::new();
        for (at, &i) in step.iter().enumerate() {
            let mut row = Vec::with_capacity(self.kept.len() + 1);
            row.extend(solved[at / PANEL].iter().map(|lane| lane[at % PANEL]));
            for k in n_before..self.kept.len() {
                let known: f64 = row.iter().zip(&self.rows[k]).map(|(a, b)| a * b).sum();
                row.push((a(i, self.kept[k]) - known) / self.rows[k][k]);
            }
            let rest = a(i, i) - row.iter().map(|v| v * v).sum::<f64>();
            if rest > least * a(i, i) {
                row.push(rest.sqrt());
                self.kept.push(i);
                self.rows.push(row);
            } else {
                dependent.push((i, row));
            }
        }
        dependent
    }

    /// Replaces `lanes`, which begin at row `first`, by L⁻¹ times them. Those before are zero.
    fn solve_lower(&self, first: usize, lanes: &mut [Lane]) {
        for (k, row) in self.rows.iter().skip(first).enumerate().take(lanes.len()) {
            let (before, here) = lanes.split_at_mut(k);
            let (diagonal, row) = row.split_last().expect("rows end with the diagonal");
            let mut rest = here[0];
            for (l, known) in row[first..].iter().zip(&*before) {
                for (value, known) in rest.iter_mut().zip(known) {
                    *value -= l * known;
                }
            }
            here[0] = rest.map(|value| value / diagonal);
        }
    }

    /// Replaces `lanes`, which begin at row `first`, by L⁻ᵀ times them.
    pub fn solve_upper(&self, first: usize, lanes: &mut [Lane]) {
        for (k, row) in self.rows.iter().enumerate().skip(first).rev() {
            let (before, here) = lanes.split_at_mut(k - first);
            let (diagonal, row) = row.split_last().expect("rows end with the diagonal");
            here[0].iter_mut().for_each(|value| *value /= diagonal);
            for (l, rest) in row[first..].iter().zip(before) {
                for (value, known) in rest.iter_mut().zip(&here[0]) {
                    *value -= l * known;
                }
            }
        }
    }

    /// Returns the columns of A⁻¹ from `first` on, without their rows before it.
    fn inverse_columns(&self, first: usize) -> Vec<Lane> {
        let mut lanes = vec![[0.0; PANEL]; self.rows.len() - first];
        for (k, lane) in lanes.iter_mut().take(PANEL).enumerate() {
            lane[k] = 1.0;
        }
        self.solve_lower(first, &mut lanes);
        self.solve_upper(first, &mut lanes);
        lanes
    }
}

pub(crate) fn square_size(a: ArrayView2<'_, f64>) -> Result<usize> {
    let (rows, columns) = a.dim();
    if rows == columns {
        Ok(rows)
    } else {
        Err(Error::NotSquare { rows, columns })
    }
}

/// Pure Rust, by `nalgebra`. `None` where a decomposition fails; neither entries nor results are
/// checked for NaN and ∞ here.
#[cfg(any(not(feature = "lapack"), test))]
mod default_backend {
    use super::{Array1, Array2, ArrayView2, Eigen, Svd};
    use nalgebra::DMatrix;

    fn matrix(a: ArrayView2<'_, f64>) -> DMatrix<f64> {
        DMatrix::from_fn(a.nrows(), a.ncols(), |i, j| a[[i, j]])
    }

    pub(super) fn symmetric_eigen(a: ArrayView2<'_, f64>) -> Option<Eigen> {
        let n = a.nrows();
        let eigen = nalgebra::SymmetricEigen::try_new(matrix(a), f64::EPSILON, 1000 * n)?;
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|&p, &q| eigen.eigenvalues[p].total_cmp(&eigen.eigenvalues[q]));
        let values = Array1::from_shape_fn(n, |k| eigen.eigenvalues[order[k]]);
        let vectors = Array2::from_shape_fn((n, n), |(i, k)| eigen.eigenvectors[(i, order[k])]);
        Some((values, vectors))
    }

    pub(super) fn log_determinant_and_inverse(
        a: ArrayView2<'_, f64>,
    ) -> Option<(f64, Array2<f64>)> {
        let n = a.nrows();
        let lu = matrix(a).lu();
        let upper = lu.u();
        let log_determinant = (0..n).map(|k| upper[(k, k)].abs().ln()).sum();
        let inverse = lu.try_inverse()?;
        let inverse = Array2::from_shape_fn((n, n), |(i, j)| inverse[(i, j)]);
        Some((log_determinant, inverse))
    }

    pub(super) fn singular_values(a: ArrayView2<'_, f64>) -> Option<Svd> {
        let n = a.nrows();
        let svd = nalgebra::SVD::try_new(matrix(a), true, true, f64::EPSILON, 1000 * n)?;
        let (u, vt) = svd.u.zip(svd.v_t)?;
        Some((
            Array2::from_shape_fn((n, n), |(i, k)| u[(i, k)]),
            Array1::from_shape_fn(n, |k| svd.singular_values[k]),
            Array2::from_shape_fn((n, n), |(k, j)| vt[(k, j)]),
        ))
    }
}

#[cfg(feature = "lapack")]
mod lapack_backend {
    use super::{Array2, ArrayView2, Eigen, Svd};
    use ndarray_linalg::{DeterminantInto, Eigh, Factorize, InverseInto, SVD, UPLO};

    /// OpenBLAS in several threads keeps its job table, 2 MiB and more, on the caller's stack. A
    /// spawned thread or a worker of a pool has no more than that.
    const STACK_BYTES: usize = 32 << 20;

    /// Calls LAPACK on a thread with enough stack.
    fn on_a_deep_stack<T: Send>(call: impl FnOnce() -> Option<T> + Send) -> Option<T> {
        std::thread::scope(|scope| {
            std::thread::Builder::new()
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, call)
                .expect("the operating system gives a thread")
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    pub(super) fn symmetric_eigen(a: ArrayView2<'_, f64>) -> Option<Eigen> {
        on_a_deep_stack(|| a.eigh(UPLO::Lower).ok())
    }

    pub(super) fn log_determinant_and_inverse(
        a: ArrayView2<'_, f64>,
    ) -> Option<(f64, Array2<f64>)> {
        on_a_deep_stack(|| {
            let factors = a.factorize().ok()?;
            let (_, log_determinant) = factors.clone().sln_det_into().ok()?;
            Some((log_determinant, factors.inv_into().ok()?))
        })
    }

    pub(super) fn singular_values(a: ArrayView2<'_, f64>) -> Option<Svd> {
        on_a_deep_stack(|| {
            let (u, values, vt) = a.svd(true, true).ok()?;
            let (u, vt) = u.zip(vt)?;
            Some((u, values, vt))
        })
    }
}

#[cfg(all(test, feature = "lapack"))]
mod tests {
    use super::*;
    use crate::rng::stream;
    use rand::RngExt;

    fn random_symmetric(n: usize, seed: u64) -> Array2<f64> {
        let mut rng = stream(seed, 0);
        let a = Array2::from_shape_simple_fn((n, n), || rng.random::<f64>() - 0.5);
        &a + &a.t()
    }

    fn random_square(n: usize, seed: u64) -> Array2<f64> {
        let mut rng = stream(seed, 1);
        Array2::from_shape_simple_fn((n, n), || rng.random::<f64>() - 0.5)
            + Array2::<f64>::eye(n) * (0.2 * n as f64)
    }

    #[test]
    fn lapack_agrees_with_the_default() {
        for n in [1, 3, 40, 100] {
            let a = random_symmetric(n, 17 + n as u64);
            let ours = default_backend::symmetric_eigen(a.view()).unwrap();
            let theirs = symmetric_eigen(a.view()).unwrap();
            assert!((&ours.0 - &theirs.0).iter().all(|e| e.abs() < 1e-12));
            // Entries are at most 1/(2√λ) = 5, so that the errors of μ and V are not blown up.
            let inverse = symmetric_pseudo_inverse(&ours, 0.01);
            let off = inverse - symmetric_pseudo_inverse(&theirs, 0.01);
            assert!(off.iter().all(|e| e.abs() < 1e-11));

            let a = random_square(n, 23 + n as u64);
            let ours = default_backend::log_determinant_and_inverse(a.view()).unwrap();
            let theirs = log_determinant_and_inverse(a.view()).unwrap();
            assert!((ours.0 - theirs.0).abs() < 1e-11);
            assert!((ours.1 - theirs.1).iter().all(|e| e.abs() < 1e-11));
            let ours = default_backend::singular_values(a.view()).unwrap();
            let theirs = singular_values(a.view()).unwrap();
            assert!((ours.1 - theirs.1).iter().all(|e| e.abs() < 1e-11));
        }
    }
}
