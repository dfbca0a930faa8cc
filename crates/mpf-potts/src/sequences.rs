//! Distinct sequences of states with their weights.

use crate::kernel::MOST_CODES;
use crate::{Error, Result};

/// Distinct sequences of states, a byte a site, with weights that add up to one. They are sorted, so
/// that neighbours share patterns.
///
/// A site without a state, such as a gap that is ignored, has the code q. It takes part in no sum:
/// neither as the site whose letter is predicted nor as a neighbour.
#[derive(Clone, Debug)]
pub struct Sequences {
    n_sites: usize,
    n_states: usize,
    codes: Vec<u8>,
    weights: Vec<f64>,
    total_weight: f64,
}

impl Sequences {
    /// Merges equal rows of `codes`, `n_sites` each, with `weights`.
    ///
    /// # Errors
    /// [`Error::Shape`] for fewer than two sites, no rows, or rows that do not match the weights;
    /// [`Error::States`] for fewer than 2 or more than 32 states; [`Error::Code`] for a code above
    /// `n_states`; [`Error::Weight`] for a weight that is negative or not finite, or none above 0.
    pub fn new(codes: &[u8], n_sites: usize, n_states: usize, weights: &[f64]) -> Result<Self> {
        if !(2..MOST_CODES).contains(&n_states) {
            return Err(Error::States { found: n_states });
        }
        if n_sites < 2 || codes.is_empty() || codes.len() != n_sites * weights.len() {
            return Err(Error::Shape {
                codes: codes.len(),
                n_sites,
                weights: weights.len(),
            });
        }
        if let Some(k) = codes.iter().position(|c| usize::from(*c) > n_states) {
            return Err(Error::Code {
                row: k / n_sites,
                site: k % n_sites,
                code: codes[k],
            });
        }
        if let Some(row) = weights.iter().position(|w| !(w.is_finite() && *w >= 0.0)) {
            return Err(Error::Weight {
                row,
                value: weights[row],
            });
        }
        let total_weight: f64 = weights.iter().sum();
        if !(total_weight > 0.0 && total_weight.is_finite()) {
            return Err(Error::Weight {
                row: 0,
                value: total_weight,
            });
        }
        let rows = codes.chunks_exact(n_sites).zip(weights);
        let mut rows: Vec<(&[u8], f64)> = rows.map(|(row, w)| (row, *w)).collect();
        rows.retain(|(_, weight)| *weight > 0.0);
        rows.sort_by_key(|(row, _)| *row);
        let mut distinct: Vec<u8> = Vec::with_capacity(codes.len());
        let mut merged: Vec<f64> = Vec::new();
        for (row, weight) in rows {
            let weight = weight / total_weight;
            match merged.last_mut().filter(|_| distinct.ends_with(row)) {
                Some(sum) => *sum += weight,
                None => {
                    distinct.extend_from_slice(row);
                    merged.push(weight);
                }
            }
        }
        Ok(Self {
            n_sites,
            n_states,
            codes: distinct,
            weights: merged,
            total_weight,
        })
    }

    /// Returns the number of sites.
    pub fn n_sites(&self) -> usize {
        self.n_sites
    }

    /// Returns q, the number of states of a site.
    pub fn n_states(&self) -> usize {
        self.n_states
    }

    /// Returns the number of distinct sequences.
    pub fn n_distinct(&self) -> usize {
        self.weights.len()
    }

    /// Returns the codes of the distinct sequences, one after another.
    pub fn codes(&self) -> &[u8] {
        &self.codes
    }

    /// Returns the distinct sequences.
    pub fn rows(&self) -> std::slice::ChunksExact<'_, u8> {
        self.codes.chunks_exact(self.n_sites)
    }

    /// Returns the weights of the distinct sequences, whose sum is one.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// Returns the sum of the weights as they were given: the effective number of sequences.
    pub fn total_weight(&self) -> f64 {
        self.total_weight
    }

    /// Returns the weighted frequency of every state, by site; ignored sites count nowhere.
    pub fn frequencies(&self) -> Vec<f64> {
        let mut frequencies = vec![0.0; self.n_sites * self.n_states];
        for (row, weight) in self.rows().zip(&self.weights) {
            for (site, &code) in row.iter().enumerate() {
                let code = usize::from(code);
                if code < self.n_states {
                    frequencies[site * self.n_states + code] += weight;
                }
            }
        }
        frequencies
    }
}
