//! All completions of samples, with their probabilities.

use super::Incomplete;
use crate::Result;
use crate::bits::{Samples, States, flip_bit, for_each_set_bit, n_active};
use crate::couplings::Couplings;
use crate::error::Error;
use rayon::prelude::*;

/// All completions of the samples with at most `most_unknown` unknown entries.
pub(super) struct Completions {
    /// The completed rows, sample after sample.
    states: States,
    /// The sample, and its unknown units; 2^u rows each.
    samples: Vec<(usize, Vec<usize>)>,
    pub(super) left_out: f64,
}

impl Completions {
    pub(super) fn new(rows: &Incomplete, most_unknown: usize) -> Result<Self> {
        let mut found = Self {
            states: States::new(rows.values.n_units())?,
            samples: Vec::new(),
            left_out: 0.0,
        };
        let mut total = 0.0;
        for (m, (row, mask)) in rows.values.rows().zip(rows.unknown.rows()).enumerate() {
            let weight = rows.weights[m];
            total += weight;
            if n_active(mask) > most_unknown {
                found.left_out += weight;
                continue;
            }
            let mut unknown = Vec::new();
            for_each_set_bit(mask, |unit| unknown.push(unit));
            for y in 0..1u64 << unknown.len() {
                let mut completed = row.to_vec();
                for_each_set_bit(&[y], |a| flip_bit(&mut completed, unknown[a]));
                found.states.push(&completed);
            }
            found.samples.push((m, unknown));
        }
        if found.samples.is_empty() {
            return Err(Error::AllLeftOut { most_unknown });
        }
        found.left_out /= total;
        Ok(found)
    }

    /// Weights every completion by its probability under `couplings`, given the known entries.
    pub(super) fn weighted(&self, rows: &Incomplete, couplings: &Couplings) -> Result<Samples> {
        let weights: Vec<Vec<f64>> = self
            .samples
            .par_iter()
            .map(|(m, unknown)| {
                let mut p = probabilities(couplings, rows.values.row(*m), unknown);
                let weight = rows.weights[*m];
                p.iter_mut().for_each(|p| *p *= weight);
                p
            })
            .collect();
        Samples::weighted(&self.states, &weights.concat())
    }
}

/// Returns p(y | the known units) of all values y of the unknown units; bit a of y is unit
/// `unknown[a]`.
fn probabilities(couplings: &Couplings, row: &[u64], unknown: &[usize]) -> Vec<f64> {
    // E = Σ_a y_a f_a + 2 Σ_{a<b} J_ab y_a y_b + const, f_a = J_aa + 2 Σ_known J_aj x_j.
    let fields: Vec<f64> = unknown
        .iter()
        .map(|&a| {
            let mut sum = couplings.get(a, a);
            for_each_set_bit(row, |j| sum += 2.0 * couplings.get(a, j));
            sum
        })
        .collect();
    let mut log_p = vec![0.0; 1 << unknown.len()];
    for y in 1..log_p.len() {
        let last = y.trailing_zeros() as usize;
        let rest = y & (y - 1);
        let mut energy = fields[last];
        for_each_set_bit(&[rest as u64], |b| {
            energy += 2.0 * couplings.get(unknown[last], unknown[b]);
        });
        log_p[y] = log_p[rest] - energy;
    }
    let largest = log_p.iter().fold(f64::NEG_INFINITY, |m, l| m.max(*l));
    let mut p: Vec<f64> = log_p.iter().map(|l| (l - largest).exp()).collect();
    let sum: f64 = p.iter().sum();
    p.iter_mut().for_each(|p| *p /= sum);
    p
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact::Exact;
    use mpf_core::rng::stream;
    use rand::RngExt;

    #[test]
    fn completions_have_their_conditional_probabilities() {
        let mut rng = stream(3, 0);
        let packed: Vec<f64> = (0..15).map(|_| rng.random_range(-1.5..1.5)).collect();
        let j = Couplings::unpack(5, &packed).unwrap();
        let p = Exact::new(&j).unwrap().probabilities();
        // Units 1, 3 and 4 are unknown; 0 and 2 are 1 and 0.
        let unknown = [1, 3, 4];
        let found = probabilities(&j, &[0b00001], &unknown);
        let state = |y: usize| 1 | (y & 1) << 1 | (y >> 1 & 1) << 3 | (y >> 2 & 1) << 4;
        let total: f64 = (0..8).map(|y| p[state(y)]).sum();
        for (y, found) in found.iter().enumerate() {
            assert!((found - p[state(y)] / total).abs() < 1e-14);
        }
    }
}
