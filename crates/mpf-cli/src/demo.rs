//! `mpf demo`: writes a synthetic raster whose couplings are known.

use crate::console::Console;
use crate::draw::{self, DrawOptions, SamplerName, Target};
use crate::failure::Failure;
use crate::model::{Convention, Model};
use crate::output::{self, ForceArg, Output};
use crate::raster_file;
use clap::Args;
use mpf_core::{Cancel, rng};
use mpf_ising::{Samples, mosaic_couplings};
use mpf_samplers::ChainOptions;
use serde_json::json;
use std::path::PathBuf;

/// Rows of cells in the mosaic.
const ROWS: usize = 5;
/// Cells in a row.
const COLUMNS: usize = 8;

/// Options of `mpf demo`.
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// Data file to write: .npy, .csv, .tsv or .txt
    #[arg(short, long, value_name = "FILE", default_value = "retina.csv")]
    output: PathBuf,
    /// File for the true model: .json, .npz or .csv
    #[arg(long, value_name = "MODEL", default_value = "retina-truth.json")]
    truth: PathBuf,
    /// Number of time bins
    #[arg(short, value_name = "N", default_value_t = 20_000)]
    n: usize,
    /// Seed of couplings and spikes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    force: ForceArg,
}

/// Runs the command; returns the exit code.
///
/// # Errors
/// Wrong inputs, and those of the file system.
pub fn run(args: &DemoArgs, console: Console, cancel: &Cancel) -> Result<u8, Failure> {
    raster_file::check_name(&args.output)?;
    crate::model::check_name(&args.truth)?;
    let outputs = [Output::Raster(&args.output), Output::Model(&args.truth)];
    output::check(&[], &outputs, args.force)?;
    if args.n == 0 {
        return Err(Failure::input("-n 0 asks for no time bins").hint("ask for at least one"));
    }
    let couplings = mosaic_couplings(ROWS, COLUMNS, &mut rng::stream(args.seed, 0))?;
    let options = DrawOptions {
        sampler: SamplerName::Gibbs,
        chains: ChainOptions {
            n_draws: args.n,
            // Ten sweeps apart, bins are independent but for a correlation of about e⁻¹⁰.
            thinning: 10,
            seed: rng::next_seed(args.seed),
            cancel: cancel.clone(),
            ..Default::default()
        },
        starts: None,
        console: Console::silent(),
    };
    let drawn = draw::draw(Target::Ising(&couplings), &options)?;
    // A1 … A8, B1 … as on a map.
    let name = |i: usize| {
        let row = char::from(b'A' + (i / COLUMNS) as u8);
        format!("{row}{}", i % COLUMNS + 1)
    };
    let names: Vec<String> = (0..ROWS * COLUMNS).map(name).collect();
    let means = Samples::new(&drawn.states)?.means();
    let mean_activity = means.iter().sum::<f64>() / means.len() as f64;
    let truth = Model::unfitted(couplings, names);
    truth.write(&args.truth, Convention::Binary)?;
    raster_file::write(&args.output, &drawn.states, &truth.names, false)?;
    console.result(&format!(
        "{}: {} time bins × {} cells, {:.1} % active\n{}: the couplings that made it\n",
        args.output.display(),
        args.n,
        truth.names.len(),
        100.0 * mean_activity,
        args.truth.display()
    ))?;
    console.json(&json!({
        "output": args.output.display().to_string(),
        "truth": args.truth.display().to_string(),
        "n_samples": args.n,
        "n_units": truth.names.len(),
        "mean_activity": mean_activity,
    }))?;
    Ok(0)
}
