//! Compares the trainers of restricted Boltzmann machines by exact log-likelihood.
//!
//! Truth and model have 10 visible and 10 hidden units, W of the truth uniform within ±3, its biases
//! such that every unit is active half of the time. Every
//! trainer gets the same samples, starts and penalty ½/M Σ θ². The score is the expected
//! log-likelihood of new samples, Σ_x p(x) ln p̂(x), by enumeration of both.

use crate::output::{Spread, Table, digits};
use crate::run::{RunArgs, units};
use crate::{Result, plot};
use mpf_baselines::{LocalContrastiveOptions, Rbm, local_contrastive};
use mpf_core::{
    Cancel, LocalExact, LocalFitOptions, LocalFitter, LocalLoss, SiteData, Stopwatch, rng,
};
use plot::{Marks, Panel, STYLES, Series};
use serde::{Deserialize, Serialize};

#[derive(clap::Args, Serialize)]
pub struct Args {
    /// Visible units.
    #[arg(long, default_value_t = 10)]
    visible: usize,
    /// Hidden units, of the truth and of the model.
    #[arg(long, default_value_t = 10)]
    hidden: usize,
    /// Numbers of samples.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 10_000])]
    samples: Vec<usize>,
    /// Number of truths.
    #[arg(long, default_value_t = 20)]
    seeds: u64,
    /// Starts of MPF and PL, of which the one with the lowest objective is kept.
    #[arg(long, default_value_t = 3)]
    starts: u64,
    /// Updates of CD and PCD.
    #[arg(long, default_value_t = 5000)]
    updates: usize,
}

const TRAINERS: [&str; 5] = ["MPF", "PL", "CD-1", "CD-10", "PCD"];

/// What one truth and one number of samples gave.
#[derive(Serialize, Deserialize)]
struct Trial {
    seed: u64,
    n_samples: usize,
    /// The expected log-likelihood of the truth itself, in nats.
    truth: f64,
    /// By trainer.
    log_likelihood: Vec<f64>,
    seconds: Vec<f64>,
}

/// Returns Σ_x p(x) ln p̂(x).
fn expected(truth: &LocalExact, model: &LocalExact) -> f64 {
    let pairs = truth.probabilities().iter().zip(model.probabilities());
    pairs.map(|(p, q)| p * q.ln()).sum()
}

fn train(
    args: &Args,
    rbm: &Rbm,
    data: &SiteData,
    trainer: &str,
    seed: u64,
    cancel: &Cancel,
) -> Result<Vec<f64>> {
    let l2 = 1.0 / data.total_weight();
    let start = |at: u64| rbm.random_start(0.5, rng::next_seed(seed) ^ at);
    let fit = |loss: LocalLoss| -> Result<Vec<f64>> {
        let mut best: Option<(f64, Vec<f64>)> = None;
        for at in 0..args.starts {
            let mut options = LocalFitOptions {
                loss,
                l2,
                start: start(at),
                ..Default::default()
            };
            options.minimizer.gradient_tolerance = 1e-5;
            options.minimizer.max_iterations = 2000;
            options.minimizer.cancel = cancel.clone();
            let found = LocalFitter::new(rbm, options)?.fit(data)?;
            if best.as_ref().is_none_or(|(value, _)| found.value < *value) {
                best = Some((found.value, found.theta));
            }
        }
        Ok(best.ok_or("--starts 0 leaves nothing to fit")?.1)
    };
    let contrast = |sweeps: usize, persistent: bool| -> Result<Vec<f64>> {
        let options = LocalContrastiveOptions {
            updates: args.updates,
            sweeps,
            persistent,
            l2,
            seed,
            cancel: cancel.clone(),
            ..Default::default()
        };
        Ok(local_contrastive(rbm, data, &start(0), &options, |_| {})?.theta)
    };
    match trainer {
        "MPF" => fit(LocalLoss::Flow),
        "PL" => fit(LocalLoss::Pseudolikelihood),
        "CD-1" => contrast(1, false),
        "CD-10" => contrast(10, false),
        _ => contrast(1, true),
    }
}

fn trial(args: &Args, seed: u64, n_samples: usize, cancel: &Cancel) -> Result<Trial> {
    let rbm = Rbm::new(args.visible, args.hidden, false)?;
    let theta = rbm.random_balanced(3.0, seed);
    let truth = LocalExact::new(&rbm, &theta)?;
    let samples = truth.draw(n_samples, rng::next_seed(seed));
    let data = SiteData::new(samples.view(), 2)?;
    let (mut log_likelihood, mut seconds) = (Vec::new(), Vec::new());
    for trainer in TRAINERS {
        let clock = Stopwatch::start();
        let found = train(args, &rbm, &data, trainer, seed, cancel)?;
        seconds.push(clock.seconds());
        let model = LocalExact::new(&rbm, &found)?;
        log_likelihood.push(expected(&truth, &model));
    }
    Ok(Trial {
        seed,
        n_samples,
        truth: expected(&truth, &truth),
        log_likelihood,
        seconds,
    })
}

pub fn run(args: &Args, run: &RunArgs, cancel: &Cancel) -> Result {
    let work = |output: &crate::output::Output, checkpoint: &mpf_core::Checkpoint| {
        let of_seed = |seed| args.samples.iter().map(move |&n| (seed, n));
        let trials: Vec<(u64, usize)> = (0..args.seeds).flat_map(of_seed).collect();
        let name = |(seed, n)| format!("seed {seed}, {n} samples");
        let trial = |(seed, n), _: &_| trial(args, seed, n, cancel);
        let all = units(checkpoint, "machines", &trials, name, trial)?;
        if all.is_empty() {
            return Ok(());
        }
        output.write_json("results.json", &all)?;
        output.write("figure.svg", &figure(args, &all)?)?;
        let mut rows = Vec::new();
        for (at, trainer) in TRAINERS.iter().enumerate() {
            let mut row = vec![(*trainer).to_owned()];
            for &n in &args.samples {
                let of = || all.iter().filter(move |t| t.n_samples == n);
                let spread = |f: &dyn Fn(&Trial) -> f64| Spread::of(of().map(f).collect());
                row.push(spread(&|t| t.log_likelihood[at]).shown());
                row.push(spread(&|t| t.truth - t.log_likelihood[at]).shown());
                row.push(digits(spread(&|t| t.seconds[at]).median));
            }
            rows.push(row);
        }
        let mut header = vec!["trainer".to_owned()];
        for n in &args.samples {
            header.push(format!("log-likelihood, M = {n}"));
            header.push(format!("below the truth, M = {n}"));
            header.push("seconds".to_owned());
        }
        let note = "medians over the truths, quartiles in brackets; nats per sample".to_owned();
        output.show(&Table { header, rows }.markdown(), &[note])
    };
    run.run("compare-rbm", args, cancel, work)
}

/// Draws the median distance from the truth against the number of samples.
fn figure(args: &Args, all: &[Trial]) -> Result<String> {
    let mut series = Vec::new();
    for (at, (trainer, style)) in TRAINERS.into_iter().zip(STYLES).enumerate() {
        let points = args.samples.iter().map(|&n| {
            let of = all.iter().filter(|t| t.n_samples == n);
            let below = Spread::of(of.map(|t| t.truth - t.log_likelihood[at]).collect());
            (n as f64, below.median)
        });
        series.push(Series::new(trainer, style, points.collect(), Marks::All));
    }
    let heights = series.iter().flat_map(|s| s.points.iter().map(|p| p.1));
    let widths = args.samples.iter().map(|&n| n as f64);
    let panel = Panel {
        title: "RBMs: nats per sample below the truth".into(),
        x: "samples",
        y: "Kullback-Leibler divergence",
        x_range: plot::decades(widths),
        y_range: plot::decades(heights),
        log_x: true,
        series,
    };
    plot::svg((640, 480), |area| plot::panels(area, 440, 1, &[panel]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trainers_come_near_the_truth() {
        let args = Args {
            visible: 5,
            hidden: 3,
            samples: vec![1500],
            seeds: 1,
            starts: 2,
            updates: 1000,
        };
        let found = trial(&args, 1, 1500, &Cancel::new()).unwrap();
        for (trainer, ll) in TRAINERS.iter().zip(&found.log_likelihood) {
            // 5 ln 2 = 3.5 nats are what no model at all would cost.
            let below = found.truth - ll;
            assert!((0.0..0.2).contains(&below), "{trainer}: {below}");
        }
    }
}
