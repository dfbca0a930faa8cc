//! Fitting an Ising model: joint and symmetric, or unit by unit.
//!
//! ```text
//! minimise  mean_m Σ_i φ(a_mi) + (λ₂/2) (Σ_{i<j} K_ij² [+ Σ_i h_i²]) + λ₁ Σ_{i<j} |K_ij|
//! ```
//!
//! over the spin parameters h, K (see [`couplings`](crate::couplings)); the result is the paper's
//! J. **Penalties are on K and h, the spin couplings and fields**, whatever coordinates are
//! optimised (standardised units that make room for the ridge, see `basis`).
//!
//! Node by node, each row i is minimised by itself over (h_i, K_i·) with half of the coupling
//! penalties, and K is averaged with its transpose. The sum over rows is the joint objective again.
//! With φ = exp(−a) that is RISE (Vuffray et al. 2016), whose λ is λ₁/2 here; with its logarithm,
//! logRISE.
//!
//! A K-pairwise model adds V(Σ_i x_i) to the energy (see `potential`).
//!
//! A constant unit has no finite optimum. Its couplings are set to zero, its bias to the log odds
//! of (n₁ + ½)/(W + 1) where n₁ of W samples are 1, and a warning names it.

mod estimator;
mod evaluate;
mod nodes;
mod problem;
mod result;

use crate::Result;
use crate::couplings::Couplings;
use crate::error::Error;
use crate::flow::Neighbourhood;
use crate::potential::CountPotential;
use crate::stream::{Data, Stream};
use crate::support::{Biases, Support};
use mpf_core::{Minimizer, MinimizerOptions, check_not_negative};
use problem::Problem;
use std::sync::Arc;

pub use estimator::{Estimator, Mpf};
pub(crate) use problem::Masked;
pub use result::{Fit, FitProgress};

/// How J is fitted: as one symmetric matrix, or row by row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// One objective with J_ij = J_ji.
    #[default]
    Joint,
    /// Every row by itself, then averaged with the transpose.
    NodeWise,
}

/// Options of a [`Fitter`]; [`Fitter::new`] checks them.
#[derive(Clone, Debug, Default)]
pub struct FitOptions {
    /// λ₁, on Σ_{i<j} |K_ij|. Default 0.
    pub l1: f64,
    /// λ₂, on ½ Σ_{i<j} K_ij². Default 0.
    pub l2: f64,
    /// Whether λ₂ is also on ½ Σ_i h_i². Default no.
    pub l2_on_fields: bool,
    /// The free couplings. Default: all.
    pub support: Support,
    /// The biases. Default: free.
    pub biases: Biases,
    /// V of the number of active units, for a K-pairwise model; see
    /// [`Couplings::with_potential`]. Default: none.
    pub potential: Option<CountPotential>,
    /// Joint or node-wise. Default: joint.
    pub mode: Mode,
    /// Where to start. Default: zero in standardised units (every state equally likely).
    pub start: Option<Couplings>,
    /// Tolerance (on [`Fit::kkt_residual`]), limits, cancel handle, checkpoint.
    pub minimizer: MinimizerOptions,
}

/// Fits Ising models with checked options.
///
/// ```
/// use mpf_ising::{Couplings, Exact, Fitter, Samples};
/// use ndarray::array;
///
/// let truth = Couplings::new(array![[0.5, -1.0], [-1.0, 0.2]])?;
/// let states = Exact::new(&truth)?.draw(50_000, 1);
/// let fitter: Fitter = Fitter::default();
/// let fit = fitter.fit(&Samples::new(&states)?)?;
/// assert!(fit.stop.is_converged());
/// assert!(fit.couplings.mean_square_error(&truth) < 0.001);
/// # Ok::<(), mpf_ising::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Fitter<E: Estimator = Mpf> {
    estimator: Arc<E>,
    options: FitOptions,
    /// The couplings that have the penalties.
    penalised: Support,
}

impl<E: Estimator> Fitter<E> {
    /// Makes a fitter after checking the options.
    ///
    /// # Errors
    /// [`mpf_core::Error::Option`] for a penalty that is negative or not finite and for bad limits;
    /// those of [`Estimator::check`].
    pub fn new(estimator: E, options: FitOptions) -> Result<Self> {
        Self::of(Arc::new(estimator), options)
    }

    fn of(estimator: Arc<E>, mut options: FitOptions) -> Result<Self> {
        check_not_negative("l1", options.l1)?;
        check_not_negative("l2", options.l2)?;
        if let Some(CountPotential { smoothness }) = options.potential {
            check_not_negative("smoothness", smoothness)?;
            if options.mode == Mode::NodeWise {
                return Err(Error::NotOffered {
                    method: "a K-pairwise model",
                    option: "node-wise fits",
                    reason: "V belongs to all units; fit jointly",
                });
            }
        }
        estimator.check(&options)?;
        // With a penalty there is a minimum, however low.
        options.minimizer.lowest_value = match options.l1 == 0.0 && options.l2 == 0.0 {
            true => estimator.lowest_value(),
            false => f64::NEG_INFINITY,
        };
        Minimizer::new(options.minimizer.clone())?;
        Ok(Self {
            estimator,
            options,
            penalised: Support::Full,
        })
    }

    /// Returns the estimator.
    pub fn estimator(&self) -> &E {
        &self.estimator
    }

    /// Returns the options.
    pub fn options(&self) -> &FitOptions {
        &self.options
    }

    /// Returns a fitter of the same estimator with other options.
    ///
    /// # Errors
    /// As [`Fitter::new`].
    pub fn with_options(&self, options: FitOptions) -> Result<Self> {
        Self::of(self.estimator.clone(), options)
    }

    /// Returns a fitter whose penalties are on these couplings alone, and not on fields.
    pub(crate) fn with_penalties_on(&self, pairs: Vec<(usize, usize)>) -> Self {
        Self {
            estimator: self.estimator.clone(),
            options: FitOptions {
                l2_on_fields: false,
                ..self.options.clone()
            },
            penalised: Support::Edges(pairs),
        }
    }

    pub(crate) fn any(&self) -> AnyFitter<'_> {
        AnyFitter {
            estimator: &*self.estimator,
            options: &self.options,
            penalised: &self.penalised,
        }
    }

    /// Fits the model to [`Samples`](crate::Samples) or to a [`Stream`](crate::Stream).
    ///
    /// # Errors
    /// - [`Error::NotOffered`] for a stream, where the samples must be in memory, and
    ///   [`Error::Unreadable`] if it ends;
    /// - [`Error::UnitCount`] for a start or fixed biases of other units, [`Error::NotFinite`] for
    ///   fixed biases, [`Error::Edge`], and those of [`Estimator::check_units`];
    /// - [`Error::TooManyCouplings`] and [`Error::OutOfMemory`], before anything large is held;
    /// - [`Error::NoFlipsLeft`], [`Error::NoFlipsLeftOfUnit`] and [`Error::NothingFree`];
    /// - [`Error::TooLarge`] and [`Error::NotFiniteObjective`] if the result would overflow;
    /// - [`Error::Core`] if the objective is not finite at the start, or for a checkpoint of another
    ///   problem.
    pub fn fit<'a>(&self, data: impl Into<Data<'a>>) -> Result<Fit> {
        self.fit_observed(data, |_| {})
    }

    /// Fits, and calls `observer` after every iteration (after every unit in node-wise mode).
    /// Iterations whose couplings would overflow are skipped.
    ///
    /// # Errors
    /// As [`Fitter::fit`].
    pub fn fit_observed<'a>(
        &self,
        data: impl Into<Data<'a>>,
        mut observer: impl FnMut(&FitProgress<'_>) + Send,
    ) -> Result<Fit> {
        self.any().fit(data.into(), None, &mut observer)
    }
}

/// Called after every step of a fit.
pub(crate) type Observer<'a> = &'a mut (dyn FnMut(&FitProgress<'_>) + Send);

/// A [`Fitter`] of any estimator: fits are compiled once for all of them.
#[derive(Clone, Copy)]
pub(crate) struct AnyFitter<'a> {
    estimator: &'a dyn Estimator,
    options: &'a FitOptions,
    penalised: &'a Support,
}

impl AnyFitter<'_> {
    /// Fits without the masked flips.
    pub(crate) fn fit(
        self,
        data: Data<'_>,
        masked: Option<Masked>,
        observer: Observer<'_>,
    ) -> Result<Fit> {
        let problem = Problem::new(self, data, masked)?;
        if !problem.has_free_parameters() {
            return Err(Error::NothingFree);
        }
        let fit = match self.options.mode {
            Mode::Joint => problem.fit_jointly(observer),
            Mode::NodeWise => problem.fit_by_node(observer),
        };
        // Why a stream had no value comes before what followed from that.
        data.stream().map_or(Ok(()), Stream::check)?;
        let mut fit = fit?;
        fit.left_out_fraction = problem.left_out_fraction;
        fit.warnings = problem.warnings(&fit);
        Ok(fit)
    }

    /// Refuses what needs all samples at once.
    fn check_streamed(self) -> Result<()> {
        let refused = if self.options.mode == Mode::NodeWise {
            Some("a node-wise fit")
        } else if self.estimator.neighbourhood() != Neighbourhood::SingleFlips {
            Some("a neighbourhood other than all single flips")
        } else if !self.estimator.sums_margins() {
            Some("an estimator that is no sum over samples")
        } else {
            None
        };
        match refused {
            None => Ok(()),
            Some(method) => Err(Error::NotOffered {
                method,
                option: "streamed samples",
                reason: "it needs them in memory",
            }),
        }
    }
}
