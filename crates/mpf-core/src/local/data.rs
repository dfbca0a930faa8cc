//! Rows of sites, each distinct row once.

use super::LocalModel;
use crate::Result;
use crate::error::{Error, check_count, check_option, check_weight_sum, check_weights};
use ndarray::ArrayView2;
use std::collections::HashMap;

/// Samples of d sites, a byte a site. Equal rows are stored once; their order in time is kept, so
/// that folds, blocks and resamples are other weights of the same rows.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteData {
    n_sites: usize,
    n_states: usize,
    /// The distinct rows, one after another, in the order in which they first occur.
    rows: Vec<u8>,
    weights: Vec<f64>,
    /// The distinct row of every sample.
    pub(super) order: Vec<u32>,
    /// The weight of every sample.
    pub(super) sample_weights: Vec<f64>,
}

impl SiteData {
    /// Takes samples, one a row, whose sites have `n_states` states.
    ///
    /// # Errors
    /// [`Error::Empty`] without samples or sites, [`Error::Entry`] for a state that does not exist
    /// (the index counts row by row), [`Error::Option`] unless 2 ≤ `n_states` ≤ 256.
    pub fn new(samples: ArrayView2<'_, u8>, n_states: usize) -> Result<Self> {
        let n_sites = samples.ncols();
        let holds = (2..=256).contains(&n_states);
        check_option("n_states", n_states as f64, "from 2 to 256", holds)?;
        if samples.is_empty() {
            return Err(Error::Empty { what: "samples" });
        }
        let n = samples.nrows();
        let holds = u32::try_from(n).is_ok();
        check_option("the number of samples", n as f64, "below 2³²", holds)?;
        if let Some((index, &value)) =
            (samples.iter().enumerate()).find(|(_, v)| usize::from(**v) >= n_states)
        {
            return Err(Error::Entry {
                what: "samples",
                index,
                value: f64::from(value),
                requirement: "below the number of states of a site",
            });
        }
        let mut found: HashMap<Vec<u8>, u32> = HashMap::new();
        let mut data = Self {
            n_sites,
            n_states,
            rows: Vec::new(),
            weights: Vec::new(),
            order: Vec::with_capacity(n),
            sample_weights: vec![1.0; n],
        };
        for row in samples.rows() {
            let next = data.weights.len() as u32;
            let at = *found.entry(row.to_vec()).or_insert(next);
            if at == next {
                data.rows.extend(row);
                data.weights.push(0.0);
            }
            data.weights[at as usize] += 1.0;
            data.order.push(at);
        }
        Ok(data)
    }

    /// Weighs sample m by `weights[m]`; only their ratios matter.
    ///
    /// # Errors
    /// [`Error::Count`]; [`Error::Entry`] for a weight that is negative or not finite;
    /// [`Error::Overflow`] and [`Error::Empty`] for a sum that is not finite or 0.
    pub fn weighted(mut self, weights: &[f64]) -> Result<Self> {
        check_count("weights", self.order.len(), weights.len())?;
        check_weights("weights", weights)?;
        self.weights.fill(0.0);
        for (&at, weight) in self.order.iter().zip(weights) {
            self.weights[at as usize] += weight;
        }
        self.sample_weights = weights.to_vec();
        check_weight_sum(self.total_weight())?;
        Ok(self)
    }

    /// Returns d.
    pub fn n_sites(&self) -> usize {
        self.n_sites
    }

    /// Returns q.
    pub fn n_states(&self) -> usize {
        self.n_states
    }

    /// Returns the number of samples.
    pub fn n_samples(&self) -> usize {
        self.order.len()
    }

    /// Returns the number of distinct rows.
    pub fn n_distinct(&self) -> usize {
        self.weights.len()
    }

    /// Returns distinct row `at`.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn row(&self, at: usize) -> &[u8] {
        &self.rows[at * self.n_sites..(at + 1) * self.n_sites]
    }

    /// Returns the weight of every distinct row.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// Returns the sum of the weights.
    pub fn total_weight(&self) -> f64 {
        self.weights.iter().sum()
    }

    /// Returns the same rows with the weight of these samples alone.
    pub(super) fn of_samples(&self, samples: impl IntoIterator<Item = usize>) -> Self {
        let mut data = self.clone();
        data.weights.fill(0.0);
        for m in samples {
            data.weights[self.order[m] as usize] += self.sample_weights[m];
        }
        data
    }

    /// Checks that `model` is of these sites and states.
    pub(super) fn check(&self, model: &impl LocalModel) -> Result<()> {
        check_count("sites of the model", self.n_sites, model.n_sites())?;
        check_count("states of a site", self.n_states, model.n_states())
    }
}
