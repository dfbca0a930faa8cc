//! Models and data without noise.

use mpf_core::rng::stream;
use mpf_core::{EnergyModel, boltzmann};
use mpf_ising::internal::n_packed;
use mpf_ising::{Boundary, Couplings, Exact, IsingModel, Lattice, Samples, States};
use mpf_samplers::ExactLattice;
use ndarray::Array2;
use rand::RngExt;

/// Draws couplings and biases of both signs.
pub fn random_couplings(n_units: usize, scale: f64, seed: u64) -> Couplings {
    let mut rng = stream(seed, 0);
    let packed: Vec<f64> = (0..n_packed(n_units))
        .map(|_| scale * rng.random_range(-1.0..1.0))
        .collect();
    Couplings::unpack(n_units, &packed).unwrap()
}

/// Returns all 2^d states, in the order of their numbers.
pub fn all_states(n_units: usize) -> States {
    let mut states = States::new(n_units).unwrap();
    (0..1 << n_units).for_each(|x| states.push(&[x]));
    states
}

/// Returns all states of a model, weighted by their probabilities: data without noise.
pub fn exact_samples(couplings: &Couplings) -> Samples {
    let p = Exact::new(couplings).unwrap().probabilities();
    Samples::weighted(&all_states(couplings.n_units()), &p).unwrap()
}

/// Draws rows with random weights: data of no model.
pub fn random_samples(n: usize, n_units: usize, seed: u64) -> Samples {
    let mut rng = stream(seed, 1);
    let data = Array2::from_shape_simple_fn((n, n_units), || rng.random::<f64>() < 0.4);
    let states = States::from_binary(data.view()).unwrap();
    let weights: Vec<f64> = (0..n).map(|_| rng.random_range(0.5..3.0)).collect();
    Samples::weighted(&states, &weights).unwrap()
}

/// Returns (h, K of all pairs), as objectives in spins take them.
pub fn spin_theta(couplings: &Couplings) -> Vec<f64> {
    let d = couplings.n_units();
    let spins = couplings.to_spins();
    let mut theta = spins.fields.to_vec();
    for i in 0..d {
        theta.extend((i + 1..d).map(|j| spins.couplings[[i, j]]));
    }
    theta
}

/// Returns the paper's 10×10 spin glass and exact draws from it.
pub fn spin_glass(variance: f64, n_samples: usize, seed: u64) -> (Lattice, Couplings, Samples) {
    let lattice = Lattice::new(10, 10, Boundary::Open).unwrap();
    let truth = lattice.spin_glass(variance, &mut stream(seed, 0)).unwrap();
    let states = ExactLattice::new(&truth, &lattice)
        .unwrap()
        .draw(n_samples, mpf_core::rng::next_seed(seed));
    (lattice, truth, Samples::new(&states).unwrap())
}

/// Draws an open lattice with random couplings on its edges and random fields.
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

/// Returns E of every state of up to 24 units, by its bits.
pub fn energies(couplings: &Couplings) -> Vec<f64> {
    let model = IsingModel::new(couplings.n_units());
    let theta = couplings.pack();
    (0..1u64 << couplings.n_units())
        .map(|state| model.energy(&theta, &[state]))
        .collect()
}

/// Returns p of every state.
pub fn probabilities(couplings: &Couplings) -> Vec<f64> {
    boltzmann(&energies(couplings))
}

/// Returns ⟨x_i x_j⟩ over the draws; the diagonal holds the means.
pub fn pair_means(states: &States) -> Array2<f64> {
    Samples::new(states).unwrap().pair_means()
}
