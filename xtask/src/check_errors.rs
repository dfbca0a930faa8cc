//! Do 95 % intervals cover the truth 95 % of the time?
//!
//! Twenty units. Independent draws from a model with all couplings, K ~ N(0, .15²), h ~ N(−.3, .3²);
//! and a Gibbs chain on a 4×5 ferromagnet, recorded after every fourth update of a unit, so that
//! successive samples are nearly the same (whole sweeps would not do: the scores of MPF and PL are
//! conditional on the other units, and forget within a sweep what the states do not). An interval is the estimate ± 1.96 standard errors.

use crate::journal;
use crate::output::markdown_table;
use crate::{Result, progress};
use mpf_baselines::PseudolikelihoodSum;
use mpf_core::{Cancel, rng};
use mpf_ising::{
    BootstrapOptions, Boundary, Couplings, ErrorBars, FitOptions, Fitter, Lattice, MarginEstimator,
    Mode, Mpf, Samples, SpinCouplings, States, bootstrap,
};
use mpf_samplers::{ExactEnumeration, ExactLattice, Gibbs, diagnostics};
use ndarray::{Array1, Array2};
use rand::RngExt;
use rand_distr::{Distribution, Normal};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// Options of `check-errors`.
#[derive(clap::Args, Serialize)]
pub struct Args {
    /// Data sets of each kind.
    #[arg(long, default_value_t = 200)]
    repetitions: u64,
    /// Independent samples of a data set.
    #[arg(long, default_value_t = 5000)]
    samples: usize,
    /// Samples of a correlated data set.
    #[arg(long, default_value_t = 20_000)]
    correlated_samples: usize,
    /// Updates of single units between them.
    #[arg(long, default_value_t = 4)]
    updates: usize,
    /// Samples in a block.
    #[arg(long, default_value_t = 200)]
    block: usize,
    /// Data sets that are bootstrapped too; 0 for none.
    #[arg(long, default_value_t = 20)]
    bootstrapped: u64,
    /// Only time the sandwich by node for 200 units, a 10×20 lattice with 20,000 samples.
    #[arg(long)]
    large: bool,
    /// The seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    #[serde(skip)]
    journal: journal::Options,
}

const N_UNITS: usize = 20;

/// How often intervals covered the truth, for fields and for couplings.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Coverage {
    fields: [usize; 2],
    couplings: [usize; 2],
    /// Σ (estimate − truth)² and Σ (standard error)².
    squares: [f64; 2],
}

impl Coverage {
    fn add(&mut self, truth: &SpinCouplings, fit: &Couplings, bars: &ErrorBars) {
        let fit = fit.to_spins();
        for i in 0..N_UNITS {
            self.add_one(true, fit.fields[i] - truth.fields[i], bars.fields[i]);
            for j in 0..i {
                let off = fit.couplings[[i, j]] - truth.couplings[[i, j]];
                self.add_one(false, off, bars.couplings[i][j]);
            }
        }
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

    fn share(count: [usize; 2]) -> f64 {
        count[0] as f64 / count[1] as f64
    }

    fn row(&self, name: &str, expected: &str, holds: bool) -> Vec<String> {
        let percent = |count| format!("{:.1} %", 100.0 * Self::share(count));
        vec![
            name.into(),
            percent(self.fields),
            percent(self.couplings),
            format!("{:.2}", (self.squares[1] / self.squares[0]).sqrt()),
            expected.into(),
            if holds { "pass" } else { "FAIL" }.into(),
        ]
    }

    /// Of a few repetitions only the couplings: the fields of one fit hang together, so that a
    /// handful of fits says little about them.
    fn couplings_are_right(&self) -> bool {
        (0.92..=0.98).contains(&Self::share(self.couplings))
    }

    fn is_right(&self) -> bool {
        [self.fields, self.couplings]
            .into_iter()
            .all(|count| (0.92..=0.98).contains(&Self::share(count)))
    }
}

/// Fits, and counts what the sandwich covers for every block length.
fn sandwich(
    estimator: &impl MarginEstimator,
    mode: Mode,
    truth: &SpinCouplings,
    states: &States,
    blocks: &mut [(usize, &mut Coverage)],
) -> Result {
    let fitter = Fitter::new(FitOptions {
        mode,
        ..Default::default()
    })?;
    let fit = fitter.fit_with(estimator, &Samples::new(states)?, |_| {})?;
    for (block, coverage) in blocks {
        let bars = fitter.sandwich(estimator, &fit.couplings, states, *block)?;
        coverage.add(truth, &fit.couplings, &bars);
    }
    Ok(())
}

/// The same for the bootstrap.
fn resampled(truth: &SpinCouplings, states: &States, block: usize, seed: u64) -> Result<Coverage> {
    let fitter = Fitter::default();
    let couplings = fitter.fit(&Samples::new(states)?)?.couplings;
    let options = BootstrapOptions {
        block_length: block,
        seed,
        ..Default::default()
    };
    let warm = Fitter::new(FitOptions {
        start: Some(couplings.clone()),
        ..Default::default()
    })?;
    let bars = bootstrap(states, &options, |resample| {
        Ok::<_, mpf_ising::Error>(warm.fit(resample)?.couplings)
    })?;
    let mut coverage = Coverage::default();
    coverage.add(truth, &couplings, &bars);
    Ok(coverage)
}

impl Coverage {
    fn merge(&mut self, other: &Self) {
        for k in 0..2 {
            self.fields[k] += other.fields[k];
            self.couplings[k] += other.couplings[k];
            self.squares[k] += other.squares[k];
        }
    }
}

/// Adds the intervals of one repetition to those `found` before.
fn merge(found: &mut [Coverage], one: &[Coverage]) {
    for (all, one) in found.iter_mut().zip(one) {
        all.merge(one);
    }
}

fn dense_model(seed: u64) -> Result<Couplings> {
    let mut rng = rng::stream(seed, 0);
    let mut couplings = Array2::zeros((N_UNITS, N_UNITS));
    let strength = Normal::new(0.0, 0.15)?;
    for i in 0..N_UNITS {
        for j in 0..i {
            couplings[[i, j]] = strength.sample(&mut rng);
            couplings[[j, i]] = couplings[[i, j]];
        }
    }
    let field = Normal::new(-0.3, 0.3)?;
    let fields = Array1::from_shape_simple_fn(N_UNITS, || field.sample(&mut rng));
    Ok(Couplings::from_spins(&SpinCouplings { fields, couplings })?)
}

fn ferromagnet() -> Result<Couplings> {
    let mut couplings = Array2::zeros((N_UNITS, N_UNITS));
    for (i, j) in Lattice::new(4, 5, Boundary::Open)?.edges() {
        couplings[[i, j]] = 0.4;
        couplings[[j, i]] = 0.4;
    }
    let fields = Array1::zeros(N_UNITS);
    Ok(Couplings::from_spins(&SpinCouplings { fields, couplings })?)
}

/// Samples after every few updates of random units, from an exact draw.
fn chain(gibbs: &Gibbs, start: &States, args: &Args, seed: u64) -> Result<States> {
    let mut rng = rng::stream(seed, 1);
    let mut state = gibbs.state(start.row(0))?;
    let mut states = States::new(N_UNITS)?;
    for _ in 0..args.correlated_samples {
        for _ in 0..args.updates {
            let unit = rng.random_range(0..N_UNITS);
            let p = gibbs.conditional_probability(&state, unit);
            gibbs.set(&mut state, unit, rng.random::<f64>() < p);
        }
        states.push(state.row());
    }
    Ok(states)
}

/// Times the sandwich for 200 units with all couplings free, fitted node by node.
fn large(seed: u64) -> Result {
    let lattice = Lattice::new(10, 20, Boundary::Open)?;
    let truth = lattice.spin_glass(1.0, &mut rng::stream(seed, 0))?;
    let states = ExactLattice::new(&truth, &lattice)?.draw(20_000, seed);
    let mut options = FitOptions {
        mode: Mode::NodeWise,
        ..Default::default()
    };
    options.minimizer.gradient_tolerance = 1e-4;
    let fitter = Fitter::new(options)?;
    let fit = fitter.fit(&Samples::new(&states)?)?;
    let clock = Instant::now();
    let bars = fitter.sandwich(&Mpf::default(), &fit.couplings, &states, 1)?;
    let seconds = clock.elapsed().as_secs_f64();
    let (found, spins) = (fit.couplings.to_spins(), truth.to_spins());
    let (mut inside, mut all) = (0, 0);
    for i in 0..200 {
        for j in 0..i {
            let off = found.couplings[[i, j]] - spins.couplings[[i, j]];
            inside += usize::from(off.abs() < 1.96 * bars.couplings[i][j]);
            all += 1;
        }
    }
    println!(
        "200 units, M = 20,000, node by node: fit {:.0} s, sandwich {seconds:.0} s, {:.1} % of \
         {all} couplings covered",
        fit.seconds,
        100.0 * inside as f64 / all as f64
    );
    Ok(())
}

/// One independent data set: MPF, PL and RISE with the sandwich, MPF with the bootstrap.
fn independent(
    exact: &ExactEnumeration,
    truth: &SpinCouplings,
    args: &Args,
    repetition: u64,
) -> Result<Vec<Coverage>> {
    let states = exact.draw(args.samples, rng::next_seed(args.seed ^ repetition << 8));
    let mut found = vec![Coverage::default(); 4];
    let [mpf, pl, rise, boot] = &mut found[..] else {
        unreachable!("four rows")
    };
    let (flow, pseudo) = (Mpf::default(), PseudolikelihoodSum);
    sandwich(&flow, Mode::Joint, truth, &states, &mut [(1, mpf)])?;
    sandwich(&pseudo, Mode::Joint, truth, &states, &mut [(1, pl)])?;
    sandwich(&flow, Mode::NodeWise, truth, &states, &mut [(1, rise)])?;
    if repetition < args.bootstrapped {
        boot.merge(&resampled(truth, &states, 1, args.seed)?);
    }
    Ok(found)
}

/// One chain: MPF and PL with the sandwich and MPF with the bootstrap, each with samples taken as
/// independent and in blocks; and the autocorrelation time of the activity.
fn autocorrelated(
    gibbs: &Gibbs,
    exact: &ExactEnumeration,
    truth: &SpinCouplings,
    args: &Args,
    repetition: u64,
) -> Result<(Vec<Coverage>, f64)> {
    let seed = rng::next_seed(args.seed ^ (repetition << 8 | 1));
    let states = chain(gibbs, &exact.draw(1, seed), args, seed)?;
    let active: Vec<f64> = states
        .rows()
        .map(|row| f64::from(row[0].count_ones()))
        .collect();
    let time = diagnostics::integrated_autocorrelation_time(&[active])?;
    let mut found = vec![Coverage::default(); 6];
    let [mpf, mpf_block, pl, pl_block, boot, boot_block] = &mut found[..] else {
        unreachable!("six rows")
    };
    let block = args.block;
    let mut both = [(1, mpf), (block, mpf_block)];
    sandwich(&Mpf::default(), Mode::Joint, truth, &states, &mut both)?;
    let mut both = [(1, pl), (block, pl_block)];
    sandwich(&PseudolikelihoodSum, Mode::Joint, truth, &states, &mut both)?;
    if repetition < args.bootstrapped {
        boot.merge(&resampled(truth, &states, 1, args.seed)?);
        boot_block.merge(&resampled(truth, &states, block, args.seed)?);
    }
    Ok((found, time))
}

/// Runs the command.
pub fn run(args: &Args, cancel: &Cancel) -> Result {
    if args.large {
        return large(args.seed);
    }
    let (_, mut journal) = args.journal.open("check-errors", args, cancel)?;
    let header = [
        "standard errors",
        "fields covered",
        "couplings covered",
        "rms error bar / rms error",
        "expected",
        "",
    ];
    let right = "92 to 98 %";
    let mut failed = 0;

    let truth = dense_model(args.seed)?;
    let exact = ExactEnumeration::new(&truth)?;
    let spins = truth.to_spins();
    let mut found = vec![Coverage::default(); 4];
    let bar = progress::bar(args.repetitions).with_prefix("independent");
    for repetition in 0..args.repetitions {
        let name = format!("independent {repetition}");
        let one = journal.unit(&name, |_| independent(&exact, &spins, args, repetition))?;
        if cancel.is_cancelled() {
            return journal.finish();
        }
        merge(&mut found, &one);
        bar.inc(1);
    }
    bar.finish_and_clear();
    println!(
        "\n## Independent samples: {N_UNITS} units, M = {}, {} repetitions\n",
        args.samples, args.repetitions
    );
    let names = ["MPF, sandwich", "PL, sandwich", "RISE, sandwich by node"];
    let mut rows = Vec::new();
    for (name, coverage) in names.iter().zip(&found) {
        failed += usize::from(!coverage.is_right());
        rows.push(coverage.row(name, right, coverage.is_right()));
    }
    if args.bootstrapped > 0 {
        let n = args.bootstrapped.min(args.repetitions);
        let name = format!("MPF, bootstrap ({n} repetitions)");
        let holds = found[3].couplings_are_right();
        failed += usize::from(!holds);
        rows.push(found[3].row(&name, "couplings 92 to 98 %", holds));
    }
    print!("{}", markdown_table(&header, &rows));

    let truth = ferromagnet()?;
    let spins = truth.to_spins();
    let exact = ExactEnumeration::new(&truth)?;
    let gibbs = Gibbs::new(&truth)?;
    let mut found = vec![Coverage::default(); 6];
    let mut time = 0.0;
    let bar = progress::bar(args.repetitions).with_prefix("autocorrelated");
    for repetition in 0..args.repetitions {
        let name = format!("autocorrelated {repetition}");
        let (one, tau) = journal.unit(&name, |_| {
            autocorrelated(&gibbs, &exact, &spins, args, repetition)
        })?;
        if cancel.is_cancelled() {
            return journal.finish();
        }
        merge(&mut found, &one);
        if repetition == 0 {
            time = tau;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    println!(
        "\n## A sample every {} updates, τ of the activity {time:.0}: {N_UNITS} units, M = {}, blocks of \
         {}\n",
        args.updates, args.correlated_samples, args.block
    );
    let names = ["MPF, sandwich", "PL, sandwich", "MPF, bootstrap"];
    let mut rows = Vec::new();
    for (name, pair) in names.iter().zip(found.chunks(2)) {
        if pair[0].fields[1] == 0 {
            continue;
        }
        let fails = Coverage::share(pair[0].couplings) < 0.92;
        let resampled = name.ends_with("bootstrap");
        let (expected, holds) = if resampled {
            ("couplings 92 to 98 %", pair[1].couplings_are_right())
        } else {
            (right, pair[1].is_right())
        };
        failed += usize::from(!fails) + usize::from(!holds);
        rows.push(pair[0].row(
            &format!("{name}, samples taken as independent"),
            "couplings below 92 %",
            fails,
        ));
        rows.push(pair[1].row(&format!("{name}, blocks"), expected, holds));
    }
    print!("{}", markdown_table(&header, &rows));
    journal.finish()?;
    if failed > 0 {
        return Err(format!("{failed} of the expectations do not hold").into());
    }
    Ok(())
}
