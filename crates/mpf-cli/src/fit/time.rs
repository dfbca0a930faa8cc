//! The time that the steps of a fit take: they are tried on these data and this machine for a moment, and
//! extrapolated.
//!
//! ```text
//! fit          tried until it ends or time is up; then the residual falls on at the same rate
//! penalty      a path of few λ's and two folds is tried: its scores say where the best λ is
//! fit again    (held out, a resample) from the answer to other samples: a residual of 1/√M
//! ln Z         annealing at few temperatures, or a sum over 2^d states
//! polishing    updates of 4000 chains, for all data and for the part, if the model of the trial drifts
//! sandwich     fits without the penalty, and three Hessians: a product and an inverse each
//! checkpoint   a write after every interval, or after every iteration that is longer
//! ```
//!
//! Sweeps, updates, products, inverses and sums are timed. When the fit has ended, the steps that are fits are
//! known better: [`Expected::update`].

use crate::failure::Failure;
use mpf_baselines::{
    Contender, Drift, ErrorBarsBy, MachineOptions, MachineTrainer, Method, MethodOptions, Methods,
    Plan, Polish, Recipe, Takes,
};
use mpf_core::linalg::{positive_definite_inverse, symmetric_eigen};
use mpf_core::rng::stream;
use mpf_core::{Cancel, Checkpoint, MinimizerOptions, StopReason};
use mpf_ising::internal::unpenalised;
use mpf_ising::{
    Couplings, Exact, FitProgress, PathOptions, Penalty, PenaltyPath, Preflight, Samples, States,
    Support,
};
use mpf_samplers::{AnnealedOptions, Gibbs, Sampler, annealed_log_z};
use ndarray::Array2;
use std::time::{Duration, Instant};

/// Iterations assumed when a trial tells nothing, and the fewest that tell something.
const PLAIN: usize = 60;
const TELLING: usize = 12;
/// The evaluations that a trial should have time for, and its seconds.
const TRIED: f64 = 30.0;
const TRIAL_SECONDS: f64 = 0.3;
/// The part of the time limit that all trials may take.
const TRIAL_OF_LIMIT: f64 = 0.1;
/// One in this many samples is in the trial of a machine; its seconds, and the iterations of one that says
/// nothing.
const MACHINE_PART: usize = 4;
const MACHINE_SECONDS: f64 = 1.0;
const MACHINE_PLAIN: usize = 300;
/// The fewest samples of a trial.
const TRIAL_SAMPLES: usize = 256;
/// The λ's of the path that is tried, and its most seconds.
const FEW_LAMBDAS: usize = 9;
const PATH_SECONDS: f64 = 2.0;
/// The time of a step to the next of many λ's, as a part of that to the next of few.
const SHORTER: f64 = 0.8;
/// The part of the λ's that a path has before its best one, if the trial does not get there.
const BEST: f64 = 0.7;
/// Chains that polishing sweeps in an update, and those that are tried.
const POLISHED: usize = 4000;
const POLISHING_TRIED: usize = 1024;
/// Temperatures at which annealing is tried, of the 1000 that it has, and the chains of many units.
const ANNEALING_TRIED: usize = 10;
const FEW_CHAINS: usize = 8;
/// The most units whose states are enumerated, and that are annealed.
const ENUMERATED: usize = 24;
const ANNEALED: usize = 400;
/// Seconds until a file is on the disk, as seen on one.
pub(crate) const SYNCED: f64 = 0.03;
/// Seconds to write a checkpoint, and those of every byte in it, as seen on that disk.
const KEPT: f64 = 0.005;
const KEPT_BYTE: f64 = 3.5e-9;
/// Hessians of the sandwich with and without a penalty.
const HESSIANS: f64 = 3.0;

/// The seconds that a fit is expected to take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    /// Without polishing that only a drifting model gets.
    pub seconds: f64,
    /// Those of that polishing; 0 if it cannot happen, or is among `seconds`.
    pub polishing: f64,
    /// Whether the model of the trial drifts, so that it will probably be polished.
    pub drifts: bool,
    /// Until there is a model.
    fit: f64,
    /// Of `seconds`, those of fits after that.
    again: f64,
    /// Of `seconds`, those of the check on held-out samples.
    checked: f64,
}

impl Expected {
    /// Adds up the steps of `recipe`, and the `elapsed` seconds before them. Trials take a part of
    /// `limit`. `keeps` is the seconds between two checkpoints and the bytes of one.
    pub(super) fn new(
        recipe: &Recipe,
        samples: &Samples,
        states: Option<&States>,
        preflight: &Preflight,
        elapsed: f64,
        limit: f64,
        keeps: Option<(f64, u64)>,
    ) -> Result<Self, Failure> {
        let d = samples.n_units();
        let clock = Instant::now();
        let trial = Trial {
            recipe,
            samples,
            states: states.unwrap_or(samples.states()),
            evaluation: preflight.seconds / PLAIN as f64,
            cancel: recipe
                .options
                .minimizer
                .cancel
                .within(TRIAL_OF_LIMIT * limit),
            most: TRIAL_OF_LIMIT * limit,
        };
        let mut fits = match &recipe.choose {
            Some(path) => trial.path(path)?,
            None => trial.fits()?,
        };
        // The state of a path is kept after every λ.
        if let Some((every, bytes)) = keeps.filter(|_| recipe.choose.is_none()) {
            let write = KEPT + KEPT_BYTE * bytes as f64;
            let share = write / every.max(fits.iteration).max(f64::MIN_POSITIVE);
            fits.all *= 1.0 + share;
            fits.again *= 1.0 + share;
        }
        let threads = rayon::current_num_threads() as f64;
        let (sweep, log_z) = match trial.has_time() {
            true => {
                let model = weak_model(samples, &recipe.options.support)?;
                let sweep = seconds_per_sweep(&model, samples)? / threads;
                // A fit anneals no more units.
                let is_scored = recipe.held_out > 0.0 && d <= ANNEALED;
                let log_z = match is_scored {
                    true => seconds_of_log_z(&model)?,
                    false => 0.0,
                };
                (sweep, log_z)
            }
            false => (0.0, 0.0),
        };
        let is_judged = recipe.held_out > 0.0;
        let (judged, scored) = if is_judged {
            ((1.0 - recipe.held_out) * fits.again, log_z)
        } else {
            (0.0, 0.0)
        };
        let updates = |n: usize| -> Result<f64, Failure> {
            let once = n as f64 * trial.seconds_per_update()?;
            Ok(if is_judged { 2.0 * once + log_z } else { once })
        };
        let drift = (Drift::n_chains(d) * Drift::SWEEPS) as f64 * sweep;
        let may_drift = recipe.polish == Polish::IfDrifting && recipe.last(d).describe().is_local;
        let drifts = may_drift && drift < TRIAL_SECONDS && trial.drifts(&fits)?;
        let (polished, polishing) = match recipe.polish {
            Polish::Updates(0) => (0.0, 0.0),
            Polish::Updates(n) => (updates(n)?, 0.0),
            Polish::IfDrifting if drifts => (updates(Polish::DEFAULT_UPDATES)?, 0.0),
            Polish::IfDrifting if may_drift => (0.0, updates(Polish::DEFAULT_UPDATES)?),
            Polish::IfDrifting => (0.0, 0.0),
        };
        let (refitted, computed) = match recipe.errors {
            ErrorBarsBy::Nothing => (0.0, 0.0),
            ErrorBarsBy::Bootstrap(resamples) => {
                // A resample has fewer distinct rows.
                let rows = samples.n_distinct() as f64;
                let share = -(-(samples.n_observed() as f64) / rows).exp_m1();
                (resamples as f64 * share * fits.again, 0.0)
            }
            ErrorBarsBy::Sandwich if has_penalty(recipe) => {
                let plain = trial.without_penalty(&fits)?;
                (plain, HESSIANS * seconds_per_hessian(recipe, samples)?)
            }
            ErrorBarsBy::Sandwich => (0.0, seconds_per_hessian(recipe, samples)?),
        };
        let fit = elapsed + clock.elapsed().as_secs_f64() + fits.all;
        let again = judged + refitted;
        let seconds = fit + again + drift + scored + polished + computed + SYNCED;
        Ok(Self {
            seconds,
            polishing,
            drifts,
            fit,
            again,
            checked: judged + scored,
        })
    }

    /// Returns the same of a fit that ends after `limit` seconds.
    pub(super) fn within(self, limit: f64) -> Self {
        Self {
            seconds: self.seconds.min(limit),
            polishing: self.polishing.min((limit - self.seconds).max(0.0)),
            ..self
        }
    }

    /// Returns the same after a fit that took `fit` seconds with all before it: the fits that follow are
    /// longer or shorter as it was.
    pub(super) fn update(self, fit: f64) -> Self {
        let again = self.again * fit / self.fit;
        Self {
            seconds: self.seconds - self.fit - self.again + fit + again,
            fit,
            again,
            ..self
        }
    }
}

pub(super) fn has_penalty(recipe: &Recipe) -> bool {
    let options = &recipe.options;
    recipe.choose.is_some() || options.l1 > 0.0 || options.l2 != Some(0.0)
}

/// The seconds of fits.
#[derive(Clone)]
struct Fits {
    /// Until there is a model.
    all: f64,
    /// The last of them.
    last: f64,
    /// One like the last, of other samples.
    again: f64,
    /// How far the last one got, and whether that is a step of all units.
    model: Option<Couplings>,
    has_all_units: bool,
    /// Seconds per iteration, and whether some unit used up its iterations without converging.
    iteration: f64,
    is_stuck: bool,
}

impl Fits {
    fn equal(seconds: f64) -> Self {
        Self {
            all: seconds,
            last: seconds,
            again: seconds,
            model: None,
            has_all_units: false,
            iteration: seconds / PLAIN as f64,
            is_stuck: false,
        }
    }
}

/// Returns the seconds that the fit of a machine is expected to take, with its starts and the one of a
/// part, as a short try of the first start goes; and those of its ln Z.
pub(super) fn of_machine(
    options: &MachineOptions,
    samples: &Samples,
    held_out: f64,
    limit: f64,
) -> Result<(f64, f64), Failure> {
    let mut trial = MachineOptions {
        starts: 1,
        ..options.clone()
    };
    let minimizer = &mut trial.minimizer;
    let cancel = minimizer.cancel.clone();
    let most = MACHINE_SECONDS.min(TRIAL_OF_LIMIT * limit);
    minimizer.cancel = cancel.within(most);
    minimizer.checkpoint = Checkpoint::default();
    // Steps of the minimiser are many and long: those of a part of the samples show how they go on.
    let part = match options.trainer {
        MachineTrainer::Pseudolikelihood | MachineTrainer::Mpf => {
            let n = samples.n_distinct();
            let fewer = (n / MACHINE_PART).max(TRIAL_SAMPLES).min(n);
            evenly_spaced(samples.states(), fewer)?
        }
        MachineTrainer::Contrastive | MachineTrainer::Persistent => samples.clone(),
    };
    let scale = samples.n_distinct() as f64 / part.n_distinct() as f64;
    let mut trace = Vec::new();
    let clock = Instant::now();
    let fit = trial.fit(&part, &mut |at| {
        trace.push(Point {
            iteration: at.iteration,
            seconds: clock.elapsed().as_secs_f64(),
            residual: at.objective.map_or(f64::NAN, |(_, residual)| residual),
        });
    });
    let seconds = clock.elapsed().as_secs_f64();
    if cancel.reason() == Some(StopReason::Cancelled) {
        return Err(Failure::interrupted());
    }
    let is_whole = fit
        .as_ref()
        .is_ok_and(|fit| fit.stop != StopReason::TimeLimit);
    let has_objective = trace.last().is_some_and(|at| !at.residual.is_nan());
    let (starts, most) = match has_objective {
        true => (options.starts, options.minimizer.max_iterations),
        false => (1, options.updates),
    };
    let whole = match trace.last().filter(|_| !is_whole) {
        None => seconds,
        Some(at) if has_objective => {
            let end = seconds_to(options.minimizer.gradient_tolerance, &trace);
            let end = end.unwrap_or_else(|| at.seconds_of(MACHINE_PLAIN));
            end.min(at.seconds_of(most))
        }
        Some(at) => at.seconds_of(most),
    };
    let again = if held_out > 0.0 { 1.0 - held_out } else { 0.0 };
    let all = seconds + scale * whole * (starts as f64 + again);
    let log_z = match fit {
        Ok(fit) if may_anneal(samples.n_units(), limit) => {
            seconds_of_annealing(fit.machine.n_units(), |few| {
                let _ = fit.machine.log_z(few);
            })
        }
        // What fails here fails again, with its message.
        _ => 0.0,
    };
    Ok((all, log_z))
}

/// Returns the seconds that a comparison is expected to take on folds of `samples`, and those that it
/// takes in addition if every model that may be polished is.
pub(crate) fn of_comparison(
    contenders: &[Contender],
    samples: &Samples,
    states: &States,
    n_folds: usize,
    preflight: &Preflight,
    elapsed: f64,
    limit: f64,
) -> Result<(f64, f64), Failure> {
    let log_z = match may_anneal(samples.n_units(), limit) {
        true => seconds_of_log_z(&weak_model(samples, &Support::Full)?)?,
        false => 0.0,
    };
    // As many fits as folds, each without one of these.
    let whole = n_folds as f64 - 1.0;
    let limit_of_each = limit / contenders.len() as f64;
    let start = Instant::now();
    let (mut seconds, mut more) = (0.0, 0.0);
    for contender in contenders {
        let clock = Instant::now();
        let (fit, log_z) = match &contender.plan {
            Plan::Machine(options) => of_machine(options, samples, 0.0, limit_of_each)?,
            Plan::Recipe(recipe) => {
                let states = Some(states);
                let elapsed = 0.0;
                let limit = limit_of_each;
                let of = Expected::new(recipe, samples, states, preflight, elapsed, limit, None)?;
                // Only a model that may be polished is checked.
                if of.polishing > 0.0 {
                    more += whole * (of.checked + of.polishing);
                }
                let checked = if of.drifts { 0.0 } else { of.checked };
                (of.seconds - checked, log_z)
            }
        };
        let tried = clock.elapsed().as_secs_f64();
        seconds += whole * (fit - tried).max(0.0) + n_folds as f64 * log_z;
    }
    let all = elapsed + start.elapsed().as_secs_f64() + seconds;
    Ok((all.min(limit), more))
}

/// Returns `wanted` of the samples, or all of them: evenly spaced.
fn evenly_spaced(states: &States, wanted: usize) -> Result<Samples, Failure> {
    Ok(Samples::new(&evenly_spaced_states(states, wanted)?)?)
}

fn evenly_spaced_states(states: &States, wanted: usize) -> Result<States, Failure> {
    let n = states.n_samples();
    let wanted = wanted.clamp(1, n);
    let mut part = States::new(states.n_units())?;
    for k in 0..wanted {
        let at = (k as f64 * n as f64 / wanted as f64) as usize;
        part.push(states.row(at));
    }
    Ok(part)
}

/// A short try of the fits of a recipe.
struct Trial<'a> {
    recipe: &'a Recipe,
    samples: &'a Samples,
    /// All samples, or the distinct ones.
    states: &'a States,
    /// Seconds of an evaluation, roughly.
    evaluation: f64,
    /// The end of all trials.
    cancel: Cancel,
    /// Their most seconds.
    most: f64,
}

impl Trial<'_> {
    /// Returns whether a trial has time for more than setting up.
    fn has_time(&self) -> bool {
        3.0 * self.evaluation < self.most && !self.cancel.is_cancelled()
    }

    /// Returns the options of a trial of so many seconds.
    fn options(&self, method: &dyn Method, options: &MethodOptions, seconds: f64) -> MethodOptions {
        let mut options = options.clone();
        if method.describe().takes.contains(&Takes::Penalties) {
            options.l2 = Some(options.l2_of(self.samples.n_effective()));
        }
        options.minimizer.checkpoint = Checkpoint::default();
        if options.potential.is_some() {
            // The potential is completed after the steps, which alone are cut short.
            options.minimizer.cancel = self.cancel.clone();
            options.minimizer.max_seconds = seconds;
        } else {
            options.minimizer.cancel = self.cancel.within(seconds);
        }
        options
    }

    /// Returns how many samples leave time for some evaluations.
    fn n_tried(&self) -> usize {
        let share = TRIAL_SECONDS / (TRIED * self.evaluation);
        let wanted = (self.states.n_samples() as f64 * share) as usize;
        wanted.max(TRIAL_SAMPLES)
    }

    /// Returns that many samples, evenly spaced.
    fn some(&self) -> Result<Samples, Failure> {
        evenly_spaced(self.states, self.n_tried())
    }

    fn check(&self) -> Result<(), Failure> {
        match self.cancel.reason() {
            Some(StopReason::Cancelled) => Err(Failure::interrupted()),
            _ => Ok(()),
        }
    }

    /// Tries the fits of a recipe without a path.
    fn fits(&self) -> Result<Fits, Failure> {
        let (recipe, options) = (self.recipe, &self.recipe.options);
        let last = recipe.last(self.samples.n_units());
        let some = self.some()?;
        if std::ptr::addr_eq(last, recipe.method) {
            return self.fit(last, options, &some);
        }
        let first = self.fit(recipe.method, &Recipe::rough(options), &some)?;
        let refining = MethodOptions {
            start: first.model,
            ..options.clone()
        };
        let last = self.fit(last, &refining, &some)?;
        Ok(Fits {
            all: first.all + last.all,
            ..last
        })
    }

    /// Returns whether the model of the trial drifts off the data.
    fn drifts(&self, fits: &Fits) -> Result<bool, Failure> {
        let is_fair = fits.has_all_units && self.has_time();
        let Some(model) = fits.model.as_ref().filter(|_| is_fair) else {
            return Ok(false);
        };
        let seed = self.recipe.options.seed;
        let drift = Drift::measure(model, self.samples, Drift::SWEEPS, seed);
        self.check()?;
        // What fails here fails again, with its message.
        Ok(drift.is_ok_and(|drift| drift.has_drifted()))
    }

    /// Tries a fit without the penalty, as error bars need it. If rows separate, the
    /// fit is repeated; the most repeats are assumed.
    fn without_penalty(&self, fits: &Fits) -> Result<f64, Failure> {
        let d = self.samples.n_units();
        let last = self.recipe.last(d);
        if !last.describe().takes.contains(&Takes::Penalties) {
            return Ok(fits.last);
        }
        let mut options = MethodOptions {
            l1: 0.0,
            l2: Some(0.0),
            start: fits.model.clone(),
            support: Support::Edges(determined(self.recipe, self.samples)?),
            ..self.recipe.options.clone()
        };
        options.minimizer.gradient_tolerance = unpenalised::TOLERANCE;
        options.minimizer.max_iterations = unpenalised::ITERATIONS;
        let tried = self.fit(last, &options, &self.some()?)?;
        Ok(match tried.is_stuck {
            true => unpenalised::MOST_FITS as f64 * tried.all,
            false => tried.all,
        })
    }

    /// Tries one fit.
    fn fit(
        &self,
        method: &dyn Method,
        options: &MethodOptions,
        part: &Samples,
    ) -> Result<Fits, Failure> {
        let d = self.samples.n_units();
        if method.describe().takes.contains(&Takes::Damping) {
            return Ok(Fits::equal(seconds_of_decomposition(d)));
        }
        if !self.has_time() {
            return Ok(Fits::equal(PLAIN as f64 * self.evaluation));
        }
        let scale = self.samples.n_distinct() as f64 / part.n_distinct() as f64;
        // Few iterations of many units say nothing: they get the time for some.
        let most = TRIAL_SECONDS.max(TRIED * self.evaluation / scale);
        let options = self.options(method, options, most);
        let mut trace = Vec::new();
        let clock = Instant::now();
        let fit = method.fit(part.into(), &options, &mut |at| trace.push(Point::new(at)));
        let seconds = clock.elapsed().as_secs_f64();
        self.check()?;
        let is_whole = fit.as_ref().is_ok_and(|f| f.stop != StopReason::TimeLimit);
        // What fails here fails again, with its message.
        let model = fit.ok().map(|fit| fit.couplings);
        let minimizer = &options.minimizer;
        let tolerance = minimizer.gradient_tolerance;
        let (what, total) = method.steps(d, &options);
        if what == "units" && !is_whole {
            // The last point counts the units that were cut short.
            trace.pop();
        }
        let whole = match (total, trace.last()) {
            _ if is_whole => seconds,
            (_, None) => PLAIN as f64 * self.evaluation / scale,
            (Some(total), Some(at)) => at.seconds_of(total),
            (None, Some(at)) => {
                let plain = at.seconds_of(PLAIN);
                let end = seconds_to(tolerance, &trace).unwrap_or(plain);
                end.min(at.seconds_of(minimizer.max_iterations))
            }
        };
        let is_stuck = what == "units" && trace.iter().any(|at| at.residual > tolerance);
        let iteration = trace
            .last()
            .map_or(self.evaluation, |at| scale * at.seconds_of(0));
        let completed = match trace.last() {
            Some(at) if options.potential.is_some() && !is_whole => seconds - at.seconds,
            _ => 0.0,
        };
        let all = scale * whole.max(seconds - completed) + completed;
        // Of fits that do not go down to a tolerance, the start does not matter.
        let part = match (what, trace.first()) {
            ("iterations", Some(first)) if options.potential.is_none() => {
                part_of_fit(tolerance, first.residual, self.samples.n_effective())
            }
            _ => 1.0,
        };
        Ok(Fits {
            all,
            last: all,
            again: part * all,
            model,
            has_all_units: is_whole || what != "units",
            iteration,
            is_stuck,
        })
    }

    /// Tries a path of few λ's and two folds. The best λ₁ goes with 1/√M, and the best λ₂ with 1/M: the
    /// whole path has its own further down, and ends some λ's after it. Fits of all data and of the folds,
    /// of which each leaves out one part, are as much work as one of all data for every fold.
    fn path(&self, choose: &PathOptions) -> Result<Fits, Failure> {
        const FOLDS: usize = 2;
        if !self.has_time() {
            return Ok(Fits::equal(PLAIN as f64 * self.evaluation));
        }
        let method = self.recipe.last(self.samples.n_units());
        let mut options = self.recipe.options.clone();
        let part = evenly_spaced_states(self.states, self.n_tried())?;
        let some = Samples::new(&part)?;
        let path = PathOptions {
            n_lambdas: FEW_LAMBDAS,
            n_folds: FOLDS,
            patience: 1,
            ..choose.clone()
        };
        let trial = MethodOptions {
            minimizer: MinimizerOptions {
                cancel: self.cancel.within(PATH_SECONDS),
                checkpoint: Checkpoint::default(),
                ..options.minimizer.clone()
            },
            ..options.clone()
        };
        let (clock, mut ends) = (Instant::now(), vec![0.0]);
        let found = method.cross_validate(&PenaltyPath::new(path)?, &part, &trial, &mut |_| {
            ends.push(clock.elapsed().as_secs_f64());
        });
        self.check()?;
        let steps: Vec<f64> = ends.windows(2).map(|w| w[1] - w[0]).collect();
        // What fails here fails again, with its message.
        let scores = found.as_ref().map_or(&[][..], |found| &found.scores);
        let best = (0..scores.len()).min_by(|a, b| scores[*a].mean.total_cmp(&scores[*b].mean));
        // Steps of the whole path to one of the trial.
        let finer = (choose.n_lambdas as f64 - 1.0).max(1.0) / (FEW_LAMBDAS - 1) as f64;
        let per_step = -choose.smallest.ln() / (choose.n_lambdas as f64 - 1.0).max(1.0);
        let part_of_all = |folds: usize| 1.0 - 1.0 / folds as f64;
        let more = self.states.n_samples() as f64 * part_of_all(choose.n_folds)
            / (part.n_samples() as f64 * part_of_all(FOLDS));
        let (lambda, below) = match choose.penalty {
            Penalty::L1 => (1.0 / self.samples.n_effective().sqrt(), 0.5 * more.ln()),
            Penalty::L2 => (1.0 / self.samples.n_effective(), more.ln()),
        };
        let best = match best.filter(|best| best + 1 < steps.len()) {
            Some(best) => finer * best as f64 + below / per_step,
            None => BEST * choose.n_lambdas as f64,
        };
        let n_lambdas = best as usize + 1 + choose.patience;
        // Beyond the trial steps go on as its last one.
        let seconds: f64 = (0..n_lambdas)
            .filter_map(|k| steps.get((k as f64 / finer) as usize).or(steps.last()))
            .sum();
        let scale = self.samples.n_distinct() as f64 / some.n_distinct() as f64;
        let all = scale * SHORTER * seconds * choose.n_folds as f64 / FOLDS as f64;
        match choose.penalty {
            Penalty::L1 => options.l1 = lambda,
            Penalty::L2 => options.l2 = Some(lambda),
        }
        Ok(Fits {
            all,
            ..self.fit(method, &options, &some)?
        })
    }

    /// Tries two updates of polishing.
    fn seconds_per_update(&self) -> Result<f64, Failure> {
        const UPDATES: usize = 2;
        if !self.has_time() {
            return Ok(0.0);
        }
        let chains = POLISHED.min(self.states.n_samples());
        let tried = chains.min(POLISHING_TRIED);
        let part = evenly_spaced(self.states, tried)?;
        let Some(method) = Methods::default().find("cd") else {
            return Ok(0.0);
        };
        let options = MethodOptions {
            updates: UPDATES,
            support: self.recipe.options.support.clone(),
            ..Default::default()
        };
        let options = self.options(method, &options, TRIAL_SECONDS);
        let clock = Instant::now();
        let _ = method.fit((&part).into(), &options, &mut |_| {});
        self.check()?;
        let seconds = clock.elapsed().as_secs_f64() / UPDATES as f64;
        Ok(seconds * chains as f64 / tried as f64)
    }
}

/// Returns the part of a fit, from a residual of `first` down to `tolerance`, that one takes which starts
/// at the answer to other samples: its residual is about 1/√M.
fn part_of_fit(tolerance: f64, first: f64, n_samples: f64) -> f64 {
    let steps = |from: f64| (from / tolerance).ln();
    let part = steps(1.0 / n_samples.sqrt()) / steps(first);
    if part.is_finite() {
        part.clamp(0.2, 1.0)
    } else {
        1.0
    }
}

/// An iteration of a trial.
#[derive(Clone, Copy)]
struct Point {
    iteration: usize,
    seconds: f64,
    residual: f64,
}

impl Point {
    fn new(at: &FitProgress<'_>) -> Self {
        Self {
            iteration: at.iteration,
            seconds: at.seconds,
            residual: at.gradient_norm,
        }
    }

    /// Returns the seconds of so many iterations like those so far.
    fn seconds_of(self, iterations: usize) -> f64 {
        // The start is evaluated too.
        self.seconds * (iterations as f64 + 1.0) / (self.iteration as f64 + 1.0)
    }
}

/// Returns when the residual falls to `tolerance`, if it goes on as in the second half of the trial: by
/// the same factor in the same time. `None` if it did not fall there, and after few iterations.
fn seconds_to(tolerance: f64, trace: &[Point]) -> Option<f64> {
    let end = trace.last().filter(|at| at.iteration >= TELLING)?.seconds;
    let lowest = |before: f64| {
        let points = trace.iter().filter(|at| at.seconds <= before);
        points.map(|at| at.residual).fold(f64::INFINITY, f64::min)
    };
    let (half, now) = (lowest(0.5 * end), lowest(end));
    let rate = (half / now).ln() / (0.5 * end);
    let left = (now / tolerance).ln() / rate;
    (rate > 0.0 && rate.is_finite()).then_some(end + left.max(0.0))
}

/// Returns the mean seconds of some runs: other programs slow the fit down as they do these.
fn average<T>(runs: usize, mut run: impl FnMut() -> T) -> f64 {
    let clock = Instant::now();
    (0..runs).for_each(|_| drop(run()));
    clock.elapsed().as_secs_f64() / runs as f64
}

/// Returns whether annealing of `n_units` can be tried in a part of the time limit.
fn may_anneal(n_units: usize, limit: f64) -> bool {
    n_units <= ANNEALED || TRIAL_OF_LIMIT * limit >= MACHINE_SECONDS
}

/// Returns the seconds of ln Z of a model with as many units as `model`, and as many active.
fn seconds_of_log_z(model: &Couplings) -> Result<f64, Failure> {
    match model.n_units() {
        d if d <= ENUMERATED => seconds_of_states(d),
        d => Ok(seconds_of_annealing(d, |few| {
            let _ = annealed_log_z(model, few);
        })),
    }
}

/// Returns the seconds of annealing, from those at few temperatures. The share of hot ones, at which most
/// units flip, is that of all.
fn seconds_of_annealing(n_units: usize, anneal: impl Fn(&AnnealedOptions)) -> f64 {
    let all = AnnealedOptions::default();
    let few = AnnealedOptions {
        n_levels: ANNEALING_TRIED,
        n_chains: if n_units > ANNEALED {
            FEW_CHAINS
        } else {
            all.n_chains
        },
        ..all.clone()
    };
    // Of three short ones, one that another program interrupts says nothing.
    let seconds = if n_units > ANNEALED {
        average(1, || anneal(&few))
    } else {
        let mut seconds = [(); 3].map(|()| average(1, || anneal(&few)));
        seconds.sort_unstable_by(f64::total_cmp);
        seconds[1]
    };
    let sweeps = |of: &AnnealedOptions| (of.n_chains * of.n_levels) as f64;
    seconds * sweeps(&all) / sweeps(&few)
}

/// Returns the seconds of the eigenvectors of `d` units, from those of fewer.
fn seconds_of_decomposition(d: usize) -> f64 {
    const FEWER: usize = 128;
    let few = d.min(FEWER);
    let matrix = Array2::from_shape_fn((few, few), |(i, j)| {
        let (low, high) = (i.min(j), i.max(j));
        ((7 * low + 13 * high) % 17) as f64
    });
    average(3, || symmetric_eigen(matrix.view())) * (d as f64 / few as f64).powi(3)
}

/// Returns the seconds of a sum over the states of `d` units, from that over those of fewer.
fn seconds_of_states(d: usize) -> Result<f64, Failure> {
    const FEWER: usize = 14;
    let few = d.min(FEWER);
    let none = Couplings::new(Array2::zeros((few, few)))?;
    let tried = average(2, || Exact::new(&none));
    Ok(tried * (d as f64 / few as f64) * ((d - few) as f64).exp2())
}

/// Returns the seconds of a Hessian of the sandwich and its inverse, from those of smaller ones.
fn seconds_per_hessian(recipe: &Recipe, samples: &Samples) -> Result<f64, Failure> {
    const SMALL: usize = 192;
    const TILE: usize = 64;
    let n_units = samples.n_units();
    // Constant units have no parameters.
    let means = samples.means();
    let varying = means.iter().filter(|m| **m > 0.0 && **m < 1.0).count();
    let d = varying.max(1) as f64;
    let n_couplings = n_determined(recipe, samples)? as f64;
    let row = 1.0 + 2.0 * n_couplings / d;
    let n = samples.n_observed() as f64;
    let threads = rayon::current_num_threads() as f64;
    let small = SMALL as f64;
    let matrix = Array2::<f64>::eye(SMALL);
    let inverse = average(3, || positive_definite_inverse(matrix.view()));
    let tile = Array2::<f64>::ones((TILE, SMALL));
    let product = average(3, || tile.t().dot(&tile)) / (TILE as f64 * small * small);
    let bits = average(3, || {
        let rows = samples.states().rows().take(TILE);
        rows.map(|row| {
            (0..n_units)
                .filter(|i| (row[i / 64] >> (i % 64)) & 1 == 1)
                .count()
        })
        .sum::<usize>()
    });
    let bit = bits / (TILE.min(samples.n_distinct()) * n_units) as f64;
    // A product of every unit, an inverse of all parameters or of every unit's; and twice the scores of
    // single samples, times the inverse.
    let products = n * d * row * (row * product + 4.0 * bit) / threads;
    let (inverses, influences) = match recipe.last(n_units).steps(n_units, &recipe.options).0 {
        "units" => (d * inverse * (row / small).powi(3) / threads, d * row * row),
        _ => {
            let p = d + n_couplings;
            (inverse * (p / small).powi(3), p * p)
        }
    };
    let influences = n * influences * product / threads / HESSIANS;
    Ok(products + inverses + influences)
}

/// Returns the couplings that have error bars by the sandwich.
fn determined(recipe: &Recipe, samples: &Samples) -> Result<Vec<(usize, usize)>, Failure> {
    let mut pairs = recipe.options.support.pairs(samples.n_units())?;
    pairs.retain(|(i, j)| samples.determine(*i, *j));
    Ok(pairs)
}

/// Returns how many they are.
pub(super) fn n_determined(recipe: &Recipe, samples: &Samples) -> Result<usize, Failure> {
    Ok(determined(recipe, samples)?.len())
}

/// Returns a model with the means of `samples`, and couplings too weak to matter.
fn weak_model(samples: &Samples, support: &Support) -> Result<Couplings, Failure> {
    const WEAK: f64 = 1e-9;
    let d = samples.n_units();
    let mut j = Array2::zeros((d, d));
    // All different, as couplings of a fit are: some samplers gain by those that repeat.
    for (k, (a, b)) in support.pairs(d)?.into_iter().enumerate() {
        j[[a, b]] = WEAK / (1 + k) as f64;
        j[[b, a]] = j[[a, b]];
    }
    for (i, mean) in samples.means().into_iter().enumerate() {
        let mean = mean.clamp(WEAK, 1.0 - WEAK);
        j[[i, i]] = ((1.0 - mean) / mean).ln();
    }
    Ok(Couplings::new(j)?)
}

/// Times sweeps of one chain.
fn seconds_per_sweep(model: &Couplings, samples: &Samples) -> Result<f64, Failure> {
    const ENOUGH: Duration = Duration::from_millis(5);
    let gibbs = Gibbs::new(model)?;
    let mut rng = stream(0, 0);
    let mut state = gibbs.state(samples.states().row(0))?;
    let (clock, mut sweeps) = (Instant::now(), 0.0);
    while clock.elapsed() < ENOUGH {
        gibbs.step(&mut state, &mut rng);
        sweeps += 1.0;
    }
    Ok(clock.elapsed().as_secs_f64() / sweeps)
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
        // From 1 to 0.01 in 0.2 s: another 0.4 s to 1e-6.
        let whole = seconds_to(1e-6, &trace).unwrap();
        assert!((whole - 0.6).abs() < 1e-9, "{whole}");
        assert_eq!(seconds_to(0.5, &trace), Some(0.2));
        assert_eq!(trace[20].seconds_of(209), 2.0);
        let still: Vec<Point> = trace
            .iter()
            .map(|at| Point {
                residual: 1.0,
                ..*at
            })
            .collect();
        assert_eq!(seconds_to(1e-6, &still), None);
        assert_eq!(seconds_to(1e-6, &[]), None);
        assert_eq!(seconds_to(1e-6, &trace[..TELLING]), None);
    }

    #[test]
    fn a_fit_that_starts_near_its_end_is_shorter() {
        assert!((part_of_fit(1e-6, 1.0, 1e6) - 0.5).abs() < 1e-12);
        assert_eq!(part_of_fit(1e-6, 1e-6, 1e6), 1.0);
        assert_eq!(part_of_fit(1e-6, 1e-4, 10.0), 1.0);
    }

    #[test]
    fn fits_after_the_first_are_expected_to_be_like_it() {
        let expected = Expected {
            seconds: 10.0,
            polishing: 0.0,
            drifts: false,
            fit: 2.0,
            again: 5.0,
            checked: 0.0,
        };
        let later = expected.update(4.0);
        assert_eq!((later.seconds, later.fit, later.again), (17.0, 4.0, 10.0));
    }
}
