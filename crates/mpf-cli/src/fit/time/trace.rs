//! How a fit that was tried goes on.

use mpf_core::TracePoint;

/// Returns the part of a fit, from a residual of `first` down to `tolerance`, that one takes which starts
/// at the answer to other samples: its residual is about 1/√M.
pub(super) fn part_of_fit(tolerance: f64, first: f64, n_samples: f64) -> f64 {
    let steps = |from: f64| (from / tolerance).ln();
    let part = steps(1.0 / n_samples.sqrt()) / steps(first);
    if part.is_finite() {
        part.clamp(0.2, 1.0)
    } else {
        1.0
    }
}

/// Returns the seconds of a row of a node-wise fit, of rows that ended at `ends`; those that were not begun
/// are at their start: `None` if that is true of all. The nearer a row came to `tolerance`, the less its
/// `usual` evaluations count.
pub(super) fn seconds_of_row(ends: &[TracePoint], tolerance: f64, usual: usize) -> Option<f64> {
    let usual = usual as f64;
    let (mut seconds, mut tried, mut whole, mut rows) = (0.0, 0.0, 0.0, 0.0);
    for end in ends.iter().filter(|end| end.evaluations > 1) {
        let evaluations = end.evaluations as f64;
        let way = (end.gradient_norm.ln() / tolerance.ln()).clamp(0.0, 1.0);
        let all = match way > 0.0 {
            true => usual * (evaluations / (way * usual)).powf(way),
            false => usual,
        };
        seconds += end.seconds;
        tried += evaluations;
        whole += all.max(evaluations);
        rows += 1.0;
    }
    (rows > 0.0).then(|| seconds / tried * whole / rows)
}

/// An iteration of a trial.
#[derive(Clone, Copy)]
pub(super) struct Point {
    pub iteration: usize,
    pub seconds: f64,
    pub residual: f64,
}

impl Point {
    /// Returns the seconds of so many iterations like those so far.
    pub(super) fn seconds_of(self, iterations: usize) -> f64 {
        // The start is evaluated too.
        self.seconds * (iterations as f64 + 1.0) / (self.iteration as f64 + 1.0)
    }
}

/// Returns when the residual falls to `tolerance`, if it goes on as in the second half of the trial: by
/// the same factor in the same time. The shorter the way was until there, the more the `usual` iterations
/// count. There are at most `most`.
pub(super) fn seconds_of_trace(trace: &[Point], tolerance: f64, usual: usize, most: usize) -> f64 {
    let (Some(first), Some(last)) = (trace.first(), trace.last()) else {
        return 0.0;
    };
    let end = last.seconds;
    let lowest = |before: f64| {
        let points = trace.iter().filter(|at| at.seconds <= before);
        points.map(|at| at.residual).fold(f64::INFINITY, f64::min)
    };
    let (half, now) = (lowest(0.5 * end), lowest(end));
    let left = 0.5 * end * (now / tolerance).ln() / (half / now).ln();
    let way = (first.residual / now).ln() / (first.residual / tolerance).ln();
    let usual = last.seconds_of(usual);
    let whole = match left.is_finite() && way > 0.0 {
        true => usual * ((end + left.max(0.0)) / usual).powf(way.min(1.0)),
        false => usual,
    };
    whole.min(last.seconds_of(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_trial_is_extrapolated() {
        let point = |k: usize| Point {
            iteration: k,
            seconds: 0.01 * k as f64,
            residual: 0.1f64.powf(k as f64 / 10.0),
        };
        let trace: Vec<Point> = (0..=20).map(point).collect();
        let whole = |trace: &[Point], tolerance| seconds_of_trace(trace, tolerance, 209, 10_000);
        assert_eq!(trace[20].seconds_of(209), 2.0);
        assert_eq!(whole(&trace, 0.5), 0.2);
        // From 1 to 0.01 in 0.2 s, another 0.4 s to 1e-6; that is a third of the way, and 2 s are usual.
        let expected = 2.0 * (0.6f64 / 2.0).powf(1.0 / 3.0);
        assert!((whole(&trace, 1e-6) - expected).abs() < 1e-9);
        // Residuals that do not fall tell nothing.
        let still = trace.iter().map(|at| Point {
            residual: 1.0,
            ..*at
        });
        assert_eq!(whole(&still.collect::<Vec<_>>(), 1e-6), 2.0);
        assert_eq!(seconds_of_trace(&trace, 1e-6, 209, 20), 0.2);
        assert_eq!(whole(&[], 1e-6), 0.0);
    }

    #[test]
    fn rows_that_a_trial_left_unfinished_count_in_part() {
        let end = |evaluations: usize, gradient_norm: f64, seconds: f64| TracePoint {
            iteration: 0,
            evaluations,
            value: 1.0,
            gradient_norm,
            seconds,
        };
        let seconds = |ends: &[TracePoint]| seconds_of_row(ends, 1e-6, 16);
        // One is done after 9 evaluations, one is half-way after 2 of 4 or 16, and one was not begun.
        let ends = [end(9, 1e-7, 0.09), end(2, 1e-3, 0.02), end(1, 0.5, 0.0)];
        assert!((seconds(&ends).unwrap() - 0.085).abs() < 1e-12);
        assert!((seconds(&[end(4, 2.0, 0.04)]).unwrap() - 0.16).abs() < 1e-12);
        assert_eq!(seconds(&[]), None);
    }

    #[test]
    fn a_fit_that_starts_near_its_end_is_shorter() {
        assert!((part_of_fit(1e-6, 1.0, 1e6) - 0.5).abs() < 1e-12);
        assert_eq!(part_of_fit(1e-6, 1e-6, 1e6), 1.0);
        assert_eq!(part_of_fit(1e-6, 1e-4, 10.0), 1.0);
    }
}
