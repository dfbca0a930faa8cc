//! Fitting filters: two trainers of MPF, and maximum likelihood, under one interface.
//!
//! ```text
//! alternating   Ĵ ← argmin K(J; D, θ_H), with x′ fixed;  θ_H ← Ĵ;  redraw x′   (Appendix H)
//! stochastic    J ← J − rate · ∇ ln K(J; batch, θ_H = J),  x′ redrawn at every step
//! likelihood    Ĵ ← argmax ⟨ln p(x; J)⟩
//! ```
//!
//! The alternating trainer is the paper's. In a hundred dimensions its inner minimisation leaves
//! the region that the neighbours tell of, and the stochastic trainer is the one to take.
//!
//! K has no ln |det J| to hold J up, and a fit tends to lose a direction of the data: the filters
//! become nearly dependent, and the likelihood falls by several nats. Both trainers of MPF look
//! for that and replace a filter where they find it; the result says how often.

mod alternating;
mod snapshot;
mod stochastic;

pub use alternating::{Alternating, Rule};
pub use snapshot::Snapshot;
pub use stochastic::{Metropolis, Stochastic};

use crate::error::check_count;
use crate::likelihood::NegativeLogLikelihood;
use crate::model::Filters;
use crate::{Error, Result};
use mpf_core::linalg::singular_values;
use mpf_core::{Cancel, Minimizer, MinimizerOptions, StopReason};
use ndarray::{Array2, ArrayView1, ArrayView2, Axis};
use serde::{Deserialize, Serialize};
use snapshot::State;
use std::time::{Duration, Instant};

/// A direction counts as lost when the smallest singular value of J is below this part of the
/// median one.
pub const LOST: f64 = 0.3;

/// How J is learned.
#[derive(Clone, Debug)]
pub enum Trainer {
    /// MPF by stochastic gradients, the neighbours drawn anew at every step.
    Stochastic(Stochastic),
    /// The paper's MPF: L-BFGS with the neighbours fixed, then new neighbours.
    Alternating(Alternating),
    /// Maximum likelihood by L-BFGS, the yardstick.
    MaximumLikelihood {
        /// Most iterations. 300 is enough at d = 100, and still creeping.
        max_iterations: usize,
    },
}

impl Trainer {
    /// The stochastic trainer of MPF with its defaults.
    pub fn stochastic() -> Self {
        Self::Stochastic(Stochastic::default())
    }

    /// The paper's trainer of MPF with its defaults.
    pub fn alternating() -> Self {
        Self::Alternating(Alternating::default())
    }

    /// Maximum likelihood, 300 iterations at most.
    pub fn maximum_likelihood() -> Self {
        Self::MaximumLikelihood {
            max_iterations: 300,
        }
    }

    /// Most steps that it can take: updates, rounds, or iterations.
    pub fn n_steps(&self) -> usize {
        match self {
            Self::Stochastic(options) => options.n_steps(),
            Self::Alternating(options) => options.rounds,
            Self::MaximumLikelihood { max_iterations } => *max_iterations,
        }
    }
}

/// Options of a [`Fitter`], unchecked.
#[derive(Clone, Debug)]
pub struct FitOptions {
    /// How J is learned. Default: [`Trainer::stochastic`].
    pub trainer: Trainer,
    /// Where J starts. Default: the paper's N(0, 0.01) entries, by the seed.
    pub start: Option<Filters>,
    /// The seed of everything random. Default 0.
    pub seed: u64,
    /// The stochastic trainer measures the likelihood every so many steps, off the clock; the
    /// others do it at every one. Default 50.
    pub report_every: usize,
    /// Most seconds of learning time. Default +∞.
    pub max_seconds: f64,
    /// The handle that stops the run; what was learned is kept.
    pub cancel: Cancel,
    /// Whether a [`Snapshot`] is taken, off the clock, whenever the likelihood is measured. It
    /// costs a copy of all that the trainer remembers: a few matrices, for the stochastic one
    /// the order of the samples too. Default no.
    pub snapshots: bool,
    /// Goes on from a snapshot of an earlier fit to the same data with the same options, instead
    /// of from `start`. Default: none.
    pub resume: Option<Snapshot>,
}

impl Default for FitOptions {
    fn default() -> Self {
        Self {
            trainer: Trainer::stochastic(),
            start: None,
            seed: 0,
            report_every: 50,
            max_seconds: f64::INFINITY,
            cancel: Cancel::new(),
            snapshots: false,
            resume: None,
        }
    }
}

/// Where a fit is. Every number is finite.
#[derive(Clone, Copy, Debug)]
pub struct FitProgress<'a> {
    /// Steps so far; 0 is the start.
    pub step: usize,
    /// The filters, row by row.
    pub theta: &'a [f64],
    /// ⟨ln p⟩ over the data, in nats.
    pub log_likelihood: f64,
    /// Learning time in seconds: neither observers nor likelihoods count.
    pub seconds: f64,
    /// What it takes to go on from here, where [`FitOptions::snapshots`] asks for it; none at the
    /// start and the end of MPF.
    pub snapshot: Option<&'a Snapshot>,
}

/// A [`FitProgress`] without its filters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracePoint {
    /// Steps so far.
    pub step: usize,
    /// ⟨ln p⟩ over the data, in nats.
    pub log_likelihood: f64,
    /// Learning time in seconds.
    pub seconds: f64,
}

/// A filter that was replaced because J had lost a direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rescue {
    /// The steps taken before.
    pub step: usize,
    /// The filter that was replaced.
    pub filter: usize,
    /// The smallest singular value of J then.
    pub smallest_singular_value: f64,
    /// The median one.
    pub median_singular_value: f64,
}

/// What a fit found, and what happened on the way. Every number is finite.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[must_use = "look at `stop`, `rescued` and the singular values"]
pub struct Fit {
    /// J.
    pub filters: Filters,
    /// ⟨ln p⟩ over the data, in nats.
    pub log_likelihood: f64,
    /// Why it stopped. The trainers of MPF run to the end of their schedule, which is
    /// [`StopReason::IterationLimit`].
    pub stop: StopReason,
    /// Updates, rounds or iterations.
    pub steps: usize,
    /// Learning time in seconds.
    pub seconds: f64,
    /// The mean chance that Metropolis would take the last trajectories, ⟨min(1, e^(H − H′))⟩;
    /// `None` without trajectories.
    pub acceptance: Option<f64>,
    /// Weights that were clipped, of all that were computed.
    pub clipped_fraction: f64,
    /// The filters that were replaced.
    pub rescued: Vec<Rescue>,
    /// The smallest singular value of J.
    pub smallest_singular_value: f64,
    /// The median one.
    pub median_singular_value: f64,
    /// The likelihood on the way.
    pub trace: Vec<TracePoint>,
}

impl Fit {
    /// Whether J has lost a direction of the data: its likelihood is then several nats too low.
    pub fn lost_a_direction(&self) -> bool {
        self.smallest_singular_value < LOST * self.median_singular_value
    }
}

/// Fits filters to whitened data.
///
/// ```
/// use mpf_ica::{Filters, FitOptions, Fitter, Trainer};
/// use ndarray::array;
///
/// // Two Laplace sources, mixed.
/// let truth = Filters::new(array![[1.0, 0.4], [-0.3, 1.2]])?;
/// let data = truth.draw(5000, &mut mpf_core::rng::stream(1, 0))?;
/// let fit = Fitter::new(FitOptions::default())?.fit(data.view())?;
/// let best = Fitter::new(FitOptions {
///     trainer: Trainer::maximum_likelihood(),
///     ..Default::default()
/// })?
/// .fit(data.view())?;
/// assert!(best.log_likelihood - fit.log_likelihood < 0.005); // nats
/// # Ok::<(), mpf_ica::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Fitter {
    options: FitOptions,
}

impl Fitter {
    /// Checks the options.
    ///
    /// # Errors
    /// [`Error::Option`] for one outside its range.
    pub fn new(options: FitOptions) -> Result<Self> {
        use crate::error::check_option;
        check_option(
            "report_every",
            options.report_every as f64,
            "at least 1",
            options.report_every >= 1,
        )?;
        check_option(
            "max_seconds",
            options.max_seconds,
            "not negative",
            options.max_seconds >= 0.0,
        )?;
        match &options.trainer {
            Trainer::Stochastic(trainer) => trainer.check()?,
            Trainer::Alternating(trainer) => trainer.check()?,
            Trainer::MaximumLikelihood { .. } => {}
        }
        Ok(Self { options })
    }

    /// Fits the rows of `data`, which should be [whitened](crate::whiten).
    ///
    /// # Errors
    /// [`Error::TooFewSamples`] unless there are more samples than dimensions,
    /// [`Error::NonFinite`], [`Error::SingularFilters`] for a start without an inverse,
    /// [`Error::NotWhitened`] for MPF of data whose scale is far from 1, [`Error::Diverged`]
    /// for a rate that is far too high, [`Error::Overflow`] and [`Error::Core`] for filters that
    /// become too large for their likelihood or their singular values, and
    /// [`Error::OtherSnapshot`] or [`Error::Core`] for a snapshot that does not belong to the data
    /// and the trainer.
    pub fn fit(&self, data: ArrayView2<'_, f64>) -> Result<Fit> {
        self.fit_observed(data, |_| {})
    }

    /// [`Fitter::fit`], calling `observer` at the start and whenever the likelihood is measured.
    ///
    /// # Errors
    /// As [`Fitter::fit`].
    pub fn fit_observed(
        &self,
        data: ArrayView2<'_, f64>,
        mut observer: impl FnMut(&FitProgress<'_>),
    ) -> Result<Fit> {
        let (n_samples, n_dims) = data.dim();
        if n_samples <= n_dims || n_dims == 0 {
            return Err(Error::TooFewSamples { n_samples, n_dims });
        }
        let data = data.as_standard_layout();
        let start = match &self.options.start {
            Some(start) => start.clone(),
            None => Filters::random(n_dims, self.options.seed),
        };
        check_count("filters of the start", n_dims, start.n_dims())?;
        let resumed = self.options.resume.as_ref();
        if resumed.is_some_and(|snapshot| !snapshot.is_finite()) {
            return Err(mpf_core::Error::Checkpoint {
                problem: "it has numbers that no fit writes".to_owned(),
            }
            .into());
        }
        let run = Run {
            data: data.view(),
            likelihood: NegativeLogLikelihood::new(data.view())?,
            options: &self.options,
            observer: &mut observer,
            before: resumed.map_or(0.0, |s| s.seconds),
            began: Instant::now(),
            paused: Duration::ZERO,
            trace: resumed.map_or(Vec::new(), |s| s.trace.clone()),
            rescued: resumed.map_or(Vec::new(), |s| s.rescued.clone()),
        };
        if !matches!(self.options.trainer, Trainer::MaximumLikelihood { .. }) {
            check_scale(run.data)?;
        }
        let Some(snapshot) = resumed else {
            return match &self.options.trainer {
                Trainer::Stochastic(trainer) => trainer.begin(run, start),
                Trainer::Alternating(trainer) => trainer.begin(run, start),
                Trainer::MaximumLikelihood { max_iterations } => {
                    maximise_likelihood(run, &start, *max_iterations, None)
                }
            };
        };
        let same_data = (snapshot.n_samples, snapshot.n_dims) == (n_samples, n_dims);
        match (&self.options.trainer, &snapshot.state) {
            (Trainer::Stochastic(trainer), State::Stochastic(course))
                if same_data && trainer.suits(course, n_samples, n_dims) =>
            {
                trainer.run(run, course.clone())
            }
            (Trainer::Alternating(trainer), State::Alternating(course))
                if same_data && course.suits(n_dims) =>
            {
                trainer.run(run, course.clone())
            }
            (Trainer::MaximumLikelihood { max_iterations }, State::MaximumLikelihood(snapshot))
                if same_data =>
            {
                maximise_likelihood(run, &start, *max_iterations, Some(snapshot))
            }
            _ => Err(Error::OtherSnapshot {
                n_samples,
                n_dims,
                found_samples: snapshot.n_samples,
                found_dims: snapshot.n_dims,
            }),
        }
    }
}

/// Checks that every column is of order 1, as the reach of the neighbours is.
fn check_scale(data: ArrayView2<'_, f64>) -> Result<()> {
    let n = data.nrows() as f64;
    for (column, values) in data.axis_iter(Axis(1)).enumerate() {
        let root_mean_square = (values.dot(&values) / n).sqrt();
        if !(0.1..=10.0).contains(&root_mean_square) {
            return Err(Error::NotWhitened {
                column,
                root_mean_square,
            });
        }
    }
    Ok(())
}

/// A fit under way: what the trainers share.
struct Run<'a> {
    data: ArrayView2<'a, f64>,
    likelihood: NegativeLogLikelihood<'a>,
    options: &'a FitOptions,
    observer: &'a mut dyn FnMut(&FitProgress<'_>),
    /// Learning time of the run that is resumed.
    before: f64,
    began: Instant,
    /// Time that does not count.
    paused: Duration,
    trace: Vec<TracePoint>,
    rescued: Vec<Rescue>,
}

/// What a trainer tells at its end.
struct Outcome {
    filters: Filters,
    stop: StopReason,
    steps: usize,
    acceptance: Option<f64>,
    clipped_fraction: f64,
}

impl Run<'_> {
    /// Learning time.
    fn seconds(&self) -> f64 {
        let now = self.began.elapsed().saturating_sub(self.paused);
        self.before + now.as_secs_f64()
    }

    /// Measures the likelihood and tells the observer, off the clock. `state` is what the trainer
    /// needs to go on, if it can.
    fn report(
        &mut self,
        step: usize,
        filters: &Filters,
        state: impl FnOnce() -> Option<State>,
    ) -> Result<()> {
        let seconds = self.seconds();
        let since = Instant::now();
        let log_likelihood = self.likelihood.log_likelihood(filters)?;
        self.tell(step, filters.theta(), log_likelihood, seconds, state);
        self.paused += since.elapsed();
        Ok(())
    }

    fn tell(
        &mut self,
        step: usize,
        theta: &[f64],
        log_likelihood: f64,
        seconds: f64,
        state: impl FnOnce() -> Option<State>,
    ) {
        self.trace.push(TracePoint {
            step,
            log_likelihood,
            seconds,
        });
        let state = if self.options.snapshots {
            state()
        } else {
            None
        };
        let snapshot = state.map(|state| Snapshot {
            n_samples: self.data.nrows(),
            n_dims: self.data.ncols(),
            seconds,
            trace: self.trace.clone(),
            rescued: self.rescued.clone(),
            state,
        });
        (self.observer)(&FitProgress {
            step,
            theta,
            log_likelihood,
            seconds,
            snapshot: snapshot.as_ref(),
        });
    }

    /// Whether the run must end before its time.
    fn must_stop(&self) -> Option<StopReason> {
        if self.options.cancel.is_cancelled() {
            Some(StopReason::Cancelled)
        } else if self.seconds() >= self.options.max_seconds {
            Some(StopReason::TimeLimit)
        } else {
            None
        }
    }

    /// Looks for a lost direction and gives it back: with u and z the singular vectors of the
    /// smallest singular value, the filter with the largest |u_k| becomes zᵀ/⟨|z·x|⟩. Returns the
    /// filter that changed.
    ///
    /// One at a time: early in a fit several singular values are small and most of them grow by
    /// themselves.
    fn rescue(&mut self, step: usize, filters: &mut Filters) -> Result<Option<usize>> {
        let d = filters.n_dims();
        let (u, values, vt) = singular_values(filters.as_array())?;
        let (smallest, median) = (values[d - 1], median(values.view()));
        let z = vt.row(d - 1);
        let size = self.data.dot(&z).mapv(f64::abs).sum() / self.data.nrows() as f64;
        if smallest >= LOST * median || size == 0.0 {
            return Ok(None);
        }
        let weights = u.column(d - 1).mapv(f64::abs);
        let filter = (0..d)
            .max_by(|a, b| weights[*a].total_cmp(&weights[*b]))
            .expect("d is not zero");
        filters.replace(filter, (&z / size).view());
        self.rescued.push(Rescue {
            step,
            filter,
            smallest_singular_value: smallest,
            median_singular_value: median,
        });
        Ok(Some(filter))
    }

    fn finish(mut self, outcome: Outcome) -> Result<Fit> {
        let seconds = self.seconds();
        // The last steps may not be in the trace, nor an average of them.
        self.report(outcome.steps, &outcome.filters, || None)?;
        let log_likelihood = self.trace.last().expect("just reported").log_likelihood;
        let values = outcome.filters.singular_values()?;
        Ok(Fit {
            log_likelihood,
            stop: outcome.stop,
            steps: outcome.steps,
            seconds,
            acceptance: outcome.acceptance,
            clipped_fraction: outcome.clipped_fraction,
            rescued: self.rescued,
            smallest_singular_value: values[values.len() - 1],
            median_singular_value: median(ArrayView1::from(&values)),
            filters: outcome.filters,
            trace: self.trace,
        })
    }
}

/// The mean of the filters of the last steps.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct RunningMean {
    n: usize,
    #[serde(with = "crate::model::square")]
    mean: Array2<f64>,
}

impl RunningMean {
    fn new(n_dims: usize) -> Self {
        Self {
            n: 0,
            mean: Array2::zeros((n_dims, n_dims)),
        }
    }

    fn add(&mut self, filters: &Filters) {
        self.n += 1;
        let weight = 1.0 / self.n as f64;
        self.mean.zip_mut_with(&filters.as_array(), |mean, j| {
            *mean += weight * (j - *mean);
        });
    }

    fn finish(self) -> Option<Filters> {
        (self.n > 0).then(|| Filters::from_theta(self.mean.as_slice().expect("standard layout")))
    }
}

/// The median of sorted values.
fn median(sorted: ArrayView1<'_, f64>) -> f64 {
    let n = sorted.len();
    // Halved before they are added: the sum may overflow.
    0.5 * sorted[(n - 1) / 2] + 0.5 * sorted[n / 2]
}

fn maximise_likelihood(
    mut run: Run<'_>,
    start: &Filters,
    max_iterations: usize,
    resume: Option<&mpf_core::Snapshot>,
) -> Result<Fit> {
    let minimizer = Minimizer::new(MinimizerOptions {
        max_iterations,
        max_seconds: run.options.max_seconds,
        cancel: run.options.cancel.clone(),
        snapshots: run.options.snapshots,
        ..Default::default()
    })?;
    let mut objective = NegativeLogLikelihood::new(run.data)?;
    let observer = |progress: &mpf_core::Progress<'_>| {
        let state = || Some(State::MaximumLikelihood(progress.snapshot?.clone()));
        run.tell(
            progress.iteration,
            progress.theta,
            -progress.value,
            progress.seconds,
            state,
        );
    };
    let found = match resume {
        Some(snapshot) => minimizer.resume(&mut objective, snapshot.clone(), &[], observer)?,
        None => {
            // A singular start would be +∞, which the minimiser reports less kindly.
            start.log_determinant_and_inverse()?;
            minimizer.minimize_l1(&mut objective, start.theta(), &[], observer)?
        }
    };
    let filters = Filters::from_theta(&found.theta);
    let values = filters.singular_values()?;
    Ok(Fit {
        log_likelihood: -found.value,
        stop: found.stop,
        steps: found.iterations,
        seconds: found.seconds,
        acceptance: None,
        clipped_fraction: 0.0,
        rescued: Vec::new(),
        smallest_singular_value: values[values.len() - 1],
        median_singular_value: median(ArrayView1::from(&values)),
        filters,
        trace: run.trace,
    })
}
