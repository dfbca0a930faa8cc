//! Data with many bits set: sums of four table rows instead of four times four numbers.
//!
//! The method of the four Russians. The 64 columns of R under one word of bits are cut into 16
//! groups of four; for each group the 16 possible partial sums of R are tabulated, for eight
//! units (a panel) at once. A sample's z then takes one table row per four columns. The gradient
//! is the same thing turned around: tables of the sums of D over four samples, looked up by the
//! transposed bits. The tables of a word are 16 KB and stay in the nearest cache.
//!
//! Where φ is the exponential itself and no sum of |R| comes near overflow, the tables hold
//! exp(R) and are multiplied, which saves taking exponentials afterwards.

use super::lanes::{Lanes, MASKS};
use super::{LeftOut, MarginLoss};
use crate::bits::{Samples, TILE};
use std::ops::Range;

/// Units in a panel.
pub(super) const PANEL: usize = 8;

/// One number for every unit of a panel.
pub(super) type Eight = [[f64; 4]; 2];

/// For 16 groups of four bits, the sum (or product) of every pattern.
type Tables = [[Eight; 16]; 16];

/// Words of bits that are looked up before z goes back to memory: their tables are 32 KB.
const WORDS_AT_ONCE: usize = 1;

/// One panel over some samples.
pub(super) struct Task<'a> {
    pub(super) samples: &'a Samples,
    pub(super) left_out: Option<&'a LeftOut>,
    /// The first unit of the panel, a multiple of eight, and how many it has.
    pub(super) first: usize,
    pub(super) n_units: usize,
    /// R by column, and c.
    pub(super) rows: &'a [Eight],
    pub(super) offsets: &'a Eight,
    /// A multiple of [`TILE`] to start from.
    pub(super) range: Range<usize>,
    /// Whether exponentials may be multiplied instead of margins added.
    pub(super) multiply: bool,
}

/// What a task adds up.
pub(super) struct Partial {
    pub(super) value: f64,
    pub(super) offsets: Eight,
    pub(super) rows: Vec<Eight>,
}

#[inline(always)]
fn load<V: Lanes>(eight: &Eight) -> [V; 2] {
    [V::load(&eight[0]), V::load(&eight[1])]
}

#[inline(always)]
fn store<V: Lanes>(values: [V; 2], eight: &mut Eight) {
    values[0].store(&mut eight[0]);
    values[1].store(&mut eight[1]);
}

/// Sums, gradient and value of one task.
#[inline(always)]
pub(super) fn sum<V: Lanes, L: MarginLoss>(task: &Task<'_>, loss: L) -> Partial {
    let n_columns = task.rows.len();
    let n_words = n_columns.div_ceil(64);
    let mut tables = vec![[[[[0.0; 4]; 2]; 16]; 16]; n_words];
    for (table, rows) in tables.iter_mut().zip(task.rows.chunks(64)) {
        build_column_tables::<V>(rows, task.multiply, table);
    }
    let mut sample_tables: Box<Tables> = Box::new([[[[0.0; 4]; 2]; 16]; 16]);
    let mut tile: Vec<Eight> = vec![[[0.0; 4]; 2]; TILE];
    let mut partial = Partial {
        value: 0.0,
        offsets: [[0.0; 4]; 2],
        rows: vec![[[0.0; 4]; 2]; n_columns],
    };
    let mut start = task.range.start;
    while start < task.range.end {
        let n = TILE.min(task.range.end - start);
        margins::<V>(task, &tables, start, &mut tile[..n]);
        partial.value += slopes::<V, L>(task, loss, start, &mut tile[..n]);
        // The last tile ends in zeros, up to a whole word.
        let padded = n.next_multiple_of(64);
        for rest in &mut tile[n..padded] {
            *rest = [[0.0; 4]; 2];
        }
        gradient::<V>(
            task,
            start,
            &tile[..padded],
            &mut sample_tables,
            &mut partial,
        );
        start += TILE;
    }
    partial
}

/// The partial sums of R (or products of exp R) for every pattern of every group of four columns.
#[inline(always)]
fn build_column_tables<V: Lanes>(rows: &[Eight], multiply: bool, tables: &mut Tables) {
    let neutral = if multiply { 1.0 } else { 0.0 };
    for (group, rows) in tables.iter_mut().zip(rows.chunks(4)) {
        group[0] = [[neutral; 4]; 2];
        for (bit, row) in rows.iter().enumerate() {
            let mut row = load::<V>(row);
            if multiply {
                row = [row[0].exp(), row[1].exp()];
            }
            for pattern in 0..1 << bit {
                let low = load::<V>(&group[pattern]);
                let both = if multiply {
                    [low[0].times(row[0]), low[1].times(row[1])]
                } else {
                    [low[0].plus(row[0]), low[1].plus(row[1])]
                };
                store(both, &mut group[pattern | 1 << bit]);
            }
        }
    }
}

/// z (or exp z) of every sample of a tile.
#[inline(always)]
fn margins<V: Lanes>(task: &Task<'_>, tables: &[Tables], start: usize, tile: &mut [Eight]) {
    let states = task.samples.states();
    let mut offsets = load::<V>(task.offsets);
    if task.multiply {
        offsets = [offsets[0].exp(), offsets[1].exp()];
    }
    let n_columns = task.rows.len();
    for (block, tables) in tables.chunks(WORDS_AT_ONCE).enumerate() {
        let first_word = block * WORDS_AT_ONCE;
        for (m, z) in tile.iter_mut().enumerate() {
            let words = &states.row(start + m)[first_word..first_word + tables.len()];
            let mut sums = if block == 0 { offsets } else { load::<V>(z) };
            for (w, (table, &word)) in tables.iter().zip(words).enumerate() {
                let left = n_columns - 64 * (first_word + w);
                let groups = left.div_ceil(4).min(16);
                // Two chains, so that one addition need not wait for the one before.
                let mut other = [V::splat(if task.multiply { 1.0 } else { 0.0 }); 2];
                let mut word = word;
                let mut g = 0;
                while g + 1 < groups {
                    let a = load::<V>(&table[g][(word & 15) as usize]);
                    let b = load::<V>(&table[g + 1][(word >> 4 & 15) as usize]);
                    if task.multiply {
                        sums = [sums[0].times(a[0]), sums[1].times(a[1])];
                        other = [other[0].times(b[0]), other[1].times(b[1])];
                    } else {
                        sums = [sums[0].plus(a[0]), sums[1].plus(a[1])];
                        other = [other[0].plus(b[0]), other[1].plus(b[1])];
                    }
                    word >>= 8;
                    g += 2;
                }
                if g < groups {
                    let a = load::<V>(&table[g][(word & 15) as usize]);
                    sums = if task.multiply {
                        [sums[0].times(a[0]), sums[1].times(a[1])]
                    } else {
                        [sums[0].plus(a[0]), sums[1].plus(a[1])]
                    };
                }
                sums = if task.multiply {
                    [sums[0].times(other[0]), sums[1].times(other[1])]
                } else {
                    [sums[0].plus(other[0]), sums[1].plus(other[1])]
                };
            }
            store(sums, z);
        }
    }
}

/// Replaces z by D = −w s φ′(−s z) and returns Σ w φ.
#[inline(always)]
fn slopes<V: Lanes, L: MarginLoss>(
    task: &Task<'_>,
    loss: L,
    start: usize,
    tile: &mut [Eight],
) -> f64 {
    let states = task.samples.states();
    let (word, shift) = (task.first / 64, task.first % 64);
    let present = (1u64 << task.n_units) - 1;
    let mut value = [V::splat(0.0); 2];
    for (m, z) in tile.iter_mut().enumerate() {
        let m = start + m;
        let bits = states.row(m)[word] >> shift & 255;
        let kept = match task.left_out {
            None => present,
            Some(left_out) => present & !(left_out.row(m)[word] >> shift),
        };
        let weight = V::splat(task.samples.weight(m));
        for half in 0..2 {
            let on = V::load(&MASKS[(bits >> (4 * half) & 15) as usize]);
            let kept = V::load(&MASKS[(kept >> (4 * half) & 15) as usize]);
            let z_half = V::load(&z[half]);
            let (phi, slope) = if task.multiply {
                let rate = V::select(on, z_half, V::splat(1.0).over(z_half));
                (rate, rate.negate())
            } else {
                // a = −s z.
                loss.value_and_slope(z_half.xor(on.and(V::splat(-0.0))))
            };
            let weight = weight.and(kept);
            value[half] = phi.and(kept).times_plus(weight, value[half]);
            // −s φ′: minus φ′ where the bit is set.
            let signed = slope.and(kept).xor(on.and(V::splat(-0.0)));
            signed.times(weight).store(&mut z[half]);
        }
    }
    value[0].plus(value[1]).sum()
}

/// Adds Σ_m D x_j to every column's gradient, and Σ_m D to the offsets'.
#[inline(always)]
fn gradient<V: Lanes>(
    task: &Task<'_>,
    start: usize,
    tile: &[Eight],
    tables: &mut Tables,
    partial: &mut Partial,
) {
    let columns = task.samples.column_tile(start / TILE);
    for (block, slopes) in tile.chunks_exact(64).enumerate() {
        let mut total = load::<V>(&partial.offsets);
        for (group, slopes) in tables.iter_mut().zip(slopes.chunks_exact(4)) {
            for (bit, slope) in slopes.iter().enumerate() {
                let slope = load::<V>(slope);
                for pattern in 0..1 << bit {
                    let low = load::<V>(&group[pattern]);
                    let both = [low[0].plus(slope[0]), low[1].plus(slope[1])];
                    store(both, &mut group[pattern | 1 << bit]);
                }
            }
            let all = load::<V>(&group[15]);
            total = [total[0].plus(all[0]), total[1].plus(all[1])];
        }
        store(total, &mut partial.offsets);
        for (sum, words) in partial.rows.iter_mut().zip(columns) {
            let mut word = words[block];
            let mut sums = load::<V>(sum);
            let mut other = [V::splat(0.0); 2];
            for pair in tables.chunks_exact(2) {
                let a = load::<V>(&pair[0][(word & 15) as usize]);
                let b = load::<V>(&pair[1][(word >> 4 & 15) as usize]);
                sums = [sums[0].plus(a[0]), sums[1].plus(a[1])];
                other = [other[0].plus(b[0]), other[1].plus(b[1])];
                word >>= 8;
            }
            store([sums[0].plus(other[0]), sums[1].plus(other[1])], sum);
        }
    }
}
