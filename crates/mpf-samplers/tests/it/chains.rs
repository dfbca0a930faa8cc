//! Chains and their diagnostics: seeds, threads, thinning, cancelling, AR(1).

use mpf_core::rng::stream;
use mpf_core::{Cancel, checkpoint};
use mpf_ising::{Boundary, Lattice, States};
use mpf_samplers::{
    ChainOptions, ChainRunner, ChainSampler, Error, ExactEnumeration, ExactLattice, Gibbs, Run,
    Sampler, SwendsenWang, Tally, Tempering, TemperingOptions, diagnostics,
};
use mpf_testkit::{random_couplings, seed};
use rand::RngExt;
use rand_distr::StandardNormal;
use serde::{Serialize, de::DeserializeOwned};
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

fn run<S>(options: ChainOptions, sampler: &S, threads: usize) -> Run<States, S::Info>
where
    S: ChainSampler<Draws = States, Info: Tally + Send, State: Send> + Sync,
{
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .unwrap();
    pool.install(|| ChainRunner::new(options).unwrap().run(sampler).unwrap())
}

#[test]
fn a_seed_means_the_same_draws_for_any_number_of_threads() {
    fn check<S>(sampler: &S)
    where
        S: ChainSampler<Draws = States, Info: Tally + Send, State: Send> + Sync,
    {
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
    assert_eq!(found.chains[1].n_draws, 40);
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
        Error::Count {
            expected: 3,
            found: 2,
            ..
        }
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
    assert_eq!(broken_off.chains[0].n_draws, 10);
    assert_eq!(
        broken_off.chains[0].draws,
        complete.chains[0].draws.slice(0..10)
    );
    // Cancelled before it began: no draws, and it says so.
    let nothing = runner.run(&gibbs).unwrap();
    assert!(nothing.cancelled && nothing.chains[0].n_draws == 0);
}

#[test]
fn chains_that_were_stored_go_on_to_the_same_draws() {
    fn check<S>(sampler: &S)
    where
        S: ChainSampler<Draws = States, Info: Tally + Send, State: Send> + Sync,
        S::State: Clone + Serialize + DeserializeOwned,
        S::Info: Clone + Serialize + DeserializeOwned + PartialEq + Debug,
    {
        let whole = run(options(), sampler, 2);
        for piece in [1, 5, 30, 86] {
            let runner = ChainRunner::new(options()).unwrap();
            let mut chains = runner.begin(sampler).unwrap();
            while chains.steps() < 87 {
                runner.advance(sampler, &mut chains, piece, |_| {}).unwrap();
                let stored = checkpoint::seal(&chains).unwrap();
                chains = checkpoint::open(&stored).unwrap();
            }
            assert_eq!(runner.finish(chains), whole, "pieces of {piece}");
        }
        // Fewer draws, and then the rest of them.
        let fewer = ChainRunner::new(ChainOptions {
            n_draws: 11,
            ..options()
        })
        .unwrap();
        let runner = ChainRunner::new(options()).unwrap();
        let mut chains = fewer.begin(sampler).unwrap();
        fewer
            .advance(sampler, &mut chains, usize::MAX, |_| {})
            .unwrap();
        assert!(!fewer.finish(chains.clone()).cancelled);
        runner
            .advance(sampler, &mut chains, usize::MAX, |_| {})
            .unwrap();
        assert_eq!(runner.finish(chains), whole);
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
            matches!(error, Error::Option { name: found, value, .. } if found == name && value == 0.0)
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
