//! Started from exact draws, every kernel stays there; started anywhere, it gets there. On
//! targets with fields and frustration, for any `MPF_TEST_SEED`.

use mpf_core::rng::{next_seed, stream};
use mpf_ising::{Couplings, Exact, Lattice, States};
use mpf_samplers::{
    ChainOptions, ChainRunner, ChainSampler, ExactEnumeration, ExactLattice, Gibbs, Sampler, Scan,
    SwendsenWang, Tempering, TemperingOptions, diagnostics,
};
use mpf_testkit::{pair_means, random_couplings, random_lattice, seed};
use ndarray::Array2;

/// Independent starts of an invariance test, and steps from each.
const STARTS: usize = 6000;
const STEPS: usize = 3;

/// Compares means and pair means over independent draws with the exact ones.
#[track_caller]
fn assert_moments(what: &str, draws: &States, expected: &Array2<f64>) {
    let n = draws.n_samples() as f64;
    let found = pair_means(draws);
    for ((i, j), &p) in expected.indexed_iter() {
        // Bernstein's bound with a chance of 1e-9 per entry: 6.5 standard errors and a little.
        let bound = (43.0 * p * (1.0 - p) / n).sqrt() + 15.0 / n;
        let error = found[[i, j]] - p;
        assert!(
            error.abs() < bound,
            "{what}: ⟨x_{i} x_{j}⟩ is off by {error} of {bound}"
        );
    }
}

/// Moves every start by a few steps.
fn moved<S: Sampler>(
    sampler: &S,
    starts: impl Iterator<Item = S::State>,
    record: impl Fn(&S::State, &mut States),
    n_units: usize,
) -> States {
    let mut rng = stream(next_seed(seed()), 0);
    let mut draws = States::new(n_units).unwrap();
    for mut state in starts {
        for _ in 0..STEPS {
            sampler.step(&mut state, &mut rng);
        }
        record(&state, &mut draws);
    }
    draws
}

/// All kernels on one target, from exact draws of it (and of its warmer versions).
fn check_kernels(couplings: &Couplings, expected: &Array2<f64>, draw: impl Fn(f64, u64) -> States) {
    let d = couplings.n_units();
    let starts = draw(1.0, seed());
    assert_moments("exact draws", &starts, expected);
    for scan in [Scan::Sequential, Scan::Random] {
        let gibbs = Gibbs::with_scan(couplings, scan).unwrap();
        let from = starts.rows().map(|row| gibbs.state(row).unwrap());
        let draws = moved(&gibbs, from, |s, out| gibbs.record(s, out), d);
        assert_moments("Gibbs", &draws, expected);
    }
    let sampler = SwendsenWang::new(couplings).unwrap();
    let from = starts.rows().map(|row| sampler.state(row).unwrap());
    let draws = moved(&sampler, from, |s, out| sampler.record(s, out), d);
    assert_moments("Swendsen-Wang", &draws, expected);

    let ladder = [1.0, 0.7, 0.4];
    let sampler = Tempering::new(couplings, &ladder, Scan::Sequential).unwrap();
    let levels: Vec<States> = (0u64..)
        .zip(ladder)
        .map(|(k, beta)| draw(beta, seed() ^ k << 32))
        .collect();
    let from = (0..STARTS).map(|m| {
        let mut rows = States::new(d).unwrap();
        for level in &levels {
            rows.push(level.row(m));
        }
        sampler.state(&rows).unwrap()
    });
    let draws = moved(&sampler, from, |s, out| sampler.record(s, out), d);
    assert_moments("tempering", &draws, expected);
}

fn scaled(couplings: &Couplings, beta: f64) -> Couplings {
    Couplings::new(couplings.as_array() * beta).unwrap()
}

#[test]
fn kernels_stay_at_a_dense_frustrated_target_with_fields() {
    for (d, scale) in [(8, 0.5), (12, 1.0)] {
        let couplings = random_couplings(d, scale, 21);
        let exact = Exact::new(&couplings).unwrap();
        check_kernels(&couplings, exact.pair_means(), |beta, seed| {
            ExactEnumeration::new(&scaled(&couplings, beta))
                .unwrap()
                .draw(STARTS, seed)
        });
    }
}

#[test]
fn kernels_stay_at_a_lattice_glass_with_fields() {
    for (rows, columns, scale) in [(6, 6, 1.0), (7, 10, 4.0)] {
        let (couplings, lattice) = random_lattice(rows, columns, scale, 22);
        let expected = ExactLattice::new(&couplings, &lattice)
            .unwrap()
            .pair_means();
        check_kernels(&couplings, &expected, |beta, seed| {
            let exact = ExactLattice::new(&scaled(&couplings, beta), &lattice).unwrap();
            exact.draw(STARTS, seed)
        });
    }
}

/// Runs chains from random starts and compares the mean energy and all means with the exact ones.
fn check_arrival<S>(what: &str, sampler: &S, couplings: &Couplings, expected: &Array2<f64>)
where
    S: ChainSampler<Draws = States>,
{
    let runner = ChainRunner::new(ChainOptions {
        seed: seed(),
        n_draws: 5000,
        burn_in: 500,
        ..Default::default()
    })
    .unwrap();
    let run = runner.run(sampler).unwrap();
    let d = couplings.n_units();
    for (i, j) in (0..d).map(|i| (i, i)).chain((1..d).map(|i| (i - 1, i))) {
        let both = move |row: &[u64]| f64::from((row[0] >> i & row[0] >> j & 1) as u32);
        let s = diagnostics::summary(&run.series(both)).unwrap();
        assert!(s.rhat < 1.03, "{what}: R̂ = {}", s.rhat);
        // Six standard errors, themselves known to about a tenth.
        let error = (s.mean - expected[[i, j]]).abs();
        assert!(
            error < 6.0 * s.mcse,
            "{what}: {error}, standard error {}",
            s.mcse
        );
    }
}

#[test]
fn kernels_arrive_from_random_starts() {
    let couplings = random_couplings(10, 0.8, 23);
    let expected = Exact::new(&couplings).unwrap().pair_means().clone();
    check_arrival(
        "Gibbs",
        &Gibbs::new(&couplings).unwrap(),
        &couplings,
        &expected,
    );
    let random = Gibbs::with_scan(&couplings, Scan::Random).unwrap();
    check_arrival("random Gibbs", &random, &couplings, &expected);
    let clusters = SwendsenWang::new(&couplings).unwrap();
    check_arrival("Swendsen-Wang", &clusters, &couplings, &expected);
    let tempering = Tempering::tune(&couplings, &TemperingOptions::default()).unwrap();
    check_arrival("tempering", &tempering, &couplings, &expected);
    let exact = ExactEnumeration::new(&couplings).unwrap();
    check_arrival("enumeration", &exact, &couplings, &expected);
}

/// What tempering is for: a cold glass, where Gibbs chains stay apart and tempered ones agree.
#[test]
fn tempering_agrees_with_the_exact_correlations_of_a_cold_glass() {
    let lattice = Lattice::new(6, 6, mpf_ising::Boundary::Open).unwrap();
    let couplings = lattice.spin_glass(10.0, &mut stream(24, 0)).unwrap();
    let exact = ExactLattice::new(&couplings, &lattice)
        .unwrap()
        .spin_correlations();
    let options = TemperingOptions {
        seed: seed(),
        ..Default::default()
    };
    let sampler = Tempering::tune(&couplings, &options).unwrap();
    let runner = ChainRunner::new(ChainOptions {
        seed: seed(),
        n_draws: 10_000,
        burn_in: 500,
        ..Default::default()
    })
    .unwrap();
    let run = runner.run(&sampler).unwrap();
    for chain in &run.chains {
        assert_eq!(chain.info.steps, 10_000);
        assert!(
            chain.info.round_trips > 50,
            "{} round trips",
            chain.info.round_trips
        );
        let rates = chain.info.acceptance_rates();
        // Tuned to be equal, at about one half.
        assert!(rates.iter().all(|r| (0.2..0.9).contains(r)), "{rates:?}");
    }
    for (i, j) in lattice.edges() {
        let spin = |row: &[u64], k: usize| if row[0] >> k & 1 == 1 { 1.0 } else { -1.0 };
        let s = diagnostics::summary(&run.series(|row| spin(row, i) * spin(row, j))).unwrap();
        let error = (s.mean - exact[[i, j]]).abs();
        // Six standard errors; for a pair that hardly ever turns (its standard error is poor, or
        // NaN when it never did) 40 turns of 40,000 draws.
        let bound = (6.0 * s.mcse).max(2e-3);
        assert!(error < bound, "{i}, {j}: {error} of {bound}");
    }
}
