//! `mpf convert`: rewrites a model file in another form or convention.

use crate::console::Console;
use crate::failure::Failure;
use crate::model::{self, Convention, Model};
use crate::output::{self, ForceArg, Output};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Options of `mpf convert`.
#[derive(Args, Clone, Debug)]
pub struct ConvertArgs {
    /// A model file: .json, .npz or .csv
    model: PathBuf,
    /// Model file to write: .json, .npz or .csv; `-` writes JSON to standard output
    #[arg(short, long, value_name = "MODEL")]
    output: PathBuf,
    /// The convention to write (.npz files hold both)
    #[arg(long, value_enum, default_value_t)]
    to: Convention,
    /// The convention of a bare .csv matrix, which does not state it
    #[arg(long, value_enum)]
    assume: Option<Convention>,
    #[command(flatten)]
    force: ForceArg,
}

/// Runs the command; returns the exit code.
///
/// # Errors
/// Wrong inputs, and those of the file system.
pub fn run(args: &ConvertArgs, console: Console) -> Result<u8, Failure> {
    let console = console.beside(&args.output)?;
    model::check_name(&args.output)?;
    let output = Output::Model(&args.output);
    output::check(&[&args.model], &[output], args.force)?;
    let model = Model::read(&args.model, args.assume)?;
    model.write(&args.output, args.to)?;
    let n_units = model.names.len();
    console.result(&format!("{}: {n_units} units\n", args.output.display()))?;
    console.json(&json!({
        "output": args.output.display().to_string(),
        "n_units": n_units,
        "convention": args.to,
    }))?;
    Ok(0)
}
