//! The six panels of Figure 2, and the same against the logarithms of time and of evaluations.

use super::Free;
use super::results::{Method, OfSupport, Point, Results};
use crate::Result;
use crate::plot::{self, Axes, Marks, STYLES, Series, Style};
use plotters::prelude::*;

/// The most points of a line, to keep the file small.
const MOST_POINTS: usize = 250;

/// The drawings of one choice of free parameters, as SVG.
pub(super) struct Figures {
    free: Free,
    pub(super) panels: String,
    pub(super) by_work: String,
}

impl Figures {
    /// Returns file names and contents.
    pub(super) fn files(&self) -> [(&'static str, String); 2] {
        let (panels, by_work) = match self.free {
            Free::Lattice => ("fig2.svg", "fig2-work.svg"),
            Free::Full => ("fig2-full.svg", "fig2-full-work.svg"),
        };
        [
            (panels, self.panels.clone()),
            (by_work, self.by_work.clone()),
        ]
    }
}

pub(super) fn of(results: &Results) -> Result<Vec<Figures>> {
    let draw = |part: &OfSupport| {
        Ok(Figures {
            free: part.support,
            panels: panels(part)?,
            by_work: by_work(part)?,
        })
    };
    results.supports.iter().map(draw).collect()
}

/// The error that a panel shows.
#[derive(Clone, Copy, PartialEq)]
enum Shown {
    Couplings,
    Correlations,
}

impl Shown {
    fn axis(self) -> &'static str {
        match self {
            Self::Couplings => "MSE of J",
            Self::Correlations => "MSE of correlations",
        }
    }

    fn points(self, method: &Method, against: Against) -> Vec<(f64, f64)> {
        let all: Vec<(f64, f64)> = method
            .trace
            .iter()
            .filter_map(|p| match self {
                Self::Couplings => Some((against.of(p), p.eps_j)),
                Self::Correlations => p.eps_corr.map(|e| (against.of(p), e.value)),
            })
            .collect();
        thinned(all)
    }
}

/// What a panel shows it against.
#[derive(Clone, Copy)]
enum Against {
    Seconds,
    Evaluations,
}

impl Against {
    fn axis(self) -> &'static str {
        match self {
            Self::Seconds => "learning time (s)",
            Self::Evaluations => "evaluations (CD: updates)",
        }
    }

    fn of(self, point: &Point) -> f64 {
        match self {
            Self::Seconds => point.seconds,
            Self::Evaluations => point.evaluations as f64,
        }
    }
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

fn style(at: usize) -> Style {
    STYLES[at % STYLES.len()]
}

/// Returns the lines of one error. A closed form is a horizontal line up to `until`.
fn lines(results: &OfSupport, shown: Shown, against: Against, until: f64) -> Vec<Series> {
    results
        .methods
        .iter()
        .enumerate()
        .map(|(at, method)| {
            let mut points = shown.points(method, against);
            if method.stop == "closed-form" {
                points.retain(|p| p.0 > 0.0);
                if let Some(&(_, error)) = points.last() {
                    points.push((until, error));
                }
            }
            Series {
                style: style(at),
                points,
                marks: if shown == Shown::Correlations {
                    Marks::All
                } else {
                    Marks::Last
                },
            }
        })
        .collect()
}

fn y_range(results: &OfSupport, shown: Shown) -> (f64, f64) {
    let methods = results.methods.iter();
    let values = methods.flat_map(|m| shown.points(m, Against::Seconds));
    plot::decades(values.map(|p| p.1))
}

fn entries(results: &OfSupport) -> Vec<(&str, Style)> {
    let methods = results.methods.iter().enumerate();
    methods
        .map(|(at, m)| (m.name.as_str(), style(at)))
        .collect()
}

/// Draws two rows of three panels.
fn panels(results: &OfSupport) -> Result<String> {
    let seconds = |name: &str| {
        results
            .methods
            .iter()
            .find(|m| m.name == name)
            .map(|m| m.seconds)
    };
    let whole = results
        .methods
        .iter()
        .map(|m| m.seconds)
        .fold(1e-3, f64::max);
    let columns = [
        ("until MPF ended", seconds("MPF").unwrap_or(whole)),
        ("until PL ended", seconds("PL").unwrap_or(whole)),
        ("whole run", whole),
    ];
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (1180, 720)).into_drawing_area();
        root.fill(&WHITE)?;
        let (charts, bottom) = root.split_vertically(676);
        let letters = ["(a)", "(b)", "(c)", "(d)", "(e)", "(f)"];
        for (at, area) in charts.split_evenly((2, 3)).iter().enumerate() {
            let shown = [Shown::Couplings, Shown::Correlations][at / 3];
            let (name, until) = columns[at % 3];
            let until = until.max(1e-6);
            let axes = Axes {
                title: &format!("{} {name}", letters[at]),
                x: Against::Seconds.axis(),
                y: shown.axis(),
                x_range: (0.0, until),
                y_range: y_range(results, shown),
                log_x: false,
            };
            let lines = lines(results, shown, Against::Seconds, until);
            plot::panel(area, &axes, &lines)?;
        }
        plot::legend(&bottom, &entries(results))?;
        root.present()?;
    }
    Ok(svg)
}

/// Draws both errors against learning time and against evaluations, in logarithms.
fn by_work(results: &OfSupport) -> Result<String> {
    let range = |against: Against| {
        let values = || {
            let points = results.methods.iter().flat_map(|m| &m.trace);
            points.map(|p| against.of(p)).filter(|v| *v > 0.0)
        };
        (
            values().fold(f64::INFINITY, f64::min).min(1.0) * 0.9,
            values().fold(1e-3, f64::max) * 1.1,
        )
    };
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (1180, 800)).into_drawing_area();
        root.fill(&WHITE)?;
        let (charts, bottom) = root.split_vertically(756);
        for (at, area) in charts.split_evenly((2, 2)).iter().enumerate() {
            let shown = [Shown::Couplings, Shown::Correlations][at / 2];
            let against = [Against::Seconds, Against::Evaluations][at % 2];
            let range = range(against);
            let axes = Axes {
                title: shown.axis(),
                x: against.axis(),
                y: shown.axis(),
                x_range: range,
                y_range: y_range(results, shown),
                log_x: true,
            };
            plot::panel(area, &axes, &lines(results, shown, against, range.1))?;
        }
        plot::legend(&bottom, &entries(results))?;
        root.present()?;
    }
    Ok(svg)
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
