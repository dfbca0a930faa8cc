//! Data with many bits set: sums of four table rows instead of four times four numbers.
//!
//! The method of the four Russians. The 64 columns of R under one word of bits are cut into 16
//! groups of four. For each group the 16 possible partial sums of R are tabulated, for eight units
//! (a panel) at once; a sample's z then takes one table row per four columns. The gradient does the
//! same with samples and columns exchanged: tables of the sums of D over four samples, looked up by
//! the transposed bits. The tables of a word are 16 KB and stay in the nearest cache.
//!
//! If φ is the exponential itself and no sum of |R| comes near overflow, the tables hold exp(R) and
//! are multiplied, which saves the exponentials afterwards.

use super::TILE;
use super::lanes::{Aligned, Lanes, MASKS};
use super::{FlipMask, MarginLoss};
use crate::bits::Samples;
use std::ops::Range;

/// Units in a panel.
pub(super) const PANEL: usize = 8;

/// One number for every unit of a panel.
pub(super) type Eight = [[f64; 4]; 2];

/// One number for every unit of a panel, in a cache line of its own.
pub(super) type Line = Aligned<Eight>;

/// Words of a tile plus a cache line: with a power of two, all words of a sample would compete for
/// the same few places in the cache.
const STRIDE: usize = TILE + 8;

const ZEROS: Line = Aligned([[0.0; 4]; 2]);

/// For 16 groups of four bits, the sum (or product) of every pattern.
type Tables = [[Line; 16]; 16];

/// One panel over some samples.
pub(super) struct Task<'a> {
    pub(super) samples: &'a Samples,
    pub(super) mask: Option<&'a FlipMask>,
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

/// The sums of a task.
pub(super) struct Partial {
    pub(super) value: f64,
    pub(super) offsets: Line,
    pub(super) rows: Vec<Line>,
}

#[inline(always)]
fn load<V: Lanes>(line: &Line) -> [V; 2] {
    [V::load(&line.0[0]), V::load(&line.0[1])]
}

#[inline(always)]
fn store<V: Lanes>(values: [V; 2], line: &mut Line) {
    values[0].store(&mut line.0[0]);
    values[1].store(&mut line.0[1]);
}

/// Computes value and gradient of one task.
#[inline(always)]
pub(super) fn sum<V: Lanes, L: MarginLoss>(task: &Task<'_>, loss: L) -> Partial {
    let n_columns = task.rows.len();
    let n_words = n_columns.div_ceil(64);
    let mut tables: Vec<Tables> = vec![[[ZEROS; 16]; 16]; n_words];
    for (table, rows) in tables.iter_mut().zip(task.rows.chunks(64)) {
        build_column_tables::<V>(rows, task.multiply, table);
    }
    let mut sample_tables: Box<Tables> = Box::new([[ZEROS; 16]; 16]);
    let mut tile: Vec<Line> = vec![ZEROS; TILE];
    let mut words: Vec<[u64; STRIDE]> = vec![[0; STRIDE]; n_words];
    let mut partial = Partial {
        value: 0.0,
        offsets: ZEROS,
        rows: vec![ZEROS; n_columns],
    };
    let mut start = task.range.start;
    while start < task.range.end {
        let n = TILE.min(task.range.end - start);
        margins::<V>(task, &tables, start, &mut words, &mut tile[..n]);
        partial.value += slopes::<V, L>(task, loss, start, &mut tile[..n]);
        // The last tile ends in zeros, up to a whole word.
        let padded = n.next_multiple_of(64);
        for rest in &mut tile[n..padded] {
            *rest = ZEROS;
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

/// Tabulates the partial sums of R (or products of exp R) for every pattern of every group of four
/// columns.
#[inline(always)]
fn build_column_tables<V: Lanes>(rows: &[Eight], multiply: bool, tables: &mut Tables) {
    // Columns that do not exist change nothing.
    let neutral = if multiply { 1.0 } else { 0.0 };
    *tables = [[Aligned([[neutral; 4]; 2]); 16]; 16];
    for (group, rows) in tables.iter_mut().zip(rows.chunks(4)) {
        for (bit, row) in rows.iter().enumerate() {
            let mut row = load::<V>(&Aligned(*row));
            if multiply {
                row = [row[0].exp(), row[1].exp()];
            }
            for pattern in 0..1 << bit {
                let low = load::<V>(&group[pattern]);
                let both = if multiply {
                    [low[0] * row[0], low[1] * row[1]]
                } else {
                    [low[0] + row[0], low[1] + row[1]]
                };
                store(both, &mut group[pattern | 1 << bit]);
            }
        }
    }
}

/// Computes z (or exp z) of every sample of a tile.
#[inline(always)]
fn margins<V: Lanes>(
    task: &Task<'_>,
    tables: &[Tables],
    start: usize,
    words: &mut [[u64; STRIDE]],
    tile: &mut [Line],
) {
    let states = task.samples.states();
    let mut offsets = load::<V>(&Aligned(*task.offsets));
    if task.multiply {
        offsets = [offsets[0].exp(), offsets[1].exp()];
    }
    // One word of every sample side by side: 2 KB, not a cache line each.
    for (m, z) in tile.iter_mut().enumerate() {
        store(offsets, z);
        for (words, &word) in words.iter_mut().zip(states.row(start + m)) {
            words[m] = word;
        }
    }
    for (w, (table, words)) in tables.iter().zip(words).enumerate() {
        let columns = (task.rows.len() - 64 * w).min(64);
        let table = &table[..columns.div_ceil(4)];
        if task.multiply {
            look_up::<V, true>(table, &words[..tile.len()], tile);
        } else {
            look_up::<V, false>(table, &words[..tile.len()], tile);
        }
    }
}

#[inline(always)]
fn combine<V: Lanes, const MULTIPLY: bool>(a: [V; 2], b: [V; 2]) -> [V; 2] {
    if MULTIPLY {
        [a[0] * b[0], a[1] * b[1]]
    } else {
        [a[0] + b[0], a[1] + b[1]]
    }
}

/// Adds to (or multiplies into) every sum the table rows that the nibbles of its word choose.
///
/// Four sums at a time: none waits for its own last addition, and the address of a table is worked
/// out once for the four.
#[inline(always)]
fn look_up<V: Lanes, const MULTIPLY: bool>(
    tables: &[[Line; 16]],
    words: &[u64],
    sums: &mut [Line],
) {
    let (fours, rest) = sums.as_chunks_mut::<4>();
    let (word_fours, word_rest) = words.as_chunks::<4>();
    for (sums, words) in fours.iter_mut().zip(word_fours) {
        let mut all = [
            load(&sums[0]),
            load(&sums[1]),
            load(&sums[2]),
            load(&sums[3]),
        ];
        // The current nibble sits at bits 6 to 9, where it is its own offset into a table.
        let mut turned = [
            words[0].rotate_left(6),
            words[1].rotate_left(6),
            words[2].rotate_left(6),
            words[3].rotate_left(6),
        ];
        for table in tables {
            for (sum, word) in all.iter_mut().zip(&mut turned) {
                let row = load::<V>(&table[(*word >> 6 & 15) as usize]);
                *sum = combine::<V, MULTIPLY>(*sum, row);
                *word = word.rotate_right(4);
            }
        }
        for (all, sum) in all.into_iter().zip(sums) {
            store(all, sum);
        }
    }
    for (sum, &word) in rest.iter_mut().zip(word_rest) {
        let mut all = load::<V>(sum);
        for (g, table) in tables.iter().enumerate() {
            let row = load::<V>(&table[(word >> (4 * g) & 15) as usize]);
            all = combine::<V, MULTIPLY>(all, row);
        }
        store(all, sum);
    }
}

/// Replaces z by D = −w s φ′(−s z) and returns Σ w φ.
#[inline(always)]
fn slopes<V: Lanes, L: MarginLoss>(
    task: &Task<'_>,
    loss: L,
    start: usize,
    tile: &mut [Line],
) -> f64 {
    let states = task.samples.states();
    let (word, shift) = (task.first / 64, task.first % 64);
    let present = (1u64 << task.n_units) - 1;
    let mut value = [V::splat(0.0); 2];
    for (m, z) in tile.iter_mut().enumerate() {
        let m = start + m;
        let bits = states.row(m)[word] >> shift & 255;
        let kept = match task.mask {
            None => present,
            Some(mask) => present & !(mask.row(m)[word] >> shift),
        };
        let weight = V::splat(task.samples.weight(m));
        for (half, value) in value.iter_mut().enumerate() {
            let on = V::load(&MASKS.0[(bits >> (4 * half) & 15) as usize]);
            let kept = V::load(&MASKS.0[(kept >> (4 * half) & 15) as usize]);
            let z_half = V::load(&z.0[half]);
            let (phi, slope) = if task.multiply {
                let rate = V::select(on, z_half, V::splat(1.0) / z_half);
                (rate, -rate)
            } else {
                // a = −s z.
                loss.value_and_slope(z_half.xor(on.and(V::splat(-0.0))))
            };
            let weight = weight.and(kept);
            *value = phi.and(kept).times_plus(weight, *value);
            // −s φ′: minus φ′ where the bit is set.
            let signed = slope.and(kept).xor(on.and(V::splat(-0.0)));
            (signed * weight).store(&mut z.0[half]);
        }
    }
    (value[0] + value[1]).sum()
}

/// Adds Σ_m D x_j to every column's gradient, and Σ_m D to the offsets'.
#[inline(always)]
fn gradient<V: Lanes>(
    task: &Task<'_>,
    start: usize,
    tile: &[Line],
    tables: &mut Tables,
    partial: &mut Partial,
) {
    for (block, slopes) in tile.chunks_exact(64).enumerate() {
        let mut total = load::<V>(&partial.offsets);
        for (group, slopes) in tables.iter_mut().zip(slopes.chunks_exact(4)) {
            for (bit, slope) in slopes.iter().enumerate() {
                let slope = load::<V>(slope);
                for pattern in 0..1 << bit {
                    let low = load::<V>(&group[pattern]);
                    let both = [low[0] + slope[0], low[1] + slope[1]];
                    store(both, &mut group[pattern | 1 << bit]);
                }
            }
            total = combine::<V, false>(total, load::<V>(&group[15]));
        }
        store(total, &mut partial.offsets);
        let columns = task.samples.column_block(start / 64 + block);
        look_up::<V, false>(tables, columns, &mut partial.rows);
    }
}
