//! Everything that can go wrong in this crate, with the numbers that say where.

/// An error of `mpf-core`.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two things that belong together have different lengths.
    #[error("{what} has length {found}, expected {expected}")]
    Length {
        /// What was given.
        what: &'static str,
        /// The length that was needed.
        expected: usize,
        /// The length that was found.
        found: usize,
    },
    /// There is nothing to work on.
    #[error("{what} is empty: at least one entry is needed")]
    Empty {
        /// What was empty.
        what: &'static str,
    },
    /// Finite numbers whose sums or products are not.
    #[error("{what} is too large for a number: scale what it is made from")]
    Overflow {
        /// What overflowed.
        what: &'static str,
    },
    /// A number is outside the range that makes sense for it.
    #[error("{what}[{index}] is {value}, but it must be {requirement}")]
    Entry {
        /// The array.
        what: &'static str,
        /// The place in it (row-major for a matrix).
        index: usize,
        /// What was found there.
        value: f64,
        /// What is allowed.
        requirement: &'static str,
    },
    /// A checkpoint that is damaged, of another version or of another run.
    #[error("this checkpoint cannot be used: {problem}")]
    Checkpoint {
        /// What is wrong with it.
        problem: String,
    },
    /// An option is outside its range.
    #[error("option `{name}` is {value}, but it must be {requirement}")]
    Option {
        /// The option's name.
        name: &'static str,
        /// What was given.
        value: f64,
        /// What is allowed.
        requirement: &'static str,
    },
    /// The minimisation cannot begin: the objective is not finite at the starting point.
    #[error(
        "the objective is {value} at the starting point{}: start from smaller parameters",
        gradient_index.map_or(String::new(), |k| format!(", and entry {k} of its gradient is not finite"))
    )]
    NonFiniteStart {
        /// The objective's value there.
        value: f64,
        /// The first entry of the gradient that is not finite, if one is.
        gradient_index: Option<usize>,
    },
    /// A matrix that had to be square is not.
    #[error("expected a square matrix, found {rows} × {columns}")]
    NotSquare {
        /// Rows found.
        rows: usize,
        /// Columns found.
        columns: usize,
    },
    /// A matrix that had to be positive definite is not.
    #[error(
        "the matrix is not positive definite: row {pivot} depends on those before it, or its \
         diagonal is not positive"
    )]
    NotPositiveDefinite {
        /// The first such row.
        pivot: usize,
    },
    /// A matrix has no inverse in `f64`.
    #[error("the {size} × {size} matrix is singular to working precision")]
    Singular {
        /// Its size.
        size: usize,
    },
    /// A matrix decomposition did not converge or overflowed, which happens for NaN, infinite and
    /// very large entries.
    #[error(
        "the {what} of a {size} × {size} matrix failed: check it for NaN, infinite and very large \
         entries"
    )]
    Decomposition {
        /// Which decomposition.
        what: &'static str,
        /// The matrix's size.
        size: usize,
    },
}

impl Error {
    /// An [`Error::Checkpoint`].
    pub fn checkpoint(problem: impl Into<String>) -> Self {
        Self::Checkpoint {
            problem: problem.into(),
        }
    }
}

/// Checks that an option `holds` its requirement, and names it when it does not.
///
/// # Errors
/// [`Error::Option`].
pub fn check_option(
    name: &'static str,
    value: f64,
    requirement: &'static str,
    holds: bool,
) -> Result<(), Error> {
    if holds {
        Ok(())
    } else {
        Err(Error::Option {
            name,
            value,
            requirement,
        })
    }
}

/// Checks that `found` equals `expected`, naming `what` when it does not.
pub(crate) fn check_length(what: &'static str, expected: usize, found: usize) -> Result<(), Error> {
    if expected == found {
        Ok(())
    } else {
        Err(Error::Length {
            what,
            expected,
            found,
        })
    }
}

/// Checks every entry of `values`, naming `what` and the first that is not as required.
pub(crate) fn check_entries<'a>(
    what: &'static str,
    values: impl IntoIterator<Item = &'a f64>,
    requirement: &'static str,
    holds: impl Fn(f64) -> bool,
) -> Result<(), Error> {
    match values.into_iter().enumerate().find(|(_, v)| !holds(**v)) {
        None => Ok(()),
        Some((index, &value)) => Err(Error::Entry {
            what,
            index,
            value,
            requirement,
        }),
    }
}
