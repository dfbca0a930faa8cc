//! What a method is: one trait, implemented once in the method's own file.
//!
//! A [`Method`] describes itself (name, summary, the options it takes, the objective it is judged
//! by, its cost) and fits. Tournaments, cross-validation, error bars, the command line and its help
//! know methods only through this trait and the list [`Methods`].

use crate::Result;
use mpf_core::MinimizerOptions;
use mpf_ising::{
    CountPotential, Couplings, CrossValidation, Data, Error, ErrorBars, Estimator, Fit, FitOptions,
    FitProgress, Fitter, Mode, Neighbourhood, PathProgress, PenaltyPath, Samples, States, Stream,
    Support,
};

/// An option that not every method takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// λ₁ and λ₂, and their choice by cross-validation.
    Penalties,
    /// Another neighbourhood than all single flips.
    Neighbourhoods,
    /// The node-wise mode.
    NodeWise,
    /// A restricted support.
    Support,
    /// Standard errors by the sandwich formula.
    Sandwich,
    /// The damping of an inverse covariance.
    Damping,
    /// Numbers of updates and sweeps.
    Updates,
    /// A potential of the number of active units: K-pairwise models.
    Potential,
}

/// The objective that a method is judged by on held-out samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnObjective {
    /// The flow over all single flips.
    Flow,
    /// Minus the log-pseudolikelihood.
    Pseudolikelihood,
    /// logRISE, summed over the units.
    LogRise,
    /// Minus the log-likelihood.
    LogLikelihood,
}

/// What a method says of itself.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// On the command line and in model files.
    pub name: &'static str,
    /// In tables.
    pub title: &'static str,
    /// One line for the help.
    pub summary: &'static str,
    /// The options it takes.
    pub takes: &'static [Takes],
    /// The objective it is judged by; `None` for methods that minimise nothing.
    pub objective: Option<OwnObjective>,
    /// The most units it can fit.
    pub max_units: usize,
    /// Whether it looks only at single flips from the data, so that its model may have other modes.
    pub is_local: bool,
    /// Whether it enters a tournament unasked.
    pub competes: bool,
}

impl Description {
    /// Returns what holds of most methods, and no options.
    pub const fn new(name: &'static str, title: &'static str, summary: &'static str) -> Self {
        Self {
            name,
            title,
            summary,
            takes: &[],
            objective: None,
            max_units: usize::MAX,
            is_local: false,
            competes: true,
        }
    }
}

/// Options of all methods in one list, unchecked; [`Description::takes`] says which of them a
/// method uses.
#[derive(Clone, Debug)]
pub struct MethodOptions {
    /// λ₁, on Σ_{i<j} |K_ij|. Default 0. (RISE's own λ is half of it.)
    pub l1: f64,
    /// λ₂, on ½ Σ_{i<j} K_ij². Default `None`: 1/M for M samples, if the method takes penalties.
    /// That costs nothing where the data determine the couplings, and holds the others.
    pub l2: Option<f64>,
    /// Where probability may flow. Default: all single flips.
    pub neighbourhood: Neighbourhood,
    /// Whether every row is fitted by itself. Default no.
    pub node_wise: bool,
    /// V of the number of active units, for a K-pairwise model. Default: none.
    pub potential: Option<CountPotential>,
    /// The free couplings. Default: all.
    pub support: Support,
    /// Couplings to start from. Default: none, and every method starts where it likes.
    pub start: Option<Couplings>,
    /// Tolerance, limits, cancel handle, checkpoint.
    pub minimizer: MinimizerOptions,
    /// The damping of TAP's inverse covariance. Default 1e-4.
    pub damping: f64,
    /// Updates of contrastive divergence. Default 1000.
    pub updates: usize,
    /// Gibbs sweeps per update. Default 1.
    pub sweeps: usize,
    /// The seed of everything random. Default 0.
    pub seed: u64,
}

impl Default for MethodOptions {
    fn default() -> Self {
        Self {
            l1: 0.0,
            l2: None,
            neighbourhood: Neighbourhood::default(),
            node_wise: false,
            potential: None,
            support: Support::default(),
            start: None,
            minimizer: MinimizerOptions::default(),
            damping: 1e-4,
            updates: 1000,
            sweeps: 1,
            seed: 0,
        }
    }
}

impl MethodOptions {
    /// Returns λ₂ for `n_samples` samples.
    pub fn l2_of(&self, n_samples: f64) -> f64 {
        self.l2.unwrap_or(1.0 / n_samples)
    }

    /// Returns the options of a [`Fitter`] for `n_samples` samples.
    pub fn fit_options(&self, n_samples: f64) -> FitOptions {
        FitOptions {
            l1: self.l1,
            l2: self.l2_of(n_samples),
            support: self.support.clone(),
            potential: self.potential,
            start: self.start.clone(),
            mode: if self.node_wise {
                Mode::NodeWise
            } else {
                Mode::Joint
            },
            minimizer: self.minimizer.clone(),
            ..Default::default()
        }
    }
}

/// Called after every step of a fit.
pub type Observer<'a> = &'a mut (dyn FnMut(&FitProgress<'_>) + Send);

/// A way to fit an Ising model.
pub trait Method: Send + Sync {
    /// Describes the method.
    fn describe(&self) -> Description;

    /// Fits, and calls `observer` after every step; never for closed forms.
    ///
    /// # Errors
    /// Those of [`Method::in_memory`], and of the method.
    fn fit(&self, data: Data<'_>, options: &MethodOptions, observer: Observer<'_>) -> Result<Fit>;

    /// Returns samples that are held, for methods that cannot read them as they are needed.
    ///
    /// # Errors
    /// [`Error::NotOffered`] for streamed samples.
    fn in_memory<'a>(&self, data: Data<'a>) -> Result<&'a Samples> {
        match data {
            Data::Samples(samples) => Ok(samples),
            Data::Stream(_) => not_streamed(self.describe()),
        }
    }

    /// Fits streamed samples along a path of penalties, with held-out scores.
    ///
    /// # Errors
    /// [`Error::NotOffered`] by default, for methods that need them in memory; those of
    /// [`PenaltyPath::cross_validate_stream`].
    fn cross_validate_stream(
        &self,
        path: &PenaltyPath,
        stream: &Stream,
        options: &MethodOptions,
        observer: &mut dyn FnMut(&PathProgress),
    ) -> Result<CrossValidation> {
        let _ = (path, stream, options, observer);
        not_streamed(self.describe())
    }

    /// Fits along a path of penalties, with held-out scores.
    ///
    /// # Errors
    /// [`Error::NotOffered`] by default, for methods without penalties; those of
    /// [`PenaltyPath::cross_validate`].
    fn cross_validate(
        &self,
        path: &PenaltyPath,
        states: &States,
        options: &MethodOptions,
        observer: &mut dyn FnMut(&PathProgress),
    ) -> Result<CrossValidation> {
        let _ = (path, states, options, observer);
        let reason = "it minimises no penalised objective; use MPF or PL";
        not_offered(self.describe(), "penalties", reason)
    }

    /// Computes standard errors of `couplings`, which this method fitted to `states`, by the
    /// sandwich formula, from blocks of `block_length` successive samples. With a penalty they are
    /// those of [`ErrorBars::corrected`].
    ///
    /// # Errors
    /// [`Error::NotOffered`] by default, for methods that have only the
    /// [bootstrap](mpf_ising::bootstrap()); those of [`Fitter::corrected_sandwich`].
    fn sandwich(
        &self,
        couplings: &Couplings,
        states: &States,
        block_length: usize,
        options: &MethodOptions,
    ) -> Result<ErrorBars> {
        let _ = (couplings, states, block_length, options);
        let option = "standard errors by the sandwich formula";
        let reason = "it is no sum over margins; use the bootstrap";
        not_offered(self.describe(), option, reason)
    }

    /// Returns the number of parameters that are minimised over at the same time: the memory of a
    /// fit grows with it. Default 0.
    fn n_parameters(&self, n_units: usize, n_couplings: usize, options: &MethodOptions) -> usize {
        let _ = (n_units, n_couplings, options);
        0
    }

    /// Returns whether every row is fitted by itself. Default no.
    fn is_node_wise(&self, options: &MethodOptions) -> bool {
        let _ = options;
        false
    }

    /// Returns what a step of [`Method::fit`] is called, and how many there will be if that is
    /// known.
    fn steps(&self, n_units: usize, options: &MethodOptions) -> (&'static str, Option<usize>) {
        if self.is_node_wise(options) {
            ("units", Some(n_units))
        } else {
            ("iterations", None)
        }
    }
}

fn not_offered<T>(by: Description, option: &'static str, reason: &'static str) -> Result<T> {
    let method = by.title;
    Err(Error::NotOffered {
        method,
        option,
        reason,
    }
    .into())
}

fn not_streamed<T>(by: Description) -> Result<T> {
    let reason = "it needs them in memory; use MPF or PL";
    not_offered(by, "streamed samples", reason)
}

/// The methods to choose from, in the order in which they are listed.
///
/// ```
/// use mpf_baselines::Methods;
///
/// let methods = Methods::default();
/// assert_eq!(methods.find("pl").unwrap().describe().title, "PL");
/// assert!(methods.find("magic").is_none());
/// ```
#[derive(Clone)]
pub struct Methods(Vec<&'static dyn Method>);

impl Default for Methods {
    /// Returns every method of this crate.
    fn default() -> Self {
        Self(vec![
            &crate::mpf::MPF,
            &crate::pseudolikelihood::PL,
            &crate::rise::RISE,
            &crate::rise::LOG_RISE,
            &crate::contrastive::Cd,
            &crate::mean_field::Tap,
            &crate::max_likelihood::ML,
            &crate::independent::Independent,
        ])
    }
}

impl Methods {
    /// Adds a method at the end.
    #[must_use]
    pub fn with(mut self, method: &'static dyn Method) -> Self {
        self.0.push(method);
        self
    }

    /// Returns the method called `name` on the command line.
    pub fn find(&self, name: &str) -> Option<&'static dyn Method> {
        self.iter().find(|method| method.describe().name == name)
    }

    /// Iterates over the methods.
    pub fn iter(&self) -> impl Iterator<Item = &'static dyn Method> {
        self.0.iter().copied()
    }
}

/// Computes the error bars of couplings that a fitter fitted to states, from blocks of so many
/// successive samples.
pub(crate) type Sandwich<E> =
    fn(&Fitter<E>, &Couplings, &States, usize) -> mpf_ising::Result<ErrorBars>;

/// A method that is a [`Fitter`]: everything follows from its estimator.
pub(crate) struct FitterMethod<E: Estimator> {
    pub(crate) description: Description,
    /// Makes the estimator, with the options that belong to it.
    pub(crate) estimator: fn(&MethodOptions) -> E,
    pub(crate) sandwich: Sandwich<E>,
    /// Whether every row is always fitted by itself.
    pub(crate) always_node_wise: bool,
}

impl<E: Estimator> FitterMethod<E> {
    fn fitter(&self, options: &MethodOptions, n_samples: f64) -> Result<Fitter<E>> {
        let mut fit_options = options.fit_options(n_samples);
        if self.is_node_wise(options) {
            fit_options.mode = Mode::NodeWise;
        }
        Ok(Fitter::new((self.estimator)(options), fit_options)?)
    }

    /// Returns a fitter for plain data, which are checked before any work is done.
    fn fitter_of(&self, states: &States, options: &MethodOptions) -> Result<Fitter<E>> {
        let fitter = self.fitter(options, states.n_samples() as f64)?;
        fitter.estimator().check_units(states.n_units())?;
        Ok(fitter)
    }
}

impl<E: Estimator> Method for FitterMethod<E> {
    fn describe(&self) -> Description {
        self.description
    }

    fn fit(&self, data: Data<'_>, options: &MethodOptions, observer: Observer<'_>) -> Result<Fit> {
        let fitter = self.fitter(options, data.n_effective())?;
        Ok(fitter.fit_observed(data, observer)?)
    }

    fn cross_validate_stream(
        &self,
        path: &PenaltyPath,
        stream: &Stream,
        options: &MethodOptions,
        observer: &mut dyn FnMut(&PathProgress),
    ) -> Result<CrossValidation> {
        let fitter = self.fitter(options, stream.n_effective())?;
        Ok(path.cross_validate_stream(&fitter, stream, observer)?)
    }

    fn cross_validate(
        &self,
        path: &PenaltyPath,
        states: &States,
        options: &MethodOptions,
        observer: &mut dyn FnMut(&PathProgress),
    ) -> Result<CrossValidation> {
        let fitter = self.fitter_of(states, options)?;
        Ok(path.cross_validate(&fitter, states, observer)?)
    }

    fn sandwich(
        &self,
        couplings: &Couplings,
        states: &States,
        block_length: usize,
        options: &MethodOptions,
    ) -> Result<ErrorBars> {
        let fitter = self.fitter_of(states, options)?;
        Ok((self.sandwich)(&fitter, couplings, states, block_length)?)
    }

    fn n_parameters(&self, n_units: usize, n_couplings: usize, options: &MethodOptions) -> usize {
        if self.is_node_wise(options) {
            n_units * rayon::current_num_threads()
        } else {
            n_units + n_couplings
        }
    }

    fn is_node_wise(&self, options: &MethodOptions) -> bool {
        options.node_wise || self.always_node_wise
    }
}
