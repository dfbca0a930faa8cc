//! One unit with some neighbours: masked additions, four samples at a time.
//!
//! For node-wise fits, and for supports so thin that panels would be mostly zeros. The cost is
//! proportional to samples × neighbours.

use super::TILE;
use super::lanes::{Aligned, Lanes, MASKS};
use super::{FlipMask, MarginLoss};
use crate::bits::{Samples, get_bit};
use std::ops::Range;

/// One unit over some samples.
pub(super) struct Task<'a> {
    pub(super) samples: &'a Samples,
    pub(super) mask: Option<&'a FlipMask>,
    pub(super) unit: usize,
    /// The columns that R has, and their values.
    pub(super) neighbours: &'a [u32],
    pub(super) row: &'a [f64],
    pub(super) offset: f64,
    /// A multiple of [`TILE`] to start from.
    pub(super) range: Range<usize>,
}

/// The sums of a task.
pub(super) struct Partial {
    pub(super) value: f64,
    pub(super) offset: f64,
    pub(super) row: Vec<f64>,
}

/// Four samples in each of 64 places: a whole tile.
type Tile = [[f64; 4]; TILE / 4];

/// Computes value and gradient of one task.
#[inline(always)]
pub(super) fn sum<V: Lanes, L: MarginLoss>(task: &Task<'_>, loss: L) -> Partial {
    let mut partial = Partial {
        value: 0.0,
        offset: 0.0,
        row: vec![0.0; task.row.len()],
    };
    let mut z = Aligned([[0.0; 4]; TILE / 4]);
    let z: &mut Tile = &mut z.0;
    let mut start = task.range.start;
    while start < task.range.end {
        let blocks = task.range.end.min(start + TILE).div_ceil(64) - start / 64;
        let column = |block: usize| task.samples.column_block(start / 64 + block);
        V::splat(task.offset).store(&mut z[0]);
        *z = [z[0]; TILE / 4];
        for (&j, &r) in task.neighbours.iter().zip(task.row) {
            let r = V::splat(r);
            for (block, z) in z.chunks_exact_mut(16).take(blocks).enumerate() {
                let mut word = column(block)[j as usize];
                for z in z {
                    let masked = r.and(V::load(&MASKS.0[(word & 15) as usize]));
                    (V::load(z) + masked).store(z);
                    word >>= 4;
                }
            }
        }
        let mut weights: Tile = [[0.0; 4]; TILE / 4];
        let mut kept: Tile = [[0.0; 4]; TILE / 4];
        for m in start..task.range.end.min(start + TILE) {
            let left_out = task
                .mask
                .is_some_and(|mask| get_bit(mask.row(m), task.unit));
            if !left_out {
                weights.as_flattened_mut()[m - start] = task.samples.weight(m);
                kept.as_flattened_mut()[m - start] = f64::from_bits(u64::MAX);
            }
        }
        let mut values = V::splat(0.0);
        let mut total = V::splat(0.0);
        let fours = z[..16 * blocks].iter_mut().zip(&weights).zip(&kept);
        for (at, ((z, weight), kept)) in fours.enumerate() {
            let own = column(at / 16)[task.unit] >> (4 * (at % 16)) & 15;
            let flip = V::load(&MASKS.0[own as usize]).and(V::splat(-0.0));
            let (weight, kept) = (V::load(weight), V::load(kept));
            let (phi, slope) = loss.value_and_slope(V::load(z).xor(flip));
            values = phi.and(kept).times_plus(weight, values);
            let slope = slope.and(kept).xor(flip) * weight;
            total = total + slope;
            slope.store(z);
        }
        partial.value += values.sum();
        partial.offset += total.sum();
        for (&j, g) in task.neighbours.iter().zip(&mut partial.row) {
            let mut sum = V::splat(0.0);
            for (block, z) in z.chunks_exact(16).take(blocks).enumerate() {
                let mut word = column(block)[j as usize];
                for z in z {
                    sum = sum + V::load(z).and(V::load(&MASKS.0[(word & 15) as usize]));
                    word >>= 4;
                }
            }
            *g += sum.sum();
        }
        start += TILE;
    }
    partial
}
