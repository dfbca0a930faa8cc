//! A whole fit: penalty, fit, refinement, held-out check, polishing, error bars, in this order.
//!
//! ```text
//! MPF with λ₂ = 1/M  →  refined from there by ML (≤ 16 units) or PL, with the same penalty
//!   →  its last fit again on four fifths of the data, scored on the last fifth, beside independent units
//!   →  polished by persistent CD if the model drifts off its data and the score gets better
//!   →  error bars
//! ```
//!
//! MPF gets near the answer in little time. Pseudolikelihood and likelihood have the smaller
//! variance at convergence, so the refinement makes the answer right. `mpf fit` is this and nothing
//! else: a program that runs the same [`Recipe`] gets the same J. The plain
//! [`Fitter`](mpf_ising::Fitter) is one fit alone, without a penalty.

mod held_out;
mod polish;
mod trained;

use crate::Result;
use crate::block_length::block_length;
use crate::drift::Drift;
use crate::error::Error;
use crate::max_likelihood::ML;
use crate::method::{Method, MethodOptions};
use crate::mpf::MPF;
use crate::pseudolikelihood::PL;
use held_out::Check;
use mpf_core::{Cancel, Checkpoint, StopReason};
use mpf_ising::{
    BootstrapOptions, Couplings, CrossValidation, Data, Fit, FitProgress, PathOptions,
    PathProgress, Penalty, PenaltyPath, Samples, States, Stream, bootstrap,
};

pub use held_out::{HeldOut, Measure, log_scores};
pub(crate) use held_out::{MIN_HELD_OUT, log_probabilities, score_held_out};
pub use polish::{Polish, Polishing, Verdict};
pub(crate) use trained::or_time_limit;
pub use trained::{Stage, StepFailure, Trained};

/// The most units that [`Refine::Auto`] fits by exact maximum likelihood.
const MAX_EXACT_UNITS: usize = 16;
/// A fit that is refined stops here: the refinement goes on from there.
const ROUGH_TOLERANCE: f64 = 1e-3;

/// The method that refines a fit, starting from its solution, with the same penalty and support.
#[derive(Clone, Copy, Default)]
pub enum Refine {
    /// None: the fit is the answer.
    Nothing,
    /// Exact maximum likelihood up to 16 units, pseudolikelihood for more.
    #[default]
    Auto,
    /// This one.
    By(&'static dyn Method),
}

/// How error bars are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorBarsBy {
    /// Not at all.
    #[default]
    Nothing,
    /// The sandwich formula.
    Sandwich,
    /// The block bootstrap with this many resamples.
    Bootstrap(usize),
}

/// A method with everything around it, unchecked. The default is what `mpf fit` does unasked.
///
/// ```
/// use mpf_baselines::Recipe;
/// use mpf_ising::{Couplings, Exact};
/// use ndarray::array;
///
/// let truth = Couplings::new(array![[0.5, -1.0], [-1.0, 0.2]])?;
/// let states = Exact::new(&truth)?.draw(5000, 1);
/// let trained = Recipe::default().fit(&states)?;
/// assert!(trained.fit.couplings.mean_square_error(&truth) < 0.01);
/// let held_out = trained.held_out.unwrap();
/// assert!(held_out.gain.value > 0.0); // bits per sample above independent units
/// # Ok::<(), mpf_baselines::Error>(())
/// ```
#[derive(Clone)]
pub struct Recipe {
    /// The method of the first fit. Default: MPF.
    pub method: &'static dyn Method,
    /// The options of all fits; a penalty that is chosen replaces theirs.
    pub options: MethodOptions,
    /// The method of the second fit. Default: [`Refine::Auto`].
    pub refine: Refine,
    /// The path along which a penalty is chosen, by the objective of the last fit. Default: none is
    /// chosen.
    pub choose: Option<PathOptions>,
    /// The fraction of the samples, the last ones, that a second run leaves out to judge the model.
    /// 0 for no such run. Default 0.2.
    pub held_out: f64,
    /// Updates after the fit.
    pub polish: Polish,
    /// Error bars.
    pub errors: ErrorBarsBy,
    /// Successive samples that are correlated, for error bars and held-out scores. Default `None`:
    /// as [`block_length`] finds in the data.
    pub block_length: Option<usize>,
}

impl Default for Recipe {
    fn default() -> Self {
        Self {
            method: &MPF,
            options: MethodOptions::default(),
            refine: Refine::default(),
            choose: None,
            held_out: 0.2,
            polish: Polish::default(),
            errors: ErrorBarsBy::default(),
            block_length: None,
        }
    }
}

/// Data in the two forms that a recipe needs.
#[derive(Clone, Copy, Debug)]
pub struct TrainingData<'a> {
    /// Each distinct sample once, with its weight.
    pub samples: &'a Samples,
    /// Every sample by itself, in the order of time: for the choice of a penalty, the held-out check
    /// and error bars.
    pub states: Option<&'a States>,
}

/// What the steps of a recipe work on.
#[derive(Clone, Copy)]
struct StepData<'a> {
    /// The samples of fits.
    all: Data<'a>,
    /// Samples in memory, at which chains start: all, or some of a stream.
    held: &'a Samples,
    /// Every sample in memory by itself, if they are known.
    states: Option<&'a States>,
}

impl<'a> StepData<'a> {
    fn new(data: TrainingData<'a>) -> Self {
        Self {
            all: data.samples.into(),
            held: data.samples,
            states: data.states,
        }
    }

    fn states(&self) -> Result<&'a States> {
        self.states.ok_or(Error::NoStates)
    }
}

/// The step that a recipe is at.
pub enum RecipeProgress<'a> {
    /// A penalty was tried.
    Penalty(&'a PathProgress),
    /// The fit or the refinement by this method made a step.
    Fit(&'a dyn Method, &'a FitProgress<'a>),
    /// The model is fitted to a part of the data and scored on the rest.
    HeldOut,
    /// The model drifts off its data: so many updates follow.
    Drifting(&'a Drift, usize),
    /// Polishing made a step.
    Polish(&'a FitProgress<'a>),
    /// The sandwich is being computed.
    Sandwich,
    /// A resample was fitted.
    Resample,
}

type Observer<'a> = &'a (dyn Fn(&RecipeProgress<'_>) + Sync);

impl Recipe {
    /// Returns one method alone, without refinement, held-out check and polishing.
    pub fn alone(method: &'static dyn Method, options: MethodOptions) -> Self {
        Self {
            method,
            options,
            refine: Refine::Nothing,
            held_out: 0.0,
            polish: Polish::Updates(0),
            ..Default::default()
        }
    }

    /// Runs all steps on plain data.
    ///
    /// # Errors
    /// As [`Recipe::run`].
    pub fn fit(&self, states: &States) -> Result<Trained> {
        let data = TrainingData {
            samples: &Samples::new(states)?,
            states: Some(states),
        };
        self.run(data, &|_| {})
    }

    /// Runs all steps. The checkpoint of [`MethodOptions::minimizer`] keeps every one of them. What
    /// fails after the fit is listed in [`Trained::failures`], and so are the steps for which the
    /// time of its [`Cancel`] does not suffice.
    ///
    /// # Errors
    /// [`mpf_core::Error::Cancelled`]; [`Error::NoStates`] for a penalty to choose; those of the
    /// methods and of [`PenaltyPath`].
    pub fn run(&self, data: TrainingData<'_>, observer: Observer<'_>) -> Result<Trained> {
        self.run_steps(StepData::new(data), observer, true)
    }

    /// Runs all steps but error bars on samples that are read as they are needed. Polishing starts its
    /// chains at some of them, held-out scores are those of some of them, and drift is measured on these.
    ///
    /// # Errors
    /// [`mpf_ising::Error::NotOffered`] for error bars; as [`Recipe::run`].
    pub fn run_stream(&self, stream: &Stream, observer: Observer<'_>) -> Result<Trained> {
        if self.errors != ErrorBarsBy::Nothing {
            return Err(mpf_ising::Error::NotOffered {
                method: "a fit of streamed samples",
                option: "error bars",
                reason: "they need the samples in memory",
            }
            .into());
        }
        let data = StepData {
            all: stream.into(),
            held: &stream.spread(Self::n_held(stream.n_units()))?,
            states: None,
        };
        self.run_steps(data, observer, true)
    }

    /// Makes the same model, but measures on held-out samples only what the model depends on.
    pub(crate) fn deliver(&self, data: TrainingData<'_>) -> Result<Trained> {
        self.run_steps(StepData::new(data), &|_| {}, false)
    }

    fn run_steps(
        &self,
        data: StepData<'_>,
        observer: Observer<'_>,
        with_report: bool,
    ) -> Result<Trained> {
        let block_length = match (self.block_length, data.states) {
            (Some(length), _) => length,
            (None, Some(states)) => block_length(states)?,
            // The samples of a stream that are scored are far apart.
            (None, None) => 1,
        };
        let n_units = data.all.n_units();
        let (options, path) = self.choose_penalty(data, observer)?;
        let (fit, stages, failure) = match &path {
            Some(path) => {
                let fit = path.chosen().fit.clone();
                let stage = Stage::new(self.last(n_units).describe().title, &fit);
                (fit, vec![stage], None)
            }
            None => self.fit_stages(&options, data.all, observer)?,
        };
        check_asked(&self.options.minimizer.cancel)?;
        let followed = if failure.is_none() {
            self
        } else {
            &Self {
                refine: Refine::Nothing,
                ..self.clone()
            }
        };
        let trained = Trained {
            fit,
            method: followed.last(n_units).describe().title,
            stages,
            l2: options.l2_of(data.all.n_effective()),
            options,
            path,
            held_out: None,
            drift: None,
            polishing: None,
            errors: None,
            block_length,
            failures: failure.into_iter().collect(),
        };
        followed.finish(trained, data, observer, with_report)
    }

    /// Runs the steps after the fit.
    fn finish(
        &self,
        mut trained: Trained,
        data: StepData<'_>,
        observer: Observer<'_>,
        with_report: bool,
    ) -> Result<Trained> {
        let cancel = &self.options.minimizer.cancel;
        let attempt = |trained: &mut Trained, step, outcome: Result<()>| -> Result<()> {
            check_asked(cancel)?;
            if let Err(error) = outcome {
                trained.failures.push(StepFailure::new(step, error)?);
            }
            Ok(())
        };
        if trained.path.is_some() {
            let in_time = cancel.check().map_err(Error::from);
            attempt(&mut trained, "the choice of the penalty", in_time)?;
        }
        let outcome = self.judge_and_polish(&mut trained, data, observer, with_report);
        attempt(&mut trained, "the check on held-out samples", outcome)?;
        let outcome = self.add_error_bars(&mut trained, data, observer);
        attempt(&mut trained, "the error bars", outcome)?;
        Ok(trained)
    }

    /// Returns how many samples of a stream are held: their moments are then known better than those of
    /// the chains that polish a model.
    pub fn n_held(n_units: usize) -> usize {
        const MOST_ENTRIES: usize = 1 << 24;
        const MOST: usize = 200_000;
        let fewest = Drift::n_chains(n_units);
        (MOST_ENTRIES / n_units).clamp(fewest, MOST)
    }

    /// Returns the options of a fit that is refined.
    pub fn rough(options: &MethodOptions) -> MethodOptions {
        let mut rough = options.clone();
        let tolerance = &mut rough.minimizer.gradient_tolerance;
        *tolerance = tolerance.max(ROUGH_TOLERANCE);
        rough
    }

    /// Returns the method of the refinement.
    fn refiner(&self, n_units: usize) -> Option<&'static dyn Method> {
        match self.refine {
            Refine::Nothing => None,
            Refine::By(method) => Some(method),
            Refine::Auto
                if n_units <= MAX_EXACT_UNITS
                    && !self.options.node_wise
                    && self.options.potential.is_none() =>
            {
                Some(&ML)
            }
            Refine::Auto => Some(&PL),
        }
    }

    /// Returns the method of the last fit.
    pub fn last(&self, n_units: usize) -> &'static dyn Method {
        self.refiner(n_units).unwrap_or(self.method)
    }

    /// Returns the options with the penalty that cross-validation finds, if one is to be chosen.
    fn choose_penalty(
        &self,
        data: StepData<'_>,
        observer: Observer<'_>,
    ) -> Result<(MethodOptions, Option<CrossValidation>)> {
        let mut options = self.options.clone();
        let Some(choose) = &self.choose else {
            return Ok((options, None));
        };
        let checkpoint = options.minimizer.checkpoint.entry("penalties");
        let tried = &with_checkpoint(&options, checkpoint);
        let path = PenaltyPath::new(choose.clone())?;
        let last = self.last(data.all.n_units());
        let step = &mut |progress: &PathProgress| observer(&RecipeProgress::Penalty(progress));
        let found = match data.all {
            Data::Samples(_) => last.cross_validate(&path, data.states()?, tried, step)?,
            Data::Stream(stream) => last.cross_validate_stream(&path, stream, tried, step)?,
        };
        let lambda = found.chosen().lambda;
        match choose.penalty {
            Penalty::L1 => options.l1 = lambda,
            Penalty::L2 => options.l2 = Some(lambda),
        }
        Ok((options, Some(found)))
    }

    /// Fits and refines. A refinement that fails leaves the fit as it is.
    fn fit_stages(
        &self,
        options: &MethodOptions,
        data: Data<'_>,
        observer: Observer<'_>,
    ) -> Result<(Fit, Vec<Stage>, Option<StepFailure>)> {
        let checkpoint = &options.minimizer.checkpoint;
        let one = |name: &str, method: &dyn Method, options: &MethodOptions| -> Result<Fit> {
            checkpoint.unit(name, |entry| {
                let options = with_checkpoint(options, entry.clone());
                let mut step = |p: &FitProgress<'_>| observer(&RecipeProgress::Fit(method, p));
                method.fit(data, &options, &mut step)
            })
        };
        let first = self.method.describe().title;
        let Some(refiner) = self.refiner(data.n_units()) else {
            let fit = one("fit", self.method, options)?;
            let stage = Stage::new(first, &fit);
            return Ok((fit, vec![stage], None));
        };
        let start = one("fit", self.method, &Self::rough(options))?;
        let cancel = &options.minimizer.cancel;
        check_asked(cancel)?;
        let mut stages = vec![Stage::new(first, &start)];
        if let Err(error) = cancel.check() {
            let failure = StepFailure::new("the refinement", error.into())?;
            return Ok((start, stages, Some(failure)));
        }
        let fine = MethodOptions {
            start: Some(start.couplings.clone()),
            ..options.clone()
        };
        match one("refinement", refiner, &fine) {
            Ok(mut fit) => {
                stages.push(Stage::new(refiner.describe().title, &fit));
                fit.seconds += start.seconds;
                Ok((fit, stages, None))
            }
            Err(error) => {
                let failure = StepFailure::new("the refinement", error)?;
                Ok((start, stages, Some(failure)))
            }
        }
    }

    /// Scores the recipe on held-out samples, and polishes the model where that helps.
    fn judge_and_polish(
        &self,
        trained: &mut Trained,
        data: StepData<'_>,
        observer: Observer<'_>,
        with_report: bool,
    ) -> Result<()> {
        let checkpoint = &self.options.minimizer.checkpoint;
        let cancel = &self.options.minimizer.cancel;
        cancel.check()?;
        let drift = |couplings: &Couplings| {
            let seed = self.options.seed;
            Drift::measure_cancellable(couplings, data.held, Drift::SWEEPS, seed, cancel)
        };
        let found = drift(&trained.fit.couplings)?;
        trained.drift = Some(found);
        let is_local = self.last(data.all.n_units()).describe().is_local;
        let updates = self.polish.updates(&found, is_local);
        if updates.is_none() && !with_report {
            return Ok(());
        }
        let check = if self.held_out > 0.0 {
            observer(&RecipeProgress::HeldOut);
            Check::new(self, trained, data)?
        } else {
            None
        };
        trained.held_out = check.as_ref().map(|check| check.found);
        let Some(updates) = updates else {
            return Ok(());
        };
        if self.polish == Polish::IfDrifting {
            observer(&RecipeProgress::Drifting(&found, updates));
        }
        let steps = |p: &FitProgress<'_>| observer(&RecipeProgress::Polish(p));
        let is_asked_for = self.polish != Polish::IfDrifting;
        let verdict = match &check {
            None => Verdict::NotJudged,
            Some(check) => checkpoint.unit("polishing of a part", |entry| {
                check.try_polishing(trained, updates, entry, &steps)
            })?,
        };
        let mut polishing = Polishing {
            updates,
            seconds: 0.0,
            is_kept: is_asked_for || verdict.is_better(),
            verdict,
        };
        if polishing.is_kept {
            let polished = checkpoint.unit("polishing", |entry| {
                let start = &trained.fit.couplings;
                polish::polish(trained, start, data.held, updates, entry, &steps)
            })?;
            polishing.seconds = polished.seconds;
            trained.drift = Some(drift(&polished.couplings)?);
            trained.stages.push(Stage::new("persistent CD", &polished));
            trained.fit = self.evaluate(trained, polished, data.all);
            if let (
                Verdict::Better { polished, .. } | Verdict::Worse { polished, .. },
                Some(found),
            ) = (verdict, &mut trained.held_out)
            {
                *found = HeldOut {
                    n_scored: found.n_scored,
                    ..polished
                };
            }
        }
        trained.polishing = Some(polishing);
        Ok(())
    }

    /// Returns the record of `polished` with the last fit's objective and residual at its couplings.
    fn evaluate(&self, trained: &Trained, polished: Fit, data: Data<'_>) -> Fit {
        let fit = &trained.fit;
        let mut options = with_checkpoint(&trained.options, Checkpoint::default());
        options.start = Some(polished.couplings.clone());
        options.minimizer.max_iterations = 0;
        let there = self.last(data.n_units()).fit(data, &options, &mut |_| {});
        // Methods without an objective have neither.
        let (value, kkt_residual) = match there {
            Ok(there) if there.stop == StopReason::IterationLimit || there.stop.is_converged() => {
                (there.value, there.kkt_residual)
            }
            _ => (fit.value, fit.kkt_residual),
        };
        Fit {
            couplings: polished.couplings,
            value,
            kkt_residual,
            seconds: fit.seconds + polished.seconds,
            warnings: fit
                .warnings
                .iter()
                .cloned()
                .chain(polished.warnings)
                .collect(),
            ..fit.clone()
        }
    }

    fn add_error_bars(
        &self,
        trained: &mut Trained,
        data: StepData<'_>,
        observer: Observer<'_>,
    ) -> Result<()> {
        let options = &trained.options;
        let method = self.last(data.held.n_units());
        let couplings = &trained.fit.couplings;
        let bars = match self.errors {
            ErrorBarsBy::Nothing => return Ok(()),
            ErrorBarsBy::Sandwich => {
                observer(&RecipeProgress::Sandwich);
                method.sandwich(couplings, data.states()?, trained.block_length, options)?
            }
            ErrorBarsBy::Bootstrap(n_resamples) => {
                let resampling = BootstrapOptions {
                    n_resamples,
                    block_length: trained.block_length,
                    seed: options.seed,
                    checkpoint: options.minimizer.checkpoint.clone(),
                };
                let mut options = with_checkpoint(options, Checkpoint::default());
                if self.refiner(data.held.n_units()).is_some() {
                    options.start = Some(couplings.clone());
                }
                let cancel = &options.minimizer.cancel;
                bootstrap(data.states()?, &resampling, |resample| {
                    cancel.check()?;
                    let fit = method.fit(resample.into(), &options, &mut |_| {})?;
                    cancel.check()?;
                    observer(&RecipeProgress::Resample);
                    Ok::<_, Error>(fit.couplings)
                })?
            }
        };
        trained.errors = Some(bars.without_undetermined(data.held));
        Ok(())
    }
}

fn with_checkpoint(options: &MethodOptions, checkpoint: Checkpoint) -> MethodOptions {
    let mut options = options.clone();
    options.minimizer.checkpoint = checkpoint;
    options
}

/// Returns an error if a stop was asked for; a time limit is none.
fn check_asked(cancel: &Cancel) -> Result<()> {
    match cancel.reason() {
        Some(StopReason::Cancelled) => Err(mpf_core::Error::Cancelled.into()),
        _ => Ok(()),
    }
}
