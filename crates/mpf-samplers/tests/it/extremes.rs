//! Numbers at the edge of `f64` in every argument: results are finite, a documented NaN or ∞, or a
//! typed error, and nothing panics.

use mpf_core::rng::stream;
use mpf_ising::{Boundary, Couplings, Lattice};
use mpf_samplers::diagnostics;
use mpf_samplers::{
    AnnealedOptions, ChainOptions, ChainRunner, ChainSampler, Error, ExactEnumeration,
    ExactLattice, Gibbs, Hmc, HmcCount, HmcOptions, PhasePoint, Sampler, Scan, SmoothEnergy,
    SwendsenWang, Tempering, TemperingOptions, annealed_log_z, leapfrog,
};
use mpf_testkit::{cycle, few, number};
use proptest::collection::vec;
use proptest::prelude::*;

/// Mostly positive.
fn size() -> impl Strategy<Value = f64> {
    prop_oneof![8 => number().prop_map(f64::abs), 1 => number()]
}

/// Couplings of `d` units, or the reason why the values are refused.
fn couplings(d: usize, values: &[f64]) -> Result<Couplings, mpf_ising::Error> {
    Couplings::unpack(d, &cycle(values, d * (d + 1) / 2))
}

fn is_probability(p: f64) -> bool {
    (0.0..=1.0).contains(&p)
}

/// Energies as users write them by mistake.
#[derive(Clone, Copy, Debug)]
enum Energy {
    /// scale · q²/2.
    Bowl(f64),
    /// The same everywhere, so that nothing holds a position back.
    Flat(f64),
    /// scale · Σ q.
    Slope(f64),
    /// A bowl whose gradient is `scale` beyond ±1.
    BadGradient(f64),
    /// A bowl whose energy is `scale` beyond ±1.
    BadValue(f64),
}

impl SmoothEnergy for Energy {
    fn n_dims(&self) -> usize {
        2
    }

    fn energy_and_gradient(&self, q: &[f64], gradient: &mut [f64]) -> f64 {
        let square: f64 = q.iter().map(|q| q * q).sum();
        let far = square > 1.0 || square.is_nan();
        gradient.copy_from_slice(q);
        match *self {
            Self::Bowl(scale) => {
                gradient.iter_mut().for_each(|g| *g *= scale);
                0.5 * scale * square
            }
            Self::Flat(level) => {
                gradient.fill(0.0);
                level
            }
            Self::Slope(scale) => {
                gradient.fill(scale);
                scale * q.iter().sum::<f64>()
            }
            Self::BadGradient(scale) => {
                if far {
                    gradient.fill(scale);
                }
                0.5 * square
            }
            Self::BadValue(scale) => {
                if far {
                    scale
                } else {
                    0.5 * square
                }
            }
        }
    }
}

fn energy() -> impl Strategy<Value = Energy> {
    (number(), 0..5usize).prop_map(|(scale, kind)| match kind {
        0 => Energy::Bowl(scale),
        1 => Energy::Flat(scale),
        2 => Energy::Slope(scale),
        3 => Energy::BadGradient(scale),
        _ => Energy::BadValue(scale),
    })
}

fn runner(n_chains: usize, n_draws: usize) -> ChainRunner {
    ChainRunner::new(ChainOptions {
        n_chains,
        n_draws,
        burn_in: 1,
        ..Default::default()
    })
    .unwrap()
}

proptest! {
    #![proptest_config(few(600))]

    #[test]
    fn hmc_never_leaves_the_finite(
        energy in energy(),
        start in vec(number(), 2),
        momentum in vec(number(), 2),
        (step_size, trajectory) in (size(), size()),
        jitter in prop_oneof![Just(0.1), number()],
        (divergence, target_acceptance) in (size(), prop_oneof![Just(0.8), number()]),
    ) {
        let options = HmcOptions { step_size, trajectory, jitter, divergence, target_acceptance };
        let positive = |v: f64| v > 0.0 && v.is_finite();
        let fine = positive(step_size)
            && positive(trajectory)
            && (0.0..1.0).contains(&jitter)
            && divergence > 0.0
            && target_acceptance > 0.0
            && target_acceptance < 1.0;
        let made = Hmc::new(energy, options.clone());
        prop_assert_eq!(made.is_ok(), fine);
        if let Ok(mut point) = PhasePoint::new(&energy, &start, &momentum) {
            prop_assert!(point.position.iter().chain(&point.momentum).all(|v| v.is_finite()));
            prop_assert!(point.potential.is_finite() && !point.hamiltonian().is_nan());
            leapfrog(&energy, &mut point, step_size, 3);
        }
        let Ok(hmc) = made else { return Ok(()) };
        prop_assert!((1..=10_000).contains(&hmc.n_leapfrog_steps()));
        let check = |hmc: &Hmc<Energy>| -> Result<(), TestCaseError> {
            let Ok(state) = hmc.state(&start) else { return Ok(()) };
            let run = runner(1, 4).run_from(hmc, vec![state], |_| {}).unwrap();
            prop_assert!(run.coordinate(0).iter().flatten().all(|q| q.is_finite()));
            prop_assert!(run.coordinate(1).iter().flatten().all(|q| q.is_finite()));
            prop_assert!(is_probability(run.chains[0].info.acceptance_rate()));
            Ok(())
        };
        check(&hmc)?;
        if let Ok((warm, state, count)) = Hmc::warm_up(energy, options, &start, 6, 0) {
            prop_assert!(positive(warm.options().step_size), "{}", warm.options().step_size);
            prop_assert!(state.position().iter().all(|q| q.is_finite()));
            prop_assert!(state.energy().is_finite() && is_probability(count.acceptance_rate()));
            check(&warm)?;
        }
    }
}

proptest! {
    #![proptest_config(few(600))]

    #[test]
    fn samplers_run_on_any_couplings(
        d in 1..7usize,
        values in vec(number(), 1..30),
        beta in number(),
        ladder in vec(0.0..1.0f64, 1..4),
        row in any::<u64>(),
    ) {
        let Ok(model) = couplings(d, &values) else { return Ok(()) };
        let row = [row & ((1 << d) - 1)];
        for scan in [Scan::Sequential, Scan::Random] {
            if let Ok(gibbs) = Gibbs::at_inverse_temperature(&model, scan, beta) {
                prop_assert_eq!(runner(2, 3).run(&gibbs).unwrap().pooled().n_samples(), 6);
            }
            let gibbs = Gibbs::with_scan(&model, scan).unwrap();
            let mut state = gibbs.state(&row).unwrap();
            for unit in 0..d {
                gibbs.set(&mut state, unit, unit % 2 == 0);
                prop_assert!(is_probability(gibbs.conditional_probability(&state, unit)));
            }
            prop_assert!(gibbs.energy(&state).is_finite());
            // The surroundings that were kept up to date are still those of the state.
            prop_assert!(gibbs.accepts(&state));
            let run = runner(1, 2).run_from(&gibbs, vec![state], |_| {});
            prop_assert!(run.is_ok());
        }
        let clusters = SwendsenWang::new(&model).unwrap();
        prop_assert_eq!(runner(2, 3).run(&clusters).unwrap().pooled().n_samples(), 6);
        let mut ladder = ladder;
        ladder.push(1.0);
        ladder.sort_by(|a, b| b.total_cmp(a));
        ladder.dedup();
        let tempering = Tempering::new(&model, &ladder, Scan::Sequential).unwrap();
        let run = runner(2, 3).run(&tempering).unwrap();
        for rate in run.chains[0].info.acceptance_rates() {
            prop_assert!(is_probability(rate), "{rate}");
        }
        prop_assert_eq!(
            Tempering::new(&model, &[1.0, beta], Scan::Random).is_ok(),
            (0.0..1.0).contains(&beta)
        );
        let exact = ExactEnumeration::new(&model).unwrap();
        prop_assert_eq!(runner(2, 3).run(&exact).unwrap().pooled().n_samples(), 6);
        let line = Lattice::new(1, d, Boundary::Open).unwrap();
        if let Ok(exact) = ExactLattice::new(&model, &line) {
            prop_assert!(exact.log_z().is_finite());
            prop_assert_eq!(exact.draw(3, 0).n_samples(), 3);
        }
    }

    #[test]
    fn lattices_of_any_couplings_have_their_means(
        (rows, columns) in (1..4usize, 1..4usize),
        values in vec(number(), 1..20),
    ) {
        let lattice = Lattice::new(rows, columns, Boundary::Open).unwrap();
        let d = rows * columns;
        let mut value = values.iter().copied().cycle();
        let mut j = ndarray::Array2::zeros((d, d));
        for (a, b) in lattice.edges().into_iter().chain((0..d).map(|i| (i, i))) {
            j[[a, b]] = value.next().unwrap();
            j[[b, a]] = j[[a, b]];
        }
        let Ok(model) = Couplings::new(j) else { return Ok(()) };
        let exact = ExactLattice::new(&model, &lattice).unwrap();
        prop_assert!(exact.log_z().is_finite());
        // A few roundings for every site.
        let slack = 1e-12;
        let within = |v: &f64, low: f64| (low - slack..=1.0 + slack).contains(v);
        prop_assert!(exact.means().iter().all(|m| within(m, 0.0)));
        prop_assert!(exact.pair_means().iter().all(|m| within(m, 0.0)));
        prop_assert!(exact.spin_correlations().iter().all(|m| within(m, -1.0)));
        let enumerated = ExactEnumeration::new(&model).unwrap();
        // Where energies of 1e300 nearly cancel, the two round differently.
        if model.as_array().iter().all(|v| v.abs() < 1e3) {
            let off = exact.pair_means() - enumerated.exact().pair_means();
            prop_assert!(off.iter().all(|e| e.abs() < 1e-9));
        }
        prop_assert_eq!(exact.draw(3, 0).n_samples(), 3);
    }

    #[test]
    fn diagnostics_of_any_chains_are_numbers_or_errors(
        chains in vec(vec(number(), 6..11), 0..4),
    ) {
        let n = chains.first().map_or(0, Vec::len);
        let fine = n >= diagnostics::Summary::MIN_DRAWS
            && chains.iter().all(|c| c.len() == n && c.iter().all(|v| v.is_finite()));
        for outcome in [
            diagnostics::ess(&chains),
            diagnostics::bulk_ess(&chains),
            diagnostics::tail_ess(&chains),
            diagnostics::rhat(&chains),
            diagnostics::mcse(&chains),
            diagnostics::integrated_autocorrelation_time(&chains),
            diagnostics::summary(&chains).map(|s| s.mean),
        ] {
            prop_assert_eq!(outcome.is_ok(), fine);
        }
    }

    #[test]
    fn diagnostics_are_finite_or_as_documented(
        chains in (1..4usize, 8..20usize).prop_flat_map(|(n_chains, n)| {
            let few = vec(number(), 1..4);
            let values = few.prop_flat_map(move |few| {
                vec(vec(proptest::sample::select(few), n), n_chains)
            });
            prop_oneof![values, vec(vec(number(), n), n_chains)]
        }),
    ) {
        let bad = chains.iter().flatten().any(|v| !v.is_finite());
        let found = diagnostics::summary(&chains);
        prop_assert_eq!(found.is_err(), bad);
        let Ok(found) = found else {
            let named = matches!(found, Err(Error::NonFiniteDraw { .. }));
            prop_assert!(named);
            return Ok(());
        };
        // The middle one of an odd number is left out of all but mean and deviation.
        let n = chains[0].len();
        let halves: Vec<&[f64]> =
            chains.iter().flat_map(|c| [&c[..n / 2], &c[n - n / 2..]]).collect();
        let first = halves[0][0];
        let constant = halves.iter().all(|h| h.iter().all(|v| *v == first));
        let stuck = halves.iter().all(|h| h.iter().all(|v| *v == h[0]));
        let mut sorted = chains.concat();
        sorted.sort_by(f64::total_cmp);
        let median = 0.5 * sorted[(sorted.len() - 1) / 2] + 0.5 * sorted[sorted.len() / 2];
        let distance = |v: &f64| (0.5 * v - 0.5 * median).abs();
        let equidistant = halves.iter().all(|h| {
            let first = distance(&h[0]);
            h.iter().all(|v| (distance(v) - first).abs() <= 1e-12 * first)
        });
        let largest = chains.iter().flatten().fold(0.0f64, |m, v| m.max(v.abs()));

        prop_assert!(found.mean.is_finite() && found.mean.abs() <= largest * (1.0 + 1e-12));
        prop_assert!(found.standard_deviation >= 0.0);
        if largest < 1e307 {
            prop_assert!(found.standard_deviation.is_finite());
        }
        for (what, value, other) in [
            ("ess", diagnostics::ess(&chains).unwrap(), None),
            ("tau", found.autocorrelation_time, None),
            ("bulk", found.bulk_ess, None),
            ("mcse", found.mcse, (largest >= 1e307).then_some(f64::INFINITY)),
            ("mcse", diagnostics::mcse(&chains).unwrap(), (largest >= 1e307).then_some(f64::INFINITY)),
            ("rhat", found.rhat, (stuck || equidistant).then_some(f64::INFINITY)),
        ] {
            if constant {
                prop_assert!(value.is_nan(), "{what} = {value}");
            } else {
                let allowed = value.is_finite() && value >= 0.0 || Some(value) == other;
                prop_assert!(allowed, "{what} = {value}");
            }
        }
        if stuck && !constant {
            prop_assert_eq!(found.rhat, f64::INFINITY);
        }
        if constant || !found.tail_ess.is_finite() {
            prop_assert!(found.tail_ess.is_nan());
        }
        if found.tail_ess.is_nan() && n % 2 == 0 {
            let top = chains.iter().flatten().fold(f64::MIN, |m, v| m.max(*v));
            let all = chains.iter().flatten().count();
            let at_top = chains.iter().flatten().filter(|v| **v == top).count();
            prop_assert!(constant || at_top as f64 >= 0.94 * all as f64 - 1.0, "{at_top} of {all}");
        }
    }
}

proptest! {
    #![proptest_config(few(150))]

    #[test]
    fn ladders_are_found_or_refused(
        d in 1..5usize,
        values in vec(number(), 1..20),
        hottest in prop_oneof![0.0..1.0f64, number(), Just(1.0 - f64::EPSILON / 2.0)],
        n_levels in proptest::option::of(proptest::sample::select(vec![0, 1, 2, 7, 128, 129, usize::MAX])),
        warm_up in proptest::sample::select(vec![0, 99, 100, 140]),
    ) {
        let Ok(model) = couplings(d, &values) else { return Ok(()) };
        let options = TemperingOptions { hottest, n_levels, warm_up, ..Default::default() };
        let fine = (0.0..1.0).contains(&hottest)
            && (2..=128).contains(&n_levels.unwrap_or(2))
            && warm_up >= 100;
        match Tempering::tune(&model, &options) {
            Ok(found) => {
                prop_assert!(fine);
                let ladder = found.inverse_temperatures();
                prop_assert_eq!(ladder[0], 1.0);
                prop_assert!(ladder.windows(2).all(|w| w[1] < w[0] && w[1] >= 0.0));
            }
            Err(error) => {
                // Levels that cannot be told apart.
                let close = 1.0 - hottest < 1e-12;
                prop_assert!(!fine || close, "{error}");
                prop_assert!(matches!(error, Error::Core(mpf_core::Error::Option { .. })), "{error}");
            }
        }
    }

    #[test]
    fn annealing_is_finite_or_refused(
        d in 1..6usize,
        values in vec(number(), 1..20),
        n_chains in 0..5usize,
        n_levels in 0..5usize,
        seed in any::<u64>(),
    ) {
        let Ok(model) = couplings(d, &values) else { return Ok(()) };
        let options = AnnealedOptions { n_chains, n_levels, seed, ..Default::default() };
        let found = annealed_log_z(&model, &options);
        prop_assert_eq!(found.is_ok(), n_chains >= 2 && n_levels >= 1);
        if let Ok(found) = found {
            prop_assert!(found.log_z.is_finite() && found.standard_error.is_finite());
            prop_assert!(found.effective_chains >= 1.0 - 1e-12);
            prop_assert!(found.effective_chains <= n_chains as f64 * (1.0 + 1e-12));
        }
    }
}

#[test]
fn more_steps_than_can_be_counted_are_refused() {
    for (burn_in, n_draws, thinning) in [
        (usize::MAX, 1, 1),
        (0, usize::MAX, 2),
        (1, 1 << 32, 1 << 32),
    ] {
        let error = ChainRunner::new(ChainOptions {
            burn_in,
            n_draws,
            thinning,
            ..Default::default()
        })
        .unwrap_err();
        assert_eq!(
            error,
            Error::TooManySteps {
                burn_in,
                n_draws,
                thinning
            }
        );
    }
}

/// Constants, and rates of what was never tried.
#[test]
fn documented_nans() {
    assert!(HmcCount::default().acceptance_rate().is_nan());
    let tempering = Tempering::new(
        &Couplings::zeros(2).unwrap(),
        &[1.0, 0.5, 0.1],
        Scan::Sequential,
    )
    .unwrap();
    let mut state = tempering.random_start(&mut stream(1, 0)).unwrap();
    // The first step tries the even pairs only.
    let rates = tempering
        .step(&mut state, &mut stream(1, 0))
        .acceptance_rates();
    assert!(rates[0] == 1.0 && rates[1].is_nan());
    // 39 of 40 draws are the largest: both quantiles are it, and neither tail can be judged.
    let mut rare = vec![1.0; 40];
    rare[7] = 0.0;
    assert!(diagnostics::tail_ess(&[rare]).unwrap().is_nan());
}
