//! Times an evaluation of the pseudolikelihood against plmc, on the same alignment in the same run.
//!
//! plmc prints the time after every iteration; the short ones are one evaluation each. Both sides take
//! turns and the fastest of each counts.

use crate::Result;
use crate::compare_peers::{HEADER, comparison, milliseconds};
use crate::output::{Output, Table, fastest, seconds_of};
use crate::reproduce_contacts::unpack;
use mpf_core::Objective;
use mpf_ising::internal::Vectors;
use mpf_potts::{Alignment, Ambiguous, JointObjective, Loss, Penalties, ReadOptions};
use std::path::Path;
use std::process::Command;

/// plmc's own example: `-le 16 -lh 0.01 -g`.
const LAMBDA: [f64; 2] = [16.0, 0.01];
/// Iterations that plmc runs each time.
const ITERATIONS: usize = 6;

pub fn run(plmc: &Path, family: &Path, focus: &str, rounds: usize, output: &Output) -> Result {
    let text = unpack(family)?;
    let options = ReadOptions {
        focus: Some(focus.to_owned()),
        ambiguous: Ambiguous::Drop,
        ..ReadOptions::default()
    };
    let alignment = Alignment::read(&text, &options)?;
    let sequences = alignment.sequences(&alignment.weights(0.2), true)?;
    let folder = tempfile::tempdir()?;
    let plain = folder.path().join("family.a2m");
    std::fs::write(&plain, &text)?;

    let penalties = Penalties::from_plmc(LAMBDA[0], LAMBDA[1], 0.0, sequences.total_weight());
    let mut objective = JointObjective::new(&sequences, Loss::Pseudolikelihood, penalties);
    let n = objective.n_params();
    // Numbers as after a few steps.
    let theta: Vec<f64> = (0..n).map(|k| 0.02 * (k as f64).sin()).collect();
    let mut grad = vec![0.0; n];
    let mut time = |objective: &mut JointObjective, threads: usize, rough: bool| -> Result<f64> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()?;
        objective.set_rough(rough);
        // The first evaluation makes its memory.
        let evaluate = || pool.install(|| objective.value_and_gradient(&theta, &mut grad));
        Ok(seconds_of(4, evaluate))
    };
    let [theirs, double, two, single] = fastest(rounds, || {
        Ok([
            time_plmc(plmc, &plain, focus)?,
            time(&mut objective, 1, false)?,
            time(&mut objective, 2, false)?,
            time(&mut objective, 1, true)?,
        ])
    })?;
    let row = |what: &str, ours: f64, theirs: f64, at_least: f64| {
        let times = [ours, theirs].map(milliseconds);
        comparison(what, Vectors::default(), times, theirs / ours, at_least)
    };
    let rows = [
        row("PL evaluation, plmc, f64, one thread", double, theirs, 5.0),
        row("PL evaluation, plmc, f32, one thread", single, theirs, 10.0),
        row("PL evaluation, two threads against one", two, double, 1.8),
    ];
    output.show(&Table::new(HEADER, rows).markdown(), &[])
}

/// Returns the seconds of plmc's iterations with one evaluation. It prints tenths: their mean tells
/// more than the shortest.
fn time_plmc(plmc: &Path, family: &Path, focus: &str) -> Result<f64> {
    let couplings = family.with_extension("couplings");
    let lambda = LAMBDA.map(|l| l.to_string());
    let run = Command::new(plmc)
        .args([
            "-le", &lambda[0], "-lh", &lambda[1], "-g", "-f", focus, "-m",
        ])
        .arg(ITERATIONS.to_string())
        .arg("-c")
        .args([&couplings, family])
        .output()
        .map_err(|e| format!("cannot run {}: {e}", plmc.display()))?;
    let log = String::from_utf8_lossy(&run.stderr);
    let times: Vec<f64> = log
        .lines()
        .filter_map(|line| {
            let mut fields = line.split('\t');
            fields.next()?.parse::<usize>().ok()?;
            fields.next()?.parse().ok()
        })
        .collect();
    let steps = times.windows(2).map(|pair| pair[1] - pair[0]);
    let shortest = steps.clone().fold(f64::INFINITY, f64::min);
    // An iteration with two evaluations takes twice as long.
    let single: Vec<f64> = steps.filter(|step| *step < 1.5 * shortest).collect();
    if shortest.is_finite() && shortest > 0.0 {
        Ok(single.iter().sum::<f64>() / single.len() as f64)
    } else {
        Err(format!("{} printed no times of iterations:\n{log}", plmc.display()).into())
    }
}
