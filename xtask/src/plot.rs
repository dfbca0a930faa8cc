//! What all plots share: lines that can be told apart in print and in grey.

use plotters::style::RGBColor;

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
