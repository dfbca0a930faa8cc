//! A fit under way: what the trainers share.

use super::outcome::{Fit, Rescue, TracePoint};
use super::{FitOptions, Trainer};
use crate::likelihood::NegativeLogLikelihood;
use crate::model::Filters;
use crate::{Error, Result};
use mpf_core::linalg::singular_values;
use mpf_core::{StopReason, Stopwatch};
use ndarray::{Array2, ArrayView1, ArrayView2, Axis};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub(super) struct Run<'a> {
    pub(super) data: ArrayView2<'a, f64>,
    pub(super) likelihood: NegativeLogLikelihood<'a>,
    pub(super) options: &'a FitOptions,
    pub(super) observer: &'a mut dyn FnMut(&TracePoint),
    clock: Stopwatch,
    trace: Vec<TracePoint>,
    rescued: Vec<Rescue>,
}

/// What a checkpoint holds: the history so far, and where the trainer is on its course.
#[derive(Serialize, Deserialize)]
struct State<C> {
    seconds: f64,
    trace: Vec<TracePoint>,
    rescued: Vec<Rescue>,
    course: C,
}

impl<'a> Run<'a> {
    /// Checks the data and starts the clock.
    pub(super) fn new(
        data: ArrayView2<'a, f64>,
        options: &'a FitOptions,
        observer: &'a mut dyn FnMut(&TracePoint),
    ) -> Result<Self> {
        let likelihood = NegativeLogLikelihood::new(data)?;
        if !matches!(options.trainer, Trainer::MaximumLikelihood { .. }) {
            check_scale(data)?;
        }
        Ok(Self {
            data,
            likelihood,
            options,
            observer,
            clock: Stopwatch::start(),
            trace: Vec::new(),
            rescued: Vec::new(),
        })
    }

    /// Restores the history of an earlier run and returns its course, if the checkpoint holds one.
    /// `fits` says whether the course is of these data and this trainer.
    pub(super) fn resume<C: DeserializeOwned>(
        &mut self,
        fits: impl FnOnce(&C) -> bool,
    ) -> Result<Option<C>> {
        let Some(state) = self.options.checkpoint.resume::<State<C>>()? else {
            return Ok(None);
        };
        if !fits(&state.course) {
            return Err(mpf_core::Error::checkpoint("it is of other data or options").into());
        }
        self.clock = Stopwatch::start_at(state.seconds);
        self.trace = state.trace;
        self.rescued = state.rescued;
        Ok(Some(state.course))
    }

    /// Keeps `course` in the checkpoint, off the clock.
    pub(super) fn keep<C: Clone + Serialize + Send + 'static>(&mut self, course: &C) {
        let checkpoint = &self.options.checkpoint;
        if !checkpoint.is_on() {
            return;
        }
        let seconds = self.clock.seconds();
        self.clock.pause(|| {
            checkpoint.note(State {
                seconds,
                trace: self.trace.clone(),
                rescued: self.rescued.clone(),
                course: course.clone(),
            });
            checkpoint.write_if_due();
        });
    }

    /// Measures the likelihood and calls the observer, off the clock. Returns the likelihood.
    pub(super) fn report(&mut self, step: usize, filters: &Filters) -> Result<f64> {
        let seconds = self.clock.seconds();
        self.clock.pause(|| {
            let log_likelihood = self.likelihood.log_likelihood(filters)?;
            let point = TracePoint {
                step,
                log_likelihood,
                seconds,
            };
            self.trace.push(point);
            (self.observer)(&point);
            Ok(log_likelihood)
        })
    }

    /// Returns the likelihood, measured off the clock.
    pub(super) fn measure(&mut self, filters: &Filters) -> Result<f64> {
        self.clock.pause(|| self.likelihood.log_likelihood(filters))
    }

    /// Returns why the run must end before its time, if it must.
    pub(super) fn must_stop(&self) -> Option<StopReason> {
        if self.options.cancel.is_cancelled() {
            Some(StopReason::Cancelled)
        } else if self.clock.seconds() >= self.options.max_seconds {
            Some(StopReason::TimeLimit)
        } else {
            None
        }
    }

    /// Looks for a lost direction and restores it: with u and z the singular vectors of the
    /// smallest singular value, the filter with the largest |u_k| becomes zᵀ/⟨|z·x|⟩. Returns the
    /// filter that changed.
    ///
    /// One at a time: early in a fit several singular values are small, and most of them grow by
    /// themselves.
    pub(super) fn rescue(&mut self, step: usize, filters: &mut Filters) -> Result<Option<usize>> {
        let d = filters.n_dims();
        let (u, values, vt) = singular_values(filters.as_array())?;
        let (smallest, median) = (values[d - 1], median(values.view()));
        let z = vt.row(d - 1);
        let size = self.data.dot(&z).mapv(f64::abs).sum() / self.data.nrows() as f64;
        if smallest >= Fit::LOST_RATIO * median || size == 0.0 {
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

    /// Measures the likelihood of the result, which may be an average that no step had.
    pub(super) fn finish(
        mut self,
        filters: Filters,
        stop: StopReason,
        steps: usize,
    ) -> Result<Fit> {
        let seconds = self.clock.seconds();
        let log_likelihood = self.report(steps, &filters)?;
        Ok(Fit {
            stop,
            steps,
            seconds,
            rescued: self.rescued,
            trace: self.trace,
            ..Fit::new(filters, log_likelihood)?
        })
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

/// Returns the median of sorted values.
pub(super) fn median(sorted: ArrayView1<'_, f64>) -> f64 {
    let n = sorted.len();
    // Halved before they are added: the sum may overflow.
    0.5 * sorted[(n - 1) / 2] + 0.5 * sorted[n / 2]
}

/// The mean of the filters of the last steps.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RunningMean {
    n: usize,
    #[serde(with = "crate::model::square")]
    mean: Array2<f64>,
}

impl RunningMean {
    pub(super) fn new(n_dims: usize) -> Self {
        Self {
            n: 0,
            mean: Array2::zeros((n_dims, n_dims)),
        }
    }

    /// Returns whether this can be a mean over at most `steps` steps in `n_dims` dimensions.
    pub(super) fn fits(&self, steps: usize, n_dims: usize) -> bool {
        self.n <= steps && self.mean.nrows() == n_dims
    }

    pub(super) fn add(&mut self, filters: &Filters) {
        self.n += 1;
        let weight = 1.0 / self.n as f64;
        self.mean.zip_mut_with(&filters.as_array(), |mean, j| {
            *mean += weight * (j - *mean);
        });
    }

    /// Returns the mean, or `last` if nothing was added.
    pub(super) fn finish(self, last: Filters) -> Filters {
        if self.n == 0 {
            return last;
        }
        Filters::from_theta(self.mean.as_slice().expect("standard layout"))
    }
}
