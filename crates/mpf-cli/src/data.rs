//! Binary data of every format, packed as they are read.

mod args;
mod arrays;

use crate::failure::Failure;
use crate::packer::Coding;
use crate::{npy, npz, output, text};
use mpf_core::Fnv1a;
use mpf_ising::{FoldAssignment, Samples, States};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufReader, Read, Seek};

pub use args::DataArgs;
pub(crate) use arrays::{explain_npy, read_npy};

/// The most samples that rows with counts are expanded to.
const MOST_EXPANDED: f64 = 2e7;

/// Binary data as read.
#[derive(Clone, Debug)]
pub struct Raster {
    /// The rows in their order.
    pub states: States,
    /// How often each row occurred, if the file has a column of counts.
    pub weights: Option<Vec<f64>>,
    /// The names of the units, if the file has any.
    pub names: Option<Vec<String>>,
    /// What the numbers in the file stand for.
    pub coding: Coding,
    /// The file's name without its folder.
    pub file: String,
}

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

    /// Reads `length` bytes that are already open; `args.data` is only their name.
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

    /// Returns the names of the units, or their numbers if they have none.
    pub fn names_or_numbers(&self) -> Vec<String> {
        match &self.names {
            Some(names) => names.clone(),
            None => (0..self.states.n_units()).map(|i| i.to_string()).collect(),
        }
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
