//! Numbers at the edge of `f64` and data at the edge of sense, through every public door of the
//! libraries below: what comes back is finite or a typed error, never a panic.

use mpf_baselines::drift::Drift;
use mpf_baselines::heldout::Criterion;
use mpf_baselines::{
    ContrastiveDivergence, ContrastiveOptions, Entropies, Error, Expansion, GoodnessOfFit,
    LearningRate, MaximumLikelihood, MeanField, Method, Moments, Objectives, Pseudolikelihood,
    PseudolikelihoodSum, Tournament, TournamentOptions, independent, log_rise, rise,
};
use mpf_core::boltzmann;
use mpf_core::connectivity::DenseConnectivity;
use mpf_core::from_fn;
use mpf_core::kl_divergence;
use mpf_core::rng::stream;
use mpf_core::{
    Dynamics, Form, LinearEnergies, Minimizer, MinimizerOptions, Objective, Ridge, linalg,
};
use mpf_ising::BlockMean;
use mpf_ising::{
    Biases, BootstrapOptions, Boundary, Couplings, Exact, Fit, FitOptions, Fitter, Incomplete,
    IsingFlow, Lattice, MissingRule, Mode, Mpf, Neighbourhood, PathOptions, Penalty, PenaltyPath,
    Preflight, Samples, SpinCouplings, States, Support, bootstrap,
};
use mpf_samplers::{
    AnnealedOptions, ChainOptions, ChainRunner, ExactLattice, Gibbs, Scan, SwendsenWang, Tempering,
    annealed_log_z, diagnostics,
};
use mpf_testkit::{all_finite, cycle, few, finite, no_nan, number};
use ndarray::{Array1, Array2};
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

proptest! {
    #![proptest_config(few(2000))]

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
        let Ok(model) = couplings(d, &values) else { return Ok(()) };
        let spins = model.to_spins();
        all_finite("fields", &spins.fields)?;
        all_finite("K", &spins.couplings)?;

        let exact = Exact::new(&model).unwrap();
        let mean_energy = exact.mean_energy();
        all_finite("exact", [&exact.log_z(), &mean_energy, &exact.entropy()])?;
        all_finite("means", exact.pair_means())?;
        prop_assert!(exact.means().iter().all(|m| (0.0..=1.0).contains(m)));
        let p = exact.probabilities();
        prop_assert!((p.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{}", p.iter().sum::<f64>());
        let states = exact.draw(6, &mut stream(0, 0));
        let samples = Samples::new(&states).unwrap();
        all_finite("likelihood", [&exact.log_likelihood(&samples).unwrap()])?;

        let moments = Moments::exact(&exact);
        let log_z = Mean { value: exact.log_z(), standard_error: 0.0 };
        let entropies = Entropies::new(&model, log_z, &moments).unwrap();
        all_finite("entropies", [&entropies.entropy.value, &entropies.multi_information.value])?;
        if let Ok(data) = Moments::of_states(&states, 1) {
            let goodness = GoodnessOfFit::new(moments, data).unwrap();
            all_finite("moments", goodness.data.means.iter().map(|m| &m.standard_error))?;
        }

        // K itself may be too large for a number; it then is +∞ and never NaN.
        let values = Objectives::of(&model, &samples).unwrap();
        no_nan("rise", &values.rise)?;
        no_nan("objectives", [&values.mpf, &values.pseudolikelihood])?;
        all_finite("log-likelihood", values.log_likelihood.iter().chain([&values.log_rise]))?;
        for form in [Form::Sum, Form::Log] {
            for hood in [Neighbourhood::SingleFlips, Neighbourhood::SingleFlipsAndComplement] {
                let mut flow = IsingFlow::new(&samples, hood, form).unwrap();
                let mut grad = vec![0.0; flow.n_params()];
                let value = flow.value_and_gradient(&model.pack(), &mut grad);
                prop_assert!(!value.is_nan(), "{form:?} {hood:?}");
                if value.is_finite() {
                    no_nan("gradient", &grad)?;
                }
            }
        }
    }

    #[test]
    fn samplers_run_on_any_couplings(
        d in 1..7usize,
        values in vec(number(), 1..30),
        beta in number(),
    ) {
        let Ok(model) = couplings(d, &values) else { return Ok(()) };
        let runner = ChainRunner::new(ChainOptions {
            n_chains: 2,
            n_draws: 3,
            burn_in: 1,
            ..Default::default()
        })
        .unwrap();
        for scan in [Scan::Sequential, Scan::Random] {
            if let Ok(gibbs) = Gibbs::at_inverse_temperature(&model, scan, beta) {
                prop_assert_eq!(runner.run(&gibbs).unwrap().pooled().n_samples(), 6);
            }
            let gibbs = Gibbs::with_scan(&model, scan).unwrap();
            let state = gibbs.state(&[0]).unwrap();
            all_finite("energy", [&gibbs.energy(&state)])?;
            for unit in 0..d {
                let p = gibbs.conditional_probability(&state, unit);
                prop_assert!((0.0..=1.0).contains(&p), "{p}");
            }
        }
        let swendsen_wang = SwendsenWang::new(&model).unwrap();
        prop_assert_eq!(runner.run(&swendsen_wang).unwrap().pooled().n_samples(), 6);
        if let Ok(tempering) = Tempering::new(&model, &[1.0, 0.5, 0.0], Scan::Sequential) {
            prop_assert_eq!(runner.run(&tempering).unwrap().pooled().n_samples(), 6);
        }
        prop_assert!(Tempering::new(&model, &[1.0, beta], Scan::Random).is_ok()
            == (0.0..1.0).contains(&beta));
        let options = AnnealedOptions { n_chains: 3, n_levels: 3, ..Default::default() };
        let found = annealed_log_z(&model, &options).unwrap();
        all_finite("ln Z", [&found.log_z, &found.standard_error, &found.effective_chains])?;
        let line = Lattice::new(1, d, Boundary::Open).unwrap();
        if let Ok(exact) = ExactLattice::new(&model, &line) {
            all_finite("ln Z", [&exact.log_z()])?;
            prop_assert_eq!(exact.draw(3, 0).n_samples(), 3);
        }
    }

    #[test]
    fn diagnostics_are_numbers_or_errors(chains in vec(vec(number(), 0..8), 0..4)) {
        // A constant series has no variance: NaN and +∞ are documented there.
        for outcome in [
            diagnostics::ess(&chains),
            diagnostics::bulk_ess(&chains),
            diagnostics::tail_ess(&chains),
            diagnostics::rhat(&chains),
            diagnostics::mcse(&chains),
            diagnostics::integrated_autocorrelation_time(&chains),
        ] {
            if chains.iter().flatten().any(|v| !v.is_finite()) {
                prop_assert!(outcome.is_err());
            }
        }
        prop_assert_eq!(
            diagnostics::summary(&chains).is_err(),
            diagnostics::ess(&chains).is_err()
        );
    }

    #[test]
    fn linear_algebra_is_finite_or_an_error(n in 0..5usize, values in vec(number(), 1..30), t in number()) {
        let a = Array2::from_shape_fn((n, n), |(i, j)| values[(i * n + j) % values.len()]);
        let symmetric = Array2::from_shape_fn((n, n), |(i, j)| a[[i.max(j), i.min(j)]]);
        if let Ok(eigen) = linalg::symmetric_eigen(symmetric.view()) {
            all_finite("eigenvalues", &eigen.0)?;
            all_finite("eigenvectors", &eigen.1)?;
        }
        if let Ok((log_determinant, inverse)) = linalg::log_determinant_and_inverse(a.view()) {
            all_finite("inverse", inverse.iter().chain([&log_determinant]))?;
        }
        if let Ok((u, s, vt)) = linalg::singular_values(a.view()) {
            all_finite("svd", u.iter().chain(&s).chain(&vt))?;
        }
        if let Ok(inverse) = linalg::positive_definite_inverse(symmetric.view()) {
            all_finite("inverse", &inverse)?;
        }

        let energies: Vec<f64> = values.iter().copied().cycle().take(n).collect();
        if energies.iter().all(|e| e.is_finite()) && n > 0 {
            all_finite("p", &boltzmann(&energies))?;
        }
        let g = values.iter().copied().cycle();
        let g = Array2::from_shape_vec((n, n), g.take(n * n).collect()).unwrap();
        let _ = DenseConnectivity::new(g);
        if n > 0
            && let Ok(dynamics) = Dynamics::new(&energies, &DenseConnectivity::all_to_all(n))
        {
            all_finite("rates", dynamics.rates())?;
            let p0 = Array1::from_elem(n, 1.0 / n as f64);
            all_finite("rate", [&dynamics.initial_kl_rate(p0.view())])?;
            if t.is_finite() && t >= 0.0 {
                let p = dynamics.evolve(p0.view(), t);
                all_finite("p(t)", &p)?;
                no_nan("kl", [&kl_divergence(p0.view(), p.view())])?;
            }
        }
        let _ = LinearEnergies::new(a);
    }

    #[test]
    fn minimisations_end_whatever_the_objective_does(
        start in vec(number(), 1..4),
        lambda in vec(number(), 0..4),
        scale in number(),
        power in 0..4i32,
    ) {
        let n = start.len();
        let mut objective = from_fn(n, |x: &[f64], grad: &mut [f64]| {
            let mut value = 0.0;
            for (g, x) in grad.iter_mut().zip(x) {
                value += scale * x.powi(power) + (0.1 * x).exp();
                *g = scale * f64::from(power) * x.powi(power - 1) + 0.1 * (0.1 * x).exp();
            }
            value
        });
        let minimizer = Minimizer::new(MinimizerOptions { max_iterations: 30, ..Default::default() });
        let minimizer = minimizer.unwrap();
        if let Ok(found) = minimizer.minimize_l1(&mut objective, &start, &lambda, |_| {}) {
            all_finite("θ", &found.theta)?;
            all_finite("minimum", [&found.value, &found.kkt_residual])?;
        }
        if let Ok(mut ridge) = Ridge::new(objective, lambda) {
            let mut grad = vec![0.0; n];
            let _ = ridge.value_and_gradient(&start, &mut grad);
        }
    }
}

proptest! {
    #![proptest_config(few(1500))]

    #[test]
    fn fits_are_finite_or_refused(
        states in data(),
        weights in proptest::option::of(vec(number(), 20)),
        start in proptest::option::of(vec(finite(), 1..10)),
        (l1, l2) in (prop_oneof![4 => Just(0.0), 1 => number()], prop_oneof![4 => Just(0.0), 1 => number()]),
        fixed in proptest::option::weighted(0.2, vec(number(), 70)),
        (hood, log, nodewise) in (0..3usize, any::<bool>(), any::<bool>()),
    ) {
        let d = states.n_units();
        let samples = match weights {
            None => Samples::new(&states),
            Some(weights) => {
                let all: Vec<f64> = weights.into_iter().cycle().take(states.n_samples()).collect();
                Samples::weighted(&states, &all)
            }
        };
        let Ok(samples) = samples else { return Ok(()) };
        all_finite("means", &samples.means())?;
        let preflight = Preflight::new(&samples, None).unwrap();
        all_finite("preflight", [
            &preflight.silent_fraction, &preflight.flips_into_data, &preflight.seconds,
        ])?;
        let start = start.and_then(|values| couplings(d, &values).ok());
        let biases = match fixed {
            None => Biases::Free,
            Some(values) => Biases::Fixed(values[..d.min(70)].to_vec()),
        };
        let options = FitOptions {
            l1,
            l2,
            l2_on_fields: log,
            neighbourhood: [
                Neighbourhood::SingleFlips,
                Neighbourhood::SingleFlipsAndComplement,
                Neighbourhood::OutsideData,
            ][hood],
            form: if log { Form::Log } else { Form::Sum },
            mode: if nodewise { Mode::NodeWise } else { Mode::Joint },
            biases: biases.clone(),
            start: start.clone(),
            minimizer: MinimizerOptions { max_iterations: 12, ..Default::default() },
            ..Default::default()
        };
        if let Ok(fit) = Fitter::new(options.clone()).and_then(|f| f.fit(&samples)) {
            whole(&fit)?;
        }
        if let Ok(fit) = Pseudolikelihood::new(options.clone()).and_then(|f| f.fit(&samples)) {
            whole(&fit)?;
        }
        for fitter in [rise(l1, options.clone()), log_rise(l1, options.clone())] {
            if let Ok(Ok(fit)) = fitter.map(|f| f.fit(&samples)) {
                whole(&fit)?;
            }
        }
        if d < 9
            && let Ok(fit) = MaximumLikelihood::new(options).and_then(|f| f.fit(&samples))
        {
            whole(&fit)?;
        }
        whole(&independent(&samples).unwrap())?;
        for expansion in [Expansion::Naive, Expansion::Tap] {
            if let Ok(fit) = MeanField::new(expansion, l2).and_then(|f| f.fit(&samples)) {
                all_finite("J", fit.couplings.as_array())?;
                all_finite("fit", [&fit.smallest_eigenvalue, &fit.clipped_fraction])?;
            }
        }
        let learner = ContrastiveDivergence::new(ContrastiveOptions {
            updates: 3,
            learning_rate: LearningRate { first: if l1 == 0.0 { 3.0 } else { l1 }, last: 0.1 },
            persistent: log,
            batch_size: nodewise.then_some(2),
            biases,
            start,
            ..Default::default()
        });
        if let Ok(fit) = learner.and_then(|l| l.fit(&samples)) {
            whole(&fit)?;
        }
    }
}

proptest! {
    #![proptest_config(few(300))]

    #[test]
    fn error_bars_paths_and_missing_entries(
        states in data(),
        values in vec(finite(), 1..10),
        block in 0..5usize,
        l1 in number(),
        nodewise in any::<bool>(),
        unknown in any::<u64>(),
    ) {
        let d = states.n_units();
        let fitter = Fitter::new(FitOptions {
            mode: if nodewise { Mode::NodeWise } else { Mode::Joint },
            minimizer: MinimizerOptions { max_iterations: 12, ..Default::default() },
            ..Default::default()
        })
        .unwrap();
        // Any couplings, though the formula is for those that were fitted.
        if let Ok(model) = couplings(d, &values) {
            let samples = Samples::new(&states).unwrap();
            let drift = Drift::measure(&model, &samples, 1, 0).unwrap();
            all_finite("drift", [&drift.before, &drift.after, &drift.standard_error])?;
            if d < 9 {
                for bars in [
                    fitter.sandwich(&Mpf::default(), &model, &states, block),
                    fitter.sandwich(&PseudolikelihoodSum, &model, &states, block),
                ] {
                    let Ok(bars) = bars else { continue };
                    // A unit that never changes is not free, and has NaN.
                    let means = samples.means();
                    let free = |i: usize| means[i] > 0.0 && means[i] < 1.0;
                    for i in (0..d).filter(|&i| free(i)) {
                        all_finite("fields", [&bars.fields[i], &bars.biases[i]])?;
                        for j in (0..d).filter(|&j| free(j) && j != i) {
                            all_finite("couplings", [&bars.couplings[i][j]])?;
                        }
                    }
                }
            }
        }
        if d < 9 {
            let options = BootstrapOptions { n_resamples: 3, block_length: block, seed: 0 };
            let bars = bootstrap(&states, &options, |resample| {
                Ok::<_, mpf_ising::Error>(fitter.fit(resample)?.couplings)
            });
            if let Ok(bars) = bars {
                all_finite("fields", &bars.fields)?;
                all_finite("couplings", bars.couplings.iter().enumerate().flat_map(|(i, row)| {
                    row.iter().enumerate().filter(move |(j, _)| *j != i).map(|(_, v)| v)
                }))?;
            }
            let samples = Samples::new(&states).unwrap();
            for penalty in [Penalty::L1, Penalty::L2] {
                let path = PenaltyPath::new(PathOptions {
                    penalty,
                    lambdas: Some(vec![l1, 0.1]),
                    ..Default::default()
                });
                let Ok(path) = path else { continue };
                if let Ok(points) = path.fit(&fitter, &Mpf::default(), &samples, |_| {}) {
                    for point in points {
                        whole(&point.fit)?;
                        all_finite("ebic", &point.ebic)?;
                    }
                }
            }
            let mask = packed(d, &vec![vec![unknown & ((1 << d) - 1)]; states.n_samples()]);
            if let Ok(data) = Incomplete::new(&states, &mask) {
                all_finite("means", &data.means())?;
                for rule in [MissingRule::LeaveOut, MissingRule::complete()] {
                    if let Ok(found) = fitter.fit_incomplete(&Mpf::default(), &data, rule) {
                        whole(&found.fit)?;
                    }
                }
            }
            let method = Method::Mpf(FitOptions {
                support: Support::Edges(vec![(0, 1)]),
                ..Default::default()
            });
            if let Ok(fitted) = method.fit(&samples) {
                all_finite("J", fitted.couplings.as_array())?;
            }
        }
    }
}

/// Every method, each with an option that may be anything.
fn methods(number: f64, biases: &Biases) -> Vec<Method> {
    let options = FitOptions {
        biases: biases.clone(),
        minimizer: MinimizerOptions {
            max_iterations: 8,
            ..Default::default()
        },
        ..Default::default()
    };
    let plain = FitOptions {
        l2: number,
        ..options.clone()
    };
    vec![
        Method::Mpf(plain.clone()),
        Method::Pseudolikelihood(plain.clone()),
        Method::MaximumLikelihood(plain),
        Method::Rise {
            lambda: number,
            options: options.clone(),
        },
        Method::LogRise {
            lambda: number,
            options,
        },
        Method::ContrastiveDivergence(ContrastiveOptions {
            updates: 3,
            learning_rate: LearningRate {
                first: number,
                last: 0.1,
            },
            biases: biases.clone(),
            ..Default::default()
        }),
        Method::MeanField {
            expansion: Expansion::Naive,
            lambda: number,
        },
        Method::MeanField {
            expansion: Expansion::Tap,
            lambda: number,
        },
        Method::Independent,
    ]
}

proptest! {
    #![proptest_config(few(250))]

    #[test]
    fn every_method_is_finite_or_refused_and_goes_on_from_its_snapshot(
        states in data(),
        number in prop_oneof![Just(0.0), Just(0.5), number()],
        fixed in proptest::option::weighted(0.3, vec(finite(), 70)),
        fields in any::<bool>(),
    ) {
        let d = states.n_units();
        let biases = match fixed {
            None => Biases::Free,
            Some(values) if fields => Biases::FixedFields(values[..d].to_vec()),
            Some(values) => Biases::Fixed(values[..d].to_vec()),
        };
        let samples = Samples::new(&states).unwrap();
        for method in methods(number, &biases) {
            let Ok(fitted) = method.fit(&samples) else { continue };
            all_finite("J", fitted.couplings.as_array())?;
            all_finite("seconds", [&fitted.seconds])?;
            if let Some(course) = &fitted.course {
                all_finite("course", [&course.value, &course.kkt_residual])?;
                all_finite("course", course.asymmetry.iter().chain([&course.left_out_fraction]))?;
            }
            // Going on from the end changes nothing.
            let kept = method.clone().resumed(None).unwrap().fit(&samples).unwrap();
            let resumed = method.resumed(kept.snapshot.clone()).unwrap();
            let again = resumed.fit(&samples).unwrap();
            prop_assert_eq!(&again.couplings, &kept.couplings);
            // Nor does a snapshot of these data fit others.
            if kept.snapshot.is_some() {
                let other = packed(d + 1, &vec![vec![0; (d + 1).div_ceil(64)]; 4]);
                prop_assert!(resumed.fit(&Samples::new(&other).unwrap()).is_err());
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
        let log_z = Mean { value: log_z, standard_error: log_z_error };
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
    #![proptest_config(few(300))]

    #[test]
    fn tournaments_are_finite_but_for_k(
        states in data(),
        number in prop_oneof![Just(0.0), Just(0.5), number()],
        fixed in proptest::option::weighted(0.5, vec(finite(), 70)),
        (n_folds, block_length) in (0..5usize, 0..4usize),
        annealed in proptest::option::of((0..4usize, 0..4usize)),
    ) {
        let d = states.n_units();
        let biases = fixed.map_or(Biases::Free, |values| Biases::Fixed(values[..d].to_vec()));
        let tournament = Tournament::new(TournamentOptions {
            n_folds,
            block_length,
            annealed: annealed.map(|(n_chains, n_levels)| AnnealedOptions {
                n_chains,
                n_levels,
                ..Default::default()
            }),
            ..Default::default()
        });
        let methods = methods(number, &biases);
        let Ok(table) = tournament.run(&methods, &states, |_, _| {}) else { return Ok(()) };
        prop_assert_eq!(table.entrants.len() + table.dropouts.len(), methods.len());
        let _ = table.to_string();
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
fn a_fixed_bias_is_not_blamed_on_the_learning_rate_but_a_start_is_refused() {
    let samples = Samples::new(&packed(2, &[vec![0], vec![3], vec![1], vec![2]])).unwrap();
    let fit = |options: ContrastiveOptions| {
        let options = ContrastiveOptions {
            updates: 5,
            ..options
        };
        ContrastiveDivergence::new(options).and_then(|l| l.fit(&samples))
    };
    let fixed = fit(ContrastiveOptions {
        biases: Biases::Fixed(vec![5000.0, 0.0]),
        ..Default::default()
    });
    assert_eq!(fixed.unwrap().couplings.get(0, 0), 5000.0);
    let started = fit(ContrastiveOptions {
        start: Some(Couplings::unpack(2, &[0.0, 1e4, 0.0]).unwrap()),
        ..Default::default()
    });
    assert!(matches!(
        started.unwrap_err(),
        Error::Option { name: "start", value, .. } if value == 1e4
    ));
}
