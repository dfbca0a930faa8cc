//! Data with few bits set: add the rows of the set bits.
//!
//! Over a tile of samples, z of 16 units (a panel) is gathered sample by sample from the rows of
//! the set bits. The gradient goes by columns instead: each is held in registers while the
//! samples that have its bit set are added, so that nothing is written back in between.
//!
//! Where φ is the exponential itself and no sum of |R| comes near overflow, exp(−R) is multiplied
//! instead: then most units, being 0, have their rate without any exponential being taken, and
//! only the few that are 1 need a reciprocal.

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
    /// Whether exponentials may be multiplied instead of margins added.
    pub(super) multiply: bool,
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
    let factors: Vec<Panel> = if task.multiply {
        task.rows.iter().map(inverse_exponentials::<V>).collect()
    } else {
        Vec::new()
    };
    let first_factor = inverse_exponentials::<V>(task.offsets);
    let mut values = V::splat(0.0);
    let mut totals = [V::splat(0.0); FOURS];
    let mut tile: Vec<Panel> = vec![[[0.0; 4]; FOURS]; TILE];
    let mut start = task.range.start;
    while start < task.range.end {
        let n = TILE.min(task.range.end - start);
        for (m, slopes) in tile[..n].iter_mut().enumerate() {
            let m = start + m;
            let x = task.samples.states().row(m);
            let flips = Flips::new(task, m, x);
            let weight = V::splat(task.samples.weight(m));
            if task.multiply {
                let rates = gather::<V, true>(&factors, &first_factor, x);
                for (four, rate) in rates.into_iter().enumerate() {
                    let (on, kept) = flips.masks::<V>(four);
                    let rate = if flips.any_on(four) {
                        V::select(on, V::splat(1.0).over(rate), rate)
                    } else {
                        rate
                    };
                    let slope = rate.negate().xor(on.and(V::splat(-0.0)));
                    values = rate.and(kept).times_plus(weight, values);
                    let slope = slope.and(kept).times(weight);
                    totals[four] = totals[four].plus(slope);
                    slope.store(&mut slopes[four]);
                }
            } else {
                let z = gather::<V, false>(task.rows, task.offsets, x);
                for (four, z) in z.into_iter().enumerate() {
                    let (on, kept) = flips.masks::<V>(four);
                    let flip = on.and(V::splat(-0.0));
                    let (phi, slope) = loss.value_and_slope(z.xor(flip));
                    values = phi.and(kept).times_plus(weight, values);
                    let slope = slope.xor(flip).and(kept).times(weight);
                    totals[four] = totals[four].plus(slope);
                    slope.store(&mut slopes[four]);
                }
            }
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

/// exp(−R).
#[inline(always)]
fn inverse_exponentials<V: Lanes>(row: &Panel) -> Panel {
    let mut factors = [[0.0; 4]; FOURS];
    for (factor, r) in factors.iter_mut().zip(row) {
        V::load(r).negate().exp().store(factor);
    }
    factors
}

/// The sum (or product) of `first` and the rows of the set bits of one sample.
#[inline(always)]
fn gather<V: Lanes, const MULTIPLY: bool>(rows: &[Panel], first: &Panel, x: &[u64]) -> [V; FOURS] {
    let mut all = [V::splat(0.0); FOURS];
    for (all, first) in all.iter_mut().zip(first) {
        *all = V::load(first);
    }
    for (rows, &word) in rows.chunks(64).zip(x) {
        let mut rest = word;
        while rest != 0 {
            let row = &rows[rest.trailing_zeros() as usize];
            rest &= rest - 1;
            for (all, r) in all.iter_mut().zip(row) {
                let r = V::load(r);
                *all = if MULTIPLY { all.times(r) } else { all.plus(r) };
            }
        }
    }
    all
}

/// The states of a panel's units in one sample, and which of their flips count.
struct Flips {
    on: u64,
    kept: u64,
}

impl Flips {
    #[inline(always)]
    fn new(task: &Task<'_>, m: usize, x: &[u64]) -> Self {
        let (word, shift) = (task.first / 64, task.first % 64);
        let present = (1u64 << task.n_units) - 1;
        Self {
            on: x[word] >> shift & present,
            kept: match task.left_out {
                None => present,
                Some(left_out) => present & !(left_out.row(m)[word] >> shift),
            },
        }
    }

    #[inline(always)]
    fn any_on(&self, four: usize) -> bool {
        self.on >> (4 * four) & 15 != 0
    }

    /// Masks of the units that are 1, and of those whose flips count.
    #[inline(always)]
    fn masks<V: Lanes>(&self, four: usize) -> (V, V) {
        let mask = |bits: u64| V::load(&MASKS[(bits >> (4 * four) & 15) as usize]);
        (mask(self.on), mask(self.kept))
    }
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
