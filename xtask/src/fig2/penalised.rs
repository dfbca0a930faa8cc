//! MPF with an ℓ1 penalty that is chosen on held-out samples.

use super::methods::fit_options;
use super::problem::Problem;
use super::watch::Watch;
use crate::output::digits;
use crate::{Error, Result};
use mpf_core::{Checkpoint, StopReason, TracePoint};
use mpf_ising::{Fit, FitOptions, FitProgress, Fitter, Mpf, PathOptions, PenaltyPath, Samples};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// One penalty on the path.
#[derive(Serialize, Deserialize)]
struct Tried {
    lambda: f64,
    /// The objective on held-out samples.
    score: f64,
    fit: Fit,
    /// Learning time, scoring included.
    seconds: f64,
}

/// Fits a path of penalties to four fifths of the samples, chooses the λ with the best objective on
/// the last fifth, and fits all samples with it. Learning time covers all of that.
pub(super) fn penalised(
    problem: &Problem<'_>,
    unit: &Checkpoint,
    watch: &mut Watch<'_>,
) -> Result<Fit> {
    let states = &problem.model.drawn[0].states;
    let n = states.n_samples();
    let cut = n - n / 5;
    let training = Samples::new(&states.slice(0..cut))?;
    let held_out = Samples::new(&states.slice(cut..n))?;
    // Enough to rank penalties; the last fit has the tolerance of the other methods.
    let loose = |checkpoint: &Checkpoint| {
        let mut options = fit_options(problem, checkpoint.clone());
        options.minimizer.gradient_tolerance = 1e-4;
        options
    };
    let fitter = Fitter::new(Mpf::default(), loose(&Checkpoint::default()))?;
    let path = PenaltyPath::new(PathOptions {
        n_lambdas: problem.model.args.lambdas,
        ..Default::default()
    })?;
    let lambdas = path.lambdas(&fitter, &training)?;
    let mut tried: Vec<Tried> = Vec::new();
    for (k, &lambda) in lambdas.iter().enumerate() {
        let (at, of) = (k + 1, lambdas.len());
        watch.say(format!("λ {} ({at} of {of})", digits(lambda)));
        let found = unit.unit(format!("λ {at}"), |entry| {
            let mut options = FitOptions {
                l1: lambda,
                ..loose(entry)
            };
            if let Some(before) = tried.last() {
                options.start = Some(before.fit.couplings.clone());
            }
            let fit = fitter.with_options(options)?.fit(&training)?;
            let clock = Instant::now();
            let score = fitter.objective_value(&fit.couplings, &held_out)?;
            Ok::<_, Error>(Tried {
                lambda,
                score,
                seconds: fit.seconds + clock.elapsed().as_secs_f64(),
                fit,
            })
        })?;
        if found.fit.stop == StopReason::Cancelled {
            return Ok(after(&spent(&tried), found.fit));
        }
        tried.push(found);
        // A resumed run has seen the earlier ones.
        if watch.n_seen() < tried.len() {
            let couplings = || tried[k].fit.couplings.clone();
            watch.see(&FitProgress::new(spent(&tried), &couplings));
        }
    }
    let best = tried
        .iter()
        .reduce(|best, t| if t.score < best.score { t } else { best })
        .ok_or("there is no penalty to choose from")?;
    let before = spent(&tried);
    watch.lambda = Some(best.lambda);
    let last = fitter.with_options(FitOptions {
        l1: best.lambda,
        start: Some(best.fit.couplings.clone()),
        ..fit_options(problem, unit.entry("fit"))
    })?;
    let fit = last.fit_observed(problem.model.samples(), |p| {
        let now = TracePoint {
            iteration: before.iteration + p.iteration,
            evaluations: before.evaluations + p.evaluations,
            seconds: before.seconds + p.seconds,
            ..p.point
        };
        watch.see(&FitProgress::new(now, &|| p.couplings()));
    })?;
    Ok(after(&before, fit))
}

/// Adds up the work of all penalties.
fn spent(tried: &[Tried]) -> TracePoint {
    TracePoint {
        iteration: tried.iter().map(|t| t.fit.iterations).sum(),
        evaluations: tried.iter().map(|t| t.fit.evaluations).sum(),
        value: f64::NAN,
        gradient_norm: f64::NAN,
        seconds: tried.iter().map(|t| t.seconds).sum(),
    }
}

/// Adds the work that was done before to `fit`.
fn after(before: &TracePoint, fit: Fit) -> Fit {
    Fit {
        iterations: before.iteration + fit.iterations,
        evaluations: before.evaluations + fit.evaluations,
        seconds: before.seconds + fit.seconds,
        ..fit
    }
}
