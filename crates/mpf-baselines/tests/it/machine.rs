//! Machines with hidden units: scores, ln Z, fits, checkpoints and bad input.

use mpf_baselines::{
    Contender, Criterion, Error, Machine, MachineOptions, MachineTrainer, MachineWarning, Methods,
    Rbm, Tournament,
};
use mpf_core::{EnergyModel, LocalExact};
use mpf_ising::{Couplings, Samples, States};
use mpf_samplers::AnnealedOptions;
use mpf_testkit::StopAfter;
use ndarray::array;

const TRAINERS: [MachineTrainer; 4] = [
    MachineTrainer::Mpf,
    MachineTrainer::Pseudolikelihood,
    MachineTrainer::Contrastive,
    MachineTrainer::Persistent,
];

/// A machine of 6 visible and 3 hidden units, and draws from it.
fn truth(n: usize) -> (Machine, States) {
    let rbm = Rbm::new(6, 3, false).unwrap();
    let theta = rbm.random_balanced(4.0, 5);
    let draws = LocalExact::new(&rbm, &theta).unwrap().draw(n, 6);
    let states = States::from_binary(draws.view()).unwrap();
    (Machine::new(rbm, theta).unwrap(), states)
}

fn options(trainer: MachineTrainer) -> MachineOptions {
    MachineOptions {
        n_hidden: 3,
        trainer,
        updates: 2000,
        starts: 2,
        ..Default::default()
    }
}

#[test]
fn parts_make_the_same_machine() {
    for semi_restricted in [false, true] {
        let rbm = Rbm::new(4, 2, semi_restricted).unwrap();
        let theta: Vec<f64> = (1..=rbm.n_params()).map(|k| (k as f64).sin()).collect();
        let machine = Machine::new(rbm, theta).unwrap();
        let weights: Vec<Vec<f64>> = machine.weights().map(<[f64]>::to_vec).collect();
        let visible = machine.visible().unwrap();
        let again = Machine::from_parts(&visible, &weights, machine.hidden_biases()).unwrap();
        assert_eq!(again, machine);
        // F = xᵀJx − Σ_k ln(1 + exp(−c_k − W_k·x)) for x = 0101.
        let hidden = (0..2).map(|k| {
            let input = machine.hidden_biases()[k] + weights[k][0] + weights[k][2];
            (-input).exp().ln_1p()
        });
        let expected = visible.energy(&[0b0101]) - hidden.sum::<f64>();
        assert!((machine.energy(&[0b0101]) - expected).abs() < 1e-12);
    }
}

#[test]
fn wrong_parts_are_refused() {
    let visible = Couplings::new(array![[0.1, 0.0], [0.0, 0.2]]).unwrap();
    let refused = |weights: &[Vec<f64>], biases: &[f64]| {
        Machine::from_parts(&visible, weights, biases).unwrap_err()
    };
    let error = refused(&[vec![0.0, 501.0]], &[0.0]);
    assert!(matches!(error, Error::Overflowing { parameter: 1, .. }));
    assert!(error.to_string().contains("a larger penalty"), "{error}");
    assert!(matches!(
        refused(&[vec![0.0, f64::NAN]], &[0.0]),
        Error::Overflowing { parameter: 1, .. }
    ));
    for error in [
        refused(&[], &[]),
        refused(&[vec![0.0; 3]], &[0.0]),
        refused(&[vec![0.0; 2]], &[0.0; 2]),
    ] {
        assert!(matches!(error, Error::Core(_)), "{error}");
    }
}

#[test]
fn annealing_finds_the_log_z_of_enumeration() {
    // 21 visible units: too many to enumerate, but the last 15 are independent of the rest.
    let (small, _) = truth(10);
    let mut weights: Vec<Vec<f64>> = small.weights().map(<[f64]>::to_vec).collect();
    weights.iter_mut().for_each(|row| row.resize(21, 0.0));
    let mut visible = ndarray::Array2::zeros((21, 21));
    for i in 0..6 {
        visible[[i, i]] = small.visible().unwrap().get(i, i);
    }
    let visible = Couplings::new(visible).unwrap();
    let large = Machine::from_parts(&visible, &weights, small.hidden_biases()).unwrap();
    let found = large.log_z(&AnnealedOptions::default()).unwrap();
    let exact = small.log_z(&AnnealedOptions::default()).unwrap();
    assert_eq!(exact.standard_error, 0.0);
    let expected = exact.value + 15.0 * 2f64.ln();
    assert!(found.standard_error > 0.0 && found.standard_error < 0.05);
    assert!((found.value - expected).abs() < 5.0 * found.standard_error);
}

#[test]
fn every_trainer_comes_near_the_truth() {
    let (machine, states) = truth(4000);
    let samples = Samples::new(&states).unwrap();
    let likelihood = |machine: &Machine| -> f64 {
        let log_z = machine.log_z(&AnnealedOptions::default()).unwrap().value;
        let energy: f64 = states.rows().map(|row| machine.energy(row)).sum();
        -energy / states.n_samples() as f64 - log_z
    };
    let best = likelihood(&machine);
    for trainer in TRAINERS {
        let mut steps = 0;
        let options = options(trainer);
        let fit = options.fit(&samples, &mut |_| steps += 1).unwrap();
        // 6 ln 2 = 4.2 nats are what no model at all would cost.
        let below = best - likelihood(&fit.machine);
        assert!(below < 0.1, "{trainer:?}: {below}");
        assert!(steps >= fit.iterations && fit.l2 == 1.0 / 4000.0);
        let held_out = options.held_out(&fit, &states, 0.2, 1).unwrap().unwrap();
        assert_eq!((held_out.n_training, held_out.n_held_out), (3200, 800));
        assert!(held_out.gain.value > 3.0 * held_out.gain.standard_error);
        let lowest = fit.starts.iter().copied().reduce(f64::min);
        assert_eq!(fit.value, lowest);
    }
}

#[test]
fn useless_hidden_units_and_early_stops_are_named() {
    let (_, states) = truth(500);
    let samples = Samples::new(&states).unwrap();
    // So large a penalty leaves no weights.
    let fit = MachineOptions {
        l2: Some(100.0),
        ..options(MachineTrainer::Mpf)
    };
    let fit = fit.fit(&samples, &mut |_| {}).unwrap();
    let expected = MachineWarning::DeadUnits {
        units: vec![0, 1, 2],
        n_hidden: 3,
    };
    assert_eq!(fit.warnings, std::slice::from_ref(&expected));
    assert!(expected.to_string().contains("--hidden"), "{expected}");
    let mut early = options(MachineTrainer::Pseudolikelihood);
    early.minimizer.max_iterations = 2;
    let fit = early.fit(&samples, &mut |_| {}).unwrap();
    let named = |w: &MachineWarning| matches!(w, MachineWarning::NotConverged { .. });
    assert!(fit.warnings.iter().any(named));
    assert!(
        MachineOptions {
            n_hidden: 0,
            ..Default::default()
        }
        .fit(&samples, &mut |_| {})
        .is_err()
    );
}

#[test]
fn weights_that_run_away_are_named_and_the_machine_is_kept() {
    // Two units that are always equal, and no penalty: the best weights are infinite.
    let mut states = States::new(2).unwrap();
    (0..100).for_each(|m| states.push(&[3 * (m % 2)]));
    let samples = Samples::new(&states).unwrap();
    let mut options = MachineOptions {
        l2: Some(0.0),
        ..options(MachineTrainer::Mpf)
    };
    options.minimizer.gradient_tolerance = 0.0;
    let fit = options.fit(&samples, &mut |_| {}).unwrap();
    let largest = fit.machine.weights().flatten().map(|w| w.abs());
    let largest = largest.fold(0.0, f64::max);
    assert!((100.0..=500.0).contains(&largest), "{largest}");
    let named = |w: &&MachineWarning| matches!(w, MachineWarning::LargeWeight { .. });
    let warning = fit.warnings.iter().find(named).unwrap().to_string();
    assert!(warning.contains("larger --l2"), "{warning}");
}

#[test]
fn interrupted_fits_go_on_to_the_same_bits() {
    let (_, states) = truth(300);
    let samples = Samples::new(&states).unwrap();
    for trainer in TRAINERS {
        let mut plain = options(trainer);
        plain.updates = 60;
        plain.minimizer.max_iterations = 30;
        let expected = plain.fit(&samples, &mut |_| {}).unwrap();
        // Both within the first start, and between starts.
        for writes in [1, 20, 40] {
            let file = StopAfter::new(writes);
            let mut stopped = plain.clone();
            stopped.minimizer.cancel = file.cancel().clone();
            stopped.minimizer.checkpoint = file.checkpoint();
            let error = stopped.fit(&samples, &mut |_| {}).unwrap_err();
            assert_eq!(error, mpf_core::Error::Cancelled.into());
            let (_, checkpoint) = file.resumed();
            let mut resumed = plain.clone();
            resumed.minimizer.checkpoint = checkpoint;
            let found = resumed.fit(&samples, &mut |_| {}).unwrap();
            assert_eq!(found.machine, expected.machine, "{trainer:?}, {writes}");
        }
    }
}

#[test]
fn machines_compete_with_other_models() {
    // Hidden units make triplets that no pairs explain.
    let (machine, states) = truth(4000);
    let null = Methods::default().find("independent").unwrap();
    let contenders = [
        Contender::alone(null, Default::default()),
        Contender::machine("RBM", options(MachineTrainer::Pseudolikelihood)),
    ];
    let found = Tournament::default()
        .run(&contenders, &states, |_, _| {})
        .unwrap();
    let best = &found.entrants[found.best_index(Criterion::LogLikelihood).unwrap()];
    assert_eq!(best.name, "RBM");
    let log_z = machine.log_z(&AnnealedOptions::default()).unwrap().value;
    let energy: f64 = states.rows().map(|row| machine.energy(row)).sum();
    let truth = -energy / 4000.0 - log_z;
    let ll = best.log_likelihood.unwrap();
    // Near the truth, and by more than chance not above it.
    assert!(ll.value > truth - 0.1 && ll.value < truth + 3.0 * ll.standard_error);
    // Its own objective is the pseudolikelihood, which is smaller than minus the likelihood.
    assert_eq!(best.own, Some(best.pseudolikelihood.value));
    assert!(best.pseudolikelihood.value < -ll.value);
}

#[test]
fn threads_change_no_bit() {
    let (_, states) = truth(300);
    let samples = Samples::new(&states).unwrap();
    for trainer in TRAINERS {
        let mut options = options(trainer);
        options.updates = 50;
        options.minimizer.max_iterations = 10;
        let on = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            let fit = || options.fit(&samples, &mut |_| {}).unwrap().machine;
            pool.unwrap().install(fit)
        };
        assert_eq!(on(1), on(3), "{trainer:?}");
    }
}
