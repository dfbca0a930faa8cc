//! The common look of all plots: lines that can be told apart in colour and in grey.

use crate::Result;
use plotters::coord::Shift;
use plotters::coord::combinators::LogCoord;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::element::DashedPathElement;
use plotters::prelude::*;

/// Text size of axis labels and legends.
pub const TEXT: (&str, i32) = ("sans-serif", 15);
/// Text size of titles.
pub const TITLE: (&str, i32) = ("sans-serif", 17);

/// The colour of axes and text.
pub const INK: RGBColor = RGBColor(30, 30, 30);
/// The red of the paper's Figure 1.
pub const RED: RGBColor = RGBColor(200, 40, 40);
/// The blue of a first curve.
pub const BLUE: RGBColor = RGBColor(0, 90, 160);

/// The colour of a series, and its dashes, which tell it apart in grey.
#[derive(Clone, Copy)]
pub struct Style {
    colour: RGBColor,
    /// Pixels drawn and left out; `None` for a solid line.
    dash: Option<(i32, i32)>,
}

/// Six styles that can be told apart.
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

    /// Draws a line with a dot at every point from the number `first` on, and its entry in the legend.
    pub fn draw<'a, 'b: 'a, X, Y>(
        self,
        chart: &mut ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>,
        points: &[(f64, f64)],
        first: usize,
        label: &str,
    ) -> Result
    where
        X: Ranged<ValueType = f64>,
        Y: Ranged<ValueType = f64>,
    {
        let line = self.colour.stroke_width(2);
        let all = points.iter().copied();
        let series = match self.dash {
            None => chart.draw_series(LineSeries::new(all, line))?,
            Some((on, off)) => chart.draw_series(DashedLineSeries::new(all, on, off, line))?,
        };
        let (on, off) = self.dash.unwrap_or((26, 1));
        series
            .label(label)
            .legend(move |(x, y)| DashedPathElement::new([(x, y), (x + 26, y)], on, off, line));
        let dot = |point: &(f64, f64)| Circle::new(*point, 3, self.colour.filled());
        chart.draw_series(points[first..].iter().map(dot))?;
        Ok(())
    }
}

/// One line of a [`Panel`].
pub struct Series {
    /// Its name in the legend; empty for a line that the legend leaves out.
    pub name: String,
    /// Its colour and dashes.
    pub style: Style,
    /// Its points, x increasing.
    pub points: Vec<(f64, f64)>,
    /// The points that get a dot.
    pub marks: Marks,
}

impl Series {
    /// Makes a line of its parts.
    pub fn new(
        name: impl Into<String>,
        style: Style,
        points: Vec<(f64, f64)>,
        marks: Marks,
    ) -> Self {
        Self {
            name: name.into(),
            style,
            points,
            marks,
        }
    }
}

/// The points of a [`Series`] that get a dot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marks {
    /// Every one: each was measured.
    All,
    /// The last: where a curve ends.
    Last,
    /// None: a line of reference.
    Nothing,
}

/// A chart; y is always logarithmic.
pub struct Panel<'a> {
    /// The title above it.
    pub title: String,
    /// The label of the x axis, with its unit.
    pub x: &'a str,
    /// The label of the y axis.
    pub y: &'a str,
    /// The smallest and largest x.
    pub x_range: (f64, f64),
    /// The smallest and largest y; both positive.
    pub y_range: (f64, f64),
    /// Whether x is logarithmic too.
    pub log_x: bool,
    /// Its lines.
    pub series: Vec<Series>,
}

/// Where a drawing goes.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws on white, `size` pixels wide and high, and returns the SVG.
pub fn svg(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Result) -> Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        draw(&root)?;
        root.present()?;
    }
    Ok(svg)
}

/// Draws `rows` of panels into the upper `height` pixels, and the legend that they share, with the
/// names of the first one's lines, below.
pub fn panels(area: &Area<'_>, height: u32, rows: usize, panels: &[Panel<'_>]) -> Result {
    let (charts, bottom) = area.split_vertically(height);
    let areas = charts.split_evenly((rows, panels.len() / rows));
    for (area, panel) in areas.iter().zip(panels) {
        let mut builder = ChartBuilder::on(area);
        builder
            .caption(&panel.title, TITLE.into_font())
            .margin(10)
            .x_label_area_size(44)
            .y_label_area_size(72);
        let (x0, x1) = panel.x_range;
        let y = (panel.y_range.0..panel.y_range.1).log_scale();
        if panel.log_x {
            let x = (x0..x1).log_scale();
            fill(builder.build_cartesian_2d(x, y)?, panel)?;
        } else {
            fill(builder.build_cartesian_2d(x0..x1, y)?, panel)?;
        }
    }
    legend(&bottom, &panels[0].series)
}

/// Starts a chart with its title and space for labels, `left` pixels for those of the y axis.
pub fn chart<'a, 'b>(
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

/// Draws axes with their names and about as many labels as asked for; without labels of y, no lines
/// across either.
pub fn mesh<X, Y>(
    chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, Y>>,
    (x, x_labels): (&str, usize),
    (y, y_labels): (&str, usize),
) -> Result
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut style = chart.configure_mesh();
    if y_labels == 0 {
        style.disable_y_mesh();
    }
    style
        .x_desc(x)
        .y_desc(y)
        .x_labels(x_labels)
        .y_labels(y_labels)
        .label_style(TEXT)
        .axis_desc_style(TEXT)
        .light_line_style(INK.mix(0.06))
        .bold_line_style(INK.mix(0.15))
        .x_label_formatter(&|v| short(*v))
        .y_label_formatter(&|v| short(*v))
        .draw()?;
    Ok(())
}

/// Names the series of a chart in one of its corners.
pub fn key<'a, X, Y>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
    corner: SeriesLabelPosition,
) -> Result
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    chart
        .configure_series_labels()
        .position(corner)
        .label_font(TEXT)
        .border_style(INK.mix(0.2))
        .background_style(WHITE)
        .draw()?;
    Ok(())
}

fn fill<'a, 'b: 'a, X>(
    mut chart: ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, LogCoord<f64>>>,
    panel: &Panel<'_>,
) -> Result
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let x_labels = if panel.log_x { 8 } else { 5 };
    mesh(&mut chart, (panel.x, x_labels), (panel.y, 11))?;
    for one in &panel.series {
        let points = within(&one.points, panel.x_range);
        let first = match one.marks {
            Marks::All => 0,
            Marks::Last => points.len().saturating_sub(1),
            Marks::Nothing => points.len(),
        };
        one.style.draw(&mut chart, &points, first, &one.name)?;
    }
    Ok(())
}

/// Returns the part of a line with x in the range; its end is interpolated in ln y.
fn within(points: &[(f64, f64)], (low, high): (f64, f64)) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    let positive = points
        .iter()
        .copied()
        .filter(|p| p.1 > 0.0 && p.1.is_finite());
    let mut before: Option<(f64, f64)> = None;
    for point in positive {
        if point.0 > high {
            if let Some((x, y)) = before.filter(|b| b.0 < high) {
                let share = (high - x) / (point.0 - x);
                kept.push((high, y * (point.1 / y).powf(share)));
            }
            break;
        }
        if point.0 >= low {
            kept.push(point);
        }
        before = Some(point);
    }
    kept
}

/// Draws the styles and names of the lines that have one side by side.
fn legend(area: &Area<'_>, series: &[Series]) -> Result {
    let named: Vec<&Series> = series.iter().filter(|s| !s.name.is_empty()).collect();
    let (width, height) = area.dim_in_pixel();
    let step = width as i32 / named.len().max(1) as i32;
    for (at, Series { name, style, .. }) in named.into_iter().enumerate() {
        let (x, y) = (at as i32 * step + 20, height as i32 / 2);
        let (on, off) = style.dash.unwrap_or((34, 1));
        let line = style.colour.stroke_width(2);
        let path = [(x, y), (x + 34, y)];
        area.draw(&DashedPathElement::new(path, on, off, line))?;
        area.draw(&Text::new(name.clone(), (x + 42, y - 8), TEXT.into_font()))?;
    }
    Ok(())
}

/// Returns the whole decades that hold all positive values, with a margin.
pub fn decades(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values
        .filter(|v| *v > 0.0 && v.is_finite())
        .fold((f64::INFINITY, 0.0f64), |(low, high), v| {
            (low.min(v), high.max(v))
        });
    if low > high {
        return (0.1, 1.0);
    }
    let decade = |v: f64, round: fn(f64) -> f64| 10f64.powf(round(v.log10()));
    (0.9 * decade(low, f64::floor), 1.1 * decade(high, f64::ceil))
}

/// Formats a number for an axis, as short as possible.
pub fn short(value: f64) -> String {
    // Ticks are made by adding steps, which leaves rounding where zero should be.
    if value.abs() < 1e-14 {
        return "0".to_owned();
    }
    if (1e-3..1e5).contains(&value.abs()) {
        let text = format!("{value:.4}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        format!("{value:.0e}")
    }
}

/// Cuts a polyline into dashes of length `on` with gaps of length `off`, along its own length.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_where_they_leave() {
        let line = [(0.0, 1.0), (1.0, 10.0), (3.0, 1000.0), (4.0, 1.0)];
        assert_eq!(
            within(&line, (0.0, 2.0)),
            [(0.0, 1.0), (1.0, 10.0), (2.0, 100.0)]
        );
        assert_eq!(within(&line, (1.0, 9.0)).len(), 3);
        assert_eq!(within(&[(0.0, -1.0)], (0.0, 1.0)), []);
    }

    #[test]
    fn lines_of_reference_have_no_dots() {
        let dots = |marks: Marks| {
            let points = vec![(0.0, 1.0), (1.0, 1.0), (2.0, 1.0)];
            let panel = Panel {
                title: String::new(),
                x: "",
                y: "",
                x_range: (0.0, 3.0),
                y_range: (0.5, 2.0),
                log_x: false,
                series: vec![Series::new("", STYLES[5], points, marks)],
            };
            let svg = svg((300, 200), |area| panels(area, 200, 1, &[panel])).unwrap();
            svg.matches("<circle").count()
        };
        assert_eq!(
            [Marks::All, Marks::Last, Marks::Nothing].map(dots),
            [3, 1, 0]
        );
    }

    #[test]
    fn axes_have_short_numbers_and_whole_decades() {
        let shown = [-3e-17, 0.001, 0.25, 60.0, 2e-5, 1e6].map(short);
        assert_eq!(shown, ["0", "0.001", "0.25", "60", "2e-5", "1e6"]);
        let (low, high) = decades([0.02, 3.0, 0.0, f64::NAN].into_iter());
        assert!((low - 0.009).abs() < 1e-12 && (high - 11.0).abs() < 1e-12);
    }
}
