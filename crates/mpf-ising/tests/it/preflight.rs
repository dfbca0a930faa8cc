//! Every finding on data made to show it, and nothing on data that have none.

use mpf_ising::internal::bytes_of_fit;
use mpf_ising::{Error, Exact, Finding, Fitter, PairRelation, Preflight, Samples, States};
use mpf_testkit::random_couplings;
use ndarray::{Array2, array};

fn samples(data: &Array2<u8>) -> Samples {
    Samples::from_binary(data.view()).unwrap()
}

fn healthy(n: usize, d: usize) -> Samples {
    let truth = random_couplings(d, 0.5, 2);
    Samples::new(&Exact::new(&truth).unwrap().draw(n, 2)).unwrap()
}

#[test]
fn healthy_data_have_no_findings() {
    let samples = healthy(2000, 16);
    let found = Preflight::new(&samples, None).unwrap();
    // 2000 draws of 65,536 states: some flips lead to data states, but not most.
    assert!(found.findings.is_empty(), "{:?}", found.findings);
    assert_eq!((found.n_samples, found.n_units), (2000, 16));
    assert_eq!(found.n_distinct, samples.n_distinct());
    assert!((0.0..0.5).contains(&found.flips_into_data) && found.silent_fraction < 0.1);
}

#[test]
fn pairs_constants_and_duplicates_are_named() {
    // Columns: a, equal to a, opposite of a, never with a, only with a, always 1.
    let a = [0u8, 1, 0, 1, 0, 0, 1, 0];
    let never = [1u8, 0, 0, 0, 1, 0, 0, 1];
    let only = [0u8, 1, 0, 0, 0, 0, 1, 0];
    let data = Array2::from_shape_fn((8, 6), |(m, u)| match u {
        0 | 1 => a[m],
        2 => 1 - a[m],
        3 => never[m],
        4 => only[m],
        _ => 1,
    });
    let names: Vec<String> = ["a", "b", "c", "d", "e", "f"].map(String::from).to_vec();
    let found = Preflight::new(&samples(&data), Some(&names)).unwrap();
    let has = |i: usize, j: usize, wanted: PairRelation| {
        found.findings.iter().any(|f| {
            matches!(f, Finding::Pair { first, second, relation }
                if first.index == i && second.index == j && *relation == wanted)
        })
    };
    assert!(has(0, 1, PairRelation::Equal));
    assert!(has(0, 2, PairRelation::Opposite));
    assert!(has(0, 3, PairRelation::NeverTogether));
    assert!(has(4, 0, PairRelation::OnlyWith));
    // Unit 3 is 1 only where 2 is: 2 or not 3.
    assert!(has(3, 2, PairRelation::OnlyWith));
    assert!(found.findings.iter().any(|f| matches!(
        f,
        Finding::Constant { unit, value: 1 } if unit.index == 5
    )));
    let words: Vec<String> = found.findings.iter().map(ToString::to_string).collect();
    assert!(
        words
            .iter()
            .any(|w| w.starts_with("f (unit 5) is always 1: MPF")),
        "{words:?}"
    );
    assert!(
        words
            .iter()
            .any(|w| w.starts_with("a (unit 0) and b (unit 1) are always equal"))
    );
}

#[test]
fn never_silent_together_and_linear_units_are_named() {
    // x₃ = x₀ + x₁ where those are never 1 together; x₂ is free.
    let data = array![
        [0u8, 0, 0, 0],
        [0, 0, 1, 0],
        [1, 0, 0, 1],
        [1, 0, 1, 1],
        [0, 1, 0, 1],
        [0, 1, 1, 1],
        [0, 1, 1, 1],
    ];
    let found = Preflight::new(&samples(&data), None).unwrap();
    let linear = found.findings.iter().find_map(|f| match f {
        Finding::Linear { unit, of } => Some((unit.index, of.clone())),
        _ => None,
    });
    let (unit, of) = linear.unwrap();
    assert_eq!(unit, 3);
    assert_eq!(of.iter().map(|(u, _)| u.index).collect::<Vec<_>>(), [0, 1]);
    assert!(of.iter().all(|(_, w)| (w - 1.0).abs() < 1e-9));
    let data = array![[1u8, 0], [0, 1], [1, 1]];
    let found = Preflight::new(&samples(&data), None).unwrap();
    assert!(found.findings.iter().any(|f| matches!(
        f,
        Finding::Pair {
            relation: PairRelation::NeverBothSilent,
            ..
        }
    )));
}

#[test]
fn shares_are_counted() {
    // 6 of 10 silent; all four states of two units occur, so that every flip leads to data.
    let mut data = Array2::<u8>::zeros((10, 2));
    data[[0, 0]] = 1;
    data[[1, 1]] = 1;
    data.row_mut(2).fill(1);
    data[[3, 0]] = 1;
    let found = Preflight::new(&samples(&data), None).unwrap();
    assert_eq!(
        (
            found.silent_fraction,
            found.flips_into_data,
            found.n_distinct
        ),
        (0.6, 1.0, 4)
    );
    let shares: Vec<_> = found
        .findings
        .iter()
        .filter_map(|f| match f {
            Finding::OneStateDominates { share, silent } => Some((*share, *silent)),
            _ => None,
        })
        .collect();
    assert_eq!(shares, [(0.6, true)]);
    assert!(
        found
            .findings
            .iter()
            .any(|f| matches!(f, Finding::FlipsIntoData { share } if *share == 1.0))
    );
    // Three samples, 6 units, 21 parameters.
    let few = States::from_binary(Array2::from_shape_fn((3, 6), |(m, u)| (m + u) % 3 == 0).view());
    let found = Preflight::new(&Samples::new(&few.unwrap()).unwrap(), None).unwrap();
    assert!(found.findings.iter().any(|f| matches!(
        f,
        Finding::FewSamples {
            n_samples: 3,
            n_units: 6,
            n_parameters: 21
        }
    )));
}

#[test]
fn costs_are_of_the_right_size() {
    let samples = healthy(4000, 16);
    let found = Preflight::new(&samples, None).unwrap();
    // Beside the sums, each thread holds at most a few MB of tables.
    let most = samples.bytes() + 200_000 + (4 << 20) * rayon::current_num_threads();
    assert!(found.bytes >= samples.bytes() && found.bytes < most);
    assert_eq!(found.bytes, bytes_of_fit(&samples, 136));
    assert!(bytes_of_fit(&samples, 16) < found.bytes);
    let fitter: Fitter = Fitter::default();
    let fit = fitter.fit(&samples).unwrap();
    // Times on a busy machine: only that it is no nonsense.
    assert!(found.seconds_per_evaluation > 0.0 && found.seconds_per_evaluation < fit.seconds + 1.0);
    let names = vec![String::new(); 3];
    assert!(matches!(
        Preflight::new(&samples, Some(&names)),
        Err(Error::UnitCount {
            expected: 16,
            found: 3,
            ..
        })
    ));
}
