//! Moments, their errors and entropies against plain sums.

use mpf_baselines::{Entropies, GoodnessOfFit, Moments, pairs, triplets};
use mpf_ising::{BlockMean, Couplings, Exact, States};
use mpf_testkit::{random_couplings, seed};

fn exact(d: usize) -> Exact {
    Exact::new(&random_couplings(d, 0.8, 5)).unwrap()
}

fn bit(state: usize, unit: usize) -> f64 {
    (state >> unit & 1) as f64
}

#[test]
fn exact_moments_are_sums_over_states() {
    let d = 6;
    let exact = exact(d);
    let p = exact.probabilities();
    let mean = |f: &dyn Fn(usize) -> f64| p.iter().enumerate().map(|(x, p)| p * f(x)).sum::<f64>();
    let found = Moments::exact(&exact);
    let m: Vec<f64> = (0..d).map(|i| mean(&|x| bit(x, i))).collect();
    // Sums of 64 probabilities.
    let close = |a: &BlockMean, b: f64| a.standard_error == 0.0 && (a.value - b).abs() < 1e-14;
    assert!(found.means.iter().zip(&m).all(|(a, b)| close(a, *b)));
    for (found, (i, j)) in found.pairs.iter().zip(pairs(d)) {
        assert!(close(
            found,
            mean(&|x| (bit(x, i) - m[i]) * (bit(x, j) - m[j]))
        ));
    }
    assert_eq!(found.triplets.len(), 20);
    for (found, (i, j, k)) in found.triplets.iter().zip(triplets(d)) {
        let expected = mean(&|x| (bit(x, i) - m[i]) * (bit(x, j) - m[j]) * (bit(x, k) - m[k]));
        assert!(close(found, expected));
    }
    for (n, found) in found.n_active.iter().enumerate() {
        assert!(close(
            found,
            mean(&|x| f64::from(u8::from(x.count_ones() as usize == n)))
        ));
    }
}

#[test]
fn moments_of_samples_and_their_jackknife() {
    // Leaving out one block at a time gives the influence of each to first order in 1/B.
    let states = exact(5).draw(900, seed());
    let block = 9;
    let found = Moments::of_states(&states, block).unwrap();
    let n_blocks = 100;
    let without: Vec<Moments> = (0..n_blocks)
        .map(|b| {
            let mut rest = states.slice(0..block * b);
            rest.append(&states.slice(block * (b + 1)..900));
            Moments::of_states(&rest, 1).unwrap()
        })
        .collect();
    let check = |get: &dyn Fn(&Moments) -> Vec<BlockMean>| {
        for (at, mean) in get(&found).iter().enumerate() {
            let values: Vec<f64> = without.iter().map(|m| get(m)[at].value).collect();
            let centre = values.iter().sum::<f64>() / 100.0;
            let spread: f64 = values.iter().map(|v| (v - centre) * (v - centre)).sum();
            let jackknife = (0.99 * spread).sqrt();
            // The two differ by terms of relative order 1/B.
            assert!(
                (mean.standard_error - jackknife).abs() <= 0.03 * jackknife + 1e-12,
                "{at}: {} {jackknife}",
                mean.standard_error
            );
        }
    };
    check(&|m| m.means.clone());
    check(&|m| m.pairs.clone());
    check(&|m| m.triplets.clone());
    check(&|m| m.n_active.clone());
}

#[test]
fn the_right_model_agrees_and_a_wrong_one_does_not() {
    let exact = exact(8);
    let states = exact.draw(20_000, seed());
    let data = Moments::of_states(&states, 1).unwrap();
    let right = GoodnessOfFit::new(Moments::exact(&exact), data.clone()).unwrap();
    for agreement in [right.means, right.pairs, right.triplets] {
        // Eight means: one may be beyond two errors; z beyond 5 does not happen.
        assert!(
            agreement.within_two_errors > 0.7 && agreement.largest_z < 5.0,
            "{agreement:?}"
        );
    }
    let other = Exact::new(&random_couplings(8, 0.8, 6)).unwrap();
    let wrong = GoodnessOfFit::new(Moments::exact(&other), data).unwrap();
    assert!(wrong.pairs.largest_z > 10.0 && wrong.means.within_two_errors < 0.5);
    assert!(wrong.n_active.rms_difference > 2.0 * wrong.n_active.rms_error);
}

#[test]
fn entropies_are_their_sums() {
    let exact = exact(6);
    let log_z = BlockMean {
        value: exact.log_z(),
        standard_error: 0.0,
    };
    let model = Moments::exact(&exact);
    let found = Entropies::new(exact.couplings(), log_z, &model).unwrap();
    let p = exact.probabilities();
    let entropy: f64 = p.iter().map(|p| -p * p.ln()).sum();
    assert!((found.entropy.value - entropy).abs() < 1e-12);
    let single: f64 = exact
        .means()
        .iter()
        .map(|m| -m * m.ln() - (1.0 - m) * (1.0 - m).ln())
        .sum();
    assert!((found.independent.value - single).abs() < 1e-12);
    // Multi-information is the divergence from independent units with the same means.
    let divergence: f64 = p
        .iter()
        .enumerate()
        .map(|(x, p)| {
            let q: f64 = exact
                .means()
                .iter()
                .enumerate()
                .map(|(i, m)| if bit(x, i) == 1.0 { *m } else { 1.0 - m })
                .product();
            p * (p / q).ln()
        })
        .sum();
    assert!((found.multi_information.value - divergence).abs() < 1e-12);
    assert_eq!(found.entropy.standard_error, 0.0);
    // Draws: within the errors that it claims.
    let draws = Moments::of_states(&exact.draw(20_000, seed()), 1).unwrap();
    let log_z = BlockMean {
        standard_error: 0.02,
        ..log_z
    };
    let sampled = Entropies::new(exact.couplings(), log_z, &draws).unwrap();
    let off = (sampled.entropy.value - entropy).abs();
    // Correlations between moments are neglected, so that the error is a guide: twice as wide.
    assert!(off < 8.0 * sampled.entropy.standard_error && sampled.entropy.standard_error >= 0.02);
}

#[test]
fn other_sizes_are_errors() {
    let model = Moments::exact(&exact(4));
    let states = States::from_binary(ndarray::Array2::<u8>::zeros((10, 5)).view()).unwrap();
    let data = Moments::of_states(&states, 1).unwrap();
    assert!(GoodnessOfFit::new(model.clone(), data).is_err());
    let log_z = BlockMean {
        value: 0.0,
        standard_error: 0.0,
    };
    assert!(Entropies::new(&Couplings::zeros(5).unwrap(), log_z, &model).is_err());
    assert!(Moments::of_states(&states, 6).is_err());
}
