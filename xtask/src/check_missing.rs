//! Measures the error and the bias that missing entries cause.
//!
//! The models are lattices with J ~ N(0, 1); entries are missing completely at random. The slope
//! Σ K̂K / ΣK² over the true couplings is 1 without a bias.

use crate::Result;
use crate::glass::Glass;
use crate::output::{Output, Table, digits};
use crate::run::{RunArgs, units};
use mpf_baselines::Pseudolikelihood;
use mpf_core::{Cancel, Checkpoint, rng};
use mpf_ising::{FitOptions, Fitter, Incomplete, MissingRule, Mpf, States, Support};
use rand::RngExt;
use serde::{Deserialize, Serialize};

#[derive(clap::Args, Serialize)]
pub struct Args {
    /// Models per line.
    #[arg(long, default_value_t = 5)]
    seeds: u64,
    /// Samples per model.
    #[arg(long, default_value_t = 20_000)]
    samples: usize,
}

#[derive(Serialize, Deserialize)]
struct Found {
    /// ε_J.
    error: f64,
    left_out: f64,
    rounds: usize,
    /// Σ K̂K.
    product: f64,
    /// Σ K².
    square: f64,
}

/// One line of the table.
#[derive(Clone, Copy)]
struct Setting {
    side: usize,
    lattice_only: bool,
    rule: MissingRule,
    by_pl: bool,
}

fn lines() -> Vec<Setting> {
    let mut lines = Vec::new();
    for by_pl in [false, true] {
        for (side, lattice_only, rule) in [
            (6, true, MissingRule::LeaveOut),
            (4, false, MissingRule::LeaveOut),
            (4, false, MissingRule::complete()),
        ] {
            lines.push(Setting {
                side,
                lattice_only,
                rule,
                by_pl,
            });
        }
    }
    lines
}

impl Setting {
    fn fit(&self, share: f64, seed: u64, n: usize) -> Result<Found> {
        let Glass {
            lattice,
            truth,
            states,
        } = Glass::draw(self.side, 1.0, n, seed)?;
        let mut random = rng::stream(seed, 1);
        let shape = (n, lattice.n_units());
        let mask = ndarray::Array2::from_shape_simple_fn(shape, || random.random::<f64>() < share);
        let data = Incomplete::new(&states, &States::from_binary(mask.view())?)?;
        let options = FitOptions {
            support: if self.lattice_only {
                Support::lattice(&lattice)
            } else {
                Support::Full
            },
            ..Default::default()
        };
        let found = if self.by_pl {
            Fitter::new(Pseudolikelihood, options)?.fit_incomplete(&data, self.rule)?
        } else {
            Fitter::new(Mpf::default(), options)?.fit_incomplete(&data, self.rule)?
        };
        let estimate = found.fit.couplings.to_spins().couplings;
        let couplings = truth.to_spins().couplings;
        Ok(Found {
            error: found.fit.couplings.mean_square_error(&truth),
            left_out: found.left_out_fraction,
            rounds: found.rounds,
            product: (&estimate * &couplings).sum(),
            square: (&couplings * &couplings).sum(),
        })
    }
}

pub fn run(args: &Args, run: &RunArgs, cancel: &Cancel) -> Result {
    let work =
        |output: &Output, checkpoint: &Checkpoint| output.show(&table(args, checkpoint)?, &[]);
    run.run("check-missing", args, cancel, work)
}

fn table(args: &Args, checkpoint: &Checkpoint) -> Result<String> {
    let seeds: Vec<u64> = (0..args.seeds).collect();
    let mut found = Vec::new();
    for (line, setting) in lines().into_iter().enumerate() {
        for share in [0.0, 0.05, 0.2] {
            let prefix = format!("line {line}, {share} missing");
            let name = |seed| format!("{prefix}, seed {seed}");
            let fit = |seed, _: &_| setting.fit(share, seed, args.samples);
            let fits = units(checkpoint, prefix.clone(), &seeds, name, fit)?;
            checkpoint.check_cancelled()?;
            found.push((setting, share, fits));
        }
    }
    let sum = |fits: &[Found], of: fn(&Found) -> f64| fits.iter().map(of).sum::<f64>();
    let mean = |fits: &[Found], of| sum(fits, of) / args.seeds as f64;
    let table = Table::of(
        &found,
        &[
            ("estimator", &|(s, ..)| {
                if s.by_pl { "PL" } else { "MPF" }.into()
            }),
            ("model", &|(s, ..)| {
                let couplings = if s.lattice_only { "lattice" } else { "all" };
                format!("{0} × {0}, {couplings} couplings", s.side)
            }),
            ("rule", &|(s, ..)| match s.rule {
                MissingRule::LeaveOut => "flips left out".into(),
                MissingRule::Complete { .. } => "completed".into(),
            }),
            ("missing", &|(_, share, _)| {
                format!("{:.0} %", 100.0 * share)
            }),
            ("ε_J", &|(.., fits)| digits(mean(fits, |f| f.error))),
            ("slope", &|(.., fits)| {
                format!("{:.3}", sum(fits, |f| f.product) / sum(fits, |f| f.square))
            }),
            ("left out", &|(.., fits)| {
                format!("{:.1} %", 100.0 * mean(fits, |f| f.left_out))
            }),
            ("rounds", &|(.., fits)| {
                let most = fits.iter().map(|f| f.rounds).max();
                most.unwrap_or(0).to_string()
            }),
        ],
    );
    Ok(table.markdown())
}
