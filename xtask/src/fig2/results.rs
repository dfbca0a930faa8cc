//! The results of Figure 2, as they are written to `results.json`.

use super::Args;
use crate::correlations::Estimate;
use crate::output::{Settings, digits};
use serde::{Deserialize, Serialize};

/// `results.json`; every field is described in `docs/results.md`.
#[derive(Serialize)]
pub(super) struct Results {
    pub(super) settings: Settings<Args>,
    pub(super) data: Data,
    pub(super) no_couplings: NoCouplings,
    pub(super) methods: Vec<Method>,
    pub(super) over_seeds: Vec<OverSeeds>,
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

#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct Point {
    pub(super) iteration: usize,
    pub(super) seconds: f64,
    pub(super) eps_j: f64,
    pub(super) eps_corr: Option<Estimate>,
}

/// A method over several models.
#[derive(Serialize)]
pub(super) struct OverSeeds {
    pub(super) name: &'static str,
    pub(super) seeds: Vec<u64>,
    pub(super) eps_j: Spread,
    pub(super) eps_corr: Spread,
    pub(super) seconds: Spread,
}

/// Median, smallest and largest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let n = values.len();
        Self {
            median: 0.5 * (values[(n - 1) / 2] + values[n / 2]),
            min: values[0],
            max: values[n - 1],
        }
    }

    pub(super) fn shown(self) -> String {
        format!(
            "{} ({}–{})",
            digits(self.median),
            digits(self.min),
            digits(self.max)
        )
    }
}

/// Summarises every method over the models that it finished.
pub(super) fn summarise(args: &Args, models: &[(u64, Vec<Method>)]) -> Vec<OverSeeds> {
    let mut summary = Vec::new();
    for (at, learner) in args.methods.iter().enumerate() {
        let of_this: Vec<(u64, &Method)> = models
            .iter()
            .filter_map(|(seed, methods)| Some((*seed, methods.get(at)?)))
            .collect();
        if of_this.is_empty() {
            continue;
        }
        let spread =
            |f: fn(&Method) -> f64| Spread::of(of_this.iter().map(|(_, m)| f(m)).collect());
        summary.push(OverSeeds {
            name: learner.name(),
            seeds: of_this.iter().map(|(seed, _)| *seed).collect(),
            eps_j: spread(|m| m.eps_j),
            eps_corr: spread(|m| m.eps_corr.map_or(f64::NAN, |e| e.value)),
            seconds: spread(|m| m.seconds),
        });
    }
    summary
}
