//! Fits: the truth from the exact population, penalties where they belong, supports, warnings.

use mpf_core::rng::stream;
use mpf_core::{Cancel, FlowForm, Objective, StopReason};
use mpf_ising::internal::{n_packed, packed_index};
use mpf_ising::{
    Biases, Couplings, Error, Exact, FitOptions, Fitter, IsingFlow, Mode, Mpf, Neighbourhood,
    Samples, Support, Warning,
};
use mpf_testkit::{StopAfter, exact_samples, in_memory, random_couplings};
use ndarray::{Array2, array};
use rand::RngExt;

fn draws(couplings: &Couplings, n: usize, seed: u64) -> Samples {
    Samples::new(&Exact::new(couplings).unwrap().draw(n, seed)).unwrap()
}

fn fitter(change: impl FnOnce(&mut FitOptions)) -> Fitter {
    fitter_of(Mpf::default(), change)
}

fn fitter_of(mpf: Mpf, change: impl FnOnce(&mut FitOptions)) -> Fitter {
    let mut options = FitOptions::default();
    // About what sums near 5 resolve: √(5 ε) ~ 3e-8.
    options.minimizer.gradient_tolerance = 1e-7;
    change(&mut options);
    Fitter::new(mpf, options).unwrap()
}

fn largest_difference(a: &Couplings, b: &Couplings) -> f64 {
    let difference = a.as_array() - b.as_array();
    difference.iter().fold(0.0, |m, e| m.max(e.abs()))
}

/// ∂K/∂h_i and ∂K/∂K_ij of the flow at J, from the gradient in the paper's parameters:
/// ∂/∂J_ii = −½ ∂/∂h_i and ∂/∂J_ij = −½ (∂/∂K_ij + ∂/∂h_i + ∂/∂h_j).
fn spin_gradient(samples: &Samples, couplings: &Couplings) -> (Vec<f64>, Array2<f64>) {
    let d = couplings.n_units();
    let mut flow = IsingFlow::new(samples, Neighbourhood::SingleFlips, FlowForm::Sum).unwrap();
    let mut grad = vec![0.0; n_packed(d)];
    flow.value_and_gradient(&couplings.pack(), &mut grad);
    let fields: Vec<f64> = (0..d).map(|i| -2.0 * grad[packed_index(d, i, i)]).collect();
    let pairs = Array2::from_shape_fn((d, d), |(i, j)| {
        if i < j {
            -2.0 * grad[packed_index(d, i, j)] - fields[i] - fields[j]
        } else {
            0.0
        }
    });
    (fields, pairs)
}

#[test]
fn every_form_recovers_the_truth_from_the_exact_population() {
    let truth = random_couplings(6, 1.2, 1);
    let samples = exact_samples(&truth);
    let log = Mpf {
        form: FlowForm::Log,
        ..Mpf::default()
    };
    let complement = Mpf {
        neighbourhood: Neighbourhood::SingleFlipsAndComplement,
        ..Mpf::default()
    };
    let variants = [
        ("joint", Mpf::default(), Mode::Joint),
        ("node-wise", Mpf::default(), Mode::NodeWise),
        ("logarithm", log, Mode::Joint),
        ("node-wise logarithm", log, Mode::NodeWise),
        ("complement", complement, Mode::Joint),
    ];
    for (name, mpf, mode) in variants {
        let fit = fitter_of(mpf, |o| o.mode = mode).fit(&samples).unwrap();
        // Gradients of 1e-7 over a curvature of about 0.1.
        assert!(
            largest_difference(&fit.couplings, &truth) < 1e-5,
            "{name}: {fit:?}"
        );
        assert_eq!(fit.left_out_fraction, 0.0);
    }
}

#[test]
fn errors_shrink_with_the_samples() {
    // ε_J is a mean of squared errors, each falling as 1/M.
    let truth = random_couplings(8, 0.8, 2);
    let error = |n: usize| {
        let mean: f64 = (0..4)
            .map(|seed| {
                let fit = fitter(|_| {}).fit(&draws(&truth, n, seed)).unwrap();
                fit.couplings.mean_square_error(&truth)
            })
            .sum();
        mean / 4.0
    };
    let ratio = error(2_000) / error(32_000);
    // 16 on average. A mean of 36 × 4 squares has a relative error of √(2/144) = 12 %, correlated
    // entries perhaps twice that: within a factor of two.
    assert!((8.0..32.0).contains(&ratio), "{ratio}");
}

#[test]
fn penalties_are_on_the_spin_couplings_and_fields() {
    // Unequal means, so that standardised units and spins differ.
    let truth = Couplings::new(array![
        [1.5, -0.8, 0.3, 0.0],
        [-0.8, 0.2, 0.0, 0.9],
        [0.3, 0.0, -0.6, 0.1],
        [0.0, 0.9, 0.1, 2.0]
    ])
    .unwrap();
    let samples = draws(&truth, 2_000, 3);
    let (l1, l2) = (0.03, 0.2);
    let fit = fitter(|o| {
        o.l1 = l1;
        o.l2 = l2;
        o.l2_on_fields = true;
    })
    .fit(&samples)
    .unwrap();
    let spins = fit.couplings.to_spins();
    let (fields, pairs) = spin_gradient(&samples, &fit.couplings);
    let mut value_of_penalties = 0.0;
    for i in 0..4 {
        assert!((fields[i] + l2 * spins.fields[i]).abs() < 1e-6);
        value_of_penalties += 0.5 * l2 * spins.fields[i].powi(2);
        for j in i + 1..4 {
            let k = spins.couplings[[i, j]];
            value_of_penalties += 0.5 * l2 * k * k + l1 * k.abs();
            let smooth = pairs[[i, j]] + l2 * k;
            if k == 0.0 {
                assert!(smooth.abs() <= l1 + 1e-6);
            } else {
                assert!((smooth + l1 * k.signum()).abs() < 1e-6);
            }
        }
    }
    let mut flow = IsingFlow::new(&samples, Neighbourhood::SingleFlips, FlowForm::Sum).unwrap();
    let k = flow.value_and_gradient(&fit.couplings.pack(), &mut [0.0; 10]);
    assert!((fit.value - k - value_of_penalties).abs() < 1e-10);
    assert!(fit.kkt_residual <= 1e-7);

    // Without `l2_on_fields` the fields feel no penalty.
    let free = fitter(|o| o.l2 = l2).fit(&samples).unwrap();
    let (fields, pairs) = spin_gradient(&samples, &free.couplings);
    let spins = free.couplings.to_spins();
    assert!(fields.iter().all(|g| g.abs() < 1e-6));
    assert!((pairs[[0, 1]] + l2 * spins.couplings[[0, 1]]).abs() < 1e-6);
}

#[test]
fn node_wise_penalties_sum_to_the_joint_ones() {
    // With J_ij = J_ji tied the rows' objectives add up to the joint one. On a symmetric problem
    // (two units, equal means) the rows agree with each other, and so with the joint fit.
    let truth = Couplings::from_spins(&mpf_ising::SpinCouplings {
        fields: array![0.2, 0.2],
        couplings: array![[0.0, 0.5], [0.5, 0.0]],
    })
    .unwrap();
    let samples = exact_samples(&truth);
    for (l1, l2) in [(0.1, 0.0), (0.0, 0.3)] {
        let options = |o: &mut FitOptions| (o.l1, o.l2) = (l1, l2);
        let joint = fitter(options).fit(&samples).unwrap();
        let rows = fitter(|o| {
            options(o);
            o.mode = Mode::NodeWise;
        })
        .fit(&samples)
        .unwrap();
        assert!(largest_difference(&joint.couplings, &rows.couplings) < 1e-5);
        assert!((joint.value - rows.value).abs() < 1e-9);
        assert!(rows.asymmetry.unwrap() < 1e-5);
        assert!(joint.couplings.get(0, 1).abs() < 0.95 * truth.get(0, 1).abs());
    }
}

#[test]
fn only_the_support_is_free() {
    let samples = draws(&random_couplings(5, 1.0, 4), 3_000, 5);
    let edges = vec![(0, 1), (3, 2), (4, 0)];
    for mode in [Mode::Joint, Mode::NodeWise] {
        let fit = fitter(|o| {
            o.support = Support::Edges(edges.clone());
            o.mode = mode;
        })
        .fit(&samples)
        .unwrap();
        for i in 0..5 {
            for j in 0..i {
                let free = edges.contains(&(i, j)) || edges.contains(&(j, i));
                assert_eq!(fit.couplings.get(i, j) != 0.0, free);
            }
        }
        if mode == Mode::Joint {
            let (fields, pairs) = spin_gradient(&samples, &fit.couplings);
            assert!(fields.iter().all(|g| g.abs() < 1e-6));
            assert!(
                [(0, 1), (2, 3), (0, 4)]
                    .iter()
                    .all(|&e| pairs[e].abs() < 1e-6)
            );
        }
    }
}

#[test]
fn fixed_biases_and_fields_stay() {
    let samples = draws(&random_couplings(4, 1.0, 6), 3_000, 7);
    let values = vec![0.3, -0.2, 0.5, 0.1];
    for mode in [Mode::Joint, Mode::NodeWise] {
        let fit = fitter(|o| {
            o.biases = Biases::Fixed(values.clone());
            o.mode = mode;
        })
        .fit(&samples)
        .unwrap();
        for (i, v) in values.iter().enumerate() {
            assert!((fit.couplings.get(i, i) - v).abs() < 1e-13);
        }
        if mode == Mode::Joint {
            // Stationary in J_ij with J_ii held: the paper's own gradient.
            let mut flow =
                IsingFlow::new(&samples, Neighbourhood::SingleFlips, FlowForm::Sum).unwrap();
            let mut grad = [0.0; 10];
            flow.value_and_gradient(&fit.couplings.pack(), &mut grad);
            for i in 0..4 {
                for j in i + 1..4 {
                    assert!(grad[packed_index(4, i, j)].abs() < 1e-6);
                }
            }
        }
        let fit = fitter(|o| {
            o.biases = Biases::FixedFields(values.clone());
            o.mode = mode;
        })
        .fit(&samples)
        .unwrap();
        let spins = fit.couplings.to_spins();
        assert!(
            spins
                .fields
                .iter()
                .zip(&values)
                .all(|(a, b)| (a - b).abs() < 1e-13)
        );
        if mode == Mode::Joint {
            let (_, pairs) = spin_gradient(&samples, &fit.couplings);
            assert!(pairs.iter().all(|g| g.abs() < 1e-6));
        }
    }
}

#[test]
fn the_start_does_not_matter_and_is_where_it_starts() {
    let samples = draws(&random_couplings(5, 1.0, 8), 2_000, 9);
    let plain = fitter(|_| {}).fit(&samples).unwrap();
    let start = random_couplings(5, 0.5, 10);
    let mut first = None;
    let from_start = fitter(|o| o.start = Some(start.clone()))
        .fit_observed(&samples, |p| {
            first.get_or_insert_with(|| p.couplings());
        })
        .unwrap();
    assert!(largest_difference(&first.unwrap(), &start) < 1e-13);
    assert!(largest_difference(&plain.couplings, &from_start.couplings) < 1e-5);
}

#[test]
fn observers_see_the_couplings_and_cancelling_keeps_them() {
    let samples = draws(&random_couplings(6, 1.0, 11), 2_000, 12);
    let cancel = Cancel::new();
    let mut last = None;
    let fit = fitter(|o| o.minimizer.cancel = cancel.clone())
        .fit_observed(&samples, |p| {
            last = Some(p.couplings());
            if p.iteration == 3 {
                cancel.cancel();
            }
        })
        .unwrap();
    assert_eq!((fit.stop, fit.iterations), (StopReason::Cancelled, 3));
    assert_eq!(last.unwrap(), fit.couplings);
    assert!(matches!(
        fit.warnings[..],
        [Warning::NotConverged {
            stop: StopReason::Cancelled,
            ..
        }]
    ));

    let mut units = 0;
    let rows = fitter(|o| o.mode = Mode::NodeWise)
        .fit_observed(&samples, |p| {
            // Two units may be told of at once.
            assert!(p.iteration > units);
            units = p.iteration;
        })
        .unwrap();
    assert_eq!(units, 6);
    assert_eq!(rows.trace.len(), 6);
}

#[test]
fn constant_units_are_set_aside_and_named() {
    let truth = random_couplings(4, 1.0, 13);
    let clean = draws(&truth, 1_000, 14);
    let binary = Exact::new(&truth).unwrap().draw(1_000, 14).to_binary();
    let mut data = Array2::<u8>::zeros((1_000, 6));
    for (to, from) in [(0, 0), (2, 1), (3, 2), (5, 3)] {
        data.column_mut(to).assign(&binary.column(from));
    }
    data.column_mut(4).fill(1);
    let samples = Samples::from_binary(data.view()).unwrap();
    let expected = fitter(|_| {}).fit(&clean).unwrap();
    for mode in [Mode::Joint, Mode::NodeWise] {
        let fit = fitter(|o| o.mode = mode).fit(&samples).unwrap();
        assert!(matches!(
            &fit.warnings[..],
            [Warning::ConstantUnits { zeros, ones }] if *zeros == [1] && *ones == [4]
        ));
        // p = (0 + ½)/(1000 + 1): J_ii = ln((1 − p)/p) = ln 2001; the other way for the ones.
        assert!((fit.couplings.get(1, 1) - 2001f64.ln()).abs() < 1e-12);
        assert!((fit.couplings.get(4, 4) + 2001f64.ln()).abs() < 1e-12);
        assert!(
            (0..6)
                .filter(|&j| j != 1)
                .all(|j| fit.couplings.get(1, j) == 0.0)
        );
        if mode == Mode::Joint {
            // The others are what they are without the constant ones.
            for (a, i) in [0, 2, 3, 5].into_iter().enumerate() {
                for (b, j) in [0, 2, 3, 5].into_iter().enumerate() {
                    let difference = fit.couplings.get(i, j) - expected.couplings.get(a, b);
                    assert!(difference.abs() < 1e-5);
                }
            }
        }
    }
}

#[test]
fn separable_pairs_and_run_away_couplings_are_named() {
    // Units 0 and 1 never fire together; unit 2 is independent.
    let mut rng = stream(15, 0);
    let data = Array2::from_shape_fn((400, 3), |(m, i)| {
        u8::from(match i {
            0 => m % 3 == 0,
            1 => m % 3 == 1,
            _ => rng.random::<bool>(),
        })
    });
    let samples = Samples::from_binary(data.view()).unwrap();
    let fit = fitter(|o| o.minimizer.max_iterations = 200)
        .fit(&samples)
        .unwrap();
    assert!(fit.couplings.as_array().iter().all(|v| v.is_finite()));
    assert!(fit.warnings.iter().any(|w| matches!(
        w,
        Warning::SeparablePairs { pairs } if *pairs == [(0, 1)]
    )));
    assert!(fit.warnings.iter().any(|w| matches!(
        w,
        Warning::RunAwayCouplings { couplings, .. }
            if (couplings[0].0, couplings[0].1) == (0, 1) && couplings[0].2 < 0.0
    )));
    // A penalty cures both.
    let cured = fitter(|o| o.l2 = 0.01).fit(&samples).unwrap();
    assert!(cured.warnings.is_empty(), "{:?}", cured.warnings);
}

#[test]
fn leaving_flips_out_is_measured_and_warned_of() {
    // Two units, three of four states: most flips are data states.
    let data = array![[0u8, 0], [1, 0], [0, 1], [0, 0], [0, 0], [1, 0]];
    let samples = Samples::from_binary(data.view()).unwrap();
    let mpf = Mpf {
        neighbourhood: Neighbourhood::OutsideData,
        ..Mpf::default()
    };
    let fitter = fitter_of(mpf, |o| {
        o.l2 = 0.1;
        o.l2_on_fields = true;
    });
    let fit = fitter.fit(&samples).unwrap();
    assert_eq!(fit.left_out_fraction, (3.0 * 2.0 + 2.0 + 1.0) / 12.0);
    assert!(
        fit.warnings
            .iter()
            .any(|w| matches!(w, Warning::FlipsLeftOut { .. }))
    );

    // Only the first two rows are neighbours: 2 of 8 n flips, which is 5 % of 5 rows.
    let rows: [u8; 6] = [0b0, 0b1, 0b0110_0000, 0b0001_1110, 0b1111_0011, 0b1000_1100];
    for n in [5, 6] {
        let data = Array2::from_shape_fn((n, 8), |(row, unit)| rows[row] >> unit & 1);
        let samples = Samples::from_binary(data.view()).unwrap();
        let fit = fitter.fit(&samples).unwrap();
        assert_eq!(fit.left_out_fraction, 2.0 / (8 * n) as f64);
        let told =
            |w: &Warning| matches!(w, Warning::FlipsLeftOut { fraction } if *fraction == 0.05);
        assert_eq!(fit.warnings.iter().any(told), n == 5, "{:?}", fit.warnings);
    }

    let all = array![[0u8, 0], [1, 0], [0, 1], [1, 1]];
    let samples = Samples::from_binary(all.view()).unwrap();
    assert_eq!(fitter.fit(&samples).unwrap_err(), Error::NoFlipsLeft);
}

#[test]
fn repeats_and_weights_are_the_same_data() {
    let states = Exact::new(&random_couplings(4, 1.0, 16))
        .unwrap()
        .draw(500, 17);
    let once = Samples::new(&states).unwrap();
    let distinct = once.states().clone();
    let weighted = Samples::weighted(&distinct, once.weights().unwrap()).unwrap();
    let (a, b) = (
        fitter(|_| {}).fit(&once).unwrap(),
        fitter(|_| {}).fit(&weighted).unwrap(),
    );
    assert_eq!(a.couplings, b.couplings);
    // Only ratios of weights matter.
    let scaled: Vec<f64> = once.weights().unwrap().iter().map(|w| 0.125 * w).collect();
    let c = fitter(|_| {})
        .fit(&Samples::weighted(&distinct, &scaled).unwrap())
        .unwrap();
    assert!(largest_difference(&a.couplings, &c.couplings) < 1e-5);
}

#[test]
fn the_thread_count_cannot_change_a_digit() {
    let samples = draws(&random_couplings(12, 0.6, 18), 20_000, 19);
    for mode in [Mode::Joint, Mode::NodeWise] {
        let bits = |threads: usize| -> Vec<u64> {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            let fit = pool.install(|| fitter(|o| o.mode = mode).fit(&samples).unwrap());
            let couplings = fit.couplings.as_array().iter().copied();
            couplings.chain([fit.value]).map(f64::to_bits).collect()
        };
        let one = bits(1);
        for threads in [2, 3, 8] {
            assert_eq!(bits(threads), one);
        }
    }
}

#[test]
fn small_and_degenerate_data_give_an_answer_or_an_error() {
    // One unit: only a bias. K = ¾ e^{−h} + ¼ e^{h} has its minimum at e^{2h} = 3, J = −ln 3.
    let one = Samples::from_binary(array![[1u8], [1], [0], [1]].view()).unwrap();
    let fit = fitter(|_| {}).fit(&one).unwrap();
    assert!((fit.couplings.get(0, 0) + 3f64.ln()).abs() < 1e-6);

    let constant = Samples::from_binary(Array2::<u8>::ones((5, 3)).view()).unwrap();
    assert_eq!(
        fitter(|_| {}).fit(&constant).unwrap_err(),
        Error::NothingFree
    );
    let single = Samples::from_binary(array![[0u8, 1, 1]].view()).unwrap();
    assert_eq!(fitter(|_| {}).fit(&single).unwrap_err(), Error::NothingFree);

    let fit = |change: fn(&mut FitOptions)| fitter(change).fit(&one).unwrap_err();
    assert!(matches!(
        fit(|o| o.start = Some(Couplings::zeros(2).unwrap())),
        Error::UnitCount {
            expected: 1,
            found: 2,
            ..
        }
    ));
    assert!(matches!(
        fit(|o| o.biases = Biases::Fixed(vec![0.0; 3])),
        Error::UnitCount {
            expected: 1,
            found: 3,
            ..
        }
    ));
    assert!(matches!(
        fit(|o| o.support = Support::Edges(vec![(0, 1)])),
        Error::Edge {
            i: 0,
            j: 1,
            n_units: 1
        }
    ));
    let bad = |change: fn(&mut FitOptions)| {
        let mut options = FitOptions::default();
        change(&mut options);
        Fitter::new(Mpf::default(), options).unwrap_err()
    };
    for (error, expected) in [
        (bad(|o| o.l1 = -1.0), "l1"),
        (bad(|o| o.l2 = f64::NAN), "l2"),
        (bad(|o| o.minimizer.memory = 0), "memory"),
    ] {
        assert!(
            matches!(error, Error::Core(mpf_core::Error::Option { name, .. }) if name == expected),
            "{error}"
        );
    }
    let complement = Mpf {
        neighbourhood: Neighbourhood::SingleFlipsAndComplement,
        ..Mpf::default()
    };
    let options = FitOptions {
        mode: Mode::NodeWise,
        ..FitOptions::default()
    };
    assert_eq!(
        Fitter::new(complement, options).unwrap_err(),
        Error::NodeWiseComplement
    );
}

/// With the feature `lbfgsb` a fit by the C code is the same fit.
#[cfg(feature = "lbfgsb")]
#[test]
fn both_backends_find_the_same_couplings() {
    let samples = draws(&random_couplings(8, 1.0, 20), 3_000, 21);
    for l1 in [0.0, 0.02] {
        let ours = fitter(|o| o.l1 = l1).fit(&samples).unwrap();
        let theirs = fitter(|o| {
            o.l1 = l1;
            o.minimizer.backend = mpf_core::Backend::Lbfgsb;
        })
        .fit(&samples)
        .unwrap();
        assert!(ours.stop.is_converged() && theirs.stop.is_converged());
        assert!(largest_difference(&ours.couplings, &theirs.couplings) < 1e-5);
    }
    // Node by node, in threads that share the one lock of the C code.
    let samples = draws(&random_couplings(14, 0.4, 25), 20_000, 26);
    let rows = |backend| {
        fitter(|o| {
            o.mode = Mode::NodeWise;
            o.minimizer.backend = backend;
        })
        .fit(&samples)
        .unwrap()
    };
    let ours = rows(mpf_core::Backend::Basin);
    let theirs = rows(mpf_core::Backend::Lbfgsb);
    assert!(largest_difference(&ours.couplings, &theirs.couplings) < 1e-5);
}

#[test]
fn node_wise_observers_may_work_in_parallel_and_do_not_count() {
    use rayon::prelude::*;
    use std::time::Instant;
    let samples = draws(&random_couplings(10, 0.5, 22), 12_000, 23);
    let began = Instant::now();
    let mut observed = 0.0;
    let fit = fitter(|o| o.mode = Mode::NodeWise)
        .fit_observed(&samples, |_| {
            let start = Instant::now();
            // A worker that waits for this may be given another unit to fit.
            (0..64)
                .into_par_iter()
                .for_each(|_| std::thread::sleep(std::time::Duration::from_millis(1)));
            observed += start.elapsed().as_secs_f64();
        })
        .unwrap();
    assert!(fit.stop.is_converged());
    assert!(fit.seconds <= began.elapsed().as_secs_f64() - observed);
}

#[test]
fn rows_without_time_are_not_begun() {
    let d = 40;
    let mut rng = stream(3, 0);
    let rows = Array2::from_shape_fn((200, d), |_| u8::from(rng.random::<f64>() < 0.3));
    let samples = Samples::from_binary(rows.view()).unwrap();
    let fitter = fitter(|o| {
        o.mode = Mode::NodeWise;
        o.l2 = 0.01;
        o.minimizer.cancel = Cancel::new().within(0.0);
    });
    let fit = fitter.fit(&samples).unwrap();
    assert_eq!(fit.stop, StopReason::TimeLimit);
    // As many as threads may begin before one has ended.
    let at_once = rayon::current_num_threads();
    assert!(
        fit.evaluations <= at_once,
        "{} evaluations",
        fit.evaluations
    );
    let none = Couplings::new(Array2::zeros((d, d))).unwrap();
    assert_eq!(largest_difference(&fit.couplings, &none), 0.0);
    let value = fitter.objective_value(&none, &samples).unwrap();
    assert!(
        (fit.value - value).abs() < 1e-12 * value,
        "{} {value}",
        fit.value
    );
}

#[test]
fn a_unit_without_flips_cannot_be_fitted_by_itself() {
    // Unit 0 is flipped by another sample in every state; unit 1 is not.
    let data = array![[0u8, 0, 1], [1, 0, 1], [0, 1, 0], [1, 1, 0]];
    let samples = Samples::from_binary(data.view()).unwrap();
    let mpf = Mpf {
        neighbourhood: Neighbourhood::OutsideData,
        ..Mpf::default()
    };
    let fitter = fitter_of(mpf, |o| o.mode = Mode::NodeWise);
    let error = fitter.fit(&samples).unwrap_err();
    assert_eq!(error, Error::NoFlipsLeftOfUnit { unit: 0 });
}

#[test]
fn probabilities_as_weights_raise_no_false_alarm() {
    // |K| up to 1.5, which a thousand states determine; weights that sum to 1 are not one sample.
    let truth = random_couplings(10, 3.0, 24);
    let fit = fitter(|_| {}).fit(&exact_samples(&truth)).unwrap();
    let alarm = |w: &Warning| matches!(w, Warning::RunAwayCouplings { .. });
    assert!(!fit.warnings.iter().any(alarm), "{:?}", fit.warnings);
    assert!(largest_difference(&fit.couplings, &truth) < 1e-3);
}

#[test]
fn a_fit_that_was_stopped_goes_on_to_the_same_bits() {
    let samples = draws(&random_couplings(9, 0.8, 5), 3000, 5);
    for (l1, mode) in [
        (0.0, Mode::Joint),
        (0.02, Mode::Joint),
        (0.0, Mode::NodeWise),
        (0.02, Mode::NodeWise),
    ] {
        let whole = fitter(|o| (o.l1, o.mode) = (l1, mode))
            .fit(&samples)
            .unwrap();
        for writes in [1, 2, 5, 9] {
            let file = StopAfter::new(writes);
            let stopped = fitter(|o| {
                (o.l1, o.mode) = (l1, mode);
                o.minimizer.checkpoint = file.checkpoint();
                o.minimizer.cancel = file.cancel().clone();
            });
            let stopped = stopped.fit(&samples).unwrap();
            if mode == Mode::Joint {
                assert_eq!(stopped.stop, StopReason::Cancelled);
            }
            let (_, checkpoint) = file.resumed();
            let mut made = 0;
            let resumed = fitter(|o| {
                (o.l1, o.mode) = (l1, mode);
                o.minimizer.checkpoint = checkpoint;
            });
            let resumed = resumed.fit_observed(&samples, |_| made += 1).unwrap();
            if mode == Mode::Joint {
                let left = whole.iterations - stopped.iterations;
                assert_eq!(made, left, "nothing is done twice");
            }
            assert_eq!(resumed.couplings, whole.couplings, "{mode:?} {writes}");
            assert_eq!(resumed.value.to_bits(), whole.value.to_bits());
            assert_eq!(resumed.trace.len(), whole.trace.len());
            assert_eq!(resumed.evaluations, whole.evaluations);
            assert_eq!(resumed.warnings, whole.warnings);
            assert_eq!(resumed.asymmetry, whole.asymmetry);
        }
    }
}

#[test]
fn rows_that_are_done_are_not_fitted_again() {
    let samples = draws(&random_couplings(6, 0.8, 6), 500, 6);
    let run = |checkpoint: mpf_core::Checkpoint, change: fn(&mut FitOptions)| {
        fitter(|o| {
            o.mode = Mode::NodeWise;
            o.minimizer.checkpoint = checkpoint;
            change(o);
        })
        .fit(&samples)
    };
    let file = StopAfter::new(usize::MAX);
    let whole = run(file.checkpoint(), |_| {}).unwrap();
    // Without a single evaluation left, only rows that were done already can come out.
    let again = run(file.resumed().1, |o| o.minimizer.max_evaluations = 0).unwrap();
    assert_eq!(again.couplings, whole.couplings);
    assert_eq!(again.stop, StopReason::Converged);
    // Rows with other couplings are of another problem.
    let other = run(file.resumed().1, |o| {
        o.support = Support::Edges(vec![(0, 1)]);
    });
    assert!(matches!(
        other.unwrap_err(),
        Error::Core(mpf_core::Error::Checkpoint { .. })
    ));
}

#[test]
fn forged_states_are_errors_and_no_panics() {
    let samples = draws(&random_couplings(4, 0.8, 7), 200, 7);
    let joint = |checkpoint| {
        let fitter = fitter(|o| o.minimizer.checkpoint = checkpoint);
        fitter.fit(&samples).unwrap_err()
    };
    for error in [
        joint(in_memory("not a state")),
        joint(in_memory((1u8, vec![f64::NAN]))),
    ] {
        assert!(
            matches!(error, Error::Core(mpf_core::Error::Checkpoint { .. })),
            "{error}"
        );
    }
    let checkpoint = StopAfter::new(usize::MAX).checkpoint();
    checkpoint.entry("seconds").note("not a number");
    let fitter = fitter(|o| {
        o.mode = Mode::NodeWise;
        o.minimizer.checkpoint = checkpoint;
    });
    assert!(matches!(
        fitter.fit(&samples).unwrap_err(),
        Error::Core(mpf_core::Error::Checkpoint { .. })
    ));
}

#[test]
fn steps_in_single_precision_end_in_double() {
    // From 256 units on.
    let (d, n) = (260, 1500);
    let mut rng = stream(11, 0);
    let data = ndarray::Array2::from_shape_simple_fn((n, d), || rng.random::<f64>() < 0.4);
    let samples = Samples::from_binary(data.view()).unwrap();
    let fit = |rough_start: bool, threads: usize| {
        let mut options = FitOptions {
            l2: 0.1,
            ..FitOptions::default()
        };
        options.minimizer.gradient_tolerance = 1e-7;
        options.minimizer.rough_start = rough_start;
        let fitter = Fitter::new(Mpf::default(), options).unwrap();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build()
            .unwrap()
            .install(|| fitter.fit(&samples))
            .unwrap()
    };
    let (rough, double) = (fit(true, 1), fit(false, 1));
    assert_eq!(double.single_precision_evaluations, 0);
    let single = rough.single_precision_evaluations;
    assert!(
        single > 3 && single < rough.evaluations,
        "{single} of {}",
        rough.evaluations
    );
    assert_eq!(
        (rough.stop, double.stop),
        (StopReason::Converged, StopReason::Converged)
    );
    let (a, b) = (rough.couplings.to_spins(), double.couplings.to_spins());
    let off = (&a.couplings - &b.couplings).mapv(f64::abs);
    assert!(off.iter().all(|off| *off < 1e-7));
    assert_eq!(fit(true, 2).couplings, rough.couplings);
}
