//! States of contrastive divergence that were changed and sealed again, and states of another run:
//! refused where their shape is wrong, trusted where their numbers are, and never a panic.

use mpf_baselines::{ContrastiveDivergence, ContrastiveOptions, Error};
use mpf_core::{Checkpoint, TracePoint};
use mpf_ising::{Couplings, Exact, Fit, Samples, States};
use mpf_testkit::{StopAfter, in_memory};
use ndarray::array;
use serde::{Deserialize, Serialize};

// The stored state, field by field. The test that stores it without a change fails when these fall
// out of step.

#[derive(Clone, Serialize, Deserialize)]
struct Stored {
    couplings: StoredCouplings,
    /// The sum of the couplings to average, and their number.
    sum: (Vec<f64>, usize),
    trace: Vec<TracePoint>,
    origins: Vec<u32>,
    next: usize,
    epoch: u64,
    persistent: Option<(Rows, Vec<f64>)>,
}

#[derive(Clone, Serialize, Deserialize)]
struct StoredCouplings {
    convention: String,
    n_units: usize,
    couplings: Vec<Vec<f64>>,
    potential: Vec<f64>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Rows {
    n_units: usize,
    bits: Vec<u64>,
}

fn draws(n: usize) -> States {
    let truth = array![[0.5, -1.0, 0.3], [-1.0, 0.2, 0.0], [0.3, 0.0, -0.4]];
    let exact = Exact::new(&Couplings::new(truth).unwrap()).unwrap();
    exact.draw(n, 1)
}

fn samples() -> Samples {
    Samples::new(&draws(23)).unwrap()
}

/// Weights that are not counts, so that chains carry them.
fn weighted() -> Samples {
    let weights: Vec<f64> = (0..23).map(|m| 0.5 + f64::from(m)).collect();
    Samples::weighted(&draws(23), &weights).unwrap()
}

fn learn(
    options: &ContrastiveOptions,
    samples: &Samples,
    checkpoint: Checkpoint,
) -> Result<Fit, Error> {
    let options = ContrastiveOptions {
        checkpoint,
        ..options.clone()
    };
    ContrastiveDivergence::new(options)?.fit(samples)
}

/// The state after four updates of eight.
fn halfway(options: &ContrastiveOptions, samples: &Samples) -> Stored {
    let file = StopAfter::new(4);
    let options = ContrastiveOptions {
        cancel: file.cancel().clone(),
        ..options.clone()
    };
    let checkpoint = file.checkpoint();
    let fit = learn(&options, samples, checkpoint.clone()).unwrap();
    assert_eq!(fit.iterations, 4);
    checkpoint.resume().unwrap().expect("a state was kept")
}

/// Resumes from a changed state. Returns whether it was accepted.
fn resumed(
    options: &ContrastiveOptions,
    samples: &Samples,
    change: impl Fn(&mut Stored),
) -> Result<Fit, Error> {
    let mut stored = halfway(options, samples);
    change(&mut stored);
    let found = learn(options, samples, in_memory(stored));
    if let Err(error) = &found {
        // Numbers that were changed may run away as any others may.
        let expected = matches!(
            error,
            Error::Core(mpf_core::Error::Checkpoint { .. }) | Error::Diverged { .. }
        );
        assert!(expected, "{error}");
    }
    found
}

fn kinds() -> Vec<ContrastiveOptions> {
    let plain = ContrastiveOptions {
        updates: 8,
        ..Default::default()
    };
    let batch_size = Some(4);
    vec![
        plain.clone(),
        ContrastiveOptions {
            batch_size,
            ..plain.clone()
        },
        ContrastiveOptions {
            persistent: true,
            ..plain.clone()
        },
        ContrastiveOptions {
            batch_size,
            persistent: true,
            ..plain
        },
    ]
}

type Edit = fn(&mut Stored);

#[test]
fn states_of_the_wrong_shape_are_refused() {
    let edits: [Edit; 10] = [
        |s| s.next = usize::MAX,
        |s| s.sum = (vec![0.0; 4], 1),
        |s| s.sum.1 += 1,
        |s| {
            let rows = Rows {
                n_units: 3,
                bits: vec![1; 5],
            };
            s.persistent = Some((rows, vec![]));
        },
        |s| {
            let rows = Rows {
                n_units: 3,
                bits: vec![u64::MAX],
            };
            s.persistent = Some((rows, vec![]));
        },
        |s| s.couplings.couplings[0][1] = f64::NAN,
        |s| s.couplings.couplings[0][1] += 1.0,
        |s| drop(s.couplings.couplings.pop()),
        |s| {
            s.couplings.n_units = 1;
            s.couplings.couplings = vec![vec![0.0]];
        },
        |s| s.couplings.convention.clear(),
    ];
    for samples in [samples(), weighted()] {
        for options in kinds() {
            let whole = learn(&options, &samples, Checkpoint::default()).unwrap();
            let unchanged = resumed(&options, &samples, |_| {}).unwrap();
            assert_eq!(unchanged.couplings, whole.couplings);
            for (number, edit) in edits.iter().enumerate() {
                let found = resumed(&options, &samples, edit);
                assert!(found.is_err(), "edit {number} of {options:?}");
            }
            // Orders of chains matter to batches alone.
            for edit in [
                |s: &mut Stored| s.origins.push(0),
                |s: &mut Stored| s.origins.iter_mut().for_each(|m| *m = u32::MAX),
            ] {
                let found = resumed(&options, &samples, edit);
                assert_eq!(found.is_err(), options.batch_size.is_some());
            }
            let other = resumed(&options, &samples, |s| {
                s.persistent = match &s.persistent {
                    Some((rows, weights)) => Some((rows.clone(), vec![1.0; weights.len() + 1])),
                    None => Some((
                        Rows {
                            n_units: 3,
                            bits: vec![],
                        },
                        vec![],
                    )),
                };
            });
            assert!(other.is_err());
        }
    }
    for forged in [in_memory("not a state"), in_memory((1u8, vec![f64::NAN]))] {
        let found = learn(&kinds()[0], &samples(), forged);
        assert!(matches!(
            found,
            Err(Error::Core(mpf_core::Error::Checkpoint { .. }))
        ));
    }
}

#[test]
fn forged_numbers_cause_no_panic() {
    let edits: [Edit; 14] = [
        |s| s.trace[1].value = f64::NAN,
        |s| s.trace[3].gradient_norm = f64::INFINITY,
        |s| s.trace[3].seconds = f64::NAN,
        |s| s.trace[3].seconds = f64::MAX,
        |s| s.trace[3].seconds = -1.0,
        |s| s.trace[2].iteration = usize::MAX,
        |s| s.trace.clear(),
        |s| s.trace = vec![s.trace[0]; 100],
        |s| s.next = 0,
        |s| s.next = 3,
        |s| s.epoch = u64::MAX,
        |s| {
            s.couplings.couplings[0][1] = 1e300;
            s.couplings.couplings[1][0] = 1e300;
        },
        // The weights of chains, where they have any.
        |s| {
            if let Some((_, weights)) = &mut s.persistent {
                weights.iter_mut().for_each(|w| *w = f64::NAN);
            }
        },
        |s| {
            if let Some((_, weights)) = &mut s.persistent {
                weights.iter_mut().for_each(|w| *w = 0.0);
            }
        },
    ];
    for samples in [samples(), weighted()] {
        for options in kinds() {
            for edit in edits {
                if let Ok(fit) = resumed(&options, &samples, edit) {
                    let numbers = fit.couplings.as_array();
                    assert!(numbers.iter().all(|v| v.is_finite()), "{numbers}");
                }
            }
        }
    }
}

/// Every kind's state for every other kind, and for other data.
#[test]
fn states_of_other_runs_are_refused_where_their_shape_tells() {
    let kinds = kinds();
    let small = Samples::from_binary(array![[0, 1], [1, 1], [0, 0]].view()).unwrap();
    let is_checkpoint = |error: &Error| {
        let expected = matches!(error, Error::Core(mpf_core::Error::Checkpoint { .. }));
        assert!(expected, "{error}");
    };
    for options in &kinds {
        let stored = halfway(options, &samples());
        for other in &kinds {
            // Full batches have no order to go on with; chains are kept or not, of one number.
            let alike = options.persistent == other.persistent
                && (other.batch_size.is_none() || options.batch_size.is_some())
                && (!other.persistent || options.batch_size == other.batch_size);
            match learn(other, &samples(), in_memory(stored.clone())) {
                Ok(_) => assert!(alike, "{options:?} as {other:?}"),
                Err(error) => {
                    is_checkpoint(&error);
                    assert!(!alike, "{options:?} as {other:?}");
                }
            }
        }
        is_checkpoint(&learn(options, &small, in_memory(stored)).unwrap_err());
    }
}
