//! Interrupts and resumes work: `--checkpoint`, `--checkpoint-every`, `--resume`.

use crate::console::Console;
use crate::failure::{FAILED, Failure, INTERRUPTED};
use crate::memory::Room;
use crate::model::Model;
use crate::output::Output;
use clap::Args;
use mpf_core::{Cancel, Checkpoint, Settings, WeakCheckpoint};
use mpf_ising::internal::Vectors;
use mpf_report::{CheckpointFile, files};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Options of commands whose work can be resumed.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Interruptions")]
pub struct CheckpointArgs {
    /// Keep unfinished work in this file: it is written at intervals and on Ctrl-C or SIGTERM, and
    /// removed when the result is written
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// Seconds between two checkpoints
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "60",
        value_parser = seconds,
        requires = "checkpoint"
    )]
    checkpoint_every: Duration,
    /// Continue from the checkpoint, to the same bits as without an interruption; start afresh if
    /// there is none yet
    #[arg(long, requires = "checkpoint")]
    resume: bool,
}

/// The entry of the vector instructions that computed the others.
const VECTORS: &str = ".vectors";

/// The checkpoint of the command that this program runs.
enum UnderWay {
    /// Nothing is kept so far.
    Nothing,
    /// The work is kept here.
    Kept(CheckpointArgs, WeakCheckpoint),
    /// The command is ending.
    Ended,
}

static UNDER_WAY: Mutex<UnderWay> = Mutex::new(UnderWay::Nothing);

fn under_way() -> MutexGuard<'static, UnderWay> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the program after a signal, in the middle of a step that did not hear it: writes the
/// checkpoint as the last step left it. Files appear whole or not at all, so no moment is wrong, but
/// a file that is just being written is waited for.
pub fn give_up() {
    /// How often a file that is being written is looked for.
    const PATIENCE: Duration = Duration::from_millis(50);
    while files::is_writing() {
        std::thread::sleep(PATIENCE);
    }
    let state = std::mem::replace(&mut *under_way(), UnderWay::Ended);
    let failure = match state {
        UnderWay::Kept(args, checkpoint) if checkpoint.upgrade().is_on() => {
            args.keep(&checkpoint.upgrade(), Failure::interrupted())
        }
        UnderWay::Nothing | UnderWay::Kept(..) => Failure::interrupted(),
        UnderWay::Ended => return,
    };
    Console::failure(&failure);
    std::process::exit(failure.code.into());
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok();
    seconds
        .and_then(|s| Duration::try_from_secs_f64(s).ok())
        .ok_or_else(|| "a number of seconds that is not negative".into())
}

impl CheckpointArgs {
    /// Returns whether unfinished work is to be kept.
    pub fn is_given(&self) -> bool {
        self.checkpoint.is_some()
    }

    /// Returns the seconds until unfinished work is written.
    pub fn seconds(&self) -> f64 {
        self.checkpoint_every.as_secs_f64()
    }

    /// Returns the file, as one of the outputs of the command.
    pub fn output(&self) -> Option<Output<'_>> {
        let path = self.checkpoint.as_deref();
        path.map(Output::Checkpoint)
    }

    /// Opens the checkpoint of a run with these settings, and reads it if it is to be resumed.
    ///
    /// # Errors
    /// A checkpoint of other settings or data, a damaged one, one that another program works with,
    /// and an existing one without `--resume`.
    pub fn open(
        &self,
        settings: impl FnOnce() -> Settings,
        console: Console,
        cancel: &Cancel,
    ) -> Result<Checkpoint, Failure> {
        let Some(path) = &self.checkpoint else {
            return Ok(Checkpoint::default());
        };
        let at = path.display();
        let file = CheckpointFile::new(path, Room::new(None).bytes, move |text| {
            console.alarm(text);
        });
        let file = file.map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => Failure::input(format!("{at}: {error}"))
                .hint("wait until it has ended, or choose another name"),
            _ => Failure::unwritten(path, &error),
        })?;
        if !self.resume && path.exists() {
            let why = format!("{at} is already there: another run may need it");
            return Err(Failure::input(why)
                .hint("--resume continues it; to start afresh, remove it or choose another name"));
        }
        let checkpoint = Checkpoint::new(file, settings(), self.checkpoint_every, cancel);
        if self.resume {
            let found = checkpoint.load().map_err(|error| {
                Failure::input(format!("{at}: {error}")).hint(
                    "continue it with the same data and settings; to start afresh, remove the file",
                )
            })?;
            console.note(&if found {
                format!("resuming from {at}: {}", checkpoint.progress())
            } else {
                format!("note: there is no checkpoint {at} yet: starting afresh")
            });
        }
        let entry = checkpoint.entry(VECTORS);
        if let Ok(Some(earlier)) = entry.resume::<String>()
            && earlier != Vectors::default().to_string()
        {
            console.warning(&format!(
                "{at} was computed with {earlier}, and this machine has {}: the last digits of the \
                 result may differ from those of a run on one machine",
                Vectors::default()
            ));
        }
        entry.note(Vectors::default().to_string());
        *under_way() = UnderWay::Kept(self.clone(), checkpoint.downgrade());
        Ok(checkpoint)
    }

    /// Ends the work: removes the checkpoint if the result is written, and writes it if the work was
    /// interrupted or its result could not be written.
    ///
    /// # Errors
    /// That of the work, saying how to continue it.
    pub fn end<T>(
        &self,
        checkpoint: &Checkpoint,
        console: Console,
        outcome: Result<T, Failure>,
    ) -> Result<T, Failure> {
        let Some(path) = &self.checkpoint else {
            return outcome;
        };
        *under_way() = UnderWay::Ended;
        let at = path.display();
        match outcome {
            Ok(done) => {
                if let Err(error) = checkpoint.remove() {
                    console.alarm(&format!("cannot remove the checkpoint {at}: {error}"));
                }
                Ok(done)
            }
            // Of wrong input there is nothing to keep.
            Err(failure) if [INTERRUPTED, FAILED].contains(&failure.code) => {
                Err(self.keep(checkpoint, failure))
            }
            failed => failed,
        }
    }

    /// Writes the checkpoint of work that ended with `failure`; returns the failure to report.
    fn keep(&self, checkpoint: &Checkpoint, failure: Failure) -> Failure {
        let Some(path) = &self.checkpoint else {
            return failure;
        };
        if let Err(error) = checkpoint.write() {
            let unwritten = Failure::unwritten(path, &error);
            return Failure {
                message: format!("{failure}, and {unwritten}"),
                hint: Some("an older checkpoint of that name is untouched".into()),
                code: FAILED,
            };
        }
        let at = path.display();
        Failure {
            message: match failure.code {
                INTERRUPTED => format!("interrupted: the work is kept in {at}"),
                _ => format!("{failure}; the work is kept in {at}"),
            },
            hint: Some(format!("continue with: {}", this_command_resumed())),
            code: failure.code,
        }
    }
}

/// Starts the settings of a command of this program.
pub fn settings(command: &str) -> Settings {
    Settings::new(command).with("the program", Model::this_program())
}

/// Returns the command line of this run, with `--resume`.
fn this_command_resumed() -> String {
    let mut words: Vec<String> = std::env::args_os()
        .map(|word| quoted(&word.to_string_lossy()))
        .collect();
    if !words.iter().any(|word| word == "--resume") {
        words.push("--resume".into());
    }
    words.join(" ")
}

/// Quotes a word for a shell, if it needs that.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=,:+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const QUIET: Console = Console {
        json: false,
        quiet: true,
        verbose: false,
        is_taken: false,
    };

    fn open(path: &Path, resume: bool, l1: f64) -> Result<(CheckpointArgs, Checkpoint), Failure> {
        let args = CheckpointArgs {
            checkpoint: Some(path.into()),
            checkpoint_every: Duration::ZERO,
            resume,
        };
        let settings = settings("fit").with("--l1", l1);
        let checkpoint = args.open(|| settings, QUIET, &Cancel::new())?;
        Ok((args, checkpoint))
    }

    #[test]
    fn work_is_kept_until_it_is_done() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ckpt");
        let (_, first) = open(&path, false, 0.1).unwrap();
        first.offer(|| vec![0.1]);
        let failure = open(&path, true, 0.1).err().unwrap();
        assert!(failure.message.contains("is working with it"), "{failure}");
        drop(first);
        let (args, again) = open(&path, true, 0.1).unwrap();
        assert_eq!(again.resume().unwrap(), Some(vec![0.1]));
        assert_eq!(args.end(&again, QUIET, Ok(0)), Ok(0));
        assert!(!path.exists());
        drop(again);
        // Nothing there: a fresh start.
        let (args, fresh) = open(&path, true, 0.1).unwrap();
        assert_eq!(fresh.resume::<Vec<f64>>().unwrap(), None);
        let failure = args.end::<u8>(&fresh, QUIET, Err(Failure::interrupted()));
        let failure = failure.unwrap_err();
        assert_eq!(failure.code, INTERRUPTED);
        assert!(failure.message.contains("a.ckpt"), "{failure}");
        assert!(failure.hint.unwrap().ends_with("--resume"));
        assert!(path.exists());
        drop(fresh);
        let failure = open(&path, false, 0.1).err().unwrap();
        assert!(failure.message.contains("already there"), "{failure}");
        let failure = open(&path, true, 0.2).err().unwrap();
        assert!(
            failure.message.ends_with("--l1 was 0.1 and is 0.2"),
            "{failure}"
        );
        std::fs::write(&path, b"something else").unwrap();
        let failure = open(&path, true, 0.1).err().unwrap();
        assert_eq!(failure.code, crate::failure::WRONG_INPUT);
    }

    #[test]
    fn another_machine_may_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ckpt");
        let (_, first) = open(&path, false, 0.1).unwrap();
        first.entry(VECTORS).note("other".to_owned());
        first.offer(|| vec![0.1]);
        drop(first);
        let (_, again) = open(&path, true, 0.1).unwrap();
        assert_eq!(again.progress(), " under way");
        let kept = again.entry(VECTORS).resume::<String>().unwrap();
        assert_eq!(
            kept.as_deref(),
            Some(Vectors::default().to_string().as_str())
        );
    }

    #[test]
    fn words_are_quoted_where_a_shell_would_split_them() {
        assert_eq!(quoted("--l1"), "--l1");
        assert_eq!(quoted("my data.csv"), "'my data.csv'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
