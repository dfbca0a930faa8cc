//! `mpf fit`: from data to a model file. The statistics are those of [`Recipe`].

mod memory;
mod messages;
mod progress;
mod settings;

use crate::checkpoint::CheckpointArgs;
use crate::console::Console;
use crate::data::{DataArgs, Raster};
use crate::edges;
use crate::failure::{Failure, NOT_CONVERGED};
use crate::memory::MemoryLimit;
use crate::methods::{MethodArgs, Strength, find};
use crate::model::{self, Convention, FitRecord, Model, StandardErrors};
use crate::output;
use clap::{Args, ValueEnum};
use messages::{drift_in_words, largest_coupling, refuse_constant, summary, tell_preflight};
use mpf_baselines::{ErrorBarsBy, Methods, Polish, Recipe, RecipeProgress, Trained, TrainingData};
use mpf_core::Cancel;
use mpf_ising::{FoldAssignment, PathOptions, Penalty, Preflight, Rule, Samples, States, Support};
use progress::Bars;
use serde::Serialize;
use std::borrow::Cow;
use std::path::PathBuf;
use std::str::FromStr;

/// Updates after the fit, as on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PolishArg(Polish);

impl FromStr for PolishArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self(Polish::IfDrifting)),
            number => number
                .parse()
                .map(|updates| Self(Polish::Updates(updates)))
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
    #[arg(long, default_value = "mpf", help_heading = "Method")]
    method: String,
    #[command(flatten)]
    options: MethodArgs,
    /// `auto`: how the penalty is chosen
    #[arg(long, value_enum, default_value_t, help_heading = "Method")]
    rule: RuleName,
    /// `auto`: the number of folds
    #[arg(long, default_value_t = 5, help_heading = "Method")]
    folds: usize,
    /// Updates of stochastic maximum likelihood (persistent CD) after the fit;
    /// `auto`: 300 if the model does not stay with its data and has no penalty nor error bars
    #[arg(
        long,
        value_name = "N|auto",
        default_value = "auto",
        help_heading = "Method"
    )]
    polish: PolishArg,
    /// Only these couplings are free: two units a line
    #[arg(long, value_name = "EDGES", help_heading = "Method")]
    support: Option<PathBuf>,
    /// Error bars of the couplings
    #[arg(long, value_enum, default_value_t, help_heading = "Error bars")]
    errors: ErrorsName,
    /// Bootstrap: the number of resamples
    #[arg(long, default_value_t = 200, help_heading = "Error bars")]
    resamples: usize,
    /// Successive samples that are correlated; 1 for independent samples
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        help_heading = "Error bars"
    )]
    block_length: usize,
    #[command(flatten)]
    memory: MemoryLimit,
    #[command(flatten)]
    checkpoint: CheckpointArgs,
}

impl FitArgs {
    /// Refuses options that contradict each other.
    fn check(&self) -> Result<(), Failure> {
        let plain = matches!(self.polish.0, Polish::IfDrifting | Polish::Updates(0));
        if self.errors != ErrorsName::None && !plain {
            return Err(
                Failure::input("--errors are those of the fit, which --polish changes")
                    .hint("leave out one of the two"),
            );
        }
        if self.options.l1 == Strength::Auto && self.options.l2 == Strength::Auto {
            return Err(Failure::input("--l1 auto and --l2 auto at the same time")
                .hint("choose one of them and fix the other"));
        }
        if self.rule == RuleName::Ebic && self.path_of() == Some(Penalty::L2) {
            return Err(
                Failure::input("--rule ebic needs couplings that are exactly zero")
                    .hint("use --l1 auto, or another rule for --l2 auto"),
            );
        }
        Ok(())
    }

    /// Returns the penalty that is to be chosen.
    fn path_of(&self) -> Option<Penalty> {
        match (self.options.l1, self.options.l2) {
            (Strength::Auto, _) => Some(Penalty::L1),
            (_, Strength::Auto) => Some(Penalty::L2),
            _ => None,
        }
    }

    /// Returns what is to be done, without a checkpoint yet.
    fn recipe(
        &self,
        methods: &Methods,
        raster: &Raster,
        support: Support,
        cancel: &Cancel,
    ) -> Result<Recipe, Failure> {
        let method = find(methods, &self.method)?;
        let options = self.options.options(support, cancel);
        self.options.check(method, &options)?;
        let choose = self.path_of().map(|penalty| PathOptions {
            penalty,
            n_folds: self.folds,
            // Rows with counts have no order in time: blocks would hold equal rows.
            assignment: match raster.weights {
                None => FoldAssignment::Blocks,
                Some(_) => FoldAssignment::Random { seed: options.seed },
            },
            rule: match self.rule {
                RuleName::Min => Rule::Minimum,
                RuleName::OneStandardError => Rule::OneStandardError,
                RuleName::Ebic => Rule::Ebic,
            },
            ..Default::default()
        });
        Ok(Recipe {
            method,
            options,
            choose,
            polish: self.polish.0,
            errors: match self.errors {
                ErrorsName::None => ErrorBarsBy::Nothing,
                ErrorsName::Sandwich => ErrorBarsBy::Sandwich,
                ErrorsName::Bootstrap => ErrorBarsBy::Bootstrap(self.resamples),
            },
            block_length: self.block_length,
        })
    }

    /// Returns every sample by itself, if a step of the recipe needs that.
    fn states<'a>(&self, raster: &'a Raster) -> Result<Option<Cow<'a, States>>, Failure> {
        let why = match (self.path_of(), self.errors) {
            (Some(_), _) => "--l1 auto or --l2 auto",
            (None, ErrorsName::None) => return Ok(None),
            (None, _) => "--errors",
        };
        raster.every_sample(why).map(Some)
    }
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

/// Runs the command; returns the exit code.
///
/// # Errors
/// Wrong inputs, and those of the file system.
pub fn run(
    args: &FitArgs,
    methods: &Methods,
    console: Console,
    cancel: &Cancel,
) -> Result<u8, Failure> {
    model::check_name(&args.output)?;
    output::check_writable(&args.output)?;
    args.checkpoint.check(&[&args.output, &args.data.data])?;
    args.check()?;
    let raster = Raster::read(&args.data)?;
    let samples = raster.samples()?;
    let names = raster.names_or_numbers();
    let support = match &args.support {
        None => Support::Full,
        Some(path) => edges::read(path, &names)?,
    };
    let settings = settings::settings(args, &raster, &support);
    let checkpoint = args.checkpoint.open(settings, console, cancel)?;
    let mut recipe = args.recipe(methods, &raster, support, cancel)?;
    recipe.options.minimizer.checkpoint = checkpoint.clone();
    refuse_constant(&raster, &samples)?;
    let outcome = make(args, &recipe, &raster, &samples, names, console);
    args.checkpoint.end(&checkpoint, console, outcome)
}

/// Fits, writes the model and says what came out.
fn make(
    args: &FitArgs,
    recipe: &Recipe,
    raster: &Raster,
    samples: &Samples,
    names: Vec<String>,
    console: Console,
) -> Result<u8, Failure> {
    let needed = args.check_memory(recipe, raster, samples)?;
    let preflight = Preflight::new(samples, raster.names.as_deref())?;
    tell_preflight(console, raster, &preflight, needed);

    let states = args.states(raster)?;
    let bars = Bars::new(recipe, samples.n_units());
    let trained = recipe.run(
        TrainingData {
            samples,
            states: states.as_deref(),
        },
        &|progress| {
            bars.show(progress);
            if let RecipeProgress::Drifting(drift, updates) = progress {
                console.note(&format!(
                    "note: {}; polishing with {updates} updates (--polish 0 leaves it as it is)",
                    drift_in_words(drift)
                ));
            }
        },
    );
    bars.clear();
    let trained = trained?;
    let record = record(args, recipe, &trained, names.len())?;
    let model = Model {
        program: Model::this_program(),
        couplings: trained.fit.couplings,
        names,
        errors: trained.errors.map(|bars| {
            let sandwich = args.errors == ErrorsName::Sandwich;
            StandardErrors::new(if sandwich { "sandwich" } else { "bootstrap" }, bars)
        }),
        fit: Some(record.clone()),
        data: Some(raster.record()),
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

/// Describes the fit for the model file.
fn record(
    args: &FitArgs,
    recipe: &Recipe,
    trained: &Trained,
    n_units: usize,
) -> Result<FitRecord, Failure> {
    let mut record = FitRecord::new(&trained.fit);
    record.method = args.method.clone();
    record.l1 = trained.options.l1;
    record.l2 = trained.options.l2;
    record.neighbours = args.options.neighbours.as_str().into();
    record.nodewise = recipe.method.steps(n_units, &recipe.options).0 == "units";
    record.polish = trained.polish_updates;
    record.n_free_couplings = recipe.options.support.pairs(n_units)?.len();
    record.seed = args.options.seed;
    record.tolerance = args.options.tolerance;
    if let Some(path) = &trained.path {
        let rule = args.rule.to_possible_value();
        let rule = rule.as_ref().map_or("", |r| r.get_name());
        record.set_path(path);
        record.chosen_by = Some(format!("{}-fold cross-validation, rule {rule}", args.folds));
    }
    if trained.drift.has_drifted() {
        record.warnings.push(format!(
            "{}: it has probable states which the data never show; use --polish 500, or a penalty",
            drift_in_words(&trained.drift)
        ));
    }
    Ok(record)
}
