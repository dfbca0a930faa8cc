//! Figure 2 and Table E-1: the paper's five methods and MPF with ℓ1 learn a two-dimensional spin
//! glass.
//!
//! ```text
//! J_ij ~ N(0, 10) between the neighbours of a 10×10 lattice, no field; M samples
//! ε_J    = ‖Ĵ − J‖²_F / d²
//! ε_corr = mean over i < j of (⟨s_i s_j⟩_Ĵ − ⟨s_i s_j⟩_J)²
//! ```
//!
//! against learning time, which excludes drawing samples and measuring errors, and against
//! evaluations. All methods start from the same random parameters and use the same threads. Limits
//! are in iterations and updates, so that errors do not depend on the clock.
//!
//! The paper's text frees the couplings between neighbours and the biases only ([`Free::Lattice`]);
//! a second reading frees all couplings ([`Free::Full`]).

mod figure;
mod methods;
mod page;
mod path;
mod penalised;
mod problem;
mod reading;
mod results;
mod watch;

use crate::Result;
use crate::output::{Entry, Experiment, Settings};
use crate::run::RunArgs;
use clap::ValueEnum;
use methods::Learner;
use mpf_core::{Cancel, Checkpoint};
use mpf_samplers::ChainOptions;
use path::Path;
use problem::{Model, Problem};
use results::{Data, NoCouplings, OfSupport, Results, Run};
use serde::{Deserialize, Serialize};

#[derive(Clone, clap::Args, Serialize)]
pub struct Args {
    /// Samples to learn from.
    #[arg(long, default_value_t = 20_000)]
    samples: usize,
    /// Variance of the couplings J (the paper: 10, a cold spin glass).
    #[arg(long, default_value_t = 10.0)]
    variance: f64,
    /// Side of the square lattice.
    #[arg(long, default_value_t = 10)]
    lattice: usize,
    /// Where the samples come from.
    #[arg(long, value_enum, default_value_t = Samplers::Both)]
    sampler: Samplers,
    /// Which couplings are free.
    #[arg(long, value_enum, default_value_t = Supports::Both)]
    support: Supports,
    /// Where all methods start.
    #[arg(long, value_enum, default_value_t = Start::Random)]
    start: Start,
    /// Which methods to run.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Learner::value_variants().to_vec())]
    methods: Vec<Learner>,
    /// Seed of the model, the samples and the start.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Repeat for this many models (seeds `seed`, `seed` + 1, …) and print medians and quartiles.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Most iterations of MPF and PL.
    #[arg(long, default_value_t = 500)]
    iterations: usize,
    /// Most iterations of MPF and PL on the way to convergence [default: 20000 with lattice
    /// couplings, --iterations with all]
    #[arg(long)]
    path_iterations: Option<usize>,
    /// Gradient tolerance, in standardised units, at which MPF and PL have converged.
    #[arg(long, default_value_t = 1e-6)]
    tolerance: f64,
    /// Updates of CD-1.
    #[arg(long, default_value_t = 300)]
    cd1_updates: usize,
    /// Updates of CD-10, each ten times the work of one of CD-1.
    #[arg(long, default_value_t = 40)]
    cd10_updates: usize,
    /// Penalties tried for MPF with ℓ1.
    #[arg(long, default_value_t = 12)]
    lambdas: usize,
    /// States per chain (of 8) to estimate the final correlations from.
    #[arg(long, default_value_t = 3000)]
    correlation_draws: usize,
}

/// The learning rate of the last update of CD, which is the paper's.
const CD_LAST_RATE: f64 = 0.1;
/// λ of the pseudo-inverse in MFT+TAP, which the paper does not give.
const TAP_LAMBDA: f64 = 1e-5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Start {
    /// Free parameters drawn from N(0, 0.01).
    Random,
    /// Ĵ = 0.
    Zero,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Samplers {
    /// All methods from exact draws, and MPF and PL from a Swendsen-Wang chain too.
    Both,
    /// Independent draws by a transfer matrix.
    Exact,
    /// One chain as in the paper, a state per sweep, after a burn-in of a tenth as many sweeps.
    SwendsenWang,
}

impl Samplers {
    /// Returns the sampler for all methods, and then the one beside it.
    fn sources(self) -> &'static [Source] {
        match self {
            Self::Both => &[Source::Exact, Source::SwendsenWang],
            Self::Exact => &[Source::Exact],
            Self::SwendsenWang => &[Source::SwendsenWang],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Source {
    Exact,
    SwendsenWang,
}

impl Source {
    fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact draws",
            Self::SwendsenWang => "Swendsen-Wang chain",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Supports {
    /// The couplings between neighbours on the lattice, and the biases: the paper's text.
    Lattice,
    /// All d(d + 1)/2 parameters.
    Full,
    /// The lattice's first, then all.
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Free {
    Lattice,
    Full,
}

impl Free {
    fn name(self) -> &'static str {
        match self {
            Self::Lattice => "lattice couplings",
            Self::Full => "all couplings",
        }
    }

    /// Returns the learning rate of the first update of CD: the paper's with lattice couplings.
    fn cd_first_rate(self) -> f64 {
        match self {
            Self::Lattice => 3.0,
            Self::Full => 1.0,
        }
    }
}

impl Args {
    fn supports(&self) -> &'static [Free] {
        match self.support {
            Supports::Lattice => &[Free::Lattice],
            Supports::Full => &[Free::Full],
            Supports::Both => &[Free::Lattice, Free::Full],
        }
    }

    fn path_iterations(&self, free: Free) -> usize {
        self.path_iterations.unwrap_or(match free {
            Free::Lattice => 20_000,
            Free::Full => self.iterations,
        })
    }

    /// Counts the free couplings and the biases.
    fn n_parameters(&self, free: Free) -> usize {
        let d = self.lattice * self.lattice;
        match free {
            Free::Lattice => d + 2 * self.lattice * (self.lattice - 1),
            Free::Full => d * (d + 1) / 2,
        }
    }

    /// Returns the ridge, 1/M.
    fn ridge(&self) -> f64 {
        1.0 / self.samples as f64
    }

    /// Lists the paths of MPF and PL, if they are among the methods: the estimator, the ridge and the
    /// samples. A fit of all couplings takes seconds: with a ridge it is made from the first sampler only.
    fn paths(&self, free: Free) -> Vec<(Learner, f64, Source)> {
        let all = self.sampler.sources();
        let mut paths = Vec::new();
        let on_paths = |learner: &&Learner| matches!(learner, Learner::Mpf | Learner::Pl);
        for &learner in self.methods.iter().filter(on_paths) {
            for ridge in [0.0, self.ridge()] {
                let one = ridge > 0.0 && free == Free::Full;
                let sources = if one { &all[..1] } else { all };
                paths.extend(sources.iter().map(|&source| (learner, ridge, source)));
            }
        }
        paths
    }

    /// Returns the chains that estimate the final correlations.
    fn chains_at_the_end(&self) -> ChainOptions {
        ChainOptions {
            n_chains: 8,
            n_draws: self.correlation_draws,
            burn_in: self.correlation_draws / 8,
            ..Default::default()
        }
    }

    fn chains_on_the_way(&self) -> ChainOptions {
        ChainOptions {
            n_draws: self.correlation_draws / 6,
            burn_in: self.correlation_draws / 20,
            ..self.chains_at_the_end()
        }
    }

    fn check(&self) -> Result {
        let too_short = self.path_iterations(Free::Lattice) < self.iterations;
        let problems = [
            (self.seeds == 0, "--seeds must be at least 1"),
            (
                self.correlation_draws < 100,
                "--correlation-draws must be at least 100",
            ),
            (self.samples < 10, "--samples must be at least 10"),
            (self.methods.is_empty(), "--methods names none"),
            (too_short, "--path-iterations must be at least --iterations"),
            (
                self.tolerance.is_nan() || self.tolerance < 0.0,
                "--tolerance must be a number from 0 on",
            ),
        ];
        match problems.iter().find(|(is_so, _)| *is_so) {
            Some((_, message)) => Err((*message).into()),
            None => Ok(()),
        }
    }
}

pub fn run(args: &Args, run: &RunArgs, cancel: &Cancel) -> Result<Entry> {
    args.check()?;
    run.run("fig2", args, cancel, |output, checkpoint| {
        let results = compute(args, checkpoint)?;
        let figures = figure::of(&results)?;
        output.publish(&Experiment {
            title: page::TITLE,
            results: &results,
            table: &page::tables(&results),
            page: &page::of(&results, &figures),
            figures: &figures.concat(),
            reading: &results.reading,
        })
    })
}

/// Fails when cancelled before the first method began.
fn compute(args: &Args, checkpoint: &Checkpoint) -> Result<Results> {
    let mut first: Option<Facts> = None;
    let supports = args.supports().iter();
    let mut runs: Vec<(Free, Vec<Run>)> = supports.map(|&free| (free, Vec::new())).collect();
    for seed in args.seed..args.seed + args.seeds {
        let entry = checkpoint.entry(format!("model {seed}"));
        match compute_one(args, seed, &entry, &mut runs) {
            Err(_) if checkpoint.is_cancelled() => {}
            facts => _ = first.get_or_insert(facts?),
        }
        if checkpoint.is_cancelled() {
            break;
        }
    }
    runs.retain(|(_, runs)| !runs.is_empty());
    let first = first.filter(|_| !runs.is_empty());
    let (data, chain, no_couplings) = first.ok_or(mpf_core::Error::Cancelled)?;
    let summed = runs.into_iter();
    let summed = summed.map(|(free, runs)| OfSupport::new(free, args.n_parameters(free), runs));
    let mut results = Results {
        settings: Settings::of(args),
        data,
        chain,
        no_couplings,
        supports: summed.collect(),
        reading: Vec::new(),
    };
    reading::add_to(&mut results);
    Ok(results)
}

/// The samples of a model, those of the chain beside them, and the errors without couplings.
type Facts = (Data, Option<Data>, NoCouplings);

/// Runs all methods and paths on one model and adds them to `runs`.
fn compute_one(
    args: &Args,
    seed: u64,
    checkpoint: &Checkpoint,
    runs: &mut [(Free, Vec<Run>)],
) -> Result<Facts> {
    let model = Model::new(args, seed, checkpoint.cancel())?;
    for (free, runs) in runs {
        let problem = match Problem::new(&model, *free) {
            Err(_) if checkpoint.is_cancelled() => break,
            problem => problem?,
        };
        let checkpoint = checkpoint.entry(free.name());
        let mut run = Run {
            seed,
            methods: Vec::new(),
            paths: Vec::new(),
        };
        for &learner in &args.methods {
            if checkpoint.is_cancelled() {
                break;
            }
            let learn = |entry: &Checkpoint| learner.run(&problem, entry);
            run.methods.push(checkpoint.unit(learner.name(), learn)?);
        }
        // In the full reading a path from the samples of the methods is the trace of its method.
        let is_trace = args.path_iterations(*free) == args.iterations;
        for (learner, ridge, source) in args.paths(*free) {
            if checkpoint.is_cancelled() {
                break;
            }
            let mut methods = run.methods.iter();
            let path = match methods.find(|m| m.name == learner.name()) {
                Some(method) if is_trace && ridge == 0.0 && source == args.sampler.sources()[0] => {
                    Path::of_method(method, source, args.iterations)
                }
                _ => {
                    let name = format!("{}, {}", path::label(learner.name(), ridge), source.name());
                    let follow =
                        |entry: &Checkpoint| Path::run(learner, ridge, source, &problem, entry);
                    checkpoint.unit(name, follow)?
                }
            };
            run.paths.push(path);
        }
        runs.push(run);
    }
    let mut data = model.data()?.into_iter();
    let first = data.next().ok_or("there is no sampler")?;
    Ok((first, data.next(), model.no_couplings()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{exact_without_times, without_times};
    use crate::run::interrupted;
    use results::Method;

    fn small() -> Args {
        Args {
            samples: 2000,
            variance: 1.0,
            lattice: 3,
            sampler: Samplers::Both,
            support: Supports::Both,
            start: Start::Random,
            methods: Learner::value_variants().to_vec(),
            seed: 1,
            seeds: 1,
            iterations: 40,
            path_iterations: None,
            tolerance: 1e-6,
            cd1_updates: 20,
            cd10_updates: 6,
            lambdas: 4,
            correlation_draws: 300,
        }
    }

    fn in_threads(n: usize, args: &Args) -> Results {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(n)
            .build()
            .unwrap();
        pool.install(|| compute(args, &Checkpoint::default()))
            .unwrap()
    }

    #[test]
    fn results_have_the_documented_shape() {
        let results = in_threads(2, &small());
        insta::assert_json_snapshot!(without_times(&results));
        let supports: Vec<Free> = results.supports.iter().map(|part| part.support).collect();
        assert_eq!(supports, [Free::Lattice, Free::Full]);
        for part in &results.supports {
            for method in &part.methods {
                let split = method.eps_j_off_diagonal + method.eps_j_diagonal;
                assert!((split - method.eps_j).abs() < 1e-12 * method.eps_j);
                let times: Vec<f64> = method.trace.iter().map(|p| p.seconds).collect();
                assert!(times.is_sorted(), "{}", method.name);
                let last = method.trace.last().unwrap();
                assert_eq!(
                    (last.eps_j, last.iteration, last.evaluations),
                    (method.eps_j, method.iterations, method.evaluations)
                );
                assert_eq!(method.trace[0].eps_j, part.methods[0].trace[0].eps_j);
            }
            // MPF and PL, with and without a ridge, from exact draws and from the chain.
            let is_full = part.support == Free::Full;
            assert_eq!(part.paths.len(), if is_full { 6 } else { 8 });
            for path in part.paths.iter().filter(|p| p.sampler == Source::Exact) {
                let method = part.methods.iter().find(|m| m.name == path.name).unwrap();
                let found = path.passed.at_limit.unwrap();
                assert_eq!(found.eps_j == method.eps_j, path.ridge == 0.0);
                assert!(path.passed.best.eps_j <= found.eps_j);
            }
        }
        let figures = figure::of(&results).unwrap();
        assert_eq!(figures.len(), 2);
        assert_eq!(figures[0][0].1.matches("learning time (s)").count(), 6);
        assert_eq!(figures[0][1].1.matches("evaluations (CD").count(), 2);
        let page = page::of(&results, &figures);
        for text in [
            "0.0172",
            "what holds, what does not",
            "leaves open",
            "tolerance 1e-2",
        ] {
            assert!(page.contains(text), "{text}");
        }
    }

    /// The page on one choice of free parameters must not speak of the other.
    #[test]
    fn a_page_speaks_of_what_was_run() {
        for (support, other) in [
            (Supports::Lattice, ["all couplings", "All couplings"]),
            (Supports::Full, ["lattice couplings", "Lattice couplings"]),
        ] {
            let args = Args {
                support,
                iterations: 10,
                cd1_updates: 4,
                cd10_updates: 2,
                ..small()
            };
            let results = in_threads(2, &args);
            let page = page::of(&results, &figure::of(&results).unwrap());
            for words in other {
                assert!(!page.contains(words), "{support:?} says {words}");
            }
        }
    }

    #[test]
    fn threads_change_no_digit_and_two_models_are_summarised() {
        let args = Args {
            seeds: 2,
            iterations: 10,
            cd1_updates: 4,
            cd10_updates: 2,
            ..small()
        };
        let (one, three) = (in_threads(1, &args), in_threads(3, &args));
        let exact = |results: &Results| {
            let digits = |m: &Method| {
                (
                    m.name.clone(),
                    m.eps_j.to_bits(),
                    m.eps_corr.map(|e| e.value.to_bits()),
                )
            };
            let methods = results.supports.iter().flat_map(|part| &part.methods);
            methods.map(digits).collect::<Vec<_>>()
        };
        assert_eq!(exact(&one), exact(&three));
        let (part, same) = (&one.supports[0], &three.supports[0]);
        assert_eq!(part.over_seeds.len(), Learner::value_variants().len());
        let spread = part.over_seeds[0].eps_j;
        assert!(spread.lower < spread.median && spread.median < spread.upper);
        assert_eq!(part.over_seeds[0].seeds, [1, 2]);
        assert_eq!(spread, same.over_seeds[0].eps_j);
        let path = &part.paths_over_seeds[0];
        assert_eq!(path.states[0].models, 2);
        let of_first = part.paths[0].passed.best.eps_j;
        // With two models the quartiles are half as far from the median as the values.
        let best = path.states[0].eps_j;
        let distance = 2.0 * (best.upper - best.median);
        assert!(((of_first - best.median).abs() - distance).abs() < 1e-12);
    }

    #[test]
    fn a_lattice_of_free_couplings_is_measured_exactly() {
        let args = Args {
            support: Supports::Lattice,
            start: Start::Zero,
            methods: vec![Learner::Mpf, Learner::Tap],
            ..small()
        };
        let results = in_threads(2, &args);
        for method in &results.supports[0].methods {
            assert_eq!(method.eps_corr.unwrap().standard_error, 0.0);
            assert_eq!(method.trace[0].eps_j, results.no_couplings.eps_j);
        }
    }

    #[test]
    fn a_chain_of_samples_works() {
        let args = Args {
            sampler: Samplers::SwendsenWang,
            methods: vec![Learner::Pl],
            iterations: 10,
            ..small()
        };
        let results = in_threads(2, &args);
        assert!(results.data.tau_energy > 1.0);
        assert!(
            results
                .reading
                .iter()
                .any(|l| l.contains("Swendsen-Wang chain"))
        );
    }

    #[test]
    fn cancelling_keeps_what_there_is() {
        let file = mpf_testkit::StopAfter::new(usize::MAX);
        file.cancel().cancel();
        // With free lattice couplings nothing before the first method can be interrupted.
        let args = Args {
            support: Supports::Lattice,
            sampler: Samplers::Exact,
            ..small()
        };
        let results = compute(&args, &file.checkpoint()).unwrap();
        assert!(results.supports[0].methods.is_empty());
        assert!(figure::of(&results).is_ok());
        // With all couplings free the correlations at the start are sampled.
        let args = Args {
            support: Supports::Full,
            ..args
        };
        assert!(compute(&args, &file.checkpoint()).is_err());
    }

    #[test]
    fn a_stopped_run_goes_on_to_the_same_bits() {
        let args = Args {
            seeds: 2,
            iterations: 12,
            cd1_updates: 4,
            cd10_updates: 2,
            ..small()
        };
        let whole = exact_without_times(&in_threads(2, &args));
        // A write is a state of a method or a result.
        let stops = [1, 5, 9, 1, 8, 8, 1, 4, 7, 30, 20, 10, 25];
        let results = interrupted(&stops, |checkpoint| compute(&args, checkpoint));
        assert_eq!(exact_without_times(&results), whole);
    }
}
