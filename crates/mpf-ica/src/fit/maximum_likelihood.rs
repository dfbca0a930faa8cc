//! Maximum likelihood by L-BFGS: what MPF is compared with.

use super::outcome::{Fit, TracePoint};
use super::run::Run;
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
    let point = |step: usize, value: f64, seconds: f64| TracePoint {
        step,
        log_likelihood: -value,
        seconds,
    };
    let found = minimizer.minimize_l1(&mut likelihood, start.theta(), &[], |progress| {
        observer(&point(progress.iteration, progress.value, progress.seconds));
    })?;
    let trace = found.trace.iter();
    Ok(Fit {
        stop: found.stop,
        steps: found.iterations,
        seconds: found.seconds,
        trace: trace
            .map(|p| point(p.iteration, p.value, p.seconds))
            .collect(),
        ..Fit::new(Filters::from_theta(&found.theta), -found.value)?
    })
}
