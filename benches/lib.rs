//! Shared by the benches: short settings, and data that are built outside of the timed code.

use criterion::{BenchmarkId, Criterion, Throughput};
use mpf_core::Objective;
use mpf_core::rng::stream;
use mpf_ising::internal::n_packed;
use mpf_ising::{Samples, States};
use rand::RngExt;
use std::time::Duration;

/// Ten measurements in about a second: the whole suite should take minutes.
pub fn config() -> Criterion {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1))
}

/// Times evaluations of `objective` at [`couplings`] on one thread, counted in flips: M·d each.
pub fn bench_objective(
    c: &mut Criterion,
    group: &str,
    id: BenchmarkId,
    samples: &Samples,
    mut objective: impl Objective + Send,
) {
    let theta = couplings(samples.n_units());
    let mut grad = vec![0.0; theta.len()];
    let flips = samples.n_distinct() * samples.n_units();
    let mut group = c.benchmark_group(group);
    group.throughput(Throughput::Elements(flips as u64));
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let one_thread = one_thread.expect("a thread");
    group.bench_function(id, |b| {
        b.iter(|| one_thread.install(|| objective.value_and_gradient(&theta, &mut grad)));
    });
    group.finish();
}

/// `n` samples of `d` independent units, each 1 with probability `active`.
pub fn samples(n: usize, d: usize, active: f64) -> Samples {
    let mut rng = stream(1, 0);
    let mut states = States::new(d).expect("d is not zero");
    let mut row = vec![0u64; states.words_per_row()];
    for _ in 0..n {
        row.fill(0);
        for unit in 0..d {
            if rng.random::<f64>() < active {
                row[unit / 64] |= 1 << (unit % 64);
            }
        }
        states.push(&row);
    }
    Samples::new(&states).expect("n is not zero")
}

/// Random couplings of the size of a real fit's, packed.
pub fn couplings(d: usize) -> Vec<f64> {
    let mut rng = stream(2, 0);
    let scale = 1.0 / (d as f64).sqrt();
    (0..n_packed(d))
        .map(|_| scale * rng.random_range(-1.0..1.0))
        .collect()
}
