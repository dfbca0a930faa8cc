//! How well are known couplings recovered? Fits over several seeds at full size.

use crate::journal;
use crate::output::{digits, markdown_table};
use crate::{Result, progress};
use mpf_core::{Cancel, StopReason, rng};
use mpf_ising::{Boundary, FitOptions, Fitter, Lattice, Samples};
use mpf_samplers::ExactLattice;
use serde::{Deserialize, Serialize};

/// Options of `recover-lattice`.
#[derive(clap::Args, Serialize)]
pub struct Args {
    /// Side of the square lattice.
    #[arg(long, default_value_t = 10)]
    lattice: usize,
    /// Variance of the couplings J.
    #[arg(long, default_value_t = 1.0)]
    variance: f64,
    /// Independent samples per model.
    #[arg(long, default_value_t = 20_000)]
    samples: usize,
    /// Number of models.
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    first_seed: u64,
    /// Most iterations of a fit.
    #[arg(long, default_value_t = 1000)]
    max_iterations: usize,
    #[command(flatten)]
    #[serde(skip)]
    journal: journal::Options,
}

/// What is told of the fit of one model.
#[derive(Serialize, Deserialize)]
struct Recovery {
    error: f64,
    iterations: usize,
    seconds: f64,
    stop: StopReason,
    warnings: usize,
}

fn recover(args: &Args, seed: u64, cancel: &Cancel) -> Result<Recovery> {
    let lattice = Lattice::new(args.lattice, args.lattice, Boundary::Open)?;
    let truth = lattice.spin_glass(args.variance, &mut rng::stream(seed, 0))?;
    let states = ExactLattice::new(&truth, &lattice)?.draw(args.samples, rng::next_seed(seed));
    let mut options = FitOptions::default();
    options.minimizer.max_iterations = args.max_iterations;
    options.minimizer.cancel = cancel.clone();
    let fit = Fitter::new(options)?.fit(&Samples::new(&states)?)?;
    Ok(Recovery {
        error: fit.couplings.mean_square_error(&truth),
        iterations: fit.iterations,
        seconds: fit.seconds,
        stop: fit.stop,
        warnings: fit.warnings.len(),
    })
}

/// Runs the command.
pub fn run(args: &Args, cancel: &Cancel) -> Result {
    let (_, mut journal) = args.journal.open("recover-lattice", args, cancel)?;
    let bar = progress::bar(args.seeds).with_prefix("lattices");
    let mut rows = Vec::new();
    let mut errors = Vec::new();
    for seed in args.first_seed..args.first_seed + args.seeds {
        let name = format!("seed {seed}");
        let found = journal.unit(&name, |_| recover(args, seed, cancel))?;
        if cancel.is_cancelled() {
            break;
        }
        bar.inc(1);
        bar.set_message(format!("ε_J {}", digits(found.error)));
        errors.push(found.error);
        rows.push(vec![
            seed.to_string(),
            digits(found.error),
            found.iterations.to_string(),
            format!("{:.2}", found.seconds),
            found.stop.to_string(),
            found.warnings.to_string(),
        ]);
    }
    bar.finish_and_clear();
    let header = [
        "seed",
        "ε_J",
        "iterations",
        "seconds",
        "stopped because",
        "warnings",
    ];
    print!("{}", markdown_table(&header, &rows));
    let range = errors.iter().fold((f64::INFINITY, 0.0f64), |(lo, hi), &e| {
        (lo.min(e), hi.max(e))
    });
    if !errors.is_empty() {
        println!("\nε_J from {} to {}", digits(range.0), digits(range.1));
    }
    journal.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warm_lattice_is_recovered() {
        let args = Args {
            lattice: 10,
            variance: 1.0,
            samples: 20_000,
            seeds: 1,
            first_seed: 0,
            max_iterations: 1000,
            journal: journal::Options::default(),
        };
        let found = recover(&args, 3, &Cancel::new()).unwrap();
        assert!(found.stop.is_converged() && found.warnings == 0);
        // Ten seeds give .0014 to .0029, see `cargo xtask recover-lattice`.
        assert!((0.001..0.004).contains(&found.error), "{}", found.error);
    }
}
