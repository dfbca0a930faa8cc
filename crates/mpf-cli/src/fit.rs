//! `mpf fit`: from data to a model file. The statistics are those of [`Recipe`].

mod args;
mod incomplete;
mod memory;
mod messages;
mod packed;
mod progress;
mod settings;
mod time;

use crate::console::Console;
use crate::data::Raster;
use crate::edges;
use crate::failure::{Failure, INTERRUPTED, NOT_CONVERGED, STEP_FAILED};
use crate::model::{self, Convention, FitRecord, Model, StandardErrors};
use crate::output::{self, Kind, Output};
use args::ErrorsName;
use clap::ValueEnum;
use messages::{
    doubts, grouped, largest_coupling, refuse_constant, refuse_transposed, summary, tell_preflight,
};
use mpf_baselines::{
    Methods, Recipe, RecipeProgress, Trained, TrainingData, multi_information_share,
};
use mpf_core::{Cancel, StopReason};
use mpf_ising::{Preflight, Samples, Support};
use progress::Bars;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;
use time::Expected;

pub use args::FitArgs;
pub(crate) use messages::{drift_in_words, held_out_in_words, polishing_in_words};

/// The output of `--json`.
#[derive(Serialize)]
struct Report<'a> {
    model: String,
    /// Without its findings, which may be thousands.
    preflight: Preflight,
    findings: Vec<String>,
    /// What the fit was expected to take, without polishing that it might not need.
    expected_seconds: f64,
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
    let console = console.beside(&args.output)?;
    model::check_name(&args.output)?;
    let mut inputs = vec![args.data.data.as_path()];
    inputs.extend(args.shards.iter().map(PathBuf::as_path));
    inputs.extend(args.support.as_deref());
    let mut outputs = vec![Output {
        path: &args.output,
        kind: Kind::Model,
    }];
    outputs.extend(args.checkpoint.output());
    output::check(&inputs, &outputs, args.force)?;
    args.check()?;
    let limit = args.options.max_seconds.unwrap_or(f64::INFINITY);
    let cancel = &cancel.within(limit);
    // Work that the time limit stops reports itself as interrupted.
    run_until(args, methods, console, cancel).map_err(|failure| match cancel.reason() {
        Some(StopReason::TimeLimit) if failure.code == INTERRUPTED => Failure::too_late(limit),
        _ => failure,
    })
}

/// Reads the data and fits until `cancel` is set.
fn run_until(
    args: &FitArgs,
    methods: &Methods,
    console: Console,
    cancel: &Cancel,
) -> Result<u8, Failure> {
    if packed::is_wanted(args)? {
        return packed::run(args, methods, console, cancel);
    }
    let start = Instant::now();
    let raster = Raster::read(&args.data, args.memory.bytes(), cancel)?;
    raster.notes.iter().for_each(|note| console.note(note));
    console.stage("reading", start.elapsed());
    let names = raster.names_or_numbers();
    let support = match &args.support {
        None => Support::Full,
        Some(path) => edges::read(path, &names)?,
    };
    if let Some(unknown) = &raster.unknown {
        return incomplete::run(args, methods, &raster, unknown, support, console, cancel);
    }
    let samples = raster.samples()?;
    let settings = settings::settings(args, &raster.record(), &support);
    let checkpoint = args.checkpoint.open(settings, console, cancel)?;
    let mut recipe = args.recipe(methods, &raster, support, cancel)?;
    recipe.options.minimizer.checkpoint = checkpoint.clone();
    refuse_constant(&raster, &samples)?;
    refuse_transposed(&raster, &samples, args.force)?;
    let outcome = make(args, &recipe, &raster, &samples, names, console);
    args.checkpoint.end(&checkpoint, console, outcome)
}

/// Fits, writes the model and prints a summary.
fn make(
    args: &FitArgs,
    recipe: &Recipe,
    raster: &Raster,
    samples: &Samples,
    names: Vec<String>,
    console: Console,
) -> Result<u8, Failure> {
    let needed = args.check_memory(recipe, raster, samples)?;
    let cancel = &recipe.options.minimizer.cancel;
    let start = Instant::now();
    let preflight = Preflight::cancellable(samples, raster.names.as_deref(), cancel)?;
    console.stage("preflight", start.elapsed());
    let expected = Expected::new(recipe, samples, &preflight)?;
    tell_preflight(console, raster, &preflight, expected, needed);

    let states = args.states(raster)?;
    let bars = Bars::new(recipe, samples.n_units(), console);
    let trained = recipe.run(
        TrainingData {
            samples,
            states: states.as_deref(),
        },
        &|progress| {
            bars.show(progress);
            if let RecipeProgress::Drifting(drift, updates) = progress {
                console.note(&format!(
                    "note: {}; trying {updates} updates of polishing (--polish 0 leaves it out)",
                    drift_in_words(drift)
                ));
            }
        },
    );
    bars.clear();
    let trained = trained?;
    let record = record(args, recipe, &trained, &names)?;
    let failed = !trained.failures.is_empty();
    let share = multi_information_share(&trained.fit.couplings, samples)?;
    let model = Model {
        program: Model::this_program(),
        couplings: trained.fit.couplings,
        names,
        errors: trained.errors.map(|bars| {
            let sandwich = args.errors == ErrorsName::Sandwich;
            let method = if sandwich { "sandwich" } else { "bootstrap" };
            StandardErrors::new(method, bars, trained.block_length)
        }),
        fit: Some(record.clone()),
        data: Some(raster.record()),
    };
    model.write(&args.output, Convention::Binary)?;

    record.warnings.iter().for_each(|w| console.warning(w));
    let largest = largest_coupling(&model);
    console.result(&summary(args, &model, &record, share, largest))?;
    console.json(&Report {
        model: args.output.display().to_string(),
        findings: grouped(&preflight.findings),
        expected_seconds: expected.seconds,
        preflight: Preflight {
            findings: Vec::new(),
            ..preflight
        },
        fit: &record,
        largest_coupling: largest,
    })?;
    Ok(match (record.converged, failed) {
        (_, true) => STEP_FAILED,
        (false, _) => NOT_CONVERGED,
        (true, false) => 0,
    })
}

/// Describes the fit for the model file.
fn record(
    args: &FitArgs,
    recipe: &Recipe,
    trained: &Trained,
    names: &[String],
) -> Result<FitRecord, Failure> {
    let n_units = names.len();
    let mut record = FitRecord::new(&trained.fit, names);
    record.method = args.method.clone();
    record.l1 = trained.options.l1;
    record.l2 = trained.l2;
    record.neighbours = args.options.neighbours.unwrap_or_default().as_str().into();
    record.nodewise = recipe.method.steps(n_units, &recipe.options).0 == "units";
    let polishing = trained.polishing.filter(|polishing| polishing.is_kept);
    record.polish = polishing.map_or(0, |polishing| polishing.updates);
    record.stages = trained.stages.clone();
    record.held_out = trained.held_out;
    record.drift = trained.drift;
    record.polishing = trained.polishing;
    record.n_free_couplings = recipe.options.support.pairs(n_units)?.len();
    record.seed = args.options.seed;
    record.tolerance = args.options.tolerance;
    if let Some(path) = &trained.path {
        let rule = args.rule_or_default().to_possible_value();
        let rule = rule.as_ref().map_or("", |r| r.get_name());
        record.set_path(path);
        record.chosen_by = Some(format!(
            "{}-fold cross-validation, rule {rule}",
            args.n_folds()
        ));
    }
    record.warnings.extend(doubts(trained));
    Ok(record)
}
