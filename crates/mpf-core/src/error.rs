//! The errors of this crate, with the numbers that say where they arose.

/// An error of `mpf-core`.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A number of things, or the length of a list, that does not match another.
    #[error("{what}: found {found}, expected {expected}")]
    Count {
        /// The things.
        what: &'static str,
        /// The number needed.
        expected: usize,
        /// The number found.
        found: usize,
    },
    /// A list without entries.
    #[error("{what} is empty: at least one entry is needed")]
    Empty {
        /// The name of the list.
        what: &'static str,
    },
    /// Finite numbers whose sum or product overflows.
    #[error("{what} is too large for a number: scale what it is made from")]
    Overflow {
        /// The name of the sum or product.
        what: &'static str,
    },
    /// An entry of an array is outside its range.
    #[error("{what}[{index}] is {value}, but it must be {requirement}")]
    Entry {
        /// The name of the array.
        what: &'static str,
        /// The index of the entry (row-major for a matrix).
        index: usize,
        /// The entry.
        value: f64,
        /// The allowed range, in words.
        requirement: &'static str,
    },
    /// A checkpoint that is damaged, of another version or of another run.
    #[error("this checkpoint cannot be used: {problem}")]
    Checkpoint {
        /// The reason.
        problem: String,
    },
    /// The cancel handle was set.
    #[error("cancelled before the work was done")]
    Cancelled,
    /// An option is outside its range.
    #[error("option `{name}` is {value}, but it must be {requirement}")]
    Option {
        /// The option's name.
        name: &'static str,
        /// The value given.
        value: f64,
        /// The allowed range, in words.
        requirement: &'static str,
    },
    /// The minimisation cannot begin: the objective is not finite at the starting point.
    #[error(
        "the objective is {value} at the starting point{}: start from smaller parameters",
        gradient_index.map_or(String::new(), |k| format!(", and entry {k} of its gradient is not finite"))
    )]
    NonFiniteStart {
        /// The objective with its penalty at the starting point.
        value: f64,
        /// The first entry of the gradient that is not finite.
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
        /// The first row that depends on those before it.
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
        /// The name of the decomposition.
        what: &'static str,
        /// The matrix's size.
        size: usize,
    },
}

impl Error {
    /// Makes an [`Error::Checkpoint`].
    pub fn checkpoint(problem: impl Into<String>) -> Self {
        Self::Checkpoint {
            problem: problem.into(),
        }
    }
}

/// Checks that an option meets its requirement: that `holds` is true.
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

/// Checks an option that must be finite and not negative.
///
/// # Errors
/// [`Error::Option`].
pub fn check_not_negative(name: &'static str, value: f64) -> Result<(), Error> {
    let holds = value >= 0.0 && value.is_finite();
    check_option(name, value, "finite and not negative", holds)
}

/// Checks an option that must be finite and positive.
///
/// # Errors
/// [`Error::Option`].
pub fn check_positive(name: &'static str, value: f64) -> Result<(), Error> {
    check_option(name, value, "positive", value > 0.0 && value.is_finite())
}

/// Checks that `found` equals `expected`, naming `what` when it does not.
///
/// # Errors
/// [`Error::Count`].
pub fn check_count(what: &'static str, expected: usize, found: usize) -> Result<(), Error> {
    if expected == found {
        return Ok(());
    }
    Err(Error::Count {
        what,
        expected,
        found,
    })
}

/// Checks that all entries are finite.
///
/// # Errors
/// [`Error::Entry`] with the first that is not.
pub fn check_finite<'a>(
    what: &'static str,
    values: impl IntoIterator<Item = &'a f64>,
) -> Result<(), Error> {
    check_entries(what, values, "finite", f64::is_finite)
}

/// Checks that an option that counts something is not 0.
///
/// # Errors
/// [`Error::Option`].
pub fn check_not_zero(name: &'static str, count: usize) -> Result<(), Error> {
    check_option(name, count as f64, "at least 1", count > 0)
}

/// Checks the sum of weights that are finite and not negative.
pub(crate) fn check_weight_sum(sum: f64) -> Result<(), Error> {
    let what = "the sum of the weights";
    match sum {
        0.0 => Err(Error::Empty { what }),
        sum if !sum.is_finite() => Err(Error::Overflow { what }),
        _ => Ok(()),
    }
}

/// Checks weights or penalties, which must be finite and not negative.
pub(crate) fn check_weights<'a>(
    what: &'static str,
    values: impl IntoIterator<Item = &'a f64>,
) -> Result<(), Error> {
    let holds = |v: f64| v >= 0.0 && v.is_finite();
    check_entries(what, values, "finite and not negative", holds)
}

/// Checks every entry of the array `what`; the error names the first that does not hold.
///
/// # Errors
/// [`Error::Entry`].
pub fn check_entries<'a>(
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
