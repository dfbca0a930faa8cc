//! Targets and counting shared by the statistical tests.
#![allow(dead_code)] // Every test file uses its own part.

use mpf_core::EnergyModel;
use mpf_core::rng::stream;
use mpf_ising::couplings::n_packed;
use mpf_ising::{Boundary, Couplings, IsingModel, Lattice, States};
use ndarray::Array2;
use rand::RngExt;

/// The seed of statistical tests: `MPF_TEST_SEED`, or 1. Any seed should pass.
pub fn seed() -> u64 {
    match std::env::var("MPF_TEST_SEED") {
        Ok(text) => text.parse().expect("MPF_TEST_SEED is a number"),
        Err(_) => 1,
    }
}

/// Random couplings and biases of both signs: frustrated, with fields.
pub fn random_couplings(n_units: usize, scale: f64, seed: u64) -> Couplings {
    let mut rng = stream(seed, 0);
    let packed: Vec<f64> = (0..n_packed(n_units))
        .map(|_| scale * rng.random_range(-1.0..1.0))
        .collect();
    Couplings::unpack(n_units, &packed).unwrap()
}

/// An open lattice with random couplings on its edges and random fields.
pub fn random_lattice(rows: usize, columns: usize, scale: f64, seed: u64) -> (Couplings, Lattice) {
    let lattice = Lattice::new(rows, columns, Boundary::Open).unwrap();
    let mut rng = stream(seed, 0);
    let d = lattice.n_units();
    let mut j = Array2::zeros((d, d));
    for (a, b) in lattice.edges() {
        let value = scale * rng.random_range(-1.0..1.0);
        j[[a, b]] = value;
        j[[b, a]] = value;
        j[[a, a]] -= value;
        j[[b, b]] -= value;
    }
    for a in 0..d {
        j[[a, a]] += 0.5 * scale * rng.random_range(-1.0..1.0);
    }
    (Couplings::new(j).unwrap(), lattice)
}

/// E of every state of up to 24 units, by its bits.
pub fn energies(couplings: &Couplings) -> Vec<f64> {
    let model = IsingModel::new(couplings.n_units());
    let theta = couplings.pack();
    (0..1u64 << couplings.n_units())
        .map(|state| model.energy(&theta, &[state]))
        .collect()
}

/// p of every state.
pub fn probabilities(couplings: &Couplings) -> Vec<f64> {
    mpf_core::energy::boltzmann(&energies(couplings))
}

/// ⟨x_i x_j⟩ over the draws; the diagonal holds the means.
pub fn pair_means(states: &States) -> Array2<f64> {
    mpf_ising::Samples::new(states).unwrap().pair_means()
}
