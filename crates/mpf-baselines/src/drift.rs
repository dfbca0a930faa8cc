//! Does a fitted model stay where the data are?
//!
//! ```text
//! chains start at samples of the data, spread over the recording, and make some Gibbs sweeps;
//! drift = mean activity of the chains after − mean activity of the same samples before
//! ```
//!
//! MPF and pseudolikelihood look at single flips from the data. Where units excite each other, a
//! model can be right there and yet have another mode far away, with most units active, that the
//! data never show; then everything that is sampled from it is wrong. A model that agrees with its
//! data does not drift.

use crate::Result;
use mpf_core::Cancel;
use mpf_core::rng::substream;
use mpf_ising::internal::check_units;
use mpf_ising::{Couplings, Samples};
use mpf_samplers::{Gibbs, Sampler};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Most chains that are started, and units of all chains together: the activity is a mean over both.
const MOST_CHAINS: usize = 2000;
const UNITS_OF_CHAINS: usize = 200_000;
/// Fewest chains.
const FEWEST_CHAINS: usize = 200;

/// What became of chains that started at the data. All finite.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// The mean activity at the start.
    pub before: f64,
    /// The mean activity after the sweeps.
    pub after: f64,
    /// The standard error of their difference, with what the finite data leave open.
    pub standard_error: f64,
    /// The standard deviation, over samples, of the activity at the start.
    pub spread: f64,
}

impl Drift {
    /// Gibbs sweeps after which a model that has left its data is noticed.
    pub const SWEEPS: usize = 50;

    /// Returns how many chains are run for a model of `n_units`.
    pub fn n_chains(n_units: usize) -> usize {
        (UNITS_OF_CHAINS / n_units).clamp(FEWEST_CHAINS, MOST_CHAINS)
    }

    /// Runs chains of `sweeps` sweeps. Equal for any number of threads.
    ///
    /// # Errors
    /// Those of [`Gibbs::new`]; [`mpf_ising::Error::UnitCount`] for couplings of other units.
    pub fn measure(
        couplings: &Couplings,
        samples: &Samples,
        sweeps: usize,
        seed: u64,
    ) -> Result<Self> {
        Self::measure_cancellable(couplings, samples, sweeps, seed, &Cancel::new())
    }

    /// As [`Drift::measure`], until `cancel` is set.
    pub(crate) fn measure_cancellable(
        couplings: &Couplings,
        samples: &Samples,
        sweeps: usize,
        seed: u64,
        cancel: &Cancel,
    ) -> Result<Self> {
        let gibbs = Gibbs::new(couplings)?;
        let states = samples.states();
        check_units("couplings", states.n_units(), couplings.n_units())?;
        // Distinct rows in proportion to their weight: evenly spaced along the sum of weights.
        let n_chains = Self::n_chains(states.n_units());
        let step = samples.total_weight() / n_chains as f64;
        let (mut reached, mut row) = (samples.weight(0), 0);
        let starts: Vec<usize> = (0..n_chains)
            .map(|chain| {
                while reached < (chain as f64 + 0.5) * step && row + 1 < states.n_samples() {
                    row += 1;
                    reached += samples.weight(row);
                }
                row
            })
            .collect();
        let active = |row: &[u64]| mpf_ising::n_active(row) as f64;
        let ends = starts
            .par_iter()
            .enumerate()
            .map(|(chain, &start)| {
                let mut rng = substream(seed, chain as u64);
                let mut state = gibbs.state(states.row(start))?;
                for _ in 0..sweeps {
                    cancel.check()?;
                    gibbs.step(&mut state, &mut rng);
                }
                Ok((active(states.row(start)), active(state.row())))
            })
            .collect::<Result<Vec<(f64, f64)>>>()?;
        let n = ends.len() as f64;
        let d = states.n_units() as f64;
        let before = ends.iter().map(|e| e.0).sum::<f64>() / n;
        let after = ends.iter().map(|e| e.1).sum::<f64>() / n;
        let off = ends.iter().map(|e| e.1 - e.0 - (after - before));
        let variance = off.map(|v| v * v).sum::<f64>() / (n - 1.0) / n;
        let spread = ends.iter().map(|e| (e.0 - before) * (e.0 - before));
        let spread = spread.sum::<f64>() / (n - 1.0);
        Ok(Self {
            before: before / d,
            after: after / d,
            standard_error: (variance + spread / samples.n_effective()).sqrt() / d,
            spread: spread.sqrt() / d,
        })
    }

    /// Returns whether the chains left the data, up or down: beyond chance (four standard errors),
    /// and by enough to matter (a tenth of the spread of the samples).
    pub fn has_drifted(&self) -> bool {
        let off = (self.after - self.before).abs();
        off > 4.0 * self.standard_error && off > 0.1 * self.spread
    }
}
