//! Data with few bits set: add the rows of the set bits.
//!
//! Over a tile of samples, z of 16 units (a panel) is gathered sample by sample from the rows of
//! the set bits. The gradient goes by columns instead: each is held in registers while the
//! samples that have its bit set are added, so that nothing is written back in between.

use super::lanes::{Lanes, MASKS};
use super::{LeftOut, MarginLoss};
use crate::bits::{Samples, TILE};
use std::ops::Range;

/// Units in a panel.
pub(super) const PANEL: usize = 16;
/// Registers of four in a panel.
const FOURS: usize = PANEL / 4;

/// One number for every unit of a panel.
pub(super) type Panel = [[f64; 4]; FOURS];

/// One panel over some samples.
pub(super) struct Task<'a> {
    pub(super) samples: &'a Samples,
    pub(super) left_out: Option<&'a LeftOut>,
    /// The first unit of the panel, a multiple of 16, and how many it has.
    pub(super) first: usize,
    pub(super) n_units: usize,
    /// R by column, and c.
    pub(super) rows: &'a [Panel],
    pub(super) offsets: &'a Panel,
    /// A multiple of [`TILE`] to start from.
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
    let mut partial = Partial {
        value: 0.0,
        offsets: [[0.0; 4]; FOURS],
        rows: vec![[[0.0; 4]; FOURS]; task.rows.len()],
    };
    let mut values = V::splat(0.0);
    let mut totals = [V::splat(0.0); FOURS];
    let mut tile: Vec<Panel> = vec![[[0.0; 4]; FOURS]; TILE];
    let mut start = task.range.start;
    while start < task.range.end {
        let n = TILE.min(task.range.end - start);
        for (m, slopes) in tile[..n].iter_mut().enumerate() {
            let z = margins::<V>(task, start + m);
            values = slopes_of::<V, L>(task, loss, start + m, z, slopes, values, &mut totals);
        }
        gradient::<V>(task, start, &tile[..n], &mut partial.rows);
        start += TILE;
    }
    partial.value = values.sum();
    for (sum, total) in partial.offsets.iter_mut().zip(totals) {
        total.store(sum);
    }
    partial
}

/// z of one sample.
#[inline(always)]
fn margins<V: Lanes>(task: &Task<'_>, m: usize) -> [V; FOURS] {
    let mut z = [V::splat(0.0); FOURS];
    for (z, c) in z.iter_mut().zip(task.offsets) {
        *z = V::load(c);
    }
    for (rows, &word) in task.rows.chunks(64).zip(task.samples.states().row(m)) {
        let mut rest = word;
        while rest != 0 {
            let row = &rows[rest.trailing_zeros() as usize];
            rest &= rest - 1;
            for (z, r) in z.iter_mut().zip(row) {
                *z = z.plus(V::load(r));
            }
        }
    }
    z
}

/// Writes D = −w s φ′(−s z), adds it to the totals, and returns the values plus w φ.
#[inline(always)]
fn slopes_of<V: Lanes, L: MarginLoss>(
    task: &Task<'_>,
    loss: L,
    m: usize,
    z: [V; FOURS],
    slopes: &mut Panel,
    mut values: V,
    totals: &mut [V; FOURS],
) -> V {
    let (word, shift) = (task.first / 64, task.first % 64);
    let present = (1u64 << task.n_units) - 1;
    let bits = task.samples.states().row(m)[word] >> shift;
    let kept = match task.left_out {
        None => present,
        Some(left_out) => present & !(left_out.row(m)[word] >> shift),
    };
    let weight = V::splat(task.samples.weight(m));
    for (four, (z, slopes)) in z.into_iter().zip(slopes).enumerate() {
        let on = V::load(&MASKS[(bits >> (4 * four) & 15) as usize]);
        let kept = V::load(&MASKS[(kept >> (4 * four) & 15) as usize]);
        let flip = on.and(V::splat(-0.0));
        let (phi, slope) = loss.value_and_slope(z.xor(flip));
        let weight = weight.and(kept);
        values = phi.and(kept).times_plus(weight, values);
        let slope = slope.and(kept).xor(flip).times(weight);
        totals[four] = totals[four].plus(slope);
        slope.store(slopes);
    }
    values
}

/// Adds Σ_m D x_j to every column's gradient.
#[inline(always)]
fn gradient<V: Lanes>(task: &Task<'_>, start: usize, tile: &[Panel], rows: &mut [Panel]) {
    let columns = task.samples.column_tile(start / TILE);
    for (sum, words) in rows.iter_mut().zip(columns) {
        if words.iter().all(|w| *w == 0) {
            continue;
        }
        let mut sums = [V::splat(0.0); FOURS];
        for (s, g) in sums.iter_mut().zip(&*sum) {
            *s = V::load(g);
        }
        for (slopes, &word) in tile.chunks(64).zip(words) {
            let mut rest = word;
            while rest != 0 {
                let slopes = &slopes[rest.trailing_zeros() as usize];
                rest &= rest - 1;
                for (s, d) in sums.iter_mut().zip(slopes) {
                    *s = s.plus(V::load(d));
                }
            }
        }
        for (s, g) in sums.into_iter().zip(sum) {
            s.store(g);
        }
    }
}
