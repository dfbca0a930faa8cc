//! The sentences, the table, the figure and the report of Figure F-1.

use super::{Curve, Results};
use crate::Result;
use crate::correlations::Estimate;
use crate::output::{self, Table, digits};
use crate::plot::{self, Marks, Panel, STYLES, Series};

pub(super) const TITLE: &str = "Figure F-1: forty units, all connected";

pub(super) fn reading(results: &Results) -> Vec<String> {
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
            "The correlations of the {} samples themselves err by {}: the model is {:.1} % {} \
             them. An error of this size is sampling noise, which cannot rank methods; so is the \
             paper's {}.",
            results.settings.args.samples,
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

pub(super) fn table(results: &Results) -> Table {
    let none = || "–".to_owned();
    let mut table = Table::of(
        &results.curves,
        &[
            ("neighbours", &|c| c.name.clone()),
            ("error", &|c| c.error.map_or_else(none, |e| digits(e.value))),
            ("±", &|c| {
                let shown = |e: Estimate| format!("{:.0e}", e.standard_error);
                c.error.map_or_else(none, shown)
            }),
            ("seconds", &|c| format!("{:.2}", c.seconds)),
            ("iterations", &|c| c.iterations.to_string()),
            ("stopped", &|c| c.stop.to_string()),
        ],
    );
    let line = |name: &str, error: f64, seconds: String| {
        let error = digits(error);
        vec![name.to_owned(), error, none(), seconds, none(), none()]
    };
    let (floor, paper) = (results.noise_floor, &results.paper);
    table
        .rows
        .push(line("the samples themselves", floor, none()));
    table
        .rows
        .push(line("the paper", paper.error, paper.seconds.to_string()));
    table
}

pub(super) fn draw(results: &Results) -> Result<String> {
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
    let x_range = (0.0, 1.02 * longest);
    let y_range = plot::decades(values.chain([results.noise_floor]));
    let curves = results.curves.iter().zip(STYLES);
    let mut series: Vec<Series> = curves
        .map(|(curve, style)| Series::new(&curve.name, style, points(curve), Marks::All))
        .collect();
    let floor = [0.0, x_range.1].map(|x| (x, results.noise_floor)).to_vec();
    let name = "noise of the samples";
    series.push(Series::new(name, STYLES[5], floor, Marks::Nothing));
    let panel = Panel {
        title: format!(
            "{} units, all connected, {} samples",
            results.settings.args.units, results.settings.args.samples
        ),
        x: "learning time (s)",
        y: "mean absolute error of correlations",
        x_range,
        y_range,
        log_x: false,
        series,
    };
    plot::svg((760, 460), |root| plot::panels(root, 420, 1, &[panel]))
}

pub(super) fn page(results: &Results, svg: &str) -> String {
    let lead = "How fast minimum probability flow finds the correlations of a densely coupled, sparsely \
                active population, and how close samples allow it to come.";
    let caption = "Mean absolute error of the correlation coefficients against learning time, and the \
                   error of the samples' own correlations.";
    let table = table(results);
    let mut page = output::page(TITLE, lead, &results.reading, (svg, caption), &table);
    page.heading("What was run");
    page.text(
        "The paper's couplings are not public. These were drawn with J_ii ~ N(3.2, 0.5²) and \
         −2J_ij ~ N(0.05, 0.4²), which gives about the sparse activity of a retina.",
    );
    page.settings(&results.settings);
    page.finish()
}
