//! Numbers at the edge of `f64` and degenerate data through the public functions of this crate. The
//! result is right where a plain formula gives it, and otherwise finite, or what its documentation
//! says, or a typed error, never a panic.

use mpf_core::rng::stream;
use mpf_core::{FlowForm, MinimizerOptions, Objective};
use mpf_ising::internal::{Algorithm, Kernel, Vectors, bytes_of_fit, n_blocks, part};
use mpf_ising::{
    Biases, BootstrapOptions, Boundary, Couplings, Error, ErrorBars, Exact, Finding, Fit,
    FitOptions, Fitter, FoldAssignment, Folds, Incomplete, IsingFlow, Lattice, MissingRule, Mode,
    Mpf, Neighbourhood, PathOptions, Penalty, PenaltyPath, Preflight, Rule, Samples, SpinCouplings,
    States, Support, Terms, Warning, block_mean, bootstrap, flip_bit, mosaic_couplings,
};
use mpf_testkit::{all_finite, cycle, few, finite, number};
use ndarray::Array2;
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::Mutex;

/// A weight, and seldom one that is refused.
fn weight() -> impl Strategy<Value = f64> {
    let edges = proptest::sample::select(vec![1e30, 9e29, 1e29, 1e-30, 1e-31, 1e-278, 1e-300]);
    prop_oneof![6 => -4.0..4.0f64, 3 => edges, 1 => number()]
        .prop_map(|v| if v < 0.0 { 0.0 } else { v })
}

/// Any count, and often one that overflows when it is multiplied.
fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        3 => 0..9usize,
        1 => proptest::sample::select(vec![1 << 31, 1 << 32, 1 << 33, 1 << 63, usize::MAX]),
    ]
}

/// Rows of `d` < 64 units: any, all equal, or every state, and in the last units the first ones
/// again.
fn data(most_units: usize) -> impl Strategy<Value = States> {
    let d = 1..=most_units;
    (d, vec(any::<u64>(), 1..24), 0..4usize).prop_map(|(d, mut rows, kind)| {
        let all = (1u64 << d) - 1;
        match kind {
            1 => rows = vec![rows[0]; rows.len()],
            2 if d <= 4 => rows = (0..=all).collect(),
            3 if d >= 4 => rows
                .iter_mut()
                .for_each(|r| *r = (*r & 3) << (d - 2) | *r & 3),
            _ => {}
        }
        let mut states = States::new(d).unwrap();
        rows.iter().for_each(|row| states.push(&[row & all]));
        states
    })
}

fn couplings(d: usize, values: &[f64]) -> Result<Couplings, mpf_ising::Error> {
    Couplings::unpack(d, &cycle(values, d * (d + 1) / 2))
}

fn fitter(change: impl FnOnce(&mut FitOptions)) -> Fitter {
    fitter_of(Mpf::default(), change)
}

fn fitter_of(mpf: Mpf, change: impl FnOnce(&mut FitOptions)) -> Fitter {
    let mut options = FitOptions::default();
    options.minimizer.max_iterations = 12;
    change(&mut options);
    Fitter::new(mpf, options).unwrap()
}

fn mpf(log: bool) -> Mpf {
    let form = if log { FlowForm::Log } else { FlowForm::Sum };
    Mpf {
        form,
        ..Mpf::default()
    }
}

fn mode(nodewise: bool) -> Mode {
    if nodewise {
        Mode::NodeWise
    } else {
        Mode::Joint
    }
}

/// A number or +∞.
fn above<'a>(what: &str, values: impl IntoIterator<Item = &'a f64>) -> Result<(), TestCaseError> {
    for (k, value) in values.into_iter().enumerate() {
        prop_assert!(*value > f64::NEG_INFINITY, "{what}[{k}] = {value}");
    }
    Ok(())
}

fn shares<'a>(what: &str, values: impl IntoIterator<Item = &'a f64>) -> Result<(), TestCaseError> {
    for (k, value) in values.into_iter().enumerate() {
        prop_assert!((0.0..=1.0).contains(value), "{what}[{k}] = {value}");
    }
    Ok(())
}

/// The same up to the rounding of a few hundred additions of moderate numbers.
fn close(what: &str, found: f64, expected: f64) -> Result<(), TestCaseError> {
    let off = (found - expected).abs();
    prop_assert!(
        off <= 1e-11 * expected.abs().max(1.0),
        "{what}: {found} against {expected}"
    );
    Ok(())
}

/// Whether energies are small enough for a plain sum of exponentials.
fn is_moderate(couplings: &Couplings) -> bool {
    couplings.as_array().iter().map(|j| j.abs()).sum::<f64>() < 100.0
}

/// The definition: the mean over samples of Σ_i exp(½[E(x) − E(x with i flipped)]).
fn plain_flow(couplings: &Couplings, samples: &Samples) -> f64 {
    let mut flow = 0.0;
    for (m, row) in samples.states().rows().enumerate() {
        for unit in 0..samples.n_units() {
            let mut flipped = row.to_vec();
            flip_bit(&mut flipped, unit);
            let gain = couplings.energy(row) - couplings.energy(&flipped);
            flow += samples.weight(m) * (0.5 * gain).exp();
        }
    }
    flow / samples.total_weight()
}

/// The mean of every unit over the samples, entries that `unknown` has left out.
fn plain_means(values: &States, unknown: &States, weights: &[f64]) -> Vec<f64> {
    let mean = |unit: usize| {
        let known = (0..values.n_samples()).filter(|&m| !unknown.get(m, unit));
        let (mut ones, mut all) = (0.0, 0.0);
        for m in known {
            all += weights[m];
            ones += weights[m] * f64::from(u8::from(values.get(m, unit)));
        }
        ones / all
    };
    (0..values.n_units()).map(mean).collect()
}

fn whole(fit: &Fit) -> Result<(), TestCaseError> {
    prop_assert!(fit.evaluations > 0 && fit.seconds >= 0.0 && fit.kkt_residual >= 0.0);
    all_finite("J", fit.couplings.as_array())?;
    all_finite("fit", [&fit.value, &fit.kkt_residual, &fit.seconds])?;
    all_finite("asymmetry", &fit.asymmetry)?;
    shares("left out", [&fit.left_out_fraction])?;
    for point in &fit.trace {
        all_finite("trace", [&point.value, &point.gradient_norm])?;
    }
    fit.warnings.iter().try_for_each(numbers_of)
}

fn numbers_of(warning: &Warning) -> Result<(), TestCaseError> {
    prop_assert!(!warning.to_string().contains("NaN"), "{warning}");
    match warning {
        Warning::FlipsLeftOut { fraction } => shares("fraction", [fraction]),
        Warning::RunAwayCouplings { couplings, limit } => {
            let values = couplings.iter().map(|(_, _, k)| k);
            all_finite("K", values.chain([limit]))
        }
        Warning::RunAwayFields { fields } => all_finite("h", fields.iter().map(|(_, h)| h)),
        _ => Ok(()),
    }
}

/// Standard errors that are finite wherever `free` says that there are any.
fn bars(found: &ErrorBars, free: impl Fn(usize) -> bool) -> Result<(), TestCaseError> {
    let all = found.of_couplings();
    let d = all.nrows();
    for i in 0..d {
        prop_assert_eq!(found.fields[i].is_finite(), free(i), "field {}", i);
        for j in 0..d {
            let there = free(i) && free(j);
            prop_assert_eq!(
                all[[i, j]].is_finite(),
                there,
                "{} {}: {}",
                i,
                j,
                all[[i, j]]
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(few(700))]

    #[test]
    fn weighted_samples_have_means_or_are_refused(
        states in data(7),
        weights in vec(weight(), 1..6),
        values in vec(finite(), 1..8),
        w in number(),
    ) {
        let d = states.n_units();
        let weights = cycle(&weights, states.n_samples());
        let Ok(samples) = Samples::weighted(&states, &weights) else { return Ok(()) };
        prop_assert!((1e-30..=1e30).contains(&samples.total_weight()));
        prop_assert!((0..samples.n_distinct()).all(|m| samples.weight(m) > 0.0));
        shares("pair means", &samples.pair_means())?;
        let all_known = States::from_binary(states.to_binary().mapv(|_| 0u8).view()).unwrap();
        let plain = plain_means(&states, &all_known, &weights);
        for (unit, (found, expected)) in samples.means().iter().zip(plain).enumerate() {
            close("mean", *found, expected)?;
            close("diagonal", samples.pair_means()[[unit, unit]], expected)?;
        }

        let preflight = Preflight::new(&samples, None).unwrap();
        shares("preflight", [&preflight.silent_fraction, &preflight.flips_into_data])?;
        all_finite("seconds", [&preflight.seconds_per_evaluation])?;
        for finding in &preflight.findings {
            match finding {
                Finding::Linear { of, .. } => all_finite("of", of.iter().map(|(_, w)| w))?,
                Finding::OneStateDominates { share, .. } | Finding::FlipsIntoData { share } => {
                    shares("share", [share])?;
                }
                _ => {}
            }
        }

        let Ok(model) = couplings(d, &values) else { return Ok(()) };
        let exact = Exact::new(&model).unwrap();
        let likelihood = exact.log_likelihood(&samples).unwrap();
        all_finite("likelihood", [&likelihood])?;
        all_finite("correlations", &exact.spin_correlations())?;
        if is_moderate(&model) {
            // By the probabilities themselves.
            let p = exact.probabilities();
            close("sum of p", p.iter().sum(), 1.0)?;
            let rows = samples.states().rows().enumerate();
            let sum: f64 = rows.map(|(m, x)| samples.weight(m) * p[x[0] as usize].ln()).sum();
            close("likelihood", likelihood, sum / samples.total_weight())?;
            let plain = p.iter().map(|p| if *p > 0.0 { -p * p.ln() } else { 0.0 }).sum();
            close("entropy", exact.entropy(), plain)?;
        }
        above("error", [&model.mean_square_error(&Couplings::zeros(d).unwrap())])?;
        let pairs = Support::Full.pairs(d).unwrap();
        for warning in [
            Warning::run_away(&model, &pairs, w),
            Warning::run_away_fields(&model, &samples.means(), w),
            Warning::separable_pairs(&samples, &pairs),
            Warning::constant_units(&values),
        ] {
            warning.iter().try_for_each(numbers_of)?;
        }
    }

    #[test]
    fn flows_are_their_definition_by_every_algorithm(
        states in data(12),
        weights in vec(weight(), 1..6),
        values in vec(finite(), 1..8),
        vectors in prop::sample::select(Vectors::available().collect::<Vec<_>>()),
    ) {
        let d = states.n_units();
        let weights = cycle(&weights, states.n_samples());
        let Ok(samples) = Samples::weighted(&states, &weights) else { return Ok(()) };
        let Ok(model) = couplings(d, &values) else { return Ok(()) };
        let single = plain_flow(&model, &samples);
        for algorithm in [
            Algorithm::Auto,
            Algorithm::Dense,
            Algorithm::Sparse,
            Algorithm::Rows,
            Algorithm::Patterns,
        ] {
            for hood in [
                Neighbourhood::SingleFlips,
                Neighbourhood::SingleFlipsAndComplement,
                Neighbourhood::OutsideData,
            ] {
                for form in [FlowForm::Sum, FlowForm::Log] {
                    let kernel = Kernel { algorithm, vectors, serial: true, ..Kernel::default() };
                    let Ok(mut flow) = IsingFlow::with_kernel(&samples, hood, form, kernel) else {
                        continue;
                    };
                    let mut grad = vec![0.0; flow.n_params()];
                    let value = flow.value_and_gradient(&model.pack(), &mut grad);
                    above("flow", [&value])?;
                    let moderate = model.as_array().iter().all(|j| j.abs() < 1e10);
                    prop_assert!(form == FlowForm::Sum || !moderate || value.is_finite(), "{value}");
                    if value < 1e300 {
                        all_finite("gradient", &grad)?;
                    }
                    if is_moderate(&model) {
                        let sum = if form == FlowForm::Log { value.exp() } else { value };
                        // Energies of 100 stand in the exponent with their rounding.
                        let slack = 1e-11 * single;
                        prop_assert!(match hood {
                            Neighbourhood::SingleFlips => (sum - single).abs() <= slack,
                            Neighbourhood::SingleFlipsAndComplement => sum >= single - slack,
                            Neighbourhood::OutsideData => sum <= single + slack,
                        }, "{algorithm:?} {hood:?} {form:?}: {sum} against {single}");
                    }
                }
            }
        }
    }

    #[test]
    fn means_over_blocks_are_finite_where_values_are(
        values in vec(number(), 0..12),
        block_length in size(),
    ) {
        if let Ok(n) = n_blocks(values.len(), block_length) {
            prop_assert!((0..n).map(|b| part(values.len(), n, b).len()).sum::<usize>() == values.len());
        }
        let Ok(found) = block_mean(&values, block_length) else { return Ok(()) };
        let finite = values.iter().all(|v| v.is_finite());
        prop_assert_eq!(found.value.is_finite(), finite);
        prop_assert!(!finite || found.standard_error.is_finite(), "{:?}", found);
        if finite {
            let largest = values.iter().fold(0.0f64, |m, v| m.max(v.abs())).max(f64::MIN_POSITIVE);
            // In units of the largest, so that neither a sum nor a square overflows.
            let n = values.len() as f64;
            let mean = values.iter().map(|v| v / largest).sum::<f64>() / n;
            close("mean", found.value / largest, mean)?;
            if block_length == 1 {
                let squares: f64 = values.iter().map(|v| (v / largest - mean).powi(2)).sum();
                let error = (squares / (n * (n - 1.0))).sqrt();
                close("standard error", found.standard_error / largest, error)?;
            }
        }
    }

    #[test]
    fn sizes_are_refused_before_memory_is_asked_for(
        a in size(),
        b in size(),
        values in vec(number(), 1..4),
        seed in any::<u64>(),
    ) {
        let rng = &mut stream(seed, 0);
        for boundary in [Boundary::Open, Boundary::Periodic] {
            let Ok(lattice) = Lattice::new(a, b, boundary) else { continue };
            if let Ok(model) = lattice.spin_glass(values[0], rng) {
                all_finite("J", model.as_array())?;
                all_finite("h", &model.to_spins().fields)?;
                let coupled = model.as_array().indexed_iter();
                let coupled = coupled.filter(|((i, j), v)| i < j && **v != 0.0).count();
                // A variance whose root is a normal number draws no zeros.
                let expected = if values[0] > 1e-200 { lattice.edges().len() } else { coupled };
                prop_assert_eq!(coupled, expected);
            }
        }
        if let Ok(model) = mosaic_couplings(a, b, rng) {
            all_finite("J", model.as_array())?;
        }
        let _ = Couplings::zeros(a);
        prop_assert!(Couplings::unpack(a, &values).is_err() || a * (a + 1) / 2 == values.len());
        if a > 65_535 {
            prop_assert!(Support::Full.pairs(a).is_err());
        }
        // (What fits into the address space may be held, and would be.)
        let n = if a < 9 { a } else { usize::MAX - a % 2 };
        for assignment in [FoldAssignment::Blocks, FoldAssignment::Random { seed }] {
            if let Ok(folds) = Folds::new(n, b, assignment) {
                prop_assert!((0..b).map(|f| folds.held_out(f).len()).sum::<usize>() == n);
            }
        }
        let path = PenaltyPath::new(PathOptions { n_lambdas: a, patience: b, ..Default::default() });
        prop_assert_eq!(path.is_ok(), (1..=1_000_000).contains(&a) && b > 0);
        let mut states = States::new(a.clamp(1, 70_000)).unwrap();
        states.push(&vec![0; states.words_per_row()]);
        let samples = Samples::new(&states).unwrap();
        prop_assert!(bytes_of_fit(&samples, b) >= b);
        prop_assert_eq!(Preflight::new(&samples, None).is_ok(), states.n_units() < 65_536);
        if states.n_units() > 65_535 {
            let plain: Fitter = Fitter::default();
            prop_assert!(plain.fit(&samples).is_err());
        }
    }
}

proptest! {
    #![proptest_config(few(600))]

    #[test]
    fn couplings_are_refused_or_everything_about_them_is_finite(
        d in 1..7usize,
        values in vec(number(), 1..30),
    ) {
        let spins = SpinCouplings {
            fields: values.iter().copied().cycle().take(d).collect(),
            couplings: Array2::from_shape_fn((d, d), |(i, j)| values[(i + j) % values.len()]),
        };
        if let Ok(model) = Couplings::from_spins(&spins) {
            all_finite("J of spins", model.as_array())?;
        }
        let used = cycle(&values, d * (d + 1) / 2);
        let model = couplings(d, &values);
        if used.iter().any(|v| !v.is_finite()) {
            prop_assert!(model.is_err());
        } else if used.iter().all(|v| v.abs() < 1e300) {
            prop_assert!(model.is_ok(), "{model:?}");
        }
        let Ok(model) = model else { return Ok(()) };
        let spins = model.to_spins();
        all_finite("fields", &spins.fields)?;
        all_finite("K", &spins.couplings)?;
        let exact = Exact::new(&model).unwrap();
        all_finite("exact", [&exact.log_z(), &exact.mean_energy(), &exact.entropy()])?;
        all_finite("pair means", exact.pair_means())?;
        shares("means", &exact.means())?;
        let p = exact.probabilities();
        prop_assert!((p.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{}", p.iter().sum::<f64>());
        if is_moderate(&model) {
            let back = Couplings::from_spins(&spins).unwrap();
            for (found, expected) in back.pack().iter().zip(model.pack()) {
                close("J there and back", *found, expected)?;
            }
            // ln Z + ⟨E⟩ = S.
            close("entropy", exact.log_z() + exact.mean_energy(), exact.entropy())?;
        }
    }

    #[test]
    fn fits_are_finite_or_refused(
        states in prop_oneof![3 => data(8), 1 => data(63)],
        weights in proptest::option::of(vec(number(), 1..20)),
        start in proptest::option::of(vec(finite(), 1..10)),
        (l1, l2) in (prop_oneof![4 => Just(0.0), 1 => number()], prop_oneof![4 => Just(0.0), 1 => number()]),
        fixed in proptest::option::weighted(0.2, vec(number(), 63)),
        (hood, log, nodewise) in (0..3usize, any::<bool>(), any::<bool>()),
    ) {
        let d = states.n_units();
        let plain = weights.is_none() && start.is_none() && fixed.is_none() && (l1, l2) == (0.0, 0.0);
        let samples = match weights {
            None => Samples::new(&states),
            Some(weights) => Samples::weighted(&states, &cycle(&weights, states.n_samples())),
        };
        let Ok(samples) = samples else { return Ok(()) };
        let neighbourhood = [
            Neighbourhood::SingleFlips,
            Neighbourhood::SingleFlipsAndComplement,
            Neighbourhood::OutsideData,
        ][hood];
        let mut options = FitOptions {
            l1,
            l2,
            l2_on_fields: log,
            mode: mode(nodewise),
            biases: fixed.map_or(Biases::Free, |values| Biases::Fixed(values[..d].to_vec())),
            start: start.and_then(|values| couplings(d, &values).ok()),
            ..Default::default()
        };
        options.minimizer.max_iterations = 12;
        let estimator = Mpf { neighbourhood, ..mpf(log) };
        let fit = Fitter::new(estimator, options).and_then(|fitter| fitter.fit(&samples));
        // Plain data in which something changes can be fitted.
        let varies = samples.means().iter().any(|m| *m > 0.0 && *m < 1.0);
        prop_assert!(!(plain && varies && hood == 0) || fit.is_ok(), "{fit:?}");
        let Ok(fit) = fit else { return Ok(()) };
        whole(&fit)?;
        if plain && hood == 0 && !nodewise && is_moderate(&fit.couplings) {
            let flow = plain_flow(&fit.couplings, &samples);
            close("value / flow", if log { fit.value.exp() } else { fit.value } / flow, 1.0)?;
        }
    }
}

proptest! {
    #![proptest_config(few(150))]

    #[test]
    fn objectives_slopes_and_paths(
        states in data(5),
        weights in proptest::option::of(vec(weight(), 1..6)),
        values in vec(finite(), 1..8),
        fields in proptest::option::weighted(0.4, vec(number(), 5)),
        (log, nodewise, ridge) in any::<(bool, bool, bool)>(),
        smallest in number(),
        n_folds in size(),
    ) {
        let d = states.n_units();
        let samples = match weights {
            None => Samples::new(&states),
            Some(weights) => Samples::weighted(&states, &cycle(&weights, states.n_samples())),
        };
        let Ok(samples) = samples else { return Ok(()) };
        let fitter = fitter_of(mpf(log), |o| {
            o.mode = mode(nodewise);
            if let Some(fields) = fields {
                o.biases = Biases::FixedFields(fields[..d].to_vec());
            }
        });
        if let Ok(model) = couplings(d, &values) {
            let value = fitter.objective_value(&model, &samples).unwrap();
            above("F", [&value])?;
            if is_moderate(&model) && !(log && nodewise) {
                let flow = plain_flow(&model, &samples);
                close("F / flow", if log { value.exp() } else { value } / flow, 1.0)?;
            }
            if let Ok(slopes) = fitter.coupling_slopes(&model, &samples) {
                all_finite("slopes", slopes.iter().map(|(_, slope)| slope))?;
            }
        }
        // Without couplings and fields every rate is 1.
        let flat = fitter.objective_value(&Couplings::zeros(d).unwrap(), &samples).unwrap();
        close("F(0)", flat, match (log, nodewise) {
            (false, _) => d as f64,
            (true, false) => (d as f64).ln(),
            (true, true) => 0.0,
        })?;
        let other = Couplings::zeros(d + 1).unwrap();
        prop_assert!(fitter.objective_value(&other, &samples).is_err());
        prop_assert!(fitter.coupling_slopes(&other, &samples).is_err());

        let options = PathOptions {
            penalty: if ridge { Penalty::L2 } else { Penalty::L1 },
            n_lambdas: 3,
            smallest: if (0.0..1.0).contains(&smallest) { smallest } else { 0.1 },
            n_folds,
            ..Default::default()
        };
        let Ok(path) = PenaltyPath::new(options) else { return Ok(()) };
        if let Ok(lambdas) = path.lambdas(&fitter, &samples) {
            all_finite("lambdas", &lambdas)?;
            prop_assert!(lambdas.len() == 3 && lambdas.is_sorted_by(|a, b| a >= b && *b >= 0.0));
        }
        let Ok(found) = path.cross_validate(&fitter, &states, |_| {}) else { return Ok(()) };
        prop_assert!(!found.path.is_empty() && found.scores.len() == found.path.len());
        for (point, score) in found.path.iter().zip(&found.scores) {
            whole(&point.fit)?;
            all_finite("lambda", [&point.lambda])?;
            above("point", [&point.objective].into_iter().chain(&point.ebic))?;
            above("score", [&score.mean, &score.standard_error].into_iter().chain(&score.folds))?;
            prop_assert_eq!(score.folds.len(), n_folds);
            let (low, high) = score.folds.iter().fold(
                (f64::INFINITY, f64::NEG_INFINITY),
                |(low, high), f| (low.min(*f), high.max(*f)),
            );
            // A mean of the folds, up to rounding.
            let slack = 1e-12 * (1.0 + low.abs().max(high.abs()));
            let overflows = high > 1e300 && score.mean == f64::INFINITY;
            prop_assert!(overflows || (low - slack..=high + slack).contains(&score.mean));
        }
        for rule in [Rule::Minimum, Rule::OneStandardError] {
            prop_assert!(found.chosen_by(rule).is_some());
        }
        prop_assert_eq!(found.chosen_by(Rule::Ebic).is_some(), !ridge);
        prop_assert_eq!(found.chosen().lambda, found.chosen_by(Rule::Minimum).unwrap().lambda);
    }

    #[test]
    fn observers_see_finite_couplings(
        states in data(5),
        values in vec(finite(), 1..8),
        fixed in proptest::option::weighted(0.3, vec(finite(), 5)),
        (log, nodewise) in any::<(bool, bool)>(),
    ) {
        let d = states.n_units();
        let start = couplings(d, &values).ok();
        let fitter = fitter_of(mpf(log), |o| {
            o.mode = mode(nodewise);
            o.start = start;
            if let Some(fixed) = fixed {
                o.biases = Biases::Fixed(fixed[..d].to_vec());
            }
        });
        let (mut seen, mut values) = (Vec::new(), Vec::new());
        let fit = fitter.fit_observed(&Samples::new(&states).unwrap(), |progress| {
            values.push(progress.value);
            seen.extend([progress.value, progress.gradient_norm, progress.seconds]);
            seen.extend(progress.couplings().pack());
        });
        all_finite("progress", &seen)?;
        if let Ok(fit) = fit {
            whole(&fit)?;
            // Iterations go down, and the last one is the result.
            if !nodewise {
                prop_assert!(values.is_sorted_by(|a, b| a >= b), "{values:?}");
                prop_assert!(values.last().is_none_or(|last| fit.value <= *last));
            }
        }
    }

    #[test]
    fn error_bars_are_finite_for_what_is_free(
        states in data(5),
        values in vec(finite(), 1..8),
        block_length in size(),
        nodewise in any::<bool>(),
    ) {
        let d = states.n_units();
        let fitter = fitter(|o| o.mode = mode(nodewise));
        let Ok(model) = couplings(d, &values) else { return Ok(()) };
        let means = Samples::new(&states).unwrap().means();
        if let Ok(found) = fitter.sandwich(&model, &states, block_length) {
            bars(&found, |i| means[i] > 0.0 && means[i] < 1.0)?;
            if d == 1 && block_length == 1 && found.fields[0].is_finite() && is_moderate(&model) {
                // One unit: scores −s e^{−hs}, curvatures e^{−hs}.
                let h = model.to_spins().fields[0];
                let n = states.n_samples() as f64;
                let ones = means[0] * n;
                let (up, down) = ((-h).exp(), h.exp());
                let curvature = ones * up + (n - ones) * down;
                let mean = ((n - ones) * down - ones * up) / n;
                let squares = ones * (up + mean).powi(2) + (n - ones) * (down - mean).powi(2);
                let expected = (n / (n - 1.0) * squares).sqrt() / curvature;
                close("one field", found.fields[0] / expected, 1.0)?;
            }
        }
        // Fits that differ by as much as couplings can: +∞ beyond 10¹⁵⁰, never NaN.
        let options = BootstrapOptions { n_resamples: 3, block_length, seed: 1, ..Default::default() };
        let scales = Mutex::new(Vec::new());
        let found = bootstrap(&states, &options, |resample| {
            let scale = resample.means()[0];
            scales.lock().unwrap().push(scale);
            Couplings::new(model.as_array() * scale)
        });
        if let Ok(found) = found {
            above("J", &found.of_couplings())?;
            above("h", &found.fields)?;
            if values.iter().all(|v| v.abs() < 1e150) {
                bars(&found, |_| true)?;
            }
            if is_moderate(&model) {
                // Every fit is J times a number, so every error is |J| times its deviation.
                let scales = scales.into_inner().unwrap();
                let mean = scales.iter().sum::<f64>() / 3.0;
                let deviation = (scales.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / 2.0).sqrt();
                for (bar, j) in found.of_couplings().iter().zip(model.as_array()) {
                    close("bootstrap", *bar, j.abs() * deviation)?;
                }
            }
        }
        let other = bootstrap(&states, &options, |_| Couplings::zeros(d + 1));
        prop_assert!(other.is_err());
    }

    #[test]
    fn weighted_samples_with_unknown_entries(
        states in data(5),
        unknown in vec(any::<u64>(), 24),
        weights in vec(weight(), 1..6),
        tolerance in number(),
        most_unknown in size(),
        nodewise in any::<bool>(),
    ) {
        let d = states.n_units();
        let mut mask = States::new(d).unwrap();
        // Half of a half: most entries are known.
        for m in 0..states.n_samples() {
            mask.push(&[unknown[m] & unknown[(m + 1) % 24] & ((1 << d) - 1)]);
        }
        let weights = cycle(&weights, states.n_samples());
        let Ok(data) = Incomplete::weighted(&states, &mask, &weights) else { return Ok(()) };
        for (found, expected) in data.means().iter().zip(plain_means(&states, &mask, &weights)) {
            close("mean", *found, expected)?;
        }
        let n_unknown = mask.rows().map(|row| f64::from(row[0].count_ones())).sum::<f64>();
        let n_entries = (states.n_samples() * d) as f64;
        prop_assert_eq!(data.unknown_fraction(), n_unknown / n_entries);
        let fitter = fitter(|o| {
            o.mode = mode(nodewise);
            o.minimizer = MinimizerOptions { max_iterations: 12, ..Default::default() };
        });
        let complete = MissingRule::Complete { most_unknown, tolerance, max_rounds: 2 };
        let valid = MissingRule::Complete { most_unknown: 2, tolerance: 0.1, max_rounds: 2 };
        for rule in [MissingRule::LeaveOut, complete, valid] {
            if let Ok(found) = fitter.fit_incomplete(&data, rule) {
                whole(&found.fit)?;
                shares("left out", [&found.left_out_fraction])?;
            }
        }
    }
}

#[test]
fn cases_that_once_failed() {
    let model = Couplings::unpack(2, &[0.0, 0.0, -1e154]).unwrap();
    let exact = Exact::new(&model).unwrap();
    assert!(exact.log_z().is_finite() && exact.entropy().is_finite());
    // One sample of weight 1e16, of one unit.
    let mut one = States::new(1).unwrap();
    one.push(&[1]);
    let samples = Samples::weighted(&one, &[1e16]).unwrap();
    let plain: Fitter = Fitter::default();
    assert_eq!(
        plain.fit(&samples).unwrap_err(),
        mpf_ising::Error::NothingFree
    );
    let mut rows = States::new(2).unwrap();
    [2, 0, 3].iter().for_each(|row| rows.push(&[*row]));
    assert!(Samples::weighted(&rows, &[0.6, 0.3, f64::MAX]).is_err());
}

#[test]
fn more_couplings_than_can_be_held_are_an_error() {
    let mut states = States::new(70_000).unwrap();
    states.push(&vec![0; states.words_per_row()]);
    let samples = Samples::new(&states).unwrap();
    let flow = IsingFlow::new(&samples, Neighbourhood::SingleFlips, FlowForm::Sum);
    assert!(matches!(
        flow.err(),
        Some(Error::TooManyCouplings {
            n_units: 70_000,
            ..
        })
    ));
    assert!(Terms::new(&samples, 0..70_000, vec![(0, 69_999)]).is_ok());
}
