//! The time that the steps of a fit take: each is tried on these data and this machine for a moment, and
//! extrapolated.
//!
//! ```text
//! fit          tried until it ends or time is up; then the residual falls on at the same rate
//! penalty      a path of few λ's and two folds is tried: its scores say where the best λ is
//! fit again    (held out, a resample) from the answer to other samples: a residual of 1/√M
//! ln Z         annealing at few temperatures, or a sum over 2^d states
//! polishing    two updates of some chains, if the model of the trial drifts
//! sandwich     a fit without the penalty, and three Hessians: a product and an inverse each
//! checkpoint   a write after every interval, or after every iteration that is longer
//! ```
//!
//! When the fit has ended, the steps that are fits are known better: [`Expected::update`].

mod steps;
mod trace;

use crate::failure::Failure;
use mpf_baselines::{
    Contender, ContrastiveDivergence, ContrastiveOptions, Drift, ErrorBarsBy, LogZ, MachineOptions,
    MachineTrainer, Method, MethodOptions, Plan, Polish, Recipe, Takes,
};
use mpf_core::{Cancel, Checkpoint, StopReason};
use mpf_ising::internal::unpenalised;
use mpf_ising::{
    Couplings, PathOptions, Penalty, PenaltyPath, Preflight, Samples, States, Support, Warning,
};
use std::borrow::Cow;
use std::time::Instant;
use steps::{
    HESSIANS, determined, seconds_of_annealing, seconds_of_decomposition, seconds_of_log_z,
    seconds_per_hessian, timed, weak_model,
};
use trace::{Point, part_of_fit, seconds_of_row, seconds_of_trace};

pub(super) use steps::n_determined;

/// Iterations of a fit for each decade of its tolerance, if its trial says nothing.
const PER_DECADE: f64 = 20.0;
/// The evaluations that a trial should have time for, and its seconds; those of a node-wise fit.
const TRIED: f64 = 30.0;
const TRIAL_SECONDS: f64 = 0.3;
const ROW_SECONDS: f64 = 1.0;
/// The part of the time limit that all trials may take.
const TRIAL_OF_LIMIT: f64 = 0.1;
/// The fewest samples of a trial.
const TRIAL_SAMPLES: usize = 256;
/// One in this many samples is in the trial of a machine; its seconds, and the iterations of one that says
/// nothing.
const MACHINE_PART: usize = 4;
const MACHINE_SECONDS: f64 = 1.0;
const MACHINE_ITERATIONS: usize = 300;
/// The most seconds that the potential of a K-pairwise model gets in a trial, and those that it takes if
/// they do not suffice: for many units its work is limited.
const COMPLETING: f64 = 0.3;
const COMPLETED: f64 = 2.0;
/// The λ's and folds of the path that is tried, and its most seconds.
const FEW_LAMBDAS: usize = 9;
const FEW_FOLDS: usize = 2;
const PATH_SECONDS: f64 = 2.0;
/// The time of a step to the next of many λ's, as a part of that to the next of few.
const SHORTER: f64 = 0.8;
/// The part of the λ's that a path has before its best one, if the trial does not get there.
const BEST: f64 = 0.7;
/// Chains and updates of polishing that are tried, and sweeps of a drift.
const FEW_CHAINS: usize = 1024;
const FEW_UPDATES: usize = 2;
const FEW_SWEEPS: usize = 5;
/// Seconds until a file is on the disk, as seen on one.
pub(crate) const SYNCED: f64 = 0.03;
/// Seconds to write a checkpoint, and those of every byte in it, as seen on that disk.
const KEPT: f64 = 0.005;
const KEPT_BYTE: f64 = 3.5e-9;

/// The seconds that a fit is expected to take.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Expected {
    /// Without polishing that only a drifting model gets.
    pub seconds: f64,
    /// Whether couplings of the trial run away without the penalty: each that does so is another fit, and
    /// nobody knows how many do.
    pub is_least: bool,
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
    /// Returns the same of a fit that ends after `limit` seconds.
    pub(super) fn within(self, limit: f64) -> Self {
        Self {
            seconds: self.seconds.min(limit),
            is_least: self.is_least && self.seconds < limit,
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

/// Short tries of the steps of a recipe.
pub(super) struct Trials<'a> {
    recipe: &'a Recipe,
    samples: &'a Samples,
    /// All samples, or the distinct ones.
    states: &'a States,
    /// Seconds of an evaluation, roughly.
    evaluation: f64,
    /// The end of all trials, and their most seconds.
    cancel: Cancel,
    most: f64,
}

/// The seconds of fits.
#[derive(Default)]
struct Fits {
    /// Until there is a model.
    all: f64,
    /// One like the last, of other samples.
    again: f64,
    /// Per iteration.
    iteration: f64,
    /// The model that the last one got to, if that has taken a step of all units.
    model: Option<Couplings>,
    /// Whether couplings run away.
    runs_away: bool,
}

impl<'a> Trials<'a> {
    /// Trials take a part of `limit`.
    pub(super) fn new(
        recipe: &'a Recipe,
        samples: &'a Samples,
        states: Option<&'a States>,
        preflight: &Preflight,
        limit: f64,
    ) -> Self {
        let most = TRIAL_OF_LIMIT * limit;
        Self {
            recipe,
            samples,
            states: states.unwrap_or(samples.states()),
            evaluation: preflight.seconds_per_evaluation,
            cancel: recipe.options.minimizer.cancel.within(most),
            most,
        }
    }

    /// Adds up the steps, and the `elapsed` seconds before them. `keeps` is the seconds between two
    /// checkpoints and the bytes of one.
    pub(super) fn expect(
        &self,
        elapsed: f64,
        keeps: Option<(f64, u64)>,
    ) -> Result<Expected, Failure> {
        let (recipe, samples, clock) = (self.recipe, self.samples, Instant::now());
        let mut fits = match &recipe.choose {
            Some(path) => self.path(path)?,
            None => self.fits()?,
        };
        // The state of a path is kept after every λ.
        if let Some((every, bytes)) = keeps.filter(|_| recipe.choose.is_none()) {
            let write = KEPT + KEPT_BYTE * bytes as f64;
            let share = write / every.max(fits.iteration).max(f64::MIN_POSITIVE);
            fits.all *= 1.0 + share;
            fits.again *= 1.0 + share;
        }
        let mut expected = Expected::default();
        let [mut drift, mut log_z, mut update] = [0.0; 3];
        let is_judged = recipe.held_out > 0.0;
        let may_drift = recipe.polish == Polish::IfDrifting
            && recipe.last(samples.n_units()).describe().is_local;
        if self.has_time() {
            let model = match &fits.model {
                Some(model) => model,
                None => &weak_model(samples, &recipe.options.support)?,
            };
            let measure = |sweeps| Drift::measure(model, samples, sweeps, self.recipe.options.seed);
            drift = timed(|| measure(FEW_SWEEPS)) * (Drift::SWEEPS / FEW_SWEEPS) as f64;
            // What fails here fails again, with its message.
            expected.drifts = may_drift
                && fits.model.is_some()
                && drift < TRIAL_SECONDS
                && measure(Drift::SWEEPS).is_ok_and(|drift| drift.has_drifted());
            // A fit anneals no more units.
            if is_judged && samples.n_units() <= LogZ::MAX_ANNEALED_UNITS {
                log_z = seconds_of_log_z(model)?;
            }
            if may_drift || !matches!(recipe.polish, Polish::IfDrifting | Polish::Updates(0)) {
                update = self.seconds_per_update(model)?;
            }
            self.check()?;
        }
        let polished = |updates: usize| match is_judged {
            true => 2.0 * updates as f64 * update + log_z,
            false => updates as f64 * update,
        };
        let mut rest = drift + SYNCED;
        match recipe.polish {
            Polish::Updates(updates) => rest += polished(updates),
            Polish::IfDrifting if expected.drifts => rest += polished(Polish::DEFAULT_UPDATES),
            Polish::IfDrifting if may_drift => {
                expected.polishing = polished(Polish::DEFAULT_UPDATES);
            }
            Polish::IfDrifting => {}
        }
        if is_judged {
            expected.again = (1.0 - recipe.held_out) * fits.again;
            expected.checked = expected.again + log_z;
            rest += log_z;
        }
        match recipe.errors {
            ErrorBarsBy::Nothing => {}
            ErrorBarsBy::Bootstrap(resamples) => {
                // A resample has fewer distinct rows.
                let rows = samples.n_distinct() as f64;
                let share = -(-(samples.n_observed() as f64) / rows).exp_m1();
                expected.again += resamples as f64 * share * fits.again;
            }
            ErrorBarsBy::Sandwich => {
                let mut hessians = 1.0;
                if has_penalty(recipe) {
                    let plain = self.without_penalty(&fits)?;
                    expected.again += plain.all;
                    expected.is_least = plain.runs_away;
                    hessians = HESSIANS;
                }
                rest += hessians * seconds_per_hessian(recipe, samples)?;
            }
        }
        expected.fit = elapsed + clock.elapsed().as_secs_f64() + fits.all;
        expected.seconds = expected.fit + expected.again + rest;
        if recipe.choose.is_some() {
            // A path says nothing about a fit of one λ.
            expected.again = 0.0;
        }
        Ok(expected)
    }

    /// Returns whether a trial has time for more than setting up and, of a potential, completing.
    fn has_time(&self) -> bool {
        let evaluations = match self.recipe.options.potential {
            Some(_) => 10.0,
            None => 3.0,
        };
        evaluations * self.evaluation < self.most && !self.cancel.is_cancelled()
    }

    fn check(&self) -> Result<(), Failure> {
        check(&self.cancel)
    }

    /// Returns samples that leave time for some evaluations, evenly spaced.
    fn some(&self) -> Result<Cow<'a, States>, Failure> {
        let share = TRIAL_SECONDS / (TRIED * self.evaluation);
        let wanted = (self.states.n_samples() as f64 * share) as usize;
        evenly_spaced(self.states, wanted.max(TRIAL_SAMPLES))
    }

    /// Returns the samples of a trial of `method`: a row of a node-wise fit is little work even with all.
    fn part_for(&self, method: &dyn Method) -> Result<Cow<'a, Samples>, Failure> {
        let d = self.samples.n_units();
        if method.steps(d, &self.recipe.options).0 == "units" {
            return Ok(Cow::Borrowed(self.samples));
        }
        self.some_merged()
    }

    /// Returns some samples, merged.
    fn some_merged(&self) -> Result<Cow<'a, Samples>, Failure> {
        Ok(match self.some()? {
            Cow::Borrowed(_) => Cow::Borrowed(self.samples),
            Cow::Owned(some) => Cow::Owned(Samples::new(&some)?),
        })
    }

    /// Tries the fits of a recipe without a path.
    fn fits(&self) -> Result<Fits, Failure> {
        let (recipe, options) = (self.recipe, &self.recipe.options);
        let last = recipe.last(self.samples.n_units());
        let some = self.part_for(last)?;
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

    /// Tries a fit without the penalty, as error bars need it.
    fn without_penalty(&self, fits: &Fits) -> Result<Fits, Failure> {
        let mut options = MethodOptions {
            l1: 0.0,
            l2: Some(0.0),
            start: fits.model.clone(),
            support: Support::Edges(determined(self.recipe, self.samples)?),
            ..self.recipe.options.clone()
        };
        options.minimizer.gradient_tolerance = unpenalised::TOLERANCE;
        options.minimizer.max_iterations = unpenalised::ITERATIONS;
        let last = self.recipe.last(self.samples.n_units());
        self.fit(last, &options, &*self.part_for(last)?)
    }

    /// Tries one fit of a part of the samples.
    fn fit(
        &self,
        method: &dyn Method,
        options: &MethodOptions,
        part: &Samples,
    ) -> Result<Fits, Failure> {
        let d = self.samples.n_units();
        let tolerance = options.minimizer.gradient_tolerance;
        let usual = (-PER_DECADE * tolerance.log10()).max(PER_DECADE) as usize;
        let usual = usual.min(options.minimizer.max_iterations);
        let is_decomposition = method.describe().takes.contains(&Takes::Damping);
        if is_decomposition || !self.has_time() {
            let all = match is_decomposition {
                true => seconds_of_decomposition(d),
                false => usual as f64 * self.evaluation,
            };
            return Ok(Fits {
                all,
                again: all,
                iteration: self.evaluation,
                ..Default::default()
            });
        }
        let scale = match method.describe().takes.contains(&Takes::Updates) {
            // Every sample is a chain.
            true => self.samples.n_effective() / part.n_effective(),
            false => self.samples.n_distinct() as f64 / part.n_distinct() as f64,
        };
        // Few iterations of many units say nothing: they get the time for some.
        let most = TRIAL_SECONDS.max(TRIED * self.evaluation / scale);
        // Of rows some should end.
        let (what, total) = method.steps(d, options);
        let most = match what {
            "units" => most.max(ROW_SECONDS),
            _ => most,
        };
        let mut options = options.clone();
        if method.describe().takes.contains(&Takes::Penalties) {
            options.l2 = Some(options.l2_of(self.samples.n_effective()));
        }
        let minimizer = &mut options.minimizer;
        minimizer.checkpoint = Checkpoint::default();
        if options.potential.is_some() {
            // The potential is completed after the steps.
            minimizer.cancel = self.cancel.within(most + COMPLETING);
            minimizer.max_seconds = most;
        } else {
            minimizer.cancel = self.cancel.within(most);
        }
        let mut trace = Vec::new();
        let clock = Instant::now();
        let fit = method.fit(part.into(), &options, &mut |at| {
            trace.push(Point {
                iteration: at.iteration,
                seconds: at.seconds,
                residual: at.gradient_norm,
            });
        });
        let seconds = clock.elapsed().as_secs_f64();
        self.check()?;
        let is_whole = fit.as_ref().is_ok_and(|f| f.stop != StopReason::TimeLimit);
        let last = trace.last();
        let steps = total.unwrap_or(options.minimizer.max_iterations);
        let completed = match last {
            Some(at) if options.potential.is_some() => seconds - at.seconds,
            _ => 0.0,
        };
        let stepped = seconds - completed;
        let whole = match (last, &fit) {
            _ if is_whole => stepped,
            (_, Ok(fit)) if what == "units" => {
                let threads = rayon::current_num_threads().min(d) as f64;
                match seconds_of_row(&fit.trace, tolerance, usual) {
                    Some(row) => steps as f64 * row / threads,
                    None => usual as f64 * self.evaluation / scale,
                }
            }
            (None, _) => usual as f64 * self.evaluation / scale,
            (Some(at), _) if total.is_some() => at.seconds_of(steps),
            _ => seconds_of_trace(&trace, tolerance, usual, steps),
        };
        let completed = match completed < COMPLETING {
            true => completed,
            false => COMPLETED * (d as f64 / 1000.0).powi(2).max(1.0),
        };
        let all = scale * whole.max(stepped) + completed;
        // Of fits that do not go down to a tolerance, the start does not matter.
        let again = match (what, trace.first()) {
            ("iterations", Some(first)) if options.potential.is_none() => {
                part_of_fit(tolerance, first.residual, self.samples.n_effective())
            }
            _ => 1.0,
        };
        let run_away = |w: &Warning| matches!(w, Warning::RunAwayCouplings { .. });
        // What fails here fails again, with its message.
        let fit = fit.ok();
        Ok(Fits {
            all,
            again: again * all,
            iteration: match total {
                Some(_) => scale * whole / steps as f64,
                None => last.map_or(self.evaluation, |at| scale * at.seconds_of(0)),
            },
            runs_away: fit.iter().any(|fit| fit.warnings.iter().any(run_away)),
            model: fit
                .filter(|_| is_whole || what != "units")
                .map(|fit| fit.couplings),
        })
    }

    /// Tries a path of few λ's and two folds. The best λ₁ goes with 1/√M, and the best λ₂ with 1/M: the
    /// whole path has its own further down, and ends some λ's after it. Fits of all data and of the folds,
    /// of which each leaves out one part, are as much work as one of all data for every fold.
    fn path(&self, choose: &PathOptions) -> Result<Fits, Failure> {
        let method = self.recipe.last(self.samples.n_units());
        let mut options = self.recipe.options.clone();
        let (part, some) = (self.some()?, self.some_merged()?);
        if !self.has_time() {
            return self.fit(method, &options, &some);
        }
        let path = PathOptions {
            n_lambdas: FEW_LAMBDAS,
            n_folds: FEW_FOLDS,
            patience: 1,
            ..choose.clone()
        };
        let mut trial = options.clone();
        trial.minimizer.cancel = self.cancel.within(PATH_SECONDS);
        trial.minimizer.checkpoint = Checkpoint::default();
        let (clock, mut ends) = (Instant::now(), vec![0.0]);
        let found = method.cross_validate(&PenaltyPath::new(path)?, &part, &trial, &mut |_| {
            ends.push(clock.elapsed().as_secs_f64());
        });
        self.check()?;
        let steps: Vec<f64> = ends.windows(2).map(|w| w[1] - w[0]).collect();
        // What fails here fails again, with its message.
        let scores = found.as_ref().map_or(&[][..], |found| &found.scores);
        let best = (0..scores.len()).min_by(|a, b| scores[*a].mean.total_cmp(&scores[*b].mean));
        let intervals = (choose.n_lambdas as f64 - 1.0).max(1.0);
        // Steps of the whole path to one of the trial.
        let finer = intervals / (FEW_LAMBDAS - 1) as f64;
        let trained = |folds: usize, n: usize| n as f64 * (1.0 - 1.0 / folds as f64);
        let more =
            trained(choose.n_folds, self.states.n_samples()) / trained(FEW_FOLDS, part.n_samples());
        let lambda = match (best, &found) {
            (Some(best), Ok(found)) => found.path[best].lambda,
            _ => 0.0,
        };
        let below = match choose.penalty {
            Penalty::L1 => 0.5 * more.ln(),
            Penalty::L2 => more.ln(),
        };
        match choose.penalty {
            Penalty::L1 => options.l1 = lambda * (-below).exp(),
            Penalty::L2 => options.l2 = Some(lambda * (-below).exp()),
        }
        let best = match best.filter(|best| best + 1 < steps.len()) {
            Some(best) => finer * best as f64 - below * intervals / choose.smallest.ln(),
            None => BEST * choose.n_lambdas as f64,
        };
        let n_lambdas = best as usize + 1 + choose.patience;
        // The first is without couplings; beyond the trial, steps go on as its last one.
        let step = |k: usize| ((k as f64 / finer) as usize).max(k.min(1));
        let seconds: f64 = (0..n_lambdas)
            .filter_map(|k| steps.get(step(k)).or(steps.last()))
            .sum();
        let scale = self.samples.n_distinct() as f64 / some.n_distinct() as f64;
        Ok(Fits {
            all: scale * SHORTER * seconds * choose.n_folds as f64 / FEW_FOLDS as f64,
            ..self.fit(method, &options, &some)?
        })
    }

    /// Tries updates of polishing.
    fn seconds_per_update(&self, model: &Couplings) -> Result<f64, Failure> {
        let chains = Polish::CHAINS.min(self.states.n_samples());
        let part = Samples::new(&*evenly_spaced(self.states, chains.min(FEW_CHAINS))?)?;
        let learner = ContrastiveDivergence::new(ContrastiveOptions {
            updates: FEW_UPDATES,
            persistent: true,
            support: self.recipe.options.support.clone(),
            start: Some(model.clone()),
            cancel: self.cancel.within(TRIAL_SECONDS),
            ..Default::default()
        })?;
        let clock = Instant::now();
        let _ = learner.fit(&part);
        let tried = (FEW_UPDATES * part.n_observed()) as f64;
        Ok(clock.elapsed().as_secs_f64() * chains as f64 / tried)
    }
}

pub(super) fn has_penalty(recipe: &Recipe) -> bool {
    let options = &recipe.options;
    recipe.choose.is_some() || options.l1 > 0.0 || options.l2 != Some(0.0)
}

/// Returns an error if a stop was asked for; a time limit is none.
fn check(cancel: &Cancel) -> Result<(), Failure> {
    match cancel.reason() {
        Some(StopReason::Cancelled) => Err(Failure::interrupted()),
        _ => Ok(()),
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
    let mut trial = options.clone();
    trial.starts = 1;
    trial.minimizer.checkpoint = Checkpoint::default();
    trial.minimizer.cancel =
        (trial.minimizer.cancel).within(MACHINE_SECONDS.min(TRIAL_OF_LIMIT * limit));
    // Steps of the minimiser are many and long: those of a part of the samples show how they go on.
    let is_minimised = matches!(
        options.trainer,
        MachineTrainer::Pseudolikelihood | MachineTrainer::Mpf
    );
    let n = samples.n_distinct();
    let tried = match is_minimised {
        true => (n / MACHINE_PART).max(TRIAL_SAMPLES).min(n),
        false => n,
    };
    let part = Samples::new(&*evenly_spaced(samples.states(), tried)?)?;
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
    check(&options.minimizer.cancel)?;
    let is_whole = fit
        .as_ref()
        .is_ok_and(|fit| fit.stop != StopReason::TimeLimit);
    let (starts, most) = match is_minimised {
        true => (options.starts, options.minimizer.max_iterations),
        false => (1, options.updates),
    };
    let whole = match trace.last().filter(|_| !is_whole) {
        None => seconds,
        Some(_) if is_minimised => {
            let tolerance = options.minimizer.gradient_tolerance;
            seconds_of_trace(&trace, tolerance, MACHINE_ITERATIONS, most)
        }
        Some(at) => at.seconds_of(most),
    };
    let again = if held_out > 0.0 { 1.0 - held_out } else { 0.0 };
    let scale = n as f64 / part.n_distinct() as f64;
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
    (samples, states): (&Samples, &States),
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
                let of = Trials::new(recipe, samples, Some(states), preflight, limit_of_each)
                    .expect(0.0, None)?;
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
fn evenly_spaced(states: &States, wanted: usize) -> Result<Cow<'_, States>, Failure> {
    let n = states.n_samples();
    if wanted >= n {
        return Ok(Cow::Borrowed(states));
    }
    let wanted = wanted.max(1);
    let mut part = States::new(states.n_units())?;
    for k in 0..wanted {
        let at = (k as f64 * n as f64 / wanted as f64) as usize;
        part.push(states.row(at));
    }
    Ok(Cow::Owned(part))
}

/// Returns whether annealing of `n_units` can be tried in a part of the time limit.
fn may_anneal(n_units: usize, limit: f64) -> bool {
    n_units <= LogZ::MAX_ANNEALED_UNITS || TRIAL_OF_LIMIT * limit >= MACHINE_SECONDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_after_the_first_are_expected_to_be_like_it() {
        let expected = Expected {
            seconds: 10.0,
            fit: 2.0,
            again: 5.0,
            ..Default::default()
        };
        let later = expected.update(4.0);
        assert_eq!((later.seconds, later.fit, later.again), (17.0, 4.0, 10.0));
    }
}
