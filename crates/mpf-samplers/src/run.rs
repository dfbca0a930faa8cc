//! The result of a run.

use crate::Result;
use crate::diagnostics::{self, RunDiagnostics};
use crate::sampler::{Draws, Tally};
use mpf_ising::{Couplings, States};
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
    /// Returns `observable` of every draw, by chain, as [`diagnostics`] take it.
    pub fn series(&self, mut observable: impl FnMut(&[u64]) -> f64) -> Vec<Vec<f64>> {
        self.chains
            .iter()
            .map(|chain| chain.draws.rows().map(&mut observable).collect())
            .collect()
    }
}

impl<I: Tally> Run<States, I> {
    /// Diagnoses the energy and the number of active units.
    ///
    /// ```
    /// use mpf_ising::Couplings;
    /// use mpf_samplers::{ChainRunner, Gibbs};
    /// use ndarray::array;
    ///
    /// let j = Couplings::new(array![[1.0, -1.0], [-1.0, 0.5]])?;
    /// let run = ChainRunner::default().run(&Gibbs::new(&j)?)?;
    /// let found = run.diagnose(&j)?;
    /// assert!(found.warnings.is_empty());
    /// // States 00, 10, 01, 11 have the energies 0, 1, ½, −½.
    /// let weights = [1.0, (-1f64).exp(), (-0.5f64).exp(), 0.5f64.exp()];
    /// let mean = (weights[1] + 0.5 * weights[2] - 0.5 * weights[3]) / weights.iter().sum::<f64>();
    /// assert!((found.energy.mean - mean).abs() < 5.0 * found.energy.mcse);
    /// # Ok::<(), mpf_samplers::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`diagnostics::summary`]: at least 8 draws per chain are needed.
    ///
    /// # Panics
    /// When the draws are of other units than `couplings`.
    pub fn diagnose(&self, couplings: &Couplings) -> Result<RunDiagnostics> {
        diagnostics::diagnose(self, couplings)
    }
}

impl<I> Run<Array2<f64>, I> {
    /// Returns coordinate `k` of every draw, by chain, as [`diagnostics`] take it.
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
