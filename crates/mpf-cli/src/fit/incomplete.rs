//! `mpf fit --missing mask`: fits samples of which some entries are missing.

use super::args::ErrorsName;
use super::messages::{largest_coupling, summary};
use super::{FitArgs, write};
use crate::console::Console;
use crate::data::Raster;
use crate::failure::Failure;
use crate::memory;
use crate::methods::{AUTO, RefineName, Strength};
use crate::model::{FitRecord, Model};
use mpf_baselines::{Methods, Polish, Pseudolikelihood};
use mpf_core::{Cancel, StopReason};
use mpf_ising::{Fitter, Incomplete, IncompleteFit, MissingRule, Mpf, States, Support};
use serde_json::json;
use std::time::Instant;

/// A model, and how much was missing.
pub(super) struct Made {
    pub(super) model: Model,
    unknown_fraction: f64,
    left_out_fraction: f64,
    rounds: usize,
}

/// Writes the model and prints a summary; returns the exit code.
pub(super) fn deliver(args: &FitArgs, made: Made, console: Console) -> Result<u8, Failure> {
    let model = made.model;
    let record = model.record();
    let largest = largest_coupling(&model);
    let report = json!({
        "model": args.output.display().to_string(),
        "unknown_fraction": made.unknown_fraction,
        "left_out_fraction": made.left_out_fraction,
        "rounds": made.rounds,
        "fit": record,
        "largest_coupling": largest,
    });
    let text = summary(args, &model, record, None, largest);
    write(args, &model, &text, &report, false, console)
}

/// Fits.
pub(super) fn make(
    args: &FitArgs,
    methods: &Methods,
    raster: &Raster,
    unknown: &States,
    support: Support,
    console: Console,
    cancel: &Cancel,
) -> Result<Made, Failure> {
    refuse_options(args)?;
    let data = match &raster.weights {
        None => Incomplete::new(&raster.states, unknown)?,
        Some(weights) => Incomplete::weighted(&raster.states, unknown, weights)?,
    };
    if data.means().iter().all(|mean| *mean == 0.0 || *mean == 1.0) {
        let why = format!("{}: all units are constant", raster.file);
        return Err(Failure::input(why)
            .hint("a model needs units that change; is the threshold of the data right?"));
    }
    let by_mpf = args.method == "mpf";
    let name = if by_mpf { "mpf" } else { "pl" };
    let chosen = args.options.recipe(methods, name, support, cancel)?.options;
    // With few free couplings most flips can be used as they are; otherwise nearly none can.
    let rule = match chosen.support {
        Support::Full => MissingRule::complete(),
        Support::Edges(_) => MissingRule::LeaveOut,
    };
    check_memory(args, unknown, rule)?;
    let total: f64 = raster
        .weights
        .as_ref()
        .map_or(raster.states.n_samples() as f64, |w| w.iter().sum());
    let n_free_couplings = chosen.support.n_pairs(unknown.n_units())?;
    let options = chosen.fit_options(total);
    let (l1, l2) = (options.l1, options.l2);
    console.note(&format!(
        "{}: {} samples × {} units, {:.1} % of the entries missing",
        raster.file,
        raster.states.n_samples(),
        raster.states.n_units(),
        100.0 * data.unknown_fraction()
    ));
    console.note(&format!(
        "note: fitted by {} alone: with missing entries there is no refinement, no check on held-out \
         samples and no polishing",
        if by_mpf { "MPF" } else { "pseudolikelihood" }
    ));
    let start = Instant::now();
    let found = if by_mpf {
        Fitter::new(Mpf::default(), options)?.fit_incomplete(&data, rule)?
    } else {
        Fitter::new(Pseudolikelihood, options)?.fit_incomplete(&data, rule)?
    };
    if cancel.reason() == Some(StopReason::Cancelled) {
        return Err(Failure::interrupted());
    }
    let mut record = FitRecord::new(&found.fit, &raster.names_or_numbers());
    record.method = name.to_owned();
    record.seconds = start.elapsed().as_secs_f64();
    (record.l1, record.l2) = (l1, l2);
    record.neighbours = "single".to_owned();
    record.nodewise = args.options.nodewise;
    record.n_free_couplings = n_free_couplings;
    record.seed = args.options.seed;
    record.tolerance = args.options.tolerance();
    record.converged &= found.settled;
    record.warnings.extend(doubts(&data, &found, rule));
    Ok(Made {
        model: Model {
            fit: Some(record),
            data: Some(raster.record()),
            ..Model::unfitted(found.fit.couplings, raster.names_or_numbers())
        },
        unknown_fraction: data.unknown_fraction(),
        left_out_fraction: found.left_out_fraction,
        rounds: found.rounds,
    })
}

/// Refuses options that cannot go with missing entries.
fn refuse_options(args: &FitArgs) -> Result<(), Failure> {
    let auto = Some(Strength::Auto);
    let given = [
        (args.options.l1 == auto, "--l1 auto"),
        (args.options.l2 == auto, "--l2 auto"),
        (
            args.options.refine.is_some_and(|r| r != RefineName::None),
            "--refine",
        ),
        (args.errors != ErrorsName::None, "--errors"),
        (
            !matches!(args.polish, Polish::IfDrifting | Polish::Updates(0)),
            "--polish",
        ),
        (args.checkpoint.is_given(), "--checkpoint"),
        (
            args.options.neighbours.unwrap_or_default() != Default::default(),
            "--neighbours",
        ),
    ];
    let methods = [AUTO, "mpf", "pl"];
    Failure::given(
        &given,
        |option| format!("{option} cannot go with --missing mask where entries are missing"),
        "leave it out, or use --missing drop",
    )?;
    if !methods.contains(&args.method.as_str()) {
        let why = format!(
            "the method {} cannot fit samples with missing entries",
            args.method
        );
        return Err(Failure::input(why).hint("use --method mpf or pl, or --missing drop"));
    }
    Ok(())
}

/// Refuses completions that do not fit into memory.
fn check_memory(args: &FitArgs, unknown: &States, rule: MissingRule) -> Result<(), Failure> {
    let MissingRule::Complete { most_unknown, .. } = rule else {
        return Ok(());
    };
    let n_unknown = |row: &[u64]| row.iter().map(|w| w.count_ones()).sum::<u32>();
    let counts = unknown.rows().map(n_unknown);
    let rows: u64 = counts
        .filter(|n| *n as usize <= most_unknown)
        .map(|n| 1u64 << n)
        .sum();
    // A row by units and one by samples, with its weight, in two generations.
    let row = 16 * unknown.words_per_row() as u64 + 16;
    memory::check(
        "the completed samples",
        rows.saturating_mul(2 * row),
        args.memory.bytes(),
        "leave out rows with --missing drop, or give the couplings that may differ from zero with \
         --support; --memory-limit sets another limit",
    )
}

/// Lists what a reader of the model should know.
fn doubts(data: &Incomplete, found: &IncompleteFit, rule: MissingRule) -> Vec<String> {
    let mut doubts = vec![format!(
        "{:.2} % of the entries were missing: the fit is right only if that does not depend on their \
         values",
        100.0 * data.unknown_fraction()
    )];
    if found.left_out_fraction > 0.0 {
        let share = 100.0 * found.left_out_fraction;
        doubts.push(match rule {
            MissingRule::LeaveOut => format!("{share:.1} % of the flips need a missing entry and were left out"),
            MissingRule::Complete { most_unknown, .. } => format!(
                "{share:.1} % of the samples miss more than {most_unknown} entries and were left out"
            ),
        });
    }
    if !found.settled {
        doubts.push(format!(
            "after {} rounds of completing the samples the model still changes",
            found.rounds
        ));
    }
    doubts
}
