//! What does one evaluation of the pseudolikelihood and its gradient cost, against M and d?
//!
//! The machinery is the flow's; only the function of the margin differs.

#![allow(missing_docs)] // criterion_group! writes an undocumented function.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use mpf_benches::{bench_objective, config, samples};
use mpf_ising::{MarginLoss, MarginSum, Support, Terms};

fn bench(c: &mut Criterion, group: &str, series: &str, x: usize, n: usize, d: usize) {
    let samples = samples(n, d, 0.5);
    let pairs = Support::Full.pairs(d).expect("all pairs");
    let terms = Terms::new(&samples, 0..d, pairs).expect("all units");
    let sum = MarginSum::new(terms, MarginLoss::Logistic);
    bench_objective(c, group, BenchmarkId::new(series, x), &samples, sum);
}

fn against_samples(c: &mut Criterion) {
    for n in [10_000, 100_000, 1_000_000] {
        let series = "d=100, half set";
        bench(c, "pseudolikelihood against M", series, n, n, 100);
    }
}

fn against_units(c: &mut Criterion) {
    for (d, n) in [(40, 20_000), (100, 20_000), (300, 5_000)] {
        bench(c, "pseudolikelihood against d", "half set", d, n, d);
    }
}

criterion_group! {
    name = benches;
    config = config();
    targets = against_samples, against_units
}
criterion_main!(benches);
