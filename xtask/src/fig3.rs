//! Figure 3: filters of an ICA model learned from image patches, by MPF and by maximum likelihood.
//!
//! Both start from the same J on the same whitened patches, and ln p is exact, so that the two
//! can be compared in nats (main text, Appendices G and H). The paper's photographs are not
//! freely available: the default learns from dead leaves, `--images` from a folder of your own.

mod figure;
mod mosaic;

use crate::journal::{self, Journal};
use crate::output::{Entry, Experiment, Machine, digits, markdown_table};
use crate::report::Page;
use crate::{Result, progress};
use mpf_core::{Cancel, StopReason, rng};
use mpf_ica::compare::match_filters;
use mpf_ica::dead_leaves::DeadLeaves;
use mpf_ica::fit::{LOST, Rescue, TracePoint};
use mpf_ica::patches::{Image, draw_patches, prepare, read_folder};
use mpf_ica::{Alternating, Filters, Fit, FitOptions, Fitter, Metropolis, Stochastic, Trainer};
use ndarray::Array2;
use serde::Serialize;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

/// Options of `reproduce-fig3`.
#[derive(clap::Args, Clone, Serialize)]
pub struct Args {
    /// Folder of photographs: PNG, JPEG, PGM or van Hateren's .iml, halved in size [default: dead
    /// leaves, drawn by the seed]
    #[arg(long)]
    pub images: Option<PathBuf>,
    /// Normalise the contrast of every patch (not in the paper).
    #[arg(long)]
    pub normalise: bool,
    /// Patches.
    #[arg(long, default_value_t = 100_000)]
    pub patches: usize,
    /// Side of a patch in pixels.
    #[arg(long, default_value_t = 10)]
    pub size: usize,
    /// How MPF is trained.
    #[arg(long, value_enum, default_value_t = Training::Stochastic)]
    pub trainer: Training,
    /// Leave out the stochastic trainer's last phase, with neighbours by Metropolis transitions.
    #[arg(long)]
    pub no_metropolis: bool,
    /// Steps of the stochastic trainer, all phases together, or rounds of the paper's [default:
    /// 1300 or 60]
    #[arg(long)]
    pub steps: Option<usize>,
    /// Most iterations of maximum likelihood.
    #[arg(long, default_value_t = 300)]
    pub iterations: usize,
    /// Seed of the images, the patches, the start and the training.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// How many seeds to run, from `--seed` on. Figures are of the first.
    #[arg(long, default_value_t = 1)]
    pub seeds: u64,
    #[command(flatten)]
    #[serde(skip)]
    pub journal: journal::Options,
}

/// How MPF is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Training {
    /// L-BFGS with the neighbours fixed, then new neighbours (Appendix H).
    Paper,
    /// Gradient steps, with new neighbours for each.
    Stochastic,
}

impl Args {
    fn check(&self) -> Result {
        if self.seeds == 0 {
            return Err("--seeds must be at least 1".into());
        }
        if self.size < 2 {
            return Err("--size must be at least 2".into());
        }
        Ok(())
    }

    /// MPF as asked for. The phases of the stochastic trainer keep their proportions.
    fn mpf(&self) -> Trainer {
        match self.trainer {
            Training::Paper => Trainer::Alternating(Alternating {
                rounds: self.steps.unwrap_or(60),
                ..Default::default()
            }),
            Training::Stochastic => {
                let all = Stochastic::default();
                let share = |part: usize| match self.steps {
                    None => part,
                    Some(steps) => part * steps / all.n_steps(),
                };
                Trainer::Stochastic(Stochastic {
                    steady_steps: share(all.steady_steps),
                    falling_steps: share(all.falling_steps),
                    averaged_steps: share(all.averaged_steps).max(1),
                    metropolis: (!self.no_metropolis).then(|| {
                        let metropolis = Metropolis::default();
                        Metropolis {
                            steps: share(metropolis.steps),
                            ..metropolis
                        }
                    }),
                    ..all
                })
            }
        }
    }
}

/// `results.json`; every field is described in `docs/results.md`.
#[derive(Serialize)]
pub struct Results {
    settings: Settings,
    /// Mean over the patches, in nats.
    pub log_likelihood: LogLikelihood,
    paper: LogLikelihood,
    pub mpf: Method,
    ml: Option<Method>,
    matched: Option<Matched>,
    over_seeds: Vec<Seed>,
    reading: Vec<String>,
}

#[derive(Clone, Copy, Serialize)]
pub struct LogLikelihood {
    start: f64,
    mpf: f64,
    /// Nothing when interrupted before.
    ml: Option<f64>,
    /// How much likelier maximum likelihood is.
    pub gap: Option<f64>,
}

/// The figures of the main text.
const PAPER: LogLikelihood = LogLikelihood {
    start: -189.23,
    mpf: -120.61,
    ml: Some(-120.33),
    gap: Some(0.28),
};

#[derive(Serialize)]
struct Settings {
    machine: Machine,
    /// `dead leaves`, or the folder.
    images: String,
    n_images: usize,
    normalise: bool,
    patches: usize,
    size: usize,
    trainer: Training,
    metropolis: bool,
    steps: usize,
    iterations: usize,
    seed: u64,
    seeds: u64,
}

#[derive(Serialize)]
pub struct Method {
    /// Learning time.
    seconds: f64,
    steps: usize,
    stop: StopReason,
    /// Mean chance that Metropolis takes a trajectory.
    acceptance: Option<f64>,
    clipped_fraction: f64,
    rescues: Vec<Rescue>,
    pub sigma_min: f64,
    pub sigma_median: f64,
    trace: Vec<TracePoint>,
}

impl Method {
    fn of(fit: &Fit) -> Self {
        Self {
            seconds: fit.seconds,
            steps: fit.steps,
            stop: fit.stop,
            acceptance: fit.acceptance,
            clipped_fraction: fit.clipped_fraction,
            rescues: fit.rescued.clone(),
            sigma_min: fit.smallest_singular_value,
            sigma_median: fit.median_singular_value,
            trace: fit.trace.clone(),
        }
    }
}

/// How alike the filters of the two methods are, matched one to one.
#[derive(Serialize)]
struct Matched {
    filters: usize,
    /// With |cos| > 0.9.
    alike: usize,
    median_similarity: f64,
}

/// One seed of several.
#[derive(Serialize)]
struct Seed {
    seed: u64,
    log_likelihood: LogLikelihood,
    rescues: usize,
    sigma_min: f64,
    mpf_seconds: f64,
    ml_seconds: Option<f64>,
}

/// The filters of a run, for its pictures.
struct Pair {
    mpf: Filters,
    ml: Option<Filters>,
}

const TITLE: &str = "Figure 3: filters of natural-image ICA";

/// Runs the command.
pub fn run(args: &Args, cancel: &Cancel) -> Result<Option<Entry>> {
    args.check()?;
    let settings = settings(args)?;
    let (output, mut journal) = args.journal.open_with("fig3", settings, cancel)?;
    let (results, pair) = compute(args, &mut journal, cancel)?;
    let (header, rows) = table(&results);
    let mut text = markdown_table(&header, &rows);
    if results.over_seeds.len() > 1 {
        let (header, rows) = seeds_table(&results);
        text += "\n";
        text += &markdown_table(&header, &rows);
    }
    let (mosaics, curves) = (mosaic::draw(args.size, &pair)?, figure::curves(&results)?);
    let entry = output.publish(&Experiment {
        title: TITLE,
        results: &results,
        page: &page(&results, &mosaics, &curves),
        figures: &[("fig3.svg", mosaics), ("fig3-likelihood.svg", curves)],
        table: &text,
        reading: &results.reading,
    })?;
    journal.finish()?;
    Ok(Some(entry))
}

/// What decides the numbers: the options, and the pixels of a folder of images.
fn settings(args: &Args) -> Result<journal::Settings> {
    let mut settings = journal::settings("fig3", args)?;
    settings.extend(checksum(args.images.as_deref())?);
    Ok(settings)
}

/// A setting that tells the images of one folder from those of another.
pub fn checksum(folder: Option<&Path>) -> Result<Option<(String, String)>> {
    let Some(folder) = folder else {
        return Ok(None);
    };
    let mut hash = DefaultHasher::new();
    for image in read_folder(folder)? {
        image.pixels().dim().hash(&mut hash);
        let pixels = image.pixels();
        pixels.iter().for_each(|v| v.to_bits().hash(&mut hash));
    }
    let sum = format!("{:016x}", hash.finish());
    Ok(Some(("checksum of the images".to_owned(), sum)))
}

/// The images of a seed: the user's, or dead leaves.
fn images(args: &Args, seed: u64) -> Result<Vec<Image>> {
    Ok(match &args.images {
        Some(folder) => read_folder(folder)?.iter().map(Image::halved).collect(),
        None => DeadLeaves::default().draw(seed)?,
    })
}

/// The whitened patches of a seed, one per row.
pub fn patches(args: &Args, seed: u64) -> Result<(Array2<f64>, usize)> {
    let images = images(args, seed)?;
    let patches = draw_patches(&images, args.size, args.patches, rng::next_seed(seed))?;
    let (white, _) = prepare(patches.view(), args.normalise)?;
    Ok((white, images.len()))
}

fn compute(args: &Args, journal: &mut Journal, cancel: &Cancel) -> Result<(Results, Pair)> {
    let mut first: Option<(Results, Pair)> = None;
    for seed in args.seed..args.seed + args.seeds {
        if first.is_some() && cancel.is_cancelled() {
            break;
        }
        let (results, pair) = compute_one(args, seed, journal, cancel)?;
        match &mut first {
            None => first = Some((results, pair)),
            Some((all, _)) => all.over_seeds.extend(results.over_seeds),
        }
    }
    let (mut results, pair) = first.expect("at least one seed");
    results.reading = reading(&results);
    Ok((results, pair))
}

/// MPF, then maximum likelihood, from the same start on the same patches.
fn compute_one(
    args: &Args,
    seed: u64,
    journal: &mut Journal,
    cancel: &Cancel,
) -> Result<(Results, Pair)> {
    let names = ["patches", "MPF", "ML"].map(|name| format!("seed {seed}, {name}"));
    // Made only if something is left to do.
    let data = if names.iter().all(|name| journal.has(name)) {
        None
    } else {
        let waiting = progress::spinner("patches");
        let made = patches(args, seed)?;
        waiting.finish_and_clear();
        Some(made)
    };
    let data = || data.as_ref().expect("made where something is left to do");
    let [patches, mpf, ml] = &names;
    let n_images = journal.unit(patches, |_| Ok(data().1))?;
    let start = Filters::random(args.size * args.size, seed);
    let mut fit = |name: &str, shown: &'static str, trainer: Trainer| {
        journal.unit(name, |unit| {
            let bar = progress::bar(trainer.n_steps() as u64).with_prefix(shown);
            let fitter = Fitter::new(FitOptions {
                trainer,
                start: Some(start.clone()),
                seed,
                cancel: cancel.clone(),
                snapshots: true,
                resume: unit.left_off()?,
                ..Default::default()
            })?;
            let fit = fitter.fit_observed(data().0.view(), |progress| {
                bar.set_position(progress.step as u64);
                bar.set_message(format!("{:.2} nats", progress.log_likelihood));
                if let Some(snapshot) = progress.snapshot {
                    unit.keep(snapshot.clone());
                }
            })?;
            bar.finish_and_clear();
            Ok(fit)
        })
    };
    let mpf = fit(mpf, "MPF", args.mpf())?;
    let ml = if cancel.is_cancelled() {
        None
    } else {
        let max_iterations = args.iterations;
        Some(fit(
            ml,
            "ML ",
            Trainer::MaximumLikelihood { max_iterations },
        )?)
    };
    let matched = match &ml {
        None => None,
        Some(ml) => {
            let pairs = match_filters(&mpf.filters, &ml.filters)?;
            Some(Matched {
                filters: pairs.len(),
                alike: pairs.iter().filter(|p| p.similarity > 0.9).count(),
                median_similarity: pairs[pairs.len() / 2].similarity,
            })
        }
    };
    let log_likelihood = LogLikelihood {
        start: mpf.trace[0].log_likelihood,
        mpf: mpf.log_likelihood,
        ml: ml.as_ref().map(|f| f.log_likelihood),
        gap: ml.as_ref().map(|f| f.log_likelihood - mpf.log_likelihood),
    };
    let results = Results {
        settings: Settings {
            machine: Machine::this(),
            images: match &args.images {
                Some(folder) => folder.display().to_string(),
                None => "dead leaves".to_owned(),
            },
            n_images,
            normalise: args.normalise,
            patches: args.patches,
            size: args.size,
            trainer: args.trainer,
            metropolis: args.trainer == Training::Stochastic && !args.no_metropolis,
            steps: args.mpf().n_steps(),
            iterations: args.iterations,
            seed: args.seed,
            seeds: args.seeds,
        },
        log_likelihood,
        paper: PAPER,
        mpf: Method::of(&mpf),
        ml: ml.as_ref().map(Method::of),
        matched,
        over_seeds: vec![Seed {
            seed,
            log_likelihood,
            rescues: mpf.rescued.len(),
            sigma_min: mpf.smallest_singular_value,
            mpf_seconds: mpf.seconds,
            ml_seconds: ml.as_ref().map(|f| f.seconds),
        }],
        reading: Vec::new(),
    };
    let pair = Pair {
        mpf: mpf.filters,
        ml: ml.map(|f| f.filters),
    };
    Ok((results, pair))
}

/// What the numbers say.
fn reading(results: &Results) -> Vec<String> {
    let mut lines = Vec::new();
    let LogLikelihood { start, mpf, .. } = results.log_likelihood;
    match (results.log_likelihood.ml, results.log_likelihood.gap) {
        (Some(ml), Some(gap)) => lines.push(format!(
            "From {start:.2} nats MPF reached {mpf:.2} and maximum likelihood {ml:.2}: MPF is \
             {gap:.2} nats short. The paper, on other images: -189.23, -120.61, -120.33, 0.28 \
             short."
        )),
        _ => lines.push(format!(
            "Interrupted: from {start:.2} nats MPF had reached {mpf:.2}; there is no maximum \
             likelihood to compare with."
        )),
    }
    if let Some(ml) = &results.ml {
        lines.push(format!(
            "MPF learned for {:.1} s, maximum likelihood for {:.1} s and stopped because: {}.",
            results.mpf.seconds, ml.seconds, ml.stop
        ));
    }
    let rescues = &results.mpf.rescues;
    lines.push(match rescues.as_slice() {
        [] => "No direction of the patches was lost on the way.".to_owned(),
        [one] => format!(
            "One filter was replaced at step {}, where a direction of the patches had been lost.",
            one.step
        ),
        many => format!(
            "{} filters were replaced, where directions of the patches had been lost.",
            many.len()
        ),
    });
    let part = results.mpf.sigma_min / results.mpf.sigma_median;
    if part < LOST {
        lines.push(format!(
            "A direction of the patches is lost: the smallest singular value is {part:.3} of the \
             median one. Try another seed."
        ));
    }
    if results.settings.trainer == Training::Paper && results.mpf.sigma_min.is_finite() {
        let trace = &results.mpf.trace;
        let best = trace.iter().map(|p| p.log_likelihood).fold(start, f64::max);
        if best > mpf + 0.1 {
            lines.push(format!(
                "The paper's procedure passed {best:.2} nats on its way: the inner minimisation \
                 runs beyond the reach of its neighbours."
            ));
        }
    }
    if let Some(matched) = &results.matched {
        lines.push(format!(
            "The filters look alike in kind; matched one to one, {} of {} agree to |cos| > 0.9.",
            matched.alike, matched.filters
        ));
    }
    let gaps: Vec<f64> = results
        .over_seeds
        .iter()
        .filter_map(|s| s.log_likelihood.gap)
        .collect();
    if gaps.len() > 1 {
        let least = gaps.iter().copied().fold(f64::INFINITY, f64::min);
        let most = gaps.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        lines.push(format!(
            "Over {} seeds the gap runs from {least:.2} to {most:.2} nats.",
            gaps.len()
        ));
    }
    lines
}

fn nats(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |v| format!("{v:.2}"))
}

fn table(results: &Results) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let header = vec![
        "",
        "nats",
        "paper",
        "seconds",
        "steps",
        "σ_min",
        "median σ",
        "rescues",
        "stopped",
    ];
    let dash = || "–".to_owned();
    let row = |name: &str, value, paper: f64, method: Option<&Method>| {
        let cell = |f: &dyn Fn(&Method) -> String| method.map_or_else(dash, f);
        vec![
            name.to_owned(),
            nats(value),
            format!("{paper:.2}"),
            cell(&|m| format!("{:.1}", m.seconds)),
            cell(&|m| m.steps.to_string()),
            cell(&|m| digits(m.sigma_min)),
            cell(&|m| digits(m.sigma_median)),
            cell(&|m| m.rescues.len().to_string()),
            cell(&|m| m.stop.to_string()),
        ]
    };
    let found = results.log_likelihood;
    let rows = vec![
        row("start", Some(found.start), -189.23, None),
        row("MPF", Some(found.mpf), -120.61, Some(&results.mpf)),
        row("maximum likelihood", found.ml, -120.33, results.ml.as_ref()),
        row("gap", found.gap, 0.28, None),
    ];
    (header, rows)
}

fn seeds_table(results: &Results) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let header = vec!["seed", "start", "MPF", "ML", "gap", "rescues", "σ_min"];
    let row = |s: &Seed| {
        vec![
            s.seed.to_string(),
            nats(Some(s.log_likelihood.start)),
            nats(Some(s.log_likelihood.mpf)),
            nats(s.log_likelihood.ml),
            nats(s.log_likelihood.gap),
            s.rescues.to_string(),
            digits(s.sigma_min),
        ]
    };
    (header, results.over_seeds.iter().map(row).collect())
}

fn page(results: &Results, mosaics: &str, curves: &str) -> String {
    let mut page = Page::new(
        TITLE,
        "An ICA model with a Laplace prior, learned from whitened image patches by minimum \
         probability flow over Hamiltonian neighbours and by maximum likelihood, from the same \
         start.",
    );
    page.heading("What was found");
    page.list(&results.reading);
    let (header, rows) = table(results);
    page.table(&header, &rows);
    page.text(
        "Nats are means of ln p(x; J) over the patches; the paper's are of van Hateren's \
         photographs, so that only the gaps compare. ln p = −Σ|J_k x| − d ln 2 + ln|det J|.",
    );
    if results.over_seeds.len() > 1 {
        page.heading("Over seeds");
        let (header, rows) = seeds_table(results);
        page.table(&header, &rows);
    }
    page.heading("Filters");
    page.figure(mosaics, &mosaic::caption(results.settings.size));
    page.heading("Likelihood against learning time");
    page.figure(
        curves,
        "Mean log-likelihood of the patches; on the right the last nats. Measuring it does not \
         count as learning.",
    );
    page.heading("Settings");
    page.settings(&results.settings);
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{exact_without_times, without_times};

    fn small() -> Args {
        Args {
            images: None,
            normalise: false,
            patches: 3000,
            size: 4,
            trainer: Training::Stochastic,
            no_metropolis: false,
            steps: Some(130),
            iterations: 40,
            seed: 1,
            seeds: 2,
            journal: journal::Options::default(),
        }
    }

    fn in_folder(folder: &Path, args: &Args, stop: Option<usize>) -> Result<(Results, Pair)> {
        journal::in_folder(folder, settings(args)?, stop, |journal, cancel| {
            compute(args, journal, cancel)
        })
    }

    fn whole(args: &Args) -> Result<(Results, Pair)> {
        in_folder(tempfile::tempdir().unwrap().path(), args, None)
    }

    #[test]
    fn results_have_the_documented_shape() {
        let (results, pair) = whole(&small()).unwrap();
        insta::assert_json_snapshot!(without_times(&results));
        let said = results.reading.join(" ");
        assert!(said.contains("nats short") && said.contains("Over 2 seeds the gap"));
        let (header, rows) = table(&results);
        assert_eq!(markdown_table(&header, &rows).lines().count(), 6);
        assert_eq!(seeds_table(&results).1.len(), 2);
        let curves = figure::curves(&results).unwrap();
        assert!(curves.contains("maximum likelihood"));
        let mosaics = mosaic::draw(4, &pair).unwrap();
        let html = page(&results, &mosaics, &curves);
        assert!(html.contains("-189.23") && html.contains("data:image/png;base64,"));
    }

    #[test]
    fn the_papers_trainer_runs_too() {
        let args = Args {
            trainer: Training::Paper,
            normalise: true,
            steps: Some(4),
            seeds: 1,
            ..small()
        };
        let (results, _) = whole(&args).unwrap();
        assert_eq!(results.mpf.steps, 4);
        assert!(results.log_likelihood.mpf > results.log_likelihood.start);
    }

    #[test]
    fn cancelling_keeps_what_there_is() {
        let cancel = Cancel::new();
        cancel.cancel();
        let args = small();
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(
            folder.path(),
            &args.journal,
            settings(&args).unwrap(),
            &cancel,
        );
        let (results, pair) = compute(&args, &mut journal.unwrap(), &cancel).unwrap();
        assert!(results.ml.is_none() && results.log_likelihood.gap.is_none());
        assert_eq!(results.over_seeds.len(), 1);
        assert!(results.reading[0].starts_with("Interrupted"));
        assert!(figure::curves(&results).is_ok());
        assert!(mosaic::draw(4, &pair).is_ok());
    }

    /// A small image, which takes less time than dead leaves.
    fn picture(folder: &Path, seed: u8) {
        let pixels = (0..80 * 80u32).map(|k| (k.wrapping_mul(k) >> 3) as u8 ^ seed);
        let mut bytes = b"P5 80 80 255\n".to_vec();
        bytes.extend(pixels);
        std::fs::write(folder.join("a.pgm"), bytes).unwrap();
    }

    #[test]
    fn a_stopped_run_goes_on_to_the_same_bits() {
        let photographs = tempfile::tempdir().unwrap();
        picture(photographs.path(), 0);
        for trainer in [Training::Stochastic, Training::Paper] {
            let args = Args {
                images: Some(photographs.path().to_owned()),
                trainer,
                steps: Some(if trainer == Training::Paper { 5 } else { 130 }),
                iterations: 12,
                ..small()
            };
            let (expected, filters) = whole(&args).unwrap();
            let folder = tempfile::tempdir().unwrap();
            // A seed is 2 (or 5) states of MPF, 13 of ML, and three results.
            for stop in [2, 2, 5, 1, 9, 1, 2, 4] {
                in_folder(folder.path(), &args, Some(stop)).unwrap();
            }
            let (results, pair) = in_folder(folder.path(), &args, None).unwrap();
            assert_eq!(
                exact_without_times(&results),
                exact_without_times(&expected)
            );
            assert_eq!((pair.mpf, pair.ml), (filters.mpf, filters.ml));
        }
    }

    #[test]
    fn other_images_are_refused() {
        let (folder, photographs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        picture(photographs.path(), 0);
        let args = Args {
            images: Some(photographs.path().to_owned()),
            seeds: 1,
            steps: Some(0),
            iterations: 2,
            ..small()
        };
        in_folder(folder.path(), &args, Some(1)).unwrap();
        picture(photographs.path(), 1);
        let refused = in_folder(folder.path(), &args, None).err().unwrap();
        let message = refused.to_string();
        assert!(message.contains("checksum of the images was"), "{message}");
    }

    #[test]
    fn bad_options_are_refused() {
        let none = Args {
            seeds: 0,
            ..small()
        };
        assert!(none.check().is_err());
        let nowhere = Args {
            images: Some("no/such/folder".into()),
            ..small()
        };
        let error = whole(&nowhere).err().unwrap();
        assert!(error.to_string().contains("no/such/folder"), "{error}");
    }
}
