//! The seconds of steps that are no fits, from those of smaller ones.

use crate::failure::Failure;
use mpf_baselines::{LogZ, Recipe};
use mpf_core::linalg::{positive_definite_inverse, symmetric_eigen};
use mpf_ising::{Couplings, Exact, Samples, Support};
use mpf_samplers::{AnnealedOptions, annealed_log_z};
use ndarray::Array2;
use std::time::Instant;

/// Temperatures at which annealing is tried.
const FEW_LEVELS: usize = 10;
/// Hessians of the sandwich with and without a penalty.
pub(super) const HESSIANS: f64 = 3.0;

/// Returns the seconds of the second fastest of three runs: one that another program interrupts says
/// nothing.
pub(super) fn timed<T>(run: impl Fn() -> T) -> f64 {
    let mut seconds = [(); 3].map(|()| {
        let clock = Instant::now();
        drop(run());
        clock.elapsed().as_secs_f64()
    });
    seconds.sort_unstable_by(f64::total_cmp);
    seconds[1]
}

/// Returns the seconds of ln Z: of a sum over states, from that over those of fewer units, or of
/// annealing.
pub(super) fn seconds_of_log_z(model: &Couplings) -> Result<f64, Failure> {
    const FEWER: usize = 14;
    let d = model.n_units();
    if d > Exact::MAX_UNITS {
        return Ok(seconds_of_annealing(d, |few| {
            let _ = annealed_log_z(model, few);
        }));
    }
    let few = d.min(FEWER);
    let none = Couplings::new(Array2::zeros((few, few)))?;
    Ok(timed(|| Exact::new(&none)) * d as f64 / few as f64 * ((d - few) as f64).exp2())
}

/// Returns the seconds of annealing, from those at few temperatures and, of many units, in few chains. The
/// share of hot ones, at which most units flip, is that of all.
pub(super) fn seconds_of_annealing(n_units: usize, anneal: impl Fn(&AnnealedOptions)) -> f64 {
    let all = AnnealedOptions::default();
    let fewer = (n_units / LogZ::MAX_ANNEALED_UNITS).pow(2).clamp(1, 25);
    let few = AnnealedOptions {
        n_levels: FEW_LEVELS,
        n_chains: all.n_chains / fewer,
        ..all.clone()
    };
    let sweeps = |of: &AnnealedOptions| (of.n_chains * of.n_levels) as f64;
    timed(|| anneal(&few)) * sweeps(&all) / sweeps(&few)
}

/// Returns the seconds of the eigenvectors of `d` units, from those of fewer.
pub(super) fn seconds_of_decomposition(d: usize) -> f64 {
    const FEWER: usize = 128;
    let few = d.min(FEWER);
    let matrix = Array2::from_shape_fn((few, few), |(i, j)| {
        let (low, high) = (i.min(j), i.max(j));
        ((7 * low + 13 * high) % 17) as f64
    });
    timed(|| symmetric_eigen(matrix.view())) * (d as f64 / few as f64).powi(3)
}

/// Returns the seconds of a Hessian of the sandwich and its inverse, from those of smaller ones.
pub(super) fn seconds_per_hessian(recipe: &Recipe, samples: &Samples) -> Result<f64, Failure> {
    const SMALL: usize = 192;
    const TILE: usize = 64;
    /// Products that take as long as a sample's bit and its margin.
    const BIT: f64 = 30.0;
    let small = SMALL as f64;
    let matrix = Array2::<f64>::eye(SMALL);
    let inverse = timed(|| positive_definite_inverse(matrix.view())) / small.powi(3);
    let tile = Array2::<f64>::ones((TILE, SMALL));
    let product = timed(|| tile.t().dot(&tile)) / (TILE as f64 * small * small);
    // Constant units have no parameters.
    let means = samples.means();
    let varying = means.iter().filter(|m| **m > 0.0 && **m < 1.0).count();
    let d = varying.max(1) as f64;
    let n_couplings = n_determined(recipe, samples)? as f64;
    let row = 1.0 + 2.0 * n_couplings / d;
    let threads = rayon::current_num_threads() as f64;
    let n_units = samples.n_units();
    // A product of every unit, an inverse of all parameters or of every unit's; and twice the scores of
    // single samples, times the inverse.
    let (inverses, influences) = if recipe.last(n_units).is_node_wise(&recipe.options) {
        (d * row.powi(3) * inverse / threads, d * row * row)
    } else {
        let p = d + n_couplings;
        (p.powi(3) * inverse, p * p)
    };
    let products = d * row * (row + BIT) + influences / HESSIANS;
    Ok(samples.n_observed() as f64 * products * product / threads + inverses)
}

/// Returns the couplings that have error bars by the sandwich.
pub(super) fn determined(
    recipe: &Recipe,
    samples: &Samples,
) -> Result<Vec<(usize, usize)>, Failure> {
    let mut pairs = recipe.options.support.pairs(samples.n_units())?;
    pairs.retain(|(i, j)| samples.determine(*i, *j));
    Ok(pairs)
}

/// Returns how many they are.
pub(crate) fn n_determined(recipe: &Recipe, samples: &Samples) -> Result<usize, Failure> {
    Ok(determined(recipe, samples)?.len())
}

/// Returns a model with the means of `samples`, and couplings too weak to matter.
pub(super) fn weak_model(samples: &Samples, support: &Support) -> Result<Couplings, Failure> {
    const WEAK: f64 = 1e-9;
    let d = samples.n_units();
    let mut j = Array2::zeros((d, d));
    // All different, as couplings of a fit are: some samplers gain by those that repeat.
    for (k, (a, b)) in support.pairs(d)?.into_iter().enumerate() {
        j[[a, b]] = WEAK / (1 + k) as f64;
        j[[b, a]] = j[[a, b]];
    }
    for (i, mean) in samples.means().into_iter().enumerate() {
        let mean = mean.clamp(WEAK, 1.0 - WEAK);
        j[[i, i]] = ((1.0 - mean) / mean).ln();
    }
    Ok(Couplings::new(j)?)
}
