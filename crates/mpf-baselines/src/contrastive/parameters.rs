//! The parameters of contrastive divergence, and one step of them.

use super::ContrastiveOptions;
use super::chains::Moments;
use super::snapshot::foreign;
use crate::Result;
use crate::error::Error;
use crate::independent::independent_bias;
use mpf_core::check_option;
use mpf_ising::internal::check_units;
use mpf_ising::{Couplings, Samples};
use ndarray::Array2;
use serde::{Deserialize, Serialize};

/// Larger parameters than this are no model of binary data: at a log odds of 37 a unit that could
/// still change would do so once in 10¹⁶ draws.
const LIMIT: f64 = 1000.0;

/// A sum of `n` couplings, row by row; empty while n = 0.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Sum {
    entries: Vec<f64>,
    n: usize,
}

/// J and which of it is free.
pub(super) struct Parameters {
    pub(super) couplings: Couplings,
    pub(super) pairs: Vec<(usize, usize)>,
    pub(super) means: Vec<f64>,
    /// Units whose J_ii is learned.
    free_biases: Vec<usize>,
    l1: f64,
    l2: f64,
    /// The couplings to average.
    pub(super) sum: Sum,
}

impl Parameters {
    pub(super) fn new(options: &ContrastiveOptions, samples: &Samples) -> Result<Self> {
        let d = samples.n_units();
        let start = options
            .start
            .clone()
            .map_or_else(|| Couplings::zeros(d), Ok)?;
        check_units("starting couplings", d, start.n_units())?;
        let means = samples.means();
        let varies: Vec<bool> = means.iter().map(|&m| m > 0.0 && m < 1.0).collect();
        let mut pairs = options.support.pairs(d)?;
        pairs.retain(|&(i, j)| varies[i] && varies[j]);
        if options.l1 > 0.0 && options.start.is_some() {
            pairs.retain(|&(i, j)| start.get(i, j) != 0.0);
        }
        let mut j = Array2::zeros((d, d));
        for &(a, b) in &pairs {
            j[[a, b]] = start.get(a, b);
            j[[b, a]] = start.get(a, b);
        }
        let mut free_biases = Vec::new();
        for i in 0..d {
            if varies[i] {
                free_biases.push(i);
                j[[i, i]] = start.get(i, i);
            } else {
                j[[i, i]] = independent_bias(means[i], samples.total_weight());
            }
        }
        if pairs.is_empty() && free_biases.is_empty() {
            return Err(mpf_ising::Error::NothingFree.into());
        }
        let parameters = Self {
            couplings: with_potential(Couplings::new(j)?, start.potential().map(<[f64]>::to_vec))?,
            pairs,
            means,
            free_biases,
            l1: options.l1,
            l2: options.l2,
            sum: Sum::default(),
        };
        for (a, b) in parameters.learned() {
            let value = parameters.couplings.get(a, b);
            let requirement = "couplings and biases within ±1000";
            check_option("start", value, requirement, value.abs() <= LIMIT)?;
        }
        Ok(parameters)
    }

    /// Returns (i, j) of the parameters that are learned, (i, i) for biases.
    fn learned(&self) -> impl Iterator<Item = (usize, usize)> {
        let biases = self.free_biases.iter().map(|&i| (i, i));
        self.pairs.iter().copied().chain(biases)
    }

    /// Continues from `earlier`.
    pub(super) fn resume(&mut self, earlier: Couplings, sum: Sum) -> Result<()> {
        let d = self.couplings.n_units();
        let n_entries = d * d + self.couplings.potential().map_or(0, <[f64]>::len);
        let has_sum = sum.entries.len() == if sum.n == 0 { 0 } else { n_entries };
        let same_potential = earlier.potential().is_some() == self.couplings.potential().is_some();
        if earlier.n_units() != d || !has_sum || !same_potential {
            return Err(foreign("other units").into());
        }
        (self.couplings, self.sum) = (earlier, sum);
        Ok(())
    }

    /// Takes the current couplings into the average.
    pub(super) fn accumulate(&mut self) {
        let j = self.couplings.as_array();
        let potential = self.couplings.potential().unwrap_or(&[]);
        self.sum.entries.resize(j.len() + potential.len(), 0.0);
        for (sum, j) in self.sum.entries.iter_mut().zip(j.iter().chain(potential)) {
            *sum += j;
        }
        self.sum.n += 1;
    }

    /// Returns the average, or the current couplings if there is nothing to average.
    pub(super) fn average(&self) -> Result<Couplings> {
        let d = self.couplings.n_units();
        if self.sum.n <= 1 {
            return Ok(self.couplings.clone());
        }
        let mean = |(i, j)| self.sum.entries[i * d + j] / self.sum.n as f64;
        let couplings = Couplings::new(Array2::from_shape_fn((d, d), mean))?;
        let potential = self.sum.entries[d * d..].iter();
        let potential = potential.map(|v| v / self.sum.n as f64).collect();
        with_potential(couplings, self.couplings.potential().map(|_| potential))
    }

    /// Makes one step along `off` = ⟨·⟩_k − ⟨·⟩_0. Returns the root mean square and the largest size of
    /// its entries at the free parameters.
    pub(super) fn update(&mut self, off: &Moments, rate: f64, update: usize) -> Result<(f64, f64)> {
        let mut j = self.couplings.as_array().clone();
        let (mut squares, mut largest) = (0.0, 0.0f64);
        let mut note = |slope: f64| {
            squares += slope * slope;
            largest = largest.max(slope.abs());
        };
        for (&(a, b), &slope) in self.pairs.iter().zip(&off.pairs) {
            // K = −J/2, and a step of η is −η/2 of the slope of −LL with respect to J_ab.
            let ridge = self.l2 * j[[a, b]] / 8.0;
            note(slope - ridge);
            j[[a, b]] = shrink(j[[a, b]] + rate * (slope - ridge), 0.25 * rate * self.l1);
            j[[b, a]] = j[[a, b]];
        }
        for &i in &self.free_biases {
            note(off.units[i]);
            j[[i, i]] += rate * off.units[i];
        }
        for (i, k) in self.learned() {
            let value = j[[i, k]];
            if value.is_nan() || value.abs() > LIMIT {
                return Err(Error::Diverged {
                    update,
                    i,
                    j: k,
                    value,
                    limit: LIMIT,
                    rate,
                });
            }
        }
        // A Newton step of V alone would be 1; biases and couplings move as well.
        let potential = self.couplings.potential().map(|v| {
            let steps = off.counts.iter().map(|off| 0.5 * rate * off);
            v.iter().zip(steps).map(|(v, step)| v + step).collect()
        });
        self.couplings = with_potential(Couplings::new(j)?, potential)?;
        let n_free = self.pairs.len() + self.free_biases.len();
        Ok(((squares / n_free as f64).sqrt(), largest))
    }
}

/// Adds the potential of a K-pairwise model.
fn with_potential(couplings: Couplings, potential: Option<Vec<f64>>) -> Result<Couplings> {
    Ok(match potential {
        None => couplings,
        Some(potential) => couplings.with_potential(potential)?,
    })
}

/// Moves `value` towards zero by `step`, not beyond.
fn shrink(value: f64, step: f64) -> f64 {
    value.signum() * (value.abs() - step).max(0.0)
}
