//! Fits lattices with known couplings over several seeds, at full size.

use crate::Result;
use crate::glass::Glass;
use crate::output::{digits, markdown_table, tabulate};
use crate::run::{RunArgs, units};
use mpf_core::{Cancel, StopReason};
use mpf_ising::{FitOptions, Fitter, Mpf, Samples};
use serde::{Deserialize, Serialize};

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
    run: RunArgs,
}

/// The fit of one model.
#[derive(Serialize, Deserialize)]
struct Recovery {
    seed: u64,
    error: f64,
    iterations: usize,
    seconds: f64,
    stop: StopReason,
    warnings: usize,
}

fn recover(args: &Args, seed: u64, cancel: &Cancel) -> Result<Recovery> {
    let glass = Glass::draw(args.lattice, args.variance, args.samples, seed)?;
    let mut options = FitOptions::default();
    options.minimizer.max_iterations = args.max_iterations;
    options.minimizer.cancel = cancel.clone();
    let fit = Fitter::new(Mpf::default(), options)?.fit(&Samples::new(&glass.states)?)?;
    Ok(Recovery {
        seed,
        error: fit.couplings.mean_square_error(&glass.truth),
        iterations: fit.iterations,
        seconds: fit.seconds,
        stop: fit.stop,
        warnings: fit.warnings.len(),
    })
}

pub fn run(args: &Args, cancel: &Cancel) -> Result {
    args.run
        .run("recover-lattice", args, cancel, |output, checkpoint| {
            let seeds: Vec<u64> = (args.first_seed..args.first_seed + args.seeds).collect();
            let name = |seed| format!("seed {seed}");
            let all = units(checkpoint, "lattices", &seeds, name, |seed, bar| {
                let found = recover(args, seed, cancel)?;
                bar.set_message(format!("ε_J {}", digits(found.error)));
                Ok(found)
            })?;
            if all.is_empty() {
                return Ok(());
            }
            let (header, rows) = tabulate(
                &all,
                &[
                    ("seed", &|r| r.seed.to_string()),
                    ("ε_J", &|r| digits(r.error)),
                    ("iterations", &|r| r.iterations.to_string()),
                    ("seconds", &|r| format!("{:.2}", r.seconds)),
                    ("stopped because", &|r| r.stop.to_string()),
                    ("warnings", &|r| r.warnings.to_string()),
                ],
            );
            let least = all.iter().map(|r| r.error).fold(f64::INFINITY, f64::min);
            let most = all.iter().map(|r| r.error).fold(0.0, f64::max);
            let range = format!("ε_J from {} to {}", digits(least), digits(most));
            output.show(&markdown_table(&header, &rows), &[range])
        })
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
            run: RunArgs::default(),
        };
        let found = recover(&args, 3, &Cancel::new()).unwrap();
        assert!(found.stop.is_converged() && found.warnings == 0);
        // Ten seeds give .0014 to .0029, see `cargo xtask recover-lattice`.
        assert!((0.001..0.004).contains(&found.error), "{}", found.error);
    }
}
