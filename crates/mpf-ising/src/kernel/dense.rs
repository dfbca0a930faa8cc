//! Data with many bits set: one table row instead of four rows of R, or six.
//!
//! The method of the four Russians. The columns of R are cut into groups of a few columns. For each
//! group the partial sums of R over every pattern of its bits are tabulated, for the units of two
//! cache lines (a panel) at once; a sample's z then takes one table row per group. The gradient does
//! the same with samples and columns exchanged: tables of the sums of D over a few samples, looked up
//! by the transposed bits.
//!
//! Groups of 6 bits take two thirds of the look-ups of groups of 4, from tables of four times the size,
//! and pay where a table is used often: those of columns serve thousands of samples, those of samples d
//! columns. A pass takes as many groups as stay in the first cache; the sums stream from the second.
//! (Groups of 8 take fewer look-ups still, but wait for the second cache.)
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

/// The most bits of a group.
const GROUP: usize = 6;

/// Bytes of tables that are used at once, so that they stay in the first cache, of 32 or 48 KB.
const TABLE_BYTES: usize = 36 << 10;

/// A number for every unit of a panel.
type Row<V> = [<V as Lanes>::Line; LINES];

/// How many bits make up a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// Tables of 16 rows of two cache lines: the address of a row is worked out once for both.
    Four,
    /// Tables of 64 rows of one cache line.
    Six,
}

impl Group {
    /// Returns the group that is faster for tables that are looked up `n` times each.
    pub(super) fn for_uses(n: usize) -> Self {
        if n < 150 { Self::Four } else { Self::Six }
    }
}

/// The bits of all samples, cut into the passes over columns.
pub(super) struct Passes {
    group: Group,
    n: usize,
    /// Columns of a pass, at most 64.
    width: usize,
    /// By pass, then by sample: turned so that the first pattern is its own offset into a table.
    words: Vec<u64>,
}

impl Passes {
    /// Copies the bits of `samples`. O(M d / 64).
    pub(super) fn new(samples: &Samples) -> Self {
        let (states, n) = (samples.states(), samples.n_distinct());
        let group = Group::for_uses(n.min(TILE));
        let (width, place) = match group {
            Group::Four => (bits_per_pass(samples.n_units(), 4, 2), turn(2)),
            Group::Six => (bits_per_pass(samples.n_units(), 6, 1), turn(1)),
        };
        let mut words = Vec::with_capacity(n * samples.n_units().div_ceil(width));
        for first in (0..samples.n_units()).step_by(width) {
            let (word, shift) = (first / 64, first % 64);
            let rows = states.rows().map(|row| {
                // Columns that do not exist may be anything.
                let next = row.get(word + 1).unwrap_or(&0);
                (row[word] >> shift | next << 1 << (63 - shift)).rotate_left(place)
            });
            words.extend(rows);
        }
        Self {
            group,
            n,
            width,
            words,
        }
    }

    /// Returns the words of some samples.
    fn of(&self, pass: usize, samples: Range<usize>) -> &[u64] {
        &self.words[pass * self.n..][samples]
    }
}

/// Returns the bytes of [`Passes`].
pub(super) fn pass_bytes(samples: &Samples) -> usize {
    samples.n_distinct() * samples.n_units().div_ceil(54) * 8
}

/// Returns how many of `n` bits are looked up at once, in tables over `group` bits and `lines` lines.
fn bits_per_pass(n: usize, group: usize, lines: usize) -> usize {
    let most = (TABLE_BYTES / (64 * lines << group)).min(64 / group);
    let groups = n.div_ceil(group);
    group * groups.div_ceil(groups.div_ceil(most))
}

/// Returns by how much the first pattern of a word is turned to become the offset of a table row.
fn turn(lines: usize) -> u32 {
    (64 * lines).trailing_zeros()
}

/// One panel over some samples.
pub(super) struct Task<'a> {
    pub(super) samples: &'a Samples,
    pub(super) passes: &'a Passes,
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
    /// Whether the product of two exponentials stays within range too.
    pub(super) square: bool,
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
    let tile_lines = LINES * TILE.min(task.range.len()).next_multiple_of(GROUP);
    let table_lines = TABLE_BYTES / size_of::<V::Line>();
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
        match task.passes.group {
            Group::Four => margins::<V, 16, 4, 2>(task, tables, start, &mut tile[..n]),
            Group::Six => margins::<V, 64, 6, 1>(task, tables, start, &mut tile[..n]),
        }
        partial.value += slopes::<V, L>(task, loss, start, &mut tile[..n], &mut count_sums);
        // The tile ends in zeros, up to a whole group.
        let padded = n.next_multiple_of(GROUP);
        tile[n..padded].fill([V::ZEROS; LINES]);
        let words = task.samples.columns_from(start / 64);
        match Group::for_uses(n_columns) {
            Group::Four => gradient::<V, 16, 4, 2>(tile, n, words, tables, sums, &mut total),
            Group::Six => gradient::<V, 64, 6, 1>(tile, n, words, tables, sums, &mut total),
        }
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

/// Tabulates the sums (or products) of `first` and all ROWS = 2ⁿ patterns of N numbers.
#[inline(always)]
fn tabulate<V: Lanes, const ROWS: usize, const N: usize, const W: usize>(
    table: &mut [[V::Line; W]; ROWS],
    first: [V; W],
    numbers: &[[V; W]; N],
    multiply: bool,
) {
    store(first, &mut table[0]);
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
    let samples = start..start + tile.len();
    let tables = tables.as_chunks_mut::<W>().0.as_chunks_mut::<ROWS>().0;
    let multiply = task.product.is_some();
    let neutral = [V::splat(if multiply { 1.0 } else { 0.0 }); W];
    for (pass, rows) in task.rows.chunks(task.passes.width).enumerate() {
        let words = task.passes.of(pass, samples.clone());
        for line in (0..LINES).step_by(W) {
            let groups = rows.chunks(N);
            let tables = &mut tables[..groups.len()];
            // The first table has the offsets, from which the sums begin.
            let mut first = neutral;
            if pass == 0 {
                first = terms(task, task.offsets, line);
            }
            for (table, group) in tables.iter_mut().zip(groups) {
                // Columns that do not exist change nothing.
                let mut numbers = [neutral; N];
                for (number, row) in numbers.iter_mut().zip(group) {
                    *number = terms(task, row, line);
                }
                tabulate(table, first, &numbers, multiply);
                first = neutral;
            }
            let is_new = pass == 0;
            if multiply {
                look_up::<V, ROWS, W, true>(tables, words, line, is_new, tile);
            } else {
                look_up::<V, ROWS, W, false>(tables, words, line, is_new, tile);
            }
        }
    }
}

/// Adds to (or multiplies into) W lines of every sum the table rows that its word chooses; new sums
/// begin with those of the first table.
///
/// Four sums at a time: none waits for its own last addition.
#[inline(always)]
fn look_up<V: Lanes, const ROWS: usize, const W: usize, const MULTIPLY: bool>(
    tables: &[[[V::Line; W]; ROWS]],
    words: &[u64],
    line: usize,
    is_new: bool,
    sums: &mut [Row<V>],
) {
    let ((fours, rest), (words, last)) = (sums.as_chunks_mut::<4>(), words.as_chunks::<4>());
    for (sums, words) in fours.iter_mut().zip(words) {
        look_up_some::<V, ROWS, W, MULTIPLY, 4>(tables, *words, line, is_new, sums);
    }
    for (sum, word) in rest.iter_mut().zip(last) {
        let sums = std::array::from_mut(sum);
        look_up_some::<V, ROWS, W, MULTIPLY, 1>(tables, [*word], line, is_new, sums);
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
    mut words: [u64; N],
    line: usize,
    is_new: bool,
    sums: &mut [Row<V>; N],
) {
    let mut all = [[V::splat(if MULTIPLY { 1.0 } else { 0.0 }); W]; N];
    if !is_new {
        for (all, sum) in all.iter_mut().zip(sums.iter()) {
            *all = load(&sum[line..].as_chunks().0[0]);
        }
    }
    // Fewer branches than table by table.
    let (fours, rest) = tables.as_chunks::<4>();
    for four in fours {
        for table in four {
            one_table::<V, ROWS, W, MULTIPLY, N>(table, &mut words, &mut all);
        }
    }
    for table in rest {
        one_table::<V, ROWS, W, MULTIPLY, N>(table, &mut words, &mut all);
    }
    for (all, sum) in all.into_iter().zip(sums) {
        store(all, &mut sum[line..].as_chunks_mut().0[0]);
    }
}

#[inline(always)]
fn one_table<V: Lanes, const ROWS: usize, const W: usize, const MULTIPLY: bool, const N: usize>(
    table: &[[V::Line; W]; ROWS],
    words: &mut [u64; N],
    all: &mut [[V; W]; N],
) {
    let place = turn(W);
    for (sum, word) in all.iter_mut().zip(words) {
        let row = load(&table[(*word >> place) as usize & (ROWS - 1)]);
        *sum = combine(*sum, row, MULTIPLY);
        *word = word.rotate_right(ROWS.trailing_zeros());
    }
}

/// Returns 1/z; one division serves both lines if their product stays within range.
#[inline(always)]
fn reciprocals<V: Lanes>(z: [V; LINES], square: bool) -> [V; LINES] {
    let one = V::splat(1.0);
    if square {
        let inverse = one / (z[0] * z[1]);
        [inverse * z[1], inverse * z[0]]
    } else {
        [one / z[0], one / z[1]]
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
        let both: [V; LINES] = load(z);
        let inverse = match task.product {
            Some(_) => reciprocals(both, task.square),
            None => both,
        };
        for (line, z) in z.iter_mut().enumerate() {
            let (on, kept) = (on >> (V::LANES * line), kept >> (V::LANES * line));
            let slope = if task.product.is_some() {
                let mut rate = V::select(on, both[line], inverse[line]);
                if let Some((counts, n)) = counted {
                    rate = rate * counts.shift::<V, true>(n, on);
                }
                value.add_of_rate(loss, rate, weight, kept)
            } else {
                // a = −s z.
                let mut margin = both[line].flip(on);
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

/// Adds Σ_m D x_j to every column's sum, and Σ_m D to the total, over the first `n` of a padded tile.
#[inline(always)]
fn gradient<V: Lanes, const ROWS: usize, const N: usize, const W: usize>(
    tile: &[Row<V>],
    n: usize,
    words: &[u64],
    tables: &mut [V::Line],
    sums: &mut [Row<V>],
    total: &mut [V; LINES],
) {
    let tables = tables.as_chunks_mut::<W>().0.as_chunks_mut::<ROWS>().0;
    let per_pass = bits_per_pass(n, N, W);
    for first in (0..n).step_by(per_pass) {
        let n_bits = per_pass.min(n - first);
        let groups = tile[first..].as_chunks::<N>().0;
        let groups = &groups[..n_bits.div_ceil(N)];
        for line in (0..LINES).step_by(W) {
            let mut all = [V::splat(0.0); W];
            for (table, group) in tables.iter_mut().zip(groups) {
                let mut numbers = [[V::splat(0.0); W]; N];
                for (number, slope) in numbers.iter_mut().zip(group) {
                    *number = load(&slope[line..].as_chunks().0[0]);
                }
                tabulate(table, [V::splat(0.0); W], &numbers, false);
                all = combine(all, load(&table[ROWS - 1]), false);
            }
            let total = &mut total[line..].as_chunks_mut::<W>().0[0];
            *total = combine(*total, all, false);
            let tables = &tables[..groups.len()];
            let columns = sums.len();
            let mut block = [0; BLOCK];
            for (k, sums) in sums.chunks_mut(BLOCK).enumerate() {
                let block = &mut block[..sums.len()];
                let words = &words[first / 64 * columns + BLOCK * k..];
                copy_bits(words, columns, first % 64, n_bits, turn(W), block);
                look_up::<V, ROWS, W, false>(tables, block, line, false, sums);
            }
        }
    }
}

/// Columns whose bits are copied at once.
const BLOCK: usize = 256;

/// Copies `n` bits of every column from `shift` of its first word on, turned left by `place`; what is
/// above them may be anything. A column's next word is `columns` further on.
#[inline(always)]
fn copy_bits(words: &[u64], columns: usize, shift: usize, n: usize, place: u32, block: &mut [u64]) {
    if shift + n > 64 {
        for ((to, low), high) in block.iter_mut().zip(words).zip(&words[columns..]) {
            *to = (low >> shift | high << (64 - shift)).rotate_left(place);
        }
    } else {
        for (to, low) in block.iter_mut().zip(words) {
            *to = (low >> shift).rotate_left(place);
        }
    }
}
