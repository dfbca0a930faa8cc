//! Small figures for reports: 480 pixels wide, so that their text can be read on a phone.

pub mod clusters;
pub mod network;
pub mod slope;

use crate::evaluate::Compared;
use crate::model::PathRecord;
use mpf_report::Result;
use mpf_report::plot::{Area, BLUE, INK, RED, STYLES, TEXT, TITLE, chart, key, mesh, short, svg};
use mpf_report::text::visible;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::ops::Range;

const WIDTH: u32 = 480;
const HEIGHT: u32 = 400;
/// The most points with error bars: more bars would hide the points.
const MOST_BARS: usize = 400;
/// The most cells along a side of a matrix.
const MOST_CELLS: usize = 160;
/// The width of a drawn matrix.
const SIDE: f64 = 320.0;

/// Returns the colour of couplings of this sign.
fn sign_colour(coupling: f64) -> RGBColor {
    match coupling < 0.0 {
        true => RGBColor(33, 102, 172),
        false => RGBColor(178, 24, 43),
    }
}

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
    svg((WIDTH, height), f)
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

/// Draws points, the line where x and y are equal, and a fitted line with its slope.
pub fn scatter(title: &str, x: &str, y: &str, points: &[Point]) -> Result<String> {
    let bars = points.len() <= MOST_BARS;
    let reach = if bars { 2.0 } else { 0.0 };
    let both = around(points.iter().flat_map(|p| {
        let (x, y) = (reach * p.x_error, reach * p.y_error);
        [p.x, p.x - x, p.x + x, p.y, p.y - y, p.y + y]
    }));
    draw(HEIGHT, |area| {
        let mut chart = chart(area, title, 66).build_cartesian_2d(both.clone(), both.clone())?;
        mesh(&mut chart, (x, 5), (y, 6))?;
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
        // A slope that is known no better says nothing.
        if let Some(fitted) = slope::line(points).filter(|l| l.standard_error < 0.5) {
            let along = fitted_within(fitted, &both);
            chart.draw_series(DashedLineSeries::new(along, 7, 4, RED.stroke_width(2)))?;
            let label = format!("slope {:.3} ± {:.3}", fitted.slope, fitted.standard_error);
            let corner = chart.backend_coord(&(both.start, both.end));
            let style = TEXT.into_font().color(&RED);
            area.draw(&Text::new(label, (corner.0 + 10, corner.1 + 8), style))?;
        }
        Ok(())
    })
}

/// Returns the ends of a line where it leaves a square.
fn fitted_within(line: slope::Line, square: &Range<f64>) -> [(f64, f64); 2] {
    let y = |x: f64| line.intercept + line.slope * x;
    [square.start, square.end].map(|x| {
        let clamped = y(x).clamp(square.start, square.end);
        if clamped == y(x) || line.slope == 0.0 {
            (x, clamped)
        } else {
            ((clamped - line.intercept) / line.slope, clamped)
        }
    })
}

/// Returns blue below zero, white at zero, red above.
fn diverging(share: f64) -> RGBColor {
    let share = share.clamp(-1.0, 1.0);
    let end = sign_colour(share);
    // A power below one keeps weak couplings from looking white.
    let t = share.abs().powf(0.7);
    let mix = |to: u8| (255.0 + t * (f64::from(to) - 255.0)).round() as u8;
    RGBColor(mix(end.0), mix(end.1), mix(end.2))
}

/// Returns the |K| where colours and histograms end: the largest, or twice the 95 % quantile of those
/// that are not zero, or `limit`, whichever is smallest. A few runaways leave the others visible.
pub fn clip(couplings: &[f64], limit: f64) -> f64 {
    let mut sizes: Vec<f64> = couplings.iter().map(|k| k.abs()).collect();
    sizes.retain(|k| *k > 0.0 && k.is_finite());
    sizes.sort_by(f64::total_cmp);
    let Some(&largest) = sizes.last() else {
        return 1.0;
    };
    let quantile = sizes[(0.95 * (sizes.len() - 1) as f64) as usize];
    largest.min(2.0 * quantile).min(limit)
}

/// Draws a symmetric matrix in colours up to ±`clip`, with the scale beside it and the names of `order`
/// along its sides. A large one is drawn in blocks, with the largest entry of each. `value(i, j)` for
/// i ≠ j.
pub fn matrix(
    title: &str,
    names: &[String],
    order: &[usize],
    value: impl Fn(usize, usize) -> f64,
    clip: f64,
) -> Result<String> {
    let d = order.len();
    let step = d.div_ceil(MOST_CELLS).max(1);
    let cells = d.div_ceil(step);
    let strongest = |a: usize, b: usize| {
        let range = |c: usize| order[c * step..((c + 1) * step).min(d)].iter();
        let entries = range(a).flat_map(|i| range(b).map(move |j| (*i, *j)));
        entries
            .filter(|(i, j)| i != j)
            .map(|(i, j)| value(i, j))
            .fold(0.0f64, |m, v| if v.abs() > m.abs() { v } else { m })
    };
    let shown: Vec<Vec<f64>> = (0..cells)
        .map(|a| (0..cells).map(|b| strongest(a, b)).collect())
        .collect();
    let largest = shown.iter().flatten().fold(0.0f64, |m, v| m.max(v.abs()));
    // Names need 12 pixels each, and seven for each of their letters.
    let every = (12.0 * d as f64 / SIDE).ceil().max(1.0) as usize;
    let labels: Vec<(usize, String)> = (0..d)
        .step_by(every)
        .map(|place| (place, shortened(&names[order[place]], 9)))
        .collect();
    let longest = labels.iter().map(|(_, l)| l.chars().count()).max();
    let room = 12 + 7 * longest.unwrap_or(1) as i32;
    let (top, side) = (40, SIDE as i32);
    let (left, bottom) = (room, top + side);
    draw((bottom + room) as u32, |area| {
        let style = TITLE.into_font().into_text_style(area);
        let middle = style.pos(Pos::new(HPos::Center, VPos::Top));
        area.draw(&Text::new(title, (left + side / 2, 10), middle))?;
        let pixel = |place: usize| (side as f64 * place.min(d) as f64 / d as f64).round() as i32;
        for (a, row) in shown.iter().enumerate() {
            for (b, v) in row.iter().enumerate() {
                let colour = if a == b && step == 1 {
                    RGBColor(225, 225, 222)
                } else {
                    diverging(v / clip)
                };
                let corners = [(b, a), (b + 1, a + 1)]
                    .map(|(x, y)| (left + pixel(x * step), top + pixel(y * step)));
                area.draw(&Rectangle::new(corners, colour.filled()))?;
            }
        }
        let small = ("sans-serif", 12).into_font();
        for (place, label) in &labels {
            let at = (pixel(*place) + pixel(place + 1)) / 2;
            let style = small.clone().into_text_style(area);
            let right = style.pos(Pos::new(HPos::Right, VPos::Center));
            area.draw(&Text::new(label.clone(), (left - 5, top + at), right))?;
            let turned = small.clone().transform(FontTransform::Rotate270);
            let turned = turned.into_text_style(area);
            let below = turned.pos(Pos::new(HPos::Right, VPos::Center));
            area.draw(&Text::new(label.clone(), (left + at, bottom + 5), below))?;
        }
        let n = 64;
        let x = left + side + 12;
        for k in 0..n {
            let edge = |k: i32| top + side * k / n;
            let share = 1.0 - 2.0 * (f64::from(k) + 0.5) / f64::from(n);
            area.draw(&Rectangle::new(
                [(x, edge(k)), (x + 14, edge(k + 1))],
                diverging(share).filled(),
            ))?;
        }
        let end = short((100.0 * clip).round() / 100.0);
        let is_clipped = largest > clip;
        let ends = if is_clipped {
            (format!("≥ {end}"), format!("≤ −{end}"))
        } else {
            (end.clone(), format!("−{end}"))
        };
        for (text, y) in [
            (ends.0, top + 6),
            ("0".into(), top + side / 2),
            (ends.1, bottom - 6),
        ] {
            area.draw(&Text::new(text, (x + 18, y - 8), TEXT.into_font()))?;
        }
        Ok(())
    })
}

/// Draws a histogram up to ±`clip`, with what is beyond in the outermost bins. Zeros have a bin of
/// their own.
pub fn histogram(title: &str, x: &str, values: &[f64], clip: f64) -> Result<String> {
    let nonzero: Vec<f64> = values
        .iter()
        .filter(|v| **v != 0.0)
        .map(|v| v.clamp(-clip, clip))
        .collect();
    let zeros = values.len() - nonzero.len();
    let range = around(nonzero.iter().copied().chain([0.0]));
    let n_bins = ((nonzero.len() as f64).sqrt() as usize).clamp(10, 60);
    // Zero is an edge.
    let width = (range.end - range.start) / n_bins as f64;
    let first = (range.start / width).floor();
    let mut counts = vec![0usize; ((range.end / width).ceil() - first) as usize];
    for value in &nonzero {
        let bin = ((value / width).floor() - first) as usize;
        let last = counts.len() - 1;
        counts[bin.min(last)] += 1;
    }
    let high = match counts.iter().copied().max() {
        Some(n) if n > 0 => 1.2 * n as f64,
        _ => 1.2 * zeros.max(1) as f64,
    };
    let range = first * width..(first + counts.len() as f64) * width;
    draw(HEIGHT, |area| {
        let mut chart = chart(area, title, 66).build_cartesian_2d(range.clone(), 0.0..high)?;
        mesh(&mut chart, (x, 5), ("pairs", 6))?;
        let bars = counts.iter().enumerate().map(|(bin, count)| {
            let x = range.start + bin as f64 * width;
            Rectangle::new(
                [(x, 0.0), (x + width, *count as f64)],
                BLUE.mix(0.7).filled(),
            )
        });
        chart
            .draw_series(bars)?
            .label(format!("{} not zero", nonzero.len()))
            .legend(|(x, y)| {
                Rectangle::new([(x + 6, y - 6), (x + 18, y + 6)], BLUE.mix(0.7).filled())
            });
        if zeros > 0 {
            // It may be as tall as the plot: the legend has its number.
            let bar = [(-0.2 * width, 0.0), (0.2 * width, (zeros as f64).min(high))];
            chart
                .draw_series([Rectangle::new(bar, INK.filled())])?
                .label(format!("{zeros} exactly zero"))
                .legend(|(x, y)| Rectangle::new([(x + 10, y - 6), (x + 14, y + 6)], INK.filled()));
        }
        key(&mut chart, SeriesLabelPosition::UpperRight)
    })
}

/// Draws named values below each other, with error bars of two standard errors. An infinite error
/// means that the value is undetermined.
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
        mesh(&mut chart, (x, 5), ("", 0))?;
        chart.draw_series(LineSeries::new(
            [(0.0, -0.5), (0.0, n as f64 - 0.5)],
            INK.mix(0.6),
        ))?;
        for (k, (name, value, error)) in rows.iter().enumerate() {
            let y = k as f64;
            let colour = if *value < 0.0 { BLUE } else { RED };
            let line = [(value - bar(*error), y), (value + bar(*error), y)];
            let dot = if *error == f64::INFINITY {
                colour.stroke_width(1)
            } else {
                chart.draw_series(LineSeries::new(line, colour.stroke_width(2)))?;
                colour.filled()
            };
            chart.draw_series([Circle::new((*value, y), 4, dot)])?;
            let place = chart.backend_coord(&(range.start, y));
            let style = TEXT.into_font().into_text_style(area);
            let right = style.pos(Pos::new(HPos::Right, VPos::Center));
            let label = Text::new(shortened(name, 17), (place.0 - 10, place.1), right);
            area.draw(&label)?;
            if *error == f64::INFINITY {
                let place = chart.backend_coord(&(*value, y));
                let is_right = *value > 0.5 * (range.start + range.end);
                let (h, x) = if is_right {
                    (HPos::Right, -10)
                } else {
                    (HPos::Left, 10)
                };
                let style = TEXT
                    .into_font()
                    .into_text_style(area)
                    .pos(Pos::new(h, VPos::Center));
                area.draw(&Text::new("undetermined", (place.0 + x, place.1), style))?;
            }
        }
        Ok(())
    })
}

/// Shortens a name to `longest` characters; control characters become visible.
fn shortened(name: &str, longest: usize) -> String {
    let name = visible(name);
    if name.chars().count() <= longest {
        return name;
    }
    name.chars().take(longest - 1).chain(['…']).collect()
}

/// Draws the probability of 0, 1, 2 … active units on a log scale that ends near 1/M, for M samples:
/// a line for the model, points for the data, and bands of two standard errors. Where the data have
/// none, their band ends at 3/M: a larger chance would have shown itself in 95 of 100 recordings.
pub fn counts(title: &str, chances: &[Compared], n_samples: usize) -> Result<String> {
    let rarest = 1.0 / n_samples.max(2) as f64;
    let decades = -rarest.log10().floor();
    // A little below the decade, so that its label is drawn.
    let low = 0.95 * 10f64.powf(-decades);
    let is_shown = |c: &Compared| c.model >= low || c.data >= low;
    let last = chances.iter().rposition(is_shown).unwrap_or(0).max(1);
    let shown = &chances[..chances.len().min(last + 1)];
    let band = |of: &dyn Fn(&Compared) -> (f64, f64)| -> Vec<(f64, f64)> {
        let edge = |sign: f64| {
            let of = &of;
            shown.iter().enumerate().map(move |(n, c)| {
                let (value, error) = of(c);
                (n as f64, (value + 2.0 * sign * error).clamp(low, 1.0))
            })
        };
        let upper: Vec<_> = edge(1.0).collect();
        upper.into_iter().chain(edge(-1.0).rev()).collect()
    };
    let of_data = |c: &Compared| {
        if c.data > 0.0 {
            (c.data, c.data_error)
        } else {
            (0.0, 1.5 * rarest)
        }
    };
    draw(HEIGHT, |area| {
        let mut chart = chart(area, title, 72)
            .build_cartesian_2d(-0.5..last as f64 + 0.5, (low..1.0).log_scale())?;
        let labels = decades as usize + 1;
        mesh(&mut chart, ("active units", 6), ("probability", labels))?;
        chart.draw_series([Polygon::new(band(&of_data), BLUE.mix(0.18).filled())])?;
        if shown.iter().any(|c| c.model_error > 0.0) {
            let of_model = |c: &Compared| (c.model, c.model_error);
            chart.draw_series([Polygon::new(band(&of_model), RED.mix(0.15).filled())])?;
        }
        let along = |f: fn(&Compared) -> f64| {
            let points = shown.iter().enumerate();
            points.map(move |(n, c)| (n as f64, f(c)))
        };
        // A line that falls below the floor ends there.
        let line: Vec<_> = along(|c| c.model).map(|(n, p)| (n, p.max(low))).collect();
        chart
            .draw_series(LineSeries::new(line, RED.stroke_width(2)))?
            .label("model")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 20, y)], RED.stroke_width(2)));
        let dots = along(|c| c.data).filter(|p| p.1 >= low);
        chart
            .draw_series(dots.map(|point| Circle::new(point, 3, BLUE.filled())))?
            .label("data")
            .legend(|(x, y)| Circle::new((x + 10, y), 3, BLUE.filled()));
        key(&mut chart, SeriesLabelPosition::UpperRight)
    })
}

/// Draws held-out scores with their errors against the penalty, and the penalty that was chosen.
pub fn path(title: &str, x: &str, path: &[PathRecord], chosen: f64) -> Result<String> {
    let points = path.iter().filter(|p| p.lambda > 0.0);
    let along = points.clone().map(|p| p.lambda);
    let low = along.clone().fold(f64::INFINITY, f64::min);
    let high = along.fold(0.0, f64::max);
    if low > high {
        return Err("a path needs positive penalties".into());
    }
    let bar = |p: &PathRecord| [p.held_out - p.standard_error, p.held_out + p.standard_error];
    let up = around(path.iter().flat_map(bar));
    draw(HEIGHT, |area| {
        let mut chart = chart(area, title, 72)
            .build_cartesian_2d((0.8 * low..1.25 * high).log_scale(), up.clone())?;
        mesh(&mut chart, (x, 5), ("held-out objective", 6))?;
        let line = [(chosen, up.start), (chosen, up.end)];
        chart.draw_series(LineSeries::new(line, RED.mix(0.7)))?;
        for p in points.clone() {
            let line = bar(p).map(|y| (p.lambda, y));
            chart.draw_series(LineSeries::new(line, BLUE.mix(0.6)))?;
        }
        let dot = |p: &PathRecord| Circle::new((p.lambda, p.held_out), 3, BLUE.filled());
        chart.draw_series(points.map(dot))?;
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
        mesh(&mut chart, (x, 5), ("", 6))?;
        for ((name, points), style) in lines.iter().zip(STYLES) {
            let mut shown = points.clone();
            shown.retain(|p| p.1 > 0.0);
            style.draw(&mut chart, &shown, shown.len(), name)?;
        }
        key(&mut chart, SeriesLabelPosition::UpperRight)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_runaway_does_not_blank_the_matrix() {
        let names: Vec<String> = (0..10).map(|i| format!("n{i}")).collect();
        let order: Vec<usize> = (0..10).rev().collect();
        let values = |i: usize, j: usize| if i + j == 1 { 210.0 } else { 0.3 };
        let all: Vec<f64> = (0..10)
            .flat_map(|i| (i + 1..10).map(move |j| values(i, j)))
            .collect();
        assert_eq!(clip(&all, 5.0), 0.6);
        assert_eq!(
            clip(&[7.0, -8.0, 0.0], 5.0),
            5.0,
            "more than samples can determine"
        );
        assert_eq!(clip(&[0.0; 3], 5.0), 1.0);
        let svg = matrix("K", &names, &order, values, clip(&all, 5.0)).unwrap();
        // Half of the scale: far from white.
        let half = diverging(0.5);
        let colour = format!("#{:02X}{:02X}{:02X}", half.0, half.1, half.2);
        assert_eq!(
            svg.matches(&colour).count(),
            88,
            "all pairs but the runaway"
        );
        assert!(svg.contains("≥ 0.6"));
        assert!(svg.find("n9") < svg.find("n0"), "names in the given order");
        assert_eq!(svg.matches("\nn4\n").count(), 2, "along both sides");
    }

    #[test]
    fn chances_end_near_one_sample() {
        let chance = |model: f64, data: f64| Compared {
            model,
            model_error: 0.0,
            data,
            data_error: 0.1 * data,
        };
        let mut chances = vec![chance(0.6, 0.6), chance(0.399, 0.4), chance(1e-3, 0.0)];
        chances.extend((3..20).map(|n| chance(10f64.powi(-4 * n), 0.0)));
        let svg = counts("P(n)", &chances, 2000).unwrap();
        for label in ["1e-4", "0.001", "0.01", "0.1", "1"] {
            assert!(svg.contains(&format!("\n{label}\n")), "{label}");
        }
        assert!(!svg.contains("1e-5"), "the floor is near 1/2000");
        assert_eq!(
            svg.matches("<polygon").count(),
            1,
            "a band for the data alone"
        );
        assert!(!svg.contains("\n5\n"), "nothing below the floor");
        chances[1].model_error = 0.01;
        let svg = counts("P(n)", &chances, 2000).unwrap();
        assert_eq!(svg.matches("<polygon").count(), 2);
    }

    #[test]
    fn zeros_have_their_own_bin() {
        let mut values = vec![0.0; 500];
        values.extend([0.1, 0.2, -0.1, 0.15, 90.0]);
        let svg = histogram("K", "K", &values, 0.2).unwrap();
        assert!(svg.contains("500 exactly zero") && svg.contains("5 not zero"));
        assert!(
            !svg.contains("\n90\n") && !svg.contains("\n400\n"),
            "axes fit the others"
        );
        let svg = histogram("K", "K", &[0.1, 0.2], 0.2).unwrap();
        assert!(!svg.contains("exactly zero"));
    }

    #[test]
    fn scatter_plots_say_their_slope() {
        let points: Vec<Point> = (0..9)
            .map(|k| Point {
                x: f64::from(k),
                y: 0.5 * f64::from(k),
                x_error: 0.1,
                y_error: 0.1,
            })
            .collect();
        let svg = scatter("means", "data", "model", &points).unwrap();
        assert!(svg.contains("slope 0.500 ± 0.01"), "{svg}");
    }

    #[test]
    fn undetermined_values_have_no_bar() {
        let rows = |error: f64| vec![("a\u{1b} – b".to_owned(), -0.4, error)];
        let bar = |svg: &str| svg.matches("stroke-width=\"2\"").count();
        let known = named("K", "K", &rows(0.1)).unwrap();
        let open = named("K", "K", &rows(f64::INFINITY)).unwrap();
        assert!(open.contains("undetermined") && !known.contains("undetermined"));
        assert_eq!((bar(&known), bar(&open)), (1, 0));
        assert!(open.contains("a\\u{1b} – b"));
    }
}
