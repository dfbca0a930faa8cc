//! Fitting an Ising model: joint and symmetric, or unit by unit.
//!
//! ```text
//! minimise  mean_m Σ_i φ(a_mi) + (λ₂/2) (Σ_{i<j} K_ij² [+ Σ_i h_i²]) + λ₁ Σ_{i<j} |K_ij|
//! ```
//!
//! over the spin parameters h, K (see [`couplings`](crate::couplings)); the result is the paper's
//! J. **Penalties are on K and h, the spin couplings and fields**, whatever the coordinates that
//! are optimised in (those are in standardised units, see `basis`). Node by node, each row i is
//! minimised by itself over (h_i, K_i·) with half of the coupling penalties, so that the sum over
//! rows is the joint objective again, and K is averaged with its transpose: with φ = exp(−a) that
//! is RISE (Vuffray et al. 2016), whose λ is λ₁/2 here; with its logarithm, logRISE.
//!
//! A constant unit has no finite optimum. Its couplings are set to zero and its bias to the log
//! odds of (n₁ + ½)/(W + 1), n₁ of W samples being 1, and a warning names it.

mod evaluate;
mod nodes;

use crate::Result;
use crate::basis::{Basis, Field, Standardized};
use crate::bits::Samples;
use crate::couplings::{Couplings, SpinCouplings, check_square};
use crate::error::Error;
use crate::flow::{LogFlow, MarginSum, Neighbourhood, Terms, all_pairs, check_count, flip_mask};
use crate::kernel::{FlipMask, FlowRate, Kernel};
use crate::support::{Biases, Support};
use crate::warning::Warning;
use mpf_core::{
    FlowForm, Minimizer, MinimizerOptions, Minimum, Objective, Ridge, StopReason, TracePoint,
    check_option,
};
use ndarray::{Array1, Array2};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// Whether J is fitted as one symmetric matrix or row by row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// One objective with J_ij = J_ji.
    #[default]
    Joint,
    /// Every row by itself, then averaged with the transpose.
    NodeWise,
}

/// Options of a [`Fitter`], unchecked: [`Fitter::new`] refuses penalties that are negative or not
/// finite.
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
    /// Joint or node-wise. Default: joint.
    pub mode: Mode,
    /// Where to start. Default: zero in standardised units (every state equally likely).
    pub start: Option<Couplings>,
    /// Tolerance, limits, cancel handle, checkpoint.
    pub minimizer: MinimizerOptions,
}

/// What a [`Fitter`] minimises. [`Mpf`] is the estimator of this crate; rivals that differ in φ
/// alone live elsewhere and share everything else.
pub trait Estimator: Clone + Send + Sync {
    /// Checks that the estimator can do what `options` ask for.
    ///
    /// # Errors
    /// [`Error::NotOffered`] and the like.
    fn check(&self, options: &FitOptions) -> Result<()> {
        let _ = options;
        Ok(())
    }

    /// Checks that the estimator can fit so many units.
    ///
    /// # Errors
    /// [`Error::TooManyUnitsForLikelihood`].
    fn check_units(&self, n_units: usize) -> Result<()> {
        let _ = n_units;
        Ok(())
    }

    /// Returns the flips that the objective sums over.
    fn neighbourhood(&self) -> Neighbourhood {
        Neighbourhood::SingleFlips
    }

    /// Returns the objective of `terms`, over θ = (h of its units, K of its pairs).
    fn objective<'a>(&self, terms: Terms<'a>) -> Box<dyn Objective + 'a>;

    /// Returns the mean over samples that a joint objective of `value` stands for.
    fn mean_loss(&self, value: f64) -> f64 {
        value
    }
}

/// Minimum probability flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mpf {
    /// Where probability may flow. Default: all single flips.
    pub neighbourhood: Neighbourhood,
    /// The flow, or its logarithm. Default: the flow.
    pub form: FlowForm,
}

impl Estimator for Mpf {
    fn check(&self, options: &FitOptions) -> Result<()> {
        let complement = self.neighbourhood == Neighbourhood::SingleFlipsAndComplement;
        if complement && options.mode == Mode::NodeWise {
            return Err(Error::NodeWiseComplement);
        }
        Ok(())
    }

    fn neighbourhood(&self) -> Neighbourhood {
        self.neighbourhood
    }

    fn objective<'a>(&self, terms: Terms<'a>) -> Box<dyn Objective + 'a> {
        let sum = MarginSum::new(terms, FlowRate::default());
        match self.form {
            FlowForm::Sum => Box::new(sum),
            FlowForm::Log => Box::new(LogFlow(sum)),
        }
    }

    fn mean_loss(&self, value: f64) -> f64 {
        match self.form {
            FlowForm::Sum => value,
            FlowForm::Log => value.exp(),
        }
    }
}

/// A fit under way. Its numbers are finite.
pub struct FitProgress<'a> {
    /// Iterations so far; in node-wise mode, units that are done.
    pub iteration: usize,
    /// Evaluations of the objective so far.
    pub evaluations: usize,
    /// The objective with its penalties; in node-wise mode, summed over the units that are done.
    pub value: f64,
    /// The KKT residual in standardised units; in node-wise mode, the largest so far.
    pub gradient_norm: f64,
    /// Learning time in seconds: observers do not count.
    pub seconds: f64,
    couplings: &'a dyn Fn() -> Couplings,
}

impl<'a> FitProgress<'a> {
    /// For learners that do not go through a [`Fitter`]; `couplings` gives the present ones.
    pub fn new(point: TracePoint, couplings: &'a dyn Fn() -> Couplings) -> Self {
        Self {
            iteration: point.iteration,
            evaluations: point.evaluations,
            value: point.value,
            gradient_norm: point.gradient_norm,
            seconds: point.seconds,
            couplings,
        }
    }

    /// The couplings as they are now; finite. O(d²).
    pub fn couplings(&self) -> Couplings {
        (self.couplings)()
    }
}

/// A fitted model, how it was found, and what to be careful about. Its numbers are finite.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[must_use = "look at `stop` and `warnings` before using the couplings"]
pub struct Fit {
    /// The paper's J.
    pub couplings: Couplings,
    /// The objective there, penalties included.
    pub value: f64,
    /// Why the minimisation stopped.
    pub stop: StopReason,
    /// The largest entry of the smallest subgradient, in standardised units: 0 at a minimum.
    pub kkt_residual: f64,
    /// Iterations (of all rows together in node-wise mode).
    pub iterations: usize,
    /// Evaluations of the objective (of all rows together in node-wise mode).
    pub evaluations: usize,
    /// Learning time in seconds.
    pub seconds: f64,
    /// The fraction of flips that led to data states and were left out.
    pub left_out_fraction: f64,
    /// Node-wise mode: the largest |K_ij − K_ji| before averaging.
    pub asymmetry: Option<f64>,
    /// What to be careful about.
    pub warnings: Vec<Warning>,
    /// One point per iteration; in node-wise mode the last point of every unit, whose index
    /// stands in place of the iteration.
    pub trace: Vec<TracePoint>,
}

impl Fit {
    /// Returns a fit that was computed and not learned: `stop` is [`StopReason::ClosedForm`].
    pub fn closed_form(
        couplings: Couplings,
        value: f64,
        seconds: f64,
        warnings: Vec<Warning>,
    ) -> Self {
        Self {
            couplings,
            value,
            stop: StopReason::ClosedForm,
            kkt_residual: 0.0,
            iterations: 0,
            evaluations: 0,
            seconds,
            left_out_fraction: 0.0,
            asymmetry: None,
            warnings,
            trace: Vec::new(),
        }
    }
}

/// Fits Ising models with checked options.
///
/// ```
/// use mpf_ising::{Couplings, Exact, Fitter, Samples};
/// use ndarray::array;
///
/// let truth = Couplings::new(array![[0.5, -1.0], [-1.0, 0.2]])?;
/// let states = Exact::new(&truth)?.draw(50_000, 1);
/// let fit = Fitter::default().fit(&Samples::new(&states)?)?;
/// assert!(fit.stop.is_converged());
/// assert!(fit.couplings.mean_square_error(&truth) < 0.001);
/// # Ok::<(), mpf_ising::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Fitter<E: Estimator = Mpf> {
    estimator: E,
    options: FitOptions,
    minimizer: Minimizer,
}

impl<E: Estimator> Fitter<E> {
    /// Checks the options.
    ///
    /// # Errors
    /// [`mpf_core::Error::Option`] for a penalty that is negative or not finite and for bad limits;
    /// those of [`Estimator::check`].
    pub fn new(estimator: E, options: FitOptions) -> Result<Self> {
        for (name, value) in [("l1", options.l1), ("l2", options.l2)] {
            let holds = value >= 0.0 && value.is_finite();
            check_option(name, value, "finite and not negative", holds)?;
        }
        estimator.check(&options)?;
        Ok(Self {
            minimizer: Minimizer::new(options.minimizer.clone())?,
            estimator,
            options,
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
        Self::new(self.estimator.clone(), options)
    }

    /// Fits. The result is finite.
    ///
    /// # Errors
    /// [`Error::UnitCount`] for a start or fixed biases of other units; [`Error::NotFinite`] for
    /// fixed biases that are not; [`Error::Edge`]; [`Error::TooManyCouplings`] and
    /// [`Error::OutOfMemory`], before anything large is held; [`Error::NoFlipsLeft`] and
    /// [`Error::NoFlipsLeftOfUnit`]; [`Error::NothingFree`]; [`Error::TooLarge`] and
    /// [`Error::NotFiniteObjective`] where the result would overflow; [`Error::Core`] when the
    /// objective is not finite at the start, or for a checkpoint of another problem; those of
    /// [`Estimator::check_units`].
    pub fn fit(&self, samples: &Samples) -> Result<Fit> {
        self.fit_observed(samples, |_| {})
    }

    /// Fits, and calls `observer` after every iteration (after every unit in node-wise mode).
    /// Iterations whose couplings would overflow are skipped.
    ///
    /// # Errors
    /// As [`Fitter::fit`].
    pub fn fit_observed(
        &self,
        samples: &Samples,
        mut observer: impl FnMut(&FitProgress<'_>) + Send,
    ) -> Result<Fit> {
        self.fit_masked(samples, None, &mut observer)
    }

    /// As [`Fitter::fit_observed`], without the flips that are masked.
    pub(crate) fn fit_masked(
        &self,
        samples: &Samples,
        masked: Option<Masked>,
        observer: &mut (impl FnMut(&FitProgress<'_>) + Send),
    ) -> Result<Fit> {
        let problem = Problem::new(self, samples, masked)?;
        let d = samples.n_units();
        let any_free_field = (0..d).any(|i| matches!(problem.field(i), Field::Free { .. }));
        if problem.pairs.is_empty() && !any_free_field {
            return Err(Error::NothingFree);
        }
        let mut fit = match self.options.mode {
            Mode::Joint => problem.fit_jointly(observer)?,
            Mode::NodeWise => problem.fit_by_node(observer)?,
        };
        fit.left_out_fraction = problem.left_out_fraction;
        fit.warnings = problem.warnings(&fit);
        Ok(fit)
    }
}

/// Flips that need something unknown, and the means of what is known.
pub(crate) struct Masked {
    pub(crate) mask: Arc<FlipMask>,
    pub(crate) means: Vec<f64>,
}

/// One data set with the parameters that are free on it.
struct Problem<'a, E: Estimator> {
    fitter: &'a Fitter<E>,
    samples: &'a Samples,
    all_known: bool,
    mask: Option<Arc<FlipMask>>,
    left_out_fraction: f64,
    start: Option<SpinCouplings>,
    means: Vec<f64>,
    constant: Vec<bool>,
    pairs: Vec<(usize, usize)>,
}

impl<'a, E: Estimator> Problem<'a, E> {
    fn new(fitter: &'a Fitter<E>, samples: &'a Samples, masked: Option<Masked>) -> Result<Self> {
        let options = &fitter.options;
        let d = samples.n_units();
        fitter.estimator.check_units(d)?;
        options.biases.check(d)?;
        if let Some(start) = &options.start
            && start.n_units() != d
        {
            return Err(Error::UnitCount {
                what: "starting couplings",
                expected: d,
                found: start.n_units(),
            });
        }
        let all_known = masked.is_none();
        let (means, unknown) = match masked {
            None => (samples.means(), None),
            Some(masked) => (masked.means, Some(masked.mask)),
        };
        let constant: Vec<bool> = means.iter().map(|m| *m <= 0.0 || *m >= 1.0).collect();
        // What the result will need is asked for before the work and not after it.
        check_square(d)?;
        let mut pairs = free_pairs(options, d)?;
        pairs.retain(|&(i, j)| !constant[i] && !constant[j]);
        let (mask, left_out_fraction) = flip_mask(samples, fitter.estimator.neighbourhood())?;
        if options.mode == Mode::NodeWise
            && let Some(unit) = mask.as_ref().and_then(|mask| mask.first_without_flips(d))
        {
            return Err(Error::NoFlipsLeftOfUnit { unit });
        }
        Ok(Self {
            fitter,
            samples,
            all_known,
            mask: unknown.or(mask),
            left_out_fraction,
            start: options.start.as_ref().map(Couplings::to_spins),
            means,
            constant,
            pairs,
        })
    }

    fn options(&self) -> &FitOptions {
        &self.fitter.options
    }

    fn field(&self, unit: usize) -> Field {
        let mean = self.means[unit];
        match &self.options().biases {
            Biases::Fixed(biases) => Field::FixedBias(biases[unit]),
            Biases::FixedFields(fields) => Field::Fixed(fields[unit]),
            Biases::Free if self.constant[unit] => {
                let n = self.samples.n_effective();
                let odds = (mean * n + 0.5) / ((1.0 - mean) * n + 0.5);
                // J_ii = −ln odds and no couplings: h = −J_ii/2.
                Field::Fixed(0.5 * odds.min(f64::MAX).ln())
            }
            Biases::Free => Field::Free {
                deviation: (mean * (1.0 - mean)).sqrt(),
            },
        }
    }

    /// Minimises over the flips of `units` and the couplings of `pairs`. `share` is the part of
    /// the coupling penalties that these units carry.
    fn minimize(
        &self,
        units: Range<usize>,
        pairs: Vec<(usize, usize)>,
        share: f64,
        minimizer: &Minimizer,
        mut observer: impl FnMut(&mpf_core::Progress<'_>, &Basis),
    ) -> Result<(Vec<f64>, Minimum)> {
        let basis = Basis::new(units.clone(), &pairs, &self.means, |i| self.field(i));
        let n_spin_params = units.len() + pairs.len();
        let start = match &self.start {
            None => vec![0.0; basis.n_params()],
            Some(start) => basis.coordinates(&spin_params(start, &units, &pairs)),
        };
        let penalised = self.penalised(units, pairs, share, &basis)?;
        let mut objective = Standardized::new(penalised, &basis);
        let lambda = basis.l1_weights(share * self.options().l1);
        let observer = |progress: &mpf_core::Progress<'_>| observer(progress, &basis);
        let minimum = minimizer.minimize_l1(&mut objective, &start, &lambda, observer)?;
        let mut spins = vec![0.0; n_spin_params];
        basis.to_spins(&minimum.theta, &mut spins);
        Ok((spins, minimum))
    }

    /// The objective with its smooth penalty, over (h of `units`, K of `pairs`).
    fn penalised<'s>(
        &'s self,
        units: Range<usize>,
        pairs: Vec<(usize, usize)>,
        share: f64,
        basis: &Basis,
    ) -> Result<Ridge<Box<dyn Objective + 's>>> {
        let options = self.options();
        let l2_on_fields = if options.l2_on_fields {
            options.l2
        } else {
            0.0
        };
        let ridge = basis
            .free_fields()
            .map(|free| if free { l2_on_fields } else { 0.0 })
            .chain(pairs.iter().map(|_| share * options.l2))
            .collect();
        let estimator = &self.fitter.estimator;
        let flow = estimator.objective(Terms {
            samples: self.samples,
            units,
            pairs,
            mask: self.mask.clone(),
            complement: estimator.neighbourhood() == Neighbourhood::SingleFlipsAndComplement,
            kernel: Kernel {
                // Node by node, the units run in parallel already.
                serial: options.mode == Mode::NodeWise,
                ..Kernel::default()
            },
        });
        Ok(Ridge::new(flow, ridge)?)
    }

    fn fit_jointly(&self, observer: &mut (impl FnMut(&FitProgress<'_>) + Send)) -> Result<Fit> {
        let d = self.samples.n_units();
        let assemble = |spins: &[f64]| self.couplings(&spins[..d], &spins[d..]);
        let (spins, minimum) = self.minimize(
            0..d,
            self.pairs.clone(),
            1.0,
            &self.fitter.minimizer,
            |progress, basis| {
                let (fields, couplings) = basis.sums(progress.theta);
                if !are_couplings(fields, couplings) {
                    return;
                }
                let couplings = || {
                    let mut spins = vec![0.0; d + self.pairs.len()];
                    basis.to_spins(progress.theta, &mut spins);
                    assemble(&spins).expect("their sums are numbers")
                };
                observer(&FitProgress {
                    iteration: progress.iteration,
                    evaluations: progress.evaluations,
                    value: progress.value,
                    gradient_norm: progress.gradient_norm,
                    seconds: progress.seconds,
                    couplings: &couplings,
                });
            },
        )?;
        Ok(Fit {
            couplings: assemble(&spins)?,
            value: minimum.value,
            stop: minimum.stop,
            kkt_residual: minimum.kkt_residual,
            iterations: minimum.iterations,
            evaluations: minimum.evaluations,
            seconds: minimum.seconds,
            left_out_fraction: 0.0,
            asymmetry: None,
            warnings: Vec::new(),
            trace: minimum.trace,
        })
    }

    /// J from the fields of all units and the couplings of the free pairs.
    fn couplings(&self, fields: &[f64], couplings: &[f64]) -> Result<Couplings> {
        let d = self.samples.n_units();
        let mut spins = SpinCouplings {
            fields: Array1::from(fields.to_vec()),
            couplings: Array2::zeros((d, d)),
        };
        for (&(i, j), &k) in self.pairs.iter().zip(couplings) {
            spins.couplings[[i, j]] = k;
            spins.couplings[[j, i]] = k;
        }
        Couplings::from_spins(&spins)
    }

    fn warnings(&self, fit: &Fit) -> Vec<Warning> {
        let options = self.options();
        let penalised = options.l1 > 0.0 || options.l2 > 0.0;
        let mut warnings = Vec::new();
        warnings.extend(Warning::constant_units(&self.means));
        warnings.extend(Warning::left_out(fit.left_out_fraction));
        if !penalised && self.all_known {
            warnings.extend(Warning::separable_pairs(self.samples, &self.pairs));
        }
        warnings.extend(Warning::run_away(
            &fit.couplings,
            &self.pairs,
            self.samples.n_effective(),
        ));
        warnings.extend(Warning::not_converged(fit.stop, fit.kkt_residual));
        warnings
    }
}

/// The pairs of the support, few enough for the objectives of these options.
fn free_pairs(options: &FitOptions, d: usize) -> Result<Vec<(usize, usize)>> {
    let units = match options.mode {
        Mode::Joint => d,
        Mode::NodeWise => 1,
    };
    let at_most = |n_couplings: usize| match options.mode {
        Mode::Joint => n_couplings,
        Mode::NodeWise => n_couplings.min(d),
    };
    if options.support == Support::Full {
        check_count(units, d, at_most(all_pairs(d)))?;
    }
    let pairs = options.support.pairs(d)?;
    check_count(units, d, at_most(pairs.len()))?;
    Ok(pairs)
}

/// Whether h and K with these Σ_i |h_i| and Σ_{i<j} |K_ij| are small enough for [`Couplings`].
fn are_couplings(fields: f64, couplings: f64) -> bool {
    // Σ_ij |J_ij| ≤ 8 Σ_{i<j} |K_ij| + 2 Σ_i |h_i|, and twice that must be a number; the rest is
    // for rounding.
    (32.0 * couplings + 8.0 * fields).is_finite()
}

/// θ = (h of `units`, K of `pairs`).
fn spin_params(spins: &SpinCouplings, units: &Range<usize>, pairs: &[(usize, usize)]) -> Vec<f64> {
    let fields = units.clone().map(|i| spins.fields[i]);
    let couplings = pairs.iter().map(|&pair| spins.couplings[pair]);
    fields.chain(couplings).collect()
}

/// The pairs that have `unit` as an end.
fn pairs_of(pairs: &[(usize, usize)], unit: usize) -> Vec<(usize, usize)> {
    let touches = |&(i, j): &(usize, usize)| i == unit || j == unit;
    pairs.iter().copied().filter(touches).collect()
}
