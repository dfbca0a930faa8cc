//! Figure F-1: forty units, all connected.
//!
//! The paper's couplings (Broderick et al.) are not public. These stand in for them: a sparse
//! retina-like population with J_ii ~ N(3.2, 0.5²) and −2J_ij ~ N(0.05, 0.4²), about one unit in
//! twenty active. The error is the mean over pairs of |ρ̂_ij − ρ_ij|, ρ the correlation
//! coefficients of the fitted and of the true model, both from long Gibbs chains.
//!
//! The samples' own correlations have an error too, from sampling alone: the figure shows that
//! floor. A fit by any method ends near it, and errors there cannot rank methods.

mod page;

use crate::correlations::{Estimate, PairMeans, mean_absolute_pearson_error};
use crate::glass::{lower_triangle, symmetric};
use crate::output::{Entry, Experiment, Settings, digits};
use crate::run::RunArgs;
use crate::{Error, Result, progress};
use mpf_core::{Cancel, Checkpoint, StopReason, rng};
use mpf_ising::{Couplings, FitOptions, Fitter, Mpf, Neighbourhood, Samples};
use mpf_samplers::{ChainOptions, ChainRunner, Gibbs, diagnostics};
use ndarray::Array2;
use page::{TITLE, draw, page, reading, table};
use rand_distr::{Distribution, Normal};
use serde::{Deserialize, Serialize};

#[derive(Clone, clap::Args, Serialize)]
pub struct Args {
    /// Units, all connected.
    #[arg(long, default_value_t = 40)]
    units: usize,
    /// Gibbs samples to learn from.
    #[arg(long, default_value_t = 20_000)]
    samples: usize,
    /// Sweeps between two samples.
    #[arg(long, default_value_t = 10)]
    thinning: usize,
    /// States per chain (of 8) to estimate correlations from; the true model gets ten times as many.
    #[arg(long, default_value_t = 25_000)]
    correlation_draws: usize,
    /// Most iterations of a fit.
    #[arg(long, default_value_t = 200)]
    iterations: usize,
    /// Seed of the model, the samples and the chains.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Chains of every estimate.
const CHAINS: usize = 8;

#[derive(Serialize)]
struct Results {
    settings: Settings<Args>,
    /// Mean of all bits.
    activity: f64,
    /// Integrated autocorrelation time of the number of active units, in samples.
    tau: f64,
    /// The error of the samples' own correlations.
    noise_floor: f64,
    curves: Vec<Curve>,
    paper: Paper,
    reading: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Curve {
    name: String,
    error: Option<Estimate>,
    seconds: f64,
    iterations: usize,
    evaluations: usize,
    stop: StopReason,
    warnings: Vec<String>,
    trace: Vec<Point>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Point {
    iteration: usize,
    seconds: f64,
    error: Option<Estimate>,
}

#[derive(Serialize)]
struct Paper {
    error: f64,
    seconds: f64,
}

pub fn run(args: &Args, run: &RunArgs, cancel: &Cancel) -> Result<Entry> {
    if args.units < 2 || args.samples < 100 || args.correlation_draws < 10 {
        return Err("--units must be at least 2, --samples 100, --correlation-draws 10".into());
    }
    run.run("fig-f1", args, cancel, |output, checkpoint| {
        let results = compute(args, checkpoint)?;
        let svg = draw(&results)?;
        output.publish(&Experiment {
            title: TITLE,
            results: &results,
            page: &page(&results, &svg),
            figures: &[("fig-f1.svg", svg)],
            table: &table(&results).markdown(),
            reading: &results.reading,
        })
    })
}

/// Draws J_ii ~ N(3.2, 0.5²) and −2J_ij ~ N(0.05, 0.4²).
fn retina_like(d: usize, seed: u64) -> Result<Couplings> {
    let mut rng = rng::stream(seed, 0);
    let (bias, coupling) = (Normal::new(3.2, 0.5)?, Normal::new(0.05, 0.4)?);
    let entry = |i, k| match i == k {
        true => bias.sample(&mut rng),
        false => -0.5 * coupling.sample(&mut rng),
    };
    let j = symmetric(d, lower_triangle(d), entry);
    Ok(Couplings::new(j)?)
}

/// Fails when cancelled before the first curve.
fn compute(args: &Args, checkpoint: &Checkpoint) -> Result<Results> {
    let cancel = &checkpoint.cancel();
    let truth = retina_like(args.units, args.seed)?;
    let sampling = rng::next_seed(args.seed);
    let waiting = progress::spinner("samples and true correlations");
    let run = ChainRunner::new(ChainOptions {
        seed: sampling,
        n_chains: 4,
        n_draws: args.samples / 4,
        burn_in: 1000,
        thinning: args.thinning.max(1),
        cancel: cancel.clone(),
        ..Default::default()
    })?
    .run(&Gibbs::new(&truth)?)?;
    let measuring = rng::next_seed(sampling);
    let long = ChainOptions {
        n_chains: CHAINS,
        n_draws: 10 * args.correlation_draws,
        burn_in: 500,
        seed: measuring,
        cancel: cancel.clone(),
        ..Default::default()
    };
    let known = checkpoint.unit("true correlations", |_| {
        let means = PairMeans::sampled(&Gibbs::new(&truth)?, long.clone())?;
        Ok::<_, Error>(means.mean().into_raw_vec_and_offset().0)
    })?;
    waiting.finish_and_clear();
    checkpoint.check_cancelled()?;
    let known = Array2::from_shape_vec((args.units, args.units), known)?;
    let active = run.series(|row| row.iter().map(|w| f64::from(w.count_ones())).sum());
    let tau = diagnostics::integrated_autocorrelation_time(&active)?;
    let samples = Samples::new(&run.pooled())?;
    let chains = ChainOptions {
        n_draws: args.correlation_draws,
        seed: rng::next_seed(measuring),
        ..long
    };
    let error = |couplings: &Couplings| -> Result<Estimate> {
        let means = PairMeans::sampled(&Gibbs::new(couplings)?, chains.clone())?;
        Ok(means.estimate(|found| mean_absolute_pearson_error(found, &known)))
    };
    let mut curves = Vec::new();
    for (name, neighbourhood) in [
        ("single flips", Neighbourhood::SingleFlips),
        (
            "and all bits flipped",
            Neighbourhood::SingleFlipsAndComplement,
        ),
    ] {
        if cancel.is_cancelled() {
            break;
        }
        let flow = Mpf {
            neighbourhood,
            ..Default::default()
        };
        curves.push(checkpoint.unit(name, |unit| curve(name, flow, args, &samples, &error, unit))?);
    }
    let means = samples.means();
    let mut results = Results {
        settings: Settings::of(&Args {
            samples: samples.n_observed(),
            ..args.clone()
        }),
        activity: means.iter().sum::<f64>() / means.len() as f64,
        tau,
        noise_floor: mean_absolute_pearson_error(&samples.pair_means(), &known),
        curves,
        paper: Paper {
            error: 0.0058,
            seconds: 15.0,
        },
        reading: Vec::new(),
    };
    results.reading = reading(&results);
    Ok(results)
}

/// Measures the error of couplings.
type Measure<'a> = &'a (dyn Fn(&Couplings) -> Result<Estimate> + Sync);

/// The state in the checkpoint, noted at every measured iteration.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Seen {
    trace: Vec<Point>,
    latest: Option<Couplings>,
}

impl Seen {
    /// Measures the error of the last point unless it is known.
    fn measure(&mut self, error: Measure<'_>) -> Option<Estimate> {
        let (last, couplings) = (self.trace.last_mut()?, self.latest.as_ref()?);
        if last.error.is_none() {
            last.error = error(couplings).ok();
        }
        last.error
    }
}

/// Fits, or resumes the fit from `unit`, and measures the error against the learning time on the way.
fn curve(
    name: &'static str,
    flow: Mpf,
    args: &Args,
    samples: &Samples,
    error: Measure<'_>,
    unit: &Checkpoint,
) -> Result<Curve> {
    let bar = progress::bar(args.iterations as u64).with_prefix(name);
    let state = unit.entry("trace");
    let mut seen: Seen = state.resume()?.unwrap_or_default();
    // The interruption may have cut the last measurement short.
    seen.measure(error);
    let mut options = FitOptions::default();
    options.minimizer.max_iterations = args.iterations;
    options.minimizer.cancel = unit.cancel();
    options.minimizer.checkpoint = unit.entry("fit");
    let fit = Fitter::new(flow, options)?.fit_observed(samples, |p| {
        bar.set_position(p.iteration as u64);
        // Every iteration at first, then ever fewer: the choice does not depend on the clock.
        let last = seen.trace.last().map(|last| last.iteration);
        if last.is_some_and(|last| p.iteration < (last + 1).max(last * 5 / 4)) {
            return;
        }
        seen.latest = Some(p.couplings());
        seen.trace.push(Point {
            iteration: p.iteration,
            seconds: p.seconds,
            error: None,
        });
        if let Some(found) = seen.measure(error) {
            bar.set_message(format!("error {}", digits(found.value)));
        }
        state.note(seen.clone());
    })?;
    let mut trace = seen.trace;
    let error = match error(&fit.couplings) {
        Err(_) if unit.is_cancelled() => None,
        error => Some(error?),
    };
    if trace.last().is_some_and(|p| p.iteration == fit.iterations) {
        trace.pop();
    }
    trace.push(Point {
        iteration: fit.iterations,
        seconds: fit.seconds,
        error,
    });
    bar.finish_and_clear();
    Ok(Curve {
        name: name.to_owned(),
        error,
        seconds: fit.seconds,
        iterations: fit.iterations,
        evaluations: fit.evaluations,
        stop: fit.stop,
        warnings: fit.warnings.iter().map(ToString::to_string).collect(),
        trace,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{exact_without_times, without_times};
    use crate::run::interrupted;

    fn small() -> Args {
        Args {
            units: 8,
            samples: 2000,
            thinning: 2,
            correlation_draws: 500,
            iterations: 30,
            seed: 1,
        }
    }

    fn whole() -> Results {
        compute(&small(), &Checkpoint::default()).unwrap()
    }

    #[test]
    fn a_stopped_run_goes_on_to_the_same_bits() {
        // The true correlations, some states and a curve, and the same again.
        let stops = [1, 3, 4, 6, 5];
        let results = interrupted(&stops, |checkpoint| compute(&small(), checkpoint));
        assert_eq!(exact_without_times(&results), exact_without_times(&whole()));
    }

    #[test]
    fn results_have_the_documented_shape() {
        let results = whole();
        insta::assert_json_snapshot!(without_times(&results));
        assert!(draw(&results).unwrap().contains("learning time (s)"));
        assert!(page(&results, "<svg/>").contains("not public"));
        // A fit to these samples errs about as much as they do.
        let error = results.curves[0].error.unwrap();
        assert!(error.value < 2.0 * results.noise_floor + 5.0 * error.standard_error);
    }

    #[test]
    fn cancelled_before_the_start_is_no_result() {
        let file = mpf_testkit::StopAfter::new(usize::MAX);
        file.cancel().cancel();
        assert!(compute(&small(), &file.checkpoint()).is_err());
    }
}
