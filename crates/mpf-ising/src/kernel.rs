//! Sums over samples and units of a function of the margin, from the packed bits.
//!
//! For units i with rows R_i· (R_ii = 0) and offsets c_i, over samples m with weights w_m:
//!
//! ```text
//! z_mi = c_i + Σ_j R_ij x_mj          a_mi = −s_mi z_mi,  s = 2x − 1        the margin
//! F    = Σ_m w_m Σ_i φ(a_mi)
//! D_mi = ∂F/∂z_mi = −w_m s_mi φ′(a_mi)
//! r_i  = Σ_m D_mi                     G_ij = Σ_m D_mi x_mj
//! ```
//!
//! With φ = exp(−a), R = J and c = ½ diag J this is the flow over single bit flips:
//! ½[E(x) − E(x with i flipped)] = s_i z_i = −a_i. Pseudolikelihood differs in φ alone.
//!
//! Four ways to the same sums, chosen by what the data and the support look like: `dense` tables,
//! `sparse` set bits, one `row` at a time, and counted `patterns` of few neighbours. Work is cut
//! into a fixed grid, units × chunks of samples, and partial sums are added in the grid's order,
//! so that the number of threads cannot change a digit. Nothing of size M × d exists but the bits,
//! and for `sparse` lists of those that are set.

mod dense;
pub mod lanes;
mod patterns;
pub mod peak;
mod row;
pub mod simd;
mod sparse;

use crate::bits::{Samples, for_each_set_bit, get_bit};
use lanes::Aligned;
pub use lanes::Lanes;
use patterns::Patterns;
use rayon::prelude::*;
use sparse::SetBits;
use std::ops::Range;
use std::sync::Arc;

/// φ, a convex decreasing function of the margin a = s_i (h_i + Σ_j K_ij s_j): large where unit i
/// is much likelier in its own state than flipped.
pub trait MarginLoss: Copy + Send + Sync {
    /// (φ(a), φ′(a)), four margins at a time. Mark it `#[inline(always)]`: it becomes part of
    /// vector code. Where they are too large for a number they are ±∞; NaN only for a NaN.
    fn value_and_slope<V: Lanes>(self, margin: V) -> (V, V);

    /// φ″(a), for standard errors. Not negative; +∞ where it is too large for a number.
    fn curvature(self, margin: f64) -> f64;

    /// Whether φ(a) is exp(−a) and nothing else, which admits a shortcut.
    fn is_exponential(self) -> bool {
        false
    }
}

/// φ and φ′ at one margin.
pub(crate) fn at_one_margin(loss: impl MarginLoss, margin: f64) -> (f64, f64) {
    let (value, slope) = loss.value_and_slope(lanes::Portable::splat(margin));
    let (mut values, mut slopes) = ([0.0; 4], [0.0; 4]);
    value.store(&mut values);
    slope.store(&mut slopes);
    (values[0], slopes[0])
}

/// φ(a) = exp(−a − shift): the rate of the flip, which MPF (and RISE) sum. +∞ from an exponent of
/// 710 on.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowRate {
    /// Taken out of every exponent; 0 for K itself.
    pub shift: f64,
}

impl MarginLoss for FlowRate {
    #[inline(always)]
    fn value_and_slope<V: Lanes>(self, margin: V) -> (V, V) {
        let rate = margin.negate().minus(V::splat(self.shift)).exp();
        (rate, rate.negate())
    }

    fn curvature(self, margin: f64) -> f64 {
        (-margin - self.shift).exp()
    }

    fn is_exponential(self) -> bool {
        self.shift == 0.0
    }
}

/// How the sums are computed. All ways give the same numbers up to rounding; the choice is there
/// for tests and benches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Path {
    /// The fastest for the data and the support, as calibrated.
    #[default]
    Auto,
    /// Tables of partial sums: for many set bits.
    Dense,
    /// Set bits one by one: for few.
    Sparse,
    /// Unit by unit: for thin supports and node-wise fits.
    Rows,
    /// Counts of neighbour patterns: for units with at most ten neighbours; others go by rows.
    Patterns,
}

/// Which code computes an objective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// The algorithm.
    pub path: Path,
    /// Whether to leave the machine's vector instructions alone.
    pub portable: bool,
    /// Whether to stay on the calling thread, where the caller works in parallel already.
    pub serial: bool,
}

/// Flips that are left out of the sum, one bit for every (distinct sample, unit).
#[derive(Clone, Debug)]
pub(crate) struct LeftOut {
    words: usize,
    bits: Vec<u64>,
}

impl LeftOut {
    pub(crate) fn none(samples: &Samples) -> Self {
        let words = samples.states().words_per_row();
        Self {
            words,
            bits: vec![0; words * samples.n_distinct()],
        }
    }

    #[inline(always)]
    pub(crate) fn row(&self, sample: usize) -> &[u64] {
        &self.bits[sample * self.words..(sample + 1) * self.words]
    }

    /// The first unit whose flips are all left out.
    pub(crate) fn first_without_flips(&self, n_units: usize) -> Option<usize> {
        let mut all = vec![u64::MAX; self.words];
        for row in self.bits.chunks_exact(self.words) {
            for (all, word) in all.iter_mut().zip(row) {
                *all &= word;
            }
        }
        (0..n_units).find(|&unit| get_bit(&all, unit))
    }

    pub(crate) fn par_rows_mut(&mut self) -> impl IndexedParallelIterator<Item = &mut [u64]> {
        self.bits.par_chunks_exact_mut(self.words)
    }
}

/// Samples over which kernels keep their intermediate results.
const TILE: usize = 256;
/// Most samples in a chunk.
const CHUNK: usize = 8192;
/// About as many tasks as keep a large machine busy; more would only take memory.
const TASKS: usize = 256;
/// The part of all couplings below which rows beat panels.
const THIN_BELOW: f64 = 1.0 / 8.0;
/// |z| for which exp(z) is far from the ends of `f64`, even summed 10⁹ times.
pub(crate) const SAFE_EXPONENT: f64 = 600.0;

/// How many numbers R needs at most, for `n_entries` that may differ from zero in the rows of
/// `n_units` of all `n_columns` units.
pub(crate) fn most_entries(n_units: usize, n_columns: usize, n_entries: usize) -> usize {
    if n_units == 1 || is_thin(n_units, n_columns, n_entries) {
        n_entries
    } else {
        let padded = n_units
            .div_ceil(sparse::PANEL)
            .saturating_mul(sparse::PANEL);
        padded.saturating_mul(n_columns)
    }
}

/// Whether rows beat panels.
fn is_thin(n_units: usize, n_columns: usize, n_entries: usize) -> bool {
    (n_entries as f64) < THIN_BELOW * n_units.saturating_mul(n_columns) as f64
}

/// R and c of some units, and what comes of them.
pub(crate) struct Rows<'a> {
    samples: &'a Samples,
    left_out: Option<Arc<LeftOut>>,
    units: Range<usize>,
    portable: bool,
    serial: bool,
    layout: Layout,
    rows: Vec<f64>,
    offsets: Vec<f64>,
    row_grads: Vec<f64>,
    offset_grads: Vec<f64>,
}

/// Where R_ij is kept.
enum Layout {
    /// `[panel][column][unit in panel]`, all columns, the last panel padded.
    Panels {
        width: usize,
        set_bits: Option<SetBits>,
    },
    /// `[unit][neighbour]`, the columns of unit k in `neighbours[starts[k]..starts[k + 1]]`.
    Rows {
        neighbours: Vec<u32>,
        starts: Vec<usize>,
        patterns: Option<Vec<Patterns>>,
    },
}

impl<'a> Rows<'a> {
    /// Zeros for `units`, where R_ij may differ from zero for the given (unit, column) pairs.
    pub(crate) fn new(
        samples: &'a Samples,
        left_out: Option<Arc<LeftOut>>,
        units: Range<usize>,
        entries: &[(usize, usize)],
        kernel: Kernel,
    ) -> Self {
        let n = units.len();
        let mut degrees = vec![0usize; n];
        for (unit, _) in entries {
            degrees[unit - units.start] += 1;
        }
        let largest = degrees.iter().copied().max().unwrap_or(0);
        let path = match kernel.path {
            Path::Auto => choose(samples, n, entries.len(), largest),
            Path::Sparse if samples.n_units() > sparse::MOST_UNITS => Path::Dense,
            chosen => chosen,
        };
        let width = match path {
            Path::Dense => dense::PANEL,
            Path::Sparse => sparse::PANEL,
            _ => 0,
        };
        let (layout, n_entries, n_offsets) = if width > 0 && units.start == 0 {
            let padded = n.next_multiple_of(width);
            let set_bits = (path == Path::Sparse).then(|| SetBits::new(samples));
            let layout = Layout::Panels { width, set_bits };
            (layout, padded * samples.n_units(), padded)
        } else {
            let mut sorted = entries.to_vec();
            sorted.sort_unstable();
            let neighbours: Vec<u32> = sorted.iter().map(|(_, j)| *j as u32).collect();
            let mut starts = vec![0];
            for degree in degrees {
                starts.push(starts[starts.len() - 1] + degree);
            }
            let count = |k: usize| {
                let columns = &neighbours[starts[k]..starts[k + 1]];
                Patterns::new(samples, left_out.as_deref(), units.start + k, columns)
            };
            let counted = path == Path::Patterns && largest <= patterns::MOST_NEIGHBOURS;
            let patterns = counted.then(|| {
                if kernel.serial {
                    (0..n).map(count).collect()
                } else {
                    (0..n).into_par_iter().map(count).collect()
                }
            });
            let n_entries = neighbours.len();
            let layout = Layout::Rows {
                neighbours,
                starts,
                patterns,
            };
            (layout, n_entries, n)
        };
        Self {
            samples,
            left_out,
            units,
            portable: kernel.portable,
            serial: kernel.serial,
            layout,
            rows: vec![0.0; n_entries],
            offsets: vec![0.0; n_offsets],
            row_grads: vec![0.0; n_entries],
            offset_grads: vec![0.0; n_offsets],
        }
    }

    /// The way that was chosen.
    pub(crate) fn path(&self) -> Path {
        match &self.layout {
            Layout::Panels { set_bits: None, .. } => Path::Dense,
            Layout::Panels { .. } => Path::Sparse,
            Layout::Rows { patterns: None, .. } => Path::Rows,
            Layout::Rows { .. } => Path::Patterns,
        }
    }

    /// Where R_ij and G_ij are kept: valid for [`Rows::set`] and [`Rows::grad`].
    pub(crate) fn slot(&self, unit: usize, column: usize) -> usize {
        let k = unit - self.units.start;
        match &self.layout {
            Layout::Panels { width, .. } => {
                (k / width * self.samples.n_units() + column) * width + k % width
            }
            Layout::Rows {
                neighbours, starts, ..
            } => {
                let row = &neighbours[starts[k]..starts[k + 1]];
                starts[k] + row.binary_search(&(column as u32)).expect("an entry of R")
            }
        }
    }

    /// Sets R_ij.
    pub(crate) fn set(&mut self, slot: usize, value: f64) {
        self.rows[slot] = value;
    }

    /// Sets c_i.
    pub(crate) fn set_offset(&mut self, unit: usize, value: f64) {
        self.offsets[unit - self.units.start] = value;
    }

    /// G_ij.
    pub(crate) fn grad(&self, slot: usize) -> f64 {
        self.row_grads[slot]
    }

    /// r_i.
    pub(crate) fn offset_grad(&self, unit: usize) -> f64 {
        self.offset_grads[unit - self.units.start]
    }

    /// F / Σ w, with G and r (over Σ w too) left in `self`.
    pub(crate) fn evaluate(&mut self, loss: impl MarginLoss) -> f64 {
        self.row_grads.fill(0.0);
        self.offset_grads.fill(0.0);
        let sum = match self.path() {
            Path::Dense => self.evaluate_dense(loss),
            Path::Sparse => self.evaluate_sparse(loss),
            Path::Patterns => self.evaluate_patterns(loss),
            Path::Rows | Path::Auto => self.evaluate_rows(loss),
        };
        let scale = 1.0 / self.samples.total_weight();
        for g in self.row_grads.iter_mut().chain(&mut self.offset_grads) {
            *g *= scale;
        }
        sum * scale
    }

    /// Runs `task(part, samples)` for every one of `n_parts` parts and every chunk of samples.
    /// The results come by part, then by chunk, whatever the threads do.
    fn on_grid<T: Send>(
        &self,
        n_parts: usize,
        task: impl Fn(usize, Range<usize>) -> T + Sync,
    ) -> Vec<(usize, T)> {
        let n = self.samples.n_distinct();
        let chunks = n_chunks(n, n_parts);
        let size = n.div_ceil(chunks).next_multiple_of(TILE);
        let run = |at: usize| {
            let (part, chunk) = (at / chunks, at % chunks);
            let range = (chunk * size).min(n)..((chunk + 1) * size).min(n);
            (part, task(part, range))
        };
        let tasks = 0..n_parts * chunks;
        if self.serial {
            tasks.map(run).collect()
        } else {
            tasks.into_par_iter().map(run).collect()
        }
    }

    fn evaluate_dense(&mut self, loss: impl MarginLoss) -> f64 {
        let n_columns = self.samples.n_units();
        let multiply = self.may_multiply(loss);
        let rows = self.rows.as_chunks::<4>().0.as_chunks::<2>().0;
        let offsets = self.offsets.as_chunks::<4>().0.as_chunks::<2>().0;
        let partials = self.on_grid(offsets.len(), |panel, range| {
            let task = dense::Task {
                samples: self.samples,
                left_out: self.left_out.as_deref(),
                first: panel * dense::PANEL,
                n_units: dense::PANEL.min(self.units.len() - panel * dense::PANEL),
                rows: &rows[panel * n_columns..(panel + 1) * n_columns],
                offsets: &offsets[panel],
                range,
                multiply,
            };
            simd::dense_sum(&task, loss, self.portable)
        });
        let mut value = 0.0;
        for (panel, partial) in &partials {
            value += partial.value;
            self.add_panel(*panel, partial.offsets.0.as_flattened(), &partial.rows);
        }
        value
    }

    fn evaluate_sparse(&mut self, loss: impl MarginLoss) -> f64 {
        let n_columns = self.samples.n_units();
        let multiply = self.may_multiply(loss);
        let Layout::Panels {
            set_bits: Some(set_bits),
            ..
        } = &self.layout
        else {
            unreachable!("this path has set bits")
        };
        let rows = self
            .rows
            .as_chunks::<4>()
            .0
            .as_chunks::<{ sparse::PANEL / 4 }>()
            .0;
        let offsets = self
            .offsets
            .as_chunks::<4>()
            .0
            .as_chunks::<{ sparse::PANEL / 4 }>()
            .0;
        let partials = self.on_grid(offsets.len(), |panel, range| {
            let task = sparse::Task {
                samples: self.samples,
                set_bits,
                left_out: self.left_out.as_deref(),
                first: panel * sparse::PANEL,
                n_units: sparse::PANEL.min(self.units.len() - panel * sparse::PANEL),
                rows: &rows[panel * n_columns..(panel + 1) * n_columns],
                offsets: &offsets[panel],
                range,
                multiply,
            };
            simd::sparse_sum(&task, loss, self.portable)
        });
        let mut value = 0.0;
        for (panel, partial) in &partials {
            value += partial.value;
            self.add_panel(*panel, partial.offsets.as_flattened(), &partial.rows);
        }
        value
    }

    /// Whether exponentials of R can be multiplied without leaving the range of `f64`.
    fn may_multiply(&self, loss: impl MarginLoss) -> bool {
        loss.is_exponential() && self.margin_bound() < SAFE_EXPONENT
    }

    fn add_panel<const FOURS: usize>(
        &mut self,
        panel: usize,
        offsets: &[f64],
        rows: &[Aligned<[[f64; 4]; FOURS]>],
    ) {
        add(&mut self.offset_grads[panel * offsets.len()..], offsets);
        let width = 4 * FOURS;
        let grads = self.row_grads[panel * width * rows.len()..].chunks_exact_mut(width);
        for (grads, row) in grads.zip(rows) {
            add(grads, row.0.as_flattened());
        }
    }

    fn evaluate_rows(&mut self, loss: impl MarginLoss) -> f64 {
        let Layout::Rows {
            neighbours, starts, ..
        } = &self.layout
        else {
            unreachable!("this path has rows")
        };
        let partials = self.on_grid(self.units.len(), |k, range| {
            let task = row::Task {
                samples: self.samples,
                left_out: self.left_out.as_deref(),
                unit: self.units.start + k,
                neighbours: &neighbours[starts[k]..starts[k + 1]],
                row: &self.rows[starts[k]..starts[k + 1]],
                offset: self.offsets[k],
                range,
            };
            simd::row_sum(&task, loss, self.portable)
        });
        let mut value = 0.0;
        for (k, partial) in &partials {
            value += partial.value;
            self.offset_grads[*k] += partial.offset;
            add(&mut self.row_grads[starts[*k]..], &partial.row);
        }
        value
    }

    fn evaluate_patterns(&mut self, loss: impl MarginLoss) -> f64 {
        let Layout::Rows {
            starts,
            patterns: Some(patterns),
            ..
        } = &self.layout
        else {
            unreachable!("this path has patterns")
        };
        let mut row_grads = self.row_grads.as_mut_slice();
        let mut value = 0.0;
        for (k, patterns) in patterns.iter().enumerate() {
            let row = &self.rows[starts[k]..starts[k + 1]];
            let (row_grad, rest) = row_grads.split_at_mut(row.len());
            row_grads = rest;
            value += patterns.sum(
                row,
                self.offsets[k],
                loss,
                row_grad,
                &mut self.offset_grads[k],
            );
        }
        value
    }

    /// Calls `f(column, R_ij)` for the row of `unit`.
    fn for_each_entry(&self, unit: usize, mut f: impl FnMut(usize, f64)) {
        let k = unit - self.units.start;
        match &self.layout {
            Layout::Panels { .. } => {
                for column in 0..self.samples.n_units() {
                    f(column, self.rows[self.slot(unit, column)]);
                }
            }
            Layout::Rows {
                neighbours, starts, ..
            } => {
                let row = starts[k]..starts[k + 1];
                for (column, value) in neighbours[row.clone()].iter().zip(&self.rows[row]) {
                    f(*column as usize, *value);
                }
            }
        }
    }

    /// An upper bound of |z| over all units and states. One pass over R in its own order.
    pub(crate) fn margin_bound(&self) -> f64 {
        let mut bounds: Vec<f64> = self.offsets.iter().map(|c| c.abs()).collect();
        match &self.layout {
            Layout::Panels { width, .. } => {
                let panels = self.rows.chunks_exact(width * self.samples.n_units());
                for (bounds, panel) in bounds.chunks_exact_mut(*width).zip(panels) {
                    for row in panel.chunks_exact(*width) {
                        for (bound, r) in bounds.iter_mut().zip(row) {
                            *bound += r.abs();
                        }
                    }
                }
            }
            Layout::Rows { starts, .. } => {
                for (bound, row) in bounds.iter_mut().zip(starts.windows(2)) {
                    *bound += self.rows[row[0]..row[1]]
                        .iter()
                        .map(|r| r.abs())
                        .sum::<f64>();
                }
            }
        }
        // A NaN must not get lost: it bounds nothing.
        let larger = |m: f64, b: f64| if b <= m { m } else { b };
        bounds.into_iter().fold(0.0, larger)
    }

    /// The largest −a over all samples and flips: the shift that keeps exp(−a) below 1.
    pub(crate) fn largest_exponent(&self) -> f64 {
        let of_unit = |unit: usize| {
            let mut row = vec![0.0; self.samples.n_units()];
            self.for_each_entry(unit, |column, r| row[column] = r);
            let mut largest = f64::NEG_INFINITY;
            for (m, x) in self.samples.states().rows().enumerate() {
                if self
                    .left_out
                    .as_ref()
                    .is_some_and(|l| get_bit(l.row(m), unit))
                {
                    continue;
                }
                let mut z = self.offsets[unit - self.units.start];
                for_each_set_bit(x, |j| z += row[j]);
                largest = largest.max(if get_bit(x, unit) { z } else { -z });
            }
            largest
        };
        self.units
            .clone()
            .map(of_unit)
            .fold(f64::NEG_INFINITY, f64::max)
    }
}

/// How many chunks `n` samples are cut into for each of `n_parts` parts.
fn n_chunks(n: usize, n_parts: usize) -> usize {
    let most = TASKS.div_ceil(n_parts);
    n.div_ceil(CHUNK).min(most).max(1)
}

/// Bytes that the sums hold over all units and couplings of `samples`: R and G, a part of G for
/// every chunk of samples, and the lists of set bits where there are any.
pub(crate) fn working_bytes(samples: &Samples) -> usize {
    let (n, d) = (samples.n_distinct(), samples.n_units());
    let path = choose(samples, d, d.saturating_mul(d - 1), d - 1);
    let (width, lists) = match path {
        Path::Sparse => (sparse::PANEL, sparse::list_bytes(samples)),
        Path::Dense => (dense::PANEL, 0),
        // Few units: next to nothing.
        _ => (1, 0),
    };
    let chunks = n_chunks(n, d.div_ceil(width));
    let panels = d.next_multiple_of(width).saturating_mul(d);
    panels
        .saturating_mul(8 * (2 + chunks))
        .saturating_add(lists)
}

/// The fastest path, calibrated by `cargo bench --bench paths`.
fn choose(samples: &Samples, n_units: usize, n_entries: usize, largest_degree: usize) -> Path {
    let few_patterns = largest_degree <= patterns::MOST_NEIGHBOURS
        && 2usize << largest_degree <= samples.n_distinct();
    if few_patterns {
        Path::Patterns
    } else if n_units == 1 || is_thin(n_units, samples.n_units(), n_entries) {
        Path::Rows
    } else if sparse::is_worth_it(samples) {
        Path::Sparse
    } else {
        Path::Dense
    }
}

/// sums += parts, as far as `parts` goes.
fn add(sums: &mut [f64], parts: &[f64]) {
    for (sum, part) in sums.iter_mut().zip(parts) {
        *sum += part;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::States;
    use mpf_core::rng::stream;
    use rand::RngExt;

    /// Small, and without threads: the test of memory accesses, under Miri and sanitizers.
    #[test]
    fn every_path_gives_the_same_sums() {
        let mut rng = stream(4, 0);
        for (d, n) in [(1, 3), (11, 70)] {
            let mut states = States::new(d).unwrap();
            (0..n).for_each(|_| states.push(&[rng.random_range(0..1 << d)]));
            let samples = Samples::new(&states).unwrap();
            let entries: Vec<(usize, usize)> = (0..d)
                .flat_map(|i| (0..d).map(move |j| (i, j)))
                .filter(|(i, j)| i != j)
                .collect();
            let couplings: Vec<f64> = (0..d * d).map(|_| rng.random_range(-0.5..0.5)).collect();
            let sums = |path: Path, portable: bool| {
                let kernel = Kernel {
                    path,
                    portable,
                    serial: true,
                };
                let mut rows = Rows::new(&samples, None, 0..d, &entries, kernel);
                for &(i, j) in &entries {
                    rows.set(rows.slot(i, j), couplings[i * d + j]);
                }
                (0..d).for_each(|i| rows.set_offset(i, couplings[i * d + i]));
                let value = rows.evaluate(FlowRate::default());
                let grads = entries.iter().map(|&(i, j)| rows.grad(rows.slot(i, j)));
                let mut all: Vec<f64> = grads.collect();
                all.extend((0..d).map(|i| rows.offset_grad(i)));
                all.push(value);
                all
            };
            let expected = sums(Path::Rows, true);
            for path in [Path::Dense, Path::Sparse, Path::Rows] {
                for portable in [true, false] {
                    let off = sums(path, portable).into_iter().zip(&expected);
                    // Sums of at most 70 terms of size 1.
                    let largest = off.fold(0.0f64, |m, (a, b)| m.max((a - b).abs()));
                    assert!(largest < 1e-12, "{path:?} {portable}: {largest}");
                }
            }
        }
    }
}
