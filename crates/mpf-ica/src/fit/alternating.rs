//! The paper's procedure: minimise K with the neighbours fixed, set θ_H to the minimiser, draw
//! neighbours again (Appendix H, "Iteratively improving the objective function").

use super::snapshot::State;
use super::{Fit, Outcome, Run, RunningMean};
use crate::Result;
use crate::connectivity::{CubeNeighbours, GaussianNeighbours, HamiltonianNeighbours, Neighbours};
use crate::error::check_option;
use crate::flow::NeighbourFlow;
use crate::hamiltonian::Trajectory;
use crate::model::Filters;
use mpf_core::{Minimizer, MinimizerOptions, StopReason, rng};
use serde::{Deserialize, Serialize};

/// Which neighbours a round draws.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// One each, by Hamiltonian dynamics under the filters of the round before.
    Hamiltonian(Trajectory),
    /// Isotropic Gaussian steps. The paper: several hundred per sample are needed.
    Gaussian {
        /// Their standard deviation, finite and positive.
        scale: f64,
        /// Neighbours per sample.
        per_sample: usize,
    },
    /// Steps within a cube, whose limit is score matching (Appendix C).
    Cube {
        /// Its side, finite and positive.
        side: f64,
        /// Neighbours per sample.
        per_sample: usize,
    },
}

/// Options of the paper's trainer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alternating {
    /// How often neighbours are drawn. Default 60.
    pub rounds: usize,
    /// L-BFGS iterations between draws; the paper: "perhaps 10 or 100". Default 10.
    pub inner_iterations: usize,
    /// The result is the mean of J over so many last rounds, whose neighbours are drawn
    /// independently and so are their errors. 1 is the paper's procedure to the letter.
    /// Default 20.
    pub averaged_rounds: usize,
    /// The neighbours. Default: Hamiltonian.
    pub rule: Rule,
}

impl Default for Alternating {
    fn default() -> Self {
        Self {
            rounds: 60,
            inner_iterations: 10,
            averaged_rounds: 20,
            rule: Rule::Hamiltonian(Trajectory::default()),
        }
    }
}

impl Alternating {
    pub(super) fn check(&self) -> Result<()> {
        match self.rule {
            Rule::Hamiltonian(trajectory) => trajectory.check(),
            Rule::Gaussian {
                scale: reach,
                per_sample,
            }
            | Rule::Cube {
                side: reach,
                per_sample,
            } => {
                let positive = reach > 0.0 && reach.is_finite();
                check_option("the reach of a rule", reach, "positive", positive)?;
                let n = per_sample as f64;
                check_option("per_sample", n, "at least 1", per_sample >= 1)
            }
        }
    }

    fn draw(&self, filters: &Filters, run: &Run<'_>, seed: u64) -> Neighbours {
        match self.rule {
            Rule::Hamiltonian(trajectory) => {
                let rule = HamiltonianNeighbours {
                    filters: filters.clone(),
                    trajectory,
                };
                Neighbours::hamiltonian(&rule, run.data, seed)
            }
            Rule::Gaussian { scale, per_sample } => {
                Neighbours::draw(&GaussianNeighbours { scale }, run.data, per_sample, seed)
            }
            Rule::Cube { side, per_sample } => {
                Neighbours::draw(&CubeNeighbours { side }, run.data, per_sample, seed)
            }
        }
    }

    pub(super) fn begin(&self, mut run: Run<'_>, start: Filters) -> Result<Fit> {
        run.report(0, &start, || None)?;
        let course = Course {
            mean: RunningMean::new(start.n_dims()),
            filters: start,
            seed: run.options.seed,
            steps: 0,
        };
        self.run(run, course)
    }

    pub(super) fn run(&self, mut run: Run<'_>, mut course: Course) -> Result<Fit> {
        let minimizer = Minimizer::new(MinimizerOptions {
            max_iterations: self.inner_iterations,
            cancel: run.options.cancel.clone(),
            ..Default::default()
        })?;
        let mut stop = StopReason::IterationLimit;
        while course.steps < self.rounds {
            if let Some(reason) = run.must_stop() {
                stop = reason;
                break;
            }
            course.seed = rng::next_seed(course.seed);
            let neighbours = self.draw(&course.filters, &run, course.seed);
            let mut flow = NeighbourFlow::new(run.data, &neighbours)?;
            let found = minimizer.minimize(&mut flow, course.filters.theta())?;
            course.filters = Filters::from_theta(&found.theta);
            course.steps += 1;
            // Not in the last rounds, where the new filter would have no time to settle.
            if 2 * course.steps <= self.rounds {
                run.rescue(course.steps, &mut course.filters)?;
            }
            if course.steps.saturating_add(self.averaged_rounds) > self.rounds {
                course.mean.add(&course.filters);
            }
            // A round that was cut short is no place to go on from.
            let whole = found.stop != StopReason::Cancelled;
            run.report(course.steps, &course.filters, || {
                whole.then(|| State::Alternating(course.clone()))
            })?;
        }
        run.finish(Outcome {
            filters: course.mean.finish().unwrap_or(course.filters),
            stop,
            steps: course.steps,
            acceptance: None,
            clipped_fraction: 0.0,
        })
    }
}

/// Where the trainer is after a round. θ_H of the next is `filters`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Course {
    filters: Filters,
    mean: RunningMean,
    /// That of the neighbours drawn last.
    seed: u64,
    /// Rounds done.
    pub(super) steps: usize,
}

impl Course {
    /// Whether the filters are of `n_dims` dimensions.
    pub(super) fn suits(&self, n_dims: usize) -> bool {
        self.filters.n_dims() == n_dims && self.mean.mean.nrows() == n_dims
    }
}
