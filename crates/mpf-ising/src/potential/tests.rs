use super::*;
use crate::{Exact, LocalIsing};
use mpf_core::rng::stream;
use mpf_core::{EnergyModel, LocalExact};
use ndarray::Array2;

fn numbers(n: usize, scale: f64, seed: u64) -> Vec<f64> {
    let mut rng = stream(seed, 0);
    (0..n)
        .map(|_| scale * rng.random_range(-1.0..1.0))
        .collect()
}

/// A K-pairwise model of 8 units.
fn small() -> (Couplings, LocalIsing, Vec<f64>) {
    let couplings = Couplings::unpack(8, &numbers(36, 0.5, 5)).unwrap();
    let potential: Vec<f64> = (0..9)
        .map(|n| 0.15 * f64::from((n - 3) * (n - 3)))
        .collect();
    let couplings = couplings.with_potential(potential.clone()).unwrap();
    let theta = [couplings.pack(), potential].concat();
    let model = LocalIsing {
        n_units: 8,
        has_potential: true,
    };
    (couplings, model, theta)
}

#[test]
fn enumeration_knows_the_potential() {
    let (couplings, model, theta) = small();
    let (exact, local) = (
        Exact::new(&couplings).unwrap(),
        LocalExact::new(&model, &theta).unwrap(),
    );
    assert!((exact.log_z() - local.log_z()).abs() < 1e-12);
    for (a, b) in exact.probabilities().iter().zip(local.probabilities()) {
        assert!((a - b).abs() < 1e-14);
    }
    let energy = local.mean(|x| model.energy(&theta, x));
    assert!((exact.mean_energy() - energy).abs() < 1e-12);
    let entropy: f64 = -local
        .probabilities()
        .iter()
        .map(|p| p * p.ln())
        .sum::<f64>();
    assert!((exact.entropy() - entropy).abs() < 1e-11);
}

#[test]
fn particles_find_the_sums_over_states() {
    // Random couplings, and a ferromagnet of which particles from one end alone miss a mode.
    let (random, ..) = small();
    let cold = Array2::from_shape_fn((8, 8), |(i, j)| if i == j { 5.0 } else { -1.0 });
    for j in [random.as_array().clone(), cold] {
        let couplings = Couplings::new(j).unwrap();
        let exact = Exact::new(&couplings).unwrap();
        let p = exact.probabilities();
        let found = log_z(&couplings, &Cancel::new());
        assert_eq!(found.len(), 9);
        for (n, found) in found.iter().enumerate() {
            let states = (0..256usize).filter(|x| x.count_ones() as usize == n);
            let z: f64 = states.map(|x| p[x]).sum();
            let expected = z.ln() + exact.log_z();
            // Chains of a last round of some 1200 sweeps: about a tenth.
            assert!((found - expected).abs() < 0.3, "{n}: {found} {expected}");
        }
    }
}

#[test]
fn a_potential_survives_serialisation() {
    let (couplings, ..) = small();
    let text = serde_json::to_string(&couplings).unwrap();
    let back: Couplings = serde_json::from_str(&text).unwrap();
    assert_eq!(back, couplings);
}

#[test]
fn wide_models_grow_fewer_particles() {
    assert_eq!(n_particles(1), PARTICLES);
    assert_eq!(n_particles(100), PARTICLES);
    assert_eq!(n_particles(1000), 68);
    assert_eq!(n_particles(usize::MAX), FEWEST_PARTICLES);
}

/// Without time a few particles go on: enough where every state of n active units is as likely.
#[test]
fn sums_without_time_are_rough_but_right_without_couplings() {
    let (d, bias) = (12, 0.7);
    let couplings = Couplings::new(Array2::from_diag_elem(d, bias)).unwrap();
    let found = log_z(&couplings, &Cancel::new().within(0.0));
    let mut expected = 0.0;
    for (n, found) in found.iter().enumerate() {
        assert!((found - expected).abs() < 1e-9, "{n}: {found} {expected}");
        expected += ((d - n) as f64 / (n + 1) as f64).ln() - bias;
    }
}

#[test]
fn a_potential_far_beyond_the_samples_is_finite() {
    let knots = CountKnots {
        knots: vec![3, 4],
        shares: vec![0.5, 0.5],
        smoothness: 0.0,
        gauge: 0,
    };
    let mut potential = vec![0.0; 1501];
    knots.match_data(&[0.0; 1501], 100.0, &mut potential);
    // The wanted share of every further number is half that of the one before.
    let beyond = potential[5..].windows(2);
    assert!(
        beyond
            .map(|v| v[1] - v[0])
            .all(|step| (step - LN_2).abs() < 1e-9)
    );
    assert!(potential[1500].is_finite());
}
