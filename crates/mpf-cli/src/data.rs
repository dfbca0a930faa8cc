//! Binary data of every format, packed as they are read.

mod args;
mod arrays;
mod source;

use crate::failure::Failure;
use crate::memory::{Room, product};
use crate::packed::{self, PackedFiles};
use crate::{mat, npy, npz, output, text};
use mpf_core::{Cancel, Fnv1a};
use mpf_ising::{FoldAssignment, RowSource, Samples, States};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

pub use args::{DataArgs, Delimiter};
pub(crate) use arrays::{
    Shape, check_units, explain_npy, index, lines_of, read_entries, read_npy, read_sparse,
};
pub(crate) use source::{Source, is_standard};

/// The most samples that rows with counts are expanded to.
const MOST_EXPANDED: f64 = 2e7;

/// Binary data as read.
#[derive(Clone, Debug)]
pub struct Raster {
    /// The rows in their order; 0 where an entry is missing.
    pub states: States,
    /// A 1 for every missing entry, if there are any.
    pub unknown: Option<States>,
    /// How often each row occurred, if the file has a column of counts.
    pub weights: Option<Vec<f64>>,
    /// The names of the units, if the file has any.
    pub names: Option<Vec<String>>,
    /// Whether the file held ±1.
    pub spins: bool,
    /// The file's name without its folder.
    pub file: String,
    /// What a reader should know about how the file was read.
    pub notes: Vec<String>,
    /// The memory that the data may take.
    room: Room,
}

/// The first bytes of HDF5, in which MATLAB 7.3 writes.
const HDF5: &[u8] = b"\x89HDF\r\n\x1a\n";

/// Describes the data of a fit in its model file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataRecord {
    /// The file's name without its folder.
    pub file: String,
    /// The number of rows.
    pub n_samples: usize,
    /// The sum of the counts, if there are any.
    pub total_count: Option<f64>,
    /// The number of units.
    pub n_units: usize,
    /// Whether the file held ±1.
    pub spins: bool,
    /// A hash of the bits and counts in their order, the same for every format.
    pub fingerprint: String,
}

impl Raster {
    /// Reads the file, in at most `limit` bytes of memory; without a limit, in what the machine has
    /// left.
    ///
    /// # Errors
    /// A [`Failure`] that names the place and says what to do.
    pub fn read(args: &DataArgs, limit: Option<u64>, cancel: &Cancel) -> Result<Self, Failure> {
        let source = Source::open(&args.data, cancel);
        let raster = source.and_then(|source| Self::from_source(args, source, Room::new(limit)));
        // Bytes that end by an interruption look like a damaged file.
        raster.map_err(|failure| match cancel.is_cancelled() {
            true => Failure::interrupted(),
            false => failure,
        })
    }

    /// Reads bytes that are already open, `length` of them if that is known; `args.data` is only
    /// their name.
    ///
    /// # Errors
    /// As [`Raster::read`].
    pub fn from_reader(
        args: &DataArgs,
        bytes: impl Read,
        length: Option<u64>,
        limit: Option<u64>,
    ) -> Result<Self, Failure> {
        let source = Source::new(&args.data, bytes, length)?;
        Self::from_source(args, source, Room::new(limit))
    }

    fn from_source(args: &DataArgs, source: Source<'_>, room: Room) -> Result<Self, Failure> {
        let path = &args.data;
        let Source {
            start,
            bytes,
            length,
        } = source;
        let mut extension = output::extension(path);
        if extension == "gz" {
            extension = output::extension(Path::new(path.file_stem().unwrap_or_default()));
        }
        let is_hdf5 = start.starts_with(HDF5)
            || start.get(512..).is_some_and(|rest| rest.starts_with(HDF5))
            || start.starts_with(b"MATLAB 7.3");
        if is_hdf5 {
            let why = "this is a file in HDF5, such as MATLAB 7.3 writes, which mpf does not read";
            return Err(Failure::at(path, why).hint(
                "in MATLAB: s = load('x.mat'); save('x7.mat', '-struct', 's', '-v7'); in Python: \
                 numpy.save('x.npy', h5py.File('x.mat')['x'][()].T)",
            ));
        }
        if start.starts_with(packed::MAGIC) {
            args.check_packed()?;
            let files = PackedFiles::open(std::slice::from_ref(path))?;
            return Self::of_packed(&files, room);
        }
        let mut notes = Vec::new();
        let (packed, names) = if start.starts_with(npy::MAGIC) || extension == "npy" {
            (read_npy(args, room, bytes, length)?, None)
        } else if start.starts_with(b"PK") || extension == "npz" {
            Self::read_npz(args, room, bytes, length)?
        } else if start.starts_with(mat::MAGIC) || extension == "mat" {
            let bytes = BufReader::new(bytes);
            (mat::read_raster(args, room, bytes)?, None)
        } else {
            text::read(args, room, BufReader::new(bytes), &extension, &mut notes)?
        };
        let mut sorted: Vec<&String> = names.iter().flatten().collect();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            let why = format!("two units are named {:?}", twice[0]);
            return Err(Failure::at(path, why).hint("units need names of their own"));
        }
        let columns = packed.columns();
        let n_columns = packed.n_columns();
        let missing = |column: &usize| n_columns.is_some_and(|n| *column >= n);
        if let Some(column) = columns.dropped.iter().find(|c| missing(c)) {
            return Err(args.no_column(&column.to_string(), "--drop"));
        }
        if columns.counts.as_ref().is_some_and(missing) {
            let wanted = args.counts.as_deref().unwrap_or_default();
            return Err(args.no_column(wanted, "--counts"));
        }
        let packed = packed.finish().ok_or_else(|| args.no_data())?;
        let n_samples = packed.n_taken + packed.states.n_samples();
        let n_left_out = packed.n_left_out;
        if n_left_out > 0 {
            let all = n_left_out + n_samples;
            if n_samples == 0 {
                let why = format!("every one of the {all} rows misses an entry");
                return Err(Failure::at(path, why)
                    .hint("--missing mask keeps them; --drop leaves out a column"));
            }
            notes.push(format!(
                "{n_left_out} of {all} rows miss an entry and are left out"
            ));
        }
        Ok(Self {
            states: packed.states,
            unknown: packed.unknown,
            weights: packed.weights,
            names,
            spins: args.spins,
            file: if is_standard(path) {
                "standard input".to_owned()
            } else {
                let name = path.file_name();
                name.map_or_else(String::new, |n| n.to_string_lossy().into_owned())
            },
            notes,
            room,
        })
    }

    /// Reads packed files into memory.
    ///
    /// # Errors
    /// More samples than there is room for; damaged blocks.
    pub(crate) fn of_packed(files: &PackedFiles, room: Room) -> Result<Self, Failure> {
        let record = files.record();
        let words = record.n_units.div_ceil(64) as u64;
        room.check(
            &format!("{}: the samples", record.file),
            record.n_samples as u64 * 8 * (words + u64::from(files.has_weights())),
            "`mpf fit --stream` needs less; --memory-limit sets another limit",
        )?;
        let (mut states, mut weights) = (States::new(record.n_units)?, Vec::new());
        let read = files.read(0..record.n_samples, &mut states, &mut weights);
        read.map_err(Failure::input)?;
        Ok(Self {
            states,
            unknown: None,
            weights: files.has_weights().then_some(weights),
            names: files.first().footer.names.clone(),
            spins: record.spins,
            file: record.file,
            notes: Vec::new(),
            room,
        })
    }

    /// Reads an archive, which needs all of its bytes: those of a plain file are there.
    fn read_npz(
        args: &DataArgs,
        room: Room,
        bytes: Box<dyn Read + '_>,
        length: Option<u64>,
    ) -> Result<(crate::packer::Packer, Option<Vec<String>>), Failure> {
        let unreadable = |e: std::io::Error| Failure::unreadable(&args.data, &e);
        if length.is_some()
            && let Ok(file) = File::open(&args.data)
        {
            return npz::read_raster(args, room, BufReader::new(file));
        }
        let most = room.bytes / 2;
        let mut all = Vec::new();
        let mut bytes = bytes.take(most.saturating_add(1));
        bytes.read_to_end(&mut all).map_err(unreadable)?;
        room.check(
            &format!("{}: the archive", args.data.display()),
            2 * all.len() as u64,
            "unpack it to a file; --memory-limit sets another limit",
        )?;
        npz::read_raster(args, room, Cursor::new(all))
    }

    /// Returns the distinct rows with their counts.
    ///
    /// # Errors
    /// When all counts are zero.
    pub fn samples(&self) -> Result<Samples, Failure> {
        Ok(match &self.weights {
            None => Samples::new(&self.states)?,
            Some(weights) => Samples::weighted(&self.states, weights)?,
        })
    }

    /// Returns every sample by itself, rows with counts repeated, for `why`.
    ///
    /// # Errors
    /// Counts that are no whole numbers, or too many.
    pub fn every_sample(&self, why: &str) -> Result<Cow<'_, States>, Failure> {
        let wrong = |what: String| Failure::input(format!("{}: {what}", self.file));
        if self.unknown.is_some() {
            let what = format!("entries are missing, but {why} needs whole samples");
            return Err(wrong(what).hint("--missing drop leaves out rows with missing entries"));
        }
        let Some(weights) = &self.weights else {
            return Ok(Cow::Borrowed(&self.states));
        };
        if let Some(row) = weights.iter().position(|w| w.fract() != 0.0) {
            let count = weights[row];
            return Err(wrong(format!(
                "the count of row {row} is {count}, but {why} needs whole numbers"
            )));
        }
        let total: f64 = weights.iter().sum();
        if total > MOST_EXPANDED {
            return Err(wrong(format!(
                "the counts add up to {total}, but {why} works on every sample by itself and takes \
                 at most {MOST_EXPANDED}"
            )));
        }
        self.room.check(
            &format!("{}: every sample by itself, for {why},", self.file),
            product(&[8, total as u64, self.states.words_per_row() as u64]),
            "divide the counts by a number; --memory-limit sets another limit",
        )?;
        let mut all = States::new(self.states.n_units())?;
        for (row, weight) in self.states.rows().zip(weights) {
            (0..*weight as usize).for_each(|_| all.push(row));
        }
        Ok(Cow::Owned(all))
    }

    /// Returns the names of the units, or their numbers if they have none.
    pub fn names_or_numbers(&self) -> Vec<String> {
        names_or_numbers(self.names.as_deref(), self.states.n_units())
    }

    /// Returns the folds for cross-validation. Expanded rows have no order in time, and blocks of them
    /// would hold equal rows: they are dealt at random.
    pub fn fold_assignment(&self, seed: u64) -> FoldAssignment {
        match self.weights {
            None => FoldAssignment::Blocks,
            Some(_) => FoldAssignment::Random { seed },
        }
    }

    /// Describes these data for a model file.
    pub fn record(&self) -> DataRecord {
        let mut hash = Fnv1a::default();
        hash.add(&(self.states.n_units() as u64).to_le_bytes());
        for word in self
            .states
            .rows()
            .chain(self.unknown.iter().flat_map(States::rows))
            .flatten()
        {
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
            spins: self.spins,
            fingerprint: hash.to_string(),
        }
    }
}

/// Returns the names of `n` units, numbers from 0 if they have none.
pub(crate) fn names_or_numbers(names: Option<&[String]>, n: usize) -> Vec<String> {
    names.map_or_else(
        || (0..n).map(|i| i.to_string()).collect(),
        <[String]>::to_vec,
    )
}
