//! What does one evaluation of the flow and its gradient cost, against M, d and activity?

#![allow(missing_docs)] // criterion_group! writes an undocumented function.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use mpf_benches::{bench_objective, config, samples};
use mpf_core::FlowForm;
use mpf_ising::{IsingFlow, Neighbourhood};

fn bench(
    c: &mut Criterion,
    group: &str,
    series: &str,
    x: Option<f64>,
    n: usize,
    d: usize,
    active: f64,
) {
    let samples = samples(n, d, active);
    // Of sparse samples many are equal and merged: what counts is how many are not.
    let x = x.unwrap_or(samples.n_distinct() as f64);
    let flow = IsingFlow::new(&samples, Neighbourhood::SingleFlips, FlowForm::Sum);
    let id = BenchmarkId::new(series, x);
    bench_objective(c, group, id, &samples, flow.expect("all flips are kept"));
}

fn against_samples(c: &mut Criterion) {
    for n in [10_000, 100_000, 1_000_000] {
        bench(
            c,
            "objective against M",
            "d=100, half set",
            None,
            n,
            100,
            0.5,
        );
        bench(
            c,
            "objective against M",
            "d=100, 3 % set",
            None,
            n,
            100,
            0.03,
        );
    }
}

fn against_units(c: &mut Criterion) {
    for (d, n) in [(40, 20_000), (100, 20_000), (300, 5_000), (1000, 1_000)] {
        bench(
            c,
            "objective against d",
            "half set",
            Some(d as f64),
            n,
            d,
            0.5,
        );
        bench(
            c,
            "objective against d",
            "3 % set",
            Some(d as f64),
            n,
            d,
            0.03,
        );
    }
}

fn against_activity(c: &mut Criterion) {
    for active in [0.01, 0.03, 0.1, 0.3, 0.5] {
        bench(
            c,
            "objective against activity",
            "d=100",
            Some(active),
            20_000,
            100,
            active,
        );
    }
}

criterion_group! {
    name = benches;
    config = config();
    targets = against_samples, against_units, against_activity
}
criterion_main!(benches);
