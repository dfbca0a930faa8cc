//! Does MPF do better with pairs of flips as neighbours, where single flips fail?
//!
//! Cold spin glasses on a lattice of 4 × 4, with exact draws: the divergence from the truth is by
//! enumeration. With `--data`, recordings: the first part is for training, the rest for test, by annealed
//! importance sampling. All fits have λ₂ = 1/M. The drift is that of `mpf fit`.

mod pair_flow;

use crate::output::{digits, markdown_table};
use crate::run::RunArgs;
use crate::{Result, npy, progress};
use mpf_baselines::{Drift, Pseudolikelihood};
use mpf_core::{Cancel, Minimizer, MinimizerOptions, Stopwatch, rng};
use mpf_ising::{Boundary, Couplings, Exact, FitOptions, Fitter, Lattice, Mpf, Samples, States};
use mpf_samplers::{AnnealedOptions, annealed_log_z};
use pair_flow::PairFlow;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

#[derive(clap::Args, Serialize)]
pub struct Args {
    /// Files of 0/1 (.npy, unsigned bytes), a sample a row.
    #[arg(long)]
    data: Vec<PathBuf>,
    /// The part of a file that is trained on; the rows of a file are shuffled with `--shuffle`.
    #[arg(long, default_value_t = 0.5)]
    training: f64,
    /// Shuffle the rows of files, whose order then means nothing.
    #[arg(long)]
    shuffle: bool,
    /// Variance of the couplings J of the spin glasses.
    #[arg(long, default_value_t = 10.0)]
    variance: f64,
    /// Samples of a spin glass.
    #[arg(long, default_value_t = 20_000)]
    samples: usize,
    /// Number of spin glasses.
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    #[command(flatten)]
    #[serde(skip)]
    run: RunArgs,
}

const FITS: [&str; 3] = ["MPF, single flips", "MPF, and pairs", "PL"];

/// What one fit gave.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Found {
    /// The log-likelihood of new samples, in nats.
    log_likelihood: f64,
    /// The mean square error of J, where it is known.
    error: f64,
    drift: Drift,
    seconds: f64,
    /// Of one evaluation.
    evaluation: f64,
}

fn fit(samples: &Samples, fit: &str, cancel: &Cancel) -> Result<(Couplings, f64, f64)> {
    let l2 = 1.0 / samples.n_effective();
    let minimizer = MinimizerOptions {
        gradient_tolerance: 1e-5,
        max_iterations: 3000,
        cancel: cancel.clone(),
        ..Default::default()
    };
    if fit == FITS[1] {
        let mut flow = PairFlow::new(samples, l2);
        let start = flow.start();
        let clock = Stopwatch::start();
        let found = Minimizer::new(minimizer)?.minimize(&mut flow, &start)?;
        let seconds = clock.seconds();
        let couplings = flow.couplings(&found.theta)?;
        return Ok((couplings, seconds, seconds / found.evaluations as f64));
    }
    let options = FitOptions {
        l2,
        minimizer,
        ..Default::default()
    };
    let found = if fit == FITS[0] {
        Fitter::new(Mpf::default(), options)?.fit(samples)?
    } else {
        Fitter::new(Pseudolikelihood, options)?.fit(samples)?
    };
    let evaluation = found.seconds / found.evaluations as f64;
    Ok((found.couplings, found.seconds, evaluation))
}

/// Fits `training` in every way; `judge` returns the log-likelihood and the error.
fn fits(
    training: &States,
    cancel: &Cancel,
    judge: impl Fn(&Couplings) -> Result<(f64, f64)>,
) -> Result<Vec<Found>> {
    let samples = Samples::new(training)?;
    let mut all = Vec::new();
    for name in FITS {
        let (couplings, seconds, evaluation) = fit(&samples, name, cancel)?;
        if cancel.is_cancelled() {
            return Err(mpf_core::Error::Cancelled.into());
        }
        let (log_likelihood, error) = judge(&couplings)?;
        all.push(Found {
            log_likelihood,
            error,
            drift: Drift::measure(&couplings, &samples, Drift::SWEEPS, 0)?,
            seconds,
            evaluation,
        });
    }
    Ok(all)
}

fn lattice(args: &Args, seed: u64, cancel: &Cancel) -> Result<Vec<Found>> {
    let lattice = Lattice::new(4, 4, Boundary::Open)?;
    let truth = lattice.spin_glass(args.variance, &mut rng::stream(seed, 0))?;
    let exact = Exact::new(&truth)?;
    let states = exact.draw(args.samples, rng::next_seed(seed));
    let probabilities = exact.probabilities();
    fits(&states, cancel, |couplings| {
        let model = Exact::new(couplings)?;
        let terms = probabilities.iter().enumerate();
        let energy: f64 = terms.map(|(x, p)| p * couplings.energy(&[x as u64])).sum();
        let error = couplings.mean_square_error(&truth);
        // Minus the divergence: the truth has 0.
        Ok((exact.entropy() - energy - model.log_z(), error))
    })
}

fn recording(args: &Args, path: &Path, cancel: &Cancel) -> Result<Vec<Found>> {
    let data = npy::read_bits(path)?;
    let mut order: Vec<usize> = (0..data.nrows()).collect();
    if args.shuffle {
        use rand::seq::SliceRandom;
        order.shuffle(&mut rng::stream(0, 0));
    }
    let states = States::from_binary(data.select(ndarray::Axis(0), &order).view())?;
    let n = (args.training * states.n_samples() as f64) as usize;
    let test = states.slice(n..states.n_samples());
    fits(&states.slice(0..n), cancel, |couplings| {
        let log_z = annealed_log_z(couplings, &AnnealedOptions::default())?.log_z;
        let energy: f64 = test.rows().map(|row| couplings.energy(row)).sum();
        Ok((-energy / test.n_samples() as f64 - log_z, f64::NAN))
    })
}

pub fn run(args: &Args, cancel: &Cancel) -> Result {
    args.run
        .run("compare-neighbours", args, cancel, |output, checkpoint| {
            let total = args.seeds + args.data.len() as u64;
            let bar = progress::bar(total).with_prefix("data sets");
            let mut rows = Vec::new();
            let mut glasses: Vec<Vec<Found>> = Vec::new();
            for seed in 0..args.seeds {
                let found =
                    checkpoint.unit(format!("glass {seed}"), |_| lattice(args, seed, cancel));
                glasses.push(found?);
                bar.inc(1);
            }
            for (at, name) in FITS.iter().enumerate() {
                let mean = |f: fn(&Found) -> f64| {
                    let mut values: Vec<f64> = glasses.iter().map(|g| f(&g[at])).collect();
                    values.sort_by(f64::total_cmp);
                    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
                };
                if args.seeds > 0 {
                    rows.push(row("spin glasses, medians", name, |f| mean(f)));
                }
            }
            let mut all = glasses;
            for path in &args.data {
                let shown = path.file_name().unwrap_or_default().to_string_lossy();
                let found: Vec<Found> =
                    checkpoint.unit(&shown, |_| recording(args, path, cancel))?;
                for (name, found) in FITS.iter().zip(&found) {
                    rows.push(row(&shown, name, |f| f(found)));
                }
                all.push(found);
                bar.inc(1);
            }
            bar.finish_and_clear();
            output.write_json("results.json", &all)?;
            let header = [
                "data",
                "fit",
                "log-likelihood",
                "error of J",
                "active before",
                "after 50 sweeps",
                "ms an evaluation",
                "seconds",
            ];
            let note = "log-likelihood: of spin glasses minus the divergence from the truth, of \
                        recordings that of the part not trained on; nats per sample";
            output.show(&markdown_table(&header, &rows), &[note.to_owned()])
        })
}

fn row(data: &str, fit: &str, of: impl Fn(fn(&Found) -> f64) -> f64) -> Vec<String> {
    vec![
        data.to_owned(),
        fit.to_owned(),
        digits(of(|f| f.log_likelihood)),
        match of(|f| f.error) {
            error if error.is_nan() => "–".to_owned(),
            error => digits(error),
        },
        format!("{:.1} %", 100.0 * of(|f| f.drift.before)),
        format!("{:.1} %", 100.0 * of(|f| f.drift.after)),
        digits(1e3 * of(|f| f.evaluation)),
        digits(of(|f| f.seconds)),
    ]
}
