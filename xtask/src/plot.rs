//! What all plots share: lines that can be told apart in print and in grey.

use crate::Result;
use plotters::coord::ranged1d::Ranged;
use plotters::element::DashedPathElement;
use plotters::prelude::*;

/// Text size of axis labels and legends.
pub const TEXT: (&str, i32) = ("sans-serif", 15);
/// Text size of titles.
pub const TITLE: (&str, i32) = ("sans-serif", 17);

/// Ink.
pub const INK: RGBColor = RGBColor(30, 30, 30);
/// The red of the paper's Figure 1.
pub const RED: RGBColor = RGBColor(200, 40, 40);
/// The blue of a first curve.
pub const BLUE: RGBColor = RGBColor(0, 90, 160);

/// How one series looks: in colour, and by its dashes in grey.
#[derive(Clone, Copy)]
pub struct Style {
    colour: RGBColor,
    /// Pixels drawn and left out; `None` for a solid line.
    dash: Option<(i32, i32)>,
}

/// Six looks that can be told apart.
pub const STYLES: [Style; 6] = [
    Style::new(BLUE, None),
    Style::new(RED, Some((9, 4))),
    Style::new(RGBColor(0, 130, 90), Some((3, 3))),
    Style::new(RGBColor(150, 90, 0), Some((14, 4))),
    Style::new(RGBColor(110, 60, 160), Some((6, 6))),
    Style::new(INK, Some((2, 6))),
];

impl Style {
    const fn new(colour: RGBColor, dash: Option<(i32, i32)>) -> Self {
        Self { colour, dash }
    }

    /// Draws a line with a dot at every point, and its entry in the legend.
    pub fn draw<'a, 'b: 'a, X, Y>(
        self,
        chart: &mut ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>,
        points: &[(f64, f64)],
        label: &str,
    ) -> Result
    where
        X: Ranged<ValueType = f64>,
        Y: Ranged<ValueType = f64>,
    {
        let line = self.colour.stroke_width(2);
        let points = points.iter().copied();
        let series = match self.dash {
            None => chart.draw_series(LineSeries::new(points.clone(), line))?,
            Some((on, off)) => {
                chart.draw_series(DashedLineSeries::new(points.clone(), on, off, line))?
            }
        };
        let (on, off) = self.dash.unwrap_or((26, 1));
        series
            .label(label)
            .legend(move |(x, y)| DashedPathElement::new([(x, y), (x + 26, y)], on, off, line));
        let dots = points.map(|point| Circle::new(point, 3, self.colour.filled()));
        chart.draw_series(dots)?;
        Ok(())
    }
}

/// A dashed polyline: segments of `on` and `off` units of the path's own length.
pub fn dashes(points: &[(f64, f64)], on: f64, off: f64) -> Vec<Vec<(f64, f64)>> {
    let mut pieces = Vec::new();
    let mut piece: Vec<(f64, f64)> = Vec::new();
    let mut travelled = 0.0;
    for pair in points.windows(2) {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        if travelled % (on + off) < on {
            if piece.is_empty() {
                piece.push((x0, y0));
            }
            piece.push((x1, y1));
        } else if !piece.is_empty() {
            pieces.push(std::mem::take(&mut piece));
        }
        travelled += ((x1 - x0).powi(2) + (y1 - y0).powi(2)).sqrt();
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}
