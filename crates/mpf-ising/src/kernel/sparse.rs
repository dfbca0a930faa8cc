//! Data with few bits set: add the rows of the set bits.
//!
//! z of 32 units is kept in registers or the nearest cache while the set bits of a sample are
//! walked; the gradient walks them again.

use super::lanes::{Lanes, MASKS};
use super::{LeftOut, MarginLoss};
use crate::bits::Samples;
use std::ops::Range;

/// Units in a panel.
pub(super) const PANEL: usize = 32;
/// Registers of four in a panel.
const FOURS: usize = PANEL / 4;

/// One number for every unit of a panel.
pub(super) type Panel = [[f64; 4]; FOURS];

/// One panel over some samples.
pub(super) struct Task<'a> {
    pub(super) samples: &'a Samples,
    pub(super) left_out: Option<&'a LeftOut>,
    /// The first unit of the panel, a multiple of 32, and how many it has.
    pub(super) first: usize,
    pub(super) n_units: usize,
    /// R by column, and c.
    pub(super) rows: &'a [Panel],
    pub(super) offsets: &'a Panel,
    pub(super) range: Range<usize>,
}

/// What a task adds up.
pub(super) struct Partial {
    pub(super) value: f64,
    pub(super) offsets: Panel,
    pub(super) rows: Vec<Panel>,
}

/// Sums, gradient and value of one task.
#[inline(always)]
pub(super) fn sum<V: Lanes, L: MarginLoss>(task: &Task<'_>, loss: L) -> Partial {
    let states = task.samples.states();
    let (first_word, shift) = (task.first / 64, task.first % 64);
    let present = u64::MAX >> (64 - task.n_units);
    let mut partial = Partial {
        value: 0.0,
        offsets: [[0.0; 4]; FOURS],
        rows: vec![[[0.0; 4]; FOURS]; task.rows.len()],
    };
    let mut values = V::splat(0.0);
    let mut totals = [V::splat(0.0); FOURS];
    for m in task.range.clone() {
        let x = states.row(m);
        let mut z: [V; FOURS] = [V::splat(0.0); FOURS];
        for (z, c) in z.iter_mut().zip(task.offsets) {
            *z = V::load(c);
        }
        for (w, &word) in x.iter().enumerate() {
            let mut rest = word;
            while rest != 0 {
                let row = &task.rows[64 * w + rest.trailing_zeros() as usize];
                rest &= rest - 1;
                for (z, r) in z.iter_mut().zip(row) {
                    *z = z.plus(V::load(r));
                }
            }
        }
        let bits = x[first_word] >> shift;
        let kept = match task.left_out {
            None => present,
            Some(left_out) => present & !(left_out.row(m)[first_word] >> shift),
        };
        let weight = V::splat(task.samples.weight(m));
        for (four, z) in z.iter_mut().enumerate() {
            let on = V::load(&MASKS[(bits >> (4 * four) & 15) as usize]);
            let kept = V::load(&MASKS[(kept >> (4 * four) & 15) as usize]);
            let flip = on.and(V::splat(-0.0));
            let (phi, slope) = loss.value_and_slope(z.xor(flip));
            let weight = weight.and(kept);
            values = phi.and(kept).times_plus(weight, values);
            *z = slope.and(kept).xor(flip).times(weight);
            totals[four] = totals[four].plus(*z);
        }
        for (w, &word) in x.iter().enumerate() {
            let mut rest = word;
            while rest != 0 {
                let row = &mut partial.rows[64 * w + rest.trailing_zeros() as usize];
                rest &= rest - 1;
                for (g, z) in row.iter_mut().zip(&z) {
                    V::load(g).plus(*z).store(g);
                }
            }
        }
    }
    partial.value = values.sum();
    for (sum, total) in partial.offsets.iter_mut().zip(totals) {
        total.store(sum);
    }
    partial
}
