//! The parameters of contrastive divergence, and one step of them.

use super::ContrastiveOptions;
use super::chains::Moments;
use super::snapshot::foreign;
use crate::Result;
use crate::error::Error;
use crate::independent::independent_bias;
use mpf_core::check_option;
use mpf_ising::{Biases, Couplings, Samples};
use ndarray::Array2;

/// Larger parameters than this are no model of binary data: at a log odds of 37 a unit that could
/// still change would do so once in 10¹⁶ draws.
const LIMIT: f64 = 1000.0;

/// J and which of it is free.
pub(super) struct Parameters {
    pub(super) couplings: Couplings,
    pub(super) pairs: Vec<(usize, usize)>,
    pub(super) means: Vec<f64>,
    /// Units whose J_ii is learned.
    free_biases: Vec<usize>,
    /// The h of the units that have theirs fixed: J_ii follows from the couplings.
    fixed_fields: Option<Vec<f64>>,
}

impl Parameters {
    pub(super) fn new(options: &ContrastiveOptions, samples: &Samples) -> Result<Self> {
        let d = samples.n_units();
        options.biases.check(d)?;
        let start = options
            .start
            .clone()
            .map_or_else(|| Couplings::zeros(d), Ok)?;
        if start.n_units() != d {
            return Err(mpf_ising::Error::UnitCount {
                what: "starting couplings",
                expected: d,
                found: start.n_units(),
            }
            .into());
        }
        let means = samples.means();
        let varies: Vec<bool> = means.iter().map(|&m| m > 0.0 && m < 1.0).collect();
        let mut pairs = options.support.pairs(d)?;
        pairs.retain(|&(i, j)| varies[i] && varies[j]);
        let mut j = Array2::zeros((d, d));
        for &(a, b) in &pairs {
            j[[a, b]] = start.get(a, b);
            j[[b, a]] = start.get(a, b);
        }
        let mut free_biases = Vec::new();
        let mut fixed_fields = None;
        match &options.biases {
            Biases::Free => {
                for i in 0..d {
                    if varies[i] {
                        free_biases.push(i);
                        j[[i, i]] = start.get(i, i);
                    } else {
                        j[[i, i]] = independent_bias(means[i], samples.total_weight());
                    }
                }
            }
            Biases::Fixed(biases) => {
                for (i, &bias) in biases.iter().enumerate() {
                    j[[i, i]] = bias;
                }
            }
            Biases::FixedFields(fields) => {
                set_fields(&mut j, fields);
                fixed_fields = Some(fields.clone());
            }
        }
        if pairs.is_empty() && free_biases.is_empty() {
            return Err(mpf_ising::Error::NothingFree.into());
        }
        let parameters = Self {
            couplings: Couplings::new(j)?,
            pairs,
            means,
            free_biases,
            fixed_fields,
        };
        for (a, b) in parameters.learned() {
            let value = parameters.couplings.get(a, b);
            let requirement = "couplings and biases within ±1000";
            check_option("start", value, requirement, value.abs() <= LIMIT)?;
        }
        Ok(parameters)
    }

    /// (i, j) of the parameters that are learned, (i, i) for biases.
    fn learned(&self) -> impl Iterator<Item = (usize, usize)> {
        let biases = self.free_biases.iter().map(|&i| (i, i));
        self.pairs.iter().copied().chain(biases)
    }

    /// Continues from `earlier`.
    pub(super) fn resume(&mut self, earlier: Couplings) -> Result<()> {
        if earlier.n_units() != self.couplings.n_units() {
            return Err(foreign("other units").into());
        }
        self.couplings = earlier;
        Ok(())
    }

    /// One step along `off` = ⟨·⟩_k − ⟨·⟩_0. Returns the root mean square and the largest size of
    /// its entries at the free parameters.
    pub(super) fn update(&mut self, off: &Moments, rate: f64, update: usize) -> Result<(f64, f64)> {
        let mut j = self.couplings.as_array().clone();
        let (mut squares, mut largest) = (0.0, 0.0f64);
        let mut note = |slope: f64| {
            squares += slope * slope;
            largest = largest.max(slope.abs());
        };
        for (&(a, b), &pair) in self.pairs.iter().zip(&off.pairs) {
            // With fixed fields, J_aa and J_bb fall as J_ab grows.
            let slope = match self.fixed_fields {
                None => pair,
                Some(_) => pair - 0.5 * (off.units[a] + off.units[b]),
            };
            note(slope);
            j[[a, b]] += rate * slope;
            j[[b, a]] = j[[a, b]];
        }
        for &i in &self.free_biases {
            note(off.units[i]);
            j[[i, i]] += rate * off.units[i];
        }
        if let Some(fields) = &self.fixed_fields {
            set_fields(&mut j, fields);
        }
        // Fixed biases may be as large as they like.
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
        self.couplings = Couplings::new(j)?;
        let n_free = self.pairs.len() + self.free_biases.len();
        Ok(((squares / n_free as f64).sqrt(), largest))
    }
}

/// J_ii = −2 h_i − Σ_{j≠i} J_ij.
fn set_fields(j: &mut Array2<f64>, fields: &[f64]) {
    for (i, h) in fields.iter().enumerate() {
        j[[i, i]] = 0.0;
        j[[i, i]] = -2.0 * h - j.row(i).sum();
    }
}
