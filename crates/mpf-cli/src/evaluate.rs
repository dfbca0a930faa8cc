//! `mpf evaluate`: a model against data.

mod page;

use crate::console::Console;
use crate::data::{DataArgs, Raster};
use crate::draw::{self, DrawOptions, SamplerName};
use crate::failure::Failure;
use crate::model::Model;
use crate::output;
use clap::Args;
use mpf_baselines::{Agreement, GoodnessOfFit, Moments};
use mpf_core::{Cancel, Checkpoint};
use mpf_ising::{BlockMean, Exact, States};
use mpf_report::{files, progress, text};
use mpf_samplers::diagnostics::RunDiagnostics;
use serde::Serialize;
use std::path::PathBuf;

/// Units up to which the model's moments are summed over all states.
const EXACT_UNITS: usize = 20;
/// Units up to which triplets are compared: 1.3 million of them.
const TRIPLET_UNITS: usize = 200;
/// Blocks that errors are computed from, unless told otherwise.
const BLOCKS: usize = 200;

/// Options of `mpf evaluate`.
#[derive(Args, Clone, Debug)]
pub struct EvaluateArgs {
    /// A model file
    model: PathBuf,
    #[command(flatten)]
    data: DataArgs,
    /// Where the report (.html) or the numbers (.json) go; may be given several times
    #[arg(short, long, value_name = "FILE")]
    output: Vec<PathBuf>,
    /// The true model, if it is known
    #[arg(long, value_name = "MODEL")]
    truth: Option<PathBuf>,
    /// How the model is sampled, beyond 20 units
    #[arg(long, value_enum, default_value_t)]
    sampler: SamplerName,
    /// How many states are drawn from it; by default as many as the data have, 20,000 at least
    #[arg(long, value_name = "N")]
    draws: Option<usize>,
    /// Samples in a block, for error bars; by default a 200th of the data
    #[arg(long, value_name = "N")]
    block_length: Option<usize>,
    /// What all draws depend on
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// A model beside data. Triplets are left out of the JSON: there are too many.
#[derive(Serialize)]
struct Evaluation {
    model: String,
    data: String,
    /// Whether the model was fitted to these very data.
    same_data: Option<bool>,
    n_samples: usize,
    units: Vec<String>,
    /// `enumeration`, or the sampler.
    model_moments_by: String,
    agreement: Agreements,
    means: Vec<Compared>,
    pairs: Vec<ComparedPair>,
    n_active: Vec<Compared>,
    mean_square_error_of_couplings: Option<f64>,
    diagnostics: Option<RunDiagnostics>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Agreements {
    means: Agreement,
    pairs: Agreement,
    triplets: Option<Agreement>,
    n_active: Agreement,
}

#[derive(Clone, Copy, Serialize)]
struct Compared {
    model: f64,
    model_error: f64,
    data: f64,
    data_error: f64,
}

#[derive(Serialize)]
struct ComparedPair {
    i: usize,
    j: usize,
    #[serde(flatten)]
    covariance: Compared,
}

fn compared((model, data): (&BlockMean, &BlockMean)) -> Compared {
    Compared {
        model: model.value,
        model_error: model.standard_error,
        data: data.value,
        data_error: data.standard_error,
    }
}

/// Runs the command.
///
/// # Errors
/// Wrong inputs, and those of the file system.
pub fn run(args: &EvaluateArgs, console: Console, cancel: &Cancel) -> Result<u8, Failure> {
    for path in &args.output {
        output::check_extension(path, &["html", "json"])?;
        output::check_writable(path)?;
    }
    let model = Model::read(&args.model, None)?;
    let truth = args
        .truth
        .as_deref()
        .map(|p| Model::read(p, None))
        .transpose()?;
    let raster = Raster::read(&args.data)?;
    check_units(args, &model, &raster, truth.as_ref())?;
    let states = raster.every_sample("mpf evaluate")?;
    let (goodness, diagnostics) = compare(args, &model, &states, cancel)?;
    let evaluation = evaluation(
        args,
        &model,
        &raster,
        truth.as_ref(),
        &goodness,
        diagnostics,
    );
    evaluation.warnings.iter().for_each(|w| console.warning(w));
    for path in &args.output {
        let contents = match output::extension(path).as_str() {
            "json" => serde_json::to_string_pretty(&evaluation).expect("numbers") + "\n",
            _ => page::page(&model, truth.as_ref(), &evaluation, &goodness)?,
        };
        files::write(path, contents.as_bytes()).map_err(|e| Failure::unwritten(path, &e))?;
    }
    console.result(&summary(&evaluation))?;
    console.json(&evaluation)?;
    Ok(0)
}

fn check_units(
    args: &EvaluateArgs,
    model: &Model,
    raster: &Raster,
    truth: Option<&Model>,
) -> Result<(), Failure> {
    let d = model.names.len();
    let found = raster.states.n_units();
    if found != d {
        return Err(Failure::input(format!(
            "{} has {d} units, but {} has {found}",
            args.model.display(),
            raster.file
        ))
        .hint("evaluate a model on data of the same units, in the same order"));
    }
    if let Some(names) = &raster.names
        && let Some(i) = (0..d).find(|&i| names[i] != model.names[i])
    {
        return Err(Failure::input(format!(
            "unit {i} is {:?} in {}, but {:?} in {}",
            model.names[i],
            args.model.display(),
            names[i],
            raster.file
        ))
        .hint("the units must be the same, in the same order"));
    }
    match truth {
        Some(truth) if truth.names.len() != d => Err(Failure::input(format!(
            "the true model has {} units, but {} has {d}",
            truth.names.len(),
            args.model.display()
        ))),
        _ => Ok(()),
    }
}

fn compare(
    args: &EvaluateArgs,
    model: &Model,
    states: &States,
    cancel: &Cancel,
) -> Result<(GoodnessOfFit, Option<RunDiagnostics>), Failure> {
    let d = model.names.len();
    let moments = |states: &States, block_length: usize| {
        if d <= TRIPLET_UNITS {
            Moments::of_states(states, block_length)
        } else {
            Moments::without_triplets(states, block_length)
        }
    };
    let waiting = progress::spinner("moments of the data");
    let n = states.n_samples();
    let length = args.block_length.unwrap_or_else(|| (n / BLOCKS).max(1));
    let data = moments(states, length);
    waiting.finish_and_clear();
    let data = data?;
    if d <= EXACT_UNITS {
        let exact = Exact::new(&model.couplings)?;
        return Ok((GoodnessOfFit::new(Moments::exact(&exact), data)?, None));
    }
    let n_draws = args.draws.unwrap_or_else(|| n.max(20_000));
    let drawn = draw::draw(
        &model.couplings,
        &DrawOptions {
            sampler: args.sampler,
            n_draws,
            chains: 4,
            burn_in: 1000,
            thinning: 4,
            seed: args.seed,
            checkpoint: Checkpoint::default(),
        },
        cancel,
    )?;
    let waiting = progress::spinner("moments of the model");
    // Blocks cut across the borders of chains at most four times, which does no harm.
    let model_moments = moments(&drawn.states, (n_draws / BLOCKS).max(1));
    waiting.finish_and_clear();
    Ok((GoodnessOfFit::new(model_moments?, data)?, drawn.diagnostics))
}

fn evaluation(
    args: &EvaluateArgs,
    model: &Model,
    raster: &Raster,
    truth: Option<&Model>,
    goodness: &GoodnessOfFit,
    diagnostics: Option<RunDiagnostics>,
) -> Evaluation {
    let record = raster.record();
    let same_data = model
        .data
        .as_ref()
        .map(|d| d.fingerprint == record.fingerprint);
    let mut warnings = Vec::new();
    if let Some(fit) = &model.fit {
        warnings.extend(fit.warnings.iter().cloned());
    }
    if let Some(found) = &diagnostics {
        warnings.extend(found.warnings.iter().cloned());
    }
    warnings.extend(disagreements(goodness));
    let beside =
        |a: &[BlockMean], b: &[BlockMean]| a.iter().zip(b).map(compared).collect::<Vec<_>>();
    let places = mpf_baselines::pairs(model.names.len());
    Evaluation {
        model: args.model.display().to_string(),
        data: raster.file.clone(),
        same_data,
        n_samples: record.total_count.map_or(record.n_samples, |n| n as usize),
        units: model.names.clone(),
        model_moments_by: match &diagnostics {
            None => "enumeration".into(),
            Some(found) => format!("{} chains", found.chains),
        },
        agreement: Agreements {
            means: goodness.means,
            pairs: goodness.pairs,
            triplets: (!goodness.data.triplets.is_empty()).then_some(goodness.triplets),
            n_active: goodness.n_active,
        },
        means: beside(&goodness.model.means, &goodness.data.means),
        pairs: beside(&goodness.model.pairs, &goodness.data.pairs)
            .into_iter()
            .zip(places)
            .map(|(covariance, (i, j))| ComparedPair { i, j, covariance })
            .collect(),
        n_active: beside(&goodness.model.n_active, &goodness.data.n_active),
        mean_square_error_of_couplings: truth
            .map(|truth| model.couplings.mean_square_error(&truth.couplings)),
        diagnostics,
        warnings,
    }
}

/// Moments of the data that the model misses by far more than chance.
fn disagreements(goodness: &GoodnessOfFit) -> Vec<String> {
    let misses = |of: &Agreement| of.within_two_errors < 0.8 && of.largest_z > 5.0;
    let share = |of: &Agreement| format!("{:.0} %", 100.0 * of.within_two_errors);
    let mut found = Vec::new();
    for (what, of) in [("means", &goodness.means), ("pairs", &goodness.pairs)] {
        if misses(of) {
            found.push(format!(
                "only {} of the {what} are within two standard errors of the data's: the model does \
                 not reproduce what it was fitted to",
                share(of)
            ));
        }
    }
    for (what, of) in [
        ("triplets", &goodness.triplets),
        ("chances of n active units", &goodness.n_active),
    ] {
        if misses(of) {
            found.push(format!(
                "only {} of the {what} are within two standard errors of the data's: pairwise \
                 couplings do not explain all of these data",
                share(of)
            ));
        }
    }
    found
}

/// One line for every kind of moment.
fn lines(evaluation: &Evaluation) -> Vec<(&'static str, Agreement)> {
    let agreement = &evaluation.agreement;
    let mut lines = vec![("means", agreement.means), ("pairs", agreement.pairs)];
    lines.extend(agreement.triplets.map(|t| ("triplets", t)));
    lines.push(("P(n active)", agreement.n_active));
    lines
}

fn summary(evaluation: &Evaluation) -> String {
    let rows: Vec<Vec<String>> = lines(evaluation)
        .into_iter()
        .map(|(what, of)| {
            vec![
                what.to_owned(),
                text::digits(of.rms_difference),
                text::digits(of.rms_error),
                format!("{:.1} %", 100.0 * of.within_two_errors),
                format!("{:.1}", of.largest_z),
            ]
        })
        .collect();
    let mut table = text::markdown_table(
        &[
            "model − data",
            "rms difference",
            "rms error",
            "within 2 errors",
            "largest z",
        ],
        &rows,
    );
    if let Some(error) = evaluation.mean_square_error_of_couplings {
        table += &format!(
            "mean square error of the couplings: {}\n",
            text::digits(error)
        );
    }
    table
}
