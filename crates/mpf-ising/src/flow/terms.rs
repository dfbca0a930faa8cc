//! Which flips an objective sums over, and how many couplings it can have.

use crate::Result;
use crate::bits::Samples;
use crate::couplings::n_packed;
use crate::error::Error;
use crate::kernel::{FlipMask, Kernel, choose_for_tiles, most_entries};
use crate::potential::CountKnots;
use crate::stream::{Data, Stream};
use std::ops::Range;
use std::sync::Arc;

/// The flips that an objective sums over, and the parameters that it has.
///
/// All units together make the joint objective; one unit alone makes its node-wise one.
#[derive(Clone)]
pub struct Terms<'a> {
    /// The data; of a stream the first ones.
    pub(crate) samples: &'a Samples,
    /// The stream that is summed over instead of the samples.
    pub(crate) stream: Option<&'a Stream>,
    /// The units whose flips are summed, and whose fields are parameters.
    pub(crate) units: Range<usize>,
    /// The free couplings; each has at least one end among the units.
    pub(crate) pairs: Vec<(usize, usize)>,
    pub(crate) mask: Option<Arc<FlipMask>>,
    /// Whether the flip of all units at once is summed too.
    pub(crate) complement: bool,
    /// The potential of the number of active units, whose knots are the last parameters.
    pub(crate) potential: Option<Arc<CountKnots>>,
    pub(crate) kernel: Kernel,
}

impl<'a> Terms<'a> {
    /// Sums over all single flips of `units`, with the couplings of `pairs` free.
    ///
    /// # Errors
    /// [`Error::UnitCount`] for no units or units that the samples do not have; [`Error::Edge`] for
    /// a pair of equal or unknown units, or one without an end among the units; [`Error::RepeatedPair`];
    /// [`Error::TooManyCouplings`] for 2³² numbers or more: d² of them if an eighth of all pairs
    /// are free or more, two per pair if fewer are.
    pub fn new(
        samples: &'a Samples,
        units: Range<usize>,
        pairs: Vec<(usize, usize)>,
    ) -> Result<Self> {
        let n_units = samples.n_units();
        if units.is_empty() || units.end > n_units {
            return Err(Error::UnitCount {
                what: "terms",
                expected: n_units,
                found: units.end,
            });
        }
        let is_bad = |&&(i, j): &&(usize, usize)| {
            i == j || i.max(j) >= n_units || !(units.contains(&i) || units.contains(&j))
        };
        if let Some(&(i, j)) = pairs.iter().find(is_bad) {
            return Err(Error::Edge { i, j, n_units });
        }
        let mut sorted: Vec<_> = pairs.iter().map(|&(i, j)| (i.min(j), i.max(j))).collect();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|w| w[0] == w[1]) {
            let (i, j) = twice[0];
            return Err(Error::RepeatedPair { i, j });
        }
        check_count(units.len(), n_units, pairs.len())?;
        Ok(Self::of(samples.into(), units, pairs))
    }

    /// Sums over all single flips of units that are known to be there.
    pub(crate) fn of(data: Data<'a>, units: Range<usize>, pairs: Vec<(usize, usize)>) -> Self {
        let mut kernel = Kernel::default();
        if let Some(stream) = data.stream() {
            kernel.algorithm = choose_for_tiles(stream.first(), 2 * pairs.len());
        }
        Self {
            samples: data.samples(),
            stream: data.stream(),
            units,
            pairs,
            mask: None,
            complement: false,
            potential: None,
            kernel,
        }
    }

    /// Adds a potential of the number of active units; `kernel` computes the sums.
    #[doc(hidden)]
    pub fn with_potential(self, knots: CountKnots, kernel: Kernel) -> Self {
        Self {
            potential: Some(Arc::new(knots)),
            kernel,
            ..self
        }
    }

    /// Returns the data.
    pub fn samples(&self) -> &'a Samples {
        self.samples
    }

    /// Returns the pairs whose couplings are the other parameters.
    pub fn pairs(&self) -> &[(usize, usize)] {
        &self.pairs
    }
}

/// Returns d(d−1)/2.
pub(crate) fn all_pairs(n_units: usize) -> usize {
    n_packed(n_units.saturating_sub(1))
}

/// Refuses more couplings of `units` among `n_units` units than slots of four bytes can number.
pub(crate) fn check_count(units: usize, n_units: usize, n_couplings: usize) -> Result<()> {
    // A coupling between two of the units takes two entries; of a single unit, one.
    let n_entries = if units == 1 {
        n_couplings
    } else {
        n_couplings.saturating_mul(2)
    };
    if most_entries(units, n_units, n_entries) < u32::MAX as usize {
        Ok(())
    } else {
        Err(Error::TooManyCouplings {
            n_units,
            n_couplings,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn couplings_are_counted_before_anything_is_held() {
        // All couplings, jointly and node by node.
        assert!(check_count(65_535, 65_535, all_pairs(65_535)).is_ok());
        assert_eq!(
            check_count(65_536, 65_536, all_pairs(65_536)),
            Err(Error::TooManyCouplings {
                n_units: 65_536,
                n_couplings: 2_147_450_880
            })
        );
        assert!(check_count(1, 1_000_000, 999_999).is_ok());
        // Few couplings of many units.
        assert!(check_count(1_000_000, 1_000_000, 2_000_000).is_ok());
        assert!(check_count(1_000_000, 1_000_000, 1 << 31).is_err());
        for n in [1 << 32, usize::MAX] {
            assert!(check_count(n, n, all_pairs(n)).is_err());
        }
    }
}
