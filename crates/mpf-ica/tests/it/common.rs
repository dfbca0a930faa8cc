//! Data that several tests share.

use mpf_core::rng::stream;
use mpf_ica::{Filters, Whitening, WhiteningMethod};
use ndarray::Array2;
use rand::RngExt;
use rand_distr::StandardNormal;

/// Returns I plus noise: far from singular, and not symmetric.
pub fn random_filters(d: usize, seed: u64) -> Filters {
    let mut rng = stream(seed, 10);
    let noise = 0.4 / (d as f64).sqrt();
    Filters::new(Array2::from_shape_fn((d, d), |(i, j)| {
        f64::from(i == j) + noise * rng.sample::<f64, _>(StandardNormal)
    }))
    .unwrap()
}

/// Draws a matrix of independent standard normals.
pub fn normal(rows: usize, columns: usize, seed: u64) -> Array2<f64> {
    let mut rng = stream(seed, 11);
    Array2::from_shape_simple_fn((rows, columns), || rng.sample(StandardNormal))
}

/// Mixes Laplace sources by a random matrix and whitens them. Returns the data, and the mixing
/// matrix that is left after whitening.
pub fn mixed_sources(d: usize, n: usize, seed: u64) -> (Array2<f64>, Array2<f64>) {
    let truth = Filters::random(d, seed);
    let data = truth.draw(n, &mut stream(seed, 12)).unwrap();
    let whitening = Whitening::new(data.view(), WhiteningMethod::Zca).unwrap();
    let (_, mixing) = truth.log_determinant_and_inverse().unwrap();
    let white = whitening.apply(data.view()).unwrap();
    (white, whitening.transform().dot(&mixing))
}
