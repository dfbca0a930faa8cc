//! Numbers at the edge of `f64` through the public interface of this crate: results are finite,
//! documented not to be, or typed errors. Calm numbers must also give the right result.

use mpf_core::linalg::{
    log_determinant_and_inverse, positive_definite_inverse, singular_values, symmetric_eigen,
    symmetric_pseudo_inverse,
};
use mpf_core::rng::stream;
use mpf_core::{
    Connectivity, Cube, DenseConnectivity, Drawn, Dynamics, EnergyModel, ExponentialFamily, Flow,
    FlowForm, GaussianPrecision, LinearEnergies, Minimizer, MinimizerOptions, Minimum, Objective,
    OutsideData, Ridge, SampledConnectivity, ScoreMatching, TracePoint, boltzmann, from_fn,
    gradient_error, kl_divergence, score_closed_form,
};
use mpf_testkit::{StopAfter, all_finite, few, finite, in_memory, number};
use ndarray::{Array1, Array2, Axis};
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

/// Checks K and ln K with their gradients, of states `0..n` with `weights`.
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
    let mut found = Vec::new();
    for form in [FlowForm::Sum, FlowForm::Log] {
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
            FlowForm::Sum => prop_assert!(value >= 0.0, "K = {value}"),
            // −∞: no state has a neighbour.
            FlowForm::Log => prop_assert!(value < f64::INFINITY, "ln K = {value}"),
        }
        if form == FlowForm::Log && value.is_finite() && gentle {
            all_finite("gradient", &grad)?;
        }
        found.push(value);
    }
    // Both forms are the sum over all pairs, where no term is lost to rounding.
    let total: f64 = weights.iter().sum();
    let calm = spread < 300.0 && weights.iter().all(|w| *w == 0.0 || w / total > 1e-100);
    if let [sum, log] = found[..]
        && calm
    {
        let mut expected = 0.0;
        for (j, w) in weights.iter().enumerate() {
            rule.for_each_neighbour(j, &j, &mut 0, |&i, ln_weight| {
                expected += w / total * (0.5 * (energies[j] - energies[i]) + ln_weight).exp();
            });
        }
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * (1.0 + b.abs());
        prop_assert!(
            close(sum / expected, 1.0) || expected < 1e-290,
            "{sum} {expected}"
        );
        prop_assert!(
            close(log, expected.ln()) || expected < 1e-290,
            "{log} {expected}"
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(few(1000))]

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
            prop_assert!(found.iter().all(|f| f.1 <= 0.0), "√(g g′) > 1: {found:?}");
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
        let plain = |v: &[f64]| v.iter().all(|v| v.is_finite());
        if !plain(&gradient[..n]) {
            prop_assert_eq!(error, f64::INFINITY);
        } else if values.len() == 1 && plain(&values) && step.is_normal() {
            // A constant has the gradient 0.
            let largest = gradient[..n].iter().fold(0.0f64, |m, g| m.max(g.abs()));
            prop_assert_eq!(error, largest / (1.0 + largest));
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
        let sizes = || eigen.0.iter().map(|v| v.abs());
        let (smallest, largest) = (sizes().fold(f64::MAX, f64::min), sizes().fold(0.0, f64::max));
        if lambda == 0.0 && smallest > 1e-6 * largest && (1e-100..1e100).contains(&largest) {
            let a = Array2::from_shape_fn((n, n), |(i, j)| a[[i.max(j), i.min(j)]]);
            let off = inverse.dot(&a) - Array2::<f64>::eye(n);
            prop_assert!(off.iter().all(|e| e.abs() < 1e-6), "{off}");
        }
    }

    #[test]
    fn linear_algebra_is_finite_or_an_error(n in 0..5usize, values in vec(number(), 1..30)) {
        let a = square(n, &values);
        let symmetric = Array2::from_shape_fn((n, n), |(i, j)| a[[i.max(j), i.min(j)]]);
        let finite = a.iter().all(|v| v.is_finite()) && n > 0;
        let calm = finite && a.iter().all(|v| v.abs() < 1e100);
        let eigen = symmetric_eigen(symmetric.view());
        let svd = singular_values(a.view());
        prop_assert!(!calm || (eigen.is_ok() && svd.is_ok()));
        prop_assert!(finite || svd.is_err());
        if let Ok((values, vectors)) = &eigen {
            all_finite("eigenvalues", values)?;
            all_finite("eigenvectors", vectors)?;
            prop_assert!(values.windows(2).into_iter().all(|w| w[0] <= w[1]));
        }
        if let Ok((u, s, vt)) = &svd {
            all_finite("svd", u.iter().chain(s).chain(vt))?;
            prop_assert!(s.windows(2).into_iter().all(|w| w[0] >= w[1]) && s[n - 1] >= 0.0, "{s}");
        }
        if let Ok((log_determinant, inverse)) = log_determinant_and_inverse(a.view()) {
            all_finite("inverse", inverse.iter().chain([&log_determinant]))?;
            let off = inverse.dot(&a) - Array2::<f64>::eye(n);
            let largest = |m: &Array2<f64>| m.fold(0.0f64, |m, v| m.max(v.abs()));
            let condition = largest(&a) * largest(&inverse);
            prop_assert!(condition > 1e6 || largest(&off) < 1e-9 * condition, "{off}");
        }
        if let Ok(inverse) = positive_definite_inverse(symmetric.view()) {
            all_finite("inverse", &inverse)?;
            prop_assert!(inverse.diag().iter().all(|v| *v > 0.0), "{inverse}");
        }
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
        // No probability is made or lost.
        let columns = dynamics.rates().sum_axis(Axis(0));
        let largest = dynamics.rates().fold(0.0f64, |m, v| m.max(v.abs()));
        prop_assert!(columns.iter().all(|c| c.abs() <= 1e-14 * largest), "{columns}");
        if !t.is_nan() {
            let p = dynamics.evolve(p0.view(), t);
            all_finite("p(t)", &p)?;
            let calm = energies.iter().all(|e| e.abs() < 10.0);
            prop_assert!(!calm || (p.sum() - p0.sum()).abs() < 1e-9, "{p} of {p0}");
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
        // Between distributions it is not negative, and 0 only for equal ones.
        if p.sum() > 1e-3 && q.sum() > 1e-3 {
            let (p, q) = (&p / p.sum(), &q / q.sum());
            let divergence = kl_divergence(p.view(), q.view());
            // Pinsker's inequality.
            let distance = (&p - &q).mapv(f64::abs).sum();
            prop_assert!(divergence >= 0.5 * distance * distance - 1e-12, "{divergence}");
            prop_assert_eq!(kl_divergence(p.view(), p.view()), 0.0);
        }
        if let Some((k, first)) = odd {
            if first { p[k % n] = f64::NAN } else { p[k % n] = 0.5; q[k % n] = f64::NAN }
            prop_assert!(kl_divergence(p.view(), q.view()).is_nan());
        }
        let energies: Vec<f64> = p.iter().map(|v| v * 1e308).collect();
        if energies.iter().all(|e| e.is_finite()) {
            let p = boltzmann(&energies);
            all_finite("boltzmann", &p)?;
            prop_assert!((p.iter().sum::<f64>() - 1.0).abs() < 1e-14);
        }
    }

    #[test]
    fn checkpoints_keep_every_bit(bits in vec(any::<u64>(), 0..20), values in vec(number(), 0..20)) {
        let bits = || bits.iter().copied().chain(values.iter().map(|v| v.to_bits()));
        let numbers: Vec<f64> = bits().map(f64::from_bits).collect();
        let file = StopAfter::new(usize::MAX);
        file.checkpoint().offer(|| numbers);
        let found: Vec<f64> = file.resumed().1.resume().unwrap().expect("it was written");
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
        if let Ok(theta) = score_closed_form(&gaussian, &states) {
            all_finite("θ", &theta)?;
            all_finite("Λ", &gaussian.unpack(&theta))?;
            // It is the minimum: its gradient ⟨∇φ ∇E⟩ − b vanishes, up to the condition of A.
            let mut grad = vec![0.0; theta.len()];
            let mut objective = ScoreMatching::new(&gaussian, &states).unwrap();
            objective.value_and_gradient(&theta, &mut grad);
            let calm = theta.iter().all(|t| t.abs() < 1e3)
                && states.iter().flatten().all(|x| x.abs() < 10.0);
            prop_assert!(!calm || grad.iter().all(|g| g.abs() < 1e-6), "{grad:?}");
        }
        if let Ok(theta) = score_closed_form(&Anything { n_features, numbers: &numbers }, &states) {
            all_finite("θ", &theta)?;
        }
        let theta = &theta[..gaussian.n_params()];
        let Ok(mut objective) = ScoreMatching::new(&gaussian, &states) else { return Ok(()) };
        let mut grad = vec![0.0; theta.len()];
        let value = objective.value_and_gradient(theta, &mut grad);
        let calm = states.iter().flatten().chain(theta).all(|v| v.abs() < 1e70);
        prop_assert!(!calm || value.is_finite(), "{value}");
        let minimizer = Minimizer::new(MinimizerOptions { max_iterations: 12, ..Default::default() });
        let found = minimizer.unwrap().minimize(&mut objective, theta);
        let starts = value.is_finite() && grad.iter().all(|g| g.is_finite());
        prop_assert_eq!(found.is_ok(), starts);
        if let Ok(found) = found {
            whole(&found)?;
            prop_assert!(found.value <= value);
        }
        let Ok(cube) = Cube::new(side, n_nodes) else { return Ok(()) };
        let mut count = 0;
        let mut finite = true;
        cube.for_each_neighbour(0, &states[0], &mut vec![0.0; d], |_, ln_weight| {
            count += 1;
            finite &= ln_weight.is_finite();
        });
        prop_assert!(finite && count == n_nodes.pow(d as u32));
        let mut flow = Flow::new(&gaussian, &cube, &states).unwrap().form(FlowForm::Log);
        let calm = states.iter().flatten().chain(theta).all(|v| v.abs() < 4.0) && side < 4.0;
        if calm {
            // Steps h⁴ ~ 1e-12 against derivatives of a few thousand.
            let error = gradient_error(&mut flow, theta, 1e-3);
            prop_assert!(error < 1e-6, "{error}");
        }
    }
}

/// The state of a minimisation, as it is written.
type Written = (
    Vec<(usize, f64, f64)>,
    (Vec<f64>, f64, Vec<f64>, Vec<f64>, f64, f64, usize),
    (usize, usize, usize, bool, f64),
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
    #![proptest_config(few(500))]

    #[test]
    fn minimisations_are_finite_resume_exactly_and_survive_forged_states(
        start in vec(prop_oneof![9 => finite(), 1 => number()], 1..4),
        lambda in proptest::option::of(vec(number().prop_map(f64::abs), 3)),
        (kind, scale, power) in (0..5usize, number(), 0..4i32),
        tolerance in prop_oneof![3 => Just(1e-6), 1 => number()],
        damage in (0..9usize, number()),
    ) {
        let n = start.len();
        let lambda = lambda.map_or(Vec::new(), |l| l[..n].to_vec());
        let f = wild(kind, scale, power);
        let options = MinimizerOptions {
            gradient_tolerance: tolerance,
            max_iterations: 30,
            ..Default::default()
        };
        let run = |options: MinimizerOptions| {
            Minimizer::new(options)?.minimize_l1(&mut from_fn(n, &f), &start, &lambda, |_| {})
        };
        let found = run(options.clone());
        let mut grad = vec![0.0; n];
        if let Ok(mut ridge) = Ridge::new(from_fn(n, &f), lambda.clone())
            && start.iter().all(|v| v.is_finite())
        {
            let plain = f(&start, &mut grad);
            let penalised = ridge.value_and_gradient(&start, &mut grad);
            prop_assert!(penalised >= plain || !plain.is_finite(), "{penalised} {plain}");
        }
        let Ok(found) = found else { return Ok(()) };
        whole(&found)?;
        prop_assert!(found.value <= found.trace[0].value);
        // A minimum is a place where the objective is finite.
        let value = from_fn(n, &f).value_and_gradient(&found.theta, &mut grad);
        all_finite("f at the minimum", grad.iter().chain([&value]))?;

        let file = StopAfter::new(1 + found.iterations / 2);
        let stopped = run(MinimizerOptions {
            cancel: file.cancel().clone(),
            checkpoint: file.checkpoint(),
            ..options.clone()
        });
        whole(&stopped.unwrap())?;
        let (_, checkpoint) = file.resumed();
        let mut written: Written = checkpoint.resume().unwrap().expect("it was written");
        let resumed = run(MinimizerOptions { checkpoint, ..options.clone() }).unwrap();
        prop_assert_eq!(&resumed.theta, &found.theta);

        let number = damage.1;
        match damage.0 {
            0 => written.1.0[0] = number,
            1 => written.1.1 = number,
            2 => written.1.2[0] = number,
            3 => written.1.3[0] = number,
            4 => written.1.4 = number,
            5 => written.1.5 = number,
            6 => written.2.4 = number,
            7 => written.3[0].value = number,
            _ => written.0.iter_mut().for_each(|penalised| penalised.2 = number),
        }
        // Forged numbers may give a wrong result, but no panic.
        let forged = run(MinimizerOptions { checkpoint: in_memory(written), ..options });
        prop_assert!(number.is_finite() || damage.0 > 5 || forged.is_err());
    }
}
