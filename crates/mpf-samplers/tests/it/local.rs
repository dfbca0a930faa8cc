//! Samplers of local models: against enumeration, and against the Ising sampler.

use mpf_core::{At, EnergyModel, LocalExact, LocalModel};
use mpf_ising::{Couplings, LocalIsing};
use mpf_samplers::{
    AnnealedOptions, BinaryGibbs, ChainOptions, ChainRunner, Gibbs, LocalGibbs, Tempering,
    TemperingOptions, annealed_log_z_of, diagnostics, draw,
};

/// Three states a site on a ring, with equal neighbours favoured; the inputs of all sites are kept.
struct Ring(usize);

const Q: usize = 3;

impl EnergyModel for Ring {
    type State = [u8];

    fn n_params(&self) -> usize {
        2
    }

    fn energy(&self, theta: &[f64], x: &[u8]) -> f64 {
        let pairs = (0..self.0).filter(|&i| x[i] == x[(i + 1) % self.0]).count();
        let ones = x.iter().filter(|&&a| a == 1).count();
        theta[0] * pairs as f64 + theta[1] * ones as f64
    }

    fn add_energy_grad(&self, _: &[f64], x: &[u8], scale: f64, out: &mut [f64]) {
        out[0] += scale * self.energy(&[1.0, 0.0], x);
        out[1] += scale * self.energy(&[0.0, 1.0], x);
    }
}

impl LocalModel for Ring {
    fn n_sites(&self) -> usize {
        self.0
    }

    fn n_states(&self) -> usize {
        Q
    }

    fn n_surroundings(&self) -> usize {
        Q * self.0
    }

    fn surroundings(&self, theta: &[f64], x: &[u8], surroundings: &mut [f64]) {
        surroundings.fill(0.0);
        for site in 0..self.0 {
            surroundings[Q * site + 1] += theta[1];
            for near in [(site + 1) % self.0, (site + self.0 - 1) % self.0] {
                surroundings[Q * site + usize::from(x[near])] += theta[0];
            }
        }
    }

    fn update(&self, theta: &[f64], x: &[u8], site: usize, old: u8, surroundings: &mut [f64]) {
        for near in [(site + 1) % self.0, (site + self.0 - 1) % self.0] {
            surroundings[Q * near + usize::from(old)] -= theta[0];
            surroundings[Q * near + usize::from(x[site])] += theta[0];
        }
    }

    fn site_differences(&self, at: At<'_>, site: usize, differences: &mut [f64]) {
        let here = &at.surroundings[Q * site..][..Q];
        for (difference, energy) in differences.iter_mut().zip(here) {
            *difference = energy - here[usize::from(at.x[site])];
        }
    }
}

const THETA: [f64; 2] = [-1.2, 0.5];

fn energies_agree(run: &mpf_samplers::Run<ndarray::Array2<u8>, impl Sized>, model: &Ring) {
    let exact = LocalExact::new(model, &THETA).unwrap();
    let series: Vec<Vec<f64>> = run
        .chains
        .iter()
        .map(|chain| {
            let rows = chain.draws.rows();
            rows.into_iter()
                .map(|row| model.energy(&THETA, row.as_slice().unwrap()))
                .collect()
        })
        .collect();
    let found = diagnostics::summary(&series).unwrap();
    let mean = exact.mean(|x| model.energy(&THETA, x));
    assert!(found.rhat < 1.02 && found.mcse < 0.1);
    assert!(
        (found.mean - mean).abs() < 5.0 * found.mcse,
        "{} {mean}",
        found.mean
    );
    let ones: f64 = run
        .chains
        .iter()
        .map(|c| c.draws.iter().filter(|&&a| a == 1).count() as f64 / c.draws.len() as f64)
        .sum::<f64>()
        / run.chains.len() as f64;
    let expected = exact.mean(|x| x.iter().filter(|&&a| a == 1).count() as f64) / model.0 as f64;
    assert!((ones - expected).abs() < 0.03, "{ones} {expected}");
}

#[test]
fn sweeps_have_the_enumerated_means() {
    let model = Ring(7);
    let gibbs = LocalGibbs::new(&model, &THETA, 1.0).unwrap();
    let runner = ChainRunner::new(ChainOptions {
        n_draws: 4000,
        ..Default::default()
    });
    energies_agree(&runner.unwrap().run(&gibbs).unwrap(), &model);
}

#[test]
fn tempering_has_the_enumerated_means() {
    let model = Ring(7);
    let level = |beta: f64| LocalGibbs::new(&model, &THETA, beta);
    let tempering = Tempering::tune_levels(&TemperingOptions::default(), level).unwrap();
    assert_eq!(tempering.inverse_temperatures()[0], 1.0);
    let runner = ChainRunner::new(ChainOptions {
        n_draws: 2000,
        ..Default::default()
    });
    energies_agree(&runner.unwrap().run(&tempering).unwrap(), &model);
}

#[test]
fn annealing_finds_log_z() {
    let model = Ring(7);
    let gibbs = LocalGibbs::new(&model, &THETA, 1.0).unwrap();
    let options = AnnealedOptions {
        n_levels: 300,
        ..Default::default()
    };
    let found = annealed_log_z_of(gibbs.log_states(), &options, |beta| {
        LocalGibbs::new(&model, &THETA, beta)
    });
    let found = found.unwrap();
    let exact = LocalExact::new(&model, &THETA).unwrap().log_z();
    assert!(found.standard_error < 0.05);
    assert!((found.log_z - exact).abs() < 5.0 * found.standard_error);
}

#[test]
fn states_and_parameters_are_checked() {
    let model = Ring(3);
    let gibbs = LocalGibbs::new(&model, &THETA, 1.0).unwrap();
    assert!(gibbs.state(&[0, 1]).is_err());
    let error = gibbs.state(&[0, 1, 3]).unwrap_err().to_string();
    assert!(error.contains("sites[2] is 3"), "{error}");
    assert!(LocalGibbs::new(&model, &[0.0], 1.0).is_err());
    assert!(LocalGibbs::new(&model, &[0.0, f64::NAN], 1.0).is_err());
    assert!(LocalGibbs::new(&model, &THETA, -1.0).is_err());
}

#[test]
fn binary_sites_are_recorded_as_bits() {
    // 70 units: two words.
    let j = ndarray::Array2::from_shape_fn((70, 70), |(a, b)| 0.3 * ((a * b) as f64).cos());
    let j = Couplings::new(j).unwrap();
    let model = LocalIsing {
        n_units: 70,
        has_potential: false,
    };
    let bytes = LocalGibbs::new(&model, &j.pack(), 1.0).unwrap();
    let bits = BinaryGibbs::new(&model, &j.pack(), 1.0).unwrap();
    let packed = draw(&bits, 50, 3).unwrap();
    assert_eq!(packed.to_binary(), draw(&bytes, 50, 3).unwrap());
    let state = bits.state(packed.row(7)).unwrap();
    assert_eq!(state.sites(), packed.to_binary().row(7).as_slice().unwrap());
    // Energies by hand, and those of couplings, diagnose the same run alike.
    let runner = ChainRunner::default();
    let run = runner.run(&Gibbs::new(&j).unwrap()).unwrap();
    let by_hand = run.diagnose_by(|row| j.energy(row)).unwrap();
    let found = run.diagnose(&j).unwrap();
    assert!((by_hand.energy.mean - found.energy.mean).abs() < 1e-9 && by_hand.energy.mean != 0.0);
    let three = Ring(3);
    assert!(BinaryGibbs::new(&three, &THETA, 1.0).is_err());
}
