//! Times streamed fits beside fits in memory and by ranks and threads, and predicts the time of an
//! evaluation on many machines.
//!
//! ```text
//! measured   seconds of an evaluation of `mpf fit x.bits`, streamed and `--in-memory`, and for some
//!            ranks × threads
//!            c(d), nanoseconds of a sample on one core; s(d), seconds to add two vectors of n numbers
//! computed   T = M c(d)/(R t) + ⌈log₂ R⌉ [2 (α + 8 n/β) + s(d)],   n = d(d+1)/2 + 1
//! ```
//!
//! R ranks with t threads each; α is the latency and β the bandwidth of the network, which are given
//! and not measured: θ goes down a binomial tree of ranks, the gradient comes up, and is added at every
//! level. Between the measured d, c grows as d².

use crate::output::{self, OutputArgs, Table, digits, fastest};
use crate::run::parsed;
use crate::time_objective::{self, random_states};
use crate::{Result, npy, plot, program};
use mpf_core::TreeSum;
use plot::{Marks, Panel, STYLES, Series};
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

#[derive(Clone, clap::Args, Serialize)]
pub struct Args {
    /// Units of the fits that are timed.
    #[arg(long, default_value_t = 200)]
    dim: usize,
    /// Samples of the fits that are timed.
    #[arg(long, default_value_t = 1_000_000)]
    samples: usize,
    /// Iterations of a fit; the fastest of the runs counts.
    #[arg(long, default_value_t = 5)]
    iterations: usize,
    /// Runs of each fit.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Threads of a rank in the predictions.
    #[arg(long, default_value_t = 16)]
    threads: usize,
    /// Latency of the network in the predictions, in microseconds.
    #[arg(long, default_value_t = 5.0)]
    latency: f64,
    /// Bandwidth of the network in the predictions, in gigabytes a second.
    #[arg(long, default_value_t = 10.0)]
    bandwidth: f64,
}

/// A fit that was timed.
#[derive(Serialize)]
struct Timed {
    ranks: usize,
    threads: usize,
    seconds_per_evaluation: f64,
}

/// Fits of one packed file, held in memory and read at every evaluation.
#[derive(Serialize)]
struct Streamed {
    dim: usize,
    samples: usize,
    seconds_in_memory: f64,
    seconds_streamed: f64,
    bytes_per_evaluation: f64,
}

/// What one machine takes for d units.
#[derive(Clone, Copy, Serialize)]
struct Pace {
    dim: usize,
    seconds_per_sample: f64,
    seconds_per_addition: f64,
}

/// The time of an evaluation that was computed.
#[derive(Clone, Copy, Serialize)]
struct Predicted {
    dim: usize,
    samples: f64,
    ranks: usize,
    compute: f64,
    communicate: f64,
}

#[derive(Serialize)]
struct Results {
    settings: output::Settings<Args>,
    measured_streams: Vec<Streamed>,
    measured_fits: Vec<Timed>,
    measured_pace: Vec<Pace>,
    computed: Vec<Predicted>,
}

const DIMS: [usize; 4] = [100, 500, 1000, 5000];
const SAMPLES: [f64; 3] = [1e6, 1e8, 1e10];
/// Units and samples of the streamed fits.
const STREAMS: [(usize, usize); 2] = [(100, 1_000_000), (1000, 40_000)];
const RANKS: [usize; 6] = [1, 4, 16, 64, 256, 1024];

pub fn run(args: &Args, output: &OutputArgs) -> Result {
    let output = output.open("scaling")?;
    let (mpf, with_mpi) = build()?;
    let streams = STREAMS.map(|shape| streamed(args, &mpf, output.folder(), shape));
    let measured_streams = streams.into_iter().collect::<Result<Vec<_>>>()?;
    let measured_fits = time_fits(args, &mpf, with_mpi, output.folder())?;
    let paces = [100, 200, 500, 1000].map(pace);
    let measured_pace = paces.into_iter().collect::<Result<Vec<_>>>()?;
    let computed = predict(args, &measured_pace);
    let table = table(args, &measured_streams, &measured_fits, &computed);
    let results = Results {
        settings: output::Settings::of(args),
        measured_streams,
        measured_fits,
        measured_pace,
        computed,
    };
    output.write_json("results.json", &results)?;
    output.write("scaling.svg", &figure(&results.computed)?)?;
    output.show(&table, &[])
}

/// Builds `mpf`, with MPI if it is there.
fn build() -> Result<(PathBuf, bool)> {
    if Command::new("mpirun").arg("--version").output().is_ok()
        && let Ok(mpf) = program::build_with(&["--features", "mpi"])
    {
        return Ok((mpf, true));
    }
    eprintln!("SKIPPED: fits by several ranks need mpirun, libopenmpi-dev and libclang-dev");
    Ok((program::build()?, false))
}

/// Writes a packed file of random samples.
fn packed(mpf: &Path, folder: &Path, dim: usize, samples: usize) -> Result<PathBuf> {
    let (raster, packed) = (folder.join("raster.npy"), folder.join("raster.bits"));
    fs::write(
        &raster,
        npy::encode_states(&random_states(samples, dim, 0.5)?),
    )?;
    let mut pack = Command::new(mpf);
    pack.args(["--quiet", "pack"]).arg(&raster);
    pack.arg("-o").arg(&packed).arg("--force");
    if !pack.stdout(Stdio::null()).status()?.success() {
        return Err("cannot pack the samples".into());
    }
    fs::remove_file(&raster)?;
    Ok(packed)
}

/// Times fits in memory and fits that read the samples at every evaluation, in turn.
fn streamed(
    args: &Args,
    mpf: &Path,
    folder: &Path,
    (dim, samples): (usize, usize),
) -> Result<Streamed> {
    let packed = packed(mpf, folder, dim, samples)?;
    let fit = |options: &[&str]| run_fit(args, mpf, &packed, (1, 0), options);
    // Told of too little memory, `mpf` says what it needs without any samples.
    let refused = fit(&["--stream", "--memory", "1"])
        .err()
        .map_or_else(String::new, |e| e.to_string());
    let needed = refused.split("this fit takes ").nth(1).unwrap_or_default();
    let needed: f64 = needed.split(" MB").next().unwrap_or_default().parse()?;
    let least = (needed.ceil() + 1.0).to_string();
    let mut bytes_per_evaluation = 0.0;
    let [seconds_in_memory, seconds_streamed] = fastest(args.runs, || {
        let (held, _) = fit(&["--in-memory", "--held-out", "0", "--polish", "0"])?;
        let (read, bytes) = fit(&["--stream", "--memory", &least])?;
        bytes_per_evaluation = bytes;
        Ok([held, read])
    })?;
    fs::remove_file(&packed)?;
    Ok(Streamed {
        dim,
        samples,
        seconds_in_memory,
        seconds_streamed,
        bytes_per_evaluation,
    })
}

/// Times fits of one packed file by ranks and threads; with several ranks if there is MPI.
fn time_fits(args: &Args, mpf: &Path, with_mpi: bool, folder: &Path) -> Result<Vec<Timed>> {
    let packed = packed(mpf, folder, args.dim, args.samples)?;
    let cores = std::thread::available_parallelism()?.get();
    let places = [(1, 1), (1, 2), (2, 1), (1, 4), (2, 2), (4, 1)].map(|(ranks, threads)| Timed {
        ranks,
        threads,
        seconds_per_evaluation: f64::INFINITY,
    });
    let mut found = Vec::from(places);
    found.retain(|at| at.ranks * at.threads <= cores && (with_mpi || at.ranks == 1));
    // In turn, so that whatever else the machine does hits all of them.
    for _ in 0..args.runs {
        for fit in &mut found {
            let (place, memory) = ((fit.ranks, fit.threads), ["--stream", "--memory", "2000"]);
            let (seconds, _) = run_fit(args, mpf, &packed, place, &memory)?;
            fit.seconds_per_evaluation = fit.seconds_per_evaluation.min(seconds);
        }
    }
    fs::remove_file(&packed)?;
    Ok(found)
}

/// Runs a fit on some ranks with so many threads each, all cores if these are 0. Returns the seconds of
/// an evaluation, and the bytes that it read.
fn run_fit(
    args: &Args,
    mpf: &Path,
    packed: &Path,
    (ranks, threads): (usize, usize),
    options: &[&str],
) -> Result<(f64, f64)> {
    let mut fit = if ranks > 1 {
        let mut mpirun = Command::new("mpirun");
        let ranks = ranks.to_string();
        mpirun.args(["--bind-to", "none", "-n", &ranks]).arg(mpf);
        // In a container everyone is root.
        mpirun.env("OMPI_ALLOW_RUN_AS_ROOT", "1");
        mpirun.env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        mpirun
    } else {
        Command::new(mpf)
    };
    fit.arg("--json");
    if threads > 0 {
        fit.args(["--threads", &threads.to_string()]);
    }
    fit.arg("fit").arg(packed).args(options);
    fit.args(["--method", "mpf", "--refine", "none"]);
    fit.args(["--max-iterations", &args.iterations.to_string()]);
    fit.arg("-o")
        .arg(packed.with_extension("json"))
        .arg("--force");
    let outcome = fit.output()?;
    let report: serde_json::Value = serde_json::from_slice(&outcome.stdout)
        .map_err(|_| String::from_utf8_lossy(&outcome.stderr).into_owned())?;
    let number = |key: &str| report["fit"][key].as_f64().ok_or("no such number");
    let evaluations = number("evaluations")?;
    let bytes = report["bytes_read"].as_f64().unwrap_or(0.0);
    Ok((number("seconds")? / evaluations, bytes / evaluations))
}

/// Times a sample and an addition on one core.
fn pace(dim: usize) -> Result<Pace> {
    let samples = 4_000_000 / dim;
    let timing = time_objective::time(&time_objective::Args {
        dim,
        samples,
        repeats: 3,
        ..parsed(Vec::new())
    })?;
    let n = n_numbers(dim);
    let [seconds_per_addition] = fastest(20, || {
        let mut sum = TreeSum::default();
        sum.push(0, vec![1.0; n]);
        let other = vec![2.0; n];
        let start = Instant::now();
        sum.push(1, other);
        Ok([start.elapsed().as_secs_f64()])
    })?;
    Ok(Pace {
        dim,
        seconds_per_sample: timing.min_seconds / samples as f64,
        seconds_per_addition,
    })
}

/// Returns the numbers that a reduction of d units sends: the value and the gradient.
fn n_numbers(dim: usize) -> usize {
    dim * (dim + 1) / 2 + 1
}

fn predict(args: &Args, paces: &[Pace]) -> Vec<Predicted> {
    let mut found = Vec::new();
    for dim in DIMS {
        // The largest measured d that is not above, and d² from there.
        let near = paces
            .iter()
            .rev()
            .find(|p| p.dim <= dim)
            .unwrap_or(&paces[0]);
        let growth = (dim as f64 / near.dim as f64).powi(2);
        for samples in SAMPLES {
            for ranks in RANKS {
                let levels = (ranks as f64).log2().ceil();
                let bytes = 8.0 * n_numbers(dim) as f64;
                let once = args.latency * 1e-6 + bytes / (args.bandwidth * 1e9);
                let cores = (ranks * args.threads) as f64;
                found.push(Predicted {
                    dim,
                    samples,
                    ranks,
                    compute: samples * near.seconds_per_sample * growth / cores,
                    communicate: levels * (2.0 * once + near.seconds_per_addition * growth),
                });
            }
        }
    }
    found
}

fn table(args: &Args, streams: &[Streamed], fits: &[Timed], computed: &[Predicted]) -> String {
    let machine = output::Machine::this();
    let processor = machine.processor.unwrap_or_default();
    let vectors = mpf_ising::internal::Vectors::default();
    let of_streams = Table::of(
        streams,
        &[
            ("d", &|s| s.dim.to_string()),
            ("M", &|s| s.samples.to_string()),
            ("in memory, s an evaluation", &|s| {
                digits(s.seconds_in_memory)
            }),
            ("streamed, s an evaluation", &|s| digits(s.seconds_streamed)),
            ("ratio", &|s| {
                digits(s.seconds_streamed / s.seconds_in_memory)
            }),
            ("MB read an evaluation", &|s| {
                digits(1e-6 * s.bytes_per_evaluation)
            }),
        ],
    );
    let mut text = format!(
        "Measured: {processor}, {vectors}; the file is in the system's cache\n\n{}\n",
        of_streams.markdown()
    );
    let of_fits = Table::of(
        fits,
        &[
            ("ranks", &|f| f.ranks.to_string()),
            ("threads of each", &|f| f.threads.to_string()),
            ("seconds an evaluation", &|f| {
                digits(f.seconds_per_evaluation)
            }),
        ],
    );
    text += &format!(
        "Measured: {} samples × {} units, streamed\n\n{}\n",
        args.samples,
        args.dim,
        of_fits.markdown()
    );
    let head = ["d", "M"].map(str::to_owned).into_iter();
    let head = head.chain(RANKS.map(|r| r.to_string()));
    let rows = computed.chunks(RANKS.len()).map(|row| {
        let cells = row.iter().map(|p| {
            let mark = if p.communicate > p.compute { " *" } else { "" };
            digits(p.compute + p.communicate) + mark
        });
        let start = [row[0].dim.to_string(), format!("{:.0e}", row[0].samples)];
        start.into_iter().chain(cells).collect::<Vec<_>>()
    });
    text += &format!(
        "Computed from the measured seconds of a sample and of an addition on one core, {} threads of \
         each rank without loss, a latency of {} µs and {} GB/s: seconds of an evaluation by the number of \
         ranks; * where communication takes longer than the sums\n\n{}",
        args.threads,
        digits(args.latency),
        digits(args.bandwidth),
        Table::new(head, rows).markdown()
    );
    text
}

/// Draws the predicted time against the ranks, a panel for every M, with a dot where communication
/// takes over.
fn figure(computed: &[Predicted]) -> Result<String> {
    let times = || computed.iter().map(|p| p.compute + p.communicate);
    let panels = SAMPLES.map(|samples| {
        let mut series = Vec::new();
        for (dim, style) in DIMS.into_iter().zip(STYLES) {
            let of = || {
                let points = computed.iter();
                points.filter(move |p| p.dim == dim && p.samples == samples)
            };
            let point = |p: &Predicted| (p.ranks as f64, p.compute + p.communicate);
            let line = of().map(point).collect();
            let name = format!("d = {dim}");
            series.push(Series::new(name, style, line, Marks::Nothing));
            if let Some(first) = of().find(|p| p.communicate > p.compute) {
                series.push(Series::new("", style, vec![point(first)], Marks::All));
            }
        }
        Panel {
            title: format!("M = {samples:.0e}"),
            x: "ranks (dot: communication takes over)",
            y: "seconds an evaluation, computed",
            x_range: (1.0, 1024.0),
            y_range: plot::decades(times()),
            log_x: true,
            series,
        }
    });
    plot::svg((1200, 480), |root| plot::panels(root, 430, 1, &panels))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn communication_takes_over_with_many_ranks_and_few_samples() {
        let args = Args {
            dim: 10,
            samples: 100,
            iterations: 1,
            runs: 1,
            threads: 1,
            latency: 1.0,
            bandwidth: 1.0,
        };
        let pace = Pace {
            dim: 100,
            seconds_per_sample: 1e-6,
            seconds_per_addition: 1e-5,
        };
        let computed = predict(&args, &[pace]);
        let find = |dim: usize, samples: f64, ranks: usize| {
            let is_it = |p: &&Predicted| p.dim == dim && p.samples == samples && p.ranks == ranks;
            *computed.iter().find(is_it).unwrap()
        };
        let alone = find(100, 1e6, 1);
        assert_eq!((alone.compute, alone.communicate), (1.0, 0.0));
        let many = find(100, 1e6, 1024);
        // Ten levels of twice 1 µs and 8 · 5051 bytes at 1 GB/s, and an addition.
        let level = 2.0 * (1e-6 + 8.0 * 5051.0 / 1e9) + 1e-5;
        assert!((many.communicate - 10.0 * level).abs() < 1e-12);
        assert!(many.communicate > many.compute / 2.0);
        // Ten times the units: a hundred times the sums.
        assert!((find(1000, 1e6, 1).compute - 100.0).abs() < 1e-9);
        let table = table(&args, &[], &[], &computed);
        assert!(table.contains(" *") && figure(&computed).unwrap().contains("communication"));
    }
}
