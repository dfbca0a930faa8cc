//! Reads and writes `.npz`, archives of arrays.

use crate::data::{self, DataArgs, Shape};
use crate::failure::Failure;
use crate::memory::{Room, product};
use crate::npy;
use crate::packer::Packer;
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use zip::ZipArchive;
use zip::result::ZipError;
use zip::write::{SimpleFileOptions, ZipWriter};

/// The most bytes that one byte of an archive can expand to: `deflate` reaches it on zeros.
const MOST_EXPANSION: u64 = 1032;

/// An open archive.
pub(crate) struct Archive<'a, R> {
    path: &'a Path,
    room: Room,
    zip: ZipArchive<R>,
}

impl<'a, R: Read + Seek> Archive<'a, R> {
    /// Opens an archive whose arrays, where they are read whole, may each take all of `room`.
    pub(crate) fn open(path: &'a Path, room: Room, file: R) -> Result<Self, Failure> {
        match ZipArchive::new(file) {
            Ok(zip) => Ok(Self { path, room, zip }),
            Err(ZipError::Io(error)) => Err(Failure::unreadable(path, &error)),
            Err(error) => Err(
                Failure::at(path, format!("this is no whole .npz file: {error}"))
                    .hint("the file is truncated or damaged; save it again with numpy.savez"),
            ),
        }
    }

    /// Returns the names of the arrays.
    pub(crate) fn names(&self) -> Vec<String> {
        let files = self.zip.file_names();
        files
            .flatten()
            .map(|n| n.strip_suffix(".npy").unwrap_or(&n).to_owned())
            .collect()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.zip.index_for_name(&format!("{name}.npy")).is_some()
    }

    /// Opens one array; returns it with the length that the archive states. Refuses a length that
    /// the stored bytes cannot expand to.
    pub(crate) fn array(&mut self, name: &str) -> Result<(impl Read, u64), Failure> {
        let path = self.path;
        let there = self.names().join(", ");
        let file = self.zip.by_name(&format!("{name}.npy")).map_err(|error| {
            Failure::at(path, format!("cannot read the array {name:?}: {error}"))
                .hint(format!("the file holds: {there}"))
        })?;
        let (stored, length) = (file.compressed_size(), file.size());
        if length > stored.saturating_mul(MOST_EXPANSION) {
            let why = format!("{stored} bytes are said to hold the {length} of the array {name:?}");
            let hint = "the file is damaged; save it again with numpy.savez";
            return Err(Failure::at(path, why).hint(hint));
        }
        Ok((file, length))
    }

    /// Returns the shape and the numbers of an array.
    pub(crate) fn numbers(&mut self, name: &str) -> Result<(Vec<u64>, Vec<f64>), Failure> {
        self.read_whole(name, |mut file, header, length| {
            let dtype = header.dtype()?;
            let n = entries(&header, dtype.size() as u64, length)?;
            if header.fortran && header.shape.len() > 1 {
                return Err(npy::Error::Header("it is in Fortran order"));
            }
            let mut values = Vec::new();
            dtype.for_each(&mut file, n, |value| {
                values.push(value);
                Ok::<(), npy::Error>(())
            })?;
            Ok((header.shape, values))
        })
    }

    /// Reads an array from its header to its end, if there is memory for it as it is stored and as
    /// doubles.
    fn read_whole<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&mut dyn Read, npy::Header, u64) -> Result<T, npy::Error>,
    ) -> Result<T, Failure> {
        let (path, room) = (self.path, self.room);
        let broken = |error| data::explain_npy(path, error);
        let (mut file, length) = self.array(name)?;
        let header = npy::Header::read(&mut file).map_err(broken)?;
        let doubles = header.n_entries().map_or(u64::MAX, |n| product(&[8, n]));
        room.check(
            &format!("{}: the array {name:?}", path.display()),
            length.saturating_add(doubles.min(product(&[8, length]))),
            "is it the right file?",
        )?;
        read(&mut file, header, length)
            .and_then(|found| finish(&mut file).map(|()| found))
            .map_err(broken)
    }

    /// Returns an array of texts.
    pub(crate) fn texts(&mut self, name: &str) -> Result<Vec<String>, Failure> {
        self.read_whole(name, |file, header, length| {
            // Characters of four bytes, or of one.
            let wide = header.descr.strip_prefix("<U").map(|w| (w, 4));
            let narrow = || header.descr.strip_prefix("|S").map(|w| (w, 1));
            let width = wide
                .or_else(narrow)
                .and_then(|(width, size)| Some((width.parse::<u64>().ok()?, size)))
                // NumPy writes empty texts one character wide.
                .filter(|(width, _)| *width > 0);
            let Some((width, size)) = width else {
                return Err(npy::Error::Dtype(header.descr));
            };
            let n = entries(&header, width.saturating_mul(size as u64), length)?;
            let mut texts = Vec::new();
            for _ in 0..n {
                let mut text = String::new();
                for _ in 0..width {
                    let mut bytes = [0; 4];
                    file.read_exact(&mut bytes[..size])?;
                    match char::from_u32(u32::from_le_bytes(bytes)) {
                        Some('\0') => {}
                        Some(c) => text.push(c),
                        None => return Err(npy::Error::Header("it holds no text")),
                    }
                }
                texts.push(text);
            }
            Ok(texts)
        })
    }
}

/// Returns the number of entries of `size` bytes each, if an array of `length` bytes can hold them.
fn entries(header: &npy::Header, size: u64, length: u64) -> Result<u64, npy::Error> {
    let n = header.n_entries();
    n.filter(|n| n.checked_mul(size).is_some_and(|bytes| bytes <= length))
        .ok_or(npy::Error::Header("it claims more entries than it has"))
}

/// Checks that the array ends here: the archive compares its checksum at the end, and an array that
/// goes on is longer than it claims.
fn finish(file: &mut impl Read) -> Result<(), npy::Error> {
    match npy::fill(file, &mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(npy::Error::Header("it is longer than it says")),
        Err(error) => Err(npy::Error::Io(error)),
    }
}

/// Reads binary data, and the names of the units if the archive has an array `names`.
pub(crate) fn read_raster(
    args: &DataArgs,
    room: Room,
    file: impl Read + Seek,
) -> Result<(Packer, Option<Vec<String>>), Failure> {
    let path = &args.data;
    let mut archive = Archive::open(path, room, file)?;
    if archive.zip.index_for_name("xl/workbook.xml").is_some() {
        let why = "this is a spreadsheet, which mpf does not read";
        return Err(Failure::at(path, why).hint("save the sheet as .csv"));
    }
    let mut arrays = archive.names();
    arrays.retain(|name| name != "names");
    let packer = if args.array.is_none() && archive.has("format") && archive.has("shape") {
        read_sparse(args, room, &mut archive)?
    } else {
        let chosen = match (&args.array, &arrays[..]) {
            (Some(name), _) => name.clone(),
            (None, [only]) => only.clone(),
            (None, several) => {
                let why = format!("it holds {} arrays: {}", several.len(), several.join(", "));
                return Err(Failure::at(path, why).hint("choose one with --array"));
            }
        };
        let (mut array, length) = archive.array(&chosen)?;
        let packer = data::read_npy(args, room, &mut array, Some(length))?;
        finish(&mut array).map_err(|error| data::explain_npy(path, error))?;
        packer
    };
    let names = if archive.has("names") {
        let names = archive.texts("names")?;
        let columns = packer.columns();
        match packer.n_units() {
            Some(n) if n == names.len() => Some(names),
            // They name all columns.
            Some(n) if columns.n_units(names.len()) == n => Some(columns.units(names)),
            _ => None,
        }
    } else {
        None
    };
    Ok((packer, names))
}

/// Reads a matrix that `scipy.sparse.save_npz` wrote: in rows, in columns, or entry by entry.
fn read_sparse<R: Read + Seek>(
    args: &DataArgs,
    room: Room,
    archive: &mut Archive<'_, R>,
) -> Result<Packer, Failure> {
    let path = &args.data;
    let wrong = |why: &str| {
        Failure::at(path, format!("the sparse matrix {why}"))
            .hint("save it with scipy.sparse.save_npz as csr, csc or coo")
    };
    let format = archive.texts("format")?.concat();
    let by_column = format == "csc";
    let names = match format.as_str() {
        "csr" | "csc" => ["indptr", "indices", "data"],
        "coo" => ["row", "col", "data"],
        other => return Err(wrong(&format!("has the format {other:?}"))),
    };
    // Numbers are held as doubles, and entries as three of them.
    let mut bytes = 0u64;
    for name in names {
        let (mut file, length) = archive.array(name)?;
        let header = npy::Header::read(&mut file);
        let header = header.map_err(|error| data::explain_npy(path, error))?;
        let n = header.n_entries().unwrap_or(u64::MAX).min(length);
        bytes = bytes.saturating_add(n.saturating_mul(16));
    }
    room.check(
        &format!("{}: the entries of the sparse matrix", path.display()),
        bytes,
        "read fewer samples; --memory-limit sets another limit",
    )?;
    let shape = archive.numbers("shape")?.1;
    let &[rows, columns] = &shape[..] else {
        return Err(wrong(&format!("has {} dimensions", shape.len())));
    };
    let shape = Shape {
        rows: data::index(rows),
        columns: data::index(columns),
        by_column,
    };
    // Before anything is built.
    shape.packer(args, room)?;
    let [first, second, values] = names.map(|name| archive.numbers(name));
    let (first, second, values) = (first?.1, second?.1, values?.1);
    if second.len() != values.len() {
        return Err(wrong("has more indices than values, or fewer"));
    }
    let entries = second.iter().zip(&values);
    let entries = if format == "coo" {
        if first.len() != second.len() {
            return Err(wrong("has more rows than columns, or fewer"));
        }
        let entries = first.iter().zip(entries);
        entries
            .map(|(row, (column, value))| (data::index(*row), data::index(*column), *value))
            .collect()
    } else {
        data::lines_of(&first, shape.lines().0, entries)
            .ok_or_else(|| wrong("has pointers out of order"))?
    };
    data::read_sparse(args, room, &shape, entries)
}

/// Writes an archive, array by array.
pub(crate) struct ArchiveWriter<W: Write + Seek> {
    zip: ZipWriter<W>,
}

impl<W: Write + Seek> ArchiveWriter<W> {
    pub(crate) fn new(file: W) -> Self {
        Self {
            zip: ZipWriter::new(file),
        }
    }

    fn start(&mut self, name: &str, header: &npy::Header) -> io::Result<()> {
        // Stored, as numpy.savez does; without a time, so that equal models are equal files.
        let options =
            SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        self.zip
            .start_file(format!("{name}.npy"), options)
            .map_err(io::Error::other)?;
        header.write(&mut self.zip)
    }

    pub(crate) fn numbers<'v>(
        &mut self,
        name: &str,
        shape: &[usize],
        values: impl IntoIterator<Item = &'v f64>,
    ) -> io::Result<()> {
        self.start(name, &npy::Header::new("<f8", shape))?;
        for value in values {
            self.zip.write_all(&value.to_le_bytes())?;
        }
        Ok(())
    }

    /// Writes one text, or a list of them.
    pub(crate) fn texts(&mut self, name: &str, shape: &[usize], texts: &[&str]) -> io::Result<()> {
        let lengths = texts.iter().map(|t| t.chars().count());
        let width = lengths.max().unwrap_or(0).max(1);
        self.start(name, &npy::Header::new(&format!("<U{width}"), shape))?;
        for text in texts {
            let characters = text.chars().chain(std::iter::repeat('\0'));
            for c in characters.take(width) {
                self.zip.write_all(&u32::from(c).to_le_bytes())?;
            }
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> io::Result<W> {
        self.zip.finish().map_err(io::Error::other)
    }
}
