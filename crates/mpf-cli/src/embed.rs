//! The commands for programs that hold data and models in memory, such as the Python package.
//!
//! Options come in the words of the command line, so that names, defaults and messages are the same.
//! The files of a command are only names here: nothing is read but the alignment of `dca`, and nothing
//! is written.

use crate::cli;
use crate::data::DataArgs;
use crate::fit::grouped;
use crate::memory::{self, MemoryLimit};
use clap::FromArgMatches;
use clap::error::ErrorKind;
use mpf_baselines::{Measure, Methods, log_scores};
use mpf_core::Cancel;
use mpf_ising::Preflight;
use std::io::Read;

pub use crate::compare::{CompareArgs, report as compare};
pub use crate::data::Raster;
pub use crate::dca::{Contacts, DcaArgs, contacts as dca, fit_codes as fit_potts};
pub use crate::evaluate::{EvaluateArgs, report as evaluate};
pub use crate::failure::{FAILED, Failure, INTERRUPTED};
pub use crate::fit::{FitArgs, Show, Step, fit};
pub use crate::model::{Convention, Model};
pub use crate::sample::{SampleArgs, draw as sample};
pub use mpf_report::progress::hide as hide_bars;

/// The name of the data in messages.
const DATA: &str = "X";

/// Parses the options of a command.
///
/// # Errors
/// The message of the command line.
pub fn parse<T: FromArgMatches>(command: &str, options: &[String]) -> Result<T, Failure> {
    // What the command line requires beside options.
    let files: &[&str] = match command {
        "fit" => &["--output=model.json", DATA],
        "evaluate" => &["model", DATA],
        "sample" => &["--output=x.npy", "model"],
        "dca" => &["--output=scores.csv"],
        _ => &[DATA],
    };
    let words = ["mpf", command].into_iter().chain(files.iter().copied());
    let words = words.chain(options.iter().map(String::as_str));
    let parsed = cli::command(&Methods::default()).try_get_matches_from(words);
    let parsed = parsed.and_then(|matches| {
        let (_, of_command) = matches.subcommand().expect("a command was given");
        T::from_arg_matches(of_command)
    });
    parsed.map_err(|error| {
        let text = error.to_string();
        // Usage, and advice on how to write a file name like an option, do not help here.
        let ends = [
            "\n\nUsage:",
            "\n\nFor more information",
            "\n\n  tip: to pass",
        ];
        let end = ends.iter().filter_map(|end| text.find(end)).min();
        let text = text[..end.unwrap_or(text.len())].trim_end();
        let failure = Failure::input(text.strip_prefix("error: ").unwrap_or(text));
        match error.kind() {
            ErrorKind::UnknownArgument => {
                failure.hint(format!("`mpf {command} --help` lists the options"))
            }
            _ => failure,
        }
    })
}

/// Reads data from the bytes of a file, `length` of them, under the options of a command. `names` and
/// `weights` come from elsewhere.
///
/// # Errors
/// As [`Raster::read`], and weights that are no counts.
pub fn read(
    command: &str,
    options: &[String],
    mut bytes: impl Read,
    length: u64,
    names: Option<Vec<String>>,
    weights: Option<Vec<f64>>,
) -> Result<Raster, Failure> {
    let args: DataArgs = parse(command, options)?;
    let limit = match command {
        "fit" | "compare" => parse::<MemoryLimit>(command, options)?.bytes(),
        _ => None,
    };
    let unreadable = |e: std::io::Error| Failure::unreadable(DATA.as_ref(), &e);
    let mut start = [0; 2];
    bytes.read_exact(&mut start).map_err(unreadable)?;
    // Without a length archives are read from the bytes, and not from a file of that name.
    let length = (&start != b"PK").then_some(length);
    let mut raster = Raster::from_reader(&args, start.chain(bytes), length, limit)?;
    if names.is_some() {
        raster.names = names;
    }
    if let Some(weights) = weights {
        let (n, found) = (raster.states.n_samples(), weights.len());
        if found != n {
            let why = format!("{DATA}: {found} weights of {n} samples");
            return Err(Failure::input(why).hint("every sample needs one"));
        }
        if let Some(row) = weights.iter().position(|w| !(w.is_finite() && *w >= 0.0)) {
            let why = format!("{DATA}: the weight of row {row} is {}", weights[row]);
            return Err(Failure::input(why).hint("weights are finite and not negative"));
        }
        raster.weights = Some(weights);
    }
    Ok(raster)
}

/// Runs the preflight of `mpf fit` alone. Returns its numbers, in JSON, and what it found.
///
/// # Errors
/// Those of the command.
pub fn preflight(raster: &Raster, cancel: &Cancel) -> Result<(String, Vec<String>), Failure> {
    let samples = raster.samples()?;
    let mut found = Preflight::cancellable(&samples, raster.names.as_deref(), cancel)?;
    let findings = grouped(&std::mem::take(&mut found.findings));
    let numbers = serde_json::to_string(&found).expect("numbers can be written");
    Ok((numbers, findings))
}

/// Returns [`log_scores`] of data under a model, with hidden units or without.
///
/// # Errors
/// Data of other units, and those of [`log_scores`].
pub fn score(
    model: &Model,
    raster: &Raster,
    seed: u64,
    cancel: &Cancel,
) -> Result<(Vec<f64>, Measure), Failure> {
    let (d, found) = (model.names.len(), raster.states.n_units());
    if found != d {
        let why = format!("the model has {d} units, but {DATA} has {found}");
        return Err(Failure::input(why)
            .hint("evaluate a model on data of the same units, in the same order"));
    }
    Ok(match model.machine()? {
        None => log_scores(&model.couplings, &raster.states, seed, cancel)?,
        Some(machine) => machine.log_scores(&raster.states, seed, cancel)?,
    })
}

/// Refuses `what` if it needs more bytes than the machine has left.
///
/// # Errors
/// A [`Failure`] with both numbers.
pub fn check_memory(what: &str, bytes: u64) -> Result<(), Failure> {
    memory::check(what, bytes, None, "ask for less")
}
