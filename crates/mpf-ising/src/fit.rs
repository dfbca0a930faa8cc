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
use crate::flow::{
    LogFlow, MarginSum, Neighbourhood, Terms, all_pairs, check_count, left_out_flips,
};
use crate::kernel::{FlowRate, Kernel, LeftOut};
use crate::support::{Biases, Support};
use crate::warning::Warning;
use mpf_core::{
    Form, Minimizer, MinimizerOptions, Minimum, Objective, Ridge, Snapshot, StopReason, TracePoint,
};
use ndarray::{Array1, Array2};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

pub use nodes::NodeSnapshot;

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
    /// Where probability may flow. Default: all single flips.
    pub neighbourhood: Neighbourhood,
    /// K, or its logarithm. Default: K.
    pub form: Form,
    /// The free couplings. Default: all.
    pub support: Support,
    /// The biases. Default: free.
    pub biases: Biases,
    /// Joint or node-wise. Default: joint.
    pub mode: Mode,
    /// Where to start. Default: zero in standardised units (every state equally likely).
    pub start: Option<Couplings>,
    /// Tolerance, limits, cancel handle, snapshots.
    pub minimizer: MinimizerOptions,
    /// Goes on from a snapshot of an earlier fit to the same data with the same options, instead
    /// of from `start`. Default: none.
    pub resume: Option<FitSnapshot>,
}

/// Everything that a fit needs to go on as if it had never stopped, to the same bits. It can be
/// written and read with any `serde` format that keeps every bit of a number. It knows neither
/// data nor options: whoever keeps one must see to it that they are the same.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FitSnapshot {
    /// One minimisation between two iterations.
    Joint(Snapshot),
    /// The rows that are done.
    NodeWise(NodeSnapshot),
}

/// Which function of the margins is minimised. [`Mpf`] is the one of this crate; rivals that
/// differ in φ alone live elsewhere and share everything else.
pub trait Estimator: Sync {
    /// The objective of `terms`, over θ = (h of its units, K of its pairs).
    fn objective<'a>(&self, terms: Terms<'a>) -> Box<dyn Objective + 'a>;
}

/// Minimum probability flow: K, or ln K.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mpf {
    /// Which of the two.
    pub form: Form,
}

impl Estimator for Mpf {
    fn objective<'a>(&self, terms: Terms<'a>) -> Box<dyn Objective + 'a> {
        let sum = MarginSum::new(terms, FlowRate::default());
        match self.form {
            Form::Sum => Box::new(sum),
            Form::Log => Box::new(LogFlow(sum)),
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
    snapshot: &'a dyn Fn() -> Option<FitSnapshot>,
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
            snapshot: &|| None,
        }
    }

    /// The couplings as they are now; finite. O(d²).
    pub fn couplings(&self) -> Couplings {
        (self.couplings)()
    }

    /// What it takes to go on from here, where [`MinimizerOptions::snapshots`] asks for it.
    pub fn snapshot(&self) -> Option<FitSnapshot> {
        (self.snapshot)()
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
    /// What it takes to go on from the last iteration, or with the rows that are left, where
    /// [`MinimizerOptions::snapshots`] asks for it: for fits that were broken off.
    #[serde(skip)]
    pub snapshot: Option<FitSnapshot>,
}

/// Fits Ising models with checked options.
///
/// ```
/// use mpf_ising::{Couplings, Exact, Fitter, Samples};
/// use ndarray::array;
///
/// let truth = Couplings::new(array![[0.5, -1.0], [-1.0, 0.2]])?;
/// let states = Exact::new(&truth)?.draw(50_000, &mut mpf_core::rng::stream(1, 0));
/// let fit = Fitter::default().fit(&Samples::new(&states)?)?;
/// assert!(fit.stop.is_converged());
/// assert!(fit.couplings.mean_square_error(&truth) < 0.001);
/// # Ok::<(), mpf_ising::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Fitter {
    options: FitOptions,
    minimizer: Minimizer,
}

impl Fitter {
    /// Checks the options.
    ///
    /// # Errors
    /// [`Error::Option`] for a penalty that is negative or not finite;
    /// [`Error::NodeWiseComplement`]; [`Error::OtherMode`] for a snapshot of the other mode;
    /// [`Error::Core`] for bad limits.
    pub fn new(options: FitOptions) -> Result<Self> {
        for (name, value) in [("l1", options.l1), ("l2", options.l2)] {
            if !(value >= 0.0 && value.is_finite()) {
                return Err(Error::Option {
                    name,
                    value,
                    requirement: "finite and not negative",
                });
            }
        }
        if options.mode == Mode::NodeWise
            && options.neighbourhood == Neighbourhood::SingleFlipsAndComplement
        {
            return Err(Error::NodeWiseComplement);
        }
        match (&options.resume, options.mode) {
            (Some(FitSnapshot::NodeWise(_)), Mode::Joint)
            | (Some(FitSnapshot::Joint(_)), Mode::NodeWise) => return Err(Error::OtherMode),
            _ => {}
        }
        Ok(Self {
            minimizer: Minimizer::new(options.minimizer.clone())?,
            options,
        })
    }

    /// The options that it was made from.
    pub fn options(&self) -> &FitOptions {
        &self.options
    }

    /// Fits by minimum probability flow.
    ///
    /// # Errors
    /// As [`Fitter::fit_with`].
    pub fn fit(&self, samples: &Samples) -> Result<Fit> {
        self.fit_observed(samples, |_| {})
    }

    /// As [`Fitter::fit`], calling `observer` after every iteration (after every unit in node-wise
    /// mode) at which the couplings are not too large to be any.
    ///
    /// # Errors
    /// As [`Fitter::fit_with`].
    pub fn fit_observed(
        &self,
        samples: &Samples,
        observer: impl FnMut(&FitProgress<'_>) + Send,
    ) -> Result<Fit> {
        let mpf = Mpf {
            form: self.options.form,
        };
        self.fit_with(&mpf, samples, observer)
    }

    /// Fits by any estimator. What it returns is finite.
    ///
    /// # Errors
    /// [`Error::UnitCount`] for a start or fixed biases of other units; [`Error::NotFinite`] for
    /// fixed biases that are not; [`Error::Edge`]; [`Error::TooManyCouplings`] and
    /// [`Error::OutOfMemory`], before anything large is held; [`Error::NoFlipsLeft`] and
    /// [`Error::NoFlipsLeftOfUnit`]; [`Error::NothingFree`]; [`Error::TooLarge`] and
    /// [`Error::NotFiniteObjective`] where the result would overflow; and [`Error::Core`] when the
    /// objective is not finite at the start, or for a snapshot of another problem.
    pub fn fit_with(
        &self,
        estimator: &impl Estimator,
        samples: &Samples,
        mut observer: impl FnMut(&FitProgress<'_>) + Send,
    ) -> Result<Fit> {
        self.fit_masked(estimator, samples, None, &mut observer)
    }

    /// As [`Fitter::fit_with`], without the flips that are masked.
    pub(crate) fn fit_masked(
        &self,
        estimator: &impl Estimator,
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
            Mode::Joint => problem.fit_jointly(estimator, observer)?,
            Mode::NodeWise => problem.fit_by_node(estimator, observer)?,
        };
        fit.left_out_fraction = problem.left_out_fraction;
        fit.warnings = problem.warnings(&fit);
        Ok(fit)
    }
}

/// Flips that need something unknown, and the means of what is known.
pub(crate) struct Masked {
    pub(crate) left_out: Arc<LeftOut>,
    pub(crate) means: Vec<f64>,
}

/// One data set with the parameters that are free on it.
struct Problem<'a> {
    fitter: &'a Fitter,
    samples: &'a Samples,
    all_known: bool,
    left_out: Option<Arc<LeftOut>>,
    left_out_fraction: f64,
    start: Option<SpinCouplings>,
    means: Vec<f64>,
    constant: Vec<bool>,
    pairs: Vec<(usize, usize)>,
}

impl<'a> Problem<'a> {
    fn new(fitter: &'a Fitter, samples: &'a Samples, masked: Option<Masked>) -> Result<Self> {
        let options = &fitter.options;
        let d = samples.n_units();
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
        let (means, mask) = match masked {
            None => (samples.means(), None),
            Some(masked) => (masked.means, Some(masked.left_out)),
        };
        let constant: Vec<bool> = means.iter().map(|m| *m <= 0.0 || *m >= 1.0).collect();
        // What the result will need is asked for before the work and not after it.
        check_square(d)?;
        let mut pairs = free_pairs(options, d)?;
        pairs.retain(|&(i, j)| !constant[i] && !constant[j]);
        let (left_out, left_out_fraction) = left_out_flips(samples, options.neighbourhood)?;
        if options.mode == Mode::NodeWise
            && let Some(unit) = left_out.as_ref().and_then(|l| l.first_without_flips(d))
        {
            return Err(Error::NoFlipsLeftOfUnit { unit });
        }
        Ok(Self {
            fitter,
            samples,
            all_known,
            left_out: mask.or(left_out),
            left_out_fraction,
            start: options.start.as_ref().map(Couplings::to_spins),
            means,
            constant,
            pairs,
        })
    }
}

impl Problem<'_> {
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
        estimator: &impl Estimator,
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
        let penalised = self.penalised(estimator, units, pairs, share, &basis)?;
        let mut objective = Standardized::new(penalised, &basis);
        let lambda = basis.l1_weights(share * self.options().l1);
        let observer = |progress: &mpf_core::Progress<'_>| observer(progress, &basis);
        let minimum = match &self.options().resume {
            Some(FitSnapshot::Joint(snapshot)) => {
                minimizer.resume(&mut objective, snapshot.clone(), &lambda, observer)?
            }
            _ => minimizer.minimize_l1(&mut objective, &start, &lambda, observer)?,
        };
        let mut spins = vec![0.0; n_spin_params];
        basis.to_spins(&minimum.theta, &mut spins);
        Ok((spins, minimum))
    }

    /// The objective with its smooth penalty, over (h of `units`, K of `pairs`).
    fn penalised<'s>(
        &'s self,
        estimator: &impl Estimator,
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
        let flow = estimator.objective(Terms {
            samples: self.samples,
            units,
            pairs,
            left_out: self.left_out.clone(),
            complement: options.neighbourhood == Neighbourhood::SingleFlipsAndComplement,
            kernel: Kernel {
                // Node by node, the units run in parallel already.
                serial: options.mode == Mode::NodeWise,
                ..Kernel::default()
            },
        });
        Ok(Ridge::new(flow, ridge)?)
    }

    fn fit_jointly(
        &self,
        estimator: &impl Estimator,
        observer: &mut (impl FnMut(&FitProgress<'_>) + Send),
    ) -> Result<Fit> {
        let d = self.samples.n_units();
        let assemble = |spins: &[f64]| self.couplings(&spins[..d], &spins[d..]);
        let (spins, minimum) = self.minimize(
            estimator,
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
                    snapshot: &|| progress.snapshot.cloned().map(FitSnapshot::Joint),
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
            snapshot: minimum.snapshot.map(FitSnapshot::Joint),
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
