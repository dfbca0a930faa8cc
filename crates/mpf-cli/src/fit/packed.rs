//! `mpf fit raster.bits`: fits samples that are read tile by tile, and never held together. Data that
//! are small are read whole, and fitted like those of any other file.

use super::messages::{largest_coupling, summary};
use super::progress::{Bars, Step};
use super::{FitArgs, fit_raster, record, settings, tell_drift, write};
use crate::console::Console;
use crate::data::{DataRecord, Raster, names_or_numbers};
use crate::edges;
use crate::failure::{Failure, WRONG_INPUT};
use crate::memory::{self, Room};
use crate::model::Model;
use crate::packed::{MAGIC, PackedFiles};
use crate::ranks::{self, Job};
use mpf_baselines::{Methods, Recipe, RecipeProgress, Trained, TrainingData};
use mpf_core::{Cancel, Ranks, Settings, TreeSum};
use mpf_ising::internal::{bytes_of_fit, bytes_of_stream};
use mpf_ising::{FoldAssignment, RowSource, Samples, States, Stream, Support, serve};
use mpf_report::text::digits;
use serde_json::json;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Data of so many entries, 8 MB of bits, are held unless `--stream` is given. The rule looks at the data
/// alone: `--memory`, threads and ranks must not change a digit.
const HELD: usize = 1 << 26;
/// The bytes that a fit takes unless it is told otherwise, or needs more.
const DEFAULT_MEMORY: u64 = 400_000_000;
/// Up to this many units there are few distinct samples: they are held with their counts.
const FEW_UNITS: usize = 16;
/// Samples that are merged at a time.
const BATCH: usize = 1 << 16;
/// Sums of parts that wait for each other, and tiles that are read ahead or worked on, with what a
/// second lane of sums over them takes.
const SUMS: u64 = 12;
const TILES: u64 = 6;
/// The bytes of a tile of samples, with lists of their set bits.
const TILE: u64 = 8 << 20;
/// The bytes of the samples that chains start from and that are scored.
const SPREAD: u64 = 24 << 20;

/// Returns whether the data are packed, and not to be read like those of any other file.
///
/// # Errors
/// Several files that are not all packed; options that only packed files have.
pub(super) fn is_wanted(args: &FitArgs) -> Result<bool, Failure> {
    let is_shared = args.is_shared();
    if !is_shared {
        let given = [
            (!args.shards.is_empty(), "several files"),
            (args.stream_memory.is_some(), "--memory"),
            (args.stream, "--stream"),
        ];
        Failure::given(
            &given,
            |what| format!("{what} is for packed files"),
            "`mpf pack` makes one packed file of all; --memory-limit is for any data",
        )?;
    }
    Ok(is_shared)
}

/// Returns whether a file is packed. With several ranks, a file that one of them cannot read is taken
/// to be: they all have to hear of it.
pub(super) fn is_packed(path: &Path) -> bool {
    let mut start = [0; MAGIC.len()];
    match path.metadata() {
        Ok(found) if found.is_file() => {
            let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
            read.is_ok() && start == MAGIC
        }
        _ => ranks::n_launched() > 1,
    }
}

/// Fits, writes the model and prints a summary; returns the exit code.
pub(super) fn run(
    args: &FitArgs,
    methods: &Methods,
    console: Console,
    cancel: &Cancel,
) -> Result<u8, Failure> {
    let job = Job::start()?;
    let opened = open(args, methods, cancel);
    let own = opened.as_ref().map(|opened| || opened.settings.clone());
    if let Err(failure) = ranks::agree(&*job.ranks, own.map_err(Clone::clone)) {
        // Rank 0 says it for all.
        return match job.ranks.rank() {
            0 => Err(failure),
            _ => Ok(WRONG_INPUT),
        };
    }
    let Opened {
        files,
        recipe,
        settings,
    } = opened?;
    let Some(mut recipe) = recipe else {
        let outcome = match job.ranks.rank() {
            0 => hold(args, methods, &files, &job, console, cancel),
            _ => Ok(0),
        };
        return job.end(outcome);
    };
    if job.ranks.rank() > 0 {
        if files.n_units() <= FEW_UNITS {
            return job.end(Ok(0));
        }
        let (_, room) = room(args, &recipe, &files)?;
        let served = serve(files.clone(), job.ranks.clone(), room);
        let served = served.map(|()| bytes_read(&files, &*job.ranks));
        return job.end(served.map(|_| 0).map_err(Failure::from));
    }
    let checkpoint = args.checkpoint.open(|| settings, console, cancel);
    let outcome = checkpoint.and_then(|checkpoint| {
        recipe.options.minimizer.checkpoint = checkpoint.clone();
        let outcome = make(args, &recipe, &files, &job, console);
        args.checkpoint.end(&checkpoint, console, outcome)
    });
    job.end(outcome)
}

/// Files that are open, and everything that the result depends on.
struct Opened {
    files: Arc<PackedFiles>,
    /// The recipe of a streamed fit; `None` if the samples are to be held.
    recipe: Option<Recipe>,
    settings: Settings,
}

/// Opens the files.
fn open(args: &FitArgs, methods: &Methods, cancel: &Cancel) -> Result<Opened, Failure> {
    args.data.check_packed()?;
    let mut paths = vec![args.data.data.clone()];
    paths.extend(args.shards.iter().cloned());
    let files = Arc::new(PackedFiles::open(&paths)?);
    let support = match &args.support {
        None => Support::Full,
        Some(path) => edges::read(path, &names(&files), args.memory.bytes())?,
    };
    let settings = settings::settings(args, &files.record(), &support);
    let is_small = files.n_samples().saturating_mul(files.n_units()) <= HELD;
    let recipe = match is_small && !args.stream {
        true => None,
        false => Some(recipe(args, methods, &files, support, cancel)?),
    };
    Ok(Opened {
        files,
        recipe,
        settings,
    })
}

/// Fits samples that are held, with all steps of a fit.
fn hold(
    args: &FitArgs,
    methods: &Methods,
    files: &PackedFiles,
    job: &Job,
    console: Console,
    cancel: &Cancel,
) -> Result<u8, Failure> {
    if job.ranks.n_ranks() > 1 {
        console.note(&format!(
            "{}: few enough samples for rank 0 alone (--stream shares them)",
            files.record().file
        ));
    }
    let mut args = args.clone();
    args.memory = args.memory.or(args.stream_memory);
    let start = Instant::now();
    let raster = Raster::of_packed(files, Room::new(args.memory.bytes()))?;
    fit_raster(&args, methods, &raster, console, cancel, start)
}

fn names(files: &PackedFiles) -> Vec<String> {
    names_or_numbers(files.first().footer.names.as_deref(), files.n_units())
}

/// Returns the recipe; refuses steps that need all samples in memory.
fn recipe(
    args: &FitArgs,
    methods: &Methods,
    files: &PackedFiles,
    support: Support,
    cancel: &Cancel,
) -> Result<Recipe, Failure> {
    let choose = args.choose(FoldAssignment::Blocks);
    let refused = [
        (
            args.options.model.has_hidden_units(),
            "a machine with hidden units",
        ),
        (args.errors != Default::default(), "--errors"),
        (args.options.nodewise, "--nodewise"),
        (args.options.neighbours.is_some(), "--neighbours"),
        // Rows with counts are in no order: blocks of them are no folds.
        (
            choose.is_some() && files.has_weights(),
            "a choice of the penalty for rows with counts",
        ),
    ];
    Failure::given(
        &refused,
        |option| format!("{option} needs the samples in memory, and these are streamed"),
        "add --in-memory if there is room, or leave it out",
    )?;
    let recipe = args
        .options
        .recipe(methods, &args.method, support, cancel)?;
    Ok(Recipe {
        choose,
        held_out: args.held_out,
        polish: args.polish,
        ..recipe
    })
}

/// Fits, writes the model and prints a summary.
fn make(
    args: &FitArgs,
    recipe: &Recipe,
    files: &Arc<PackedFiles>,
    job: &Job,
    console: Console,
) -> Result<u8, Failure> {
    let record_of_data = files.record();
    let d = files.n_units();
    console.note(&format!(
        "{}: {} samples × {d} units, streamed{}",
        record_of_data.file,
        record_of_data.n_samples,
        match job.ranks.n_ranks() {
            1 => String::new(),
            n => format!(" by {n} ranks"),
        }
    ));
    let start = Instant::now();
    let bars = Bars::new(console);
    let show = |progress: &RecipeProgress<'_>| {
        bars.show(&Step::new(recipe, d, progress));
        tell_drift(console, progress);
    };
    let mut read = None;
    let trained = if d <= FEW_UNITS {
        let samples = merged(&**files)?;
        refuse_constant(&record_of_data, &samples.means())?;
        let data = TrainingData {
            samples: &samples,
            states: None,
        };
        recipe.run(data, &show)
    } else {
        let (bytes, room) = room(args, recipe, files)?;
        console.note(&format!(
            "this fit takes about {}",
            memory::expected_in_words(bytes)
        ));
        let stream = Stream::new(files.clone(), job.ranks.clone(), room)?;
        refuse_constant(&record_of_data, &stream.means())?;
        let trained = recipe.run_stream(&stream, &show);
        if trained.is_ok() {
            stream.dismiss();
            read = Some(bytes_read(files, &*job.ranks));
        }
        trained
    };
    bars.clear();
    let read = read.unwrap_or_else(|| files.bytes_read());
    finish(args, recipe, trained?, files, (read, start), console)
}

/// Writes the model and prints a summary.
fn finish(
    args: &FitArgs,
    recipe: &Recipe,
    trained: Trained,
    files: &PackedFiles,
    (read, start): (u64, Instant),
    console: Console,
) -> Result<u8, Failure> {
    let seconds = start.elapsed().as_secs_f64();
    let names = names(files);
    let failed = !trained.failures.is_empty();
    let model = Model {
        fit: Some(record(args, recipe, &trained, &names)?),
        data: Some(files.record()),
        ..Model::unfitted(trained.fit.couplings, names)
    };
    let record = model.record();
    let largest = largest_coupling(&model);
    let mut text = summary(args, &model, record, None, largest);
    text += &format!(
        "read {} from {}, {} MB a second over the whole fit\n",
        memory::in_words(read),
        files.record().file,
        digits(1e-6 * read as f64 / seconds)
    );
    let report = json!({
        "model": args.output.display().to_string(),
        "fit": record,
        "largest_coupling": largest,
        "bytes_read": read,
        "bytes_per_second": read as f64 / seconds,
    });
    write(args, &model, &text, &report, failed, console)
}

/// Returns the bytes that all ranks have read, on rank 0; each of them has to ask.
fn bytes_read(files: &PackedFiles, ranks: &dyn Ranks) -> u64 {
    let mut sum = TreeSum::default();
    sum.push(ranks.rank(), vec![files.bytes_read() as f64]);
    ranks.add_up(sum).map_or(0, |sum| sum[0] as u64)
}

/// Refuses data in which no unit changes.
fn refuse_constant(record: &DataRecord, means: &[f64]) -> Result<(), Failure> {
    if means.iter().any(|m| *m > 0.0 && *m < 1.0) {
        return Ok(());
    }
    let why = format!("{}: all {} units are constant", record.file, record.n_units);
    Err(Failure::input(why).hint("a model needs units that change"))
}

/// Returns the distinct samples of few units, with their counts.
fn merged(source: &dyn RowSource) -> Result<Samples, Failure> {
    let mut distinct: Option<Samples> = None;
    let n = source.n_samples();
    for first in (0..n).step_by(BATCH) {
        let (mut states, mut weights) = (States::new(source.n_units())?, Vec::new());
        if let Some(before) = &distinct {
            states.append(before.states());
            weights.extend((0..before.n_distinct()).map(|m| before.weight(m)));
        }
        let read = source.read(first..n.min(first + BATCH), &mut states, &mut weights);
        read.map_err(Failure::system)?;
        if !source.has_weights() {
            weights.resize(states.n_samples(), 1.0);
        }
        distinct = Some(Samples::weighted(&states, &weights)?);
    }
    distinct.ok_or_else(|| Failure::input("there are no samples"))
}

/// Returns the bytes that the command takes, and those that are left for samples beside the fit.
fn room(args: &FitArgs, recipe: &Recipe, files: &PackedFiles) -> Result<(u64, usize), Failure> {
    let d = files.n_units();
    let n_couplings = recipe.options.support.most_pairs(d);
    let n_parameters = recipe.last(d).n_parameters(d, n_couplings, &recipe.options);
    // Some samples are enough to see which algorithm sums over them, and what that takes.
    let (mut states, mut weights) = (States::new(d)?, Vec::new());
    let read = files.read(0..BATCH.min(files.n_samples()), &mut states, &mut weights);
    read.map_err(Failure::system)?;
    let some = Samples::new(&states)?;
    let fit = (bytes_of_fit(&some, n_parameters) - some.bytes()) as u64;
    let tiles = TILES * TILE + SPREAD;
    let needed = fit + SUMS * 8 * n_parameters as u64 + tiles;
    let wanted = args.stream_memory.map(|megabytes| (1e6 * megabytes) as u64);
    let room = Room::new(None);
    room.check(
        "this fit",
        needed,
        "give the couplings that may differ from zero with --support",
    )?;
    if let Some(limit) = wanted.filter(|limit| *limit < needed) {
        return Err(Failure::input(format!(
            "this fit takes {} even without samples, but --memory allows only {}",
            memory::in_words(needed),
            memory::in_words(limit)
        ))
        .hint("allow more, or give the couplings that may differ from zero with --support"));
    }
    let limit = wanted.unwrap_or(DEFAULT_MEMORY).min(room.bytes);
    let room = limit.saturating_sub(needed);
    // Most tiles are smaller; what is left keeps them.
    let (fit, tiles) = bytes_of_stream(files, n_parameters)?;
    let held = Recipe::n_held(d).min(files.n_samples()) as u64;
    let spread = held * (16 * d.div_ceil(64) as u64 + memory::MERGED);
    let bytes = memory::of_program() + fit as u64 + spread + (tiles as u64).min(room);
    Ok((bytes, room as usize))
}
