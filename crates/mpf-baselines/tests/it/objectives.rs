//! Pseudolikelihood and exact likelihood as objectives: gradients, exact populations, and all
//! objectives side by side against plain sums.

use mpf_baselines::{
    MaximumLikelihood, NegativeLogLikelihood, Objectives, Pseudolikelihood, independent,
};
use mpf_core::{MinimizerOptions, Objective, StopReason, gradient_error};
use mpf_ising::{
    Biases, Couplings, Error, Estimator, Exact, Fit, FitOptions, Fitter, MarginLoss, MarginSum,
    Mode, Mpf, Samples, Support, Terms, Warning,
};
use mpf_testkit::{exact_samples, random_couplings, random_samples, seed, spin_theta};
use ndarray::array;

fn fit(estimator: impl Estimator, options: &FitOptions, samples: &Samples) -> Fit {
    let fitter = Fitter::new(estimator, options.clone()).unwrap();
    fitter.fit(samples).unwrap()
}

/// PL over all units of `samples`.
fn pseudolikelihood(samples: &Samples) -> MarginSum<'_> {
    let d = samples.n_units();
    let pairs = Support::Full.pairs(d).unwrap();
    MarginSum::new(
        Terms::new(samples, 0..d, pairs).unwrap(),
        MarginLoss::Logistic,
    )
}

fn likelihood(samples: &Samples) -> NegativeLogLikelihood {
    let pairs = Support::Full.pairs(samples.n_units()).unwrap();
    NegativeLogLikelihood::new(samples, pairs).unwrap()
}

#[test]
fn gradients_are_gradients() {
    for d in [1, 2, 7] {
        let samples = random_samples(40, d, seed());
        let theta = spin_theta(&random_couplings(d, 1.5, seed() + d as u64));
        // Richardson differences at 1e-3 err by h⁴ ~ 1e-12 and rounding ε/h ~ 1e-13.
        assert!(gradient_error(&mut pseudolikelihood(&samples), &theta, 1e-3) < 1e-10);
        assert!(gradient_error(&mut likelihood(&samples), &theta, 1e-3) < 1e-10);
    }
    // One row alone, and a support that is not full.
    let samples = random_samples(40, 7, seed());
    let pairs = vec![(0, 3), (3, 6), (2, 3)];
    let terms = Terms::new(&samples, 3..4, pairs).unwrap();
    let mut row = MarginSum::new(terms, MarginLoss::Logistic);
    assert!(gradient_error(&mut row, &[0.3, -0.8, 1.1, 0.4], 1e-3) < 1e-10);
    let mut sparse = NegativeLogLikelihood::new(&samples, vec![(0, 1), (2, 5)]).unwrap();
    let theta = [0.3, -0.8, 1.1, 0.4, -0.2, 0.6, 0.1, 0.9, -0.7];
    assert!(gradient_error(&mut sparse, &theta, 1e-3) < 1e-10);
}

#[test]
fn the_truth_is_stationary_under_exact_weights() {
    for d in [1, 3, 6] {
        let truth = random_couplings(d, 1.5, seed() + d as u64);
        let samples = exact_samples(&truth);
        let theta = spin_theta(&truth);
        let mut grad = vec![0.0; theta.len()];
        pseudolikelihood(&samples).value_and_gradient(&theta, &mut grad);
        assert!(grad.iter().all(|g| g.abs() < 1e-12));
        likelihood(&samples).value_and_gradient(&theta, &mut grad);
        assert!(grad.iter().all(|g| g.abs() < 1e-12));
    }
}

/// Margins one by one.
fn plain(couplings: &Couplings, samples: &Samples) -> (Vec<f64>, f64) {
    let d = samples.n_units();
    let spins = couplings.to_spins();
    let states = samples.states().to_spins();
    let (mut rise, mut pl) = (vec![0.0; d], 0.0);
    for (m, s) in states.rows().into_iter().enumerate() {
        let weight = samples.weight(m) / samples.total_weight();
        for i in 0..d {
            let around: f64 = (0..d)
                .map(|j| spins.couplings[[i, j]] * f64::from(s[j]))
                .sum();
            let margin = f64::from(s[i]) * (spins.fields[i] + around);
            rise[i] += weight * (-margin).exp();
            pl += weight * (1.0 + (-2.0 * margin).exp()).ln();
        }
    }
    (rise, pl)
}

#[test]
fn side_by_side_they_equal_plain_sums() {
    for d in [1, 5, 13] {
        let samples = random_samples(70, d, seed());
        let couplings = random_couplings(d, 0.8, seed());
        let all = Objectives::of(&couplings, &samples).unwrap();
        let (rise, pl) = plain(&couplings, &samples);
        // Sums of some thousand positive terms in another order.
        let close = |a: f64, b: f64| (a - b).abs() < 1e-12 * b.abs().max(1.0);
        assert!(all.rise.iter().zip(&rise).all(|(a, b)| close(*a, *b)));
        assert!(close(all.mpf, rise.iter().sum()));
        assert!(close(all.log_rise, rise.iter().map(|r| r.ln()).sum()));
        assert!(close(all.pseudolikelihood, pl));
        let exact = Exact::new(&couplings).unwrap();
        let expected = exact.log_likelihood(&samples).unwrap();
        assert_eq!(all.log_likelihood, Some(expected));
        let theta = spin_theta(&couplings);
        let mut unused = vec![0.0; theta.len()];
        let value = likelihood(&samples).value_and_gradient(&theta, &mut unused);
        assert!(close(-value, expected));
    }
    // Beyond enumeration only the likelihood is missing.
    let wide = random_samples(10, 25, seed());
    let all = Objectives::of(&Couplings::zeros(25).unwrap(), &wide).unwrap();
    assert_eq!(all.log_likelihood, None);
    assert!((all.mpf - 25.0).abs() < 1e-12);
    // Units that do not fit are an error; couplings beyond any exponential are not NaN.
    assert!(Objectives::of(&Couplings::zeros(3).unwrap(), &wide).is_err());
    let huge = random_couplings(6, 1e5, seed());
    let all = Objectives::of(&huge, &random_samples(10, 6, seed())).unwrap();
    let finite = all.pseudolikelihood.is_finite() && all.log_rise.is_finite();
    assert!(finite && !all.mpf.is_nan(), "{all:?}");
}

#[test]
fn for_one_unit_all_estimators_agree() {
    // d = 1: e^{−J} is the odds of a 1, whatever the method.
    let samples = Samples::from_binary(array![[1], [1], [1], [0]].view()).unwrap();
    let tight = FitOptions {
        minimizer: MinimizerOptions {
            gradient_tolerance: 1e-10,
            ..Default::default()
        },
        ..Default::default()
    };
    let fits = [
        fit(Mpf::default(), &tight, &samples),
        fit(Pseudolikelihood, &tight, &samples),
        fit(MaximumLikelihood, &tight, &samples),
        independent(&samples).unwrap(),
    ];
    for fit in fits {
        assert!((fit.couplings.get(0, 0) + 3f64.ln()).abs() < 1e-8);
    }
}

#[test]
fn every_estimator_finds_the_truth_in_exact_data() {
    let truth = random_couplings(5, 1.0, seed());
    let samples = exact_samples(&truth);
    let options = FitOptions {
        minimizer: MinimizerOptions {
            gradient_tolerance: 1e-9,
            ..Default::default()
        },
        ..Default::default()
    };
    let by_node = FitOptions {
        mode: Mode::NodeWise,
        ..options.clone()
    };
    for fit in [
        fit(Pseudolikelihood, &options, &samples),
        fit(Pseudolikelihood, &by_node, &samples),
        fit(MaximumLikelihood, &options, &samples),
    ] {
        // A gradient of 1e-9 in standardised units, over curvatures of order 0.1.
        assert!(fit.couplings.mean_square_error(&truth) < 1e-14);
    }
}

#[test]
fn maximum_likelihood_has_the_largest_likelihood_and_the_moments_of_the_data() {
    let states = Exact::new(&random_couplings(8, 1.0, seed()))
        .unwrap()
        .draw(3000, seed());
    let samples = Samples::new(&states).unwrap();
    let mut updates = 0;
    let ml = Fitter::new(MaximumLikelihood, FitOptions::default())
        .unwrap()
        .fit_observed(&samples, |progress| updates = progress.iteration)
        .unwrap();
    assert_eq!(ml.stop, StopReason::Converged);
    assert!(updates > 3 && updates == ml.iterations);
    let exact = Exact::new(&ml.couplings).unwrap();
    let best = exact.log_likelihood(&samples).unwrap();
    assert!((best + ml.value).abs() < 1e-12);
    let off = exact.pair_means() - samples.pair_means();
    // The tolerance of 1e-6 is on standardised units; σ_i σ_j ≤ ¼.
    assert!(off.iter().all(|e| e.abs() < 1e-6));
    let plain = FitOptions::default();
    let mpf = fit(Mpf::default(), &plain, &samples);
    let pl = fit(Pseudolikelihood, &plain, &samples);
    let null = independent(&samples).unwrap();
    let likelihood = |c: &Couplings| Objectives::of(c, &samples).unwrap().log_likelihood.unwrap();
    for rival in [&mpf, &pl, &null] {
        assert!(likelihood(&rival.couplings) < best);
    }
    assert!((likelihood(&null.couplings) + null.value).abs() < 1e-12);
    assert!(likelihood(&null.couplings) < likelihood(&pl.couplings));
    // Each wins by its own objective.
    let of_pl = Objectives::of(&pl.couplings, &samples).unwrap();
    let of_mpf = Objectives::of(&mpf.couplings, &samples).unwrap();
    assert!(of_pl.pseudolikelihood < of_mpf.pseudolikelihood && of_mpf.mpf < of_pl.mpf);
}

#[test]
fn supports_biases_and_penalties_hold_for_both() {
    let samples = exact_samples(&random_couplings(5, 1.0, seed()));
    let support = Support::Edges(vec![(0, 1), (1, 4)]);
    let biases = Biases::FixedFields(vec![0.1, -0.2, 0.3, 0.0, 0.5]);
    let options = FitOptions {
        support,
        biases,
        ..Default::default()
    };
    let fits = [
        fit(Pseudolikelihood, &options, &samples),
        fit(MaximumLikelihood, &options, &samples),
    ];
    for fit in fits {
        let spins = fit.couplings.to_spins();
        assert!((spins.fields[2] - 0.3).abs() < 1e-14);
        assert_ne!(spins.couplings[[4, 1]], 0.0);
        assert_eq!(spins.couplings[[0, 2]], 0.0);
    }
    let sparse = FitOptions {
        l1: 10.0,
        ..Default::default()
    };
    let fits = [
        fit(Pseudolikelihood, &sparse, &samples),
        fit(MaximumLikelihood, &sparse, &samples),
    ];
    let null = independent(&samples).unwrap().couplings;
    for fit in fits {
        // λ beyond every slope: no coupling is left, and then only independent units are.
        let couplings = fit.couplings;
        assert!(
            (couplings.as_array() - null.as_array())
                .iter()
                .all(|e| e.abs() < 1e-5)
        );
        assert_eq!(couplings.get(0, 1), 0.0);
    }
}

#[test]
fn bad_input_is_named() {
    let by_node = FitOptions {
        mode: Mode::NodeWise,
        ..Default::default()
    };
    let error = Fitter::new(MaximumLikelihood, by_node).unwrap_err();
    assert!(matches!(error, Error::NotOffered { .. }), "{error}");
    let plain = FitOptions::default();
    let wide = random_samples(10, 21, seed());
    let fitter = Fitter::new(MaximumLikelihood, plain.clone()).unwrap();
    let expected = Error::TooManyUnitsForLikelihood {
        n_units: 21,
        limit: 20,
    };
    assert_eq!(fitter.fit(&wide).unwrap_err(), expected);
    let pairs = Support::Full.pairs(21).unwrap();
    let objective = NegativeLogLikelihood::new(&wide, pairs);
    assert_eq!(objective.err(), Some(expected.into()));
    // Unit 1 is always 1: a finite model, and a warning with its index.
    let data = array![[0, 1, 1], [1, 1, 0], [0, 1, 0], [1, 1, 1]];
    let samples = Samples::from_binary(data.view()).unwrap();
    for fit in [
        fit(Pseudolikelihood, &plain, &samples),
        fit(MaximumLikelihood, &plain, &samples),
        independent(&samples).unwrap(),
    ] {
        let expected = Warning::ConstantUnits {
            zeros: vec![],
            ones: vec![1],
        };
        assert!(fit.warnings.contains(&expected));
        // Half a pseudo-count: odds (4 + ½) : ½.
        assert!((fit.couplings.get(1, 1) + 9f64.ln()).abs() < 1e-12);
        assert!(fit.couplings.as_array().iter().all(|v| v.is_finite()));
    }
    // Two units that are always equal: no finite optimum, so a warning and finite numbers.
    let equal = Samples::from_binary(array![[0, 0], [1, 1], [1, 1]].view()).unwrap();
    for fit in [
        fit(Pseudolikelihood, &plain, &equal),
        fit(MaximumLikelihood, &plain, &equal),
    ] {
        let expected = Warning::SeparablePairs {
            pairs: vec![(0, 1)],
        };
        assert!(fit.warnings.contains(&expected));
        assert!(fit.couplings.as_array().iter().all(|v| v.is_finite()));
    }
}
