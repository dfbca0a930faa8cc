use super::*;
use crate::Error;
use mpf_core::EnergyModel;
use mpf_core::boltzmann;
use mpf_core::rng::stream;
use mpf_ising::{Boundary, IsingModel, Lattice};
use mpf_testkit::{random_couplings, seed};
use ndarray::Array2;

const KINDS: [LayoutKind; 3] = [LayoutKind::Table, LayoutKind::Sparse, LayoutKind::Dense];

fn target(couplings: &Couplings, beta: f64) -> Vec<f64> {
    let (model, theta) = (IsingModel::new(couplings.n_units()), couplings.pack());
    let energies: Vec<f64> = (0..1u64 << couplings.n_units())
        .map(|x| beta * model.energy(&theta, &[x]))
        .collect();
    boltzmann(&energies)
}

/// Row x: where one update of `unit` leads from state x.
fn update_matrix(gibbs: &Gibbs, unit: usize) -> Array2<f64> {
    let n = 1 << gibbs.n_units();
    let mut matrix = Array2::zeros((n, n));
    for from in 0..n {
        let state = gibbs.state(&[from as u64]).unwrap();
        let p = gibbs.conditional_probability(&state, unit);
        for (x, p) in [(true, p), (false, 1.0 - p)] {
            let mut next = state.clone();
            gibbs.set(&mut next, unit, x);
            matrix[[from, next.row()[0] as usize]] += p;
        }
    }
    matrix
}

fn step_matrix(gibbs: &Gibbs) -> Array2<f64> {
    let d = gibbs.n_units();
    let n = 1 << d;
    let updates = (0..d).map(|unit| update_matrix(gibbs, unit));
    match gibbs.scan {
        Scan::Sequential => updates.fold(Array2::eye(n), |product, p| product.dot(&p)),
        Scan::Random => {
            let mean = updates.fold(Array2::zeros((n, n)), |sum, p| sum + p) / d as f64;
            (0..d).fold(Array2::eye(n), |product, _| product.dot(&mean))
        }
    }
}

#[test]
fn transition_matrices_leave_the_target_unchanged() {
    for d in 1..=4 {
        for (seed, scale) in [(1, 0.5), (2, 2.0), (3, 6.0)] {
            let couplings = random_couplings(d, scale, 10 * d as u64 + seed);
            for beta in [1.0, 0.3, 0.0] {
                let pi = target(&couplings, beta);
                for kind in KINDS {
                    for scan in [Scan::Sequential, Scan::Random] {
                        let gibbs = Gibbs::with_layout(&couplings, scan, beta, kind).unwrap();
                        let p = step_matrix(&gibbs);
                        for to in 0..1 << d {
                            let after: f64 = (0..1 << d).map(|from| pi[from] * p[[from, to]]).sum();
                            // Sums of 16 products of numbers below 1.
                            assert!((after - pi[to]).abs() < 1e-12, "{kind:?} {scan:?} d = {d}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn single_updates_and_random_scan_satisfy_detailed_balance() {
    let couplings = random_couplings(4, 2.0, 5);
    let pi = target(&couplings, 1.0);
    for kind in KINDS {
        let gibbs = Gibbs::with_layout(&couplings, Scan::Random, 1.0, kind).unwrap();
        let mut matrices: Vec<Array2<f64>> = (0..4).map(|u| update_matrix(&gibbs, u)).collect();
        matrices.push(step_matrix(&gibbs));
        for p in matrices {
            for a in 0..16 {
                for b in 0..16 {
                    assert!((pi[a] * p[[a, b]] - pi[b] * p[[b, a]]).abs() < 1e-12);
                }
            }
        }
    }
}

#[test]
fn steps_draw_from_the_transition_matrix() {
    let couplings = random_couplings(3, 1.0, 6);
    for kind in KINDS {
        for scan in [Scan::Sequential, Scan::Random] {
            let gibbs = Gibbs::with_layout(&couplings, scan, 0.8, kind).unwrap();
            let p = step_matrix(&gibbs);
            let mut rng = stream(seed(), 0);
            let n = 20_000;
            for from in [0usize, 5] {
                let mut counts = [0.0; 8];
                for _ in 0..n {
                    let mut state = gibbs.state(&[from as u64]).unwrap();
                    gibbs.step(&mut state, &mut rng);
                    counts[state.row()[0] as usize] += 1.0;
                }
                let chi2: f64 = (0..8)
                    .map(|to| {
                        (counts[to] - n as f64 * p[[from, to]]).powi(2) / (n as f64 * p[[from, to]])
                    })
                    .sum();
                // χ² with 7 degrees of freedom: beyond 55 less than once in 1e8.
                assert!(chi2 < 55.0, "{kind:?} {scan:?}: {chi2}");
            }
        }
    }
}

#[test]
fn layouts_agree_step_by_step_and_keep_their_books() {
    // Around word boundaries, and past a refresh of the log odds.
    for (rows, columns) in [(1, 1), (7, 9), (8, 8), (5, 13), (10, 10)] {
        let lattice = Lattice::new(rows, columns, Boundary::Periodic).unwrap();
        let couplings = lattice.spin_glass(2.0, &mut stream(7, 0)).unwrap();
        for scan in [Scan::Sequential, Scan::Random] {
            check_layouts_agree(&couplings, scan);
        }
    }
}

fn check_layouts_agree(couplings: &Couplings, scan: Scan) {
    let d = couplings.n_units();
    let (model, theta) = (IsingModel::new(d), couplings.pack());
    let layouts = KINDS.map(|kind| Gibbs::with_layout(couplings, scan, 0.9, kind).unwrap());
    let start = |g: &Gibbs| g.random_start(&mut stream(8, 0)).unwrap();
    let mut states = layouts.each_ref().map(start);
    let mut rngs = layouts.each_ref().map(|_| stream(9, 0));
    for _ in 0..REFRESH_SWEEPS + 100 {
        for ((gibbs, state), rng) in layouts.iter().zip(&mut states).zip(&mut rngs) {
            gibbs.step(state, rng);
        }
        // A uniform draw would have to fall within 1e-13 of a probability to tell them apart.
        assert_eq!(states[0].row, states[1].row);
        assert_eq!(states[0].row, states[2].row);
    }
    let energy = model.energy(&theta, states[0].row());
    for (gibbs, state) in layouts.iter().zip(&states) {
        assert!((gibbs.energy(state) - energy).abs() < 1e-9);
        let fresh = gibbs.state(state.row()).unwrap();
        for unit in 0..d {
            let kept = gibbs.conditional_probability(state, unit);
            let summed = gibbs.conditional_probability(&fresh, unit);
            // Rounding of up to a thousand sweeps of flips.
            assert!((kept - summed).abs() < 1e-12);
        }
    }
}

#[test]
fn the_layout_follows_the_couplings() {
    let lattice = Lattice::new(10, 10, Boundary::Periodic).unwrap();
    let sparse = lattice.spin_glass(1.0, &mut stream(1, 0)).unwrap();
    assert_eq!(LayoutKind::best_for(&sparse), LayoutKind::Table);
    assert_eq!(
        LayoutKind::best_for(&random_couplings(4, 1.0, 1)),
        LayoutKind::Table
    );
    assert_eq!(
        LayoutKind::best_for(&random_couplings(30, 1.0, 1)),
        LayoutKind::Dense
    );
    let mut hub = sparse.as_array().clone();
    for i in 1..40 {
        hub[[0, i]] = 0.1;
        hub[[i, 0]] = 0.1;
    }
    let hub = Couplings::new(hub).unwrap();
    assert_eq!(LayoutKind::best_for(&hub), LayoutKind::Sparse);
}

#[test]
fn bad_states_and_temperatures_are_errors() {
    let gibbs = Gibbs::new(&random_couplings(3, 1.0, 1)).unwrap();
    assert_eq!(gibbs.state(&[8]), Err(Error::BitsBeyond { last: 2 }));
    assert!(matches!(
        gibbs.state(&[0, 0]),
        Err(Error::Core(mpf_core::Error::Count {
            expected: 1,
            found: 2,
            ..
        }))
    ));
    for beta in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(
            Gibbs::at_inverse_temperature(&random_couplings(3, 1.0, 1), Scan::Random, beta),
            Err(Error::Core(mpf_core::Error::Option {
                name: "inverse_temperature",
                ..
            }))
        ));
    }
    let large = Couplings::new(Array2::from_elem((2, 2), 1e307)).unwrap();
    Gibbs::new(&large).unwrap();
    assert!(matches!(
        Gibbs::at_inverse_temperature(&large, Scan::Random, 10.0),
        Err(Error::CouplingsTooLarge { .. })
    ));
}

#[test]
fn certain_units_stay_put_without_nan() {
    let couplings = Couplings::new(Array2::from_diag(&ndarray::array![-1e6, 1e6])).unwrap();
    let gibbs = Gibbs::new(&couplings).unwrap();
    let mut state = gibbs.state(&[0b10]).unwrap();
    let info = gibbs.step(&mut state, &mut stream(1, 0));
    assert_eq!(state.row(), [0b01]);
    assert_eq!(
        info,
        FlipCount {
            updates: 2,
            flips: 2
        }
    );
}
