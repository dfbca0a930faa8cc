//! What does the generic path cost? MPF of the same Ising problem (d = 100, M = 20,000) through
//! `LocalObjective` and through the Ising kernel, in turn, on the same threads; and what the
//! potential of K-pairwise models adds to the kernel.

#![allow(missing_docs, clippy::print_stdout)]

use mpf_benches::{couplings, samples};
use mpf_core::{FlowForm, LocalLoss, LocalObjective, Objective, SiteData};
use mpf_ising::{
    CountPotential, FitOptions, Fitter, IsingFlow, LocalIsing, Mpf, Neighbourhood, Samples, get_bit,
};
use ndarray::Array2;
use std::time::Instant;

/// Returns the best time of one evaluation of each, measured in turn.
fn race(objectives: &mut [(&str, &mut dyn Objective)]) -> Vec<f64> {
    const ROUNDS: usize = 7;
    let mut best = vec![f64::INFINITY; objectives.len()];
    for _ in 0..ROUNDS {
        for ((_, objective), best) in objectives.iter_mut().zip(&mut best) {
            let n_params = objective.n_params();
            let mut theta = couplings(100);
            theta.resize(n_params, 0.0);
            let mut grad = vec![0.0; n_params];
            let start = Instant::now();
            objective.value_and_gradient(&theta, &mut grad);
            *best = best.min(start.elapsed().as_secs_f64());
        }
    }
    best
}

/// Returns the time of an evaluation within a fit of 20 iterations.
fn fitted(samples: &Samples, potential: Option<CountPotential>) -> f64 {
    let mut options = FitOptions {
        potential,
        l2: 1e-3,
        ..Default::default()
    };
    options.minimizer.max_iterations = 20;
    let fit = Fitter::new(Mpf::default(), options).expect("fair options");
    let fit = fit.fit(samples).expect("random bits");
    fit.seconds / fit.evaluations as f64
}

fn main() {
    let d = 100;
    for active in [0.1, 0.5] {
        let samples = samples(20_000, d, active);
        let rows = Array2::from_shape_fn((samples.n_distinct(), d), |(m, i)| {
            u8::from(get_bit(samples.states().row(m), i))
        });
        let data = SiteData::new(rows.view(), 2).expect("bits");
        let model = LocalIsing {
            n_units: d,
            has_potential: false,
        };
        let mut generic = LocalObjective::new(&model, &data, LocalLoss::Flow).expect("the same");
        let kernel = IsingFlow::new(&samples, Neighbourhood::SingleFlips, FlowForm::Sum);
        let mut kernel = kernel.expect("all flips are kept");
        let times = race(&mut [("generic", &mut generic), ("kernel", &mut kernel)]);
        println!(
            "d = {d}, M = 20000, {active} active, {} threads: generic {:.2} ms, kernel {:.2} ms, ratio {:.1}",
            rayon::current_num_threads(),
            1e3 * times[0],
            1e3 * times[1],
            times[0] / times[1]
        );
        let (mut plain, mut counted) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..5 {
            plain = plain.min(fitted(&samples, None));
            counted = counted.min(fitted(&samples, Some(CountPotential::default())));
        }
        println!(
            "    an evaluation in a fit: Ising {:.2} ms, K-pairwise {:.2} ms, ratio {:.2}",
            1e3 * plain,
            1e3 * counted,
            counted / plain
        );
    }
}
