//! Times the objective and whole fits against numpy, scipy and scikit-learn, on the same files in the
//! same run.
//!
//! Both sides are timed in turns and the fastest of each counts, because machines are noisy. The
//! plain computation is in `benches/peers/plain.py`.

use crate::glass::Glass;
use crate::output::{Machine, OutputArgs, Table, digits, fastest, seconds_of};
use crate::run::parsed;
use crate::time_objective::{self, Choice, random_couplings, random_states};
use crate::{Result, compare_plmc, npy, progress};
use mpf_baselines::Pseudolikelihood;
use mpf_core::Objective;
use mpf_core::rng;
use mpf_ising::internal::{Vectors, limit_vectors, n_packed};
use mpf_ising::{FitOptions, Fitter, MarginLoss, MarginSum, Mode, Mpf, Samples, Support, Terms};
use rand::RngExt;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(clap::Args)]
pub struct Args {
    /// The Python with numpy, scipy and scikit-learn.
    #[arg(long, default_value = "python3")]
    python: String,
    /// Number of times that each side is timed; the fastest counts.
    #[arg(long, default_value_t = 6)]
    rounds: usize,
    /// Parts of the table to make; whole fits take minutes in scipy.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "evaluations,threads,pseudolikelihood,precision,fits,nodes"
    )]
    only: Vec<Part>,
    /// Let neither side use wider vectors than these.
    #[arg(long, value_parser = ["avx2"])]
    vectors: Option<String>,
    /// Race against this program of debbiemarkslab/plmc (`make all`) instead, on --family.
    #[arg(long, value_name = "PATH", requires = "family")]
    plmc: Option<PathBuf>,
    /// The alignment of the race with plmc, gzipped or not.
    #[arg(long, value_name = "FILE")]
    family: Option<PathBuf>,
    /// Its focus sequence.
    #[arg(long, value_name = "NAME", default_value = "DYR_ECOLI")]
    focus: String,
    #[command(flatten)]
    output: OutputArgs,
}

/// A part of the table.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Value and gradient against numpy
    Evaluations,
    /// Two threads against one
    Threads,
    /// Pseudolikelihood against the flow, both ours
    Pseudolikelihood,
    /// Whole fits with single precision on the way against double alone, both ours
    Precision,
    /// Whole fits against scipy
    Fits,
    /// Pseudolikelihood node by node against scikit-learn
    Nodes,
}

/// One comparison of evaluations: the units, the part of them that is set, the code, and the least ratio
/// that is expected with AVX2 and with AVX-512, of which numpy makes use too.
type Case = (usize, f64, Choice, [f64; 2]);

/// Samples of every case.
const SAMPLES: usize = 20_000;

const CASES: [Case; 8] = [
    (40, 0.5, Choice::Auto, [7.0, 5.0]),
    (100, 0.5, Choice::Auto, [6.0, 5.5]),
    (500, 0.5, Choice::Auto, [5.0, 3.5]),
    (1000, 0.5, Choice::Auto, [5.0, 3.2]),
    (100, 0.03, Choice::Auto, [12.0, 10.0]),
    (500, 0.03, Choice::Auto, [11.0, 10.0]),
    (1000, 0.03, Choice::Auto, [11.0, 10.0]),
    (100, 0.5, Choice::Portable, [1.3, 1.0]),
];

/// Returns the ratio that is expected on this machine.
fn expected(at_least: [f64; 2]) -> f64 {
    at_least[usize::from(Vectors::default() == Vectors::Avx512)]
}

pub fn run(args: &Args) -> Result {
    if let (Some(plmc), Some(family)) = (&args.plmc, &args.family) {
        let output = args.output.open("compare-plmc")?;
        return compare_plmc::run(plmc, family, &args.focus, args.rounds, &output);
    }
    check_python(&args.python)?;
    if args.vectors.is_some() {
        limit_vectors(Vectors::Avx2);
    }
    let output = args.output.open("compare-peers")?;
    let folder = tempfile::tempdir()?;
    let wanted = |part| args.only.contains(&part);
    let bar = progress::spinner("comparisons");
    let mut rows = Vec::new();
    let mut add = |what: &str, times: [String; 2], ratio: f64, at_least: f64| {
        let vectors = if what.ends_with("portable") {
            Vectors::Portable
        } else {
            Vectors::default()
        };
        bar.set_message(what.to_owned());
        rows.push(comparison(what, vectors, times, ratio, at_least));
    };
    for case in CASES.into_iter().filter(|_| wanted(Part::Evaluations)) {
        let [ours, theirs] = compare_evaluations(args, case, folder.path())?;
        let (d, active, kernel, at_least) = case;
        let portable = if kernel == Choice::Portable {
            ", portable"
        } else {
            ""
        };
        let what = format!(
            "d = {d}, M = {SAMPLES}, {:.0} % set{portable}",
            100.0 * active
        );
        let (times, least) = ([ours, theirs].map(milliseconds), expected(at_least));
        add(&what, times, theirs / ours, least);
    }
    if wanted(Part::Threads) {
        let [two, one] = compare_threads(args)?;
        let what = "two threads against one, d = 100, M = 200000";
        add(what, [two, one].map(milliseconds), one / two, 1.9);
    }
    if wanted(Part::Pseudolikelihood) {
        let [likelihood, flow] = compare_losses(args)?;
        let what = "one evaluation, d = 100, M = 20000: pseudolikelihood against flow";
        let times = [likelihood, flow].map(milliseconds);
        add(what, times, flow / likelihood, 1.0 / 1.5);
    }
    if wanted(Part::Precision) {
        for dim in [500, 1000] {
            let [single, double] = compare_precisions(args, dim)?;
            let what =
                format!("whole fit, d = {dim}, M = 20000: single precision first against double");
            add(&what, [single, double].map(seconds), double / single, 1.7);
        }
    }
    if wanted(Part::Fits) {
        let (data, samples) = lattice(folder.path())?;
        let fit = fastest_fit(args, &samples)?;
        // Either side is timed until it is within 1e-9 of the minimum.
        let target = fit.value * (1.0 + 1e-9);
        let arrived = fit.trace.iter().find(|p| p.value <= target);
        let arrived = arrived.ok_or("a fit ends at its minimum")?;
        for (basis, at_least) in [("standardised", [8.0, 6.0]), ("binary", [150.0, 90.0])] {
            let peer = python(args, &["fit", path(&data), basis, &target.to_string()])?;
            let theirs = number(&peer, "seconds")?;
            let missed = if peer["reached"] == true {
                ""
            } else {
                ", target not reached"
            };
            let what = format!("whole fit, d = 100, M = 20000, scipy in {basis} units");
            let times = [
                format!("{:.2} s, {} it.", arrived.seconds, arrived.iteration),
                format!("{theirs:.2} s, {} it.{missed}", peer["iterations"]),
            ];
            add(&what, times, theirs / arrived.seconds, expected(at_least));
        }
    }
    if wanted(Part::Nodes) {
        let [ours, theirs] = compare_nodes(args, folder.path())?;
        let what = "PL fit node by node, d = 100, M = 20000, scikit-learn";
        add(what, [ours, theirs].map(seconds), theirs / ours, 1.0);
    }
    bar.finish_and_clear();
    let processor = Machine::this().processor;
    let notes = [format!(
        "measured on: {}",
        processor.as_deref().unwrap_or("unknown processor")
    )];
    output.show(&Table::new(HEADER, rows).markdown(), &notes)
}

/// The headings of a table of [`comparison`]s.
pub const HEADER: [&str; 7] = [
    "comparison",
    "vectors",
    "ours",
    "theirs",
    "ratio",
    "at least",
    "met",
];

/// Returns the line of one comparison: our time and theirs, and how often ours fits into theirs.
pub fn comparison(
    what: &str,
    vectors: Vectors,
    [ours, theirs]: [String; 2],
    ratio: f64,
    at_least: f64,
) -> Vec<String> {
    vec![
        what.to_owned(),
        vectors.to_string(),
        ours,
        theirs,
        // A ratio just below the promised one must not look like it.
        format!("{ratio:.2}"),
        format!("{at_least:.2}"),
        if ratio >= at_least { "yes" } else { "NO" }.to_owned(),
    ]
}

pub fn milliseconds(time: f64) -> String {
    format!("{} ms", digits(1e3 * time))
}

fn seconds(time: f64) -> String {
    format!("{time:.2} s")
}

fn check_python(python: &str) -> Result {
    let check = Command::new(python)
        .args(["-c", "import numpy, scipy, sklearn"])
        .output()
        .map_err(|e| format!("cannot run {python}: {e} (choose another with --python)"))?;
    if check.status.success() {
        Ok(())
    } else {
        let hint = format!("install them with: {python} -m pip install numpy scipy scikit-learn");
        Err(format!("{python} lacks numpy, scipy or scikit-learn; {hint}").into())
    }
}

/// Runs the peer with one BLAS thread and reads its JSON line.
fn python(args: &Args, arguments: &[&str]) -> Result<Value> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/peers/plain.py");
    let mut command = Command::new(&args.python);
    command.arg(script).args(arguments);
    for variable in ["OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"] {
        command.env(variable, "1");
    }
    if args.vectors.is_some() {
        // OpenBLAS takes its kernels of 2013, numpy's loops none beyond AVX2; both by their new names
        // and by those before numpy 2.4.
        command.env("OPENBLAS_CORETYPE", "Haswell");
        let features =
            "X86_V4 AVX512_ICL AVX512_SPR AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL";
        command.env("NPY_DISABLE_CPU_FEATURES", features);
    }
    let output = command.output()?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(format!("plain.py {arguments:?} failed:\n{message}").into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn number(json: &Value, key: &str) -> Result<f64> {
    json[key]
        .as_f64()
        .ok_or_else(|| format!("plain.py gave no {key}").into())
}

fn path(path: &Path) -> &str {
    path.to_str().expect("temporary paths are plain")
}

/// Returns the seconds of one evaluation: ours, theirs.
fn compare_evaluations(
    args: &Args,
    (dim, active, kernel, _): Case,
    folder: &Path,
) -> Result<[f64; 2]> {
    let (data, couplings) = (folder.join("x.npy"), folder.join("j.npy"));
    let states = random_states(SAMPLES, dim, active)?;
    fs::write(&data, npy::encode_states(&states))?;
    let random = random_couplings(dim)?;
    fs::write(&couplings, npy::encode(random.as_array().view().into_dyn()))?;
    let timing = time_objective::Args {
        kernel,
        data: Some(data.clone()),
        couplings: Some(couplings.clone()),
        ..parsed(Vec::new())
    };
    fastest(args.rounds, || {
        let mine = time_objective::time(&timing)?;
        let peer = python(args, &["time", path(&data), path(&couplings), "5"])?;
        let value = number(&peer, "value")?;
        if (mine.value / value - 1.0).abs() > 1e-10 {
            return Err(format!("K is {} here and {value} in numpy", mine.value).into());
        }
        Ok([mine.min_seconds, number(&peer, "min_seconds")?])
    })
}

/// Returns the seconds of one evaluation on one thread and on two.
fn compare_threads(args: &Args) -> Result<[f64; 2]> {
    let timing = |threads| -> Result<f64> {
        let timing = time_objective::Args {
            samples: 200_000,
            threads,
            ..parsed(Vec::new())
        };
        Ok(time_objective::time(&timing)?.min_seconds)
    };
    fastest(args.rounds, || Ok([timing(2)?, timing(1)?]))
}

/// Returns the seconds of one evaluation on one thread: of the pseudolikelihood and of the flow.
fn compare_losses(args: &Args) -> Result<[f64; 2]> {
    let samples = Samples::new(&random_states(20_000, 100, 0.5)?)?;
    let theta = vec![0.05; n_packed(100)];
    let mut grad = vec![0.0; theta.len()];
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    let mut time = |loss| -> Result<f64> {
        let terms = Terms::new(&samples, 0..100, Support::Full.pairs(100)?)?;
        let mut sum = MarginSum::new(terms, loss);
        let evaluate = || pool.install(|| sum.value_and_gradient(&theta, &mut grad));
        Ok(seconds_of(10, evaluate))
    };
    fastest(args.rounds, || {
        Ok([time(MarginLoss::Logistic)?, time(MarginLoss::FLOW)?])
    })
}

/// Returns the seconds of a fit on one thread that begins in single precision, and of one that does
/// not.
fn compare_precisions(args: &Args, dim: usize) -> Result<[f64; 2]> {
    // Chains in which a unit is like the one before with probability 0.7: half of the bits are set.
    let mut rng = rng::stream(3, 0);
    let mut data = ndarray::Array2::from_elem((20_000, dim), false);
    for mut row in data.rows_mut() {
        let mut state = rng.random::<bool>();
        for unit in &mut row {
            *unit = state;
            state ^= rng.random::<f64>() >= 0.7;
        }
    }
    let samples = Samples::from_binary(data.view())?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    let fit = |rough_start: bool| -> Result<mpf_ising::Fit> {
        let mut options = FitOptions::default();
        options.minimizer.rough_start = rough_start;
        let fitter = Fitter::new(Mpf::default(), options)?;
        Ok(pool.install(|| fitter.fit(&samples))?)
    };
    fastest(args.rounds.min(2), || {
        let (a, b) = (fit(true)?, fit(false)?);
        let (spins, expected) = (a.couplings.to_spins(), b.couplings.to_spins());
        let off = (&spins.couplings - &expected.couplings).mapv(f64::abs);
        let off = off.into_iter().fold(0.0, f64::max);
        if off > 1e-7 || a.stop != b.stop {
            let stops = format!("{:?} and {:?}", a.stop, b.stop);
            return Err(format!("K differs by {off:e} at d = {dim}, stops are {stops}").into());
        }
        Ok([a.seconds, b.seconds])
    })
}

/// Writes samples of a 10×10 lattice with variance 1.
fn lattice(folder: &Path) -> Result<(PathBuf, Samples)> {
    let states = Glass::draw(10, 1.0, 20_000, 0)?.states;
    let data = folder.join("lattice.npy");
    fs::write(&data, npy::encode_states(&states))?;
    Ok((data, Samples::new(&states)?))
}

/// Fits on one thread, and returns the fastest fit of all rounds.
fn fastest_fit(args: &Args, samples: &Samples) -> Result<mpf_ising::Fit> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    let fitter: Fitter = Fitter::default();
    let mut best: Option<mpf_ising::Fit> = None;
    for _ in 0..args.rounds {
        let fit = pool.install(|| fitter.fit(samples))?;
        if best.as_ref().is_none_or(|b| fit.seconds < b.seconds) {
            best = Some(fit);
        }
    }
    Ok(best.ok_or("--rounds must be at least 1")?)
}

/// Returns the seconds of a node-wise pseudolikelihood fit on one thread: ours, scikit-learn's.
fn compare_nodes(args: &Args, folder: &Path) -> Result<[f64; 2]> {
    let (data, samples) = lattice(folder)?;
    let options = FitOptions {
        mode: Mode::NodeWise,
        ..FitOptions::default()
    };
    let fitter = Fitter::new(Pseudolikelihood, options)?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    let fit = pool.install(|| fitter.fit(&samples))?;
    let peer = python(args, &["nodes", path(&data)])?;
    // scikit-learn stops at 1e-4 of its own gradient.
    let theirs: Vec<Vec<f64>> = serde_json::from_value(peer["couplings"].clone())?;
    for (i, row) in theirs.iter().enumerate() {
        for (j, coupling) in row.iter().enumerate().filter(|(j, _)| *j != i) {
            let ours = fit.couplings.get(i, j);
            if (coupling - ours).abs() > 0.05 {
                let what = format!("J of units {i} and {j} is {ours} here");
                return Err(format!("{what} and {coupling} by scikit-learn").into());
            }
        }
    }
    Ok([fit.seconds, number(&peer, "seconds")?])
}
