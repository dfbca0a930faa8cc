//! Times one evaluation of K and ∇K and prints a JSON line.

use crate::{Result, npy};
use mpf_core::rng::stream;
use mpf_core::{FlowForm, Fnv1a, Objective};
use mpf_ising::internal::{Algorithm, Kernel, Precision, Vectors, n_packed};
use mpf_ising::{Couplings, IsingFlow, Neighbourhood, Samples, States};
use ndarray::Array2;
use rand::RngExt;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;

#[derive(clap::Args, Clone)]
pub struct Args {
    /// Number of units d.
    #[arg(long, default_value_t = 100)]
    pub dim: usize,
    /// Number of samples M.
    #[arg(long, default_value_t = 20_000)]
    pub samples: usize,
    /// Fraction of bits set.
    #[arg(long, default_value_t = 0.5)]
    pub active: f64,
    /// Threads to use.
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// The code to time.
    #[arg(long, value_enum, default_value_t = Choice::Auto)]
    pub kernel: Choice,
    /// The least number of evaluations; more are made until half a second has passed.
    #[arg(long, default_value_t = 5)]
    pub repeats: usize,
    /// A .npy file of 0/1 data (u8, one row per sample) [default: random data]
    #[arg(long, requires = "couplings")]
    pub data: Option<PathBuf>,
    /// A .npy file of the matrix J (f64) to evaluate at [default: a random one]
    #[arg(long)]
    pub couplings: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Choice {
    /// The choice of a fit.
    Auto,
    /// Tables, with the widest vectors of the machine.
    Dense,
    /// Tables in single precision, with the widest vectors of the machine.
    Single,
    /// Set bits, with the widest vectors of the machine.
    Sparse,
    /// The choice of a fit, with vectors of 256 bits at most.
    Avx2,
    /// The choice of a fit, without vector instructions.
    Portable,
}

impl Choice {
    pub fn kernel(self) -> Kernel {
        Kernel {
            algorithm: match self {
                Self::Auto | Self::Avx2 | Self::Portable => Algorithm::Auto,
                Self::Dense | Self::Single => Algorithm::Dense,
                Self::Sparse => Algorithm::Sparse,
            },
            vectors: match self {
                Self::Portable => Vectors::Portable,
                Self::Avx2 => Vectors::Avx2.min(Vectors::default()),
                _ => Vectors::default(),
            },
            precision: if self == Self::Single {
                Precision::Single
            } else {
                Precision::Double
            },
            ..Kernel::default()
        }
    }
}

#[derive(Debug, Serialize)]
pub struct Timing {
    dim: usize,
    samples: usize,
    distinct_samples: usize,
    active: f64,
    threads: usize,
    kernel: String,
    vectors: String,
    evaluations: usize,
    /// Seconds of the fastest evaluation.
    pub min_seconds: f64,
    median_seconds: f64,
    ns_per_sample: f64,
    /// K.
    pub value: f64,
    gradient_hash: String,
    /// The most memory that this process held; known on Linux only.
    peak_memory_mib: Option<f64>,
}

pub fn run(args: &Args) -> Result {
    println!("{}", serde_json::to_string(&time(args)?)?);
    Ok(())
}

/// Times evaluations on a pool of the given size.
pub fn time(args: &Args) -> Result<Timing> {
    let (samples, couplings) = problem(args)?;
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(args.threads)
        .build()?;
    pool.install(|| {
        let kernel = args.kernel.kernel();
        let mut flow =
            IsingFlow::with_kernel(&samples, Neighbourhood::SingleFlips, FlowForm::Sum, kernel)?;
        let theta = couplings.pack();
        let mut grad = vec![0.0; theta.len()];
        let mut value = flow.value_and_gradient(&theta, &mut grad);
        let mut seconds = Vec::new();
        let began = Instant::now();
        while seconds.len() < args.repeats || began.elapsed().as_secs_f64() < 0.5 {
            let start = Instant::now();
            value = flow.value_and_gradient(&theta, &mut grad);
            seconds.push(start.elapsed().as_secs_f64());
        }
        seconds.sort_by(f64::total_cmp);
        let distinct = samples.n_distinct();
        Ok(Timing {
            dim: samples.n_units(),
            samples: samples.n_observed(),
            distinct_samples: distinct,
            active: samples.means().iter().sum::<f64>() / samples.n_units() as f64,
            threads: args.threads,
            kernel: format!("{:?}", flow.algorithm()).to_lowercase(),
            vectors: kernel.vectors.to_string(),
            evaluations: seconds.len(),
            min_seconds: seconds[0],
            median_seconds: seconds[seconds.len() / 2],
            ns_per_sample: 1e9 * seconds[0] / distinct as f64,
            value,
            gradient_hash: hash(&grad),
            peak_memory_mib: peak_memory_mib(),
        })
    })
}

fn peak_memory_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}

fn problem(args: &Args) -> Result<(Samples, Couplings)> {
    let states = match &args.data {
        Some(path) => States::from_binary(npy::read_bits(path)?.view())?,
        None => random_states(args.samples, args.dim, args.active)?,
    };
    let couplings = match &args.couplings {
        Some(path) => Couplings::new(npy::read(path)?)?,
        None => random_couplings(states.n_units())?,
    };
    if couplings.n_units() != states.n_units() {
        let (c, s) = (couplings.n_units(), states.n_units());
        return Err(format!("the couplings have {c} units, the data {s}").into());
    }
    Ok((Samples::new(&states)?, couplings))
}

/// Draws independent units.
pub fn random_states(n: usize, d: usize, active: f64) -> Result<States> {
    let mut rng = stream(1, 0);
    let bits = Array2::from_shape_simple_fn((n, d), || rng.random::<f64>() < active);
    Ok(States::from_binary(bits.view())?)
}

/// Draws couplings of the size that fits find.
pub fn random_couplings(d: usize) -> Result<Couplings> {
    let mut rng = stream(2, 0);
    let scale = 1.0 / (d as f64).sqrt();
    let packed: Vec<f64> = (0..n_packed(d))
        .map(|_| scale * rng.random_range(-1.0..1.0))
        .collect();
    Ok(Couplings::unpack(d, &packed)?)
}

/// Hashes the bits of every number.
fn hash(values: &[f64]) -> String {
    let mut hash = Fnv1a::default();
    values.iter().for_each(|v| hash.add(&v.to_le_bytes()));
    format!("{:016x}", hash.value())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_and_thread_count_agrees() {
        let time = |kernel, threads| {
            let args = Args {
                dim: 33,
                samples: 3000,
                active: 0.4,
                threads,
                kernel,
                repeats: 1,
                data: None,
                couplings: None,
            };
            super::time(&args).unwrap()
        };
        let one = time(Choice::Auto, 1);
        let two = time(Choice::Auto, 2);
        assert_eq!(one.gradient_hash, two.gradient_hash);
        assert_eq!(one.value.to_bits(), two.value.to_bits());
        for choice in [
            Choice::Dense,
            Choice::Sparse,
            Choice::Avx2,
            Choice::Portable,
        ] {
            let other = time(choice, 1);
            assert!((other.value / one.value - 1.0).abs() < 1e-13);
        }
        let single = time(Choice::Single, 1);
        assert!((single.value / one.value - 1.0).abs() < 1e-6);
    }
}
