//! The tournament against fits and scores by hand.

use mpf_baselines::{
    Contender, Criterion, Error, LogZSource, Method, MethodOptions, Methods, Objectives, Plan,
    Polish, Recipe, Tournament,
};
use mpf_core::Cancel;
use mpf_core::rng::stream;
use mpf_ising::{Boundary, Exact, FoldAssignment, Folds, Lattice, Samples, States, Support};
use mpf_samplers::{AnnealedOptions, ExactLattice};
use mpf_testkit::{random_couplings, seed};

type Entered = (&'static dyn Method, MethodOptions);

fn method(name: &str, options: MethodOptions) -> Contender {
    Contender::alone(Methods::default().find(name).unwrap(), options)
}

/// Every method, with options for those that have their own.
fn methods() -> Vec<Entered> {
    let options = MethodOptions {
        updates: 50,
        damping: 0.0,
        ..Default::default()
    };
    // RISE's λ = 0.01.
    let sparse = MethodOptions {
        l1: 0.02,
        ..options.clone()
    };
    Methods::default()
        .iter()
        .map(|method| match method.describe().name {
            "rise" | "logrise" => (method, sparse.clone()),
            _ => (method, options.clone()),
        })
        .collect()
}

fn draws(d: usize, n: usize) -> States {
    let truth = random_couplings(d, 0.8, 7);
    Exact::new(&truth).unwrap().draw(n, seed())
}

#[test]
fn scores_are_those_of_every_objective_by_hand() {
    let states = draws(6, 500);
    let alone = methods().into_iter().map(|(m, o)| Contender::alone(m, o));
    let found = Tournament::default()
        .run(&alone.collect::<Vec<_>>(), &states, |_, _| {})
        .unwrap();
    assert!(found.dropouts.is_empty());
    let folds = Folds::new(500, 5, FoldAssignment::Blocks).unwrap();
    for ((method, options), entrant) in methods().iter().zip(&found.entrants) {
        assert_eq!(entrant.name, method.describe().title);
        assert_eq!(entrant.log_z, Some(LogZSource::Enumeration));
        let (mut mpf, mut pl, mut ll, mut log_rise) = (0.0, 0.0, 0.0, 0.0);
        for fold in 0..5 {
            let (training, held_out) = folds.split(&states, fold).unwrap();
            let training = Samples::new(&training).unwrap();
            let fitted = method
                .fit((&training).into(), options, &mut |_| {})
                .unwrap();
            let held_out = Samples::new(&held_out).unwrap();
            let scores = Objectives::of(&fitted.couplings, &held_out).unwrap();
            mpf += scores.mpf / 5.0;
            pl += scores.pseudolikelihood / 5.0;
            ll += scores.log_likelihood.unwrap() / 5.0;
            log_rise += scores.log_rise / 5.0;
        }
        // Sums of 500 numbers of order ten.
        assert!((entrant.mpf.value - mpf).abs() < 1e-11);
        assert!((entrant.pseudolikelihood.value - pl).abs() < 1e-11);
        assert!((entrant.log_likelihood.unwrap().value - ll).abs() < 1e-11);
        let own = match entrant.name.as_str() {
            "MPF" | "RISE" => Some(mpf),
            "PL" => Some(pl),
            "logRISE" => Some(log_rise),
            "ML" | "independent" => Some(-ll),
            _ => None,
        };
        match (entrant.own, own) {
            (Some(a), Some(b)) => assert!((a - b).abs() < 1e-11),
            (a, b) => assert_eq!(a.is_some(), b.is_some()),
        }
    }
    // Differences are antisymmetric, and those of the means.
    for criterion in [
        Criterion::Mpf,
        Criterion::Pseudolikelihood,
        Criterion::LogLikelihood,
    ] {
        let forth = found.difference(0, 7, criterion).unwrap().unwrap();
        let back = found.difference(7, 0, criterion).unwrap().unwrap();
        assert!((forth.value + back.value).abs() < 1e-12);
        assert!((forth.standard_error - back.standard_error).abs() < 1e-12);
        let value = |at: usize| match criterion {
            Criterion::Mpf => found.entrants[at].mpf.value,
            Criterion::Pseudolikelihood => found.entrants[at].pseudolikelihood.value,
            Criterion::LogLikelihood => found.entrants[at].log_likelihood.unwrap().value,
        };
        assert!((forth.value - (value(0) - value(7))).abs() < 1e-12);
    }
    // A strongly coupled model: independent units lose by some standard errors, and the table
    // says so.
    let lost = found
        .difference(7, 6, Criterion::LogLikelihood)
        .unwrap()
        .unwrap();
    assert!(lost.value < -2.0 * lost.standard_error, "{lost:?}");
    let table = found.to_string();
    assert!(
        table.contains("Best by held-out log-likelihood") && table.lines().count() == 11,
        "{table}"
    );
}

#[test]
fn annealed_and_lattice_likelihoods_agree() {
    // 25 units: one more than can be enumerated.
    let lattice = Lattice::new(5, 5, Boundary::Open).unwrap();
    let truth = lattice.spin_glass(1.0, &mut stream(4, 0)).unwrap();
    let states = ExactLattice::new(&truth, &lattice)
        .unwrap()
        .draw(600, seed());
    let on_lattice = MethodOptions {
        support: Support::lattice(&lattice),
        ..Default::default()
    };
    let methods = [
        method("pl", on_lattice),
        method("pl", MethodOptions::default()),
    ];
    let tournament = Tournament {
        n_folds: 2,
        lattice: Some(lattice),
        annealed: Some(AnnealedOptions {
            n_levels: 300,
            seed: seed(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let exact = tournament.run(&methods, &states, |_, _| {}).unwrap();
    assert_eq!(exact.entrants[0].log_z, Some(LogZSource::Lattice));
    assert_eq!(exact.entrants[1].log_z, Some(LogZSource::Annealed));
    let annealed = Tournament {
        lattice: None,
        ..tournament.clone()
    }
    .run(&methods[..1], &states, |_, _| {})
    .unwrap();
    let (a, b) = (&exact.entrants[0], &annealed.entrants[0]);
    let off = a.log_likelihood.unwrap().value - b.log_likelihood.unwrap().value;
    assert!(
        b.log_z_error > 0.0 && off.abs() < 4.5 * b.log_z_error,
        "{off} {}",
        b.log_z_error
    );
    let none = Tournament {
        lattice: None,
        annealed: None,
        ..tournament
    }
    .run(&methods[..1], &states, |_, _| {})
    .unwrap();
    assert!(none.entrants[0].log_likelihood.is_none());
    assert!(
        none.to_string()
            .contains("Best by held-out pseudolikelihood")
    );
}

#[test]
fn methods_that_fail_drop_out_and_bad_options_are_errors() {
    let states = draws(6, 100);
    let negative = MethodOptions {
        l1: -1.0,
        ..Default::default()
    };
    let methods = [
        method("ml", negative),
        method("independent", MethodOptions::default()),
    ];
    let found = Tournament::default()
        .run(&methods, &states, |_, _| {})
        .unwrap();
    assert_eq!((found.entrants.len(), found.dropouts.len()), (1, 1));
    assert!(found.to_string().contains("l1"));
    let run = |change: fn(&mut Tournament)| {
        let mut tournament = Tournament::default();
        change(&mut tournament);
        tournament
            .run(&methods[1..], &states, |_, _| {})
            .unwrap_err()
    };
    assert!(matches!(
        run(|o| o.n_folds = 101),
        Error::Ising(mpf_ising::Error::Folds { .. })
    ));
    assert!(matches!(
        run(|o| o.block_length = 80),
        Error::Ising(mpf_ising::Error::BlockLength { .. })
    ));
    assert!(matches!(
        run(|o| o.cancel.cancel()),
        Error::Core(mpf_core::Error::Cancelled)
    ));
}

/// What enters is what the recipe delivers, refinement included.
#[test]
fn a_recipe_is_scored_as_it_is_delivered() {
    let states = draws(6, 300);
    let auto = Contender::new("auto", Recipe::default());
    let found = Tournament::default()
        .run(&[auto], &states, |_, _| {})
        .unwrap();
    let folds = Folds::new(300, 5, FoldAssignment::Blocks).unwrap();
    let mut ll = 0.0;
    for fold in 0..5 {
        let (training, held_out) = folds.split(&states, fold).unwrap();
        let trained = Recipe::default().fit(&training).unwrap();
        let held_out = Samples::new(&held_out).unwrap();
        let exact = Exact::new(&trained.fit.couplings).unwrap();
        ll += exact.log_likelihood(&held_out).unwrap() / 5.0;
    }
    assert_eq!(found.entrants[0].name, "auto");
    assert!((found.entrants[0].log_likelihood.unwrap().value - ll).abs() < 1e-11);
}

/// A contender that runs out of time competes with what it has, or drops out; the others go on.
#[test]
fn the_time_limit_of_a_contender_is_that_of_all_its_steps() {
    let states = draws(6, 500);
    let mut options = MethodOptions::default();
    options.minimizer.max_seconds = 0.0;
    let mut late = method("pl", options.clone());
    let Plan::Recipe(recipe) = &mut late.plan else {
        panic!("a method is a recipe");
    };
    recipe.polish = Polish::Updates(4);
    let never = method("tap", options);
    let contenders = [late, never, method("mpf", MethodOptions::default())];
    let tournament = Tournament::default();
    let found = tournament.run(&contenders, &states, |_, _| {}).unwrap();
    let warnings = found.entrants[0].warnings.join("; ");
    assert!(
        warnings.contains("the time limit was reached"),
        "{warnings}"
    );
    assert!(found.dropouts.iter().all(|d| d.error == Error::TimeLimit));
    assert_eq!(found.entrants.len() + found.dropouts.len(), 3);
    // The limit of all of them.
    let tournament = Tournament {
        cancel: Cancel::new().within(0.0),
        ..Default::default()
    };
    let found = tournament.run(&contenders, &states, |_, _| {}).unwrap();
    assert!(found.entrants.is_empty());
    assert!(found.dropouts.iter().all(|d| d.error == Error::TimeLimit));
}
