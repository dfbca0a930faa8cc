//! Binary data of any of the formats, packed as they are read.

use crate::failure::Failure;
use crate::packer::{Coding, Packer, Problem};
use crate::{npy, npz, output, text};
use clap::Args;
use mpf_core::Fnv1a;
use mpf_ising::{Samples, States};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::{Path, PathBuf};

/// Most rows that counts are written out to, where every sample is needed by itself.
const MOST_EXPANDED: f64 = 2e7;

/// Where the data are, and how to read them.
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
    /// The column that says how often each row occurred: its name, or its number from 0
    #[arg(long, value_name = "COLUMN", help_heading = "Data")]
    pub counts: Option<String>,
    /// The first line of a text holds names, even if they are numbers
    #[arg(long, help_heading = "Data")]
    pub header: bool,
    /// Which array of a .npz file
    #[arg(long, value_name = "NAME", help_heading = "Data")]
    pub array: Option<String>,
}

impl DataArgs {
    /// What the numbers stand for.
    pub fn coding(&self) -> Coding {
        if self.spins {
            Coding::Spins
        } else {
            Coding::Binary
        }
    }

    /// The column of counts as a number, given the names of the columns.
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

    /// What is wrong with a number, and what to do.
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

/// Binary data as read.
#[derive(Clone, Debug)]
pub struct Raster {
    /// The rows in their order.
    pub states: States,
    /// How often each occurred.
    pub weights: Option<Vec<f64>>,
    /// What the units are called, if the file says it.
    pub names: Option<Vec<String>>,
    /// What the numbers in the file stood for.
    pub coding: Coding,
    /// The file's name without its folder.
    pub file: String,
}

/// What a model file says about its data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataRecord {
    /// The file's name without its folder.
    pub file: String,
    /// Rows.
    pub n_samples: usize,
    /// The sum of the counts, where there were any.
    pub total_count: Option<f64>,
    /// Units.
    pub n_units: usize,
    /// Whether the file held ±1.
    pub spins: bool,
    /// A hash of the bits and counts in their order: the same data have the same one, whatever
    /// the format.
    pub fingerprint: String,
}

impl Raster {
    /// Reads the file.
    ///
    /// # Errors
    /// A [`Failure`] that names the place and says what to do.
    pub fn read(args: &DataArgs) -> Result<Self, Failure> {
        let path = &args.data;
        let unreadable = |e: std::io::Error| Failure::unreadable(path, &e);
        let file = File::open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        if metadata.is_dir() {
            return Err(Failure::unreadable(
                path,
                &std::io::ErrorKind::IsADirectory.into(),
            ));
        }
        Self::from_reader(args, file, metadata.len())
    }

    /// Reads `length` bytes that are already open; `args.data` only says what they are called.
    ///
    /// # Errors
    /// As [`Raster::read`].
    pub fn from_reader(
        args: &DataArgs,
        mut file: impl Read + Seek,
        length: u64,
    ) -> Result<Self, Failure> {
        let path = &args.data;
        let unreadable = |e: std::io::Error| Failure::unreadable(path, &e);
        let mut start = Vec::new();
        (&mut file)
            .take(8)
            .read_to_end(&mut start)
            .map_err(unreadable)?;
        file.rewind().map_err(unreadable)?;
        let extension = output::extension(path);
        let file = BufReader::new(file);
        let (packed, names) = if start.starts_with(npy::MAGIC) || extension == "npy" {
            (read_npy(args, file, length)?, None)
        } else if start.starts_with(b"PK") || extension == "npz" {
            npz::read_raster(args, file)?
        } else {
            text::read(args, file, &extension)?
        };
        let empty = || {
            Failure::input(format!("{}: there are no data in it", path.display()))
                .hint("at least one row and one unit are needed")
        };
        let (states, weights) = packed.finish().ok_or_else(empty)?;
        if args.counts.is_some() && weights.as_ref().is_none_or(Vec::is_empty) {
            return Err(Failure::input(format!(
                "{}: there is no column {} for --counts",
                path.display(),
                args.counts.as_deref().unwrap_or_default()
            ))
            .hint("columns are counted from 0"));
        }
        Ok(Self {
            states,
            weights,
            names,
            coding: args.coding(),
            file: path
                .file_name()
                .map_or_else(String::new, |n| n.to_string_lossy().into_owned()),
        })
    }

    /// Distinct rows with their counts.
    ///
    /// # Errors
    /// When all counts are zero.
    pub fn samples(&self) -> Result<Samples, Failure> {
        Ok(match &self.weights {
            None => Samples::new(&self.states)?,
            Some(weights) => Samples::weighted(&self.states, weights)?,
        })
    }

    /// Every sample by itself: rows with counts are repeated.
    ///
    /// # Errors
    /// Counts that are no whole numbers, or too many.
    pub fn every_sample(&self, why: &str) -> Result<Cow<'_, States>, Failure> {
        let Some(weights) = &self.weights else {
            return Ok(Cow::Borrowed(&self.states));
        };
        if let Some(row) = weights.iter().position(|w| w.fract() != 0.0) {
            return Err(Failure::input(format!(
                "{}: the count of row {row} is {}, but {why} needs whole numbers",
                self.file, weights[row]
            )));
        }
        let total: f64 = weights.iter().sum();
        if total > MOST_EXPANDED {
            return Err(Failure::input(format!(
                "{}: the counts add up to {total}, but {why} works on every sample by itself and \
                 takes at most {MOST_EXPANDED}",
                self.file
            )));
        }
        let mut all = States::new(self.states.n_units())?;
        for (row, weight) in self.states.rows().zip(weights) {
            (0..*weight as usize).for_each(|_| all.push(row));
        }
        Ok(Cow::Owned(all))
    }

    /// The names of the units, or their numbers.
    pub fn names_or_numbers(&self) -> Vec<String> {
        match &self.names {
            Some(names) => names.clone(),
            None => (0..self.states.n_units()).map(|i| i.to_string()).collect(),
        }
    }

    /// What a model file says about these data.
    pub fn record(&self) -> DataRecord {
        let mut hash = Fnv1a::default();
        hash.add(&(self.states.n_units() as u64).to_le_bytes());
        for word in self.states.rows().flatten() {
            hash.add(&word.to_le_bytes());
        }
        for weight in self.weights.iter().flatten() {
            hash.add(&weight.to_le_bytes());
        }
        DataRecord {
            file: self.file.clone(),
            n_samples: self.states.n_samples(),
            total_count: self.weights.as_ref().map(|w| w.iter().sum()),
            n_units: self.states.n_units(),
            spins: self.coding == Coding::Spins,
            fingerprint: hash.to_string(),
        }
    }
}

/// Why reading numbers stopped.
enum Stop {
    Npy(npy::Error),
    Problem(Problem),
}

impl From<npy::Error> for Stop {
    fn from(error: npy::Error) -> Self {
        Self::Npy(error)
    }
}

/// Reads an array of `length` bytes, header included. A header that claims another size is refused
/// before anything is read.
pub(crate) fn read_npy(
    args: &DataArgs,
    mut file: impl Read,
    length: u64,
) -> Result<Packer, Failure> {
    let path = &args.data;
    let broken = |error: npy::Error| explain_npy(path, error);
    let mut counted = Counted {
        inner: &mut file,
        read: 0,
    };
    let header = npy::Header::read(&mut counted).map_err(broken)?;
    let header_length = counted.read;
    let dtype = header.dtype().map_err(broken)?;
    let &[rows, columns] = &header.shape[..] else {
        return Err(Failure::input(format!(
            "{}: the array has {} dimensions, but samples × units are two",
            path.display(),
            header.shape.len()
        ))
        .hint("save a two-dimensional array"));
    };
    let n_entries = header.n_entries();
    let expected = n_entries
        .and_then(|n| n.checked_mul(dtype.size() as u64))
        .and_then(|n| n.checked_add(header_length));
    let (Some(n_entries), Some(expected)) = (n_entries, expected) else {
        return Err(Failure::input(format!(
            "{}: the header claims {rows} × {columns} entries, more than any file can hold",
            path.display()
        ))
        .hint("the header is damaged"));
    };
    // Lines are runs of the index that is stored fastest.
    let (width, by_column) = if header.fortran {
        (rows, true)
    } else {
        (columns, false)
    };
    let place = |line: u64, position: u64| {
        let (row, column) = if by_column {
            (position, line)
        } else {
            (line, position)
        };
        format!("row {row}, column {column} (from 0)")
    };
    if n_entries > 0 {
        if length < expected {
            let whole = length.saturating_sub(header_length) / dtype.size() as u64;
            return Err(Failure::input(format!(
                "{}: {} is missing: the file has {length} bytes of {expected}",
                path.display(),
                place(whole / width, whole % width)
            ))
            .hint("the file is truncated; copy or save it again"));
        }
        if length > expected {
            return Err(Failure::input(format!(
                "{}: {} bytes follow the {rows} × {columns} array",
                path.display(),
                length - expected
            ))
            .hint("save one array per .npy file"));
        }
    }
    // Rows are samples unless transposed; Fortran order turns lines once more.
    let by_unit = by_column != args.transpose;
    let mut packer = Packer::new(args.coding(), by_unit, args.counts_column(None)?);
    let mut left = width;
    let outcome = dtype.for_each(&mut file, n_entries, |value| {
        packer.push(value).map_err(Stop::Problem)?;
        left -= 1;
        if left == 0 {
            packer.end_line().map_err(Stop::Problem)?;
            left = width;
        }
        Ok(())
    });
    let here = place(packer.lines() as u64, packer.position() as u64);
    match outcome {
        Ok(()) => Ok(packer),
        Err(Stop::Problem(problem)) => Err(args.explain(&here, problem)),
        Err(Stop::Npy(npy::Error::Truncated(_))) => Err(Failure::input(format!(
            "{}: {here} is missing: the file is truncated",
            path.display()
        ))
        .hint("copy or save it again")),
        Err(Stop::Npy(error)) => Err(broken(error)),
    }
}

/// What is wrong with an array file, in words.
pub(crate) fn explain_npy(path: &Path, error: npy::Error) -> Failure {
    let at = path.display();
    match error {
        npy::Error::Header(why) => {
            Failure::input(format!("{at}: this is no whole .npy file: {why}"))
                .hint("save it again with numpy.save")
        }
        npy::Error::Dtype(descr) => Failure::input(format!(
            "{at}: the array's type is {descr:?}, but bits are integers, booleans or floats"
        ))
        .hint("convert first, for example with x.astype('uint8')"),
        npy::Error::Truncated(n) => Failure::input(format!("{at}: it ends after {n} numbers")),
        npy::Error::Io(error) => Failure::unreadable(path, &error),
    }
}

/// Counts the bytes that go through.
struct Counted<'a, R> {
    inner: &'a mut R,
    read: u64,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.read += n as u64;
        Ok(n)
    }
}
