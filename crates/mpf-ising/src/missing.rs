//! Samples of which some entries were not observed.
//!
//! **Leaving out** ([`MissingRule::LeaveOut`]). The flip of unit i needs x_i and every x_j to which
//! i may be coupled, since its margin is a_i = s_i (h_i + Σ_j K_ij s_j). Flips with an unknown among
//! these are left out of the sum:
//!
//! ```text
//! F = 1/M Σ_m Σ_{i known in m with all its neighbours} φ(a_mi)
//! ```
//!
//! This is unbiased if entries are missing completely at random, that is, independently of all
//! values: every unit's term is then an average over a random part of the samples. It is exact,
//! cheap, and wasteful: with a share q missing and k neighbours, (1 − q)^{k+1} of the flips are
//! left. That is enough on a lattice (.33 for q = .2, k = 4) and far too little with all couplings
//! of 50 units free (.08 for q = .05, 1e-5 for q = .2).
//!
//! **Completing** ([`MissingRule::Complete`]). A sample with u unknown entries stands for its 2^u
//! completions, weighted by their probabilities given the observed entries,
//!
//! ```text
//! w(y) = p(y | x_known; J) ∝ exp(−E(x_known, y; J)),   F(J′; J) = 1/M Σ_m Σ_y w_m(y) Σ_i φ(a_i(x_m, y; J′))
//! ```
//!
//! and J ← argmin F(·; J) is repeated until J stays the same. At the true J the completed samples
//! have the true distribution, so the truth is a fixed point and the estimate is consistent. (With
//! the likelihood in place of φ this is the EM algorithm.) The unknown entries of a sample are
//! summed over exactly, and every observed entry is used. Samples with more than `most_unknown`
//! unknown entries are left out, which again is unbiased if entries are missing completely at
//! random.
//!
//! Measured (`cargo xtask check-missing`), J ~ N(0, 1), M = 20,000, 5 and 20 % missing: the slope of
//! estimated on true couplings is 1.002 and 1.003 on a 6×6 lattice with flips left out, 1.000 and
//! 1.003 with all couplings of 16 units free and samples completed. With all couplings free and
//! flips left out, 20 % missing leaves 3 % of the flips, and the slope is 1.04: fits to so few flips
//! have that bias.
//!
//! If the values decide what is missing (a detector that misses simultaneous spikes), neither rule
//! is right, and the data cannot show it. With nothing missing both rules are the ordinary fit, to
//! the last bit.

mod completions;

use crate::Result;
use crate::bits::{Samples, States, check_sum, flip_bit, get_bit, n_active, negligible};
use crate::couplings::Couplings;
use crate::error::{Error, check_data, check_units};
use crate::fit::{Fit, Fitter, Masked};
use crate::flow::Neighbourhood;
use crate::kernel::FlipMask;
use crate::sandwich::MarginEstimator;
use completions::Completions;
use hashbrown::HashMap;
use mpf_core::{Checkpoint, check_not_zero, check_option};
use ndarray::{Array2, aview1};
use rayon::prelude::*;
use serde::Serialize;
use std::sync::Arc;

/// How unknown entries are treated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MissingRule {
    /// Leave out the flips whose energy change is not known. For sparse supports.
    LeaveOut,
    /// Sum over all values of the unknown entries, weighted by the model, until the model stays the
    /// same. For all supports.
    Complete {
        /// Samples with more unknown entries than this are left out; at most
        /// [`Incomplete::MAX_UNKNOWN`].
        most_unknown: usize,
        /// No spin coupling or field may change by more than this in the last round. Positive.
        tolerance: f64,
        /// The most rounds.
        max_rounds: usize,
    },
}

impl MissingRule {
    /// Completes samples with up to 10 unknown entries, to 1e-4, in at most 100 rounds.
    pub fn complete() -> Self {
        Self::Complete {
            most_unknown: 10,
            tolerance: 1e-4,
            max_rounds: 100,
        }
    }
}

/// Samples with a mask of the entries that were not observed.
#[derive(Clone, Debug)]
pub struct Incomplete {
    /// Zero where unknown.
    values: States,
    unknown: States,
    weights: Vec<f64>,
}

/// A fit of incomplete samples.
#[derive(Clone, Debug, Serialize)]
#[must_use = "look at `fit.stop` and `settled` before using the couplings"]
pub struct IncompleteFit {
    /// The fit (of the last round).
    pub fit: Fit,
    /// Rounds of completion; 0 when nothing is missing or flips are left out.
    pub rounds: usize,
    /// Whether the last round changed nothing beyond the tolerance.
    pub settled: bool,
    /// The share of the samples that had too many unknown entries (completing), or of the flips
    /// that were left out.
    pub left_out_fraction: f64,
}

impl Incomplete {
    /// The most unknown entries of a sample that can be summed over.
    pub const MAX_UNKNOWN: usize = 16;

    /// Pairs values with a mask. `unknown` has a 1 where the entry of `values` was not observed; the
    /// value there is ignored.
    ///
    /// # Errors
    /// [`Error::MaskShape`]; [`Error::NeverObserved`] for a unit without any observed entry (in a
    /// sample that has weight); [`Error::NoData`].
    pub fn new(values: &States, unknown: &States) -> Result<Self> {
        Self::build(values, unknown, vec![1.0; values.n_samples()])
    }

    /// Pairs values with a mask and weights, as [`Samples::weighted`] takes them.
    ///
    /// # Errors
    /// As [`Incomplete::new`] and [`Samples::weighted`].
    pub fn weighted(values: &States, unknown: &States, weights: &[f64]) -> Result<Self> {
        // Check the weights.
        let _ = Samples::weighted(values, weights)?;
        let least = negligible(weights);
        let weight = |w: &f64| if *w > least { *w } else { 0.0 };
        Self::build(values, unknown, weights.iter().map(weight).collect())
    }

    fn build(values: &States, unknown: &States, weights: Vec<f64>) -> Result<Self> {
        let (rows, columns) = (values.n_samples(), values.n_units());
        check_data(rows, columns)?;
        if (unknown.n_samples(), unknown.n_units()) != (rows, columns) {
            return Err(Error::MaskShape {
                rows,
                columns,
                mask_rows: unknown.n_samples(),
                mask_columns: unknown.n_units(),
            });
        }
        let mut never = vec![u64::MAX; unknown.words_per_row()];
        let mut known_values = States::new(columns)?;
        let mut known = vec![0; unknown.words_per_row()];
        for (m, (row, mask)) in values.rows().zip(unknown.rows()).enumerate() {
            let counts = weights[m] > 0.0;
            for (k, (value, mask)) in row.iter().zip(mask).enumerate() {
                never[k] &= if counts { *mask } else { u64::MAX };
                known[k] = value & !mask;
            }
            known_values.push(&known);
        }
        if let Some(unit) = (0..columns).find(|&unit| get_bit(&never, unit)) {
            return Err(Error::NeverObserved { unit });
        }
        Ok(Self {
            values: known_values,
            unknown: unknown.clone(),
            weights,
        })
    }

    /// Returns the share of unknown entries, not weighted.
    pub fn unknown_fraction(&self) -> f64 {
        let set: usize = self.unknown.rows().map(n_active).sum();
        set as f64 / (self.values.n_samples() * self.values.n_units()) as f64
    }

    fn is_complete(&self) -> bool {
        self.unknown.rows().all(|row| n_active(row) == 0)
    }

    /// Returns the mean of every unit over the samples in which it is known.
    pub fn means(&self) -> Vec<f64> {
        let d = self.values.n_units();
        let mut sums = vec![[0.0; 2]; d];
        for (m, (row, mask)) in self.values.rows().zip(self.unknown.rows()).enumerate() {
            let weight = self.weights[m];
            for (unit, sum) in sums.iter_mut().enumerate() {
                if !get_bit(mask, unit) {
                    sum[0] += if get_bit(row, unit) { weight } else { 0.0 };
                    sum[1] += weight;
                }
            }
        }
        sums.iter().map(|[ones, all]| ones / all).collect()
    }

    /// Merges rows with equal values and equal masks, and adds their weights.
    fn merged(&self) -> Result<Self> {
        let mut places: HashMap<Vec<u64>, usize> = HashMap::new();
        let mut values = States::new(self.values.n_units())?;
        let mut unknown = values.clone();
        let mut weights = Vec::new();
        for (m, (row, mask)) in self.values.rows().zip(self.unknown.rows()).enumerate() {
            if self.weights[m] == 0.0 {
                continue;
            }
            let key = [row, mask].concat();
            let at = *places.entry(key).or_insert_with(|| {
                values.push(row);
                unknown.push(mask);
                weights.push(0.0);
                weights.len() - 1
            });
            weights[at] += self.weights[m];
        }
        Ok(Self {
            values,
            unknown,
            weights,
        })
    }
}

impl<E: MarginEstimator> Fitter<E> {
    /// Fits samples with unknown entries.
    ///
    /// # Errors
    /// [`mpf_core::Error::Option`] for a `most_unknown` beyond [`Incomplete::MAX_UNKNOWN`], a
    /// tolerance that is not positive, or no rounds; [`Error::MissingNeighbourhood`]; [`Error::NothingKnown`] for a unit of which no
    /// flip is left; [`Error::AllLeftOut`]; those of [`Fitter::fit`].
    pub fn fit_incomplete(&self, data: &Incomplete, rule: MissingRule) -> Result<IncompleteFit> {
        if data.is_complete() {
            let samples = Samples::weighted(&data.values, &data.weights)?;
            return Ok(IncompleteFit {
                fit: self.fit(&samples)?,
                rounds: 0,
                settled: true,
                left_out_fraction: 0.0,
            });
        }
        if self.estimator().neighbourhood() != Neighbourhood::SingleFlips {
            return Err(Error::MissingNeighbourhood);
        }
        match rule {
            MissingRule::LeaveOut => self.fit_known_flips(data),
            MissingRule::Complete {
                most_unknown,
                tolerance,
                max_rounds,
            } => {
                let (most, holds) = (most_unknown as f64, most_unknown <= Incomplete::MAX_UNKNOWN);
                check_option("most_unknown", most, "at most 16", holds)?;
                check_option("tolerance", tolerance, "positive", tolerance > 0.0)?;
                check_not_zero("max_rounds", max_rounds)?;
                self.fit_completions(data, most_unknown, tolerance, max_rounds)
            }
        }
    }

    fn fit_known_flips(&self, data: &Incomplete) -> Result<IncompleteFit> {
        let d = data.values.n_units();
        let means = data.means();
        let rows = data.merged()?;
        check_sum(rows.weights.iter().sum())?;
        let samples = Samples::unmerged(rows.values.clone(), Some(rows.weights.clone()));
        let varies = |unit: usize| means[unit] > 0.0 && means[unit] < 1.0;
        // The flip of a unit needs the unit itself and its neighbours.
        let mut needed = vec![vec![0u64; rows.values.words_per_row()]; d];
        for (unit, mask) in needed.iter_mut().enumerate() {
            flip_bit(mask, unit);
        }
        for (i, j) in self.options().support.pairs(d)? {
            if varies(i) && varies(j) {
                flip_bit(&mut needed[i], j);
                flip_bit(&mut needed[j], i);
            }
        }
        let mut mask = FlipMask::none(&samples);
        let kept: Vec<f64> = mask
            .par_rows_mut()
            .enumerate()
            .map(|(m, flips)| {
                let unknown = rows.unknown.row(m);
                let mut kept = 0.0;
                for (unit, needed) in needed.iter().enumerate() {
                    if needed.iter().zip(unknown).any(|(a, b)| a & b != 0) {
                        flip_bit(flips, unit);
                    } else {
                        kept += samples.weight(m);
                    }
                }
                kept
            })
            .collect();
        if let Some(unit) = mask.first_without_flips(d) {
            return Err(Error::NothingKnown { unit });
        }
        let total = samples.total_weight() * d as f64;
        let masked = Masked {
            mask: Arc::new(mask),
            means,
        };
        Ok(IncompleteFit {
            fit: self
                .any()
                .fit((&samples).into(), Some(masked), &mut |_| {})?,
            rounds: 0,
            settled: true,
            // Rounding must not make it negative.
            left_out_fraction: (1.0 - kept.iter().sum::<f64>() / total).max(0.0),
        })
    }

    fn fit_completions(
        &self,
        data: &Incomplete,
        most_unknown: usize,
        tolerance: f64,
        max_rounds: usize,
    ) -> Result<IncompleteFit> {
        let d = data.values.n_units();
        let rows = data.merged()?;
        let completions = Completions::new(&rows, most_unknown)?;
        // Start from independent units with the observed means, kept away from 0 and 1.
        let total: f64 = rows.weights.iter().sum();
        let biases: Vec<f64> = data
            .means()
            .iter()
            // (Beyond 10¹⁶ samples the added half is lost to rounding.)
            .map(|mean| ((mean * total + 0.5) / (total + 1.0)).min(1.0 - 0.5 * f64::EPSILON))
            .map(|p| ((1.0 - p) / p).ln())
            .collect();
        let mut couplings = match &self.options().start {
            Some(start) => start.clone(),
            None => Couplings::new(Array2::from_diag(&aview1(&biases)))?,
        };
        check_units("starting couplings", d, couplings.n_units())?;
        let mut options = self.options().clone();
        options.minimizer.checkpoint = Checkpoint::default();
        let mut round = 0;
        loop {
            round += 1;
            let samples = completions.weighted(&rows, &couplings)?;
            let fit = self.with_options(options.clone())?.fit(&samples)?;
            let change = largest_change(&couplings, &fit.couplings);
            couplings = fit.couplings.clone();
            let settled = change <= tolerance;
            if settled || round == max_rounds || options.minimizer.cancel.is_cancelled() {
                return Ok(IncompleteFit {
                    fit,
                    rounds: round,
                    settled,
                    left_out_fraction: completions.left_out,
                });
            }
            options.start = Some(couplings.clone());
        }
    }
}

/// Returns the largest change of a field or spin coupling.
fn largest_change(a: &Couplings, b: &Couplings) -> f64 {
    let (a, b) = (a.to_spins(), b.to_spins());
    let fields = a.fields.iter().zip(&b.fields);
    let couplings = a.couplings.iter().zip(&b.couplings);
    fields
        .chain(couplings)
        .fold(0.0, |m, (a, b)| m.max((a - b).abs()))
}
