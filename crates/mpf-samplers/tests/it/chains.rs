//! Chains and their diagnostics: seeds, threads, thinning, cancelling, AR(1).

use mpf_core::Cancel;
use mpf_core::rng::stream;
use mpf_ising::{Boundary, Lattice, States};
use mpf_samplers::diagnostics::Quantity;
use mpf_samplers::{
    ChainOptions, ChainRunner, ChainSampler, Error, ExactEnumeration, ExactLattice, Gibbs, Hmc,
    HmcOptions, Run, Sampler, Scan, SmoothEnergy, SwendsenWang, Tempering, TemperingOptions,
    diagnostics, draw,
};
use mpf_testkit::{StopAfter, judged_models, random_couplings, seed};
use rand::RngExt;
use rand_distr::StandardNormal;
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};

fn options() -> ChainOptions {
    ChainOptions {
        seed: 5,
        n_chains: 3,
        n_draws: 40,
        burn_in: 7,
        thinning: 2,
        ..Default::default()
    }
}

fn run<S: ChainSampler>(
    options: ChainOptions,
    sampler: &S,
    threads: usize,
) -> Run<S::Draws, S::Info> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .unwrap();
    pool.install(|| ChainRunner::new(options).unwrap().run(sampler).unwrap())
}

#[test]
fn a_seed_means_the_same_draws_for_any_number_of_threads() {
    fn check<S: ChainSampler<Draws = States>>(sampler: &S) {
        let one = run(options(), sampler, 1);
        let many = run(options(), sampler, 4);
        assert_eq!(one.pooled(), many.pooled());
        assert_eq!(one.pooled().n_samples(), 120);
        // Chains differ from each other, and do not depend on how many there are.
        assert_ne!(one.chains[0].draws, one.chains[1].draws);
        let more = run(
            ChainOptions {
                n_chains: 5,
                ..options()
            },
            sampler,
            2,
        );
        assert_eq!(more.chains[2].draws, one.chains[2].draws);
        let other = run(
            ChainOptions {
                seed: 6,
                ..options()
            },
            sampler,
            2,
        );
        assert_ne!(other.pooled(), one.pooled());
    }
    let lattice = Lattice::new(5, 4, Boundary::Open).unwrap();
    let glass = lattice.spin_glass(1.0, &mut stream(1, 0)).unwrap();
    check(&Gibbs::new(&glass).unwrap());
    check(&Gibbs::new(&random_couplings(20, 0.3, 1)).unwrap());
    check(&SwendsenWang::new(&glass).unwrap());
    check(&Tempering::tune(&glass, &TemperingOptions::default()).unwrap());
    check(&ExactLattice::new(&glass, &lattice).unwrap());
    check(&ExactEnumeration::new(&glass).unwrap());
}

#[test]
fn burn_in_and_thinning_pick_the_stated_steps() {
    let gibbs = Gibbs::new(&random_couplings(9, 0.5, 2)).unwrap();
    let found = run(options(), &gibbs, 2);
    // The same by hand: chain 1 is stream 1, its start included.
    let mut rng = stream(5, 1);
    let mut state = gibbs.random_start(&mut rng).unwrap();
    let mut kept = gibbs.no_draws();
    let mut flips = 0;
    for step in 1..=7 + 2 * 40 {
        let info = gibbs.step(&mut state, &mut rng);
        if step > 7 {
            flips += info.flips;
            if (step - 7) % 2 == 0 {
                gibbs.record(&state, &mut kept);
            }
        }
    }
    assert_eq!(found.chains[1].draws, kept);
    assert_eq!(found.chains[1].info.flips, flips);
    assert_eq!(found.chains[1].info.updates, 80 * 9);
    assert_eq!(found.chains[1].draws.n_samples(), 40);
    assert!(!found.cancelled);
}

#[test]
fn given_starts_are_used() {
    let gibbs = Gibbs::new(&random_couplings(9, 0.5, 2)).unwrap();
    let runner = ChainRunner::new(ChainOptions {
        burn_in: 0,
        ..options()
    })
    .unwrap();
    let starts = vec![gibbs.state(&[0]).unwrap(); 3];
    let run = runner.run_from(&gibbs, starts.clone(), |_| {}).unwrap();
    let mut rng = stream(5, 0);
    let mut state = starts[0].clone();
    gibbs.step(&mut state, &mut rng);
    gibbs.step(&mut state, &mut rng);
    assert_eq!(run.chains[0].draws.row(0), state.row());
    let error = runner
        .run_from(&gibbs, starts[..2].to_vec(), |_| {})
        .unwrap_err();
    assert!(matches!(
        error,
        Error::Core(mpf_core::Error::Count {
            expected: 3,
            found: 2,
            ..
        })
    ));
}

#[test]
fn progress_is_told_and_a_cancelled_run_keeps_what_it_had() {
    let gibbs = Gibbs::new(&random_couplings(9, 0.5, 2)).unwrap();
    let calls = AtomicUsize::new(0);
    let full = ChainRunner::new(options()).unwrap();
    let complete = full
        .run_with_progress(&gibbs, |p| {
            assert!(p.chain < 3 && p.steps <= p.total_steps && p.total_steps == 87);
            calls.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
    assert_eq!(calls.into_inner(), 3 * 87);

    let cancel = Cancel::new();
    let runner = ChainRunner::new(ChainOptions {
        n_chains: 1,
        cancel: cancel.clone(),
        ..options()
    })
    .unwrap();
    let broken_off = runner
        .run_with_progress(&gibbs, |p| {
            if p.steps == 27 {
                cancel.cancel();
            }
        })
        .unwrap();
    assert!(broken_off.cancelled);
    // 27 steps are 7 of burn-in and 10 draws.
    assert_eq!(broken_off.chains[0].draws.n_samples(), 10);
    assert_eq!(
        broken_off.chains[0].draws,
        complete.chains[0].draws.slice(0..10)
    );
    // Cancelled before it began: no draws, and it says so.
    let nothing = runner.run(&gibbs).unwrap();
    assert!(nothing.cancelled && nothing.chains[0].draws.n_samples() == 0);
}

/// q² and a quartic: not symmetric between its coordinates.
struct Valley;

impl SmoothEnergy for Valley {
    fn n_dims(&self) -> usize {
        2
    }

    fn energy_and_gradient(&self, q: &[f64], gradient: &mut [f64]) -> f64 {
        gradient[0] = q[0];
        gradient[1] = q[1].powi(3);
        0.5 * q[0] * q[0] + 0.25 * q[1].powi(4)
    }
}

#[test]
fn resumed_chains_draw_the_same_bits_wherever_they_were_stopped() {
    fn check<S>(sampler: &S)
    where
        S: ChainSampler<Draws: PartialEq + Debug, Info: PartialEq + Debug>,
    {
        let whole = run(options(), sampler, 2);
        // 87 steps in pieces of one: before the first draw, between draws, at the end.
        for stop in [1, 5, 7, 8, 30, 86, 87] {
            let mut stopped = options();
            let file = StopAfter::new(stop);
            stopped.checkpoint = file.checkpoint();
            stopped.cancel = file.cancel().clone();
            let part = run(stopped, sampler, 2);
            assert_eq!(part.cancelled, stop < 87);
            if !part.cancelled {
                assert_eq!(part, whole);
            }
            let resumed = ChainOptions {
                checkpoint: file.resumed().1,
                ..options()
            };
            // A second resumption of a finished run ends at once.
            assert_eq!(run(resumed.clone(), sampler, 1), whole, "after {stop}");
            assert_eq!(run(resumed, sampler, 1), whole, "after {stop}");
        }
        // A cancelled run keeps its last steps, written or not.
        let mut stopped = options();
        let file = StopAfter::new(usize::MAX);
        stopped.checkpoint = file.checkpoint();
        let (checkpoint, cancel) = (stopped.checkpoint.clone(), stopped.cancel.clone());
        let runner = ChainRunner::new(stopped).unwrap();
        let part = runner.run_with_progress(sampler, |p| {
            if p.chain == 1 && p.steps == 50 {
                cancel.cancel();
            }
        });
        assert!(part.unwrap().cancelled);
        let resumed = ChainOptions {
            checkpoint: checkpoint.clone(),
            ..options()
        };
        assert_eq!(run(resumed, sampler, 2), whole);
        // Fewer draws first, and then the others.
        let file = StopAfter::new(usize::MAX);
        let fewer = ChainOptions {
            n_draws: 11,
            checkpoint: file.checkpoint(),
            ..options()
        };
        assert!(!run(fewer.clone(), sampler, 2).cancelled);
        let more = ChainOptions {
            checkpoint: file.resumed().1,
            ..options()
        };
        assert_eq!(run(more, sampler, 2), whole);
    }
    let lattice = Lattice::new(5, 4, Boundary::Open).unwrap();
    let glass = lattice.spin_glass(1.0, &mut stream(1, 0)).unwrap();
    check(&Gibbs::new(&glass).unwrap());
    check(&Gibbs::new(&random_couplings(20, 0.3, 1)).unwrap());
    check(&SwendsenWang::new(&glass).unwrap());
    check(&Tempering::tune(&glass, &TemperingOptions::default()).unwrap());
    check(&ExactLattice::new(&glass, &lattice).unwrap());
    check(&ExactEnumeration::new(&glass).unwrap());
    check(&Hmc::new(Valley, HmcOptions::default()).unwrap());
}

#[test]
fn given_starts_are_resumed_too() {
    let gibbs = Gibbs::new(&random_couplings(9, 0.5, 2)).unwrap();
    let starts = vec![gibbs.state(&[5]).unwrap(); 3];
    let run = |options| {
        let runner = ChainRunner::new(options).unwrap();
        runner.run_from(&gibbs, starts.clone(), |_| {}).unwrap()
    };
    let file = StopAfter::new(20);
    let mut stopped = options();
    stopped.checkpoint = file.checkpoint();
    stopped.cancel = file.cancel().clone();
    assert!(run(stopped).cancelled);
    let resumed = ChainOptions {
        checkpoint: file.resumed().1,
        ..options()
    };
    assert_eq!(run(resumed), run(options()));
}

#[test]
fn one_call_draws_from_any_sampler() {
    let gibbs = Gibbs::new(&random_couplings(9, 0.5, 2)).unwrap();
    let found = draw(&gibbs, 10, 5).unwrap();
    // Four chains of three draws; the last two are left out.
    let whole = run(
        ChainOptions {
            seed: 5,
            n_draws: 3,
            ..Default::default()
        },
        &gibbs,
        1,
    );
    assert_eq!(found, whole.pooled().slice(0..10));
    assert_eq!(draw(&gibbs, 2, 5).unwrap().n_samples(), 2);
    let none = draw(&gibbs, 0, 5).unwrap_err().to_string();
    assert!(none.contains("`n_draws` is 0"), "{none}");
    let valley = Hmc::new(Valley, HmcOptions::default()).unwrap();
    assert_eq!(draw(&valley, 7, 5).unwrap().dim(), (7, 2));
}

#[test]
fn a_run_is_diagnosed_in_one_call() {
    let lattice = Lattice::new(5, 4, Boundary::Open).unwrap();
    let glass = lattice.spin_glass(1.0, &mut stream(1, 0)).unwrap();
    let exact = ExactLattice::new(&glass, &lattice).unwrap();
    let found = run(ChainOptions::default(), &exact, 2)
        .diagnose(&glass)
        .unwrap();
    assert_eq!((found.chains, found.round_trips), (4, None));
    assert_eq!(found.warnings, Vec::<String>::new());
    let energy = (glass.as_array() * &exact.pair_means()).sum();
    assert!((found.energy.mean - energy).abs() < 5.0 * found.energy.mcse);
    let active: f64 = exact.means().iter().sum();
    assert!((found.n_active.mean - active).abs() < 5.0 * found.n_active.mcse);

    let few = ChainOptions {
        n_draws: 8,
        burn_in: 0,
        ..Default::default()
    };
    let tempering = Tempering::new(&glass, &[1.0, 0.1, 0.0], Scan::Sequential).unwrap();
    let found = run(few.clone(), &tempering, 2).diagnose(&glass).unwrap();
    assert!(found.round_trips.is_some());
    assert!(!found.warnings.is_empty());
    for warning in &found.warnings {
        let words = [
            "do not agree on",
            "effective draws of the",
            "the whole ladder",
        ];
        assert!(words.iter().any(|w| warning.contains(w)), "{warning}");
    }
    let fewer = ChainOptions { n_draws: 7, ..few };
    let error = run(fewer, &tempering, 2).diagnose(&glass).unwrap_err();
    assert!(matches!(error, Error::TooFewDraws { found: 7, .. }));
}

#[test]
fn bad_options_are_errors_with_the_number() {
    for (name, options) in [
        (
            "n_chains",
            ChainOptions {
                n_chains: 0,
                ..options()
            },
        ),
        (
            "n_draws",
            ChainOptions {
                n_draws: 0,
                ..options()
            },
        ),
        (
            "thinning",
            ChainOptions {
                thinning: 0,
                ..options()
            },
        ),
    ] {
        let error = ChainRunner::new(options).unwrap_err();
        assert!(
            matches!(error, Error::Core(mpf_core::Error::Option { name: found, value, .. }) if found == name && value == 0.0)
        );
    }
}

#[test]
fn bad_couplings_do_not_reach_a_sampler() {
    use ndarray::array;
    let nan =
        mpf_ising::Couplings::new(array![[0.0, f64::NAN], [f64::NAN, 0.0]]).map_err(Error::from);
    let message = nan.unwrap_err().to_string();
    assert!(message.contains("units 0 and 1 is NaN"), "{message}");
    let skew = mpf_ising::Couplings::new(array![[0.0, 1.0], [2.0, 0.0]]).map_err(Error::from);
    let message = skew.unwrap_err().to_string();
    assert!(message.contains("J[0, 1] = 1 and J[1, 0] = 2"), "{message}");
    let many = mpf_ising::Couplings::zeros(25).unwrap();
    let message = ExactEnumeration::new(&many).unwrap_err().to_string();
    assert!(message.contains("25 units"), "{message}");
}

/// x_t = ρ x_{t−1} + √(1 − ρ²) e_t, started in its distribution N(0, 1).
fn ar1(rho: f64, n: usize, stream_index: usize) -> Vec<f64> {
    let mut rng = stream(seed(), stream_index);
    let mut x: f64 = rng.sample(StandardNormal);
    (0..n)
        .map(|_| {
            x = rho * x + (1.0 - rho * rho).sqrt() * rng.sample::<f64, _>(StandardNormal);
            x
        })
        .collect()
}

#[test]
fn an_ar1_process_has_its_autocorrelation_time() {
    for rho in [0.0, 0.5, 0.9, -0.4] {
        let n = 50_000;
        let chains: Vec<Vec<f64>> = (0..4).map(|k| ar1(rho, n, k)).collect();
        let tau = (1.0 + rho) / (1.0 - rho);
        let total = 4.0 * n as f64;
        let s = diagnostics::summary(&chains).unwrap();
        // A window of about W = 5 τ lags leaves a relative standard error of √(4 W / N): at most
        // 4.4 % here. Five of them, and at least 5 %.
        let tolerance = (5.0 * (20.0 * tau / total).sqrt()).max(0.05);
        let off = |found: f64, expected: f64| (found / expected - 1.0).abs();
        assert!(off(s.autocorrelation_time, tau) < tolerance, "{rho}: {s:?}");
        assert!(
            off(s.bulk_ess, total / tau) < 1.5 * tolerance,
            "{rho}: {s:?}"
        );
        assert!(
            off(s.mcse, (tau / total).sqrt()) < tolerance,
            "{rho}: {s:?}"
        );
        // Whether a draw is in the tail is remembered less than the draw itself, so its ESS lies
        // between that of the mean and that of independent draws, but for the noise.
        let (low, high) = (total.min(total / tau), total.max(total / tau));
        assert!(
            s.tail_ess > 0.8 * low && s.tail_ess < 1.2 * high,
            "{rho}: {s:?}"
        );
        assert!(s.rhat < 1.01 && s.mean.abs() < 6.0 * s.mcse);
        assert_eq!(
            diagnostics::ess(&chains).unwrap(),
            total / s.autocorrelation_time
        );
    }
}

#[test]
fn rhat_sees_location_scale_and_drift() {
    let chains: Vec<Vec<f64>> = (0..4).map(|k| ar1(0.3, 2000, k)).collect();
    assert!(diagnostics::rhat(&chains).unwrap() < 1.02);
    let mut shifted = chains.clone();
    shifted[2].iter_mut().for_each(|x| *x += 1.0);
    assert!(diagnostics::rhat(&shifted).unwrap() > 1.05);
    let mut wider = chains.clone();
    wider[1].iter_mut().for_each(|x| *x *= 3.0);
    assert!(diagnostics::rhat(&wider).unwrap() > 1.05);
    // The same drift in all chains: only the split shows it.
    let drift: Vec<Vec<f64>> = chains
        .iter()
        .map(|c| {
            c.iter()
                .enumerate()
                .map(|(t, x)| x + 1e-3 * t as f64)
                .collect()
        })
        .collect();
    assert!(diagnostics::rhat(&drift).unwrap() > 1.05);
    // Infinite variance is no obstacle to ranks.
    let heavy: Vec<Vec<f64>> = chains
        .iter()
        .map(|c| c.iter().map(|x| x.powi(7).exp().min(1e300)).collect())
        .collect();
    assert!(diagnostics::rhat(&heavy).unwrap() < 1.02);
    assert!(diagnostics::bulk_ess(&heavy).unwrap() > 1000.0);
}

#[test]
fn modes_of_equal_energy_are_told_apart() {
    // An open 4×6 antiferromagnet, K = −1.2: Gibbs chains freeze in two opposite modes.
    let models = judged_models();
    let frozen = models
        .iter()
        .find(|m| m.name == "antiferromagnet, K = -1.2");
    let j = &frozen.unwrap().couplings;
    let gibbs = Gibbs::new(j).unwrap();
    let board: u64 = (0..24)
        .filter(|i| (i / 6 + i % 6) % 2 == 0)
        .map(|i| 1 << i)
        .sum();
    let opposite = !board & ((1 << 24) - 1);
    let run_from = |rows: [u64; 4]| {
        let starts = rows.map(|row| gibbs.state(&[row]).unwrap());
        let runner = ChainRunner::new(ChainOptions {
            seed: seed(),
            ..Default::default()
        });
        let run = runner.unwrap().run_from(&gibbs, starts.to_vec(), |_| {});
        run.unwrap().diagnose(j).unwrap()
    };
    let found = run_from([board, opposite, board, opposite]);
    assert!(found.energy.rhat < 1.05 && found.n_active.rhat < 1.05);
    assert!(!found.agree);
    let worst = found.worst_rhat.unwrap();
    // Within a mode a unit differs in a few percent of the draws: R̂ ≈ sd of ±1 over that.
    assert!(worst.value > 2.0, "{worst:?}");
    assert!(matches!(worst.of, Quantity::Unit(_)), "{worst:?}");
    assert!(
        found.warnings[0].contains(&worst.of.to_string()),
        "{:?}",
        found.warnings
    );
    // Three chains in one mode: units and overlaps tell.
    let found = run_from([board, board, board, opposite]);
    assert!(
        !found.agree && found.overlap.unwrap().rhat > 2.0,
        "{found:?}"
    );

    // Few independent draws do not disagree by chance alone.
    let exact = ExactEnumeration::new(j).unwrap();
    for seed in 0..30 {
        let few = ChainOptions {
            seed,
            n_draws: 25,
            burn_in: 0,
            ..Default::default()
        };
        let run = ChainRunner::new(few).unwrap().run(&exact).unwrap();
        assert!(run.diagnose(j).unwrap().agree, "{seed}");
    }
}
