//! The spin glass of the paper: a square lattice with normal couplings, and exact draws from it.

use crate::Result;
use mpf_core::rng;
use mpf_ising::{Boundary, Couplings, Lattice, States};
use mpf_samplers::ExactLattice;

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
