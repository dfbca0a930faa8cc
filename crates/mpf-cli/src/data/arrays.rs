//! Arrays of binary data, read as a stream.

use super::DataArgs;
use crate::failure::Failure;
use crate::npy;
use crate::packer::{Packer, Problem};
use std::io::Read;
use std::path::Path;

/// An array that cannot be read, or an entry that cannot be used.
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

/// Explains what is wrong with an array file.
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

/// Counts the bytes that are read through it.
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
