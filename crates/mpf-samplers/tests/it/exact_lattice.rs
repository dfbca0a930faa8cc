//! The transfer matrix against sums over all states.

use mpf_core::rng::stream;
use mpf_ising::{Boundary, Couplings, Lattice};
use mpf_samplers::{Error, ExactLattice};
use mpf_testkit::{energies, pair_means, probabilities, random_lattice, seed};
use ndarray::Array2;

fn brute_force(couplings: &Couplings) -> (f64, Array2<f64>) {
    let energies = energies(couplings);
    let lowest = energies.iter().copied().fold(f64::INFINITY, f64::min);
    let z: f64 = energies.iter().map(|e| (lowest - e).exp()).sum();
    let d = couplings.n_units();
    let mut means = Array2::zeros((d, d));
    for (state, e) in energies.iter().enumerate() {
        let p = (lowest - e).exp() / z;
        for i in (0..d).filter(|i| state >> i & 1 == 1) {
            for j in (0..d).filter(|j| state >> j & 1 == 1) {
                means[[i, j]] += p;
            }
        }
    }
    (z.ln() - lowest, means)
}

#[test]
fn log_z_and_correlations_agree_with_enumeration() {
    for (rows, columns) in [
        (3, 3),
        (4, 4),
        (2, 7),
        (7, 2),
        (1, 6),
        (6, 1),
        (1, 1),
        (3, 5),
    ] {
        for (k, scale) in [0.3, 2.0, 12.0].into_iter().enumerate() {
            let (couplings, lattice) = random_lattice(rows, columns, scale, 10 + k as u64);
            let exact = ExactLattice::new(&couplings, &lattice).unwrap();
            let (log_z, means) = brute_force(&couplings);
            // Sums of 2^16 terms in f64: far below the 1e-10 that is asked for.
            assert!((exact.log_z() - log_z).abs() < 1e-10, "{rows}×{columns}");
            let found = exact.pair_means();
            assert!((&found - &means).iter().all(|e| e.abs() < 1e-10));
            let single = exact.means();
            assert!(
                single
                    .iter()
                    .zip(means.diag())
                    .all(|(a, b)| (a - b).abs() < 1e-10)
            );
            let spins = exact.spin_correlations();
            for ((i, j), c) in spins.indexed_iter() {
                let expected = 4.0 * means[[i, j]] - 2.0 * (means[[i, i]] + means[[j, j]]) + 1.0;
                let expected = if i == j { 1.0 } else { expected };
                assert!((c - expected).abs() < 1e-10);
            }
        }
    }
}

#[test]
fn draws_have_the_exact_moments() {
    for (rows, columns, scale) in [(4, 3, 1.5), (10, 10, 5.0), (3, 30, 2.0)] {
        let (couplings, lattice) = random_lattice(rows, columns, scale, 3);
        let exact = ExactLattice::new(&couplings, &lattice).unwrap();
        let n = 20_000;
        let found = pair_means(&exact.draw(n, seed()));
        let expected = exact.pair_means();
        for ((i, j), &p) in expected.indexed_iter() {
            let error = found[[i, j]] - p;
            let variance = p * (1.0 - p) / n as f64;
            // Bernstein with a chance of 1e-9 for each of d² entries.
            let bound = (41.0 * variance).sqrt() + 14.0 / n as f64;
            assert!(error.abs() < bound, "{i}, {j}: {error} of {bound}");
        }
    }
}

#[test]
fn draws_have_the_exact_distribution() {
    let (couplings, lattice) = random_lattice(2, 3, 2.0, 8);
    let exact = ExactLattice::new(&couplings, &lattice).unwrap();
    let p = probabilities(&couplings);
    let n = 100_000;
    let mut counts = vec![0.0; 64];
    for row in exact.draw(n, seed()).rows() {
        counts[row[0] as usize] += 1.0;
    }
    let chi2: f64 = counts
        .iter()
        .zip(&p)
        .map(|(c, p)| (c - n as f64 * p).powi(2) / (n as f64 * p))
        .sum();
    // χ² with 63 degrees of freedom: mean 63, standard deviation 11; beyond 160 once in 1e9.
    assert!(chi2 < 160.0, "{chi2}");
}

#[test]
fn a_seed_means_the_same_draws_for_any_number_of_threads() {
    let (couplings, lattice) = random_lattice(5, 4, 1.0, 4);
    let exact = ExactLattice::new(&couplings, &lattice).unwrap();
    let with = |threads| {
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap()
            .install(|| (exact.draw(3000, 9), exact.pair_means()))
    };
    let one = with(1);
    assert_eq!(one, with(3));
    assert_ne!(one.0, exact.draw(3000, 10));
    // A longer run begins with the same draws.
    assert_eq!(exact.draw(4000, 9).slice(0..2560), one.0.slice(0..2560));
}

#[test]
fn huge_couplings_freeze_the_lattice_without_nan() {
    let lattice = Lattice::new(6, 6, Boundary::Open).unwrap();
    let couplings = lattice.spin_glass(1e8, &mut stream(5, 0)).unwrap();
    let exact = ExactLattice::new(&couplings, &lattice).unwrap();
    assert!(exact.log_z().is_finite());
    let c = exact.spin_correlations();
    // Two ground states, each other's complement: every pair is locked.
    assert!(c.iter().all(|c| (c.abs() - 1.0).abs() < 1e-9));
    assert!(exact.means().iter().all(|m| (m - 0.5).abs() < 1e-9));
}

#[test]
fn bad_lattices_are_errors_with_numbers() {
    let lattice = |r, c| Lattice::new(r, c, Boundary::Open).unwrap();
    let wide = ExactLattice::new(&Couplings::zeros(15 * 16).unwrap(), &lattice(15, 16));
    assert!(matches!(
        wide,
        Err(Error::LatticeTooWide {
            width: 15,
            limit: 14,
            ..
        })
    ));
    let zeros = Couplings::zeros(9).unwrap();
    let periodic = Lattice::new(3, 3, Boundary::Periodic).unwrap();
    assert!(matches!(
        ExactLattice::new(&zeros, &periodic),
        Err(Error::PeriodicLattice {
            rows: 3,
            columns: 3
        })
    ));
    assert!(matches!(
        ExactLattice::new(&zeros, &lattice(2, 4)),
        Err(Error::Core(mpf_core::Error::Count {
            expected: 9,
            found: 8,
            ..
        }))
    ));
    // Units 2 and 3 follow each other but sit at the ends of different rows.
    for (i, j) in [(2, 3), (0, 4), (0, 8)] {
        let mut wrong = Array2::zeros((9, 9));
        wrong[[i, j]] = 0.5;
        wrong[[j, i]] = 0.5;
        let error = ExactLattice::new(&Couplings::new(wrong).unwrap(), &lattice(3, 3)).unwrap_err();
        assert!(matches!(error, Error::OffLattice { i: a, j: b, value, .. }
            if (a, b) == (i, j) && value == 0.5));
    }
}
