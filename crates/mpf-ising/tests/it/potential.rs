//! Fits of K-pairwise models, and the kernels' sums with a potential.

use mpf_core::rng::stream;
use mpf_core::{LocalLoss, LocalObjective, Objective, SiteData, gradient_error};
use mpf_ising::internal::{Algorithm, CountKnots, Kernel, n_packed, packed_index, pairs};
use mpf_ising::{
    CountPotential, Couplings, Error, Exact, FitOptions, Fitter, LocalIsing, MarginLoss, MarginSum,
    Mpf, Samples, SpinCouplings, States, Terms, Warning,
};
use ndarray::Array2;
use rand::RngExt;

/// Rows of 40 units with 3 to 12 of them active, but never 7 and hardly ever 12.
fn rows(n: usize, d: usize) -> Array2<u8> {
    let mut rng = stream(3, 0);
    let mut rows = Array2::zeros((n, d));
    for (m, mut row) in rows.rows_mut().into_iter().enumerate() {
        let mut left = match m {
            0 => 12,
            _ => [3, 4, 5, 6, 8, 9, 10, 11][rng.random_range(0..8)],
        };
        while left > 0 {
            let unit = rng.random_range(0..d);
            left -= usize::from(row[unit] == 0);
            row[unit] = 1;
        }
    }
    rows
}

fn samples_of(rows: &Array2<u8>) -> Samples {
    Samples::new(&States::from_binary(rows.view()).unwrap()).unwrap()
}

fn numbers(n: usize, scale: f64, seed: u64) -> Vec<f64> {
    let mut rng = stream(seed, 0);
    (0..n)
        .map(|_| scale * rng.random_range(-1.0..1.0))
        .collect()
}

#[test]
fn the_kernel_has_the_sums_of_the_generic_path() {
    let d = 40;
    let rows = rows(300, d);
    let samples = samples_of(&rows);
    let knots = CountKnots::new((&samples).into(), CountPotential::default(), 3).unwrap();
    assert_eq!(knots.knots(), [3, 4, 5, 6, 8, 9, 10, 11, 12]);
    let theta: Vec<f64> = [
        numbers(d + d * (d - 1) / 2, 0.1, 1),
        numbers(knots.n_knots(), 0.7, 2),
    ]
    .concat();
    // The same model in the paper's J, with V linear between knots and forbidden beyond.
    let spins = SpinCouplings::of_pairs(
        &theta[..d],
        &pairs(d).collect::<Vec<_>>(),
        &theta[d..d + d * (d - 1) / 2],
    );
    let mut full = Couplings::from_spins(&spins).unwrap().pack();
    let mut potential = vec![1e4; d + 1];
    let values = &theta[theta.len() - knots.n_knots()..];
    knots.expand(values, &mut potential);
    assert!((potential[7] - 0.5 * (potential[6] + potential[8])).abs() < 1e-15);
    full.extend(&potential);
    let model = LocalIsing {
        n_units: d,
        has_potential: true,
    };
    let data = SiteData::new(rows.view(), 2).unwrap();
    for (loss, local) in [
        (MarginLoss::FLOW, LocalLoss::Flow),
        (MarginLoss::FlowRate { shift: 0.3 }, LocalLoss::Flow),
        (MarginLoss::Logistic, LocalLoss::Pseudolikelihood),
    ] {
        let mut generic = LocalObjective::new(&model, &data, local).unwrap();
        let mut full_grad = vec![0.0; full.len()];
        let expected = generic.value_and_gradient(&full, &mut full_grad);
        let factor = match loss {
            MarginLoss::FlowRate { shift } => (-shift).exp(),
            MarginLoss::Logistic => 1.0,
        };
        let v = &full_grad[n_packed(d)..];
        for algorithm in [Algorithm::Dense, Algorithm::Sparse, Algorithm::Rows] {
            let kernel = Kernel {
                algorithm,
                ..Kernel::default()
            };
            let terms = Terms::new(&samples, 0..d, pairs(d).collect()).unwrap();
            let terms = terms.with_potential(knots.clone(), kernel);
            let mut sum = MarginSum::new(terms, loss);
            let mut grad = vec![0.0; theta.len()];
            let value = sum.value_and_gradient(&theta, &mut grad);
            assert!(
                (value - factor * expected).abs() < 1e-11 * expected,
                "{loss:?} {algorithm:?}"
            );
            let knot_grad = &grad[theta.len() - knots.n_knots()..];
            for (k, &n) in knots.knots().iter().enumerate() {
                // V(7) is half of its neighbours'.
                let half = if n == 6 || n == 8 { 0.5 * v[7] } else { 0.0 };
                let off = knot_grad[k] - factor * (v[n] + half);
                assert!(off.abs() < 1e-11, "{loss:?} {algorithm:?} {n}: {off}");
            }
            // h_i appears in J_ii as −2 h_i.
            for (i, slope) in grad[..d].iter().enumerate() {
                let expected = -2.0 * factor * full_grad[packed_index(d, i, i)];
                assert!((slope - expected).abs() < 1e-11);
            }
        }
    }
}

#[test]
fn gradients_with_smoothing_are_those_of_the_values() {
    let rows = rows(100, 20);
    let samples = samples_of(&rows);
    let knots = CountKnots::new((&samples).into(), CountPotential { smoothness: 0.4 }, 3).unwrap();
    let terms = Terms::new(&samples, 0..20, vec![(0, 3), (2, 5)]).unwrap();
    let theta = numbers(22 + knots.n_knots(), 0.4, 4);
    let terms = terms.with_potential(knots, Kernel::default());
    let mut sum = MarginSum::new(terms, MarginLoss::FLOW);
    assert!(gradient_error(&mut sum, &theta, 1e-3) < 1e-9);
}

/// A K-pairwise model of 8 units.
fn small() -> Couplings {
    let couplings = Couplings::unpack(8, &numbers(36, 0.5, 5)).unwrap();
    let potential = (0..9).map(|n| 0.15 * f64::from((n - 3) * (n - 3)));
    couplings.with_potential(potential.collect()).unwrap()
}

#[test]
fn exact_weights_give_the_model_back() {
    let couplings = small();
    let exact = Exact::new(&couplings).unwrap();
    let mut states = States::new(8).unwrap();
    (0..256).for_each(|x| states.push(&[x]));
    let samples = Samples::weighted(&states, &exact.probabilities()).unwrap();
    let mut options = FitOptions {
        potential: Some(CountPotential::default()),
        ..Default::default()
    };
    options.minimizer.gradient_tolerance = 1e-10;
    let fit = Fitter::new(Mpf::default(), options)
        .unwrap()
        .fit(&samples)
        .unwrap();
    assert!(fit.stop.is_converged());
    let found = Exact::new(&fit.couplings).unwrap().probabilities();
    for (a, b) in found.iter().zip(exact.probabilities()) {
        assert!((a - b).abs() < 1e-7, "{a} {b}");
    }
    // V has no part in 1, n, n² over the samples.
    let potential = fit.couplings.potential().unwrap();
    let rows = exact.probabilities();
    let moment = |power: i32| -> f64 {
        let terms = rows.iter().enumerate();
        terms
            .map(|(x, p)| {
                p * potential[x.count_ones() as usize] * f64::from(x.count_ones()).powi(power)
            })
            .sum()
    };
    assert!((0..3).all(|power| moment(power).abs() < 1e-9));
}

#[test]
fn unseen_numbers_get_half_a_sample() {
    // Eight units that excite each other: without V, all of them active is the second mode.
    let d = 8;
    let mut j = Array2::from_elem((d, d), -0.6);
    j.diag_mut().fill(2.0);
    let couplings = Couplings::new(j).unwrap();
    let full = Exact::new(&couplings).unwrap().probabilities();
    assert!(full[255] > full[0]);
    // Samples of that model with at most three active.
    let mut states = States::new(d).unwrap();
    let mut rng = stream(9, 0);
    let few: Vec<u64> = (0..256u64)
        .filter(|x| (1..=3).contains(&x.count_ones()))
        .collect();
    let total: f64 = few.iter().map(|&x| full[x as usize]).sum();
    for _ in 0..5000 {
        let mut left = rng.random::<f64>() * total;
        let x = few.iter().find(|&&x| {
            left -= full[x as usize];
            left < 0.0
        });
        states.push(&[*x.unwrap_or(&few[0])]);
    }
    let samples = Samples::new(&states).unwrap();
    let options = FitOptions {
        potential: Some(CountPotential::default()),
        l2: 1.0 / 5000.0,
        ..Default::default()
    };
    let fit = Fitter::new(Mpf::default(), options)
        .unwrap()
        .fit(&samples)
        .unwrap();
    let p = Exact::new(&fit.couplings).unwrap().probabilities();
    let of = |n: u32| -> f64 {
        (0..256usize)
            .filter(|x| x.count_ones() == n)
            .map(|x| p[x])
            .sum()
    };
    // P(3 + k) is 2^−k of half a sample, and P(0) the whole half below 1, up to the noise of the
    // particles and of P(3) itself.
    for (n, k) in [(4, 1), (5, 2), (6, 3), (7, 4), (8, 5), (0, 1)] {
        let wanted = 0.5f64.powi(k) * 0.5 / 5000.0;
        let ratio = of(n) / wanted;
        assert!((0.6..1.6).contains(&ratio), "{n}: {ratio}");
    }
}

#[test]
fn a_model_with_a_potential_is_its_own_start() {
    // V has a quadratic part, which the fit leaves to J: no step from there, and it is the same model.
    let couplings = small();
    let exact = Exact::new(&couplings).unwrap();
    let mut states = States::new(8).unwrap();
    (0..256).for_each(|x| states.push(&[x]));
    let samples = Samples::weighted(&states, &exact.probabilities()).unwrap();
    let mut options = FitOptions {
        potential: Some(CountPotential::default()),
        start: Some(couplings),
        ..Default::default()
    };
    options.minimizer.max_iterations = 0;
    let fit = Fitter::new(Mpf::default(), options)
        .unwrap()
        .fit(&samples)
        .unwrap();
    assert!(fit.kkt_residual < 1e-8, "{}", fit.kkt_residual);
    let found = Exact::new(&fit.couplings).unwrap().probabilities();
    for (a, b) in found.iter().zip(exact.probabilities()) {
        assert!((a - b).abs() < 1e-12);
    }
}

/// Returns P(n) of `n_samples`, of which one in `one_in` is a burst, and of the K-pairwise model that is
/// fitted to them.
fn with_bursts(d: usize, n_samples: usize, one_in: usize, chances: [f64; 2]) -> [Vec<f64>; 2] {
    let mut rng = stream(5, 0);
    let mut states = States::new(d).unwrap();
    for m in 0..n_samples {
        let chance = chances[usize::from(m % one_in == 0)];
        let bits = (0..d).map(|i| u64::from(rng.random_bool(chance)) << i);
        states.push(&[bits.sum()]);
    }
    let options = FitOptions {
        potential: Some(CountPotential::default()),
        l2: 1.0 / n_samples as f64,
        ..Default::default()
    };
    let fitter = Fitter::new(Mpf::default(), options).unwrap();
    let fit = fitter.fit(&Samples::new(&states).unwrap()).unwrap();
    let p = Exact::new(&fit.couplings).unwrap().probabilities();
    let [mut of_data, mut of_model] = [vec![0.0; d + 1], vec![0.0; d + 1]];
    for (x, p) in p.iter().enumerate() {
        of_model[x.count_ones() as usize] += p;
    }
    for row in states.rows() {
        of_data[row[0].count_ones() as usize] += 1.0 / n_samples as f64;
    }
    [of_data, of_model]
}

/// Most samples have few active units, and a handful has many, across a gap: flips do not say how likely
/// those are.
#[test]
fn numbers_that_few_samples_show_become_no_second_mode() {
    let [of_data, of_model] = with_bursts(12, 2000, 500, [0.07, 0.8]);
    let has_gap = of_data[..8].contains(&0.0);
    assert!(has_gap && of_data[8..].iter().sum::<f64>() > 1e-3);
    for (n, (data, model)) in of_data.iter().zip(&of_model).enumerate() {
        // Twice what the data show, the noise of Z_n included, and half a sample where they show none.
        let most = 2.6 * data.max(0.5 / 2000.0);
        assert!(*model < most, "{n}: {of_model:?} {of_data:?}");
    }
}

/// Bursts that the data do show, a gap away from the rest, have the data's weight.
#[test]
fn a_second_mode_of_the_data_keeps_its_weight() {
    let [of_data, of_model] = with_bursts(16, 8000, 10, [0.03, 0.9]);
    assert!(of_data[5..9].iter().all(|p| *p == 0.0));
    for (n, (data, model)) in of_data.iter().zip(&of_model).enumerate() {
        if *data > 100.0 / 8000.0 {
            let ratio = model / data;
            assert!((0.4..2.5).contains(&ratio), "{n}: {of_model:?} {of_data:?}");
        }
    }
    assert!(of_data[14] > 0.02 && of_model[5..9].iter().sum::<f64>() < 4.0 / 8000.0);
}

#[test]
fn bad_potentials_are_named() {
    let couplings = Couplings::zeros(3).unwrap();
    assert!(matches!(
        couplings.clone().with_potential(vec![0.0; 3]),
        Err(Error::UnitCount {
            expected: 4,
            found: 3,
            ..
        })
    ));
    assert!(matches!(
        couplings.with_potential(vec![0.0, f64::NAN, 0.0, 0.0]),
        Err(Error::Potential { n_active: 1, .. })
    ));
    let mut states = States::new(3).unwrap();
    states.push(&[1]);
    states.push(&[2]);
    let options = FitOptions {
        potential: Some(CountPotential::default()),
        ..Default::default()
    };
    let fitter = Fitter::new(Mpf::default(), options).unwrap();
    assert_eq!(
        fitter.fit(&Samples::new(&states).unwrap()).err(),
        Some(Error::OneCount { n_active: 1 })
    );
    // Three numbers are a parabola, which J has already.
    (0..7).for_each(|x| states.push(&[x]));
    let options = FitOptions {
        l2: 0.1,
        ..fitter.options().clone()
    };
    let fitter = Fitter::new(Mpf::default(), options).unwrap();
    let fit = fitter.fit(&Samples::new(&states).unwrap()).unwrap();
    let expected = Warning::PotentialNotIdentified { n_counts: 3 };
    assert!(fit.warnings.contains(&expected), "{:?}", fit.warnings);
    assert!(
        fit.couplings.potential().unwrap()[..3]
            .iter()
            .all(|v| v.abs() < 1e-9)
    );
    states.push(&[7]);
    let fit = fitter.fit(&Samples::new(&states).unwrap()).unwrap();
    let named = |w: &Warning| matches!(w, Warning::PotentialNotIdentified { .. });
    assert!(!fit.warnings.iter().any(named));
}
