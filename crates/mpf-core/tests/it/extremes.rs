//! Numbers at the edge of `f64` through the doors of this crate that `mpf-baselines`'s test of the
//! same name does not reach: what comes back is finite, documented not to be, or a typed error.

use mpf_core::boltzmann;
use mpf_core::connectivity::{
    Connectivity, DenseConnectivity, Drawn, OutsideData, SampledConnectivity,
};
use mpf_core::from_fn;
use mpf_core::gradient_error;
use mpf_core::kl_divergence;
use mpf_core::linalg::{symmetric_eigen, symmetric_pseudo_inverse};
use mpf_core::rng::stream;
use mpf_core::score::{Cube, ExponentialFamily, GaussianPrecision, closed_form};
use mpf_core::{
    Dynamics, EnergyModel, Flow, Form, LinearEnergies, Minimizer, MinimizerOptions, Minimum,
    Objective, Ridge, ScoreMatching, Snapshot, TracePoint, checkpoint,
};
use mpf_testkit::{all_finite, few, finite, number};
use ndarray::{Array1, Array2};
use proptest::collection::vec;
use proptest::prelude::*;

/// A probability, and often one at the edge.
fn probability() -> impl Strategy<Value = f64> {
    prop_oneof![
        3 => 0.0..1.0f64,
        2 => proptest::sample::select(vec![0.0, -0.0, 1.0, 5e-324, 1e-310, 1e-200, 1e-100]),
    ]
}

/// `n` × `n` numbers, from fewer.
fn square(n: usize, values: &[f64]) -> Array2<f64> {
    let mut values = values.iter().copied().cycle();
    Array2::from_shape_simple_fn((n, n), || values.next().unwrap())
}

fn whole(found: &Minimum) -> Result<(), TestCaseError> {
    all_finite("θ", &found.theta)?;
    all_finite(
        "minimum",
        [&found.value, &found.kkt_residual, &found.seconds],
    )?;
    for point in &found.trace {
        all_finite("trace", [&point.value, &point.gradient_norm])?;
    }
    Ok(())
}

/// K and ln K with their gradients, of states `0..n` with `weights`.
fn flows(
    model: &LinearEnergies,
    rule: &impl Connectivity<usize>,
    theta: &[f64],
    weights: &[f64],
) -> Result<(), TestCaseError> {
    let states: Vec<usize> = (0..model.n_states()).collect();
    let energies = model.energies(theta);
    let spread = energies.iter().copied().fold(f64::MIN, f64::max)
        - energies.iter().copied().fold(f64::MAX, f64::min);
    let phi = (0..model.n_states()).map(|i| {
        let mut row = vec![0.0; model.n_params()];
        model.add_energy_grad(theta, &i, 1.0, &mut row);
        row.iter().fold(0.0f64, |m, v| m.max(v.abs()))
    });
    let gentle = phi.fold(0.0, f64::max) <= 1e300;
    for form in [Form::Sum, Form::Log] {
        let flow = Flow::new(model, rule, &states).unwrap().form(form);
        let Ok(mut flow) = flow.weighted(weights) else {
            continue;
        };
        let mut grad = vec![0.0; model.n_params()];
        let value = flow.value_and_gradient(theta, &mut grad);
        if !energies.iter().all(|e| e.is_finite()) || !spread.is_finite() {
            continue;
        }
        prop_assert!(!value.is_nan(), "{form:?}");
        match form {
            Form::Sum => prop_assert!(value >= 0.0, "K = {value}"),
            // −∞: nobody has a neighbour.
            Form::Log => prop_assert!(value < f64::INFINITY, "ln K = {value}"),
        }
        if form == Form::Log && value.is_finite() && gentle {
            all_finite("gradient", &grad)?;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(few(2000))]

    #[test]
    fn flows_are_numbers_whatever_the_energies_and_weights(
        n in 1..5usize,
        features in vec(finite(), 1..12),
        theta in vec(finite(), 1..3),
        weights in vec(prop_oneof![finite().prop_map(f64::abs), Just(0.0)], 4),
        g in vec(prop_oneof![4 => probability(), 1 => number()], 1..16),
        (draws, seed) in (0..4usize, any::<u64>()),
    ) {
        let mut all = features.iter().copied().cycle();
        let phi = Array2::from_shape_simple_fn((n, theta.len()), || all.next().unwrap());
        let model = LinearEnergies::new(phi).unwrap();
        let p = model.probabilities(&theta);
        if model.energies(&theta).iter().all(|e| e.is_finite()) {
            all_finite("p", &p)?;
        }
        let weights = &weights[..n];
        flows(&model, &DenseConnectivity::all_to_all(n), &theta, weights)?;
        let Ok(rule) = DenseConnectivity::new(square(n, &g)) else { return Ok(()) };
        flows(&model, &rule, &theta, weights)?;
        flows(&model, &OutsideData::new(rule.clone(), [0, 2]), &theta, weights)?;
        if let Ok(mut drawn) = Drawn::new(rule, draws, seed) {
            flows(&model, &drawn, &theta, weights)?;
            drawn.redraw();
            flows(&model, &drawn, &theta, weights)?;
        }
    }

    #[test]
    fn connections_have_finite_weights(
        n in 1..5usize,
        g in vec(probability(), 1..16),
        seed in any::<u64>(),
    ) {
        let g = square(n, &g);
        let Ok(rule) = DenseConnectivity::new(g.clone()) else { return Ok(()) };
        let mut rng = stream(seed, 0);
        for j in 0..n {
            let mut found = Vec::new();
            rule.for_each_neighbour(0, &j, &mut 0, |&i, ln| found.push((i, ln)));
            let joined = |i: &usize| g[[*i, j]] > 0.0 && g[[j, *i]] > 0.0 && *i != j;
            // No weight is lost to rounding.
            prop_assert_eq!(
                found.iter().map(|f| f.0).collect::<Vec<_>>(),
                (0..n).filter(joined).collect::<Vec<_>>()
            );
            for _ in 0..4 {
                rule.draw_neighbours(&j, &mut 0, &mut rng, |&i, ln| found.push((i, ln)));
            }
            all_finite("ln weight", found.iter().map(|f| &f.1))?;
            for i in 0..n {
                prop_assert!((0.0..=1.0).contains(&rule.weight(i, j)));
            }
        }
    }

    #[test]
    fn gradient_checks_see_what_is_not_finite(
        theta in vec(number(), 1..3),
        gradient in vec(number(), 3),
        values in vec(number(), 1..4),
        step in number(),
    ) {
        let n = theta.len();
        let mut at = 0;
        let mut objective = from_fn(n, |_: &[f64], grad: &mut [f64]| {
            grad.copy_from_slice(&gradient[..n]);
            at += 1;
            values[at % values.len()]
        });
        let error = gradient_error(&mut objective, &theta, step);
        prop_assert!(error >= 0.0, "{error}");
        if gradient[..n].iter().any(|g| !g.is_finite()) {
            prop_assert_eq!(error, f64::INFINITY);
        }
    }

    #[test]
    fn pseudo_inverses_are_finite(
        n in 1..5usize,
        values in vec(number(), 1..16),
        scale in prop_oneof![Just(1.0), Just(1e-290), Just(1e-310), Just(5e-324)],
        lambda in number(),
    ) {
        let a = square(n, &values) * scale;
        let Ok(eigen) = symmetric_eigen(a.view()) else { return Ok(()) };
        let inverse = symmetric_pseudo_inverse(&eigen, lambda);
        all_finite("inverse", &inverse)?;
        prop_assert_eq!(&inverse, &inverse.t());
    }

    #[test]
    fn dynamics_of_any_connectivity_are_finite(
        n in 1..5usize,
        energies in vec(prop_oneof![4 => -350.0..350.0f64, 1 => number()], 1..5),
        g in vec(probability(), 1..16),
        p0 in vec(probability(), 5),
        t in prop_oneof![3 => 0.0..1e3f64, 1 => number().prop_map(f64::abs)],
    ) {
        let Ok(rule) = DenseConnectivity::new(square(n, &g)) else { return Ok(()) };
        let energies: Vec<f64> = energies.iter().copied().cycle().take(n).collect();
        let Ok(dynamics) = Dynamics::new(&energies, &rule) else { return Ok(()) };
        all_finite("rates", dynamics.rates())?;
        all_finite("equilibrium", dynamics.equilibrium())?;
        let p0 = Array1::from(p0[..n].to_vec());
        all_finite("rate", [&dynamics.initial_kl_rate(p0.view())])?;
        if !t.is_nan() {
            all_finite("p(t)", &dynamics.evolve(p0.view(), t))?;
        }
    }

    #[test]
    fn divergences_are_never_silently_wrong(
        p in vec(probability(), 1..5),
        q in vec(probability(), 5),
        odd in proptest::option::of((0..5usize, any::<bool>())),
    ) {
        let n = p.len();
        let (mut p, mut q) = (Array1::from(p), Array1::from(q[..n].to_vec()));
        let divergence = kl_divergence(p.view(), q.view());
        let empty = p.iter().zip(&q).any(|(p, q)| *p > 0.0 && *q <= 0.0);
        prop_assert_eq!(divergence == f64::INFINITY, empty, "{}", divergence);
        prop_assert!(divergence > f64::NEG_INFINITY);
        if let Some((k, first)) = odd {
            if first { p[k % n] = f64::NAN } else { p[k % n] = 0.5; q[k % n] = f64::NAN }
            prop_assert!(kl_divergence(p.view(), q.view()).is_nan());
        }
        let energies: Vec<f64> = p.iter().map(|v| v * 1e308).collect();
        if energies.iter().all(|e| e.is_finite()) {
            all_finite("boltzmann", &boltzmann(&energies))?;
        }
    }

    #[test]
    fn checkpoints_keep_every_bit(bits in vec(any::<u64>(), 0..20), values in vec(number(), 0..20)) {
        let bits = || bits.iter().copied().chain(values.iter().map(|v| v.to_bits()));
        let numbers: Vec<f64> = bits().map(f64::from_bits).collect();
        let found: Vec<f64> = checkpoint::open(&checkpoint::seal(&numbers).unwrap()).unwrap();
        prop_assert!(found.iter().map(|v| v.to_bits()).eq(bits()));
    }
}

/// Features whose derivatives are whatever numbers were given.
struct Anything<'a> {
    n_features: usize,
    numbers: &'a [f64],
}

impl ExponentialFamily for Anything<'_> {
    fn n_features(&self) -> usize {
        self.n_features
    }

    fn feature_derivatives(&self, _: &[f64], gradients: &mut Array2<f64>, laplacians: &mut [f64]) {
        let numbers = self.numbers.iter().copied().cycle();
        for (to, from) in gradients.iter_mut().chain(laplacians).zip(numbers) {
            *to = from;
        }
    }
}

proptest! {
    #![proptest_config(few(1000))]

    #[test]
    fn score_matching_is_finite_or_refused(
        (d, m) in (1..3usize, 0..5usize),
        values in vec(prop_oneof![6 => finite(), 1 => number()], 1..12),
        scale in prop_oneof![Just(1.0), Just(1e-154), Just(1e-162), Just(1e-310)],
        theta in vec(finite(), 3),
        numbers in vec(number(), 1..8),
        n_features in 0..3usize,
        (side, n_nodes) in (number(), 0..4usize),
    ) {
        let all = values.iter().map(|v| v * scale).cycle();
        let states: Vec<Vec<f64>> = (0..m).map(|j| all.clone().skip(j * d).take(d).collect()).collect();
        let gaussian = GaussianPrecision::new(d);
        if let Ok(theta) = closed_form(&gaussian, &states) {
            all_finite("θ", &theta)?;
            all_finite("Λ", &gaussian.unpack(&theta))?;
        }
        if let Ok(theta) = closed_form(&Anything { n_features, numbers: &numbers }, &states) {
            all_finite("θ", &theta)?;
        }
        let theta = &theta[..gaussian.n_params()];
        let Ok(mut objective) = ScoreMatching::new(&gaussian, &states) else { return Ok(()) };
        let mut grad = vec![0.0; theta.len()];
        let _ = objective.value_and_gradient(theta, &mut grad);
        let minimizer = Minimizer::new(MinimizerOptions { max_iterations: 12, ..Default::default() });
        if let Ok(found) = minimizer.unwrap().minimize(&mut objective, theta) {
            whole(&found)?;
        }
        let Ok(cube) = Cube::new(side, n_nodes) else { return Ok(()) };
        let mut count = 0;
        let mut finite = true;
        cube.for_each_neighbour(0, &states[0], &mut vec![0.0; d], |_, ln_weight| {
            count += 1;
            finite &= ln_weight.is_finite();
        });
        prop_assert!(finite && count == n_nodes.pow(d as u32));
        let mut flow = Flow::new(&gaussian, &cube, &states).unwrap().form(Form::Log);
        if flow.value_and_gradient(theta, &mut grad).is_finite() {
            let _ = gradient_error(&mut flow, theta, 1e-3);
        }
    }
}

/// A [`Snapshot`] as `serde` writes it.
type Written = (
    Vec<(usize, f64, f64)>,
    (Vec<f64>, f64, Vec<f64>, Vec<f64>, f64, f64, usize),
    (usize, usize, f64),
    Vec<TracePoint>,
    (Option<Vec<u8>>, bool),
);

/// f with its gradient: polynomials, walls, cliffs and holes.
fn wild(kind: usize, scale: f64, power: i32) -> impl Fn(&[f64], &mut [f64]) -> f64 {
    move |theta, grad| {
        assert!(theta.iter().all(|t| t.is_finite()), "asked for {theta:?}");
        let mut value = 0.0;
        for (g, &x) in grad.iter_mut().zip(theta) {
            let (f, slope) = match kind {
                0 => (
                    scale * x.powi(power),
                    scale * f64::from(power) * x.powi(power - 1),
                ),
                1 => (x * x.ln(), x.ln() + 1.0),
                2 => (-x.abs().sqrt(), -0.5 / x.abs().sqrt() * x.signum()),
                3 => (scale * x, scale),
                _ if x.abs() < 1e-3 => (f64::NAN, 0.0),
                _ => (scale * x * x, 2.0 * scale * x),
            };
            value += f + (0.1 * x).exp();
            *g = slope + 0.1 * (0.1 * x).exp();
        }
        value
    }
}

proptest! {
    #![proptest_config(few(1500))]

    #[test]
    fn minimisations_and_their_snapshots_are_finite(
        start in vec(finite(), 1..4),
        lambda in proptest::option::of(vec(number().prop_map(f64::abs), 3)),
        (kind, scale, power) in (0..5usize, number(), 0..4i32),
        tolerance in prop_oneof![3 => Just(1e-6), 1 => number()],
        damage in (0..9usize, number()),
    ) {
        let n = start.len();
        let lambda = lambda.map_or(Vec::new(), |l| l[..n].to_vec());
        let f = wild(kind, scale, power);
        let minimizer = Minimizer::new(MinimizerOptions {
            gradient_tolerance: tolerance,
            max_iterations: 30,
            snapshots: true,
            ..Default::default()
        });
        let Ok(minimizer) = minimizer else { return Ok(()) };
        let mut snapshots: Vec<Snapshot> = Vec::new();
        let found = minimizer.minimize_l1(&mut from_fn(n, &f), &start, &lambda, |progress| {
            snapshots.extend(progress.snapshot.cloned());
        });
        let Ok(found) = found else { return Ok(()) };
        whole(&found)?;
        // A minimum is a place where the objective is a number.
        let mut grad = vec![0.0; n];
        let value = from_fn(n, &f).value_and_gradient(&found.theta, &mut grad);
        all_finite("f at the minimum", grad.iter().chain([&value]))?;

        let middle = snapshots.swap_remove(snapshots.len() / 2);
        all_finite("snapshot", middle.theta().iter().chain([&middle.seconds()]))?;
        let sealed = checkpoint::seal(&middle).unwrap();
        let middle: Snapshot = checkpoint::open(&sealed).unwrap();
        let resumed = minimizer.resume(&mut from_fn(n, &f), middle, &lambda, |_| {}).unwrap();
        prop_assert_eq!(&resumed.theta, &found.theta);

        let mut written: Written = checkpoint::open(&sealed).unwrap();
        let number = damage.1;
        match damage.0 {
            0 => written.1.0[0] = number,
            1 => written.1.1 = number,
            2 => written.1.2[0] = number,
            3 => written.1.3[0] = number,
            4 => written.1.4 = number,
            5 => written.1.5 = number,
            6 => written.2.2 = number,
            7 => written.3[0].value = number,
            _ => written.0.iter_mut().for_each(|penalised| penalised.2 = number),
        }
        let damaged: Snapshot = checkpoint::open(&checkpoint::seal(&written).unwrap()).unwrap();
        if let Ok(found) = minimizer.resume(&mut from_fn(n, &f), damaged, &lambda, |_| {}) {
            whole(&found)?;
        }

        if let Ok(mut ridge) = Ridge::new(from_fn(n, &f), lambda) {
            let _ = ridge.value_and_gradient(&start, &mut grad);
        }
    }
}
