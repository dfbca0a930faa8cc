//! An RBM with its parameters: scores of samples, and ln Z.

mod fit;

use crate::Result;
use crate::error::Error;
use crate::log_z::{LogZ, LogZSource};
use crate::rbm::Rbm;
use crate::recipe::{Measure, log_probabilities};
use mpf_core::{At, Cancel, EnergyModel, LocalExact, LocalLoss, LocalModel, SiteData, check_count};
use mpf_ising::internal::pairs;
use mpf_ising::{Couplings, Samples, States, get_bit};
use mpf_samplers::{AnnealedOptions, BinaryGibbs, annealed_log_z_of};
use ndarray::{Array2, ArrayView1};
use rayon::prelude::*;

pub use fit::{MachineFit, MachineOptions, MachineProgress, MachineTrainer, MachineWarning};

/// An RBM at θ. All numbers are finite, and no weight overflows an exponential.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    rbm: Rbm,
    theta: Vec<f64>,
}

impl Machine {
    /// The largest |W| of a machine: beyond, exponentials overflow.
    pub const LARGEST_WEIGHT: f64 = 500.0;
    /// The most visible units whose states are enumerated.
    pub const MAX_EXACT_UNITS: usize = 20;

    /// Checks the parameters.
    ///
    /// # Errors
    /// [`mpf_core::Error::Count`] for another number of parameters; [`Error::Overflowing`] for one
    /// that is not finite, and for a weight beyond ±[`Machine::LARGEST_WEIGHT`].
    pub fn new(rbm: Rbm, theta: Vec<f64>) -> Result<Self> {
        check_count("parameters", rbm.n_params(), theta.len())?;
        let n_weights = rbm.n_sites() * rbm.n_hidden();
        let overflows = |(k, t): (usize, &f64)| {
            !t.is_finite() || k < n_weights && t.abs() > Self::LARGEST_WEIGHT
        };
        match theta.iter().enumerate().position(overflows) {
            Some(parameter) => Err(Error::Overflowing {
                parameter,
                value: theta[parameter],
            }),
            None => Ok(Self { rbm, theta }),
        }
    }

    /// Makes a machine of its visible part, whose biases are on the diagonal, and of W and c of its hidden
    /// units.
    ///
    /// # Errors
    /// As [`Machine::new`]; [`mpf_core::Error::Count`] for weights of other units;
    /// [`mpf_core::Error::Option`] without hidden units.
    pub fn from_parts(visible: &Couplings, weights: &[Vec<f64>], biases: &[f64]) -> Result<Self> {
        let d = visible.n_units();
        check_count("biases of hidden units", weights.len(), biases.len())?;
        let pairs = || pairs(d).map(|(i, j)| visible.get(i, j));
        let semi_restricted = pairs().any(|j| j != 0.0);
        let rbm = Rbm::new(d, weights.len(), semi_restricted)?;
        let mut theta = Vec::with_capacity(rbm.n_params());
        for row in weights {
            check_count("weights of a hidden unit", d, row.len())?;
            theta.extend(row);
        }
        theta.extend(biases);
        theta.extend((0..d).map(|i| visible.get(i, i)));
        if semi_restricted {
            theta.extend(pairs());
        }
        Self::new(rbm, theta)
    }

    /// Returns the visible part: b on the diagonal, and J.
    ///
    /// # Errors
    /// None that a checked machine can cause.
    pub fn visible(&self) -> Result<Couplings> {
        let d = self.n_units();
        let visible = &self.theta[self.rbm.n_hidden() * (d + 1)..];
        let mut j = Array2::from_diag(&ArrayView1::from(&visible[..d]));
        for ((i, k), &value) in pairs(d).zip(&visible[d..]) {
            j[[i, k]] = value;
            j[[k, i]] = value;
        }
        Ok(Couplings::new(j)?)
    }

    /// Returns W by hidden units.
    pub fn weights(&self) -> impl Iterator<Item = &[f64]> {
        let rows = self.theta.chunks_exact(self.n_units());
        rows.take(self.rbm.n_hidden())
    }

    /// Returns c.
    pub fn hidden_biases(&self) -> &[f64] {
        let first = self.n_units() * self.rbm.n_hidden();
        &self.theta[first..first + self.rbm.n_hidden()]
    }

    /// Returns θ: W by hidden units, c, b and J above the diagonal.
    pub fn theta(&self) -> &[f64] {
        &self.theta
    }

    /// Returns the number of visible units.
    pub fn n_units(&self) -> usize {
        self.rbm.n_sites()
    }

    /// Returns the energy F of a packed state.
    pub fn energy(&self, row: &[u64]) -> f64 {
        self.rbm.energy(&self.theta, &unpacked(row, self.n_units()))
    }

    /// Returns K of MPF, minus the log-pseudolikelihood and F of every sample.
    pub(crate) fn scores(&self, states: &States) -> Vec<[f64; 3]> {
        let mut theta = self.theta.clone();
        self.rbm.prepare(&mut theta);
        let d = self.n_units();
        let score = |(surroundings, differences): &mut (Vec<f64>, Vec<f64>), m: usize| {
            let x = unpacked(states.row(m), d);
            self.rbm.surroundings(&theta, &x, surroundings);
            let mut sum = |loss: LocalLoss| -> f64 {
                let at = At {
                    theta: &theta,
                    x: &x,
                    surroundings,
                };
                self.rbm.differences(at, differences);
                let sites = differences.chunks_exact_mut(2).zip(&x);
                sites.map(|(d, &x)| loss.value_and_slopes(x, d)).sum()
            };
            let (flow, pl) = (sum(LocalLoss::Flow), sum(LocalLoss::Pseudolikelihood));
            [flow, pl, self.rbm.energy(&theta, &x)]
        };
        (0..states.n_samples())
            .into_par_iter()
            .map_init(
                || (vec![0.0; self.rbm.n_surroundings()], vec![0.0; 2 * d]),
                score,
            )
            .collect()
    }

    /// Enumerates the states of up to [`Machine::MAX_EXACT_UNITS`] visible units.
    ///
    /// # Errors
    /// As [`LocalExact::new`].
    pub fn exact(&self) -> Result<LocalExact> {
        Ok(LocalExact::new(&self.rbm, &self.theta)?)
    }

    /// Returns a Gibbs sampler of exp(−β F).
    ///
    /// # Errors
    /// As [`BinaryGibbs::new`].
    pub fn gibbs(&self, beta: f64) -> mpf_samplers::Result<BinaryGibbs<'_, Rbm>> {
        BinaryGibbs::new(&self.rbm, &self.theta, beta)
    }

    /// Returns ln Z: by enumeration, or annealed beyond [`Machine::MAX_EXACT_UNITS`].
    ///
    /// # Errors
    /// Those of [`LocalExact::new`] and [`annealed_log_z_of`].
    pub fn log_z(&self, annealed: &AnnealedOptions) -> Result<LogZ> {
        if self.n_units() <= Self::MAX_EXACT_UNITS {
            return Ok(LogZ::exact(self.exact()?.log_z(), LogZSource::Enumeration));
        }
        let log_states = self.gibbs(1.0)?.log_states();
        let found = annealed_log_z_of(log_states, annealed, |beta| self.gibbs(beta))?;
        Ok(LogZ::annealed(found))
    }

    /// Returns ln p(x) of every sample, as [`log_scores`](crate::log_scores) does of an Ising model, but
    /// enumerates no more than [`Machine::MAX_EXACT_UNITS`] units.
    ///
    /// # Errors
    /// Those of [`Machine::log_z`], cancellation among them.
    pub fn log_scores(
        &self,
        states: &States,
        seed: u64,
        cancel: &Cancel,
    ) -> Result<(Vec<f64>, Measure)> {
        let annealed = LogZ::quick(self.n_units(), seed, cancel);
        let log_z = annealed.map(|annealed| self.log_z(&annealed)).transpose()?;
        Ok(log_probabilities(&self.scores(states), log_z))
    }
}

fn unpacked(row: &[u64], n_units: usize) -> Vec<u8> {
    (0..n_units).map(|i| u8::from(get_bit(row, i))).collect()
}

/// Returns the distinct samples as bytes, with their weights.
fn site_data(samples: &Samples) -> Result<SiteData> {
    let states = samples.states();
    let shape = (samples.n_distinct(), samples.n_units());
    let rows = Array2::from_shape_fn(shape, |(m, i)| u8::from(states.get(m, i)));
    let weights: Vec<f64> = (0..shape.0).map(|m| samples.weight(m)).collect();
    Ok(SiteData::new(rows.view(), 2)?.weighted(&weights)?)
}
