//! The result of a run.

use crate::sampler::Draws;
use mpf_ising::States;
use ndarray::Array2;
use serde::{Deserialize, Serialize};

/// The draws of one chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chain<D, I> {
    /// The recorded states, in order; fewer than asked for when the run was cancelled.
    pub draws: D,
    /// The tally of the steps after burn-in.
    pub info: I,
}

/// The draws of all chains.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "look at `cancelled` to see whether the run is complete"]
pub struct Run<D, I> {
    /// One entry per chain.
    pub chains: Vec<Chain<D, I>>,
    /// Whether [`Cancel::cancel`](mpf_core::Cancel::cancel) stopped it early: then chains may
    /// differ in length.
    pub cancelled: bool,
}

impl<D: Draws, I> Run<D, I> {
    /// Returns all draws, chain after chain.
    ///
    /// # Panics
    /// Without chains, and for chains of different units: no [`ChainRunner`](crate::ChainRunner)
    /// gives such a run.
    pub fn pooled(&self) -> D {
        let mut all = self.chains[0].draws.clone();
        for chain in &self.chains[1..] {
            all.append(&chain.draws);
        }
        all
    }
}

impl<I> Run<States, I> {
    /// Returns `observable` of every draw, by chain, as [`diagnostics`](crate::diagnostics) take it.
    pub fn series(&self, mut observable: impl FnMut(&[u64]) -> f64) -> Vec<Vec<f64>> {
        self.chains
            .iter()
            .map(|chain| chain.draws.rows().map(&mut observable).collect())
            .collect()
    }
}

impl<I> Run<Array2<f64>, I> {
    /// Returns coordinate `k` of every draw, by chain, as [`diagnostics`](crate::diagnostics) take it.
    ///
    /// # Panics
    /// When there is no coordinate `k`.
    pub fn coordinate(&self, k: usize) -> Vec<Vec<f64>> {
        self.chains
            .iter()
            .map(|chain| chain.draws.column(k).to_vec())
            .collect()
    }
}
