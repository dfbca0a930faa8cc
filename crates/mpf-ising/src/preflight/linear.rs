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
use mpf_core::linalg::{Cholesky, Lane, PANEL};
use mpf_core::{Cancel, StopReason};
use rayon::prelude::*;

/// A unit is linear in others if they explain its variance up to this share.
const RESIDUAL: f64 = 1e-10;
/// Weights up to this are zero but for rounding.
const NO_WEIGHT: f64 = 1e-6;

/// A unit, and the others that it is a linear function of, with their coefficients.
pub(super) type Combination = (usize, Vec<(usize, f64)>);

/// Returns the units among `units` that are linear functions of earlier ones; those found in time, if
/// `cancel` has a limit.
pub(super) fn linear_units(
    samples: &Samples,
    units: &[usize],
    cancel: &Cancel,
) -> Result<Vec<Combination>> {
    let raw = samples.pair_means();
    let covariance = |i: usize, j: usize| raw[[i, j]] - raw[[i, i]] * raw[[j, j]];
    let mut factor = Cholesky::default();
    let mut found = Vec::new();
    for step in units.chunks(Cholesky::STEP) {
        match cancel.reason() {
            None => {}
            Some(StopReason::TimeLimit) => break,
            Some(_) => return Err(mpf_core::Error::Cancelled.into()),
        }
        let dependent = factor.extend(step, RESIDUAL, covariance);
        let panels = dependent.par_chunks(PANEL);
        let of_panels: Vec<_> = panels.map(|panel| combinations(&factor, panel)).collect();
        found.extend(of_panels.into_iter().flatten());
    }
    Ok(found)
}

/// Returns the weights of dependent units, given y of each. Units whose weights overflow are left out.
fn combinations(factor: &Cholesky, dependent: &[(usize, Vec<f64>)]) -> Vec<Combination> {
    let mut weights: Vec<Lane> = vec![[0.0; PANEL]; factor.kept.len()];
    for (lane, (_, y)) in dependent.iter().enumerate() {
        for (weight, y) in weights.iter_mut().zip(y) {
            weight[lane] = *y;
        }
    }
    factor.solve_upper(0, &mut weights);
    let lanes = dependent.iter().enumerate();
    lanes
        .map(|(lane, &(unit, _))| {
            let of = factor.kept.iter().zip(&weights);
            let of = of.map(|(&other, weight)| (other, weight[lane]));
            (unit, of.filter(|(_, w)| w.abs() > NO_WEIGHT).collect())
        })
        .filter(|(_, of): &Combination| of.iter().all(|(_, w)| w.is_finite()))
        .collect()
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
        assert!(matches!(
            outcome,
            Err(crate::Error::Core(mpf_core::Error::Cancelled))
        ));
        // A limit of time leaves out the rest.
        let late = Cancel::new().within(0.0);
        let outcome = linear_units(&samples, &[0, 1], &late);
        assert!(outcome.is_ok_and(|found| found.is_empty()));
    }
}
