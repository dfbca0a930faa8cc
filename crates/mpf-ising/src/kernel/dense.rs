//! Data with many bits set: one table row instead of five rows of R.
//!
//! The method of the four Russians. The columns of R are cut into groups of five. For each group the
//! partial sums of R over every pattern of its bits are tabulated, for the units of two cache lines (a
//! panel) at once; a sample's z then takes one table row per group. The gradient does the same with
//! samples and columns exchanged: tables of the sums of D over five samples, looked up by the
//! transposed bits.
//!
//! A pass takes as many groups as stay in the first cache, and the sums stream from the second. Wider
//! groups need fewer look-ups, but then fewer tables fit, or wait for the second cache: tables over six
//! bits for one line, or over eight, were slower. Rows of two lines share the address that each
//! look-up has to work out.
//!
//! Where φ follows from exp(−a) and no sum of |R| comes near overflow, the tables hold exp(R) and are
//! multiplied, which saves the exponentials afterwards.

use super::counts::{self, CountSums};
use super::lanes::{Lanes, Scratch};
use super::loss::{FlowRate, LaneLoss, Logistic, Total};
use super::panel::{Panel, Partial};
use super::{MarginLoss, PANEL};
use crate::bits::Samples;
use std::ops::Range;

/// Samples whose sums are kept between the passes over tables.
pub(crate) const TILE: usize = 4096;

/// Cache lines in a panel.
pub(super) const LINES: usize = 2;

/// Bits of a group, and rows of its table.
const GROUP: usize = 5;
const ROWS: usize = 1 << GROUP;

/// Tables that are used at once: 40 KB, for a first cache of 32 or 48.
const TABLES: usize = 10;

/// By how much a word is turned left to make its first pattern the offset of a table row in bytes.
const TURN: u32 = (64 * LINES).trailing_zeros();

/// A number for every unit of a panel.
type Row<V> = [<V as Lanes>::Line; LINES];

type Table<V> = [Row<V>; ROWS];

/// The bits of all samples, cut into the passes over columns.
#[derive(Debug)]
pub(super) struct Passes {
    n: usize,
    /// Columns of a pass.
    width: usize,
    /// By pass, then by sample, each turned left by [`TURN`].
    words: Vec<u64>,
}

impl Passes {
    /// Copies the bits of `samples`. O(M d / 64).
    pub(super) fn new(samples: &Samples) -> Self {
        let (n, d) = (samples.n_distinct(), samples.n_units());
        let width = bits_per_pass(d);
        let mut words = Vec::with_capacity(n * d.div_ceil(width));
        for first in (0..d).step_by(width) {
            let (word, shift) = (first / 64, first % 64);
            let rows = samples.states().rows().map(|row| {
                // Columns that do not exist may be anything.
                let next = row.get(word + 1).unwrap_or(&0);
                (row[word] >> shift | next << 1 << (63 - shift)).rotate_left(TURN)
            });
            words.extend(rows);
        }
        Self { n, width, words }
    }

    /// Returns the words of some samples.
    fn of(&self, pass: usize, samples: Range<usize>) -> &[u64] {
        &self.words[pass * self.n..][samples]
    }
}

/// Returns the bytes of [`Passes`].
pub(super) fn pass_bytes(samples: &Samples) -> usize {
    let d = samples.n_units();
    8 * samples.n_distinct() * d.div_ceil(bits_per_pass(d))
}

/// Returns the bytes of the tables, the tile and the sums of a task over `n` samples of `d` units.
pub(super) fn scratch_bytes(n: usize, d: usize) -> usize {
    64 * LINES * (TABLES * ROWS + TILE.min(n).next_multiple_of(GROUP) + d)
}

/// Returns how many of `n` bits are looked up at once.
fn bits_per_pass(n: usize) -> usize {
    let groups = n.div_ceil(GROUP);
    GROUP * groups.div_ceil(groups.div_ceil(TABLES))
}

/// One panel over some samples.
pub(super) struct Task<'a> {
    /// Its first unit is a multiple of the lanes of a row.
    pub(super) panel: Panel<'a>,
    pub(super) passes: &'a Passes,
    /// Whether the product of two exponentials stays within range too.
    pub(super) square: bool,
}

/// Computes value and gradient of one task; `grads` are zeros for [`Partial::rows`].
#[inline(always)]
pub(super) fn sum<V: Lanes>(
    task: &Task<'_>,
    loss: MarginLoss,
    scratch: &mut Scratch,
    grads: Vec<f64>,
) -> Partial {
    let panel = &task.panel;
    let n_columns = panel.rows.len();
    let tile_rows = TILE.min(panel.range.len()).next_multiple_of(GROUP);
    let lines = V::lines(scratch);
    lines.resize(LINES * (TABLES * ROWS + tile_rows + n_columns), V::ZEROS);
    let (tables, rows) = lines.as_chunks_mut().0.split_at_mut(TABLES * ROWS);
    let (tile, sums) = rows.split_at_mut(tile_rows);
    let tables = tables.as_chunks_mut().0;
    sums.fill([V::ZEROS; LINES]);
    let mut total = [V::splat(0.0); LINES];
    let (mut partial, mut count_sums) = panel.begin::<V>(grads);
    let is_narrow = is_narrow::<V>(panel);
    let mut start = panel.range.start;
    while start < panel.range.end {
        let n = TILE.min(panel.range.end - start);
        if is_narrow {
            margins::<V, 1>(task, tables, start, &mut tile[..n]);
        } else {
            margins::<V, LINES>(task, tables, start, &mut tile[..n]);
        }
        let rows = &mut tile[..n];
        // The only part that knows φ: the others are compiled once for all losses.
        partial.value += match loss {
            MarginLoss::FlowRate { shift } => {
                slopes::<V, _>(task, FlowRate { shift }, start, rows, &mut count_sums)
            }
            MarginLoss::Logistic => slopes::<V, _>(task, Logistic, start, rows, &mut count_sums),
        };
        // The tile ends in zeros, up to a whole group.
        let padded = n.next_multiple_of(GROUP);
        tile[n..padded].fill([V::ZEROS; LINES]);
        let words = panel.samples.columns_from(start / 64);
        if is_narrow {
            gradient::<V, 1>(tile, n, words, tables, sums, &mut total);
        } else {
            gradient::<V, LINES>(tile, n, words, tables, sums, &mut total);
        }
        let lines = partial.rows.chunks_exact_mut(V::LANES);
        for (sum, line) in sums.as_flattened_mut().iter_mut().zip(lines) {
            V::load(sum).add_to(line);
            *sum = V::ZEROS;
        }
        // By tile, as above: how samples are cut into tasks shows in no digit of an `f32`.
        let offsets = partial.offsets.chunks_mut(V::LANES);
        for (total, offsets) in total.iter_mut().zip(offsets) {
            total.add_to(offsets);
            *total = V::splat(0.0);
        }
        start += TILE;
    }
    partial.counts = counts::finish::<V>(&count_sums);
    partial
}

/// Returns whether one line holds all units: the last panel may be half empty. Fits in `f32` have so
/// many panels that theirs is not worth code of its own.
#[inline(always)]
fn is_narrow<V: Lanes>(panel: &Panel<'_>) -> bool {
    V::LANES == 8 && panel.n_units <= 8
}

#[inline(always)]
fn load<V: Lanes, const W: usize>(row: &Row<V>) -> [V; W] {
    let mut values = [V::splat(0.0); W];
    for (value, line) in values.iter_mut().zip(row) {
        *value = V::load(line);
    }
    values
}

#[inline(always)]
fn store<V: Lanes, const W: usize>(values: [V; W], row: &mut Row<V>) {
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

/// Returns R or c of the panel, or its exponential.
#[inline(always)]
fn terms<V: Lanes, const W: usize>(panel: &Panel<'_>, row: &[f64; PANEL]) -> [V; W] {
    let mut values = [V::splat(0.0); W];
    for (k, value) in values.iter_mut().enumerate() {
        *value = V::round(&row[panel.first % PANEL + V::LANES * k..]);
        if panel.product.is_some() {
            *value = value.exp();
        }
    }
    values
}

/// Tabulates the sums (or products) of `first` and all patterns of the numbers.
#[inline(always)]
fn tabulate<V: Lanes, const W: usize>(
    table: &mut Table<V>,
    first: [V; W],
    numbers: &[[V; W]; GROUP],
    multiply: bool,
) {
    store::<V, W>(first, &mut table[0]);
    for (bit, number) in numbers.iter().enumerate() {
        let (known, next) = table[..2 << bit].split_at_mut(1 << bit);
        for (known, next) in known.iter().zip(next) {
            store::<V, W>(combine(load::<V, W>(known), *number, multiply), next);
        }
    }
}

/// Computes z (or exp z) of every sample of a tile.
#[inline(always)]
fn margins<V: Lanes, const W: usize>(
    task: &Task<'_>,
    tables: &mut [Table<V>],
    start: usize,
    tile: &mut [Row<V>],
) {
    let (panel, samples) = (&task.panel, start..start + tile.len());
    let multiply = panel.product.is_some();
    let neutral = [V::splat(if multiply { 1.0 } else { 0.0 }); W];
    // The first table has the offsets, from which the sums begin.
    let mut first = terms(panel, panel.offsets);
    for (pass, rows) in panel.rows.chunks(task.passes.width).enumerate() {
        let groups = rows.chunks(GROUP);
        let tables = &mut tables[..groups.len()];
        for (table, group) in tables.iter_mut().zip(groups) {
            // Columns that do not exist change nothing.
            let mut numbers = [neutral; GROUP];
            for (number, row) in numbers.iter_mut().zip(group) {
                *number = terms(panel, row);
            }
            tabulate::<V, W>(table, first, &numbers, multiply);
            first = neutral;
        }
        let words = task.passes.of(pass, samples.clone());
        if multiply {
            look_up::<V, W, true>(tables, words, pass == 0, tile);
        } else {
            look_up::<V, W, false>(tables, words, pass == 0, tile);
        }
    }
}

/// Adds to (or multiplies into) every sum the table rows that its word chooses; new sums begin with
/// those of the first table.
///
/// Four sums at a time: none waits for its own last addition.
#[inline(always)]
fn look_up<V: Lanes, const W: usize, const MULTIPLY: bool>(
    tables: &[Table<V>],
    words: &[u64],
    are_new: bool,
    sums: &mut [Row<V>],
) {
    let ((fours, rest), (words, last)) = (sums.as_chunks_mut::<4>(), words.as_chunks::<4>());
    for (sums, words) in fours.iter_mut().zip(words) {
        look_up_some::<V, W, MULTIPLY, 4>(tables, *words, are_new, sums);
    }
    for (sum, word) in rest.iter_mut().zip(last) {
        look_up_some::<V, W, MULTIPLY, 1>(tables, [*word], are_new, std::array::from_mut(sum));
    }
}

#[inline(always)]
fn look_up_some<V: Lanes, const W: usize, const MULTIPLY: bool, const N: usize>(
    tables: &[Table<V>],
    mut words: [u64; N],
    are_new: bool,
    sums: &mut [Row<V>; N],
) {
    let mut all = [[V::splat(if MULTIPLY { 1.0 } else { 0.0 }); W]; N];
    if !are_new {
        for (all, sum) in all.iter_mut().zip(sums.iter()) {
            *all = load(sum);
        }
    }
    // Fewer branches than table by table.
    let (pairs, rest) = tables.as_chunks::<2>();
    for [one, other] in pairs {
        look_up_one::<V, W, MULTIPLY, N>(one, &mut words, &mut all);
        look_up_one::<V, W, MULTIPLY, N>(other, &mut words, &mut all);
    }
    for table in rest {
        look_up_one::<V, W, MULTIPLY, N>(table, &mut words, &mut all);
    }
    for (all, sum) in all.into_iter().zip(sums) {
        store::<V, W>(all, sum);
    }
}

#[inline(always)]
fn look_up_one<V: Lanes, const W: usize, const MULTIPLY: bool, const N: usize>(
    table: &Table<V>,
    words: &mut [u64; N],
    all: &mut [[V; W]; N],
) {
    for (sum, word) in all.iter_mut().zip(words) {
        let next = V::turn_right::<{ GROUP as u32 }>(*word);
        let row = load(&table[(*word >> TURN) as usize % ROWS]);
        *sum = combine(*sum, row, MULTIPLY);
        *word = next;
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
    let panel = &task.panel;
    // The second line of a narrow panel was never written.
    let is_narrow = is_narrow::<V>(panel);
    let n_lines = if is_narrow { 1 } else { LINES };
    let mut value = Total::<V>::new(panel.product);
    let mut sum = 0.0;
    for (m, z) in tile.iter_mut().enumerate() {
        if m % 64 == 0 {
            // Sums in `f32` are short.
            sum += std::mem::replace(&mut value, Total::new(panel.product)).finish();
        }
        let sample = panel.sample::<V>(start + m);
        let both: [V; LINES] = load(z);
        let inverse = match panel.product {
            Some(_) if is_narrow => [V::splat(1.0) / both[0]; LINES],
            Some(_) => reciprocals(both, task.square),
            None => both,
        };
        for (line, z) in z.iter_mut().take(n_lines).enumerate() {
            let sample = sample.line(line);
            let slope = if panel.product.is_some() {
                let rate = V::select(sample.on, both[line], inverse[line]);
                sample.slope_of_rate(loss, rate, &mut value, count_sums)
            } else {
                sample.slope_of_sum(loss, both[line], &mut value, count_sums)
            };
            slope.store(z);
        }
    }
    sum + value.finish()
}

/// Adds Σ_m D x_j to every column's sum, and Σ_m D to the total, over the first `n` of a padded tile.
#[inline(always)]
fn gradient<V: Lanes, const W: usize>(
    tile: &[Row<V>],
    n: usize,
    words: &[u64],
    tables: &mut [Table<V>],
    sums: &mut [Row<V>],
    total: &mut [V; LINES],
) {
    let (width, columns) = (bits_per_pass(n), sums.len());
    let zero = [V::splat(0.0); W];
    let (mut all, mut block) = (zero, [0; BLOCK]);
    for first in (0..n).step_by(width) {
        let n_bits = width.min(n - first);
        let groups = tile[first..].as_chunks::<GROUP>().0;
        let tables = &mut tables[..n_bits.div_ceil(GROUP)];
        for (table, group) in tables.iter_mut().zip(groups) {
            let mut numbers = [zero; GROUP];
            for (number, slope) in numbers.iter_mut().zip(group) {
                *number = load(slope);
            }
            tabulate::<V, W>(table, zero, &numbers, false);
            all = combine(all, load(&table[ROWS - 1]), false);
        }
        let words = &words[first / 64 * columns..];
        for (k, sums) in sums.chunks_mut(BLOCK).enumerate() {
            let block = &mut block[..sums.len()];
            copy_bits(&words[BLOCK * k..], columns, first % 64, n_bits, block);
            look_up::<V, W, false>(tables, block, false, sums);
        }
    }
    for (total, all) in total.iter_mut().zip(all) {
        *total = *total + all;
    }
}

/// Columns whose bits are copied at once.
const BLOCK: usize = 256;

/// Copies `n` bits of every column from `shift` of its first word on, turned left by [`TURN`]; what is
/// above them may be anything. A column's next word is `columns` further on.
#[inline(always)]
fn copy_bits(words: &[u64], columns: usize, shift: usize, n: usize, block: &mut [u64]) {
    if shift + n > 64 {
        for ((to, low), high) in block.iter_mut().zip(words).zip(&words[columns..]) {
            *to = (low >> shift | high << (64 - shift)).rotate_left(TURN);
        }
    } else {
        for (to, low) in block.iter_mut().zip(words) {
            *to = (low >> shift).rotate_left(TURN);
        }
    }
}
