//! Arrays of binary data, read as a stream.

use super::DataArgs;
use crate::failure::Failure;
use crate::memory::Room;
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

/// An array that follows in a file.
pub(crate) struct Shape {
    pub(crate) rows: u64,
    pub(crate) columns: u64,
    /// Whether the first index runs fastest.
    pub(crate) by_column: bool,
}

impl Shape {
    /// Returns the number of lines, along which the index runs that is stored fastest, and their length.
    pub(crate) fn lines(&self) -> (u64, u64) {
        match self.by_column {
            true => (self.columns, self.rows),
            false => (self.rows, self.columns),
        }
    }

    /// Names the entry at a position of a line.
    fn place(&self, line: u64, position: u64) -> String {
        let (row, column) = if self.by_column {
            (position, line)
        } else {
            (line, position)
        };
        format!("row {row}, column {column} (from 0)")
    }

    /// Returns a packer for the lines of the array. Refuses what memory cannot hold.
    pub(crate) fn packer(&self, args: &DataArgs, room: Room) -> Result<Packer, Failure> {
        if args.index && args.transpose {
            let why = "--index with --transpose is for texts";
            return Err(Failure::at(&args.data, why).hint("save the array without the labels"));
        }
        let columns = args.columns(None, &args.drop)?;
        let (samples, units) = if args.transpose {
            (self.columns, self.rows)
        } else {
            (self.rows, self.columns)
        };
        let all = usize::try_from(units).unwrap_or(usize::MAX);
        check_units(args, room, columns.n_units(all))?;
        let bytes = samples.saturating_mul(units.div_ceil(64)).saturating_mul(8);
        let at = args.data.display();
        room.check(
            &format!("{at}: {samples} samples of {units} units"),
            bytes,
            "read fewer samples; --memory-limit sets another limit",
        )?;
        // Rows are samples unless transposed; lines of columns turn this once more.
        let by_unit = self.by_column != args.transpose;
        Ok(args.packer(by_unit, columns, room))
    }
}

/// Refuses units whose couplings no memory can hold.
pub(crate) fn check_units(args: &DataArgs, room: Room, n_units: usize) -> Result<(), Failure> {
    let n = n_units as u64;
    room.check(
        &format!("{}: the couplings of {n} units", args.data.display()),
        n.saturating_mul(n).saturating_mul(8),
        "rows are samples: if they are units, pass --transpose; --memory-limit sets another limit",
    )
}

/// Reads an array in NumPy's format. If its `length` in bytes is known, header included, a header
/// that claims another size is refused before anything is read.
pub(crate) fn read_npy(
    args: &DataArgs,
    room: Room,
    mut file: impl Read,
    length: Option<u64>,
) -> Result<Packer, Failure> {
    let path = &args.data;
    let broken = |error: npy::Error| explain_npy(path, error);
    let mut counted = file.by_ref().take(u64::MAX);
    let header = npy::Header::read(&mut counted).map_err(broken)?;
    let header_length = u64::MAX - counted.limit();
    let dtype = header.dtype().map_err(broken)?;
    let &[rows, columns] = &header.shape[..] else {
        let why = format!(
            "the array has {} dimensions, but samples × units are two",
            header.shape.len()
        );
        return Err(Failure::at(path, why).hint("save a two-dimensional array"));
    };
    let shape = Shape {
        rows,
        columns,
        by_column: header.fortran,
    };
    let n_entries = header.n_entries();
    let expected = n_entries
        .and_then(|n| n.checked_mul(dtype.size() as u64))
        .and_then(|n| n.checked_add(header_length));
    let (Some(n_entries), Some(expected)) = (n_entries, expected) else {
        let why =
            format!("the header claims {rows} × {columns} entries, more than any file can hold");
        return Err(Failure::at(path, why).hint("the header is damaged"));
    };
    let too_long = |more: &str| {
        let why = format!("{more} the {rows} × {columns} array");
        Failure::at(path, why).hint("save one array per .npy file")
    };
    if let Some(length) = length.filter(|_| n_entries > 0) {
        if length < expected {
            let whole = length.saturating_sub(header_length) / dtype.size() as u64;
            let (_, width) = shape.lines();
            let why = format!(
                "{} is missing: the file has {length} bytes of {expected}",
                shape.place(whole / width, whole % width)
            );
            return Err(Failure::at(path, why).hint("the file is truncated; copy or save it again"));
        }
        if length > expected {
            return Err(too_long(&format!("{} bytes follow", length - expected)));
        }
    }
    let packer = read_entries(args, room, &shape, dtype, &mut file)?;
    if length.is_none() && npy::fill(&mut file, &mut [0]).map_err(|e| broken(e.into()))? > 0 {
        return Err(too_long("more bytes follow"));
    }
    Ok(packer)
}

/// Reads the entries of an array.
pub(crate) fn read_entries(
    args: &DataArgs,
    room: Room,
    shape: &Shape,
    dtype: npy::Dtype,
    file: &mut impl Read,
) -> Result<Packer, Failure> {
    let mut packer = shape.packer(args, room)?;
    let (_, width) = shape.lines();
    let mut left = width;
    // Room for the samples bounds their number.
    let n_entries = shape.rows.saturating_mul(shape.columns);
    let outcome = dtype.for_each_run(file, n_entries, |mut numbers| {
        while !numbers.is_empty() {
            // Bytes of 0 and 1 are packed eight at a time.
            let of_line = usize::try_from(left).map_or(numbers.len(), |n| n.min(numbers.len()));
            let mut n = match dtype.size() {
                1 => packer.push_bytes(&numbers[..of_line]),
                _ => 0,
            };
            if n == 0 {
                let number = &numbers[..dtype.size()];
                packer.push(dtype.decode(number)).map_err(Stop::Problem)?;
                n = 1;
            }
            numbers = &numbers[n * dtype.size()..];
            left -= n as u64;
            if left == 0 {
                packer.end_line().map_err(Stop::Problem)?;
                left = width;
            }
        }
        Ok(())
    });
    let here = shape.place(packer.lines() as u64, packer.position() as u64);
    match outcome {
        Ok(()) => Ok(packer),
        Err(Stop::Problem(problem)) => Err(args.explain(&here, problem)),
        Err(Stop::Npy(npy::Error::Truncated(_))) => {
            let why = format!("{here} is missing: the file is truncated");
            Err(Failure::at(&args.data, why).hint("copy or save it again"))
        }
        Err(Stop::Npy(error)) => Err(explain_npy(&args.data, error)),
    }
}

/// Returns the index that a file holds as a number; one beyond all arrays for a number that is none.
pub(crate) fn index(number: f64) -> u64 {
    if number >= 0.0 && number.fract() == 0.0 {
        number as u64
    } else {
        u64::MAX
    }
}

/// Returns the entries of `n_lines` lines with their positions; entries `starts[k]..starts[k + 1]`
/// are those of line k. `None` if the starts are out of order.
pub(crate) fn lines_of<'v>(
    starts: &[f64],
    n_lines: u64,
    entries: impl ExactSizeIterator<Item = (&'v f64, &'v f64)>,
) -> Option<Vec<(u64, u64, f64)>> {
    let n = entries.len();
    let is_whole = starts.len() as u64 == n_lines.checked_add(1)?
        && starts.first() == Some(&0.0)
        && starts.last() == Some(&(n as f64))
        && starts.windows(2).all(|pair| pair[0] <= pair[1]);
    let mut line = 0;
    is_whole.then(|| {
        let entries = entries.enumerate().map(|(k, (position, value))| {
            while starts[line + 1] <= k as f64 {
                line += 1;
            }
            (line as u64, index(*position), *value)
        });
        entries.collect()
    })
}

/// Reads the entries of a sparse array: for every line, the positions that are stored and their
/// values. All others are 0. A position that is stored twice has the sum.
pub(crate) fn read_sparse(
    args: &DataArgs,
    room: Room,
    shape: &Shape,
    mut entries: Vec<(u64, u64, f64)>,
) -> Result<Packer, Failure> {
    let mut packer = shape.packer(args, room)?;
    let (n_lines, width) = shape.lines();
    if n_lines == 0 || width == 0 {
        return Ok(packer);
    }
    let outside = entries.iter().find(|e| e.0 >= n_lines || e.1 >= width);
    if let Some(&(line, position, _)) = outside {
        let why = format!(
            "the sparse array of {} × {} has an entry at {}",
            shape.rows,
            shape.columns,
            shape.place(line, position)
        );
        return Err(Failure::at(&args.data, why).hint("the file is damaged; save it again"));
    }
    entries.sort_by_key(|&(line, position, _)| (line, position));
    let mut entries = entries.into_iter().peekable();
    for line in 0..n_lines {
        for position in 0..width {
            let mut value = 0.0;
            while let Some((.., more)) = entries.next_if(|e| (e.0, e.1) == (line, position)) {
                value += more;
            }
            let pushed = packer.push(value);
            pushed.map_err(|problem| args.explain(&shape.place(line, position), problem))?;
        }
        let ended = packer.end_line();
        ended.map_err(|problem| args.explain(&shape.place(line, 0), problem))?;
    }
    Ok(packer)
}

/// Explains what is wrong with an array file.
pub(crate) fn explain_npy(path: &Path, error: npy::Error) -> Failure {
    match error {
        npy::Error::Header(why) => Failure::at(path, format!("this is no whole .npy file: {why}"))
            .hint("save it again with numpy.save"),
        npy::Error::Dtype(descr) => {
            let why =
                format!("the array's type is {descr:?}, but bits are integers, booleans or floats");
            Failure::at(path, why).hint("convert first, for example with x.astype('uint8')")
        }
        npy::Error::Truncated(n) => Failure::at(path, format!("it ends after {n} numbers")),
        npy::Error::Io(error) => Failure::unreadable(path, &error),
    }
}
