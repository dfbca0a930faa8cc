//! Compares the filters before and after the last phase, by the flow of [`LastPhase`].

use super::super::outcome::LastPhase;
use super::super::run::Run;
use super::Metropolis;
use super::worker::{Worker, workers};
use crate::batch::view;
use crate::hamiltonian::Hamiltonian;
use crate::model::Filters;
use crate::{Error, Result};
use mpf_core::rng;
use ndarray::{Array1, Array2, ArrayView2, Axis, s};
use rayon::prelude::*;

/// Transitions after which the two are first compared. Chains that remember x flatter a phase that
/// learned from such chains.
const FEWEST_TRANSITIONS: usize = 50;

/// Transitions after which they are compared for the last time.
const MOST_TRANSITIONS: usize = 800;

/// The chains of one candidate, one from each held-out sample.
struct Chains<'a> {
    hamiltonian: Hamiltonian<'a>,
    workers: Vec<Worker>,
}

impl<'a> Chains<'a> {
    fn start(filters: &'a Filters, data: ArrayView2<'_, f64>, rows: &[u32]) -> Self {
        let hamiltonian = Hamiltonian::new(filters.as_array());
        let mut workers = workers(rows.len(), data.ncols());
        for worker in &mut workers {
            worker.place(&hamiltonian, data, rows);
        }
        Self {
            hamiltonian,
            workers,
        }
    }

    /// Makes the transitions of `metropolis` and copies the states to the rows of `to`.
    fn walk(&mut self, metropolis: Metropolis, seed: u64, to: &mut Array2<f64>) {
        let d = to.ncols();
        let hamiltonian = &self.hamiltonian;
        let workers = self.workers.par_iter_mut().enumerate();
        workers.for_each(|(k, worker)| {
            let mut rng = rng::substream(seed, k as u64);
            worker.walk(hamiltonian, metropolis, &mut rng);
        });
        for worker in &self.workers {
            let states = view(&worker.states.positions, worker.rows.len(), d);
            to.slice_mut(s![worker.rows.clone(), ..]).assign(&states);
        }
    }
}

/// Judges `candidates`, before and after, by the `held_out` rows of the data. Returns `None` if the
/// run must stop meanwhile.
pub(super) fn judge(
    run: &mut Run<'_>,
    held_out: &[u32],
    candidates: [&Filters; 2],
    metropolis: Metropolis,
    mut seed: u64,
) -> Result<Option<LastPhase>> {
    let rows: Vec<usize> = held_out.iter().map(|&row| row as usize).collect();
    let samples = run.data.select(Axis(0), &rows);
    let mut neighbours = Array2::zeros(samples.raw_dim());
    let mut chains = candidates.map(|filters| Chains::start(filters, run.data, held_out));
    let mut earlier: Option<Array1<f64>> = None;
    let mut transitions = 0;
    while run.must_stop().is_none() {
        // Doubles after the first time.
        let more = transitions.max(FEWEST_TRANSITIONS);
        transitions += more;
        let mut flows = candidates.map(|filters| energies(filters, &samples));
        for chains in &mut chains {
            seed = rng::next_seed(seed);
            let metropolis = Metropolis {
                transitions: more,
                ..metropolis
            };
            chains.walk(metropolis, seed, &mut neighbours);
            for (flow, filters) in flows.iter_mut().zip(candidates) {
                flow.scaled_add(-0.5, &energies(filters, &neighbours));
            }
        }
        let [flow_before, flow_after] = [&flows[0], &flows[1]].map(|f| mean_and_error(f).0);
        let changes = &flows[1] - &flows[0];
        let (change, standard_error) = mean_and_error(&changes);
        if ![flow_before, flow_after, standard_error]
            .iter()
            .all(|v| v.is_finite())
        {
            return Err(Error::Overflow {
                what: "the flow of the held-out samples",
            });
        }
        let settled = earlier.is_some_and(|earlier| {
            let (moved, error) = mean_and_error(&(&changes - &earlier));
            moved.abs() <= 2.0 * error
        });
        if settled || transitions >= MOST_TRANSITIONS {
            let [before, after] = candidates.map(|filters| run.measure(filters));
            return Ok(Some(LastPhase {
                held_out: held_out.len(),
                transitions,
                settled,
                flow_before,
                flow_after,
                standard_error,
                kept: settled && change < -standard_error,
                log_likelihood_before: before?,
                log_likelihood_after: after?,
            }));
        }
        earlier = Some(changes);
    }
    Ok(None)
}

/// Returns the mean and its standard error, which is 0 for one value.
fn mean_and_error(values: &Array1<f64>) -> (f64, f64) {
    let n = values.len();
    let mean = values.sum() / n as f64;
    let squares = values.mapv(|v| (v - mean) * (v - mean)).sum();
    let pairs = n * (n - 1).max(1);
    (mean, (squares / pairs as f64).sqrt())
}

/// Returns E(x; J) of every row x.
fn energies(filters: &Filters, rows: &Array2<f64>) -> Array1<f64> {
    let responses = rows.dot(&filters.as_array().t());
    responses.mapv_into(f64::abs).sum_axis(Axis(1))
}

#[cfg(test)]
mod tests {
    use super::super::super::{FitOptions, TracePoint};
    use super::*;
    use mpf_core::rng::stream;

    fn judged(data: &Array2<f64>, before: &Filters, after: &Filters, seed: u64) -> LastPhase {
        let options = FitOptions::default();
        let mut observer = |_: &TracePoint| {};
        let mut run = Run::new(data.view(), &options, &mut observer).unwrap();
        let rows: Vec<u32> = (0..data.nrows() as u32).collect();
        let metropolis = Metropolis::default();
        judge(&mut run, &rows, [before, after], metropolis, seed)
            .unwrap()
            .unwrap()
    }

    #[test]
    fn the_flow_falls_by_the_gain_in_likelihood() {
        let d = 6;
        let truth = Filters::new(Array2::eye(d)).unwrap();
        let seed = mpf_testkit::seed();
        let data = truth.draw(3000, &mut stream(seed, 0)).unwrap();
        for scale in [0.8, 1.25] {
            let other = Filters::new(Array2::eye(d) * scale).unwrap();
            let found = judged(&data, &truth, &other, seed);
            // ⟨|x|⟩ is 1 over the data and the truth, 1/scale over the other model: the
            // trapezoidal rule for the loss in ln p.
            let rule = d as f64 * (scale - 1.0) * (1.0 - 0.5 * (1.0 + 1.0 / scale));
            let loss = d as f64 * (scale - 1.0 - scale.ln());
            assert!((rule - loss).abs() < 0.1 * loss);
            let change = found.flow_after - found.flow_before;
            let error = found.standard_error;
            assert!((change - rule).abs() < 4.0 * error, "{found:?} {rule}");
            assert!(error < 0.2 * rule, "{found:?}");
            assert!(!found.kept && judged(&data, &other, &truth, seed).kept);
            let measured = found.log_likelihood_before - found.log_likelihood_after;
            // |x| has variance 1 in each of d dimensions.
            let noise = (scale - 1.0).abs() * (d as f64 / 3000.0).sqrt();
            assert!((measured - loss).abs() < 4.0 * noise);
        }
    }

    #[test]
    fn the_flow_finds_the_better_mixture() {
        let d = 6;
        let truth = Filters::random(d, 7);
        let data = truth.draw(2000, &mut stream(8, 0)).unwrap();
        let scale = data.mapv(|v| v * v).mean().unwrap();
        let (data, truth) = (
            &data / scale.sqrt(),
            Filters::new(&truth.as_array() * scale.sqrt()).unwrap(),
        );
        let mut rotated = truth.as_array().to_owned();
        let (a, b) = (
            truth.as_array().row(0).to_owned(),
            truth.as_array().row(1).to_owned(),
        );
        rotated.row_mut(0).assign(&(0.9 * &a + 0.436 * &b));
        rotated.row_mut(1).assign(&(0.9 * &b - 0.436 * &a));
        let rotated = Filters::new(rotated).unwrap();
        let seed = mpf_testkit::seed();
        assert!(!judged(&data, &truth, &rotated, seed).kept);
        assert!(judged(&data, &rotated, &truth, seed).kept);
    }
}
