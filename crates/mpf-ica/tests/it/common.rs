//! Data and a connectivity that several tests share.

use mpf_core::rng::{stream, substream};
use mpf_core::{EnergyModel, SampledConnectivity};
use mpf_ica::{Filters, HamiltonianNeighbours, Neighbours, Whitening, WhiteningMethod};
use mpf_samplers::{Error, Hmc, HmcOptions, PhasePoint, Sampler, leapfrog};
use ndarray::{Array2, ArrayView1, ArrayView2, s};
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

/// The model over the extended state {q, v} of Appendix H: q in the first half of the state, v in
/// the second, and H(q, v; θ) = E(q; θ) + ½ vᵀv.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WithMomentum<M>(pub M);

impl<M: EnergyModel<State = [f64]>> EnergyModel for WithMomentum<M> {
    type State = [f64];

    fn n_params(&self) -> usize {
        self.0.n_params()
    }

    fn energy(&self, theta: &[f64], x: &[f64]) -> f64 {
        let (q, v) = x.split_at(x.len() / 2);
        self.0.energy(theta, q) + kinetic_energy(v)
    }

    fn add_energy_grad(&self, theta: &[f64], x: &[f64], scale: f64, out: &mut [f64]) {
        self.0.add_energy_grad(theta, &x[..x.len() / 2], scale, out);
    }
}

fn kinetic_energy(momentum: &[f64]) -> f64 {
    0.5 * momentum.iter().map(|v| v * v).sum::<f64>()
}

/// [`HamiltonianNeighbours`] of {q, v}, states of [`WithMomentum`], one by one: plain and slow. A
/// state whose energy is not finite at either end has no neighbour.
#[derive(Clone, Debug)]
pub struct PlainTrajectories(pub HamiltonianNeighbours);

impl SampledConnectivity<[f64]> for PlainTrajectories {
    fn draw_neighbours<R: Rng + ?Sized>(
        &self,
        x: &[f64],
        scratch: &mut [f64],
        rng: &mut R,
        mut visit: impl FnMut(&[f64], f64),
    ) {
        let HamiltonianNeighbours {
            filters,
            trajectory,
        } = &self.0;
        let (step, n_steps) = trajectory.draw(rng);
        let (q, v) = x.split_at(x.len() / 2);
        let Ok(mut point) = PhasePoint::new(filters, q, v) else {
            return;
        };
        leapfrog(filters, &mut point, step, n_steps);
        if !point.hamiltonian().is_finite() {
            return;
        }
        point.negate_momentum();
        let (q, v) = scratch.split_at_mut(x.len() / 2);
        q.copy_from_slice(&point.position);
        v.copy_from_slice(&point.momentum);
        visit(scratch, 0.0);
    }
}

/// Draws one neighbour of every extended state {q, v}, a row of `data`: the plain form of
/// [`Neighbours::hamiltonian`].
pub fn extended_neighbours(
    rule: &PlainTrajectories,
    data: ArrayView2<'_, f64>,
    seed: u64,
) -> Neighbours {
    let (n, d) = (data.nrows(), data.ncols() / 2);
    let mut all = Neighbours {
        positions: Array2::zeros((n, d)),
        ln_weights: vec![f64::NEG_INFINITY; n],
    };
    for (sample, x) in data.outer_iter().enumerate() {
        let mut rng = substream(seed, sample as u64);
        let x = x.to_vec();
        rule.draw_neighbours(&x, &mut vec![0.0; 2 * d], &mut rng, |y, ln_weight| {
            let kinetic = 0.5 * (kinetic_energy(&x[d..]) - kinetic_energy(&y[d..]));
            all.ln_weights[sample] = ln_weight + kinetic;
            let position = ArrayView1::from(&y[..d]);
            all.positions.slice_mut(s![sample, ..]).assign(&position);
        });
    }
    all
}
