//! `mpf fit`: from data to a model file.

mod room;
mod told;
mod work;

use crate::checkpoint::{CheckpointArgs, Keeper};
use crate::console::Console;
use crate::data::{DataArgs, Raster};
use crate::edges;
use crate::failure::{Failure, NOT_CONVERGED};
use crate::memory::MemoryLimit;
use crate::methods::{MethodArgs, MethodName, Strength};
use crate::model::{self, Convention, FitRecord, Model, PathRecord, StandardErrors};
use crate::output;
use clap::{Args, ValueEnum};
use mpf_baselines::drift::Drift;
use mpf_baselines::{ContrastiveOptions, Fitted, LearningRate, Method};
use mpf_core::{Cancel, StopReason};
use mpf_ising::{
    BootstrapOptions, CrossValidation, FoldAssignment, Folds, PathOptions, Penalty, PenaltyPath,
    Preflight, Rule, Samples, Support, Warning, numbered_bootstrap,
};
use mpf_report::progress;
use serde::Serialize;
use std::path::PathBuf;
use std::str::FromStr;
use told::{largest_coupling, refuse_constant, summary, tell_preflight, thinned};
use work::{Stage, Work};

/// Steps of `--polish`, in units of J per moment: the second half of the paper's schedule.
const POLISHING_RATE: LearningRate = LearningRate {
    first: 1.0,
    last: 0.05,
};

/// How many of them `auto` makes.
const POLISHING_UPDATES: usize = 300;
/// Chains that one update of `--polish` moves.
const POLISHING_CHAINS: usize = 8000;
/// Gibbs sweeps after which a model that has left its data is noticed.
const DRIFT_SWEEPS: usize = 50;

/// Updates after the fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polish {
    /// So many.
    Given(usize),
    /// If the model leaves its data.
    Auto,
}

impl FromStr for Polish {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            number => number
                .parse()
                .map(Self::Given)
                .map_err(|_| "a number of updates, or `auto`".into()),
        }
    }
}

/// How a penalty is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RuleName {
    /// The best held-out objective: for the couplings
    #[default]
    Min,
    /// The largest λ within one standard error of it: for few couplings
    #[value(name = "1se")]
    OneStandardError,
    /// The smallest EBIC: for the graph (λ₁ only)
    Ebic,
}

/// Where error bars come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ErrorsName {
    /// No error bars
    #[default]
    None,
    /// The sandwich formula: the time of a few fits
    Sandwich,
    /// Refits of resampled data: any method, slower
    Bootstrap,
}

/// Options of `mpf fit`.
#[derive(Args, Clone, Debug)]
pub struct FitArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Where the model goes: .json, .npz or .csv
    #[arg(short, long, value_name = "MODEL")]
    output: PathBuf,
    /// How to fit
    #[arg(long, value_enum, default_value = "mpf", help_heading = "Method")]
    method: MethodName,
    #[command(flatten)]
    options: MethodArgs,
    /// `auto`: how the penalty is chosen
    #[arg(long, value_enum, default_value_t, help_heading = "Method")]
    rule: RuleName,
    /// `auto`: how many folds
    #[arg(long, default_value_t = 5, help_heading = "Method")]
    folds: usize,
    /// After the fit, so many updates of stochastic maximum likelihood (persistent CD) from there;
    /// `auto`: 300 if the model does not stay with its data and has no penalty nor error bars
    #[arg(
        long,
        value_name = "N|auto",
        default_value = "auto",
        help_heading = "Method"
    )]
    polish: Polish,
    /// Only these couplings are free: two units a line
    #[arg(long, value_name = "EDGES", help_heading = "Method")]
    support: Option<PathBuf>,
    /// Error bars of the couplings
    #[arg(long, value_enum, default_value_t, help_heading = "Error bars")]
    errors: ErrorsName,
    /// Bootstrap: how many resamples
    #[arg(long, default_value_t = 200, help_heading = "Error bars")]
    resamples: usize,
    /// Successive samples that remember each other; 1 for independent samples
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        help_heading = "Error bars"
    )]
    block_length: usize,
    #[command(flatten)]
    room: MemoryLimit,
    #[command(flatten)]
    keeping: CheckpointArgs,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    model: String,
    preflight: &'a Preflight,
    findings: Vec<String>,
    fit: &'a FitRecord,
    largest_coupling: f64,
}

/// Runs the command; the number is the exit code.
///
/// # Errors
/// Wrong inputs, and those of the file system.
pub fn run(args: &FitArgs, console: Console, cancel: &Cancel) -> Result<u8, Failure> {
    model::check_name(&args.output)?;
    output::check_writable(&args.output)?;
    args.keeping.check(&[&args.output, &args.data.data])?;
    if args.errors != ErrorsName::None && !matches!(args.polish, Polish::Auto | Polish::Given(0)) {
        return Err(
            Failure::input("--errors are those of the fit, which --polish changes")
                .hint("leave out one of the two"),
        );
    }
    if args.options.l1 == Strength::Auto && args.options.l2 == Strength::Auto {
        return Err(Failure::input("--l1 auto and --l2 auto at the same time")
            .hint("choose one of them and fix the other"));
    }
    let raster = Raster::read(&args.data)?;
    let samples = raster.samples()?;
    let names = raster.names_or_numbers();
    let support = match &args.support {
        None => Support::Full,
        Some(path) => edges::read(path, &names)?,
    };
    let settings = work::settings(args, &raster, &support);
    let keeper = Keeper::new(&args.keeping, settings, console, Work::in_words)?;
    let job = Job {
        args,
        raster: &raster,
        samples: &samples,
        method: args.options.method(args.method, support.clone(), cancel)?,
        cancel,
        keeper: &keeper,
    };
    refuse_constant(&raster, &samples)?;
    keeper.end(make(&job, console, &support, names))
}

/// Does the job, from the penalty to the file.
fn make(
    job: &Job<'_>,
    console: Console,
    support: &Support,
    names: Vec<String>,
) -> Result<u8, Failure> {
    let (args, cancel) = (job.args, job.cancel);
    let most = support.most_pairs(names.len());
    let needed = args.check_memory(job.raster, job.samples, most)?;
    let n_free = support.pairs(names.len())?.len();
    let preflight = Preflight::new(job.samples, job.raster.names.as_deref())?;
    tell_preflight(console, job.raster, &preflight, needed);

    let (method, path) = job.choose_penalty()?;
    let mut fitted = match &path {
        // The path has been there already.
        Some(chosen) => chosen.fit.clone(),
        None => job.fit(&method, Stage::Fit)?,
    };
    if cancel.is_cancelled() {
        return Err(Failure::interrupted());
    }
    let mut drift = job.drift(&fitted)?;
    let polish = job.updates(&drift);
    if polish > 0 && !cancel.is_cancelled() {
        if args.polish == Polish::Auto {
            console.note(&format!(
                "note: {}; polishing with {polish} updates (--polish 0 leaves it as it is)",
                in_words(&drift)
            ));
        }
        fitted = job.polish(fitted, support, polish)?;
        drift = job.drift(&fitted)?;
    }
    if cancel.is_cancelled() {
        return Err(Failure::interrupted());
    }
    let errors = job.errors(&method, &fitted)?;
    let mut record = job.record(&method, &fitted, path, n_free);
    record.polish = polish;
    if drift.is_away() {
        record.warnings.push(format!(
            "{}: it has probable states which the data never show; use --polish 500, or a penalty",
            in_words(&drift)
        ));
    }
    let model = Model {
        program: Model::this_program(),
        couplings: fitted.couplings.clone(),
        names,
        errors,
        fit: Some(record.clone()),
        data: Some(job.raster.record()),
    };
    model.write(&args.output, Convention::Binary)?;

    record.warnings.iter().for_each(|w| console.warning(w));
    let largest = largest_coupling(&model);
    console.result(&summary(args, &model, &record, largest))?;
    console.json(&Report {
        model: args.output.display().to_string(),
        preflight: &preflight,
        findings: preflight.findings.iter().map(ToString::to_string).collect(),
        fit: &record,
        largest_coupling: largest,
    })?;
    Ok(if record.converged { 0 } else { NOT_CONVERGED })
}

/// A penalty that was chosen, the fit there, and the way to it.
struct Chosen {
    penalty: Penalty,
    lambda: f64,
    fit: Fitted,
    path: Vec<PathRecord>,
}

/// One fit: the data, the method and what it was asked for.
struct Job<'a> {
    args: &'a FitArgs,
    raster: &'a Raster,
    samples: &'a Samples,
    method: Method,
    cancel: &'a Cancel,
    keeper: &'a Keeper<Work>,
}

impl Job<'_> {
    /// The method with its penalties, and the path if one was to be chosen.
    fn choose_penalty(&self) -> Result<(Method, Option<Chosen>), Failure> {
        let options = &self.args.options;
        let penalty = match (options.l1, options.l2) {
            (Strength::Auto, _) => Penalty::L1,
            (_, Strength::Auto) => Penalty::L2,
            _ => return Ok((self.method.clone(), None)),
        };
        let rule = match self.args.rule {
            RuleName::Min => Rule::Minimum,
            RuleName::OneStandardError => Rule::OneStandardError,
            RuleName::Ebic if penalty == Penalty::L2 => {
                return Err(
                    Failure::input("--rule ebic needs couplings that are exactly zero")
                        .hint("use --l1 auto, or another rule for --l2 auto"),
                );
            }
            RuleName::Ebic => Rule::Ebic,
        };
        let states = self.raster.every_sample("--l1 auto or --l2 auto")?;
        // Rows with counts have no order in time, so that blocks would be of equal rows.
        let dealing = match self.raster.weights {
            None => FoldAssignment::Blocks,
            Some(_) => FoldAssignment::Random { seed: options.seed },
        };
        let folds = Folds::new(states.n_samples(), self.args.folds, dealing)?;
        let path = PenaltyPath::new(PathOptions {
            penalty,
            ..Default::default()
        })?;
        let bar = progress::bar(30).with_prefix("penalties");
        let earlier = self.keeper.get(|work| work.path.clone());
        let found =
            self.method
                .cross_validate_from(earlier, &path, &states, &folds, |progress, now| {
                    self.keeper.keep(|work| work.path = Some(now()));
                    bar.set_length(progress.total as u64);
                    bar.set_position(progress.done as u64);
                });
        bar.finish_and_clear();
        let found: CrossValidation = found?;
        let point = found.chosen(rule).expect("a path has a point");
        let mut with = self.args.options.clone();
        match penalty {
            Penalty::L1 => with.l1 = Strength::Given(point.lambda),
            Penalty::L2 => with.l2 = Strength::Given(point.lambda),
        }
        let support = match &self.args.support {
            None => Support::Full,
            Some(path) => edges::read(path, &self.raster.names_or_numbers())?,
        };
        let method = with.method(self.args.method, support, self.cancel)?;
        let records = found.path.iter().zip(&found.scores);
        let chosen = Chosen {
            penalty,
            lambda: point.lambda,
            fit: point.fit.clone().into(),
            path: records
                .map(|(point, score)| PathRecord {
                    lambda: point.lambda,
                    n_couplings: point.n_couplings,
                    held_out: score.mean,
                    standard_error: score.standard_error,
                    ebic: point.ebic,
                })
                .collect(),
        };
        Ok((method, Some(chosen)))
    }

    fn fit(&self, method: &Method, stage: Stage) -> Result<Fitted, Failure> {
        let (what, total) = match method {
            Method::ContrastiveDivergence(options) => ("updates", Some(options.updates)),
            Method::Rise { .. } | Method::LogRise { .. } => ("units", Some(self.samples.n_units())),
            _ if self.args.options.nodewise => ("units", Some(self.samples.n_units())),
            _ => ("iterations", None),
        };
        let bar = match total {
            Some(total) => progress::bar(total as u64).with_prefix(what),
            None => progress::spinner(what),
        };
        let updates = matches!(method, Method::ContrastiveDivergence(_));
        let keeper = self.keeper;
        let method = if keeper.is_on() {
            method
                .clone()
                .resumed(keeper.get(|work| work.of(stage).clone()))?
        } else {
            method.clone()
        };
        let fitted = method.fit_with_snapshots(self.samples, |progress, now| {
            keeper.keep_when_due(|work| *work.of_mut(stage) = now());
            bar.set_position(progress.iteration as u64);
            // A bar counts by itself, and contrastive divergence has no objective.
            bar.set_message(match (updates, total) {
                (true, _) => format!("moments differ by {:.1e}", progress.value),
                (_, Some(_)) => format!("objective {:.6}", progress.value),
                (_, None) => format!(
                    "{} {what}, objective {:.6}, gradient {:.1e}",
                    progress.iteration, progress.value, progress.gradient_norm
                ),
            });
        });
        bar.finish_and_clear();
        let mut fitted = fitted?;
        let last = fitted.snapshot.take();
        keeper.keep(|work| *work.of_mut(stage) = last);
        Ok(fitted)
    }

    fn drift(&self, fitted: &Fitted) -> Result<Drift, Failure> {
        let seed = self.args.options.seed;
        let drift = Drift::measure(&fitted.couplings, self.samples, DRIFT_SWEEPS, seed);
        Ok(drift?)
    }

    /// How many updates are to follow the fit.
    fn updates(&self, drift: &Drift) -> usize {
        let options = &self.args.options;
        let none = Strength::Given(0.0);
        let plain =
            options.l1 == none && options.l2 == none && self.args.errors == ErrorsName::None;
        let local = matches!(
            self.args.method,
            MethodName::Mpf | MethodName::Pl | MethodName::Rise | MethodName::Logrise
        );
        match self.args.polish {
            Polish::Given(updates) => updates,
            Polish::Auto if plain && local && drift.is_away() => POLISHING_UPDATES,
            Polish::Auto => 0,
        }
    }

    /// Moves the couplings until means and pairs of the model are those of the data.
    fn polish(&self, fitted: Fitted, support: &Support, updates: usize) -> Result<Fitted, Failure> {
        let polish = Method::ContrastiveDivergence(ContrastiveOptions {
            updates,
            persistent: true,
            batch_size: Some(POLISHING_CHAINS),
            learning_rate: POLISHING_RATE,
            support: support.clone(),
            start: Some(fitted.couplings),
            seed: self.args.options.seed,
            cancel: self.cancel.clone(),
            ..Default::default()
        });
        let polished = self.fit(&polish, Stage::Polish)?;
        // How the fit went stays in the record; what the model is, is new.
        Ok(Fitted {
            couplings: polished.couplings,
            seconds: fitted.seconds + polished.seconds,
            ..fitted
        })
    }

    fn errors(&self, method: &Method, fitted: &Fitted) -> Result<Option<StandardErrors>, Failure> {
        let block_length = self.args.block_length;
        Ok(match self.args.errors {
            ErrorsName::None => None,
            ErrorsName::Sandwich => {
                let states = self.raster.every_sample("--errors")?;
                let waiting = progress::spinner("error bars");
                let bars = method.sandwich(&fitted.couplings, &states, block_length);
                waiting.finish_and_clear();
                Some(StandardErrors::new("sandwich", bars?))
            }
            ErrorsName::Bootstrap => {
                let states = self.raster.every_sample("--errors")?;
                let options = BootstrapOptions {
                    n_resamples: self.args.resamples,
                    block_length,
                    seed: self.args.options.seed,
                };
                let bar = progress::bar(self.args.resamples as u64).with_prefix("resamples");
                let bars = numbered_bootstrap(&states, &options, |number, resample| {
                    let cancelled = || mpf_baselines::Error::from(mpf_ising::Error::Cancelled);
                    let known = self.keeper.get(|work| work.resamples.get(&number).cloned());
                    let couplings = match known {
                        Some(couplings) => couplings,
                        None if self.cancel.is_cancelled() => return Err(cancelled()),
                        None => {
                            let fitted = method.fit(resample)?;
                            if fitted.stop == Some(StopReason::Cancelled) {
                                return Err(cancelled());
                            }
                            let couplings = fitted.couplings;
                            self.keeper.keep(|work| {
                                work.resamples.insert(number, couplings.clone());
                            });
                            couplings
                        }
                    };
                    bar.inc(1);
                    Ok(couplings)
                });
                bar.finish_and_clear();
                Some(StandardErrors::new("bootstrap", bars?))
            }
        })
    }

    fn record(
        &self,
        method: &Method,
        fitted: &Fitted,
        path: Option<Chosen>,
        n_free_couplings: usize,
    ) -> FitRecord {
        let options = &self.args.options;
        let course = fitted.course.as_ref();
        let is_not_converged = |w: &Warning| matches!(w, Warning::NotConverged { .. });
        let (l1, l2) = match &path {
            Some(chosen) if chosen.penalty == Penalty::L1 => (chosen.lambda, options.l2.number()),
            Some(chosen) => (options.l1.number(), chosen.lambda),
            None => (options.l1.number(), options.l2.number()),
        };
        let rule = self.args.rule.to_possible_value();
        let by_row = matches!(method, Method::Rise { .. } | Method::LogRise { .. });
        FitRecord {
            method: self.args.method.as_str().into(),
            l1,
            l2,
            chosen_by: path.as_ref().map(|_| {
                let rule = rule.as_ref().map_or("", |r| r.get_name());
                format!("{}-fold cross-validation, rule {rule}", self.args.folds)
            }),
            neighbours: options.neighbours.as_str().into(),
            nodewise: options.nodewise || by_row,
            polish: 0,
            n_free_couplings,
            seed: options.seed,
            tolerance: options.tolerance,
            stop: fitted.stop.map(|s| s.to_string()),
            converged: !fitted.warnings.iter().any(is_not_converged),
            value: course.map(|c| c.value),
            kkt_residual: course.map(|c| c.kkt_residual),
            iterations: course.map_or(0, |c| c.iterations),
            evaluations: course.map_or(0, |c| c.evaluations),
            seconds: fitted.seconds,
            warnings: fitted.warnings.iter().map(ToString::to_string).collect(),
            trace: course.map_or_else(Vec::new, |c| thinned(&c.trace)),
            path_of: path.as_ref().map(|chosen| match chosen.penalty {
                Penalty::L1 => "l1".into(),
                Penalty::L2 => "l2".into(),
            }),
            path: path.map_or_else(Vec::new, |chosen| chosen.path),
        }
    }
}

fn in_words(drift: &Drift) -> String {
    format!(
        "the model does not stay with the data: chains that start there go from {:.1} % active to \
         {:.1} % in {DRIFT_SWEEPS} sweeps",
        100.0 * drift.before,
        100.0 * drift.after
    )
}
