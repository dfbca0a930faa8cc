//! `mpf pack`: from data of any format to a packed file, batch by batch.

use crate::console::Console;
use crate::data::{DataArgs, Raster};
use crate::failure::{Failure, plain};
use crate::memory::{self, MemoryLimit};
use crate::output::{self, ForceArg, Output};
use crate::packed::{Footer, PackedWriter};
use clap::Args;
use mpf_core::Cancel;
use mpf_report::files;
use serde::Serialize;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;

/// Options of `mpf pack`.
#[derive(Args, Clone, Debug)]
pub struct PackArgs {
    #[command(flatten)]
    data: DataArgs,
    /// More files of the same units, whose samples follow
    #[arg(value_name = "MORE")]
    more: Vec<PathBuf>,
    /// Packed file to write
    #[arg(short, long, value_name = "BITS")]
    output: PathBuf,
    #[command(flatten)]
    memory: MemoryLimit,
    #[command(flatten)]
    force: ForceArg,
}

/// Why packing ended before its end.
enum Ended {
    Reading(Failure),
    Writing(io::Error),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Writing(error)
    }
}

/// The output of `--json`.
#[derive(Serialize)]
struct Report<'a> {
    file: String,
    n_units: usize,
    bytes: u64,
    #[serde(flatten)]
    footer: &'a Footer,
}

/// Runs the command; returns the exit code.
///
/// # Errors
/// Wrong inputs, and those of the file system: the file is then not there, and an earlier one is
/// untouched.
pub fn run(args: &PackArgs, console: Console, cancel: &Cancel) -> Result<u8, Failure> {
    let inputs: Vec<&Path> = [&args.data.data]
        .into_iter()
        .chain(&args.more)
        .map(PathBuf::as_path)
        .collect();
    output::check(&inputs, &[Output::Raster(&args.output)], args.force)?;
    let mut place = (0, 0);
    let outcome = files::write_with(&args.output, |file| -> Result<_, Ended> {
        let mut writer = PackedWriter::new(file);
        let packed = pack(args, &inputs, &mut writer, console, cancel);
        place = writer.place();
        let (names, spins) = packed?;
        let n_units = writer.n_units();
        Ok((n_units, writer.finish(names, spins)?))
    });
    let (n_units, footer) = match outcome {
        Ok(done) => done,
        Err(Ended::Reading(failure)) => return Err(failure),
        Err(Ended::Writing(error)) => {
            let (block, offset) = place;
            let why = format!(
                "cannot write {}: block {block}, from byte {offset} on: {}",
                args.output.display(),
                plain(&error)
            );
            return Err(Failure::system(why).hint("an existing file of that name is untouched"));
        }
    };
    let n_units = n_units.ok_or_else(|| Failure::system("nothing was packed"))?;
    let bytes = std::fs::metadata(&args.output).map_or(0, |found| found.len());
    console.result(&format!(
        "{}: {} samples × {n_units} units, {}, fingerprint {}\n",
        args.output.display(),
        footer.n_samples,
        memory::in_words(bytes),
        footer.fingerprint
    ))?;
    console.json(&Report {
        file: args.output.display().to_string(),
        n_units,
        bytes,
        footer: &footer,
    })?;
    Ok(0)
}

/// Packs all files; returns the names of the units and whether the data are ±1.
fn pack<W: Write>(
    args: &PackArgs,
    inputs: &[&Path],
    writer: &mut PackedWriter<W>,
    console: Console,
    cancel: &Cancel,
) -> Result<(Option<Vec<String>>, bool), Ended> {
    let mut first: Option<(Option<Vec<String>>, bool)> = None;
    for &path in inputs {
        let raster = pack_file(args, path, writer, cancel)?;
        raster.notes.iter().for_each(|note| console.note(note));
        let (names, _) = first.get_or_insert_with(|| (raster.names.clone(), raster.spins));
        if *names != raster.names {
            let why = "its units have other names than those of the first file";
            let hint = "the files of one packed file hold the same units in the same order";
            return Err(Ended::Reading(Failure::at(path, why).hint(hint)));
        }
    }
    Ok(first.unwrap_or_default())
}

/// Packs one file, which is read on another thread; returns its last samples, packed too.
fn pack_file<W: Write>(
    args: &PackArgs,
    path: &Path,
    writer: &mut PackedWriter<W>,
    cancel: &Cancel,
) -> Result<Raster, Ended> {
    let (sink, batches) = sync_channel(2);
    let data = DataArgs {
        data: path.to_owned(),
        sink: Some(sink),
        ..args.data.clone()
    };
    let limit = args.memory.bytes();
    let raster = std::thread::scope(|scope| {
        // The sink ends with the reader.
        let reader = scope.spawn(move || Raster::read(&data, limit, cancel));
        let mut written = Ok(());
        for batch in batches {
            if batch.unknown.is_some() {
                written = Err(Ended::Reading(no_mask(path)));
                break;
            }
            written = check_width(path, writer, batch.states.n_units()).and_then(|()| {
                let pushed = writer.push(&batch.states, batch.weights.as_deref());
                pushed.map_err(Ended::Writing)
            });
            if written.is_err() {
                break;
            }
        }
        // Without its receiver the reader stops.
        let raster = reader.join().expect("the reader does not panic");
        written.and_then(|()| raster.map_err(Ended::Reading))
    })?;
    if raster.unknown.is_some() {
        return Err(Ended::Reading(no_mask(path)));
    }
    check_width(path, writer, raster.states.n_units())?;
    writer.push(&raster.states, raster.weights.as_deref())?;
    Ok(raster)
}

fn no_mask(path: &Path) -> Failure {
    Failure::at(
        path,
        "entries are missing, and a packed file has no place for them",
    )
    .hint("--missing drop leaves out such rows")
}

fn check_width<W: Write>(
    path: &Path,
    writer: &PackedWriter<W>,
    n_units: usize,
) -> Result<(), Ended> {
    match writer.n_units() {
        Some(expected) if expected != n_units => {
            let why = format!("{n_units} units, but the first file has {expected}");
            let hint = "the files of one packed file hold the same units in the same order";
            Err(Ended::Reading(Failure::at(path, why).hint(hint)))
        }
        _ => Ok(()),
    }
}
