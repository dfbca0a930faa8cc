//! Slopes and curvatures of single samples, and the variances that follow from them.

use super::ErrorBars;
use crate::Result;
use crate::bits::{States, get_bit};
use crate::blocks::part;
use crate::couplings::{Couplings, SpinCouplings};
use crate::error::{Error, check_units};
use crate::fit::FitOptions;
use crate::kernel::MarginLoss;
use crate::support::Biases;
use mpf_core::Cancel;
use mpf_core::linalg::positive_definite_inverse_until;
use ndarray::linalg::general_mat_mul;
use ndarray::{Array1, Array2, ArrayViewMut1, s};
use rayon::prelude::*;

/// Samples, or blocks, that are multiplied together.
const TILE: usize = 64;
/// Tiles whose sums are held at a time.
const HELD_TILES: usize = 64;

/// The most often that a Newton step is halved.
const MOST_HALVINGS: usize = 12;

/// A Newton step raises the sum over samples by less than this share of it, or is too long. The rows
/// of a node-wise fit need not lower the sum over all of them.
const SLACK_OF_ROWS: f64 = 1e-3;

/// The largest change of h and K in a step that ends near the minimum: the square of it is left.
const SHORT: f64 = 0.02;

/// A step towards the minimum of the sum over samples.
pub(super) struct NewtonStep {
    pub(super) to: SpinCouplings,
    /// Whether it ends at the minimum, near enough. An estimate that runs away makes steps of about
    /// the same length for ever.
    pub(super) is_last: bool,
}

/// H⁻¹, whole or by rows.
pub(super) enum Inverse {
    Joint(Array2<f64>),
    Rows(Vec<Array2<f64>>),
}

/// ∇f and ∇²f of single samples, kept as rows: (h_i, K_ij of its neighbours) for every unit i.
pub(super) struct Scores<'a> {
    cancel: Cancel,
    states: &'a States,
    loss: MarginLoss,
    spins: SpinCouplings,
    pub(super) pairs: Vec<(usize, usize)>,
    neighbours: Vec<Vec<usize>>,
    /// Units with a coupling to each unit that is held as it is.
    held: Vec<Vec<usize>>,
    /// Where the row of a unit begins; its first entry is h_i.
    starts: Vec<usize>,
    /// For every entry of the rows, its index among (h of all units, K of the pairs).
    places: Vec<usize>,
    free_field: Vec<bool>,
}

impl<'a> Scores<'a> {
    pub(super) fn new(
        options: &FitOptions,
        couplings: &Couplings,
        states: &'a States,
        loss: MarginLoss,
        is_free: &dyn Fn(usize, usize) -> bool,
    ) -> Result<Self> {
        let d = states.n_units();
        check_units("couplings", d, couplings.n_units())?;
        if matches!(options.biases, Biases::Fixed(_)) {
            return Err(Error::NoErrorBars {
                reason: "a fixed J_ii ties the field to the couplings; fix the fields instead",
            });
        }
        options.biases.check(d)?;
        let columns = states.columns();
        let words = columns.len() / d;
        let ones = |i: usize| -> u64 {
            let column = &columns[i * words..(i + 1) * words];
            column.iter().map(|w| u64::from(w.count_ones())).sum()
        };
        let varies: Vec<bool> = (0..d)
            .map(|i| (1..states.n_samples() as u64).contains(&ones(i)))
            .collect();
        let spins = couplings.to_spins();
        let mut pairs = options.support.pairs(d)?;
        pairs.retain(|&(i, j)| {
            let present = options.l1 == 0.0 || spins.couplings[[i, j]] != 0.0;
            present && varies[i] && varies[j]
        });
        let mut held = vec![Vec::new(); d];
        pairs.retain(|&(i, j)| {
            let free = is_free(i, j);
            if !free {
                held[i].push(j);
                held[j].push(i);
            }
            free
        });
        let mut neighbours = vec![Vec::new(); d];
        for &(i, j) in &pairs {
            neighbours[i].push(j);
            neighbours[j].push(i);
        }
        let mut starts = vec![0];
        for list in &mut neighbours {
            list.sort_unstable();
            starts.push(starts[starts.len() - 1] + 1 + list.len());
        }
        let slot = |i: usize, j: usize| {
            starts[i] + 1 + neighbours[i].binary_search(&j).expect("a neighbour")
        };
        let mut places = vec![0; starts[d]];
        for (unit, &start) in starts[..d].iter().enumerate() {
            places[start] = unit;
        }
        for (q, &(i, j)) in pairs.iter().enumerate() {
            places[slot(i, j)] = d + q;
            places[slot(j, i)] = d + q;
        }
        Ok(Self {
            places,
            free_field: varies
                .into_iter()
                .map(|varies| varies && options.biases == Biases::Free)
                .collect(),
            cancel: options.minimizer.cancel.clone(),
            states,
            loss,
            spins,
            pairs,
            neighbours,
            held,
            starts,
        })
    }

    /// Computes the parts of `n_tiles` tiles in parallel, and adds them in their order. Few are held at a
    /// time.
    fn add_up<T: Send>(
        &self,
        n_tiles: usize,
        of_tile: impl Fn(usize) -> T + Sync,
        mut add: impl FnMut(T),
    ) -> Result<()> {
        for first in (0..n_tiles).step_by(HELD_TILES) {
            let some = first..n_tiles.min(first + HELD_TILES);
            let parts = some.into_par_iter().map(|tile| {
                self.cancel.check()?;
                Ok(of_tile(tile))
            });
            let parts: Vec<T> = parts.collect::<Result<_>>()?;
            parts.into_iter().for_each(&mut add);
        }
        Ok(())
    }

    fn spin(&self, sample: usize, unit: usize) -> f64 {
        if get_bit(self.states.row(sample), unit) {
            1.0
        } else {
            -1.0
        }
    }

    /// Returns mean φ″ u uᵀ of every row, with half of the ridge on couplings. The row and column
    /// of a field that is not free are those of the identity.
    pub(super) fn row_hessians(&self, options: &FitOptions) -> Result<Vec<Array2<f64>>> {
        let n = self.states.n_samples();
        (0..self.neighbours.len())
            .into_par_iter()
            .map(|unit| {
                let list = &self.neighbours[unit];
                let size = 1 + list.len();
                let mut hessian = Array2::zeros((size, size));
                let mut design = Array2::zeros((TILE, size));
                let mut weighted = Array2::zeros((TILE, size));
                for start in (0..n).step_by(TILE) {
                    self.cancel.check()?;
                    let here = TILE.min(n - start);
                    for k in 0..here {
                        let m = start + k;
                        let mut field = self.spins.fields[unit];
                        for &j in &self.held[unit] {
                            field += self.spins.couplings[[unit, j]] * self.spin(m, j);
                        }
                        design[[k, 0]] = 1.0;
                        for (slot, &j) in list.iter().enumerate() {
                            let spin = self.spin(m, j);
                            design[[k, 1 + slot]] = spin;
                            field += self.spins.couplings[[unit, j]] * spin;
                        }
                        let curvature = self.loss.curvature(field * self.spin(m, unit));
                        let scaled = &design.row(k) * (curvature / n as f64);
                        weighted.row_mut(k).assign(&scaled);
                    }
                    let (design, weighted) =
                        (design.slice(s![..here, ..]), weighted.slice(s![..here, ..]));
                    general_mat_mul(1.0, &design.t(), &weighted, 1.0, &mut hessian);
                }
                for k in 1..size {
                    hessian[[k, k]] += 0.5 * options.l2;
                }
                if options.l2_on_fields {
                    hessian[[0, 0]] += options.l2;
                }
                if !self.free_field[unit] {
                    hessian.row_mut(0).fill(0.0);
                    hessian.column_mut(0).fill(0.0);
                    hessian[[0, 0]] = 1.0;
                }
                Ok(hessian)
            })
            .collect()
    }

    pub(super) fn joint_inverse(&self, hessians: &[Array2<f64>]) -> Result<Array2<f64>> {
        let d = self.neighbours.len();
        let p = d + self.pairs.len();
        let mut joint = Array2::zeros((p, p));
        for (unit, hessian) in hessians.iter().enumerate() {
            let places = &self.places[self.starts[unit]..self.starts[unit + 1]];
            for ((a, b), value) in hessian.indexed_iter() {
                joint[[places[a], places[b]]] += value;
            }
        }
        self.inverse(&joint, |pivot| match pivot.checked_sub(d) {
            None => (pivot, pivot),
            Some(q) => self.pairs[q],
        })
    }

    pub(super) fn row_inverses(&self, hessians: &[Array2<f64>]) -> Result<Vec<Array2<f64>>> {
        hessians
            .par_iter()
            .enumerate()
            .map(|(unit, hessian)| {
                self.inverse(hessian, |pivot| match pivot.checked_sub(1) {
                    None => (unit, unit),
                    Some(slot) => (unit, self.neighbours[unit][slot]),
                })
            })
            .collect()
    }

    /// Inverts a Hessian. `of` says of which units the parameter in a row is.
    fn inverse(
        &self,
        hessian: &Array2<f64>,
        of: impl Fn(usize) -> (usize, usize),
    ) -> Result<Array2<f64>> {
        positive_definite_inverse_until(hessian.view(), &self.cancel).map_err(|error| match error {
            mpf_core::Error::NotPositiveDefinite { pivot } => {
                let (i, j) = of(pivot);
                Error::Undetermined { i, j }
            }
            other => other.into(),
        })
    }

    /// Adds ∇f of one sample to `rows`. `spins` is scratch space, one number per unit.
    fn add_score(&self, sample: usize, spins: &mut [f64], mut rows: ArrayViewMut1<'_, f64>) {
        self.for_each_margin(&self.spins, sample, spins, |i, margin, spins| {
            let slope = self.loss.value_and_slope(margin).1 * spins[i];
            if self.free_field[i] {
                rows[self.starts[i]] += slope;
            }
            for (slot, &j) in self.neighbours[i].iter().enumerate() {
                rows[self.starts[i] + 1 + slot] += slope * spins[j];
            }
        });
    }

    /// Visits the units of one sample with their margins at `parameters`, and all spins.
    fn for_each_margin(
        &self,
        parameters: &SpinCouplings,
        sample: usize,
        spins: &mut [f64],
        mut visit: impl FnMut(usize, f64, &[f64]),
    ) {
        for (i, spin) in spins.iter_mut().enumerate() {
            *spin = self.spin(sample, i);
        }
        for (i, list) in self.neighbours.iter().enumerate() {
            let row = parameters.couplings.row(i);
            let coupled = list.iter().chain(&self.held[i]);
            let field = coupled.map(|&j| row[j] * spins[j]).sum::<f64>();
            let margin = spins[i] * (parameters.fields[i] + field);
            visit(i, margin, spins);
        }
    }

    /// Returns a Newton step of the sum over samples, halved until it does not raise the sum: far from
    /// the minimum a whole step can end where the curvature vanishes.
    pub(super) fn newton_step(&self, inverse: &Inverse) -> Result<NewtonStep> {
        let n = self.states.n_samples();
        let width = self.starts[self.neighbours.len()];
        let mut slope = Array2::<f64>::zeros((1, width));
        let of_tile = |tile: usize| {
            let mut rows = Array2::zeros((1, width));
            let mut spins = vec![0.0; self.neighbours.len()];
            for m in tile * TILE..n.min((tile + 1) * TILE) {
                self.add_score(m, &mut spins, rows.row_mut(0));
            }
            rows
        };
        self.add_up(n.div_ceil(TILE), of_tile, |tile| slope += &tile)?;
        slope /= n as f64;
        let (h, k) = self.influences(&slope, inverse);
        let changes = h.iter().chain(&k);
        let is_short = changes.fold(0.0f64, |most, c| most.max(c.abs())) <= SHORT;
        let value = self.mean_loss(&self.spins)?;
        let slack = match inverse {
            Inverse::Joint(_) => 1e-9,
            Inverse::Rows(_) => SLACK_OF_ROWS,
        };
        for halvings in 0..=MOST_HALVINGS {
            let length = 0.5f64.powi(halvings as i32);
            let to = self.moved(length, &h, &k);
            let mut all = to.fields.iter().chain(&to.couplings);
            if all.all(|v| v.is_finite()) && self.mean_loss(&to)? <= value + slack * value.abs() {
                return Ok(NewtonStep {
                    to,
                    is_last: is_short && halvings == 0,
                });
            }
        }
        let (i, j) = self.largest();
        Err(Error::Undetermined { i, j })
    }

    /// Returns the parameters less `length` times (h, K of the pairs).
    fn moved(&self, length: f64, h: &Array2<f64>, k: &Array2<f64>) -> SpinCouplings {
        let mut spins = self.spins.clone();
        for (i, free) in self.free_field.iter().enumerate() {
            if *free {
                spins.fields[i] -= length * h[[0, i]];
            }
        }
        for (q, &(i, j)) in self.pairs.iter().enumerate() {
            spins.couplings[[i, j]] -= length * k[[0, q]];
            spins.couplings[[j, i]] = spins.couplings[[i, j]];
        }
        spins
    }

    /// Returns the mean over samples of Σ_i φ(a_i).
    fn mean_loss(&self, at: &SpinCouplings) -> Result<f64> {
        let n = self.states.n_samples();
        let of_tile = |tile: usize| {
            let mut spins = vec![0.0; self.neighbours.len()];
            let mut sum = 0.0;
            for m in tile * TILE..n.min((tile + 1) * TILE) {
                self.for_each_margin(at, m, &mut spins, |_, margin, _| {
                    sum += self.loss.value_and_slope(margin).0;
                });
            }
            sum
        };
        let mut sum = 0.0;
        self.add_up(n.div_ceil(TILE), of_tile, |tile| sum += tile)?;
        Ok(sum / n as f64)
    }

    /// Returns the free pair with the largest coupling, or unit 0 twice if there is none.
    pub(super) fn largest(&self) -> (usize, usize) {
        let size = |&(i, j): &(usize, usize)| self.spins.couplings[[i, j]].abs();
        let pairs = self.pairs.iter().copied();
        pairs
            .max_by(|a, b| size(a).total_cmp(&size(b)))
            .unwrap_or_default()
    }

    /// Returns the error bars from squared sums of influences over blocks.
    pub(super) fn error_bars(&self, inverse: &Inverse, n_blocks: usize) -> Result<ErrorBars> {
        let n = self.states.n_samples();
        let width = self.starts[self.neighbours.len()];
        let scores = |tile: usize| {
            let first = tile * TILE;
            let mut rows = Array2::zeros((TILE.min(n_blocks - first), width));
            let mut spins = vec![0.0; self.neighbours.len()];
            for k in 0..rows.nrows() {
                for m in part(n, n_blocks, first + k) {
                    self.add_score(m, &mut spins, rows.row_mut(k));
                }
            }
            rows
        };
        let tiles = n_blocks.div_ceil(TILE);
        // At a penalised minimum the scores do not average to zero.
        let mut mean = Array1::<f64>::zeros(width);
        let sum = |tile| scores(tile).sum_axis(ndarray::Axis(0));
        self.add_up(tiles, sum, |sum| mean += &sum)?;
        mean /= n as f64;
        let d = self.neighbours.len();
        let mut total = [d, d, self.pairs.len()].map(Array1::<f64>::zeros);
        let squares = |tile| {
            let mut rows = scores(tile);
            for (k, mut row) in rows.rows_mut().into_iter().enumerate() {
                let length = part(n, n_blocks, tile * TILE + k).len();
                row.scaled_add(-(length as f64), &mean);
            }
            self.squared_influences(&rows, inverse)
        };
        self.add_up(tiles, squares, |part| {
            total
                .iter_mut()
                .zip(&part)
                .for_each(|(sum, part)| *sum += part);
        })?;
        if !total.iter().flatten().all(|v| v.is_finite()) {
            return Err(Error::NoErrorBars {
                reason: "the slopes of single samples overflow at couplings so large",
            });
        }
        // The mean was fitted, which takes one degree of freedom.
        let scale = n_blocks as f64 / (n_blocks - 1) as f64 / (n as f64 * n as f64);
        let [mut fields, mut biases, couplings] = total.map(|values| (values * scale).to_vec());
        for (i, free) in self.free_field.iter().enumerate() {
            if !free {
                fields[i] = f64::NAN;
                if self.neighbours[i].is_empty() {
                    biases[i] = f64::NAN;
                }
            }
        }
        Ok(ErrorBars::from_variances(
            &fields,
            &biases,
            &self.pairs,
            &couplings,
        ))
    }

    /// Returns H⁻¹ times every row of scores: its parts for h and for the K of the pairs.
    fn influences(&self, rows: &Array2<f64>, inverse: &Inverse) -> (Array2<f64>, Array2<f64>) {
        let d = self.neighbours.len();
        let mut h = Array2::zeros((rows.nrows(), d));
        let mut k = Array2::zeros((rows.nrows(), self.pairs.len()));
        match inverse {
            Inverse::Joint(inverse) => {
                let mut scores = Array2::zeros((rows.nrows(), d + self.pairs.len()));
                for (column, &place) in rows.columns().into_iter().zip(&self.places) {
                    let mut sum = scores.column_mut(place);
                    sum += &column;
                }
                let influences = scores.dot(inverse);
                h.assign(&influences.slice(s![.., ..d]));
                k.assign(&influences.slice(s![.., d..]));
            }
            Inverse::Rows(inverses) => {
                for (unit, inverse) in inverses.iter().enumerate() {
                    let row = rows.slice(s![.., self.starts[unit]..self.starts[unit + 1]]);
                    let influences = row.dot(inverse);
                    h.column_mut(unit).assign(&influences.column(0));
                    for (slot, column) in influences.columns().into_iter().enumerate().skip(1) {
                        let pair = self.places[self.starts[unit] + slot] - d;
                        k.column_mut(pair).scaled_add(0.5, &column);
                    }
                }
            }
        }
        (h, k)
    }

    /// Returns the sums of squares of the influences on fields, biases and couplings.
    fn squared_influences(&self, rows: &Array2<f64>, inverse: &Inverse) -> [Array1<f64>; 3] {
        let (h, k) = self.influences(rows, inverse);
        // J_ii = −2 h_i + 2 Σ_j K_ij.
        let mut biases = -2.0 * &h;
        for (column, &(i, j)) in k.columns().into_iter().zip(&self.pairs) {
            biases.column_mut(i).scaled_add(2.0, &column);
            biases.column_mut(j).scaled_add(2.0, &column);
        }
        [h, biases, k].map(|values| {
            let columns = values.columns().into_iter();
            columns.map(|c| c.iter().map(|v| v * v).sum()).collect()
        })
    }
}
