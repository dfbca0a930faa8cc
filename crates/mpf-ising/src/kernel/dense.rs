//! Data with many bits set: one table row instead of five rows of R.
//!
//! The method of the four Russians. The columns of R are cut into groups of five. For each group the
//! partial sums of R over every pattern of its bits are tabulated, for the units of a cache line at
//! once, or of two; a sample's z then takes one table row per group. The gradient does the same with
//! samples and columns exchanged: tables of the sums of D over five samples, looked up by the
//! transposed bits.
//!
//! A pass takes as many groups as stay in the first cache, and the sums stream from the second. Wider
//! groups need fewer look-ups, but then fewer tables fit, or wait for the second cache: tables over six
//! bits for one line, or over eight, were slower.
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

/// Samples over which gradients are summed before they join those of others.
pub(crate) const TILE: usize = 4096;

/// Samples whose sums are kept between the passes over tables: both lines of all of them stay in a second
/// cache of 512 KB. Whole groups, and whole blocks of 64.
const PART: usize = 1920;

/// Cache lines in a panel.
pub(super) const LINES: usize = 2;

/// Bits of a group, and rows of its table.
const GROUP: usize = 5;
const ROWS: usize = 1 << GROUP;

/// Tables that are used at once: 20 KB, or 40 in pairs, for a first cache of 32 or 48.
const TABLES: usize = 10;

/// Rows of `R` lines.
type Table<V, const R: usize> = [[<V as Lanes>::Line; R]; ROWS];

/// The bits of all samples, cut into the passes over columns.
#[derive(Debug)]
pub(super) struct Passes {
    n: usize,
    /// Columns of a pass.
    width: usize,
    /// By pass, then by sample.
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
                row[word] >> shift | next << 1 << (63 - shift)
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

/// Returns the bytes of the tables, the terms, the sums and the part of a tile of a task over `n` samples
/// of `d` units.
pub(super) fn scratch_bytes(n: usize, d: usize) -> usize {
    64 * LINES * (TABLES * ROWS + 2 * d + PART.min(n).next_multiple_of(GROUP))
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
    let part_rows = PART.min(panel.range.len()).next_multiple_of(GROUP);
    let lines = V::lines(scratch);
    lines.resize(
        LINES * (TABLES * ROWS + 2 * n_columns + part_rows),
        V::ZEROS,
    );
    let (tables, rows) = lines.split_at_mut(LINES * TABLES * ROWS);
    let (terms, rows) = rows.split_at_mut(LINES * n_columns);
    let (sums, part) = rows.split_at_mut(LINES * n_columns);
    sums.fill(V::ZEROS);
    let mut total = [V::splat(0.0); LINES];
    let (mut partial, mut count_sums) = panel.begin::<V>(grads);
    // The last panel may be half empty. Fits in `f32` have so many panels that theirs is not worth code
    // of its own for pairs.
    let in_pairs = V::REGISTERS == 1 && (V::LANES == 16 || panel.n_units > V::LANES);
    let n_lines = if in_pairs {
        LINES
    } else {
        panel.n_units.div_ceil(V::LANES)
    };
    let [of_column, of_sample] = [n_columns, part_rows].map(|rows| Place { rows, in_pairs });
    for (column, row) in panel.rows.iter().enumerate() {
        for line in 0..n_lines {
            term::<V>(panel, line, row).store(&mut terms[of_column.of(column, line)]);
        }
    }
    for start in panel.range.clone().step_by(TILE) {
        let end = panel.range.end.min(start + TILE);
        let mut value = 0.0;
        for start in (start..end).step_by(PART) {
            let range = start..end.min(start + PART);
            let n = range.len();
            if in_pairs {
                margins::<V, LINES>(task, terms, tables, range.clone(), 0, part);
            } else {
                let lines = part.chunks_mut(part_rows).zip(terms.chunks(n_columns));
                for (line, (part, terms)) in lines.take(n_lines).enumerate() {
                    margins::<V, 1>(task, terms, tables, range.clone(), line, part);
                }
            }
            // The only step that knows φ: the others are compiled once for all losses.
            let lines = (&mut *part, of_sample, n_lines);
            value = match loss {
                MarginLoss::FlowRate { shift } => {
                    let loss = FlowRate { shift };
                    slopes::<V, _>(task, loss, range, lines, value, &mut count_sums)
                }
                MarginLoss::Logistic => {
                    slopes::<V, _>(task, Logistic, range, lines, value, &mut count_sums)
                }
            };
            // The part ends in zeros, up to a whole group.
            for m in n..n.next_multiple_of(GROUP) {
                (0..LINES).for_each(|line| part[of_sample.of(m, line)] = V::ZEROS);
            }
            if in_pairs {
                gradient::<V, LINES>(part, panel, start, n, tables, sums, &mut total);
            } else {
                let lines = part.chunks(part_rows).zip(sums.chunks_mut(n_columns));
                for ((part, sums), total) in lines.zip(&mut total).take(n_lines) {
                    let total = std::array::from_mut(total);
                    gradient::<V, 1>(part, panel, start, n, tables, sums, total);
                }
            }
        }
        partial.value += value;
        for (column, row) in partial.rows.chunks_exact_mut(LINES * V::LANES).enumerate() {
            for (line, numbers) in row.chunks_exact_mut(V::LANES).enumerate() {
                let sum = &mut sums[of_column.of(column, line)];
                V::load(sum).add_to(numbers);
                *sum = V::ZEROS;
            }
        }
        // By tile, as above: how samples are cut into tasks shows in no digit of an `f32`.
        let offsets = partial.offsets.chunks_mut(V::LANES);
        for (total, offsets) in total.iter_mut().zip(offsets) {
            total.add_to(offsets);
            *total = V::splat(0.0);
        }
    }
    partial.counts = counts::finish::<V>(&count_sums);
    partial
}

/// Where the lines of a panel are kept, for each of so many samples or columns.
#[derive(Clone, Copy)]
struct Place {
    rows: usize,
    /// Both lines of a row side by side, or all first lines before all second ones.
    ///
    /// Where a line is one register, two of them share the address that each look-up has to work out.
    /// Where it is two, they do so anyway, and tables of half the size leave room in the first cache.
    in_pairs: bool,
}

impl Place {
    #[inline(always)]
    fn of(self, row: usize, line: usize) -> usize {
        if self.in_pairs {
            LINES * row + line
        } else {
            self.rows * line + row
        }
    }
}

#[inline(always)]
fn load<V: Lanes, const R: usize>(row: &[V::Line; R]) -> [V; R] {
    let mut values = [V::splat(0.0); R];
    for (value, line) in values.iter_mut().zip(row) {
        *value = V::load(line);
    }
    values
}

#[inline(always)]
fn store<V: Lanes, const R: usize>(values: [V; R], row: &mut [V::Line; R]) {
    for (value, line) in values.into_iter().zip(row) {
        value.store(line);
    }
}

#[inline(always)]
fn combine<V: Lanes, const R: usize>(mut a: [V; R], b: [V; R], multiply: bool) -> [V; R] {
    for (a, b) in a.iter_mut().zip(b) {
        *a = if multiply { *a * b } else { *a + b };
    }
    a
}

/// Returns R or c of a line, or its exponential.
#[inline(always)]
fn term<V: Lanes>(panel: &Panel<'_>, line: usize, row: &[f64; PANEL]) -> V {
    let term = V::round(&row[panel.first % PANEL + V::LANES * line..]);
    if panel.product.is_some() {
        term.exp()
    } else {
        term
    }
}

/// Tabulates the sums (or products) of `first` and all patterns of the numbers.
///
/// A row is `first`, then the numbers of its pattern in their order. Eight rows at a time are made in
/// registers, without a look at those stored before.
#[inline(always)]
fn tabulate<V: Lanes, const R: usize, const MULTIPLY: bool>(
    table: &mut Table<V, R>,
    first: [V; R],
    numbers: &[[V; R]; GROUP],
) {
    let join = |a, b| combine::<V, R>(a, b, MULTIPLY);
    let [n0, n1, n2, n3, n4] = *numbers;
    let second = join(first, n0);
    let low = [first, second, join(first, n1), join(second, n1)];
    for (k, row) in low.into_iter().enumerate() {
        let next = join(row, n2);
        let rows = [row, next, join(row, n3), join(next, n3)];
        for (high, row) in rows.into_iter().enumerate() {
            store::<V, R>(row, &mut table[k + 4 * high]);
            store::<V, R>(join(row, n4), &mut table[k + 4 * (high + 4)]);
        }
    }
}

/// Computes z (or exp z) of some samples and of the lines from `line` on.
#[inline(always)]
fn margins<V: Lanes, const R: usize>(
    task: &Task<'_>,
    terms: &[V::Line],
    tables: &mut [V::Line],
    samples: Range<usize>,
    line: usize,
    sums: &mut [V::Line],
) {
    let panel = &task.panel;
    let terms: &[[V::Line; R]] = terms.as_chunks().0;
    let tables: &mut [Table<V, R>] = tables.as_chunks_mut().0.as_chunks_mut().0;
    let sums = &mut sums.as_chunks_mut().0[..samples.len()];
    let multiply = panel.product.is_some();
    let neutral = [V::splat(if multiply { 1.0 } else { 0.0 }); R];
    // The first table has the offsets, from which the sums begin.
    let mut first = neutral;
    for (k, first) in first.iter_mut().enumerate() {
        *first = term(panel, line + k, panel.offsets);
    }
    for (pass, terms) in terms.chunks(task.passes.width).enumerate() {
        let groups = terms.chunks(GROUP);
        let tables = &mut tables[..groups.len()];
        for (table, group) in tables.iter_mut().zip(groups) {
            // Columns that do not exist change nothing.
            let mut numbers = [neutral; GROUP];
            for (number, term) in numbers.iter_mut().zip(group) {
                *number = load(term);
            }
            if multiply {
                tabulate::<V, R, true>(table, first, &numbers);
            } else {
                tabulate::<V, R, false>(table, first, &numbers);
            }
            first = neutral;
        }
        let words = task.passes.of(pass, samples.clone());
        if multiply {
            look_up::<V, R, true>(tables, words, pass == 0, sums);
        } else {
            look_up::<V, R, false>(tables, words, pass == 0, sums);
        }
    }
}

/// Adds to (or multiplies into) every sum the table rows that its word chooses; new sums begin with
/// those of the first table.
///
/// Four sums at a time: none waits for its own last addition.
#[inline(always)]
fn look_up<V: Lanes, const R: usize, const MULTIPLY: bool>(
    tables: &[Table<V, R>],
    words: &[u64],
    are_new: bool,
    sums: &mut [[V::Line; R]],
) {
    let ((fours, rest), (words, last)) = (sums.as_chunks_mut::<4>(), words.as_chunks::<4>());
    for (sums, words) in fours.iter_mut().zip(words) {
        look_up_some::<V, R, MULTIPLY, 4>(tables, *words, are_new, sums);
    }
    for (sum, word) in rest.iter_mut().zip(last) {
        look_up_some::<V, R, MULTIPLY, 1>(tables, [*word], are_new, std::array::from_mut(sum));
    }
}

#[inline(always)]
fn look_up_some<V: Lanes, const R: usize, const MULTIPLY: bool, const N: usize>(
    tables: &[Table<V, R>],
    words: [u64; N],
    are_new: bool,
    sums: &mut [[V::Line; R]; N],
) {
    let mut words = words.map(to_offset::<V, R>);
    let mut all = [[V::splat(if MULTIPLY { 1.0 } else { 0.0 }); R]; N];
    if !are_new {
        for (all, sum) in all.iter_mut().zip(sums.iter()) {
            *all = load(sum);
        }
    }
    // Fewer branches than table by table.
    let (pairs, rest) = tables.as_chunks::<2>();
    for [one, other] in pairs {
        look_up_one::<V, R, MULTIPLY, N>(one, &mut words, &mut all);
        look_up_one::<V, R, MULTIPLY, N>(other, &mut words, &mut all);
    }
    for table in rest {
        look_up_one::<V, R, MULTIPLY, N>(table, &mut words, &mut all);
    }
    for (all, sum) in all.into_iter().zip(sums) {
        store::<V, R>(all, sum);
    }
}

/// By how much a pattern is shifted to make it the offset in bytes of a row of so many lines.
const fn turn(lines: usize) -> u32 {
    (64 * lines).trailing_zeros()
}

/// Makes the first pattern of a word the offset of a table row in bytes.
///
/// The compiler would put plain turns of four words into one vector, and every table would then fetch its
/// patterns from there.
#[inline(always)]
fn to_offset<V: Lanes, const R: usize>(word: u64) -> u64 {
    const { assert!(R == 1 || R == LINES) };
    if R == 1 {
        V::turn_right::<{ 64 - turn(1) }>(word)
    } else {
        V::turn_right::<{ 64 - turn(LINES) }>(word)
    }
}

#[inline(always)]
fn look_up_one<V: Lanes, const R: usize, const MULTIPLY: bool, const N: usize>(
    table: &Table<V, R>,
    words: &mut [u64; N],
    all: &mut [[V; R]; N],
) {
    for (sum, word) in all.iter_mut().zip(words) {
        let next = V::turn_right::<{ GROUP as u32 }>(*word);
        let row = load(&table[(*word >> turn(R)) as usize % ROWS]);
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

/// Replaces z by D = −w s φ′(−s z) and returns the sum, to which it adds Σ w φ.
#[inline(always)]
fn slopes<V: Lanes, L: LaneLoss>(
    task: &Task<'_>,
    loss: L,
    samples: Range<usize>,
    lines: (&mut [V::Line], Place, usize),
    sum: f64,
    count_sums: &mut CountSums<V>,
) -> f64 {
    let panel = &task.panel;
    if panel.product.is_some() && panel.is_plain() {
        slopes_of::<V, L, true>(task, loss, samples, lines, sum, count_sums)
    } else {
        slopes_of::<V, L, false>(task, loss, samples, lines, sum, count_sums)
    }
}

/// [`slopes`], `PLAIN` for exponentials of samples that count alike with all their units.
#[inline(always)]
fn slopes_of<V: Lanes, L: LaneLoss, const PLAIN: bool>(
    task: &Task<'_>,
    loss: L,
    samples: Range<usize>,
    (part, place, n_lines): (&mut [V::Line], Place, usize),
    mut sum: f64,
    count_sums: &mut CountSums<V>,
) -> f64 {
    let panel = &task.panel;
    let is_narrow = n_lines == 1;
    let mut value = Total::<V>::new(panel.product);
    let rows = panel.samples.states().rows().skip(samples.start);
    for (row, (m, bits)) in samples.zip(rows).enumerate() {
        if row % 64 == 0 {
            // Sums in `f32` are short.
            sum += std::mem::replace(&mut value, Total::new(panel.product)).finish();
        }
        let sample = if PLAIN {
            panel.plain_sample::<V>(bits)
        } else {
            panel.sample::<V>(m)
        };
        // The second line of a narrow panel was never written.
        let both = [0, 1].map(|line| V::load(&part[place.of(row, line)]));
        let inverse = match panel.product {
            None if !PLAIN => both,
            _ if is_narrow => [V::splat(1.0) / both[0]; LINES],
            _ => reciprocals(both, task.square),
        };
        for line in 0..LINES {
            if line == 1 && is_narrow {
                break;
            }
            let sample = sample.line(line);
            let slope = if PLAIN || panel.product.is_some() {
                let rate = V::select(sample.on, both[line], inverse[line]);
                sample.slope_of_rate(loss, rate, &mut value, count_sums)
            } else {
                sample.slope_of_sum(loss, both[line], &mut value, count_sums)
            };
            slope.store(&mut part[place.of(row, line)]);
        }
    }
    sum + value.finish()
}

/// Adds Σ_m D x_j to every column's sum, and Σ_m D to the total, over `n` samples from `start` on; their
/// slopes end in zeros, up to a whole group.
#[inline(always)]
fn gradient<V: Lanes, const R: usize>(
    part: &[V::Line],
    panel: &Panel<'_>,
    start: usize,
    n: usize,
    tables: &mut [V::Line],
    sums: &mut [V::Line],
    total: &mut [V; R],
) {
    let tables: &mut [Table<V, R>] = tables.as_chunks_mut().0.as_chunks_mut().0;
    let (part, sums) = (part.as_chunks().0, sums.as_chunks_mut().0);
    let words = panel.samples.columns_from(start / 64);
    let (width, columns) = (bits_per_pass(n), sums.len());
    let zero = [V::splat(0.0); R];
    let mut block = [0; BLOCK];
    for first in (0..n).step_by(width) {
        let n_bits = width.min(n - first);
        let groups = part[first..].as_chunks::<GROUP>().0;
        let tables = &mut tables[..n_bits.div_ceil(GROUP)];
        for (table, group) in tables.iter_mut().zip(groups) {
            let mut numbers = [zero; GROUP];
            for (number, slope) in numbers.iter_mut().zip(group) {
                *number = load(slope);
            }
            tabulate::<V, R, false>(table, zero, &numbers);
            *total = combine(*total, load(&table[ROWS - 1]), false);
        }
        let words = &words[first / 64 * columns..];
        for (k, sums) in sums.chunks_mut(BLOCK).enumerate() {
            let block = &mut block[..sums.len()];
            copy_bits(&words[BLOCK * k..], columns, first % 64, n_bits, block);
            look_up::<V, R, false>(tables, block, false, sums);
        }
    }
}

/// Columns whose bits are copied at once.
const BLOCK: usize = 256;

/// Copies `n` bits of every column from `shift` of its first word on; what is above them may be
/// anything. A column's next word is `columns` further on.
#[inline(always)]
fn copy_bits(words: &[u64], columns: usize, shift: usize, n: usize, block: &mut [u64]) {
    if shift + n > 64 {
        for ((to, low), high) in block.iter_mut().zip(words).zip(&words[columns..]) {
            *to = low >> shift | high << (64 - shift);
        }
    } else {
        for (to, low) in block.iter_mut().zip(words) {
            *to = low >> shift;
        }
    }
}
