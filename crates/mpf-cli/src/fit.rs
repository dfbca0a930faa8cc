//! `mpf fit`: from data to a model file. The statistics are those of [`Recipe`].

mod args;
mod incomplete;
mod machine;
mod memory;
mod messages;
mod packed;
mod progress;
mod settings;
mod time;

use crate::console::Console;
use crate::data::{DataRecord, Raster};
use crate::edges;
use crate::failure::{Failure, NOT_CONVERGED, STEP_FAILED};
use crate::methods::{ModelName, name_of};
use crate::model::{self, Convention, FitRecord, Model, StandardErrors};
use crate::output::{self, Output};
use messages::{doubts, largest_coupling, refuse_shape, summary, tell_preflight};
use mpf_baselines::{
    Methods, Recipe, RecipeProgress, Trained, TrainingData, multi_information_share,
};
use mpf_core::Cancel;
use mpf_ising::{Preflight, Samples, Support};
use mpf_report::text::duration;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use time::{Expected, Trials};

pub use args::FitArgs;
pub(crate) use messages::{drift_in_words, grouped, held_out_in_words, polishing_in_words};
pub(crate) use progress::Bars;
pub use progress::{Show, Step};
pub(crate) use time::{SYNCED, of_comparison};

/// Seconds to write one coupling of a model, roughly.
const WRITING: f64 = 2e-7;
/// An expected time that is off by more than this factor is announced again.
const OFF: f64 = 1.5;

/// The output of `--json`.
#[derive(Serialize)]
struct Report<'a> {
    model: String,
    /// Without its findings, which may be thousands.
    preflight: Preflight,
    findings: Vec<String>,
    /// What the fit was expected to take, without polishing that it might not need.
    expected_seconds: Option<f64>,
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
    let mut outputs = vec![Output::Model(&args.output)];
    outputs.extend(args.checkpoint.output());
    output::check(&inputs, &outputs, args.force)?;
    args.check()?;
    args.options.in_time(cancel, |cancel| {
        if packed::is_wanted(args)? {
            return packed::run(args, methods, console, cancel);
        }
        let start = Instant::now();
        let raster = Raster::read(&args.data, args.memory.bytes(), cancel)?;
        raster.notes.iter().for_each(|note| console.note(note));
        fit_raster(args, methods, &raster, console, cancel, start)
    })
}

/// Fits data that have been read since `start`, and writes the model.
fn fit_raster(
    args: &FitArgs,
    methods: &Methods,
    raster: &Raster,
    console: Console,
    cancel: &Cancel,
    start: Instant,
) -> Result<u8, Failure> {
    console.stage("reading", start.elapsed());
    // The model is written within the limit, too.
    let limit = args.options.limit();
    let mut writing = WRITING * (raster.states.n_units() as f64).powi(2);
    if args.options.model == ModelName::KPairwise {
        // So is its potential completed.
        writing *= 2.0;
    }
    let left = limit - start.elapsed().as_secs_f64() - writing.min(0.5 * limit);
    let cancel = &cancel.within(left.max(0.0));
    let support = match &args.support {
        None => Support::Full,
        Some(path) => edges::read(path, &raster.names_or_numbers(), args.memory.bytes())?,
    };
    let is_machine = args.options.model.has_hidden_units();
    if let Some(unknown) = raster.unknown.as_ref().filter(|_| !is_machine) {
        let made = incomplete::make(args, methods, raster, unknown, support, console, cancel)?;
        return incomplete::deliver(args, made, console);
    }
    let machine = is_machine.then(|| machine::options(args, raster, cancel));
    let machine = machine.transpose()?;
    let samples = raster.samples()?;
    let data = raster.record();
    let settings = || settings::settings(args, &data, &support);
    let checkpoint = args.checkpoint.open(settings, console, cancel)?;
    let bars = Bars::new(console);
    let show = |step: &Step| bars.show(step);
    let outcome = if let Some(mut options) = machine {
        options.minimizer.checkpoint = checkpoint.clone();
        let made = machine::make(
            args,
            &options,
            raster,
            data,
            &samples,
            (console, start),
            &show,
        );
        bars.clear();
        made.and_then(|made| machine::deliver(args, made, console))
    } else {
        let mut recipe = args.recipe(methods, raster, support, cancel)?;
        recipe.options.minimizer.checkpoint = checkpoint.clone();
        let made = make(
            args,
            &recipe,
            raster,
            data,
            &samples,
            (console, start),
            &show,
        );
        bars.clear();
        made.and_then(|made| deliver(args, made, &samples, console))
    };
    args.checkpoint.end(&checkpoint, console, outcome)
}

/// A model, and what the program says about it.
struct Made {
    model: Model,
    preflight: Preflight,
    expected: Option<Expected>,
    has_failures: bool,
}

/// Fits data that are in memory, as the program does; returns the model and what there is to know about
/// the data. `args.data` and `args.output` are only names.
///
/// # Errors
/// Those of the command.
pub fn fit(
    args: &FitArgs,
    raster: &Raster,
    support: Support,
    cancel: &Cancel,
    show: Show<'_>,
) -> Result<(Model, Vec<String>), Failure> {
    args.check()?;
    let methods = &Methods::default();
    let console = (Console::silent(), Instant::now());
    args.options.in_time(cancel, |cancel| {
        if args.options.model.has_hidden_units() {
            let options = machine::options(args, raster, cancel)?;
            let samples = raster.samples()?;
            let data = raster.record();
            let made = machine::make(args, &options, raster, data, &samples, console, show)?;
            return Ok((made.model, made.findings));
        }
        if let Some(unknown) = &raster.unknown {
            let silent = Console::silent();
            let made = incomplete::make(args, methods, raster, unknown, support, silent, cancel)?;
            return Ok((made.model, Vec::new()));
        }
        let samples = raster.samples()?;
        let recipe = args.recipe(methods, raster, support, cancel)?;
        let data = raster.record();
        let made = make(args, &recipe, raster, data, &samples, console, show)?;
        Ok((made.model, grouped(&made.preflight.findings)))
    })
}

/// Reports on the data, then fits. The command began at `start`.
fn make(
    args: &FitArgs,
    recipe: &Recipe,
    raster: &Raster,
    data: DataRecord,
    samples: &Samples,
    (console, start): (Console, Instant),
    show: Show<'_>,
) -> Result<Made, Failure> {
    refuse_shape(raster, samples, args.force)?;
    args.check_samples(recipe, samples)?;
    let states = args.states(raster)?;
    let mut needed = args.check_memory(recipe, raster, samples, states.as_ref(), true)?;
    let cancel = &recipe.options.minimizer.cancel;
    let clock = Instant::now();
    let preflight = Preflight::cancellable(samples, raster.names.as_deref(), cancel)?;
    console.stage("preflight", clock.elapsed());
    // Trials take time: none where nobody hears of them.
    let expected = if console.has_notes() || console.json {
        let limit = args.options.limit();
        let keeps = (args.checkpoint.is_given()).then(|| {
            let bytes = memory::bytes_of_state(recipe, samples.n_units());
            (args.checkpoint.seconds(), bytes)
        });
        let expected = Trials::new(recipe, samples, states.as_deref(), &preflight, limit)
            .expect(start.elapsed().as_secs_f64(), keeps)?
            .within(limit);
        if args.checkpoint.is_given() && expected.seconds < args.checkpoint.seconds() {
            needed = args.check_memory(recipe, raster, samples, states.as_ref(), false)?;
        }
        tell_preflight(console, raster, &preflight, expected, needed);
        Some(expected)
    } else {
        None
    };
    let is_fitted = AtomicBool::new(false);

    let trained = recipe.run(
        TrainingData {
            samples,
            states: states.as_deref(),
        },
        &|progress| {
            show(&Step::new(recipe, samples.n_units(), progress));
            let is_fit = matches!(
                progress,
                RecipeProgress::Fit(..) | RecipeProgress::Penalty(_)
            );
            if let Some(expected) = expected
                && !is_fit
                && !is_fitted.swap(true, Ordering::Relaxed)
            {
                let now = expected.update(start.elapsed().as_secs_f64());
                let factor = now.seconds / expected.seconds;
                if factor.max(1.0 / factor) > OFF {
                    console.note(&format!("now expected: {} in all", duration(now.seconds)));
                }
            }
            tell_drift(console, progress);
        },
    )?;
    let names = raster.names_or_numbers();
    let record = record(args, recipe, &trained, &names)?;
    Ok(Made {
        preflight,
        expected,
        has_failures: !trained.failures.is_empty(),
        model: Model {
            errors: trained.errors.map(|bars| StandardErrors {
                method: name_of(args.errors),
                block_length: trained.block_length,
                bars,
            }),
            fit: Some(record),
            data: Some(data),
            ..Model::unfitted(trained.fit.couplings, names)
        },
    })
}

/// Says that a model drifts and is going to be polished.
fn tell_drift(console: Console, progress: &RecipeProgress<'_>) {
    if let RecipeProgress::Drifting(drift, updates) = progress {
        console.note(&format!(
            "note: {}; trying {updates} updates of polishing (--polish 0 leaves it out)",
            drift_in_words(drift)
        ));
    }
}

/// Writes the model and prints a summary; returns the exit code.
fn deliver(args: &FitArgs, made: Made, samples: &Samples, console: Console) -> Result<u8, Failure> {
    let Made {
        model, preflight, ..
    } = made;
    let record = model.record();
    let largest = largest_coupling(&model);
    // Couplings that are too large for a sum over all states have no share.
    let share = record
        .held_out
        .filter(|_| !console.json)
        .and_then(|_| multi_information_share(&model.couplings, samples).unwrap_or(None));
    let text = summary(args, &model, record, share, largest);
    let report = Report {
        model: args.output.display().to_string(),
        findings: grouped(&preflight.findings),
        expected_seconds: made.expected.map(|expected| expected.seconds),
        preflight: Preflight {
            findings: Vec::new(),
            ..preflight
        },
        fit: record,
        largest_coupling: largest,
    };
    write(args, &model, &text, &report, made.has_failures, console)
}

/// Writes a fitted model and prints its summary; returns the exit code.
fn write(
    args: &FitArgs,
    model: &Model,
    text: &str,
    report: &impl Serialize,
    has_failures: bool,
    console: Console,
) -> Result<u8, Failure> {
    model.write(&args.output, Convention::Binary)?;
    let record = model.record();
    record.warnings.iter().for_each(|w| console.warning(w));
    console.result(text)?;
    console.json(report)?;
    Ok(match (record.converged, has_failures) {
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
    record.neighbours = name_of(args.options.neighbours.unwrap_or_default());
    record.nodewise = recipe.last(n_units).is_node_wise(&recipe.options);
    let polishing = trained.polishing.filter(|polishing| polishing.is_kept);
    record.polish = polishing.map_or(0, |polishing| polishing.updates);
    record.stages = trained.stages.clone();
    record.held_out = trained.held_out;
    record.drift = trained.drift;
    record.polishing = trained.polishing;
    record.n_free_couplings = recipe.options.support.n_pairs(n_units)?;
    record.seed = args.options.seed;
    record.tolerance = args.options.tolerance();
    if let Some(path) = &trained.path {
        let rule = name_of(args.rule_or_default());
        record.set_path(path);
        record.chosen_by = Some(format!(
            "{}-fold cross-validation, rule {rule}",
            args.n_folds()
        ));
    }
    record.warnings.extend(doubts(trained));
    Ok(record)
}
