//! A whole fit: each of its steps is what the library does alone, and a run that was stopped in any
//! of them resumes to the same bits.

use mpf_baselines::{
    Description, Error, ErrorBarsBy, MaximumLikelihood, Measure, Method, MethodOptions, Methods,
    Observer, Polish, Pseudolikelihood, Recipe, RecipeProgress, Refine, Result, Takes, Trained,
    TrainingData, Verdict, independent,
};
use mpf_core::{Cancel, Checkpoint, MinimizerOptions, OneProcess, StopReason};
use mpf_ising::{
    BootstrapOptions, Couplings, Exact, Fit, FitOptions, Fitter, PathOptions, Samples, States,
    Stream, bootstrap,
};
use mpf_testkit::{StopAfter, random_couplings, seed};
use ndarray::Array2;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Data {
    states: States,
    samples: Samples,
}

impl Data {
    fn new(states: States) -> Self {
        let samples = Samples::new(&states).unwrap();
        Self { states, samples }
    }

    fn drawn() -> Self {
        let truth = random_couplings(5, 0.6, 9);
        Self::new(Exact::new(&truth).unwrap().draw(600, seed()))
    }

    fn run(&self, recipe: &Recipe) -> Result<Trained> {
        let data = TrainingData {
            samples: &self.samples,
            states: Some(&self.states),
        };
        recipe.run(data, &|_| {})
    }
}

fn find(name: &str) -> &'static dyn Method {
    Methods::default().find(name).unwrap()
}

#[test]
fn the_default_is_mpf_refined_with_a_ridge() {
    // Up to 16 units by exact maximum likelihood, beyond by pseudolikelihood.
    for (d, title) in [(5, "ML"), (17, "PL")] {
        let truth = random_couplings(d, 0.3, 9);
        let data = Data::new(Exact::new(&truth).unwrap().draw(600, seed()));
        let trained = data.run(&Recipe::default()).unwrap();
        let options = FitOptions {
            l2: 1.0 / 600.0,
            ..Default::default()
        };
        let alone = if d == 5 {
            let fitter = Fitter::new(MaximumLikelihood, options).unwrap();
            fitter.fit(&data.samples).unwrap()
        } else {
            let fitter = Fitter::new(Pseudolikelihood, options).unwrap();
            fitter.fit(&data.samples).unwrap()
        };
        // Both end where no slope is larger than 1e-6, in units whose curvature is near 1.
        let off = trained.fit.couplings.mean_square_error(&alone.couplings);
        assert!(off.sqrt() < 1e-4, "{off}");
        assert!((trained.fit.value - alone.value).abs() < 1e-9);
        let names: Vec<&str> = trained.stages.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["MPF", title]);
        assert_eq!((trained.method, trained.l2), (title, 1.0 / 600.0));
        assert!(trained.failures.is_empty() && trained.polishing.is_none());
    }
}

#[test]
fn the_held_out_score_is_that_of_a_fit_by_hand() {
    let data = Data::drawn();
    let trained = data.run(&Recipe::default()).unwrap();
    let found = trained.held_out.unwrap();
    assert_eq!((found.n_training, found.n_held_out), (480, 120));
    let training = data.states.slice(0..480);
    let held_out = Samples::new(&data.states.slice(480..600)).unwrap();
    let part = Samples::new(&training).unwrap();
    let options = MethodOptions {
        l2: Some(1.0 / 480.0),
        ..Default::default()
    };
    let bits = |couplings: &Couplings| {
        let exact = Exact::new(couplings).unwrap();
        -exact.log_likelihood(&held_out).unwrap() / 2f64.ln()
    };
    let fit = find("ml")
        .fit((&part).into(), &options, &mut |_| {})
        .unwrap();
    // The tolerance of a fit moves its likelihood by the square of 1e-6, and by 1e-6 times the
    // slope on other data.
    assert!((found.model.value - bits(&fit.couplings)).abs() < 1e-5);
    let null = independent(&part).unwrap();
    assert!((found.independent.value - bits(&null.couplings)).abs() < 1e-12);
    let gain = found.independent.value - found.model.value;
    assert!((found.gain.value - gain).abs() < 1e-12 && gain > 0.0);
    assert!(matches!(found.measure, Measure::LogLikelihood { .. }));
    // The gain is paired: what is hard for both cancels.
    assert!(found.gain.standard_error < found.model.standard_error);
    // Too few samples, or a fraction of 0: no check.
    let few = Data::new(data.states.slice(0..50));
    assert!(few.run(&Recipe::default()).unwrap().held_out.is_none());
    let unasked = Recipe {
        held_out: 0.0,
        ..Default::default()
    };
    assert!(data.run(&unasked).unwrap().held_out.is_none());
}

#[test]
fn its_steps_are_those_of_the_library() {
    let data = Data::drawn();
    let fitter: Fitter = Fitter::default();
    let plain = fitter.fit(&data.samples).unwrap();
    let unpenalised = MethodOptions {
        l2: Some(0.0),
        ..Default::default()
    };
    let alone = Recipe::alone(find("mpf"), unpenalised);
    let trained = data.run(&alone).unwrap();
    assert_eq!(trained.fit.couplings, plain.couplings);
    assert!(!trained.drift.unwrap().has_drifted() && trained.polishing.is_none());
    assert!(trained.path.is_none() && trained.errors.is_none());

    let by_sandwich = Recipe {
        errors: ErrorBarsBy::Sandwich,
        block_length: Some(3),
        ..alone.clone()
    };
    let found = data.run(&by_sandwich).unwrap().errors.unwrap();
    let expected = fitter.sandwich(&plain.couplings, &data.states, 3).unwrap();
    assert_eq!(found.fields, expected.fields);
    assert_eq!(found.biases, expected.biases);

    let resampled = Recipe {
        errors: ErrorBarsBy::Bootstrap(8),
        block_length: Some(3),
        ..alone
    };
    let found = data.run(&resampled).unwrap().errors.unwrap();
    let options = BootstrapOptions {
        n_resamples: 8,
        block_length: 3,
        ..Default::default()
    };
    let expected = bootstrap(&data.states, &options, |resample| {
        Ok::<_, mpf_ising::Error>(fitter.fit(resample)?.couplings)
    });
    assert_eq!(found.of_couplings(), expected.unwrap().of_couplings());

    // Weighted samples alone have no order that folds or blocks could be cut from: what cannot be
    // done without loses nothing else.
    let alone = TrainingData {
        samples: &data.samples,
        states: None,
    };
    let trained = by_sandwich.run(alone, &|_| {}).unwrap();
    assert_eq!(trained.fit.couplings, plain.couplings);
    assert_eq!(trained.failures[0].error, Error::NoStates);
    let choosing = Recipe {
        choose: Some(PathOptions::default()),
        ..Default::default()
    };
    assert_eq!(choosing.run(alone, &|_| {}).unwrap_err(), Error::NoStates);
}

/// Units that are never active together have no coupling that the data determine.
#[test]
fn undetermined_couplings_have_no_error_bar() {
    let rows: Vec<u64> = (0..400u64)
        .map(|m| [0b100, 0b001, 0b010, 0b101, 0b000, 0b110][m as usize % 6])
        .collect();
    let mut states = States::new(3).unwrap();
    rows.iter().for_each(|row| states.push(&[*row]));
    for errors in [ErrorBarsBy::Sandwich, ErrorBarsBy::Bootstrap(5)] {
        let recipe = Recipe {
            errors,
            ..Default::default()
        };
        let trained = recipe.fit(&states).unwrap();
        let bars = trained.errors.unwrap();
        assert_eq!(bars.couplings[0][1], f64::INFINITY);
        assert!(bars.couplings[0][2].is_finite() && bars.couplings[1][2].is_finite());
        assert!(trained.fit.couplings.get(0, 1).abs() < 20.0);
    }
}

/// Answers with units that all excite each other, whatever the data.
struct Runaway;

impl Method for Runaway {
    fn describe(&self) -> Description {
        Description {
            takes: &[Takes::Penalties],
            is_local: true,
            competes: false,
            ..Description::new("runaway", "runaway", "A mode far from the data")
        }
    }

    fn fit(&self, data: mpf_ising::Data<'_>, _: &MethodOptions, _: Observer<'_>) -> Result<Fit> {
        let d = data.n_units();
        let couplings = Array2::from_shape_fn((d, d), |(i, j)| if i == j { 2.0 } else { -0.6 });
        let couplings = Couplings::new(couplings)?;
        Ok(Fit::closed_form(couplings, 0.0, 0.0, Vec::new()))
    }
}

/// Samples that are mostly silent, and have never more than one active unit.
fn silent() -> Data {
    let d = 12;
    let mut states = States::new(d).unwrap();
    (0..600).for_each(|m| states.push(&[if m % 3 == 0 { 1 << (m / 3 % d) } else { 0 }]));
    Data::new(states)
}

#[test]
fn a_model_that_drifts_is_polished_if_that_pays() {
    let data = silent();
    let drifting = Recipe {
        method: &Runaway,
        refine: Refine::Nothing,
        ..Default::default()
    };
    let told = AtomicUsize::new(0);
    let run = |recipe: &Recipe, states: Option<&States>| {
        recipe.run(
            TrainingData {
                samples: &data.samples,
                states,
            },
            &|progress| {
                if let RecipeProgress::Drifting(drift, updates) = progress {
                    assert!(drift.has_drifted() && drift.after > 0.9, "{drift:?}");
                    told.fetch_add(*updates, Ordering::Relaxed);
                }
            },
        )
    };
    // With a penalty and error bars too.
    for l2 in [None, Some(0.1)] {
        let mut recipe = drifting.clone();
        recipe.options.l2 = l2;
        let trained = run(&recipe, Some(&data.states)).unwrap();
        let polishing = trained.polishing.unwrap();
        assert!(polishing.is_kept && polishing.updates == Polish::DEFAULT_UPDATES);
        let Verdict::Better { gain, polished } = polishing.verdict else {
            panic!("{:?}", polishing.verdict);
        };
        assert!(gain.value > 5.0 * gain.standard_error);
        assert_eq!(trained.held_out, Some(polished));
        assert!(trained.drift.unwrap().after < 0.2, "{:?}", trained.drift);
        assert_eq!(trained.stages.last().unwrap().name, "persistent CD");
    }
    assert_eq!(told.load(Ordering::Relaxed), 2 * Polish::DEFAULT_UPDATES);
    // Without samples to judge by, the model stays as it is, and so it does where that is asked for.
    let trained = run(&drifting, None).unwrap();
    let polishing = trained.polishing.unwrap();
    assert_eq!(
        (polishing.is_kept, polishing.verdict),
        (false, Verdict::NotJudged)
    );
    assert!(trained.drift.unwrap().has_drifted());
    let untouched = Recipe {
        polish: Polish::Updates(0),
        ..drifting
    };
    let trained = run(&untouched, Some(&data.states)).unwrap();
    assert!(trained.polishing.is_none() && trained.drift.unwrap().has_drifted());
}

#[test]
fn streamed_samples_are_judged_and_polished_too() {
    let streamed = |data: &Data| {
        let source = Arc::new(data.states.clone());
        Stream::new(source, Arc::new(OneProcess), 0).unwrap()
    };
    // All samples of a small stream are held: chains start where those of held samples do.
    let data = silent();
    let recipe = Recipe {
        method: &Runaway,
        refine: Refine::Nothing,
        ..Default::default()
    };
    let held = data.run(&recipe).unwrap();
    let found = recipe.run_stream(&streamed(&data), &|_| {}).unwrap();
    assert!(found.polishing.unwrap().is_kept);
    assert_eq!(found.fit.couplings, held.fit.couplings);
    let scores = |trained: &Trained| trained.held_out.unwrap().model.value;
    assert_eq!(scores(&found), scores(&held));
    // Of many samples, some are scored.
    let truth = random_couplings(6, 0.4, 9);
    let data = Data::new(Exact::new(&truth).unwrap().draw(150_000, seed()));
    let recipe = Recipe {
        refine: Refine::By(find("pl")),
        ..Default::default()
    };
    let held = data.run(&recipe).unwrap();
    let found = recipe.run_stream(&streamed(&data), &|_| {}).unwrap();
    let off = held.fit.couplings.mean_square_error(&found.fit.couplings);
    // Both converged to 1e-6 in a well-conditioned problem.
    assert!(off < 1e-14, "{off}");
    let score = found.held_out.unwrap();
    assert_eq!((score.n_training, score.n_held_out), (120_000, 30_000));
    assert_eq!(score.n_scored, Some(20_000));
    // The mean of two thirds of the samples is off by their error alone.
    let off = score.model.value - scores(&held);
    assert!(off.abs() < 5.0 * score.model.standard_error, "{score:?}");
    assert!(score.gain.value > 0.0);
    let with_errors = Recipe {
        errors: ErrorBarsBy::Sandwich,
        ..recipe
    };
    let refused = with_errors.run_stream(&streamed(&data), &|_| {});
    assert!(refused.unwrap_err().to_string().contains("error bars"));
}

#[test]
fn a_recipe_that_was_stopped_resumes_to_the_same_bits() {
    let data = Data::drawn();
    for (name, n_lambdas) in [("mpf", 4), ("rise", 0), ("cd", 0)] {
        let recipe = |checkpoint: Checkpoint, cancel: &Cancel| Recipe {
            method: Methods::default().find(name).unwrap(),
            options: MethodOptions {
                updates: 5,
                minimizer: MinimizerOptions {
                    checkpoint,
                    cancel: cancel.clone(),
                    ..Default::default()
                },
                ..Default::default()
            },
            choose: (n_lambdas > 0).then(|| PathOptions {
                n_lambdas,
                n_folds: 2,
                ..Default::default()
            }),
            refine: match name {
                "mpf" => Refine::Auto,
                _ => Refine::Nothing,
            },
            polish: Polish::Updates(4),
            errors: ErrorBarsBy::Bootstrap(4),
            ..Default::default()
        };
        let whole = data.run(&recipe(Checkpoint::default(), &Cancel::new()));
        let whole = whole.unwrap();
        assert_eq!(whole.polishing.unwrap().updates, 4);
        let mut stops = 0;
        for writes in 1.. {
            let file = StopAfter::new(writes);
            match data.run(&recipe(file.checkpoint(), file.cancel())) {
                Ok(_) => break,
                Err(error) => assert!(error.is_cancelled(), "{error}"),
            }
            stops += 1;
            let resumed = data.run(&recipe(file.resumed().1, &Cancel::new())).unwrap();
            assert_eq!(
                resumed.fit.couplings, whole.fit.couplings,
                "{name} {writes}"
            );
            assert_eq!(resumed.options.l1, whole.options.l1);
            assert_eq!(resumed.drift, whole.drift);
            assert_eq!(resumed.held_out, whole.held_out);
            let (found, expected) = (resumed.errors.unwrap(), whole.errors.as_ref().unwrap());
            assert_eq!(found.of_couplings(), expected.of_couplings());
        }
        // It was stopped in every one of its steps: at least once in each of 4 updates.
        assert!(stops > 8, "{name}: {stops}");
    }
}

/// What a checkpoint holds for a later step and cannot be decoded is an error of the resume: a step that
/// failed would leave a model that looks whole.
#[test]
fn a_state_that_cannot_be_decoded_is_no_failed_step() {
    let data = Data::drawn();
    for name in [
        "fit",
        "refinement",
        "fit of a part",
        "polishing of a part",
        "polishing",
        "resample 2",
    ] {
        for is_finished in [false, true] {
            let checkpoint = StopAfter::new(usize::MAX).checkpoint();
            if is_finished {
                let forged = checkpoint.unit(name, |_| Ok::<_, Error>("no result".to_owned()));
                assert!(forged.is_ok());
            } else {
                checkpoint.entry(name).note("no state");
            }
            let mut recipe = Recipe {
                polish: Polish::Updates(4),
                errors: ErrorBarsBy::Bootstrap(4),
                ..Default::default()
            };
            recipe.options.minimizer.checkpoint = checkpoint;
            let found = data.run(&recipe).map(|trained| trained.failures);
            // A resample has no state, only a result.
            if name == "resample 2" && !is_finished {
                assert!(found.unwrap().is_empty());
                continue;
            }
            let error = found.expect_err(name).to_string();
            assert!(
                error.contains("this checkpoint cannot be used"),
                "{name}: {error}"
            );
        }
    }
}

/// Without any time there is still a fit, at its start, and the later steps say why they are missing.
#[test]
fn a_recipe_that_runs_out_of_time_keeps_its_fit() {
    let data = Data::drawn();
    for (choose, errors) in [
        (None, ErrorBarsBy::Sandwich),
        (None, ErrorBarsBy::Bootstrap(4)),
        (
            Some(PathOptions {
                n_folds: 2,
                ..Default::default()
            }),
            ErrorBarsBy::Nothing,
        ),
    ] {
        let mut recipe = Recipe {
            method: find("pl"),
            refine: Refine::Nothing,
            polish: Polish::Updates(4),
            choose: choose.clone(),
            errors,
            ..Default::default()
        };
        recipe.options.minimizer.cancel = Cancel::new().within(0.0);
        let trained = data.run(&recipe).unwrap();
        assert_eq!(trained.fit.stop, StopReason::TimeLimit);
        // The penalties after the first were not tried.
        assert_eq!(trained.path.map(|p| p.path.len()), choose.map(|_| 1));
        assert!(trained.held_out.is_none() && trained.polishing.is_none());
        assert!(trained.errors.is_none());
        let late = trained.failures.iter().all(|f| f.error == Error::TimeLimit);
        assert!(late && trained.failures.len() == 2, "{errors:?}");
        // A stop that was asked for is another thing.
        recipe.options.minimizer.cancel.cancel();
        let error = data.run(&recipe).unwrap_err();
        assert!(error.is_cancelled(), "{error}");
    }
    let mut tap = Recipe::alone(find("tap"), MethodOptions::default());
    tap.options.minimizer.cancel = Cancel::new().within(1e6);
    assert!(data.run(&tap).is_ok());
}

/// Exact maximum likelihood is for 20 units at the most.
#[test]
fn a_refinement_that_fails_leaves_the_fit() {
    let truth = random_couplings(21, 0.2, 9);
    let data = Data::new(Exact::new(&truth).unwrap().draw(300, seed()));
    let recipe = Recipe {
        refine: Refine::By(find("ml")),
        errors: ErrorBarsBy::Sandwich,
        ..Default::default()
    };
    let trained = data.run(&recipe).unwrap();
    assert_eq!((trained.method, trained.stages.len()), ("MPF", 1));
    let [failure] = &trained.failures[..] else {
        panic!("{:?}", trained.failures);
    };
    assert_eq!(failure.step, "the refinement");
    // The later steps are those of a fit that is not refined.
    let rough = MethodOptions {
        minimizer: MinimizerOptions {
            gradient_tolerance: 1e-3,
            ..Default::default()
        },
        ..Default::default()
    };
    let alone = Recipe::alone(find("mpf"), rough);
    let alone = data.run(&alone).unwrap();
    assert_eq!(trained.fit.couplings, alone.fit.couplings);
    assert!(trained.held_out.is_some() && trained.errors.is_some());
}
