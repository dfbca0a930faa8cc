//! Measures the errors of a method while it learns.

use super::methods::Learner;
use super::path::ran_away;
use super::problem::{Problem, diagonal_error};
use super::results::{Method, Point};
use crate::output::digits;
use crate::{Result, progress};
use indicatif::ProgressBar;
use mpf_core::Checkpoint;
use mpf_ising::{Couplings, Fit, FitProgress};
use serde::{Deserialize, Serialize};

pub(super) struct Watch<'a> {
    learner: Learner,
    problem: &'a Problem<'a>,
    bar: ProgressBar,
    checkpoint: Checkpoint,
    seen: Seen,
    /// The penalty that the method chose.
    pub(super) lambda: Option<f64>,
    /// Warnings beyond those of the fit.
    pub(super) warnings: Vec<String>,
}

/// The state in the checkpoint, noted at every step of the method.
#[derive(Clone, Serialize, Deserialize)]
struct Seen {
    trace: Vec<Point>,
    latest: Couplings,
}

impl<'a> Watch<'a> {
    /// Begins at the start, or where an earlier run left `unit`.
    pub(super) fn new(
        learner: Learner,
        problem: &'a Problem<'a>,
        steps: usize,
        unit: &Checkpoint,
    ) -> Result<Self> {
        let checkpoint = unit.entry("trace");
        let seen = checkpoint.resume()?.unwrap_or_else(|| Seen {
            trace: vec![Point {
                eps_corr: Some(problem.start_eps_corr),
                ..problem.at_start()
            }],
            latest: problem.start.clone(),
        });
        let mut watch = Self {
            learner,
            problem,
            bar: progress::bar(steps as u64).with_prefix(learner.name()),
            checkpoint,
            seen,
            lambda: None,
            warnings: Vec::new(),
        };
        // The interruption may have cut a measurement short.
        watch.measure_correlations_if_due();
        Ok(watch)
    }

    pub(super) fn say(&self, message: String) {
        self.bar.set_message(message);
    }

    /// Returns the number of points after the start.
    pub(super) fn n_seen(&self) -> usize {
        self.seen.trace.len() - 1
    }

    /// Adds a point to the trace, unless it is the start.
    pub(super) fn see(&mut self, progress: &FitProgress<'_>) {
        if progress.iteration == 0 {
            return;
        }
        self.seen.latest = progress.couplings();
        let eps_j = self
            .seen
            .latest
            .mean_square_error(&self.problem.model.truth);
        self.bar.set_position(progress.iteration as u64);
        self.say(format!("ε_J {}", digits(eps_j)));
        self.seen.trace.push(Point::of(progress, eps_j));
        self.measure_correlations_if_due();
        if self.checkpoint.is_on() {
            self.checkpoint.note(self.seen.clone());
        }
    }

    /// Measures ε_corr of the last point if it is the first from iteration 1, 2, 4, 8, … on. It
    /// takes longer than an iteration; the choice does not depend on the clock.
    fn measure_correlations_if_due(&mut self) {
        let Seen { trace, latest } = &mut self.seen;
        if let [.., before, last] = &mut trace[..]
            && last.eps_corr.is_none()
            && last.iteration >= (before.iteration + 1).next_power_of_two()
        {
            let chains = self.problem.model.args.chains_on_the_way();
            last.eps_corr = self.problem.model.eps_corr(latest, chains).ok();
        }
    }

    /// Measures the errors at the end. A method that failed ends where it was: the others can still
    /// run, and its trace is worth seeing.
    pub(super) fn finish(mut self, outcome: Result<Fit>) -> Method {
        self.say("correlations".to_owned());
        let last = self.seen.trace[self.n_seen()];
        let fit = outcome.as_ref().ok();
        let mut warnings: Vec<String> = match &outcome {
            Ok(fit) => fit.warnings.iter().map(ToString::to_string).collect(),
            Err(error) => vec![error.to_string()],
        };
        warnings.append(&mut self.warnings);
        let end = fit.map_or(last, |fit| Point {
            iteration: fit.iterations,
            evaluations: fit.evaluations,
            seconds: fit.seconds,
            gradient_norm: fit.kkt_residual,
            ..last
        });
        let couplings = fit.map_or(&self.seen.latest, |fit| &fit.couplings);
        let eps_j = couplings.mean_square_error(&self.problem.model.truth);
        let diagonal = diagonal_error(couplings, &self.problem.model.truth);
        let chains = self.problem.model.args.chains_at_the_end();
        let eps_corr = self.problem.model.eps_corr(couplings, chains);
        if let Err(error) = &eps_corr
            && !self.problem.model.cancel.is_cancelled()
        {
            warnings.push(format!("no correlations: {error}"));
        }
        let eps_corr = eps_corr.ok();
        let mut trace = self.seen.trace;
        if last.iteration == end.iteration {
            trace.pop();
        }
        trace.push(Point {
            eps_j,
            eps_corr,
            ..end
        });
        self.bar.finish_and_clear();
        Method {
            name: self.learner.name().to_owned(),
            eps_j,
            eps_j_off_diagonal: eps_j - diagonal,
            eps_j_diagonal: diagonal,
            eps_corr,
            seconds: end.seconds,
            iterations: end.iteration,
            evaluations: end.evaluations,
            stop: fit.map_or("failed".to_owned(), |fit| kebab(&fit.stop)),
            lambda: self.lambda,
            ran_away: fit.is_some_and(|fit| ran_away(&fit.warnings)),
            warnings,
            paper: self.learner.paper(),
            trace,
        }
    }
}

pub(super) fn kebab(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_default();
    text.trim_matches('"').to_owned()
}
