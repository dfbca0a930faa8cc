//! Node-wise fits: every row by itself, in parallel, then averaged with the transpose.

use super::problem::{Problem, are_couplings, pairs_of};
use super::{Fit, FitProgress, Observer};
use crate::Result;
use crate::basis::Field;
use crate::couplings::Couplings;
use crate::error::Error;
use crate::support::Biases;
use mpf_core::{Checkpoint, Minimizer, Minimum, StopReason, Stopwatch, TracePoint};
use ndarray::Array2;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// The minimum of one row.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    /// The field, and the coupling of every free pair.
    spins: Vec<f64>,
    value: f64,
    kkt_residual: f64,
    stop: StopReason,
    iterations: usize,
    evaluations: usize,
    last: Option<TracePoint>,
}

impl Row {
    fn new((spins, minimum): (Vec<f64>, Minimum)) -> Self {
        Self {
            spins,
            value: minimum.value,
            kkt_residual: minimum.kkt_residual,
            stop: minimum.stop,
            iterations: minimum.iterations,
            evaluations: minimum.evaluations,
            last: minimum.trace.last().copied(),
        }
    }

    /// Returns the start of another row, given this one, which ends at its start: without a field and
    /// couplings all margins are 0, so that the values are equal.
    fn start_of(&self, n_params: usize) -> Self {
        Self {
            spins: vec![0.0; n_params],
            evaluations: 0,
            ..self.clone()
        }
    }
}

/// The most reports of a fit: each looks at all couplings.
const REPORTS: usize = 64;

impl Problem<'_> {
    pub(super) fn fit_by_node(&self, observer: Observer<'_>) -> Result<Fit> {
        let d = self.data.n_units();
        let checkpoint = &self.options().minimizer.checkpoint;
        let time = checkpoint.entry("seconds");
        let fits = Mutex::new(NodeFits::new(self, time.resume()?.unwrap_or(0.0)));
        let observer = Mutex::new((observer, 0));
        // A row that a limit stopped at its start; it stands for those that there is no time to begin.
        let stopped = OnceLock::new();
        let starts_at_zero = self.mask.is_none() && self.options().start.is_none();
        (0..d).into_par_iter().try_for_each(|unit| -> Result<()> {
            let pairs = pairs_of(&self.pairs, unit);
            let free = !pairs.is_empty() || matches!(self.field(unit), Field::Free { .. });
            let row = if free {
                let row: Row = checkpoint.unit(format!("row {unit}"), |_| {
                    let seconds = lock(&fits).clock.seconds();
                    time.note(seconds);
                    let mut limits = self.options().minimizer.clone();
                    limits.max_seconds = (limits.max_seconds - seconds).max(0.0);
                    limits.checkpoint = Checkpoint::default();
                    let is_late = limits.max_seconds == 0.0 || limits.cancel.is_cancelled();
                    let is_at_zero =
                        starts_at_zero && matches!(self.field(unit), Field::Free { .. });
                    if is_late
                        && is_at_zero
                        && let Some(row) = stopped.get()
                    {
                        return Ok(Row::start_of(row, 1 + pairs.len()));
                    }
                    let minimizer = Minimizer::new(limits)?;
                    let pairs = pairs.clone();
                    let found = self.minimize(unit..unit + 1, pairs, 0.5, &minimizer, |_, _| {})?;
                    let row = Row::new(found);
                    if is_late && is_at_zero {
                        let _ = stopped.set(row.clone());
                    }
                    Ok::<_, Error>(row)
                })?;
                if row.spins.len() != 1 + pairs.len() {
                    let problem = format!("row {unit} is of another problem");
                    return Err(mpf_core::Error::checkpoint(problem).into());
                }
                Some(row)
            } else {
                None
            };
            lock(&fits).add(unit, &pairs, row);
            // One thread at a time observes, without holding the lock on the fits: an observer may
            // itself work in parallel, and its worker may then be given another unit to fit. The
            // observing thread reports that one next.
            while let Ok(mut observing) = observer.try_lock() {
                let (observer, reported) = &mut *observing;
                let now = {
                    let fits = lock(&fits);
                    // After a limit only the end is reported: a report copies all rows.
                    let is_due = fits.units_done >= *reported + d.div_ceil(REPORTS)
                        && !self.options().minimizer.cancel.is_cancelled();
                    if !is_due && (fits.units_done < d || *reported == d) {
                        break;
                    }
                    fits.clone()
                };
                *reported = now.units_done;
                if !now.are_couplings() {
                    continue;
                }
                let began = Instant::now();
                let couplings = || {
                    now.couplings(self)
                        .expect("small enough, as was just checked")
                };
                observer(&FitProgress::new(now.point(), &couplings));
                lock(&fits).clock.discount(began.elapsed());
            }
            Ok(())
        })?;
        let fits = fits.into_inner().unwrap_or_else(PoisonError::into_inner);
        fits.finish(self)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The rows that are fitted so far.
#[derive(Clone)]
struct NodeFits {
    fields: Vec<f64>,
    /// K_ij as row i sees it.
    rows: Array2<f64>,
    /// One minimum per unit, where it had free parameters and is done. What it found is in `rows`: beside
    /// these, small vectors that are kept would scatter over the memory of all that were freed.
    minima: Vec<Option<Row>>,
    units_done: usize,
    clock: Stopwatch,
}

impl NodeFits {
    fn new(problem: &Problem<'_>, seconds: f64) -> Self {
        let d = problem.data.n_units();
        Self {
            fields: (0..d)
                .map(|i| match problem.field(i) {
                    Field::Fixed(h) => h,
                    Field::FixedBias(bias) => -0.5 * bias,
                    Field::Free { .. } => 0.0,
                })
                .collect(),
            rows: Array2::zeros((d, d)),
            minima: vec![None; d],
            units_done: 0,
            clock: Stopwatch::start_at(seconds),
        }
    }

    fn add(&mut self, unit: usize, pairs: &[(usize, usize)], row: Option<Row>) {
        if let Some(mut row) = row {
            let spins = std::mem::take(&mut row.spins);
            self.fields[unit] = spins[0];
            for (&(i, j), &k) in pairs.iter().zip(&spins[1..]) {
                self.rows[[unit, i + j - unit]] = k;
            }
            self.minima[unit] = Some(row);
        }
        self.units_done += 1;
    }

    /// Returns the minima so far, by unit rather than by the order in which threads finished.
    fn minima(&self) -> impl Iterator<Item = &Row> {
        self.minima.iter().flatten()
    }

    fn point(&self) -> TracePoint {
        TracePoint {
            iteration: self.units_done,
            evaluations: self.minima().map(|m| m.evaluations).sum(),
            value: self.value(),
            gradient_norm: self.minima().map(|m| m.kkt_residual).fold(0.0, f64::max),
            seconds: self.clock.seconds(),
        }
    }

    /// Returns whether the rows so far make valid couplings and a finite objective.
    fn are_couplings(&self) -> bool {
        let fields = self.fields.iter().map(|h| h.abs()).sum();
        let couplings = self.rows.iter().map(|k| k.abs()).sum();
        are_couplings(fields, couplings) && self.value().is_finite()
    }

    fn value(&self) -> f64 {
        self.minima().map(|m| m.value).sum()
    }

    fn couplings(&self, problem: &Problem<'_>) -> Result<Couplings> {
        let means: Vec<f64> = problem
            .pairs
            .iter()
            .map(|&(i, j)| 0.5 * (self.rows[[i, j]] + self.rows[[j, i]]))
            .collect();
        let mut fields = self.fields.clone();
        if let Biases::Fixed(biases) = &problem.options().biases {
            // Keep J_ii fixed under the averaged couplings too.
            for (h, bias) in fields.iter_mut().zip(biases) {
                *h = -0.5 * bias;
            }
            for (&(i, j), k) in problem.pairs.iter().zip(&means) {
                fields[i] += k;
                fields[j] += k;
            }
        }
        problem.couplings(&fields, &means)
    }

    fn finish(self, problem: &Problem<'_>) -> Result<Fit> {
        let asymmetry = problem.pairs.iter().fold(0.0f64, |m, &(i, j)| {
            m.max((self.rows[[i, j]] - self.rows[[j, i]]).abs())
        });
        let stop = [
            StopReason::Cancelled,
            StopReason::TimeLimit,
            StopReason::Unbounded,
            StopReason::EvaluationLimit,
            StopReason::IterationLimit,
            StopReason::NoProgress,
            StopReason::MachinePrecision,
        ]
        .into_iter()
        .find(|reason| self.minima().any(|m| m.stop == *reason))
        .unwrap_or(StopReason::Converged);
        let trace = self
            .minima
            .iter()
            .enumerate()
            .filter_map(|(unit, row)| {
                Some(TracePoint {
                    iteration: unit,
                    ..row.as_ref()?.last?
                })
            })
            .collect();
        let point = self.point();
        let (value, seconds) = (point.value, point.seconds);
        if !value.is_finite() {
            return Err(Error::NotFiniteObjective { value });
        }
        Ok(Fit {
            stop,
            kkt_residual: point.gradient_norm,
            iterations: self.minima().map(|m| m.iterations).sum(),
            evaluations: point.evaluations,
            // One unit at a time.
            asymmetry: Some(asymmetry.min(f64::MAX)),
            trace,
            ..Fit::closed_form(self.couplings(problem)?, value, seconds, Vec::new())
        })
    }
}
