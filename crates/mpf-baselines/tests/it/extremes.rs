//! Numbers at the edge of `f64` and degenerate data through the public functions of this crate. The
//! result is right where a plain formula gives it, and otherwise finite or a typed error, never a
//! panic.

use mpf_baselines::{
    Contender, ContrastiveDivergence, ContrastiveOptions, Criterion, Drift, Entropies, Error,
    Expansion, GoodnessOfFit, LearningRate, MaximumLikelihood, MeanField, Method, MethodOptions,
    Methods, Moments, Objectives, Pseudolikelihood, Takes, Tournament, independent, log_rise, rise,
};
use mpf_core::MinimizerOptions;
use mpf_ising::{
    Biases, BlockMean, Couplings, Exact, Fit, FitOptions, Fitter, Mode, PathOptions, Penalty,
    PenaltyPath, Samples, States,
};
use mpf_samplers::AnnealedOptions;
use mpf_testkit::{StopAfter, all_finite, cycle, few, finite, no_nan, number};
use ndarray::Array2;
use proptest::collection::vec;
use proptest::prelude::*;

/// Data of every awkward kind: one unit, one sample, equal rows, all states, repeated columns.
fn data() -> impl Strategy<Value = States> {
    let plain = (1..9usize, 1..20usize).prop_flat_map(|(d, m)| rows(d, m));
    let long = (60..70usize, 1..6usize).prop_flat_map(|(d, m)| rows(d, m));
    let equal = (1..6usize, 1..9usize, any::<u8>()).prop_map(|(d, m, row)| {
        let row = u64::from(row) & ((1 << d) - 1);
        packed(d, &vec![vec![row]; m])
    });
    let every = (1..5usize).prop_map(|d| {
        packed(
            d,
            &(0..1u64 << d).map(|state| vec![state]).collect::<Vec<_>>(),
        )
    });
    let twins = vec(any::<u8>(), 1..12).prop_map(|rows| {
        // Units 3 to 5 are units 0 to 2, or their opposites.
        let low = |r: u8| u64::from(r) & 7;
        let flip = if rows[0] & 8 == 0 { 0 } else { 7 };
        let row = |r: &u8| vec![low(*r) | (low(*r) ^ flip) << 3];
        packed(6, &rows.iter().map(row).collect::<Vec<_>>())
    });
    prop_oneof![3 => plain, 1 => long, 1 => equal, 1 => every, 1 => twins]
}

fn rows(d: usize, m: usize) -> impl Strategy<Value = States> {
    let mask = mpf_ising::internal::last_word_mask(d);
    vec(vec(any::<u64>(), d.div_ceil(64)), m).prop_map(move |mut rows| {
        for row in &mut rows {
            *row.last_mut().unwrap() &= mask;
        }
        packed(d, &rows)
    })
}

fn packed(d: usize, rows: &[Vec<u64>]) -> States {
    let mut states = States::new(d).unwrap();
    rows.iter().for_each(|row| states.push(row));
    states
}

/// Couplings of `d` units, where they are any.
fn couplings(d: usize, values: &[f64]) -> Result<Couplings, mpf_ising::Error> {
    Couplings::unpack(d, &cycle(values, d * (d + 1) / 2))
}

fn whole(fit: &Fit) -> Result<(), TestCaseError> {
    all_finite("J", fit.couplings.as_array())?;
    all_finite(
        "fit",
        [&fit.value, &fit.kkt_residual, &fit.left_out_fraction],
    )?;
    all_finite("asymmetry", &fit.asymmetry)?;
    for point in &fit.trace {
        all_finite("trace", [&point.value, &point.gradient_norm])?;
    }
    Ok(())
}

/// The same up to the rounding of a few hundred additions.
fn close(what: &str, found: f64, expected: f64) -> Result<(), TestCaseError> {
    let off = (found - expected).abs();
    prop_assert!(
        off <= 1e-10 * expected.abs().max(1.0),
        "{what}: {found} against {expected}"
    );
    Ok(())
}

/// Whether energies are small enough for plain sums of exponentials.
fn is_moderate(couplings: &Couplings) -> bool {
    couplings.as_array().iter().map(|j| j.abs()).sum::<f64>() < 100.0
}

/// Whether data of these means leave something to learn.
fn varies(samples: &Samples) -> bool {
    samples.means().iter().any(|m| *m > 0.0 && *m < 1.0)
}

proptest! {
    #![proptest_config(few(700))]

    #[test]
    fn moments_entropies_and_objectives_of_any_model(
        d in 1..7usize,
        values in vec(number(), 1..30),
    ) {
        let Ok(model) = couplings(d, &values) else { return Ok(()) };
        let exact = Exact::new(&model).unwrap();
        let states = exact.draw(6, 0);
        let samples = Samples::new(&states).unwrap();

        let moments = Moments::exact(&exact);
        let chances: f64 = moments.n_active.iter().map(|p| p.value).sum();
        close("sum of P(n)", chances, 1.0)?;
        let log_z = BlockMean { value: exact.log_z(), standard_error: 0.0 };
        let entropies = Entropies::new(&model, log_z, &moments).unwrap();
        all_finite("entropies", [&entropies.entropy.value, &entropies.multi_information.value])?;
        if is_moderate(&model) {
            close("entropy", entropies.entropy.value, exact.entropy())?;
            let least = entropies.multi_information.value;
            prop_assert!(least > -1e-10, "{least}");
        }
        let data = Moments::of_states(&states, 1).unwrap();
        for (found, expected) in data.means.iter().zip(samples.means()) {
            close("mean", found.value, expected)?;
        }
        let goodness = GoodnessOfFit::new(moments, data).unwrap();
        all_finite("moments", goodness.data.means.iter().map(|m| &m.standard_error))?;
        let itself = GoodnessOfFit::new(goodness.model.clone(), goodness.model).unwrap();
        prop_assert_eq!(itself.pairs.rms_difference, 0.0);

        // K itself may be too large for a number; it is +∞ then, and never NaN.
        let all = Objectives::of(&model, &samples).unwrap();
        no_nan("rise", &all.rise)?;
        no_nan("objectives", [&all.mpf, &all.pseudolikelihood])?;
        all_finite("log-likelihood", all.log_likelihood.iter().chain([&all.log_rise]))?;
        if is_moderate(&model) {
            let (mut flow, mut pl) = (0.0, 0.0);
            for row in states.rows() {
                for unit in 0..d {
                    let flipped = [row[0] ^ 1 << unit];
                    let gain = model.energy(row) - model.energy(&flipped);
                    flow += (0.5 * gain).exp() / 6.0;
                    pl += gain.exp().ln_1p() / 6.0;
                }
            }
            close("K / plain", all.mpf / flow, 1.0)?;
            close("PL", all.pseudolikelihood, pl)?;
        }
    }
}

proptest! {
    #![proptest_config(few(500))]

    #[test]
    fn fits_are_finite_or_refused(
        states in data(),
        weights in proptest::option::of(vec(number(), 20)),
        start in proptest::option::of(vec(finite(), 1..10)),
        (l1, l2) in (prop_oneof![4 => Just(0.0), 1 => number()], prop_oneof![4 => Just(0.0), 1 => number()]),
        fixed in proptest::option::weighted(0.2, vec(number(), 70)),
        (log, nodewise) in (any::<bool>(), any::<bool>()),
    ) {
        let d = states.n_units();
        let plain = weights.is_none() && start.is_none() && fixed.is_none() && (l1, l2) == (0.0, 0.0);
        let samples = match weights {
            None => Samples::new(&states),
            Some(weights) => {
                let all: Vec<f64> = weights.into_iter().cycle().take(states.n_samples()).collect();
                Samples::weighted(&states, &all)
            }
        };
        let Ok(samples) = samples else { return Ok(()) };
        // Plain data with something to learn are fitted by every method.
        let must = plain && varies(&samples);
        let start = start.and_then(|values| couplings(d, &values).ok());
        let biases = match fixed {
            None => Biases::Free,
            Some(values) => Biases::Fixed(values[..d].to_vec()),
        };
        let options = FitOptions {
            l1,
            l2,
            l2_on_fields: log,
            mode: if nodewise { Mode::NodeWise } else { Mode::Joint },
            biases,
            start: start.clone(),
            minimizer: MinimizerOptions { max_iterations: 12, ..Default::default() },
            ..Default::default()
        };
        let fit = Fitter::new(Pseudolikelihood, options.clone()).and_then(|f| f.fit(&samples));
        prop_assert!(!must || fit.is_ok(), "{fit:?}");
        if let Ok(fit) = fit {
            whole(&fit)?;
            let own = Objectives::of(&fit.couplings, &samples);
            if plain && !nodewise && is_moderate(&fit.couplings) {
                close("PL", fit.value, own.unwrap().pseudolikelihood)?;
            }
        }
        for fitter in [rise(l1, options.clone()), log_rise(l1, options.clone())] {
            let fit = fitter.and_then(|f| Ok(f.fit(&samples)?));
            prop_assert!(!must || fit.is_ok(), "{fit:?}");
            if let Ok(fit) = fit {
                whole(&fit)?;
            }
        }
        if d < 9 {
            let fit = Fitter::new(MaximumLikelihood, options).and_then(|f| f.fit(&samples));
            prop_assert!(!must || nodewise || fit.is_ok(), "{fit:?}");
            if let Ok(fit) = fit {
                whole(&fit)?;
                if plain && is_moderate(&fit.couplings) {
                    let exact = Exact::new(&fit.couplings).unwrap();
                    close("−LL", fit.value, -exact.log_likelihood(&samples).unwrap())?;
                }
            }
        }
        let null = independent(&samples).unwrap();
        whole(&null)?;
        for (i, mean) in samples.means().iter().enumerate().filter(|(_, m)| **m > 0.0 && **m < 1.0) {
            close("p", 1.0 / (1.0 + null.couplings.get(i, i).exp()), *mean)?;
        }
        for expansion in [Expansion::Naive, Expansion::Tap] {
            let found = MeanField::new(expansion, l2).and_then(|f| f.fit(&samples));
            // A λ of 1e-3 can be inverted whatever the data.
            prop_assert!(MeanField::new(expansion, 1e-3).unwrap().fit(&samples).is_ok());
            if let Ok(found) = found {
                whole(&found.fit)?;
                all_finite("χ", [&found.smallest_eigenvalue])?;
                prop_assert!((0.0..=1.0).contains(&found.clipped_fraction));
            }
        }
        let learner = ContrastiveDivergence::new(ContrastiveOptions {
            updates: 3,
            learning_rate: LearningRate { first: if l1 == 0.0 { 3.0 } else { l1 }, last: 0.1 },
            persistent: log,
            batch_size: nodewise.then_some(2),
            start,
            ..Default::default()
        });
        let fit = learner.and_then(|l| l.fit(&samples));
        prop_assert!(!must || fit.is_ok(), "{fit:?}");
        if let Ok(fit) = fit {
            whole(&fit)?;
            prop_assert_eq!(fit.iterations, 3);
        }
    }
}

proptest! {
    #![proptest_config(few(70))]

    #[test]
    fn drift_error_bars_and_paths(
        states in data(),
        values in vec(finite(), 1..10),
        block in 0..5usize,
        lambda in number(),
        nodewise in any::<bool>(),
    ) {
        let d = states.n_units();
        let samples = Samples::new(&states).unwrap();
        let options = MethodOptions {
            node_wise: nodewise,
            minimizer: MinimizerOptions { max_iterations: 12, ..Default::default() },
            ..Default::default()
        };
        // Any couplings, though the formula is for those that were fitted.
        if let Ok(model) = couplings(d, &values) {
            let drift = Drift::measure(&model, &samples, 1, 0).unwrap();
            all_finite("drift", [&drift.standard_error])?;
            prop_assert!((0.0..=1.0).contains(&drift.after), "{drift:?}");
            // Chains start in proportion to the samples, up to one in each distinct one.
            let mean = samples.means().iter().sum::<f64>() / d as f64;
            let slack = samples.n_distinct() as f64 / 2000.0;
            prop_assert!((drift.before - mean).abs() <= slack, "{drift:?} of {mean}");
            for method in Methods::default().iter().filter(|_| d < 9) {
                let description = method.describe();
                let bars = method.sandwich(&model, &states, block, &options);
                if !description.takes.contains(&Takes::Sandwich) {
                    prop_assert!(bars.is_err());
                }
                let Ok(bars) = bars else { continue };
                // A unit that never changes is not free, and has NaN.
                let means = samples.means();
                let free = |i: usize| means[i] > 0.0 && means[i] < 1.0;
                for i in 0..d {
                    prop_assert_eq!(bars.fields[i].is_finite(), free(i));
                    for j in (0..d).filter(|&j| j != i) {
                        // +∞ where the data do not determine the coupling.
                        prop_assert_eq!(!bars.couplings[i][j].is_nan(), free(i) && free(j));
                    }
                }
            }
        }
        if d < 9 {
            for penalty in [Penalty::L1, Penalty::L2] {
                let path = PenaltyPath::new(PathOptions {
                    penalty,
                    lambdas: Some(vec![lambda, 0.1]),
                    n_folds: 2,
                    ..Default::default()
                });
                prop_assert_eq!(path.is_ok(), lambda >= 0.0 && lambda.is_finite());
                let Ok(path) = path else { continue };
                for method in Methods::default().iter() {
                    let description = method.describe();
                    let found = method.cross_validate(&path, &states, &options, &mut |_| {});
                    if !description.takes.contains(&Takes::Penalties) {
                        prop_assert!(found.is_err());
                    }
                    let Ok(found) = found else { continue };
                    prop_assert!(found.path.len() == 2 && found.scores.len() == 2);
                    for (point, score) in found.path.iter().zip(&found.scores) {
                        whole(&point.fit)?;
                        no_nan("score", [&score.mean])?;
                        no_nan("ebic", &point.ebic)?;
                    }
                }
            }
        }
    }
}

/// Every method, with options that may be anything.
fn methods(number: f64) -> Vec<(&'static dyn Method, MethodOptions)> {
    let options = MethodOptions {
        damping: number,
        updates: 3,
        minimizer: MinimizerOptions {
            max_iterations: 8,
            ..Default::default()
        },
        ..Default::default()
    };
    let with = |method: &'static dyn Method| match method.describe().name {
        "rise" | "logrise" => MethodOptions {
            l1: number,
            ..options.clone()
        },
        _ => MethodOptions {
            l2: Some(number),
            ..options.clone()
        },
    };
    Methods::default().iter().map(|m| (m, with(m))).collect()
}

proptest! {
    #![proptest_config(few(60))]

    #[test]
    fn every_method_is_finite_or_refused_and_resumes_from_its_end(
        states in data(),
        number in prop_oneof![Just(0.0), Just(0.5), number()],
    ) {
        let d = states.n_units();
        let samples = Samples::new(&states).unwrap();
        // Other data: one unit more, and each of them active once.
        let mut other = Array2::<u8>::zeros((d + 2, d + 1));
        (0..=d).for_each(|unit| other[[unit, unit]] = 1);
        let other = Samples::from_binary(other.view()).unwrap();
        for (method, mut options) in methods(number) {
            let description = method.describe();
            let fit = method.fit((&samples).into(), &options, &mut |_| {});
            let must = varies(&samples) && d < description.max_units && number == 0.5;
            prop_assert!(!must || fit.is_ok(), "{}: {fit:?}", description.name);
            let Ok(fit) = fit else { continue };
            whole(&fit)?;
            // A finished run resumes to its end.
            options.minimizer.checkpoint = StopAfter::new(usize::MAX).checkpoint();
            let kept = method.fit((&samples).into(), &options, &mut |_| {}).unwrap();
            prop_assert_eq!(&kept.couplings, &fit.couplings);
            let again = method.fit((&samples).into(), &options, &mut |_| {}).unwrap();
            prop_assert_eq!(&again.couplings, &fit.couplings);
            prop_assert_eq!(again.iterations, fit.iterations);
            // Its state is not one of other units.
            let other = method.fit((&other).into(), &options, &mut |_| {});
            let is_closed_form = fit.evaluations == 0;
            if !is_closed_form && fit.iterations > 0 {
                prop_assert!(matches!(
                    other,
                    Err(Error::Core(mpf_core::Error::Checkpoint { .. })
                        | Error::Ising(mpf_ising::Error::Core(mpf_core::Error::Checkpoint { .. })))
                ), "{}: {other:?}", description.name);
            }
        }
    }

    #[test]
    fn moments_that_are_none_are_refused(
        d in 1..4usize,
        values in vec(number(), 1..20),
        moments in vec(number(), 1..12),
        (place, kind, in_error) in (0..9usize, 0..4usize, any::<bool>()),
        (log_z, log_z_error) in (number(), number()),
        shorter in any::<bool>(),
    ) {
        let Ok(model) = couplings(d, &values) else { return Ok(()) };
        let exact = Exact::new(&model).unwrap();
        let truth = Moments::exact(&exact);
        let mut changed = truth.clone();
        let list = match kind {
            0 => &mut changed.means,
            1 => &mut changed.pairs,
            2 => &mut changed.triplets,
            _ => &mut changed.n_active,
        };
        let mut found = true;
        if shorter {
            // Triplets are all or none.
            found = list.pop().is_none() || kind == 2 && list.is_empty();
        } else {
            for (mean, value) in list.iter_mut().skip(place).zip(&moments) {
                *(if in_error { &mut mean.standard_error } else { &mut mean.value }) = *value;
                found &= if in_error { (0.0..=10.0).contains(value) } else { value.abs() <= 10.0 };
            }
        }
        for pair in [(truth.clone(), changed.clone()), (changed.clone(), truth)] {
            match GoodnessOfFit::new(pair.0, pair.1) {
                Err(_) => prop_assert!(!found),
                Ok(fit) => {
                    prop_assert!(found);
                    for part in [fit.means, fit.pairs, fit.triplets, fit.n_active] {
                        all_finite("agreement", [
                            &part.rms_difference,
                            &part.rms_error,
                            &part.within_two_errors,
                            &part.largest_z,
                        ])?;
                    }
                }
            }
        }
        let log_z = BlockMean { value: log_z, standard_error: log_z_error };
        match Entropies::new(&model, log_z, &changed) {
            Err(Error::NotFinite { value, .. }) => prop_assert!(!value.is_finite()),
            Err(_) => prop_assert!(!found),
            Ok(of) => {
                for mean in [of.entropy, of.independent, of.multi_information] {
                    all_finite("entropies", [&mean.value, &mean.standard_error])?;
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(few(30))]

    #[test]
    fn tournaments_are_finite_but_for_k(
        states in data(),
        number in prop_oneof![Just(0.0), Just(0.5), number()],
        (n_folds, block_length) in (0..5usize, 0..4usize),
        annealed in proptest::option::of((0..4usize, 0..4usize)),
    ) {
        let n = states.n_samples();
        let tournament = Tournament {
            n_folds,
            block_length,
            annealed: annealed.map(|(n_chains, n_levels)| AnnealedOptions {
                n_chains,
                n_levels,
                ..Default::default()
            }),
            ..Default::default()
        };
        let methods: Vec<Contender> =
            methods(number).into_iter().map(|(m, o)| Contender::alone(m, o)).collect();
        let table = tournament.run(&methods, &states, |_, _| {});
        let fine = (2..=n).contains(&n_folds) && (1..=n / 2).contains(&block_length);
        prop_assert_eq!(table.is_ok(), fine);
        let Ok(table) = table else { return Ok(()) };
        prop_assert_eq!(table.entrants.len() + table.dropouts.len(), methods.len());
        // Independent units can be fitted to any data, and enumerated up to 24.
        let enumerated = states.n_units() <= Exact::MAX_UNITS;
        prop_assert!(!enumerated || table.entrants.iter().any(|e| e.name == "independent"));
        let text = table.to_string();
        prop_assert!(table.entrants.iter().all(|e| text.contains(&e.name)));
        for entrant in &table.entrants {
            let pl = entrant.pseudolikelihood;
            all_finite("PL", [&pl.value, &pl.standard_error, &entrant.log_z_error])?;
            if let Some(ll) = entrant.log_likelihood {
                all_finite("LL", [&ll.value, &ll.standard_error])?;
            }
            no_nan("K", entrant.own.iter().chain([&entrant.mpf.value]))?;
            if entrant.mpf.value.is_finite() {
                no_nan("K's error", [&entrant.mpf.standard_error])?;
            }
        }
        for at in 0..table.entrants.len() {
            for criterion in [Criterion::Pseudolikelihood, Criterion::LogLikelihood] {
                match table.difference(at, 0, criterion) {
                    Ok(None) => {}
                    Ok(Some(mean)) => {
                        all_finite("difference", [&mean.value, &mean.standard_error])?;
                    }
                    Err(error) => prop_assert!(matches!(error, Error::NotFinite { .. }), "{error}"),
                }
            }
            prop_assert!(table.difference(at, 0, Criterion::Mpf).unwrap().is_some());
        }
    }
}

#[test]
fn a_constant_unit_of_great_weight_has_a_finite_bias() {
    let samples = Samples::weighted(&packed(1, &[vec![1]]), &[1e16]).unwrap();
    let fit = independent(&samples).unwrap();
    // Odds (1e16 + ½) : ½ of being 1.
    assert!((fit.couplings.get(0, 0) + 2e16f64.ln()).abs() < 1e-12);
    assert!(fit.value >= 0.0 && fit.value < 1e-15, "{}", fit.value);
}

#[test]
fn couplings_of_other_units_do_not_drift() {
    // Both have one word per state: their sizes alone do not tell.
    let samples = Samples::new(&packed(3, &[vec![5], vec![2]])).unwrap();
    let error = Drift::measure(&Couplings::zeros(5).unwrap(), &samples, 1, 0).unwrap_err();
    assert!(matches!(
        error,
        Error::Ising(mpf_ising::Error::UnitCount {
            expected: 3,
            found: 5,
            ..
        })
    ));
}

#[test]
fn a_start_that_is_too_large_is_refused() {
    let samples = Samples::new(&packed(2, &[vec![0], vec![3], vec![1], vec![2]])).unwrap();
    let fit = |options: ContrastiveOptions| {
        let options = ContrastiveOptions {
            updates: 5,
            ..options
        };
        ContrastiveDivergence::new(options).and_then(|l| l.fit(&samples))
    };
    let started = fit(ContrastiveOptions {
        start: Some(Couplings::unpack(2, &[0.0, 1e4, 0.0]).unwrap()),
        ..Default::default()
    });
    assert!(matches!(
        started.unwrap_err(),
        Error::Core(mpf_core::Error::Option { name: "start", value, .. }) if value == 1e4
    ));
}
