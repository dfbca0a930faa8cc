//! Figure 2 and Table E-1: the paper's five methods and MPF with ℓ1 learn a two-dimensional spin
//! glass.
//!
//! ```text
//! J_ij ~ N(0, 10) between the neighbours of a 10×10 lattice, no field; M samples
//! ε_J    = ‖Ĵ − J‖²_F / d²
//! ε_corr = mean over i < j of (⟨s_i s_j⟩_Ĵ − ⟨s_i s_j⟩_J)²
//! ```
//!
//! against learning time, which excludes drawing samples and measuring errors. All methods start
//! from the same random parameters and use the same threads. Limits are in iterations and updates,
//! so that errors do not depend on the clock.

mod figure;
mod methods;
mod page;
mod penalised;
mod problem;
mod reading;
mod results;
mod watch;

use crate::Result;
use crate::correlations::Effort;
use crate::output::{Entry, Experiment, Settings};
use crate::run::{RunArgs, settings};
use methods::Learner;
use mpf_core::{Cancel, Checkpoint};
use problem::Problem;
use results::{Data, Method, NoCouplings, Results, summarise};
use serde::Serialize;

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
    /// Whether opposite sides of the lattice are joined.
    #[arg(long, value_enum, default_value_t = Rim::Open)]
    boundary: Rim,
    /// Where the samples come from; the paper's Swendsen-Wang does not mix here.
    #[arg(long, value_enum, default_value_t = Source::Exact)]
    sampler: Source,
    /// Which couplings are free.
    #[arg(long, value_enum, default_value_t = Free::Full)]
    support: Free,
    /// Which methods to run.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Learner::ALL)]
    methods: Vec<Learner>,
    /// Seed of the model, the samples and the start.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Repeat for this many models (seeds `seed`, `seed` + 1, …) and print medians and ranges.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Most iterations of MPF and PL.
    #[arg(long, default_value_t = 500)]
    iterations: usize,
    /// Updates of CD-1.
    #[arg(long, default_value_t = 300)]
    cd1_updates: usize,
    /// Updates of CD-10, each ten times the work of one of CD-1.
    #[arg(long, default_value_t = 40)]
    cd10_updates: usize,
    /// Learning rate of the first update of CD. The paper's 3 overshoots when all couplings are
    /// free.
    #[arg(long, default_value_t = 1.0)]
    cd_first_rate: f64,
    /// Learning rate of the last update of CD (the paper's).
    #[arg(long, default_value_t = 0.1)]
    cd_last_rate: f64,
    /// λ of the pseudo-inverse in MFT+TAP, which the paper does not give.
    #[arg(long, default_value_t = 1e-5)]
    tap_lambda: f64,
    /// Penalties tried for MPF with ℓ1.
    #[arg(long, default_value_t = 12)]
    lambdas: usize,
    /// Most seconds of learning per method. Results then depend on the machine.
    #[arg(long)]
    budget: Option<f64>,
    /// States per chain (of 8) to estimate the final correlations from.
    #[arg(long, default_value_t = 6000)]
    correlation_draws: usize,
    #[command(flatten)]
    #[serde(skip)]
    run: RunArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Rim {
    Open,
    Periodic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Source {
    /// Independent draws by a transfer matrix.
    Exact,
    /// One chain, a state per sweep, after a burn-in of a tenth as many sweeps.
    SwendsenWang,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Free {
    /// All d(d + 1)/2 parameters.
    Full,
    /// The couplings between neighbours on the lattice, and the biases.
    Lattice,
}

impl Args {
    fn effort_at_the_end(&self) -> Effort {
        Effort {
            chains: 8,
            draws: self.correlation_draws,
            burn_in: self.correlation_draws / 8,
        }
    }

    fn effort_on_the_way(&self) -> Effort {
        let end = self.effort_at_the_end();
        Effort {
            draws: end.draws / 6,
            burn_in: end.draws / 20,
            ..end
        }
    }

    fn check(&self) -> Result {
        if self.seeds == 0 {
            return Err("--seeds must be at least 1".into());
        }
        if self.correlation_draws < 100 {
            return Err("--correlation-draws must be at least 100".into());
        }
        if self.samples < 10 {
            return Err("--samples must be at least 10".into());
        }
        if self.methods.is_empty() {
            return Err("--methods names none".into());
        }
        if self.boundary == Rim::Periodic && self.sampler == Source::Exact {
            return Err(
                "exact samples need an open boundary; use --sampler swendsen-wang \
                 with --boundary periodic"
                    .into(),
            );
        }
        if self.budget.is_some_and(|b| b.is_nan() || b <= 0.0) {
            return Err("--budget must be a positive number of seconds".into());
        }
        Ok(())
    }
}

pub fn run(args: &Args, cancel: &Cancel) -> Result<Option<Entry>> {
    args.check()?;
    let settings = settings("fig2", args)?;
    args.run
        .run("fig2", settings, cancel, |output, checkpoint| {
            let Some(results) = compute(args, checkpoint, cancel)? else {
                return Ok(None);
            };
            let (panels, log_time) = (figure::panels(&results)?, figure::log_time(&results)?);
            let entry = output.publish(&Experiment {
                title: page::TITLE,
                results: &results,
                table: &page::tables(&results),
                page: &page::of(&results, &panels, &log_time),
                figures: &[("fig2.svg", panels), ("fig2-log-time.svg", log_time)],
                reading: &results.reading,
            })?;
            Ok(Some(entry))
        })
}

/// Returns `None` when cancelled before the first method began.
fn compute(args: &Args, checkpoint: &Checkpoint, cancel: &Cancel) -> Result<Option<Results>> {
    let mut first: Option<Facts> = None;
    let mut models: Vec<(u64, Vec<Method>)> = Vec::new();
    for seed in args.seed..args.seed + args.seeds {
        let entry = checkpoint.entry(format!("model {seed}"));
        let Some((facts, methods)) = compute_one(args, seed, &entry, cancel)? else {
            break;
        };
        first.get_or_insert(facts);
        models.push((seed, methods));
        if cancel.is_cancelled() {
            break;
        }
    }
    let Some((data, no_couplings)) = first else {
        return Ok(None);
    };
    let over_seeds = summarise(args, &models);
    let mut results = Results {
        settings: Settings::of(args),
        data,
        no_couplings,
        methods: models.swap_remove(0).1,
        over_seeds,
        reading: Vec::new(),
    };
    results.reading = reading::of(&results);
    Ok(Some(results))
}

/// The samples of a model and the errors without couplings.
type Facts = (Data, NoCouplings);

/// Runs all methods on one model. Returns `None` when cancelled before the first began. Makes the
/// model only if something is left to do.
fn compute_one(
    args: &Args,
    seed: u64,
    checkpoint: &Checkpoint,
    cancel: &Cancel,
) -> Result<Option<(Facts, Vec<Method>)>> {
    const FACTS: &str = "data";
    let mut units = args.methods.iter().map(|m| m.name()).chain([FACTS]);
    let problem = if units.all(|name| checkpoint.is_finished(name)) {
        None
    } else {
        match Problem::new(args, seed, cancel)? {
            None => return Ok(None),
            some => some,
        }
    };
    let problem = || {
        problem
            .as_ref()
            .expect("made where something is left to do")
    };
    let facts = checkpoint.unit(FACTS, |_| {
        let problem = problem();
        Ok::<_, crate::Error>((problem.data()?, problem.no_couplings()?))
    })?;
    let mut methods = Vec::new();
    for learner in &args.methods {
        if cancel.is_cancelled() {
            break;
        }
        methods.push(checkpoint.unit(learner.name(), |unit| learner.run(problem(), unit))?);
    }
    Ok(Some((facts, methods)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{exact_without_times, without_times};
    use crate::run::interrupted;

    fn small() -> Args {
        Args {
            samples: 2000,
            variance: 1.0,
            lattice: 3,
            boundary: Rim::Open,
            sampler: Source::Exact,
            support: Free::Full,
            methods: Learner::ALL.to_vec(),
            seed: 1,
            seeds: 1,
            iterations: 40,
            cd1_updates: 20,
            cd10_updates: 6,
            cd_first_rate: 1.0,
            cd_last_rate: 0.1,
            tap_lambda: 1e-5,
            lambdas: 4,
            budget: None,
            correlation_draws: 300,
            run: RunArgs::default(),
        }
    }

    fn in_threads(n: usize, args: &Args) -> Results {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(n)
            .build()
            .unwrap();
        pool.install(|| compute(args, &Checkpoint::default(), &Cancel::new()))
            .unwrap()
            .unwrap()
    }

    #[test]
    fn results_have_the_documented_shape() {
        let results = in_threads(2, &small());
        insta::assert_json_snapshot!(without_times(&results));
        for method in &results.methods {
            let split = method.eps_j_off_diagonal + method.eps_j_diagonal;
            assert!((split - method.eps_j).abs() < 1e-12 * method.eps_j);
            let times: Vec<f64> = method.trace.iter().map(|p| p.seconds).collect();
            assert!(times.is_sorted(), "{}", method.name);
            let last = method.trace.last().unwrap();
            assert_eq!(
                (last.eps_j, last.iteration),
                (method.eps_j, method.iterations)
            );
            assert_eq!(method.trace[0].eps_j, results.methods[0].trace[0].eps_j);
        }
        let panels = figure::panels(&results).unwrap();
        assert_eq!(panels.matches("learning time (s)").count(), 6);
        let page = page::of(&results, &panels, &figure::log_time(&results).unwrap());
        assert!(page.contains("0.0172"));
        assert!(
            page.find("<svg") < page.find("What was found"),
            "the picture first"
        );
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
            results.methods.iter().map(digits).collect::<Vec<_>>()
        };
        assert_eq!(exact(&one), exact(&three));
        assert_eq!(one.over_seeds.len(), Learner::ALL.len());
        let spread = one.over_seeds[0].eps_j;
        assert!(spread.min < spread.max && one.over_seeds[0].seeds == [1, 2]);
        assert_eq!(spread.median, 0.5 * (spread.min + spread.max));
        assert_eq!(one.over_seeds[0].eps_j, three.over_seeds[0].eps_j);
    }

    #[test]
    fn a_lattice_of_free_couplings_is_measured_exactly() {
        let args = Args {
            support: Free::Lattice,
            methods: vec![Learner::Mpf, Learner::Tap],
            ..small()
        };
        let results = in_threads(2, &args);
        for method in &results.methods {
            assert_eq!(method.eps_corr.unwrap().standard_error, 0.0);
        }
    }

    #[test]
    fn a_chain_of_samples_and_a_periodic_lattice_work() {
        let args = Args {
            boundary: Rim::Periodic,
            sampler: Source::SwendsenWang,
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
        let exact = Args {
            sampler: Source::Exact,
            ..args
        };
        let refused = exact.check().unwrap_err().to_string();
        assert!(refused.contains("--sampler swendsen-wang"));
    }

    #[test]
    fn cancelling_keeps_what_there_is() {
        let cancel = Cancel::new();
        cancel.cancel();
        // With free lattice couplings nothing before the first method can be interrupted.
        let args = Args {
            support: Free::Lattice,
            ..small()
        };
        let results = compute(&args, &Checkpoint::default(), &cancel);
        let results = results.unwrap().unwrap();
        assert!(results.methods.is_empty());
        assert!(figure::panels(&results).is_ok() && figure::log_time(&results).is_ok());
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
        let results = interrupted(&stops, |checkpoint, cancel| {
            compute(&args, checkpoint, cancel)
        });
        assert_eq!(exact_without_times(&results.unwrap()), whole);
    }
}
