//! The spin glass of the paper, a square lattice with normal couplings, and exact draws from it; other
//! symmetric matrices of couplings.

use crate::Result;
use mpf_core::rng;
use mpf_ising::{Boundary, Couplings, Lattice, States};
use mpf_samplers::ExactLattice;
use ndarray::Array2;
use std::iter::once;

pub struct Glass {
    pub lattice: Lattice,
    pub truth: Couplings,
    pub states: States,
}

impl Glass {
    /// Draws the couplings of an open `side` × `side` lattice, and `n` states.
    pub fn draw(side: usize, variance: f64, n: usize, seed: u64) -> Result<Self> {
        let lattice = Lattice::new(side, side, Boundary::Open)?;
        let truth = lattice.spin_glass(variance, &mut rng::stream(seed, 0))?;
        let states = ExactLattice::new(&truth, &lattice)?.draw(n, rng::next_seed(seed));
        Ok(Self {
            lattice,
            truth,
            states,
        })
    }
}

/// Makes a symmetric matrix of the entries (i, j) at `places`, in their order, and zeros.
pub fn symmetric(
    d: usize,
    places: impl IntoIterator<Item = (usize, usize)>,
    mut entry: impl FnMut(usize, usize) -> f64,
) -> Array2<f64> {
    let mut matrix = Array2::zeros((d, d));
    for (i, j) in places {
        matrix[[i, j]] = entry(i, j);
        matrix[[j, i]] = matrix[[i, j]];
    }
    matrix
}

/// Iterates over (i, i), then (i, j), j < i, for every i.
pub fn lower_triangle(d: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..d).flat_map(|i| once(i).chain(0..i).map(move |j| (i, j)))
}
