//! Data shared by the tests.
#![allow(dead_code)] // Every test file uses its own part.

use mpf_core::rng::stream;
use mpf_ica::Filters;
use mpf_ica::whiten::{Method, Whitening};
use ndarray::Array2;
use rand::RngExt;
use rand_distr::StandardNormal;

/// The seed of statistical tests: `MPF_TEST_SEED`, or 1. Any seed should pass.
pub fn seed() -> u64 {
    match std::env::var("MPF_TEST_SEED") {
        Ok(text) => text.parse().expect("MPF_TEST_SEED is a number"),
        Err(_) => 1,
    }
}

/// I plus noise: far from singular, nowhere symmetric.
pub fn random_filters(d: usize, seed: u64) -> Filters {
    let mut rng = stream(seed, 10);
    let noise = 0.4 / (d as f64).sqrt();
    Filters::new(Array2::from_shape_fn((d, d), |(i, j)| {
        f64::from(i == j) + noise * rng.sample::<f64, _>(StandardNormal)
    }))
    .unwrap()
}

/// A matrix of independent standard normals.
pub fn normal(rows: usize, columns: usize, seed: u64) -> Array2<f64> {
    let mut rng = stream(seed, 11);
    Array2::from_shape_simple_fn((rows, columns), || rng.sample(StandardNormal))
}

/// Laplace sources mixed by a random matrix and whitened: the data, and the mixing matrix that is
/// left after whitening.
pub fn mixed_sources(d: usize, n: usize, seed: u64) -> (Array2<f64>, Array2<f64>) {
    let truth = Filters::random(d, seed);
    let data = truth.draw(n, &mut stream(seed, 12)).unwrap();
    let whitening = Whitening::new(data.view(), Method::Zca).unwrap();
    let (_, mixing) = truth.log_determinant_and_inverse().unwrap();
    let white = whitening.apply(data.view()).unwrap();
    (white, whitening.transform().dot(&mixing))
}
