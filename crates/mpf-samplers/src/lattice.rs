//! Exact, independent draws from an Ising model on an open rectangular lattice.
//!
//! ```text
//! p(x) ∝ exp(−xᵀJx),  x ∈ {0,1}^d,  J_ij ≠ 0 only between nearest neighbours
//!
//! L_t(f) = ln Σ exp(−E of sites 0..=t)   over all x whose last w sites read f
//! L_t(f) = −x_t (J_tt + 2 J_t,left x_left) + ln Σ_{x_up} exp(L_{t−1}(f′) − 2 J_t,up x_t x_up)
//! ```
//!
//! Sites are added one by one along the longer side; f, the *front*, holds the newest site of
//! each of the w columns (w the smaller side), and f′ is f with x_up in place of x_t. The site
//! that leaves the front has p(x_up = 1 | f) = σ(L_{t−1}(f′: x_up = 1) − 2 J_t,up x_t −
//! L_{t−1}(f′: x_up = 0)): those tables, read backwards, draw a state site by site, and pushing
//! probabilities through them instead of draws gives every mean and pair correlation exactly.
//! After the last site, w more of value 0 and without couplings empty the front, and the last L
//! is ln Z.
//!
//! The paper drew its 10×10 data (Figure 2) by Swendsen-Wang; this replaces it there. Not for
//! wide lattices, joined rims or longer-range couplings: use [`Tempering`](crate::Tempering).

use crate::Result;
use crate::error::Error;
use crate::row::{RowSampler, draw_in_chunks};
use crate::sampler::Sampler;
use mpf_core::check_count;
use mpf_ising::internal::spin_correlations;
use mpf_ising::{Boundary, Couplings, Lattice, States};
use ndarray::Array2;
use rand::{Rng, RngExt};
use rayon::prelude::*;

/// Draws that share a random stream. Draws of a seed depend on it.
const CHUNK: usize = 512;

/// An Ising model on an open lattice, solved.
///
/// Holds d · 2^w probabilities: 0.8 MB for 10×10, 26 MB for 14×14.
///
/// ```
/// use mpf_ising::{Boundary, Couplings, Lattice};
/// use mpf_samplers::ExactLattice;
///
/// let lattice = Lattice::new(2, 3, Boundary::Open)?;
/// let exact = ExactLattice::new(&Couplings::zeros(6)?, &lattice)?;
/// assert!((exact.log_z() - 64f64.ln()).abs() < 1e-14);
/// assert_eq!(exact.draw(10, 1).n_samples(), 10);
/// # Ok::<(), mpf_samplers::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ExactLattice {
    width: usize,
    /// The unit at every site, in the order of the sites.
    units: Vec<usize>,
    log_z: f64,
    /// For every site k, p(x_k = 1 | front after site k + w), 2^w numbers.
    leave: Vec<f64>,
    /// A list without draws.
    empty: States,
}

impl ExactLattice {
    /// The widest lattice (smaller side) that is accepted.
    pub const MAX_WIDTH: usize = 14;

    /// Solves the model. O(d 2^w) logarithms.
    ///
    /// # Errors
    /// [`Error::LatticeTooWide`], [`Error::PeriodicLattice`], [`Error::OffLattice`] with the
    /// first coupled pair that is not an edge, [`mpf_core::Error::Count`] when couplings and
    /// lattice differ in size.
    pub fn new(couplings: &Couplings, lattice: &Lattice) -> Result<Self> {
        crate::error::check_no_potential("the transfer matrix", couplings)?;
        let (rows, columns) = (lattice.rows(), lattice.columns());
        let d = lattice.n_units();
        check_count("units of the lattice", couplings.n_units(), d)?;
        let width = rows.min(columns);
        if width > Self::MAX_WIDTH {
            return Err(Error::LatticeTooWide {
                rows,
                columns,
                width,
                limit: Self::MAX_WIDTH,
            });
        }
        if lattice.boundary() != Boundary::Open {
            return Err(Error::PeriodicLattice { rows, columns });
        }
        check_edges(couplings, rows, columns)?;

        let units: Vec<usize> = if columns <= rows {
            (0..d).collect()
        } else {
            (0..d).map(|t| t % rows * columns + t / rows).collect()
        };
        let size = 1usize << width;
        let mut log_weights = vec![f64::NEG_INFINITY; size];
        log_weights[0] = 0.0;
        let mut next = vec![0.0; size];
        let mut leave = vec![0.0; d * size];
        for t in 0..d + width {
            let column = t % width;
            let site = Site::new(couplings, &units, width, t);
            let unused = &mut [][..];
            let table = if t < width {
                unused
            } else {
                &mut leave[(t - width) * size..(t - width + 1) * size]
            };
            for front in 0..size {
                let x = front >> column & 1 == 1;
                let without = log_weights[front & !(1 << column)];
                let mut with = log_weights[front | 1 << column];
                let mut own = 0.0;
                if x {
                    with -= site.up;
                    let left = column > 0 && front >> (column - 1) & 1 == 1;
                    own = if left {
                        site.bias - site.left
                    } else {
                        site.bias
                    };
                }
                next[front] = log_add_exp(with, without) + own;
                if t >= width && with > f64::NEG_INFINITY {
                    table[front] = logistic(with - without);
                }
            }
            std::mem::swap(&mut log_weights, &mut next);
        }
        Ok(Self {
            width,
            units,
            log_z: log_weights[0],
            leave,
            empty: States::new(d)?,
        })
    }

    /// Returns the number of units.
    pub fn n_units(&self) -> usize {
        self.units.len()
    }

    /// Returns ln Z = ln Σ_x exp(−xᵀJx) over x ∈ {0,1}^d, with all constants.
    pub fn log_z(&self) -> f64 {
        self.log_z
    }

    /// Draws `n` independent states. Equal for any number of threads.
    pub fn draw(&self, n: usize, seed: u64) -> States {
        draw_in_chunks(n, CHUNK, seed, &self.empty, |n, rng| {
            let words = self.empty.words_per_row();
            let mut rows = vec![0u64; n * words];
            self.draw_rows(&mut rows, &mut vec![0; n], rng);
            let mut states = self.empty.clone();
            rows.chunks_exact(words).for_each(|row| states.push(row));
            states
        })
    }

    /// Draws rows that are zero site by site, so that the table of a site stays in the fastest
    /// cache; `fronts` is scratch, a zero for each.
    fn draw_rows<R: Rng + ?Sized>(&self, rows: &mut [u64], fronts: &mut [u32], rng: &mut R) {
        let words = self.empty.words_per_row();
        for (site, table) in self.tables().enumerate().rev() {
            let column = site % self.width;
            let unit = self.units[site];
            for (front, row) in fronts.iter_mut().zip(rows.chunks_exact_mut(words)) {
                let x = rng.random::<f64>() < table[*front as usize];
                *front = *front & !(1 << column) | u32::from(x) << column;
                row[unit / 64] |= u64::from(x) << (unit % 64);
            }
        }
    }

    /// Returns ⟨x_i⟩ of every unit, exact but for rounding. O(d 2^w).
    pub fn means(&self) -> Vec<f64> {
        let mut means = vec![0.0; self.n_units()];
        let mut p = self.empty_front();
        for (site, table) in self.tables().enumerate().rev() {
            means[self.units[site]] = leave(&mut p, table, site % self.width);
        }
        means
    }

    /// Returns ⟨x_i x_j⟩ of every pair, exact but for rounding; the diagonal holds the means.
    /// O(d² 2^w), over all threads.
    pub fn pair_means(&self) -> Array2<f64> {
        let d = self.n_units();
        // For every site, the distribution of the front together with x = 1 there.
        let mut p = self.empty_front();
        let mut joint: Vec<(usize, Vec<f64>)> = Vec::with_capacity(d);
        for (site, table) in self.tables().enumerate().rev() {
            let column = site % self.width;
            leave(&mut p, table, column);
            let mut q = p.clone();
            for (front, value) in q.iter_mut().enumerate() {
                if front >> column & 1 == 0 {
                    *value = 0.0;
                }
            }
            joint.push((site, q));
        }
        let found: Vec<(usize, Vec<f64>)> = joint
            .into_par_iter()
            .map(|(site, mut q)| {
                let mean = q.iter().sum::<f64>();
                let size = q.len();
                let mut row = vec![mean; site + 1];
                for (earlier, table) in self.leave[..site * size]
                    .chunks_exact(size)
                    .enumerate()
                    .rev()
                {
                    row[earlier] = leave(&mut q, table, earlier % self.width);
                }
                (site, row)
            })
            .collect();
        let mut means = Array2::zeros((d, d));
        for (site, row) in found {
            for (earlier, value) in row.into_iter().enumerate() {
                let (i, j) = (self.units[site], self.units[earlier]);
                means[[i, j]] = value;
                means[[j, i]] = value;
            }
        }
        means
    }

    /// Returns ⟨s_i s_j⟩ of every pair, s = 2x − 1, exact but for rounding; the diagonal is 1.
    /// O(d² 2^w).
    pub fn spin_correlations(&self) -> Array2<f64> {
        spin_correlations(&self.pair_means())
    }

    /// Returns the tables of all sites, in the order of the sites.
    fn tables(&self) -> std::slice::ChunksExact<'_, f64> {
        self.leave.chunks_exact(1 << self.width)
    }

    /// Returns the distribution of the front after the last site: certainly 0.
    fn empty_front(&self) -> Vec<f64> {
        let mut p = vec![0.0; 1 << self.width];
        p[0] = 1.0;
        p
    }
}

/// Every step is an independent draw. [`ExactLattice::draw`] is faster.
impl Sampler for ExactLattice {
    type State = Vec<u64>;
    type Info = ();

    fn step<R: Rng + ?Sized>(&self, state: &mut Vec<u64>, rng: &mut R) {
        state.fill(0);
        self.draw_rows(state, &mut [0], rng);
    }
}

impl RowSampler for ExactLattice {
    fn n_units(&self) -> usize {
        self.units.len()
    }
}

/// Replaces `column` of the front by the site whose `table` this is: turns the distribution `p` of
/// the front before into that after (in backward order). Returns the probability of x = 1 there.
fn leave(p: &mut [f64], table: &[f64], column: usize) -> f64 {
    let half = 1 << column;
    let mut total = 0.0;
    for (p, table) in p
        .chunks_exact_mut(2 * half)
        .zip(table.chunks_exact(2 * half))
    {
        let (p0, p1) = p.split_at_mut(half);
        let (t0, t1) = table.split_at(half);
        for (((p0, p1), t0), t1) in p0.iter_mut().zip(p1).zip(t0).zip(t1) {
            let one = *p0 * t0 + *p1 * t1;
            *p0 = *p0 * (1.0 - t0) + *p1 * (1.0 - t1);
            *p1 = one;
            total += one;
        }
    }
    total
}

/// The contribution of site t to −E when it is 1: `bias`, less `left` and `up` for each of these
/// neighbours that is 1 too. Sites beyond the lattice are never 1.
struct Site {
    bias: f64,
    left: f64,
    up: f64,
}

impl Site {
    fn new(couplings: &Couplings, units: &[usize], width: usize, t: usize) -> Self {
        if t >= units.len() {
            return Self {
                bias: f64::NEG_INFINITY,
                left: 0.0,
                up: 0.0,
            };
        }
        let twice = |other: usize| 2.0 * couplings.get(units[t], units[other]);
        Self {
            bias: -couplings.get(units[t], units[t]),
            left: if t.is_multiple_of(width) {
                0.0
            } else {
                twice(t - 1)
            },
            up: if t >= width { twice(t - width) } else { 0.0 },
        }
    }
}

/// Checks that only nearest neighbours are coupled.
fn check_edges(couplings: &Couplings, rows: usize, columns: usize) -> Result<()> {
    for ((i, j), &value) in couplings.as_array().indexed_iter() {
        let beside = j == i + 1 && j % columns != 0;
        if i < j && value != 0.0 && !beside && j != i + columns {
            return Err(Error::OffLattice {
                i,
                j,
                value,
                rows,
                columns,
            });
        }
    }
    Ok(())
}

/// Returns ln(eᵃ + eᵇ).
fn log_add_exp(a: f64, b: f64) -> f64 {
    let (high, low) = if a > b { (a, b) } else { (b, a) };
    if low == f64::NEG_INFINITY {
        high
    } else {
        high + (low - high).exp().ln_1p()
    }
}

/// Returns 1 / (1 + e^−a).
pub(crate) fn logistic(a: f64) -> f64 {
    1.0 / (1.0 + (-a).exp())
}
