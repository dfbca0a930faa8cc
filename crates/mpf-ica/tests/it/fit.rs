//! The trainers: what they find, what they say, and that threads change nothing.

use crate::common::{mixed_sources, normal, seed};
use mpf_core::{Cancel, StopReason, checkpoint};
use mpf_ica::compare::{amari_index, match_filters};
use mpf_ica::dead_leaves::DeadLeaves;
use mpf_ica::fit::{LOST, Rule};
use mpf_ica::patches::{draw_patches, prepare};
use mpf_ica::{
    Alternating, Error, Filters, Fit, FitOptions, Fitter, Metropolis, Snapshot, Stochastic,
    Trainer, Trajectory,
};
use ndarray::{Array2, array};

fn fit(trainer: Trainer, data: &Array2<f64>, seed: u64) -> Fit {
    let options = FitOptions {
        trainer,
        seed,
        ..Default::default()
    };
    Fitter::new(options).unwrap().fit(data.view()).unwrap()
}

/// A shorter schedule for small problems.
fn short() -> Stochastic {
    Stochastic {
        batch: 1000,
        steady_steps: 200,
        falling_steps: 300,
        metropolis: Some(Metropolis {
            steps: 150,
            ..Default::default()
        }),
        ..Default::default()
    }
}

#[test]
fn synthetic_sources_are_found() {
    for d in [2, 4, 8] {
        let (data, mixing) = mixed_sources(d, 10_000, seed());
        let best = fit(Trainer::maximum_likelihood(), &data, seed());
        let best_index = amari_index(&best.filters, mixing.view()).unwrap();
        // At the maximum ⟨|J_k x|⟩ = 1 for every filter.
        let sizes = data.dot(&best.filters.as_array().t()).mapv(f64::abs);
        let sizes = sizes.mean_axis(ndarray::Axis(0)).unwrap();
        assert!(sizes.iter().all(|s| (s - 1.0).abs() < 1e-3), "{sizes}");
        let alternating = Alternating {
            rounds: 40,
            ..Default::default()
        };
        for trainer in [
            Trainer::Stochastic(short()),
            Trainer::Alternating(alternating),
        ] {
            let found = fit(trainer, &data, seed());
            let gap = best.log_likelihood - found.log_likelihood;
            // Nothing is likelier than the maximum, up to its own tolerance.
            assert!((-1e-4..=0.005).contains(&gap), "d = {d}: {gap}");
            let index = amari_index(&found.filters, mixing.view()).unwrap();
            // 0.003 at 100,000 samples; errors go as 1/√M.
            assert!(index <= best_index + 0.01, "d = {d}: {index} {best_index}");
            assert!(!found.lost_a_direction());
            let pairs = match_filters(&found.filters, &best.filters).unwrap();
            assert!(pairs.iter().all(|p| p.similarity > 0.99));
        }
    }
}

/// Small patches of dead leaves: real enough to lose directions.
fn patches(n: usize) -> Array2<f64> {
    let leaves = DeadLeaves {
        n_images: 4,
        size: 96,
        ..Default::default()
    };
    let images = leaves.draw(seed()).unwrap();
    let patches = draw_patches(&images, 5, n, seed()).unwrap();
    prepare(patches.view(), false).unwrap().0
}

#[test]
fn image_patches_are_fitted_as_well_as_by_maximum_likelihood() {
    let data = patches(10_000);
    let best = fit(Trainer::maximum_likelihood(), &data, seed());
    let with = fit(Trainer::Stochastic(short()), &data, seed());
    let without = Stochastic {
        metropolis: None,
        ..short()
    };
    let without = fit(Trainer::Stochastic(without), &data, seed());
    let gap = |f: &Fit| best.log_likelihood - f.log_likelihood;
    // The accept list's ≤ 0.5 and ≤ 0.9 nats of 100 dimensions, for 25.
    assert!(gap(&with) < 0.15, "{}", gap(&with));
    assert!(gap(&without) < 0.25, "{}", gap(&without));
    for found in [&with, &without] {
        assert!(found.smallest_singular_value >= LOST * found.median_singular_value);
        assert!(found.trace[0].log_likelihood < found.log_likelihood - 5.0);
        let acceptance = found.acceptance.unwrap();
        assert!((0.3..1.0).contains(&acceptance), "{acceptance}");
    }
}

#[test]
fn a_lost_direction_is_noticed_and_given_back() {
    // Two filters that are nearly the same, and nobody for the fourth source.
    let (data, _) = mixed_sources(4, 10_000, seed());
    let mut start = fit(Trainer::maximum_likelihood(), &data, seed())
        .filters
        .as_array()
        .to_owned();
    let copy = &start.row(0) * 1.0001;
    start.row_mut(1).assign(&copy);
    let run = |steady_steps| {
        let options = FitOptions {
            trainer: Trainer::Stochastic(Stochastic {
                steady_steps,
                falling_steps: 300,
                // So slow at first that the look after half of the steady steps finds it so.
                rate: 0.01,
                metropolis: None,
                ..short()
            }),
            start: Some(Filters::new(start.clone()).unwrap()),
            ..Default::default()
        };
        Fitter::new(options).unwrap().fit(data.view()).unwrap()
    };
    let found = run(2);
    assert_eq!(found.rescued.len(), 1, "{:?}", found.rescued);
    let rescue = found.rescued[0];
    assert_eq!(rescue.step, 1);
    assert!(rescue.filter <= 1, "one of the two copies");
    assert!(rescue.smallest_singular_value < 0.01 * rescue.median_singular_value);
    assert!(!found.lost_a_direction());
    // Without looks it stays lost, and the fit says so.
    let lost = run(0);
    assert!(lost.rescued.is_empty() && lost.lost_a_direction());
    assert!(lost.log_likelihood < found.log_likelihood - 1.0);
}

#[test]
fn isotropic_neighbours_are_worse_than_hamiltonian_ones() {
    // Appendix H: isotropic Gaussian neighbours need to be many.
    let (data, _) = mixed_sources(6, 2000, seed());
    let best = fit(Trainer::maximum_likelihood(), &data, seed());
    let gap = |rule| {
        let trainer = Alternating {
            rounds: 15,
            averaged_rounds: 1,
            rule,
            ..Default::default()
        };
        best.log_likelihood - fit(Trainer::Alternating(trainer), &data, seed()).log_likelihood
    };
    let hamiltonian = gap(Rule::Hamiltonian(Trajectory::default()));
    let gaussian = |per_sample| {
        gap(Rule::Gaussian {
            scale: 1.0,
            per_sample,
        })
    };
    let cube = gap(Rule::Cube {
        side: 0.5,
        per_sample: 1,
    });
    let (one, thirty) = (gaussian(1), gaussian(30));
    assert!(hamiltonian < 0.05, "{hamiltonian}");
    assert!(one > 3.0 * hamiltonian, "{one} {hamiltonian}");
    assert!(thirty < one, "{thirty} {one}");
    assert!(cube > hamiltonian, "{cube} {hamiltonian}");
}

/// All three trainers, with short schedules.
fn all_trainers() -> [Trainer; 3] {
    [
        Trainer::Stochastic(Stochastic {
            steady_steps: 20,
            falling_steps: 10,
            metropolis: Some(Metropolis {
                steps: 5,
                ..Default::default()
            }),
            ..short()
        }),
        Trainer::Alternating(Alternating {
            rounds: 3,
            ..Default::default()
        }),
        Trainer::MaximumLikelihood { max_iterations: 10 },
    ]
}

#[test]
fn threads_and_repeats_change_no_digit() {
    let data = patches(2000);
    for trainer in all_trainers() {
        let run = |threads: usize, seed| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            let pool = pool.build().unwrap();
            pool.install(|| fit(trainer.clone(), &data, seed).filters)
        };
        let one = run(1, 1);
        assert_eq!(one, run(1, 1));
        assert_eq!(one, run(2, 1));
        assert_eq!(one, run(7, 1));
        assert_ne!(one, run(1, 2));
    }
}

/// A fit with a snapshot after every few steps, as bytes.
fn with_snapshots(options: FitOptions, data: &Array2<f64>) -> (Fit, Vec<Vec<u8>>) {
    let options = FitOptions {
        report_every: 4,
        snapshots: true,
        seed: 3,
        ..options
    };
    let mut taken = Vec::new();
    let fit = Fitter::new(options)
        .unwrap()
        .fit_observed(data.view(), |p| {
            if let Some(snapshot) = p.snapshot {
                assert_eq!((snapshot.step(), snapshot.seconds()), (p.step, p.seconds));
                taken.push(checkpoint::seal(snapshot).unwrap());
            }
        })
        .unwrap();
    (fit, taken)
}

/// All of a fit but its times, with every bit.
fn bits(fit: &Fit) -> String {
    let trace: Vec<_> = fit
        .trace
        .iter()
        .map(|p| (p.step, p.log_likelihood))
        .collect();
    format!(
        "{:?} {:?} {} {} {:?} {:?} {:?} {:?}",
        fit.filters,
        trace,
        fit.stop,
        fit.steps,
        fit.acceptance,
        fit.clipped_fraction,
        fit.rescued,
        fit.smallest_singular_value,
    )
}

#[test]
fn a_resumed_fit_ends_with_the_same_bits() {
    let data = patches(2000);
    for trainer in all_trainers() {
        let options = FitOptions {
            trainer,
            ..Default::default()
        };
        let (whole, taken) = with_snapshots(options.clone(), &data);
        assert!(taken.len() >= 3);
        for (at, bytes) in taken.iter().enumerate() {
            let snapshot: Snapshot = checkpoint::open(bytes).unwrap();
            let before = snapshot.seconds();
            let resumed = FitOptions {
                resume: Some(snapshot),
                ..options.clone()
            };
            let (found, later) = with_snapshots(resumed, &data);
            assert_eq!(bits(&found), bits(&whole));
            assert!(found.seconds >= before);
            assert_eq!(later.len(), taken.len() - at - 1);
        }
        // Not of these data, and not of this trainer.
        let snapshot: Snapshot = checkpoint::open(&taken[0]).unwrap();
        let fewer = data.slice(ndarray::s![..1500, ..]);
        let other_trainer = match options.trainer {
            Trainer::Stochastic(_) => Trainer::alternating(),
            _ => Trainer::stochastic(),
        };
        let trainers = [(options.trainer, fewer), (other_trainer, data.view())];
        for (trainer, data) in trainers {
            let options = FitOptions {
                trainer,
                resume: Some(snapshot.clone()),
                ..Default::default()
            };
            let refused = Fitter::new(options).unwrap().fit(data);
            assert!(matches!(refused, Err(Error::OtherSnapshot { .. })));
        }
    }
}

#[test]
fn a_fit_can_be_watched_and_stopped() {
    let (data, _) = mixed_sources(3, 2000, seed());
    for trainer in [
        Trainer::Stochastic(short()),
        Trainer::alternating(),
        Trainer::maximum_likelihood(),
    ] {
        let cancel = Cancel::new();
        let options = FitOptions {
            trainer: trainer.clone(),
            cancel: cancel.clone(),
            report_every: 10,
            ..Default::default()
        };
        let mut seen = Vec::new();
        let found = Fitter::new(options)
            .unwrap()
            .fit_observed(data.view(), |progress| {
                seen.push((progress.step, progress.log_likelihood, progress.seconds));
                assert_eq!(progress.theta.len(), 9);
                if seen.len() == 4 {
                    cancel.cancel();
                }
            })
            .unwrap();
        assert_eq!(found.stop, StopReason::Cancelled);
        assert_eq!(seen[0].0, 0);
        assert!(seen.windows(2).all(|w| w[0].2 <= w[1].2));
        assert!(found.log_likelihood > seen[0].1, "what was learned is kept");
        assert_eq!(found.trace.len(), seen.len());

        let late = FitOptions {
            trainer,
            max_seconds: 0.0,
            ..Default::default()
        };
        let found = Fitter::new(late).unwrap().fit(data.view()).unwrap();
        assert_eq!(found.stop, StopReason::TimeLimit);
    }
}

#[test]
fn bad_data_and_options_are_errors() {
    let fit = |options: FitOptions, data: &Array2<f64>| {
        Fitter::new(options)
            .and_then(|f| f.fit(data.view()))
            .unwrap_err()
    };
    let default = FitOptions::default;
    let good = normal(50, 3, 1);
    let mut bad = good.clone();
    bad[[4, 1]] = f64::INFINITY;
    let singular = Filters::new(array![[1.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.0, 1.0, 1.0]]).unwrap();
    let with = |change: fn(&mut Stochastic)| {
        let mut stochastic = Stochastic::default();
        change(&mut stochastic);
        FitOptions {
            trainer: Trainer::Stochastic(stochastic),
            ..default()
        }
    };
    let likelihood = FitOptions {
        trainer: Trainer::maximum_likelihood(),
        start: Some(singular.clone()),
        ..default()
    };
    let errors: Vec<Error> = vec![
        fit(default(), &normal(3, 3, 1)),
        fit(default(), &bad),
        fit(default(), &(good.clone() * 40.0)),
        fit(with(|s| s.rate = 1e200), &good),
        fit(likelihood, &good),
        fit(
            FitOptions {
                start: Some(singular),
                ..default()
            },
            &normal(50, 2, 1),
        ),
        fit(with(|s| s.batch = 0), &good),
        fit(with(|s| s.momentum = 1.0), &good),
        fit(with(|s| s.trajectory.step_size = f64::NAN), &good),
        fit(with(|s| s.trajectory.longest = 0.1), &good),
        fit(
            FitOptions {
                trainer: Trainer::Alternating(Alternating {
                    rule: Rule::Gaussian {
                        scale: -1.0,
                        per_sample: 1,
                    },
                    ..Default::default()
                }),
                ..default()
            },
            &good,
        ),
        Filters::new(Array2::zeros((2, 3))).unwrap_err(),
        Filters::new(array![[1.0, f64::NAN], [0.0, 1.0]]).unwrap_err(),
    ];
    let text: Vec<String> = errors.iter().map(Error::to_string).collect();
    insta::assert_snapshot!(text.join("\n"));
}
