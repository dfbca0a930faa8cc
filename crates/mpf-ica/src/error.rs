//! The errors of this crate, with the numbers that say where they arose.

use std::path::PathBuf;

/// An error of `mpf-ica`.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A number that is NaN or infinite.
    #[error("{what}[{row}, {column}] is {value}: every entry must be finite")]
    NonFinite {
        /// The name of the matrix.
        what: &'static str,
        /// The row of the entry.
        row: usize,
        /// The column of the entry.
        column: usize,
        /// The entry.
        value: f64,
    },
    /// Finite numbers whose sum or product overflows.
    #[error("{what} is too large for a number: scale the data or the filters down")]
    Overflow {
        /// The name of the sum or product.
        what: &'static str,
    },
    /// Fewer samples than dimensions: the covariance cannot be inverted.
    #[error(
        "{n_samples} samples in {n_dims} dimensions: more samples than dimensions are needed, \
         and ten times as many for a fit that means something"
    )]
    TooFewSamples {
        /// Samples given.
        n_samples: usize,
        /// Dimensions of each.
        n_dims: usize,
    },
    /// A covariance without an inverse.
    #[error(
        "the {n_dims} × {n_dims} covariance is singular: its eigenvalues run from {smallest:.3e} \
         to {largest:.3e}, and only {rank} of them are not zero. Some dimensions are copies or \
         combinations of others (a patch minus its own mean has one too many), or too small to be \
         squared: drop them, or scale the data"
    )]
    SingularCovariance {
        /// Its size.
        n_dims: usize,
        /// The number of eigenvalues that are not zero.
        rank: usize,
        /// The smallest eigenvalue.
        smallest: f64,
        /// The largest eigenvalue.
        largest: f64,
    },
    /// Filters without an inverse.
    #[error(
        "the {n_dims} × {n_dims} filters are singular: the model has no density, start from \
         filters that are independent of each other"
    )]
    SingularFilters {
        /// Their number.
        n_dims: usize,
    },
    /// Data whose scale is far from 1.
    #[error(
        "column {column} of the data has a root mean square of {root_mean_square:.3e}: the \
         neighbours' reach is of order 1, so whiten the data first"
    )]
    NotWhitened {
        /// The column.
        column: usize,
        /// The root of the mean square of its entries.
        root_mean_square: f64,
    },
    /// The filters overflowed.
    #[error("the filters are not finite after step {step}: lower the rate of learning")]
    Diverged {
        /// The step, from 0.
        step: usize,
    },
    /// There is no image to take patches from.
    #[error("no images{}: PNG, JPEG, PGM and van Hateren's .iml are read", .folder.as_ref().map_or(String::new(), |f| format!(" in {}", f.display())))]
    NoImages {
        /// The folder that was searched, if one was.
        folder: Option<PathBuf>,
    },
    /// An image that no patch fits into.
    #[error(
        "{name} is {width} × {height} pixels after down-sampling, smaller than a patch of \
         {size} × {size}: leave it out or take smaller patches"
    )]
    ImageTooSmall {
        /// The image.
        name: String,
        /// Pixels across.
        width: usize,
        /// Pixels down.
        height: usize,
        /// The side of a patch.
        size: usize,
    },
    /// A file that cannot be read as the image that its name promises.
    #[error("cannot read {} as {format}: {reason}", path.display())]
    Image {
        /// The file.
        path: PathBuf,
        /// The format tried.
        format: &'static str,
        /// The reason.
        reason: String,
    },
    /// An error of `mpf-core`: an option outside its range, a checkpoint of another fit, a matrix
    /// that cannot be decomposed.
    #[error(transparent)]
    Core(#[from] mpf_core::Error),
}

/// Checks that a matrix has no entry that is NaN or infinite.
pub(crate) fn check_finite(
    what: &'static str,
    matrix: ndarray::ArrayView2<'_, f64>,
) -> Result<(), Error> {
    match matrix.indexed_iter().find(|(_, v)| !v.is_finite()) {
        None => Ok(()),
        Some(((row, column), &value)) => Err(Error::NonFinite {
            what,
            row,
            column,
            value,
        }),
    }
}
