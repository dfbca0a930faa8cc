//! Mean field and TAP: closed forms for two spins, their regime, and what cannot be inverted.

use mpf_baselines::{Error, Expansion, MeanField};
use mpf_ising::{Couplings, Exact, Samples, SpinCouplings, States, Warning};
use mpf_testkit::{exact_samples, random_couplings, seed, spin_glass};
use ndarray::{Array2, array};

/// ⟨s₀⟩, ⟨s₁⟩ and the inverse of their 2 × 2 covariance, in closed form.
fn two_spins(samples: &Samples) -> ([f64; 2], Array2<f64>) {
    let x = samples.pair_means();
    let m = [2.0 * x[[0, 0]] - 1.0, 2.0 * x[[1, 1]] - 1.0];
    let c01 = 4.0 * (x[[0, 1]] - x[[0, 0]] * x[[1, 1]]);
    let (c00, c11) = (1.0 - m[0] * m[0], 1.0 - m[1] * m[1]);
    let determinant = c00 * c11 - c01 * c01;
    (m, array![[c11, -c01], [-c01, c00]] / determinant)
}

#[test]
fn two_spins_with_fields_by_hand() {
    for s in 0..20 {
        let truth = random_couplings(2, 1.0, seed() + s);
        let samples = exact_samples(&truth);
        let (m, inverse) = two_spins(&samples);

        let k = -inverse[[0, 1]];
        let expected = SpinCouplings {
            fields: array![m[0].atanh() - k * m[1], m[1].atanh() - k * m[0]],
            couplings: array![[0.0, k], [k, 0.0]],
        };
        let naive = MeanField::new(Expansion::Naive, 0.0).unwrap();
        let found = naive.fit(&samples).unwrap();
        let expected = Couplings::from_spins(&expected).unwrap();
        // A dozen roundings, blown up by an inverse of order one.
        let close = |a: &Couplings, b: &Couplings| a.mean_square_error(b).sqrt() < 1e-13;
        assert!(close(&found.fit.couplings, &expected));
        assert!(found.clipped.is_empty());

        // The root of 2 m₀m₁ K² + K + (C⁻¹)₀₁ = 0 by the textbook formula.
        let a = 2.0 * m[0] * m[1];
        let discriminant = 1.0 - 4.0 * a * inverse[[0, 1]];
        let k = (discriminant.max(0.0).sqrt() - 1.0) / (2.0 * a);
        let reaction = |i: usize| m[i] * k * k * (1.0 - m[1 - i] * m[1 - i]);
        let expected = SpinCouplings {
            fields: array![
                m[0].atanh() - k * m[1] + reaction(0),
                m[1].atanh() - k * m[0] + reaction(1)
            ],
            couplings: array![[0.0, k], [k, 0.0]],
        };
        let tap = MeanField::new(Expansion::Tap, 0.0).unwrap();
        let found = tap.fit(&samples).unwrap();
        assert_eq!(found.clipped.len(), usize::from(discriminant < 0.0));
        assert_eq!(found.clipped_fraction, found.clipped.len() as f64);
        let expected = Couplings::from_spins(&expected).unwrap();
        // The textbook formula divides rounding by m₀ m₁, which may be small.
        assert!(found.fit.couplings.mean_square_error(&expected).sqrt() < 1e-13 / a.abs());
    }
}

#[test]
fn a_negative_discriminant_is_clipped_and_counted() {
    // Mostly 1 and never both 0: 8 m₀ m₁ (C⁻¹)₀₁ = 8 · .327 · .4375 > 1.
    let states = States::from_binary(array![[1, 1], [1, 0], [0, 1]].view()).unwrap();
    let samples = Samples::weighted(&states, &[8.0, 3.0, 3.0]).unwrap();
    let tap = MeanField::new(Expansion::Tap, 0.0).unwrap();
    let found = tap.fit(&samples).unwrap();
    assert_eq!(found.clipped, [(0, 1)]);
    assert_eq!(found.clipped_fraction, 1.0);
    // D = 0: K = −2 (C⁻¹)₀₁, J = −2K.
    let (_, inverse) = two_spins(&samples);
    assert!((found.fit.couplings.get(0, 1) - 4.0 * inverse[[0, 1]]).abs() < 1e-12);
}

#[test]
fn second_order_is_better_than_first_with_fields() {
    // Errors of the expansion fall as K² and K³: at K = 0.05 and m of order one.
    let truth = random_couplings(8, 0.1, seed());
    let mut j = truth.as_array().clone();
    for i in 0..8 {
        j[[i, i]] += if i % 2 == 0 { 1.5 } else { -1.0 };
    }
    let truth = Couplings::new(j).unwrap();
    let samples = exact_samples(&truth);
    let error = |expansion| {
        let found = MeanField::new(expansion, 0.0)
            .unwrap()
            .fit(&samples)
            .unwrap();
        found.fit.couplings.mean_square_error(&truth)
    };
    assert!(error(Expansion::Tap) < 0.1 * error(Expansion::Naive));
}

#[test]
fn tap_is_excellent_in_its_own_regime() {
    let (_, truth, samples) = spin_glass(0.1, 100_000, seed());
    let found = MeanField::new(Expansion::Tap, 0.0)
        .unwrap()
        .fit(&samples)
        .unwrap();
    let zero = Couplings::zeros(100).unwrap();
    let null = zero.mean_square_error(&truth);
    // EXPERIMENTS.md §2: .0005 against .0065.
    assert!((0.004..0.010).contains(&null), "{null}");
    let error = found.fit.couplings.mean_square_error(&truth);
    assert!(error <= 0.001, "{error}");
    assert!(found.fit.warnings.is_empty());
}

#[test]
fn in_the_cold_lambda_decides() {
    let (_, truth, samples) = spin_glass(10.0, 20_000, seed());
    let error = |lambda| {
        let found = MeanField::new(Expansion::Tap, lambda)
            .unwrap()
            .fit(&samples)
            .unwrap();
        assert!(found.fit.couplings.as_array().iter().all(|v| v.is_finite()));
        found.fit.couplings.mean_square_error(&truth)
    };
    let errors = [1e-5, 1e-4, 0.1].map(error);
    assert!(
        errors[0] > 2.0 * errors[1] && errors[1] > errors[2],
        "{errors:?}"
    );
    assert!((0.3..1.2).contains(&errors[2]), "{errors:?}");
}

#[test]
fn what_cannot_be_inverted_is_named() {
    for lambda in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(
            MeanField::new(Expansion::Tap, lambda),
            Err(Error::Core(mpf_core::Error::Option { name: "lambda", .. }))
        ));
    }
    let constant = array![[0, 1, 0], [1, 1, 0], [1, 1, 1], [0, 1, 1], [0, 1, 0]];
    let constant = Samples::from_binary(constant.view()).unwrap();
    let plain = MeanField::new(Expansion::Tap, 0.0).unwrap();
    assert_eq!(
        plain.fit(&constant).unwrap_err(),
        Error::ConstantUnit { unit: 1, value: 1 }
    );
    // With λ there is an answer, a warning, and no couplings of that unit.
    let found = MeanField::new(Expansion::Tap, 1e-3)
        .unwrap()
        .fit(&constant)
        .unwrap();
    let expected = Warning::ConstantUnits {
        zeros: vec![],
        ones: vec![1],
    };
    assert!(found.fit.warnings.contains(&expected));
    assert_eq!(found.fit.couplings.get(0, 1), 0.0);
    assert!((found.fit.couplings.get(1, 1) + 11f64.ln()).abs() < 1e-12);

    // Unit 2 repeats unit 0.
    let copied = array![[0, 1, 0], [1, 1, 1], [1, 0, 1], [0, 0, 0], [0, 1, 0]];
    let copied = Samples::from_binary(copied.view()).unwrap();
    let error = plain.fit(&copied).unwrap_err();
    assert!(
        matches!(error, Error::SingularSusceptibility { unit: 0 | 2, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("λ > 0"));
    let found = MeanField::new(Expansion::Tap, 1e-3)
        .unwrap()
        .fit(&copied)
        .unwrap();
    assert!(found.fit.couplings.as_array().iter().all(|v| v.is_finite()));
    // Nothing varies at all.
    let still = Samples::from_binary(array![[0, 1], [0, 1]].view()).unwrap();
    assert!(plain.fit(&still).is_err());
    let found = MeanField::new(Expansion::Naive, 0.1)
        .unwrap()
        .fit(&still)
        .unwrap();
    assert!(
        Exact::new(&found.fit.couplings)
            .unwrap()
            .log_z()
            .is_finite()
    );
}
