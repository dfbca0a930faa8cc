//! How the couplings of a model were found: the part of a model file for people.

use mpf_baselines::{Drift, HeldOut, Polishing, Stage, pairs};
use mpf_core::{StopReason, TracePoint};
use mpf_ising::internal::Vectors;
use mpf_ising::{CrossValidation, ErrorBars, Fit, Penalty, Warning};
use serde::{Deserialize, Serialize};

/// Standard errors, and how they were computed.
#[derive(Clone, Debug, PartialEq)]
pub struct StandardErrors {
    /// `sandwich` or `bootstrap`.
    pub method: String,
    /// Successive samples in a block.
    pub block_length: usize,
    /// The standard errors, and the J that intervals are centred on, if the fit is penalised.
    pub bars: ErrorBars,
}

impl StandardErrors {
    /// Iterates over the pairs whose coupling the data do not determine.
    pub fn undetermined(&self) -> impl Iterator<Item = (usize, usize)> {
        let errors = &self.bars.couplings;
        pairs(errors.len()).filter(|&(i, j)| errors[i][j] == f64::INFINITY)
    }
}

/// One λ of a path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathRecord {
    /// The value of the penalty that varies.
    pub lambda: f64,
    /// The number of couplings that differ from zero.
    pub n_couplings: usize,
    /// The held-out objective.
    pub held_out: f64,
    /// Its standard error.
    pub standard_error: f64,
    /// The extended Bayesian information criterion, on a path of λ₁.
    pub ebic: Option<f64>,
}

/// How a fit went, and with which options.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FitRecord {
    /// The method, as on the command line.
    pub method: String,
    /// λ₁, on Σ_{i<j} |K_ij|.
    pub l1: f64,
    /// λ₂, on ½ Σ_{i<j} K_ij².
    pub l2: f64,
    /// The rule that chose the penalty, if one was chosen.
    pub chosen_by: Option<String>,
    /// The neighbourhood, as on the command line.
    pub neighbours: String,
    /// Whether every row was fitted by itself.
    pub nodewise: bool,
    /// Updates of stochastic maximum likelihood that made the model, after the fit.
    pub polish: usize,
    /// The number of free couplings.
    pub n_free_couplings: usize,
    /// The seed of everything random.
    pub seed: u64,
    /// The gradient tolerance.
    pub tolerance: f64,
    /// Why learning stopped; `None` for closed forms.
    pub stop: Option<String>,
    /// Whether the result is a minimum, or a closed form.
    pub converged: bool,
    /// The objective at the end.
    pub value: Option<f64>,
    /// The KKT residual: 0 at a minimum.
    pub kkt_residual: Option<f64>,
    /// Iterations of the minimiser, or updates.
    pub iterations: usize,
    /// Evaluations of the objective.
    pub evaluations: usize,
    /// Those of them in single precision, far from the minimum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub single_precision_evaluations: Option<usize>,
    /// Learning time in seconds.
    pub seconds: f64,
    /// The vector instructions that computed the sums: another machine may give other last digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vectors: Option<String>,
    /// The objectives that the random starts of a machine led to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<f64>,
    /// Warnings of the fit.
    pub warnings: Vec<String>,
    /// The learning curve, at most about 500 points of it.
    pub trace: Vec<TracePoint>,
    /// The penalty that varies along the path: `l1` or `l2`.
    pub path_of: Option<String>,
    /// The penalties that were tried, with their scores.
    pub path: Vec<PathRecord>,
    /// The fits that made the model, in their order, with their times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Stage>,
    /// The score on samples that a second fit left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_out: Option<HeldOut>,
    /// Whether the model stays with its data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
    /// What came of polishing, if it was tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polishing: Option<Polishing>,
}

/// The most points of a learning curve that a model file keeps, but for the last.
const TRACE_POINTS: usize = 500;

impl FitRecord {
    /// Describes how a fit of units with these names went; the caller adds its options.
    pub fn new(fit: &Fit, names: &[String]) -> Self {
        let is_learned = fit.stop != StopReason::ClosedForm;
        let is_not_converged = |w: &Warning| matches!(w, Warning::NotConverged { .. });
        Self {
            stop: is_learned.then(|| fit.stop.to_string()),
            converged: !fit.warnings.iter().any(is_not_converged),
            value: is_learned.then_some(fit.value),
            kkt_residual: is_learned.then_some(fit.kkt_residual),
            iterations: fit.iterations,
            evaluations: fit.evaluations,
            single_precision_evaluations: Some(fit.single_precision_evaluations)
                .filter(|evaluations| *evaluations > 0),
            seconds: fit.seconds,
            vectors: Some(Vectors::default().to_string()),
            warnings: fit.warnings.iter().map(|w| w.with_names(names)).collect(),
            trace: thinned(&fit.trace),
            ..Self::default()
        }
    }

    /// Keeps points of a learning curve.
    pub fn set_trace(&mut self, trace: &[TracePoint]) {
        self.trace = thinned(trace);
    }

    /// Adds the penalties that were tried.
    pub fn set_path(&mut self, path: &CrossValidation) {
        let name = match path.penalty {
            Penalty::L1 => "l1",
            Penalty::L2 => "l2",
        };
        self.path_of = Some(name.into());
        let points = path.path.iter().zip(&path.scores);
        // A point that there was no time to score has no number that a file can hold.
        self.path = points
            .filter(|(_, score)| score.mean.is_finite() && score.standard_error.is_finite())
            .map(|(point, score)| PathRecord {
                lambda: point.lambda,
                n_couplings: point.n_couplings,
                held_out: score.mean,
                standard_error: score.standard_error,
                ebic: point.ebic,
            })
            .collect();
    }
}

/// Keeps every n-th point and the last one.
fn thinned(trace: &[TracePoint]) -> Vec<TracePoint> {
    let step = trace.len().div_ceil(TRACE_POINTS).max(1);
    let last = trace.len().saturating_sub(1);
    let kept = trace.iter().enumerate();
    kept.filter(|(k, _)| k.is_multiple_of(step) || *k == last)
        .map(|(_, point)| *point)
        .collect()
}
