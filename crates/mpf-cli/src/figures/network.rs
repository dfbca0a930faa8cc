//! The strongest pairs as a network: units on a circle, in the order of their clusters.

use super::{shortened, sign_colour};
use mpf_report::report::escape;
use mpf_report::text::digits;
use std::f64::consts::{PI, TAU};
use std::fmt::Write as _;

/// The size of the drawing, and the radius of the circle, which leaves room for names.
const SIZE: f64 = 480.0;
const RADIUS: f64 = 150.0;
const LONGEST_NAME: usize = 11;

/// Draws `edges`, two units and their K, widths by |K| up to `clip`, and the units that they join.
pub fn network(
    title: &str,
    names: &[String],
    order: &[usize],
    edges: &[(usize, usize, f64)],
    clip: f64,
) -> String {
    let joined = |unit: &usize| edges.iter().any(|(i, j, _)| i == unit || j == unit);
    let shown: Vec<usize> = order.iter().copied().filter(joined).collect();
    let n = shown.len().max(1) as f64;
    let angle = |unit: usize| {
        let place = shown.iter().position(|u| *u == unit).unwrap_or(0);
        TAU * place as f64 / n - PI / 2.0
    };
    let (cx, cy) = (SIZE / 2.0, SIZE / 2.0 + 14.0);
    let at = |angle: f64, radius: f64| (cx + radius * angle.cos(), cy + radius * angle.sin());
    let height = SIZE + 22.0;
    let mut svg = format!(
        "<svg width=\"{SIZE}\" height=\"{height}\" viewBox=\"0 0 {SIZE} {height}\" \
         xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{SIZE}\" height=\"{height}\" fill=\"#FFFFFF\"/>\n\
         <text x=\"{cx}\" y=\"24\" text-anchor=\"middle\" font-size=\"14\">{}</text>\n",
        escape(title)
    );
    // The strongest on top.
    for &(i, j, coupling) in edges.iter().rev() {
        let ((x0, y0), (x1, y1)) = (at(angle(i), RADIUS), at(angle(j), RADIUS));
        let share = (coupling.abs() / clip).min(1.0);
        let colour = sign_colour(coupling);
        let _ = writeln!(
            svg,
            "<path d=\"M {x0:.1} {y0:.1} Q {cx:.1} {cy:.1} {x1:.1} {y1:.1}\" fill=\"none\" \
             stroke=\"#{:02X}{:02X}{:02X}\" stroke-opacity=\"0.8\" stroke-width=\"{:.1}\">\
             <title>{} – {}: K = {:.3}</title></path>",
            colour.0,
            colour.1,
            colour.2,
            1.0 + 6.0 * share,
            escape(&names[i]),
            escape(&names[j]),
            coupling
        );
    }
    for &unit in &shown {
        let angle = angle(unit);
        let ((x, y), (tx, ty)) = (at(angle, RADIUS), at(angle, RADIUS + 10.0));
        // Names stand along the radius and are never upside down.
        let is_left = angle.cos() < -1e-9;
        let (anchor, turn) = if is_left {
            ("end", angle.to_degrees() + 180.0)
        } else {
            ("start", angle.to_degrees())
        };
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"#1E1E1E\"/>\n\
             <text x=\"{tx:.1}\" y=\"{ty:.1}\" text-anchor=\"{anchor}\" dy=\"0.35em\" \
             transform=\"rotate({turn:.1} {tx:.1} {ty:.1})\">{}</text>",
            escape(&shortened(&names[unit], LONGEST_NAME))
        );
    }
    let sizes = edges.iter().map(|(.., coupling)| coupling.abs());
    let is_clipped = sizes.clone().any(|size| size > clip);
    let weakest = sizes.fold(clip, f64::min);
    for (x, value) in [(70.0, weakest), (270.0, clip)] {
        let y = height - 14.0;
        let _ = writeln!(
            svg,
            "<line x1=\"{x}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"#1E1E1E\" \
             stroke-width=\"{:.1}\"/><text x=\"{}\" y=\"{y}\" dy=\"0.35em\">|K| {} {}</text>",
            x + 40.0,
            1.0 + 6.0 * (value / clip).min(1.0),
            x + 48.0,
            if value == clip && is_clipped {
                "≥"
            } else {
                "="
            },
            digits(value)
        );
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strong_pairs_are_wide_and_names_are_safe() {
        let names: Vec<String> = ["a<b", "x\u{7}y", "c", "lonely"].map(String::from).to_vec();
        let edges = [(0, 1, 9.0), (1, 2, -0.5)];
        let svg = network("the network", &names, &[2, 0, 1, 3], &edges, 1.0);
        assert!(
            svg.contains(">a&lt;b</text>") && svg.contains(">x\\u{7}y</text>"),
            "{svg}"
        );
        assert!(!svg.contains("lonely"), "only units with an edge");
        assert!(svg.contains("stroke=\"#B2182B\" stroke-opacity=\"0.8\" stroke-width=\"7.0\""));
        assert!(svg.contains("stroke=\"#2166AC\" stroke-opacity=\"0.8\" stroke-width=\"4.0\""));
        // The unit that is first in the order stands at the top.
        let top = svg.find("cx=\"240.0\" cy=\"104.0\"").unwrap();
        assert!(svg[top..].find(">c</text>").unwrap() < svg[top..].find(">a&lt;b").unwrap());
    }
}
