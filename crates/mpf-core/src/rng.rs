//! Makes many independent streams of one seed.
//!
//! Randomness enters this workspace as `seed: u64` or `&mut impl Rng`, never from the thread or
//! the clock: every result can be reproduced.

use rand::{Rng, RngExt, SeedableRng};
pub use rand_xoshiro::Xoshiro256PlusPlus;

/// Returns stream `index` of `seed`: Xoshiro256++ jumped `index` times. Streams are 2¹²⁸ draws
/// apart.
///
/// For a handful of long streams (chains); O(`index`).
pub fn stream(seed: u64, index: usize) -> Xoshiro256PlusPlus {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    for _ in 0..index {
        rng.jump();
    }
    rng
}

/// Returns the first `n` streams of `seed`, as [`stream`] gives them one by one.
pub fn streams(seed: u64, n: usize) -> Vec<Xoshiro256PlusPlus> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    (0..n)
        .map(|_| {
            let current = rng.clone();
            rng.jump();
            current
        })
        .collect()
}

/// Returns a generator seeded by hashing (`seed`, `index`): O(1), for one short stream per sample.
pub fn substream(seed: u64, index: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(mix(seed ^ mix(index)))
}

/// Returns the seed to use after `seed`.
pub fn next_seed(seed: u64) -> u64 {
    mix(seed)
}

/// A distribution over 0, 1, …, by its cumulative sums.
#[derive(Clone, Debug)]
pub struct DrawTable(Vec<f64>);

impl DrawTable {
    /// Takes the probability of every number, of at least one.
    pub fn new(mut probabilities: Vec<f64>) -> Self {
        let mut sum = 0.0;
        for p in &mut probabilities {
            sum += *p;
            *p = sum;
        }
        Self(probabilities)
    }

    /// Draws a number. O(ln n).
    pub fn draw<R: Rng + ?Sized>(&self, rng: &mut R) -> usize {
        let last = self.0.len() - 1;
        let u = rng.random::<f64>() * self.0[last];
        self.0.partition_point(|&c| c <= u).min(last)
    }
}

/// Takes one step of SplitMix64 (Steele, Lea & Flood 2014), a bijection that scatters close inputs.
fn mix(z: u64) -> u64 {
    let z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;

    #[test]
    fn streams_agree_with_stream_and_differ_from_each_other() {
        let first: Vec<u64> = streams(7, 3).iter_mut().map(Rng::next_u64).collect();
        for (i, &value) in first.iter().enumerate() {
            assert_eq!(stream(7, i).next_u64(), value);
        }
        assert!(first[0] != first[1] && first[1] != first[2] && first[0] != first[2]);
    }

    #[test]
    fn substreams_depend_on_seed_and_index() {
        let draw = |seed, index| substream(seed, index).next_u64();
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(2, 1));
        assert_ne!(draw(0, 0), draw(0, 1));
        // The reference output of SplitMix64 from state 0.
        assert_eq!(mix(0), 0xE220_A839_7B1D_CDAF);
    }
}
