//! `mpf compare`: scores methods on held-out data.

use crate::console::Console;
use crate::data::{DataArgs, Raster};
use crate::evaluate::with_error;
use crate::failure::Failure;
use crate::figures;
use crate::fit::of_comparison;
use crate::memory::{self, FitBytes, MemoryLimit, product};
use crate::methods::{AUTO, MethodArgs, ModelName, Strength, check_folds, check_units, find};
use crate::output::{self, ForceArg};
use clap::Args;
use mpf_baselines::{
    Comparison, Contender, Entrant, Methods, Plan, Polish, Refine, Takes, Tournament,
};
use mpf_core::Cancel;
use mpf_ising::internal::{n_blocks, n_packed};
use mpf_ising::{Preflight, Support};
use mpf_report::progress;
use mpf_report::report::Page;
use mpf_report::text::{Table, digits, duration};
use mpf_samplers::AnnealedOptions;
use std::path::PathBuf;
use std::time::Instant;

/// Bytes of a page while it is made.
const PAGE: u64 = 2_000_000;

/// Options of `mpf compare`.
#[derive(Args, Clone, Debug)]
pub struct CompareArgs {
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// The methods to compare, each as `mpf fit` would deliver it and, where that has a penalty, a
    /// refinement or polishing, also without; by default all that can fit these data, except CD
    #[arg(long, value_delimiter = ',', help_heading = "Method")]
    methods: Option<Vec<String>>,
    #[command(flatten)]
    options: MethodArgs,
    /// Number of folds, which are contiguous blocks
    #[arg(long, default_value_t = 5, help_heading = "Method")]
    folds: usize,
    /// Number of successive samples that are correlated; 1 for independent samples
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Method")]
    block_length: usize,
    #[command(flatten)]
    pub(crate) memory: MemoryLimit,
    /// Output file: a page (.html), the plot (.svg) or the numbers (.json); may be given several times
    #[arg(short, long, value_name = "FILE")]
    output: Vec<PathBuf>,
    #[command(flatten)]
    force: ForceArg,
}

/// Runs the command; returns the exit code.
///
/// # Errors
/// Wrong inputs, and those of the file system.
pub fn run(
    args: &CompareArgs,
    methods: &Methods,
    console: Console,
    cancel: &Cancel,
) -> Result<u8, Failure> {
    for path in &args.output {
        output::check_extension(path, &["html", "svg", "json"])?;
    }
    let inputs = [args.data.data.as_path()];
    output::check(&inputs, &output::reports(&args.output), args.force)?;
    let start = Instant::now();
    let (raster, comparison) = args.options.in_time(cancel, |cancel| {
        let raster = Raster::read(&args.data, args.memory.bytes(), cancel)?;
        raster.notes.iter().for_each(|note| console.note(note));
        let comparison = compare(args, methods, &raster, (console, start), cancel)?;
        Ok((raster, comparison))
    })?;
    warnings(&comparison).for_each(|warning| console.warning(&warning));
    let svg = plot(&comparison)?;
    for path in &args.output {
        let contents = match output::extension(path).as_str() {
            "svg" => output::marked_svg(&svg),
            "json" => output::json_report(&comparison),
            _ => page(&comparison, &raster, &svg),
        };
        output::write(path, contents.as_bytes())?;
    }
    console.result(&comparison.to_string())?;
    console.json(&comparison)?;
    Ok(0)
}

/// Returns the page, the table and the numbers, in JSON, of data that are in memory.
///
/// # Errors
/// Those of the command.
pub fn report(
    args: &CompareArgs,
    raster: &Raster,
    cancel: &Cancel,
) -> Result<[String; 3], Failure> {
    let console = (Console::silent(), Instant::now());
    let comparison = args.options.in_time(cancel, |cancel| {
        compare(args, &Methods::default(), raster, console, cancel)
    })?;
    let page = page(&comparison, raster, &plot(&comparison)?);
    Ok([
        page,
        comparison.to_string(),
        output::json_report(&comparison),
    ])
}

/// Fits every method without each fold, and scores it there. The command began at `start`.
fn compare(
    args: &CompareArgs,
    methods: &Methods,
    raster: &Raster,
    (console, start): (Console, Instant),
    cancel: &Cancel,
) -> Result<Comparison, Failure> {
    if [args.options.l1, args.options.l2].contains(&Some(Strength::Auto)) {
        return Err(
            Failure::input("mpf compare has no --l1 auto and no --l2 auto")
                .hint("choose a penalty with `mpf fit --l1 auto` and give it here"),
        );
    }
    if args.options.model.has_hidden_units() {
        return Err(
            Failure::input("mpf compare has no --model rbm and no --model srbm")
                .hint("give --hidden 20: both machines then join the comparison"),
        );
    }
    let states = raster.every_sample("mpf compare")?;
    check_folds(args.folds, states.n_samples())?;
    n_blocks(states.n_samples(), args.block_length)?;
    let contenders = contenders(args, methods, states.n_units(), cancel)?;
    let d = states.n_units();
    // Methods are fitted one at a time, but the samples of all folds are held in both forms, and the
    // three scores of every sample by every method.
    let samples = raster.samples()?;
    let fit = FitBytes::new(raster, &samples, n_packed(d));
    let folds = product(&[args.folds as u64, fit.data()]);
    let page = if args.output.is_empty() { 0 } else { PAGE };
    let mut machines = 0;
    for contender in &contenders {
        if let Plan::Machine(options) = &contender.plan {
            machines = memory::of_machine(&samples, options)?.max(machines);
        }
    }
    let scores = product(&[24, states.n_samples() as u64, contenders.len() as u64 + 1]);
    // The page comes after the fits.
    let working = fit.working.max(machines).max(page);
    let needed = [fit.before(), working, folds, scores]
        .into_iter()
        .fold(0, u64::saturating_add);
    memory::check(
        "this comparison",
        needed,
        args.memory.bytes(),
        "compare on fewer --folds, units or samples; --memory-limit sets another limit",
    )?;
    if console.has_notes() {
        let limit = args.options.limit();
        let preflight = Preflight::cancellable(&samples, None, cancel)?;
        let (seconds, more) = of_comparison(
            &contenders,
            (&samples, &states),
            args.folds,
            &preflight,
            start.elapsed().as_secs_f64(),
            limit,
        )?;
        let polishing = match more {
            0.0 => String::new(),
            more => format!(" (up to {} more for polishing)", duration(more)),
        };
        console.note(&format!(
            "this comparison takes about {}{polishing} and {}",
            duration(seconds),
            memory::expected_in_words(needed)
        ));
    }
    drop(samples);
    let tournament = Tournament {
        n_folds: args.folds,
        assignment: raster.fold_assignment(args.options.seed),
        block_length: args.block_length,
        annealed: Some(AnnealedOptions {
            seed: args.options.seed,
            cancel: cancel.clone(),
            ..Default::default()
        }),
        cancel: cancel.clone(),
        ..Default::default()
    };
    let n_fits = contenders.len().saturating_mul(args.folds);
    let bar = progress::bar(n_fits as u64).with_prefix("fits");
    let comparison = tournament.run(&contenders, &states, |at, _| {
        bar.inc(1);
        bar.set_message(contenders[at].name.clone());
    });
    bar.finish_and_clear();
    let comparison = comparison?;
    if comparison.entrants.is_empty() && cancel.is_cancelled() {
        return Err(Failure::interrupted());
    }
    if comparison.entrants.is_empty() {
        let why = comparison.dropouts.iter().map(|d| d.error.to_string());
        let why = format!(
            "{}: no method could be fitted: {}",
            raster.file,
            why.collect::<Vec<_>>().join("; ")
        );
        return Err(Failure::input(why));
    }
    Ok(comparison)
}

/// Returns what competes: every method as `mpf fit` would deliver it, and the plain one beside it.
fn contenders(
    args: &CompareArgs,
    methods: &Methods,
    d: usize,
    cancel: &Cancel,
) -> Result<Vec<Contender>, Failure> {
    let names: Vec<&str> = match &args.methods {
        Some(names) => names.iter().map(String::as_str).collect(),
        None => {
            let competing = methods.iter().filter(|method| {
                let description = method.describe();
                // A method that nobody named stays out if it does not take the options.
                let refuses = args.options.refused(*method, &Support::Full).is_some();
                description.competes && d <= description.max_units && !refuses
            });
            let names = competing.map(|method| method.describe().name);
            std::iter::once(AUTO).chain(names).collect()
        }
    };
    let has_machines = args.options.hidden.is_some();
    let has_potential =
        (names.contains(&AUTO) || has_machines) && args.options.model == ModelName::Ising && d > 1;
    let mut contenders = Vec::new();
    let plain_options = MethodArgs {
        hidden: None,
        starts: None,
        ..args.options.clone()
    };
    for name in names {
        let recipe = plain_options.recipe(methods, name, Support::Full, cancel)?;
        check_units(&recipe, d)?;
        let mut plain = recipe.clone();
        plain.refine = Refine::Nothing;
        plain.polish = Polish::Updates(0);
        plain.options.l2 = Some(0.0);
        let has_plain = name != AUTO
            && args.options.l2.is_none()
            && recipe.method.describe().takes.contains(&Takes::Penalties);
        let title = match name {
            AUTO => AUTO,
            _ => find(methods, name)?.describe().title,
        };
        contenders.push(Contender::new(title, recipe));
        if has_plain {
            contenders.push(Contender::new(format!("{title}, plain"), plain));
        }
    }
    if has_potential {
        let options = MethodArgs {
            model: ModelName::KPairwise,
            ..plain_options.clone()
        };
        // Not with options that are for pairs alone.
        if let Ok(recipe) = options.recipe(methods, AUTO, Support::Full, cancel) {
            contenders.push(Contender::new("auto, K-pairwise", recipe));
        }
    }
    if has_machines {
        for (model, title) in [(ModelName::Rbm, "RBM"), (ModelName::Srbm, "sRBM")] {
            for method in ["pl", "mpf"] {
                let options = MethodArgs {
                    model,
                    ..args.options.clone()
                };
                let machine = options.machine(method, cancel)?;
                let name = format!("{title} {}, {method}", machine.n_hidden);
                contenders.push(Contender::machine(name, machine));
            }
        }
    }
    Ok(contenders)
}

/// Draws how much worse every method is than the best.
fn plot(comparison: &Comparison) -> Result<String, Failure> {
    let criterion = comparison.criterion();
    let best = comparison.best_index(criterion).unwrap_or(0);
    // The plot shows gains.
    let sign = if criterion.is_loss() { -1.0 } else { 1.0 };
    let mut rows = Vec::new();
    for (at, entrant) in comparison.entrants.iter().enumerate() {
        if let Some(found) = comparison.difference(at, best, criterion)? {
            let name = entrant.name.clone();
            rows.push((name, sign * found.value, found.standard_error));
        }
    }
    rows.sort_by(|a, b| b.1.total_cmp(&a.1));
    let title = format!("held-out {criterion} per sample");
    Ok(figures::named(&title, "nats above the best method", &rows)?)
}

/// Returns the first warning of every method.
fn warnings(comparison: &Comparison) -> impl Iterator<Item = String> {
    let firsts = comparison.entrants.iter().map(|e| (e, e.warnings.first()));
    firsts.filter_map(|(entrant, first)| Some(format!("{}: {}", entrant.name, first?)))
}

fn page(comparison: &Comparison, raster: &Raster, svg: &str) -> String {
    let mut page = Page::new(
        &format!("Which method for {}?", raster.file),
        "Every method was fitted to some blocks of the data and scored on the others, which it had \
         not seen.",
    );
    page.figures(&[(
        svg.to_owned(),
        "Difference to the best method per sample, paired sample by sample; bars are two standard \
         errors, those of ln Z included."
            .to_owned(),
    )]);
    let criterion = comparison.criterion();
    let mut entrants: Vec<&Entrant> = comparison.entrants.iter().collect();
    let loss = |e: &Entrant| e.loss(criterion).unwrap_or(f64::INFINITY);
    entrants.sort_by(|a, b| loss(a).total_cmp(&loss(b)));
    let table = Table::of(
        entrants,
        &[
            ("method", &|e| e.name.clone()),
            ("log-likelihood, nats (more is better)", &|e| {
                e.log_likelihood.map_or_else(|| "–".to_owned(), with_error)
            }),
            ("−ln PL, nats (less is better)", &|e| {
                with_error(e.pseudolikelihood)
            }),
            ("MPF (less is better)", &|e| digits(e.mpf.value)),
            ("learning time", &|e| duration(e.seconds)),
        ],
    );
    page.heading("Scores, best first");
    page.table(&table);
    let mut remarks: Vec<String> = comparison
        .dropouts
        .iter()
        .map(|d| format!("{} could not be fitted: {}", d.name, d.error))
        .collect();
    remarks.extend(warnings(comparison));
    if !remarks.is_empty() {
        page.heading("To be careful about");
        page.list(&remarks);
    }
    page.finish()
}
