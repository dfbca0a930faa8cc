//! Snapshots of contrastive divergence that were stored, changed and given a new checksum, and
//! snapshots of another run: refused, and never a panic.

use mpf_baselines::{
    ContrastiveDivergence, ContrastiveOptions, ContrastiveSnapshot, Error, Method, MethodSnapshot,
};
use mpf_core::checkpoint::{open, seal};
use mpf_core::rng::stream;
use mpf_ising::{Biases, Couplings, Exact, Fit, Samples, States, Support};
use ndarray::array;
use serde::{Deserialize, Serialize};

// What is stored, field by field. Reading back what was written without a change fails when these
// fall out of step.

#[derive(Clone, Serialize, Deserialize)]
struct Stored {
    couplings: StoredCouplings,
    trace: Vec<Point>,
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
}

#[derive(Clone, Serialize, Deserialize)]
struct Point {
    iteration: usize,
    evaluations: usize,
    value: f64,
    gradient_norm: f64,
    seconds: f64,
}

#[derive(Clone, Serialize, Deserialize)]
struct Rows {
    n_units: usize,
    bits: Vec<u64>,
}

fn draws(n: usize) -> States {
    let truth = array![[0.5, -1.0, 0.3], [-1.0, 0.2, 0.0], [0.3, 0.0, -0.4]];
    let exact = Exact::new(&Couplings::new(truth).unwrap()).unwrap();
    exact.draw(n, &mut stream(1, 0))
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
    options: ContrastiveOptions,
    samples: &Samples,
) -> Result<(Fit, ContrastiveSnapshot), Error> {
    ContrastiveDivergence::new(options)?.fit_with_snapshots(samples, |_, _| {})
}

/// Four updates, stored, changed, read again, and gone on from to the eighth.
fn resumed(
    options: &ContrastiveOptions,
    samples: &Samples,
    change: &dyn Fn(&mut Stored),
) -> Result<Fit, String> {
    let mut halfway = None;
    let learner = ContrastiveDivergence::new(options.clone()).unwrap();
    let all = learner.fit_with_snapshots(samples, |progress, snapshot| {
        if progress.iteration == 4 {
            halfway = Some(snapshot());
        }
    });
    let (whole, _) = all.unwrap();
    let mut stored: Stored = open(&seal(&halfway.unwrap()).unwrap()).unwrap();
    change(&mut stored);
    let snapshot = open(&seal(&stored).unwrap()).map_err(|e| e.to_string())?;
    let options = ContrastiveOptions {
        resume: Some(snapshot),
        ..options.clone()
    };
    match learn(options, samples) {
        Ok((fit, _)) => {
            assert_eq!(fit.couplings, whole.couplings);
            Ok(fit)
        }
        Err(error @ Error::OtherSnapshot { .. }) => Err(error.to_string()),
        Err(other) => panic!("{other}"),
    }
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
            ..plain.clone()
        },
        ContrastiveOptions {
            biases: Biases::Fixed(vec![0.1, 0.2, 0.3]),
            ..plain.clone()
        },
        ContrastiveOptions {
            biases: Biases::FixedFields(vec![0.1, 0.2, 0.3]),
            ..plain
        },
    ]
}

#[test]
fn snapshots_that_were_changed_are_refused() {
    type Edit = fn(&mut Stored);
    let edits: [(&str, Edit); 20] = [
        ("course", |s| s.trace[1].value = f64::NAN),
        ("course", |s| s.trace[3].gradient_norm = f64::INFINITY),
        ("course", |s| s.trace[3].seconds = f64::NAN),
        ("course", |s| s.trace[0].seconds = 1e300),
        ("course", |s| s.trace[2].iteration = usize::MAX),
        ("course", |s| s.trace[2].evaluations = 0),
        ("samples", |s| s.origins.push(u32::MAX)),
        ("", |s| s.next = usize::MAX),
        ("", |s| s.next = 3),
        ("", |s| s.next = 0),
        ("", |s| s.epoch = u64::MAX),
        ("", |s| s.trace.truncate(2)),
        ("chains", |s| {
            s.persistent = Some((
                Rows {
                    n_units: 3,
                    bits: vec![1; 5],
                },
                vec![],
            ));
        }),
        ("", |s| {
            let rows = Rows {
                n_units: 3,
                bits: vec![u64::MAX],
            };
            s.persistent = Some((rows, vec![]));
        }),
        ("", |s| s.couplings.couplings[0][1] = f64::NAN),
        ("", |s| s.couplings.couplings[0][1] += 1.0),
        ("ran away", |s| {
            s.couplings.couplings[0][1] = 1e4;
            s.couplings.couplings[1][0] = 1e4;
        }),
        ("", |s| drop(s.couplings.couplings.pop())),
        ("units", |s| {
            s.couplings.n_units = 1;
            s.couplings.couplings = vec![vec![0.0]];
        }),
        ("", |s| s.couplings.convention.clear()),
    ];
    for samples in [samples(), weighted()] {
        for options in kinds() {
            assert!(resumed(&options, &samples, &|_| {}).is_ok());
            for (number, (words, edit)) in edits.iter().enumerate() {
                let full = options.batch_size.is_none();
                // Fewer points of a full batch are an earlier snapshot with later couplings,
                // which nothing tells.
                if number == 11 && full {
                    continue;
                }
                let message = resumed(&options, &samples, edit)
                    .map(|_| ())
                    .expect_err(&format!("edit {number} of {options:?}"));
                let other = number == 6 && full && message.contains("mini-batches");
                assert!(other || message.contains(words), "{number}: {message}");
            }
        }
    }
}

#[test]
fn weights_of_chains_cannot_be_changed() {
    let options = ContrastiveOptions {
        persistent: true,
        updates: 8,
        ..Default::default()
    };
    for value in [f64::NAN, f64::INFINITY, -1.0, 2.0] {
        let message = resumed(&options, &weighted(), &move |s| {
            s.persistent.as_mut().unwrap().1[0] = value;
        });
        assert!(message.unwrap_err().contains("other chains"));
    }
}

#[test]
fn biases_that_are_fixed_cannot_be_changed() {
    for biases in [
        Biases::Fixed(vec![0.1, 0.2, 0.3]),
        Biases::FixedFields(vec![0.1, 0.2, 0.3]),
    ] {
        let options = ContrastiveOptions {
            biases,
            updates: 8,
            ..Default::default()
        };
        let message = resumed(&options, &samples(), &|s| {
            s.couplings.couplings[1][1] += 1e-3;
        });
        assert!(message.unwrap_err().contains("other biases"));
    }
    // Nor couplings that are not there.
    let options = ContrastiveOptions {
        support: Support::Edges(vec![(0, 1)]),
        updates: 8,
        ..Default::default()
    };
    let message = resumed(&options, &samples(), &|s| {
        s.couplings.couplings[0][2] = 0.1;
        s.couplings.couplings[2][0] = 0.1;
    });
    assert!(message.unwrap_err().contains("another support"));
}

/// Every kind's snapshot for every other kind, and for other data.
#[test]
fn snapshots_of_other_runs_are_refused() {
    let kinds = kinds();
    let small = Samples::new(&States::from_binary(array![[0, 1], [1, 1], [0, 0]].view()).unwrap());
    let small = small.unwrap();
    for (a, options) in kinds.iter().enumerate() {
        let (_, snapshot) = learn(options.clone(), &samples()).unwrap();
        for (b, other) in kinds.iter().enumerate() {
            let options = ContrastiveOptions {
                resume: Some(snapshot.clone()),
                updates: 9,
                ..other.clone()
            };
            let gone_on = learn(options, &samples());
            // Whether biases were free cannot be seen from what they became.
            let alike = a == b || b == 0 && a >= 4;
            match gone_on {
                Ok(_) => assert!(alike, "{a} as {b}"),
                Err(error) => assert!(!alike && matches!(error, Error::OtherSnapshot { .. })),
            }
        }
        let options = ContrastiveOptions {
            resume: Some(snapshot.clone()),
            biases: Biases::Free,
            ..options.clone()
        };
        let error = learn(options, &small).unwrap_err();
        assert!(matches!(error, Error::OtherSnapshot { .. }), "{error}");
        let method = Method::Mpf(Default::default());
        let error = method.resumed(Some(MethodSnapshot::Contrastive(snapshot)));
        assert!(matches!(error, Err(Error::OtherSnapshot { .. })));
    }
}
