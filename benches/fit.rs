//! What does a whole fit cost, against M and d?
//!
//! Samples of open spin-glass lattices with variance 1, all couplings free, default tolerance.

#![allow(missing_docs)] // criterion_group! writes an undocumented function.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use mpf_benches::config;
use mpf_core::rng::stream;
use mpf_ising::{Boundary, FitOptions, Fitter, Lattice, Mpf, Samples, Support};
use mpf_samplers::ExactLattice;

fn data(side: usize, n: usize) -> (Lattice, Samples) {
    let lattice = Lattice::new(side, side, Boundary::Open).expect("not empty");
    let truth = lattice
        .spin_glass(1.0, &mut stream(1, 0))
        .expect("a variance");
    let exact = ExactLattice::new(&truth, &lattice).expect("narrow and open");
    let samples = Samples::new(&exact.draw(n, 2)).expect("not empty");
    (lattice, samples)
}

fn bench(
    c: &mut Criterion,
    group: &str,
    series: &str,
    x: usize,
    fitter: &Fitter,
    samples: &Samples,
) {
    let mut group = c.benchmark_group(group);
    group.bench_function(BenchmarkId::new(series, x), |b| {
        b.iter(|| fitter.fit(samples).expect("clean data"));
    });
    group.finish();
}

fn against_samples(c: &mut Criterion) {
    for n in [1_000, 3_000, 10_000] {
        let (lattice, samples) = data(6, n);
        let full: Fitter = Fitter::default();
        bench(
            c,
            "fit against M",
            "d=36, all couplings",
            n,
            &full,
            &samples,
        );
        let options = FitOptions {
            support: Support::lattice(&lattice),
            ..FitOptions::default()
        };
        let edges = Fitter::new(Mpf::default(), options).expect("a lattice");
        bench(
            c,
            "fit against M",
            "d=36, lattice only",
            n,
            &edges,
            &samples,
        );
    }
}

fn against_units(c: &mut Criterion) {
    for side in [3, 5, 8] {
        let (_, samples) = data(side, 4_000);
        let fitter: Fitter = Fitter::default();
        bench(
            c,
            "fit against d",
            "M=4000, all couplings",
            side * side,
            &fitter,
            &samples,
        );
    }
}

criterion_group! {
    name = benches;
    config = config();
    targets = against_samples, against_units
}
criterion_main!(benches);
