//! The minimiser: minima, limits, reasons for stopping, ℓ1, observers and checkpoints.

use mpf_core::rng::stream;
use mpf_core::{
    Backend, Cancel, Error, Minimizer, MinimizerOptions, Objective, Ridge, StopReason, from_fn,
};
use mpf_testkit::{StopAfter, in_memory};
use rand::RngExt;
use std::time::{Duration, Instant};

/// Every backend that is compiled in.
fn backends() -> Vec<Backend> {
    vec![
        Backend::Basin,
        #[cfg(feature = "lbfgsb")]
        Backend::Lbfgsb,
    ]
}

fn minimizer(backend: Backend, change: impl FnOnce(&mut MinimizerOptions)) -> Minimizer {
    let mut options = MinimizerOptions {
        backend,
        ..Default::default()
    };
    change(&mut options);
    Minimizer::new(options).unwrap()
}

/// ½ (θ − c)ᵀ A (θ − c) with a random positive definite A.
fn quadratic(n: usize, seed: u64) -> (impl Objective, Vec<f64>) {
    let mut rng = stream(seed, 0);
    let b: Vec<f64> = (0..n * n).map(|_| rng.random_range(-1.0..1.0)).collect();
    let centre: Vec<f64> = (0..n).map(|_| rng.random_range(-2.0..2.0)).collect();
    let a: Vec<f64> = (0..n * n)
        .map(|at| {
            let (i, j) = (at / n, at % n);
            let product: f64 = (0..n).map(|k| b[i * n + k] * b[j * n + k]).sum();
            product + if i == j { 0.5 } else { 0.0 }
        })
        .collect();
    let c = centre.clone();
    let objective = from_fn(n, move |t: &[f64], g: &mut [f64]| {
        let mut value = 0.0;
        for i in 0..n {
            g[i] = (0..n).map(|j| a[i * n + j] * (t[j] - c[j])).sum();
            value += 0.5 * g[i] * (t[i] - c[i]);
        }
        value
    });
    (objective, centre)
}

fn rosenbrock(a: f64) -> impl Objective {
    from_fn(2, move |t: &[f64], g: &mut [f64]| {
        let (u, v) = (a - t[0], t[1] - t[0] * t[0]);
        g[0] = -2.0 * u - 400.0 * t[0] * v;
        g[1] = 200.0 * v;
        u * u + 100.0 * v * v
    })
}

#[test]
fn finds_known_minima() {
    for backend in backends() {
        let minimizer = minimizer(backend, |o| o.gradient_tolerance = 1e-9);
        for seed in 0..5 {
            let (mut f, centre) = quadratic(12, seed);
            let found = minimizer.minimize(&mut f, &[0.0; 12]).unwrap();
            assert_eq!(found.stop, StopReason::Converged);
            assert!(found.kkt_residual <= 1e-9);
            // Eigenvalues of A are at least ½: errors at most 2·√12·1e-9.
            assert!(
                found
                    .theta
                    .iter()
                    .zip(&centre)
                    .all(|(a, b)| (a - b).abs() < 1e-8)
            );
        }
        let found = minimizer
            .minimize(&mut rosenbrock(1.7), &[-1.2, 1.0])
            .unwrap();
        assert!((found.theta[0] - 1.7).abs() < 1e-7 && (found.theta[1] - 2.89).abs() < 1e-6);
        assert_eq!(found.iterations + 1, found.trace.len());
        assert!(found.trace.windows(2).all(|w| w[1].value <= w[0].value));
    }
}

#[test]
fn every_limit_stops_and_says_so() {
    for backend in backends() {
        let run = |change: &dyn Fn(&mut MinimizerOptions)| {
            minimizer(backend, change)
                .minimize(&mut rosenbrock(1.7), &[-1.2, 1.0])
                .unwrap()
        };
        let found = run(&|o| o.max_iterations = 3);
        assert_eq!(
            (found.stop, found.iterations),
            (StopReason::IterationLimit, 3)
        );
        let found = run(&|o| o.max_evaluations = 7);
        assert_eq!(
            (found.stop, found.evaluations),
            (StopReason::EvaluationLimit, 7)
        );
        // Whatever stopped it, the result is the best point, not the last trial.
        let best = found.trace.last().unwrap().value;
        assert_eq!(found.value, best);
        let found = run(&|o| o.max_seconds = 0.0);
        assert_eq!((found.stop, found.iterations), (StopReason::TimeLimit, 0));
        assert_eq!(found.theta, [-1.2, 1.0]);
        let found = run(&|o| o.cancel = Cancel::new().within(0.0));
        assert_eq!((found.stop, found.iterations), (StopReason::TimeLimit, 0));
        // A slope that never ends.
        let mut slope = from_fn(1, |t: &[f64], g: &mut [f64]| {
            g[0] = -1.0;
            -t[0]
        });
        let bounded = minimizer(backend, |o| o.lowest_value = -1e6);
        let found = bounded.minimize(&mut slope, &[0.0]).unwrap();
        assert_eq!(found.stop, StopReason::Unbounded);
        assert!(found.value < -1e6 && found.value.is_finite());
        // Beside 1000 the value cannot resolve a gradient below about √(1000 ε) ~ 5e-7.
        let (mut bowl, _) = quadratic(8, 0);
        let mut high = from_fn(8, |t: &[f64], g: &mut [f64]| {
            1000.0 + bowl.value_and_gradient(t, g)
        });
        let precise = minimizer(backend, |o| o.gradient_tolerance = 1e-15);
        let found = precise.minimize(&mut high, &[0.0; 8]).unwrap();
        assert_eq!(found.stop, StopReason::MachinePrecision);
        assert!(found.kkt_residual < 1e-5, "{}", found.kkt_residual);
    }
}

#[test]
fn a_residual_that_rounding_does_not_explain_is_a_failure() {
    for backend in backends() {
        let precise = minimizer(backend, |o| o.gradient_tolerance = 1e-15);
        let stop = |f: fn(f64) -> (f64, f64), start: f64| {
            let mut f = from_fn(1, |t: &[f64], g: &mut [f64]| {
                let (value, slope) = f(t[0]);
                g[0] = slope;
                value
            });
            let found = precise.minimize(&mut f, &[start]).unwrap();
            (found.stop, found.stop.is_converged())
        };
        let failed = (StopReason::NoProgress, false);
        // A kink, and a gradient that is off by a thousandth.
        assert_eq!(stop(|t| ((t - 0.3).abs(), (t - 0.3).signum()), 0.0), failed);
        assert_eq!(stop(|t| (1.0 + t * t, 2.0 * t + 1e-3), 1.0), failed);
        // A value that stands still, though beside 1000 it can resolve the 5e-5 that are left.
        assert_eq!(stop(|t| (1000.0, 1e-8 * t), 100.0), failed);
    }
}

#[test]
fn cancelling_keeps_what_was_learned() {
    for backend in backends() {
        let cancel = Cancel::new();
        let minimizer = minimizer(backend, |o| o.cancel = cancel.clone());
        let mut seen = Vec::new();
        let found = minimizer
            .minimize_l1(&mut rosenbrock(1.0), &[-1.2, 1.0], &[], |p| {
                seen.push(p.theta.to_vec());
                if p.iteration == 4 {
                    cancel.cancel();
                }
            })
            .unwrap();
        assert_eq!((found.stop, found.iterations), (StopReason::Cancelled, 4));
        assert_eq!(seen.last().unwrap(), &found.theta);
        assert!(found.value < found.trace[0].value);
    }
}

#[test]
fn observers_do_not_cost_learning_time() {
    for backend in backends() {
        let (mut calls, mut slept) = (0, Duration::ZERO);
        let began = Instant::now();
        let found = minimizer(backend, |_| {})
            .minimize_l1(&mut rosenbrock(1.0), &[-1.2, 1.0], &[], |_| {
                calls += 1;
                let asleep = Instant::now();
                std::thread::sleep(Duration::from_millis(10));
                slept += asleep.elapsed();
            })
            .unwrap();
        assert_eq!(calls, found.iterations + 1);
        let wall = began.elapsed();
        assert!(found.seconds <= (wall - slept).as_secs_f64());
    }
}

#[test]
fn a_non_finite_value_shortens_the_step() {
    for backend in backends() {
        for bad in [f64::INFINITY, f64::NAN] {
            // −ln θ + 1000 θ, undefined for θ ≤ 0: the first long step falls off the edge.
            let mut bad_seen = 0;
            let mut f = from_fn(1, |t: &[f64], g: &mut [f64]| {
                if t[0] <= 0.0 {
                    bad_seen += 1;
                    g[0] = bad;
                    return bad;
                }
                g[0] = 1000.0 - 1.0 / t[0];
                1000.0 * t[0] - t[0].ln()
            });
            let found = minimizer(backend, |_| {}).minimize(&mut f, &[1.0]).unwrap();
            assert_eq!(found.stop, StopReason::Converged, "{found:?}");
            // The curvature there is 10⁶: |∇| ≤ 1e-6 means |error| ≤ 1e-12.
            assert!((found.theta[0] - 1e-3).abs() < 1e-11);
            assert!(
                bad_seen > 0,
                "the edge was never met, so nothing was tested"
            );
        }
    }
}

#[test]
fn a_start_that_is_not_finite_is_an_error() {
    for backend in backends() {
        let mut f = from_fn(2, |_: &[f64], g: &mut [f64]| {
            g.copy_from_slice(&[0.0, f64::NAN]);
            1.0
        });
        let error = minimizer(backend, |_| {})
            .minimize(&mut f, &[0.0; 2])
            .unwrap_err();
        assert_eq!(
            error,
            Error::NonFiniteStart {
                value: 1.0,
                gradient_index: Some(1)
            }
        );
        let mut f = from_fn(1, |_: &[f64], _: &mut [f64]| f64::INFINITY);
        let error = minimizer(backend, |_| {})
            .minimize(&mut f, &[0.0])
            .unwrap_err();
        assert!(matches!(error, Error::NonFiniteStart { .. }));
    }
}

#[test]
fn l1_solutions_satisfy_their_conditions_and_are_exactly_sparse() {
    for backend in backends() {
        // Values near 20 resolve gradients of √(20 ε) ~ 7e-8.
        let tolerance = 1e-6;
        let minimizer = minimizer(backend, |o| o.gradient_tolerance = tolerance);
        for seed in 0..20 {
            let n = 15;
            let (mut f, _) = quadratic(n, seed);
            // Some parameters free, the others penalised unequally.
            let lambda: Vec<f64> = (0..n).map(|k| (k % 4) as f64).collect();
            let found = minimizer
                .minimize_l1(&mut f, &vec![0.5; n], &lambda, |_| {})
                .unwrap();
            assert_eq!(found.stop, StopReason::Converged);
            let mut grad = vec![0.0; n];
            let smooth = f.value_and_gradient(&found.theta, &mut grad);
            let mut zeros = 0;
            let mut penalty = 0.0;
            for ((&t, g), &l) in found.theta.iter().zip(grad).zip(&lambda) {
                penalty += l * t.abs();
                if t == 0.0 {
                    zeros += 1;
                    assert!(g.abs() <= l + tolerance);
                } else {
                    assert!((g + l * t.signum()).abs() <= tolerance);
                }
            }
            assert!(zeros > 0);
            assert!((found.value - smooth - penalty).abs() < 1e-12);
        }
    }
}

#[test]
fn l1_of_one_parameter_is_the_soft_threshold() {
    for backend in backends() {
        for (target, lambda, expected) in [(3.0, 1.0, 2.0), (-3.0, 1.0, -2.0), (0.5, 1.0, 0.0)] {
            let mut f = from_fn(1, |t: &[f64], g: &mut [f64]| {
                g[0] = t[0] - target;
                0.5 * g[0] * g[0]
            });
            let found = minimizer(backend, |o| o.gradient_tolerance = 1e-10)
                .minimize_l1(&mut f, &[1.0], &[lambda], |_| {})
                .unwrap();
            assert!((found.theta[0] - expected).abs() < 1e-9);
        }
    }
}

#[test]
fn ridge_adds_half_lambda_theta_squared() {
    let (inner, _) = quadratic(4, 3);
    let (mut plain, _) = quadratic(4, 3);
    let lambda = vec![0.0, 0.3, 1.0, 2.0];
    let mut ridge = Ridge::new(inner, lambda.clone()).unwrap();
    let theta = [0.4, -1.0, 2.0, 0.3];
    let (mut g, mut h) = ([0.0; 4], [0.0; 4]);
    let difference =
        ridge.value_and_gradient(&theta, &mut g) - plain.value_and_gradient(&theta, &mut h);
    assert!((difference - 0.5 * (0.3 + 4.0 + 2.0 * 0.09)).abs() < 1e-12);
    for k in 0..4 {
        assert!((g[k] - h[k] - lambda[k] * theta[k]).abs() < 1e-14);
    }
    assert!(Ridge::new(plain, vec![1.0, -1.0, 0.0, 0.0]).is_err());
}

#[test]
fn two_threads_do_not_disturb_each_other() {
    for backend in backends() {
        let run = |seed: u64| {
            let (mut f, _) = quadratic(20, seed);
            let found = minimizer(backend, |_| {})
                .minimize(&mut f, &[0.0; 20])
                .unwrap();
            found.theta.iter().map(|t| t.to_bits()).collect::<Vec<_>>()
        };
        let alone: Vec<_> = (0..40).map(run).collect();
        std::thread::scope(|scope| {
            for half in 0..2 {
                let (alone, run) = (&alone, &run);
                scope.spawn(move || {
                    for seed in 0..40u64 {
                        let seed = if half == 0 { seed } else { 39 - seed };
                        assert_eq!(run(seed), alone[seed as usize]);
                    }
                });
            }
        });
    }
}

#[test]
fn bad_options_and_shapes_are_errors() {
    let options = |change: &dyn Fn(&mut MinimizerOptions)| {
        let mut options = MinimizerOptions::default();
        change(&mut options);
        Minimizer::new(options).unwrap_err()
    };
    assert!(matches!(
        options(&|o| o.gradient_tolerance = -1.0),
        Error::Option {
            name: "gradient_tolerance",
            ..
        }
    ));
    assert!(matches!(
        options(&|o| o.max_seconds = f64::NAN),
        Error::Option {
            name: "max_seconds",
            ..
        }
    ));
    assert!(matches!(
        options(&|o| o.memory = 0),
        Error::Option { name: "memory", .. }
    ));
    let run = |start: &[f64], lambda: &[f64]| {
        Minimizer::default()
            .minimize_l1(&mut rosenbrock(1.0), start, lambda, |_| {})
            .unwrap_err()
    };
    assert!(matches!(
        run(&[0.0], &[]),
        Error::Count {
            what: "entries of the start",
            ..
        }
    ));
    assert!(matches!(
        run(&[0.0, f64::NAN], &[]),
        Error::Entry { index: 1, .. }
    ));
    assert!(matches!(
        run(&[0.0; 2], &[1.0]),
        Error::Count {
            what: "entries of lambda",
            ..
        }
    ));
    assert!(matches!(
        run(&[0.0; 2], &[1.0, -1.0]),
        Error::Entry { index: 1, .. }
    ));
}

/// With the feature `lbfgsb` both backends must find the same minima.
#[cfg(feature = "lbfgsb")]
#[test]
fn both_backends_agree() {
    for seed in 0..10 {
        let lambda: Vec<f64> = (0..12).map(|k| 0.3 * (k % 3) as f64).collect();
        let run = |backend| {
            let (mut f, _) = quadratic(12, seed);
            minimizer(backend, |_| {})
                .minimize_l1(&mut f, &[0.1; 12], &lambda, |_| {})
                .unwrap()
        };
        let (ours, theirs) = (run(Backend::Basin), run(Backend::Lbfgsb));
        assert_eq!(ours.stop, theirs.stop);
        // Gradients within 1e-6, curvature at least ½.
        assert!(
            ours.theta
                .iter()
                .zip(&theirs.theta)
                .all(|(a, b)| (a - b).abs() < 1e-5)
        );
        assert_eq!(
            ours.theta.iter().map(|t| *t == 0.0).collect::<Vec<_>>(),
            theirs.theta.iter().map(|t| *t == 0.0).collect::<Vec<_>>()
        );
    }
}

/// Twenty parameters with a curved valley: L-BFGS needs its memory here.
fn valley(n: usize) -> impl Objective {
    from_fn(n, move |t: &[f64], g: &mut [f64]| {
        let mut value = 0.0;
        g.fill(0.0);
        for k in 0..n - 1 {
            let (a, b) = (t[k + 1] - t[k] * t[k], 1.3 - t[k]);
            value += 7.0 * a * a + b * b;
            g[k] += -28.0 * a * t[k] - 2.0 * b;
            g[k + 1] += 14.0 * a;
        }
        value
    })
}

/// The valley, rounded to single precision where rough numbers are allowed.
struct RoughValley<O> {
    exact: O,
    is_rough: bool,
}

impl<O: Objective> Objective for RoughValley<O> {
    fn n_params(&self) -> usize {
        self.exact.n_params()
    }

    fn value_and_gradient(&mut self, theta: &[f64], grad: &mut [f64]) -> f64 {
        let value = self.exact.value_and_gradient(theta, grad);
        if !self.is_rough {
            return value;
        }
        // Off by more than rounding: only an exact end can be right.
        grad.iter_mut()
            .for_each(|g| *g = f64::from(*g as f32) + 1e-6);
        f64::from(value as f32)
    }

    fn set_rough(&mut self, rough: bool) -> bool {
        self.is_rough = rough;
        rough
    }
}

fn rough_valley(n: usize) -> RoughValley<impl Objective> {
    RoughValley {
        exact: valley(n),
        is_rough: false,
    }
}

#[test]
fn rough_steps_lead_to_the_exact_minimum() {
    let cases = [
        (20, vec![], 1e-7),
        (20, vec![0.4; 20], 1e-7),
        (MANY, vec![], 1e-5),
    ];
    for (n, lambda, tolerance) in cases {
        let start = vec![0.3; n];
        let run = |rough_start: bool| {
            let minimizer = minimizer(Backend::Basin, |o| {
                o.gradient_tolerance = tolerance;
                o.rough_start = rough_start;
            });
            let mut objective = rough_valley(n);
            let minimum = minimizer.minimize_l1(&mut objective, &start, &lambda, |_| {});
            assert!(!objective.is_rough);
            minimum.unwrap()
        };
        let (rough, exact) = (run(true), run(false));
        assert_eq!(
            (rough.stop, exact.stop),
            (StopReason::Converged, StopReason::Converged)
        );
        assert_eq!(exact.rough_evaluations, 0);
        assert!(rough.rough_evaluations > 5 && rough.rough_evaluations < rough.evaluations);
        assert!(rough.kkt_residual <= tolerance);
        let exact_value = |theta: &[f64]| {
            let smooth = valley(n).value_and_gradient(theta, &mut vec![0.0; n]);
            smooth
                + theta
                    .iter()
                    .zip(&lambda)
                    .map(|(t, l)| l * t.abs())
                    .sum::<f64>()
        };
        assert!((rough.value - exact_value(&rough.theta)).abs() <= 1e-14 * rough.value);
        for (a, b) in rough.theta.iter().zip(&exact.theta) {
            // Residuals within the tolerance, and curvatures down to a tenth.
            assert!((a - b).abs() < 20.0 * tolerance, "{a} against {b}");
        }
        // A limit may be reached before: the value is exact all the same.
        let mut objective = rough_valley(n);
        let short = minimizer(Backend::Basin, |o| o.max_iterations = 3)
            .minimize_l1(&mut objective, &start, &lambda, |_| {})
            .unwrap();
        assert_eq!(short.stop, StopReason::IterationLimit);
        assert!((short.value - exact_value(&short.theta)).abs() <= 1e-14 * short.value);
    }
}

/// Rough values are rounded to 3e-5 here, and the last ten steps or so lower them by less. Judged by
/// such values, the search took 10 exact evaluations at the end and 51 in all.
#[test]
fn rough_steps_go_on_where_only_the_gradient_resolves_them() {
    let (n, start) = (20, [0.3; 20]);
    for lambda in [vec![], vec![0.4; n]] {
        let run = |rough_start: bool| {
            let mut plain = valley(n);
            let raised = from_fn(n, move |t: &[f64], g: &mut [f64]| {
                1000.0 + plain.value_and_gradient(t, g)
            });
            let mut objective = RoughValley {
                exact: raised,
                is_rough: false,
            };
            minimizer(Backend::Basin, |o| {
                o.gradient_tolerance = 1e-5;
                o.rough_start = rough_start;
            })
            .minimize_l1(&mut objective, &start, &lambda, |_| {})
            .unwrap()
        };
        let (rough, exact) = (run(true), run(false));
        assert_eq!(rough.stop, StopReason::Converged);
        let last = rough.evaluations - rough.rough_evaluations;
        assert!(last <= 8, "{last} of {}", rough.evaluations);
        assert!(rough.evaluations <= exact.evaluations + 6);
    }
}

/// So many parameters that L-BFGS has code of its own for them, if none has a bound.
const MANY: usize = 33_000;

#[test]
fn without_bounds_many_parameters_take_the_steps_of_l_bfgs_b() {
    let start: Vec<f64> = (0..MANY).map(|k| 0.8 + (k as f64 * 0.7).sin()).collect();
    let run = |lambda: &[f64]| {
        // The value is a sum of so many terms that it resolves no smaller gradient.
        minimizer(Backend::Basin, |o| o.gradient_tolerance = 1e-4)
            .minimize_l1(&mut valley(MANY), &start, lambda, |_| {})
            .unwrap()
    };
    let without = run(&[]);
    // A bound that no step comes near, and a penalty that no digit shows.
    let mut lambda = vec![0.0; MANY];
    lambda[0] = 1e-300;
    let with = run(&lambda);
    assert_eq!(without.stop, StopReason::Converged);
    assert_eq!(with.stop, StopReason::Converged);
    // The same numbers but for rounding, which grows from step to step.
    for (a, b) in without.trace.iter().zip(&with.trace).take(12) {
        assert_eq!(a.evaluations, b.evaluations);
        let off = (a.value / b.value - 1.0).abs();
        assert!(off < 1e-9, "{off:e} after {} steps", a.iteration);
    }
    let both = without.theta.iter().zip(&with.theta);
    // Residuals of 1e-4, and curvatures down to a tenth.
    let off = both.fold(0.0f64, |m, (a, b)| m.max((a - b).abs()));
    assert!(off < 2e-3, "{off:e}");
}

#[test]
fn threads_cannot_change_a_digit_of_many_parameters() {
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        let start = vec![0.3; MANY];
        let found = pool.install(|| Minimizer::default().minimize(&mut valley(MANY), &start));
        bits(&found.unwrap().theta)
    };
    assert_eq!(run(1), run(3));
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn a_resumed_run_ends_with_the_same_bits_wherever_it_was_stopped() {
    let few = (0..20).map(|k| 0.4 * (k % 3) as f64).collect();
    let cases = [(20, vec![], 1e-9), (20, few, 1e-9), (MANY, vec![], 1e-2)];
    for (n, lambda, gradient_tolerance) in cases {
        let start: Vec<f64> = (0..n).map(|k| (k as f64 * 0.7).sin()).collect();
        let run = |change: &dyn Fn(&mut MinimizerOptions)| {
            let mut options = MinimizerOptions {
                gradient_tolerance,
                memory: 5,
                ..Default::default()
            };
            change(&mut options);
            Minimizer::new(options)
                .unwrap()
                .minimize_l1(&mut rough_valley(n), &start, &lambda, |_| {})
                .unwrap()
        };
        let whole = run(&|_| {});
        assert!(whole.iterations > 10 && whole.rough_evaluations > 5);
        // The state is written at the start and after every iteration; large ones are tried at two.
        let (first, every) = match n {
            MANY => (whole.iterations / 3, whole.iterations / 2),
            _ => (0, 1),
        };
        for k in (first..=whole.iterations).step_by(every) {
            let file = StopAfter::new(k + 1);
            let stopped = run(&|o| {
                o.cancel = file.cancel().clone();
                o.checkpoint = file.checkpoint();
            });
            assert_eq!(stopped.iterations, k);
            let (_, checkpoint) = file.resumed();
            let resumed = run(&|o| o.checkpoint = checkpoint.clone());
            assert_eq!(
                bits(&resumed.theta),
                bits(&whole.theta),
                "from iteration {k}"
            );
            assert_eq!(resumed.value.to_bits(), whole.value.to_bits());
            assert_eq!(
                (resumed.iterations, resumed.evaluations, resumed.stop),
                (whole.iterations, whole.evaluations, whole.stop)
            );
            assert_eq!(resumed.rough_evaluations, whole.rough_evaluations);
            assert_eq!(resumed.trace.len(), whole.trace.len());
            // The last point of a run that stops is exact.
            assert_eq!(resumed.trace[..k], stopped.trace[..k]);
            assert!(resumed.seconds >= stopped.trace[k].seconds);
        }
    }
}

#[test]
fn a_cancelled_run_can_be_resumed_and_other_problems_are_refused() {
    let file = StopAfter::new(usize::MAX);
    let checkpoint = file.checkpoint();
    let start = vec![0.0; 12];
    let stopped = minimizer(Backend::Basin, |o| {
        o.cancel = file.cancel().clone();
        o.checkpoint = checkpoint.clone();
    })
    .minimize_l1(&mut valley(12), &start, &[], |p| {
        if p.iteration == 6 {
            file.cancel().cancel();
        }
    })
    .unwrap();
    assert_eq!(
        (stopped.stop, stopped.iterations),
        (StopReason::Cancelled, 6)
    );
    let other = |n: usize, lambda: &[f64], checkpoint| {
        minimizer(Backend::Basin, |o| o.checkpoint = checkpoint)
            .minimize_l1(&mut valley(n), &vec![0.0; n], lambda, |_| {})
            .unwrap_err()
    };
    for error in [
        other(13, &[], checkpoint.clone()),
        other(12, &[1.0; 12], checkpoint.clone()),
        other(12, &[], in_memory("something else")),
        other(12, &[], in_memory(7u8)),
    ] {
        assert!(matches!(error, Error::Checkpoint { .. }), "{error}");
    }

    // The run goes on from the iteration that was cancelled; once finished it ends at once.
    let whole = Minimizer::default()
        .minimize(&mut valley(12), &start)
        .unwrap();
    for expected in [7, whole.iterations + 1] {
        let mut first = None;
        let resumed = minimizer(Backend::Basin, |o| o.checkpoint = checkpoint.clone())
            .minimize_l1(&mut valley(12), &start, &[], |p| {
                first.get_or_insert(p.iteration);
            })
            .unwrap();
        assert_eq!(bits(&resumed.theta), bits(&whole.theta));
        assert_eq!(resumed.stop, whole.stop);
        assert_eq!(first.unwrap_or(whole.iterations + 1), expected);
    }
}
