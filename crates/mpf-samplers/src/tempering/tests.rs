//! The full transition matrix for a few units, built from the sampler's own probabilities.

use super::*;
use crate::Error;
use mpf_core::boltzmann;
use mpf_testkit::{energies, few, number, random_couplings};
use ndarray::Array2;
use proptest::prelude::*;

/// Row x: where a sequential Gibbs sweep leads.
fn sweep_matrix(gibbs: &Gibbs) -> Array2<f64> {
    let n = 1 << gibbs.n_units();
    let mut product = Array2::eye(n);
    for unit in 0..gibbs.n_units() {
        let mut update = Array2::zeros((n, n));
        for from in 0..n {
            let state = gibbs.state(&[from as u64]).unwrap();
            let p = gibbs.conditional_probability(&state, unit);
            update[[from, from | 1 << unit]] += p;
            update[[from, from & !(1 << unit)]] += 1.0 - p;
        }
        product = product.dot(&update);
    }
    product
}

#[test]
fn tempering_leaves_the_joint_target_unchanged() {
    for (d, ladder) in [
        (2, &[1.0, 0.6, 0.2][..]),
        (3, &[1.0, 0.3]),
        (2, &[1.0, 0.0]),
    ] {
        for scale in [0.5, 3.0] {
            let couplings = random_couplings(d, scale, 40 + d as u64);
            let sampler = Tempering::new(&couplings, ladder, Scan::Sequential).unwrap();
            let energies = energies(&couplings);
            let levels = ladder.len();
            let n = 1usize << (d * levels);
            let part = |joint: usize, level: usize| joint >> (d * level) & ((1 << d) - 1);
            let pi: Vec<f64> = boltzmann(
                &(0..n)
                    .map(|joint| {
                        let level = |k: usize| ladder[k] * energies[part(joint, k)];
                        (0..levels).map(level).sum()
                    })
                    .collect::<Vec<f64>>(),
            );
            let sweeps: Vec<Array2<f64>> = (0..levels)
                .map(|k| sweep_matrix(&sampler.levels[k]))
                .collect();
            for parity in 0..2 {
                // π after the sweeps of all levels.
                let mut swept = vec![0.0; n];
                for from in 0..n {
                    for to in 0..n {
                        let p: f64 = (0..levels)
                            .map(|k| sweeps[k][[part(from, k), part(to, k)]])
                            .product();
                        swept[to] += pi[from] * p;
                    }
                }
                // Then after the swaps of one parity.
                for k in (parity..levels - 1).step_by(2) {
                    let mut swapped = vec![0.0; n];
                    for from in 0..n {
                        let (a, b) = (part(from, k), part(from, k + 1));
                        let p = sampler.swap_probability(k, energies[a], energies[b]);
                        let change = (a ^ b) << (d * k) | (a ^ b) << (d * (k + 1));
                        swapped[from ^ change] += p * swept[from];
                        swapped[from] += (1.0 - p) * swept[from];
                    }
                    swept = swapped;
                }
                for (after, pi) in swept.iter().zip(&pi) {
                    assert!((after - pi).abs() < 1e-12);
                }
            }
        }
    }
}

#[test]
fn bad_ladders_are_errors_with_the_number() {
    let j = Couplings::zeros(3).unwrap();
    let error = |ladder: &[f64]| Tempering::new(&j, ladder, Scan::Sequential).unwrap_err();
    assert!(
        matches!(error(&[0.9]), Error::Core(mpf_core::Error::Option { name: "ladder[0]", value, .. }) if value == 0.9)
    );
    assert!(
        matches!(error(&[1.0, 1.0]), Error::Core(mpf_core::Error::Option { name: "ladder", value, .. }) if value == 1.0)
    );
    assert!(matches!(
        error(&[1.0, -0.1]),
        Error::Core(mpf_core::Error::Option { name: "ladder", .. })
    ));
    assert!(matches!(
        error(&[1.0, f64::NAN]),
        Error::Core(mpf_core::Error::Option { name: "ladder", .. })
    ));
    assert!(matches!(
        error(&[]),
        Error::Core(mpf_core::Error::Option {
            name: "ladder[0]",
            ..
        })
    ));
    for options in [
        TemperingOptions {
            hottest: 1.0,
            ..Default::default()
        },
        TemperingOptions {
            n_levels: Some(1),
            ..Default::default()
        },
        TemperingOptions {
            warm_up: 3,
            ..Default::default()
        },
    ] {
        assert!(matches!(
            Tempering::tune(&j, &options),
            Err(Error::Core(mpf_core::Error::Option { .. }))
        ));
    }
}

proptest! {
    #![proptest_config(few(1500))]

    #[test]
    fn swaps_at_any_energies_have_chances(
        (energy, energy_above) in (number(), number()),
        ladder in proptest::collection::vec(0.0..1.0f64, 1..4),
    ) {
        let mut ladder = ladder;
        ladder.push(1.0);
        ladder.sort_by(|a, b| b.total_cmp(a));
        ladder.dedup();
        let model = random_couplings(3, 1.0, 1);
        let tempering = Tempering::new(&model, &ladder, Scan::Sequential).unwrap();
        for level in 0..ladder.len() - 1 {
            let p = tempering.swap_probability(level, energy, energy_above);
            if (energy - energy_above).is_nan() {
                prop_assert!(p.is_nan());
            } else {
                prop_assert!((0.0..=1.0).contains(&p), "{p}");
            }
        }
    }
}
