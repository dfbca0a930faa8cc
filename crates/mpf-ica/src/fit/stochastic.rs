//! MPF by stochastic gradients, θ_H = J at every step.
//!
//! ```text
//! w_j = exp(min(½ [H(x_j; J) − H(x′_j; J)], 5)),   x′ = HAM(x; J)
//! ∇ ln K = ½ ⟨w (sign(Jq) qᵀ − sign(Jq′) q′ᵀ)⟩ / ⟨w⟩
//! ```
//!
//! Gradient descent with momentum, first at a constant rate, then at a falling one; the result is
//! the mean over the last steps. In an optional last phase q′ is the state after a few Metropolis
//! transitions, whose weights are 1 at θ = θ_H (Appendix D). On some data that phase makes J worse,
//! so it is [kept](crate::LastPhase) only if it lowers a flow that is measured on held-out samples.

mod judge;
mod worker;

use super::outcome::Fit;
use super::run::{Run, RunningMean};
use crate::Result;
use crate::error::Error;
use crate::hamiltonian::{Hamiltonian, Trajectory};
use crate::model::Filters;
use mpf_core::{StopReason, check_not_zero, check_option, check_positive, rng};
use ndarray::Array2;
use rand::seq::SliceRandom;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use worker::{Tally, workers};

/// Options of the stochastic trainer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stochastic {
    /// Samples per step, or all of them if there are fewer. Default 2500.
    pub batch: usize,
    /// Steps at the constant rate. Default 400.
    pub steady_steps: usize,
    /// Steps at the falling rate. Default 600.
    pub falling_steps: usize,
    /// The rate to begin with. Default 0.2; at 1 photographs make J run away for a while.
    pub rate: f64,
    /// The rate to end with. Default 0.01.
    pub last_rate: f64,
    /// The fraction of the last step's direction that is kept. Default 0.9.
    pub momentum: f64,
    /// The number of last steps of a phase whose J are averaged to give its result, at most half of
    /// them. Default 300.
    pub averaged_steps: usize,
    /// Exponents of weights are clipped here. Default 5.
    pub clip: f64,
    /// Step size and time of the trajectories that lead to the neighbours.
    pub trajectory: Trajectory,
    /// The last phase. One sample in ten, or 2000, are then held out of the training, to judge it.
    /// Default: on.
    pub metropolis: Option<Metropolis>,
}

/// The last phase: neighbours by Metropolis transitions of Hamiltonian Monte Carlo.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metropolis {
    /// Steps of the phase. Default 300.
    pub steps: usize,
    /// Transitions from x to x′. Default 5.
    pub transitions: usize,
    /// The leapfrog step. Default 0.1.
    pub step_size: f64,
    /// Leapfrog steps of a transition. Default 8.
    pub leapfrog_steps: usize,
    /// The rate to begin with; it falls to [`Stochastic::last_rate`]. Default 0.3.
    pub rate: f64,
}

impl Default for Stochastic {
    fn default() -> Self {
        Self {
            batch: 2500,
            steady_steps: 400,
            falling_steps: 600,
            rate: 0.2,
            last_rate: 0.01,
            momentum: 0.9,
            averaged_steps: 300,
            clip: 5.0,
            trajectory: Trajectory::default(),
            metropolis: Some(Metropolis::default()),
        }
    }
}

impl Default for Metropolis {
    fn default() -> Self {
        Self {
            steps: 300,
            transitions: 5,
            step_size: 0.1,
            leapfrog_steps: 8,
            rate: 0.3,
        }
    }
}

/// The most samples that are held out: more would not learn, and take long.
const MOST_HELD_OUT: usize = 2000;

/// How the neighbours of a step are drawn.
#[derive(Clone, Copy)]
enum Phase {
    Trajectory(Trajectory),
    Metropolis(Metropolis),
}

impl Stochastic {
    /// Returns the steps of all phases.
    pub fn n_steps(&self) -> usize {
        self.learning_steps() + self.metropolis.map_or(0, |m| m.steps)
    }

    /// Returns the steps before the last phase.
    fn learning_steps(&self) -> usize {
        self.steady_steps + self.falling_steps
    }

    /// Splits `n` rows into those to learn from and those to judge the last phase by.
    fn split(&self, n: usize, seed: u64) -> (Vec<u32>, Vec<u32>) {
        let mut rows: Vec<u32> = (0..n as u32).collect();
        let mut held_out = Vec::new();
        if self.metropolis.is_some() {
            rows.shuffle(&mut rng::stream(seed, 2));
            held_out = rows.split_off(n - (n / 10).clamp(1, MOST_HELD_OUT));
        }
        (rows, held_out)
    }

    pub(super) fn check(&self) -> Result<()> {
        self.trajectory.check()?;
        check_not_zero("batch", self.batch)?;
        check_positive("rate", self.rate)?;
        check_positive("last_rate", self.last_rate)?;
        let momentum = self.momentum;
        let in_range = (0.0..1.0).contains(&momentum);
        check_option("momentum", momentum, "in [0, 1)", in_range)?;
        check_option("clip", self.clip, "not negative", self.clip >= 0.0)?;
        let Some(metropolis) = self.metropolis else {
            return Ok(());
        };
        check_positive("metropolis.step_size", metropolis.step_size)?;
        check_positive("metropolis.rate", metropolis.rate)?;
        check_not_zero("metropolis.transitions", metropolis.transitions)?;
        check_not_zero("metropolis.leapfrog_steps", metropolis.leapfrog_steps)?;
        Ok(())
    }

    /// Returns how step `step` draws its neighbours, and its rate.
    fn phase(&self, step: usize) -> (Phase, f64) {
        let fall = |from: f64, done: usize, of: usize| {
            from * (self.last_rate / from).powf((done + 1) as f64 / of as f64)
        };
        let learning = self.learning_steps();
        match self.metropolis {
            Some(metropolis) if step >= learning => (
                Phase::Metropolis(metropolis),
                fall(metropolis.rate, step - learning, metropolis.steps),
            ),
            _ if step < self.steady_steps => (Phase::Trajectory(self.trajectory), self.rate),
            _ => (
                Phase::Trajectory(self.trajectory),
                fall(self.rate, step - self.steady_steps, self.falling_steps),
            ),
        }
    }

    /// Returns whether `course` can be of this trainer, learning from `rows` in `d` dimensions.
    fn fits(&self, course: &Course, rows: &[u32], d: usize) -> bool {
        let (steps, n) = (course.steps, rows.len());
        steps <= self.n_steps()
            && course.before.is_some() == (steps > self.learning_steps())
            && course.before.as_ref().is_none_or(|j| j.n_dims() == d)
            && course.filters.n_dims() == d
            && course.direction.nrows() == d
            && course.mean.fits(steps, d)
            && course.batches.fits(rows)
            && course.clipped <= steps.saturating_mul(n)
    }

    pub(super) fn fit(&self, mut run: Run<'_>, start: Filters) -> Result<Fit> {
        let (n, d) = run.data.dim();
        let (rows, held_out) = self.split(n, run.options.seed);
        let batch = self.batch.min(rows.len());
        let mut course = match run.resume(|course| self.fits(course, &rows, d))? {
            Some(course) => course,
            None => {
                run.report(0, &start)?;
                Course {
                    filters: start,
                    direction: Array2::zeros((d, d)),
                    mean: RunningMean::new(d),
                    before: None,
                    batches: Batches::new(rows, run.options.seed),
                    clipped: 0,
                    acceptance: None,
                    seed: rng::next_seed(run.options.seed),
                    steps: 0,
                }
            }
        };
        let (learning, n_steps) = (self.learning_steps(), self.n_steps());
        let mut workers = workers(batch, d);
        let mut stop = StopReason::IterationLimit;
        while course.steps < n_steps {
            if let Some(reason) = run.must_stop() {
                stop = reason;
                break;
            }
            if course.steps == learning {
                let mean = std::mem::replace(&mut course.mean, RunningMean::new(d));
                course.before = Some(mean.finish(course.filters.clone()));
            }
            let (phase, rate) = self.phase(course.steps);
            course.seed = rng::next_seed(course.seed);
            let seed = course.seed;
            let hamiltonian = Hamiltonian::new(course.filters.as_array());
            let rows = course.batches.next(batch);
            let data = run.data;
            workers.par_iter_mut().enumerate().for_each(|(k, worker)| {
                worker.work(&hamiltonian, data, rows, phase, self.clip, seed, k);
            });
            let mut tally = Tally::default();
            course.direction *= self.momentum;
            workers.iter().for_each(|worker| tally.add(worker.tally));
            for worker in &workers {
                let scale = 0.5 / tally.weights;
                course.direction.scaled_add(scale, &worker.grad);
            }
            course.filters.step(-rate, course.direction.view());
            if !course.filters.as_array().iter().all(|v| v.is_finite()) {
                return Err(Error::Diverged { step: course.steps });
            }
            course.steps += 1;
            course.acceptance = Some(tally.acceptance / batch as f64);
            course.clipped += tally.clipped;

            let steps = course.steps;
            if (steps == self.steady_steps / 2 || steps == self.steady_steps)
                && let Some(filter) = run.rescue(steps, &mut course.filters)?
            {
                course.direction.row_mut(filter).fill(0.0);
            }
            let (end, length) = if steps <= learning {
                (learning, learning)
            } else {
                (n_steps, n_steps - learning)
            };
            if steps + self.averaged_steps.min(length / 2) > end {
                course.mean.add(&course.filters);
            }
            if steps.is_multiple_of(run.options.report_every) && steps < n_steps {
                run.report(steps, &course.filters)?;
                run.keep(&course);
            }
        }
        run.keep(&course);
        let mut filters = course.mean.finish(course.filters);
        let mut last_phase = None;
        if let (Some(before), Some(metropolis)) = (course.before, self.metropolis) {
            if stop == StopReason::IterationLimit {
                let seed = rng::next_seed(course.seed);
                let candidates = [&before, &filters];
                last_phase = judge::judge(&mut run, &held_out, candidates, metropolis, seed)?;
                stop = run
                    .must_stop()
                    .filter(|_| last_phase.is_none())
                    .unwrap_or(stop);
            }
            // A last phase that was cut short is not judged, and not kept.
            if !last_phase.is_some_and(|phase| phase.kept) {
                filters = before;
            }
        }
        Ok(Fit {
            last_phase,
            acceptance: course.acceptance,
            clipped_fraction: course.clipped as f64 / (course.steps * batch).max(1) as f64,
            ..run.finish(filters, stop, course.steps)?
        })
    }
}

/// Where the trainer is after a step.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Course {
    filters: Filters,
    /// The gradient with its momentum.
    #[serde(with = "crate::model::square")]
    direction: Array2<f64>,
    mean: RunningMean,
    /// The result of the steps before the last phase, once that has begun.
    before: Option<Filters>,
    batches: Batches,
    /// Weights that were clipped so far.
    clipped: usize,
    acceptance: Option<f64>,
    /// The seed of the neighbours drawn last.
    seed: u64,
    /// Steps done.
    steps: usize,
}

/// Deals rows out: all of them in random order, then in another order.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Batches {
    order: Vec<u32>,
    next: usize,
    rng: rng::Xoshiro256PlusPlus,
}

impl Batches {
    fn new(rows: Vec<u32>, seed: u64) -> Self {
        Self {
            // Shuffled before its first use.
            next: rows.len(),
            order: rows,
            rng: rng::stream(seed, 1),
        }
    }

    /// Returns whether these deal out `rows`.
    fn fits(&self, rows: &[u32]) -> bool {
        let sorted = |rows: &[u32]| {
            let mut rows = rows.to_vec();
            rows.sort_unstable();
            rows
        };
        self.next <= rows.len() && sorted(&self.order) == sorted(rows)
    }

    /// Returns the next `size` rows, of at least `size`.
    fn next(&mut self, size: usize) -> &[u32] {
        if self.next + size > self.order.len() {
            self.order.shuffle(&mut self.rng);
            self.next = 0;
        }
        let from = self.next;
        self.next += size;
        &self.order[from..self.next]
    }
}
