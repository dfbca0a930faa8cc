//! Errors of a model's correlations.
//!
//! They are exact on an open lattice, and otherwise estimated from several chains. The jackknife
//! over chains gives the standard error and removes the chains' noise from squared errors (exactly
//! for a mean of squares).

use crate::Result;
use mpf_ising::internal::spin_correlations;
use mpf_ising::{Boundary, Couplings, Lattice, Samples, States};
use mpf_samplers::{
    ChainOptions, ChainRunner, ChainSampler, ExactLattice, Tally, Tempering, TemperingOptions,
};
use ndarray::Array2;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    pub value: f64,
    /// 0 for an exact value.
    pub standard_error: f64,
}

/// ⟨x_i x_j⟩ of a model: exactly, or chain by chain.
pub enum PairMeans {
    Exact(Array2<f64>),
    Chains(Vec<Array2<f64>>),
}

impl PairMeans {
    /// Uses the transfer matrix if `couplings` are on an open lattice, and otherwise parallel
    /// tempering.
    pub fn of(couplings: &Couplings, lattice: &Lattice, chains: ChainOptions) -> Result<Self> {
        if lattice.boundary() == Boundary::Open
            && let Ok(exact) = ExactLattice::new(couplings, lattice)
        {
            return Ok(Self::Exact(exact.pair_means()));
        }
        // The hottest level has no couplings: fitted ones may be so large that a tenth is still cold.
        let options = TemperingOptions {
            hottest: 0.0,
            seed: chains.seed,
            cancel: chains.cancel.clone(),
            ..Default::default()
        };
        Self::sampled(&Tempering::tune(couplings, &options)?, chains)
    }

    /// Runs chains of any sampler.
    pub fn sampled<S>(sampler: &S, chains: ChainOptions) -> Result<Self>
    where
        S: ChainSampler<Draws = States, Info: Tally + Send + Sync, State: Send> + Sync,
    {
        let run = ChainRunner::new(chains)?.run(sampler)?;
        if run.cancelled {
            return Err(mpf_core::Error::Cancelled.into());
        }
        let means = run
            .chains
            .par_iter()
            .map(|chain| Ok(Samples::new(&chain.draws)?.pair_means()))
            .collect::<Result<_>>()?;
        Ok(Self::Chains(means))
    }

    /// Returns the mean over chains.
    pub fn mean(&self) -> Array2<f64> {
        match self {
            Self::Exact(means) => means.clone(),
            Self::Chains(chains) => mean_without(chains, None),
        }
    }

    /// Estimates `statistic` of the pair means, without the chains' noise to first order.
    pub fn estimate(&self, statistic: impl Fn(&Array2<f64>) -> f64) -> Estimate {
        match self {
            Self::Exact(means) => Estimate {
                value: statistic(means),
                standard_error: 0.0,
            },
            Self::Chains(chains) => jackknife(chains, statistic),
        }
    }
}

fn mean_without(chains: &[Array2<f64>], left_out: Option<usize>) -> Array2<f64> {
    let mut sum = Array2::zeros(chains[0].raw_dim());
    let mut n = 0.0;
    for (at, means) in chains.iter().enumerate() {
        if Some(at) != left_out {
            sum += means;
            n += 1.0;
        }
    }
    sum / n
}

/// Returns R θ̂ − (R − 1) mean θ̂₍₋ᵣ₎ and √((R − 1)/R Σ (θ̂₍₋ᵣ₎ − mean)²).
fn jackknife(chains: &[Array2<f64>], statistic: impl Fn(&Array2<f64>) -> f64) -> Estimate {
    let n = chains.len() as f64;
    let all = statistic(&mean_without(chains, None));
    let without: Vec<f64> = (0..chains.len())
        .map(|left_out| statistic(&mean_without(chains, Some(left_out))))
        .collect();
    let mean = without.iter().sum::<f64>() / n;
    let spread: f64 = without.iter().map(|w| (w - mean).powi(2)).sum();
    Estimate {
        value: n * all - (n - 1.0) * mean,
        standard_error: ((n - 1.0) / n * spread).sqrt(),
    }
}

/// Returns ε_corr, the mean over i < j of (⟨s_i s_j⟩ − ⟨s_i s_j⟩′)².
pub fn mean_square_spin_error(pair_means: &Array2<f64>, truth: &Array2<f64>) -> f64 {
    let (a, b) = (spin_correlations(pair_means), spin_correlations(truth));
    mean_over_pairs(a.nrows(), |i, j| (a[[i, j]] - b[[i, j]]).powi(2))
}

/// Returns the mean over i < j of |ρ_ij − ρ_ij′|, ρ the correlation coefficients.
pub fn mean_absolute_pearson_error(pair_means: &Array2<f64>, truth: &Array2<f64>) -> f64 {
    mean_over_pairs(truth.nrows(), |i, j| {
        (pearson(pair_means, i, j) - pearson(truth, i, j)).abs()
    })
}

/// Returns the correlation coefficient of bits i and j, or 0 if one is constant.
fn pearson(pair_means: &Array2<f64>, i: usize, j: usize) -> f64 {
    let (a, b) = (pair_means[[i, i]], pair_means[[j, j]]);
    let scale = (a * (1.0 - a) * b * (1.0 - b)).sqrt();
    if scale > 0.0 {
        (pair_means[[i, j]] - a * b) / scale
    } else {
        0.0
    }
}

fn mean_over_pairs(d: usize, f: impl Fn(usize, usize) -> f64) -> f64 {
    let sum: f64 = (0..d)
        .flat_map(|j| (0..j).map(move |i| (i, j)))
        .map(|(i, j)| f(i, j))
        .sum();
    sum / (d * (d - 1) / 2).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpf_core::rng;
    use ndarray::array;

    #[test]
    fn errors_of_correlations_by_hand() {
        // Independent fair bits against bits that are always equal.
        let free = array![[0.5, 0.25], [0.25, 0.5]];
        let equal = array![[0.5, 0.5], [0.5, 0.5]];
        assert_eq!(mean_square_spin_error(&free, &equal), 1.0);
        assert_eq!(mean_absolute_pearson_error(&free, &equal), 1.0);
        let constant = array![[0.0, 0.0], [0.0, 0.5]];
        assert_eq!(mean_absolute_pearson_error(&constant, &free), 0.0);
    }

    #[test]
    fn the_jackknife_takes_noise_out_of_squares() {
        // Mean of squares of one entry: chains ±1 around 3 give 3² exactly, not 3² + 1/R.
        let chains: Vec<Array2<f64>> = [2.0, 4.0, 2.0, 4.0].map(|v| array![[v]]).to_vec();
        let found = jackknife(&chains, |m| m[[0, 0]].powi(2));
        // The plain estimate is 9; the variance of the mean is Σ(x−3)²/(R(R−1)) = 4/12.
        assert!((found.value - (9.0 - 4.0 / 12.0)).abs() < 1e-12);
        let linear = jackknife(&chains, |m| m[[0, 0]]);
        assert!((linear.value - 3.0).abs() < 1e-12);
        assert!((linear.standard_error - (4.0f64 / 12.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn tempering_agrees_with_the_transfer_matrix() {
        let lattice = Lattice::new(3, 3, Boundary::Open).unwrap();
        let j = lattice.spin_glass(10.0, &mut rng::stream(3, 0)).unwrap();
        let chains = ChainOptions {
            n_chains: 8,
            n_draws: 4000,
            burn_in: 200,
            seed: 1,
            ..Default::default()
        };
        let exact = PairMeans::of(&j, &lattice, chains.clone());
        let exact = exact.unwrap().mean();
        let tempering = Tempering::tune(&j, &TemperingOptions::default()).unwrap();
        let sampled = PairMeans::sampled(&tempering, chains);
        let error = sampled
            .unwrap()
            .estimate(|means| mean_square_spin_error(means, &exact));
        // Both are right, so the difference is noise around zero.
        assert!(error.value.abs() < 5.0 * error.standard_error, "{error:?}");
        assert!(error.standard_error < 1e-4);
    }
}
