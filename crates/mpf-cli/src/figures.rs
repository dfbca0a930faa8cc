//! Small figures for reports: 480 pixels wide, so that their text can be read on a phone.

use mpf_report::Result;
use mpf_report::plot::{BLUE, INK, RED, TEXT, TITLE, short};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::prelude::*;
use std::ops::Range;

const WIDTH: u32 = 480;
const HEIGHT: u32 = 400;
/// The most points with error bars: more bars would hide the points.
const MOST_BARS: usize = 400;
/// The most cells along a side of a matrix.
const MOST_CELLS: usize = 160;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A point with standard errors in both directions.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// The horizontal coordinate.
    pub x: f64,
    /// The vertical coordinate.
    pub y: f64,
    /// Standard error of x.
    pub x_error: f64,
    /// Standard error of y.
    pub y_error: f64,
}

fn draw(height: u32, f: impl FnOnce(&Area<'_>) -> Result) -> Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE)?;
        f(&root)?;
        root.present()?;
    }
    Ok(svg)
}

/// Returns the range of the finite values, with a margin.
fn around(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (low, high) = values
        .filter(|v| v.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
            (low.min(v), high.max(v))
        });
    if low > high {
        return -1.0..1.0;
    }
    let room = (0.05 * (high - low)).max(1e-12 + 1e-3 * high.abs());
    low - room..high + room
}

/// Starts a chart with its title and space for labels, `left` pixels for those of the y axis.
fn chart<'a, 'b>(
    area: &'a Area<'b>,
    title: &str,
    left: u32,
) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut builder = ChartBuilder::on(area);
    builder
        .caption(title, TITLE.into_font())
        .margin(8)
        .margin_right(18)
        .x_label_area_size(42)
        .y_label_area_size(left);
    builder
}

/// Draws a legend in the upper right corner.
fn legend<'a, X, Y>(chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>) -> Result
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .label_font(TEXT)
        .border_style(INK.mix(0.2))
        .background_style(WHITE)
        .draw()?;
    Ok(())
}

fn mesh<'a, X, Y>(
    chart: &mut ChartContext<'a, SVGBackend<'_>, Cartesian2d<X, Y>>,
    x: &str,
    y: &str,
) -> Result
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .x_desc(x)
        .y_desc(y)
        .x_labels(5)
        .y_labels(6)
        .label_style(TEXT)
        .axis_desc_style(TEXT)
        .light_line_style(INK.mix(0.05))
        .bold_line_style(INK.mix(0.12))
        .x_label_formatter(&|v| short(*v))
        .y_label_formatter(&|v| short(*v))
        .draw()?;
    Ok(())
}

/// Draws points, and the line where x and y are equal.
pub fn scatter(title: &str, x: &str, y: &str, points: &[Point]) -> Result<String> {
    let bars = points.len() <= MOST_BARS;
    let reach = |value: f64, error: f64| {
        let error = if bars && error.is_finite() {
            error
        } else {
            0.0
        };
        [value - 2.0 * error, value + 2.0 * error]
    };
    let both = around(points.iter().flat_map(|p| {
        let (x, y) = (reach(p.x, p.x_error), reach(p.y, p.y_error));
        [x[0], x[1], y[0], y[1]]
    }));
    draw(HEIGHT, |area| {
        let mut chart = chart(area, title, 66).build_cartesian_2d(both.clone(), both.clone())?;
        mesh(&mut chart, x, y)?;
        let equal = [(both.start, both.start), (both.end, both.end)];
        chart.draw_series(LineSeries::new(equal, INK.mix(0.5)))?;
        if bars {
            let bar = BLUE.mix(0.35).stroke_width(1);
            for p in points {
                let lines = [
                    [(p.x - 2.0 * p.x_error, p.y), (p.x + 2.0 * p.x_error, p.y)],
                    [(p.x, p.y - 2.0 * p.y_error), (p.x, p.y + 2.0 * p.y_error)],
                ];
                for line in lines
                    .iter()
                    .filter(|l| l.iter().all(|q| q.0.is_finite() && q.1.is_finite()))
                {
                    chart.draw_series(LineSeries::new(line.iter().copied(), bar))?;
                }
            }
        }
        let (radius, ink) = if bars { (3, 0.8) } else { (2, 0.3) };
        chart.draw_series(
            points
                .iter()
                .map(|p| Circle::new((p.x, p.y), radius, BLUE.mix(ink).filled())),
        )?;
        Ok(())
    })
}

/// Returns blue below zero, white at zero, red above.
fn diverging(share: f64) -> RGBColor {
    let share = share.clamp(-1.0, 1.0);
    let end = if share < 0.0 {
        (33.0, 102.0, 172.0)
    } else {
        (178.0, 24.0, 43.0)
    };
    // A power below one keeps weak couplings from looking white.
    let t = share.abs().powf(0.7);
    let mix = |to: f64| (255.0 + t * (to - 255.0)).round() as u8;
    RGBColor(mix(end.0), mix(end.1), mix(end.2))
}

/// Draws a symmetric matrix in colours, with the scale beside it; `values(i, j)` for i ≠ j. A large
/// matrix is drawn in blocks, with the largest entry of each.
pub fn matrix(title: &str, d: usize, values: impl Fn(usize, usize) -> f64) -> Result<String> {
    let step = d.div_ceil(MOST_CELLS).max(1);
    let cells = d.div_ceil(step);
    let strongest = |a: usize, b: usize| {
        let range = |c: usize| c * step..((c + 1) * step).min(d);
        let entries = range(a).flat_map(|i| range(b).map(move |j| (i, j)));
        entries
            .filter(|(i, j)| i != j)
            .map(|(i, j)| values(i, j))
            .fold(0.0f64, |m, v| if v.abs() > m.abs() { v } else { m })
    };
    let shown: Vec<Vec<f64>> = (0..cells)
        .map(|a| (0..cells).map(|b| strongest(a, b)).collect())
        .collect();
    let largest = shown.iter().flatten().fold(0.0f64, |m, v| m.max(v.abs()));
    let scale = if largest > 0.0 { largest } else { 1.0 };
    draw(HEIGHT + 30, |area| {
        let (left, right) = area.split_horizontally(WIDTH as i32 - 78);
        let d = d as f64;
        let mut chart = ChartBuilder::on(&left)
            .caption(title, TITLE.into_font())
            .margin(8)
            .x_label_area_size(42)
            .y_label_area_size(52)
            .build_cartesian_2d(0.0..d, d..0.0)?;
        chart
            .configure_mesh()
            .disable_mesh()
            .x_desc("unit")
            .y_desc("unit")
            .x_labels(6)
            .y_labels(6)
            .label_style(TEXT)
            .axis_desc_style(TEXT)
            .x_label_formatter(&|v| short(*v))
            .y_label_formatter(&|v| short(*v))
            .draw()?;
        let step = step as f64;
        let squares = shown.iter().enumerate().flat_map(|(a, row)| {
            row.iter().enumerate().map(move |(b, v)| {
                let (y, x) = (a as f64 * step, b as f64 * step);
                let colour = if a == b && step == 1.0 {
                    RGBColor(225, 225, 222)
                } else {
                    diverging(v / scale)
                };
                let corner = ((x + step).min(d), (y + step).min(d));
                Rectangle::new([(x, y), corner], colour.filled())
            })
        });
        chart.draw_series(squares)?;
        // The scale is as tall as the matrix.
        let (top, bottom) = (46, HEIGHT as i32 - 20);
        let n = 64;
        for k in 0..n {
            let edge = |k: i32| top + (bottom - top) * k / n;
            let share = 1.0 - 2.0 * (f64::from(k) + 0.5) / f64::from(n);
            right.draw(&Rectangle::new(
                [(6, edge(k)), (22, edge(k + 1))],
                diverging(share).filled(),
            ))?;
        }
        for (value, y) in [(scale, top), (0.0, (top + bottom) / 2), (-scale, bottom)] {
            let text = short((100.0 * value).round() / 100.0);
            right.draw(&Text::new(text, (28, y - 8), TEXT.into_font()))?;
        }
        Ok(())
    })
}

/// Draws a histogram.
pub fn histogram(title: &str, x: &str, values: &[f64]) -> Result<String> {
    let range = around(values.iter().copied());
    let n_bins = ((values.len() as f64).sqrt() as usize).clamp(10, 60);
    let width = (range.end - range.start) / n_bins as f64;
    let mut counts = vec![0usize; n_bins];
    for value in values {
        let bin = ((value - range.start) / width) as usize;
        counts[bin.min(n_bins - 1)] += 1;
    }
    let highest = counts.iter().copied().max().unwrap_or(1).max(1) as f64;
    draw(HEIGHT, |area| {
        let mut chart =
            chart(area, title, 66).build_cartesian_2d(range.clone(), 0.0..1.08 * highest)?;
        mesh(&mut chart, x, "pairs")?;
        let bars = counts.iter().enumerate().map(|(bin, count)| {
            let x = range.start + bin as f64 * width;
            Rectangle::new(
                [(x, 0.0), (x + width, *count as f64)],
                BLUE.mix(0.7).filled(),
            )
        });
        chart.draw_series(bars)?;
        let zero = [(0.0, 0.0), (0.0, 1.08 * highest)];
        if range.contains(&0.0) {
            chart.draw_series(LineSeries::new(zero, INK.mix(0.6)))?;
        }
        Ok(())
    })
}

/// Draws named values below each other, with error bars of two standard errors.
pub fn named(title: &str, x: &str, rows: &[(String, f64, f64)]) -> Result<String> {
    let bar = |error: f64| if error.is_finite() { 2.0 * error } else { 0.0 };
    let range = around(
        rows.iter()
            .flat_map(|(_, v, e)| [v - bar(*e), v + bar(*e)])
            .chain([0.0]),
    );
    let n = rows.len().max(1);
    let height = 96 + 24 * n as u32;
    draw(height, |area| {
        let mut chart =
            chart(area, title, 128).build_cartesian_2d(range.clone(), (n as f64 - 0.5)..-0.5)?;
        chart
            .configure_mesh()
            .x_desc(x)
            .disable_y_mesh()
            .x_labels(5)
            .y_labels(0)
            .label_style(TEXT)
            .axis_desc_style(TEXT)
            .light_line_style(INK.mix(0.05))
            .bold_line_style(INK.mix(0.12))
            .x_label_formatter(&|v| short(*v))
            .draw()?;
        chart.draw_series(LineSeries::new(
            [(0.0, -0.5), (0.0, n as f64 - 0.5)],
            INK.mix(0.6),
        ))?;
        for (k, (name, value, error)) in rows.iter().enumerate() {
            let y = k as f64;
            let colour = if *value < 0.0 { BLUE } else { RED };
            let line = [(value - bar(*error), y), (value + bar(*error), y)];
            chart.draw_series(LineSeries::new(line, colour.stroke_width(2)))?;
            chart.draw_series([Circle::new((*value, y), 4, colour.filled())])?;
            let place = chart.backend_coord(&(range.start, y));
            let style =
                TEXT.into_font()
                    .into_text_style(area)
                    .pos(plotters::style::text_anchor::Pos::new(
                        plotters::style::text_anchor::HPos::Right,
                        plotters::style::text_anchor::VPos::Center,
                    ));
            area.draw(&Text::new(shortened(name), (place.0 - 10, place.1), style))?;
        }
        Ok(())
    })
}

/// Shortens a name so that it fits beside a plot.
fn shortened(name: &str) -> String {
    const LONGEST: usize = 17;
    if name.chars().count() <= LONGEST {
        return name.to_owned();
    }
    name.chars().take(LONGEST - 1).chain(['…']).collect()
}

/// Draws the probability of every count on a log scale: a line for the model, points with error bars
/// for the data.
pub fn counts(title: &str, model: &[(f64, f64)], data: &[(f64, f64, f64)]) -> Result<String> {
    let positive = |v: &f64| *v > 0.0 && v.is_finite();
    let values = || {
        let all = model.iter().map(|p| p.1).chain(data.iter().map(|p| p.1));
        all.filter(positive)
    };
    let low = values().fold(1.0, f64::min) / 2.0;
    let high = values().fold(low, f64::max) * 2.0;
    let shown = |p: &(f64, f64)| p.1 >= low;
    let last = model
        .iter()
        .chain(&data.iter().map(|p| (p.0, p.1)).collect::<Vec<_>>())
        .filter(|p| shown(p))
        .map(|p| p.0)
        .fold(1.0, f64::max);
    draw(HEIGHT, |area| {
        let mut chart =
            chart(area, title, 66).build_cartesian_2d(-0.5..last + 0.5, (low..high).log_scale())?;
        mesh(&mut chart, "active units", "probability")?;
        let line = model.iter().copied().filter(|p| shown(p) && p.0 <= last);
        chart
            .draw_series(LineSeries::new(line, RED.stroke_width(2)))?
            .label("model")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 20, y)], RED.stroke_width(2)));
        for &(n, p, error) in data.iter().filter(|p| p.1 >= low) {
            let ends = [
                (n, (p - 2.0 * error).max(low)),
                (n, (p + 2.0 * error).min(high)),
            ];
            chart.draw_series(LineSeries::new(ends, BLUE.stroke_width(1)))?;
        }
        let dots = data.iter().filter(|p| p.1 >= low);
        chart
            .draw_series(dots.map(|&(n, p, _)| Circle::new((n, p), 3, BLUE.filled())))?
            .label("data")
            .legend(|(x, y)| Circle::new((x + 10, y), 3, BLUE.filled()));
        legend(&mut chart)
    })
}

/// Draws held-out scores with their errors against the penalty, and the penalty that was chosen.
pub fn path(title: &str, x: &str, points: &[Point], chosen: f64) -> Result<String> {
    let along = points.iter().map(|p| p.x).filter(|x| *x > 0.0);
    let low = along.clone().fold(f64::INFINITY, f64::min);
    let high = along.fold(0.0, f64::max);
    if low > high {
        return Err("a path needs positive penalties".into());
    }
    let up = around(
        points
            .iter()
            .flat_map(|p| [p.y - p.y_error, p.y + p.y_error]),
    );
    draw(HEIGHT, |area| {
        let mut chart = chart(area, title, 72)
            .build_cartesian_2d((0.8 * low..1.25 * high).log_scale(), up.clone())?;
        mesh(&mut chart, x, "held-out objective")?;
        let line = [(chosen, up.start), (chosen, up.end)];
        chart.draw_series(LineSeries::new(line, RED.mix(0.7)))?;
        for p in points.iter().filter(|p| p.x > 0.0) {
            let bar = [(p.x, p.y - p.y_error), (p.x, p.y + p.y_error)];
            chart.draw_series(LineSeries::new(bar, BLUE.mix(0.6)))?;
        }
        let dots = points.iter().filter(|p| p.x > 0.0);
        chart.draw_series(dots.map(|p| Circle::new((p.x, p.y), 3, BLUE.filled())))?;
        Ok(())
    })
}

/// Draws lines with a legend, on a log scale against the number of steps.
pub fn curves(title: &str, x: &str, lines: &[(&str, Vec<(f64, f64)>)]) -> Result<String> {
    let values = || lines.iter().flat_map(|(_, points)| points.iter());
    let positive = || values().map(|p| p.1).filter(|v| *v > 0.0);
    let low = positive().fold(f64::INFINITY, f64::min);
    let high = positive().fold(0.0, f64::max);
    if low > high {
        return Err("there is nothing to draw".into());
    }
    let last = values().map(|p| p.0).fold(1.0, f64::max);
    draw(HEIGHT, |area| {
        let mut chart = chart(area, title, 66)
            .build_cartesian_2d(0.0..last, (0.7 * low..1.5 * high).log_scale())?;
        mesh(&mut chart, x, "")?;
        for ((name, points), colour) in lines.iter().zip([BLUE, RED]) {
            let shown = points.iter().copied().filter(|p| p.1 > 0.0);
            chart
                .draw_series(LineSeries::new(shown, colour.stroke_width(2)))?
                .label(*name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2))
                });
        }
        legend(&mut chart)
    })
}
