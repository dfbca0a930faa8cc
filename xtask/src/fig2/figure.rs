//! The six panels of Figure 2, and the same errors against evaluations.

use super::Free;
use super::results::{Method, OfSupport, Point, Results};
use crate::Result;
use crate::plot::{self, Marks, Panel, STYLES, Series, Style};

/// The most points of a line, to keep the file small.
const MOST_POINTS: usize = 250;

/// The file names and the SVG of the six panels and of the errors against evaluations, of one choice
/// of free parameters.
pub(super) type Drawings = [(&'static str, String); 2];

pub(super) fn of(results: &Results) -> Result<Vec<Drawings>> {
    let draw = |part: &OfSupport| {
        let names = match part.support {
            Free::Lattice => ["fig2.svg", "fig2-work.svg"],
            Free::Full => ["fig2-full.svg", "fig2-full-work.svg"],
        };
        Ok([(names[0], panels(part)?), (names[1], by_work(part)?)])
    };
    results.supports.iter().map(draw).collect()
}

/// The label of an axis, and its value at a point.
#[derive(Clone, Copy)]
struct Axis(&'static str, fn(&Point) -> Option<f64>);

const COUPLINGS: Axis = Axis("MSE of J", |p| Some(p.eps_j));
const CORRELATIONS: Axis = Axis("MSE of correlations", |p| p.eps_corr.map(|e| e.value));
const SECONDS: Axis = Axis("learning time (s)", |p| Some(p.seconds));
const EVALUATIONS: Axis = Axis("evaluations (CD: updates)", |p| Some(p.evaluations as f64));

/// A column of panels: ε_J above, ε_corr below.
struct Column {
    title: &'static str,
    x: Axis,
    range: (f64, f64),
    log: bool,
}

/// Draws against learning time: until MPF ended, until PL ended, and to the end. CD can take a
/// thousand times as long as MPF, so that the last column is logarithmic.
fn panels(part: &OfSupport) -> Result<String> {
    let until = |title, name: &str| {
        let method = part.methods.iter().find(|m| m.name == name)?;
        Some(Column {
            title,
            x: SECONDS,
            range: (0.0, method.seconds.max(1e-6)),
            log: false,
        })
    };
    let whole = |title| logarithmic(part, title, SECONDS);
    let columns = [
        until("until MPF ended", "MPF").unwrap_or_else(|| whole("whole run")),
        until("until PL ended", "PL").unwrap_or_else(|| whole("whole run")),
        whole("whole run, logarithmic"),
    ];
    grid(part, &columns, 676)
}

/// Draws against the logarithm of evaluations.
fn by_work(part: &OfSupport) -> Result<String> {
    let column = logarithmic(part, "against evaluations", EVALUATIONS);
    grid(part, &[column], 756)
}

/// Makes a column that shows all methods to their ends.
fn logarithmic(part: &OfSupport, title: &'static str, x: Axis) -> Column {
    let points = part.methods.iter().flat_map(|m| &m.trace).filter_map(x.1);
    let positive = || points.clone().filter(|v| *v > 0.0);
    let first = positive().fold(f64::INFINITY, f64::min).min(1.0);
    Column {
        title,
        x,
        range: (0.9 * first, 1.1 * positive().fold(1e-3, f64::max)),
        log: true,
    }
}

/// Draws two rows of panels and the legend.
fn grid(part: &OfSupport, columns: &[Column], height: u32) -> Result<String> {
    let mut panels = Vec::new();
    for y in [COUPLINGS, CORRELATIONS] {
        for column in columns {
            let letter = char::from(b'a' + panels.len() as u8);
            let values = part.methods.iter().flat_map(|m| &m.trace).filter_map(y.1);
            let methods = part.methods.iter().zip(STYLES.into_iter().cycle());
            panels.push(Panel {
                title: format!("({letter}) {}", column.title),
                x: column.x.0,
                y: y.0,
                x_range: column.range,
                y_range: plot::decades(values),
                log_x: column.log,
                series: methods
                    .map(|(m, style)| line(m, style, column, y))
                    .collect(),
            });
        }
    }
    plot::svg((1180, height + 44), |root| {
        plot::panels(root, height, 2, &panels)
    })
}

/// Returns the line of a method, with marks where values are few. A closed form is a horizontal
/// line to the end of the panel.
fn line(method: &Method, style: Style, column: &Column, y: Axis) -> Series {
    let trace = method.trace.iter();
    let points = trace.filter_map(|p| Some(((column.x.1)(p)?, (y.1)(p)?)));
    let mut points = thinned(points.collect());
    if method.stop == "closed-form" {
        points.retain(|p| p.0 > 0.0);
        if let Some(&(_, error)) = points.last() {
            points.push((column.range.1, error));
        }
    }
    let marks = if points.len() < 20 {
        Marks::All
    } else {
        Marks::Last
    };
    Series::new(&method.name, style, points, marks)
}

/// Keeps at most [`MOST_POINTS`] points, including the first and the last; early ones are closer
/// together.
fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    if points.len() <= MOST_POINTS {
        return points;
    }
    let last = points.len() - 1;
    let mut kept = vec![points[0]];
    let mut at = 0;
    for k in 1..MOST_POINTS {
        let share = k as f64 / (MOST_POINTS - 1) as f64;
        let wanted = (last as f64).powf(share) as usize;
        let next = wanted.max(at + 1).min(last);
        if next > at {
            kept.push(points[next]);
        }
        at = next;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_keep_their_ends() {
        let line: Vec<(f64, f64)> = (0..5000).map(|k| (f64::from(k), 1.0)).collect();
        let short = thinned(line.clone());
        assert!(short.len() <= MOST_POINTS);
        assert_eq!((short[0], short[short.len() - 1]), (line[0], line[4999]));
        assert!(short.windows(2).all(|w| w[0].0 < w[1].0));
    }
}
