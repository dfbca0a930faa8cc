//! The engine: R and c, their layout in memory, and the sums over all samples.

use super::choice::{Grid, choose};
use super::lanes::Aligned;
use super::patterns::{self, Patterns};
use super::sparse::{self, SetBits};
use super::{Algorithm, FlipMask, Kernel, MarginLoss, SAFE_EXPONENT, dense, row, simd};
use crate::bits::{Samples, for_each_set_bit, get_bit};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// R and c of some units, with F, G and r of the last evaluation.
pub(crate) struct MarginEngine<'a> {
    samples: &'a Samples,
    mask: Option<Arc<FlipMask>>,
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

impl<'a> MarginEngine<'a> {
    /// Makes the engine of `units` with R = 0 and c = 0. R_ij may be set for the (unit, column)
    /// pairs in `entries`.
    pub(crate) fn new(
        samples: &'a Samples,
        mask: Option<Arc<FlipMask>>,
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
        let width = match algorithm {
            Algorithm::Dense => dense::PANEL,
            Algorithm::Sparse => sparse::PANEL,
            _ => 0,
        };
        let (layout, n_entries, n_offsets) = if width > 0 && units.start == 0 {
            let padded = n.next_multiple_of(width);
            let set_bits = (algorithm == Algorithm::Sparse).then(|| SetBits::new(samples));
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
            samples,
            mask,
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

    /// Returns the algorithm that was chosen.
    pub(crate) fn algorithm(&self) -> Algorithm {
        match &self.layout {
            Layout::Panels { set_bits: None, .. } => Algorithm::Dense,
            Layout::Panels { .. } => Algorithm::Sparse,
            Layout::Rows { patterns: None, .. } => Algorithm::Rows,
            Layout::Rows { .. } => Algorithm::Patterns,
        }
    }

    /// Returns where R_ij and G_ij are kept, for [`MarginEngine::set`] and [`MarginEngine::grad`].
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

    /// Returns G_ij.
    pub(crate) fn grad(&self, slot: usize) -> f64 {
        self.row_grads[slot]
    }

    /// Returns r_i.
    pub(crate) fn offset_grad(&self, unit: usize) -> f64 {
        self.offset_grads[unit - self.units.start]
    }

    /// Returns F / Σ w and keeps G and r, also over Σ w.
    pub(crate) fn evaluate(&mut self, loss: impl MarginLoss) -> f64 {
        self.row_grads.fill(0.0);
        self.offset_grads.fill(0.0);
        let sum = match self.algorithm() {
            Algorithm::Dense => self.evaluate_dense(loss),
            Algorithm::Sparse => self.evaluate_sparse(loss),
            Algorithm::Patterns => self.evaluate_patterns(loss),
            Algorithm::Rows | Algorithm::Auto => self.evaluate_rows(loss),
        };
        let scale = 1.0 / self.samples.total_weight();
        for g in self.row_grads.iter_mut().chain(&mut self.offset_grads) {
            *g *= scale;
        }
        sum * scale
    }

    /// Runs `task(part, samples)` for every one of `n_parts` parts and every chunk of samples.
    /// Results come by part, then by chunk, whatever the threads do.
    fn on_grid<T: Send>(
        &self,
        n_parts: usize,
        task: impl Fn(usize, Range<usize>) -> T + Sync,
    ) -> Vec<(usize, T)> {
        let grid = Grid::new(self.samples.n_distinct(), n_parts);
        let run = |number: usize| {
            let (part, range) = grid.task(number);
            (part, task(part, range))
        };
        let tasks = grid.tasks();
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
                mask: self.mask.as_deref(),
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
            unreachable!("this algorithm has set bits")
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
                mask: self.mask.as_deref(),
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

    /// Returns whether exponentials of R can be multiplied without leaving the range of `f64`.
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
            unreachable!("this algorithm has rows")
        };
        let partials = self.on_grid(self.units.len(), |k, range| {
            let task = row::Task {
                samples: self.samples,
                mask: self.mask.as_deref(),
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

#[cfg(test)]
mod tests {
    use super::super::FlowRate;
    use super::*;
    use crate::bits::States;
    use mpf_core::rng::stream;
    use rand::RngExt;

    /// Small, and without threads: the test of memory accesses, under Miri and sanitizers.
    #[test]
    fn every_algorithm_gives_the_same_sums() {
        let mut rng = stream(4, 0);
        for (d, n) in [(1, 3), (11, 70)] {
            let mut states = States::new(d).unwrap();
            (0..n).for_each(|_| states.push(&[rng.random_range(0..1 << d)]));
            let samples = Samples::new(&states).unwrap();
            let entries: Vec<(usize, usize)> = (0..d)
                .flat_map(|i| (0..d).map(move |j| (i, j)))
                .filter(|(i, j)| i != j)
                .collect();
            let r: Vec<f64> = (0..d * d).map(|_| rng.random_range(-0.5..0.5)).collect();
            let sums = |algorithm: Algorithm, portable: bool| {
                let kernel = Kernel {
                    algorithm,
                    portable,
                    serial: true,
                };
                let mut engine = MarginEngine::new(&samples, None, 0..d, &entries, kernel);
                for &(i, j) in &entries {
                    engine.set(engine.slot(i, j), r[i * d + j]);
                }
                (0..d).for_each(|i| engine.set_offset(i, r[i * d + i]));
                let value = engine.evaluate(FlowRate::default());
                let grads = entries.iter().map(|&(i, j)| engine.grad(engine.slot(i, j)));
                let mut all: Vec<f64> = grads.collect();
                all.extend((0..d).map(|i| engine.offset_grad(i)));
                all.push(value);
                all
            };
            let expected = sums(Algorithm::Rows, true);
            for algorithm in [Algorithm::Dense, Algorithm::Sparse, Algorithm::Rows] {
                for portable in [true, false] {
                    let off = sums(algorithm, portable).into_iter().zip(&expected);
                    // Sums of at most 70 terms of size 1.
                    let largest = off.fold(0.0f64, |m, (a, b)| m.max((a - b).abs()));
                    assert!(largest < 1e-12, "{algorithm:?} {portable}: {largest}");
                }
            }
        }
    }
}
