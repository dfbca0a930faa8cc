//! Figure 2: error of the couplings of a two-dimensional spin glass against learning time.
//!
//! A 10×10 lattice with J_ij ~ N(0, 10) between neighbours and no field; samples drawn exactly;
//! all d(d+1)/2 parameters fitted by MPF. ε_J = ‖Ĵ − J‖²_F/d² after every iteration, against the
//! time spent learning (neither drawing samples nor measuring errors counts).

use crate::output::{Machine, Output, digits, markdown_table};
use crate::plot::{BLUE, INK, TEXT, TITLE};
use crate::{Result, progress};
use mpf_core::{Cancel, StopReason, rng};
use mpf_ising::{Boundary, Couplings, FitOptions, Fitter, Lattice, Samples, Warning};
use mpf_samplers::ExactLattice;
use plotters::prelude::*;
use serde::Serialize;
use std::path::PathBuf;

/// Options of `reproduce-fig2`.
#[derive(clap::Args)]
pub struct Args {
    /// Independent samples.
    #[arg(long, default_value_t = 20_000)]
    samples: usize,
    /// Variance of the couplings J (the paper: 10, a cold spin glass).
    #[arg(long, default_value_t = 10.0)]
    variance: f64,
    /// Side of the square lattice.
    #[arg(long, default_value_t = 10)]
    lattice: usize,
    /// Seed of the model and the samples.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Most iterations of a fit.
    #[arg(long, default_value_t = 300)]
    max_iterations: usize,
    /// Folder for the results [default: target/reproduce/fig2]
    #[arg(long)]
    out: Option<PathBuf>,
}

#[derive(Serialize)]
struct Results {
    settings: Settings,
    /// ε_J of Ĵ = 0.
    eps_j_of_zero: f64,
    methods: Vec<Method>,
}

#[derive(Serialize)]
struct Settings {
    machine: Machine,
    seed: u64,
    samples: usize,
    distinct_samples: usize,
    lattice: usize,
    variance: f64,
    sampler: &'static str,
}

#[derive(Serialize)]
struct Method {
    name: &'static str,
    eps_j: f64,
    eps_j_off_diagonal: f64,
    eps_j_diagonal: f64,
    seconds: f64,
    iterations: usize,
    evaluations: usize,
    stop: StopReason,
    warnings: Vec<Warning>,
    paper: Paper,
    trace: Vec<Point>,
}

/// Table E-1 of the paper.
#[derive(Serialize)]
struct Paper {
    eps_j: f64,
    seconds: f64,
}

#[derive(Serialize)]
struct Point {
    iteration: usize,
    seconds: f64,
    eps_j: f64,
}

/// Runs the command.
pub fn run(args: &Args, cancel: &Cancel) -> Result {
    let output = Output::new(args.out.as_deref(), "fig2")?;
    let results = compute(args, cancel)?;
    output.write_json("results.json", &results)?;
    output.write("fig2.svg", &draw(&results)?)?;
    let rows: Vec<Vec<String>> = results
        .methods
        .iter()
        .map(|m| {
            vec![
                m.name.to_owned(),
                digits(m.eps_j),
                digits(m.eps_j_off_diagonal),
                digits(m.eps_j_diagonal),
                format!("{:.1}", m.seconds),
                m.iterations.to_string(),
                m.stop.to_string(),
                digits(m.paper.eps_j),
                format!("{:.0}", m.paper.seconds),
            ]
        })
        .collect();
    let header = [
        "method",
        "ε_J",
        "couplings",
        "biases",
        "seconds",
        "iterations",
        "stopped because",
        "paper ε_J",
        "paper s",
    ];
    let table = markdown_table(&header, &rows);
    output.write("table.md", &table)?;
    println!("{table}");
    println!(
        "ε_J of no couplings at all: {}",
        digits(results.eps_j_of_zero)
    );
    for method in &results.methods {
        let best = method
            .trace
            .iter()
            .min_by(|a, b| a.eps_j.total_cmp(&b.eps_j));
        if let Some(best) = best.filter(|b| b.eps_j < 0.9 * method.eps_j) {
            println!(
                "{} passed ε_J = {} at iteration {}, then overfitted.",
                method.name,
                digits(best.eps_j),
                best.iteration
            );
        }
        for warning in &method.warnings {
            println!("{}: {warning}", method.name);
        }
    }
    println!("written to {}", output.shown());
    Ok(())
}

fn compute(args: &Args, cancel: &Cancel) -> Result<Results> {
    let lattice = Lattice::new(args.lattice, args.lattice, Boundary::Open)?;
    let truth = lattice.spin_glass(args.variance, &mut rng::stream(args.seed, 0))?;
    let states = ExactLattice::new(&truth, &lattice)?.draw(args.samples, rng::next_seed(args.seed));
    let samples = Samples::new(&states)?;

    let bar = progress::bar(args.max_iterations as u64).with_prefix("MPF");
    let mut trace = Vec::new();
    let mut options = FitOptions::default();
    options.minimizer.max_iterations = args.max_iterations;
    options.minimizer.cancel = cancel.clone();
    let fit = Fitter::new(options)?.fit_observed(&samples, |progress| {
        let eps_j = progress.couplings().mean_square_error(&truth);
        bar.set_position(progress.iteration as u64);
        bar.set_message(format!("ε_J {}", digits(eps_j)));
        trace.push(Point {
            iteration: progress.iteration,
            seconds: progress.seconds,
            eps_j,
        });
    })?;
    bar.finish_and_clear();
    let diagonal = diagonal_error(&fit.couplings, &truth);
    let eps_j = fit.couplings.mean_square_error(&truth);
    Ok(Results {
        settings: Settings {
            machine: Machine::this(),
            seed: args.seed,
            samples: args.samples,
            distinct_samples: samples.n_distinct(),
            lattice: args.lattice,
            variance: args.variance,
            sampler: "exact",
        },
        eps_j_of_zero: Couplings::zeros(lattice.n_units())?.mean_square_error(&truth),
        methods: vec![Method {
            name: "MPF",
            eps_j,
            eps_j_off_diagonal: eps_j - diagonal,
            eps_j_diagonal: diagonal,
            seconds: fit.seconds,
            iterations: fit.iterations,
            evaluations: fit.evaluations,
            stop: fit.stop,
            warnings: fit.warnings,
            paper: Paper {
                eps_j: 0.0172,
                seconds: 60.0,
            },
            trace,
        }],
    })
}

/// The part of ε_J that comes from the biases.
fn diagonal_error(fitted: &Couplings, truth: &Couplings) -> f64 {
    let d = truth.n_units();
    let sum: f64 = (0..d)
        .map(|i| (fitted.get(i, i) - truth.get(i, i)).powi(2))
        .sum();
    sum / (d * d) as f64
}

/// The power of ten below or above `value`.
fn decade(value: f64, round: fn(f64) -> f64) -> f64 {
    10f64.powf(round(value.log10()))
}

fn draw(results: &Results) -> Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (760, 460)).into_drawing_area();
        root.fill(&WHITE)?;
        let points = || results.methods.iter().flat_map(|m| &m.trace);
        let longest = points().map(|p| p.seconds).fold(1e-3, f64::max);
        let (low, high) = points()
            .map(|p| p.eps_j)
            .chain([results.eps_j_of_zero])
            .fold((f64::INFINITY, 0.0f64), |(lo, hi), e| {
                (lo.min(e), hi.max(e))
            });
        let caption = format!(
            "{0}×{0} spin glass, variance {1}, {2} samples",
            results.settings.lattice, results.settings.variance, results.settings.samples
        );
        let mut chart = ChartBuilder::on(&root)
            .caption(caption, TITLE.into_font())
            .margin(14)
            .x_label_area_size(46)
            .y_label_area_size(72)
            .build_cartesian_2d(
                0.0..1.02 * longest,
                (0.9 * decade(low, f64::floor)..1.1 * decade(high, f64::ceil)).log_scale(),
            )?;
        chart
            .configure_mesh()
            .x_desc("learning time (s)")
            .y_desc("mean square error of J")
            .label_style(TEXT)
            .axis_desc_style(TEXT)
            .light_line_style(INK.mix(0.06))
            .bold_line_style(INK.mix(0.15))
            .y_label_formatter(&|v| digits(*v))
            .draw()?;
        for method in &results.methods {
            let line = method.trace.iter().map(|p| (p.seconds, p.eps_j));
            chart
                .draw_series(LineSeries::new(line, BLUE.stroke_width(2)))?
                .label(method.name)
                .legend(|(x, y)| PathElement::new([(x, y), (x + 24, y)], BLUE.stroke_width(2)));
        }
        let zero = results.eps_j_of_zero;
        chart
            .draw_series(DashedLineSeries::new(
                [(0.0, zero), (1.02 * longest, zero)],
                7,
                5,
                INK.mix(0.6).stroke_width(1),
            ))?
            .label("no couplings")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 8, y)], INK.mix(0.6).stroke_width(1)));
        chart
            .configure_series_labels()
            .label_font(TEXT)
            .background_style(WHITE.mix(0.9))
            .border_style(INK.mix(0.3))
            .position(SeriesLabelPosition::LowerRight)
            .draw()?;
        root.present()?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_lattice_runs_through_and_repeats() {
        let args = Args {
            samples: 2000,
            variance: 1.0,
            lattice: 4,
            seed: 1,
            max_iterations: 40,
            out: None,
        };
        let results = compute(&args, &Cancel::new()).unwrap();
        let method = &results.methods[0];
        assert_eq!(method.trace.len(), method.iterations + 1);
        assert!(
            method
                .trace
                .windows(2)
                .all(|w| w[0].seconds <= w[1].seconds)
        );
        let (split, whole) = (
            method.eps_j_off_diagonal + method.eps_j_diagonal,
            method.eps_j,
        );
        assert!((split - whole).abs() < 1e-12 * whole);
        assert!(method.eps_j < results.eps_j_of_zero);
        let again = compute(&args, &Cancel::new()).unwrap();
        assert_eq!(again.methods[0].eps_j, method.eps_j);
        assert!(draw(&results).unwrap().contains("learning time (s)"));
    }
}
