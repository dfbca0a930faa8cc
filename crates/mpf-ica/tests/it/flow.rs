//! The fast objective against `mpf-core`'s plain one, and what the connectivities promise.

use crate::common::{
    MetropolisNeighbours, PlainTrajectories, WithMomentum, extended_neighbours, normal,
    random_filters,
};
use mpf_core::gradient_error;
use mpf_core::rng::{stream, substream};
use mpf_core::{Drawn, EnergyModel, Flow, FlowForm, Objective, SampledConnectivity};
use mpf_ica::{
    Filters, HamiltonianNeighbours, LaplaceIca, NeighbourFlow, Neighbours, NoiseNeighbours,
    Trajectory,
};
use mpf_samplers::HmcOptions;
use mpf_testkit::seed;
use ndarray::{Array2, ArrayView2, Axis, concatenate, s};

fn evaluate(objective: &mut impl Objective, theta: &[f64]) -> (f64, Vec<f64>) {
    let mut grad = vec![0.0; theta.len()];
    let value = objective.value_and_gradient(theta, &mut grad);
    (value, grad)
}

fn rows(data: &Array2<f64>) -> Vec<Vec<f64>> {
    data.outer_iter().map(|r| r.to_vec()).collect()
}

fn assert_same(fast: (f64, Vec<f64>), plain: (f64, Vec<f64>)) {
    // Sums of a few hundred terms of order ten.
    assert!((fast.0 - plain.0).abs() < 1e-12, "{} {}", fast.0, plain.0);
    let off = fast.1.iter().zip(&plain.1).map(|(a, b)| (a - b).abs());
    assert!(off.fold(0.0, f64::max) < 1e-12);
}

/// θ_H, and another θ to evaluate at.
fn filters(d: usize) -> (Filters, Filters) {
    (random_filters(d, seed()), random_filters(d, seed() + 1))
}

#[test]
fn the_hamiltonian_objective_is_the_generic_one_term_by_term() {
    let (d, n) = (3, 40);
    let (theta_h, theta) = filters(d);
    let rule = PlainTrajectories(HamiltonianNeighbours {
        filters: theta_h,
        trajectory: Trajectory::default(),
    });
    let data = normal(n, d, seed());
    let extended = concatenate![Axis(1), data, normal(n, d, seed() + 5)];
    let neighbours = extended_neighbours(&rule, extended.view(), 7);

    let model = WithMomentum(LaplaceIca::new(d));
    let drawn = Drawn::new(rule.clone(), 1, 7).unwrap();
    let states = rows(&extended);
    let mut plain = Flow::new(&model, &drawn, &states)
        .unwrap()
        .form(FlowForm::Log);
    let mut fast = NeighbourFlow::new(data.view(), &neighbours).unwrap();
    assert_same(
        evaluate(&mut fast, theta.theta()),
        evaluate(&mut plain, theta.theta()),
    );
    // Every term by itself: sample 0 of each run of draws.
    for j in 0..n {
        let state = extended.slice(s![j..=j, ..]).to_owned();
        let one = extended_neighbours(&rule, state.view(), 7);
        let data = state.slice(s![.., ..d]).to_owned();
        let states = rows(&state);
        let mut plain = Flow::new(&model, &drawn, &states)
            .unwrap()
            .form(FlowForm::Log);
        let mut fast = NeighbourFlow::new(data.view(), &one).unwrap();
        assert_same(
            evaluate(&mut fast, theta.theta()),
            evaluate(&mut plain, theta.theta()),
        );
    }
}

#[test]
fn every_other_rule_gives_the_generic_objective_too() {
    let (d, n) = (3, 300);
    let (theta_h, theta) = filters(d);
    let data = normal(n, d, seed());
    let metropolis = MetropolisNeighbours::new(theta_h, HmcOptions::default(), 2).unwrap();
    check(&metropolis, &data, 1, &theta);
    check(&NoiseNeighbours::Gaussian { scale: 0.7 }, &data, 3, &theta);
    check(&NoiseNeighbours::Cube { side: 0.9 }, &data, 5, &theta);

    fn check<S: SampledConnectivity<[f64]> + Sync + Clone>(
        rule: &S,
        data: &Array2<f64>,
        per_sample: usize,
        theta: &Filters,
    ) {
        let neighbours = Neighbours::draw(rule, data.view(), per_sample, 3);
        let drawn = Drawn::new(rule.clone(), per_sample, 3).unwrap();
        let model = LaplaceIca::new(data.ncols());
        let states = rows(data);
        let mut plain = Flow::new(&model, &drawn, &states)
            .unwrap()
            .form(FlowForm::Log);
        let mut fast = NeighbourFlow::new(data.view(), &neighbours).unwrap();
        assert_same(
            evaluate(&mut fast, theta.theta()),
            evaluate(&mut plain, theta.theta()),
        );
    }
}

#[test]
fn the_gradient_agrees_with_differences() {
    // Differences that cross a kink of some response are off; keep the steps short and the
    // samples few, and choose those that stay clear.
    let d = 3;
    let (_, theta) = filters(d);
    let rule = NoiseNeighbours::Gaussian { scale: 0.8 };
    let all = normal(60, d, seed());
    let clear = |x: &[f64]| {
        let u = theta.as_array().dot(&ndarray::ArrayView1::from(x));
        u.iter().all(|u| u.abs() > 0.01)
    };
    let keep: Vec<usize> = (0..60)
        .filter(|&r| {
            let row = all.row(r).to_owned().insert_axis(Axis(0));
            // The stream of sample 0, as in a data set of one.
            let neighbour = Neighbours::draw(&rule, row.view(), 1, 9);
            clear(&row.row(0).to_vec()) && clear(&neighbour.positions.row(0).to_vec())
        })
        .take(1)
        .collect();
    let data = all.select(Axis(0), &keep);
    let neighbours = Neighbours::draw(&rule, data.view(), 1, 9);
    let mut flow = NeighbourFlow::new(data.view(), &neighbours).unwrap();
    // ln of one exponential of a piecewise linear function: linear, so only rounding over h.
    assert!(gradient_error(&mut flow, theta.theta(), 1e-3) < 1e-10);
}

#[test]
fn batched_trajectories_are_the_plain_ones() {
    // The same block drawn by hand: momenta first, then ε and L of every state.
    let (d, n) = (4, 300);
    let (theta_h, theta) = filters(d);
    let trajectory = Trajectory::default();
    let rule = HamiltonianNeighbours {
        filters: theta_h.clone(),
        trajectory,
    };
    let data = theta.draw(n, &mut stream(seed(), 0)).unwrap();
    let fast = Neighbours::hamiltonian(&rule, data.view(), 11);
    let mut off = 0;
    for block in [0..256, 256..n] {
        use rand::RngExt;
        let mut rng = substream(11, block.start as u64);
        let momenta = Array2::from_shape_simple_fn((block.len(), d), || {
            rng.sample::<f64, _>(rand_distr::StandardNormal)
        });
        for (row, v) in block.zip(momenta.outer_iter()) {
            let (step, n_steps) = trajectory.draw(&mut rng);
            let q = data.row(row).to_vec();
            let mut point = mpf_samplers::PhasePoint::new(&theta_h, &q, &v.to_vec()).unwrap();
            mpf_samplers::leapfrog(&theta_h, &mut point, step, n_steps);
            let there = &fast.positions;
            let close = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-11;
            let same = there.row(row).iter().zip(&point.position).all(close);
            off += usize::from(!same);
        }
    }
    // Rounding may decide the sign of a response at a kink, which is rare.
    assert!(off <= 1, "{off}");
}

#[test]
fn at_theta_h_the_weights_of_metropolis_are_one() {
    // Appendix D: K(θ_H) = 1 exactly, whatever was drawn.
    let (theta_h, _) = filters(3);
    let rule = MetropolisNeighbours::new(theta_h.clone(), HmcOptions::default(), 5).unwrap();
    let data = normal(50, 3, seed());
    let neighbours = Neighbours::draw(&rule, data.view(), 1, 1);
    let mut flow = NeighbourFlow::new(data.view(), &neighbours).unwrap();
    let (value, _) = evaluate(&mut flow, theta_h.theta());
    assert!(value.abs() < 1e-13, "{value}");
    // And they moved.
    assert_ne!(neighbours.positions.row(0), data.row(0));
}

#[test]
fn the_truth_is_stationary() {
    // Data drawn from the model: the mean gradient at the truth is zero within its error, by
    // every rule. A kinetic term that is left out, or a factor of Appendix D, shows as a bias.
    let (d, n) = (2, 40_000);
    let truth = random_filters(d, 3);
    let data = truth.draw(n, &mut stream(seed(), 20)).unwrap();
    let hamiltonian = HamiltonianNeighbours {
        // θ_H ≠ θ, so that the weights are far from 1.
        filters: random_filters(d, 8),
        trajectory: Trajectory::default(),
    };
    let off_hmc = HmcOptions {
        step_size: 0.5,
        ..Default::default()
    };
    let metropolis = MetropolisNeighbours::new(random_filters(d, 9), off_hmc, 2).unwrap();
    type Draw<'a> = &'a dyn Fn(ArrayView2<'_, f64>, u64) -> Neighbours;
    let all: [Draw<'_>; 4] = [
        &|x, seed| Neighbours::hamiltonian(&hamiltonian, x, seed),
        &|x, seed| Neighbours::draw(&metropolis, x, 1, seed),
        &|x, seed| Neighbours::draw(&NoiseNeighbours::Gaussian { scale: 1.0 }, x, 1, seed),
        &|x, seed| Neighbours::draw(&NoiseNeighbours::Cube { side: 1.5 }, x, 1, seed),
    ];
    for (k, draw) in all.iter().enumerate() {
        let gradient = |x: ArrayView2<'_, f64>, seed| {
            let neighbours = draw(x, seed);
            evaluate(
                &mut NeighbourFlow::new(x, &neighbours).unwrap(),
                truth.theta(),
            )
            .1
        };
        let grad = gradient(data.view(), seed());
        // The error of each entry, from twenty parts of the data with neighbours of their own.
        let part = n / 20;
        let mut squares = vec![0.0; d * d];
        for p in 0..20 {
            let rows = data.slice(s![p * part..(p + 1) * part, ..]);
            let g = gradient(rows, mpf_core::rng::next_seed(seed() + p as u64));
            for ((square, g), mean) in squares.iter_mut().zip(g).zip(&grad) {
                *square += (g - mean).powi(2);
            }
        }
        for (g, square) in grad.iter().zip(&squares) {
            let error = (square / (19.0 * 20.0)).sqrt();
            // Six errors, for sixteen numbers and an error known to a sixth.
            assert!(g.abs() < 6.0 * error, "rule {k}: {g} ± {error}");
            assert!(error < 0.02, "rule {k}: {error}");
        }
    }
}

#[test]
fn neighbours_do_not_depend_on_threads() {
    let (theta_h, theta) = filters(5);
    let data = normal(3000, 5, seed());
    let rule = HamiltonianNeighbours {
        filters: theta_h,
        trajectory: Trajectory::default(),
    };
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build().unwrap().install(|| {
            let neighbours = Neighbours::hamiltonian(&rule, data.view(), 2);
            let mut flow = NeighbourFlow::new(data.view(), &neighbours).unwrap();
            evaluate(&mut flow, theta.theta())
        })
    };
    let one = run(1);
    assert_eq!(one, run(2));
    assert_eq!(one, run(5));
    assert!(LaplaceIca::new(5).n_params() == one.1.len());
}
