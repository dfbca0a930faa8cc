//! The engine: R and c, their layout in memory, and the sums over all samples.

use super::choice::{Grid, LEAST_SINGLE, choose};
use super::counts::Counts;
use super::lanes::{Number, Scratch};
use super::loss::terms_per_product;
use super::panel::Panel;
use super::patterns::{self, Patterns};
use super::sparse::{self, SetBits};
use super::{Algorithm, FlipMask, Kernel, MarginLoss, PANEL, Precision, Vectors, dense, row, simd};
use crate::bits::{Samples, for_each_set_bit, get_bit};
use rayon::prelude::*;
use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Samples that stay, or those of one tile after the other.
enum Held<'a> {
    Borrowed(&'a Samples),
    Shared(Arc<Samples>),
}

impl Deref for Held<'_> {
    type Target = Samples;

    fn deref(&self) -> &Samples {
        match self {
            Self::Borrowed(samples) => samples,
            Self::Shared(samples) => samples,
        }
    }
}

/// The samples as panels need them.
#[derive(Clone, Debug)]
enum PanelBits {
    Dense(Arc<dense::Passes>),
    Sparse(Arc<SetBits>),
}

impl PanelBits {
    fn new(samples: &Samples, with_lists: bool) -> Self {
        if with_lists {
            Self::Sparse(Arc::new(SetBits::new(samples)))
        } else {
            Self::Dense(Arc::new(dense::Passes::new(samples)))
        }
    }
}

/// Some of the samples of a stream, ready to be summed over.
#[derive(Clone, Debug)]
pub(crate) struct Tile {
    pub(crate) samples: Arc<Samples>,
    bits: PanelBits,
}

impl Tile {
    /// Makes a tile, with lists of the set bits for the algorithm `Sparse`.
    pub(crate) fn new(samples: Samples, with_lists: bool) -> Self {
        Self {
            bits: PanelBits::new(&samples, with_lists),
            samples: Arc::new(samples),
        }
    }

    /// Returns the bytes held.
    pub(crate) fn bytes(&self) -> usize {
        let bits = match &self.bits {
            PanelBits::Dense(_) => dense::pass_bytes(&self.samples),
            PanelBits::Sparse(_) => sparse::list_bytes(&self.samples),
        };
        self.samples.bytes() + bits
    }
}

/// R and c of some units, with F, G and r of the last evaluation.
pub(crate) struct MarginEngine<'a> {
    samples: Held<'a>,
    mask: Option<Arc<FlipMask>>,
    counts: Option<Counts>,
    units: Range<usize>,
    vectors: Vectors,
    serial: bool,
    layout: Layout,
    rows: Vec<f64>,
    offsets: Vec<f64>,
    row_grads: Vec<f64>,
    offset_grads: Vec<f64>,
    shift_grads: Vec<[f64; 2]>,
    pool: Mutex<Pool>,
}

/// Memory that evaluations leave to the next: fresh pages cost more than their sums.
#[derive(Default)]
struct Pool {
    scratch: Vec<Scratch>,
    grads: Vec<Vec<f64>>,
}

/// Where R_ij is kept.
enum Layout {
    /// `[panel][column][unit in panel]`, all columns, the last panel padded.
    Panels { bits: PanelBits },
    /// `[unit][neighbour]`, the columns of unit k in `neighbours[starts[k]..starts[k + 1]]`.
    Rows {
        neighbours: Vec<u32>,
        starts: Vec<usize>,
        patterns: Option<Vec<Patterns>>,
    },
}

impl<'a> MarginEngine<'a> {
    /// Makes the engine of `units` with R = 0 and c = 0. R_ij may be set for the (unit, column)
    /// pairs in `entries`.
    pub(crate) fn new(
        samples: &'a Samples,
        mask: Option<Arc<FlipMask>>,
        counts: Option<Counts>,
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
        let algorithm = match kernel.algorithm {
            Algorithm::Auto => choose(samples, n, entries.len(), largest),
            Algorithm::Sparse if samples.n_units() > sparse::MOST_UNITS => Algorithm::Dense,
            chosen => chosen,
        };
        // The other two know no counts.
        let algorithm = match algorithm {
            Algorithm::Rows | Algorithm::Patterns if counts.is_some() => Algorithm::Dense,
            other => other,
        };
        let in_panels = matches!(algorithm, Algorithm::Dense | Algorithm::Sparse);
        let (layout, n_entries, n_offsets) = if in_panels && units.start == 0 {
            let padded = n.next_multiple_of(PANEL);
            let layout = Layout::Panels {
                bits: PanelBits::new(samples, algorithm == Algorithm::Sparse),
            };
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
                Patterns::new(samples, mask.as_deref(), units.start + k, columns)
            };
            let counted = algorithm == Algorithm::Patterns && largest <= patterns::MOST_NEIGHBOURS;
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
            samples: Held::Borrowed(samples),
            mask,
            shift_grads: vec![[0.0; 2]; counts.as_ref().map_or(0, |_| samples.n_units() + 1)],
            counts,
            units,
            vectors: kernel.vectors,
            serial: kernel.serial,
            layout,
            rows: vec![0.0; n_entries],
            offsets: vec![0.0; n_offsets],
            row_grads: vec![0.0; n_entries],
            offset_grads: vec![0.0; n_offsets],
            pool: Mutex::default(),
        }
    }

    /// Returns the algorithm that was chosen.
    pub(crate) fn algorithm(&self) -> Algorithm {
        match &self.layout {
            Layout::Panels { bits } => match bits {
                PanelBits::Dense(_) => Algorithm::Dense,
                PanelBits::Sparse(_) => Algorithm::Sparse,
            },
            Layout::Rows { patterns: None, .. } => Algorithm::Rows,
            Layout::Rows { .. } => Algorithm::Patterns,
        }
    }

    /// Returns where R_ij and G_ij are kept, for [`MarginEngine::set`] and [`MarginEngine::grad`].
    pub(crate) fn slot(&self, unit: usize, column: usize) -> usize {
        let k = unit - self.units.start;
        match &self.layout {
            Layout::Panels { .. } => {
                (k / PANEL * self.samples.n_units() + column) * PANEL + k % PANEL
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

    /// Returns G_ij.
    pub(crate) fn grad(&self, slot: usize) -> f64 {
        self.row_grads[slot]
    }

    /// Returns r_i.
    pub(crate) fn offset_grad(&self, unit: usize) -> f64 {
        self.offset_grads[unit - self.units.start]
    }

    /// Sets the shifts of the margins of silent and active units of samples with `n` of them active.
    pub(crate) fn set_shifts(&mut self, n: usize, shifts: [f64; 2]) {
        let counts = self.counts.as_mut().expect("an engine with counts");
        counts.set(n, shifts);
    }

    /// Returns ∂F/∂shift of silent and active units by number, as [`MarginEngine::set_shifts`] has it.
    pub(crate) fn shift_grads(&self) -> &[[f64; 2]] {
        &self.shift_grads
    }

    /// Turns to other samples of the same units. The algorithm stays; `Patterns` has none to turn to.
    pub(crate) fn turn_to(&mut self, tile: &Tile) {
        self.samples = Held::Shared(tile.samples.clone());
        if let Layout::Panels { bits } = &mut self.layout {
            bits.clone_from(&tile.bits);
        }
        if let Some(counts) = &mut self.counts {
            counts.recount(&tile.samples);
        }
    }

    /// Sets G and r to zero.
    pub(crate) fn clear(&mut self) {
        self.row_grads.fill(0.0);
        self.offset_grads.fill(0.0);
        self.shift_grads.fill([0.0; 2]);
    }

    /// Returns F, and adds to G and r.
    pub(crate) fn add(&mut self, loss: MarginLoss, precision: Precision) -> f64 {
        match self.algorithm() {
            Algorithm::Dense | Algorithm::Sparse => self.evaluate_panels(loss, precision),
            Algorithm::Patterns => self.evaluate_patterns(loss),
            Algorithm::Rows | Algorithm::Auto => self.evaluate_rows(loss),
        }
    }

    /// Returns F / Σ w and keeps G and r, also over Σ w.
    pub(crate) fn evaluate(&mut self, loss: MarginLoss, precision: Precision) -> f64 {
        self.clear();
        let sum = self.add(loss, precision);
        let scale = 1.0 / self.samples.total_weight();
        let shifts = self.shift_grads.as_flattened_mut();
        let grads = self.row_grads.iter_mut().chain(&mut self.offset_grads);
        for g in grads.chain(shifts) {
            *g *= scale;
        }
        sum * scale
    }

    /// Returns whether sums in single precision are much faster, and within the range of `f32`.
    pub(crate) fn gains_by_single_precision(&self) -> bool {
        self.algorithm() == Algorithm::Dense
            && self.counts.is_none()
            && self.units.len() >= LEAST_SINGLE
            && (1.0..1e12).contains(&self.samples.total_weight())
    }

    /// Runs `task(part, samples)` for every one of `n_parts` parts and every chunk of samples.
    /// Results come by part, then by chunk, whatever the threads do.
    fn on_grid<T: Send>(
        &self,
        n_parts: usize,
        task: impl Fn(usize, Range<usize>, &mut Scratch) -> T + Sync,
    ) -> Vec<(usize, T)> {
        let grid = match &self.samples {
            Held::Borrowed(samples) => Grid::new(samples.n_distinct(), n_parts),
            Held::Shared(tile) => Grid::of_tile(tile.n_distinct(), n_parts),
        };
        let run = |number: usize| {
            let (part, range) = grid.task(number);
            let mut scratch = self.pool().scratch.pop().unwrap_or_default();
            let result = task(part, range, &mut scratch);
            self.pool().scratch.push(scratch);
            (part, result)
        };
        let tasks = grid.tasks();
        if self.serial {
            tasks.map(run).collect()
        } else {
            tasks.into_par_iter().map(run).collect()
        }
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        // Whatever a panic has left in it is good enough to be overwritten.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `n` zeros.
    fn zeros(&self, n: usize) -> Vec<f64> {
        let mut zeros = self.pool().grads.pop().unwrap_or_default();
        zeros.clear();
        zeros.resize(n, 0.0);
        zeros
    }

    fn evaluate_panels(&mut self, loss: MarginLoss, precision: Precision) -> f64 {
        let Layout::Panels { bits } = &self.layout else {
            unreachable!("this algorithm has panels")
        };
        let d = self.samples.n_units();
        let bound = self.margin_bound();
        let is_weighted = self.samples.weights().is_some();
        let single = match (bits, precision) {
            (PanelBits::Dense(_), Precision::Single) => {
                terms_per_product::<f32>(loss, bound, is_weighted)
            }
            _ => None,
        };
        // Sums of large margins would lose digits in `f32`, and their exponentials leave the range.
        let precision = single.map_or(Precision::Double, |_| Precision::Single);
        let product = single.or_else(|| terms_per_product::<f64>(loss, bound, is_weighted));
        let (safe, lanes) = match precision {
            Precision::Single => (f32::SAFE_EXPONENT, 16),
            Precision::Double => (f64::SAFE_EXPONENT, 8),
        };
        let width = match bits {
            PanelBits::Dense(_) => lanes * dense::LINES,
            PanelBits::Sparse(_) => PANEL,
        };
        let rows = self.rows.as_chunks::<PANEL>().0;
        let offsets = self.offsets.as_chunks::<PANEL>().0;
        let partials = self.on_grid(self.units.len().div_ceil(width), |part, range, scratch| {
            let first = part * width;
            let number = first / PANEL;
            let panel = Panel {
                samples: &self.samples,
                mask: self.mask.as_deref(),
                counts: self.counts.as_ref(),
                first,
                n_units: width.min(self.units.len() - first),
                rows: &rows[number * d..(number + 1) * d],
                offsets: &offsets[number],
                range,
                product,
            };
            let grads = self.zeros(width * d);
            match bits {
                PanelBits::Dense(passes) => {
                    let task = dense::Task {
                        panel,
                        passes,
                        square: 2.0 * bound < safe,
                    };
                    simd::dense_sum(self.vectors, precision, &task, loss, scratch, grads)
                }
                PanelBits::Sparse(set_bits) => {
                    simd::sparse_sum(self.vectors, &panel, set_bits, loss, scratch, grads)
                }
            }
        });
        let mut value = 0.0;
        for (part, partial) in partials {
            value += partial.value;
            self.add_panel(part * width, width, &partial.offsets, &partial.rows);
            let counts = partial.counts.as_flattened();
            add(self.shift_grads.as_flattened_mut(), counts);
            self.pool().grads.push(partial.rows);
        }
        value
    }

    /// Adds the sums of `width` units from `first` on.
    fn add_panel(&mut self, first: usize, width: usize, offsets: &[f64], rows: &[f64]) {
        add(&mut self.offset_grads[first..first + width], offsets);
        let panel = &mut self.row_grads[first / PANEL * PANEL * self.samples.n_units()..];
        let panel = panel.chunks_exact_mut(PANEL);
        for (grads, row) in panel.zip(rows.chunks_exact(width)) {
            add(&mut grads[first % PANEL..], row);
        }
    }

    fn evaluate_rows(&mut self, loss: MarginLoss) -> f64 {
        let Layout::Rows {
            neighbours, starts, ..
        } = &self.layout
        else {
            unreachable!("this algorithm has rows")
        };
        let partials = self.on_grid(self.units.len(), |k, range, _| {
            let task = row::Task {
                samples: &self.samples,
                mask: self.mask.as_deref(),
                unit: self.units.start + k,
                neighbours: &neighbours[starts[k]..starts[k + 1]],
                row: &self.rows[starts[k]..starts[k + 1]],
                offset: self.offsets[k],
                range,
            };
            simd::row_sum(self.vectors, &task, loss)
        });
        let mut value = 0.0;
        for (k, partial) in &partials {
            value += partial.value;
            self.offset_grads[*k] += partial.offset;
            add(&mut self.row_grads[starts[*k]..], &partial.row);
        }
        value
    }

    fn evaluate_patterns(&mut self, loss: MarginLoss) -> f64 {
        let Layout::Rows {
            starts,
            patterns: Some(patterns),
            ..
        } = &self.layout
        else {
            unreachable!("this algorithm has patterns")
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

    /// Returns an upper bound of |z| over all units and states. One pass over R in its own order.
    pub(crate) fn margin_bound(&self) -> f64 {
        let mut bounds: Vec<f64> = self.offsets.iter().map(|c| c.abs()).collect();
        match &self.layout {
            Layout::Panels { .. } => {
                let panels = self.rows.chunks_exact(PANEL * self.samples.n_units());
                for (bounds, panel) in bounds.chunks_exact_mut(PANEL).zip(panels) {
                    for row in panel.chunks_exact(PANEL) {
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
        let shifts = self.counts.as_ref().map_or(0.0, Counts::bound);
        bounds.into_iter().fold(0.0, larger) + shifts
    }

    /// Returns the largest −a over all samples and flips, the shift that keeps exp(−a) below 1.
    pub(crate) fn largest_exponent(&self) -> f64 {
        let of_unit = |unit: usize| {
            let mut row = vec![0.0; self.samples.n_units()];
            self.for_each_entry(unit, |column, r| row[column] = r);
            let mut largest = f64::NEG_INFINITY;
            for (m, x) in self.samples.states().rows().enumerate() {
                let mask = self.mask.as_ref();
                if mask.is_some_and(|mask| get_bit(mask.row(m), unit)) {
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

/// Adds `parts` to the first of `sums`.
fn add(sums: &mut [f64], parts: &[f64]) {
    for (sum, part) in sums.iter_mut().zip(parts) {
        *sum += part;
    }
}
