//! What does one evaluation of the flow and its gradient cost, against M, d and activity?
//!
//! Throughput is in flips: M·d per evaluation.
#![allow(missing_docs)]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use mpf_benches::{couplings, samples};
use mpf_core::{Form, Objective};
use mpf_ising::{IsingFlow, Neighbourhood};

fn evaluate(c: &mut Criterion, group: &str, sizes: &[(usize, usize, f64)]) {
    let mut group = c.benchmark_group(group);
    group.sample_size(10);
    for &(n, d, active) in sizes {
        let samples = samples(n, d, active);
        let theta = couplings(d);
        let mut grad = vec![0.0; theta.len()];
        let mut flow = IsingFlow::new(&samples, Neighbourhood::SingleFlips, Form::Sum)
            .expect("all flips are kept");
        group.throughput(Throughput::Elements((n * d) as u64));
        let id = BenchmarkId::from_parameter(format!("d={d},M={n},active={active}"));
        group.bench_function(id, |b| {
            b.iter(|| flow.value_and_gradient(&theta, &mut grad))
        });
    }
    group.finish();
}

fn against_samples(c: &mut Criterion) {
    let sizes = [1_000, 10_000, 100_000].map(|n| (n, 100, 0.5));
    evaluate(c, "objective against M", &sizes);
}

fn against_units(c: &mut Criterion) {
    let sizes = [(40, 20_000), (100, 20_000), (400, 5_000)].map(|(d, n)| (n, d, 0.5));
    evaluate(c, "objective against d", &sizes);
}

fn against_activity(c: &mut Criterion) {
    let sizes = [0.03, 0.1, 0.5].map(|active| (20_000, 100, active));
    evaluate(c, "objective against activity", &sizes);
}

criterion_group!(benches, against_samples, against_units, against_activity);
criterion_main!(benches);
