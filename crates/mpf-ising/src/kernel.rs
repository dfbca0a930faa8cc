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
//! Work is cut into a fixed grid, panels of units × chunks of samples, and partial sums are added
//! in the grid's order, so that the number of threads cannot change a digit. Nothing of size
//! M × d exists but the bits.

use crate::bits::{Samples, for_each_set_bit, get_bit};
use rayon::prelude::*;

/// φ, a convex decreasing function of the margin a = s_i (h_i + Σ_j K_ij s_j): large where unit i
/// is much likelier in its own state than flipped.
pub trait MarginLoss: Copy + Send + Sync {
    /// (φ(a), φ′(a)).
    fn value_and_slope(self, margin: f64) -> (f64, f64);
}

/// φ(a) = exp(−a − shift): the rate of the flip, which MPF (and RISE) sum.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowRate {
    /// Taken out of every exponent; 0 for K itself.
    pub shift: f64,
}

impl MarginLoss for FlowRate {
    #[inline]
    fn value_and_slope(self, margin: f64) -> (f64, f64) {
        let rate = (-margin - self.shift).exp();
        (rate, -rate)
    }
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

    pub(crate) fn row(&self, sample: usize) -> &[u64] {
        &self.bits[sample * self.words..(sample + 1) * self.words]
    }

    pub(crate) fn par_rows_mut(&mut self) -> impl IndexedParallelIterator<Item = &mut [u64]> {
        self.bits.par_chunks_exact_mut(self.words)
    }
}

/// Units in a panel of the joint sum: their z fit into registers or the nearest cache.
const PANEL: usize = 16;
/// Most samples in a chunk.
const CHUNK: usize = 8192;
/// About as many tasks as keep a large machine busy; more chunks than this need only memory.
const TASKS: usize = 256;

/// R, c and what comes of them, for the units `first .. first + n_units`.
///
/// Rows are stored panel by panel and transposed within, so that one set bit adds one contiguous
/// run of numbers to the z of a whole panel.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    first: usize,
    n_units: usize,
    /// Columns of R: all units of the samples.
    n_columns: usize,
    panel: usize,
    /// `[panel][column][unit in panel]`.
    rows: Vec<f64>,
    /// `[unit]`, padded to whole panels.
    offsets: Vec<f64>,
    row_grads: Vec<f64>,
    offset_grads: Vec<f64>,
}

impl Rows {
    /// Zeros for `n_units` units from `first` on, of samples with `n_columns` units.
    pub(crate) fn new(first: usize, n_units: usize, n_columns: usize) -> Self {
        let panel = if n_units == 1 { 1 } else { PANEL };
        let padded = n_units.div_ceil(panel) * panel;
        Self {
            first,
            n_units,
            n_columns,
            panel,
            rows: vec![0.0; padded * n_columns],
            offsets: vec![0.0; padded],
            row_grads: vec![0.0; padded * n_columns],
            offset_grads: vec![0.0; padded],
        }
    }

    fn at(&self, unit: usize, column: usize) -> usize {
        let k = unit - self.first;
        (k / self.panel * self.n_columns + column) * self.panel + k % self.panel
    }

    /// Sets R_ij.
    pub(crate) fn set(&mut self, unit: usize, column: usize, value: f64) {
        let at = self.at(unit, column);
        self.rows[at] = value;
    }

    /// Sets c_i.
    pub(crate) fn set_offset(&mut self, unit: usize, value: f64) {
        self.offsets[unit - self.first] = value;
    }

    /// G_ij.
    pub(crate) fn grad(&self, unit: usize, column: usize) -> f64 {
        self.row_grads[self.at(unit, column)]
    }

    /// r_i.
    pub(crate) fn offset_grad(&self, unit: usize) -> f64 {
        self.offset_grads[unit - self.first]
    }

    /// F / Σ w, with G and r (over Σ w too) left in `self`.
    pub(crate) fn evaluate(
        &mut self,
        samples: &Samples,
        left_out: Option<&LeftOut>,
        loss: impl MarginLoss,
    ) -> f64 {
        match self.panel {
            1 => self.evaluate_panels::<1>(samples, left_out, loss),
            _ => self.evaluate_panels::<PANEL>(samples, left_out, loss),
        }
    }

    fn evaluate_panels<const P: usize>(
        &mut self,
        samples: &Samples,
        left_out: Option<&LeftOut>,
        loss: impl MarginLoss,
    ) -> f64 {
        let n_panels = self.offsets.len() / P;
        let per_panel = chunks_per_panel(samples.n_distinct(), n_panels);
        let chunk = samples.n_distinct().div_ceil(per_panel);
        let this = &*self;
        let partials: Vec<Partial<P>> = (0..n_panels * per_panel)
            .into_par_iter()
            .map(|task| {
                let (panel, part) = (task / per_panel, task % per_panel);
                let from = (part * chunk).min(samples.n_distinct());
                let to = (from + chunk).min(samples.n_distinct());
                this.sum_panel(panel, samples, from..to, left_out, loss)
            })
            .collect();

        self.row_grads.fill(0.0);
        self.offset_grads.fill(0.0);
        let mut value = 0.0;
        let scale = 1.0 / samples.total_weight();
        for (task, partial) in partials.iter().enumerate() {
            let panel = task / per_panel;
            value += partial.value;
            let offsets = &mut self.offset_grads[panel * P..][..P];
            for (sum, part) in offsets.iter_mut().zip(&partial.offsets) {
                *sum += scale * part;
            }
            let rows = &mut self.row_grads[panel * P * self.n_columns..][..P * self.n_columns];
            for (sum, part) in rows.iter_mut().zip(partial.rows.as_flattened()) {
                *sum += scale * part;
            }
        }
        value * scale
    }

    fn sum_panel<const P: usize>(
        &self,
        panel: usize,
        samples: &Samples,
        range: std::ops::Range<usize>,
        left_out: Option<&LeftOut>,
        loss: impl MarginLoss,
    ) -> Partial<P> {
        let first = self.first + panel * P;
        let width = P.min(self.n_units - panel * P);
        let rows = self.rows[panel * P * self.n_columns..][..P * self.n_columns]
            .as_chunks::<P>()
            .0;
        let offsets: [f64; P] = std::array::from_fn(|k| self.offsets[panel * P + k]);
        let mut sums = Partial::<P>::new(self.n_columns);
        for m in range {
            let x = samples.states().row(m);
            let mut z = offsets;
            for_each_set_bit(x, |j| {
                for (z, r) in z.iter_mut().zip(&rows[j]) {
                    *z += r;
                }
            });
            let weight = samples.weight(m);
            let mut slopes = [0.0; P];
            for (k, (slope, z)) in slopes.iter_mut().zip(z).enumerate().take(width) {
                if left_out.is_some_and(|l| get_bit(l.row(m), first + k)) {
                    continue;
                }
                let s = if get_bit(x, first + k) { 1.0 } else { -1.0 };
                let (value, d_value) = loss.value_and_slope(-s * z);
                sums.value += weight * value;
                *slope = -weight * s * d_value;
            }
            for (sum, slope) in sums.offsets.iter_mut().zip(slopes) {
                *sum += slope;
            }
            for_each_set_bit(x, |j| {
                for (g, slope) in sums.rows[j].iter_mut().zip(slopes) {
                    *g += slope;
                }
            });
        }
        sums
    }

    /// The largest −a over all samples and flips: the shift that keeps exp(−a) below 1.
    pub(crate) fn largest_exponent(&self, samples: &Samples, left_out: Option<&LeftOut>) -> f64 {
        (0..samples.n_distinct())
            .into_par_iter()
            .map(|m| {
                let x = samples.states().row(m);
                let mut largest = f64::NEG_INFINITY;
                for i in self.first..self.first + self.n_units {
                    if left_out.is_some_and(|l| get_bit(l.row(m), i)) {
                        continue;
                    }
                    let mut z = self.offsets[i - self.first];
                    for_each_set_bit(x, |j| z += self.rows[self.at(i, j)]);
                    largest = largest.max(if get_bit(x, i) { z } else { -z });
                }
                largest
            })
            .reduce(|| f64::NEG_INFINITY, f64::max)
    }

    /// An upper bound of |z|: below about 700 no exponential of it can overflow.
    pub(crate) fn margin_bound(&self) -> f64 {
        let mut bounds: Vec<f64> = self.offsets.iter().map(|c| c.abs()).collect();
        let size = self.panel * self.n_columns;
        for (panel, rows) in self.rows.chunks_exact(size).enumerate() {
            for (at, r) in rows.iter().enumerate() {
                bounds[panel * self.panel + at % self.panel] += r.abs();
            }
        }
        bounds.into_iter().fold(0.0, f64::max)
    }
}

/// What one task adds up.
struct Partial<const P: usize> {
    value: f64,
    offsets: [f64; P],
    rows: Vec<[f64; P]>,
}

impl<const P: usize> Partial<P> {
    fn new(n_columns: usize) -> Self {
        Self {
            value: 0.0,
            offsets: [0.0; P],
            rows: vec![[0.0; P]; n_columns],
        }
    }
}

/// Depends on the problem alone, never on the machine.
fn chunks_per_panel(n_samples: usize, n_panels: usize) -> usize {
    n_samples
        .div_ceil(CHUNK)
        .min(TASKS.div_ceil(n_panels))
        .max(1)
}
