//! Options that say where data are and how to read them, and messages about wrong entries.

use crate::failure::Failure;
use crate::memory::{self, Room};
use crate::packer::{Columns, Missing, Packer, Problem, Sink, Values};
use clap::Args;
use std::path::PathBuf;

/// Options of every command that reads data.
#[derive(Args, Clone, Debug, Default)]
pub struct DataArgs {
    /// Binary data, rows are samples: .npy, .npz (also SciPy's sparse matrices), .mat, .csv, .tsv, or
    /// numbers between blanks; any of them gzipped; `-` for standard input
    pub data: PathBuf,
    /// Rows are units and columns are samples
    #[arg(long, help_heading = "Data")]
    pub transpose: bool,
    /// The data are −1 and +1 instead of 0 and 1
    #[arg(long, help_heading = "Data")]
    pub spins: bool,
    /// The two values that stand for 0 and 1, such as 1,2 for answers
    #[arg(long, value_name = "A,B", value_parser = levels, allow_hyphen_values = true, conflicts_with = "spins", help_heading = "Data")]
    pub levels: Option<(f64, f64)>,
    /// Numbers above the threshold are 1, the others 0 [threshold if left out: 0]
    #[arg(
        long,
        value_name = "THRESHOLD",
        num_args = 0..=1,
        default_missing_value = "0",
        value_parser = threshold,
        allow_negative_numbers = true,
        conflicts_with_all = ["spins", "levels"],
        help_heading = "Data"
    )]
    pub binarize: Option<f64>,
    /// Entries may be missing (empty, NA, N/A, NaN, null, ?)
    #[arg(long, value_enum, help_heading = "Data")]
    pub missing: Option<Missing>,
    /// Column with the number of times that each row occurred: its name, or its number from 0
    #[arg(long, value_name = "COLUMN", help_heading = "Data")]
    pub counts: Option<String>,
    /// Column that is not read: its name, or its number from 0; may be given several times
    #[arg(long, value_name = "COLUMN", help_heading = "Data")]
    pub drop: Vec<String>,
    /// The first column holds labels of the rows: not read, or the names of the units if they are
    /// rows
    #[arg(long, help_heading = "Data")]
    pub index: bool,
    /// The first line of a text holds names, even if they look like numbers
    #[arg(long, help_heading = "Data")]
    pub header: bool,
    /// Character between the fields of a text, or `tab`, or `blanks` [default: found in the first
    /// line: comma, semicolon, tab or blanks]
    #[arg(long, value_name = "C", value_parser = delimiter, help_heading = "Data")]
    pub delimiter: Option<Delimiter>,
    /// Name of the array in a .npz or .mat file
    #[arg(long, value_name = "NAME", help_heading = "Data")]
    pub array: Option<String>,
    /// Where samples go as they are read, instead of into memory.
    #[arg(skip)]
    pub sink: Option<Sink>,
}

/// What separates the fields of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delimiter {
    /// One character.
    Byte(u8),
    /// Any number of blanks and tabs.
    Blanks,
}

fn levels(text: &str) -> Result<(f64, f64), String> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|v| v.is_finite());
    let pair = text.split_once(',');
    let pair = pair.and_then(|(zero, one)| number(zero).zip(number(one)));
    pair.filter(|(zero, one)| zero != one)
        .ok_or_else(|| "two different numbers with a comma between them, such as 1,2".into())
}

fn threshold(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|v: &f64| !v.is_nan());
    number.ok_or_else(|| {
        "the threshold is a number; a file after --binarize needs another option, or --, before it"
            .into()
    })
}

fn delimiter(text: &str) -> Result<Delimiter, String> {
    match (text, text.as_bytes()) {
        ("tab" | "\\t", _) => Ok(Delimiter::Byte(b'\t')),
        ("blanks" | " ", _) => Ok(Delimiter::Blanks),
        (_, [byte]) if byte.is_ascii() && !byte.is_ascii_alphanumeric() && *byte != b'"' => {
            Ok(Delimiter::Byte(*byte))
        }
        _ => Err("one character that is no letter, digit or quote, or `tab`, or `blanks`".into()),
    }
}

impl DataArgs {
    /// Returns how numbers become bits.
    pub(crate) fn values(&self) -> Values {
        match (self.binarize, self.levels) {
            (Some(threshold), _) => Values::Above(threshold),
            (None, Some((zero, one))) => Values::Levels(zero, one),
            (None, None) if self.spins => Values::Levels(-1.0, 1.0),
            (None, None) => Values::default(),
        }
    }

    /// Returns a packer for lines that are samples, or units.
    pub(crate) fn packer(&self, by_unit: bool, columns: Columns, room: Room) -> Packer {
        let missing = self.missing.unwrap_or_default();
        Packer::new(self.values(), missing, by_unit, columns, room.bytes)
            .pour_into(self.sink.clone())
    }

    /// Refuses options about numbers, of which a packed file has none.
    pub(crate) fn check_packed(&self) -> Result<(), Failure> {
        let given = [
            (self.transpose, "--transpose"),
            (self.spins, "--spins"),
            (self.levels.is_some(), "--levels"),
            (self.binarize.is_some(), "--binarize"),
            (self.missing.is_some(), "--missing"),
            (self.counts.is_some(), "--counts"),
            (!self.drop.is_empty(), "--drop"),
            (self.index, "--index"),
            (self.header, "--header"),
            (self.delimiter.is_some(), "--delimiter"),
            (self.array.is_some(), "--array"),
        ];
        Failure::given(
            &given,
            |option| {
                let at = self.data.display();
                format!("{at}: {option} cannot go with a packed file, which holds bits")
            },
            "give it to `mpf pack`",
        )
    }

    /// Returns the columns that are not units, with those of `drop`, given the names of all columns.
    pub(crate) fn columns(
        &self,
        names: Option<&[String]>,
        drop: &[String],
    ) -> Result<Columns, Failure> {
        let find = |wanted: &String, option: &str| {
            let named = names.and_then(|names| names.iter().position(|n| n == wanted));
            named.or_else(|| wanted.parse().ok()).ok_or_else(|| {
                self.no_column(wanted, option)
                    .hint("give its name as it is in the header, or its number from 0")
            })
        };
        let counts = self.counts.as_ref().map(|wanted| find(wanted, "--counts"));
        let counts = counts.transpose()?;
        let mut dropped = Vec::new();
        if self.index && !self.transpose {
            dropped.push(0);
        }
        for wanted in drop {
            dropped.push(find(wanted, "--drop")?);
        }
        dropped.sort_unstable();
        dropped.dedup();
        if let Some(column) = counts.filter(|column| dropped.contains(column)) {
            let why = format!("column {column} is to hold the counts and is not to be read");
            return Err(Failure::at(&self.data, why)
                .hint("--counts, --drop and --index must name different columns"));
        }
        Ok(Columns { counts, dropped })
    }

    /// A file without data.
    pub(crate) fn no_data(&self) -> Failure {
        Failure::at(&self.data, "there are no data in it")
            .hint("at least one row and one unit are needed")
    }

    /// A column that an option names and the file does not have.
    pub(crate) fn no_column(&self, wanted: &str, option: &str) -> Failure {
        let why = format!("there is no column {wanted:?} for {option}");
        Failure::at(&self.data, why).hint("columns are counted from 0")
    }

    /// Explains what is wrong with a number at `place`, and what to do about it.
    pub(crate) fn explain(&self, place: &str, problem: Problem) -> Failure {
        let (why, hint) = match problem {
            Problem::Value(value) => {
                let expected = match self.values() {
                    Values::Levels(0.0, 1.0) => "binary data hold only 0 and 1".to_owned(),
                    Values::Levels(-1.0, 1.0) => "spins are only -1 and +1".to_owned(),
                    Values::Levels(zero, one) => format!("the values are only {zero} and {one}"),
                    Values::Above(_) => unreachable!("every number is above the threshold or not"),
                };
                let hint = match (self.levels, self.spins, value) {
                    (Some(_), ..) => "--levels A,B names the values of 0 and of 1",
                    (_, false, -1.0) => "for ±1 spins pass --spins",
                    (_, true, 0.0) => "for 0/1 data leave --spins out",
                    (_, _, 2.0) => {
                        "for numbers and counts pass --binarize (1 above 0), for answers coded 1 \
                         and 2 --levels 1,2; if the column says how often each row occurred, name \
                         it with --counts"
                    }
                    _ => {
                        "for numbers and counts pass --binarize (1 above 0, or above a threshold \
                         that you give); if the column says how often each row occurred, name it \
                         with --counts"
                    }
                };
                (format!("found {value}, but {expected}"), hint)
            }
            Problem::Missing => (
                "the entry is missing".into(),
                "--missing drop leaves out such rows; --missing mask keeps them and fits the \
                 entries that are there",
            ),
            Problem::Count(value) => (
                format!("the count is {value}, but counts are finite and not negative"),
                "--counts names the column that says how often each row occurred",
            ),
            Problem::Length { expected, found } => (
                format!("{found} entries, but the first row has {expected}"),
                "every row needs one entry per unit",
            ),
            Problem::Memory(bytes) => {
                let bytes = memory::in_words(bytes);
                (
                    format!("up to here the samples take {bytes}, and there is no room for more"),
                    "read fewer samples; --memory-limit sets another limit",
                )
            }
            Problem::NotTaken => {
                let at = format!("{}: {place}", self.data.display());
                return Failure::system(format!("{at}: the packed file has failed"));
            }
        };
        Failure::at(&self.data, format!("{place}: {why}")).hint(hint)
    }
}
