//! The results of Figure 2, as they are written to `results.json`.

use super::path::Path;
use super::{Args, Free, Source};
use crate::correlations::Estimate;
use crate::output::{Settings, Spread};
use mpf_ising::FitProgress;
use serde::{Deserialize, Serialize};

/// `results.json`; every field is described in `docs/results.md`.
#[derive(Serialize)]
pub(super) struct Results {
    pub(super) settings: Settings<Args>,
    /// Of the samples that all methods learn from.
    pub(super) data: Data,
    /// Of the chain beside exact draws.
    pub(super) chain: Option<Data>,
    pub(super) no_couplings: NoCouplings,
    pub(super) supports: Vec<OfSupport>,
    pub(super) reading: Vec<String>,
}

/// The results with one choice of free parameters.
#[derive(Serialize)]
pub(super) struct OfSupport {
    pub(super) support: Free,
    pub(super) n_parameters: usize,
    /// Of the first model, as are the paths.
    pub(super) methods: Vec<Method>,
    pub(super) paths: Vec<Path>,
    pub(super) over_seeds: Vec<OverSeeds>,
    pub(super) paths_over_seeds: Vec<PathOverSeeds>,
    pub(super) reading: Vec<String>,
}

/// How informative the samples are.
#[derive(Serialize, Deserialize)]
pub(super) struct Data {
    pub(super) distinct_samples: usize,
    /// Integrated autocorrelation time of the energy, in samples: 1 for independent ones.
    pub(super) tau_energy: f64,
    pub(super) effective_samples: f64,
    /// ε_corr of the samples' own correlations: their noise.
    pub(super) eps_corr: f64,
}

/// The errors of Ĵ = 0.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct NoCouplings {
    pub(super) eps_j: f64,
    pub(super) eps_corr: f64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Method {
    pub(super) name: String,
    pub(super) eps_j: f64,
    pub(super) eps_j_off_diagonal: f64,
    pub(super) eps_j_diagonal: f64,
    pub(super) eps_corr: Option<Estimate>,
    pub(super) seconds: f64,
    pub(super) iterations: usize,
    pub(super) evaluations: usize,
    pub(super) stop: String,
    /// The penalty chosen on held-out samples.
    pub(super) lambda: Option<f64>,
    /// Whether couplings are larger than the samples can determine.
    pub(super) ran_away: bool,
    pub(super) warnings: Vec<String>,
    pub(super) paper: Option<Paper>,
    pub(super) trace: Vec<Point>,
}

/// Table E-1 of the paper.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct Paper {
    pub(super) eps_j: f64,
    pub(super) eps_corr: f64,
    pub(super) seconds: f64,
}

/// A moment of a fit.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Point {
    pub(super) iteration: usize,
    /// Of the objective; updates of CD.
    pub(super) evaluations: usize,
    pub(super) seconds: f64,
    /// NaN where there is none.
    pub(super) gradient_norm: f64,
    pub(super) eps_j: f64,
    pub(super) eps_corr: Option<Estimate>,
}

impl Point {
    pub(super) fn of(progress: &FitProgress<'_>, eps_j: f64) -> Self {
        Self {
            iteration: progress.iteration,
            evaluations: progress.evaluations,
            seconds: progress.seconds,
            gradient_norm: progress.gradient_norm,
            eps_j,
            eps_corr: None,
        }
    }
}

/// A method over several models.
#[derive(Serialize)]
pub(super) struct OverSeeds {
    pub(super) name: String,
    pub(super) seeds: Vec<u64>,
    pub(super) eps_j: Spread,
    pub(super) eps_corr: Spread,
    pub(super) seconds: Spread,
}

/// A [`Path`] over several models.
#[derive(Serialize)]
pub(super) struct PathOverSeeds {
    pub(super) name: String,
    pub(super) ridge: f64,
    pub(super) sampler: Source,
    pub(super) states: Vec<StateOverSeeds>,
}

#[derive(Serialize)]
pub(super) struct StateOverSeeds {
    pub(super) state: String,
    /// The models in which it was reached.
    pub(super) models: usize,
    pub(super) eps_j: Spread,
}

/// The methods and paths of one model with one choice of free parameters.
pub(super) struct Run {
    pub(super) seed: u64,
    pub(super) methods: Vec<Method>,
    pub(super) paths: Vec<Path>,
}

impl OfSupport {
    /// Keeps the first of `runs`, and summarises every method and path over the runs that have it.
    pub(super) fn new(support: Free, n_parameters: usize, mut runs: Vec<Run>) -> Self {
        let mut over_seeds = Vec::new();
        for (at, method) in runs[0].methods.iter().enumerate() {
            let found = || {
                let all = runs.iter();
                all.filter_map(move |run| Some((run.seed, run.methods.get(at)?)))
            };
            let spread = |f: fn(&Method) -> f64| Spread::of(found().map(|(_, m)| f(m)).collect());
            over_seeds.push(OverSeeds {
                name: method.name.clone(),
                seeds: found().map(|(seed, _)| seed).collect(),
                eps_j: spread(|m| m.eps_j),
                eps_corr: spread(|m| m.eps_corr.map_or(f64::NAN, |e| e.value)),
                seconds: spread(|m| m.seconds),
            });
        }
        let mut paths_over_seeds = Vec::new();
        for (at, path) in runs[0].paths.iter().enumerate() {
            let states = path.states().into_iter().filter_map(|(state, _)| {
                let all = runs.iter().filter_map(|run| run.paths.get(at));
                let errors: Vec<f64> = all.filter_map(|p| Some(p.state(&state)?.eps_j)).collect();
                (!errors.is_empty()).then(|| StateOverSeeds {
                    models: errors.len(),
                    eps_j: Spread::of(errors),
                    state,
                })
            });
            paths_over_seeds.push(PathOverSeeds {
                states: states.collect(),
                name: path.name.clone(),
                ridge: path.ridge,
                sampler: path.sampler,
            });
        }
        let first = runs.swap_remove(0);
        Self {
            support,
            n_parameters,
            methods: first.methods,
            paths: first.paths,
            over_seeds,
            paths_over_seeds,
            reading: Vec::new(),
        }
    }
}
