//! Figure F-1: forty units, all connected.
//!
//! The paper's couplings (Broderick et al.) are not public. These stand in for them: a sparse
//! retina-like population with J_ii ~ N(3.2, 0.5²) and −2J_ij ~ N(0.05, 0.4²), about one unit in
//! twenty active. The error is the mean over pairs of |ρ̂_ij − ρ_ij|, ρ the correlation
//! coefficients of the fitted and of the true model, both from long Gibbs chains.
//!
//! The samples' own correlations err too, by sampling alone: that floor is drawn in. A fit by any
//! method ends near it, and errors there cannot rank methods.

use crate::correlations::{Effort, Estimate, PairMeans, mean_absolute_pearson_error};
use crate::journal::{self, Journal, Unit};
use crate::output::{Entry, Experiment, Machine, digits, markdown_table};
use crate::plot::{self, Axes, STYLES, Series};
use crate::report::Page;
use crate::{Result, progress};
use mpf_core::{Cancel, MinimizerOptions, StopReason, rng};
use mpf_ising::{Couplings, FitOptions, FitSnapshot, Fitter, Neighbourhood, Samples};
use mpf_samplers::{ChainOptions, ChainRunner, Gibbs, diagnostics};
use ndarray::Array2;
use plotters::prelude::*;
use rand_distr::{Distribution, Normal};
use serde::{Deserialize, Serialize};

/// Options of `reproduce-fig-f1`.
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
    /// States per chain (of 8) from which correlations of a model are estimated; ten times as
    /// many for the true one.
    #[arg(long, default_value_t = 25_000)]
    correlation_draws: usize,
    /// Most iterations of a fit.
    #[arg(long, default_value_t = 200)]
    iterations: usize,
    /// Seed of the model, the samples and the chains.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    #[serde(skip)]
    journal: journal::Options,
}

/// Chains of every estimate.
const CHAINS: usize = 8;

#[derive(Serialize)]
struct Results {
    settings: Settings,
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

#[derive(Serialize)]
struct Settings {
    machine: Machine,
    seed: u64,
    units: usize,
    samples: usize,
    thinning: usize,
    correlation_draws: usize,
    iterations: usize,
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

/// What the paper says.
#[derive(Serialize)]
struct Paper {
    error: f64,
    seconds: f64,
}

const TITLE: &str = "Figure F-1: forty units, all connected";

/// Runs the command.
pub fn run(args: &Args, cancel: &Cancel) -> Result<Option<Entry>> {
    let (output, mut journal) = args.journal.open("fig-f1", args, cancel)?;
    let Some(results) = compute(args, &mut journal, cancel)? else {
        journal.finish()?;
        return Ok(None);
    };
    let (header, rows) = table(&results);
    let svg = draw(&results)?;
    let entry = output.publish(&Experiment {
        title: TITLE,
        results: &results,
        page: &page(&results, &svg),
        figures: &[("fig-f1.svg", svg)],
        table: &markdown_table(&header, &rows),
        reading: &results.reading,
    })?;
    journal.finish()?;
    Ok(Some(entry))
}

/// J_ii ~ N(3.2, 0.5²), −2J_ij ~ N(0.05, 0.4²).
fn retina_like(d: usize, seed: u64) -> Result<Couplings> {
    let mut rng = rng::stream(seed, 0);
    let (bias, coupling) = (Normal::new(3.2, 0.5)?, Normal::new(0.05, 0.4)?);
    let mut j = Array2::zeros((d, d));
    for i in 0..d {
        j[[i, i]] = bias.sample(&mut rng);
        for k in 0..i {
            j[[i, k]] = -0.5 * coupling.sample(&mut rng);
            j[[k, i]] = j[[i, k]];
        }
    }
    Ok(Couplings::new(j)?)
}

/// Nothing when cancelled before the first curve.
fn compute(args: &Args, journal: &mut Journal, cancel: &Cancel) -> Result<Option<Results>> {
    if args.units < 2 || args.samples < 100 || args.correlation_draws < 10 {
        return Err("--units must be at least 2, --samples 100, --correlation-draws 10".into());
    }
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
    })?
    .run(&Gibbs::new(&truth)?)?;
    let measuring = rng::next_seed(sampling);
    let effort = Effort {
        chains: CHAINS,
        draws: args.correlation_draws,
        burn_in: 500,
    };
    let long = Effort {
        draws: 10 * args.correlation_draws,
        ..effort
    };
    let known = journal.unit("true correlations", |_| {
        let means = PairMeans::sampled(&Gibbs::new(&truth)?, long, measuring, cancel)?;
        Ok(means.map(|m| m.mean().into_raw_vec_and_offset().0))
    })?;
    waiting.finish_and_clear();
    let Some(known) = known.filter(|_| !run.cancelled) else {
        return Ok(None);
    };
    let known = Array2::from_shape_vec((args.units, args.units), known)?;
    let active = run.series(|row| row.iter().map(|w| f64::from(w.count_ones())).sum());
    let tau = diagnostics::integrated_autocorrelation_time(&active)?;
    let samples = Samples::new(&run.pooled())?;
    let measuring = rng::next_seed(measuring);
    let error = |couplings: &Couplings| -> Result<Option<Estimate>> {
        let means = PairMeans::sampled(&Gibbs::new(couplings)?, effort, measuring, cancel)?;
        Ok(means.map(|m| m.estimate(|found| mean_absolute_pearson_error(found, &known))))
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
        curves.push(journal.unit(name, |unit| {
            curve(name, neighbourhood, args, &samples, &error, (unit, cancel))
        })?);
    }
    if curves.is_empty() {
        return Ok(None);
    }
    let means = samples.means();
    let mut results = Results {
        settings: Settings {
            machine: Machine::this(),
            seed: args.seed,
            units: args.units,
            samples: samples.n_observed(),
            thinning: args.thinning,
            correlation_draws: args.correlation_draws,
            iterations: args.iterations,
        },
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
    Ok(Some(results))
}

/// Where a curve is, for the journal.
#[derive(Serialize, Deserialize)]
struct Place {
    trace: Vec<Point>,
    /// The iteration whose error is measured next.
    next: usize,
    fit: FitSnapshot,
}

fn curve(
    name: &str,
    neighbourhood: Neighbourhood,
    args: &Args,
    samples: &Samples,
    error: &(impl Fn(&Couplings) -> Result<Option<Estimate>> + Sync),
    (unit, cancel): (&mut Unit<'_>, &Cancel),
) -> Result<Curve> {
    let bar = progress::bar(args.iterations as u64).with_prefix(name.to_owned());
    let (mut trace, mut next, resume) = match unit.left_off()? {
        Some(Place { trace, next, fit }) => (trace, next, Some(fit)),
        None => (Vec::new(), 0, None),
    };
    let fitter = Fitter::new(FitOptions {
        neighbourhood,
        resume,
        minimizer: MinimizerOptions {
            max_iterations: args.iterations,
            cancel: cancel.clone(),
            snapshots: true,
            ..Default::default()
        },
        ..Default::default()
    })?;
    let fit = fitter.fit_observed(samples, |p| {
        bar.set_position(p.iteration as u64);
        if p.iteration < next {
            return;
        }
        // Every iteration at first, then ever fewer: which ones does not depend on the clock.
        next = (p.iteration + 1).max(p.iteration * 5 / 4);
        let found = error(&p.couplings()).unwrap_or(None);
        if let Some(found) = found {
            bar.set_message(format!("error {}", digits(found.value)));
        }
        trace.push(Point {
            iteration: p.iteration,
            seconds: p.seconds,
            error: found,
        });
        if let Some(fit) = p.snapshot() {
            let trace = trace.clone();
            unit.keep(Place { trace, next, fit });
        }
    })?;
    let last = error(&fit.couplings)?;
    let end = Point {
        iteration: fit.iterations,
        seconds: fit.seconds,
        error: last,
    };
    match trace.last_mut() {
        Some(point) if point.iteration == end.iteration => *point = end,
        _ => trace.push(end),
    }
    bar.finish_and_clear();
    Ok(Curve {
        name: name.to_owned(),
        error: last,
        seconds: fit.seconds,
        iterations: fit.iterations,
        evaluations: fit.evaluations,
        stop: fit.stop,
        warnings: fit.warnings.iter().map(ToString::to_string).collect(),
        trace,
    })
}

fn reading(results: &Results) -> Vec<String> {
    let mut lines = Vec::new();
    let first = &results.curves[0];
    if let Some(error) = first.error {
        lines.push(format!(
            "The correlations of the fitted model err by {} on average (± {:.0e} from the chains \
             that measure it), after {:.2} s of learning; the paper, with other couplings, has {} \
             after {} s.",
            digits(error.value),
            error.standard_error,
            first.seconds,
            results.paper.error,
            results.paper.seconds
        ));
        let ratio = error.value / results.noise_floor;
        lines.push(format!(
            "The correlations of the {} samples themselves err by {}: the model is {:.0} % {} \
             them. An error of this size is sampling noise, which cannot rank methods; so is the \
             paper's {}.",
            results.settings.samples,
            digits(results.noise_floor),
            100.0 * (ratio - 1.0).abs(),
            if ratio >= 1.0 { "above" } else { "below" },
            results.paper.error
        ));
    }
    if let [one, other] = &results.curves[..]
        && let (Some(a), Some(b)) = (one.error, other.error)
    {
        let difference = b.value - a.value;
        let noise = (a.standard_error.powi(2) + b.standard_error.powi(2)).sqrt();
        let verdict = if difference.abs() < 1e-3 * noise {
            "so nothing: it leads to states that this model all but excludes"
        } else if difference.abs() < 2.0 * noise {
            "which the chains cannot tell from nothing"
        } else if difference < 0.0 {
            "an improvement"
        } else {
            "for the worse"
        };
        lines.push(format!(
            "The neighbour with all bits flipped changes the error by {difference:+.1e}, {verdict}."
        ));
    }
    lines.push(format!(
        "{:.1} % of the bits are set; the autocorrelation time of the number of active units is \
         {:.2} samples.",
        100.0 * results.activity,
        results.tau
    ));
    for curve in &results.curves {
        lines.extend(
            curve
                .warnings
                .iter()
                .map(|w| format!("{}: {w}.", curve.name)),
        );
    }
    lines
}

fn table(results: &Results) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let header = vec![
        "neighbours",
        "error",
        "±",
        "seconds",
        "iterations",
        "stopped",
    ];
    let mut rows: Vec<Vec<String>> = results
        .curves
        .iter()
        .map(|c| {
            vec![
                c.name.clone(),
                c.error.map_or("–".to_owned(), |e| digits(e.value)),
                c.error
                    .map_or("–".to_owned(), |e| format!("{:.0e}", e.standard_error)),
                format!("{:.2}", c.seconds),
                c.iterations.to_string(),
                c.stop.to_string(),
            ]
        })
        .collect();
    let line = |name: &str, error: f64, seconds: &str| {
        let none = "–".to_owned();
        vec![
            name.to_owned(),
            digits(error),
            none.clone(),
            seconds.to_owned(),
            none.clone(),
            none,
        ]
    };
    rows.push(line("the samples themselves", results.noise_floor, "–"));
    let seconds = results.paper.seconds.to_string();
    rows.push(line("the paper", results.paper.error, &seconds));
    (header, rows)
}

fn draw(results: &Results) -> Result<String> {
    let points = |curve: &Curve| -> Vec<(f64, f64)> {
        let trace = curve.trace.iter();
        trace
            .filter_map(|p| Some((p.seconds, p.error?.value)))
            .collect()
    };
    let longest = results
        .curves
        .iter()
        .map(|c| c.seconds)
        .fold(1e-3, f64::max);
    let values = results.curves.iter().flat_map(points).map(|p| p.1);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (760, 460)).into_drawing_area();
        root.fill(&WHITE)?;
        let (chart, bottom) = root.split_vertically(420);
        let axes = Axes {
            title: &format!(
                "{} units, all connected, {} samples",
                results.settings.units, results.settings.samples
            ),
            x: "learning time (s)",
            y: "mean absolute error of correlations",
            x_range: (0.0, 1.02 * longest),
            y_range: plot::decades(values.chain([results.noise_floor])),
            log_x: false,
        };
        let mut series: Vec<Series> = results
            .curves
            .iter()
            .zip(STYLES)
            .map(|(curve, style)| Series {
                style,
                points: points(curve),
                marked: true,
            })
            .collect();
        series.push(Series {
            style: STYLES[5],
            points: vec![
                (0.0, results.noise_floor),
                (1.02 * longest, results.noise_floor),
            ],
            marked: false,
        });
        plot::panel(&chart, &axes, &series)?;
        let mut entries: Vec<_> = results
            .curves
            .iter()
            .zip(STYLES)
            .map(|(c, s)| (c.name.as_str(), s))
            .collect();
        entries.push(("noise of the samples", STYLES[5]));
        plot::legend(&bottom, &entries)?;
        root.present()?;
    }
    Ok(svg)
}

fn page(results: &Results, svg: &str) -> String {
    let mut page = Page::new(
        TITLE,
        "How fast minimum probability flow finds the correlations of a densely coupled, sparsely \
         active population, and how close samples allow it to come.",
    );
    page.heading("What was found");
    page.list(&results.reading);
    page.figure(
        svg,
        "Mean absolute error of the correlation coefficients against learning time, and the error \
         of the samples' own correlations.",
    );
    let (header, rows) = table(results);
    page.table(&header, &rows);
    page.heading("What was run");
    page.text(
        "The paper's couplings are not public. These were drawn with J_ii ~ N(3.2, 0.5²) and \
         −2J_ij ~ N(0.05, 0.4²), which gives about the sparse activity of a retina.",
    );
    page.settings(&results.settings);
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{exact_without_times, without_times};
    use std::path::Path;

    fn small() -> Args {
        Args {
            units: 8,
            samples: 2000,
            thinning: 2,
            correlation_draws: 500,
            iterations: 30,
            seed: 1,
            journal: journal::Options::default(),
        }
    }

    fn in_folder(folder: &Path, stop: Option<usize>) -> Option<Results> {
        let settings = journal::settings("fig-f1", &small()).unwrap();
        journal::in_folder(folder, settings, stop, |journal, cancel| {
            compute(&small(), journal, cancel)
        })
        .unwrap()
    }

    fn whole() -> Results {
        in_folder(tempfile::tempdir().unwrap().path(), None).unwrap()
    }

    #[test]
    fn a_stopped_run_goes_on_to_the_same_bits() {
        let folder = tempfile::tempdir().unwrap();
        // The true correlations, some ten states and a curve, and the same again.
        for stop in [1, 3, 4, 6, 5] {
            in_folder(folder.path(), Some(stop));
        }
        let results = in_folder(folder.path(), None).unwrap();
        assert_eq!(exact_without_times(&results), exact_without_times(&whole()));
    }

    #[test]
    fn results_have_the_documented_shape() {
        let results = whole();
        insta::assert_json_snapshot!(without_times(&results));
        assert!(draw(&results).unwrap().contains("learning time (s)"));
        assert!(page(&results, "<svg/>").contains("not public"));
        // A fit to these samples cannot know more than they do, but hardly less.
        let error = results.curves[0].error.unwrap();
        assert!(error.value < 2.0 * results.noise_floor + 5.0 * error.standard_error);
    }

    #[test]
    fn cancelled_before_the_start_is_no_result() {
        let cancel = Cancel::new();
        cancel.cancel();
        let folder = tempfile::tempdir().unwrap();
        let settings = journal::settings("fig-f1", &small()).unwrap();
        let journal = Journal::open(folder.path(), &small().journal, settings, &cancel);
        let found = compute(&small(), &mut journal.unwrap(), &cancel);
        assert!(found.unwrap().is_none());
    }
}
