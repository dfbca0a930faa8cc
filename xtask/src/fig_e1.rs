//! Figure E-1: learning time against the number of samples M.
//!
//! Times one evaluation of K with its gradient, and a whole fit to |∇| ≤ 10⁻⁴, on samples of the
//! paper's 10×10 spin glass. Both are straight lines with slope near 1 in a log-log plot once M is
//! large. The fit has a small ℓ2 penalty: without one, couplings run away at small M and the fit
//! does not end.

use crate::Result;
use crate::glass::Glass;
use crate::output::{self, Entry, Experiment, Settings, Table, digits, seconds_of, slope};
use crate::plot::{self, Marks, Panel, STYLES, Series};
use crate::run::{RunArgs, units};
use mpf_core::{Cancel, Checkpoint, FlowForm, Objective, StopReason};
use mpf_ising::{FitOptions, Fitter, IsingFlow, Mpf, Neighbourhood, Samples};
use serde::{Deserialize, Serialize};

#[derive(Clone, clap::Args, Serialize)]
pub struct Args {
    /// Smallest number of samples.
    #[arg(long, default_value_t = 20)]
    from: usize,
    /// Largest number of samples.
    #[arg(long, default_value_t = 200_000)]
    to: usize,
    /// Numbers of samples per decade.
    #[arg(long, default_value_t = 2)]
    per_decade: usize,
    /// Variance of the couplings J.
    #[arg(long, default_value_t = 10.0)]
    variance: f64,
    /// Side of the square lattice.
    #[arg(long, default_value_t = 10)]
    lattice: usize,
    /// ℓ2 penalty on couplings and fields.
    #[arg(long, default_value_t = 0.01)]
    l2: f64,
    /// Seed of the model and the samples.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[derive(Serialize)]
struct Results {
    settings: Settings<Args>,
    points: Vec<Point>,
    /// Cost ~ M^slope over the upper half of the range (in logarithms).
    slopes: Slopes,
    reading: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Point {
    samples: usize,
    distinct_samples: usize,
    /// Of one evaluation: the fastest of several.
    evaluation_seconds: f64,
    fit_seconds: f64,
    iterations: usize,
    evaluations: usize,
    stop: StopReason,
}

#[derive(Clone, Copy, Serialize)]
struct Slopes {
    evaluation_slope: f64,
    fit_slope: f64,
}

const TOLERANCE: f64 = 1e-4;

const TITLE: &str = "Figure E-1: time against the number of samples";

pub fn run(args: &Args, run: &RunArgs, cancel: &Cancel) -> Result<Entry> {
    let sizes = sizes(args)?;
    run.run("fig-e1", args, cancel, |output, checkpoint| {
        let results = compute(args, &sizes, checkpoint)?;
        let svg = draw(&results)?;
        output.publish(&Experiment {
            title: TITLE,
            results: &results,
            page: &page(&results, &svg),
            figures: &[("fig-e1.svg", svg)],
            table: &table(&results).markdown(),
            reading: &results.reading,
        })
    })
}

/// Fails when cancelled before two points were measured.
fn compute(args: &Args, sizes: &[usize], checkpoint: &Checkpoint) -> Result<Results> {
    let glass = Glass::draw(args.lattice, args.variance, args.to, args.seed)?;
    let mut options = FitOptions {
        l2: args.l2,
        l2_on_fields: true,
        ..Default::default()
    };
    options.minimizer.gradient_tolerance = TOLERANCE;
    options.minimizer.cancel = checkpoint.cancel();
    let fitter = Fitter::new(Mpf::default(), options)?;
    let name = |m| format!("{m} samples");
    // A fit is timed, so it is not resumed in the middle.
    let points = units(checkpoint, "samples", sizes, name, |m, bar| {
        bar.set_message(format!("M = {m}"));
        let samples = Samples::new(&glass.states.slice(0..m))?;
        let mut flow = IsingFlow::new(&samples, Neighbourhood::SingleFlips, FlowForm::Sum)?;
        let theta = glass.truth.pack();
        let mut gradient = vec![0.0; theta.len()];
        let evaluate = || flow.value_and_gradient(&theta, &mut gradient);
        let evaluation_seconds = seconds_of(20, evaluate);
        let fit = fitter.fit(&samples)?;
        Ok(Point {
            samples: m,
            distinct_samples: samples.n_distinct(),
            evaluation_seconds,
            fit_seconds: fit.seconds,
            iterations: fit.iterations,
            evaluations: fit.evaluations,
            stop: fit.stop,
        })
    })?;
    if points.len() < 2 {
        return Err(mpf_core::Error::Cancelled.into());
    }
    let slopes = Slopes {
        evaluation_slope: exponent(&points, |p| p.evaluation_seconds),
        fit_slope: exponent(&points, |p| p.fit_seconds),
    };
    let reading = reading(&points, slopes);
    Ok(Results {
        settings: Settings::of(args).with("gradient_tolerance", TOLERANCE),
        points,
        slopes,
        reading,
    })
}

/// Returns sizes from `from` to `to` in equal ratios.
fn sizes(args: &Args) -> Result<Vec<usize>> {
    if args.from < 1 || args.to <= args.from || args.per_decade < 1 {
        return Err("--from must be at least 1, --to larger, --per-decade at least 1".into());
    }
    let decades = (args.to as f64 / args.from as f64).log10();
    let steps = (decades * args.per_decade as f64).round().max(1.0) as usize;
    Ok((0..=steps)
        .map(|k| {
            (args.from as f64 * 10f64.powf(decades * k as f64 / steps as f64)).round() as usize
        })
        .collect())
}

/// Returns the slope of ln seconds against ln M over the upper half of the range.
fn exponent(points: &[Point], seconds: impl Fn(&Point) -> f64) -> f64 {
    let logs: Vec<(f64, f64)> = points
        .iter()
        .map(|p| ((p.samples as f64).ln(), seconds(p).ln()))
        .collect();
    let middle = 0.5 * (logs[0].0 + logs[logs.len() - 1].0);
    let upper: Vec<(f64, f64)> = logs.into_iter().filter(|p| p.0 >= middle - 1e-9).collect();
    slope(&upper)
}

fn reading(points: &[Point], slopes: Slopes) -> Vec<String> {
    let (first, last) = (&points[0], &points[points.len() - 1]);
    let verdict = |name: &str, slope: f64| {
        let agreement = if (0.8..=1.2).contains(&slope) {
            "This agrees with the paper, which finds it linear for many samples"
        } else {
            "This differs from the paper, which finds it linear for many samples"
        };
        format!(
            "The time of {name} grows as M^{slope:.2} over the upper half of the range. {agreement}."
        )
    };
    let mut lines = vec![
        verdict("one evaluation", slopes.evaluation_slope),
        verdict("a whole fit", slopes.fit_slope),
        format!(
            "From {} to {} samples the number of iterations went from {} to {}.",
            first.samples, last.samples, first.iterations, last.iterations
        ),
    ];
    let unfinished = points.iter().filter(|p| !p.stop.is_converged()).count();
    if unfinished > 0 {
        lines.push(format!("{unfinished} of the fits did not converge."));
    }
    lines
}

fn table(results: &Results) -> Table {
    Table::of(
        &results.points,
        &[
            ("samples", &|p| p.samples.to_string()),
            ("distinct", &|p| p.distinct_samples.to_string()),
            ("evaluation (ms)", &|p| digits(1e3 * p.evaluation_seconds)),
            ("fit (s)", &|p| digits(p.fit_seconds)),
            ("iterations", &|p| p.iterations.to_string()),
            ("stopped", &|p| p.stop.to_string()),
        ],
    )
}

fn draw(results: &Results) -> Result<String> {
    let points = &results.points;
    let x_range = (
        0.8 * points[0].samples as f64,
        1.25 * points[points.len() - 1].samples as f64,
    );
    type Seconds = fn(&Point) -> f64;
    let slopes = results.slopes;
    let measured: [(&str, f64, Seconds); 2] = [
        ("one evaluation", slopes.evaluation_slope, |p| {
            p.evaluation_seconds
        }),
        ("a whole fit", slopes.fit_slope, |p| p.fit_seconds),
    ];
    let panels = ["a", "b"].into_iter().zip(measured);
    let panels = panels.map(|(letter, (name, slope, seconds))| {
        let points = points.iter().map(|p| (p.samples as f64, seconds(p)));
        let line: Vec<(f64, f64)> = points.collect();
        // The line of slope one through the last point.
        let (m, s) = line[line.len() - 1];
        let linear = line.iter().map(|p| (p.0, s * p.0 / m));
        let y_range = plot::decades(line.iter().map(|p| p.1));
        let linear = linear.filter(|p| p.1 >= y_range.0).collect();
        Panel {
            title: format!("({letter}) {name}: M^{slope:.2}"),
            x: "samples M",
            y: "time (s)",
            x_range,
            y_range,
            log_x: true,
            series: vec![
                Series::new("measured", STYLES[0], line, Marks::All),
                Series::new("proportional to M", STYLES[5], linear, Marks::Nothing),
            ],
        }
    });
    let panels: Vec<Panel<'_>> = panels.collect();
    plot::svg((1000, 420), |root| plot::panels(root, 380, 1, &panels))
}

fn page(results: &Results, svg: &str) -> String {
    let lead = "The time of one evaluation of the objective with its gradient, and of a whole fit, as \
                the number of samples grows.";
    let caption = "Time against the number of samples, both logarithmic, with a line of slope one.";
    let table = table(results);
    let mut page = output::page(TITLE, lead, &results.reading, (svg, caption), &table);
    page.heading("What was run");
    page.settings(&results.settings);
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::without_times;
    use mpf_testkit::StopAfter;

    fn small() -> Args {
        Args {
            from: 50,
            to: 2000,
            per_decade: 2,
            variance: 1.0,
            lattice: 4,
            l2: 1e-3,
            seed: 1,
        }
    }

    fn run(checkpoint: &Checkpoint) -> Result<Results> {
        let args = small();
        compute(&args, &sizes(&args).unwrap(), checkpoint)
    }

    #[test]
    fn a_stopped_run_goes_on_with_the_points_that_it_has() {
        let one = StopAfter::new(1);
        assert!(run(&one.checkpoint()).is_err());
        let two = one.with_limit(2);
        let checkpoint = two.checkpoint();
        assert!(checkpoint.load().unwrap());
        let first = run(&checkpoint).unwrap().points;
        let all = run(&two.resumed().1).unwrap().points;
        assert_eq!((first.len(), all.len()), (2, 4));
        let seconds = |p: &Point| (p.evaluation_seconds, p.fit_seconds);
        assert_eq!(seconds(&all[0]), seconds(&first[0]), "measured once");
    }

    #[test]
    fn results_have_the_documented_shape() {
        let results = run(&Checkpoint::default()).unwrap();
        insta::assert_json_snapshot!(without_times(&results));
        assert!(draw(&results).unwrap().contains("samples M"));
        assert!(page(&results, "<svg/>").contains("What was found"));
    }

    #[test]
    fn slopes_are_those_of_power_laws() {
        let point = |samples: usize| Point {
            samples,
            distinct_samples: samples,
            evaluation_seconds: 3e-6 * (samples as f64).powf(0.93),
            fit_seconds: 2e-4 * (samples as f64).powf(1.1),
            iterations: 10,
            evaluations: 12,
            stop: StopReason::Converged,
        };
        let points: Vec<Point> = [10, 100, 1000, 10_000, 100_000].map(point).into();
        assert!((exponent(&points, |p| p.evaluation_seconds) - 0.93).abs() < 1e-9);
        assert!((exponent(&points, |p| p.fit_seconds) - 1.1).abs() < 1e-9);
        let text = reading(
            &points,
            Slopes {
                evaluation_slope: 1.5,
                fit_slope: 1.0,
            },
        );
        assert!(text[0].contains("differs from the paper") && text[1].contains("agrees"));
    }

    #[test]
    fn sizes_span_the_range() {
        assert_eq!(sizes(&small()).unwrap(), [50, 171, 585, 2000]);
        assert!(sizes(&Args { to: 50, ..small() }).is_err());
    }
}
