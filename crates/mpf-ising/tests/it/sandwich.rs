//! Standard errors: the sandwich against its definition from single samples, the bootstrap against
//! the sandwich, and coverage.

use crate::logistic::Logistic;
use mpf_core::Objective;
use mpf_core::linalg::positive_definite_inverse;
use mpf_core::rng::stream;
use mpf_ising::{
    Biases, BootstrapOptions, Couplings, ErrorBars, Estimator, Exact, FitOptions, Fitter,
    MarginEstimator, Mode, Mpf, Neighbourhood, Samples, States, Support, Terms, bootstrap,
};
use mpf_samplers::Gibbs;
use mpf_testkit::{StopAfter, random_couplings, seed, spin_theta};
use ndarray::{Array1, Array2};
use rand::RngExt;

fn draws(couplings: &Couplings, n: usize, seed: u64) -> States {
    let exact = Exact::new(couplings).unwrap();
    exact.draw(n, seed)
}

fn fitter(change: impl FnOnce(&mut FitOptions)) -> Fitter {
    fitter_of(&Mpf::default(), change)
}

fn fitter_of<E: Estimator + Clone>(
    estimator: &E,
    change: impl FnOnce(&mut FitOptions),
) -> Fitter<E> {
    let mut options = FitOptions::default();
    options.minimizer.gradient_tolerance = 1e-9;
    change(&mut options);
    Fitter::new(estimator.clone(), options).unwrap()
}

/// Gradients of rows: for every unit (h_i, K_ij for j ≠ i), unit after unit.
fn row_gradients(
    estimator: &(impl Estimator + Clone),
    samples: &Samples,
    theta: &[f64],
    by_node: bool,
) -> Array1<f64> {
    let d = samples.n_units();
    let all: Vec<(usize, usize)> = Support::Full.pairs(d).unwrap();
    if !by_node {
        let mut grad = vec![0.0; theta.len()];
        let terms = Terms::new(samples, 0..d, all).unwrap();
        estimator
            .objective(terms)
            .value_and_gradient(theta, &mut grad);
        return grad.into();
    }
    let mut rows = Vec::new();
    for unit in 0..d {
        let pairs: Vec<_> = all
            .iter()
            .copied()
            .filter(|&(i, j)| i == unit || j == unit)
            .collect();
        let part = &theta[unit * d..(unit + 1) * d];
        let mut grad = vec![0.0; d];
        let terms = Terms::new(samples, unit..unit + 1, pairs).unwrap();
        estimator
            .objective(terms)
            .value_and_gradient(part, &mut grad);
        rows.extend(grad);
    }
    rows.into()
}

/// The definition: ∇f sample by sample from the fast objective, ∇²F by differences, the product
/// of three matrices, and the linear map to (h, J_ii, K).
fn by_definition(
    estimator: &(impl Estimator + Clone),
    couplings: &Couplings,
    states: &States,
    by_node: bool,
    block: usize,
) -> ErrorBars {
    let d = states.n_units();
    let n = states.n_samples();
    let spins = couplings.to_spins();
    let theta: Vec<f64> = if by_node {
        (0..d)
            .flat_map(|i| {
                let others = (0..d).filter(move |&j| j != i);
                let spins = &spins;
                std::iter::once(spins.fields[i]).chain(others.map(move |j| spins.couplings[[i, j]]))
            })
            .collect()
    } else {
        spin_theta(couplings)
    };
    let p = theta.len();
    let samples = Samples::new(states).unwrap();
    let mean = row_gradients(estimator, &samples, &theta, by_node);
    let mut hessian = Array2::zeros((p, p));
    let step = 1e-5;
    for k in 0..p {
        let at = |sign: f64| {
            let mut moved = theta.clone();
            moved[k] += sign * step;
            row_gradients(estimator, &samples, &moved, by_node)
        };
        hessian
            .column_mut(k)
            .assign(&((at(1.0) - at(-1.0)) / (2.0 * step)));
    }
    let n_blocks = n / block;
    let mut v = Array2::<f64>::zeros((p, p));
    for b in 0..n_blocks {
        let range = b * n / n_blocks..(b + 1) * n / n_blocks;
        let mut score = Array1::<f64>::zeros(p);
        for m in range {
            let one = Samples::new(&states.slice(m..m + 1)).unwrap();
            score += &(row_gradients(estimator, &one, &theta, by_node) - &mean);
        }
        for i in 0..p {
            for j in 0..p {
                v[[i, j]] += score[i] * score[j];
            }
        }
    }
    v *= n_blocks as f64 / (n_blocks - 1) as f64 / (n * n) as f64;
    let symmetric = 0.5 * (&hessian + &hessian.t());
    let inverse = positive_definite_inverse(symmetric.view()).unwrap();
    let covariance = inverse.dot(&v).dot(&inverse);
    let place = |i: usize, j: usize| -> Vec<(usize, f64)> {
        if by_node {
            let within = |i: usize, j: usize| i * d + if j < i { j + 1 } else { j };
            vec![(within(i, j), 0.5), (within(j, i), 0.5)]
        } else {
            let (i, j) = (i.min(j), i.max(j));
            vec![(d + i * d + j - (i + 1) * (i + 2) / 2, 1.0)]
        }
    };
    let field = |i: usize| if by_node { i * d } else { i };
    let error = |terms: Vec<(usize, f64)>| -> f64 {
        let mut w = Array1::<f64>::zeros(p);
        terms.iter().for_each(|&(k, c)| w[k] += c);
        w.dot(&covariance.dot(&w)).sqrt()
    };
    ErrorBars {
        fields: (0..d).map(|i| error(vec![(field(i), 1.0)])).collect(),
        biases: (0..d)
            .map(|i| {
                let mut terms = vec![(field(i), -2.0)];
                for j in (0..d).filter(|&j| j != i) {
                    terms.extend(place(i, j).into_iter().map(|(k, c)| (k, 2.0 * c)));
                }
                error(terms)
            })
            .collect(),
        couplings: (0..d)
            .map(|i| {
                (0..d)
                    .map(|j| if i == j { f64::NAN } else { error(place(i, j)) })
                    .collect()
            })
            .collect(),
        corrected: None,
    }
}

fn largest_relative_difference(a: &ErrorBars, b: &ErrorBars) -> f64 {
    let flat = |e: &ErrorBars| -> Vec<f64> {
        let couplings = e.couplings.iter().flatten();
        e.fields
            .iter()
            .chain(&e.biases)
            .chain(couplings)
            .copied()
            .collect()
    };
    flat(a)
        .iter()
        .zip(flat(b))
        .filter(|(a, b)| !(a.is_nan() && b.is_nan()))
        .map(|(a, b)| (a / b - 1.0).abs())
        .fold(0.0, f64::max)
}

fn compare_with_definition(estimator: &(impl MarginEstimator + Clone), mode: Mode, block: usize) {
    let states = draws(&random_couplings(4, 1.0, 3), 301, 4);
    let fitter = fitter_of(estimator, |o| o.mode = mode);
    let fit = fitter.fit(&Samples::new(&states).unwrap()).unwrap();
    let found = fitter.sandwich(&fit.couplings, &states, block).unwrap();
    let by_node = mode == Mode::NodeWise;
    let expected = by_definition(estimator, &fit.couplings, &states, by_node, block);
    let off = largest_relative_difference(&found, &expected);
    // Central differences with step 1e-5 err by 1e-10 of the third derivative and 1e-11 of
    // rounding; the inverse multiplies that by its condition, below 100.
    assert!(off < 1e-7, "{off} {found:?} {expected:?}");
}

#[test]
fn the_sandwich_is_its_definition() {
    for mode in [Mode::Joint, Mode::NodeWise] {
        for block in [1, 7] {
            compare_with_definition(&Mpf::default(), mode, block);
            compare_with_definition(&Logistic, mode, block);
        }
    }
}

#[test]
fn ridge_support_and_fixed_fields_are_taken_into_account() {
    let states = draws(&random_couplings(5, 0.8, 8), 500, 2);
    let samples = Samples::new(&states).unwrap();
    let errors = |fitter: &Fitter| {
        let fit = fitter.fit(&samples).unwrap();
        fitter.sandwich(&fit.couplings, &states, 1).unwrap()
    };
    let free = errors(&fitter(|_| {}));
    let ridge = errors(&fitter(|o| o.l2 = 5.0));
    // With λ₂ far above the curvature, errors shrink by about curvature/λ₂.
    assert!(ridge.couplings[0][1] < 0.6 * free.couplings[0][1]);
    let support = errors(&fitter(|o| {
        o.support = Support::Edges(vec![(0, 1), (2, 4)]);
    }));
    assert!(support.couplings[0][2].is_nan() && support.couplings[4][2] > 0.0);
    assert!(support.fields.iter().all(|e| *e > 0.0));
    let fixed = errors(&fitter(|o| o.biases = Biases::FixedFields(vec![0.1; 5])));
    assert!(fixed.fields.iter().all(|e| e.is_nan()));
    assert!(fixed.couplings[0][1] > 0.0 && fixed.biases[0] > 0.0);
    // Sparse fits: only what is left has an error.
    let sparse = fitter(|o| o.l1 = 0.15);
    let fit = sparse.fit(&samples).unwrap();
    let bars = sparse.sandwich(&fit.couplings, &states, 1).unwrap();
    let mut zeros = 0;
    for i in 0..5 {
        for j in 0..i {
            let is_zero = fit.couplings.get(i, j) == 0.0;
            zeros += usize::from(is_zero);
            assert_eq!(bars.couplings[i][j].is_nan(), is_zero);
        }
    }
    assert!((1..10).contains(&zeros), "{zeros} zeros");
}

#[test]
fn the_bootstrap_agrees_with_the_sandwich_and_with_itself() {
    let states = draws(&random_couplings(4, 0.7, 5), 2000, seed());
    let samples = Samples::new(&states).unwrap();
    let fitter: Fitter = Fitter::default();
    let fit = fitter.fit(&samples).unwrap();
    let sandwich = fitter.sandwich(&fit.couplings, &states, 1).unwrap();
    let options = BootstrapOptions {
        n_resamples: 400,
        seed: seed(),
        ..Default::default()
    };
    let run = || {
        bootstrap(&states, &options, |resample| {
            Ok::<_, mpf_ising::Error>(fitter.fit(resample)?.couplings)
        })
        .unwrap()
    };
    let found = run();
    let off = largest_relative_difference(&found, &sandwich);
    // The spread of a standard deviation from 400 draws is 3.5 %; the largest of 20 of them, and
    // terms of the order 1/M.
    assert!(off < 0.16, "{off}");
    let one_thread = rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build()
        .unwrap();
    let again = one_thread.install(run);
    assert_eq!(largest_relative_difference(&found, &again), 0.0);
}

/// The share of true parameters within 1.96 standard errors of their estimates.
fn coverage(truth: &Couplings, fit: &Couplings, errors: &ErrorBars) -> (usize, usize) {
    let d = truth.n_units();
    let bars = errors.of_couplings();
    let mut inside = 0;
    for i in 0..d {
        for j in i..d {
            let off = (fit.get(i, j) - truth.get(i, j)).abs();
            inside += usize::from(off < 1.96 * bars[[i, j]]);
        }
    }
    (inside, d * (d + 1) / 2)
}

fn coverage_of<E: MarginEstimator + Clone>(
    fitter: &Fitter<E>,
    truth: &Couplings,
    states: &States,
    samples: &Samples,
) -> (usize, usize) {
    let fit = fitter.fit(samples).unwrap().couplings;
    let bars = fitter.sandwich(&fit, states, 1).unwrap();
    coverage(truth, &fit, &bars)
}

/// `cargo xtask check-errors` does it with 20 units and 200 repetitions.
#[test]
fn intervals_cover_the_truth() {
    let truth = random_couplings(8, 0.8, 21);
    let mut counts = [(0, 0); 3];
    for repetition in 0..60 {
        let states = draws(&truth, 3000, seed().wrapping_mul(1000) + repetition);
        let samples = Samples::new(&states).unwrap();
        let joint: Fitter = Fitter::default();
        let logistic = Fitter::new(Logistic, FitOptions::default()).unwrap();
        let by_node = fitter(|o| o.mode = Mode::NodeWise);
        let found = [
            coverage_of(&joint, &truth, &states, &samples),
            coverage_of(&logistic, &truth, &states, &samples),
            coverage_of(&by_node, &truth, &states, &samples),
        ];
        for (count, found) in counts.iter_mut().zip(found) {
            count.0 += found.0;
            count.1 += found.1;
        }
    }
    for (inside, all) in counts {
        let share = inside as f64 / all as f64;
        // 2160 intervals: the share has a standard error of .005 if they are independent, and
        // twice that if those of one fit hang together in groups of four.
        assert!((0.92..=0.98).contains(&share), "{counts:?}");
    }
}

/// Rarely active units that excite each other: a whole Newton step from the shrunken estimate goes
/// several times too far.
fn bursts(n: usize) -> States {
    let j = Array2::from_shape_fn((6, 6), |(i, j)| if i == j { 3.2 } else { -0.4 });
    draws(&Couplings::new(j).unwrap(), n, seed())
}

fn check_correction<E: MarginEstimator + Clone>(estimator: &E, mode: Mode, l1: f64, l2: f64) {
    let states = bursts(6000);
    let samples = Samples::new(&states).unwrap();
    let plain = fitter_of(estimator, |o| o.mode = mode);
    let penalised = fitter_of(estimator, |o| {
        o.mode = mode;
        (o.l1, o.l2) = (l1, l2);
    });
    let unpenalised = plain.fit(&samples).unwrap().couplings;
    let shrunken = penalised.fit(&samples).unwrap().couplings;
    let bars = penalised.corrected_sandwich(&shrunken, &states, 1).unwrap();
    let corrected = bars.corrected.as_ref().unwrap();
    let errors = bars.of_couplings();
    let distance = |from: &Couplings| {
        let pairs = (0..6).flat_map(|i| (0..=i).map(move |j| (i, j)));
        let distances = pairs.map(|(i, j)| {
            let off = (from.get(i, j) - unpenalised.get(i, j)).abs();
            off / errors[[i, j]]
        });
        distances.fold(0.0, f64::max)
    };
    // A tenth of a standard error changes the coverage of 95 % by .1 %.
    let (before, after) = (distance(&shrunken), distance(corrected));
    assert!(after < 0.1, "{mode:?} {l1} {l2}: {before} to {after}");
    // Intervals around the shrunken estimate miss.
    assert!(before > 2.0, "{mode:?} {l1} {l2}: {before}");
    let sandwich = plain.sandwich(&unpenalised, &states, 1).unwrap();
    assert!(largest_relative_difference(&bars, &sandwich) < 0.02);
}

#[test]
fn a_penalty_is_taken_back_however_strong_it_is() {
    for (l1, l2) in [(0.05, 0.0), (0.0, 0.2), (0.0, 3.0)] {
        check_correction(&Logistic, Mode::Joint, l1, l2);
        check_correction(&Logistic, Mode::NodeWise, l1, l2);
        check_correction(&Mpf::default(), Mode::Joint, l1, l2);
    }
}

/// Two units, each active 600 times in 20,000 samples, and 300 times together: a Newton step from K = 0
/// goes four times too far. Two units and three parameters have closed forms, whatever is minimised.
#[test]
fn a_penalty_on_rarely_active_units_is_taken_back() {
    let counts = [19_100, 300, 300, 300];
    let mut states = States::new(2).unwrap();
    for (state, &n) in counts.iter().enumerate() {
        (0..n).for_each(|_| states.push(&[state as u64]));
    }
    let [n00, n10, n01, n11] = counts.map(f64::from);
    // p ∝ exp(h₀ s₀ + h₁ s₁ + K s₀ s₁).
    let k = 0.25 * (n11 * n00 / (n10 * n01)).ln();
    let error = 0.25
        * counts
            .iter()
            .map(|&n| 1.0 / f64::from(n))
            .sum::<f64>()
            .sqrt();
    let check = |bars: mpf_ising::Result<ErrorBars>| {
        let bars = bars.unwrap();
        let found = bars.corrected.unwrap().to_spins().couplings[[0, 1]];
        // The last Newton step is at most .02 long, and its square is left.
        assert!((found - k).abs() < 4e-4, "{found} for {k}");
        // The curvature changes by 2 K' times the step.
        assert!((bars.couplings[0][1] / error - 1.0).abs() < 0.05);
    };
    let samples = Samples::new(&states).unwrap();
    for (l1, l2) in [(0.05, 0.0), (0.0, 0.2), (0.05, 1.0)] {
        for mode in [Mode::Joint, Mode::NodeWise] {
            let set = |o: &mut FitOptions| (o.mode, o.l1, o.l2) = (mode, l1, l2);
            let mpf = fitter(set);
            let shrunken = mpf.fit(&samples).unwrap().couplings;
            check(mpf.corrected_sandwich(&shrunken, &states, 1));
            let logistic = fitter_of(&Logistic, set);
            let shrunken = logistic.fit(&samples).unwrap().couplings;
            check(logistic.corrected_sandwich(&shrunken, &states, 1));
        }
    }
}

/// Unit 3 is what most of the units 0 to 2 are. All pairs of values occur, but without a penalty its
/// row runs away. Unit 4 has nothing to do with it.
#[test]
fn couplings_that_run_away_without_their_penalty_are_marked() {
    let mut rng = stream(seed(), 0);
    let mut states = States::new(5).unwrap();
    for _ in 0..1000 {
        let others = u64::from(rng.random::<u8>() & 0b10111);
        let majority = u64::from((others & 0b111).count_ones() >= 2);
        states.push(&[others | majority << 3]);
    }
    let samples = Samples::new(&states).unwrap();
    for mode in [Mode::Joint, Mode::NodeWise] {
        let fitter = fitter_of(&Logistic, |o| {
            o.mode = mode;
            o.l2 = 0.2;
        });
        let fit = fitter.fit(&samples).unwrap();
        let bars = fitter
            .corrected_sandwich(&fit.couplings, &states, 1)
            .unwrap();
        let corrected = bars.corrected.unwrap().to_spins();
        let marked = (0..3).filter(|&i| bars.couplings[i][3] == f64::INFINITY);
        let marked: Vec<f64> = marked.map(|i| corrected.couplings[[i, 3]]).collect();
        // They keep their penalty: beyond ½ ln 1000 = 3.45 they would count as running away.
        assert!(!marked.is_empty(), "{mode:?}: {corrected:?}");
        assert!(marked.iter().all(|k| *k > 0.1 && *k < 3.4), "{marked:?}");
        // Unit 4 is a coin: K is 0 but for an error of about 1/√1000 or less.
        for i in 0..3 {
            let error = bars.couplings[i][4];
            assert!(error > 0.01 && error < 0.06, "{mode:?}: {error}");
            assert!(corrected.couplings[[i, 4]].abs() < 5.0 * error);
        }
    }
}

/// A Gibbs chain of six units recorded after every update of one of them: successive samples are
/// nearly the same. `cargo xtask check-errors` does it with 20 units.
#[test]
fn blocks_hold_where_independent_samples_do_not() {
    let truth = random_couplings(6, 0.8, 22);
    let gibbs = Gibbs::new(&truth).unwrap();
    let fitter: Fitter = Fitter::default();
    let mut counts = [(0, 0); 2];
    for repetition in 0..40 {
        let mut rng = stream(seed().wrapping_mul(1000) + repetition, 5);
        let start = draws(&truth, 1, seed().wrapping_mul(1000) + repetition);
        let mut state = gibbs.state(start.row(0)).unwrap();
        let mut states = States::new(6).unwrap();
        for _ in 0..12_000 {
            let unit = rng.random_range(0..6);
            let p = gibbs.conditional_probability(&state, unit);
            gibbs.set(&mut state, unit, rng.random::<f64>() < p);
            states.push(state.row());
        }
        let fit = fitter
            .fit(&Samples::new(&states).unwrap())
            .unwrap()
            .couplings;
        for (count, block) in counts.iter_mut().zip([1, 150]) {
            let bars = fitter.sandwich(&fit, &states, block).unwrap();
            let found = coverage(&truth, &fit, &bars);
            count.0 += found.0;
            count.1 += found.1;
        }
    }
    let [independent, blocks] =
        counts.map(|(inside, all)| f64::from(inside as u32) / f64::from(all as u32));
    // 840 intervals; .95 ± .01 if they were independent. A state is held for about six samples, so
    // that independent errors are √6 or more too small: 1.96/√6 = .8, which covers 58 %.
    assert!((0.91..=0.985).contains(&blocks), "{blocks}");
    assert!(independent < 0.8, "{independent}");
}

#[test]
fn bad_blocks_and_fits_are_errors() {
    use mpf_ising::Error;
    let truth = random_couplings(3, 0.5, 1);
    let states = draws(&truth, 100, 1);
    let plain: Fitter = Fitter::default();
    for block_length in [0, 51, 200] {
        let expected = Error::BlockLength {
            block_length,
            n_samples: 100,
        };
        let found = plain.sandwich(&truth, &states, block_length);
        assert_eq!(found.unwrap_err(), expected);
        let options = BootstrapOptions {
            block_length,
            ..Default::default()
        };
        let found = bootstrap(&states, &options, |_| Ok::<_, Error>(truth.clone()));
        assert_eq!(found.unwrap_err(), expected);
    }
    let options = BootstrapOptions {
        n_resamples: 1,
        ..Default::default()
    };
    let found = bootstrap(&states, &options, |_| Ok::<_, Error>(truth.clone()));
    assert!(matches!(
        found,
        Err(Error::Core(mpf_core::Error::Option {
            name: "n_resamples",
            ..
        }))
    ));
    let outside = Mpf {
        neighbourhood: Neighbourhood::OutsideData,
        ..Mpf::default()
    };
    assert!(matches!(
        fitter_of(&outside, |_| {}).sandwich(&truth, &states, 1),
        Err(Error::NoErrorBars { .. })
    ));
    // Units 0 and 1 are always equal: row 2 cannot tell their couplings apart.
    let mut twins = States::new(3).unwrap();
    (0..40).for_each(|m| twins.push(&[[0b000, 0b011, 0b100, 0b111][m % 4]]));
    let flat = Couplings::zeros(3).unwrap();
    assert_eq!(
        fitter(|o| o.mode = Mode::NodeWise)
            .sandwich(&flat, &twins, 1)
            .unwrap_err(),
        Error::Undetermined { i: 2, j: 1 }
    );
    let many =
        States::from_binary(Array2::from_shape_fn((10, 70), |(m, u)| (m + u) % 3 == 1).view());
    let zeros = Couplings::zeros(70).unwrap();
    assert!(matches!(
        plain.sandwich(&zeros, &many.unwrap(), 1),
        Err(Error::TooManyParameters { .. })
    ));
}

#[test]
fn a_bootstrap_that_was_stopped_goes_on_to_the_same_bits() {
    let states = draws(&random_couplings(4, 0.7, 5), 200, 1);
    let fitter: Fitter = Fitter::default();
    let run = |checkpoint: mpf_core::Checkpoint, cancel: &mpf_core::Cancel| {
        let options = BootstrapOptions {
            n_resamples: 12,
            checkpoint,
            ..Default::default()
        };
        let fits = std::sync::atomic::AtomicUsize::new(0);
        let found = bootstrap(&states, &options, |resample| {
            if cancel.is_cancelled() {
                return Err(mpf_ising::Error::from(mpf_core::Error::Cancelled));
            }
            fits.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok(fitter.fit(resample)?.couplings)
        });
        (found, fits.into_inner())
    };
    let (whole, fits) = run(mpf_core::Checkpoint::default(), &mpf_core::Cancel::new());
    assert_eq!(fits, 12);
    let file = StopAfter::new(5);
    let (stopped, _) = run(file.checkpoint(), file.cancel());
    assert_eq!(stopped.unwrap_err(), mpf_core::Error::Cancelled.into());
    let (resumed_file, checkpoint) = file.resumed();
    let (resumed, fits) = run(checkpoint, resumed_file.cancel());
    // Threads may have finished some fits after the fifth was written.
    assert!(fits <= 7, "{fits} of 7");
    assert_eq!(
        largest_relative_difference(&resumed.unwrap(), &whole.unwrap()),
        0.0
    );
}
