//! A whole fit: penalty, fit, drift, polishing, error bars, in this order.
//!
//! `mpf fit` is this and nothing else, so that a program that runs the same [`Recipe`] gets the
//! same J. The plain [`Fitter`](mpf_ising::Fitter) is the third step alone.

use crate::Result;
use crate::contrastive::{ContrastiveDivergence, ContrastiveOptions, LearningRate};
use crate::drift::Drift;
use crate::error::Error;
use crate::method::{Method, MethodOptions, Methods};
use mpf_core::{Cancel, Checkpoint, StopReason};
use mpf_ising::{
    BootstrapOptions, CrossValidation, ErrorBars, Fit, FitProgress, PathOptions, PathProgress,
    Penalty, PenaltyPath, Samples, States, bootstrap,
};

/// The learning rate of polishing, in units of J per moment. The paper's schedule, from 3 to 0.1, is
/// for chains that start at J = 0; a fitted model needs smaller steps.
const POLISHING_RATE: LearningRate = LearningRate {
    first: 1.0,
    last: 0.05,
};
/// Chains that one update of polishing moves.
const POLISHING_CHAINS: usize = 8000;

/// Updates of stochastic maximum likelihood (persistent CD) after the fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Polish {
    /// Always this many.
    Updates(usize),
    /// 300 if the model drifts away from its data and has neither penalty nor error bars.
    #[default]
    IfDrifting,
}

impl Polish {
    /// The updates of [`Polish::IfDrifting`].
    pub const DEFAULT_UPDATES: usize = 300;
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

/// A method with everything around it, unchecked.
#[derive(Clone)]
pub struct Recipe {
    /// The method. Default: MPF.
    pub method: &'static dyn Method,
    /// Its options; a penalty that is chosen replaces theirs.
    pub options: MethodOptions,
    /// The path along which a penalty is chosen. Default: none is chosen.
    pub choose: Option<PathOptions>,
    /// Updates after the fit.
    pub polish: Polish,
    /// Error bars.
    pub errors: ErrorBarsBy,
    /// Successive samples that are correlated, for error bars. Default 1: independent samples.
    pub block_length: usize,
}

impl Default for Recipe {
    fn default() -> Self {
        Self {
            method: Methods::default().find("mpf").expect("it is listed"),
            options: MethodOptions::default(),
            choose: None,
            polish: Polish::default(),
            errors: ErrorBarsBy::default(),
            block_length: 1,
        }
    }
}

/// Data in the two forms that a recipe needs.
#[derive(Clone, Copy, Debug)]
pub struct TrainingData<'a> {
    /// Each distinct sample once, with its weight.
    pub samples: &'a Samples,
    /// Every sample by itself, in the order of time: for the choice of a penalty and error bars.
    pub states: Option<&'a States>,
}

impl TrainingData<'_> {
    fn states(&self) -> Result<&States> {
        self.states.ok_or(Error::NoStates)
    }
}

/// The step that a recipe is at.
pub enum RecipeProgress<'a> {
    /// A penalty was tried.
    Penalty(&'a PathProgress),
    /// The fit made a step.
    Fit(&'a FitProgress<'a>),
    /// The model drifts away from its data: so many updates follow.
    Drifting(&'a Drift, usize),
    /// Polishing made a step.
    Polish(&'a FitProgress<'a>),
    /// The sandwich is being computed.
    Sandwich,
    /// A resample was fitted.
    Resample,
}

/// What a recipe made of its data.
#[derive(Clone, Debug)]
#[must_use = "look at `fit.stop`, `fit.warnings` and `drift` before using the couplings"]
pub struct Trained {
    /// The model, and how its fit went; the couplings are the polished ones if it was polished.
    pub fit: Fit,
    /// The options of the fit, with the penalty that was chosen.
    pub options: MethodOptions,
    /// The penalties that were tried.
    pub path: Option<CrossValidation>,
    /// Whether the final model stays with its data.
    pub drift: Drift,
    /// Updates of polishing.
    pub polish_updates: usize,
    /// Error bars, if they were asked for.
    pub errors: Option<ErrorBars>,
}

impl Recipe {
    /// Runs all steps. The checkpoint of [`MethodOptions::minimizer`] keeps every one of them.
    ///
    /// # Errors
    /// [`mpf_ising::Error::Cancelled`]; [`Error::NoStates`]; those of the method, of
    /// [`PenaltyPath`], of [`Drift::measure`], of [`ContrastiveDivergence`] and of the error bars.
    pub fn run(
        &self,
        data: TrainingData<'_>,
        observer: &(dyn Fn(&RecipeProgress<'_>) + Sync),
    ) -> Result<Trained> {
        let checkpoint = &self.options.minimizer.checkpoint;
        let cancel = &self.options.minimizer.cancel;
        let (options, path) = self.choose_penalty(data, observer)?;
        let mut fit = match &path {
            // The path has been there already.
            Some(path) => path.chosen().fit.clone(),
            None => {
                let options = with_checkpoint(&options, checkpoint.entry("fit"));
                let mut step = |p: &FitProgress<'_>| observer(&RecipeProgress::Fit(p));
                self.method.fit(data.samples, &options, &mut step)?
            }
        };
        check(cancel)?;
        let mut drift = self.drift(&fit, data)?;
        let polish_updates = self.updates(&drift);
        if polish_updates > 0 {
            if self.polish == Polish::IfDrifting {
                observer(&RecipeProgress::Drifting(&drift, polish_updates));
            }
            fit = self.polish(fit, data.samples, polish_updates, observer)?;
            check(cancel)?;
            drift = self.drift(&fit, data)?;
        }
        let errors = self.error_bars(&fit, data, &options, observer)?;
        Ok(Trained {
            fit,
            options,
            path,
            drift,
            polish_updates,
            errors,
        })
    }

    fn choose_penalty(
        &self,
        data: TrainingData<'_>,
        observer: &(dyn Fn(&RecipeProgress<'_>) + Sync),
    ) -> Result<(MethodOptions, Option<CrossValidation>)> {
        let Some(choose) = &self.choose else {
            return Ok((self.options.clone(), None));
        };
        let checkpoint = self.options.minimizer.checkpoint.entry("penalties");
        let path = PenaltyPath::new(choose.clone())?;
        let found = self.method.cross_validate(
            &path,
            data.states()?,
            &with_checkpoint(&self.options, checkpoint),
            &mut |progress| observer(&RecipeProgress::Penalty(progress)),
        )?;
        let mut options = self.options.clone();
        let lambda = found.chosen().lambda;
        match choose.penalty {
            Penalty::L1 => options.l1 = lambda,
            Penalty::L2 => options.l2 = lambda,
        }
        Ok((options, Some(found)))
    }

    fn drift(&self, fit: &Fit, data: TrainingData<'_>) -> Result<Drift> {
        Drift::measure(
            &fit.couplings,
            data.samples,
            Drift::SWEEPS,
            self.options.seed,
        )
    }

    fn updates(&self, drift: &Drift) -> usize {
        let penalised = self.choose.is_some() || self.options.l1 != 0.0 || self.options.l2 != 0.0;
        let plain = !penalised && self.errors == ErrorBarsBy::Nothing;
        match self.polish {
            Polish::Updates(updates) => updates,
            Polish::IfDrifting
                if plain && self.method.describe().is_local && drift.has_drifted() =>
            {
                Polish::DEFAULT_UPDATES
            }
            Polish::IfDrifting => 0,
        }
    }

    /// Moves the couplings until means and pairs of the model are those of the data.
    fn polish(
        &self,
        fit: Fit,
        samples: &Samples,
        updates: usize,
        observer: &(dyn Fn(&RecipeProgress<'_>) + Sync),
    ) -> Result<Fit> {
        let minimizer = &self.options.minimizer;
        let learner = ContrastiveDivergence::new(ContrastiveOptions {
            updates,
            persistent: true,
            batch_size: Some(POLISHING_CHAINS),
            learning_rate: POLISHING_RATE,
            support: self.options.support.clone(),
            start: Some(fit.couplings),
            seed: self.options.seed,
            cancel: minimizer.cancel.clone(),
            checkpoint: minimizer.checkpoint.entry("polish"),
            ..Default::default()
        })?;
        let polished = learner.fit_observed(samples, |p| observer(&RecipeProgress::Polish(p)))?;
        // The record of the fit stays; the model is new.
        Ok(Fit {
            couplings: polished.couplings,
            seconds: fit.seconds + polished.seconds,
            ..fit
        })
    }

    fn error_bars(
        &self,
        fit: &Fit,
        data: TrainingData<'_>,
        options: &MethodOptions,
        observer: &(dyn Fn(&RecipeProgress<'_>) + Sync),
    ) -> Result<Option<ErrorBars>> {
        match self.errors {
            ErrorBarsBy::Nothing => Ok(None),
            ErrorBarsBy::Sandwich => {
                observer(&RecipeProgress::Sandwich);
                let (states, length) = (data.states()?, self.block_length);
                let bars = self
                    .method
                    .sandwich(&fit.couplings, states, length, options);
                bars.map(Some)
            }
            ErrorBarsBy::Bootstrap(n_resamples) => {
                let resampling = BootstrapOptions {
                    n_resamples,
                    block_length: self.block_length,
                    seed: options.seed,
                    checkpoint: options.minimizer.checkpoint.clone(),
                };
                let options = with_checkpoint(options, Checkpoint::default());
                let cancel = &options.minimizer.cancel;
                let bars = bootstrap(data.states()?, &resampling, |resample| {
                    check(cancel)?;
                    let fit = self.method.fit(resample, &options, &mut |_| {})?;
                    if fit.stop == StopReason::Cancelled {
                        return Err(mpf_ising::Error::Cancelled.into());
                    }
                    observer(&RecipeProgress::Resample);
                    Ok::<_, Error>(fit.couplings)
                });
                bars.map(Some)
            }
        }
    }
}

fn with_checkpoint(options: &MethodOptions, checkpoint: Checkpoint) -> MethodOptions {
    let mut options = options.clone();
    options.minimizer.checkpoint = checkpoint;
    options
}

fn check(cancel: &Cancel) -> Result<()> {
    if cancel.is_cancelled() {
        return Err(mpf_ising::Error::Cancelled.into());
    }
    Ok(())
}
