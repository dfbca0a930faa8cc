//! Packed rows of units.

use crate::Result;
use crate::error::Error;
use crate::sampler::{ChainSampler, Sampler, Tally};
use mpf_core::check_count;
use mpf_core::rng::{Xoshiro256PlusPlus, substream};
use mpf_ising::States;
use mpf_ising::internal::last_word_mask;
use rand::{Rng, RngExt};
use rayon::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Checks that a packed row has `n_units` units.
pub(crate) fn check_row(row: &[u64], n_units: usize) -> Result<()> {
    check_count("words of a packed state", n_units.div_ceil(64), row.len())?;
    if row[row.len() - 1] & !last_word_mask(n_units) == 0 {
        Ok(())
    } else {
        Err(Error::BitsBeyond { last: n_units - 1 })
    }
}

/// Draws every unit, 0 or 1 with equal probability.
pub(crate) fn random_row<R: Rng + ?Sized>(n_units: usize, rng: &mut R) -> Vec<u64> {
    let mut row: Vec<u64> = (0..n_units.div_ceil(64)).map(|_| rng.random()).collect();
    *row.last_mut().expect("couplings are not empty") &= last_word_mask(n_units);
    row
}

/// A sampler whose states are packed rows of units.
pub trait RowSampler:
    Sampler<State = Vec<u64>, Info: Tally + Clone + Send + Serialize + DeserializeOwned + 'static>
    + Sync
{
    /// Returns the units of a row.
    fn n_units(&self) -> usize;
}

impl<S: RowSampler> ChainSampler for S {
    type Draws = States;

    fn random_start<R: Rng + ?Sized>(&self, rng: &mut R) -> Result<Vec<u64>> {
        Ok(random_row(self.n_units(), rng))
    }

    fn no_draws(&self) -> States {
        States::new(self.n_units()).expect("couplings are not empty")
    }

    fn record(&self, row: &Vec<u64>, draws: &mut States) {
        draws.push(row);
    }

    fn accepts(&self, row: &Vec<u64>) -> bool {
        check_row(row, self.n_units()).is_ok()
    }
}

/// Makes `n` draws, a chunk and its random stream to a thread.
pub(crate) fn draw_in_chunks(
    n: usize,
    chunk: usize,
    seed: u64,
    empty: &States,
    draw: impl Fn(usize, &mut Xoshiro256PlusPlus) -> States + Sync,
) -> States {
    let chunks = (0..n.div_ceil(chunk)).into_par_iter().map(|k| {
        let n = chunk.min(n - k * chunk);
        draw(n, &mut substream(seed, k as u64))
    });
    let mut states = empty.clone();
    for drawn in chunks.collect::<Vec<States>>() {
        states.append(&drawn);
    }
    states
}
