//! Is the automatic choice between tables and set bits the better one?
//!
//! `SPARSE_BELOW` in `mpf_ising::kernel` is calibrated by this: near the crossing the two differ
//! by little, away from it the choice is clear.

#![allow(missing_docs)] // criterion_group! writes an undocumented function.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use mpf_benches::{bench_objective, config, samples};
use mpf_core::Form;
use mpf_ising::kernel::{Kernel, Path};
use mpf_ising::{IsingFlow, Neighbourhood};

fn paths(c: &mut Criterion) {
    for (d, n) in [(100, 10_000), (400, 3_000)] {
        for active in [0.02, 0.05, 0.08, 0.12, 0.16, 0.2, 0.3] {
            let samples = samples(n, d, active);
            for path in [Path::Auto, Path::Dense, Path::Sparse] {
                let kernel = Kernel {
                    path,
                    ..Kernel::default()
                };
                let neighbourhood = Neighbourhood::SingleFlips;
                let flow = IsingFlow::with_kernel(&samples, neighbourhood, Form::Sum, kernel);
                let group = format!("paths against activity, d={d}");
                let id = BenchmarkId::new(format!("{path:?}").to_lowercase(), active);
                bench_objective(c, &group, id, &samples, flow.expect("all flips are kept"));
            }
        }
    }
}

criterion_group! {
    name = benches;
    config = config();
    targets = paths
}
criterion_main!(benches);
