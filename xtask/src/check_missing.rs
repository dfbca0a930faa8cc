//! Measures the error and the bias that missing entries cause.
//!
//! The models are lattices with J ~ N(0, 1); entries are missing completely at random. The slope
//! Σ K̂K / ΣK² over the true couplings is 1 without a bias.

use crate::Result;
use crate::output::{Output, digits, markdown_table};
use crate::run::{RunArgs, units};
use mpf_baselines::Pseudolikelihood;
use mpf_core::{Cancel, Checkpoint, rng};
use mpf_ising::{
    Boundary, FitOptions, Fitter, Incomplete, Lattice, MissingRule, Mpf, States, Support,
};
use mpf_samplers::ExactLattice;
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
    #[command(flatten)]
    #[serde(skip)]
    run: RunArgs,
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
        let lattice = Lattice::new(self.side, self.side, Boundary::Open)?;
        let truth = lattice.spin_glass(1.0, &mut rng::stream(seed, 0))?;
        let states = ExactLattice::new(&truth, &lattice)?.draw(n, rng::next_seed(seed));
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

pub fn run(args: &Args, cancel: &Cancel) -> Result {
    let work = |output: &Output, checkpoint: &Checkpoint| {
        let table = table(args, checkpoint, cancel)?;
        table.map_or(Ok(()), |table| output.show(&table, &[]))
    };
    args.run.run("check-missing", args, cancel, work)
}

/// Returns `None` when cancelled.
fn table(args: &Args, checkpoint: &Checkpoint, cancel: &Cancel) -> Result<Option<String>> {
    let lines = lines();
    let seeds: Vec<u64> = (0..args.seeds).collect();
    let mut rows = Vec::new();
    for (line, setting) in lines.iter().enumerate() {
        for share in [0.0, 0.05, 0.2] {
            let prefix = format!("line {line}, {share} missing");
            let name = |seed| format!("{prefix}, seed {seed}");
            let fits = units(
                checkpoint,
                cancel,
                prefix.clone(),
                &seeds,
                name,
                |seed, _| setting.fit(share, seed, args.samples),
            )?;
            if cancel.is_cancelled() {
                return Ok(None);
            }
            let (mut error, mut left_out, mut rounds) = (0.0, 0.0, 0);
            let (mut product, mut square) = (0.0, 0.0);
            for found in fits {
                error += found.error / args.seeds as f64;
                left_out += found.left_out / args.seeds as f64;
                rounds = rounds.max(found.rounds);
                product += found.product;
                square += found.square;
            }
            let estimator = if setting.by_pl { "PL" } else { "MPF" };
            let couplings = if setting.lattice_only {
                "lattice"
            } else {
                "all"
            };
            let rule = match setting.rule {
                MissingRule::LeaveOut => "flips left out",
                MissingRule::Complete { .. } => "completed",
            };
            rows.push(vec![
                estimator.into(),
                format!("{0} × {0}, {couplings} couplings", setting.side),
                rule.into(),
                format!("{:.0} %", 100.0 * share),
                digits(error),
                format!("{:.3}", product / square),
                format!("{:.1} %", 100.0 * left_out),
                rounds.to_string(),
            ]);
        }
    }
    let header = [
        "estimator",
        "model",
        "rule",
        "missing",
        "ε_J",
        "slope",
        "left out",
        "rounds",
    ];
    Ok(Some(markdown_table(&header, &rows)))
}
