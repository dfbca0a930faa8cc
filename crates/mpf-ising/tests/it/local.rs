//! The Ising model as a local model: against plain energies, and the kernel against it.

use mpf_core::rng::stream;
use mpf_core::{
    At, EnergyModel, FlowForm, LocalLoss, LocalModel, LocalObjective, Objective, SiteData,
};
use mpf_ising::{IsingFlow, LocalIsing, Neighbourhood, Samples, States};
use ndarray::Array2;
use rand::RngExt;

/// The same model with nothing but its energy.
struct Plain(LocalIsing);

impl EnergyModel for Plain {
    type State = [u8];

    fn n_params(&self) -> usize {
        self.0.n_params()
    }

    fn energy(&self, theta: &[f64], x: &[u8]) -> f64 {
        self.0.energy(theta, x)
    }

    fn add_energy_grad(&self, theta: &[f64], x: &[u8], scale: f64, out: &mut [f64]) {
        self.0.add_energy_grad(theta, x, scale, out);
    }
}

impl LocalModel for Plain {
    fn n_sites(&self) -> usize {
        self.0.n_sites()
    }
}

pub(crate) fn random_theta(n: usize, seed: u64) -> Vec<f64> {
    let mut rng = stream(seed, 0);
    (0..n).map(|_| rng.random_range(-0.8..0.8)).collect()
}

pub(crate) fn random_rows(n: usize, d: usize, active: f64, seed: u64) -> Array2<u8> {
    let mut rng = stream(seed, 1);
    Array2::from_shape_simple_fn((n, d), || u8::from(rng.random::<f64>() < active))
}

fn evaluate(mut objective: impl Objective, theta: &[f64]) -> Vec<f64> {
    let mut all = vec![0.0; theta.len() + 1];
    let mut grad = vec![0.0; theta.len()];
    all[0] = objective.value_and_gradient(theta, &mut grad);
    all[1..].copy_from_slice(&grad);
    all
}

fn assert_close(a: &[f64], b: &[f64]) {
    for (k, (a, b)) in a.iter().zip(b).enumerate() {
        assert!((a - b).abs() < 1e-11 * (1.0 + b.abs()), "{k}: {a} {b}");
    }
}

#[test]
fn differences_and_gradients_are_those_of_energies() {
    for has_potential in [false, true] {
        let model = LocalIsing {
            n_units: 11,
            has_potential,
        };
        let theta = random_theta(model.n_params(), 1);
        // With the all-silent and the all-active state, where one side of V ends.
        let mut rows = random_rows(20, 11, 0.4, 2);
        rows.row_mut(0).fill(0);
        rows.row_mut(1).fill(1);
        let data = SiteData::new(rows.view(), 2).unwrap();
        let plain = Plain(model);
        for loss in [LocalLoss::Flow, LocalLoss::Pseudolikelihood] {
            let fast = evaluate(LocalObjective::new(&model, &data, loss).unwrap(), &theta);
            let slow = evaluate(LocalObjective::new(&plain, &data, loss).unwrap(), &theta);
            assert_close(&fast, &slow);
        }
        // One site at a time, and surroundings that follow a walk.
        let mut x = rows.row(2).to_vec();
        let mut kept = vec![0.0; model.n_surroundings()];
        model.surroundings(&theta, &x, &mut kept);
        for site in [3, 0, 10, 3, 7] {
            let (mut fast, mut slow) = (vec![0.0; theta.len()], vec![0.0; theta.len()]);
            let mut weights = [0.0; 22];
            weights[2 * site + usize::from(1 - x[site])] = 0.7;
            let at = At {
                theta: &theta,
                x: &x,
                surroundings: &kept,
            };
            model.add_gradient(at, &weights, &mut fast);
            plain.add_gradient(at, &weights, &mut slow);
            assert_close(&fast, &slow);
            x[site] = 1 - x[site];
            model.update(&theta, &x, site, 1 - x[site], &mut kept);
            let mut afresh = vec![0.0; kept.len()];
            model.surroundings(&theta, &x, &mut afresh);
            assert_close(&kept, &afresh);
        }
    }
}

#[test]
fn the_kernel_is_the_generic_path() {
    let model = LocalIsing {
        n_units: 70,
        has_potential: false,
    };
    let theta: Vec<f64> = random_theta(model.n_params(), 3)
        .iter()
        .map(|t| 0.2 * t)
        .collect();
    for active in [0.1, 0.5] {
        let rows = random_rows(500, 70, active, 4);
        let data = SiteData::new(rows.view(), 2).unwrap();
        let samples = Samples::new(&States::from_binary(rows.view()).unwrap()).unwrap();
        let flow = IsingFlow::new(&samples, Neighbourhood::SingleFlips, FlowForm::Sum).unwrap();
        let generic = LocalObjective::new(&model, &data, LocalLoss::Flow).unwrap();
        assert_close(&evaluate(flow, &theta), &evaluate(generic, &theta));
    }
}
