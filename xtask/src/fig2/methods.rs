//! The learners of Figure 2, each from the same start, with the error along its way.

use super::problem::{Problem, diagonal_error};
use super::{Args, Method, Paper, Point};
use crate::journal::Unit;
use crate::output::digits;
use crate::{Result, progress};
use indicatif::ProgressBar;
use mpf_baselines::{
    ContrastiveDivergence, ContrastiveOptions, ContrastiveSnapshot, Expansion, LearningRate,
    MeanField, Pseudolikelihood,
};
use mpf_core::{Cancel, MinimizerOptions, StopReason, TracePoint};
use mpf_ising::{
    Couplings, Fit, FitOptions, FitProgress, FitSnapshot, Fitter, Mpf, PathOptions, PenaltyPath,
    Samples,
};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// A method of Figure 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Learner {
    /// Minimum probability flow.
    Mpf,
    /// Pseudolikelihood.
    Pl,
    /// Contrastive divergence, one sweep per update.
    #[value(name = "cd-1")]
    Cd1,
    /// Contrastive divergence, ten sweeps per update.
    #[value(name = "cd-10")]
    Cd10,
    /// Mean field theory with TAP correction.
    Tap,
    /// Minimum probability flow with an ℓ1 penalty chosen on held-out data.
    #[value(name = "mpf-l1")]
    MpfL1,
}

impl Learner {
    /// All of them, in the order of the figure's legend.
    pub const ALL: [Self; 6] = [
        Self::Mpf,
        Self::Pl,
        Self::Cd1,
        Self::Cd10,
        Self::Tap,
        Self::MpfL1,
    ];

    /// What the figure calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mpf => "MPF",
            Self::Pl => "PL",
            Self::Cd1 => "CD-1",
            Self::Cd10 => "CD-10",
            Self::Tap => "MFT+TAP",
            Self::MpfL1 => "MPF + ℓ1",
        }
    }

    /// Its line of the paper's Table E-1.
    pub fn paper(self) -> Option<Paper> {
        let (eps_j, eps_corr, seconds) = match self {
            Self::Mpf => (0.0172, 0.0025, 60.0),
            Self::Pl => (0.0582, 0.0036, 800.0),
            Self::Cd1 => (0.3196, 0.0127, 20_000.0),
            Self::Cd10 => (0.3341, 0.0123, 20_000.0),
            Self::Tap => (7.7704, 0.0983, 0.1),
            Self::MpfL1 => return None,
        };
        Some(Paper {
            eps_j,
            eps_corr,
            seconds,
        })
    }

    /// Learns, watching the error, from the start or from where `unit` was left.
    pub fn run(self, problem: &Problem<'_>, unit: &mut Unit<'_>) -> Result<Method> {
        let args = problem.args;
        let (mut watch, place) = Watch::new(self, problem, unit)?;
        let outcome = match self {
            Self::Mpf => flow(problem, place, &mut watch),
            Self::Pl => pseudolikelihood(problem, place, &mut watch),
            Self::Cd1 => contrastive(problem, 1, args.cd1_updates, place, &mut watch),
            Self::Cd10 => contrastive(problem, 10, args.cd10_updates, place, &mut watch),
            Self::MpfL1 => penalised(problem, place, &mut watch),
            Self::Tap => return mean_field(problem, watch),
        };
        match outcome {
            Ok(fit) => watch.finish(
                &fit.couplings,
                Ending {
                    seconds: fit.seconds,
                    iterations: fit.iterations,
                    evaluations: fit.evaluations,
                    stop: kebab(&fit.stop),
                    warnings: fit.warnings.iter().map(ToString::to_string).collect(),
                },
            ),
            // The others can still be run, and what this one did is worth seeing.
            Err(error) => watch.give_up(error.as_ref()),
        }
    }
}

/// Where a learner is, for the journal.
#[derive(Clone, Serialize, Deserialize)]
enum Place {
    /// In one fit.
    Fit(FitSnapshot),
    /// Between two updates of contrastive divergence.
    Updates(ContrastiveSnapshot),
    /// Among the penalties that it tries, or, when all are tried, in the last fit.
    Penalties {
        tried: Vec<Tried>,
        fit: Option<FitSnapshot>,
    },
}

/// One penalty on the path of MPF with ℓ1.
#[derive(Clone, Serialize, Deserialize)]
struct Tried {
    lambda: f64,
    /// The objective on held-out samples.
    score: f64,
    couplings: Couplings,
    iterations: usize,
    evaluations: usize,
    /// Learning time, scoring included.
    seconds: f64,
}

fn kebab(value: &impl serde::Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_default();
    text.trim_matches('"').to_owned()
}

fn fit_options(problem: &Problem<'_>) -> FitOptions {
    FitOptions {
        support: problem.support.clone(),
        start: Some(problem.start.clone()),
        minimizer: minimizer(problem.args, problem.cancel),
        ..Default::default()
    }
}

/// The options of a learner that is one fit, from where it was left.
fn resumed(problem: &Problem<'_>, place: Option<Place>) -> FitOptions {
    let resume = match place {
        Some(Place::Fit(snapshot)) => Some(snapshot),
        _ => None,
    };
    FitOptions {
        resume,
        ..fit_options(problem)
    }
}

fn flow(problem: &Problem<'_>, place: Option<Place>, watch: &mut Watch<'_, '_>) -> Result<Fit> {
    let fitter = Fitter::new(resumed(problem, place))?;
    Ok(fitter.fit_observed(&problem.samples, |p| watch.follow(p))?)
}

fn pseudolikelihood(
    problem: &Problem<'_>,
    place: Option<Place>,
    watch: &mut Watch<'_, '_>,
) -> Result<Fit> {
    let fitter = Pseudolikelihood::new(resumed(problem, place))?;
    Ok(fitter.fit_observed(&problem.samples, |p| watch.follow(p))?)
}

fn minimizer(args: &Args, cancel: &Cancel) -> MinimizerOptions {
    MinimizerOptions {
        max_iterations: args.iterations,
        max_seconds: args.budget.unwrap_or(f64::INFINITY),
        cancel: cancel.clone(),
        snapshots: true,
        ..Default::default()
    }
}

fn contrastive(
    problem: &Problem<'_>,
    sweeps: usize,
    updates: usize,
    place: Option<Place>,
    watch: &mut Watch<'_, '_>,
) -> Result<Fit> {
    let resume = match place {
        Some(Place::Updates(snapshot)) => Some(snapshot),
        _ => None,
    };
    let learner = ContrastiveDivergence::new(ContrastiveOptions {
        sweeps,
        updates,
        learning_rate: LearningRate {
            first: problem.args.cd_first_rate,
            last: problem.args.cd_last_rate,
        },
        support: problem.support.clone(),
        start: Some(problem.start.clone()),
        seed: problem.seed,
        max_seconds: problem.args.budget.unwrap_or(f64::INFINITY),
        cancel: problem.cancel.clone(),
        resume,
        ..Default::default()
    })?;
    let fitted = learner.fit_with_snapshots(&problem.samples, |p, snapshot| {
        watch.see(p);
        watch.keep(Place::Updates(snapshot()));
    });
    Ok(fitted?.0)
}

/// One step, so there is no way to watch. Zero couplings where the support has none.
fn mean_field(problem: &Problem<'_>, watch: Watch<'_, '_>) -> Result<Method> {
    let fit = match MeanField::new(Expansion::Tap, problem.args.tap_lambda)?.fit(&problem.samples) {
        Ok(fit) => fit,
        Err(error) => return watch.give_up(&error),
    };
    let mut warnings: Vec<String> = fit.warnings.iter().map(ToString::to_string).collect();
    if !fit.clipped.is_empty() {
        warnings.push(format!(
            "the TAP equation of {:.1} % of the pairs has no solution and was clipped",
            100.0 * fit.clipped_fraction
        ));
    }
    let couplings = problem.on_support(&fit.couplings)?;
    watch.finish(
        &couplings,
        Ending {
            seconds: fit.seconds,
            iterations: 1,
            evaluations: 1,
            stop: "closed-form".to_owned(),
            warnings,
        },
    )
}

/// A path of penalties on four fifths of the samples, the λ with the best objective on the last
/// fifth, and a fit with it to all of them. All of that is learning time.
fn penalised(
    problem: &Problem<'_>,
    place: Option<Place>,
    watch: &mut Watch<'_, '_>,
) -> Result<Fit> {
    let (mut tried, mut resume) = match place {
        Some(Place::Penalties { tried, fit }) => (tried, fit),
        _ => (Vec::new(), None),
    };
    let n = problem.states.n_samples();
    let cut = n - n / 5;
    let training = Samples::new(&problem.states.slice(0..cut))?;
    let held_out = Samples::new(&problem.states.slice(cut..n))?;
    let estimator = Mpf::default();
    // Enough to rank penalties; the fit at the end has the tolerance of the other methods.
    let mut loose = fit_options(problem);
    loose.minimizer.gradient_tolerance = 1e-4;
    let fitter = Fitter::new(loose.clone())?;
    let path = PenaltyPath::new(PathOptions {
        n_lambdas: problem.args.lambdas,
        ..Default::default()
    })?;
    let lambdas = path.lambdas(&fitter, &estimator, &training)?;
    for (k, &lambda) in lambdas.iter().enumerate().skip(tried.len()) {
        let (at, of) = (k + 1, lambdas.len());
        let message = format!("λ {} ({at} of {of})", digits(lambda));
        watch.bar.set_message(message);
        // Every fit starts from the one before.
        let options = FitOptions {
            l1: lambda,
            start: tried
                .last()
                .map(|t| t.couplings.clone())
                .or_else(|| loose.start.clone()),
            resume: resume.take(),
            ..loose.clone()
        };
        let fit = Fitter::new(options)?.fit_observed(&training, |p| {
            watch.keep(Place::Penalties {
                tried: tried.clone(),
                fit: p.snapshot(),
            });
        })?;
        if fit.stop == StopReason::Cancelled {
            return Ok(after(&spent(&tried), fit));
        }
        let clock = Instant::now();
        let score = fitter.objective_value(&estimator, &fit.couplings, &held_out)?;
        tried.push(Tried {
            lambda,
            score,
            couplings: fit.couplings.clone(),
            iterations: fit.iterations,
            evaluations: fit.evaluations,
            seconds: fit.seconds + clock.elapsed().as_secs_f64(),
        });
        watch.see(&FitProgress::new(spent(&tried), &|| fit.couplings.clone()));
        watch.keep(Place::Penalties {
            tried: tried.clone(),
            fit: None,
        });
    }
    let best = tried
        .iter()
        .reduce(|best, t| if t.score < best.score { t } else { best })
        .ok_or("there is no penalty to choose from")?;
    let before = spent(&tried);
    watch.lambda = Some(best.lambda);
    let last = Fitter::new(FitOptions {
        l1: best.lambda,
        start: Some(best.couplings.clone()),
        resume,
        ..fit_options(problem)
    })?;
    let fit = last.fit_observed(&problem.samples, |p| {
        let now = TracePoint {
            iteration: before.iteration + p.iteration,
            evaluations: before.evaluations + p.evaluations,
            seconds: before.seconds + p.seconds,
            value: p.value,
            gradient_norm: p.gradient_norm,
        };
        watch.see(&FitProgress::new(now, &|| p.couplings()));
        watch.keep(Place::Penalties {
            tried: tried.clone(),
            fit: p.snapshot(),
        });
    })?;
    Ok(after(&before, fit))
}

/// What all the penalties together took.
fn spent(tried: &[Tried]) -> TracePoint {
    TracePoint {
        iteration: tried.iter().map(|t| t.iterations).sum(),
        evaluations: tried.iter().map(|t| t.evaluations).sum(),
        value: f64::NAN,
        gradient_norm: f64::NAN,
        seconds: tried.iter().map(|t| t.seconds).sum(),
    }
}

/// `fit` with the work that was done before it.
fn after(before: &TracePoint, fit: Fit) -> Fit {
    Fit {
        iterations: before.iteration + fit.iterations,
        evaluations: before.evaluations + fit.evaluations,
        seconds: before.seconds + fit.seconds,
        ..fit
    }
}

/// How a method ended.
struct Ending {
    seconds: f64,
    iterations: usize,
    evaluations: usize,
    stop: String,
    warnings: Vec<String>,
}

/// Measures the errors of a method on its way.
struct Watch<'a, 'j> {
    learner: Learner,
    problem: &'a Problem<'a>,
    unit: &'a mut Unit<'j>,
    bar: ProgressBar,
    seen: Seen,
    /// The penalty that was chosen.
    lambda: Option<f64>,
}

/// What was measured on the way.
#[derive(Clone, Serialize, Deserialize)]
struct Seen {
    trace: Vec<Point>,
    /// When ε_corr is measured next.
    next: usize,
    latest: Couplings,
}

impl<'a, 'j> Watch<'a, 'j> {
    /// At the start, or where `unit` was left, with the place of the learner then.
    fn new(
        learner: Learner,
        problem: &'a Problem<'a>,
        unit: &'a mut Unit<'j>,
    ) -> Result<(Self, Option<Place>)> {
        let steps = match learner {
            Learner::Cd1 => problem.args.cd1_updates,
            Learner::Cd10 => problem.args.cd10_updates,
            Learner::Tap => 1,
            _ => problem.args.iterations,
        };
        let start = Point {
            iteration: 0,
            seconds: 0.0,
            eps_j: problem.start.mean_square_error(&problem.truth),
            eps_corr: Some(problem.start_eps_corr),
        };
        let (seen, place) = match unit.left_off::<(Seen, Place)>()? {
            Some((seen, place)) => (seen, Some(place)),
            None => {
                let seen = Seen {
                    trace: vec![start],
                    next: 1,
                    latest: problem.start.clone(),
                };
                (seen, None)
            }
        };
        let watch = Self {
            learner,
            problem,
            unit,
            bar: progress::bar(steps as u64).with_prefix(learner.name()),
            seen,
            lambda: None,
        };
        Ok((watch, place))
    }

    /// A point of the trace of a learner that is one fit, and a place to go on from.
    fn follow(&mut self, progress: &FitProgress<'_>) {
        self.see(progress);
        if let Some(snapshot) = progress.snapshot() {
            self.keep(Place::Fit(snapshot));
        }
    }

    /// Keeps the place of the learner, and what was seen until there.
    fn keep(&mut self, place: Place) {
        self.unit.keep((self.seen.clone(), place));
    }

    /// A point of the trace. ε_corr takes longer than an iteration, so it is measured at
    /// iterations 1, 2, 4, 8, …: which ones does not depend on the clock.
    fn see(&mut self, progress: &FitProgress<'_>) {
        if progress.iteration == 0 {
            return;
        }
        self.seen.latest = progress.couplings();
        let eps_j = self.seen.latest.mean_square_error(&self.problem.truth);
        self.bar.set_position(progress.iteration as u64);
        self.bar.set_message(format!("ε_J {}", digits(eps_j)));
        let mut eps_corr = None;
        if progress.iteration >= self.seen.next {
            while self.seen.next <= progress.iteration {
                self.seen.next *= 2;
            }
            eps_corr = self
                .problem
                .eps_corr(&self.seen.latest, self.problem.args.effort_on_the_way())
                .unwrap_or(None);
        }
        self.seen.trace.push(Point {
            iteration: progress.iteration,
            seconds: progress.seconds,
            eps_j,
            eps_corr,
        });
    }

    fn finish(mut self, couplings: &Couplings, ending: Ending) -> Result<Method> {
        self.bar.set_message("correlations");
        let truth = &self.problem.truth;
        let eps_j = couplings.mean_square_error(truth);
        let diagonal = diagonal_error(couplings, truth);
        let mut warnings = ending.warnings;
        let eps_corr = self
            .problem
            .eps_corr(couplings, self.problem.args.effort_at_the_end())
            .unwrap_or_else(|error| {
                warnings.push(format!("no correlations: {error}"));
                None
            });
        let last = Point {
            iteration: ending.iterations,
            seconds: ending.seconds,
            eps_j,
            eps_corr,
        };
        match self.seen.trace.last_mut() {
            Some(point) if point.iteration == last.iteration => *point = last,
            _ => self.seen.trace.push(last),
        }
        self.bar.finish_and_clear();
        Ok(Method {
            name: self.learner.name().to_owned(),
            eps_j,
            eps_j_off_diagonal: eps_j - diagonal,
            eps_j_diagonal: diagonal,
            eps_corr,
            seconds: ending.seconds,
            iterations: ending.iterations,
            evaluations: ending.evaluations,
            stop: ending.stop,
            lambda: self.lambda,
            warnings,
            paper: self.learner.paper(),
            trace: self.seen.trace,
        })
    }

    /// Keeps what a method did before it failed.
    fn give_up(self, error: &dyn std::error::Error) -> Result<Method> {
        let last = self.seen.trace.last().expect("the start is always there");
        let ending = Ending {
            seconds: last.seconds,
            iterations: last.iteration,
            evaluations: last.iteration,
            stop: "failed".to_owned(),
            warnings: vec![error.to_string()],
        };
        let latest = self.seen.latest.clone();
        self.finish(&latest, ending)
    }
}
