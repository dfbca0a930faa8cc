//! Appendix C: score matching, and MPF over small cubes on the way to it; Appendix D's numbers.

use mpf_core::rng::stream;
use mpf_core::{
    Connectivity, Cube, DenseConnectivity, Dynamics, EnergyModel, Error, Flow, GaussianPrecision,
    LinearEnergies, Minimizer, MinimizerOptions, Objective, ScoreMatching, StateDerivatives,
    gradient_error, score_closed_form,
};
use ndarray::{Array2, ArrayView1};
use rand::RngExt;
use rand_distr::StandardNormal;

/// A smooth energy that is linear in nothing: E = a (sin(t₀ x₀ + b) + t₁ x₀² x₁ + t₀ t₁ cosh(c x₁)).
struct Curved {
    a: f64,
    b: f64,
    c: f64,
}

impl EnergyModel for Curved {
    type State = [f64];

    fn n_params(&self) -> usize {
        2
    }

    fn energy(&self, t: &[f64], x: &[f64]) -> f64 {
        let Self { a, b, c } = *self;
        a * ((t[0] * x[0] + b).sin() + t[1] * x[0] * x[0] * x[1] + t[0] * t[1] * (c * x[1]).cosh())
    }

    fn add_energy_grad(&self, t: &[f64], x: &[f64], scale: f64, out: &mut [f64]) {
        let Self { a, b, c } = *self;
        let cosh = (c * x[1]).cosh();
        out[0] += scale * a * (x[0] * (t[0] * x[0] + b).cos() + t[1] * cosh);
        out[1] += scale * a * (x[0] * x[0] * x[1] + t[0] * cosh);
    }
}

impl StateDerivatives for Curved {
    fn state_derivatives(&self, t: &[f64], x: &[f64], gradient: &mut [f64]) -> f64 {
        let Self { a, b, c } = *self;
        let phase = t[0] * x[0] + b;
        gradient[0] = a * (t[0] * phase.cos() + 2.0 * t[1] * x[0] * x[1]);
        gradient[1] = a * (t[1] * x[0] * x[0] + t[0] * t[1] * c * (c * x[1]).sinh());
        a * (-t[0] * t[0] * phase.sin()
            + 2.0 * t[1] * x[1]
            + t[0] * t[1] * c * c * (c * x[1]).cosh())
    }

    fn add_state_derivatives_grad(
        &self,
        t: &[f64],
        x: &[f64],
        direction: &[f64],
        scale: f64,
        out: &mut [f64],
    ) {
        let Self { a, b, c } = *self;
        let (sin, cos) = (t[0] * x[0] + b).sin_cos();
        let (sinh, cosh) = (c * (c * x[1]).sinh(), c * c * (c * x[1]).cosh());
        let [p, q] = [direction[0], direction[1]];
        out[0] += a
            * (p * (cos - t[0] * x[0] * sin)
                + q * t[1] * sinh
                + scale * (-2.0 * t[0] * sin - t[0] * t[0] * x[0] * cos + t[1] * cosh));
        out[1] += a
            * (p * 2.0 * x[0] * x[1]
                + q * (x[0] * x[0] + t[0] * sinh)
                + scale * (2.0 * x[1] + t[0] * cosh));
    }
}

fn random_states(n: usize, n_dims: usize, seed: u64) -> Vec<Vec<f64>> {
    let mut rng = stream(seed, 0);
    let mut draw = || (0..n_dims).map(|_| rng.random_range(-1.5..1.5)).collect();
    (0..n).map(|_| draw()).collect()
}

fn value(objective: &mut impl Objective, theta: &[f64]) -> f64 {
    objective.value_and_gradient(theta, &mut vec![0.0; theta.len()])
}

#[test]
fn gradients_agree_with_differences() {
    for seed in 0..5 {
        let mut rng = stream(seed, 1);
        let curved = Curved {
            a: rng.random_range(0.5..1.5),
            b: rng.random_range(-1.0..1.0),
            c: rng.random_range(0.5..1.5),
        };
        let theta: Vec<f64> = (0..6).map(|_| rng.random_range(-1.0..1.0)).collect();
        let states = random_states(7, 2, seed);
        let mut objective = ScoreMatching::new(&curved, &states).unwrap();
        // h⁴ of the differences is 1e-12, their rounding 1e-13.
        assert!(gradient_error(&mut objective, &theta[..2], 1e-3) < 1e-10);

        let (gaussian, states) = (GaussianPrecision::new(3), random_states(7, 3, seed));
        let mut objective = ScoreMatching::new(&gaussian, &states).unwrap();
        assert!(gradient_error(&mut objective, &theta, 1e-3) < 1e-10);

        // The derivatives in x are those of the energy.
        let (x, h) = (&states[0], 1e-3);
        let mut gradient = vec![0.0; 3];
        let laplacian = gaussian.state_derivatives(&theta, x, &mut gradient);
        let mut difference = 0.0;
        for i in 0..3 {
            let at = |step: f64| {
                let mut moved = x.clone();
                moved[i] += step;
                gaussian.energy(&theta, &moved)
            };
            // Exact for a quadratic but for rounding: ε/h and ε/h².
            assert!((gradient[i] - (at(h) - at(-h)) / (2.0 * h)).abs() < 1e-11);
            difference += (at(h) + at(-h) - 2.0 * at(0.0)) / (h * h);
        }
        assert!((laplacian - difference).abs() < 1e-8);
    }
}

#[test]
fn mpf_over_shrinking_cubes_tends_to_score_matching() {
    // (K − εᵈ)/(εᵈ⁺²/48) − K_SM = O(ε²): fourfold smaller for every halving of ε. A lost ½ of
    // either term of K_SM leaves an error that does not shrink.
    let curved = Curved {
        a: 0.9,
        b: 0.4,
        c: 1.2,
    };
    let cases: [(&dyn Fn(f64) -> f64, f64); 2] = [
        (
            &|side| {
                let states = random_states(9, 2, 3);
                let cube = Cube::new(side, 8).unwrap();
                let k = value(
                    &mut Flow::new(&curved, &cube, &states).unwrap(),
                    &[0.8, -0.6],
                );
                (k - side.powi(2)) / (side.powi(4) / 48.0)
            },
            value(
                &mut ScoreMatching::new(&curved, &random_states(9, 2, 3)).unwrap(),
                &[0.8, -0.6],
            ),
        ),
        (
            &|side| {
                let states = random_states(9, 1, 4);
                let cube = Cube::new(side, 8).unwrap();
                let gaussian = GaussianPrecision::new(1);
                let k = value(&mut Flow::new(&gaussian, &cube, &states).unwrap(), &[1.7]);
                (k - side) / (side.powi(3) / 48.0)
            },
            value(
                &mut ScoreMatching::new(&GaussianPrecision::new(1), &random_states(9, 1, 4))
                    .unwrap(),
                &[1.7],
            ),
        ),
    ];
    for (scaled_flow, limit) in cases {
        let errors = [0.1, 0.05, 0.025].map(|side| (scaled_flow(side) - limit).abs());
        assert!(errors[0] < 0.1 && errors[0] > 1e-5, "{errors:?}");
        for pair in errors.windows(2) {
            // The next order, ε⁴, moves the ratio by under a hundredth.
            assert!((pair[0] / pair[1] - 4.0).abs() < 0.05, "{errors:?}");
        }
    }
}

#[test]
fn a_gaussian_is_fitted_by_its_inverse_second_moment() {
    let mut rng = stream(5, 0);
    let states: Vec<Vec<f64>> = (0..60)
        .map(|_| {
            let [a, b]: [f64; 2] = std::array::from_fn(|_| rng.sample(StandardNormal));
            vec![a, 0.6 * a + 0.5 * b]
        })
        .collect();
    let mut moment = Array2::<f64>::zeros((2, 2));
    for x in &states {
        let x = ArrayView1::from(x);
        let column = x.view().insert_axis(ndarray::Axis(1));
        moment += &(column.dot(&column.t()) / states.len() as f64);
    }
    let (_, expected) = mpf_core::linalg::log_determinant_and_inverse(moment.view()).unwrap();
    let gaussian = GaussianPrecision::new(2);
    let error = |theta: &[f64]| {
        let off = gaussian.unpack(theta) - &expected;
        off.mapv(|e| e * e).sum().sqrt() / expected.mapv(|e| e * e).sum().sqrt()
    };

    let closed = score_closed_form(&gaussian, &states).unwrap();
    // The conditions of A and of the moment are below 100.
    assert!(error(&closed) < 1e-12, "{}", error(&closed));
    let minimizer = Minimizer::new(MinimizerOptions {
        gradient_tolerance: 1e-12,
        ..Default::default()
    })
    .unwrap();
    let mut score = ScoreMatching::new(&gaussian, &states).unwrap();
    let searched = minimizer.minimize(&mut score, &[1.0, 0.0, 1.0]).unwrap();
    // Stopped by the gradient, |∇| ≤ 1e-12 or no progress at values of 1e-16: half of the digits.
    assert!(error(&searched.theta) < 1e-7);

    // MPF over cubes of side ε: the same but for O(ε²).
    let by_cube = [0.4, 0.2, 0.1].map(|side| {
        let cube = Cube::new(side, 8).unwrap();
        let mut flow = Flow::new(&gaussian, &cube, &states).unwrap();
        // K is flat, εᵈ⁺²/48 of its curvature: ask for as much as the value resolves.
        let scale = side.powi(4) / 48.0;
        let mut scaled = mpf_core::from_fn(3, |theta: &[f64], grad: &mut [f64]| {
            let k = flow.value_and_gradient(theta, grad);
            grad.iter_mut().for_each(|g| *g /= scale);
            (k - side * side) / scale
        });
        let found = minimizer.minimize(&mut scaled, &[1.0, 0.0, 1.0]).unwrap();
        error(&found.theta)
    });
    for pair in by_cube.windows(2) {
        // Rounding of K, 1e-16/ε⁴·48, is 5e-11 at ε = 0.1, so the minimiser errs by 1e-5.
        assert!(pair[0] / pair[1] > 3.5, "{by_cube:?}");
    }
    assert!(by_cube[0] < 0.1 && by_cube[2] < 5e-3, "{by_cube:?}");
}

/// E = θ|x|: the Laplace density, whose second derivative is all in the kink.
struct Laplace;

impl EnergyModel for Laplace {
    type State = [f64];

    fn n_params(&self) -> usize {
        1
    }

    fn energy(&self, t: &[f64], x: &[f64]) -> f64 {
        t[0] * x[0].abs()
    }

    fn add_energy_grad(&self, _: &[f64], x: &[f64], scale: f64, out: &mut [f64]) {
        out[0] += scale * x[0].abs();
    }
}

impl StateDerivatives for Laplace {
    /// Right everywhere but at 0, where ∇²E has a delta.
    fn state_derivatives(&self, t: &[f64], x: &[f64], gradient: &mut [f64]) -> f64 {
        gradient[0] = t[0] * x[0].signum();
        0.0
    }

    fn add_state_derivatives_grad(
        &self,
        _: &[f64],
        x: &[f64],
        direction: &[f64],
        _: f64,
        out: &mut [f64],
    ) {
        out[0] += direction[0] * x[0].signum();
    }
}

#[test]
fn a_kink_defeats_score_matching_and_not_mpf() {
    // The quantiles of the Laplace density with θ = 1, symmetric and without 0.
    let n = 4000;
    let states: Vec<Vec<f64>> = (0..n)
        .map(|k| {
            let p = (k as f64 + 0.5) / n as f64 - 0.5;
            vec![-p.signum() * (1.0 - 2.0 * p.abs()).ln()]
        })
        .collect();
    let minimizer = Minimizer::default();
    let mut score = ScoreMatching::new(&Laplace, &states).unwrap();
    let found = minimizer.minimize(&mut score, &[1.0]).unwrap();
    assert!(found.theta[0].abs() < 1e-6, "{}", found.theta[0]);

    for side in [0.5, 1.0, 2.0] {
        // Across the kink the rule is only of second order: many nodes.
        let cube = Cube::new(side, 40).unwrap();
        let mut flow = Flow::new(&Laplace, &cube, &states).unwrap();
        let found = minimizer.minimize(&mut flow, &[0.5]).unwrap();
        // Quantiles in steps of 1/4000 and 40 nodes: a few tenths of a percent.
        let theta = found.theta[0];
        assert!((theta - 1.0).abs() < 0.015, "{theta} with cubes of {side}");
    }
}

#[test]
fn without_its_factor_an_asymmetric_rule_is_wrong() {
    // Appendix D, five states and a random asymmetric g: √(g_ji/g_ij) restores detailed balance
    // and the truth; a rule that is drawn by g and not reweighted has neither.
    let n = 5;
    let mut worst_without = 0.0f64;
    for seed in 0..5 {
        let mut rng = stream(seed, 2);
        let mut random = |rows, columns, low: f64| {
            Array2::from_shape_simple_fn((rows, columns), || rng.random_range(low..1.0))
        };
        let model = LinearEnergies::new(random(n, 2, -1.0)).unwrap();
        let g = random(n, n, 0.05);
        let truth = [0.9, -0.7];
        let p = model.probabilities(&truth);
        let states: Vec<usize> = (0..n).collect();

        let rule = DenseConnectivity::new(g.clone()).unwrap();
        let dynamics = Dynamics::new(&model.energies(&truth), &rule).unwrap();
        for i in 0..n {
            for j in 0..n {
                let flow = |to: usize, from: usize| dynamics.rates()[[to, from]] * p[from];
                // Products of three numbers of order one.
                assert!((flow(i, j) - flow(j, i)).abs() < 1e-15);
            }
        }
        let mut flow = Flow::new(&model, &rule, &states).unwrap();
        flow = flow.weighted(&p).unwrap();
        let minimizer = Minimizer::default();
        let with = minimizer.minimize(&mut flow, &[0.0; 2]).unwrap();
        // |∇| ≤ 1e-6, and the smallest curvature is above 0.01.
        let off = |theta: &[f64]| (theta[0] - truth[0]).hypot(theta[1] - truth[1]);
        assert!(off(&with.theta) < 1e-4, "{}", off(&with.theta));

        let unweighted = Unweighted(g);
        let mut flow = Flow::new(&model, &unweighted, &states).unwrap();
        flow = flow.weighted(&p).unwrap();
        let without = minimizer.minimize(&mut flow, &[0.0; 2]).unwrap();
        worst_without = worst_without.max(off(&without.theta));
    }
    assert!(worst_without > 0.3, "{worst_without}");
}

/// Connections that open with probability g_ij, at rate exp(½[E_j − E_i]) and no more.
struct Unweighted(Array2<f64>);

impl Connectivity<usize> for Unweighted {
    fn for_each_neighbour(
        &self,
        _sample: usize,
        &j: &usize,
        scratch: &mut usize,
        mut visit: impl FnMut(&usize, f64),
    ) {
        for i in (0..self.0.nrows()).filter(|&i| i != j) {
            *scratch = i;
            visit(scratch, self.0[[i, j]].ln());
        }
    }
}

#[test]
fn the_cubes_rule_integrates_polynomials_exactly() {
    // n nodes: degree 2n − 1. ∫ y⁴ z² over a cube of side 1 about (0.3, −1).
    let cube = Cube::new(1.0, 3).unwrap();
    let mut sum = 0.0;
    cube.for_each_neighbour(0, &[0.3, -1.0], &mut [0.0; 2], |y, ln_weight| {
        sum += ln_weight.exp() * y[0].powi(4) * y[1].powi(2);
    });
    let y = (0.8f64.powi(5) + 0.2f64.powi(5)) / 5.0;
    let z = (1.5f64.powi(3) - 0.5f64.powi(3)) / 3.0;
    assert!((sum - y * z).abs() < 1e-14);
}

#[test]
fn bad_input_is_an_error() {
    assert!(matches!(
        Cube::new(0.0, 4).err(),
        Some(Error::Option { name: "side", .. })
    ));
    assert!(matches!(
        Cube::new(1.0, 0).err(),
        Some(Error::Option {
            name: "n_nodes",
            ..
        })
    ));
    let gaussian = GaussianPrecision::new(2);
    assert_eq!(
        score_closed_form(&gaussian, &[]),
        Err(Error::Empty { what: "states" })
    );
    // Two states on one line do not determine three numbers.
    let line = [vec![1.0, 1.0], vec![2.0, 2.0]];
    assert_eq!(
        score_closed_form(&gaussian, &line),
        Err(Error::Singular { size: 3 })
    );
    let ragged = [vec![1.0, 1.0], vec![2.0]];
    assert!(matches!(
        ScoreMatching::new(&gaussian, &ragged).err(),
        Some(Error::Count { found: 1, .. })
    ));
    let nan = [vec![1.0, f64::NAN]];
    assert!(matches!(
        ScoreMatching::new(&gaussian, &nan).err(),
        Some(Error::Entry { index: 1, .. })
    ));
}
