//! Node by node: every row by itself, in parallel, then averaged with the transpose.

use super::{Estimator, Fit, FitProgress, FitSnapshot, Problem, are_couplings, pairs_of};
use crate::Result;
use crate::basis::Field;
use crate::couplings::Couplings;
use crate::error::Error;
use crate::support::Biases;
use mpf_core::{Minimizer, Minimum, StopReason, TracePoint};
use ndarray::Array2;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The rows of a node-wise fit that are done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeSnapshot {
    rows: Vec<Option<Row>>,
    seconds: f64,
}

impl NodeSnapshot {
    /// How many rows are done.
    pub fn n_done(&self) -> usize {
        self.rows.iter().flatten().count()
    }

    /// Learning time so far, in seconds: finite, in every snapshot that a fit goes on from.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Whether every number is one that a fit can have written.
    fn is_finite(&self) -> bool {
        // Thirty million years, and more evaluations than they have milliseconds.
        const MOST: f64 = 1e15;
        (0.0..MOST).contains(&self.seconds)
            && self.rows.iter().flatten().all(|row| {
                let last = row.last.iter().flat_map(|p| [p.value, p.gradient_norm]);
                let numbers = [row.value, row.kkt_residual];
                let mut all = row.spins.iter().copied().chain(numbers).chain(last);
                all.all(f64::is_finite) && row.evaluations.max(row.iterations) as f64 <= MOST
            })
    }
}

/// What the minimisation of one row gave.
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
}

impl Problem<'_> {
    pub(super) fn fit_by_node(
        &self,
        estimator: &impl Estimator,
        observer: &mut (impl FnMut(&FitProgress<'_>) + Send),
    ) -> Result<Fit> {
        let d = self.samples.n_units();
        let earlier = match &self.options().resume {
            Some(FitSnapshot::NodeWise(snapshot)) => Some(self.checked(snapshot)?),
            _ => None,
        };
        let fits = Mutex::new(NodeFits::new(self, earlier));
        let observer = Mutex::new((observer, 0));
        (0..d).into_par_iter().try_for_each(|unit| -> Result<()> {
            let pairs = pairs_of(&self.pairs, unit);
            let free = !pairs.is_empty() || matches!(self.field(unit), Field::Free { .. });
            let done = earlier.and_then(|snapshot| snapshot.rows[unit].clone());
            let row = match done {
                Some(row) => Some(row),
                None if free => {
                    let mut limits = self.fitter.minimizer.options().clone();
                    let used = lock(&fits).clock.seconds();
                    limits.max_seconds = (limits.max_seconds - used).max(0.0);
                    // What is kept is rows that are done.
                    limits.snapshots = false;
                    let minimizer = Minimizer::new(limits)?;
                    let units = unit..unit + 1;
                    let pairs = pairs.clone();
                    let fitted =
                        self.minimize(estimator, units, pairs, 0.5, &minimizer, |_, _| {})?;
                    Some(Row::new(fitted))
                }
                None => None,
            };
            lock(&fits).add(unit, &pairs, row);
            // Only one thread observes, without holding the fits: an observer may itself work in
            // parallel and be made to run another unit meanwhile. What that unit adds is told by
            // whoever is observing.
            while let Ok(mut observing) = observer.try_lock() {
                let (observer, told) = &mut *observing;
                let now = lock(&fits).clone();
                if now.units_done == *told {
                    break;
                }
                *told = now.units_done;
                if !now.are_couplings() {
                    continue;
                }
                let began = Instant::now();
                observer(&now.progress(
                    &|| now.couplings(self).expect("their sums are numbers"),
                    &|| now.snapshot(self),
                ));
                lock(&fits).clock.observed += began.elapsed();
            }
            Ok(())
        })?;
        let fits = fits.into_inner().unwrap_or_else(PoisonError::into_inner);
        fits.finish(self)
    }

    /// The snapshot, if it can be one of this problem.
    fn checked<'s>(&self, snapshot: &'s NodeSnapshot) -> Result<&'s NodeSnapshot> {
        if !snapshot.is_finite() {
            let problem = "it has numbers that no fit writes".to_owned();
            return Err(mpf_core::Error::Checkpoint { problem }.into());
        }
        let d = self.samples.n_units();
        let rows = snapshot.rows.iter().enumerate();
        let n_params = |unit| 1 + pairs_of(&self.pairs, unit).len();
        let other = (snapshot.rows.len() != d)
            .then_some((d, snapshot.rows.len()))
            .or_else(|| {
                rows.filter_map(|(unit, row)| Some((n_params(unit), row.as_ref()?.spins.len())))
                    .find(|(expected, found)| expected != found)
            });
        match other {
            None => Ok(snapshot),
            Some((expected, found)) => {
                Err(mpf_core::Error::OtherSnapshot { expected, found }.into())
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Learning time: what has passed, now and earlier, less what observers took.
#[derive(Clone, Debug)]
struct Clock {
    earlier: f64,
    began: Instant,
    observed: Duration,
}

impl Clock {
    fn seconds(&self) -> f64 {
        let now = self.began.elapsed().saturating_sub(self.observed);
        self.earlier + now.as_secs_f64()
    }
}

/// The rows that are fitted so far.
#[derive(Clone)]
struct NodeFits {
    fields: Vec<f64>,
    /// K_ij as row i sees it.
    rows: Array2<f64>,
    /// One minimum per unit, where it had free parameters and is done.
    minima: Vec<Option<Row>>,
    units_done: usize,
    clock: Clock,
}

impl NodeFits {
    fn new(problem: &Problem<'_>, earlier: Option<&NodeSnapshot>) -> Self {
        let d = problem.samples.n_units();
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
            clock: Clock {
                earlier: earlier.map_or(0.0, NodeSnapshot::seconds),
                began: Instant::now(),
                observed: Duration::ZERO,
            },
        }
    }

    fn add(&mut self, unit: usize, pairs: &[(usize, usize)], row: Option<Row>) {
        if let Some(row) = row {
            self.fields[unit] = row.spins[0];
            for (&(i, j), &k) in pairs.iter().zip(&row.spins[1..]) {
                self.rows[[unit, i + j - unit]] = k;
            }
            self.minima[unit] = Some(row);
        }
        self.units_done += 1;
    }

    /// The minima that are there, by unit and not by the order in which threads finished.
    fn minima(&self) -> impl Iterator<Item = &Row> {
        self.minima.iter().flatten()
    }

    /// The rows that are done, but for those that were broken off.
    fn snapshot(&self, problem: &Problem<'_>) -> Option<FitSnapshot> {
        let done = |row: &Option<Row>| row.clone().filter(|r| r.stop != StopReason::Cancelled);
        problem.options().minimizer.snapshots.then(|| {
            FitSnapshot::NodeWise(NodeSnapshot {
                rows: self.minima.iter().map(done).collect(),
                seconds: self.clock.seconds(),
            })
        })
    }

    fn progress<'a>(
        &self,
        couplings: &'a dyn Fn() -> Couplings,
        snapshot: &'a dyn Fn() -> Option<FitSnapshot>,
    ) -> FitProgress<'a> {
        FitProgress {
            iteration: self.units_done,
            evaluations: self.minima().map(|m| m.evaluations).sum(),
            value: self.value(),
            gradient_norm: self.minima().map(|m| m.kkt_residual).fold(0.0, f64::max),
            seconds: self.clock.seconds(),
            couplings,
            snapshot,
        }
    }

    /// Whether what is there surely makes a model, and sums of objectives are numbers.
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
            // J_ii stays what it was, with the averaged couplings too.
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
            StopReason::EvaluationLimit,
            StopReason::IterationLimit,
            StopReason::NoProgress,
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
        let snapshot = self.snapshot(problem);
        let value = self.value();
        if !value.is_finite() {
            return Err(Error::NotFiniteObjective { value });
        }
        Ok(Fit {
            couplings: self.couplings(problem)?,
            value,
            stop,
            kkt_residual: self.minima().map(|m| m.kkt_residual).fold(0.0, f64::max),
            iterations: self.minima().map(|m| m.iterations).sum(),
            evaluations: self.minima().map(|m| m.evaluations).sum(),
            seconds: self.clock.seconds(),
            left_out_fraction: 0.0,
            asymmetry: Some(asymmetry.min(f64::MAX)),
            warnings: Vec::new(),
            trace,
            snapshot,
        })
    }
}
