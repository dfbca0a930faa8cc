//! MPF and PL on their way from the start to convergence.
//!
//! A fit passes a best ε_J and then fits the noise of the samples, so that its error depends on where
//! it is stopped. A path notes ε_J where a gradient tolerance is first met, at the iteration limit of
//! the other methods, and at convergence: with and without a ridge λ₂ = 1/M, from exact draws and
//! from one Swendsen-Wang chain.

use super::Source;
use super::methods::{Learner, fit_options, minimised};
use super::problem::Problem;
use super::results::{Method, Point};
use crate::{Result, progress};
use mpf_core::Checkpoint;
use mpf_ising::{FitProgress, Warning};
use serde::{Deserialize, Serialize};

/// Gradient tolerances in standardised units, as [`Fit::kkt_residual`].
pub(super) const TOLERANCES: [f64; 2] = [1e-2, 1e-3];

pub(super) const BEST: &str = "best on the path";
pub(super) const CONVERGED: &str = "converged";

#[derive(Serialize, Deserialize)]
pub(super) struct Path {
    pub(super) name: String,
    /// λ₂ on couplings and fields.
    pub(super) ridge: f64,
    pub(super) sampler: Source,
    pub(super) stop: String,
    pub(super) ran_away: bool,
    pub(super) passed: Passed,
}

/// What a path has passed so far.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Passed {
    /// The iterations of the row `at_limit`.
    pub(super) limit: usize,
    pub(super) best: Point,
    /// The first states within [`TOLERANCES`].
    pub(super) at_tolerance: [Option<Point>; TOLERANCES.len()],
    pub(super) at_limit: Option<Point>,
    pub(super) last: Point,
    /// The first and the last iteration with ε_J below the paper's.
    pub(super) below_paper: Option<(usize, usize)>,
}

impl Passed {
    fn new(start: Point, limit: usize) -> Self {
        Self {
            limit,
            best: start,
            at_tolerance: [None; TOLERANCES.len()],
            at_limit: None,
            last: start,
            below_paper: None,
        }
    }

    fn see(&mut self, state: Point, paper: f64) {
        self.last = state;
        if state.eps_j < self.best.eps_j {
            self.best = state;
        }
        for (found, tolerance) in self.at_tolerance.iter_mut().zip(TOLERANCES) {
            if found.is_none() && state.gradient_norm <= tolerance {
                *found = Some(state);
            }
        }
        if state.iteration <= self.limit {
            self.at_limit = Some(state);
        }
        if state.eps_j < paper {
            let first = self.below_paper.map_or(state.iteration, |(first, _)| first);
            self.below_paper = Some((first, state.iteration));
        }
    }
}

impl Path {
    /// Fits `learner` with `ridge` to the samples of `source`; ends at convergence or at the
    /// iteration limit of paths.
    pub(super) fn run(
        learner: Learner,
        ridge: f64,
        source: Source,
        problem: &Problem<'_>,
        unit: &Checkpoint,
    ) -> Result<Self> {
        let name = label(learner.name(), ridge);
        let bar = progress::spinner(&format!("{name}, {}", source.name()));
        let notes = unit.entry("passed");
        let mut passed = notes
            .resume()?
            .unwrap_or_else(|| Passed::new(problem.at_start(), problem.model.args.iterations));
        let paper = learner.paper().map_or(0.0, |p| p.eps_j);
        let observer = |progress: &FitProgress<'_>| {
            if progress.iteration == 0 {
                return;
            }
            let eps_j = progress.couplings().mean_square_error(&problem.model.truth);
            passed.see(Point::of(progress, eps_j), paper);
            notes.note(passed.clone());
        };
        let mut options = fit_options(problem, unit.entry("fit"));
        options.l2 = ridge;
        options.l2_on_fields = true;
        options.minimizer.max_iterations = problem.model.args.path_iterations(problem.free);
        let samples = problem.model.samples_of(source);
        let fit = minimised(learner, options, samples, observer)?;
        bar.finish_and_clear();
        Ok(Self {
            name: learner.name().to_owned(),
            ridge,
            sampler: source,
            stop: super::watch::kebab(&fit.stop),
            ran_away: ran_away(&fit.warnings),
            passed,
        })
    }

    /// Reads the path off the trace of a method with the same options.
    pub(super) fn of_method(method: &Method, source: Source, limit: usize) -> Self {
        let mut passed = Passed::new(method.trace[0], limit);
        let paper = method.paper.map_or(0.0, |p| p.eps_j);
        for point in &method.trace[1..] {
            passed.see(*point, paper);
        }
        Self {
            name: method.name.clone(),
            ridge: 0.0,
            sampler: source,
            stop: method.stop.clone(),
            ran_away: method.ran_away,
            passed,
        }
    }

    pub(super) fn label(&self) -> String {
        label(&self.name, self.ridge)
    }

    /// Returns the rows of the table; `None` for a state that the path did not reach.
    pub(super) fn states(&self) -> Vec<(String, Option<Point>)> {
        let passed = &self.passed;
        let mut states = vec![(BEST.to_owned(), Some(passed.best))];
        for (state, tolerance) in passed.at_tolerance.iter().zip(TOLERANCES) {
            states.push((format!("tolerance {tolerance:e}"), *state));
        }
        states.push((format!("{} iterations", passed.limit), passed.at_limit));
        let is_converged = matches!(self.stop.as_str(), "converged" | "machine-precision");
        states.push((CONVERGED.to_owned(), is_converged.then_some(passed.last)));
        states
    }

    pub(super) fn state(&self, name: &str) -> Option<Point> {
        let mut states = self.states().into_iter();
        states.find(|(n, _)| n == name)?.1
    }
}

pub(super) fn label(name: &str, ridge: f64) -> String {
    if ridge > 0.0 {
        format!("{name} + ridge")
    } else {
        name.to_owned()
    }
}

/// Returns whether a fit warned of couplings that its samples cannot determine.
pub(super) fn ran_away(warnings: &[Warning]) -> bool {
    let mut warnings = warnings.iter();
    warnings.any(|w| matches!(w, Warning::RunAwayCouplings { .. }))
}
