//! Measures the penalties that cross-validation and EBIC choose.
//!
//! The problems are a ±K lattice, where the graph is to be found, and the paper's cold spin glass,
//! where couplings run away without a penalty. All couplings are free; folds are five blocks.

use crate::output::{Output, Table, digits};
use crate::run::RunArgs;
use crate::{Result, progress};
use mpf_baselines::{Method, MethodOptions, Methods};
use mpf_core::{Cancel, Checkpoint, rng};
use mpf_ising::internal::pairs;
use mpf_ising::{
    Boundary, Couplings, Lattice, PathOptions, PenaltyPath, Rule, SpinCouplings, States,
};
use mpf_samplers::ExactLattice;
use rand::RngExt;
use serde::Serialize;
use std::time::Instant;

#[derive(clap::Args, Serialize)]
pub struct Args {
    /// Models per problem.
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// Only this problem.
    #[arg(long)]
    only: Option<Problem>,
    /// Only this estimator.
    #[arg(long, value_parser = METHODS)]
    method: Option<String>,
}

/// A lattice and its samples.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum, Serialize)]
enum Problem {
    /// |K| = .4 with random signs, M = 5000.
    Graph,
    /// J ~ N(0, 10), M = 20,000.
    Glass,
}

const METHODS: [&str; 3] = ["mpf", "pl", "rise"];

const RULES: [(Rule, &str); 3] = [
    (Rule::Minimum, "minimum"),
    (Rule::OneStandardError, "one standard error"),
    (Rule::Ebic, "EBIC"),
];

impl Problem {
    fn title(self) -> &'static str {
        match self {
            Self::Graph => "±K lattice, |K| = .4, M = 5000",
            Self::Glass => "spin glass, J ~ N(0, 10), M = 20,000",
        }
    }

    fn make(self, seed: u64) -> Result<(Couplings, States)> {
        let lattice = Lattice::new(10, 10, Boundary::Open)?;
        let mut rng = rng::stream(seed, 0);
        let (truth, n_samples) = match self {
            Self::Graph => (plus_minus(&lattice, 0.4, &mut rng)?, 5000),
            Self::Glass => (lattice.spin_glass(10.0, &mut rng)?, 20_000),
        };
        let states = ExactLattice::new(&truth, &lattice)?.draw(n_samples, rng::next_seed(seed));
        Ok((truth, states))
    }
}

/// Draws K_ij = ±`size` on the edges of a lattice, without field.
fn plus_minus(lattice: &Lattice, size: f64, rng: &mut impl rand::Rng) -> Result<Couplings> {
    let edges = lattice.edges();
    let mut sign = || if rng.random::<bool>() { size } else { -size };
    let couplings: Vec<f64> = edges.iter().map(|_| sign()).collect();
    let fields = vec![0.0; lattice.n_units()];
    let spins = SpinCouplings::of_pairs(&fields, &edges, &couplings);
    Ok(Couplings::from_spins(&spins)?)
}

/// Counts true edges that were missed, and false edges.
fn wrong_edges(found: &Couplings, truth: &Couplings) -> (usize, usize) {
    let count = |of: &Couplings, not_of: &Couplings| {
        let edges = pairs(truth.n_units()).filter(|&(i, j)| of.get(i, j) != 0.0);
        edges.filter(|&(i, j)| not_of.get(i, j) == 0.0).count()
    };
    (count(truth, found), count(found, truth))
}

/// Runs one method on one model and returns a row for every rule.
fn rows(
    problem: Problem,
    method: &dyn Method,
    seed: u64,
    checkpoint: &Checkpoint,
) -> Result<Vec<Vec<String>>> {
    let (truth, states) = problem.make(seed)?;
    let mut options = MethodOptions {
        l2: Some(0.0),
        ..Default::default()
    };
    options.minimizer.gradient_tolerance = 1e-5;
    options.minimizer.cancel = checkpoint.cancel();
    let path = PenaltyPath::default();
    let clock = Instant::now();
    let bar = progress::bar(PathOptions::default().n_lambdas as u64).with_prefix("penalties");
    let found = method.cross_validate(&path, &states, &options, &mut |_| bar.inc(1))?;
    bar.finish_and_clear();
    let seconds = clock.elapsed().as_secs_f64();
    let row = |(rule, name): (Rule, &str)| {
        let point = found.chosen_by(rule).expect("the path is of λ₁");
        let (missed, false_ones) = wrong_edges(&point.fit.couplings, &truth);
        vec![
            seed.to_string(),
            method.describe().title.into(),
            name.into(),
            digits(point.lambda),
            digits(point.fit.couplings.mean_square_error(&truth)),
            missed.to_string(),
            false_ones.to_string(),
            format!("{:.0e}", point.fit.kkt_residual),
            format!("{seconds:.1}"),
        ]
    };
    Ok(RULES.map(row).to_vec())
}

const HEADER: [&str; 9] = [
    "seed",
    "method",
    "rule",
    "λ₁",
    "ε_J",
    "edges missed",
    "false edges",
    "KKT residual",
    "seconds",
];

pub fn run(args: &Args, run: &RunArgs, cancel: &Cancel) -> Result {
    let work =
        |output: &Output, checkpoint: &Checkpoint| output.show(&tables(args, checkpoint)?, &[]);
    run.run("choose-penalty", args, cancel, work)
}

fn tables(args: &Args, checkpoint: &Checkpoint) -> Result<String> {
    let methods = Methods::default();
    let mut tables = Vec::new();
    for problem in [Problem::Graph, Problem::Glass] {
        if args.only.is_some_and(|only| only != problem) {
            continue;
        }
        let mut table = Vec::new();
        for seed in 0..args.seeds {
            for name in METHODS {
                if args.method.as_ref().is_some_and(|only| only != name) {
                    continue;
                }
                let method = methods.find(name).expect("it is listed");
                let name = format!("{problem:?}, seed {seed}, {}", method.describe().title);
                let found = checkpoint.unit(name, |unit| rows(problem, method, seed, unit));
                checkpoint.check_cancelled()?;
                table.extend(found?);
            }
        }
        let table = Table::new(HEADER, table).markdown();
        tables.push(format!("## {}\n\n{table}", problem.title()));
    }
    Ok(tables.join("\n"))
}
