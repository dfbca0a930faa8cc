//! Tests of mpf-potts as a user sees it.

mod alignment;
mod fit;
mod kernel;
mod local;
mod reference;

use mpf_core::rng::stream;
use rand::RngExt;

/// Returns parameters of some size.
fn random_theta(n: usize, scale: f64, seed: u64) -> Vec<f64> {
    let mut rng = stream(seed, 0);
    (0..n)
        .map(|_| scale * rng.random_range(-1.0..1.0))
        .collect()
}

/// Returns every sequence of a model, one after another.
fn all_sequences(n_sites: usize, n_states: usize) -> Vec<u8> {
    let n = n_states.pow(n_sites as u32);
    let digits = (0..n).flat_map(|state| {
        (0..n_sites).map(move |site| (state / n_states.pow(site as u32) % n_states) as u8)
    });
    digits.collect()
}
