//! Every method behind one name, for comparisons.

use crate::Result;
use crate::contrastive::{ContrastiveDivergence, ContrastiveOptions, ContrastiveSnapshot};
use crate::error::Error;
use crate::max_likelihood::{ExactLikelihood, MaximumLikelihood, check_units, independent};
use crate::mean_field::{Expansion, MeanField};
use crate::pseudolikelihood::{Pseudolikelihood, PseudolikelihoodSum, log_rise, rise};
use mpf_core::{StopReason, TracePoint};
use mpf_ising::PathProgress;
use mpf_ising::{
    Couplings, CrossValidation, ErrorBars, Fit, FitOptions, FitProgress, FitSnapshot, Fitter,
    Folds, Mpf, PathSnapshot, PenaltyPath, Samples, States, Warning,
};
use serde::{Deserialize, Serialize};

/// A way to fit an Ising model, with its options.
#[derive(Clone, Debug)]
pub enum Method {
    /// Minimum probability flow.
    Mpf(FitOptions),
    /// Pseudolikelihood.
    Pseudolikelihood(FitOptions),
    /// RISE: MPF row by row, with its own λ.
    Rise {
        /// λ of every row.
        lambda: f64,
        /// Everything but the penalties, the form and the mode.
        options: FitOptions,
    },
    /// logRISE.
    LogRise {
        /// λ of every row.
        lambda: f64,
        /// Everything but the penalties, the form and the mode.
        options: FitOptions,
    },
    /// Contrastive divergence.
    ContrastiveDivergence(ContrastiveOptions),
    /// Mean field theory, naive or TAP.
    MeanField {
        /// How far the expansion goes.
        expansion: Expansion,
        /// The damping of the inverse.
        lambda: f64,
    },
    /// Exact maximum likelihood, up to 20 units.
    MaximumLikelihood(FitOptions),
    /// Independent units.
    Independent,
}

/// What any method makes of data. All finite.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The paper's J.
    pub couplings: Couplings,
    /// Why learning stopped; `None` for closed forms.
    pub stop: Option<StopReason>,
    /// Learning time in seconds.
    pub seconds: f64,
    /// What to be careful about.
    pub warnings: Vec<Warning>,
    /// How learning went; `None` for closed forms.
    pub course: Option<Course>,
    /// What it takes to go on from where learning stopped: by CD always, by the others where
    /// [`MinimizerOptions::snapshots`](mpf_core::MinimizerOptions::snapshots) asks for it.
    pub snapshot: Option<MethodSnapshot>,
}

/// Everything that a fit by any method needs to go on to the same bits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum MethodSnapshot {
    /// Of MPF, pseudolikelihood, RISE, logRISE and maximum likelihood.
    Fit(FitSnapshot),
    /// Of contrastive divergence.
    Contrastive(ContrastiveSnapshot),
}

/// How far it is.
impl std::fmt::Display for MethodSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fit(FitSnapshot::Joint(snapshot)) => {
                write!(f, "{} iterations", snapshot.iteration())
            }
            Self::Fit(FitSnapshot::NodeWise(snapshot)) => write!(f, "{} units", snapshot.n_done()),
            Self::Contrastive(snapshot) => write!(f, "{} updates", snapshot.updates()),
        }
    }
}

/// How learning went: see the fields of the same names of [`Fit`]. All finite.
#[derive(Clone, Debug)]
pub struct Course {
    /// The objective at the end, penalties included.
    pub value: f64,
    /// The KKT residual there.
    pub kkt_residual: f64,
    /// Iterations.
    pub iterations: usize,
    /// Evaluations of the objective.
    pub evaluations: usize,
    /// The fraction of flips that were left out.
    pub left_out_fraction: f64,
    /// Node-wise mode: the largest |K_ij − K_ji| before averaging.
    pub asymmetry: Option<f64>,
    /// One point per iteration, or per unit in node-wise mode.
    pub trace: Vec<TracePoint>,
}

impl From<Fit> for Fitted {
    fn from(fit: Fit) -> Self {
        Self {
            couplings: fit.couplings,
            stop: Some(fit.stop),
            seconds: fit.seconds,
            warnings: fit.warnings,
            course: Some(Course {
                value: fit.value,
                kkt_residual: fit.kkt_residual,
                iterations: fit.iterations,
                evaluations: fit.evaluations,
                left_out_fraction: fit.left_out_fraction,
                asymmetry: fit.asymmetry,
                trace: fit.trace,
            }),
            snapshot: fit.snapshot.map(MethodSnapshot::Fit),
        }
    }
}

impl Method {
    /// What it is called in tables.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Mpf(_) => "MPF",
            Self::Pseudolikelihood(_) => "PL",
            Self::Rise { .. } => "RISE",
            Self::LogRise { .. } => "logRISE",
            Self::ContrastiveDivergence(_) => "CD",
            Self::MeanField {
                expansion: Expansion::Naive,
                ..
            } => "mean field",
            Self::MeanField { .. } => "TAP",
            Self::MaximumLikelihood(_) => "ML",
            Self::Independent => "independent",
        }
    }

    /// Fits.
    ///
    /// # Errors
    /// Those of the method.
    pub fn fit(&self, samples: &Samples) -> Result<Fitted> {
        self.fit_observed(samples, |_| {})
    }

    /// As [`Method::fit`], calling `observer` after every iteration (after every unit in node-wise
    /// mode); never for closed forms.
    ///
    /// # Errors
    /// Those of the method.
    pub fn fit_observed(
        &self,
        samples: &Samples,
        mut observer: impl FnMut(&FitProgress<'_>) + Send,
    ) -> Result<Fitted> {
        self.fit_with_snapshots(samples, |progress, _| observer(progress))
    }

    /// As [`Method::fit_observed`]; the observer can have what it takes to go on from there, for
    /// [`Method::resumed`]. Methods that minimise have it where
    /// [`MinimizerOptions::snapshots`](mpf_core::MinimizerOptions::snapshots) asks for it, CD
    /// always.
    ///
    /// # Errors
    /// Those of the method.
    pub fn fit_with_snapshots(
        &self,
        samples: &Samples,
        mut observer: impl FnMut(&FitProgress<'_>, &dyn Fn() -> Option<MethodSnapshot>) + Send,
    ) -> Result<Fitted> {
        let minimised = |progress: &FitProgress<'_>| {
            observer(progress, &|| progress.snapshot().map(MethodSnapshot::Fit));
        };
        Ok(match self {
            Self::Mpf(options) => Fitter::new(options.clone())?
                .fit_observed(samples, minimised)?
                .into(),
            Self::Pseudolikelihood(options) => Pseudolikelihood::new(options.clone())?
                .fit_observed(samples, minimised)?
                .into(),
            Self::Rise { lambda, options } => rise(*lambda, options.clone())?
                .fit_observed(samples, minimised)?
                .into(),
            Self::LogRise { lambda, options } => log_rise(*lambda, options.clone())?
                .fit_observed(samples, minimised)?
                .into(),
            Self::MaximumLikelihood(options) => MaximumLikelihood::new(options.clone())?
                .fit_observed(samples, minimised)?
                .into(),
            Self::ContrastiveDivergence(options) => {
                let learner = ContrastiveDivergence::new(options.clone())?;
                let (fit, last) = learner.fit_with_snapshots(samples, |progress, snapshot| {
                    observer(progress, &|| Some(MethodSnapshot::Contrastive(snapshot())));
                })?;
                Fitted {
                    snapshot: Some(MethodSnapshot::Contrastive(last)),
                    ..Fitted::from(fit)
                }
            }
            Self::Independent => {
                let fit = independent(samples)?;
                Fitted {
                    couplings: fit.couplings,
                    stop: None,
                    seconds: fit.seconds,
                    warnings: fit.warnings,
                    course: None,
                    snapshot: None,
                }
            }
            Self::MeanField { expansion, lambda } => {
                let fit = MeanField::new(*expansion, *lambda)?.fit(samples)?;
                Fitted {
                    couplings: fit.couplings,
                    stop: None,
                    seconds: fit.seconds,
                    warnings: fit.warnings,
                    course: None,
                    snapshot: None,
                }
            }
        })
    }

    /// The method, going on from `snapshot`, and taking snapshots itself.
    ///
    /// # Errors
    /// [`Error::OtherSnapshot`] for one of another method. Whether it is of these data and options
    /// shows when it is fitted.
    pub fn resumed(mut self, snapshot: Option<MethodSnapshot>) -> Result<Self> {
        let other = |what| Err(Error::OtherSnapshot { what });
        match &mut self {
            Self::Mpf(options)
            | Self::Pseudolikelihood(options)
            | Self::Rise { options, .. }
            | Self::LogRise { options, .. }
            | Self::MaximumLikelihood(options) => {
                options.minimizer.snapshots = true;
                options.resume = match snapshot {
                    None => None,
                    Some(MethodSnapshot::Fit(snapshot)) => Some(snapshot),
                    Some(MethodSnapshot::Contrastive(_)) => {
                        return other("contrastive divergence");
                    }
                };
            }
            Self::ContrastiveDivergence(options) => {
                options.resume = match snapshot {
                    None => None,
                    Some(MethodSnapshot::Contrastive(snapshot)) => Some(snapshot),
                    Some(MethodSnapshot::Fit(_)) => return other("another method"),
                };
            }
            Self::MeanField { .. } | Self::Independent => {
                if snapshot.is_some() {
                    return other("another method");
                }
            }
        }
        Ok(self)
    }

    /// A path of penalties with held-out scores, for the methods that have penalties. The λ's are
    /// λ₁ or λ₂ of [`FitOptions`], for RISE and logRISE too (whose own λ is half of λ₁).
    ///
    /// # Errors
    /// [`Error::NotOffered`] for CD, mean field and independent units; those of
    /// [`PenaltyPath::cross_validate`].
    pub fn cross_validate(
        &self,
        path: &PenaltyPath,
        states: &States,
        folds: &Folds,
        mut observer: impl FnMut(&PathProgress),
    ) -> Result<CrossValidation> {
        self.cross_validate_from(None, path, states, folds, |progress, _| observer(progress))
    }

    /// As [`Method::cross_validate`], going on from a snapshot of an earlier run with the same
    /// data, folds and options; `observer` can have one after every λ.
    ///
    /// # Errors
    /// As [`Method::cross_validate`]; [`mpf_ising::Error::OtherPath`].
    pub fn cross_validate_from(
        &self,
        snapshot: Option<PathSnapshot>,
        path: &PenaltyPath,
        states: &States,
        folds: &Folds,
        observer: impl FnMut(&PathProgress, &dyn Fn() -> PathSnapshot),
    ) -> Result<CrossValidation> {
        let (fitter, form) = match self {
            Self::Mpf(options) => (Fitter::new(options.clone())?, options.form),
            Self::Rise { lambda, options } => {
                let fitter = rise(*lambda, options.clone())?;
                let form = fitter.options().form;
                (fitter, form)
            }
            Self::LogRise { lambda, options } => {
                let fitter = log_rise(*lambda, options.clone())?;
                let form = fitter.options().form;
                (fitter, form)
            }
            Self::Pseudolikelihood(options) => {
                Pseudolikelihood::new(options.clone())?;
                let fitter = Fitter::new(options.clone())?;
                let sum = &PseudolikelihoodSum;
                return Ok(
                    path.cross_validate_from(snapshot, &fitter, sum, states, folds, observer)?
                );
            }
            Self::MaximumLikelihood(options) => {
                MaximumLikelihood::new(options.clone())?;
                check_units(states.n_units())?;
                let fitter = Fitter::new(options.clone())?;
                let exact = &ExactLikelihood;
                return Ok(
                    path.cross_validate_from(snapshot, &fitter, exact, states, folds, observer)?
                );
            }
            Self::ContrastiveDivergence(_) | Self::MeanField { .. } | Self::Independent => {
                return Err(Error::NotOffered {
                    method: self.name(),
                    option: "penalties",
                    reason: "it minimises no penalised objective; use MPF or PL",
                });
            }
        };
        let mpf = Mpf { form };
        Ok(path.cross_validate_from(snapshot, &fitter, &mpf, states, folds, observer)?)
    }

    /// Standard errors of `couplings`, which this method fitted to `states`, by the sandwich
    /// formula: for MPF, pseudolikelihood, RISE and logRISE.
    ///
    /// # Errors
    /// [`Error::NotOffered`] for the others, which have the
    /// [bootstrap](mpf_ising::bootstrap()); those of [`Fitter::sandwich`].
    pub fn sandwich(
        &self,
        couplings: &Couplings,
        states: &States,
        block_length: usize,
    ) -> Result<ErrorBars> {
        let fitter = match self {
            Self::Mpf(options) | Self::Pseudolikelihood(options) => Fitter::new(options.clone())?,
            Self::Rise { lambda, options } => rise(*lambda, options.clone())?,
            Self::LogRise { lambda, options } => log_rise(*lambda, options.clone())?,
            _ => {
                return Err(Error::NotOffered {
                    method: self.name(),
                    option: "standard errors by the sandwich formula",
                    reason: "it is no sum over margins; use the bootstrap",
                });
            }
        };
        Ok(match self {
            Self::Pseudolikelihood(_) => {
                fitter.sandwich(&PseudolikelihoodSum, couplings, states, block_length)?
            }
            _ => fitter.sandwich(&Mpf::default(), couplings, states, block_length)?,
        })
    }
}
