//! The full transition matrix for a few units, built from the sampler's own probabilities.

use super::*;
use mpf_core::rng::stream;
use mpf_testkit::{cycle, few, number, probabilities, random_couplings, seed};
use ndarray::{Array2, array};
use proptest::collection::vec;
use proptest::prelude::*;

/// Targets with fields and frustration, and some without.
fn targets() -> Vec<Couplings> {
    let mut targets = Vec::new();
    for d in 1..=4 {
        for (k, scale) in [0.4, 1.5, 5.0].into_iter().enumerate() {
            targets.push(random_couplings(d, scale, 100 + 10 * d as u64 + k as u64));
        }
    }
    // A frustrated triangle without fields, and J = 0.
    targets.push(
        Couplings::new(array![[-2.0, 1.0, 1.0], [1.0, -2.0, 1.0], [1.0, 1.0, -2.0]]).unwrap(),
    );
    targets.push(Couplings::zeros(3).unwrap());
    targets
}

/// Row x: where a step leads from state x, summed over all bonds and all choices of clusters.
fn swendsen_wang_matrix(sampler: &SwendsenWang) -> Array2<f64> {
    let d = sampler.n_units();
    let mut matrix = Array2::zeros((1 << d, 1 << d));
    for from in 0..1usize << d {
        let row = [from as u64];
        for made in 0..1usize << sampler.bonds.len() {
            let mut clusters = Clusters::alone(d);
            let mut weight = 1.0;
            for (number, bond) in sampler.bonds.iter().enumerate() {
                let p = sampler.bond_probability(&row, bond);
                if made >> number & 1 == 1 {
                    weight *= p;
                    clusters.join(bond.i as usize, bond.j as usize);
                } else {
                    weight *= 1.0 - p;
                }
            }
            if weight == 0.0 {
                continue;
            }
            let (count, _) = sampler.flip_clusters(&mut row.clone(), &mut clusters, || false);
            for choice in 0..1usize << count {
                let mut next = row;
                let mut rest = choice;
                sampler.flip_clusters(&mut next, &mut clusters, || {
                    let flip = rest & 1 == 1;
                    rest >>= 1;
                    flip
                });
                matrix[[from, next[0] as usize]] += weight / (1 << count) as f64;
            }
        }
    }
    matrix
}

#[test]
fn swendsen_wang_leaves_the_target_unchanged() {
    for couplings in targets() {
        let pi = probabilities(&couplings);
        let p = swendsen_wang_matrix(&SwendsenWang::new(&couplings).unwrap());
        for a in 0..pi.len() {
            // Rounding of at most 2^10 · 2^4 terms below 1.
            assert!((p.row(a).sum() - 1.0).abs() < 1e-12);
            let after: f64 = (0..pi.len()).map(|from| pi[from] * p[[from, a]]).sum();
            assert!((after - pi[a]).abs() < 1e-12);
            // It is reversible as well.
            for b in 0..a {
                assert!((pi[a] * p[[a, b]] - pi[b] * p[[b, a]]).abs() < 1e-12);
            }
        }
    }
}

#[test]
fn swendsen_wang_steps_draw_from_the_transition_matrix() {
    let couplings = random_couplings(3, 1.0, 6);
    let sampler = SwendsenWang::new(&couplings).unwrap();
    let p = swendsen_wang_matrix(&sampler);
    let mut rng = stream(seed(), 0);
    let n = 40_000;
    for from in 0..8 {
        let mut counts = [0.0; 8];
        for _ in 0..n {
            let mut state = sampler.state(&[from as u64]).unwrap();
            let info = sampler.step(&mut state, &mut rng);
            assert!(info.steps == 1 && info.clusters <= 3);
            counts[state[0] as usize] += 1.0;
        }
        let chi2: f64 = (0..8)
            .filter(|&to| p[[from, to]] > 0.0)
            .map(|to| {
                let expected = n as f64 * p[[from, to]];
                (counts[to] - expected).powi(2) / expected
            })
            .sum();
        // χ² with at most 7 degrees of freedom: beyond 55 less than once in 1e8.
        assert!(chi2 < 55.0, "{chi2}");
    }
}

#[test]
fn fields_and_couplings_are_bonds_with_the_stated_chance() {
    // h = (0.7, −0.2), K = −0.4.
    let spins = mpf_ising::SpinCouplings {
        fields: array![0.7, -0.2],
        couplings: array![[0.0, -0.4], [-0.4, 0.0]],
    };
    let sampler = SwendsenWang::new(&Couplings::from_spins(&spins).unwrap()).unwrap();
    let chance = |k: f64| 1.0 - (-2.0 * k).exp();
    let found = |row: u64| [0, 1, 2].map(|k| sampler.bond_probability(&[row], &sampler.bonds[k]));
    // Units 0 up and 1 down satisfies everything, the opposite all but the coupling.
    for (row, expected) in [
        (0b01, [chance(0.4), chance(0.7), chance(0.2)]),
        (0b10, [chance(0.4), 0.0, 0.0]),
        (0b11, [0.0, chance(0.7), 0.0]),
    ] {
        for (a, b) in found(row).into_iter().zip(expected) {
            assert!((a - b).abs() < 1e-15);
        }
    }
}

proptest! {
    #![proptest_config(few(1500))]

    #[test]
    fn bonds_of_any_couplings_have_chances(
        d in 1..7usize,
        values in vec(number(), 1..30),
        row in any::<u64>(),
    ) {
        let Ok(model) = Couplings::unpack(d, &cycle(&values, d * (d + 1) / 2)) else {
            return Ok(());
        };
        let row = [row & ((1 << d) - 1)];
        let sampler = SwendsenWang::new(&model).unwrap();
        let mut clusters = Clusters::alone(d);
        for bond in &sampler.bonds {
            prop_assert!((0.0..=1.0).contains(&sampler.bond_probability(&row, bond)));
            clusters.join(bond.i as usize, bond.j as usize);
        }
        sampler.flip_clusters(&mut row.clone(), &mut clusters, || true);
    }
}
