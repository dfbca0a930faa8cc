//! How well are known couplings recovered? Fits over several seeds at full size.

use crate::output::{digits, markdown_table};
use crate::{Result, progress};
use mpf_core::{Cancel, rng};
use mpf_ising::{Boundary, FitOptions, Fitter, Lattice, Samples};
use mpf_samplers::ExactLattice;

/// Options of `recover-lattice`.
#[derive(clap::Args)]
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
}

/// One model and its fit.
struct Recovery {
    error: f64,
    fit: mpf_ising::Fit,
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
        fit,
    })
}

/// Runs the command.
pub fn run(args: &Args, cancel: &Cancel) -> Result {
    let bar = progress::bar(args.seeds).with_prefix("lattices");
    let mut rows = Vec::new();
    let mut errors = Vec::new();
    for seed in args.first_seed..args.first_seed + args.seeds {
        let found = recover(args, seed, cancel)?;
        if cancel.is_cancelled() {
            break;
        }
        bar.inc(1);
        bar.set_message(format!("ε_J {}", digits(found.error)));
        errors.push(found.error);
        rows.push(vec![
            seed.to_string(),
            digits(found.error),
            found.fit.iterations.to_string(),
            format!("{:.2}", found.fit.seconds),
            found.fit.stop.to_string(),
            found.fit.warnings.len().to_string(),
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
    Ok(())
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
        };
        let found = recover(&args, 3, &Cancel::new()).unwrap();
        assert!(found.fit.stop.is_converged() && found.fit.warnings.is_empty());
        // Ten seeds give .0014 to .0029, see `cargo xtask recover-lattice`.
        assert!((0.001..0.004).contains(&found.error), "{}", found.error);
    }
}
