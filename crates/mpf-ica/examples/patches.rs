//! Learns filters of image patches by MPF and by maximum likelihood, and compares them.
//!
//! ```text
//! start   -57.389 nats
//! MPF     -30.368 nats
//! ML      -30.311 nats
//! 16 of 25 filters agree (|cos| > 0.9)
//! MPF lost a direction: false
//! ```

use mpf_ica::{
    DeadLeaves, Error, FitOptions, Fitter, Metropolis, Stochastic, Trainer, draw_patches,
    match_filters, prepare_patches,
};

#[allow(clippy::print_stdout)]
fn main() -> Result<(), Error> {
    // Without photographs at hand, images of overlapping discs have similar statistics.
    let leaves = DeadLeaves {
        n_images: 4,
        size: 96,
        ..Default::default()
    };
    let patches = draw_patches(&leaves.draw(1)?, 5, 5000, 1)?;
    let (white, _) = prepare_patches(patches.view(), false)?;

    // A shorter schedule than the default, for 25 dimensions instead of 100.
    let mpf = Trainer::Stochastic(Stochastic {
        batch: 1000,
        steady_steps: 200,
        falling_steps: 300,
        metropolis: Some(Metropolis {
            steps: 150,
            ..Default::default()
        }),
        ..Default::default()
    });
    let fit = |trainer| {
        Fitter::new(FitOptions {
            trainer,
            ..Default::default()
        })?
        .fit(white.view())
    };
    let mpf = fit(mpf)?;
    let ml = fit(Trainer::maximum_likelihood())?;

    println!("start  {:8.3} nats", mpf.trace[0].log_likelihood);
    println!("MPF    {:8.3} nats", mpf.log_likelihood);
    println!("ML     {:8.3} nats", ml.log_likelihood);
    let pairs = match_filters(&mpf.filters, &ml.filters)?;
    let alike = pairs.iter().filter(|p| p.similarity > 0.9).count();
    println!("{alike} of {} filters agree (|cos| > 0.9)", pairs.len());
    println!("MPF lost a direction: {}", mpf.lost_a_direction());
    Ok(())
}
