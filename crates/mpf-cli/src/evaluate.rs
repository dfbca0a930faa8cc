//! `mpf evaluate`: compares a model with data.

mod evaluation;
mod page;

pub(crate) use evaluation::{Compared, with_error};

use crate::console::Console;
use crate::data::{DataArgs, Raster};
use crate::draw::{self, DrawOptions, SamplerName, Target};
use crate::failure::Failure;
use crate::model::Model;
use crate::output::{self, ForceArg};
use clap::Args;
use evaluation::{Evaluation, ExactScores, Source};
use mpf_baselines::{GoodnessOfFit, Moments, block_length};
use mpf_core::Cancel;
use mpf_ising::{Exact, States};
use mpf_report::{progress, text};
use mpf_samplers::ChainOptions;
use std::path::PathBuf;
use std::time::Instant;

/// The most units for which the model's moments are summed over all states.
const EXACT_UNITS: usize = 20;
/// The most units for which triplets are compared: 1.3 million of them.
const TRIPLET_UNITS: usize = 200;
/// The number of chains: half start in the data, half at random.
const CHAINS: usize = 8;
/// The number of blocks that errors are computed from by default.
const BLOCKS: usize = 200;
/// The fewest blocks of draws that a verdict is based on.
const MIN_BLOCKS: usize = 30;
/// Autocorrelation times of the slowest quantity in a block of draws.
const BLOCK_TIMES: f64 = 6.0;

/// Options of `mpf evaluate`.
#[derive(Args, Clone, Debug)]
pub struct EvaluateArgs {
    /// A model file
    model: PathBuf,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Output file: the report (.html) or the numbers (.json); may be given several times
    #[arg(short, long, value_name = "FILE")]
    output: Vec<PathBuf>,
    /// The true model, if it is known
    #[arg(long, value_name = "MODEL")]
    truth: Option<PathBuf>,
    /// Sampler of models with more than 20 units
    #[arg(long, value_enum, default_value_t)]
    sampler: SamplerName,
    /// Number of states drawn from it; by default as many as the data have, at least 20,000
    #[arg(long, value_name = "N")]
    draws: Option<usize>,
    /// Number of samples in a block, for error bars; by default a 200th of the data, or six of
    /// their autocorrelation times
    #[arg(long, value_name = "N")]
    block_length: Option<usize>,
    /// Seed of all draws
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    force: ForceArg,
}

/// Runs the command; returns the exit code.
///
/// # Errors
/// Wrong inputs, and those of the file system.
pub fn run(args: &EvaluateArgs, console: Console, cancel: &Cancel) -> Result<u8, Failure> {
    for path in &args.output {
        output::check_extension(path, &["html", "json"])?;
    }
    let mut inputs = vec![args.model.as_path(), &args.data.data];
    inputs.extend(args.truth.as_deref());
    output::check(&inputs, &output::reports(&args.output), args.force)?;
    let model = Model::read(&args.model, None)?;
    let truth = args
        .truth
        .as_deref()
        .map(|p| Model::read(p, None))
        .transpose()?;
    let start = Instant::now();
    let raster = Raster::read(&args.data, None, cancel)?;
    raster.notes.iter().for_each(|note| console.note(note));
    console.stage("reading", start.elapsed());
    let found = evaluate(args, &model, &raster, truth.as_ref(), console, cancel)?;
    let (evaluation, goodness) = found;
    evaluation.warnings.iter().for_each(|w| console.warning(w));
    let start = Instant::now();
    for path in &args.output {
        let contents = match output::extension(path).as_str() {
            "json" => output::json_report(&evaluation),
            _ => page::page(&model, truth.as_ref(), &evaluation, &goodness)?,
        };
        output::write(path, contents.as_bytes())?;
    }
    console.stage("writing", start.elapsed());
    console.result(&summary(&evaluation))?;
    console.json(&evaluation)?;
    Ok(0)
}

/// Compares `model` with data.
fn evaluate(
    args: &EvaluateArgs,
    model: &Model,
    raster: &Raster,
    truth: Option<&Model>,
    console: Console,
    cancel: &Cancel,
) -> Result<(Evaluation, GoodnessOfFit), Failure> {
    check_units(args, model, raster, truth)?;
    if let Some(truth) = truth
        && (truth.hidden.is_some() || model.hidden.is_some())
    {
        return Err(Failure::input(
            "--truth compares couplings, and hidden units are more than these",
        )
        .hint("leave out --truth"));
    }
    let states = raster.every_sample("mpf evaluate")?;
    let (goodness, source) = compare(args, model, &states, console, cancel)?;
    let evaluation = Evaluation::new(&args.model, model, raster, truth, &goodness, source);
    Ok((evaluation, goodness))
}

/// Returns the page and the numbers, in JSON, of a model and data that are in memory. The files of
/// `args` are only names.
///
/// # Errors
/// Those of the command.
pub fn report(
    args: &EvaluateArgs,
    model: &Model,
    raster: &Raster,
    truth: Option<&Model>,
    cancel: &Cancel,
) -> Result<(String, String), Failure> {
    let (evaluation, goodness) = evaluate(args, model, raster, truth, Console::silent(), cancel)?;
    let page = page::page(model, truth, &evaluation, &goodness)?;
    Ok((page, output::json_report(&evaluation)))
}

/// Refuses data or a true model of other units than those of the model.
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

/// Computes the moments of data and model, the latter by enumeration or from draws.
fn compare(
    args: &EvaluateArgs,
    model: &Model,
    states: &States,
    console: Console,
    cancel: &Cancel,
) -> Result<(GoodnessOfFit, Source), Failure> {
    let d = model.names.len();
    let machine = model.machine()?;
    let with_triplets = d <= TRIPLET_UNITS;
    let start = Instant::now();
    let waiting = progress::spinner("moments of the data");
    let n = states.n_samples();
    let length = match args.block_length {
        Some(length) => length,
        None => block_length(states)?.max(n / BLOCKS).max(1),
    };
    let data = Moments::of_chains(states, 1, length, with_triplets);
    waiting.finish_and_clear();
    console.stage("moments of the data", start.elapsed());
    let data = data?;
    let start = Instant::now();
    if d <= EXACT_UNITS {
        let (moments, scores) = match &machine {
            None => {
                let exact = Exact::new(&model.couplings)?;
                let energy = |row: &[u64]| exact.couplings().energy(row);
                let scores = ExactScores::new(energy, exact.log_z(), states, length)?;
                (Moments::exact(&exact), scores)
            }
            Some(machine) => {
                let exact = machine.exact()?;
                let energy = |row: &[u64]| machine.energy(row);
                let scores = ExactScores::new(energy, exact.log_z(), states, length)?;
                let probabilities = exact.probabilities().to_vec();
                (Moments::of_probabilities(d, probabilities), scores)
            }
        };
        let goodness = GoodnessOfFit::new(moments, data)?;
        console.stage("sums over all states", start.elapsed());
        return Ok((goodness, Source::Enumeration(scores)));
    }
    let n_draws = args.draws.unwrap_or_else(|| n.max(20_000));
    let options = DrawOptions {
        sampler: args.sampler,
        chains: ChainOptions {
            n_draws,
            n_chains: CHAINS,
            thinning: 4,
            seed: args.seed,
            cancel: cancel.clone(),
            ..Default::default()
        },
        starts: Some(states),
        console: Console::silent(),
    };
    let drawn = draw::draw(Target::of(model, machine.as_ref()), &options)?;
    console.stage("draws from the model", start.elapsed());
    let start = Instant::now();
    let waiting = progress::spinner("moments of the model");
    // At most one block per chain holds its end and the start of the next: too few to matter.
    let length = (BLOCK_TIMES * n_draws as f64 / drawn.how.effective_draws()) as usize;
    let length = length.clamp(n_draws / BLOCKS, n_draws / MIN_BLOCKS).max(1);
    let chains = CHAINS.min(n_draws);
    let model_moments = Moments::of_chains(&drawn.states, chains, length, with_triplets);
    waiting.finish_and_clear();
    console.stage("moments of the model", start.elapsed());
    let goodness = GoodnessOfFit::new(model_moments?, data)?;
    Ok((goodness, Source::Draws(Box::new(drawn.how))))
}

fn summary(evaluation: &Evaluation) -> String {
    let mut table = evaluation.table().markdown();
    if let Some(exact) = &evaluation.exact {
        table += &format!("\n{}", exact.table().markdown());
    }
    if let Some(error) = evaluation.mean_square_error_of_couplings {
        table += &format!(
            "mean square error of the couplings: {}\n",
            text::digits(error)
        );
    }
    table + &format!("{}\n", evaluation.verdict)
}
