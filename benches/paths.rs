//! Is the automatic choice between tables and set bits the better one, and what do wide vectors and
//! single precision gain?
//!
//! `WORTH_BELOW` in `mpf_ising`'s `kernel::sparse` is calibrated by this: near the crossing the two
//! differ by little, away from it the choice is clear.

#![allow(missing_docs)] // criterion_group! writes an undocumented function.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use mpf_benches::{bench_objective, config, samples};
use mpf_core::FlowForm;
use mpf_ising::internal::{Algorithm, Kernel, Precision, Vectors};
use mpf_ising::{IsingFlow, Neighbourhood};

fn widths(c: &mut Criterion) {
    for (d, n) in [(100, 20_000), (500, 4_000)] {
        let samples = samples(n, d, 0.5);
        for vectors in Vectors::available() {
            for precision in [Precision::Double, Precision::Single] {
                let kernel = Kernel {
                    algorithm: Algorithm::Dense,
                    vectors,
                    precision,
                    ..Kernel::default()
                };
                let flow = IsingFlow::with_kernel(
                    &samples,
                    Neighbourhood::SingleFlips,
                    FlowForm::Sum,
                    kernel,
                );
                let series = format!("{vectors}, {precision:?}").to_lowercase();
                let id = BenchmarkId::new(series, d);
                let flow = flow.expect("all flips are kept");
                bench_objective(c, "objective by vectors and precision", id, &samples, flow);
            }
        }
    }
}

fn paths(c: &mut Criterion) {
    for (d, n) in [(100, 10_000), (400, 3_000)] {
        for active in [0.02, 0.05, 0.08, 0.12, 0.16, 0.2, 0.3] {
            let samples = samples(n, d, active);
            let flow = |algorithm| {
                let kernel = Kernel {
                    algorithm,
                    ..Kernel::default()
                };
                IsingFlow::with_kernel(&samples, Neighbourhood::SingleFlips, FlowForm::Sum, kernel)
                    .expect("all flips are kept")
            };
            // The automatic choice is one of the two: timing it a third time would only add noise.
            let chosen = flow(Algorithm::Auto).algorithm();
            for algorithm in [Algorithm::Dense, Algorithm::Sparse] {
                let group = format!("paths against activity, d={d}");
                let mark = if algorithm == chosen { " (chosen)" } else { "" };
                let series = format!("{algorithm:?}{mark}").to_lowercase();
                let id = BenchmarkId::new(series, active);
                bench_objective(c, &group, id, &samples, flow(algorithm));
            }
        }
    }
}

criterion_group! {
    name = benches;
    config = config();
    targets = widths, paths
}
criterion_main!(benches);
