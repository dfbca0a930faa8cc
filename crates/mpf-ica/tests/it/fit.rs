//! The trainers: their results and reports, threads, checkpoints and bad input.

use crate::common::{mixed_sources, normal};
use mpf_core::{Cancel, Checkpoint, StopReason};
use mpf_ica::{
    Alternating, DeadLeaves, Error, Filters, Fit, FitOptions, Fitter, Metropolis, NeighbourRule,
    NoiseNeighbours, Rescue, Stochastic, TracePoint, Trainer, Trajectory, amari_index,
    draw_patches, match_filters, prepare_patches,
};
use mpf_testkit::{StopAfter, in_memory, seed};
use ndarray::{Array2, array, s};
use std::time::Duration;

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
    for d in [2, 6] {
        let (data, mixing) = mixed_sources(d, 5000, seed());
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
            // The maximum is the likeliest, up to its own tolerance.
            assert!((-1e-4..=0.01).contains(&gap), "d = {d}: {gap}");
            let index = amari_index(&found.filters, mixing.view()).unwrap();
            // 0.003 at 100,000 samples; errors go as 1/√M.
            assert!(
                index <= best_index + 0.0135,
                "d = {d}: {index} {best_index}"
            );
            assert!(!found.lost_a_direction());
            let pairs = match_filters(&found.filters, &best.filters).unwrap();
            assert!(pairs.iter().all(|p| p.similarity > 0.99));
        }
    }
}

/// Small patches of dead leaves, `side` pixels wide: real enough to lose directions.
fn patches(side: usize, n: usize) -> Array2<f64> {
    let leaves = DeadLeaves {
        n_images: 4,
        size: 96,
        ..Default::default()
    };
    let images = leaves.draw(seed()).unwrap();
    let patches = draw_patches(&images, side, n, seed()).unwrap();
    prepare_patches(patches.view(), false).unwrap().0
}

#[test]
fn image_patches_are_fitted_as_well_as_by_maximum_likelihood() {
    let data = patches(5, 10_000);
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
        assert!(found.smallest_singular_value >= Fit::LOST_RATIO * found.median_singular_value);
        assert!(found.trace[0].log_likelihood < found.log_likelihood - 5.0);
        let acceptance = found.acceptance.unwrap();
        assert!((0.3..1.0).contains(&acceptance), "{acceptance}");
    }
}

#[test]
fn a_last_phase_that_spoils_the_filters_is_undone() {
    let data = patches(5, 5000);
    let with_rate = |rate: f64| {
        let metropolis = Metropolis {
            steps: 60,
            rate,
            ..Default::default()
        };
        let trainer = Stochastic {
            metropolis: Some(metropolis),
            // Rates do not fall: the phase ends where its rate has led it.
            last_rate: rate.min(0.2),
            averaged_steps: 1,
            ..short()
        };
        fit(Trainer::Stochastic(trainer), &data, seed())
    };
    let spoiled = with_rate(20.0);
    let phase = spoiled.last_phase.expect("it was judged");
    assert!(phase.log_likelihood_after < phase.log_likelihood_before - 1.0);
    assert!(!phase.kept && phase.flow_after > phase.flow_before + 4.0 * phase.standard_error);
    assert_eq!(spoiled.log_likelihood, phase.log_likelihood_before);
    assert_eq!(phase.held_out, 500);

    // A learning phase that ends too early leaves the last one something to gain.
    let early = Stochastic {
        falling_steps: 0,
        steady_steps: 20,
        ..short()
    };
    let found = fit(Trainer::Stochastic(early), &data, seed());
    let phase = found.last_phase.expect("it was judged");
    assert!(phase.kept && phase.log_likelihood_after > phase.log_likelihood_before + 1.0);
    assert_eq!(found.log_likelihood, phase.log_likelihood_after);
}

#[test]
fn a_lost_direction_is_noticed_and_given_back() {
    // Two filters are nearly the same, and none is left for the fourth source.
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
                // So slow at first that the check after half of the steady steps still finds it.
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
    // Without steady steps nothing is checked: it stays lost, and the fit says so.
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
    let hamiltonian = gap(NeighbourRule::Hamiltonian(Trajectory::default()));
    let gaussian = |per_sample| {
        let noise = NoiseNeighbours::Gaussian { scale: 1.0 };
        gap(NeighbourRule::Noise { noise, per_sample })
    };
    let cube = gap(NeighbourRule::Noise {
        noise: NoiseNeighbours::Cube { side: 0.5 },
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
    let data = patches(4, 2000);
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

/// Fits with a checkpoint and returns the steps that the observer saw, too.
fn checkpointed(
    trainer: &Trainer,
    data: &Array2<f64>,
    cancel: &Cancel,
    checkpoint: Checkpoint,
) -> (Fit, Vec<usize>) {
    let options = FitOptions {
        trainer: trainer.clone(),
        report_every: 4,
        seed: 3,
        cancel: cancel.clone(),
        checkpoint,
        ..Default::default()
    };
    let mut steps = Vec::new();
    let fit = Fitter::new(options)
        .unwrap()
        .fit_observed(data.view(), |p| steps.push(p.step))
        .unwrap();
    (fit, steps)
}

#[test]
fn a_resumed_fit_ends_with_the_same_bits() {
    let data = patches(4, 2000);
    let never = Cancel::new();
    for trainer in all_trainers() {
        let (whole, all_steps) = checkpointed(&trainer, &data, &never, Checkpoint::default());
        let mut stops = 0;
        loop {
            let file = StopAfter::new(stops + 1);
            let (stopped, _) = checkpointed(&trainer, &data, file.cancel(), file.checkpoint());
            let (_, checkpoint) = file.resumed();
            let (found, steps) = checkpointed(&trainer, &data, &never, checkpoint);
            assert_eq!(bits(&found), bits(&whole), "{trainer:?}, stop {stops}");
            assert!(all_steps.ends_with(&steps) && steps.len() < all_steps.len());
            // The history is kept with its times; a stopped fit of MPF reports its result too.
            let before = stopped.trace.len() - 1;
            assert_eq!(found.trace[..before], stopped.trace[..before]);
            let last = found.trace[..before].last();
            assert!(last.is_none_or(|point| found.seconds >= point.seconds));
            if stopped.stop != StopReason::Cancelled {
                break;
            }
            stops += 1;
        }
        assert!(stops >= 2, "{stops} stops of {trainer:?}");
    }
}

#[test]
fn a_fit_that_is_cancelled_at_any_moment_can_be_resumed() {
    // Also within a round of the alternating trainer, which is then repeated.
    let data = patches(4, 2000);
    let never = Cancel::new();
    for trainer in all_trainers() {
        let (whole, _) = checkpointed(&trainer, &data, &never, Checkpoint::default());
        for part in [0.1, 0.5, 0.8] {
            let file = StopAfter::new(usize::MAX);
            let checkpoint = file.checkpoint();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_secs_f64(part * whole.seconds));
                    file.cancel().cancel();
                });
                let _ = checkpointed(&trainer, &data, file.cancel(), checkpoint.clone());
            });
            checkpoint.write().unwrap();
            let (_, checkpoint) = file.resumed();
            let (found, _) = checkpointed(&trainer, &data, &never, checkpoint);
            assert_eq!(bits(&found), bits(&whole), "{trainer:?} after {part}");
        }
    }
}

/// The state of the stochastic trainer, as it is written.
type Written = (
    f64,
    Vec<TracePoint>,
    Vec<Rescue>,
    (
        Vec<f64>,
        Vec<f64>,
        (usize, Vec<f64>),
        Option<Vec<f64>>,
        (Vec<u32>, usize, [u64; 4]),
        usize,
        Option<f64>,
        u64,
        usize,
    ),
);

#[test]
fn states_of_other_fits_are_errors_and_forged_ones_never_panic() {
    let data = patches(4, 200);
    let trainers = all_trainers();
    let states: Vec<Checkpoint> = trainers
        .iter()
        .map(|trainer| {
            let file = StopAfter::new(2);
            let _ = checkpointed(trainer, &data, file.cancel(), file.checkpoint());
            file.resumed().1
        })
        .collect();
    let resume = |trainer: &Trainer, data: ndarray::ArrayView2<'_, f64>, checkpoint| {
        let options = FitOptions {
            trainer: trainer.clone(),
            seed: 3,
            checkpoint,
            ..Default::default()
        };
        Fitter::new(options).unwrap().fit(data)
    };
    let refused = |found: mpf_ica::Result<Fit>| {
        let is_checkpoint = |e: &mpf_core::Error| matches!(e, mpf_core::Error::Checkpoint { .. });
        matches!(found, Err(Error::Core(ref e)) if is_checkpoint(e))
    };
    let fewer_dims = data.slice(s![.., ..7]);
    for (i, trainer) in trainers.iter().enumerate() {
        for (k, state) in states.iter().enumerate() {
            let found = resume(trainer, data.view(), state.clone());
            assert_eq!(refused(found), i != k, "{trainer:?} from state {k}");
        }
        assert!(refused(resume(trainer, fewer_dims, states[i].clone())));
        assert!(refused(resume(trainer, data.view(), in_memory(7u8))));
    }
    let fewer = data.slice(s![..150, ..]);
    assert!(refused(resume(&trainers[0], fewer, states[0].clone())));

    let forgeries: [fn(&mut Written); 13] = [
        |s| s.0 = f64::NAN,
        |s| s.3.0.truncate(16),
        |s| s.3.1.truncate(16),
        |s| s.3.2.0 = usize::MAX,
        |s| s.3.2.1.clear(),
        // Filters from before a last phase that has not begun, or none where it has.
        |s| s.3.3 = s.3.3.is_none().then(|| s.3.0.clone()),
        |s| s.3.4.0[3] = u32::MAX,
        |s| s.3.4.0.truncate(10),
        |s| s.3.4.1 = usize::MAX,
        |s| s.3.4.2 = [0; 4],
        |s| s.3.5 = usize::MAX,
        |s| s.3.6 = Some(f64::NAN),
        |s| s.3.8 = usize::MAX,
    ];
    for (k, forge) in forgeries.iter().enumerate() {
        let mut state: Written = states[0].resume().unwrap().expect("it was stopped");
        forge(&mut state);
        let found = resume(&trainers[0], data.view(), in_memory(state));
        let harmless = [0, 9, 11].contains(&k);
        assert_eq!(refused(found), !harmless, "forgery {k}");
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
        fit(
            with(|s| {
                s.rate = 1e200;
                s.metropolis = None;
            }),
            &good,
        ),
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
                    rule: NeighbourRule::Noise {
                        noise: NoiseNeighbours::Gaussian { scale: -1.0 },
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
