//! Penalty paths, cross-validation and EBIC, for two estimators, jointly and node by node.

use crate::logistic::Logistic;
use mpf_core::rng::{next_seed, stream};
use mpf_core::{Checkpoint, FlowForm};
use mpf_ising::{
    Biases, Boundary, Couplings, CrossValidation, Edge, Error, Estimator, Exact, FitOptions,
    Fitter, FoldAssignment, Folds, Lattice, Mode, Mpf, PathOptions, Penalty, PenaltyPath, Rule,
    Samples, SpinCouplings, States,
};
use mpf_samplers::ExactLattice;
use mpf_testkit::{StopAfter, in_memory, random_couplings, seed};
use ndarray::{Array1, Array2};
use rand::RngExt;

fn draws(d: usize, n: usize) -> States {
    let truth = random_couplings(d, 0.8, 11);
    Exact::new(&truth).unwrap().draw(n, seed())
}

fn fitter(change: impl FnOnce(&mut FitOptions)) -> Fitter {
    fitter_of(&Mpf::default(), change)
}

fn fitter_of<E: Estimator + Clone>(
    estimator: &E,
    change: impl FnOnce(&mut FitOptions),
) -> Fitter<E> {
    let mut options = FitOptions::default();
    // About what sums near 5 resolve: √(5 ε) ~ 3e-8.
    options.minimizer.gradient_tolerance = 1e-7;
    change(&mut options);
    Fitter::new(estimator.clone(), options).unwrap()
}

fn n_couplings(couplings: &Couplings) -> usize {
    let entries = couplings.as_array().indexed_iter();
    entries.filter(|((i, j), v)| i < j && **v != 0.0).count()
}

fn check_largest(estimator: &(impl Estimator + Clone), change: fn(&mut FitOptions)) {
    let samples = Samples::new(&draws(6, 800)).unwrap();
    let path = PenaltyPath::default();
    let base = fitter_of(estimator, change);
    let lambdas = path.lambdas(&base, &samples).unwrap();
    assert_eq!(lambdas.len(), 30);
    assert!((lambdas[29] / lambdas[0] - 1e-3).abs() < 1e-12);
    let at = |l1: f64| {
        let fitter = fitter_of(estimator, |o| {
            change(o);
            o.l1 = l1;
        });
        let fit = fitter.fit(&samples).unwrap();
        assert!(fit.stop.is_converged() && fit.kkt_residual <= 1e-7);
        n_couplings(&fit.couplings)
    };
    assert_eq!(at(1.0001 * lambdas[0]), 0);
    assert!(at(0.999 * lambdas[0]) >= 1);
}

#[test]
fn the_largest_lambda_is_the_smallest_without_couplings() {
    check_largest(&Mpf::default(), |_| {});
    check_largest(&Logistic, |_| {});
    check_largest(&Mpf::default(), |o| o.mode = Mode::NodeWise);
    check_largest(&Logistic, |o| o.mode = Mode::NodeWise);
    let log = Mpf {
        form: FlowForm::Log,
        ..Mpf::default()
    };
    check_largest(&log, |_| {});
    check_largest(&Mpf::default(), |o| {
        o.biases = Biases::FixedFields(vec![0.1; 6]);
    });
    check_largest(&Mpf::default(), |o| o.biases = Biases::Fixed(vec![0.3; 6]));
}

#[test]
fn the_largest_ridge_leaves_hardly_any_coupling() {
    let samples = Samples::new(&draws(6, 800)).unwrap();
    let path = PenaltyPath::new(PathOptions {
        penalty: Penalty::L2,
        n_lambdas: 5,
        ..Default::default()
    })
    .unwrap();
    let points = path.fit(&fitter(|_| {}), &samples, |_| {}).unwrap();
    let rms = |couplings: &Couplings| {
        let k = couplings.to_spins().couplings;
        (k.iter().map(|k| k * k).sum::<f64>() / 30.0).sqrt()
    };
    let sizes: Vec<f64> = points.iter().map(|p| rms(&p.fit.couplings)).collect();
    assert!((0.05..=0.1).contains(&sizes[0]), "{sizes:?}");
    assert!(sizes.windows(2).all(|w| w[0] < w[1]), "{sizes:?}");
    assert!(points.iter().all(|p| p.ebic.is_none()));
}

#[test]
fn a_path_is_what_single_fits_give() {
    let samples = Samples::new(&draws(6, 800)).unwrap();
    let path = PenaltyPath::new(PathOptions {
        n_lambdas: 8,
        ..Default::default()
    })
    .unwrap();
    let base = fitter(|o| o.l2 = 0.01);
    let points = path.fit(&base, &samples, |_| {}).unwrap();
    assert_eq!(points[0].n_couplings, 0);
    for point in &points {
        let alone = fitter(|o| {
            o.l2 = 0.01;
            o.l1 = point.lambda;
        });
        let fit = alone.fit(&samples).unwrap();
        // Two points with gradients below 1e-7, of a function with curvatures above .05.
        let off = fit.couplings.mean_square_error(&point.fit.couplings).sqrt();
        assert!(off < 1e-5, "{off}");
        // At the largest λ itself a coupling of rounding size is as good as none.
        if point.lambda < points[0].lambda {
            assert_eq!(n_couplings(&fit.couplings), point.n_couplings);
        }
        assert!(point.fit.kkt_residual <= 1e-7);
        let own = base.objective_value(&fit.couplings, &samples).unwrap();
        assert!((own - point.objective).abs() < 1e-5);
        // EBIC from an unpenalised fit of the same graph.
        let edges = (0..6)
            .flat_map(|i| (i + 1..6).map(move |j| (i, j)))
            .filter(|&(i, j)| point.fit.couplings.get(i, j) != 0.0);
        let refit = fitter(|o| {
            o.l2 = 0.01;
            o.support = mpf_ising::Support::Edges(edges.collect());
        });
        let refit = refit.fit(&samples).unwrap();
        let free = base.objective_value(&refit.couplings, &samples).unwrap();
        let price = 800f64.ln() + 6f64.ln();
        let expected = 1600.0 * free + 2.0 * point.n_couplings as f64 * price;
        assert!((point.ebic.unwrap() / expected - 1.0).abs() < 1e-8);
    }
}

fn check_cross_validation(
    estimator: &(impl Estimator + Clone),
    change: fn(&mut FitOptions),
    assignment: FoldAssignment,
) {
    let states = draws(5, 403);
    let lambdas = vec![0.02, 0.3];
    let path = PenaltyPath::new(PathOptions {
        lambdas: Some(lambdas),
        n_folds: 4,
        assignment,
        ..Default::default()
    })
    .unwrap();
    let folds = Folds::new(403, 4, assignment).unwrap();
    let base = fitter_of(estimator, change);
    let found = path.cross_validate(&base, &states, |_| {}).unwrap();
    assert_eq!(
        found.path.iter().map(|p| p.lambda).collect::<Vec<_>>(),
        [0.3, 0.02]
    );
    for (point, score) in found.path.iter().zip(&found.scores) {
        // By hand: the other folds' rows, a fit, the objective sample by sample.
        let mut values = Vec::new();
        let mut total = 0.0;
        for fold in 0..4 {
            let out = folds.held_out(fold);
            let mut training = States::new(5).unwrap();
            (0..403)
                .filter(|m| !out.contains(m))
                .for_each(|m| training.push(states.row(m)));
            let fitter = fitter_of(estimator, |o| {
                change(o);
                o.l1 = point.lambda;
            });
            let fit = fitter.fit(&Samples::new(&training).unwrap()).unwrap();
            let value: f64 = out
                .iter()
                .map(|&m| {
                    let one = Samples::new(&states.slice(m..m + 1)).unwrap();
                    base.objective_value(&fit.couplings, &one).unwrap()
                })
                .sum();
            total += value;
            values.push(value / out.len() as f64);
        }
        // Fits from different starts agree to 1e-5.
        assert!((score.mean - total / 403.0).abs() < 1e-5);
        let mean = score.mean;
        let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / 12.0;
        assert!((score.standard_error - variance.sqrt()).abs() < 1e-5);
    }
}

#[test]
fn scores_are_those_of_refitting_by_hand() {
    check_cross_validation(&Mpf::default(), |_| {}, FoldAssignment::Blocks);
    check_cross_validation(&Logistic, |_| {}, FoldAssignment::Random { seed: 5 });
    check_cross_validation(
        &Mpf::default(),
        |o| o.mode = Mode::NodeWise,
        FoldAssignment::Blocks,
    );
}

#[test]
fn rules_choose_what_they_say() {
    let states = draws(6, 600);
    let path = PenaltyPath::default();
    let run = || {
        let fitter: Fitter = Fitter::default();
        path.cross_validate(&fitter, &states, |_| {}).unwrap()
    };
    let found = run();
    let scores: Vec<f64> = found.scores.iter().map(|s| s.mean).collect();
    let index = |rule: Rule| {
        let lambda = found.chosen_by(rule).unwrap().lambda;
        found.path.iter().position(|p| p.lambda == lambda).unwrap()
    };
    let minimum = index(Rule::Minimum);
    assert_eq!(found.chosen().lambda, found.path[minimum].lambda);
    assert!(scores.iter().all(|s| *s >= scores[minimum]));
    let one = index(Rule::OneStandardError);
    let limit = scores[minimum] + found.scores[minimum].standard_error;
    assert!(one <= minimum && scores[one] <= limit);
    assert!(scores[..one].iter().all(|s| *s > limit));
    let ebic = found.chosen_by(Rule::Ebic).unwrap().ebic.unwrap();
    assert!(found.path.iter().all(|p| p.ebic.unwrap() >= ebic));
    // Broken off after three points beyond the minimum, or at the end.
    assert!(found.path.len() == 30 || found.path.len() - 1 - minimum == 3);
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build()
        .unwrap();
    let again: CrossValidation = pool.install(run);
    let same = found.path.iter().zip(&again.path);
    assert!(
        same.into_iter()
            .all(|(a, b)| a.fit.couplings == b.fit.couplings)
    );
    assert!(again.scores.iter().zip(&scores).all(|(a, b)| a.mean == *b));
}

/// The ±K lattice of the measured expectations; `cargo xtask choose-penalty` has more seeds.
#[test]
fn ebic_finds_the_graph_of_a_lattice() {
    let lattice = Lattice::new(10, 10, Boundary::Open).unwrap();
    let mut rng = stream(seed(), 0);
    let mut couplings = Array2::zeros((100, 100));
    for (i, j) in lattice.edges() {
        let k = if rng.random::<bool>() { 0.4 } else { -0.4 };
        couplings[[i, j]] = k;
        couplings[[j, i]] = k;
    }
    let fields = Array1::zeros(100);
    let truth = Couplings::from_spins(&SpinCouplings { fields, couplings }).unwrap();
    let states = ExactLattice::new(&truth, &lattice)
        .unwrap()
        .draw(5000, next_seed(seed()));
    let fitter = fitter(|o| o.minimizer.gradient_tolerance = 1e-4);
    let path = PenaltyPath::new(PathOptions {
        n_lambdas: 16,
        smallest: 0.02,
        ..Default::default()
    })
    .unwrap();
    let points = path
        .fit(&fitter, &Samples::new(&states).unwrap(), |_| {})
        .unwrap();
    let best = points
        .iter()
        .min_by(|a, b| a.ebic.unwrap().total_cmp(&b.ebic.unwrap()))
        .unwrap();
    let (mut missed, mut added) = (0, 0);
    for i in 0..100 {
        for j in 0..i {
            let (is, was) = (best.fit.couplings.get(i, j) != 0.0, truth.get(i, j) != 0.0);
            missed += usize::from(was && !is);
            added += usize::from(is && !was);
        }
    }
    assert!(missed == 0 && added <= 5, "{missed} missed, {added} false");
}

#[test]
fn bad_options_and_data_are_errors() {
    let options = |change: fn(&mut PathOptions)| {
        let mut options = PathOptions::default();
        change(&mut options);
        PenaltyPath::new(options).unwrap_err()
    };
    for (error, name) in [
        (options(|o| o.lambdas = Some(vec![0.1, -0.2])), "lambdas"),
        (options(|o| o.lambdas = Some(vec![])), "n_lambdas"),
        (options(|o| o.n_lambdas = 0), "n_lambdas"),
        (options(|o| o.smallest = 1.0), "smallest"),
        (options(|o| o.gamma = f64::NAN), "gamma"),
        (options(|o| o.patience = 0), "patience"),
    ] {
        assert!(
            matches!(error, Error::Core(mpf_core::Error::Option { name: found, .. }) if found == name),
            "{error}"
        );
    }
    assert!(matches!(
        Folds::new(3, 5, FoldAssignment::Blocks),
        Err(Error::Folds {
            n_folds: 5,
            n_samples: 3
        })
    ));
    let ridge = options(|o| (o.penalty, o.rule) = (Penalty::L2, Rule::Ebic));
    assert_eq!(ridge, Error::EbicOfRidge);
    let states = draws(4, 50);
    let many = PenaltyPath::new(PathOptions {
        n_folds: 60,
        ..Default::default()
    });
    let found = many
        .unwrap()
        .cross_validate(&fitter(|_| {}), &states, |_| {});
    assert!(matches!(
        found,
        Err(Error::Folds {
            n_folds: 60,
            n_samples: 50
        })
    ));
    let cancelled = fitter(|o| o.minimizer.cancel.cancel());
    let found = PenaltyPath::default().cross_validate(&cancelled, &states, |_| {});
    assert!(matches!(
        found,
        Err(Error::Core(mpf_core::Error::Cancelled))
    ));
}

fn short_path(penalty: Penalty, n_folds: usize) -> PenaltyPath {
    PenaltyPath::new(PathOptions {
        penalty,
        n_lambdas: 8,
        n_folds,
        ..Default::default()
    })
    .unwrap()
}

/// A grid that is far too short for `draws`.
fn stub(penalty: Penalty, rule: Rule, lambdas: Option<Vec<f64>>) -> PenaltyPath {
    PenaltyPath::new(PathOptions {
        penalty,
        n_lambdas: 4,
        smallest: 0.5,
        lambdas,
        n_folds: 3,
        rule,
        ..Default::default()
    })
    .unwrap()
}

/// Units that do not depend on each other.
fn independent_draws(d: usize, n: usize) -> States {
    let fields = Array1::from_shape_fn(d, |i| 0.2 * i as f64 - 0.4);
    let couplings = Array2::zeros((d, d));
    let truth = Couplings::from_spins(&SpinCouplings { fields, couplings }).unwrap();
    Exact::new(&truth).unwrap().draw(n, seed())
}

/// λ's in one ratio, largest first.
fn is_even(found: &CrossValidation) -> bool {
    let ratio = 0.5f64.powf(1.0 / 3.0);
    let mut pairs = found.path.windows(2);
    pairs.all(|w| (w[1].lambda / w[0].lambda / ratio - 1.0).abs() < 1e-9)
}

#[test]
fn a_choice_at_the_smallest_lambda_extends_the_grid() {
    let states = draws(6, 900);
    for (penalty, rule) in [
        (Penalty::L1, Rule::Minimum),
        (Penalty::L1, Rule::Ebic),
        (Penalty::L1, Rule::OneStandardError),
        (Penalty::L2, Rule::Minimum),
        (Penalty::L2, Rule::OneStandardError),
    ] {
        let path = stub(penalty, rule, None);
        let fitter = fitter(|_| {});
        let mut last = None;
        let found = path
            .cross_validate(&fitter, &states, |p| last = Some(*p))
            .unwrap();
        let given = path.lambdas(&fitter, &Samples::new(&states).unwrap());
        let given = given.unwrap();
        let n = found.path.len();
        assert!(n > 4 && is_even(&found), "{penalty:?} {rule:?}: {n}");
        assert_eq!(found.path[0].lambda, given[0]);
        assert_eq!(found.edge(), None);
        assert_eq!(last.map(|p| (p.done, p.total)), Some((n, n)));
        // The choice among the first four was the last of them.
        let mut first = found.clone();
        first.path.truncate(4);
        first.scores.truncate(4);
        assert_eq!(first.edge(), Some(Edge::Smallest));
        // λ's of the user's own stay as they are, and the edge is told.
        let own = stub(penalty, rule, Some(given));
        let own = own.cross_validate(&fitter, &states, |_| {}).unwrap();
        assert_eq!((own.path.len(), own.edge()), (4, Some(Edge::Smallest)));
    }
}

#[test]
fn a_choice_at_the_largest_ridge_extends_the_grid() {
    let states = independent_draws(5, 500);
    let path = stub(Penalty::L2, Rule::Minimum, None);
    let fitter = fitter(|_| {});
    let samples = Samples::new(&states).unwrap();
    let given = path.lambdas(&fitter, &samples).unwrap();
    let found = path.cross_validate(&fitter, &states, |_| {}).unwrap();
    assert!(found.path[0].lambda > given[0] && is_even(&found));
    // Three decades at most, 29.9 steps of three to the octave; the edge is told if that is the end.
    let above = found.path.iter().filter(|p| p.lambda > given[0]).count();
    assert!(above <= 29, "{above}");
    assert_eq!(found.edge(), (above == 29).then_some(Edge::Largest));
    assert!(found.path.iter().all(|p| p.fit.stop.is_converged()));
    // No coupling at all is the end of a path of λ₁.
    let sparse = stub(Penalty::L1, Rule::Minimum, None);
    let sparse = sparse.cross_validate(&fitter, &states, |_| {}).unwrap();
    let largest = sparse.path[0].lambda;
    assert_eq!((sparse.chosen().lambda, sparse.edge()), (largest, None));
    assert_eq!(sparse.path.len(), 4);
}

#[test]
fn an_extended_path_that_was_stopped_goes_on_to_the_same_bits() {
    for (penalty, states) in [
        (Penalty::L1, draws(6, 900)),
        (Penalty::L2, independent_draws(5, 500)),
    ] {
        let path = stub(penalty, Rule::Minimum, None);
        let whole = path.cross_validate(&fitter(|_| {}), &states, |_| {});
        let whole = whole.unwrap();
        assert!(whole.path.len() > 4);
        for writes in 1..=whole.path.len() {
            let file = StopAfter::new(writes);
            let stopped = fitter(|o| {
                o.minimizer.checkpoint = file.checkpoint();
                o.minimizer.cancel = file.cancel().clone();
            });
            let _ = path.cross_validate(&stopped, &states, |_| {});
            let mut steps = 0;
            let resumed = fitter(|o| o.minimizer.checkpoint = file.resumed().1);
            let resumed = path
                .cross_validate(&resumed, &states, |_| steps += 1)
                .unwrap();
            assert_eq!(steps, whole.path.len() - writes, "nothing is done twice");
            let bits = |found: &CrossValidation| -> Vec<_> {
                let points = found.path.iter().zip(&found.scores);
                points
                    .map(|(p, s)| (p.lambda, p.fit.couplings.clone(), s.folds.clone()))
                    .collect()
            };
            assert!(bits(&resumed) == bits(&whole), "{penalty:?}, {writes}");
        }
    }
}

#[test]
fn a_path_that_was_stopped_goes_on_to_the_same_bits() {
    let states = draws(6, 900);
    for (penalty, mode) in [
        (Penalty::L1, Mode::Joint),
        (Penalty::L2, Mode::Joint),
        (Penalty::L1, Mode::NodeWise),
    ] {
        let path = short_path(penalty, 3);
        let kept = |checkpoint: Checkpoint| {
            fitter(|o| {
                o.mode = mode;
                o.minimizer.checkpoint = checkpoint;
            })
        };
        let whole = path.cross_validate(&fitter(|o| o.mode = mode), &states, |_| {});
        let whole = whole.unwrap();
        for writes in 1..=whole.path.len() {
            let file = StopAfter::new(writes);
            let stopped = fitter(|o| {
                o.mode = mode;
                o.minimizer.checkpoint = file.checkpoint();
                o.minimizer.cancel = file.cancel().clone();
            });
            let stopped = path.cross_validate(&stopped, &states, |_| {});
            assert_eq!(stopped.is_ok(), writes == whole.path.len());
            let mut steps = 0;
            let resumed = path
                .cross_validate(&kept(file.resumed().1), &states, |_| steps += 1)
                .unwrap();
            assert_eq!(steps, whole.path.len() - writes, "nothing is done twice");
            assert_eq!(resumed.path.len(), whole.path.len());
            for (a, b) in resumed.path.iter().zip(&whole.path) {
                assert_eq!(a.fit.couplings, b.fit.couplings);
                assert_eq!((a.lambda, a.ebic), (b.lambda, b.ebic));
            }
            for (a, b) in resumed.scores.iter().zip(&whole.scores) {
                assert_eq!(a.folds, b.folds);
            }
            // A state of three folds, of six units.
            for (path, states) in [
                (short_path(penalty, 4), &states),
                (short_path(penalty, 3), &draws(5, 900)),
            ] {
                let other = path.cross_validate(&kept(file.resumed().1), states, |_| {});
                assert!(matches!(
                    other,
                    Err(Error::Core(mpf_core::Error::Checkpoint { .. }))
                ));
            }
        }
    }
}

#[test]
fn forged_paths_give_an_error_or_a_result() {
    let states = draws(4, 100);
    let path = short_path(Penalty::L1, 2);
    let run = |checkpoint: Checkpoint| {
        let fitter = fitter(|o| o.minimizer.checkpoint = checkpoint);
        path.cross_validate(&fitter, &states, |_| {})
    };
    assert!(run(in_memory("not a path")).is_err());
    let whole = run(Checkpoint::default()).unwrap();
    let starts = vec![whole.path[0].fit.couplings.clone(); 2];
    let forged = |change: fn(&mut CrossValidation)| {
        let mut found = whole.clone();
        change(&mut found);
        run(in_memory((found, starts.clone())))
    };
    // (Encoded as its fields in their order, a state is a tuple.)
    assert!(forged(|_| {}).is_ok());
    assert!(forged(|found| found.path.clear()).is_err());
    assert!(forged(|found| found.scores.truncate(1)).is_err());
    let nan = forged(|found| found.scores[0].mean = -f64::NAN).unwrap();
    assert!(
        nan.chosen_by(Rule::OneStandardError)
            .is_none_or(|p| p.lambda > 0.0)
    );
}

#[test]
fn a_path_without_time_is_its_start() {
    let path = |mode: Mode| {
        let fitter = fitter(|o| {
            o.mode = mode;
            o.minimizer.cancel = o.minimizer.cancel.within(0.0);
        });
        PenaltyPath::default().cross_validate(&fitter, &draws(5, 300), |_| {})
    };
    for mode in [Mode::Joint, Mode::NodeWise] {
        let found = path(mode).unwrap();
        assert_eq!((found.path.len(), found.scores.len()), (1, 1));
        // No fold was fitted: nothing is known, and nothing is NaN.
        assert_eq!(found.scores[0].folds.len(), 0);
        assert_eq!(found.scores[0].mean, f64::INFINITY);
        assert_eq!(found.scores[0].standard_error, f64::INFINITY);
        let start = found.chosen();
        assert_eq!(start.fit.stop, mpf_core::StopReason::TimeLimit);
        assert_eq!(start.n_couplings, 0);
        assert_ne!(start.fit.couplings.get(0, 0), 0.0);
    }
}
