//! Units that are linear functions of others.
//!
//! ```text
//! C = covariance of the units,  C_bb = L Lᵀ over the units b that are independent so far
//! y = L⁻¹ C_bu,  C_uu − |y|² ≈ 0:  unit u is linear in b, with the weights w = L⁻ᵀ y
//! ```
//!
//! One factorisation finds all of them: O(d n²) for n independent units. Units are taken in panels,
//! so that a row of L is read once for many of them, and a few panels at a time, in parallel.

use crate::Result;
use crate::bits::Samples;
use crate::error::Error;
use mpf_core::{Cancel, StopReason};
use rayon::prelude::*;

/// A unit is linear in others if they explain its variance up to this share.
const RESIDUAL: f64 = 1e-10;
/// Weights up to this are zero but for rounding.
const NO_WEIGHT: f64 = 1e-6;
/// Units of a panel.
const PANEL: usize = 16;
/// Units that are solved for before L grows.
const STEP: usize = 8 * PANEL;

/// A unit, and the others that it is a linear function of, with their coefficients.
pub(super) type Combination = (usize, Vec<(usize, f64)>);

/// One number for every unit of a panel.
type Lane = [f64; PANEL];

/// The Cholesky factor over the units that are independent so far.
#[derive(Default)]
struct Factor {
    units: Vec<usize>,
    /// The rows of L up to the diagonal.
    rows: Vec<Vec<f64>>,
}

/// Returns the units among `units` that are linear functions of earlier ones; those found in time, if
/// `cancel` has a limit.
pub(super) fn linear_units(
    samples: &Samples,
    units: &[usize],
    cancel: &Cancel,
) -> Result<Vec<Combination>> {
    let raw = samples.pair_means();
    let covariance = |i: usize, j: usize| raw[[i, j]] - raw[[i, i]] * raw[[j, j]];
    let mut factor = Factor::default();
    let mut found = Vec::new();
    for step in units.chunks(STEP) {
        match cancel.reason() {
            None => {}
            Some(StopReason::TimeLimit) => break,
            Some(_) => return Err(Error::Cancelled),
        }
        let panels = step.par_chunks(PANEL);
        let solved: Vec<Vec<Lane>> = panels.map(|p| factor.solve(p, covariance)).collect();
        let dependent = factor.extend(step, &solved, covariance);
        let panels = dependent.par_chunks(PANEL);
        let combinations: Vec<_> = panels.map(|panel| factor.combinations(panel)).collect();
        found.extend(combinations.into_iter().flatten());
    }
    Ok(found)
}

impl Factor {
    /// Returns Y = L⁻¹ C of the units of `panel`, a lane for every row of L.
    fn solve(&self, panel: &[usize], covariance: impl Fn(usize, usize) -> f64) -> Vec<Lane> {
        let mut solved: Vec<Lane> = Vec::with_capacity(self.units.len() + PANEL);
        for (&unit, row) in self.units.iter().zip(&self.rows) {
            let mut rest = [0.0; PANEL];
            for (value, &other) in rest.iter_mut().zip(panel) {
                *value = covariance(other, unit);
            }
            let (diagonal, row) = row.split_last().expect("rows end with the diagonal");
            for (l, y) in row.iter().zip(&solved) {
                for (value, y) in rest.iter_mut().zip(y) {
                    *value -= l * y;
                }
            }
            rest.iter_mut().for_each(|value| *value /= diagonal);
            solved.push(rest);
        }
        solved
    }

    /// Adds the units of `step` that are independent. Returns the others with their y.
    fn extend(
        &mut self,
        step: &[usize],
        solved: &[Vec<Lane>],
        covariance: impl Fn(usize, usize) -> f64,
    ) -> Vec<(usize, Vec<f64>)> {
        let n_before = self.units.len();
        let mut dependent = Vec::new();
        for (at, &unit) in step.iter().enumerate() {
            let lanes = solved[at / PANEL].iter();
            let mut row: Vec<f64> = lanes.map(|y| y[at % PANEL]).collect();
            for k in n_before..self.units.len() {
                let known: f64 = row.iter().zip(&self.rows[k]).map(|(a, b)| a * b).sum();
                row.push((covariance(unit, self.units[k]) - known) / self.rows[k][k]);
            }
            let rest = covariance(unit, unit) - row.iter().map(|v| v * v).sum::<f64>();
            if rest > RESIDUAL * covariance(unit, unit) {
                row.push(rest.sqrt());
                self.units.push(unit);
                self.rows.push(row);
            } else {
                dependent.push((unit, row));
            }
        }
        dependent
    }

    /// Returns the weights L⁻ᵀ y of every dependent unit, without those that are zero.
    fn combinations(&self, dependent: &[(usize, Vec<f64>)]) -> Vec<Combination> {
        // Units that became independent later have weight 0.
        let mut weights: Vec<Lane> = vec![[0.0; PANEL]; self.units.len()];
        for (lane, (_, y)) in dependent.iter().enumerate() {
            for (weight, y) in weights.iter_mut().zip(y) {
                weight[lane] = *y;
            }
        }
        for (k, row) in self.rows.iter().enumerate().rev() {
            let (before, here) = weights.split_at_mut(k);
            let (diagonal, row) = row.split_last().expect("rows end with the diagonal");
            here[0].iter_mut().for_each(|weight| *weight /= diagonal);
            for (l, rest) in row.iter().zip(before) {
                for (value, weight) in rest.iter_mut().zip(&here[0]) {
                    *value -= l * weight;
                }
            }
        }
        let lanes = dependent.iter().enumerate();
        lanes
            .map(|(lane, &(unit, _))| {
                let of = self.units.iter().zip(&weights);
                let of = of.map(|(&other, weight)| (other, weight[lane]));
                (unit, of.filter(|(_, w)| w.abs() > NO_WEIGHT).collect())
            })
            // Weights of very different sizes can leave a singular covariance.
            .filter(|(_, of): &Combination| of.iter().all(|(_, w)| w.is_finite()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::States;
    use mpf_core::linalg::positive_definite_inverse;
    use mpf_core::rng::stream;
    use ndarray::{Array1, Array2};
    use rand::RngExt;

    /// Inverts the covariance of the independent units for every dependent one.
    fn plainly(samples: &Samples, units: &[usize]) -> Vec<Combination> {
        let raw = samples.pair_means();
        let covariance = |i: usize, j: usize| raw[[i, j]] - raw[[i, i]] * raw[[j, j]];
        let among = |basis: &[usize]| {
            let n = basis.len();
            Array2::from_shape_fn((n, n), |(a, b)| covariance(basis[a], basis[b]))
        };
        let (mut basis, mut found) = (Vec::new(), Vec::new());
        for &unit in units {
            let with: Array1<f64> = basis.iter().map(|&b| covariance(b, unit)).collect();
            let inverse = positive_definite_inverse(among(&basis).view()).unwrap();
            let weights = inverse.dot(&with);
            let rest = covariance(unit, unit) - weights.dot(&with);
            if rest > RESIDUAL * covariance(unit, unit) {
                basis.push(unit);
                continue;
            }
            let of = basis.iter().copied().zip(weights);
            found.push((unit, of.filter(|(_, w)| w.abs() > NO_WEIGHT).collect()));
        }
        found
    }

    #[test]
    fn one_factorisation_finds_what_many_inversions_find() {
        for (n_samples, n_units) in [(12, 6), (20, 40), (40, 33), (50, 130), (200, 70)] {
            let mut rng = stream(mpf_testkit::seed(), n_samples * n_units);
            let mut states = States::new(n_units).unwrap();
            for _ in 0..n_samples {
                let mut bits: Vec<bool> = (0..n_units).map(|_| rng.random()).collect();
                // With more samples than units, at least this one is linear.
                bits[n_units - 1] = bits[0];
                let words = bits.chunks(64).map(|chunk| {
                    let bit = |(k, on): (usize, &bool)| u64::from(*on) << k;
                    chunk.iter().enumerate().map(bit).sum()
                });
                states.push(&words.collect::<Vec<u64>>());
            }
            let samples = Samples::new(&states).unwrap();
            let means = samples.means();
            let units: Vec<usize> = (0..n_units)
                .filter(|&i| means[i] > 0.0 && means[i] < 1.0)
                .collect();
            let found = linear_units(&samples, &units, &Cancel::new()).unwrap();
            let expected = plainly(&samples, &units);
            let named = |list: &[Combination]| list.iter().map(|(u, _)| *u).collect::<Vec<_>>();
            assert_eq!(named(&found), named(&expected));
            assert!(!found.is_empty());
            for ((_, found), (unit, expected)) in found.iter().zip(&expected) {
                // Weights near the limit may be listed by one way only.
                let weight = |list: &[(usize, f64)], unit: usize| {
                    list.iter().find(|w| w.0 == unit).map_or(0.0, |w| w.1)
                };
                let size = expected.iter().fold(1.0f64, |m, w| m.max(w.1.abs()));
                for &other in &units {
                    let off = weight(found, other) - weight(expected, other);
                    assert!(off.abs() < 1e-5 * size, "unit {unit}: {other} off by {off}");
                }
            }
        }
        let stopped = Cancel::new();
        stopped.cancel();
        let mut states = States::new(2).unwrap();
        (0..4).for_each(|x| states.push(&[x]));
        let samples = Samples::new(&states).unwrap();
        let outcome = linear_units(&samples, &[0, 1], &stopped);
        assert!(matches!(outcome, Err(Error::Cancelled)));
        // A limit of time leaves out the rest.
        let late = Cancel::new().within(0.0);
        let outcome = linear_units(&samples, &[0, 1], &late);
        assert!(outcome.is_ok_and(|found| found.is_empty()));
    }
}
