//! Annealed importance sampling against exact values of ln Z.

use mpf_ising::internal::n_packed;
use mpf_ising::{Boundary, Couplings, Exact, Lattice};
use mpf_samplers::{AnnealedOptions, Error, ExactLattice, annealed_log_z};
use mpf_testkit::seed;
use rand::RngExt;

fn options(n_levels: usize, offset: u64) -> AnnealedOptions {
    AnnealedOptions {
        n_levels,
        seed: seed() + offset,
        ..Default::default()
    }
}

#[test]
fn twenty_units_agree_with_enumeration() {
    let mut rng = mpf_core::rng::stream(3, 0);
    for (scale, bias) in [(0.2, 0.0), (0.5, 1.0), (0.1, 3.0)] {
        let mut packed: Vec<f64> = (0..n_packed(20))
            .map(|_| scale * rng.random_range(-1.0..1.0))
            .collect();
        for unit in 0..20 {
            packed[mpf_ising::internal::packed_index(20, unit, unit)] += bias;
        }
        let j = Couplings::unpack(20, &packed).unwrap();
        let exact = Exact::new(&j).unwrap().log_z();
        let found = annealed_log_z(&j, &options(500, 0)).unwrap();
        // A normal deviate is beyond 4.5 once in 150,000.
        let off = (found.log_z - exact).abs();
        assert!(off < 4.5 * found.standard_error, "{off} {found:?}");
        assert!(
            found.standard_error < 0.05 && found.effective_chains > 100.0,
            "{found:?}"
        );
    }
}

#[test]
fn the_standard_error_is_the_spread_of_repeated_runs() {
    let lattice = Lattice::new(5, 4, Boundary::Open).unwrap();
    let j = lattice
        .spin_glass(1.0, &mut mpf_core::rng::stream(5, 0))
        .unwrap();
    let exact = Exact::new(&j).unwrap().log_z();
    let runs: Vec<_> = (0..60)
        .map(|k| annealed_log_z(&j, &options(50, 1000 * k)).unwrap())
        .collect();
    let mean_square = runs.iter().map(|r| (r.log_z - exact).powi(2)).sum::<f64>() / 60.0;
    let claimed = runs.iter().map(|r| r.standard_error.powi(2)).sum::<f64>() / 60.0;
    // A χ² with 60 degrees of freedom, over 60, stays within .5 and 1.75 but for 2 in 10,000.
    let ratio = mean_square / claimed;
    assert!((0.45..1.8).contains(&ratio), "{ratio}");
}

#[test]
fn a_hundred_units_agree_with_the_lattice() {
    let lattice = Lattice::new(10, 10, Boundary::Open).unwrap();
    let j = lattice
        .spin_glass(1.0, &mut mpf_core::rng::stream(2, 0))
        .unwrap();
    let exact = ExactLattice::new(&j, &lattice).unwrap().log_z();
    let found = annealed_log_z(&j, &options(1000, 0)).unwrap();
    let off = (found.log_z - exact).abs();
    assert!(off < 4.5 * found.standard_error, "{off} {found:?}");
    assert!(found.standard_error < 0.05, "{found:?}");
}

#[test]
fn one_level_is_plain_importance_sampling_and_threads_do_not_matter() {
    // With one level w = e^{−E} of uniform states: for J = 0 exactly 1.
    let flat = Couplings::zeros(3).unwrap();
    let found = annealed_log_z(&flat, &options(1, 0)).unwrap();
    assert!((found.log_z - 8f64.ln()).abs() < 1e-14 && found.standard_error == 0.0);
    let j = Lattice::new(3, 3, Boundary::Open)
        .unwrap()
        .spin_glass(1.0, &mut mpf_core::rng::stream(1, 0))
        .unwrap();
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build()
        .unwrap();
    let alone = pool.install(|| annealed_log_z(&j, &options(20, 0)).unwrap());
    assert_eq!(alone, annealed_log_z(&j, &options(20, 0)).unwrap());
}

#[test]
fn bad_options_are_errors() {
    let flat = Couplings::zeros(3).unwrap();
    for (n_chains, n_levels) in [(1, 10), (10, 0)] {
        let options = AnnealedOptions {
            n_chains,
            n_levels,
            ..Default::default()
        };
        assert!(matches!(
            annealed_log_z(&flat, &options),
            Err(Error::Core(mpf_core::Error::Option { .. }))
        ));
    }
    let options = AnnealedOptions::default();
    options.cancel.cancel();
    assert_eq!(
        annealed_log_z(&flat, &options).unwrap_err(),
        mpf_core::Error::Cancelled.into()
    );
}
