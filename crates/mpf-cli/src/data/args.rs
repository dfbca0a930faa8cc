//! Options that say where data are and how to read them, and messages about wrong entries.

use crate::failure::Failure;
use crate::packer::{Coding, Problem};
use clap::Args;
use std::path::PathBuf;

/// Options of every command that reads data.
#[derive(Args, Clone, Debug)]
pub struct DataArgs {
    /// Binary data, rows are samples: .npy, .npz, .csv, .tsv, or numbers between blanks
    pub data: PathBuf,
    /// Rows are units and columns are samples
    #[arg(long, help_heading = "Data")]
    pub transpose: bool,
    /// The data are −1 and +1 instead of 0 and 1
    #[arg(long, help_heading = "Data")]
    pub spins: bool,
    /// Column with the number of times that each row occurred: its name, or its number from 0
    #[arg(long, value_name = "COLUMN", help_heading = "Data")]
    pub counts: Option<String>,
    /// The first line of a text holds names, even if they look like numbers
    #[arg(long, help_heading = "Data")]
    pub header: bool,
    /// Name of the array in a .npz file
    #[arg(long, value_name = "NAME", help_heading = "Data")]
    pub array: Option<String>,
}

impl DataArgs {
    /// Returns what the numbers stand for.
    pub fn coding(&self) -> Coding {
        if self.spins {
            Coding::Spins
        } else {
            Coding::Binary
        }
    }

    /// Returns the index of the column of counts, given the names of the columns.
    pub(crate) fn counts_column(&self, names: Option<&[String]>) -> Result<Option<usize>, Failure> {
        let Some(wanted) = &self.counts else {
            return Ok(None);
        };
        let named = names.and_then(|names| names.iter().position(|n| n == wanted));
        match named.or_else(|| wanted.parse().ok()) {
            Some(column) => Ok(Some(column)),
            None => Err(Failure::input(format!(
                "{}: there is no column {wanted:?} for --counts",
                self.data.display()
            ))
            .hint("give its name as it is in the header, or its number from 0")),
        }
    }

    /// Explains what is wrong with a number at `place`, and what to do about it.
    pub(crate) fn explain(&self, place: &str, problem: Problem) -> Failure {
        let at = format!("{}: {place}", self.data.display());
        match problem {
            Problem::Value(value) => {
                let expected = match self.coding() {
                    Coding::Binary => "binary data hold only 0 and 1",
                    Coding::Spins => "spins are only -1 and +1",
                };
                let failure = Failure::input(format!("{at}: found {value}, but {expected}"));
                match (self.coding(), value) {
                    (Coding::Binary, -1.0) => failure.hint("for ±1 spins pass --spins"),
                    (Coding::Spins, 0.0) => failure.hint("for 0/1 data leave --spins out"),
                    (_, value) if value.is_nan() => {
                        failure.hint("missing entries are not read: leave out such rows or units")
                    }
                    _ => failure.hint(
                        "binarise first (x > 0); if a column holds counts, name it with --counts",
                    ),
                }
            }
            Problem::Count(value) => Failure::input(format!(
                "{at}: the count is {value}, but counts are finite and not negative"
            ))
            .hint("--counts names the column that says how often each row occurred"),
            Problem::Length { expected, found } => Failure::input(format!(
                "{at}: {found} entries, but the first row has {expected}"
            ))
            .hint("every row needs one entry per unit"),
        }
    }
}
