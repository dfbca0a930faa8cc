//! What do missing entries cost, and do they bias the couplings?
//!
//! Lattices with J ~ N(0, 1), entries missing completely at random. The slope Σ K̂K / ΣK² over the
//! true couplings shows a bias of their size: 1 without one.

use crate::journal;
use crate::output::{digits, markdown_table};
use crate::{Result, progress};
use mpf_baselines::PseudolikelihoodSum;
use mpf_core::{Cancel, rng};
use mpf_ising::{
    Boundary, FitOptions, Fitter, Incomplete, Lattice, MissingRule, Mpf, States, Support,
};
use mpf_samplers::ExactLattice;
use rand::RngExt;
use serde::{Deserialize, Serialize};

/// Options of `check-missing`.
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
    journal: journal::Options,
}

/// What is told of a fit.
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
    pseudolikelihood: bool,
}

fn settings() -> Vec<Setting> {
    let mut settings = Vec::new();
    for pseudolikelihood in [false, true] {
        for (side, lattice_only, rule) in [
            (6, true, MissingRule::LeaveOut),
            (4, false, MissingRule::LeaveOut),
            (4, false, MissingRule::complete()),
        ] {
            settings.push(Setting {
                side,
                lattice_only,
                rule,
                pseudolikelihood,
            });
        }
    }
    settings
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
        let fitter = Fitter::new(FitOptions {
            support: if self.lattice_only {
                Support::lattice(&lattice)
            } else {
                Support::Full
            },
            ..Default::default()
        })?;
        let found = if self.pseudolikelihood {
            fitter.fit_incomplete(&PseudolikelihoodSum, &data, self.rule)?
        } else {
            fitter.fit_incomplete(&Mpf::default(), &data, self.rule)?
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

/// Runs the command.
pub fn run(args: &Args, cancel: &Cancel) -> Result {
    let (_, mut journal) = args.journal.open("check-missing", args, cancel)?;
    let settings = settings();
    let bar = progress::bar(settings.len() as u64 * 3 * args.seeds).with_prefix("fits");
    let mut rows = Vec::new();
    for (line, setting) in settings.iter().enumerate() {
        for share in [0.0, 0.05, 0.2] {
            let (mut error, mut left_out, mut rounds) = (0.0, 0.0, 0);
            let (mut product, mut square) = (0.0, 0.0);
            for seed in 0..args.seeds {
                let name = format!("line {line}, {share} missing, seed {seed}");
                let found = journal.unit(&name, |_| setting.fit(share, seed, args.samples))?;
                if cancel.is_cancelled() {
                    return journal.finish();
                }
                bar.inc(1);
                error += found.error / args.seeds as f64;
                left_out += found.left_out / args.seeds as f64;
                rounds = rounds.max(found.rounds);
                product += found.product;
                square += found.square;
            }
            rows.push(vec![
                if setting.pseudolikelihood {
                    "PL"
                } else {
                    "MPF"
                }
                .into(),
                format!(
                    "{0} × {0}, {1}",
                    setting.side,
                    if setting.lattice_only {
                        "lattice couplings"
                    } else {
                        "all couplings"
                    }
                ),
                match setting.rule {
                    MissingRule::LeaveOut => "flips left out",
                    MissingRule::Complete { .. } => "completed",
                }
                .into(),
                format!("{:.0} %", 100.0 * share),
                digits(error),
                format!("{:.3}", product / square),
                format!("{:.1} %", 100.0 * left_out),
                rounds.to_string(),
            ]);
        }
    }
    bar.finish_and_clear();
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
    print!("{}", markdown_table(&header, &rows));
    journal.finish()
}
