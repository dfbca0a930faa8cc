//! The engine: rows in memory, threads over sites, and the two shapes of parameters.
//!
//! A joint fit has θ = (h, J): h_i(a) by site and state, then J_ij(a, b) for i < j by pair, a and b. A
//! node-wise fit has for every site i its own h_i(a), then J_i(a, j, b) by j ≠ i, b and a.

use super::patterns::Patterns;
use super::site::SiteTask;
use super::{Loss, MOST_CODES, Row};
use crate::sequences::Sequences;
use mpf_ising::internal::{Lanes, Number, VectorWork, Vectors, vectorised};
use rayon::prelude::*;
use std::sync::{Arc, Mutex};

/// Most sequences of a chunk. More would share more patterns, but their sums would leave the caches.
const CHUNK: usize = 4096;

/// The sequences as the sums need them.
#[derive(Debug)]
pub(crate) struct Trees {
    n_sites: usize,
    n_states: usize,
    chunks: Vec<Chunk>,
}

#[derive(Debug)]
struct Chunk {
    patterns: Patterns,
    /// The codes by site, then by sequence.
    targets: Vec<u8>,
    weights: Vec<f64>,
}

impl Trees {
    /// Finds the patterns of `sequences`.
    pub(crate) fn new(sequences: &Sequences) -> Self {
        let n_sites = sequences.n_sites();
        let codes = sequences.codes().chunks(CHUNK * n_sites);
        let chunks = codes
            .zip(sequences.weights().chunks(CHUNK))
            .map(|(codes, weights)| {
                let column = |i| codes.iter().skip(i).step_by(n_sites);
                Chunk {
                    patterns: Patterns::new(codes, n_sites),
                    targets: (0..n_sites).flat_map(column).copied().collect(),
                    weights: weights.to_vec(),
                }
            })
            .collect();
        Self {
            n_sites,
            n_states: sequences.n_states(),
            chunks,
        }
    }

    fn n_codes(&self) -> usize {
        self.n_states + 1
    }

    /// Returns the rows of one site.
    fn n_rows(&self) -> usize {
        self.n_sites * self.n_codes()
    }

    fn scratch_rows(&self) -> usize {
        let chunks = self.chunks.iter();
        let rows = chunks.map(|chunk| chunk.weights.len() + chunk.patterns.n_rows);
        rows.max().unwrap_or(0)
    }
}

/// Adds the penalty of the couplings of one pair to their gradient, and returns it.
pub(crate) type PairPenalty<'a> = dyn Fn(&[f64], &mut [f64]) -> f64 + Sync + 'a;

/// Sums of one precision and width of rows.
pub(crate) trait Engine: Send + Sync {
    /// Returns F and its gradient for all sites, with a penalty on every pair while its gradient is in
    /// the cache. Site and thread cannot change a digit.
    fn joint(&mut self, theta: &[f64], grad: &mut [f64], penalty: &PairPenalty<'_>) -> f64;

    /// Returns F and its gradient for one site with parameters of its own.
    fn node(&self, site: usize, theta: &[f64], grad: &mut [f64]) -> f64;
}

/// Returns an engine in `f64`, or in `f32` if it may be `rough`.
pub(crate) fn engine(
    trees: Arc<Trees>,
    loss: Loss,
    vectors: Vectors,
    rough: bool,
) -> Box<dyn Engine> {
    assert!(trees.n_codes() <= MOST_CODES, "sequences check this");
    if rough {
        of_width::<f32>(trees, loss, vectors)
    } else {
        of_width::<f64>(trees, loss, vectors)
    }
}

fn of_width<T: Precision>(trees: Arc<Trees>, loss: Loss, vectors: Vectors) -> Box<dyn Engine> {
    match row_width(trees.n_states) {
        4 => Box::new(Sums::<T, 4>::new(trees, loss, vectors)),
        8 => Box::new(Sums::<T, 8>::new(trees, loss, vectors)),
        20 => Box::new(Sums::<T, 20>::new(trees, loss, vectors)),
        24 => Box::new(Sums::<T, 24>::new(trees, loss, vectors)),
        _ => Box::new(Sums::<T, 32>::new(trees, loss, vectors)),
    }
}

/// Returns the numbers in a row, padding included.
fn row_width(n_states: usize) -> usize {
    let widths = [4, 8, 20, 24];
    widths.into_iter().find(|q| n_states <= *q).unwrap_or(32)
}

/// Returns the bytes that a joint evaluation holds beside θ and its gradient, without the trees.
pub(crate) fn joint_bytes(n_sites: usize, n_states: usize) -> usize {
    let site = n_sites.saturating_mul((n_states + 1) * row_width(n_states) * 8);
    site.saturating_mul(n_sites)
}

/// `f64` or `f32`.
trait Precision: Number {
    /// Chooses the lanes of this type.
    fn sum<const Q: usize, D: Lanes<Number = f64>, S: Lanes<Number = f32>>(
        task: &SiteTask<'_, Self, Q>,
        grads: &mut [Row<Self, Q>],
        scratch: &mut [Row<Self, Q>],
    ) -> f64;
}

macro_rules! precision {
    ($number:ident, $lanes:ident) => {
        impl Precision for $number {
            #[inline(always)]
            fn sum<const Q: usize, D: Lanes<Number = f64>, S: Lanes<Number = f32>>(
                task: &SiteTask<'_, Self, Q>,
                grads: &mut [Row<Self, Q>],
                scratch: &mut [Row<Self, Q>],
            ) -> f64 {
                task.sum::<$lanes>(grads, scratch)
            }
        }
    };
}

precision!(f64, D);
precision!(f32, S);

/// The sums of one site, compiled for the vectors of the machine.
struct Work<'a, T, const Q: usize> {
    task: SiteTask<'a, T, Q>,
    grads: &'a mut [Row<T, Q>],
    scratch: &'a mut [Row<T, Q>],
}

impl<T: Precision, const Q: usize> VectorWork for Work<'_, T, Q> {
    type Output = f64;

    #[inline(always)]
    fn run<D: Lanes<Number = f64>, S: Lanes<Number = f32>>(self) -> f64 {
        T::sum::<Q, D, S>(&self.task, self.grads, self.scratch)
    }
}

/// The memory of one thread.
struct Scratch<T, const Q: usize> {
    rows: Vec<Row<T, Q>>,
    sums: Vec<Row<T, Q>>,
    /// For node-wise sums.
    grads: Vec<Row<T, Q>>,
}

struct Sums<T, const Q: usize> {
    trees: Arc<Trees>,
    loss: Loss,
    vectors: Vectors,
    /// The gradients of the rows of all sites, by site; made by the first joint evaluation.
    grads: Vec<Row<T, Q>>,
    values: Vec<f64>,
    /// What threads have done with.
    pool: Mutex<Vec<Scratch<T, Q>>>,
}

impl<T: Precision, const Q: usize> Sums<T, Q> {
    fn new(trees: Arc<Trees>, loss: Loss, vectors: Vectors) -> Self {
        Self {
            loss,
            vectors,
            grads: Vec::new(),
            values: vec![0.0; trees.n_sites],
            pool: Mutex::default(),
            trees,
        }
    }

    fn zeros(n: usize) -> Vec<Row<T, Q>> {
        vec![[T::nearest(0.0); Q]; n]
    }

    fn with_scratch<R>(&self, f: impl FnOnce(&mut Scratch<T, Q>) -> R) -> R {
        let kept = self.pool.lock().expect("no thread panics here").pop();
        let mut scratch = kept.unwrap_or_else(|| Scratch {
            rows: Self::zeros(self.trees.n_rows()),
            sums: Self::zeros(self.trees.scratch_rows()),
            grads: Vec::new(),
        });
        let result = f(&mut scratch);
        let mut pool = self.pool.lock().expect("no thread panics here");
        pool.push(scratch);
        result
    }

    /// Returns the loss of `site` and writes the gradients of its rows.
    fn site(
        &self,
        site: usize,
        fields: &[f64],
        rows: &[Row<T, Q>],
        sums: &mut [Row<T, Q>],
        grads: &mut [Row<T, Q>],
    ) -> f64 {
        // Far below every energy, and within the range of `f32`.
        let mut row = [T::nearest(-1e30); Q];
        for (lane, &h) in row.iter_mut().zip(fields) {
            *lane = T::nearest(h);
        }
        grads.fill([T::nearest(0.0); Q]);
        let mut value = 0.0;
        for chunk in &self.trees.chunks {
            let n = chunk.weights.len();
            let task = SiteTask {
                patterns: &chunk.patterns,
                targets: &chunk.targets[site * n..(site + 1) * n],
                weights: &chunk.weights,
                n_states: self.trees.n_states,
                rows,
                n_codes: self.trees.n_codes(),
                fields: &row,
                loss: self.loss,
            };
            let work = Work {
                task,
                grads: &mut *grads,
                scratch: &mut *sums,
            };
            value += vectorised(self.vectors, work);
        }
        value
    }

    /// Writes the rows of `site` from the couplings of all pairs.
    fn unpack(&self, site: usize, couplings: &[f64], rows: &mut [Row<T, Q>]) {
        let (n, q) = (self.trees.n_sites, self.trees.n_states);
        for (j, column) in rows.chunks_exact_mut(self.trees.n_codes()).enumerate() {
            if j == site {
                column.fill([T::nearest(0.0); Q]);
                continue;
            }
            let block = &couplings[pair_index(n, site, j) * q * q..][..q * q];
            if j < site {
                for (row, states) in column.iter_mut().zip(block.chunks_exact(q)) {
                    for (lane, &value) in row.iter_mut().zip(states) {
                        *lane = T::nearest(value);
                    }
                }
            } else {
                for (a, states) in block.chunks_exact(q).enumerate() {
                    for (row, &value) in column.iter_mut().zip(states) {
                        row[a] = T::nearest(value);
                    }
                }
            }
        }
    }
}

/// Returns the place of the pair of two different sites among all i < j, by i, then by j.
pub(crate) fn pair_index(n_sites: usize, i: usize, j: usize) -> usize {
    let (i, j) = (i.min(j), i.max(j));
    i * (2 * n_sites - i - 1) / 2 + j - i - 1
}

/// Adds up the gradients of all codes of a column: each sequence has one of them.
fn add_codes<T: Number, const Q: usize>(column: &[Row<T, Q>], fields: &mut [f64]) {
    fields.fill(0.0);
    for row in column {
        for (field, &lane) in fields.iter_mut().zip(row) {
            *field += lane.into();
        }
    }
}

impl<T: Precision, const Q: usize> Engine for Sums<T, Q> {
    fn joint(&mut self, theta: &[f64], grad: &mut [f64], penalty: &PairPenalty<'_>) -> f64 {
        let (n, q) = (self.trees.n_sites, self.trees.n_states);
        let (n_codes, n_rows) = (self.trees.n_codes(), self.trees.n_rows());
        let (fields, couplings) = theta.split_at(n * q);
        let mut grads = std::mem::take(&mut self.grads);
        let mut values = std::mem::take(&mut self.values);
        if grads.is_empty() {
            grads = Self::zeros(n * n_rows);
        }
        grads
            .par_chunks_mut(n_rows)
            .zip(&mut values)
            .enumerate()
            .for_each(|(i, (grads, value))| {
                self.with_scratch(|scratch| {
                    self.unpack(i, couplings, &mut scratch.rows);
                    let fields = &fields[i * q..(i + 1) * q];
                    *value = self.site(i, fields, &scratch.rows, &mut scratch.sums, grads);
                });
            });

        let column = |i: usize, j: usize| &grads[i * n_rows + j * n_codes..][..n_codes];
        let (field_grads, mut rest) = grad.split_at_mut(n * q);
        for (i, fields) in field_grads.chunks_exact_mut(q).enumerate() {
            add_codes(column(i, i), fields);
        }
        let mut couplings = couplings;
        let mut by_site = Vec::with_capacity(n);
        for (i, value) in values.iter_mut().enumerate() {
            let (pairs, later) = rest.split_at_mut((n - 1 - i) * q * q);
            let own;
            (own, couplings) = couplings.split_at(pairs.len());
            by_site.push((own, pairs, value));
            rest = later;
        }
        let sites = by_site.into_par_iter().enumerate();
        sites.for_each(|(i, (couplings, pairs, value))| {
            let blocks = pairs.chunks_exact_mut(q * q);
            for ((j, block), couplings) in (i + 1..).zip(blocks).zip(couplings.chunks_exact(q * q))
            {
                let (of_i, of_j) = (column(i, j), column(j, i));
                for (a, (states, row)) in block.chunks_exact_mut(q).zip(of_j).enumerate() {
                    for ((grad, &lane), other) in states.iter_mut().zip(row).zip(of_i) {
                        *grad = lane.into() + other[a].into();
                    }
                }
                *value += penalty(couplings, block);
            }
        });
        let value = values.iter().sum();
        (self.grads, self.values) = (grads, values);
        value
    }

    fn node(&self, site: usize, theta: &[f64], grad: &mut [f64]) -> f64 {
        let (q, n_codes) = (self.trees.n_states, self.trees.n_codes());
        let (fields, couplings) = theta.split_at(q);
        self.with_scratch(|scratch| {
            let Scratch { rows, sums, grads } = scratch;
            grads.resize(self.trees.n_rows(), [T::nearest(0.0); Q]);
            rows[site * n_codes..(site + 1) * n_codes].fill([T::nearest(0.0); Q]);
            let mut blocks = couplings.chunks_exact(q * q);
            for (j, column) in rows.chunks_exact_mut(n_codes).enumerate() {
                if j == site {
                    continue;
                }
                let block = blocks.next().expect("a block for every other site");
                for (row, states) in column.iter_mut().zip(block.chunks_exact(q)) {
                    for (lane, &value) in row.iter_mut().zip(states) {
                        *lane = T::nearest(value);
                    }
                }
            }
            let value = self.site(site, fields, rows, sums, grads);
            let (field_grads, rest) = grad.split_at_mut(q);
            let mut blocks = rest.chunks_exact_mut(q * q);
            for (j, column) in grads.chunks_exact(n_codes).enumerate() {
                if j == site {
                    add_codes(column, field_grads);
                    continue;
                }
                let block = blocks.next().expect("a block for every other site");
                for (states, row) in block.chunks_exact_mut(q).zip(column) {
                    for (grad, &lane) in states.iter_mut().zip(row) {
                        *grad = lane.into();
                    }
                }
            }
            value
        })
    }
}
