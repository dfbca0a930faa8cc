//! Full transition matrices of the cluster and the tempering kernel for a few units, built from
//! the samplers' own probabilities. Those of Gibbs are beside its code.

use mpf_core::boltzmann;
use mpf_core::rng::stream;
use mpf_ising::Couplings;
use mpf_samplers::swendsen_wang::Clusters;
use mpf_samplers::{Gibbs, Sampler, Scan, SwendsenWang, Tempering};
use mpf_testkit::{energies, probabilities, random_couplings, seed};
use ndarray::{Array2, array};

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
        for bonds in 0..1usize << sampler.n_bonds() {
            let mut clusters = Clusters::alone(d);
            let mut weight = 1.0;
            for bond in 0..sampler.n_bonds() {
                let p = sampler.bond_probability(&row, bond);
                if bonds >> bond & 1 == 1 {
                    weight *= p;
                    sampler.make_bond(&mut clusters, bond);
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
            counts[state.row()[0] as usize] += 1.0;
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
    let found = |row: u64| [0, 1, 2].map(|bond| sampler.bond_probability(&[row], bond));
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
                .map(|k| sweep_matrix(sampler.level(k)))
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
