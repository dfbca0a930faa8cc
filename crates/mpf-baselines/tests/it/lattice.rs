//! Acceptance 2, 3 and 4 of the spin glass, PL against MPF, one seed each.
//! `cargo xtask compare-estimators` runs them over all seeds.

use mpf_baselines::Pseudolikelihood;
use mpf_ising::{FitOptions, Fitter, Mpf, Support};
use mpf_testkit::{seed, spin_glass};

/// (ε_J of MPF, ε_J of PL).
fn errors(variance: f64, n_samples: usize, options: impl Fn(Support) -> FitOptions) -> (f64, f64) {
    let (lattice, truth, samples) = spin_glass(variance, n_samples, seed());
    let options = options(Support::lattice(&lattice));
    let mpf = Fitter::new(Mpf::default(), options.clone())
        .and_then(|fitter| fitter.fit(&samples))
        .unwrap();
    let pl = Fitter::new(Pseudolikelihood, options)
        .and_then(|fitter| fitter.fit(&samples))
        .unwrap();
    for fit in [&mpf, &pl] {
        assert!(fit.stop.is_converged(), "{} {:?}", fit.stop, fit.warnings);
    }
    (
        mpf.couplings.mean_square_error(&truth),
        pl.couplings.mean_square_error(&truth),
    )
}

#[test]
fn cold_with_lattice_couplings_and_ridge() {
    let n = 100_000;
    let (mpf, pl) = errors(10.0, n, |support| FitOptions {
        support,
        l2: 1.0 / n as f64,
        l2_on_fields: true,
        ..Default::default()
    });
    // PL stays below .015 for 98 of the first 100 seeds (.021 for seed 4), MPF in its band for all.
    assert!((0.0005..=0.08).contains(&mpf) && pl < 0.015, "{mpf} {pl}");
    // In at least 17 of 20 seeds; here only that PL is not much worse in this one.
    assert!(pl < 2.0 * mpf, "{mpf} {pl}");
}

#[test]
fn warm_and_full() {
    let (mpf, pl) = errors(1.0, 20_000, |_| FitOptions::default());
    assert!((0.001..=0.004).contains(&mpf) && pl <= mpf, "{mpf} {pl}");
}

#[test]
fn cool_and_full() {
    let (mpf, pl) = errors(2.5, 20_000, |_| {
        let mut options = FitOptions::default();
        // A third of the time of 1e-6, and far below the noise of the data, 1/√M = 7e-3.
        options.minimizer.gradient_tolerance = 1e-4;
        options
    });
    assert!((0.006..=0.06).contains(&mpf) && pl < mpf, "{mpf} {pl}");
}
