//! Moments, their errors and entropies against plain sums.

use mpf_baselines::{Entropies, GoodnessOfFit, Moments, pairs, triplets};
use mpf_core::rng::stream;
use mpf_ising::{BlockMean, Couplings, Exact, States, block_mean};
use mpf_testkit::{random_couplings, seed};
use rand::RngExt;

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
    // Of triplets with means taken as known: the mean of δ_i δ_j δ_k.
    let m: Vec<f64> = found.means.iter().map(|m| m.value).collect();
    let known: Vec<f64> = triplets(5)
        .map(|(i, j, k)| {
            let delta = |row: &[u64], i: usize| bit(row[0] as usize, i) - m[i];
            let products: Vec<f64> = states
                .rows()
                .map(|row| delta(row, i) * delta(row, j) * delta(row, k))
                .collect();
            block_mean(&products, block).unwrap().standard_error
        })
        .collect();
    let check = |get: &dyn Fn(&Moments) -> Vec<BlockMean>, least: &[f64]| {
        for (at, mean) in get(&found).iter().enumerate() {
            let values: Vec<f64> = without.iter().map(|m| get(m)[at].value).collect();
            let centre = values.iter().sum::<f64>() / 100.0;
            let spread: f64 = values.iter().map(|v| (v - centre) * (v - centre)).sum();
            let jackknife = (0.99 * spread).sqrt();
            let expected = least
                .get(at)
                .map_or(jackknife, |&least| jackknife.max(least));
            // The two differ by terms of relative order 1/B.
            assert!(
                (mean.standard_error - expected).abs() <= 0.03 * expected + 1e-12,
                "{at}: {} {expected}",
                mean.standard_error
            );
        }
    };
    check(&|m| m.means.clone(), &[]);
    check(&|m| m.pairs.clone(), &[]);
    check(&|m| m.triplets.clone(), &known);
    check(&|m| m.n_active.clone(), &[]);
}

/// Rows in which all three units are active, or none.
fn all_or_none(active: impl IntoIterator<Item = bool>) -> States {
    let mut states = States::new(3).unwrap();
    active
        .into_iter()
        .for_each(|a| states.push(&[if a { 7 } else { 0 }]));
    states
}

#[test]
fn a_weight_of_modes_at_which_triplets_are_stationary_is_no_disagreement() {
    // d/dm m(1 − m)(1 − 2m) = 0: all of the first-order error of the triplet cancels.
    let weight = 0.5 - 1.0 / 12f64.sqrt();
    let n = 2000;
    let model = all_or_none((0..n).map(|m| (m as f64) < weight * n as f64));
    let model = Moments::of_states(&model, 1).unwrap();
    let model = Moments {
        n_samples: None,
        ..model
    };
    for seed in 0..100 {
        let mut rng = stream(seed, 7);
        let draws = (0..n).map(|_| rng.random::<f64>() < weight);
        let data = Moments::of_states(&all_or_none(draws), 1).unwrap();
        let found = GoodnessOfFit::new(model.clone(), data).unwrap();
        // Off by half the second derivative, √3 Δm², and Δm is below 4.5 σ in 100 draws: 10⁻³ of them
        // all are not.
        let bound = 3f64.sqrt() * 4.5 * 4.5 * weight * (1.0 - weight) / n as f64;
        assert!(found.triplets.rms_difference < bound, "{found:?}");
        assert!(found.triplets.largest_z < 2.0, "{:?}", found.triplets);
    }
}

#[test]
fn chains_that_differ_have_larger_errors() {
    // Four chains of 500; within them samples are independent, the chances are not the same.
    let mut rng = stream(seed(), 8);
    let chances = [0.3, 0.5, 0.6, 0.8];
    let states = all_or_none((0..2000).map(|m| rng.random::<f64>() < chances[m / 500]));
    let blocks = Moments::of_states(&states, 10).unwrap().means[0];
    let chains = Moments::of_chains(&states, 4, 10, false).unwrap();
    assert!(chains.triplets.is_empty());
    let chains = chains.means[0];
    assert_eq!(blocks.value, chains.value);
    let parts: Vec<f64> = (0..4)
        .map(|c| {
            let chain = states.slice(500 * c..500 * (c + 1));
            Moments::of_states(&chain, 1).unwrap().means[0].value
        })
        .collect();
    let expected = block_mean(&parts, 1).unwrap().standard_error;
    assert!((chains.standard_error - expected).abs() < 1e-12);
    assert!(chains.standard_error > 3.0 * blocks.standard_error);
}

#[test]
fn rare_events_are_judged_by_their_counts() {
    // Three units that are active together now and then; the data never show it.
    let rare = |every: usize, n: usize| {
        let model = all_or_none((0..1_000_000).map(|m| m % every == 0));
        let model = Moments::of_states(&model, 1000).unwrap();
        let model = Moments {
            n_samples: None,
            ..model
        };
        let data = Moments::of_states(&all_or_none((0..n).map(|_| false)), 1).unwrap();
        let found = GoodnessOfFit::new(model, data).unwrap();
        (found.means.largest_z, found.chance_limit())
    };
    // Five are expected: none is seen in .7 % of data sets.
    let (z, limit) = rare(1000, 5000);
    assert!(z > 1.5 && z < 3.0 && z < limit, "{z} {limit}");
    // A hundred are.
    let (z, limit) = rare(50, 5000);
    assert!(z > limit, "{z} {limit}");
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
