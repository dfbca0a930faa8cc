//! Maximum likelihood by L-BFGS: what MPF is compared with.

use super::outcome::{Fit, FitProgress, TracePoint};
use super::run::{Run, smallest_and_median};
use crate::Result;
use crate::model::Filters;
use mpf_core::{Minimizer, MinimizerOptions};

/// Maximises the likelihood from `start`. The minimiser keeps the checkpoint, trace included.
pub(super) fn fit(run: Run<'_>, start: &Filters, max_iterations: usize) -> Result<Fit> {
    let Run {
        mut likelihood,
        options,
        observer,
        ..
    } = run;
    // A singular start would be +∞, for which the minimiser has a less helpful message.
    start.log_determinant_and_inverse()?;
    let minimizer = Minimizer::new(MinimizerOptions {
        max_iterations,
        max_seconds: options.max_seconds,
        cancel: options.cancel.clone(),
        checkpoint: options.checkpoint.clone(),
        ..Default::default()
    })?;
    let found = minimizer.minimize_l1(&mut likelihood, start.theta(), &[], |progress| {
        observer(&FitProgress {
            step: progress.iteration,
            theta: progress.theta,
            log_likelihood: -progress.value,
            seconds: progress.seconds,
        });
    })?;
    let filters = Filters::from_theta(&found.theta);
    let (smallest, median) = smallest_and_median(&filters)?;
    let trace = found.trace.iter().map(|point| TracePoint {
        step: point.iteration,
        log_likelihood: -point.value,
        seconds: point.seconds,
    });
    Ok(Fit {
        log_likelihood: -found.value,
        stop: found.stop,
        steps: found.iterations,
        seconds: found.seconds,
        acceptance: None,
        clipped_fraction: 0.0,
        rescued: Vec::new(),
        last_phase: None,
        smallest_singular_value: smallest,
        median_singular_value: median,
        filters,
        trace: trace.collect(),
    })
}
