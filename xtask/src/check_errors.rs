//! Checks that 95 % intervals, the estimate ± 1.96 standard errors, cover the truth 95 % of the
//! time, on twenty units, and of penalised fits on eight.
//!
//! The data are independent draws from a model with all couplings, K ~ N(0, .15²), h ~ N(−.3, .3²),
//! and a Gibbs chain on a 4×5 ferromagnet. The chain is recorded after every fourth update of a
//! unit, so that successive samples are nearly the same. Whole sweeps between samples would not do:
//! the scores of MPF and PL are conditional on the other units and decorrelate within a sweep.
//!
//! Penalised fits are those of `Recipe`, whose intervals are centred on the estimate without the
//! penalty.

use crate::Result;
use crate::glass::{lower_triangle, symmetric};
use crate::output::{Output, Table, check_expectations};
use crate::run::{RunArgs, units};
use mpf_baselines::{ErrorBarsBy, Method, MethodOptions, Methods, Recipe};
use mpf_core::{Cancel, Checkpoint, rng};
use mpf_ising::{
    BootstrapOptions, Boundary, Couplings, ErrorBars, FitOptions, Fitter, Lattice, PathOptions,
    Rule, Samples, SpinCouplings, States, bootstrap,
};
use mpf_samplers::{ExactEnumeration, Gibbs, diagnostics};
use ndarray::Array1;
use rand::RngExt;
use rand_distr::{Distribution, Normal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

#[derive(clap::Args, Serialize)]
pub struct Args {
    /// Data sets of each kind.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    repetitions: u64,
    /// Independent samples of a data set.
    #[arg(long, default_value_t = 5000)]
    samples: usize,
    /// Samples of a correlated data set.
    #[arg(long, default_value_t = 20_000)]
    correlated_samples: usize,
    /// Updates of single units between two samples.
    #[arg(long, default_value_t = 4)]
    updates: usize,
    /// Samples in a block.
    #[arg(long, default_value_t = 200)]
    block: usize,
    /// Data sets that are also bootstrapped.
    #[arg(long, default_value_t = 20)]
    bootstrapped: u64,
    /// Seed of the models, samples and resamples.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const N_UNITS: usize = 20;

/// Counts how often intervals covered the truth, and all intervals.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Coverage {
    fields: [usize; 2],
    couplings: [usize; 2],
    /// Σ (estimate − truth)² and Σ (standard error)².
    squares: [f64; 2],
}

impl Coverage {
    fn of(truth: &SpinCouplings, fit: &Couplings, bars: &ErrorBars) -> Self {
        let fit = bars.corrected.as_ref().unwrap_or(fit).to_spins();
        let mut found = Self::default();
        for i in 0..truth.fields.len() {
            found.add_one(true, fit.fields[i] - truth.fields[i], bars.fields[i]);
            for j in 0..i {
                let off = fit.couplings[[i, j]] - truth.couplings[[i, j]];
                found.add_one(false, off, bars.couplings[i][j]);
            }
        }
        found
    }

    fn add_one(&mut self, is_field: bool, off: f64, error: f64) {
        let count = if is_field {
            &mut self.fields
        } else {
            &mut self.couplings
        };
        count[0] += usize::from(off.abs() < 1.96 * error);
        count[1] += 1;
        self.squares[0] += off * off;
        self.squares[1] += error * error;
    }

    fn merge(&mut self, other: &Self) {
        for k in 0..2 {
            self.fields[k] += other.fields[k];
            self.couplings[k] += other.couplings[k];
            self.squares[k] += other.squares[k];
        }
    }

    fn share(count: [usize; 2]) -> f64 {
        count[0] as f64 / count[1] as f64
    }

    fn row(&self, name: impl Into<String>, expected: &str, holds: bool) -> Vec<String> {
        let percent = |count| format!("{:.1} %", 100.0 * Self::share(count));
        vec![
            name.into(),
            percent(self.fields),
            percent(self.couplings),
            format!("{:.2}", (self.squares[1] / self.squares[0]).sqrt()),
            expected.into(),
            if holds { "pass" } else { FAIL }.into(),
        ]
    }

    /// Checks the couplings alone, for few repetitions: the fields of one fit are correlated, so a
    /// handful of fits says little about them.
    fn couplings_are_right(&self) -> bool {
        (0.92..=0.98).contains(&Self::share(self.couplings))
    }

    fn is_right(&self) -> bool {
        self.couplings_are_right() && (0.92..=0.98).contains(&Self::share(self.fields))
    }
}

fn method(name: &str) -> Result<&'static dyn Method> {
    Ok(Methods::default().find(name).ok_or("no such method")?)
}

/// Returns the intervals of fits without penalty: of the sandwich for every method and block length,
/// then of the bootstrap of MPF for every block length.
fn unpenalised(
    methods: &[&str],
    truth: &SpinCouplings,
    states: &States,
    blocks: &[usize],
    args: &Args,
    repetition: u64,
) -> Result<Vec<Coverage>> {
    let options = MethodOptions {
        l2: Some(0.0),
        ..Default::default()
    };
    let samples = Samples::new(states)?;
    let mut found = Vec::new();
    for name in methods {
        let method = method(name)?;
        let fit = method.fit((&samples).into(), &options, &mut |_| {})?;
        for &block in blocks {
            let bars = method.sandwich(&fit.couplings, states, block, &options)?;
            found.push(Coverage::of(truth, &fit.couplings, &bars));
        }
    }
    for &block in blocks {
        found.push(if repetition < args.bootstrapped {
            resampled(truth, states, &samples, block, args.seed)?
        } else {
            Coverage::default()
        });
    }
    Ok(found)
}

/// Fits by MPF, and returns the intervals of the bootstrap.
fn resampled(
    truth: &SpinCouplings,
    states: &States,
    samples: &Samples,
    block_length: usize,
    seed: u64,
) -> Result<Coverage> {
    let fitter: Fitter = Fitter::default();
    let couplings = fitter.fit(samples)?.couplings;
    let options = BootstrapOptions {
        block_length,
        seed,
        ..Default::default()
    };
    let warm = fitter.with_options(FitOptions {
        start: Some(couplings.clone()),
        ..Default::default()
    })?;
    let bars = bootstrap(states, &options, |resample| {
        Ok::<_, mpf_ising::Error>(warm.fit(resample)?.couplings)
    })?;
    Ok(Coverage::of(truth, &couplings, &bars))
}

/// Adds up the intervals of all repetitions, line by line.
fn merged(repetitions: &[Vec<Coverage>]) -> Vec<Coverage> {
    let mut all = vec![Coverage::default(); repetitions[0].len()];
    for one in repetitions {
        all.iter_mut()
            .zip(one)
            .for_each(|(all, one)| all.merge(one));
    }
    all
}

/// Returns the results of all repetitions.
fn repeat<T: Serialize + DeserializeOwned>(
    args: &Args,
    checkpoint: &Checkpoint,
    what: &'static str,
    work: impl Fn(u64) -> Result<T>,
) -> Result<Vec<T>> {
    let repetitions: Vec<u64> = (0..args.repetitions).collect();
    let name = |repetition| format!("{what} {repetition}");
    let all = units(checkpoint, what, &repetitions, name, |r, _| work(r))?;
    checkpoint.check_cancelled()?;
    Ok(all)
}

fn dense_model(n_units: usize, seed: u64) -> Result<Couplings> {
    let mut rng = rng::stream(seed, 0);
    let strength = Normal::new(0.0, 0.15)?;
    let places = lower_triangle(n_units).filter(|(i, j)| i != j);
    let couplings = symmetric(n_units, places, |_, _| strength.sample(&mut rng));
    let field = Normal::new(-0.3, 0.3)?;
    let fields = Array1::from_shape_simple_fn(n_units, || field.sample(&mut rng));
    Ok(Couplings::from_spins(&SpinCouplings { fields, couplings })?)
}

fn ferromagnet() -> Result<Couplings> {
    let edges = Lattice::new(4, 5, Boundary::Open)?.edges();
    let couplings = vec![0.4; edges.len()];
    let spins = SpinCouplings::of_pairs(&[0.0; N_UNITS], &edges, &couplings);
    Ok(Couplings::from_spins(&spins)?)
}

/// Records a sample after every few updates of random units, from an exact draw.
fn chain(gibbs: &Gibbs, start: &States, args: &Args, seed: u64) -> Result<States> {
    let mut rng = rng::stream(seed, 1);
    let mut state = gibbs.state(start.row(0))?;
    let n_units = start.n_units();
    let mut states = States::new(n_units)?;
    for _ in 0..args.correlated_samples {
        for _ in 0..args.updates {
            let unit = rng.random_range(0..n_units);
            let p = gibbs.conditional_probability(&state, unit);
            gibbs.set(&mut state, unit, rng.random::<f64>() < p);
        }
        states.push(state.row());
    }
    Ok(states)
}

const HEADER: [&str; 6] = [
    "standard errors",
    "fields covered",
    "couplings covered",
    "rms error bar / rms error",
    "expected",
    "",
];
const RIGHT: &str = "92 to 98 %";
const FAIL: &str = "FAIL";
const COUPLINGS_RIGHT: &str = "couplings 92 to 98 %";

/// A section of the report, and how many of its expectations do not hold.
type Section = (String, usize);

fn section(title: &str, rows: Vec<Vec<String>>) -> Section {
    let failed = rows
        .iter()
        .filter(|row| row[HEADER.len() - 1] == FAIL)
        .count();
    let table = Table::new(HEADER, rows).markdown();
    (format!("## {title}\n\n{table}"), failed)
}

pub fn run(args: &Args, run: &RunArgs, cancel: &Cancel) -> Result {
    let work = |output: &Output, checkpoint: &Checkpoint| {
        let sections = [
            all_independent(args, checkpoint)?,
            all_autocorrelated(args, checkpoint)?,
            all_penalised(args, checkpoint)?,
        ];
        output.show(&sections.each_ref().map(|s| &*s.0).join("\n"), &[])?;
        Ok(sections.iter().map(|s| s.1).sum())
    };
    check_expectations(run.run("check-errors", args, cancel, work)?)
}

fn all_independent(args: &Args, checkpoint: &Checkpoint) -> Result<Section> {
    let truth = dense_model(N_UNITS, args.seed)?;
    let exact = ExactEnumeration::new(&truth)?;
    let spins = truth.to_spins();
    let all = repeat(args, checkpoint, "independent", |repetition| {
        let states = exact.draw(args.samples, rng::next_seed(args.seed ^ repetition << 8));
        unpenalised(
            &["mpf", "pl", "rise"],
            &spins,
            &states,
            &[1],
            args,
            repetition,
        )
    })?;
    let found = merged(&all);
    let names = ["MPF, sandwich", "PL, sandwich", "RISE, sandwich by node"];
    let mut rows = Vec::new();
    for (name, coverage) in names.iter().zip(&found) {
        rows.push(coverage.row(*name, RIGHT, coverage.is_right()));
    }
    if args.bootstrapped > 0 {
        let n = args.bootstrapped.min(args.repetitions);
        let name = format!("MPF, bootstrap ({n} repetitions)");
        let holds = found[3].couplings_are_right();
        rows.push(found[3].row(name, COUPLINGS_RIGHT, holds));
    }
    let title = format!(
        "Independent samples: {N_UNITS} units, M = {}, {} repetitions",
        args.samples, args.repetitions
    );
    Ok(section(&title, rows))
}

fn all_autocorrelated(args: &Args, checkpoint: &Checkpoint) -> Result<Section> {
    let truth = ferromagnet()?;
    let spins = truth.to_spins();
    let exact = ExactEnumeration::new(&truth)?;
    let gibbs = Gibbs::new(&truth)?;
    let all = repeat(args, checkpoint, "autocorrelated", |repetition| {
        let seed = rng::next_seed(args.seed ^ (repetition << 8 | 1));
        let states = chain(&gibbs, &exact.draw(1, seed), args, seed)?;
        let active = states.rows().map(|row| f64::from(row[0].count_ones()));
        let time = diagnostics::integrated_autocorrelation_time(&[active.collect::<Vec<_>>()])?;
        let blocks = [1, args.block];
        let found = unpenalised(&["mpf", "pl"], &spins, &states, &blocks, args, repetition)?;
        Ok((found, time))
    })?;
    let (all, times): (Vec<_>, Vec<f64>) = all.into_iter().unzip();
    let (found, time) = (merged(&all), times[0]);
    let names = ["MPF, sandwich", "PL, sandwich", "MPF, bootstrap"];
    let mut rows = Vec::new();
    for (name, pair) in names.iter().zip(found.chunks(2)) {
        if pair[0].fields[1] == 0 {
            continue;
        }
        let fails = Coverage::share(pair[0].couplings) < 0.92;
        let (expected, holds) = if name.ends_with("bootstrap") {
            (COUPLINGS_RIGHT, pair[1].couplings_are_right())
        } else {
            (RIGHT, pair[1].is_right())
        };
        let plain = format!("{name}, samples taken as independent");
        rows.push(pair[0].row(plain, "couplings below 92 %", fails));
        rows.push(pair[1].row(format!("{name}, blocks"), expected, holds));
    }
    let title = format!(
        "A sample every {} updates, τ of the activity {time:.0}: {N_UNITS} units, M = {}, blocks of {}",
        args.updates, args.correlated_samples, args.block
    );
    Ok(section(&title, rows))
}

/// Units and samples of the penalised fits.
const SMALL: (usize, usize) = (8, 1000);

/// Penalised fits by name: the method, λ₁, λ₂ and the rule that chooses λ₁.
const PENALISED: [(&str, &str, f64, f64, Option<Rule>); 10] = [
    ("MPF, λ₂ = 0.2", "mpf", 0.0, 0.2, None),
    ("MPF, λ₂ = 1", "mpf", 0.0, 1.0, None),
    ("MPF, λ₁ = 0.05", "mpf", 0.05, 0.0, None),
    ("PL, λ₂ = 0.2", "pl", 0.0, 0.2, None),
    ("PL, λ₂ = 1", "pl", 0.0, 1.0, None),
    ("PL, λ₁ = 0.05", "pl", 0.05, 0.0, None),
    ("ML, λ₂ = 0.2", "ml", 0.0, 0.2, None),
    ("PL, λ₁ by the minimum", "pl", 0.0, 0.0, Some(Rule::Minimum)),
    (
        "PL, λ₁ by one standard error",
        "pl",
        0.0,
        0.0,
        Some(Rule::OneStandardError),
    ),
    ("PL, λ₁ by EBIC", "pl", 0.0, 0.0, Some(Rule::Ebic)),
];

/// Runs one data set: every penalised fit, and the default on a chain with blocks of its own choice.
fn penalised(args: &Args, truth: &Couplings, repetition: u64) -> Result<Vec<Coverage>> {
    let seed = rng::next_seed(args.seed ^ (repetition << 8 | 2));
    let states = ExactEnumeration::new(truth)?.draw(SMALL.1, seed);
    let spins = truth.to_spins();
    let covered = |recipe: &Recipe, states: &States| -> Result<Coverage> {
        let trained = recipe.fit(states)?;
        let Some(bars) = trained.errors else {
            let why = trained.failures.iter().map(|f| f.error.to_string());
            return Err(why.collect::<Vec<_>>().join("; ").into());
        };
        Ok(Coverage::of(&spins, &trained.fit.couplings, &bars))
    };
    let mut found = Vec::new();
    for (_, name, l1, l2, rule) in PENALISED {
        let options = MethodOptions {
            l1,
            l2: Some(l2),
            ..Default::default()
        };
        let recipe = Recipe {
            choose: rule.map(|rule| PathOptions {
                rule,
                ..Default::default()
            }),
            errors: ErrorBarsBy::Sandwich,
            ..Recipe::alone(method(name)?, options)
        };
        found.push(covered(&recipe, &states)?);
    }
    let gibbs = Gibbs::new(truth)?;
    let chain = chain(&gibbs, &states, args, seed)?;
    let default = Recipe {
        errors: ErrorBarsBy::Sandwich,
        held_out: 0.0,
        ..Default::default()
    };
    found.push(covered(&default, &chain)?);
    Ok(found)
}

fn all_penalised(args: &Args, checkpoint: &Checkpoint) -> Result<Section> {
    let truth = dense_model(SMALL.0, args.seed)?;
    let all = repeat(args, checkpoint, "penalised", |repetition| {
        penalised(args, &truth, repetition)
    })?;
    let found = merged(&all);
    let names = PENALISED.iter().map(|row| row.0);
    let names = names.chain(["the default, a chain, blocks of its own choice"]);
    let rows: Vec<_> = names
        .zip(&found)
        .map(|(name, coverage)| coverage.row(name, RIGHT, coverage.is_right()))
        .collect();
    let title = format!(
        "Penalised fits, intervals around the estimate without the penalty: {} units, M = {}, {} \
         repetitions",
        SMALL.0, SMALL.1, args.repetitions
    );
    Ok(section(&title, rows))
}
