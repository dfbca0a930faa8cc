//! MPF by stochastic gradients, θ_H = J at every step.
//!
//! ```text
//! w_j = exp(min(½ [H(x_j; J) − H(x′_j; J)], 5)),   x′ = HAM(x; J)
//! ∇ ln K = ½ ⟨w (sign(Jq) qᵀ − sign(Jq′) q′ᵀ)⟩ / ⟨w⟩
//! ```
//!
//! Gradient descent with momentum: some steps at a constant rate, then some at a falling one; the
//! result is the mean over the last. In an optional last phase q′ is the state after a few
//! Metropolis transitions, whose weights are 1 at θ = θ_H (Appendix D).

use super::snapshot::State;
use super::{Fit, Outcome, Run, RunningMean};
use crate::Result;
use crate::batch::{BLOCK, blocks};
use crate::error::{Error, check_option};
use crate::hamiltonian::{Ensemble, Hamiltonian, Trajectory};
use crate::model::Filters;
use mpf_core::{StopReason, rng};
use ndarray::{Array2, ArrayView2};
use rand::{Rng, RngExt, seq::SliceRandom};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

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
    /// What is kept of the last step's direction. Default 0.9.
    pub momentum: f64,
    /// The result is the mean of J over so many last steps. Default 100.
    pub averaged_steps: usize,
    /// Exponents of weights are clipped here. Default 5.
    pub clip: f64,
    /// Step and time of the neighbours.
    pub trajectory: Trajectory,
    /// The last phase, which halves the gap to maximum likelihood. Default: on.
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
            averaged_steps: 100,
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

/// How the neighbours of a step are drawn.
#[derive(Clone, Copy)]
enum Phase {
    Trajectory(Trajectory),
    Metropolis(Metropolis),
}

impl Stochastic {
    /// Steps of all phases.
    pub fn n_steps(&self) -> usize {
        self.steady_steps + self.falling_steps + self.metropolis.map_or(0, |m| m.steps)
    }

    pub(super) fn check(&self) -> Result<()> {
        let positive = |v: f64| v > 0.0 && v.is_finite();
        self.trajectory.check()?;
        let batch = self.batch as f64;
        check_option("batch", batch, "at least 1", self.batch >= 1)?;
        check_option("rate", self.rate, "positive", positive(self.rate))?;
        let last = self.last_rate;
        check_option("last_rate", last, "positive", positive(last))?;
        let momentum = self.momentum;
        let in_range = (0.0..1.0).contains(&momentum);
        check_option("momentum", momentum, "in [0, 1)", in_range)?;
        check_option("clip", self.clip, "not negative", self.clip >= 0.0)?;
        let Some(metropolis) = self.metropolis else {
            return Ok(());
        };
        let step = metropolis.step_size;
        check_option("metropolis.step_size", step, "positive", positive(step))?;
        let rate = metropolis.rate;
        check_option("metropolis.rate", rate, "positive", positive(rate))?;
        for (name, count) in [
            ("metropolis.transitions", metropolis.transitions),
            ("metropolis.leapfrog_steps", metropolis.leapfrog_steps),
        ] {
            check_option(name, count as f64, "at least 1", count >= 1)?;
        }
        Ok(())
    }

    /// How step `step` draws its neighbours, and its rate.
    fn phase(&self, step: usize) -> (Phase, f64) {
        let fall = |from: f64, done: usize, of: usize| {
            from * (self.last_rate / from).powf((done + 1) as f64 / of as f64)
        };
        let learning = self.steady_steps + self.falling_steps;
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

    /// Whether `course` is of this trainer, of `n` samples in `d` dimensions.
    pub(super) fn suits(&self, course: &Course, n: usize, d: usize) -> bool {
        let batches = &course.batches;
        let sides = [
            course.filters.n_dims(),
            course.direction.nrows(),
            course.mean.mean.nrows(),
        ];
        sides == [d; 3]
            && batches.size == self.batch.min(n)
            && batches.next <= n
            && batches.order.len() == n
            && batches.order.iter().all(|&row| (row as usize) < n)
    }

    pub(super) fn begin(&self, mut run: Run<'_>, start: Filters) -> Result<Fit> {
        let (n, d) = run.data.dim();
        run.report(0, &start, || None)?;
        let course = Course {
            filters: start,
            direction: Array2::zeros((d, d)),
            mean: RunningMean::new(d),
            batches: Batches::new(n, self.batch, run.options.seed),
            told: Told::default(),
            acceptance: None,
            seed: rng::next_seed(run.options.seed),
            steps: 0,
        };
        self.run(run, course)
    }

    pub(super) fn run(&self, mut run: Run<'_>, mut course: Course) -> Result<Fit> {
        let (n, d) = run.data.dim();
        let n_steps = self.n_steps();
        let mut workers = workers(self.batch.min(n), d);
        let mut stop = StopReason::IterationLimit;
        while course.steps < n_steps {
            if let Some(reason) = run.must_stop() {
                stop = reason;
                break;
            }
            let (phase, rate) = self.phase(course.steps);
            course.seed = rng::next_seed(course.seed);
            let seed = course.seed;
            let hamiltonian = Hamiltonian::new(course.filters.as_array());
            let rows = course.batches.next();
            let data = run.data;
            workers.par_iter_mut().enumerate().for_each(|(k, worker)| {
                worker.work(&hamiltonian, data, rows, phase, self.clip, seed, k);
            });
            let mut now = Told::default();
            course.direction *= self.momentum;
            workers.iter().for_each(|worker| now.add(worker.told));
            for worker in &workers {
                course.direction.scaled_add(0.5 / now.weights, &worker.grad);
            }
            course.filters.step(-rate, course.direction.view());
            if !course.filters.as_array().iter().all(|v| v.is_finite()) {
                return Err(Error::Diverged { step: course.steps });
            }
            course.steps += 1;
            course.acceptance = Some(now.acceptance / now.n as f64);
            course.told.add(now);

            let steps = course.steps;
            if (steps == self.steady_steps / 2 || steps == self.steady_steps)
                && let Some(filter) = run.rescue(steps, &mut course.filters)?
            {
                course.direction.row_mut(filter).fill(0.0);
            }
            if steps.saturating_add(self.averaged_steps) > n_steps {
                course.mean.add(&course.filters);
            }
            if steps.is_multiple_of(run.options.report_every) && steps < n_steps {
                run.report(steps, &course.filters, || {
                    Some(State::Stochastic(course.clone()))
                })?;
            }
        }
        run.finish(Outcome {
            filters: course.mean.finish().unwrap_or(course.filters),
            stop,
            steps: course.steps,
            acceptance: course.acceptance,
            clipped_fraction: course.told.clipped as f64 / course.told.n.max(1) as f64,
        })
    }
}

/// Where the trainer is after a step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Course {
    filters: Filters,
    /// The gradient with its momentum.
    #[serde(with = "crate::model::square")]
    direction: Array2<f64>,
    mean: RunningMean,
    batches: Batches,
    told: Told,
    pub(super) acceptance: Option<f64>,
    /// That of the neighbours drawn last.
    seed: u64,
    /// Steps done.
    pub(super) steps: usize,
}

/// The rows of every batch: all of the data in random order, then in another.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Batches {
    order: Vec<u32>,
    next: usize,
    size: usize,
    rng: rng::Xoshiro256PlusPlus,
}

impl Batches {
    fn new(n: usize, size: usize, seed: u64) -> Self {
        Self {
            order: (0..n as u32).collect(),
            // Shuffled before its first use.
            next: n,
            size: size.min(n),
            rng: rng::stream(seed, 1),
        }
    }

    fn next(&mut self) -> &[u32] {
        if self.next + self.size > self.order.len() {
            self.order.shuffle(&mut self.rng);
            self.next = 0;
        }
        let from = self.next;
        self.next += self.size;
        &self.order[from..self.next]
    }
}

/// Sums over the samples of a step.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Told {
    n: usize,
    weights: f64,
    clipped: usize,
    acceptance: f64,
}

impl Told {
    fn add(&mut self, other: Self) {
        self.n += other.n;
        self.weights += other.weights;
        self.clipped += other.clipped;
        self.acceptance += other.acceptance;
    }
}

/// One block of the batch, with its buffers and sums.
struct Worker {
    rows: std::ops::Range<usize>,
    states: Ensemble,
    /// Where the states were, or, with Metropolis, where they are proposed to go.
    others: Ensemble,
    told: Told,
    /// Σ w (sign(Jq) qᵀ − sign(Jq′) q′ᵀ).
    grad: Array2<f64>,
}

fn workers(n: usize, d: usize) -> Vec<Worker> {
    let worker = |rows: std::ops::Range<usize>| Worker {
        states: Ensemble::new(rows.len(), d),
        others: Ensemble::new(rows.len(), d),
        rows,
        told: Told::default(),
        grad: Array2::zeros((d, d)),
    };
    blocks(0..n, BLOCK).map(worker).collect()
}

impl Worker {
    #[allow(clippy::too_many_arguments)]
    fn work(
        &mut self,
        hamiltonian: &Hamiltonian<'_>,
        data: ArrayView2<'_, f64>,
        rows: &[u32],
        phase: Phase,
        clip: f64,
        seed: u64,
        index: usize,
    ) {
        let mut rng = rng::substream(seed, index as u64);
        let d = data.ncols();
        let from = data.as_slice().expect("standard layout");
        let rows = rows[self.rows.clone()].iter();
        let rows = rows.map(|&r| &from[r as usize * d..][..d]);
        self.told = Told {
            n: self.rows.len(),
            ..Default::default()
        };
        match phase {
            Phase::Trajectory(trajectory) => {
                self.states.place(hamiltonian, rows);
                self.states.draw_momenta(&mut rng);
                self.states.draw_steps(|| trajectory.draw(&mut rng));
                self.others.copy_from(&self.states);
                self.states.integrate(hamiltonian);
                for row in 0..self.rows.len() {
                    let fall = self.others.total(row) - self.states.total(row);
                    let weight = (0.5 * fall).min(clip).exp();
                    self.told.weights += weight;
                    self.told.clipped += usize::from(0.5 * fall > clip);
                    self.told.acceptance += fall.min(0.0).exp();
                    self.others.scale_signs(row, weight);
                    self.states.scale_signs(row, -weight);
                }
                self.others.add_signs_times_positions(0.0, &mut self.grad);
            }
            Phase::Metropolis(metropolis) => {
                self.states.place(hamiltonian, rows);
                self.states.add_signs_times_positions(0.0, &mut self.grad);
                let n = self.rows.len();
                for _ in 0..metropolis.transitions {
                    self.transition(hamiltonian, metropolis, &mut rng);
                }
                self.told.acceptance /= metropolis.transitions as f64;
                self.told.weights = n as f64;
                for row in 0..n {
                    self.states.scale_signs(row, -1.0);
                }
            }
        }
        self.states.add_signs_times_positions(1.0, &mut self.grad);
    }

    /// One transition of every state: trajectory, then accept or stay.
    fn transition<R: Rng + ?Sized>(
        &mut self,
        hamiltonian: &Hamiltonian<'_>,
        metropolis: Metropolis,
        rng: &mut R,
    ) {
        self.states.draw_momenta(rng);
        self.others.copy_from(&self.states);
        self.others
            .draw_steps(|| (metropolis.step_size, metropolis.leapfrog_steps));
        self.others.integrate(hamiltonian);
        for row in 0..self.rows.len() {
            let fall = self.states.total(row) - self.others.total(row);
            // A trajectory that ran off is refused: `min` alone would pass over NaN.
            let acceptance = if fall.is_nan() {
                0.0
            } else {
                fall.min(0.0).exp()
            };
            self.told.acceptance += acceptance;
            if rng.random::<f64>() < acceptance {
                self.states.copy_state(&self.others, row);
            }
        }
    }
}
