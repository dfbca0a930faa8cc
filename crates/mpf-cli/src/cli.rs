//! The command line.

use crate::console::{self, Console};
use crate::failure::{Failure, WRONG_INPUT};
use crate::methods::name_parser;
use crate::{compare, convert, dca, demo, evaluate, fit, pack, ranks, sample};
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use mpf_baselines::Methods;
use mpf_core::Cancel;
use mpf_report::progress;
use std::ffi::OsString;
use std::num::NonZero;

const EXIT_CODES: &str = "\
Examples:
  mpf demo                                                   a recording to try
  mpf fit retina.csv -o model.json                           the default fit
  mpf fit retina.csv --errors sandwich -o model.json         with error bars
  mpf evaluate model.json retina.csv -o report.html          a report
  mpf compare retina.csv -o compare.html                     which method suits the data

Exit codes:
  0    done
  1    something failed on the way, such as a full disk
  2    wrong input or option; nothing was written
  3    the model is written, but the fit did not converge
  4    the model is written, but a step after the fit failed, such as the error bars, or was left
       out for --max-seconds
  5    out of memory; nothing was written except the checkpoint, with --checkpoint
  130  interrupted; nothing was written except the checkpoint, with --checkpoint

Results go to standard output, everything else to standard error. Colours appear only on a terminal,
never with NO_COLOR. The number of threads changes no digit of any result.";

/// Fits Ising models to binary data, and Potts models to aligned sequences, by minimum probability
/// flow and its rivals.
#[derive(Parser, Debug)]
#[command(name = "mpf", version, max_term_width = 100, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    console: Console,
    /// Number of threads; by default all cores
    #[arg(long, global = true, value_name = "N", help_heading = "Everywhere")]
    threads: Option<usize>,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Fit a model to data
    #[command(after_help = "\
Examples:
  mpf fit spikes.npy -o model.json
  mpf fit spins.csv --spins --method pl --l1 auto --errors sandwich -o model.npz
  mpf fit counts.csv.gz --binarize --index --drop age -o model.json
  mpf fit answers.csv --levels 1,2 --missing drop -o model.json
  mpf fit spikes.npy --model rbm --hidden 20 -o rbm.json
  mpf sample model.json -o - | mpf fit - -o again.json

With --checkpoint an interrupted fit can be continued:
  mpf fit spikes.npy -o model.json --checkpoint fit.ckpt --resume
starts afresh if there is no fit.ckpt and continues if there is one: a cluster that stops and restarts
jobs can run it as it is. The checkpoint keeps the penalties that were tried, the iterations of the
fit, the updates of CD and --polish, and the resamples of the bootstrap; the sandwich is computed
again. The data and all settings must be the same.

A unit that never changes gets no couplings and the bias ln((1-p)/p), p = (n + 1/2)/(M + 1), where n
of M samples are 1.")]
    Fit(Box<fit::FitArgs>),
    /// Compare methods on held-out data
    #[command(after_help = "\
Example:
  mpf compare spikes.npy --methods mpf,pl,independent -o compare.html
  mpf compare spikes.npy --methods auto --hidden 20          with RBMs and a K-pairwise model")]
    Compare(Box<compare::CompareArgs>),
    /// Draw states from a model
    #[command(after_help = "\
Example:
  mpf sample model.json -n 10000 --sampler gibbs -o x.npy")]
    Sample(sample::SampleArgs),
    /// Compare a model with data: numbers and a report
    #[command(after_help = "\
Example:
  mpf evaluate model.json spikes.npy -o report.html -o evaluation.json")]
    Evaluate(Box<evaluate::EvaluateArgs>),
    /// Find contacts in an alignment of protein or RNA sequences
    #[command(after_help = "\
Examples:
  mpf dca family.a2m.gz --focus DYR_ECOLI -o scores.csv
  mpf dca family.fasta --method mpf -o scores.csv -o model.npz -o report.html
  mpf dca family.a3m --focus 1ABC --structure 1abc.pdb -o report.html -o scores.csv
  mpf dca family.a2m --focus P0 --ignore-gaps --ambiguous drop --units plmc --l2 16 --l2-fields 0.01
      -o scores.csv                                          plmc's settings

Scores are Frobenius norms of the couplings in the zero-sum gauge, without the gap, with the average
product correction. docs/potts.md is the guide.")]
    Dca(Box<dca::DcaArgs>),
    /// Change the form or convention of a model file
    #[command(after_help = "\
Examples:
  mpf convert model.json -o model.npz
  mpf convert model.json --to spins -o spins.csv
  mpf convert learned.csv --assume spins -o model.json")]
    Convert(convert::ConvertArgs),
    /// Pack data into a file of bits that can be larger than memory
    #[command(after_help = "\
Examples:
  mpf pack spikes.npy -o spikes.bits
  mpf pack monday.csv.gz tuesday.csv.gz -o both.bits
  mpf sample model.json -n 100000000 -o - | mpf pack - -o draws.bits
  mpf fit spikes.bits -o model.json --memory 300

docs/packed-file.md describes the format.")]
    Pack(Box<pack::PackArgs>),
    /// Write a synthetic recording with known couplings
    #[command(after_help = "\
Example:
  mpf demo -o retina.csv --truth retina-truth.json")]
    Demo(demo::DemoArgs),
    /// Print completions for a shell
    #[command(after_help = "\
Example:
  mpf completions bash > ~/.local/share/bash-completion/completions/mpf")]
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// Returns the command line, with `methods` in its help.
pub fn command(methods: &Methods) -> clap::Command {
    let parser = name_parser(methods);
    Cli::command()
        .mut_subcommand("fit", |fit| {
            fit.mut_arg("method", |method| method.value_parser(parser.clone()))
        })
        .mut_subcommand("compare", |compare| {
            // A comparison takes penalties as they are given.
            compare
                .mut_arg("methods", |names| names.value_parser(parser))
                .mut_arg("l1", |l1| {
                    l1.value_name("λ")
                        .help("λ₁ on Σ|K_ij| (spin couplings) [default: 0]")
                })
                .mut_arg("l2", |l2| {
                    l2.value_name("λ")
                        .help("λ₂ on ½ΣK_ij² [default: 1/M, and a plain entry without]")
                })
        })
}

/// Parses `arguments`, the name of the program first, runs the command and returns the exit code.
pub fn run<I, T>(arguments: I, methods: &Methods, cancel: &Cancel) -> u8
where
    I: IntoIterator<Item = T>,
    T: Into<OsString> + Clone,
{
    let parsed = command(methods).try_get_matches_from(arguments);
    match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => execute(&cli, methods, cancel),
        Err(error) => {
            // Help and the version come this way too.
            let _ = error.print();
            if let Some(name) = meant(&error, methods) {
                console::hint(&format!("did you mean `mpf {name}`?"));
            }
            u8::try_from(error.exit_code()).unwrap_or(WRONG_INPUT)
        }
    }
}

fn execute(cli: &Cli, methods: &Methods, cancel: &Cancel) -> u8 {
    let console = cli.console;
    if console.quiet {
        progress::hide();
    }
    let is_shared = match &cli.command {
        Command::Fit(args) => args.is_shared(),
        Command::Sample(_) => true,
        _ => false,
    };
    let started = threads(cli.threads).and_then(|()| ranks::check(is_shared));
    let outcome = started.and_then(|()| match &cli.command {
        Command::Fit(args) => fit::run(args, methods, console, cancel),
        Command::Compare(args) => compare::run(args, methods, console, cancel),
        Command::Sample(args) => sample::run(args, console, cancel),
        Command::Evaluate(args) => evaluate::run(args, console, cancel),
        Command::Dca(args) => dca::run(args, console, cancel),
        Command::Convert(args) => convert::run(args, console),
        Command::Pack(args) => pack::run(args, console, cancel),
        Command::Demo(args) => demo::run(args, console, cancel),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut command(methods), "mpf", &mut script);
            console::print(&String::from_utf8_lossy(&script)).map(|()| 0)
        }
    });
    outcome.unwrap_or_else(|failure| {
        Console::failure(&failure);
        failure.code
    })
}

/// Returns the command whose letters were typed in another order, which clap does not suggest.
fn meant(error: &clap::Error, methods: &Methods) -> Option<String> {
    let typed = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(typed)) => typed,
        _ => return None,
    };
    let sorted = |word: &str| {
        let mut letters: Vec<char> = word.chars().collect();
        letters.sort_unstable();
        letters
    };
    let known = command(methods);
    let mut names = known.get_subcommands().map(clap::Command::get_name);
    let found = names.find(|name| sorted(name) == sorted(typed));
    found.map(str::to_owned)
}

/// The most threads that may be asked for on a machine with fewer cores.
const MAX_THREADS: usize = 1024;

fn threads(wanted: Option<usize>) -> Result<(), Failure> {
    let Some(n) = wanted else {
        return Ok(());
    };
    if n == 0 {
        return Err(Failure::input("--threads 0 asks for no threads").hint("ask for at least one"));
    }
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let most = cores.max(MAX_THREADS);
    if n > most {
        let why = format!("--threads {n} asks for more than {most} threads");
        return Err(Failure::input(why).hint(format!(
            "this machine has {cores} cores: more threads do not help"
        )));
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(n);
    let started = pool.build_global();
    started.map_err(|error| Failure::system(format!("cannot start {n} threads: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command(&Methods::default()).debug_assert();
    }

    #[test]
    fn letters_in_another_order_name_the_command() {
        let methods = Methods::default();
        let wrong = |word: &str| {
            let error = command(&methods)
                .try_get_matches_from(["mpf", word])
                .unwrap_err();
            meant(&error, &methods)
        };
        assert_eq!(wrong("fti").as_deref(), Some("fit"));
        assert_eq!(wrong("nothing"), None);
    }
}
