//! Everything that local models get generically, against its Ising special case.

use mpf_baselines::{Direction, LocalContrastiveOptions, Pseudolikelihood, local_contrastive};
use mpf_core::{
    EnergyModel, ExactLikelihood, FlowForm, LocalExact, LocalFitOptions, LocalFitter, LocalLoss,
    MinimizerOptions, Objective, SiteData,
};
use mpf_ising::internal::{packed_index, pairs};
use mpf_ising::{
    BootstrapOptions, Couplings, Exact, FitOptions, Fitter, IsingFlow, LocalIsing, Mpf,
    Neighbourhood, Samples, States, bootstrap,
};
use mpf_samplers::{
    AnnealedOptions, BinaryGibbs, ChainOptions, ChainRunner, Tempering, TemperingOptions,
    annealed_log_z_of,
};
use ndarray::Array2;

const D: usize = 6;
const MODEL: LocalIsing = LocalIsing {
    n_units: D,
    has_potential: false,
};
const L1: f64 = 0.04;
const L2: f64 = 0.02;

fn truth() -> Couplings {
    let j = Array2::from_shape_fn((D, D), |(i, j)| match i == j {
        true => 0.2 * i as f64 - 0.3,
        false => 0.5 * ((i * j + i + j) as f64).cos(),
    });
    Couplings::new(j).unwrap()
}

/// 300 draws, in both forms.
fn data() -> (States, SiteData) {
    let states = Exact::new(&truth()).unwrap().draw(300, 1);
    let sites = SiteData::new(states.to_binary().view(), 2).unwrap();
    (states, sites)
}

fn minimizer() -> MinimizerOptions {
    MinimizerOptions {
        gradient_tolerance: 1e-10,
        ..Default::default()
    }
}

fn ising(l1: f64, l2: f64) -> FitOptions {
    FitOptions {
        l1,
        l2,
        minimizer: minimizer(),
        ..Default::default()
    }
}

/// λ₁ |K| and ½ λ₂ K² on the couplings alone, K_ij = −J_ij / 2.
fn generic(loss: LocalLoss, l1: f64, l2: f64) -> LocalFitOptions {
    let mut penalised = vec![0.0; D * (D + 1) / 2];
    for (i, j) in pairs(D) {
        penalised[packed_index(D, i, j)] = 1.0;
    }
    LocalFitOptions {
        loss,
        l1: l1 / 2.0,
        l2: l2 / 4.0,
        penalised,
        minimizer: minimizer(),
        ..Default::default()
    }
}

fn assert_close(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (k, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{k}: {a} {b}");
    }
}

#[test]
fn fits_are_those_of_the_kernel() {
    let (states, sites) = data();
    let samples = Samples::new(&states).unwrap();
    for (l1, l2) in [(0.0, 0.0), (0.0, L2), (L1, L2)] {
        let flow = Fitter::new(Mpf::default(), ising(l1, l2)).unwrap();
        let flow = flow.fit(&samples).unwrap().couplings.pack();
        let pl = Fitter::new(Pseudolikelihood, ising(l1, l2)).unwrap();
        let pl = pl.fit(&samples).unwrap().couplings.pack();
        for (loss, expected) in [
            (LocalLoss::Flow, &flow),
            (LocalLoss::Screening, &flow),
            (LocalLoss::Pseudolikelihood, &pl),
        ] {
            let fitter = LocalFitter::new(&MODEL, generic(loss, l1, l2)).unwrap();
            let found = fitter.fit(&sites).unwrap().theta;
            // Gradients of 1e-10 over curvatures that are not below 1e-2.
            assert_close(&found, expected, 1e-7);
        }
        assert_eq!(flow.contains(&0.0), l1 > 0.0);
    }
}

#[test]
fn held_out_scores_are_those_of_the_kernel() {
    let (states, sites) = data();
    let penalties = [(0.0, L2), (L1, 0.0)];
    let halved = penalties.map(|(l1, l2)| (l1 / 2.0, l2 / 4.0));
    let fitter = LocalFitter::new(&MODEL, generic(LocalLoss::Flow, 0.0, 0.0)).unwrap();
    let found = fitter.cross_validate(&sites, &halved, 3).unwrap();
    for (found, (l1, l2)) in found.iter().zip(penalties) {
        let fitter = Fitter::new(Mpf::default(), ising(l1, l2)).unwrap();
        let scores = [0, 100, 200].map(|first| {
            let held_out = Samples::new(&states.slice(first..first + 100)).unwrap();
            let mut training = States::new(D).unwrap();
            let rows = states.rows().enumerate();
            rows.filter(|(m, _)| !(first..first + 100).contains(m))
                .for_each(|(_, row)| training.push(row));
            let fit = fitter.fit(&Samples::new(&training).unwrap()).unwrap();
            let flow = IsingFlow::new(&held_out, Neighbourhood::SingleFlips, FlowForm::Sum);
            let theta = fit.couplings.pack();
            (flow.unwrap()).value_and_gradient(&theta, &mut vec![0.0; theta.len()])
        });
        let mean = scores.iter().sum::<f64>() / 3.0;
        assert_close(&[found.score], &[mean], 1e-7);
        let squares = scores.map(|s| (s - mean) * (s - mean));
        let error = (squares.iter().sum::<f64>() / 6.0).sqrt();
        assert_close(&[found.standard_error], &[error], 1e-6);
    }
}

#[test]
fn error_bars_are_those_of_the_kernel() {
    const BLOCK: usize = 5;
    let (states, sites) = data();
    let samples = Samples::new(&states).unwrap();
    let special = Fitter::new(Mpf::default(), ising(0.0, L2)).unwrap();
    let couplings = special.fit(&samples).unwrap().couplings;
    let options = generic(LocalLoss::Flow, 0.0, L2);
    let fitter = LocalFitter::new(&MODEL, options).unwrap();
    let theta = couplings.pack();
    let packed = |errors: Array2<f64>| Couplings::new(errors).unwrap().pack();
    let expected = special.sandwich(&couplings, &states, BLOCK).unwrap();
    let found = fitter.sandwich(&theta, &sites, BLOCK).unwrap();
    // The generic Hessian is of differences over 1e-4.
    let found = found.standard_errors();
    assert_close(&found, &packed(expected.of_couplings()), 1e-6);
    // The resamples are the same.
    let options = BootstrapOptions {
        n_resamples: 10,
        block_length: BLOCK,
        seed: 3,
        ..Default::default()
    };
    let expected = bootstrap(&states, &options, |resample| {
        special.fit(resample).map(|fit| fit.couplings)
    });
    let found = fitter.bootstrap(&theta, &sites, 10, BLOCK, 3).unwrap();
    let found = found.standard_errors();
    assert_close(&found, &packed(expected.unwrap().of_couplings()), 1e-6);
}

#[test]
fn enumeration_and_samplers_know_the_same_model() {
    let couplings = truth();
    let theta = couplings.pack();
    let exact = Exact::new(&couplings).unwrap();
    let found = LocalExact::new(&MODEL, &theta).unwrap();
    assert!((found.log_z() - exact.log_z()).abs() < 1e-12);
    assert_close(found.probabilities(), &exact.probabilities(), 1e-12);
    let level = |beta: f64| BinaryGibbs::new(&MODEL, &theta, beta);
    let gibbs = level(1.0).unwrap();
    let runner = ChainRunner::new(ChainOptions {
        n_draws: 4000,
        ..Default::default()
    });
    let runner = runner.unwrap();
    let tempering = Tempering::tune_levels(&TemperingOptions::default(), level).unwrap();
    for energy in [
        runner.run(&gibbs).unwrap().diagnose(&couplings),
        runner.run(&tempering).unwrap().diagnose(&couplings),
    ] {
        let energy = energy.unwrap().energy;
        assert!(energy.mcse < 0.05 && energy.rhat < 1.02);
        assert!((energy.mean - exact.mean_energy()).abs() < 5.0 * energy.mcse);
    }
    let annealed = annealed_log_z_of(gibbs.log_states(), &AnnealedOptions::default(), level);
    let annealed = annealed.unwrap();
    assert!(annealed.standard_error < 0.05);
    assert!((annealed.log_z - exact.log_z()).abs() < 5.0 * annealed.standard_error);
}

/// The slopes of the data given once, and a direction that holds one parameter.
#[test]
fn chains_match_the_moments_of_all_data() {
    let (_, data) = data();
    let n = MODEL.n_params();
    let mut data_slope = vec![0.0; n];
    let total: f64 = data.weights().iter().sum();
    for (m, weight) in data.weights().iter().enumerate() {
        MODEL.add_energy_grad(&vec![0.0; n], data.row(m), weight / total, &mut data_slope);
    }
    let mut start = vec![0.0; n];
    start[1] = 0.3;
    let options = LocalContrastiveOptions {
        persistent: true,
        batch_size: 200,
        learning_rate: 0.1,
        data_slope,
        direction: Some(Direction::new(|slope| {
            slope.iter_mut().for_each(|s| *s *= 4.0);
            slope[1] = 0.0;
        })),
        seed: 5,
        ..Default::default()
    };
    let found = local_contrastive(&MODEL, &data, &start, &options, |_| {}).unwrap();
    assert!((found.theta[1] - 0.3).abs() < 1e-12);
    let mut slope = vec![0.0; n];
    let mut likelihood = ExactLikelihood::new(&MODEL, &data).unwrap();
    likelihood.value_and_gradient(&found.theta, &mut slope);
    // 80,000 draws of the last fifth have standard errors of .0018, correlated in time some twice that.
    for (k, s) in slope.iter().enumerate().filter(|(k, _)| *k != 1) {
        assert!(s.abs() < 0.015, "parameter {k}: {s}");
    }
    // Without its own steps, parameter 1 does not match.
    assert!(slope[1].abs() > 0.015, "{}", slope[1]);
    let wrong = LocalContrastiveOptions {
        data_slope: vec![0.0; 3],
        ..Default::default()
    };
    let error = local_contrastive(&MODEL, &data, &start, &wrong, |_| {}).unwrap_err();
    assert!(error.to_string().contains("data_slope"), "{error}");
}
