//! Log-likelihood against learning time.

use super::results::Results;
use crate::Result;
use crate::plot::{self, STYLES};
use plotters::prelude::SeriesLabelPosition;

/// The range of the right panel.
const LAST_NATS: f64 = 4.0;

/// Draws the whole range on the left, and its upper end on the right.
pub(super) fn curves(results: &Results) -> Result<String> {
    let ml = results.ml.as_ref();
    let methods = [("MPF", Some(&results.mpf)), ("maximum likelihood", ml)];
    let lines = methods.into_iter().filter_map(|(name, method)| {
        let trace = method?.trace.iter();
        let points: Vec<_> = trace.map(|p| (p.seconds, p.log_likelihood)).collect();
        Some((name, thinned(&points)))
    });
    let lines: Vec<(&str, Vec<(f64, f64)>)> = lines.collect();
    let points = || lines.iter().flat_map(|(_, points)| points);
    let longest = points().map(|p| p.0).fold(1e-3, f64::max);
    let best = points().map(|p| p.1).fold(f64::NEG_INFINITY, f64::max);
    let worst = points().map(|p| p.1).fold(f64::INFINITY, f64::min);
    let margin = 0.04 * (best - worst).max(1.0);
    let panels = [
        ("whole", worst - margin, best + margin),
        ("the last nats", best - LAST_NATS, best + 0.04 * LAST_NATS),
    ];

    plot::svg((980, 400), |root| {
        for (k, (area, (title, low, high))) in
            root.split_evenly((1, 2)).iter().zip(panels).enumerate()
        {
            let mut chart =
                plot::chart(area, title, 66).build_cartesian_2d(0.0..1.03 * longest, low..high)?;
            plot::mesh(
                &mut chart,
                ("learning time (s)", 11),
                ("log-likelihood (nats)", 11),
            )?;
            for ((name, points), style) in lines.iter().zip(STYLES) {
                let inside: Vec<(f64, f64)> =
                    points.iter().copied().filter(|p| p.1 >= low).collect();
                style.draw(&mut chart, &inside, 0, name)?;
            }
            if k == 0 {
                plot::key(&mut chart, SeriesLabelPosition::LowerRight)?;
            }
        }
        Ok(())
    })
}

/// Keeps about fifty points, the last among them, so that their dots can be told apart.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let every = points.len().div_ceil(50).max(1);
    // Counted from the end, so that the last point stays.
    let mut kept: Vec<(f64, f64)> = points.iter().rev().step_by(every).copied().collect();
    kept.reverse();
    kept
}

#[cfg(test)]
mod tests {
    use super::thinned;

    #[test]
    fn thinning_keeps_the_last() {
        let line = |n: usize| (0..n).map(|k| (k as f64, 0.0)).collect::<Vec<_>>();
        assert_eq!(thinned(&line(7)), line(7));
        let kept = thinned(&line(301));
        assert!(kept.len() <= 50);
        assert_eq!(kept.last(), line(301).last());
    }
}
