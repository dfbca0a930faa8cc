//! How many spin updates a second, on one core?
//!
//! `cargo bench -p mpf-benches --bench samplers`. An element is one spin update: d for a Gibbs
//! sweep or a Swendsen-Wang step, d per level for a tempering step. Exact draws and diagnostics
//! count whole states and draws.

#![allow(missing_docs)] // criterion_group! writes an undocumented function.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use mpf_core::rng::{Xoshiro256PlusPlus, stream};
use mpf_ising::internal::n_packed;
use mpf_ising::{Boundary, Couplings, Lattice};
use mpf_samplers::{
    ChainSampler, ExactLattice, Gibbs, Sampler, Scan, SwendsenWang, Tempering, TemperingOptions,
    diagnostics,
};
use rand::RngExt;

/// The paper's spin glass.
fn glass(side: usize, variance: f64) -> (Couplings, Lattice) {
    let lattice = Lattice::new(side, side, Boundary::Open).expect("not empty");
    let couplings = lattice.spin_glass(variance, &mut stream(1, 0));
    (couplings.expect("a variance"), lattice)
}

/// All pairs coupled, J of variance 4/d: warm enough for many flips.
fn dense(d: usize) -> Couplings {
    let mut rng = stream(2, 0);
    let reach = (12.0 / d as f64).sqrt();
    let packed: Vec<f64> = (0..n_packed(d))
        .map(|_| rng.random_range(-reach..reach))
        .collect();
    Couplings::unpack(d, &packed).expect("d(d+1)/2 numbers")
}

fn bench_steps<S: ChainSampler>(
    c: &mut Criterion,
    group: &str,
    id: BenchmarkId,
    sampler: &S,
    updates: usize,
) {
    let mut group = c.benchmark_group(group);
    group.throughput(Throughput::Elements(updates as u64));
    let mut rng: Xoshiro256PlusPlus = stream(3, 0);
    let mut state = sampler.random_start(&mut rng).expect("a start");
    for _ in 0..100 {
        sampler.step(&mut state, &mut rng);
    }
    group.bench_function(id, |b| b.iter(|| sampler.step(&mut state, &mut rng)));
    group.finish();
}

fn gibbs(c: &mut Criterion) {
    for variance in [10.0, 1.0, 0.1] {
        let (couplings, _) = glass(10, variance);
        for scan in [Scan::Sequential, Scan::Random] {
            let gibbs = Gibbs::with_scan(&couplings, scan).expect("finite");
            let id = BenchmarkId::new(format!("{scan:?}, variance {variance}"), "d=100");
            bench_steps(c, "gibbs lattice", id, &gibbs, 100);
        }
    }
    let (couplings, _) = glass(40, 1.0);
    let gibbs = Gibbs::new(&couplings).expect("finite");
    bench_steps(
        c,
        "gibbs lattice",
        BenchmarkId::new("Sequential, variance 1", "d=1600"),
        &gibbs,
        1600,
    );
    for d in [20, 100, 500] {
        let gibbs = Gibbs::new(&dense(d)).expect("finite");
        bench_steps(
            c,
            "gibbs dense",
            BenchmarkId::from_parameter(format!("d={d}")),
            &gibbs,
            d,
        );
    }
}

fn clusters_and_levels(c: &mut Criterion) {
    let (couplings, _) = glass(10, 10.0);
    let sampler = SwendsenWang::new(&couplings).expect("finite");
    bench_steps(
        c,
        "swendsen-wang",
        BenchmarkId::from_parameter("d=100"),
        &sampler,
        100,
    );
    let sampler = Tempering::tune(&couplings, &TemperingOptions::default()).expect("finite");
    let levels = sampler.inverse_temperatures().len();
    let id = BenchmarkId::new(format!("{levels} levels"), "d=100");
    bench_steps(c, "tempering", id, &sampler, 100 * levels);
}

fn exact(c: &mut Criterion) {
    let (couplings, lattice) = glass(10, 10.0);
    let mut group = c.benchmark_group("exact lattice");
    group.sample_size(20);
    group.bench_function("solve", |b| {
        b.iter(|| ExactLattice::new(&couplings, &lattice));
    });
    let exact = ExactLattice::new(&couplings, &lattice).expect("a lattice");
    let one = rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build()
        .expect("a thread");
    group.bench_function("all pair means, one core", |b| {
        b.iter(|| one.install(|| exact.pair_means()));
    });
    let n = 10_000;
    group.throughput(Throughput::Elements(n as u64));
    group.bench_function("draws, one core", |b| {
        b.iter(|| one.install(|| exact.draw(n, 1)));
    });
    group.finish();
}

fn diagnosing(c: &mut Criterion) {
    let (couplings, _) = glass(10, 1.0);
    let gibbs = Gibbs::new(&couplings).expect("finite");
    let mut rng = stream(4, 0);
    let chains: Vec<Vec<f64>> = (0..4)
        .map(|_| {
            let mut state = gibbs.random_start(&mut rng).expect("a start");
            let mut step = || {
                gibbs.step(&mut state, &mut rng);
                gibbs.energy(&state)
            };
            (0..10_000).map(|_| step()).collect()
        })
        .collect();
    let mut group = c.benchmark_group("diagnostics");
    group.throughput(Throughput::Elements(40_000));
    group.bench_function("summary, 4 chains of 10,000", |b| {
        b.iter(|| diagnostics::summary(&chains));
    });
    group.finish();
}

criterion_group!(benches, gibbs, clusters_and_levels, exact, diagnosing);
criterion_main!(benches);
