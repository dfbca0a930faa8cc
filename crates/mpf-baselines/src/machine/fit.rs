//! Fits of machines: trainers, restarts, warnings, and a score on held-out samples.
//!
//! ```text
//! minimise  mean_m Σ_i loss(Δ_mi) + ½ λ₂ Σ (W² + c² + J²)
//! ```
//!
//! for the flow and the pseudolikelihood, by L-BFGS from several random starts, of which the lowest
//! objective is kept; or contrastive divergence, which has no objective to compare, from one start.
//! The biases b start at those of independent units and are free of the penalty.

use super::{Machine, site_data};
use crate::Result;
use crate::error::Error;
use crate::independent::independent;
use crate::local_contrastive::{LocalContrastiveOptions, local_contrastive};
use crate::rbm::Rbm;
use crate::recipe::{HeldOut, score_held_out};
use mpf_core::rng::substream;
use mpf_core::{
    Checkpoint, EnergyModel, LocalFitOptions, LocalFitter, LocalLoss, LocalModel, MinimizerOptions,
    Minimum, SiteData, StopReason, Stopwatch, TracePoint, check_option,
};
use mpf_ising::{Samples, States};
use mpf_samplers::AnnealedOptions;
use rand::Rng;
use std::fmt;

/// How a machine is trained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MachineTrainer {
    /// Minimum probability flow.
    Mpf,
    /// Maximum pseudolikelihood.
    #[default]
    Pseudolikelihood,
    /// Contrastive divergence.
    Contrastive,
    /// Contrastive divergence with persistent chains.
    Persistent,
}

impl MachineTrainer {
    fn loss(self) -> Option<LocalLoss> {
        match self {
            Self::Mpf => Some(LocalLoss::Flow),
            Self::Pseudolikelihood => Some(LocalLoss::Pseudolikelihood),
            Self::Contrastive | Self::Persistent => None,
        }
    }
}

/// Options of a fit; [`MachineOptions::fit`] checks them.
#[derive(Clone, Debug)]
pub struct MachineOptions {
    /// Hidden units. Default 20.
    pub n_hidden: usize,
    /// Whether visible units are coupled too. Default no.
    pub semi_restricted: bool,
    /// The trainer. Default: pseudolikelihood.
    pub trainer: MachineTrainer,
    /// λ₂. Default `None`: 1/M for M samples.
    pub l2: Option<f64>,
    /// Random starts of MPF and pseudolikelihood. Default 3.
    pub starts: usize,
    /// Updates of contrastive divergence. Default 5000.
    pub updates: usize,
    /// Gibbs sweeps per update. Default 1.
    pub sweeps: usize,
    /// The seed of everything random. Default 0.
    pub seed: u64,
    /// Tolerance, limits, cancel handle, checkpoint. Default: a tolerance of 1e-4, 1000 iterations.
    pub minimizer: MinimizerOptions,
}

impl Default for MachineOptions {
    fn default() -> Self {
        Self {
            n_hidden: 20,
            semi_restricted: false,
            trainer: MachineTrainer::default(),
            l2: None,
            starts: 3,
            updates: 5000,
            sweeps: 1,
            seed: 0,
            minimizer: MinimizerOptions {
                gradient_tolerance: 1e-4,
                max_iterations: 1000,
                ..Default::default()
            },
        }
    }
}

/// The step that a fit is at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineProgress {
    /// The start, from 0.
    pub start: usize,
    /// Iterations or updates from it.
    pub iteration: usize,
    /// The objective and the largest entry of its gradient; `None` with contrastive divergence.
    pub objective: Option<(f64, f64)>,
}

/// A doubt about a fitted machine.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum MachineWarning {
    /// Hidden units that do nothing.
    DeadUnits {
        /// Their numbers, from 0.
        units: Vec<usize>,
        /// Of so many.
        n_hidden: usize,
    },
    /// A weight that runs away.
    LargeWeight {
        /// The hidden unit, from 0.
        hidden: usize,
        /// The visible unit.
        unit: usize,
        /// W, the largest of all.
        weight: f64,
    },
    /// The best start stopped before a minimum.
    NotConverged {
        /// Why it stopped.
        stop: StopReason,
        /// The largest entry of the gradient.
        residual: f64,
    },
}

impl fmt::Display for MachineWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeadUnits { units, n_hidden } => {
                let names: Vec<String> = units.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "{} of {n_hidden} hidden units do nothing ({}): use fewer with --hidden, a \
                     smaller --l2, or another --seed",
                    units.len(),
                    names.join(", ")
                )
            }
            Self::LargeWeight {
                hidden,
                unit,
                weight,
            } => write!(
                f,
                "the weight of hidden unit {hidden} and unit {unit} is {weight:.0}: weights run away, up to \
                 ±500, where energies would overflow; use a larger --l2, or fewer --hidden units"
            ),
            Self::NotConverged { stop, residual } => write!(
                f,
                "the fit stopped before a minimum ({stop}, gradient {residual:.1e}): raise \
                 --max-iterations or --l2"
            ),
        }
    }
}

/// A fitted machine.
#[derive(Clone, Debug)]
#[must_use = "look at `stop` and `warnings` before using the machine"]
pub struct MachineFit {
    /// The machine.
    pub machine: Machine,
    /// λ₂.
    pub l2: f64,
    /// Why the best start stopped; [`StopReason::IterationLimit`] after all updates of CD.
    pub stop: StopReason,
    /// The objective of the best start, with its penalty; `None` with CD.
    pub value: Option<f64>,
    /// The largest entry of its gradient.
    pub kkt_residual: Option<f64>,
    /// Iterations of the best start, or updates.
    pub iterations: usize,
    /// Evaluations of all starts.
    pub evaluations: usize,
    /// Learning time of all starts in seconds.
    pub seconds: f64,
    /// The objectives that the starts led to.
    pub starts: Vec<f64>,
    /// The start that was kept.
    pub best: usize,
    /// The learning curve of the best start.
    pub trace: Vec<TracePoint>,
    /// Doubts.
    pub warnings: Vec<MachineWarning>,
}

/// Warns of a weight beyond ±100: no samples are enough to tell such odds.
fn large_weight(rbm: &Rbm, theta: &[f64]) -> Option<MachineWarning> {
    let d = rbm.n_sites();
    let weights = theta[..d * rbm.n_hidden()].iter().enumerate();
    let (at, &weight) = weights.max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))?;
    (weight.abs() > 100.0).then_some(MachineWarning::LargeWeight {
        hidden: at / d,
        unit: at % d,
        weight,
    })
}

impl MachineOptions {
    /// Fits a machine. A checkpoint keeps finished starts, and the iterations or updates of the one
    /// under way.
    ///
    /// # Errors
    /// [`mpf_core::Error::Option`] for no hidden units, no starts or bad limits;
    /// [`mpf_core::Error::NonFiniteStart`]; [`Error::RanAway`]; [`Error::Overflowing`];
    /// [`mpf_core::Error::Cancelled`], unless it was the time limit.
    pub fn fit(
        &self,
        samples: &Samples,
        observer: &mut dyn FnMut(MachineProgress),
    ) -> Result<MachineFit> {
        let n_starts = match self.trainer.loss() {
            Some(_) => self.starts,
            None => 1,
        };
        check_option("starts", n_starts as f64, "at least 1", n_starts >= 1)?;
        self.fit_from(samples, 0..n_starts, &self.minimizer.checkpoint, observer)
    }

    fn fit_from(
        &self,
        samples: &Samples,
        starts: std::ops::Range<usize>,
        checkpoint: &Checkpoint,
        observer: &mut dyn FnMut(MachineProgress),
    ) -> Result<MachineFit> {
        let rbm = Rbm::new(samples.n_units(), self.n_hidden, self.semi_restricted)?;
        let data = site_data(samples)?;
        let l2 = self.l2.unwrap_or(1.0 / samples.n_effective());
        let biases = independent(samples)?.couplings.as_array().diag().to_vec();
        let mut all: Vec<(usize, Minimum)> = Vec::new();
        for at in starts {
            // A start that the time limit leaves no time for is left out, but for the first.
            if !all.is_empty() && self.minimizer.cancel.is_cancelled() {
                break;
            }
            let start = rbm.start(&biases, substream(self.seed, at as u64).next_u64());
            let reached = checkpoint.unit(format!("start {at}"), |entry| {
                let mut step = |iteration, objective| {
                    observer(MachineProgress {
                        start: at,
                        iteration,
                        objective,
                    });
                };
                self.fit_one(&rbm, &data, start, l2, entry, &mut step)
            })?;
            all.push((at, reached));
        }
        if self.minimizer.cancel.reason() == Some(StopReason::Cancelled) {
            return Err(mpf_core::Error::Cancelled.into());
        }
        let values: Vec<f64> = all.iter().map(|(_, r)| r.value).collect();
        let evaluations = all.iter().map(|(_, r)| r.evaluations).sum();
        let seconds = all.iter().map(|(_, r)| r.seconds).sum();
        let lowest = all
            .into_iter()
            .min_by(|a, b| a.1.value.total_cmp(&b.1.value));
        let (best, reached) = lowest.ok_or(Error::TimeLimit)?;
        let is_objective = self.trainer.loss().is_some();
        let dead = rbm.dead_units(&reached.theta, &data);
        let mut warnings = Vec::new();
        if !dead.is_empty() {
            warnings.push(MachineWarning::DeadUnits {
                units: dead,
                n_hidden: self.n_hidden,
            });
        }
        warnings.extend(large_weight(&rbm, &reached.theta));
        let is_done = reached.stop.is_converged()
            || !is_objective && reached.stop == StopReason::IterationLimit;
        if !is_done {
            warnings.push(MachineWarning::NotConverged {
                stop: reached.stop,
                residual: reached.kkt_residual,
            });
        }
        Ok(MachineFit {
            machine: Machine::new(rbm, reached.theta)?,
            l2,
            stop: reached.stop,
            value: is_objective.then_some(reached.value),
            kkt_residual: is_objective.then_some(reached.kkt_residual),
            iterations: reached.iterations,
            evaluations,
            seconds,
            starts: if is_objective { values } else { Vec::new() },
            best,
            trace: reached.trace,
            warnings,
        })
    }

    fn fit_one(
        &self,
        rbm: &Rbm,
        data: &SiteData,
        start: Vec<f64>,
        l2: f64,
        checkpoint: &Checkpoint,
        observer: &mut dyn FnMut(usize, Option<(f64, f64)>),
    ) -> Result<Minimum> {
        let penalised = rbm.penalised();
        let Some(loss) = self.trainer.loss() else {
            let clock = Stopwatch::start();
            let options = LocalContrastiveOptions {
                updates: self.updates,
                sweeps: self.sweeps,
                persistent: self.trainer == MachineTrainer::Persistent,
                l2,
                penalised,
                seed: self.seed,
                cancel: self.minimizer.cancel.clone(),
                checkpoint: checkpoint.clone(),
                ..Default::default()
            };
            let found = local_contrastive(rbm, data, &start, &options, |n| observer(n, None))?;
            return Ok(Minimum {
                theta: found.theta,
                value: 0.0,
                kkt_residual: 0.0,
                stop: found.stop,
                iterations: found.updates,
                evaluations: found.updates,
                rough_evaluations: 0,
                seconds: clock.seconds(),
                trace: Vec::new(),
            });
        };
        let mut options = LocalFitOptions {
            loss,
            l2,
            penalised,
            start,
            minimizer: self.minimizer.clone(),
            ..Default::default()
        };
        options.minimizer.checkpoint = checkpoint.clone();
        let found = LocalFitter::new(rbm, options)?.fit_observed(data, |step| {
            observer(step.iteration, Some((step.value, step.gradient_norm)));
        })?;
        Ok(found)
    }

    /// Fits the first samples from the start that `fit` kept, and scores the machine on the last
    /// `fraction` of them. Returns `None` for too few samples.
    ///
    /// # Errors
    /// Those of [`MachineOptions::fit`] and [`Machine::log_z`].
    pub fn held_out(
        &self,
        fit: &MachineFit,
        states: &States,
        fraction: f64,
        block_length: usize,
    ) -> Result<Option<HeldOut>> {
        let n = states.n_samples();
        let n_held_out = (fraction * n as f64).round() as usize;
        if n_held_out < crate::recipe::MIN_HELD_OUT || n_held_out >= n {
            return Ok(None);
        }
        let training = Samples::new(&states.slice(0..n - n_held_out))?;
        let held_out = states.slice(n - n_held_out..n);
        let checkpoint = self.minimizer.checkpoint.entry("fit of a part");
        let part = self.fit_from(&training, fit.best..fit.best + 1, &checkpoint, &mut |_| {})?;
        self.minimizer.cancel.check()?;
        let log_z = part.machine.log_z(&AnnealedOptions {
            seed: self.seed,
            cancel: self.minimizer.cancel.clone(),
            ..Default::default()
        })?;
        let scores = part.machine.scores(&held_out);
        let block_length = block_length.min(n_held_out / 2);
        score_held_out(&scores, Some(log_z), &training, &held_out, block_length).map(Some)
    }

    /// Returns the number of parameters for so many visible units.
    ///
    /// # Errors
    /// [`mpf_core::Error::Option`] without visible or hidden units.
    pub fn n_parameters(&self, n_units: usize) -> Result<usize> {
        Ok(Rbm::new(n_units, self.n_hidden, self.semi_restricted)?.n_params())
    }
}
