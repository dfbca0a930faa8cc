//! The paper's procedure: minimise K with the neighbours fixed, set θ_H to the minimiser, draw
//! neighbours again (Appendix H, "Iteratively improving the objective function").

use super::outcome::Fit;
use super::run::{Run, RunningMean};
use crate::Result;
use crate::connectivity::{HamiltonianNeighbours, Neighbours, NoiseNeighbours};
use crate::flow::NeighbourFlow;
use crate::hamiltonian::Trajectory;
use crate::model::Filters;
use mpf_core::{Minimizer, MinimizerOptions, StopReason, check_not_zero, check_positive, rng};
use serde::{Deserialize, Serialize};

/// Which neighbours a round draws.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NeighbourRule {
    /// One per sample, by Hamiltonian dynamics under the filters of the round before.
    Hamiltonian(Trajectory),
    /// States at random around a sample, so many of each.
    Noise {
        /// Where they are.
        noise: NoiseNeighbours,
        /// How many of each sample.
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
    /// The number of last rounds whose J are averaged to give the result. Their neighbours are
    /// drawn independently, and so are their errors. 1 is the paper's procedure to the letter.
    /// Default 20.
    pub averaged_rounds: usize,
    /// The neighbours. Default: Hamiltonian.
    pub rule: NeighbourRule,
}

impl Default for Alternating {
    fn default() -> Self {
        Self {
            rounds: 60,
            inner_iterations: 10,
            averaged_rounds: 20,
            rule: NeighbourRule::Hamiltonian(Trajectory::default()),
        }
    }
}

/// Where the trainer is after a round. θ_H of the next round is `filters`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Course {
    filters: Filters,
    mean: RunningMean,
    /// The seed of the neighbours drawn last.
    seed: u64,
    /// Rounds done.
    steps: usize,
}

impl Alternating {
    pub(super) fn check(&self) -> Result<()> {
        match self.rule {
            NeighbourRule::Hamiltonian(trajectory) => trajectory.check(),
            NeighbourRule::Noise { noise, per_sample } => {
                let (NoiseNeighbours::Gaussian { scale: reach }
                | NoiseNeighbours::Cube { side: reach }) = noise;
                check_positive("the reach of a rule", reach)?;
                Ok(check_not_zero("per_sample", per_sample)?)
            }
        }
    }

    fn draw(&self, filters: &Filters, run: &Run<'_>, seed: u64) -> Neighbours {
        match self.rule {
            NeighbourRule::Hamiltonian(trajectory) => {
                let rule = HamiltonianNeighbours {
                    filters: filters.clone(),
                    trajectory,
                };
                Neighbours::hamiltonian(&rule, run.data, seed)
            }
            NeighbourRule::Noise { noise, per_sample } => {
                Neighbours::draw(&noise, run.data, per_sample, seed)
            }
        }
    }

    pub(super) fn fit(&self, mut run: Run<'_>, start: Filters) -> Result<Fit> {
        let d = start.n_dims();
        let earlier = run.resume(|course: &Course| {
            course.steps <= self.rounds
                && course.filters.n_dims() == d
                && course.mean.fits(course.steps, d)
        })?;
        let mut course = match earlier {
            Some(course) => course,
            None => {
                run.report(0, &start)?;
                Course {
                    mean: RunningMean::new(d),
                    filters: start,
                    seed: run.options.seed,
                    steps: 0,
                }
            }
        };
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
            run.report(course.steps, &course.filters)?;
            // A run cannot be resumed from a round that was cut short: the one before is kept.
            if found.stop != StopReason::Cancelled {
                run.keep(&course);
            }
        }
        run.finish(course.mean.finish(course.filters), stop, course.steps)
    }
}
