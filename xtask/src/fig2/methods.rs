//! The methods of Figure 2, each from the same start.

use super::penalised::penalised;
use super::problem::Problem;
use super::results::{Method, Paper};
use super::watch::Watch;
use super::{CD_LAST_RATE, TAP_LAMBDA};
use crate::Result;
use mpf_baselines::{
    ContrastiveDivergence, ContrastiveOptions, Expansion, LearningRate, MeanField, Pseudolikelihood,
};
use mpf_core::{Checkpoint, MinimizerOptions};
use mpf_ising::{Fit, FitOptions, FitProgress, Fitter, Mpf, Samples};
use serde::Serialize;

/// A method of Figure 2, in the order of the legend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Learner {
    /// Minimum probability flow.
    Mpf,
    /// Pseudolikelihood.
    Pl,
    /// Contrastive divergence, one sweep per update.
    #[value(name = "cd-1")]
    Cd1,
    /// Contrastive divergence, ten sweeps per update.
    #[value(name = "cd-10")]
    Cd10,
    /// Mean field theory with TAP correction.
    Tap,
    /// Minimum probability flow with an ℓ1 penalty chosen on held-out data.
    #[value(name = "mpf-l1")]
    MpfL1,
}

impl Learner {
    /// Returns its name in the figure.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mpf => "MPF",
            Self::Pl => "PL",
            Self::Cd1 => "CD-1",
            Self::Cd10 => "CD-10",
            Self::Tap => "MFT+TAP",
            Self::MpfL1 => "MPF + ℓ1",
        }
    }

    /// Returns its line of the paper's Table E-1.
    pub fn paper(self) -> Option<Paper> {
        let (eps_j, eps_corr, seconds) = match self {
            Self::Mpf => (0.0172, 0.0025, 60.0),
            Self::Pl => (0.0582, 0.0036, 800.0),
            Self::Cd1 => (0.3196, 0.0127, 20_000.0),
            Self::Cd10 => (0.3341, 0.0123, 20_000.0),
            Self::Tap => (7.7704, 0.0983, 0.1),
            Self::MpfL1 => return None,
        };
        Some(Paper {
            eps_j,
            eps_corr,
            seconds,
        })
    }

    /// Learns from the start, or resumes from the entry `unit`, and measures errors on the way.
    pub fn run(self, problem: &Problem<'_>, unit: &Checkpoint) -> Result<Method> {
        let args = problem.model.args;
        let steps = match self {
            Self::Cd1 => args.cd1_updates,
            Self::Cd10 => args.cd10_updates,
            Self::Tap => 1,
            Self::Mpf | Self::Pl | Self::MpfL1 => args.iterations,
        };
        let mut watch = Watch::new(self, problem, steps, unit)?;
        let outcome = match self {
            Self::Mpf | Self::Pl => {
                let options = fit_options(problem, unit.entry("fit"));
                minimised(self, options, problem.model.samples(), |p| watch.see(p))
            }
            Self::Cd1 => contrastive(problem, 1, steps, unit, &mut watch),
            Self::Cd10 => contrastive(problem, 10, steps, unit, &mut watch),
            Self::Tap => mean_field(problem, &mut watch),
            Self::MpfL1 => penalised(problem, unit, &mut watch),
        };
        Ok(watch.finish(outcome))
    }
}

/// Returns the options of every fit by minimisation, with its state in `checkpoint`.
pub(super) fn fit_options(problem: &Problem<'_>, checkpoint: Checkpoint) -> FitOptions {
    FitOptions {
        support: problem.support.clone(),
        start: Some(problem.start.clone()),
        minimizer: MinimizerOptions {
            max_iterations: problem.model.args.iterations,
            gradient_tolerance: problem.model.args.tolerance,
            cancel: problem.model.cancel.clone(),
            checkpoint,
            ..Default::default()
        },
        ..Default::default()
    }
}

/// Fits by MPF, or by pseudolikelihood if that is `learner`.
pub(super) fn minimised(
    learner: Learner,
    options: FitOptions,
    samples: &Samples,
    observer: impl FnMut(&FitProgress<'_>) + Send,
) -> Result<Fit> {
    Ok(match learner {
        Learner::Pl => Fitter::new(Pseudolikelihood, options)?.fit_observed(samples, observer)?,
        _ => Fitter::new(Mpf::default(), options)?.fit_observed(samples, observer)?,
    })
}

fn contrastive(
    problem: &Problem<'_>,
    sweeps: usize,
    updates: usize,
    unit: &Checkpoint,
    watch: &mut Watch<'_>,
) -> Result<Fit> {
    let learner = ContrastiveDivergence::new(ContrastiveOptions {
        sweeps,
        updates,
        learning_rate: LearningRate {
            first: problem.free.cd_first_rate(),
            last: CD_LAST_RATE,
        },
        support: problem.support.clone(),
        start: Some(problem.start.clone()),
        seed: problem.model.seed,
        cancel: problem.model.cancel.clone(),
        checkpoint: unit.entry("fit"),
        ..Default::default()
    })?;
    Ok(learner.fit_observed(problem.model.samples(), |p| watch.see(p))?)
}

/// Inverts one matrix, and sets couplings to zero outside the support.
fn mean_field(problem: &Problem<'_>, watch: &mut Watch<'_>) -> Result<Fit> {
    let found = MeanField::new(Expansion::Tap, TAP_LAMBDA)?.fit(problem.model.samples())?;
    if !found.clipped.is_empty() {
        watch.warnings.push(format!(
            "the TAP equation of {:.1} % of the pairs has no solution and was clipped",
            100.0 * found.clipped_fraction
        ));
    }
    Ok(Fit {
        couplings: problem.on_support(&found.fit.couplings)?,
        iterations: 1,
        evaluations: 1,
        ..found.fit
    })
}
