//! Writes binary data to .npy, .csv, .tsv, or text with blanks between numbers.

use crate::console;
use crate::data;
use crate::failure::Failure;
use crate::npy;
use crate::output;
use mpf_ising::States;
use mpf_ising::get_bit;
use mpf_report::files;
use mpf_report::text::guarded;
use std::io::{self, Write};
use std::path::Path;

/// Refuses a name that [`write()`] would refuse.
///
/// # Errors
/// An ending that is not one of those above.
pub fn check_name(path: &Path) -> Result<(), Failure> {
    separator(path).map(drop)
}

/// Returns the separator between numbers; `None` for an array.
fn separator(path: &Path) -> Result<Option<u8>, Failure> {
    match output::extension(path).as_str() {
        "npy" => Ok(None),
        _ if data::is_standard(path) => Ok(Some(b',')),
        "csv" => Ok(Some(b',')),
        "tsv" => Ok(Some(b'\t')),
        "txt" | "dat" => Ok(Some(b' ')),
        _ => {
            let why = "a data file ends in .npy, .csv, .tsv or .txt";
            Err(Failure::at(path, why).hint("name it x.npy"))
        }
    }
}

/// Writes every sample as a row, of ±1 for `spins`; texts get a line of names. An array takes a byte per entry.
///
/// # Errors
/// Those of the file system, and a name of no known form.
pub fn write(path: &Path, states: &States, names: &[String], spins: bool) -> Result<(), Failure> {
    let separator = separator(path)?;
    let fill = |file: &mut dyn Write| match separator {
        None => write_npy(file, states, spins),
        Some(separator) => write_text(file, states, names, spins, separator),
    };
    if data::is_standard(path) {
        return console::print_with(fill);
    }
    files::write_with(path, fill).map_err(|e| Failure::unwritten(path, &e))
}

fn write_npy(file: &mut dyn Write, states: &States, spins: bool) -> io::Result<()> {
    let (descr, zero) = if spins { ("|i1", 0xff) } else { ("|u1", 0) };
    let d = states.n_units();
    npy::Header::new(descr, &[states.n_samples(), d]).write(file)?;
    let mut line = vec![0; d];
    for row in states.rows() {
        for (unit, byte) in line.iter_mut().enumerate() {
            *byte = if get_bit(row, unit) { 1 } else { zero };
        }
        file.write_all(&line)?;
    }
    Ok(())
}

fn write_text(
    file: &mut dyn Write,
    states: &States,
    names: &[String],
    spins: bool,
    separator: u8,
) -> io::Result<()> {
    // Between blanks, a name that holds a blank could not be read back.
    if separator != b' ' {
        let mut header = csv::WriterBuilder::new()
            .delimiter(separator)
            .comment(Some(b'#'))
            .from_writer(&mut *file);
        header.write_record(names.iter().map(|name| guarded(name).into_owned()))?;
        header.flush()?;
    }
    let zero: &[u8] = if spins { b"-1" } else { b"0" };
    let mut line = Vec::new();
    for row in states.rows() {
        line.clear();
        for unit in 0..states.n_units() {
            if unit > 0 {
                line.push(separator);
            }
            line.extend_from_slice(if get_bit(row, unit) { b"1" } else { zero });
        }
        line.push(b'\n');
        file.write_all(&line)?;
    }
    Ok(())
}
