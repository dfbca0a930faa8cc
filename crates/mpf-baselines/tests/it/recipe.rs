//! A whole fit: each of its steps is what the library does alone, and a run that was stopped in any
//! of them resumes to the same bits.

use mpf_baselines::{
    Description, Error, ErrorBarsBy, Method, MethodOptions, Methods, Polish, Recipe,
    RecipeProgress, Result, Takes, Trained, TrainingData,
};
use mpf_core::{Cancel, Checkpoint, MinimizerOptions};
use mpf_ising::{
    BootstrapOptions, Couplings, Exact, Fit, FitProgress, Fitter, PathOptions, Samples, States,
    bootstrap,
};
use mpf_testkit::{StopAfter, random_couplings, seed};
use ndarray::Array2;
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

#[test]
fn its_steps_are_those_of_the_library() {
    let data = Data::drawn();
    let fitter: Fitter = Fitter::default();
    let plain = fitter.fit(&data.samples).unwrap();
    let trained = data.run(&Recipe::default()).unwrap();
    assert_eq!(trained.fit.couplings, plain.couplings);
    assert!(!trained.drift.has_drifted() && trained.polish_updates == 0);
    assert!(trained.path.is_none() && trained.errors.is_none());

    let by_sandwich = Recipe {
        errors: ErrorBarsBy::Sandwich,
        block_length: 3,
        ..Default::default()
    };
    let found = data.run(&by_sandwich).unwrap().errors.unwrap();
    let expected = fitter.sandwich(&plain.couplings, &data.states, 3).unwrap();
    assert_eq!(found.fields, expected.fields);
    assert_eq!(found.biases, expected.biases);

    let resampled = Recipe {
        errors: ErrorBarsBy::Bootstrap(8),
        block_length: 3,
        ..Default::default()
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

    // Weighted samples alone have no order that folds or blocks could be cut from.
    let alone = TrainingData {
        samples: &data.samples,
        states: None,
    };
    assert_eq!(
        by_sandwich.run(alone, &|_| {}).unwrap_err(),
        Error::NoStates
    );
    let choosing = Recipe {
        choose: Some(PathOptions::default()),
        ..Default::default()
    };
    assert_eq!(choosing.run(alone, &|_| {}).unwrap_err(), Error::NoStates);
}

/// Answers with units that all excite each other, whatever the data.
struct Runaway;

impl Method for Runaway {
    fn describe(&self) -> Description {
        Description {
            name: "runaway",
            title: "runaway",
            summary: "A mode far from the data",
            takes: &[Takes::Penalties],
            objective: None,
            max_units: usize::MAX,
            is_local: true,
            competes: false,
        }
    }

    fn fit(
        &self,
        samples: &Samples,
        _: &MethodOptions,
        _: &mut (dyn FnMut(&FitProgress<'_>) + Send),
    ) -> Result<Fit> {
        let d = samples.n_units();
        let couplings = Array2::from_shape_fn((d, d), |(i, j)| if i == j { 2.0 } else { -0.6 });
        let couplings = Couplings::new(couplings)?;
        Ok(Fit::closed_form(couplings, 0.0, 0.0, Vec::new()))
    }
}

#[test]
fn a_model_that_drifts_is_polished_unless_that_would_spoil_it() {
    // Mostly silent, and never more than one active.
    let d = 12;
    let mut states = States::new(d).unwrap();
    (0..600).for_each(|m| states.push(&[if m % 3 == 0 { 1 << (m / 3 % d) } else { 0 }]));
    let data = Data::new(states);
    let drifting = Recipe {
        method: &Runaway,
        ..Default::default()
    };
    let told = AtomicUsize::new(0);
    let trained = drifting.run(
        TrainingData {
            samples: &data.samples,
            states: None,
        },
        &|progress| {
            if let RecipeProgress::Drifting(drift, updates) = progress {
                assert!(drift.has_drifted() && drift.after > 0.9, "{drift:?}");
                told.fetch_add(*updates, Ordering::Relaxed);
            }
        },
    );
    let trained = trained.unwrap();
    assert_eq!(told.into_inner(), Polish::DEFAULT_UPDATES);
    assert_eq!(trained.polish_updates, Polish::DEFAULT_UPDATES);
    assert!(trained.drift.after < 0.2, "{:?}", trained.drift);

    // Polishing would undo a penalty, and its error bars would be those of another model.
    let penalised = MethodOptions {
        l1: 0.1,
        ..Default::default()
    };
    for recipe in [
        Recipe {
            options: penalised,
            ..drifting.clone()
        },
        Recipe {
            errors: ErrorBarsBy::Bootstrap(3),
            ..drifting.clone()
        },
        Recipe {
            polish: Polish::Updates(0),
            ..drifting
        },
    ] {
        let trained = data.run(&recipe).unwrap();
        assert_eq!(trained.polish_updates, 0);
        assert!(trained.drift.has_drifted());
    }
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
            polish: Polish::Updates(4),
            errors: ErrorBarsBy::Bootstrap(4),
            block_length: 1,
        };
        let whole = data.run(&recipe(Checkpoint::default(), &Cancel::new()));
        let whole = whole.unwrap();
        assert_eq!(whole.polish_updates, 4);
        let mut stops = 0;
        for writes in 1.. {
            let file = StopAfter::new(writes);
            match data.run(&recipe(file.checkpoint(), file.cancel())) {
                Ok(_) => break,
                Err(error) => assert_eq!(error, mpf_ising::Error::Cancelled.into()),
            }
            stops += 1;
            let resumed = data.run(&recipe(file.resumed().1, &Cancel::new())).unwrap();
            assert_eq!(
                resumed.fit.couplings, whole.fit.couplings,
                "{name} {writes}"
            );
            assert_eq!(resumed.options.l1, whole.options.l1);
            assert_eq!(resumed.drift, whole.drift);
            let (found, expected) = (resumed.errors.unwrap(), whole.errors.as_ref().unwrap());
            assert_eq!(found.of_couplings(), expected.of_couplings());
        }
        // It was stopped in every one of its steps: at least once in each of 4 updates.
        assert!(stops > 8, "{name}: {stops}");
    }
}
