//! A line through points with errors in both coordinates.
//!
//! ```text
//! min Σ (y_i − a − b x_i)² W_i,   W_i = 1/(σ_yi² + b² σ_xi²)
//! ```
//!
//! Least squares of y alone would find a slope below 1 between equals, because noise in x spreads the
//! points along x (York et al., Am. J. Phys. 72, 367, 2004).

use super::Point;

/// A fitted line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// The slope b.
    pub slope: f64,
    /// Its standard error; larger where the points scatter by more than their errors.
    pub standard_error: f64,
    /// y at x = 0.
    pub intercept: f64,
}

/// Fits a line; `None` for fewer than three points, or points without a spread in x.
///
/// Points whose errors are both zero, or are unknown, are left out. If fewer than three remain, all
/// points count the same and x as exact.
pub fn line(points: &[Point]) -> Option<Line> {
    let has_error = |p: &&Point| {
        let both = p.x_error.hypot(p.y_error);
        both > 0.0 && both.is_finite()
    };
    let finite = |p: &&Point| p.x.is_finite() && p.y.is_finite();
    let mut used: Vec<Point> = points
        .iter()
        .filter(finite)
        .filter(has_error)
        .copied()
        .collect();
    let is_weighted = used.len() >= 3;
    if !is_weighted {
        let equal = |p: &Point| Point {
            x_error: 0.0,
            y_error: 1.0,
            ..*p
        };
        used = points.iter().filter(finite).map(equal).collect();
    }
    if used.len() < 3 {
        return None;
    }
    let mut slope = 1.0;
    let mut found = None;
    for _ in 0..50 {
        let step = step(&used, slope)?;
        let change = (step.slope - slope).abs();
        slope = step.slope;
        found = Some(step);
        if change <= 1e-10 * slope.abs() {
            break;
        }
    }
    let mut found = found.filter(|l| l.slope.is_finite() && l.standard_error.is_finite())?;
    let chi2: f64 = used
        .iter()
        .map(|p| (p.y - found.intercept - found.slope * p.x).powi(2) * weight(p, found.slope))
        .sum();
    let scatter = (chi2 / (used.len() - 2) as f64).sqrt();
    found.standard_error *= if is_weighted {
        scatter.max(1.0)
    } else {
        scatter
    };
    Some(found)
}

fn weight(p: &Point, slope: f64) -> f64 {
    1.0 / (p.y_error.powi(2) + (slope * p.x_error).powi(2))
}

/// One iteration from `slope`.
fn step(points: &[Point], slope: f64) -> Option<Line> {
    let total: f64 = points.iter().map(|p| weight(p, slope)).sum();
    let mean = |of: &dyn Fn(&Point) -> f64| {
        points.iter().map(|p| weight(p, slope) * of(p)).sum::<f64>() / total
    };
    let (x, y) = (mean(&|p| p.x), mean(&|p| p.y));
    // The place of every point along x, adjusted by its errors.
    let adjusted = |p: &Point| {
        let (u, v) = (p.x - x, p.y - y);
        weight(p, slope) * (u * p.y_error.powi(2) + slope * v * p.x_error.powi(2))
    };
    let across = mean(&|p| adjusted(p) * (p.x - x));
    let new = mean(&|p| adjusted(p) * (p.y - y)) / across;
    let middle = mean(&adjusted);
    let spread = total * mean(&|p| (adjusted(p) - middle).powi(2));
    (across != 0.0 && spread > 0.0).then(|| Line {
        slope: new,
        standard_error: spread.sqrt().recip(),
        intercept: y - new * x,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpf_core::rng;
    use rand::RngExt as _;

    fn noise(rng: &mut impl rand::Rng) -> f64 {
        // Variance 1.
        (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0
    }

    #[test]
    fn noise_in_both_coordinates_does_not_bend_the_slope() {
        let mut rng = rng::stream(1, 0);
        let mut points = Vec::new();
        for k in 0..400 {
            let truth = f64::from(k % 20) / 20.0;
            points.push(Point {
                x: truth + 0.3 * noise(&mut rng),
                y: 0.1 + 0.8 * truth + 0.1 * noise(&mut rng),
                x_error: 0.3,
                y_error: 0.1,
            });
        }
        let found = line(&points).unwrap();
        assert!(
            (found.slope - 0.8).abs() < 4.0 * found.standard_error,
            "{found:?}"
        );
        assert!((0.02..0.1).contains(&found.standard_error), "{found:?}");
        // Least squares of y alone, for comparison, falls far short.
        let plain: Vec<Point> = points
            .iter()
            .map(|p| Point { x_error: 0.0, ..*p })
            .collect();
        assert!(line(&plain).unwrap().slope < 0.5);
    }

    #[test]
    fn points_without_errors_get_least_squares() {
        let at = |x: f64, y: f64| Point {
            x,
            y,
            x_error: 0.0,
            y_error: f64::NAN,
        };
        let found = line(&[at(0.0, 1.0), at(1.0, 3.0), at(2.0, 4.0)]).unwrap();
        assert!((found.slope - 1.5).abs() < 1e-12 && (found.intercept - 7.0 / 6.0).abs() < 1e-12);
        // χ² = 1/6 over one degree of freedom, Σu² = 2.
        assert!((found.standard_error - (1.0f64 / 12.0).sqrt()).abs() < 1e-12);
        assert_eq!(line(&[at(0.0, 1.0), at(1.0, 3.0)]), None);
        assert_eq!(line(&[at(1.0, 1.0), at(1.0, 3.0), at(1.0, 2.0)]), None);
    }
}
