//! Packed files: bits in blocks with checksums, to be read block by block (`docs/packed-file.md`).
//!
//! ```text
//! header   "MPF-BITS", version, flags, units d, rows per block R, CRC-32 of these       32 bytes
//! block    R rows of ⌈d/8⌉ bytes; R counts as f64, if the flag says so; CRC-32 of these
//! …        the last block has the rows that are left
//! footer   JSON: samples, names, fingerprint; its length, its CRC-32, "BITS"
//! ```
//!
//! Every block but the last is of the same size, so that any block can be read by itself. Reads are
//! plain positioned reads: a file that shrinks is an error.

use crate::data::DataRecord;
use crate::failure::Failure;
use mpf_core::Fnv1a;
use mpf_ising::{RowSource, States};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The first bytes of every packed file.
pub const MAGIC: &[u8] = b"MPF-BITS";
/// The last bytes.
const END: &[u8; 4] = b"BITS";
const VERSION: u32 = 1;
const HEADER: u64 = 32;
const TAIL: u64 = 16;
/// The flag of files with counts.
const COUNTS: u32 = 1;
/// About as many bytes as a block has.
const BLOCK: usize = 1 << 18;

/// What the footer says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Footer {
    /// The number of rows.
    pub n_samples: u64,
    /// The names of the units, if they have any.
    pub names: Option<Vec<String>>,
    /// Whether the data were ±1 before they were packed.
    pub spins: bool,
    /// The hash of [`DataRecord`].
    pub fingerprint: String,
}

/// Where the parts of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    n_units: usize,
    rows_per_block: usize,
    has_counts: bool,
}

impl Layout {
    fn new(n_units: usize, has_counts: bool) -> Self {
        let row = n_units.div_ceil(8) + if has_counts { 8 } else { 0 };
        Self {
            n_units,
            rows_per_block: (BLOCK / row / 64 * 64).clamp(64, 1 << 16),
            has_counts,
        }
    }

    fn header(self) -> Vec<u8> {
        let mut header = MAGIC.to_vec();
        header.extend(VERSION.to_le_bytes());
        header.extend(u32::from(self.has_counts).to_le_bytes());
        header.extend((self.n_units as u64).to_le_bytes());
        header.extend((self.rows_per_block as u32).to_le_bytes());
        header.extend(crc32fast::hash(&header).to_le_bytes());
        header
    }

    /// Returns the bytes of the rows of a block, without its checksum.
    fn bytes(self, rows: usize) -> usize {
        rows * (self.n_units.div_ceil(8) + if self.has_counts { 8 } else { 0 })
    }

    /// Returns where a block begins.
    fn offset(self, block: u64) -> u64 {
        let size = self.bytes(self.rows_per_block) as u64 + 4;
        block.saturating_mul(size).saturating_add(HEADER)
    }

    /// Returns how many rows a block of a file with `n_samples` has.
    fn rows(self, block: u64, n_samples: u64) -> usize {
        let size = self.rows_per_block as u64;
        size.min(n_samples - block * size) as usize
    }
}

/// Writes a packed file from batches of rows.
pub struct PackedWriter<W: Write> {
    file: W,
    layout: Option<Layout>,
    /// The rows of the block that is not full yet.
    bits: Vec<u8>,
    n_rows: usize,
    n_samples: u64,
    hash: Fnv1a,
    /// All counts, which the fingerprint has last.
    counts: Vec<f64>,
}

impl<W: Write> PackedWriter<W> {
    /// Starts an empty file.
    pub fn new(file: W) -> Self {
        Self {
            file,
            layout: None,
            bits: Vec::new(),
            n_rows: 0,
            n_samples: 0,
            hash: Fnv1a::default(),
            counts: Vec::new(),
        }
    }

    /// Returns the units of the rows so far.
    pub fn n_units(&self) -> Option<usize> {
        self.layout.map(|layout| layout.n_units)
    }

    /// Returns the number of the block that is being filled, and where it begins.
    pub fn place(&self) -> (u64, u64) {
        self.layout.map_or((0, 0), |layout| {
            let block = self.n_samples / layout.rows_per_block as u64;
            (block, layout.offset(block))
        })
    }

    /// Appends rows, which all have a count or none.
    ///
    /// # Errors
    /// Those of the file.
    pub fn push(&mut self, states: &States, counts: Option<&[f64]>) -> io::Result<()> {
        let layout = match self.layout {
            Some(layout) => layout,
            None => {
                let layout = Layout::new(states.n_units(), counts.is_some());
                self.file.write_all(&layout.header())?;
                self.hash.add(&(layout.n_units as u64).to_le_bytes());
                *self.layout.insert(layout)
            }
        };
        let width = layout.n_units.div_ceil(8);
        for (m, row) in states.rows().enumerate() {
            let start = self.bits.len();
            for word in row {
                let bytes = word.to_le_bytes();
                self.hash.add(&bytes);
                self.bits.extend(bytes);
            }
            self.bits.truncate(start + width);
            self.counts.extend(counts.map(|counts| counts[m]));
            self.n_rows += 1;
            if self.n_rows == layout.rows_per_block {
                self.end_block()?;
            }
        }
        Ok(())
    }

    fn end_block(&mut self) -> io::Result<()> {
        let before = self.counts.len().saturating_sub(self.n_rows);
        for count in &self.counts[before..] {
            self.bits.extend(count.to_le_bytes());
        }
        self.file.write_all(&self.bits)?;
        let checksum = crc32fast::hash(&self.bits);
        self.file.write_all(&checksum.to_le_bytes())?;
        self.bits.clear();
        self.n_samples += self.n_rows as u64;
        self.n_rows = 0;
        Ok(())
    }

    /// Ends the file; returns what its footer says.
    ///
    /// # Errors
    /// Those of the file.
    pub fn finish(mut self, names: Option<Vec<String>>, spins: bool) -> io::Result<Footer> {
        if self.n_rows > 0 {
            self.end_block()?;
        }
        for count in &self.counts {
            self.hash.add(&count.to_le_bytes());
        }
        let footer = Footer {
            n_samples: self.n_samples,
            names,
            spins,
            fingerprint: self.hash.to_string(),
        };
        let json = serde_json::to_vec(&footer)?;
        self.file.write_all(&json)?;
        self.file.write_all(&(json.len() as u64).to_le_bytes())?;
        let checksum = crc32fast::hash(&json);
        self.file.write_all(&checksum.to_le_bytes())?;
        self.file.write_all(END)?;
        self.file.flush()?;
        Ok(footer)
    }
}

/// A packed file, open for reading.
#[derive(Debug)]
pub struct PackedFile {
    path: PathBuf,
    file: File,
    layout: Layout,
    /// What the footer says.
    pub footer: Footer,
    bytes_read: AtomicU64,
}

impl PackedFile {
    /// Opens a file, and checks its header, its footer and its length.
    ///
    /// # Errors
    /// A [`Failure`] that says what is wrong with it.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let unreadable = |e: io::Error| Failure::unreadable(path, &e);
        let damaged = |why: String| {
            Failure::at(path, why).hint("the file is damaged or was cut short: pack the data again")
        };
        let file = File::open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        if !metadata.is_file() {
            return Err(Failure::at(path, "a packed file is read in any order")
                .hint("copy it to a plain file first"));
        }
        let length = metadata.len();
        let mut header = [0; HEADER as usize];
        let start = length.min(HEADER) as usize;
        read_at(&file, path, &mut header[..start], 0).map_err(unreadable)?;
        if !header.starts_with(MAGIC) {
            return Err(Failure::at(path, "this is no packed file")
                .hint("`mpf pack raster.npy -o raster.bits` makes one"));
        }
        let number =
            |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("4 bytes"));
        let (version, flags) = (number(8), number(12));
        if version != VERSION {
            return Err(Failure::at(
                path,
                format!(
                    "this is version {version} of the format, and this program reads {VERSION}"
                ),
            )
            .hint("pack the data again, or use a newer mpf"));
        }
        if start < header.len() || crc32fast::hash(&header[..28]) != number(28) {
            return Err(damaged("the header (bytes 0 to 31) is damaged".into()));
        }
        let n_units = u64::from_le_bytes(header[16..24].try_into().expect("8 bytes"));
        let layout = Layout {
            n_units: usize::try_from(n_units).unwrap_or(usize::MAX),
            rows_per_block: number(24) as usize,
            has_counts: flags & COUNTS != 0,
        };
        // Sizes are those of blocks that are in the file.
        let is_possible = n_units.div_ceil(8) <= length && (1..=1 << 24).contains(&n_units);
        if !is_possible || layout.rows_per_block == 0 || flags > COUNTS {
            return Err(damaged(
                "the header (bytes 0 to 31) holds impossible numbers".into(),
            ));
        }
        // Of a file that was cut, the block in which it ends.
        let cut = || {
            let block = layout.bytes(layout.rows_per_block) as u64 + 4;
            damaged(format!(
                "the file ends at byte {length}, in block {} or right after it, without a footer",
                length.saturating_sub(HEADER) / block
            ))
        };
        let mut tail = [0; TAIL as usize];
        let at = length.checked_sub(TAIL).filter(|at| *at >= HEADER);
        let at = at.ok_or_else(cut)?;
        read_at(&file, path, &mut tail, at).map_err(unreadable)?;
        let json_length = u64::from_le_bytes(tail[..8].try_into().expect("8 bytes"));
        if tail[12..] != END[..] || json_length > at - HEADER {
            return Err(cut());
        }
        let mut json = vec![0; json_length as usize];
        let json_at = at - json_length;
        read_at(&file, path, &mut json, json_at).map_err(unreadable)?;
        let is_whole = crc32fast::hash(&json).to_le_bytes() == tail[8..12];
        let footer = serde_json::from_slice::<Footer>(&json).ok();
        let footer = footer
            .filter(|_| is_whole)
            .ok_or_else(|| damaged(format!("the footer (from byte {json_at} on) is damaged")))?;
        let n_blocks = footer.n_samples.div_ceil(layout.rows_per_block as u64);
        let expected = match n_blocks.checked_sub(1) {
            None => HEADER,
            Some(last) if last > length => u64::MAX,
            Some(last) => {
                let rows = layout.bytes(layout.rows(last, footer.n_samples)) as u64;
                layout.offset(last).saturating_add(rows + 4)
            }
        };
        if expected != json_at || footer.n_samples == 0 {
            return Err(damaged(format!(
                "{} rows end at byte {expected}, and the footer begins at byte {json_at}",
                footer.n_samples
            )));
        }
        let n_names = footer.names.as_ref().map(Vec::len);
        if n_names.is_some_and(|n| n != layout.n_units) {
            return Err(damaged("the footer names another number of units".into()));
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            layout,
            footer,
            bytes_read: AtomicU64::new(0),
        })
    }

    /// Appends the rows and counts of one block that lie within `rows`.
    fn read_block(
        &self,
        block: u64,
        rows: &Range<u64>,
        states: &mut States,
        counts: &mut Vec<f64>,
    ) -> Result<(), String> {
        let layout = self.layout;
        let n_rows = layout.rows(block, self.footer.n_samples);
        let (offset, n_bytes) = (layout.offset(block), layout.bytes(n_rows));
        let wrong = |why: &str| {
            format!(
                "{}: block {block} (bytes {offset} to {}) {why}",
                self.path.display(),
                offset + n_bytes as u64 + 3
            )
        };
        let mut bytes = vec![0; n_bytes + 4];
        read_at(&self.file, &self.path, &mut bytes, offset).map_err(|error| {
            match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    wrong("is no longer there: the file has become shorter")
                }
                _ => wrong(&format!(
                    "cannot be read: {}",
                    crate::failure::plain(&error)
                )),
            }
        })?;
        self.bytes_read
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let (bytes, checksum) = bytes.split_at(n_bytes);
        if crc32fast::hash(bytes).to_le_bytes() != *checksum {
            return Err(wrong("is damaged: its checksum is wrong"));
        }
        let width = layout.n_units.div_ceil(8);
        let (bits, numbers) = bytes.split_at(n_rows * width);
        let first = block * layout.rows_per_block as u64;
        let within = (rows.start.max(first) - first) as usize
            ..(rows.end.min(first + n_rows as u64) - first) as usize;
        if !states.push_bytes(&bits[within.start * width..within.end * width]) {
            return Err(wrong("has bits beyond the last unit"));
        }
        if layout.has_counts {
            let numbers = numbers.as_chunks::<8>().0[within].iter();
            let start = counts.len();
            counts.extend(numbers.map(|bytes| f64::from_le_bytes(*bytes)));
            let is_count = |count: &f64| count.is_finite() && *count >= 0.0;
            if !counts[start..].iter().all(is_count) {
                return Err(wrong("has a count that is negative or not finite"));
            }
        }
        Ok(())
    }

    fn read(
        &self,
        rows: Range<u64>,
        states: &mut States,
        counts: &mut Vec<f64>,
    ) -> Result<(), String> {
        let size = self.layout.rows_per_block as u64;
        let mut blocks = rows.start / size..rows.end.div_ceil(size);
        blocks.try_for_each(|block| self.read_block(block, &rows, states, counts))
    }
}

/// Fills `buffer` with the bytes from `offset` on.
fn read_at(file: &File, path: &Path, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    #[cfg(unix)]
    {
        let _ = path;
        std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
    }
    #[cfg(not(unix))]
    {
        use std::io::{Read, Seek, SeekFrom};
        // A file of its own has a place of its own.
        let _ = file;
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(buffer)
    }
}

/// One or more packed files, one after the other.
#[derive(Debug)]
pub struct PackedFiles {
    files: Vec<PackedFile>,
    /// The first row of every file, and the number of all rows.
    starts: Vec<u64>,
}

impl PackedFiles {
    /// Opens files of the same units.
    ///
    /// # Errors
    /// Those of [`PackedFile::open`]; files whose units or names differ, or of which only some have
    /// counts.
    pub fn open(paths: &[PathBuf]) -> Result<Self, Failure> {
        let files = paths.iter().map(|path| PackedFile::open(path));
        let files: Vec<PackedFile> = files.collect::<Result<_, _>>()?;
        let first = files
            .first()
            .ok_or_else(|| Failure::input("no packed file is named"))?;
        for file in &files {
            let differs = [
                ("units", file.layout.n_units != first.layout.n_units),
                ("names", file.footer.names != first.footer.names),
                ("coding", file.footer.spins != first.footer.spins),
                ("counts", file.layout.has_counts != first.layout.has_counts),
            ];
            if let Some((what, _)) = differs.iter().find(|(_, differs)| *differs) {
                let other = first.path.display();
                return Err(Failure::at(
                    &file.path,
                    format!("its {what} are not those of {other}"),
                )
                .hint("the files of one fit hold the same units in the same order"));
            }
        }
        let mut starts = vec![0];
        for file in &files {
            starts.push(starts[starts.len() - 1] + file.footer.n_samples);
        }
        Ok(Self { files, starts })
    }

    /// Returns the first file, whose units and names all have.
    pub fn first(&self) -> &PackedFile {
        &self.files[0]
    }

    /// Describes all data for a model file.
    pub fn record(&self) -> DataRecord {
        let first = self.first();
        let name = first.path.file_name();
        let mut record = DataRecord {
            file: name.map_or_else(String::new, |n| n.to_string_lossy().into_owned()),
            n_samples: self.n_samples(),
            total_count: None,
            n_units: self.n_units(),
            spins: first.footer.spins,
            fingerprint: first.footer.fingerprint.clone(),
        };
        if self.files.len() > 1 {
            record.file = format!("{} and {} more", record.file, self.files.len() - 1);
            let mut hash = Fnv1a::default();
            for file in &self.files {
                hash.add(file.footer.fingerprint.as_bytes());
            }
            record.fingerprint = hash.to_string();
        }
        record
    }

    /// Returns how many bytes were read from blocks.
    pub fn bytes_read(&self) -> u64 {
        self.files
            .iter()
            .map(|file| file.bytes_read.load(Ordering::Relaxed))
            .sum()
    }
}

impl RowSource for PackedFiles {
    fn n_units(&self) -> usize {
        self.first().layout.n_units
    }

    fn n_samples(&self) -> usize {
        self.starts[self.files.len()] as usize
    }

    fn has_weights(&self) -> bool {
        self.first().layout.has_counts
    }

    fn read(
        &self,
        rows: Range<usize>,
        states: &mut States,
        weights: &mut Vec<f64>,
    ) -> Result<(), String> {
        for (file, start) in self.files.iter().zip(&self.starts) {
            let end = start + file.footer.n_samples;
            let from = (rows.start as u64).clamp(*start, end) - start;
            let to = (rows.end as u64).clamp(*start, end) - start;
            if from < to {
                file.read(from..to, states, weights)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
