//! Three layouts of the couplings, for three ways in which a flip reaches its neighbours: by
//! table, along a sparse row of J, or along a dense one.

use super::{Scan, visit};
use crate::lattice::logistic;
use mpf_ising::{Couplings, flip_bit, for_each_set_bit, get_bit};
use rand::Rng;

/// Beyond these log odds the probability is 0 or 1 in the 53 bits of a uniform draw.
const CERTAIN: f64 = 37.0;

#[derive(Clone, Debug)]
pub(super) enum Layout {
    Table(Table),
    Rows(Rows),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LayoutKind {
    Table,
    Sparse,
    Dense,
}

/// Surroundings by number: bit b of unit i's number is the value of its b-th neighbour.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// A unit has 2^degree entries.
    degree: usize,
    /// p(x_i = 1) by (unit, number).
    pub(super) probabilities: Vec<f64>,
    /// a_i by (unit, number).
    pub(super) log_odds: Vec<f64>,
    /// Where each unit's neighbours begin in `neighbours`, and the end.
    begin: Vec<u32>,
    /// A neighbour, and the bit of *its* number that is this unit.
    neighbours: Vec<(u32, u8)>,
}

/// −2 J_ij, by rows.
#[derive(Clone, Debug)]
pub(super) enum Rows {
    /// Of neighbours only.
    Sparse {
        /// Where each unit's neighbours begin in `neighbours`, and the end.
        begin: Vec<u32>,
        neighbours: Vec<(u32, f64)>,
    },
    /// Of all units, with a zero diagonal.
    Dense(Vec<f64>),
}

impl LayoutKind {
    /// Chooses the fastest layout.
    pub(super) fn best_for(couplings: &Couplings) -> Self {
        let d = couplings.n_units();
        let (mut degree, mut entries) = (0, 0);
        for (i, row) in couplings.as_array().rows().into_iter().enumerate() {
            let coupled = |(j, v): &(usize, &f64)| *j != i && **v != 0.0;
            let n_coupled = row.iter().enumerate().filter(coupled).count();
            degree = degree.max(n_coupled);
            entries += n_coupled;
        }
        let fits = degree <= Table::MAX_DEGREE && d << degree <= Table::MAX_ENTRIES;
        if fits && couplings.potential().is_none() {
            // Tables know the neighbours alone.
            Self::Table
        } else if fits || 8 * entries < d * d && u32::try_from(entries).is_ok() {
            // A dense row is added several entries at a time, a sparse one by one.
            Self::Sparse
        } else {
            Self::Dense
        }
    }
}

impl Layout {
    pub(super) fn new(couplings: &Couplings, biases: &[f64], beta: f64, kind: LayoutKind) -> Self {
        let neighbours = neighbours(couplings);
        match kind {
            LayoutKind::Table => Self::Table(Table::new(&neighbours, biases, beta)),
            LayoutKind::Sparse => {
                let (begin, neighbours) = flatten(&neighbours);
                Self::Rows(Rows::Sparse { begin, neighbours })
            }
            LayoutKind::Dense => {
                let mut rows = vec![0.0; biases.len() * biases.len()];
                for (row, neighbours) in rows.chunks_exact_mut(biases.len()).zip(&neighbours) {
                    for &(j, value) in neighbours {
                        row[j as usize] = value;
                    }
                }
                Self::Rows(Rows::Dense(rows))
            }
        }
    }
}

/// Lists −2 J_ij of every unit's neighbours. (A matrix of 2³² units would fill 2⁶⁷ bytes.)
fn neighbours(couplings: &Couplings) -> Vec<Vec<(u32, f64)>> {
    let rows = couplings.as_array().rows().into_iter().enumerate();
    rows.map(|(i, row)| {
        let coupled = row.iter().enumerate();
        let coupled = coupled.filter(|(j, v)| *j != i && **v != 0.0);
        coupled.map(|(j, v)| (j as u32, -2.0 * v)).collect()
    })
    .collect()
}

impl Table {
    /// Most neighbours of a unit.
    const MAX_DEGREE: usize = 6;
    /// Most entries: a larger table leaves the caches.
    const MAX_ENTRIES: usize = 1 << 17;

    fn new(neighbours: &[Vec<(u32, f64)>], biases: &[f64], beta: f64) -> Self {
        let degree = neighbours.iter().map(Vec::len).max().unwrap_or(0);
        let mut log_odds = Vec::with_capacity(biases.len() << degree);
        for (bias, neighbours) in biases.iter().zip(neighbours) {
            for number in 0..1usize << degree {
                let set = neighbours.iter().enumerate();
                let set = set.filter(|(b, _)| number >> b & 1 == 1);
                log_odds.push(set.map(|(_, (_, value))| value).sum::<f64>() - bias);
            }
        }
        let bits: Vec<Vec<(u32, u8)>> = neighbours
            .iter()
            .enumerate()
            .map(|(i, list)| {
                let bit = |j: u32| {
                    let place = neighbours[j as usize].iter().position(|n| n.0 == i as u32);
                    1 << place.expect("couplings are symmetric")
                };
                list.iter().map(|&(j, _)| (j, bit(j))).collect()
            })
            .collect();
        let (begin, neighbours) = flatten(&bits);
        Self {
            degree,
            probabilities: log_odds.iter().map(|a| probability(beta * a)).collect(),
            log_odds,
            begin,
            neighbours,
        }
    }

    pub(super) fn entry(&self, unit: usize, number: u8) -> usize {
        unit << self.degree | number as usize
    }

    /// Numbers the surroundings of every unit.
    pub(super) fn numbers(&self, row: &[u64]) -> Vec<u8> {
        let mut numbers = vec![0; self.begin.len() - 1];
        for_each_set_bit(row, |unit| self.update_neighbours(&mut numbers, unit));
        numbers
    }

    /// Updates the neighbours' numbers after `unit` flipped.
    pub(super) fn update_neighbours(&self, numbers: &mut [u8], unit: usize) {
        let (begin, end) = (self.begin[unit] as usize, self.begin[unit + 1] as usize);
        for &(j, bit) in &self.neighbours[begin..end] {
            numbers[j as usize] ^= bit;
        }
    }

    pub(super) fn sweep<R: Rng + ?Sized>(
        &self,
        scan: Scan,
        row: &mut [u64],
        numbers: &mut [u8],
        rng: &mut R,
    ) -> u64 {
        let mut flips = 0;
        visit(scan, numbers.len(), rng, |unit, u| {
            let x = u < self.probabilities[self.entry(unit, numbers[unit])];
            if x != get_bit(row, unit) {
                flip_bit(row, unit);
                self.update_neighbours(numbers, unit);
                flips += 1;
            }
        });
        flips
    }
}

impl Rows {
    /// Brings the log odds of all units up to date after `unit` became `x`.
    pub(super) fn update_neighbours(&self, values: &mut [f64], unit: usize, x: bool) {
        let sign = if x { 1.0 } else { -1.0 };
        match self {
            Self::Sparse { begin, neighbours } => {
                let (begin, end) = (begin[unit] as usize, begin[unit + 1] as usize);
                for &(j, value) in &neighbours[begin..end] {
                    values[j as usize] += sign * value;
                }
            }
            Self::Dense(rows) => {
                let d = values.len();
                for (a, value) in values.iter_mut().zip(&rows[unit * d..(unit + 1) * d]) {
                    *a += sign * value;
                }
            }
        }
    }
}

/// Returns σ(a), without the exponential where 53 bits cannot tell it from 0 or 1.
pub(super) fn probability(a: f64) -> f64 {
    if a > CERTAIN {
        1.0
    } else if a < -CERTAIN {
        0.0
    } else {
        logistic(a)
    }
}

/// Joins the lists and says where each begins. They have fewer than 2³² entries together: a table
/// has at most six per unit, and longer lists are not laid out as sparse.
fn flatten<T: Copy>(lists: &[Vec<T>]) -> (Vec<u32>, Vec<T>) {
    let mut begin = vec![0];
    let mut flat = Vec::new();
    for list in lists {
        flat.extend_from_slice(list);
        begin.push(flat.len() as u32);
    }
    (begin, flat)
}
