//! Data with few bits set: add the rows of the set bits.
//!
//! Over a tile of samples, z of 32 units (a panel) is gathered sample by sample from the rows of the
//! set bits. The gradient goes by columns instead: each stays in registers while the samples that
//! have its bit set are added, and nothing is written back in between.
//!
//! Where φ follows from exp(−a) and no sum of |R| comes near overflow, exp(−R) is multiplied instead:
//! most units are 0 and have their rate without an exponential, and only the few that are 1 need a
//! reciprocal.

use super::counts;
use super::lanes::{Lanes, Scratch};
use super::loss::{FlowRate, LaneLoss, Logistic, Total};
use super::panel::{Panel, Partial};
use super::{MarginLoss, PANEL, TILE};
use crate::bits::{Samples, for_each_set_bit};

/// Cache lines of `f64` in a panel.
const LINES: usize = PANEL / 8;

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

/// A number for every unit of a panel.
type Lines<V> = [<V as Lanes>::Line; LINES];

/// Computes value and gradient of a panel of [`PANEL`] units or, of the last, fewer; its samples begin
/// at a multiple of [`TILE`]. `grads` are zeros for [`Partial::rows`].
#[inline(always)]
pub(super) fn sum<V: Lanes>(
    panel: &Panel<'_>,
    set_bits: &SetBits,
    loss: MarginLoss,
    scratch: &mut Scratch,
    grads: Vec<f64>,
) -> Partial {
    match loss {
        MarginLoss::FlowRate { shift } => {
            sum_of::<V, _>(panel, set_bits, FlowRate { shift }, scratch, grads)
        }
        MarginLoss::Logistic => sum_of::<V, _>(panel, set_bits, Logistic, scratch, grads),
    }
}

#[inline(always)]
fn sum_of<V: Lanes, L: LaneLoss>(
    panel: &Panel<'_>,
    set_bits: &SetBits,
    loss: L,
    scratch: &mut Scratch,
    grads: Vec<f64>,
) -> Partial {
    let (mut partial, mut count_sums) = panel.begin::<V>(grads);
    let multiply = panel.product.is_some();
    let lines = V::lines(scratch);
    lines.resize(LINES * (2 * panel.rows.len() + TILE), V::ZEROS);
    let (rows, others) = lines.as_chunks_mut().0.split_at_mut(panel.rows.len());
    let (sums, tile) = others.split_at_mut(panel.rows.len());
    sums.fill([V::ZEROS; LINES]);
    // A loop, not a closure: only code that is inlined here becomes vector code.
    for (lines, row) in rows.iter_mut().zip(panel.rows) {
        *lines = terms::<V>(row, multiply);
    }
    let first = terms::<V>(panel.offsets, multiply);
    let mut value = Total::<V>::new(panel.product);
    let mut totals = [V::splat(0.0); LINES];
    let mut start = panel.range.start;
    while start < panel.range.end {
        let n = TILE.min(panel.range.end - start);
        for (m, slopes) in tile[..n].iter_mut().enumerate() {
            let m = start + m;
            let sample = panel.sample::<V>(m);
            let set = set_bits.of_sample(m);
            let z = if multiply {
                gather::<V, true>(rows, &first, set)
            } else {
                gather::<V, false>(rows, &first, set)
            };
            for (line, z) in z.into_iter().enumerate() {
                let sample = sample.line(line);
                let slope = if multiply {
                    let rate = if sample.on & 255 == 0 {
                        z
                    } else {
                        V::select(sample.on, V::splat(1.0) / z, z)
                    };
                    sample.slope_of_rate(loss, rate, &mut value, &mut count_sums)
                } else {
                    sample.slope_of_sum(loss, z, &mut value, &mut count_sums)
                };
                totals[line] = totals[line] + slope;
                slope.store(&mut slopes[line]);
            }
        }
        gradient::<V>(set_bits, start, tile, sums);
        start += TILE;
    }
    partial.value = value.finish();
    partial.counts = counts::finish::<V>(&count_sums);
    for (total, sum) in totals.into_iter().zip(partial.offsets.chunks_exact_mut(8)) {
        total.add_to(sum);
    }
    for (line, sum) in sums.iter().flatten().zip(partial.rows.chunks_exact_mut(8)) {
        V::load(line).add_to(sum);
    }
    partial
}

/// Returns R, or exp(−R).
#[inline(always)]
fn terms<V: Lanes>(row: &[f64; PANEL], multiply: bool) -> Lines<V> {
    let mut lines = [V::ZEROS; LINES];
    for (line, r) in lines.iter_mut().zip(row.chunks_exact(8)) {
        let r = V::round(r);
        (if multiply { (-r).exp() } else { r }).store(line);
    }
    lines
}

/// Returns the sum (or product) of `first` and the rows of the units that are `on`.
#[inline(always)]
fn gather<V: Lanes, const MULTIPLY: bool>(
    rows: &[Lines<V>],
    first: &Lines<V>,
    on: &[u16],
) -> [V; LINES] {
    let mut all = [V::splat(0.0); LINES];
    for (all, first) in all.iter_mut().zip(first) {
        *all = V::load(first);
    }
    for &unit in on {
        for (all, r) in all.iter_mut().zip(&rows[unit as usize]) {
            let r = V::load(r);
            *all = if MULTIPLY { *all * r } else { *all + r };
        }
    }
    all
}

/// Adds Σ_m D x_j to every column's gradient.
#[inline(always)]
fn gradient<V: Lanes>(set_bits: &SetBits, start: usize, tile: &[Lines<V>], rows: &mut [Lines<V>]) {
    let first = start / TILE * rows.len();
    for (unit, sum) in rows.iter_mut().enumerate() {
        let mut sums = [V::splat(0.0); LINES];
        for (s, g) in sums.iter_mut().zip(sum.iter()) {
            *s = V::load(g);
        }
        for &place in set_bits.of_unit(first + unit) {
            for (s, d) in sums.iter_mut().zip(&tile[place as usize]) {
                *s = *s + V::load(d);
            }
        }
        for (s, g) in sums.into_iter().zip(sum) {
            s.store(g);
        }
    }
}
