//! Data with many bits set: one table row instead of four rows of R, or eight.
//!
//! The method of the four Russians. The columns of R are cut into groups of a few columns. For each
//! group the partial sums of R over every pattern of its bits are tabulated, for the units of two
//! cache lines (a panel) at once; a sample's z then takes one table row per group. The gradient does
//! the same with samples and columns exchanged: tables of the sums of D over a few samples, looked up
//! by the transposed bits.
//!
//! Groups of 4 bits have 32 KB of tables per 64 columns, which stay in the first cache. Groups of 8
//! take half of the look-ups, in 128 KB for one cache line of units, which stay in the second while a
//! tile of samples passes. They pay for the columns, whose tables serve thousands of samples, but not
//! for the samples, whose tables serve d columns and are built anew for each.
//!
//! Where φ follows from exp(−a) and no sum of |R| comes near overflow, the tables hold exp(R) and are
//! multiplied, which saves the exponentials afterwards.

use super::counts::{self, CountSums, Counts};
use super::lanes::{Lanes, Scratch};
use super::loss::{LaneLoss, Total};
use super::{FlipMask, PANEL};
use crate::bits::Samples;
use std::ops::Range;

/// Samples whose sums are kept between the passes over tables.
const TILE: usize = 4096;

/// Cache lines in a panel.
pub(super) const LINES: usize = 2;

/// Words of bits whose tables are used at once: the more, the less often sums are read and written.
const WORDS: usize = 2;

/// A number for every unit of a panel.
type Row<V> = [<V as Lanes>::Line; LINES];

/// How many columns make up a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// Tables of 16 rows of two cache lines: the address of a row is worked out once for both.
    Four,
    /// Tables of 256 rows of one cache line.
    Eight,
}

impl Group {
    /// Returns the group that is faster for `d` columns and `n` samples.
    pub(super) fn of_columns(d: usize, n: usize) -> Self {
        if d < 300 || n < 1024 {
            Self::Four
        } else {
            Self::Eight
        }
    }
}

/// One panel over some samples.
pub(super) struct Task<'a> {
    pub(super) samples: &'a Samples,
    pub(super) mask: Option<&'a FlipMask>,
    pub(super) counts: Option<&'a Counts>,
    /// The first unit of the panel, a multiple of the lanes of a row, and how many it has.
    pub(super) first: usize,
    pub(super) n_units: usize,
    /// R by column, and c, of the [`PANEL`] units that these are among.
    pub(super) rows: &'a [[f64; PANEL]],
    pub(super) offsets: &'a [f64; PANEL],
    /// A multiple of 64 to start from.
    pub(super) range: Range<usize>,
    /// If exponentials may be multiplied instead of margins added: how many terms fit in a product.
    pub(super) product: Option<usize>,
    pub(super) columns: Group,
}

/// The sums of a task.
pub(super) struct Partial {
    pub(super) value: f64,
    pub(super) offsets: [f64; PANEL],
    /// By column, a number for each unit.
    pub(super) rows: Vec<f64>,
    /// By number of active units, if they matter.
    pub(super) counts: Vec<[f64; 2]>,
}

/// Computes value and gradient of one task.
#[inline(always)]
pub(super) fn sum<V: Lanes, L: LaneLoss>(
    task: &Task<'_>,
    loss: L,
    scratch: &mut Scratch,
) -> Partial {
    let n_columns = task.rows.len();
    let tile_lines = LINES * TILE.min(task.range.len().next_multiple_of(64));
    let table_lines = WORDS * 8 * 256;
    let lines = V::lines(scratch);
    lines.resize(table_lines + tile_lines + LINES * n_columns, V::ZEROS);
    let (tables, lines) = lines.split_at_mut(table_lines);
    let (tile, sums) = lines.split_at_mut(tile_lines);
    let (tile, sums) = (tile.as_chunks_mut().0, sums.as_chunks_mut::<LINES>().0);
    sums.fill([V::ZEROS; LINES]);
    let mut total = [V::splat(0.0); LINES];
    let mut partial = Partial {
        value: 0.0,
        offsets: [0.0; PANEL],
        rows: vec![0.0; LINES * V::LANES * n_columns],
        counts: Vec::new(),
    };
    let mut count_sums = task.counts.map_or_else(Vec::new, Counts::no_sums::<V>);
    let mut start = task.range.start;
    while start < task.range.end {
        let n = TILE.min(task.range.end - start);
        match task.columns {
            Group::Four => margins::<V, 16, 4, 2>(task, tables, start, &mut tile[..n]),
            Group::Eight => margins::<V, 256, 8, 1>(task, tables, start, &mut tile[..n]),
        }
        partial.value += slopes::<V, L>(task, loss, start, &mut tile[..n], &mut count_sums);
        // The last tile ends in zeros, up to a whole word.
        let padded = n.next_multiple_of(64);
        tile[n..padded].fill([V::ZEROS; LINES]);
        let words = task.samples.columns_from(start / 64);
        gradient::<V>(&tile[..padded], words, tables, sums, &mut total);
        let lines = partial.rows.chunks_exact_mut(V::LANES);
        for (sum, line) in sums.as_flattened_mut().iter_mut().zip(lines) {
            V::load(sum).add_to(line);
            *sum = V::ZEROS;
        }
        start += TILE;
    }
    for (total, offsets) in total.into_iter().zip(partial.offsets.chunks_mut(V::LANES)) {
        total.add_to(offsets);
    }
    partial.counts = counts::finish::<V>(&count_sums);
    partial
}

#[inline(always)]
fn load<V: Lanes, const W: usize>(row: &[V::Line; W]) -> [V; W] {
    let mut values = [V::splat(0.0); W];
    for (value, line) in values.iter_mut().zip(row) {
        *value = V::load(line);
    }
    values
}

#[inline(always)]
fn store<V: Lanes, const W: usize>(values: [V; W], row: &mut [V::Line; W]) {
    for (value, line) in values.into_iter().zip(row) {
        value.store(line);
    }
}

#[inline(always)]
fn combine<V: Lanes, const W: usize>(mut a: [V; W], b: [V; W], multiply: bool) -> [V; W] {
    for (a, b) in a.iter_mut().zip(b) {
        *a = if multiply { *a * b } else { *a + b };
    }
    a
}

/// Returns R or c of W lines of the panel, or its exponential.
#[inline(always)]
fn terms<V: Lanes, const W: usize>(task: &Task<'_>, row: &[f64; PANEL], line: usize) -> [V; W] {
    let mut values = [V::splat(0.0); W];
    for (k, value) in values.iter_mut().enumerate() {
        *value = V::round(&row[task.first % PANEL + V::LANES * (line + k)..]);
        if task.product.is_some() {
            *value = value.exp();
        }
    }
    values
}

/// Tabulates the sums (or products) of all ROWS = 2ⁿ patterns of N numbers.
#[inline(always)]
fn tabulate<V: Lanes, const ROWS: usize, const N: usize, const W: usize>(
    table: &mut [[V::Line; W]; ROWS],
    numbers: &[[V; W]; N],
    multiply: bool,
) {
    let neutral = V::splat(if multiply { 1.0 } else { 0.0 });
    store([neutral; W], &mut table[0]);
    for (bit, number) in numbers.iter().enumerate() {
        let (known, next) = table[..2 << bit].split_at_mut(1 << bit);
        for (known, next) in known.iter().zip(next) {
            store(combine(load(known), *number, multiply), next);
        }
    }
}

/// Computes z (or exp z) of every sample of a tile, W lines at a time.
#[inline(always)]
fn margins<V: Lanes, const ROWS: usize, const N: usize, const W: usize>(
    task: &Task<'_>,
    tables: &mut [V::Line],
    start: usize,
    tile: &mut [Row<V>],
) {
    let offsets = terms::<V, LINES>(task, task.offsets, 0);
    for z in tile.iter_mut() {
        store(offsets, z);
    }
    let states = task.samples.states();
    let n_words = states.words_per_row();
    let words = &states.words()[start * n_words..];
    let tables = tables.as_chunks_mut::<W>().0.as_chunks_mut::<ROWS>().0;
    let multiply = task.product.is_some();
    for (pass, rows) in task.rows.chunks(64 * WORDS).enumerate() {
        let words = &words[WORDS * pass..];
        for line in (0..LINES).step_by(W) {
            let groups = rows.chunks(N);
            let tables = &mut tables[..groups.len()];
            for (table, group) in tables.iter_mut().zip(groups) {
                // Columns that do not exist change nothing: their bits are zero.
                let mut numbers = [[V::splat(0.0); W]; N];
                for (number, row) in numbers.iter_mut().zip(group) {
                    *number = terms(task, row, line);
                }
                tabulate(table, &numbers, multiply);
            }
            if multiply {
                look_up::<V, ROWS, W, true>(tables, words, [n_words, 1], line, tile);
            } else {
                look_up::<V, ROWS, W, false>(tables, words, [n_words, 1], line, tile);
            }
        }
    }
}

/// Adds to (or multiplies into) W lines of every sum the table rows that its words choose; word w of
/// sum k is `words[k * strides[0] + w * strides[1]]`.
///
/// Four sums at a time: none waits for its own last addition.
#[inline(always)]
fn look_up<V: Lanes, const ROWS: usize, const W: usize, const MULTIPLY: bool>(
    tables: &[[[V::Line; W]; ROWS]],
    words: &[u64],
    strides: [usize; 2],
    line: usize,
    sums: &mut [Row<V>],
) {
    let (fours, rest) = sums.as_chunks_mut::<4>();
    let done = 4 * fours.len();
    for (k, sums) in fours.iter_mut().enumerate() {
        let words = &words[4 * k * strides[0]..];
        look_up_some::<V, ROWS, W, MULTIPLY, 4>(tables, words, strides, line, sums);
    }
    for (k, sum) in rest.iter_mut().enumerate() {
        let (words, sums) = (&words[(done + k) * strides[0]..], std::array::from_mut(sum));
        look_up_some::<V, ROWS, W, MULTIPLY, 1>(tables, words, strides, line, sums);
    }
}

#[inline(always)]
fn look_up_some<
    V: Lanes,
    const ROWS: usize,
    const W: usize,
    const MULTIPLY: bool,
    const N: usize,
>(
    tables: &[[[V::Line; W]; ROWS]],
    words: &[u64],
    strides: [usize; 2],
    line: usize,
    sums: &mut [Row<V>; N],
) {
    let bits = ROWS.trailing_zeros();
    // Turned by the size of a table row, the current pattern is its own offset into a table.
    let place = (64 * W).trailing_zeros();
    let mut all = [[V::splat(0.0); W]; N];
    for (all, sum) in all.iter_mut().zip(sums.iter()) {
        *all = load(&sum[line..].as_chunks().0[0]);
    }
    for (w, tables) in tables.chunks(64 / bits as usize).enumerate() {
        let mut turned = [0u64; N];
        for (k, turned) in turned.iter_mut().enumerate() {
            *turned = words[k * strides[0] + w * strides[1]].rotate_left(place);
        }
        for table in tables {
            for (sum, word) in all.iter_mut().zip(&mut turned) {
                let row = load(&table[(*word >> place) as usize & (ROWS - 1)]);
                *sum = combine(*sum, row, MULTIPLY);
                *word = word.rotate_right(bits);
            }
        }
    }
    for (all, sum) in all.into_iter().zip(sums) {
        store(all, &mut sum[line..].as_chunks_mut().0[0]);
    }
}

/// Replaces z by D = −w s φ′(−s z) and returns Σ w φ.
#[inline(always)]
fn slopes<V: Lanes, L: LaneLoss>(
    task: &Task<'_>,
    loss: L,
    start: usize,
    tile: &mut [Row<V>],
    count_sums: &mut CountSums<V>,
) -> f64 {
    let states = task.samples.states();
    let (word, shift) = (task.first / 64, task.first % 64);
    let present = u32::MAX >> (32 - task.n_units);
    let mut value = Total::<V>::new(task.product);
    let mut sum = 0.0;
    for (m, z) in tile.iter_mut().enumerate() {
        if m % 64 == 0 {
            // Sums in `f32` are short.
            sum += std::mem::replace(&mut value, Total::new(task.product)).finish();
        }
        let m = start + m;
        let on = (states.row(m)[word] >> shift) as u32;
        let kept = match task.mask {
            None => present,
            Some(mask) => present & !(mask.row(m)[word] >> shift) as u32,
        };
        let counted = task.counts.map(|counts| (counts, counts.of(m)));
        let kept = match counted {
            None => kept,
            Some((counts, n)) => kept & counts.kept(n, on),
        };
        let weight = V::splat(task.samples.weight(m));
        for (line, z) in z.iter_mut().enumerate() {
            let (on, kept) = (on >> (V::LANES * line), kept >> (V::LANES * line));
            let z_m = V::load(z);
            let slope = if task.product.is_some() {
                let mut rate = V::select(on, z_m, V::splat(1.0) / z_m);
                if let Some((counts, n)) = counted {
                    rate = rate * counts.shift::<V, true>(n, on);
                }
                value.add_of_rate(loss, rate, weight, kept)
            } else {
                // a = −s z.
                let mut margin = z_m.flip(on);
                if let Some((counts, n)) = counted {
                    margin = margin + counts.shift::<V, false>(n, on);
                }
                let (phi, slope) = loss.value_and_slope(margin);
                value.add(phi, weight, kept);
                slope
            };
            // −s φ′: minus φ′ where the bit is set.
            let slope = slope.keep(kept) * weight;
            if let Some((_, n)) = counted {
                counts::add(&mut count_sums[n], slope, on);
            }
            slope.flip(on).store(z);
        }
    }
    sum + value.finish()
}

/// Adds Σ_m D x_j to every column's sum, and Σ_m D to the total.
#[inline(always)]
fn gradient<V: Lanes>(
    tile: &[Row<V>],
    words: &[u64],
    tables: &mut [V::Line],
    sums: &mut [Row<V>],
    total: &mut [V; LINES],
) {
    let tables = tables.as_chunks_mut().0.as_chunks_mut::<16>().0;
    for (pass, slopes) in tile.chunks(64 * WORDS).enumerate() {
        let groups = slopes.as_chunks::<4>().0;
        let tables = &mut tables[..groups.len()];
        for (table, group) in tables.iter_mut().zip(groups) {
            let mut numbers = [[V::splat(0.0); LINES]; 4];
            for (number, slope) in numbers.iter_mut().zip(group) {
                *number = load(slope);
            }
            tabulate(table, &numbers, false);
            *total = combine(*total, load(&table[15]), false);
        }
        let (words, strides) = (&words[pass * WORDS * sums.len()..], [1, sums.len()]);
        look_up::<V, 16, LINES, false>(tables, words, strides, 0, sums);
    }
}
