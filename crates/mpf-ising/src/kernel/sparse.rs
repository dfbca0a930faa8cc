//! Data with few bits set: add the rows of the set bits.
//!
//! Over a tile of samples, z of 16 units (a panel) is gathered sample by sample from the rows of the
//! set bits. The gradient goes by columns instead: each stays in registers while the samples that
//! have its bit set are added, and nothing is written back in between.
//!
//! If φ is the exponential itself and no sum of |R| comes near overflow, exp(−R) is multiplied
//! instead: most units are 0 and have their rate without an exponential, and only the few that are 1
//! need a reciprocal.

use super::TILE;
use super::lanes::{Aligned, Lanes, MASKS};
use super::{FlipMask, MarginLoss};
use crate::bits::{Samples, for_each_set_bit};
use std::ops::Range;

/// Units in a panel.
pub(super) const PANEL: usize = 16;
/// Registers of four in a panel.
const FOURS: usize = PANEL / 4;

/// One number for every unit of a panel.
pub(super) type Panel = [[f64; 4]; FOURS];

/// The activity below which lists of set bits beat tables, as `cargo bench --bench paths` finds: at
/// 0.2 lists still win by a sixth, at 0.3 tables do.
const WORTH_BELOW: f64 = 0.24;
/// The activity below which the lists are always small enough.
const SMALL_BELOW: f64 = 0.05;
/// The most bytes of lists above that activity.
const MOST_BYTES: usize = 1 << 28;

/// Returns whether this algorithm is the faster one and its lists are not too large.
pub(super) fn is_worth_it(samples: &Samples) -> bool {
    let activity = samples.activity();
    let entries = samples.n_distinct() as f64 * samples.n_units() as f64;
    let small = activity < SMALL_BELOW || 3.0 * activity * entries < MOST_BYTES as f64;
    activity < WORTH_BELOW && small && samples.n_units() <= MOST_UNITS
}

/// The most units whose set bits can be listed.
pub(super) const MOST_UNITS: usize = 1 << 16;

/// A panel that starts a cache line.
pub(super) type Lines = Aligned<Panel>;

const ZEROS: Lines = Aligned([[0.0; 4]; FOURS]);

/// The set bits, listed by sample and by unit: three bytes each.
///
/// Walking the bits themselves would cost a mispredicted branch per word in every evaluation.
#[derive(Clone, Debug)]
pub(super) struct SetBits {
    /// The units that are 1, sample after sample.
    units: Vec<u16>,
    unit_starts: Vec<usize>,
    /// The places in a tile of the samples that are 1, by tile and unit.
    places: Vec<u8>,
    place_starts: Vec<usize>,
}

/// Returns the bytes of the lists of [`SetBits`].
pub(super) fn list_bytes(samples: &Samples) -> usize {
    let (n, d) = (samples.n_distinct(), samples.n_units());
    let set = samples.activity() * (n * d) as f64;
    3 * set as usize + 8 * (n + n.div_ceil(TILE) * d)
}

impl SetBits {
    /// Lists all set bits. O(M d / 64 + set bits).
    pub(super) fn new(samples: &Samples) -> Self {
        let d = samples.n_units();
        let set = samples.activity() * (samples.n_distinct() * d) as f64;
        let mut units = Vec::with_capacity(set.round() as usize);
        let mut unit_starts = vec![0];
        for row in samples.states().rows() {
            for_each_set_bit(row, |unit| units.push(unit as u16));
            unit_starts.push(units.len());
        }
        let (mut places, mut place_starts) = (Vec::with_capacity(units.len()), vec![0]);
        let n_blocks = samples.n_distinct().div_ceil(64);
        for first in (0..n_blocks).step_by(TILE / 64) {
            let blocks = first..n_blocks.min(first + TILE / 64);
            for unit in 0..d {
                for block in blocks.clone() {
                    let word = samples.column_block(block)[unit];
                    for_each_set_bit(&[word], |m| places.push((64 * (block - first) + m) as u8));
                }
                place_starts.push(places.len());
            }
        }
        Self {
            units,
            unit_starts,
            places,
            place_starts,
        }
    }

    /// Returns the units that are 1 in a sample.
    #[inline(always)]
    fn of_sample(&self, m: usize) -> &[u16] {
        &self.units[self.unit_starts[m]..self.unit_starts[m + 1]]
    }

    /// Returns the samples of a tile in which a unit is 1; `at` counts units through all tiles.
    #[inline(always)]
    fn of_unit(&self, at: usize) -> &[u8] {
        &self.places[self.place_starts[at]..self.place_starts[at + 1]]
    }
}

/// One panel over some samples.
pub(super) struct Task<'a> {
    pub(super) samples: &'a Samples,
    pub(super) set_bits: &'a SetBits,
    pub(super) mask: Option<&'a FlipMask>,
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

/// The sums of a task.
pub(super) struct Partial {
    pub(super) value: f64,
    pub(super) offsets: Panel,
    pub(super) rows: Vec<Lines>,
}

/// Computes value and gradient of one task.
#[inline(always)]
pub(super) fn sum<V: Lanes, L: MarginLoss>(task: &Task<'_>, loss: L) -> Partial {
    let mut partial = Partial {
        value: 0.0,
        offsets: [[0.0; 4]; FOURS],
        rows: vec![ZEROS; task.rows.len()],
    };
    // A loop, not a closure: only code that is inlined here becomes vector code.
    let mut rows: Vec<Lines> = vec![ZEROS; task.rows.len()];
    for (lines, row) in rows.iter_mut().zip(task.rows) {
        lines.0 = *row;
        if task.multiply {
            lines.0 = inverse_exponentials::<V>(row);
        }
    }
    let first_factor = inverse_exponentials::<V>(task.offsets);
    let mut values = V::splat(0.0);
    let mut totals = [V::splat(0.0); FOURS];
    let mut tile: Vec<Lines> = vec![ZEROS; TILE];
    let mut start = task.range.start;
    while start < task.range.end {
        let n = TILE.min(task.range.end - start);
        for (m, slopes) in tile[..n].iter_mut().enumerate() {
            let m = start + m;
            let x = task.samples.states().row(m);
            let flips = Flips::new(task, m, x);
            let on = task.set_bits.of_sample(m);
            let weight = V::splat(task.samples.weight(m));
            if task.multiply {
                let rates = gather::<V, true>(&rows, &first_factor, on);
                for (four, rate) in rates.into_iter().enumerate() {
                    let (on, kept) = flips.masks::<V>(four);
                    let rate = if flips.any_on(four) {
                        V::select(on, V::splat(1.0) / rate, rate)
                    } else {
                        rate
                    };
                    let slope = (-rate).xor(on.and(V::splat(-0.0)));
                    values = rate.and(kept).times_plus(weight, values);
                    let slope = slope.and(kept) * weight;
                    totals[four] = totals[four] + slope;
                    slope.store(&mut slopes.0[four]);
                }
            } else {
                let z = gather::<V, false>(&rows, task.offsets, on);
                for (four, z) in z.into_iter().enumerate() {
                    let (on, kept) = flips.masks::<V>(four);
                    let flip = on.and(V::splat(-0.0));
                    let (phi, slope) = loss.value_and_slope(z.xor(flip));
                    values = phi.and(kept).times_plus(weight, values);
                    let slope = slope.xor(flip).and(kept) * weight;
                    totals[four] = totals[four] + slope;
                    slope.store(&mut slopes.0[four]);
                }
            }
        }
        gradient::<V>(task, start, &tile, &mut partial.rows);
        start += TILE;
    }
    partial.value = values.sum();
    for (sum, total) in partial.offsets.iter_mut().zip(totals) {
        total.store(sum);
    }
    partial
}

/// Returns exp(−R).
#[inline(always)]
fn inverse_exponentials<V: Lanes>(row: &Panel) -> Panel {
    let mut factors = [[0.0; 4]; FOURS];
    for (factor, r) in factors.iter_mut().zip(row) {
        (-V::load(r)).exp().store(factor);
    }
    factors
}

/// Returns the sum (or product) of `first` and the rows of the units that are `on`.
#[inline(always)]
fn gather<V: Lanes, const MULTIPLY: bool>(rows: &[Lines], first: &Panel, on: &[u16]) -> [V; FOURS] {
    let mut all = [V::splat(0.0); FOURS];
    for (all, first) in all.iter_mut().zip(first) {
        *all = V::load(first);
    }
    for &unit in on {
        for (all, r) in all.iter_mut().zip(&rows[unit as usize].0) {
            let r = V::load(r);
            *all = if MULTIPLY { *all * r } else { *all + r };
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
            kept: match task.mask {
                None => present,
                Some(mask) => present & !(mask.row(m)[word] >> shift),
            },
        }
    }

    #[inline(always)]
    fn any_on(&self, four: usize) -> bool {
        self.on >> (4 * four) & 15 != 0
    }

    /// Returns masks of the units that are 1, and of those whose flips count.
    #[inline(always)]
    fn masks<V: Lanes>(&self, four: usize) -> (V, V) {
        let mask = |bits: u64| V::load(&MASKS.0[(bits >> (4 * four) & 15) as usize]);
        (mask(self.on), mask(self.kept))
    }
}

/// Adds Σ_m D x_j to every column's gradient.
#[inline(always)]
fn gradient<V: Lanes>(task: &Task<'_>, start: usize, tile: &[Lines], rows: &mut [Lines]) {
    let first = start / TILE * rows.len();
    for (unit, sum) in rows.iter_mut().enumerate() {
        let mut sums = [V::splat(0.0); FOURS];
        for (s, g) in sums.iter_mut().zip(&sum.0) {
            *s = V::load(g);
        }
        for &place in task.set_bits.of_unit(first + unit) {
            for (s, d) in sums.iter_mut().zip(&tile[place as usize].0) {
                *s = *s + V::load(d);
            }
        }
        for (s, g) in sums.into_iter().zip(&mut sum.0) {
            s.store(g);
        }
    }
}
