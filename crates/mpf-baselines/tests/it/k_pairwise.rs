//! K-pairwise models through samplers, scores and recipes.

use mpf_baselines::{Methods, Objectives, Polish, Recipe, Refine};
use mpf_core::rng::stream;
use mpf_ising::{CountPotential, Couplings, Exact, Samples, States};
use mpf_samplers::{
    AnnealedOptions, ChainOptions, ChainRunner, Gibbs, SwendsenWang, Tempering, TemperingOptions,
    annealed_log_z, diagnostics,
};
use ndarray::Array2;
use rand::RngExt;

/// Twelve units that excite each other, held down by V(n) = 0.15 (n − 3)².
fn model() -> Couplings {
    let d = 12;
    let mut rng = stream(1, 0);
    let mut j = Array2::zeros((d, d));
    for i in 0..d {
        j[[i, i]] = rng.random_range(0.5..1.5);
        for k in 0..i {
            j[[i, k]] = rng.random_range(-0.4..0.1);
            j[[k, i]] = j[[i, k]];
        }
    }
    let potential = (0..=12i32).map(|n| 0.15 * f64::from((n - 3).pow(2)));
    Couplings::new(j)
        .unwrap()
        .with_potential(potential.collect())
        .unwrap()
}

fn counts(states: &States) -> Vec<f64> {
    let mut shares = vec![0.0; states.n_units() + 1];
    for row in states.rows() {
        shares[row[0].count_ones() as usize] += 1.0 / states.n_samples() as f64;
    }
    shares
}

fn exact_counts(couplings: &Couplings) -> Vec<f64> {
    let mut shares = vec![0.0; couplings.n_units() + 1];
    for (x, p) in Exact::new(couplings)
        .unwrap()
        .probabilities()
        .iter()
        .enumerate()
    {
        shares[x.count_ones() as usize] += p;
    }
    shares
}

#[test]
fn sweeps_and_tempering_know_the_potential() {
    let couplings = model();
    let exact = Exact::new(&couplings).unwrap();
    let runner = ChainRunner::new(ChainOptions {
        n_draws: 5000,
        ..Default::default()
    });
    let runner = runner.unwrap();
    let gibbs = Gibbs::new(&couplings).unwrap();
    let run = runner.run(&gibbs).unwrap();
    let energy = run.diagnose(&couplings).unwrap().energy;
    assert!((energy.mean - exact.mean_energy()).abs() < 5.0 * energy.mcse);
    for unit in [0, 5] {
        let series = run.series(|row| (row[0] >> unit & 1) as f64);
        let found = diagnostics::summary(&series).unwrap();
        assert!((found.mean - exact.means()[unit]).abs() < 5.0 * found.mcse);
    }
    let tempering = Tempering::tune(&couplings, &TemperingOptions::default()).unwrap();
    let energy = runner
        .run(&tempering)
        .unwrap()
        .diagnose(&couplings)
        .unwrap()
        .energy;
    assert!((energy.mean - exact.mean_energy()).abs() < 5.0 * energy.mcse);
    let found = annealed_log_z(&couplings, &AnnealedOptions::default()).unwrap();
    assert!((found.log_z - exact.log_z()).abs() < 5.0 * found.standard_error);
    assert!(SwendsenWang::new(&couplings).is_err());
}

#[test]
fn conditional_probabilities_follow_from_the_energies() {
    let couplings = model();
    let gibbs = Gibbs::new(&couplings).unwrap();
    for row in [
        [0b0000_0000_0000u64],
        [0b1010_0110_0001],
        [0b1111_1111_1111],
    ] {
        let state = gibbs.state(&row).unwrap();
        for unit in 0..12 {
            let (on, off) = (row[0] | 1 << unit, row[0] & !(1 << unit));
            let odds = couplings.energy(&[off]) - couplings.energy(&[on]);
            let expected = 1.0 / (1.0 + (-odds).exp());
            assert!((gibbs.conditional_probability(&state, unit) - expected).abs() < 1e-12);
        }
        assert!((gibbs.energy(&state) - couplings.energy(&row)).abs() < 1e-12);
    }
}

#[test]
fn objectives_follow_from_the_energies() {
    let couplings = model();
    let states = Exact::new(&couplings).unwrap().draw(300, 3);
    let samples = Samples::new(&states).unwrap();
    let (mut flow, mut pl) = (0.0, 0.0);
    for row in states.rows() {
        for unit in 0..12 {
            let difference = couplings.energy(&[row[0] ^ 1 << unit]) - couplings.energy(row);
            flow += (-0.5 * difference).exp() / 300.0;
            pl += (-difference).exp().ln_1p() / 300.0;
        }
    }
    let found = Objectives::of(&couplings, &samples).unwrap();
    assert!((found.mpf - flow).abs() < 1e-10 * flow);
    assert!((found.pseudolikelihood - pl).abs() < 1e-10 * pl);
}

#[test]
fn recipes_fit_refine_and_polish_them() {
    let truth = model();
    let states = Exact::new(&truth).unwrap().draw(20_000, 4);
    let methods = Methods::default();
    let mut recipe = Recipe {
        method: methods.find("mpf").unwrap(),
        refine: Refine::By(methods.find("pl").unwrap()),
        ..Default::default()
    };
    recipe.options.potential = Some(CountPotential::default());
    let plain = recipe.fit(&states).unwrap();
    assert!(plain.fit.stop.is_converged());
    assert!(plain.held_out.is_some() && plain.failures.is_empty());
    let expected = counts(&states);
    // The standard error of a share is at most 0.0036, and pseudolikelihood is not far behind.
    for (n, (found, seen)) in exact_counts(&plain.fit.couplings)
        .iter()
        .zip(&expected)
        .enumerate()
    {
        assert!((found - seen).abs() < 0.012, "{n}: {found} {seen}");
    }
    recipe.polish = Polish::Updates(50);
    let polished = recipe.fit(&states).unwrap();
    assert!(polished.polishing.unwrap().is_kept);
    let after = polished.fit.couplings;
    assert!(after.potential().is_some() && after != plain.fit.couplings);
    for (n, (found, seen)) in exact_counts(&after).iter().zip(&expected).enumerate() {
        assert!((found - seen).abs() < 0.012, "{n}: {found} {seen}");
    }
    // A method that knows no potential says so.
    let ml = methods.find("ml").unwrap();
    let error = Recipe::alone(ml, recipe.options.clone())
        .fit(&states)
        .err()
        .unwrap();
    assert!(error.to_string().contains("K-pairwise"), "{error}");
}
