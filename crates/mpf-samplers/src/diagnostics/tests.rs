use super::normal::normal_quantile;
use super::*;
use crate::Error;

/// Two short chains, and what the formulas give for them when worked out separately (a
/// literal transcription in another language; 12 digits).
const CHAINS: [[f64; 20]; 2] = [
    [
        0.0, 28.0, 37.0, 45.0, 46.0, 49.0, 38.0, 58.0, 46.0, 56.0, 48.0, 65.0, 75.0, 67.0, 78.0,
        75.0, 59.0, 61.0, 53.0, 55.0,
    ],
    [
        23.0, 15.0, 23.0, 16.0, 20.0, 16.0, 41.0, 57.0, 44.0, 43.0, 54.0, 38.0, 50.0, 54.0, 43.0,
        39.0, 53.0, 58.0, 57.0, 67.0,
    ],
];

#[track_caller]
fn assert_close(found: f64, expected: f64) {
    assert!(
        (found / expected - 1.0).abs() < 1e-12,
        "{found}, not {expected}"
    );
}

#[test]
fn short_chains_with_ties_have_the_stated_diagnostics() {
    assert_close(rhat(&CHAINS).unwrap(), 1.476065069017856);
    assert_close(ess(&CHAINS).unwrap(), 4.0450734069898);
    assert_close(bulk_ess(&CHAINS).unwrap(), 3.9868352728958927);
    assert_close(tail_ess(&CHAINS).unwrap(), 49.57264957264957);
    assert_close(mcse(&CHAINS).unwrap(), 8.918320897957976);
}

#[test]
fn variances_and_plain_rhat_by_hand() {
    // Means 2 and 4; variances 1 and 4 → within 2.5, between 2.
    let chains = [vec![1.0, 2.0, 3.0], vec![2.0, 4.0, 6.0]];
    assert_eq!(variances(&chains), (2.5, 2.0));
    // √(2/3 + 2/2.5).
    assert_close(split_rhat(&chains), (2.0f64 / 3.0 + 0.8).sqrt());
}

#[test]
fn autocorrelation_time_by_hand() {
    // Within 8/7, total 1. Products at lags 1, 2, 3 add up to 5, 2, −1 of 8, and ρ_t is that
    // share less 1/7: 27/56, 6/56, −15/56. The first pair is 83/56, the second negative.
    let chain = vec![-1.0, -1.0, -1.0, -1.0, 1.0, 1.0, 1.0, 1.0];
    let chains = [chain.clone(), chain];
    assert_close(split_time(&chains), 2.0 * 83.0 / 56.0 - 1.0);
    assert_close(split_ess(&chains), 16.0 * 28.0 / 55.0);
    // Draws that alternate have ρ₁ < −1 and would have no τ at all: the floor holds.
    let alternating = vec![vec![0.0, 1.0, 0.0, 1.0, 0.0]; 2];
    assert_close(split_time(&alternating), 1.0);
}

#[test]
fn ranks_are_shared_by_ties() {
    let z = rank_normalise(&[vec![5.0, 1.0], vec![1.0, 9.0]]);
    // Ranks 3, 1.5, 1.5, 4 of 4.
    assert_close(z[0][0], normal_quantile(2.625 / 4.25));
    assert_close(z[0][1], normal_quantile(1.125 / 4.25));
    assert_eq!(z[0][1], z[1][0]);
    assert_close(z[1][1], normal_quantile(3.625 / 4.25));
}

#[test]
fn quantiles_are_interpolated() {
    let sorted = [1.0, 2.0, 4.0, 8.0];
    assert_eq!(quantile(&sorted, 0.0), 1.0);
    assert_eq!(quantile(&sorted, 0.5), 3.0);
    assert_eq!(quantile(&sorted, 1.0), 8.0);
    assert_close(quantile(&sorted, 0.1), 1.3);
}

#[test]
fn constant_and_binary_draws() {
    let constant = [vec![2.0; 20], vec![2.0; 20]];
    assert!(rhat(&constant).unwrap().is_nan());
    assert!(ess(&constant).unwrap().is_nan());
    assert!(summary(&constant).unwrap().mcse.is_nan());
    // x ≤ q₉₅ always holds, but the other tail can be judged.
    let binary = [
        [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0],
        [0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0],
    ];
    assert!(tail_ess(&binary).unwrap() > 1.0);
    assert!(rhat(&binary).unwrap().is_finite());
    // Two chains that never leave different states disagree as much as chains can.
    for n in [12, 20] {
        let stuck = [vec![0.0; n], vec![1.0; n]];
        assert_eq!(rhat(&stuck).unwrap(), f64::INFINITY);
    }
}

#[test]
fn scale_changes_nothing() {
    let scaled = |factor: f64| CHAINS.map(|chain| chain.map(|x| x * factor));
    let plain = summary(&CHAINS).unwrap();
    // Powers of two: the draws, integers up to 78, stay exact, subnormals too.
    for power in [-1040, -1000, -600, 300, 500, 1000, 1017] {
        let factor = 2f64.powi(power / 2) * 2f64.powi(power - power / 2);
        let found = summary(&scaled(factor)).unwrap();
        for (found, expected) in [
            (found.bulk_ess, plain.bulk_ess),
            (found.tail_ess, plain.tail_ess),
            (found.rhat, plain.rhat),
            (found.autocorrelation_time, plain.autocorrelation_time),
        ] {
            assert_close(found, expected);
        }
        if power > -1000 {
            assert_close(found.mean / factor, plain.mean);
            assert_close(found.standard_deviation / factor, plain.standard_deviation);
            assert_close(found.mcse / factor, plain.mcse);
            assert_close(mcse(&scaled(factor)).unwrap(), found.mcse);
        }
    }
    // The largest numbers of both signs: only their standard deviation is larger still.
    let ends = [[
        f64::MAX,
        f64::MIN,
        f64::MAX,
        f64::MAX,
        f64::MIN,
        f64::MIN,
        f64::MAX,
        f64::MIN,
    ]; 2];
    let found = summary(&ends).unwrap();
    assert_eq!(found.mean, 0.0);
    assert_eq!(found.standard_deviation, f64::INFINITY);
    assert!(found.rhat.is_finite() && found.bulk_ess.is_finite());
    assert_close(summary(&[[f64::MAX; 9]]).unwrap().mean, f64::MAX);
}

#[test]
fn bad_chains_are_errors_that_say_where() {
    assert_eq!(
        rhat(&[[1.0; 7]]),
        Err(Error::TooFewDraws {
            what: "a diagnostic",
            needed: 8,
            found: 7
        })
    );
    assert!(matches!(
        ess::<Vec<f64>>(&[]),
        Err(Error::TooFewDraws { found: 0, .. })
    ));
    assert!(matches!(
        ess(&[vec![1.0; 9], vec![1.0; 10]]),
        Err(Error::Core(mpf_core::Error::Count {
            expected: 9,
            found: 10,
            ..
        }))
    ));
    let mut chain = vec![1.0; 10];
    chain[3] = f64::NAN;
    assert!(matches!(
        mcse(&[vec![0.5; 10], chain]),
        Err(Error::NonFiniteDraw {
            chain: 1,
            draw: 3,
            ..
        })
    ));
}
