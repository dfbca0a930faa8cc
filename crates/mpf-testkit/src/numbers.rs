//! Numbers at the edge, for the tests of extremes.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Draws any number, and often one at the edge: of `f64`, of its squares, of its exponentials.
pub fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        6 => -4.0..4.0f64,
        4 => proptest::sample::select(vec![
            0.0, -0.0, 1.0, 5e-324, -5e-324, f64::MIN_POSITIVE, 1e-300, 1e-160, 1e16, -1e16,
            709.5, -709.5, 1419.0, -1419.0, 1e5, -1e5, 1e154, -1e154, 1e200, 1e300, -1e300, 4e307,
            -4e307, f64::MAX, f64::MIN,
        ]),
        1 => proptest::sample::select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY]),
    ]
}

/// Draws the same, but finite.
pub fn finite() -> impl Strategy<Value = f64> {
    number().prop_map(|v| if v.is_finite() { v } else { -1e300 })
}

/// Configures proptest to run `cases` cases, the same every time; others with another `MPF_TEST_SEED`, and
/// `MPF_TEST_CASES` times as many.
pub fn few(cases: u32) -> ProptestConfig {
    let seed = crate::seed_or(0);
    let times = std::env::var("MPF_TEST_CASES").map_or(1, |n| n.parse().expect("a number"));
    ProptestConfig {
        cases: cases * times,
        rng_seed: RngSeed::Fixed(seed),
        ..ProptestConfig::default()
    }
}

/// Fails at the first value that is not finite.
pub fn all_finite<'a>(
    what: &str,
    values: impl IntoIterator<Item = &'a f64>,
) -> Result<(), TestCaseError> {
    for (k, value) in values.into_iter().enumerate() {
        prop_assert!(value.is_finite(), "{what}[{k}] = {value}");
    }
    Ok(())
}

/// Fails at the first value that is NaN.
pub fn no_nan<'a>(
    what: &str,
    values: impl IntoIterator<Item = &'a f64>,
) -> Result<(), TestCaseError> {
    for (k, value) in values.into_iter().enumerate() {
        prop_assert!(!value.is_nan(), "{what}[{k}] = {value}");
    }
    Ok(())
}

/// Repeats `values` until there are `n`.
pub fn cycle(values: &[f64], n: usize) -> Vec<f64> {
    values.iter().copied().cycle().take(n).collect()
}
