//! Node by node: every row by itself, in parallel, then averaged with the transpose.

use super::{Estimator, Fit, FitProgress, Problem, pairs_of};
use crate::Result;
use crate::basis::Field;
use crate::couplings::Couplings;
use crate::support::Biases;
use mpf_core::{Minimizer, Minimum, StopReason, TracePoint};
use ndarray::Array2;
use rayon::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

impl Problem<'_> {
    pub(super) fn fit_by_node(
        &self,
        estimator: &impl Estimator,
        observer: &mut (impl FnMut(&FitProgress<'_>) + Send),
    ) -> Result<Fit> {
        let d = self.samples.n_units();
        let fits = Mutex::new(NodeFits::new(self));
        let observer = Mutex::new((observer, 0));
        (0..d).into_par_iter().try_for_each(|unit| -> Result<()> {
            let pairs = pairs_of(&self.pairs, unit);
            let free = !pairs.is_empty() || matches!(self.field(unit), Field::Free { .. });
            let fitted = if free {
                let mut limits = self.fitter.minimizer.options().clone();
                let used = lock(&fits).clock.seconds();
                limits.max_seconds = (limits.max_seconds - used).max(0.0);
                let minimizer = Minimizer::new(limits)?;
                let units = unit..unit + 1;
                Some(self.minimize(estimator, units, pairs.clone(), 0.5, &minimizer, |_, _| {})?)
            } else {
                None
            };
            lock(&fits).add(unit, &pairs, fitted);
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
                let began = Instant::now();
                observer(&now.progress(&|| now.couplings(self).expect("minima are finite")));
                lock(&fits).clock.observed += began.elapsed();
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

/// Learning time: what has passed, less what observers took.
#[derive(Clone, Debug)]
struct Clock {
    began: Instant,
    observed: Duration,
}

impl Clock {
    fn seconds(&self) -> f64 {
        self.began
            .elapsed()
            .saturating_sub(self.observed)
            .as_secs_f64()
    }
}

/// The rows that are fitted so far.
#[derive(Clone)]
struct NodeFits {
    fields: Vec<f64>,
    /// K_ij as row i sees it.
    rows: Array2<f64>,
    /// One minimum per unit, where it had free parameters and is done.
    minima: Vec<Option<Minimum>>,
    units_done: usize,
    clock: Clock,
}

impl NodeFits {
    fn new(problem: &Problem<'_>) -> Self {
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
                began: Instant::now(),
                observed: Duration::ZERO,
            },
        }
    }

    fn add(&mut self, unit: usize, pairs: &[(usize, usize)], fitted: Option<(Vec<f64>, Minimum)>) {
        if let Some((spins, minimum)) = fitted {
            self.fields[unit] = spins[0];
            for (&(i, j), &k) in pairs.iter().zip(&spins[1..]) {
                self.rows[[unit, i + j - unit]] = k;
            }
            self.minima[unit] = Some(minimum);
        }
        self.units_done += 1;
    }

    /// The minima that are there, by unit and not by the order in which threads finished.
    fn minima(&self) -> impl Iterator<Item = &Minimum> {
        self.minima.iter().flatten()
    }

    fn progress<'a>(&self, couplings: &'a dyn Fn() -> Couplings) -> FitProgress<'a> {
        FitProgress {
            iteration: self.units_done,
            evaluations: self.minima().map(|m| m.evaluations).sum(),
            value: self.minima().map(|m| m.value).sum(),
            gradient_norm: self.minima().map(|m| m.kkt_residual).fold(0.0, f64::max),
            seconds: self.clock.seconds(),
            snapshot: None,
            couplings,
        }
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
            .filter_map(|(unit, minimum)| {
                let last = minimum.as_ref()?.trace.last()?;
                Some(TracePoint {
                    iteration: unit,
                    ..*last
                })
            })
            .collect();
        Ok(Fit {
            couplings: self.couplings(problem)?,
            value: self.minima().map(|m| m.value).sum(),
            stop,
            kkt_residual: self.minima().map(|m| m.kkt_residual).fold(0.0, f64::max),
            iterations: self.minima().map(|m| m.iterations).sum(),
            evaluations: self.minima().map(|m| m.evaluations).sum(),
            seconds: self.clock.seconds(),
            left_out_fraction: 0.0,
            asymmetry: Some(asymmetry),
            warnings: Vec::new(),
            trace,
            snapshot: None,
        })
    }
}
