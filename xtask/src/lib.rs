//! The paper's experiments, one command each: `cargo xtask --help`.

// Commands print their results.
#![allow(clippy::print_stdout)]

mod bench_report;
mod check_defaults;
mod check_errors;
mod check_ica;
mod check_missing;
mod check_verdicts;
mod choose_penalty;
mod compare_estimators;
mod compare_peers;
mod compare_plmc;
mod compare_rbm;
mod compare_samplers;
mod correlations;
mod fig1;
mod fig2;
mod fig3;
mod fig_e1;
mod fig_f1;
mod glass;
#[cfg(all(test, unix))]
mod kill;
mod measure_scaling;
mod npy;
mod output;
mod program;
mod reproduce_all;
mod reproduce_contacts;
mod reproduce_fitness;
mod run;
mod soak;
mod time_objective;

use clap::{Parser, Subcommand};
use mpf_core::Cancel;
use mpf_report::interrupt::{INTERRUPTED, on_interrupt};
use mpf_report::{Result, plot, progress, report};
use output::OutputArgs;
use run::{Options, RunArgs};
use std::process::ExitCode;

type Error = Box<dyn std::error::Error + Send + Sync>;

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
    /// Figure 1: dynamics from the data to the model in three stages of learning.
    ReproduceFig1(Options<fig1::Args, OutputArgs>),
    /// Figure 2 and Table E-1: errors of six methods on a 10×10 spin glass against learning time.
    ReproduceFig2(Options<fig2::Args>),
    /// Figure 3: ICA filters of image patches, by MPF and by maximum likelihood.
    ReproduceFig3(Options<fig3::Args>),
    /// Figure E-1: time of an evaluation and of a fit against the number of samples.
    ReproduceFigE1(Options<fig_e1::Args>),
    /// Figure F-1: error of the correlations of 40 connected units against learning time.
    ReproduceFigF1(Options<fig_f1::Args>),
    /// Precision and seconds of contacts in protein families, by pseudolikelihood and by MPF.
    ReproduceContacts(Options<reproduce_contacts::Args, OutputArgs>),
    /// Statistics of samples from fitted families against the alignment's, by MPF, polish and PL.
    ReproduceFitness(Options<reproduce_fitness::Args, OutputArgs>),
    /// Makes every figure and table of the paper, and a page that links to them.
    ReproduceAll(RunArgs),
    /// Compares pseudolikelihood with MPF on spin glasses over many seeds, and checks expectations.
    CompareEstimators(Options<compare_estimators::Args>),
    /// Compares MPF, PL, CD and PCD on restricted Boltzmann machines by exact log-likelihood.
    CompareRbm(Options<compare_rbm::Args>),
    /// Checks that the defaults of `mpf fit` are good on samples that they have not seen.
    CheckDefaults(Options<check_defaults::Args>),
    /// Checks that 95 % intervals cover the truth 95 % of the time, for independent samples and
    /// chains.
    CheckErrors(Options<check_errors::Args>),
    /// Measures error and bias of the couplings when entries are missing at random.
    CheckMissing(Options<check_missing::Args>),
    /// Counts the verdicts of `mpf evaluate` on ten models and exact draws from them.
    CheckVerdicts(check_verdicts::Args),
    /// Measures the penalties that cross-validation and EBIC choose on lattices with known couplings.
    ChoosePenalty(Options<choose_penalty::Args>),
    /// Checks ICA and score matching at full size against bounds that were measured independently.
    CheckIca(Options<check_ica::Args>),
    /// Runs `mpf` on random data with random options and kills, and checks what it leaves.
    Soak(soak::Args),
    /// Makes a page of the results of `cargo bench`.
    BenchReport(bench_report::Args),
    /// Times the objective and whole fits against numpy and scipy, or evaluations against plmc.
    ComparePeers(compare_peers::Args),
    /// Times one evaluation of the objective and prints a JSON line.
    TimeObjective(time_objective::Args),
    /// Times streamed fits by ranks and threads, and predicts the time on many machines.
    MeasureScaling(Options<measure_scaling::Args, OutputArgs>),
    /// Measures autocorrelation, speed and error of every sampler on the paper's lattice.
    CompareSamplers(Options<compare_samplers::Args>),
}

/// Runs the command that the arguments of the process name.
pub fn main() -> ExitCode {
    ExitCode::from(execute(Cli::parse()))
}

/// Runs a command and returns the exit code.
fn execute(cli: Cli) -> u8 {
    let cancel = Cancel::new();
    let on_signal = cancel.clone();
    let handler = on_interrupt(move || on_signal.cancel());
    let outcome = handler.and_then(|()| match cli.command {
        Command::ReproduceFig1(all) => fig1::run(&all.own, &all.shared).map(drop),
        Command::ReproduceFig2(all) => fig2::run(&all.own, &all.shared, &cancel).map(drop),
        Command::ReproduceFig3(all) => fig3::run(&all.own, &all.shared, &cancel).map(drop),
        Command::ReproduceFigE1(all) => fig_e1::run(&all.own, &all.shared, &cancel).map(drop),
        Command::ReproduceFigF1(all) => fig_f1::run(&all.own, &all.shared, &cancel).map(drop),
        Command::ReproduceContacts(all) => reproduce_contacts::run(&all.own, &all.shared, &cancel),
        Command::ReproduceFitness(all) => reproduce_fitness::run(&all.own, &all.shared, &cancel),
        Command::ReproduceAll(run) => reproduce_all::run(&run, &cancel),
        Command::CompareEstimators(all) => compare_estimators::run(&all.own, &all.shared, &cancel),
        Command::CompareRbm(all) => compare_rbm::run(&all.own, &all.shared, &cancel),
        Command::CheckDefaults(all) => check_defaults::run(&all.own, &all.shared, &cancel),
        Command::CheckErrors(all) => check_errors::run(&all.own, &all.shared, &cancel),
        Command::CheckMissing(all) => check_missing::run(&all.own, &all.shared, &cancel),
        Command::CheckVerdicts(args) => check_verdicts::run(&args, &cancel),
        Command::ChoosePenalty(all) => choose_penalty::run(&all.own, &all.shared, &cancel),
        Command::CheckIca(all) => check_ica::run(&all.own, &all.shared, &cancel),
        Command::Soak(args) => soak::run(&args, &cancel),
        Command::BenchReport(args) => bench_report::run(&args),
        Command::ComparePeers(args) => compare_peers::run(&args),
        Command::TimeObjective(args) => time_objective::run(&args),
        Command::MeasureScaling(all) => measure_scaling::run(&all.own, &all.shared),
        Command::CompareSamplers(all) => compare_samplers::run(&all.own, &all.shared, &cancel),
    });
    match outcome {
        Ok(()) if !cancel.is_cancelled() => 0,
        Ok(()) => {
            eprintln!("interrupted");
            INTERRUPTED
        }
        // A step that was cut short may say so.
        Err(error) if cancel.is_cancelled() => {
            eprintln!("interrupted: {error}");
            INTERRUPTED
        }
        Err(error) => {
            eprintln!("error: {error}");
            1
        }
    }
}
