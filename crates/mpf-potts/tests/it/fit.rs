//! Fits with known answers.

use crate::{all_sequences, random_theta};
use mpf_core::{Objective, boltzmann};
use mpf_ising::{Fitter, Mpf, Samples, States};
use mpf_potts::{
    FitOptions, JointObjective, Loss, Mode, Penalties, Potts, Sequences, fit, relative_curvature,
};

/// The sequences of an enumerable model with its exact probabilities.
fn population(n_sites: usize, q: usize) -> (Potts, Sequences) {
    let n = n_sites * q + n_sites * (n_sites - 1) / 2 * q * q;
    let model = Potts::new(n_sites, q, random_theta(n, 0.6, 11)).zero_sum();
    let codes = all_sequences(n_sites, q);
    let energies: Vec<f64> = codes.chunks(n_sites).map(|x| model.energy_of(x)).collect();
    let sequences = Sequences::new(&codes, n_sites, q, &boltzmann(&energies)).unwrap();
    (model, sequences)
}

fn exact_options(sequences: &Sequences, loss: Loss, mode: Mode) -> FitOptions {
    let mut options = FitOptions::new(loss, sequences);
    options.mode = mode;
    options.minimizer.gradient_tolerance = 1e-9;
    options.penalties = Penalties {
        couplings: 1e-8,
        fields: 1e-8,
        group: 0.0,
    };
    options
}

#[test]
fn exact_weights_give_the_model_back() {
    let (truth, sequences) = population(4, 3);
    for loss in [Loss::Pseudolikelihood, Loss::Flow] {
        for mode in [Mode::Joint, Mode::NodeWise] {
            let found = fit(&sequences, &exact_options(&sequences, loss, mode), |_| {}).unwrap();
            let found_model = found.model.zero_sum();
            let pairs = found_model.theta().iter().zip(truth.theta());
            let error: f64 = pairs.map(|(a, b)| (a - b).powi(2)).sum();
            assert!(
                error < 1e-5,
                "{loss:?} {mode:?}: {error:e}, {:?}",
                found.stop
            );
        }
    }
}

/// For two states in the zero-sum gauge J(a, b) = K s_a s_b and h(a) = h s_a with spins s = ±1, so the
/// penalty ½ λ Σ J² is ½ 4λ K²; a ridge in the Ising fit has the same minimum.
#[test]
fn two_states_are_an_ising_model() {
    let n_sites = 5;
    let (_, sequences) = population(n_sites, 2);
    let mut options = exact_options(&sequences, Loss::Flow, Mode::Joint);
    options.penalties = Penalties {
        couplings: 0.01,
        fields: 0.0,
        group: 0.0,
    };
    options.minimizer.gradient_tolerance = 1e-11;
    let potts = fit(&sequences, &options, |_| {}).unwrap().model.zero_sum();

    let shape = (sequences.n_distinct(), n_sites);
    let rows = ndarray::ArrayView2::from_shape(shape, sequences.codes()).unwrap();
    let states = States::from_binary(rows).unwrap();
    let samples = Samples::weighted(&states, sequences.weights()).unwrap();
    let mut options = mpf_ising::FitOptions {
        l2: 0.04,
        ..Default::default()
    };
    options.minimizer.gradient_tolerance = 1e-11;
    let ising = Fitter::new(Mpf::default(), options).unwrap();
    let ising = ising.fit(&samples).unwrap().couplings.to_spins();
    for i in 0..n_sites {
        // −E = Σ h s + Σ_{i<j} K s s in both.
        let h = potts.fields()[2 * i + 1];
        assert!(
            (h - ising.fields[i]).abs() < 1e-8,
            "{h} {}",
            ising.fields[i]
        );
        for j in i + 1..n_sites {
            let k = potts.block(i, j)[3];
            assert!((k - ising.couplings[[i, j]]).abs() < 1e-8);
        }
    }
}

#[test]
fn mutations_are_differences_of_energies() {
    let (model, _) = population(4, 3);
    let x = [2, 0, 1, 1];
    let mutations = model.mutations(&x);
    for site in 0..4 {
        for state in 0..3 {
            let mut y = x;
            y[site] = state;
            let expected = model.energy_of(&y) - model.energy_of(&x);
            assert!((mutations[site * 3 + usize::from(state)] - expected).abs() < 1e-12);
        }
    }
}

#[test]
fn the_gauge_changes_no_difference_of_energies() {
    let theta = random_theta(3 * 4 + 3 * 16, 1.0, 7);
    let model = Potts::new(3, 4, theta);
    let zero_sum = model.zero_sum();
    let codes = all_sequences(3, 4);
    let shift = |x: &[u8]| zero_sum.energy_of(x) - model.energy_of(x);
    for x in codes.chunks(3) {
        assert!((shift(x) - shift(&codes[..3])).abs() < 1e-12);
    }
    for block in zero_sum.couplings().chunks(16) {
        for k in 0..4 {
            assert!(block[4 * k..4 * k + 4].iter().sum::<f64>().abs() < 1e-12);
            assert!(block.iter().skip(k).step_by(4).sum::<f64>().abs() < 1e-12);
        }
    }
}

#[test]
fn a_group_penalty_empties_pairs_that_do_not_couple() {
    // Sites 0 and 1 couple, site 2 is on its own.
    let mut theta = vec![0.0; 9 + 27];
    for a in 0..3 {
        theta[9 + 4 * a] = 1.5;
    }
    let model = Potts::new(3, 3, theta);
    let codes = all_sequences(3, 3);
    let energies: Vec<f64> = codes.chunks(3).map(|x| model.energy_of(x)).collect();
    // Counts of a sample rather than probabilities: with noise.
    let mut weights = boltzmann(&energies);
    for (k, weight) in weights.iter_mut().enumerate() {
        *weight *= 1.0 + 0.05 * (k as f64).sin();
    }
    let sequences = Sequences::new(&codes, 3, 3, &weights).unwrap();
    let mut options = exact_options(&sequences, Loss::Pseudolikelihood, Mode::Joint);
    options.minimizer.gradient_tolerance = 1e-7;
    let norm = |model: &Potts, i, j| model.block(i, j).iter().map(|v| v * v).sum::<f64>().sqrt();
    let plain = fit(&sequences, &options, |_| {}).unwrap().model;
    assert!(norm(&plain, 0, 2) > 0.01);
    options.penalties.group = 0.05;
    let sparse = fit(&sequences, &options, |_| {}).unwrap().model;
    assert!(norm(&sparse, 0, 2) < 1e-3, "{}", norm(&sparse, 0, 2));
    assert!(norm(&sparse, 0, 1) > 1.0);
}

/// The ratio of second differences of the two losses in all fields, at the model without couplings
/// that has the frequencies of the data; one site has ignored gaps.
#[test]
fn the_penalty_of_the_flow_is_scaled_by_its_curvature() {
    let codes = [0u8, 1, 2, 2, 0, 1, 1, 3, 0, 2, 2, 2, 0, 3, 1];
    let sequences = Sequences::new(&codes, 3, 3, &[1.0, 0.5, 2.0, 0.7, 1.1]).unwrap();
    let frequencies = sequences.frequencies();
    let total = |loss| {
        let mut objective = JointObjective::new(&sequences, loss, Penalties::default());
        let mut theta = vec![0.0; objective.n_params()];
        for (h, f) in theta.iter_mut().zip(&frequencies) {
            // A letter that never occurs is all but impossible.
            *h = f.max(1e-16).ln();
        }
        let mut grad = theta.clone();
        let mut total = 0.0;
        for k in 0..frequencies.len() {
            let mut slope = |step: f64| {
                theta[k] += step;
                objective.value_and_gradient(&theta, &mut grad);
                theta[k] -= step;
                grad[k]
            };
            total += (slope(1e-4) - slope(-1e-4)) / 2e-4;
        }
        total
    };
    let expected = total(Loss::Flow) / total(Loss::Pseudolikelihood);
    let ratio = relative_curvature(Loss::Flow, &sequences);
    assert!((ratio - expected).abs() < 1e-6, "{ratio} {expected}");
    assert_eq!(relative_curvature(Loss::Pseudolikelihood, &sequences), 1.0);
    let penalties = |loss| FitOptions::new(loss, &sequences).penalties;
    assert_eq!(penalties(Loss::Pseudolikelihood).couplings, 0.01);
    assert_eq!(penalties(Loss::Flow).couplings, 0.01 * ratio);
    // Equally frequent letters: q / 2.
    let all = all_sequences(2, 6);
    let uniform = Sequences::new(&all, 2, 6, &[1.0; 36]).unwrap();
    assert!((relative_curvature(Loss::Flow, &uniform) - 3.0).abs() < 1e-12);
    // Columns that never change have no curvature in either.
    let constant = Sequences::new(&[1, 0], 2, 3, &[1.0]).unwrap();
    assert_eq!(relative_curvature(Loss::Flow, &constant), 1.0);
}
