//! Maximum likelihood by L-BFGS: what MPF is compared with.

use super::outcome::{Fit, TracePoint};
use super::run::Run;
use crate::Result;
use crate::model::Filters;
use mpf_core::{Minimizer, MinimizerOptions};

/// Maximises the likelihood from `start`. The minimiser keeps the checkpoint, trace included.
pub(super) fn fit(mut run: Run<'_>, start: &Filters, max_iterations: usize) -> Result<Fit> {
    // A singular start would be +∞, for which the minimiser has a less helpful message.
    start.log_determinant_and_inverse()?;
    let minimizer = Minimizer::new(MinimizerOptions {
        max_iterations,
        max_seconds: run.options.max_seconds,
        cancel: run.options.cancel.clone(),
        checkpoint: run.options.checkpoint.clone(),
        ..Default::default()
    })?;
    let point = |p: &mpf_core::TracePoint| TracePoint {
        step: p.iteration,
        log_likelihood: -p.value,
        seconds: p.seconds,
    };
    let found = minimizer.minimize_l1(&mut run.likelihood, start.theta(), &[], |progress| {
        (run.observer)(&point(progress));
    })?;
    Ok(Fit {
        stop: found.stop,
        steps: found.iterations,
        seconds: found.seconds,
        trace: found.trace.iter().map(point).collect(),
        ..Fit::new(Filters::from_theta(&found.theta), -found.value)?
    })
}
