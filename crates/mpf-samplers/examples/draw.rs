//! Draws from a cold spin glass by Gibbs sweeps and by parallel tempering, and diagnoses both.
//!
//! `cargo run -p mpf-samplers --example draw` prints
//! ```text
//! exact      energy -54.28
//! Gibbs      energy -54.07 ± 0.12, R-hat 1.008, 477 effective draws
//!            the chains do not agree on the number of active units (R-hat 1.168): draw more, or use --sampler tempering
//! tempering  energy -54.25 ± 0.05, R-hat 1.001, 3078 effective draws
//! 1000 states of 36 units
//! ```
#![allow(clippy::print_stdout)]

use mpf_ising::{Boundary, Lattice};
use mpf_samplers::{
    ChainOptions, ChainRunner, ExactLattice, Gibbs, Tempering, TemperingOptions, draw,
};

fn main() -> mpf_samplers::Result<()> {
    // J ~ N(0, 10) on the edges of a lattice: cold and frustrated.
    let lattice = Lattice::new(6, 6, Boundary::Open)?;
    let j = lattice.spin_glass(10.0, &mut mpf_core::rng::stream(1, 0))?;

    let runner = ChainRunner::new(ChainOptions {
        seed: 1,
        n_draws: 5000,
        ..Default::default()
    })?;
    let tempering = Tempering::tune(&j, &TemperingOptions::default())?;
    let found = [
        ("Gibbs", runner.run(&Gibbs::new(&j)?)?.diagnose(&j)?),
        ("tempering", runner.run(&tempering)?.diagnose(&j)?),
    ];
    // On an open lattice the mean energy is known: ⟨E⟩ = Σ_ij J_ij ⟨x_i x_j⟩.
    let exact = ExactLattice::new(&j, &lattice)?;
    println!(
        "exact      energy {:.2}",
        (j.as_array() * &exact.pair_means()).sum()
    );
    for (name, run) in found {
        let energy = run.energy;
        println!(
            "{name:<10} energy {:.2} ± {:.2}, R-hat {:.3}, {:.0} effective draws",
            energy.mean, energy.mcse, energy.rhat, energy.bulk_ess
        );
        for warning in &run.warnings {
            println!("           {warning}");
        }
    }

    // One call where no diagnosis is needed.
    let states = draw(&tempering, 1000, 2)?;
    println!(
        "{} states of {} units",
        states.n_samples(),
        states.n_units()
    );
    Ok(())
}
