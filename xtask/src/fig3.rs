//! Figure 3: filters of an ICA model learned from image patches, by MPF and by maximum likelihood.
//!
//! Both start from the same J on the same whitened patches. ln p is exact, so the two compare in
//! nats (main text, Appendices G and H). The paper's photographs are not freely available: the
//! default learns from dead leaves, `--images` from a folder of photographs.

mod data;
mod figure;
mod filters;
mod mosaic;
mod page;
mod reading;
mod results;

pub use data::{patches, with_checksum};

use crate::output::{Entry, Experiment, Settings};
use crate::run::{RunArgs, settings};
use crate::{Result, npy, progress};
use mpf_core::{Cancel, Checkpoint};
use mpf_ica::{
    Alternating, DeadLeaves, Filters, Fit, FitOptions, Fitter, Metropolis, Stochastic, Trainer,
    match_filters,
};
use results::{LogLikelihood, Matched, Method, PAPER, Pair, Results, Seed};
use serde::Serialize;
use std::fs;
use std::path::PathBuf;

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
    /// Number of seeds to run, from `--seed` on. The figures show the first.
    #[arg(long, default_value_t = 1)]
    pub seeds: u64,
    /// The dead leaves; tests draw smaller ones.
    #[arg(skip)]
    #[serde(skip)]
    pub leaves: DeadLeaves,
}

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

    /// Returns the trainer of MPF. `--steps` keeps the proportions of the stochastic trainer's phases.
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
                    metropolis: all.metropolis.map(|metropolis| Metropolis {
                        steps: share(metropolis.steps),
                        ..metropolis
                    }),
                    ..all
                })
            }
        }
    }
}

pub fn run(args: &Args, run: &RunArgs, cancel: &Cancel) -> Result<Entry> {
    args.check()?;
    let settings = with_checksum(settings("fig3", args)?, args.images.as_deref())?;
    run.run_with("fig3", settings, cancel, |output, checkpoint| {
        let (results, pair) = compute(args, checkpoint)?;
        let (mosaics, curves) = (mosaic::draw(args.size, &pair)?, figure::curves(&results)?);
        fs::create_dir_all(output.folder().join("filters"))?;
        for (name, array) in filters::arrays(args.size, &results, &pair)? {
            output.write(&format!("filters/{name}.npy"), &npy::encode(array.view()))?;
        }
        output.publish(&Experiment {
            title: page::TITLE,
            results: &results,
            page: &page::of(&results, &mosaics, &curves),
            figures: &[("fig3.svg", mosaics), ("fig3-likelihood.svg", curves)],
            table: &page::tables(&results),
            reading: &results.reading,
        })
    })
}

fn compute(args: &Args, checkpoint: &Checkpoint) -> Result<(Results, Pair)> {
    let mut first: Option<(Results, Pair)> = None;
    for seed in args.seed..args.seed + args.seeds {
        if first.is_some() && checkpoint.is_cancelled() {
            break;
        }
        let entry = checkpoint.entry(format!("seed {seed}"));
        let (results, pair) = compute_one(args, seed, &entry)?;
        match &mut first {
            None => first = Some((results, pair)),
            Some((all, _)) => all.over_seeds.extend(results.over_seeds),
        }
    }
    let (mut results, pair) = first.expect("at least one seed");
    results.reading = reading::of(&results);
    Ok((results, pair))
}

/// Runs MPF, then maximum likelihood, from the same start on the same patches.
fn compute_one(args: &Args, seed: u64, checkpoint: &Checkpoint) -> Result<(Results, Pair)> {
    let waiting = progress::spinner("patches");
    let patches = patches(args, seed)?;
    waiting.finish_and_clear();
    let start = Filters::random(args.size * args.size, seed);
    let fit = |name: &'static str, trainer: Trainer| -> Result<Fit> {
        checkpoint.unit(name, |unit| {
            let bar = progress::bar(trainer.n_steps() as u64).with_prefix(name);
            let fitter = Fitter::new(FitOptions {
                trainer,
                start: Some(start.clone()),
                seed,
                cancel: unit.cancel(),
                checkpoint: unit.clone(),
                ..Default::default()
            })?;
            let fit = fitter.fit_observed(patches.white.view(), |progress| {
                bar.set_position(progress.step as u64);
                bar.set_message(format!("{:.2} nats", progress.log_likelihood));
            })?;
            bar.finish_and_clear();
            Ok(fit)
        })
    };
    let mpf = fit("MPF", args.mpf())?;
    let max_iterations = args.iterations;
    let ml = (!checkpoint.is_cancelled())
        .then(|| fit("ML", Trainer::MaximumLikelihood { max_iterations }))
        .transpose()?;
    let compare = |ml: &Fit| -> Result<Matched> {
        let pairs = match_filters(&mpf.filters, &ml.filters)?;
        Ok(Matched {
            filters: pairs.len(),
            alike: pairs.iter().filter(|p| p.similarity > 0.9).count(),
            median_similarity: pairs[pairs.len() / 2].similarity,
        })
    };
    let matched = ml.as_ref().map(compare).transpose()?;
    let log_likelihood = LogLikelihood {
        start: mpf.trace[0].log_likelihood,
        mpf: mpf.log_likelihood,
        ml: ml.as_ref().map(|f| f.log_likelihood),
        gap: ml.as_ref().map(|f| f.log_likelihood - mpf.log_likelihood),
    };
    let results = Results {
        settings: Settings::of(&Args {
            steps: Some(args.mpf().n_steps()),
            ..args.clone()
        })
        .with("n_images", patches.n_images),
        log_likelihood,
        paper: PAPER,
        mpf: Method::of(&mpf),
        ml: ml.as_ref().map(Method::of),
        matched,
        over_seeds: vec![Seed {
            seed,
            log_likelihood,
            rescues: mpf.rescued.len(),
            last_phase: mpf.last_phase,
            sigma_min: mpf.smallest_singular_value,
            mpf_seconds: mpf.seconds,
            ml_seconds: ml.as_ref().map(|f| f.seconds),
        }],
        reading: Vec::new(),
    };
    let pair = Pair {
        mpf: mpf.filters,
        ml: ml.map(|f| f.filters),
        whitenings: patches.whitenings,
    };
    Ok((results, pair))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{exact_without_times, without_times};
    use crate::run::interrupted;
    use std::path::Path;

    pub(super) fn small() -> Args {
        Args {
            images: None,
            normalise: false,
            patches: 3000,
            size: 4,
            trainer: Training::Stochastic,
            steps: Some(130),
            iterations: 40,
            seed: 1,
            seeds: 2,
            leaves: DeadLeaves {
                n_images: 4,
                size: 96,
                ..Default::default()
            },
        }
    }

    fn whole(args: &Args) -> Result<(Results, Pair)> {
        compute(args, &Checkpoint::default())
    }

    #[test]
    fn results_have_the_documented_shape() {
        let (results, pair) = whole(&small()).unwrap();
        insta::assert_json_snapshot!(without_times(&results));
        let said = results.reading.join(" ");
        assert!(said.contains("nats short") && said.contains("Over 2 seeds the gap"));
        assert!(said.contains("The last phase changed the flow"));
        // A header of two lines and four rows; the same with two seeds, twice; empty lines between.
        assert_eq!(page::tables(&results).lines().count(), 6 + 1 + 4 + 1 + 4);
        let curves = figure::curves(&results).unwrap();
        assert!(curves.contains("maximum likelihood"));
        let mosaics = mosaic::draw(4, &pair).unwrap();
        let html = page::of(&results, &mosaics, &curves);
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
        let file = mpf_testkit::StopAfter::new(usize::MAX);
        file.cancel().cancel();
        let (results, pair) = compute(&small(), &file.checkpoint()).unwrap();
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
        fs::write(folder.join("a.pgm"), bytes).unwrap();
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
            // A write is a state of a trainer or a result.
            let stops = [2, 2, 5, 1, 9, 1, 2, 4];
            let (results, pair) = interrupted(&stops, |checkpoint| compute(&args, checkpoint));
            assert_eq!(
                exact_without_times(&results),
                exact_without_times(&expected)
            );
            assert_eq!((pair.mpf, pair.ml), (filters.mpf, filters.ml));
        }
    }

    #[test]
    fn other_images_are_other_settings() {
        let photographs = tempfile::tempdir().unwrap();
        let settings = || {
            let settings = settings("fig3", &small()).unwrap();
            with_checksum(settings, Some(photographs.path())).unwrap()
        };
        picture(photographs.path(), 0);
        let before = settings();
        assert_eq!(settings(), before);
        picture(photographs.path(), 1);
        assert_ne!(settings(), before);
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
