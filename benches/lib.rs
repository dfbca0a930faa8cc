//! Data for the benches, built outside of what is timed.

use mpf_core::rng::stream;
use mpf_ising::couplings::n_packed;
use mpf_ising::{Samples, States};
use rand::RngExt;

/// `n` samples of `d` independent units, each 1 with probability `active`.
pub fn samples(n: usize, d: usize, active: f64) -> Samples {
    let mut rng = stream(1, 0);
    let mut states = States::new(d).expect("d is not zero");
    let mut row = vec![0u64; states.words_per_row()];
    for _ in 0..n {
        row.fill(0);
        for unit in 0..d {
            if rng.random::<f64>() < active {
                row[unit / 64] |= 1 << (unit % 64);
            }
        }
        states.push(&row);
    }
    Samples::new(&states).expect("n is not zero")
}

/// Random couplings of the size of a real fit's, packed.
pub fn couplings(d: usize) -> Vec<f64> {
    let mut rng = stream(2, 0);
    let scale = 1.0 / (d as f64).sqrt();
    (0..n_packed(d))
        .map(|_| scale * rng.random_range(-1.0..1.0))
        .collect()
}
