//! The peak speed of this core, measured by independent multiply-adds, for bench reports.

use super::lanes::Lanes;
use super::simd::{self, Vectors};
use std::time::Instant;

/// Independent chains: enough that none waits for its last result.
const CHAINS: usize = 12;
/// Multiply-adds per chain and call.
const STEPS: usize = 200_000;

/// Runs `STEPS` multiply-adds in each of `CHAINS` chains of eight lanes.
#[inline(always)]
pub(super) fn multiply_adds<V: Lanes>(factor: f64) -> f64 {
    let (factor, summand) = (V::splat(factor), V::splat(1e-3));
    let mut chains = [V::splat(1.0); CHAINS];
    for _ in 0..STEPS {
        for chain in &mut chains {
            *chain = chain.times_plus(factor, summand);
        }
    }
    chains.into_iter().map(V::sum).sum()
}

/// Returns the best of 20 measurements, in floating-point operations per second on one core (a
/// multiply-add of two `f64` counts as two). Takes about a tenth of a second.
pub fn flops_per_second(vectors: Vectors) -> f64 {
    let operations = (2 * 8 * CHAINS * STEPS) as f64;
    let mut best = f64::INFINITY;
    for _ in 0..20 {
        let start = Instant::now();
        let result = simd::multiply_adds(vectors, std::hint::black_box(0.999));
        best = best.min(start.elapsed().as_secs_f64());
        std::hint::black_box(result);
    }
    // The clock may be too coarse.
    operations / best.max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "millions of operations")]
    fn all_vectors_do_the_same_arithmetic() {
        // The fixed point of a ← 0.5 a + 0.001 is 0.002, in every lane of every chain.
        let expected = (8 * CHAINS) as f64 * 0.002;
        for vectors in Vectors::available() {
            assert!((simd::multiply_adds(vectors, 0.5) - expected).abs() < 1e-12);
        }
    }
}
