//! Unknown entries: the truth is stationary, nothing changes when nothing is missing, and couplings
//! are recovered.

use crate::logistic::Logistic;
use mpf_core::rng::stream;
use mpf_ising::{
    Boundary, Couplings, Error, Estimator, Exact, FitOptions, Fitter, Incomplete, Lattice,
    MarginEstimator, MissingRule, Mode, Mpf, Neighbourhood, Samples, States, Support,
};
use mpf_samplers::ExactLattice;
use mpf_testkit::{all_states, random_couplings, seed};
use rand::RngExt;

fn fitter_of<E: Estimator + Clone>(
    estimator: &E,
    change: impl FnOnce(&mut FitOptions),
) -> Fitter<E> {
    let mut options = FitOptions::default();
    options.minimizer.gradient_tolerance = 1e-8;
    change(&mut options);
    Fitter::new(estimator.clone(), options).unwrap()
}

/// Every entry unknown with chance `share`, whatever its value.
fn mask(n: usize, d: usize, share: f64, seed: u64) -> States {
    let mut rng = stream(seed, 9);
    let data = ndarray::Array2::from_shape_simple_fn((n, d), || rng.random::<f64>() < share);
    States::from_binary(data.view()).unwrap()
}

/// All states with all masks, each with its probability: missing completely at random, no noise.
fn population(truth: &Couplings, share: f64) -> Incomplete {
    let d = truth.n_units();
    let p = Exact::new(truth).unwrap().probabilities();
    let (mut values, mut unknown, mut weights) =
        (States::new(d).unwrap(), States::new(d).unwrap(), Vec::new());
    for row in all_states(d).rows() {
        for mask in 0..1u64 << d {
            values.push(row);
            unknown.push(&[mask]);
            let n = mask.count_ones() as i32;
            weights.push(p[row[0] as usize] * share.powi(n) * (1.0 - share).powi(d as i32 - n));
        }
    }
    Incomplete::weighted(&values, &unknown, &weights).unwrap()
}

fn check_population(estimator: &(impl MarginEstimator + Clone), mode: Mode, support: Support) {
    let mut truth = random_couplings(4, 0.8, 3);
    if support != Support::Full {
        // A chain 0–1–2–3.
        let mut j = truth.as_array().clone();
        for (a, b) in [(0, 2), (0, 3), (1, 3)] {
            j[[a, b]] = 0.0;
            j[[b, a]] = 0.0;
        }
        truth = Couplings::new(j).unwrap();
    }
    let data = population(&truth, 0.3);
    assert!((data.unknown_fraction() - 0.5).abs() < 1e-12); // Of rows, all masks being there.
    let fitter = fitter_of(estimator, |o| {
        o.mode = mode;
        o.support = support;
    });
    let complete = MissingRule::Complete {
        most_unknown: 4,
        tolerance: 1e-8,
        max_rounds: 1000,
    };
    for rule in [MissingRule::LeaveOut, complete] {
        let found = fitter.fit_incomplete(&data, rule).unwrap();
        assert!(found.settled && found.fit.stop.is_converged());
        let off = found.fit.couplings.mean_square_error(&truth).sqrt();
        // The last round changed 1e-8, and rounds shrink errors by the share of what is missing.
        assert!(off < 1e-6, "{rule:?}: {off}");
    }
}

#[test]
fn the_truth_is_recovered_from_the_exact_population() {
    check_population(&Mpf::default(), Mode::Joint, Support::Full);
    check_population(&Logistic, Mode::Joint, Support::Full);
    check_population(&Mpf::default(), Mode::NodeWise, Support::Full);
    let chain = Support::Edges(vec![(0, 1), (1, 2), (2, 3)]);
    check_population(&Logistic, Mode::Joint, chain);
}

#[test]
fn what_was_written_where_nothing_was_seen_does_not_matter() {
    let truth = random_couplings(5, 0.8, 4);
    let states = Exact::new(&truth).unwrap().draw(400, 1);
    let unknown = mask(400, 5, 0.2, 1);
    let mut scrambled = States::new(5).unwrap();
    for (row, mask) in states.rows().zip(unknown.rows()) {
        scrambled.push(&[row[0] ^ mask[0]]);
    }
    for rule in [MissingRule::LeaveOut, MissingRule::complete()] {
        let fit = |values: &States| {
            let data = Incomplete::new(values, &unknown).unwrap();
            let fitter: Fitter = Fitter::default();
            fitter.fit_incomplete(&data, rule).unwrap()
        };
        assert_eq!(fit(&states).fit.couplings, fit(&scrambled).fit.couplings);
    }
}

#[test]
fn nothing_changes_when_nothing_is_missing() {
    let truth = random_couplings(6, 0.8, 4);
    let states = Exact::new(&truth).unwrap().draw(500, 1);
    let data = Incomplete::new(&states, &mask(500, 6, 0.0, 1)).unwrap();
    for rule in [MissingRule::LeaveOut, MissingRule::complete()] {
        for mode in [Mode::Joint, Mode::NodeWise] {
            let fitter = fitter_of(&Mpf::default(), |o| o.mode = mode);
            let found = fitter.fit_incomplete(&data, rule).unwrap();
            let plain = fitter.fit(&Samples::new(&states).unwrap()).unwrap();
            assert_eq!(found.fit.couplings, plain.couplings);
            assert_eq!(found.fit.value.to_bits(), plain.value.to_bits());
            assert_eq!(found.fit.iterations, plain.iterations);
            assert_eq!((found.rounds, found.left_out_fraction), (0, 0.0));
        }
    }
}

/// ε_J of a 5×5 lattice with J ~ N(0, 1) from 20,000 samples, for what share of entries is missing.
fn recovery(
    share: f64,
    rule: MissingRule,
    support: fn(&Lattice) -> Support,
    estimator: &(impl MarginEstimator + Clone),
) -> f64 {
    let lattice = Lattice::new(5, 5, Boundary::Open).unwrap();
    let truth = lattice.spin_glass(1.0, &mut stream(seed(), 0)).unwrap();
    let states = ExactLattice::new(&truth, &lattice)
        .unwrap()
        .draw(20_000, seed());
    let data = Incomplete::new(&states, &mask(20_000, 25, share, seed())).unwrap();
    let options = FitOptions {
        support: support(&lattice),
        ..Default::default()
    };
    let fitter = Fitter::new(estimator.clone(), options).unwrap();
    let found = fitter.fit_incomplete(&data, rule).unwrap();
    assert!(found.settled);
    found.fit.couplings.mean_square_error(&truth)
}

#[test]
fn couplings_of_a_lattice_are_recovered() {
    let none = recovery(
        0.0,
        MissingRule::LeaveOut,
        Support::lattice,
        &Mpf::default(),
    );
    for (share, kept) in [(0.05, 0.95f64.powi(5)), (0.2, 0.8f64.powi(5))] {
        let left_out = recovery(
            share,
            MissingRule::LeaveOut,
            Support::lattice,
            &Mpf::default(),
        );
        // Unbiased: the error is that of fewer flips, 1/kept as large. A factor of two and a half
        // for chance in 40 couplings of one seed, whose errors are unequal.
        assert!(
            left_out < 2.5 * none / kept,
            "{share}: {left_out} against {none}"
        );
        let pl = recovery(share, MissingRule::LeaveOut, Support::lattice, &Logistic);
        assert!(pl < 2.5 * none / kept, "{share}: {pl} against {none}");
    }
}

#[test]
fn all_couplings_are_recovered_by_completing() {
    let none = recovery(
        0.0,
        MissingRule::complete(),
        |_| Support::Full,
        &Mpf::default(),
    );
    let some = recovery(
        0.05,
        MissingRule::complete(),
        |_| Support::Full,
        &Mpf::default(),
    );
    // (1 − q)² of the pairs are seen: 1/.9, and a factor for chance.
    assert!(some < 2.0 * none, "{some} against {none}");
}

#[test]
fn bad_masks_are_errors() {
    let states = all_states(3);
    let mut unknown = States::new(3).unwrap();
    (0..8).for_each(|_| unknown.push(&[0b010]));
    assert_eq!(
        Incomplete::new(&states, &unknown).unwrap_err(),
        Error::NeverObserved { unit: 1 }
    );
    assert!(matches!(
        Incomplete::new(&states, &unknown.slice(0..5)),
        Err(Error::MaskShape {
            rows: 8,
            mask_rows: 5,
            ..
        })
    ));
    // Every sample lacks one of units 0 and 1, so that no flip of a full model is known.
    let mut either = States::new(3).unwrap();
    (0..8).for_each(|m| either.push(&[1 << (m >> 2)]));
    let data = Incomplete::new(&states, &either).unwrap();
    let plain: Fitter = Fitter::default();
    let fit = |rule: MissingRule| plain.fit_incomplete(&data, rule);
    assert!(matches!(
        fit(MissingRule::LeaveOut),
        Err(Error::NothingKnown { unit: 0 })
    ));
    let complete = |most_unknown: usize, tolerance: f64| {
        fit(MissingRule::Complete {
            most_unknown,
            tolerance,
            max_rounds: 10,
        })
    };
    assert!(matches!(
        complete(0, 1e-4),
        Err(Error::AllLeftOut { most_unknown: 0 })
    ));
    assert!(matches!(
        complete(Incomplete::MAX_UNKNOWN + 1, 1e-4),
        Err(Error::Core(mpf_core::Error::Option {
            name: "most_unknown",
            ..
        }))
    ));
    assert!(matches!(
        complete(3, -1.0),
        Err(Error::Core(mpf_core::Error::Option {
            name: "tolerance",
            ..
        }))
    ));
    let outside = Mpf {
        neighbourhood: Neighbourhood::OutsideData,
        ..Mpf::default()
    };
    assert!(matches!(
        fitter_of(&outside, |_| {}).fit_incomplete(&data, MissingRule::LeaveOut),
        Err(Error::MissingNeighbourhood)
    ));
}
