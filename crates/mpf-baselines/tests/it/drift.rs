//! A model that agrees with its data stays there; one with a mode of its own elsewhere leaves.

use mpf_baselines::Drift;
use mpf_ising::{Couplings, Samples, States};
use mpf_samplers::{ChainOptions, ChainRunner, Gibbs};
use ndarray::Array2;

#[test]
fn the_true_model_stays_and_a_runaway_leaves() {
    let truth = mpf_ising::mosaic_couplings(5, 6, &mut mpf_core::rng::stream(2, 0)).unwrap();
    let runner = ChainRunner::new(ChainOptions {
        n_draws: 2000,
        thinning: 5,
        ..Default::default()
    });
    let run = runner.unwrap().run(&Gibbs::new(&truth).unwrap()).unwrap();
    let samples = Samples::new(&run.pooled()).unwrap();
    let stays = Drift::measure(&truth, &samples, 50, 1).unwrap();
    assert!(!stays.has_drifted(), "{stays:?}");

    // All units excite all others: silence is stable for a sweep or two only.
    let d = 30;
    let runaway = Couplings::new(Array2::from_shape_fn((d, d), |(i, j)| {
        if i == j { 2.0 } else { -0.3 }
    }));
    let mut silent = States::new(d).unwrap();
    (0..100).for_each(|_| silent.push(&[0]));
    let samples = Samples::new(&silent).unwrap();
    let leaves = Drift::measure(&runaway.unwrap(), &samples, 50, 1).unwrap();
    assert!(leaves.has_drifted() && leaves.after > 0.9, "{leaves:?}");
}
