//! What users read: error messages, warnings, and the JSON of a fitted model.

use mpf_core::StopReason;
use mpf_ising::{
    Boundary, Couplings, Error, FitOptions, Fitter, FoldAssignment, Folds, Incomplete, Lattice,
    Mpf, Neighbourhood, PathOptions, PenaltyPath, Samples, States, Support, Warning,
};
use ndarray::{Array2, array};

#[test]
fn error_messages() {
    let samples = Samples::from_binary(array![[0u8, 1], [1, 0], [1, 1], [0, 0]].view()).unwrap();
    let fit = |change: fn(&mut Mpf, &mut FitOptions)| {
        let (mut mpf, mut options) = (Mpf::default(), FitOptions::default());
        change(&mut mpf, &mut options);
        Fitter::new(mpf, options)
            .and_then(|f| f.fit(&samples))
            .unwrap_err()
    };
    let states = States::from_binary(array![[0u8], [1]].view()).unwrap();
    let errors: Vec<Error> = vec![
        States::from_binary(array![[0.0, 1.0], [2.0, 0.0]].view()).unwrap_err(),
        States::from_binary(array![[0.0, f64::NAN]].view()).unwrap_err(),
        States::from_binary(array![[1i8, -1]].view()).unwrap_err(),
        States::from_spins(array![[1i8, 0]].view()).unwrap_err(),
        States::from_binary(Array2::<u8>::zeros((0, 3)).view()).unwrap_err(),
        Samples::weighted(&states, &[1.0]).unwrap_err(),
        Samples::weighted(&states, &[1.0, f64::NAN]).unwrap_err(),
        Samples::weighted(&states, &[0.0, 0.0]).unwrap_err(),
        Couplings::new(array![[0.0, 1.0], [1.5, 0.0]]).unwrap_err(),
        Couplings::new(array![[0.0, f64::INFINITY], [1.0, 0.0]]).unwrap_err(),
        Couplings::new(Array2::zeros((2, 3))).unwrap_err(),
        mpf_ising::Exact::new(&Couplings::zeros(30).unwrap()).unwrap_err(),
        Lattice::new(0, 4, Boundary::Open).unwrap_err(),
        Lattice::new(1 << 20, 1 << 20, Boundary::Open).unwrap_err(),
        Couplings::zeros(1 << 32).unwrap_err(),
        Error::TooManyCouplings {
            n_units: 65_536,
            n_couplings: 2_147_450_880,
        },
        Error::NotFiniteObjective {
            value: f64::INFINITY,
        },
        Samples::weighted(&states, &[1e31, 0.0]).unwrap_err(),
        Lattice::new(2, 2, Boundary::Open)
            .unwrap()
            .spin_glass(f64::NAN, &mut mpf_core::rng::stream(0, 0))
            .unwrap_err(),
        fit(|_, o| o.l1 = -0.5),
        fit(|_, o| o.support = Support::Edges(vec![(0, 7)])),
        fit(|mpf, _| mpf.neighbourhood = Neighbourhood::OutsideData),
        fit(|_, o| o.start = Some(Couplings::zeros(3).unwrap())),
        fit(|_, o| o.minimizer.gradient_tolerance = f64::NAN),
        fit(|_, o| o.start = Some(Couplings::new(array![[1e4, 0.0], [0.0, 0.0]]).unwrap())),
        Folds::new(3, 5, FoldAssignment::Blocks).unwrap_err(),
        PenaltyPath::new(PathOptions {
            lambdas: Some(vec![0.1, -0.2]),
            ..PathOptions::default()
        })
        .unwrap_err(),
        mpf_ising::block_mean(&[1.0, 2.0, 3.0], 2).unwrap_err(),
        Incomplete::new(
            &states,
            &States::from_binary(array![[1u8], [1]].view()).unwrap(),
        )
        .unwrap_err(),
        Error::NothingKnown { unit: 4 },
        Error::Undetermined { i: 2, j: 5 },
        Error::Undetermined { i: 2, j: 2 },
        Error::TooManyParameters {
            n_parameters: 5050,
            limit: 2016,
        },
    ];
    let text: Vec<String> = errors.iter().map(Error::to_string).collect();
    insta::assert_snapshot!(text.join("\n"));
}

#[test]
fn warning_messages() {
    let warnings = [
        Warning::ConstantUnits {
            zeros: vec![3, 7],
            ones: vec![0],
        },
        Warning::FlipsLeftOut { fraction: 0.973 },
        Warning::SeparablePairs {
            pairs: (1..=10).map(|j| (0, j)).collect(),
        },
        Warning::RunAwayCouplings {
            couplings: vec![(4, 9, -12.3), (1, 2, 7.25)],
            limit: 4.95,
        },
        Warning::PotentialNotIdentified { n_counts: 3 },
        Warning::NotConverged {
            stop: StopReason::IterationLimit,
            kkt_residual: 1.2e-3,
        },
    ];
    let text: Vec<String> = warnings.iter().map(Warning::to_string).collect();
    insta::assert_snapshot!(text.join("\n"));
}

#[test]
fn json_of_a_fitted_model() {
    let data = array![
        [0u8, 1, 0],
        [1, 0, 0],
        [1, 1, 0],
        [0, 0, 0],
        [1, 0, 0],
        [0, 0, 0]
    ];
    let mut options = FitOptions {
        l2: 0.5,
        ..FitOptions::default()
    };
    options.minimizer.max_iterations = 2;
    let samples = Samples::from_binary(data.view()).unwrap();
    let fit = Fitter::new(Mpf::default(), options)
        .unwrap()
        .fit(&samples)
        .unwrap();
    let mut json = serde_json::to_value(&fit).unwrap();
    round(&mut json);
    json["seconds"] = "[seconds]".into();
    for point in json["trace"].as_array_mut().unwrap() {
        point["seconds"] = "[seconds]".into();
    }
    insta::assert_json_snapshot!(json);
}

/// Six digits, so that no other machine's rounding shows.
fn round(json: &mut serde_json::Value) {
    use serde_json::Value;
    match json {
        Value::Number(n) if n.is_f64() => {
            let rounded: f64 = format!("{:.5e}", n.as_f64().unwrap()).parse().unwrap();
            *json = rounded.into();
        }
        Value::Array(items) => items.iter_mut().for_each(round),
        Value::Object(fields) => fields.values_mut().for_each(round),
        _ => {}
    }
}
