//! The paper's experiments, one command each: `cargo xtask --help`.

// Commands print their results.
#![allow(clippy::print_stdout)]

mod compare_estimators;
mod fig1;
mod fig2;
mod output;
mod plot;
mod progress;
mod recover_lattice;

use clap::{Parser, Subcommand};
use mpf_core::Cancel;
use std::process::ExitCode;

/// What a command returns.
type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The experiments of "Minimum Probability Flow", and checks at full size.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    version,
    max_term_width = 100
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Figure 1: dynamics from the data to the model in three stages of learning, computed.
    ReproduceFig1(fig1::Args),
    /// Figure 2: error of the couplings of a 10×10 spin glass against learning time.
    ReproduceFig2(fig2::Args),
    /// Fits lattices of known couplings over several seeds and prints the errors.
    RecoverLattice(recover_lattice::Args),
    /// Pseudolikelihood against MPF on spin glasses, over the seeds that they were accepted with.
    CompareEstimators(compare_estimators::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let cancel = Cancel::new();
    let on_signal = cancel.clone();
    let handler = ctrlc::set_handler(move || {
        if on_signal.is_cancelled() {
            // Asked twice: leave at once.
            std::process::exit(130);
        }
        on_signal.cancel();
    });
    let outcome = handler
        .map_err(Into::into)
        .and_then(|()| match cli.command {
            Command::ReproduceFig1(args) => fig1::run(&args),
            Command::ReproduceFig2(args) => fig2::run(&args, &cancel),
            Command::RecoverLattice(args) => recover_lattice::run(&args, &cancel),
            Command::CompareEstimators(args) => compare_estimators::run(&args, &cancel),
        });
    match outcome {
        Ok(()) if cancel.is_cancelled() => {
            eprintln!("interrupted: what was finished by then is written");
            ExitCode::from(130)
        }
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
