//! The options of every long command: `--out`, `--resume` and `--checkpoint-every`.
//!
//! `checkpoint.bin` in the folder of the command is a [`Checkpoint`]: finished units of work, and
//! the states of those under way. It is written at an interval, on Ctrl-C and SIGTERM, and when the
//! command fails; it is removed when the command is done. A resumed run ends with the same bits as
//! an uninterrupted one if units depend on nothing but the settings and each other's results.

use crate::output::{Output, OutputArgs};
use crate::{Result, progress};
use clap::Parser as _;
use mpf_core::{Cancel, Checkpoint, Settings};
use mpf_report::CheckpointFile;
use progress::ProgressBar;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::borrow::Cow;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Duration;

const FILE: &str = "checkpoint.bin";
/// The checkpoint of an earlier run that was not resumed.
const OLD_FILE: &str = "checkpoint-old.bin";

// The options of a command: its own, and those that it shares with others.
#[derive(clap::Args)]
pub struct Options<A: clap::Args, S: clap::Args = RunArgs> {
    #[command(flatten)]
    pub own: A,
    #[command(flatten)]
    pub shared: S,
}

#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub output: OutputArgs,
    /// Resume from the checkpoint that a run with the same options left in the folder.
    #[arg(long)]
    pub resume: bool,
    /// Seconds between checkpoints.
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    pub checkpoint_every: f64,
}

impl RunArgs {
    /// Runs `work` of the command `name`, whose options are `args`: see [`RunArgs::run_with`].
    pub fn run<T>(
        &self,
        name: &str,
        args: &impl Serialize,
        cancel: &Cancel,
        work: impl FnOnce(&Output, &Checkpoint) -> Result<T>,
    ) -> Result<T> {
        self.run_with(name, settings(name, args)?, cancel, work)
    }

    /// Runs `work` with the output folder `folder` and the checkpoint in it.
    ///
    /// Afterwards removes the checkpoint, or writes it if `work` failed or was cancelled.
    pub fn run_with<T>(
        &self,
        folder: &str,
        settings: Settings,
        cancel: &Cancel,
        work: impl FnOnce(&Output, &Checkpoint) -> Result<T>,
    ) -> Result<T> {
        let output = self.output.open(folder)?;
        let path = output.folder().join(FILE);
        let checkpoint = self.open(&path, settings, cancel)?;
        let outcome = work(&output, &checkpoint);
        let at = path.display();
        if outcome.is_ok() && !cancel.is_cancelled() {
            checkpoint
                .remove()
                .map_err(|error| format!("cannot remove {at}: {error}"))?;
        } else {
            match checkpoint.write() {
                Ok(()) => eprintln!("{at} is written: the same command with --resume continues it"),
                Err(error) => eprintln!("warning: cannot write {at}: {error}"),
            }
        }
        outcome
    }

    /// Opens the checkpoint at `path`: resumes it if asked to, or else moves an old one away.
    fn open(&self, path: &Path, settings: Settings, cancel: &Cancel) -> Result<Checkpoint> {
        let every = Duration::try_from_secs_f64(self.checkpoint_every)
            .map_err(|_| "--checkpoint-every must be a number of seconds, 0 or more")?;
        let at = path.display();
        let file = CheckpointFile::new(path, u64::MAX, |text| eprintln!("warning: {text}"))
            .map_err(|error| format!("{at}: {error}"))?;
        let checkpoint = Checkpoint::new(file, settings, every, cancel);
        if self.resume {
            let found = checkpoint.load().map_err(|error| {
                format!(
                    "cannot resume from {at}: {error}; use the options of that run, or leave out \
                     --resume to start from the beginning"
                )
            })?;
            if !found {
                eprintln!("note: there is no {at}: starting from the beginning");
            }
        } else if path.exists() {
            let old = path.with_file_name(OLD_FILE);
            let to = old.display();
            fs::rename(path, &old).map_err(|e| format!("cannot rename {at} to {to}: {e}"))?;
            eprintln!(
                "note: {at} is of an interrupted run, which --resume would have continued; it is \
                 kept as {to}"
            );
        }
        Ok(checkpoint)
    }
}

/// Parses the options of a command; without words they are its defaults.
pub fn parsed<A: clap::Args>(words: Vec<OsString>) -> A {
    #[derive(clap::Parser)]
    struct Command<A: clap::Args> {
        #[command(flatten)]
        args: A,
    }
    Command::<A>::parse_from([OsString::from("command")].into_iter().chain(words)).args
}

/// Lists everything that decides the numbers of a run: the command, the version of this program,
/// and the options that `args` serialises.
pub fn settings(command: &str, args: &impl Serialize) -> Result<Settings> {
    let mut settings = Settings::new(command).with("the version", env!("CARGO_PKG_VERSION"));
    let Value::Object(options) = serde_json::to_value(args)? else {
        return Err("the options of a command must have names".into());
    };
    for (name, value) in options {
        let name = format!("--{}", name.replace('_', "-"));
        settings = match value {
            Value::Null => settings,
            Value::String(text) => settings.with(name, text),
            other => settings.with(name, other),
        };
    }
    Ok(settings)
}

/// Runs `work` for all of `items` with a bar, each as a unit of the checkpoint under its name.
///
/// Returns the results that were complete when the run was cancelled: all, if it was not.
pub fn units<I: Copy, T: Serialize + DeserializeOwned>(
    checkpoint: &Checkpoint,
    prefix: impl Into<Cow<'static, str>>,
    items: &[I],
    name: impl Fn(I) -> String,
    work: impl Fn(I, &ProgressBar) -> Result<T>,
) -> Result<Vec<T>> {
    let bar = progress::bar(items.len() as u64).with_prefix(prefix);
    let mut all = Vec::new();
    for &item in items {
        if checkpoint.is_cancelled() {
            break;
        }
        let found = checkpoint.unit(name(item), |_| work(item, &bar))?;
        if checkpoint.is_cancelled() {
            break;
        }
        all.push(found);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(all)
}

/// Runs `work` with a checkpoint in memory, interrupts it after each number of writes in `stops`,
/// and returns the result of a last run to the end.
#[cfg(test)]
pub fn interrupted<T>(stops: &[usize], work: impl Fn(&Checkpoint) -> Result<T>) -> T {
    let mut file = mpf_testkit::StopAfter::default();
    for &writes in stops {
        file = file.with_limit(writes);
        let checkpoint = file.checkpoint();
        checkpoint.load().unwrap();
        // It may end with what there is, or with an error.
        let _ = work(&checkpoint);
        let is_cancelled = checkpoint.is_cancelled();
        assert!(is_cancelled, "interrupted in {writes} writes");
        checkpoint.write().unwrap();
    }
    file = file.with_limit(usize::MAX);
    let checkpoint = file.checkpoint();
    checkpoint.load().unwrap();
    work(&checkpoint).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(folder: &Path, resume: bool) -> RunArgs {
        RunArgs {
            output: OutputArgs {
                out: Some(folder.to_owned()),
            },
            resume,
            ..parsed(Vec::new())
        }
    }

    fn of(seed: u64, tap_lambda: Option<f64>) -> Settings {
        #[derive(Serialize)]
        struct Args {
            seed: u64,
            tap_lambda: Option<f64>,
        }
        settings("try", &Args { seed, tap_lambda }).unwrap()
    }

    /// Returns `value` from a unit, or the value of an earlier run; cancels afterwards if asked to.
    fn unit(args: &RunArgs, settings: Settings, value: u8, stop: bool) -> Result<u8> {
        let cancel = Cancel::new();
        args.run_with("try", settings, &cancel, |_, checkpoint| {
            let found = checkpoint.unit("a", |_| Ok::<_, mpf_core::Error>(value))?;
            if stop {
                cancel.cancel();
            }
            Ok(found)
        })
    }

    #[test]
    fn an_interrupted_run_is_resumed_and_its_checkpoint_removed_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let (resume, anew) = (args(folder.path(), true), args(folder.path(), false));
        assert_eq!(unit(&resume, of(1, None), 1, true).unwrap(), 1);
        assert!(folder.path().join(FILE).exists());
        assert_eq!(unit(&resume, of(1, None), 2, true).unwrap(), 1);
        assert_eq!(unit(&anew, of(1, None), 3, true).unwrap(), 3);
        // The earlier checkpoint was moved away and still works.
        fs::rename(folder.path().join(OLD_FILE), folder.path().join(FILE)).unwrap();
        assert_eq!(unit(&resume, of(1, None), 4, false).unwrap(), 1);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_failed_run_keeps_its_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let args = args(folder.path(), true);
        let failed = args.run_with("try", of(1, None), &Cancel::new(), |_, checkpoint| {
            checkpoint.unit("a", |_| Ok::<_, mpf_core::Error>(1u8))?;
            Err::<(), _>("the disk is full".into())
        });
        assert_eq!(failed.unwrap_err().to_string(), "the disk is full");
        assert_eq!(unit(&args, of(1, None), 2, false).unwrap(), 1);
    }

    #[test]
    fn other_settings_are_refused_with_the_difference() {
        let folder = tempfile::tempdir().unwrap();
        let args = args(folder.path(), true);
        unit(&args, of(1, None), 1, true).unwrap();
        let refused = unit(&args, of(2, Some(0.5)), 1, false).unwrap_err();
        let message = refused.to_string();
        assert!(message.contains("--seed was 1 and is 2"), "{message}");
        assert!(message.contains("--tap-lambda was not given and is 0.5"));
        assert!(message.contains("checkpoint.bin") && message.contains("leave out --resume"));
        fs::write(folder.path().join(FILE), b"something else").unwrap();
        assert!(unit(&args, of(1, None), 1, false).is_err());
    }

    #[test]
    fn a_bad_interval_is_refused() {
        for checkpoint_every in [-1.0, f64::NAN, f64::INFINITY] {
            let folder = tempfile::tempdir().unwrap();
            let args = RunArgs {
                checkpoint_every,
                ..args(folder.path(), false)
            };
            let message = unit(&args, of(1, None), 1, false).unwrap_err().to_string();
            assert!(message.contains("--checkpoint-every"), "{message}");
        }
    }
}
