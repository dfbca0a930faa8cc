//! Which flips are left out of the sum.

use crate::bits::{Samples, get_bit};
use rayon::prelude::*;

/// One bit for every (distinct sample, unit), set where the flip is left out of the sum.
#[derive(Clone, Debug)]
pub(crate) struct FlipMask {
    words: usize,
    bits: Vec<u64>,
}

impl FlipMask {
    /// Leaves nothing out.
    pub(crate) fn none(samples: &Samples) -> Self {
        let words = samples.states().words_per_row();
        Self {
            words,
            bits: vec![0; words * samples.n_distinct()],
        }
    }

    #[inline(always)]
    pub(crate) fn row(&self, sample: usize) -> &[u64] {
        &self.bits[sample * self.words..(sample + 1) * self.words]
    }

    /// Returns the first unit whose flips are all left out.
    pub(crate) fn first_without_flips(&self, n_units: usize) -> Option<usize> {
        let mut all = vec![u64::MAX; self.words];
        for row in self.bits.chunks_exact(self.words) {
            for (all, word) in all.iter_mut().zip(row) {
                *all &= word;
            }
        }
        (0..n_units).find(|&unit| get_bit(&all, unit))
    }

    pub(crate) fn par_rows_mut(&mut self) -> impl IndexedParallelIterator<Item = &mut [u64]> {
        self.bits.par_chunks_exact_mut(self.words)
    }
}
