//! The dynamics behind the objective: Eqs. `mastereqn` and `detailed_balance`, Appendices A, D.

use mpf_core::kl_divergence;
use mpf_core::rng::stream;
use mpf_core::{
    DenseConnectivity, Dynamics, Flow, LinearEnergies, Objective, OutsideData, SampledConnectivity,
};
use ndarray::{Array1, Array2};
use rand::{Rng, RngExt, TryRng};

fn random_dynamics(n: usize, seed: u64) -> (Vec<f64>, Array2<f64>, Dynamics) {
    let mut rng = stream(seed, 0);
    let energies: Vec<f64> = (0..n).map(|_| rng.random_range(-2.0..2.0)).collect();
    let g = Array2::from_shape_simple_fn((n, n), || rng.random_range(0.1..1.0));
    let connectivity = DenseConnectivity::new(g.clone()).unwrap();
    let dynamics = Dynamics::new(&energies, &connectivity).unwrap();
    (energies, g, dynamics)
}

#[test]
fn columns_sum_to_zero_and_detailed_balance_holds() {
    for seed in 0..5 {
        let (_, _, dynamics) = random_dynamics(6, seed);
        let (rates, p) = (dynamics.rates(), dynamics.equilibrium());
        for j in 0..6 {
            assert!(rates.column(j).sum().abs() < 1e-13);
            for i in 0..6 {
                let balance = rates[[j, i]] * p[i] - rates[[i, j]] * p[j];
                assert!(balance.abs() < 1e-15, "{balance}");
            }
        }
        // Hence equilibrium is a fixed point.
        assert!(rates.dot(p).iter().all(|f| f.abs() < 1e-14));
    }
}

#[test]
fn the_data_distribution_flows_to_the_model() {
    let (_, _, dynamics) = random_dynamics(5, 7);
    let p0 = Array1::from(vec![0.6, 0.0, 0.3, 0.1, 0.0]);
    assert!(
        (dynamics.evolve(p0.view(), 0.0) - &p0)
            .iter()
            .all(|e| e.abs() < 1e-13)
    );
    let late = dynamics.evolve(p0.view(), 200.0);
    assert!(
        (&late - dynamics.equilibrium())
            .iter()
            .all(|e| e.abs() < 1e-12)
    );
    // Half way there it is the solution of ṗ = Γp: compare with a small Euler-midpoint step.
    let (t, h) = (0.3, 1e-4);
    let before = dynamics.evolve(p0.view(), t - h);
    let after = dynamics.evolve(p0.view(), t + h);
    let slope = dynamics.rates().dot(&dynamics.evolve(p0.view(), t));
    // A central difference errs by h² |p⃛|/6 ~ 1e-7.
    assert!(
        (((after - before) / (2.0 * h)) - slope)
            .iter()
            .all(|e| e.abs() < 1e-6)
    );
}

#[test]
fn k_is_the_initial_growth_of_the_divergence() {
    // Appendix A: d/dt D_KL(p⁽⁰⁾‖p⁽ᵗ⁾) at 0 = Σ_{i∉D} ṗ_i = the objective over i ∉ D.
    let n = 6;
    let mut rng = stream(3, 0);
    let features = Array2::from_shape_simple_fn((n, 2), || rng.random_range(-1.0..1.0));
    let model = LinearEnergies::new(features).unwrap();
    let g = Array2::from_shape_simple_fn((n, n), || rng.random_range(0.1..1.0));
    let connectivity = DenseConnectivity::new(g).unwrap();
    let theta = [1.2, -0.7];
    let dynamics = Dynamics::new(&model.energies(&theta), &connectivity).unwrap();

    let p0 = Array1::from(vec![0.5, 0.0, 0.0, 0.2, 0.3, 0.0]);
    let rate = dynamics.initial_kl_rate(p0.view());

    let outside = OutsideData::new(connectivity, [0usize, 3, 4]);
    let mut flow = Flow::new(&model, &outside, &[0usize, 3, 4]).unwrap();
    flow = flow.weighted(&[0.5, 0.2, 0.3]).unwrap();
    let k = flow.value_and_gradient(&theta, &mut [0.0; 2]);
    assert!((rate - k).abs() < 1e-14);

    // Divergence at t and t/2, extrapolated to the slope at 0.
    let slope = |t: f64| kl_divergence(p0.view(), dynamics.evolve(p0.view(), t).view()) / t;
    let extrapolated = 2.0 * slope(5e-5) - slope(1e-4);
    assert!((extrapolated - rate).abs() < 1e-6, "{extrapolated} {rate}");
}

/// A source of "randomness" that opens exactly the connections of a bit pattern.
struct Script {
    /// One entry per call: 0 is below every probability, `u64::MAX` above every one below 1.
    draws: Vec<u64>,
    at: usize,
}

impl TryRng for Script {
    type Error = std::convert::Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        unreachable!("a uniform f64 takes 64 bits")
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        self.at += 1;
        Ok(self.draws[self.at - 1])
    }

    fn try_fill_bytes(&mut self, _: &mut [u8]) -> Result<(), Self::Error> {
        unreachable!("a uniform f64 takes 64 bits")
    }
}

#[test]
fn sampled_connections_satisfy_detailed_balance_on_average() {
    // Exact summation: every pattern of open and closed connections out of every state, with its
    // probability, gives <Γ_ij>. With the factor (g_ji/g_ij)^½ detailed balance holds.
    let n = 5;
    let (energies, g, dynamics) = random_dynamics(n, 11);
    let connectivity = DenseConnectivity::new(g.clone()).unwrap();
    let mut average = Array2::<f64>::zeros((n, n));
    for j in 0..n {
        let others: Vec<usize> = (0..n).filter(|&i| i != j).collect();
        for pattern in 0..1u32 << (n - 1) {
            let open = |k: usize| pattern >> k & 1 == 1;
            let mut probability = 1.0;
            let mut draws = Vec::new();
            for (k, &i) in others.iter().enumerate() {
                probability *= if open(k) { g[[i, j]] } else { 1.0 - g[[i, j]] };
                draws.push(if open(k) { 0 } else { u64::MAX });
            }
            let mut script = Script { draws, at: 0 };
            let rng: &mut dyn Rng = &mut script;
            connectivity.draw_neighbours(&j, &mut 0, rng, |&i, ln_weight| {
                let rate = (0.5 * (energies[j] - energies[i]) + ln_weight).exp();
                average[[i, j]] += probability * rate;
            });
        }
    }
    let p = dynamics.equilibrium();
    for i in 0..n {
        for j in 0..n {
            let balance = average[[j, i]] * p[i] - average[[i, j]] * p[j];
            assert!(balance.abs() < 1e-15, "{balance}");
            if i != j {
                assert!((average[[i, j]] - dynamics.rates()[[i, j]]).abs() < 1e-13);
            }
        }
    }
}

#[test]
fn divergence_of_unreachable_mass_is_infinite() {
    let p = Array1::from(vec![0.5, 0.5]);
    let q = Array1::from(vec![1.0, 0.0]);
    assert_eq!(kl_divergence(p.view(), q.view()), f64::INFINITY);
    assert_eq!(kl_divergence(q.view(), p.view()), 2f64.ln());
    assert!(Dynamics::new(&[0.0; 3], &DenseConnectivity::all_to_all(2)).is_err());
    assert!(Dynamics::new(&[0.0, f64::NAN], &DenseConnectivity::all_to_all(2)).is_err());
}
