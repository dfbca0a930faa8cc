//! The errors of all samplers against states and seconds.

use super::{Measured, Results};
use crate::Result;
use crate::plot::{BLUE, INK, RED, TEXT, TITLE};
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;

/// Colour, and pixels of a dash and the gap after it.
const STYLES: [(RGBColor, Option<(u32, u32)>); 5] = [
    (INK, None),
    (BLUE, None),
    (RED, None),
    (RED, Some((3, 4))),
    (RGBColor(200, 130, 0), Some((9, 4))),
];

pub(super) fn draw(results: &Results) -> Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (1080, 480)).into_drawing_area();
        root.fill(&WHITE)?;
        let settings = &results.settings;
        let caption = format!(
            "{0}×{0} spin glass, variance {1}: error of the correlations, {2} chains",
            settings.lattice, settings.variance, settings.chains
        );
        let root = root.titled(&caption, TITLE.into_font())?;
        let (left, right) = root.split_horizontally(540);
        panel(&left, results, "states drawn", |_, states| states, true)?;
        let seconds = |s: &Measured, states: f64| states / s.steps_per_second;
        panel(&right, results, "seconds on one core", seconds, false)?;
        root.present()?;
    }
    Ok(svg)
}

fn panel(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    results: &Results,
    x_label: &str,
    x: impl Fn(&Measured, f64) -> f64,
    legend: bool,
) -> Result {
    let lines: Vec<Vec<(f64, f64)>> = results
        .samplers
        .iter()
        .map(|s| {
            let points = s.curve.iter().map(|p| (x(s, p.states as f64), p.mse));
            points.collect()
        })
        .collect();
    let range = |values: &mut dyn Iterator<Item = f64>| {
        let (low, high) = values.fold((f64::INFINITY, 0.0f64), |(low, high), v| {
            (low.min(v), high.max(v))
        });
        0.8 * low.max(1e-12)..1.25 * high
    };
    let x_range = range(&mut lines.iter().flatten().map(|p| p.0));
    let y_range = range(&mut lines.iter().flatten().map(|p| p.1));
    let mut chart = ChartBuilder::on(area)
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(78)
        .build_cartesian_2d(x_range.log_scale(), y_range.log_scale())?;
    chart
        .configure_mesh()
        .x_desc(x_label)
        .y_desc("mean square error of ⟨s_i s_j⟩")
        .label_style(TEXT)
        .axis_desc_style(TEXT)
        .light_line_style(INK.mix(0.06))
        .bold_line_style(INK.mix(0.15))
        .x_label_formatter(&|v| power_of_ten(*v))
        .y_label_formatter(&|v| power_of_ten(*v))
        .draw()?;
    for ((sampler, line), (colour, dash)) in results.samplers.iter().zip(lines).zip(STYLES) {
        let style = colour.stroke_width(2);
        let series = match dash {
            None => chart.draw_series(LineSeries::new(line, style))?,
            Some((on, off)) => chart.draw_series(DashedLineSeries::new(line, on, off, style))?,
        };
        if legend {
            let (on, off) = dash.unwrap_or((24, 0));
            series.label(&sampler.name).legend(move |(x, y)| {
                let ends = [(x, y), (x + 24, y)];
                DashedPathElement::new(ends, on, off.max(1), style)
            });
        }
    }
    if legend {
        chart
            .configure_series_labels()
            .label_font(TEXT)
            .background_style(WHITE.mix(0.9))
            .border_style(INK.mix(0.3))
            .position(SeriesLabelPosition::LowerLeft)
            .draw()?;
    }
    Ok(())
}

fn power_of_ten(value: f64) -> String {
    if (0.9..1e5).contains(&value) {
        format!("{value:.0}")
    } else {
        format!("{value:.0e}")
    }
}
