//! One unit with some neighbours: masked additions, eight samples at a time.
//!
//! For node-wise fits, and for supports so thin that panels would be mostly zeros. The cost is
//! proportional to samples × neighbours.

use super::lanes::Lanes;
use super::{FlipMask, MarginLoss, TILE};
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

/// Computes value and gradient of one task.
#[inline(always)]
pub(super) fn sum<V: Lanes>(task: &Task<'_>, loss: MarginLoss) -> Partial {
    let mut partial = Partial {
        value: 0.0,
        offset: 0.0,
        row: vec![0.0; task.row.len()],
    };
    // The part of a word that belongs to each line of its 64 samples.
    let part = |word: u64, line: usize| (word >> (V::LANES * line)) as u32;
    let per_word = 64 / V::LANES;
    let mut tile = vec![V::ZEROS; TILE / V::LANES];
    let mut start = task.range.start;
    while start < task.range.end {
        let blocks = task.range.end.min(start + TILE).div_ceil(64) - start / 64;
        let z = &mut tile[..blocks * per_word];
        let column = |block: usize| task.samples.column_block(start / 64 + block);
        for z in z.iter_mut() {
            V::splat(task.offset).store(z);
        }
        for (&j, &r) in task.neighbours.iter().zip(task.row) {
            let r = V::splat(r);
            for (block, z) in z.chunks_exact_mut(per_word).enumerate() {
                let word = column(block)[j as usize];
                for (line, z) in z.iter_mut().enumerate() {
                    (V::load(z) + r.keep(part(word, line))).store(z);
                }
            }
        }
        let mut weights = [0.0; TILE];
        let mut kept = [0u64; TILE / 64];
        for m in start..task.range.end.min(start + TILE) {
            let left_out = task
                .mask
                .is_some_and(|mask| get_bit(mask.row(m), task.unit));
            if !left_out {
                weights[m - start] = task.samples.weight(m);
                kept[(m - start) / 64] |= 1 << ((m - start) % 64);
            }
        }
        let mut values = V::splat(0.0);
        let mut total = V::splat(0.0);
        for (block, z) in z.chunks_exact_mut(per_word).enumerate() {
            let own = column(block)[task.unit];
            let weights = weights[64 * block..].chunks_exact(V::LANES);
            for (line, (z, weight)) in z.iter_mut().zip(weights).enumerate() {
                let (own, kept) = (part(own, line), part(kept[block], line));
                let weight = V::round(weight);
                let (phi, slope) = loss.of_margins(V::load(z).flip(own));
                values = phi.keep(kept).times_plus(weight, values);
                let slope = slope.keep(kept).flip(own) * weight;
                total = total + slope;
                slope.store(z);
            }
        }
        partial.value += values.sum();
        partial.offset += total.sum();
        for (&j, g) in task.neighbours.iter().zip(&mut partial.row) {
            let mut sum = V::splat(0.0);
            for (block, z) in z.chunks_exact(per_word).enumerate() {
                let word = column(block)[j as usize];
                for (line, z) in z.iter().enumerate() {
                    sum = sum + V::load(z).keep(part(word, line));
                }
            }
            *g += sum.sum();
        }
        start += TILE;
    }
    partial
}
