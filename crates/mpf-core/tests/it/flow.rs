//! K and ∇K of any model over any connectivity: Eqs. `K_finalform` and `Kgrad`, Appendices B, D.

use mpf_core::linalg::symmetric_eigen;
use mpf_core::rng::stream;
use mpf_core::{
    Connectivity, DenseConnectivity, Drawn, EnergyModel, Error, Flow, FlowForm, LinearEnergies,
    Minimizer, MinimizerOptions, Objective, OutsideData, gradient_error,
};
use ndarray::{Array2, array};
use rand::RngExt;

fn random_features(n_states: usize, n_params: usize, seed: u64) -> LinearEnergies {
    let mut rng = stream(seed, 0);
    let features =
        Array2::from_shape_simple_fn((n_states, n_params), || rng.random_range(-1.0..1.0));
    LinearEnergies::new(features).unwrap()
}

fn random_g(n: usize, seed: u64) -> DenseConnectivity {
    let mut rng = stream(seed, 1);
    DenseConnectivity::new(Array2::from_shape_simple_fn((n, n), || {
        rng.random_range(0.05..1.0)
    }))
    .unwrap()
}

fn evaluate(objective: &mut impl Objective, theta: &[f64]) -> (f64, Vec<f64>) {
    let mut grad = vec![0.0; theta.len()];
    let value = objective.value_and_gradient(theta, &mut grad);
    (value, grad)
}

/// A model that is not linear in θ, over states that cannot be enumerated. Every constant is random:
/// a fixed one could hide a wrong term.
struct Curved {
    a: [f64; 3],
}

impl EnergyModel for Curved {
    type State = [f64];

    fn n_params(&self) -> usize {
        2
    }

    fn energy(&self, t: &[f64], x: &[f64]) -> f64 {
        self.a[0] * (t[0] * x[0]).sin() + self.a[1] * t[1] * t[1] * x[1] + self.a[2] * t[0] * x[1]
    }

    fn add_energy_grad(&self, t: &[f64], x: &[f64], scale: f64, out: &mut [f64]) {
        out[0] += scale * (self.a[0] * x[0] * (t[0] * x[0]).cos() + self.a[2] * x[1]);
        out[1] += scale * 2.0 * self.a[1] * t[1] * x[1];
    }
}

/// Steps of ±δ along every axis, the negative ones with another weight.
struct Cross {
    delta: f64,
    ln_weight: f64,
}

impl Connectivity<[f64]> for Cross {
    fn for_each_neighbour(
        &self,
        _sample: usize,
        x: &[f64],
        scratch: &mut [f64],
        mut visit: impl FnMut(&[f64], f64),
    ) {
        scratch.copy_from_slice(x);
        for k in 0..x.len() {
            for (sign, ln_weight) in [(1.0, 0.0), (-1.0, self.ln_weight)] {
                scratch[k] = x[k] + sign * self.delta;
                visit(scratch, ln_weight);
            }
            scratch[k] = x[k];
        }
    }
}

#[test]
fn three_states_by_hand() {
    // E = θ·(0, 1, 3) on a path 0 – 1 – 2, data: state 0 once, state 1 three times.
    let model = LinearEnergies::new(array![[0.0], [1.0], [3.0]]).unwrap();
    let path = DenseConnectivity::new(array![[0., 1., 0.], [1., 0., 1.], [0., 1., 0.]]).unwrap();
    let t: f64 = 0.4;
    // 0 → 1 at e^{−t/2}, 1 → 0 at e^{t/2}, 1 → 2 at e^{−t}.
    let expected = ((-0.5 * t).exp() + 3.0 * ((0.5 * t).exp() + (-t).exp())) / 4.0;
    let slope = (-0.5 * (-0.5 * t).exp() + 3.0 * (0.5 * (0.5 * t).exp() - (-t).exp())) / 4.0;

    let states = [0usize, 1, 1, 1];
    let (value, grad) = evaluate(&mut Flow::new(&model, &path, &states).unwrap(), &[t]);
    assert!((value - expected).abs() < 1e-15);
    assert!((grad[0] - slope).abs() < 1e-15);

    // Weights do the same as repeats, and ln K has ln's value and gradient.
    let flow = || {
        let flow = Flow::new(&model, &path, &[0usize, 1]).unwrap();
        flow.weighted(&[1.0, 3.0]).unwrap()
    };
    assert_eq!(evaluate(&mut flow(), &[t]), (value, grad));
    let (log_value, log_grad) = evaluate(&mut flow().form(FlowForm::Log), &[t]);
    assert!((log_value - expected.ln()).abs() < 1e-15);
    assert!((log_grad[0] - slope / expected).abs() < 1e-15);

    // The paper's sum leaves the flow between the data states 0 and 1 out.
    let outside = OutsideData::new(path.clone(), [0usize, 1]);
    let states = [0usize, 1, 1, 1];
    let (value, _) = evaluate(&mut Flow::new(&model, &outside, &states).unwrap(), &[t]);
    assert!((value - 0.75 * (-t).exp()).abs() < 1e-15);
}

#[test]
fn gradients_agree_with_differences_for_any_model_and_connectivity() {
    for seed in 0..5 {
        let mut rng = stream(seed, 2);
        let model = Curved {
            a: std::array::from_fn(|_| rng.random_range(-1.5..1.5)),
        };
        let cross = Cross {
            delta: rng.random_range(0.1..0.5),
            ln_weight: rng.random_range(-1.0..1.0),
        };
        let states: Vec<Vec<f64>> = (0..7)
            .map(|_| (0..2).map(|_| rng.random_range(-2.0..2.0)).collect())
            .collect();
        let weights: Vec<f64> = (0..7).map(|_| rng.random_range(0.1..2.0)).collect();
        let theta = [rng.random_range(-1.0..1.0), rng.random_range(-1.0..1.0)];
        for form in [FlowForm::Sum, FlowForm::Log] {
            let mut flow = Flow::new(&model, &cross, &states).unwrap();
            flow = flow.weighted(&weights).unwrap().form(form);
            // h⁴ of the differences is 1e-12, their rounding 1e-13.
            assert!(gradient_error(&mut flow, &theta, 1e-3) < 1e-10);
        }
    }
}

#[test]
fn the_truth_is_stationary_under_exact_weights() {
    // Consistency, with an asymmetric g: weigh every state by p(x; θ*).
    for seed in 0..5 {
        let (model, g) = (random_features(6, 3, seed), random_g(6, seed));
        let truth = [0.8, -1.3, 0.4];
        let p = model.probabilities(&truth);
        let states: Vec<usize> = (0..6).collect();
        let mut flow = Flow::new(&model, &g, &states)
            .unwrap()
            .weighted(&p)
            .unwrap();
        let (_, grad) = evaluate(&mut flow, &truth);
        assert!(grad.iter().all(|g| g.abs() < 1e-12), "{grad:?}");
        // And it is the minimum, not only stationary.
        let minimizer = Minimizer::new(MinimizerOptions {
            gradient_tolerance: 1e-12,
            ..Default::default()
        })
        .unwrap();
        let found = minimizer.minimize(&mut flow, &[0.0; 3]).unwrap();
        assert!(
            found
                .theta
                .iter()
                .zip(truth)
                .all(|(a, b)| (a - b).abs() < 1e-8)
        );
    }
}

#[test]
fn k_and_ln_k_are_convex_for_an_exponential_family() {
    // Appendix B: the Hessian, from differences of the gradient, has no negative eigenvalue.
    let n_params = 4;
    for seed in 0..10 {
        let (model, g) = (random_features(7, n_params, seed), random_g(7, seed));
        let mut rng = stream(seed, 3);
        let theta: Vec<f64> = (0..n_params).map(|_| rng.random_range(-3.0..3.0)).collect();
        for form in [FlowForm::Sum, FlowForm::Log] {
            let states = [0usize, 2, 2, 5];
            let mut flow = Flow::new(&model, &g, &states).unwrap().form(form);
            let h = 1e-4;
            let mut hessian = Array2::zeros((n_params, n_params));
            for k in 0..n_params {
                let mut at = |step: f64| {
                    let mut moved = theta.clone();
                    moved[k] += step;
                    evaluate(&mut flow, &moved).1
                };
                let (up, down) = (at(h), at(-h));
                for l in 0..n_params {
                    hessian[[l, k]] = (up[l] - down[l]) / (2.0 * h);
                }
            }
            let symmetric = (&hessian + &hessian.t()) / 2.0;
            let (values, _) = symmetric_eigen(symmetric.view()).unwrap();
            let scale = values[n_params - 1];
            assert!(scale > 0.0);
            // Differences of the gradient at h = 1e-4 err by 1e-8 of its scale.
            assert!(values[0] > -1e-7 * scale, "{values}");
        }
    }
}

#[test]
fn drawn_connections_average_to_the_exact_flow() {
    // Appendix D: <Γ> from 40,000 draws against √(g_ij g_ji) exp(½[E_j − E_i]).
    let (model, g) = (random_features(4, 2, 9), random_g(4, 9));
    let theta = [0.5, -0.7];
    let states = [0usize, 3];
    let (exact, exact_grad) = evaluate(&mut Flow::new(&model, &g, &states).unwrap(), &theta);

    let draws = 1000;
    let mut drawn = Drawn::new(g, draws, 5).unwrap();
    let (mut values, mut grads) = (Vec::new(), [0.0; 2]);
    for _ in 0..40 {
        let (value, grad) = evaluate(&mut Flow::new(&model, &drawn, &states).unwrap(), &theta);
        // Held still, it is one function.
        let again = evaluate(&mut Flow::new(&model, &drawn, &states).unwrap(), &theta);
        assert_eq!((value, grad.clone()), again);
        values.push(value);
        grads
            .iter_mut()
            .zip(grad)
            .for_each(|(sum, g)| *sum += g / 40.0);
        drawn.redraw();
    }
    let mean: f64 = values.iter().sum::<f64>() / 40.0;
    let variance: f64 = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 39.0;
    assert!(variance > 0.0);
    let error = (variance / 40.0).sqrt();
    assert!((mean - exact).abs() < 5.0 * error, "{mean} {exact} {error}");
    // The gradient's terms are at most as large as the value's here: features within ±1.
    let scale = 5.0 * error.max(1e-3 * exact);
    assert!(
        grads
            .iter()
            .zip(exact_grad)
            .all(|(a, b)| (a - b).abs() < scale)
    );
}

#[test]
fn ln_k_does_not_overflow() {
    let model = LinearEnergies::new(array![[0.0], [1.0]]).unwrap();
    let g = DenseConnectivity::all_to_all(2);
    let mut flow = Flow::new(&model, &g, &[1usize]).unwrap();
    assert_eq!(evaluate(&mut flow, &[4000.0]).0, f64::INFINITY);
    let (value, grad) = evaluate(&mut flow.form(FlowForm::Log), &[4000.0]);
    assert_eq!((value, grad[0]), (2000.0, 0.5));
}

#[test]
fn bad_input_is_an_error() {
    let model = LinearEnergies::new(array![[0.0], [1.0]]).unwrap();
    let g = DenseConnectivity::all_to_all(2);
    let none: [usize; 0] = [];
    assert!(matches!(
        Flow::new(&model, &g, &none).err(),
        Some(Error::Empty { what: "states" })
    ));
    let weighted = |weights: &[f64]| {
        Flow::new(&model, &g, &[0usize, 1])
            .unwrap()
            .weighted(weights)
            .err()
            .unwrap()
    };
    assert!(matches!(
        weighted(&[1.0]),
        Error::Count {
            expected: 2,
            found: 1,
            ..
        }
    ));
    assert!(matches!(
        weighted(&[1.0, -2.0]),
        Error::Entry { index: 1, .. }
    ));
    assert!(matches!(weighted(&[0.0, 0.0]), Error::Empty { .. }));
    assert!(matches!(
        Drawn::new(g, 0, 0).err(),
        Some(Error::Option { name: "draws", .. })
    ));
    assert!(DenseConnectivity::new(array![[0.0, 1.5], [1.0, 0.0]]).is_err());
    assert!(DenseConnectivity::new(Array2::zeros((2, 3))).is_err());
}
