//! The fast sums against differences and against mpf-core's plain flow.

use crate::random_theta;
use mpf_core::rng::stream;
use mpf_core::{Connectivity, Flow, Objective, gradient_error};
use mpf_ising::internal::Vectors;
use mpf_potts::{JointObjective, Loss, Penalties, Potts, Sequences};
use rand::RngExt;

const LOSSES: [Loss; 2] = [Loss::Pseudolikelihood, Loss::Flow];

/// Random codes up to `n_codes` − 1 with random weights.
fn random_sequences(n: usize, n_sites: usize, n_states: usize, n_codes: u8) -> Sequences {
    let mut rng = stream(3, 0);
    let codes: Vec<u8> = (0..n * n_sites)
        .map(|_| rng.random_range(0..n_codes))
        .collect();
    let weights: Vec<f64> = (0..n).map(|_| rng.random_range(0.1..1.0)).collect();
    Sequences::new(&codes, n_sites, n_states, &weights).unwrap()
}

/// Every state of every site is a neighbour.
struct Mutations {
    n_states: u8,
}

impl Connectivity<[u8]> for Mutations {
    fn for_each_neighbour(
        &self,
        _: usize,
        x: &[u8],
        scratch: &mut [u8],
        mut visit: impl FnMut(&[u8], f64),
    ) {
        scratch.copy_from_slice(x);
        for (site, &own) in x.iter().enumerate() {
            for state in (0..self.n_states).filter(|s| *s != own) {
                scratch[site] = state;
                visit(scratch, 0.0);
            }
            scratch[site] = own;
        }
    }
}

#[test]
fn the_flow_is_that_of_the_oracle() {
    for (n_sites, q) in [(2, 2), (3, 3), (5, 4), (7, 5), (4, 21)] {
        let sequences = random_sequences(30, n_sites, q, q as u8);
        let mut fast = JointObjective::new(&sequences, Loss::Flow, Penalties::default());
        let theta = random_theta(fast.n_params(), 0.7, 1);
        let model = Potts::new(n_sites, q, theta.clone());
        let rule = Mutations { n_states: q as u8 };
        let states: Vec<Vec<u8>> = sequences.rows().map(<[u8]>::to_vec).collect();
        let plain = Flow::new(&model, &rule, &states).unwrap();
        let mut plain = plain.weighted(sequences.weights()).unwrap();

        let (mut found, mut expected) = (vec![0.0; theta.len()], vec![0.0; theta.len()]);
        let value = fast.value_and_gradient(&theta, &mut found);
        let oracle = plain.value_and_gradient(&theta, &mut expected);
        assert!((value / oracle - 1.0).abs() < 1e-13, "{value} {oracle}");
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-13 * oracle, "{n_sites} {q}");
        }
    }
}

/// −Σ w ln p(x_i | the others), by the definition.
#[test]
fn pseudolikelihood_is_its_definition() {
    let (n_sites, q) = (5, 6);
    // Code 6 is ignored.
    let sequences = random_sequences(40, n_sites, q, 7);
    let mut objective =
        JointObjective::new(&sequences, Loss::Pseudolikelihood, Penalties::default());
    let theta = random_theta(objective.n_params(), 1.0, 2);
    let model = Potts::new(n_sites, q, theta.clone());
    let mut expected = 0.0;
    for (x, weight) in sequences.rows().zip(sequences.weights()) {
        for site in 0..n_sites {
            let own = usize::from(x[site]);
            if own == q {
                continue;
            }
            let with = |state: usize| {
                let mut y = x.to_vec();
                y[site] = state as u8;
                (-model.energy_of(&y)).exp()
            };
            let sum: f64 = (0..q).map(with).sum();
            expected -= weight * (with(own) / sum).ln();
        }
    }
    let value = objective.value_and_gradient(&theta, &mut vec![0.0; theta.len()]);
    assert!((value / expected - 1.0).abs() < 1e-13);
}

#[test]
fn gradients_are_those_of_differences() {
    let penalties = Penalties {
        couplings: 0.3,
        fields: 0.2,
        group: 0.4,
    };
    for loss in LOSSES {
        // With a code that is ignored, and with rows of every width.
        for (n_sites, q) in [(4, 3), (3, 7), (3, 20), (2, 23), (2, 31)] {
            let sequences = random_sequences(25, n_sites, q, q as u8 + 1);
            let mut objective = JointObjective::new(&sequences, loss, penalties);
            let theta = random_theta(objective.n_params(), 0.5, 4);
            let error = gradient_error(&mut objective, &theta, 1e-5);
            assert!(error < 1e-6, "{loss:?} {n_sites} {q}: {error}");
        }
    }
}

#[test]
fn chunks_vectors_threads_and_precision_change_nothing_that_matters() {
    // More sequences than a tree holds.
    let sequences = random_sequences(5000, 9, 5, 6);
    for loss in LOSSES {
        let evaluate = |vectors, threads, rough| {
            let mut objective =
                JointObjective::with_vectors(&sequences, loss, Penalties::default(), vectors);
            objective.set_rough(rough);
            let theta = random_theta(objective.n_params(), 0.4, 5);
            let mut grad = vec![0.0; theta.len()];
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            let pool = pool.build().unwrap();
            let value = pool.install(|| objective.value_and_gradient(&theta, &mut grad));
            grad.push(value);
            grad
        };
        let one = evaluate(Vectors::default(), 1, false);
        assert_eq!(one, evaluate(Vectors::default(), 3, false));
        let worst = |other: Vec<f64>| {
            let gaps = one.iter().zip(other).map(|(a, b)| (a - b).abs());
            gaps.fold(0.0, f64::max)
        };
        for vectors in Vectors::available() {
            assert!(worst(evaluate(vectors, 2, false)) < 1e-12);
        }
        let rough = worst(evaluate(Vectors::default(), 2, true));
        assert!(rough > 0.0 && rough < 1e-5, "{rough}");
    }
}

#[test]
fn equal_rows_are_one_with_the_sum_of_their_weights() {
    let codes = [0u8, 1, 1, 0, 0, 1, 1, 1];
    let sequences = Sequences::new(&codes, 2, 2, &[1.0, 2.0, 3.0, 0.0]).unwrap();
    assert_eq!(sequences.n_distinct(), 2);
    assert_eq!(sequences.codes(), &[0, 1, 1, 0]);
    assert_eq!(sequences.weights(), &[4.0 / 6.0, 2.0 / 6.0]);
    assert_eq!(
        sequences.frequencies(),
        [4.0 / 6.0, 2.0 / 6.0, 2.0 / 6.0, 4.0 / 6.0]
    );
}
