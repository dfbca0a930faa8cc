//! Packed rows of units.

use crate::Result;
use crate::error::Error;
use mpf_core::check_count;
use mpf_ising::internal::last_word_mask;
use rand::{Rng, RngExt};

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
