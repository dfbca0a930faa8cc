//! Reads matrices of MATLAB's `.mat` files, level 5 (`-v6` and `-v7`).
//!
//! A header of 128 bytes is followed by elements: a type and a length of four bytes each, then the
//! contents, padded to eight bytes. An element of up to four bytes has its length in the upper half
//! of the type. A matrix is an element of elements: flags, dimensions, name and numbers, column by
//! column; a sparse one has row indices and starts of columns before the numbers. MATLAB packs every
//! matrix by zlib.

use crate::data::{self, DataArgs, Shape};
use crate::failure::Failure;
use crate::memory::Room;
use crate::npy::{self, Dtype};
use crate::packer::Packer;
use flate2::read::ZlibDecoder;
use std::io::{self, Read};

/// The types of elements that hold other elements.
const MATRIX: u32 = 14;
const COMPRESSED: u32 = 15;
/// The classes of matrices that hold numbers: sparse ones, and all others.
const SPARSE: u8 = 5;
const NUMERIC: std::ops::RangeInclusive<u8> = 6..=15;
/// Flags beside the class.
const COMPLEX: u8 = 8;

/// The beginning of a level 5 file.
pub(crate) const MAGIC: &[u8] = b"MATLAB 5.0 MAT-file";

/// Reads the matrix that `--array` names, or the only one.
pub(crate) fn read_raster(
    args: &DataArgs,
    room: Room,
    mut file: impl Read,
) -> Result<Packer, Failure> {
    let path = &args.data;
    let damaged = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
            Failure::at(path, format!("this is no whole .mat file: {error}"))
                .hint("save it again with save -v7")
        }
        _ => Failure::unreadable(path, &error),
    };
    let mut header = [0; 128];
    file.read_exact(&mut header).map_err(damaged)?;
    let big_endian = match &header[126..] {
        b"IM" => false,
        b"MI" => true,
        _ => {
            return Err(damaged(invalid(
                "its header does not say in which order bytes are",
            )));
        }
    };
    let mut found: Option<(String, Packer)> = None;
    let mut names = Vec::new();
    let mut start = [0; 8];
    loop {
        match npy::fill(&mut file, &mut start).map_err(damaged)? {
            0 => break,
            8 => {}
            _ => return Err(damaged(io::ErrorKind::UnexpectedEof.into())),
        }
        let [kind, length] = words(&start, big_endian);
        let mut contents = (&mut file).take(length.into());
        let mut unpacked;
        let file: &mut dyn Read = match kind {
            MATRIX => &mut contents,
            COMPRESSED => {
                unpacked = ZlibDecoder::new(&mut contents);
                unpacked.read_exact(&mut start).map_err(damaged)?;
                &mut unpacked
            }
            _ => return Err(damaged(invalid("it holds something that is no variable"))),
        };
        let mut elements = Elements { file, big_endian };
        let matrix = elements.matrix().map_err(damaged)?;
        names.extend(matrix.iter().map(|matrix| matrix.name.clone()));
        let is_wanted = |name: &str| args.array.as_ref().is_none_or(|wanted| wanted == name);
        if let Some(matrix) = matrix.filter(|matrix| is_wanted(&matrix.name)) {
            if let Some((first, _)) = &found {
                let why = format!("it holds several matrices: {first:?}, {:?}, …", matrix.name);
                return Err(Failure::at(path, why).hint("choose one with --array"));
            }
            let packer = elements.numbers(args, room, &matrix, damaged)?;
            found = Some((matrix.name, packer));
        }
        // The end of a packed matrix checks its sum.
        io::copy(elements.file, &mut io::sink()).map_err(damaged)?;
        io::copy(&mut contents, &mut io::sink()).map_err(damaged)?;
    }
    found.map(|(_, packer)| packer).ok_or_else(|| {
        let wanted = args.array.as_ref();
        let wanted = wanted.map_or_else(String::new, |name| format!(" called {name:?}"));
        let why = format!("there is no matrix of real numbers{wanted} in it");
        Failure::at(path, why).hint(format!("the file holds: {names:?}"))
    })
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn words(bytes: &[u8; 8], big_endian: bool) -> [u32; 2] {
    let [a, b] = [0, 4].map(|k| [bytes[k], bytes[k + 1], bytes[k + 2], bytes[k + 3]]);
    if big_endian {
        [u32::from_be_bytes(a), u32::from_be_bytes(b)]
    } else {
        [u32::from_le_bytes(a), u32::from_le_bytes(b)]
    }
}

/// What stands before the numbers of a matrix.
struct Matrix {
    name: String,
    shape: Shape,
    is_sparse: bool,
}

/// The elements of a matrix.
struct Elements<'a> {
    file: &'a mut dyn Read,
    big_endian: bool,
}

impl Elements<'_> {
    /// Reads the start of an element; returns its type, its length and the padding after it.
    fn start(&mut self) -> io::Result<(u32, u64, u64)> {
        let mut bytes = [0; 4];
        self.file.read_exact(&mut bytes)?;
        let mut both = [0; 8];
        both[..4].copy_from_slice(&bytes);
        let [kind, _] = words(&both, self.big_endian);
        if kind >> 16 != 0 {
            let length = u64::from(kind >> 16);
            let padding = 4u64.checked_sub(length);
            let padding = padding.ok_or_else(|| invalid("a short element is too long"))?;
            return Ok((kind & 0xffff, length, padding));
        }
        self.file.read_exact(&mut both[4..])?;
        let length = u64::from(words(&both, self.big_endian)[1]);
        Ok((kind, length, length.next_multiple_of(8) - length))
    }

    /// Reads an element of at most `most` numbers.
    fn list(&mut self, most: u64) -> io::Result<Vec<f64>> {
        let (kind, length, padding) = self.start()?;
        let dtype = self.dtype(kind)?;
        let n = length / dtype.size() as u64;
        if n > most {
            return Err(invalid("an element is longer than it may be"));
        }
        let mut numbers = Vec::new();
        let pushed = dtype.for_each(&mut self.file, n, |value| {
            numbers.push(value);
            Ok::<(), npy::Error>(())
        });
        pushed.map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        io::copy(&mut (&mut self.file).take(padding), &mut io::sink())?;
        Ok(numbers)
    }

    fn dtype(&self, kind: u32) -> io::Result<Dtype> {
        const TYPES: [&str; 14] = [
            "", "i1", "u1", "i2", "u2", "i4", "u4", "f4", "", "f8", "", "", "i8", "u8",
        ];
        let order = if self.big_endian { ">" } else { "<" };
        let name = TYPES.get(kind as usize).copied().unwrap_or_default();
        let header = npy::Header::new(&format!("{order}{name}"), &[]);
        header
            .dtype()
            .map_err(|_| invalid("an element has an unknown type"))
    }

    /// Reads what stands before the numbers; `None` if they are not real, or not in two dimensions.
    fn matrix(&mut self) -> io::Result<Option<Matrix>> {
        let flags = self.list(2)?;
        let flags = flags.first().map_or(0, |f| *f as u32).to_le_bytes();
        let (class, is_complex) = (flags[0], flags[1] & COMPLEX != 0);
        let is_sparse = class == SPARSE;
        if is_complex || !(is_sparse || NUMERIC.contains(&class)) {
            return Ok(None);
        }
        let size = self.list(64)?;
        let name = self.list(1 << 10)?;
        let name = name.iter().map(|c| *c as u8 as char).collect();
        let &[rows, columns] = &size[..] else {
            return Ok(None);
        };
        let shape = Shape {
            rows: rows as u64,
            columns: columns as u64,
            by_column: true,
        };
        Ok(Some(Matrix {
            name,
            shape,
            is_sparse,
        }))
    }

    /// Reads the numbers.
    fn numbers(
        &mut self,
        args: &DataArgs,
        room: Room,
        matrix: &Matrix,
        damaged: impl Fn(io::Error) -> Failure,
    ) -> Result<Packer, Failure> {
        let shape = &matrix.shape;
        if matrix.is_sparse {
            // Before anything is built.
            shape.packer(args, room)?;
            let most = room.bytes / 64;
            let rows = self.list(most).map_err(&damaged)?;
            let starts = self.list(most).map_err(&damaged)?;
            let values = self.list(most).map_err(&damaged)?;
            // MATLAB may keep room for more entries than there are.
            let n = starts.last().map_or(0, |n| *n as usize);
            let entries = rows.iter().zip(&values).take(n);
            let entries = data::lines_of(&starts, shape.columns, entries);
            let entries =
                entries.ok_or_else(|| damaged(invalid("a sparse matrix is not whole")))?;
            return data::read_sparse(args, room, shape, entries);
        }
        let (kind, length, padding) = self.start().map_err(&damaged)?;
        let dtype = self.dtype(kind).map_err(&damaged)?;
        let n_entries = shape.rows.checked_mul(shape.columns);
        if n_entries.and_then(|n| n.checked_mul(dtype.size() as u64)) != Some(length) {
            return Err(damaged(invalid("a matrix is not as large as it says")));
        }
        let packer = data::read_entries(args, room, shape, dtype, &mut self.file)?;
        let padded = io::copy(&mut (&mut self.file).take(padding), &mut io::sink());
        padded.map_err(damaged)?;
        Ok(packer)
    }
}
