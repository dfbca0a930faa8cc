//! What does ICA cost at d = 100? An evaluation of MPF's objective over fixed neighbours, drawing
//! those neighbours, and an evaluation of the likelihood; whole fits are timed by
//! `cargo xtask reproduce-fig3`.
//!
//! `cargo bench -p mpf-benches --bench ica`. An element is one number of the data: M·d of them.

#![allow(missing_docs)] // criterion_group! writes an undocumented function.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use mpf_core::Objective;
use mpf_core::rng::stream;
use mpf_ica::{
    Filters, HamiltonianNeighbours, NegativeLogLikelihood, NeighbourFlow, Neighbours, Trajectory,
};
use ndarray::Array2;
use rand::RngExt;

fn ica(c: &mut Criterion) {
    let (d, n) = (100, 10_000);
    // Filters of a fit's size on whitened data: near √2 times a rotation.
    let mut rng = stream(1, 0);
    let filters = Filters::new(Array2::from_shape_fn((d, d), |(i, j)| {
        1.4 * f64::from(i == j) + 0.05 * rng.random_range(-1.0..1.0)
    }))
    .expect("square and finite");
    let data = filters.draw(n, &mut rng).expect("not singular");
    let rule = HamiltonianNeighbours {
        filters: filters.clone(),
        trajectory: Trajectory::default(),
    };
    let neighbours = Neighbours::hamiltonian(&rule, data.view(), 1);
    let mut flow = NeighbourFlow::new(data.view(), &neighbours).expect("one each");
    let mut likelihood = NegativeLogLikelihood::new(data.view()).expect("finite");
    let mut grad = vec![0.0; d * d];

    let mut group = c.benchmark_group("ica");
    group.throughput(Throughput::Elements((n * d) as u64));
    for threads in [1, 2] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.expect("threads");
        let id = |name: &str| {
            BenchmarkId::new(
                format!("{name}, threads={threads}"),
                format!("d={d}, M={n}"),
            )
        };
        group.bench_function(id("flow and gradient"), |b| {
            b.iter(|| pool.install(|| flow.value_and_gradient(filters.theta(), &mut grad)));
        });
        group.bench_function(id("likelihood and gradient"), |b| {
            b.iter(|| pool.install(|| likelihood.value_and_gradient(filters.theta(), &mut grad)));
        });
        group.bench_function(id("hamiltonian neighbours"), |b| {
            b.iter(|| pool.install(|| Neighbours::hamiltonian(&rule, data.view(), 1)));
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = mpf_benches::config();
    targets = ica
}
criterion_main!(benches);
