//! Fits: joint and symmetric, or node by node and averaged.
//!
//! A joint fit minimises F over all sites with one J_ij for each pair. A node-wise fit minimises the
//! part of every site on its own, with couplings of its own, and averages the two of each pair. It
//! needs the memory of one site at a time, O(L q²), and its vectors stay in the caches.

use crate::basis::{AllPairs, Curvature, OneSite, Standardized, site_curvature};
use crate::kernel::{Loss, joint_bytes, pair_index};
use crate::model::Means;
use crate::objective::{JointObjective, NodeEngines, NodeObjective, Penalties, n_params};
use crate::{Potts, Result, Sequences};
use mpf_core::{Minimizer, MinimizerOptions, Progress, StopReason};
use mpf_ising::Mode;
use rayon::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The options of a [`fit`].
#[derive(Clone, Debug)]
pub struct FitOptions {
    /// Pseudolikelihood or flow.
    pub loss: Loss,
    /// The penalties, in the units of a mean over sequences.
    pub penalties: Penalties,
    /// Joint or node-wise.
    pub mode: Mode,
    /// Tolerances and limits. The gradient is that of coordinates in which the curvature is about
    /// one; the defaults of [`FitOptions::new`] stop at 1e-2.
    pub minimizer: MinimizerOptions,
}

/// The default λ of pseudolikelihood, which plmDCA has too.
const LAMBDA: f64 = 0.01;

impl FitOptions {
    /// Returns the defaults of a loss for `sequences`: λ_h = 0.01, and λ_J = 0.01 times the
    /// [`relative_curvature`] of the loss, which is one for pseudolikelihood. The two losses then
    /// shrink couplings by about the same part.
    pub fn new(loss: Loss, sequences: &Sequences) -> Self {
        Self {
            loss,
            penalties: Penalties {
                couplings: LAMBDA * relative_curvature(loss, sequences),
                fields: LAMBDA,
                group: 0.0,
            },
            mode: Mode::Joint,
            minimizer: MinimizerOptions {
                gradient_tolerance: 1e-2,
                memory: 5,
                ..MinimizerOptions::default()
            },
        }
    }
}

/// Returns the curvature of a loss in the fields as a multiple of pseudolikelihood's, for a model
/// without couplings that has the frequencies f_i(a) of `sequences`:
///
/// ```text
/// ½ Σ_i {[Σ_a √f_i(a)]² − 1} / Σ_i {1 − Σ_a f_i(a)²}
/// ```
///
/// It is q/2 if all q letters are equally frequent; about 7 in a family of proteins and 2 in one of
/// RNA.
pub fn relative_curvature(loss: Loss, sequences: &Sequences) -> f64 {
    let frequencies = sequences.frequencies();
    let total = |loss| -> f64 {
        let of_sites = site_curvature(loss, &frequencies, sequences.n_states());
        of_sites.iter().sum()
    };
    let plain = total(Loss::Pseudolikelihood);
    if plain > 0.0 {
        total(loss) / plain
    } else {
        1.0
    }
}

/// A fitted model.
#[derive(Clone, Debug)]
#[must_use = "look at `stop` to see whether this is a minimum"]
pub struct Fit {
    /// The model.
    pub model: Potts,
    /// The objective with its penalties; for a node-wise fit the sum over sites.
    pub value: f64,
    /// Why it stopped; for a node-wise fit the first reason that is no convergence.
    pub stop: StopReason,
    /// Iterations; for a node-wise fit the most of any site.
    pub iterations: usize,
    /// Evaluations; for a node-wise fit the mean of all sites, rounded.
    pub evaluations: usize,
    /// The largest entry of the gradient, in coordinates in which the curvature is about one.
    pub gradient: f64,
    /// Seconds.
    pub seconds: f64,
}

/// Where a fit is.
#[derive(Clone, Copy, Debug)]
pub enum FitProgress {
    /// A joint fit after an iteration.
    Joint {
        /// Iterations so far.
        iteration: usize,
        /// The objective.
        value: f64,
        /// The largest entry of the gradient.
        gradient: f64,
    },
    /// A node-wise fit after a site.
    Nodes {
        /// Sites that are done.
        done: usize,
        /// All sites.
        all: usize,
    },
}

/// Returns about how many bytes a fit of this shape takes beside the sequences.
pub fn bytes_of_fit(n_sites: usize, n_states: usize, mode: Mode, memory: usize) -> usize {
    let params = n_params(n_sites, n_states).saturating_mul(8);
    // L-BFGS keeps two vectors for each correction, and a dozen others.
    let vectors = 2 * memory + 15;
    match mode {
        Mode::Joint => params
            .saturating_mul(vectors)
            .saturating_add(joint_bytes(n_sites, n_states)),
        Mode::NodeWise => {
            let site = 8 * n_states * n_states * n_sites;
            let threads = rayon::current_num_threads();
            // The fitted couplings of all sites, twice those of a pair each; then those of all pairs.
            (5 * params).saturating_add(site.saturating_mul(vectors * threads))
        }
    }
}

/// The seconds that L-BFGS takes for one parameter in one step: between those of 10⁵ parameters, half of
/// them, and those of 10⁷, which are in no cache.
const SECONDS_OF_STEP: f64 = 7e-8;

/// Returns about how many seconds an iteration over all sites takes: its evaluation, measured by
/// evaluating one site, and the step itself. Nodes take their steps side by side, and in the cache.
pub fn seconds_of_iteration(sequences: &Sequences, options: &FitOptions) -> f64 {
    let step = SECONDS_OF_STEP * n_params(sequences.n_sites(), sequences.n_states()) as f64;
    let step = match options.mode {
        Mode::Joint => step,
        Mode::NodeWise => 0.6 * step / rayon::current_num_threads() as f64,
    };
    seconds_of_evaluation(sequences, options.loss) + step
}

fn seconds_of_evaluation(sequences: &Sequences, loss: Loss) -> f64 {
    let engines = NodeEngines::new(sequences, loss);
    let mut objective = NodeObjective::new(&engines, 0, Penalties::default());
    let theta = vec![0.0; mpf_core::Objective::n_params(&objective)];
    let mut grad = theta.clone();
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        let clock = mpf_core::Stopwatch::start();
        mpf_core::Objective::value_and_gradient(&mut objective, &theta, &mut grad);
        best = best.min(clock.seconds());
    }
    let threads = rayon::current_num_threads().min(sequences.n_sites());
    best * sequences.n_sites() as f64 / threads as f64
}

/// Fits a model to `sequences` and calls `observer` as it goes.
///
/// # Errors
/// [`Error::Core`](crate::Error::Core) for options out of range or an objective that is not finite.
pub fn fit(
    sequences: &Sequences,
    options: &FitOptions,
    observer: impl Fn(FitProgress) + Sync,
) -> Result<Fit> {
    match options.mode {
        Mode::Joint => fit_jointly(sequences, options, observer),
        Mode::NodeWise => fit_nodes(sequences, options, observer),
    }
}

/// Returns the fields of the model without couplings: ln of the frequencies with one pseudocount per
/// state, in the zero-sum gauge.
fn independent_fields(sequences: &Sequences) -> Vec<f64> {
    let q = sequences.n_states();
    let mut fields = sequences.frequencies();
    for site in fields.chunks_exact_mut(q) {
        for h in site.iter_mut() {
            *h = (*h * sequences.total_weight() + 1.0).ln();
        }
        let mean = site.iter().sum::<f64>() / q as f64;
        for h in site {
            *h -= mean;
        }
    }
    fields
}

fn fit_jointly(
    sequences: &Sequences,
    options: &FitOptions,
    observer: impl Fn(FitProgress),
) -> Result<Fit> {
    let minimizer = Minimizer::new(options.minimizer.clone())?;
    let (n, q) = (sequences.n_sites(), sequences.n_states());
    let objective = JointObjective::new(sequences, options.loss, options.penalties);
    let curvature = Curvature::new(sequences, options.loss);
    let pairs = AllPairs {
        n_sites: n,
        n_states: q,
    };
    let ridges = [options.penalties.fields, options.penalties.couplings];
    let mut objective = Standardized::new(objective, pairs, &curvature, 0..n, ridges);
    let start = objective.without_couplings(&independent_fields(sequences));
    let report = |p: &Progress<'_>| {
        observer(FitProgress::Joint {
            iteration: p.iteration,
            value: p.value,
            gradient: p.gradient_norm,
        });
    };
    let mut minimum = minimizer.minimize_l1(&mut objective, &start, &[], report)?;
    objective.to_parameters(&mut minimum.theta);
    Ok(Fit {
        model: Potts::new(n, q, minimum.theta),
        value: minimum.value,
        stop: minimum.stop,
        iterations: minimum.iterations,
        evaluations: minimum.evaluations,
        gradient: minimum.kkt_residual,
        seconds: minimum.seconds,
    })
}

fn fit_nodes(
    sequences: &Sequences,
    options: &FitOptions,
    observer: impl Fn(FitProgress) + Sync,
) -> Result<Fit> {
    let clock = mpf_core::Stopwatch::start();
    let minimizer = Minimizer::new(options.minimizer.clone())?;
    let (n, q) = (sequences.n_sites(), sequences.n_states());
    let engines = NodeEngines::new(sequences, options.loss);
    let fields = independent_fields(sequences);
    let curvature = Curvature::new(sequences, options.loss);
    // Half of the penalty of a pair is that of one copy.
    let ridges = [options.penalties.fields, 0.5 * options.penalties.couplings];
    let done = AtomicUsize::new(0);
    let nodes = (0..n).into_par_iter().map(|site| {
        let objective = NodeObjective::new(&engines, site, options.penalties);
        let one = OneSite {
            n_sites: n,
            n_states: q,
            site,
        };
        let mut objective = Standardized::new(objective, one, &curvature, site..site + 1, ridges);
        let start = objective.without_couplings(&fields[site * q..(site + 1) * q]);
        let mut minimum = minimizer.minimize(&mut objective, &start)?;
        objective.to_parameters(&mut minimum.theta);
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        observer(FitProgress::Nodes { done, all: n });
        Ok(minimum)
    });
    let nodes: Vec<_> = nodes.collect::<Result<_>>()?;

    let mut theta = vec![0.0; n_params(n, q)];
    let (all_fields, couplings) = theta.split_at_mut(n * q);
    for (i, node) in nodes.iter().enumerate() {
        let (fields, rows) = node.theta.split_at(q);
        let all_fields = &mut all_fields[i * q..(i + 1) * q];
        all_fields.copy_from_slice(fields);
        for (k, rows) in rows.chunks_exact(q * q).enumerate() {
            let j = k + usize::from(k >= i);
            let block = &mut couplings[pair_index(n, i, j) * q * q..][..q * q];
            // Two copies can be averaged only in the same gauge.
            let means = Means::of(rows, q);
            for (place, value) in rows.iter().enumerate() {
                let (b, a) = (place / q, place % q);
                let place = if i < j { a * q + b } else { b * q + a };
                block[place] += 0.5 * (value + means.all - means.columns[a] - means.rows[b]);
            }
            for (field, mean) in all_fields.iter_mut().zip(&means.columns) {
                *field += mean - means.all;
            }
        }
    }
    let unfinished = nodes.iter().find(|node| !node.stop.is_converged());
    let evaluations: usize = nodes.iter().map(|node| node.evaluations).sum();
    Ok(Fit {
        model: Potts::new(n, q, theta),
        value: nodes.iter().map(|node| node.value).sum(),
        stop: unfinished.unwrap_or(&nodes[0]).stop,
        iterations: nodes.iter().map(|node| node.iterations).max().unwrap_or(0),
        evaluations: (evaluations + n / 2) / n,
        gradient: nodes
            .iter()
            .fold(0.0, |most, node| most.max(node.kkt_residual)),
        seconds: clock.seconds(),
    })
}
