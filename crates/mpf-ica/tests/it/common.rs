//! Data and a connectivity that several tests share.

use mpf_core::SampledConnectivity;
use mpf_core::rng::stream;
use mpf_ica::{Filters, Whitening, WhiteningMethod};
use mpf_samplers::{Error, Hmc, HmcOptions, Sampler};
use ndarray::Array2;
use rand::{Rng, RngExt};
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

/// Joins q to the state after some Metropolis transitions of Hamiltonian Monte Carlo under θ_H.
///
/// The transitions keep detailed balance with p(θ_H), which gives the factor of Appendix D:
/// ½ ln(g_ji/g_ij) = ½[E(q′; θ_H) − E(q; θ_H)]. At θ = θ_H it makes every weight 1. A state whose
/// energy is not finite has no neighbour.
#[derive(Clone, Debug)]
pub struct MetropolisNeighbours {
    sampler: Hmc<Filters>,
    n_transitions: usize,
}

impl MetropolisNeighbours {
    pub fn new(filters: Filters, options: HmcOptions, n_transitions: usize) -> Result<Self, Error> {
        Ok(Self {
            sampler: Hmc::new(filters, options)?,
            n_transitions,
        })
    }
}

impl SampledConnectivity<[f64]> for MetropolisNeighbours {
    fn draw_neighbours<R: Rng + ?Sized>(
        &self,
        x: &[f64],
        scratch: &mut [f64],
        rng: &mut R,
        mut visit: impl FnMut(&[f64], f64),
    ) {
        let Ok(mut state) = self.sampler.state(x) else {
            return;
        };
        let before = state.energy();
        for _ in 0..self.n_transitions {
            self.sampler.step(&mut state, rng);
        }
        scratch.copy_from_slice(state.position());
        visit(scratch, 0.5 * (state.energy() - before));
    }
}
