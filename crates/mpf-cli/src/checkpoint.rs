//! Work that can be continued: `--checkpoint`, `--checkpoint-every`, `--resume`.
//!
//! A checkpoint holds the settings that the result depends on, the data's fingerprint among them,
//! and how far the work is, sealed by [`mpf_core::checkpoint`]. Every stage is kept as what its
//! next step needs, and a stage that is done as what its last step left: resuming goes through
//! all stages again, and those that are done end at once with the same bits.

use crate::console::Console;
use crate::failure::{FAILED, Failure, INTERRUPTED};
use crate::model::Model;
use crate::output;
use clap::Args;
use mpf_core::checkpoint::{open, seal};
use mpf_report::files;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Where unfinished work is kept.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Interruptions")]
pub struct CheckpointArgs {
    /// Keep the state of the work in this file, at an interval and on Ctrl-C or SIGTERM; it is
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
    /// Go on from the checkpoint, to the same bits as without an interruption; if there is none
    /// yet, start afresh
    #[arg(long, requires = "checkpoint")]
    resume: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok();
    seconds
        .and_then(|s| Duration::try_from_secs_f64(s).ok())
        .ok_or_else(|| "a number of seconds that is not negative".into())
}

impl CheckpointArgs {
    /// Refuses a file that cannot be written, or that would replace one of `others`.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn check(&self, others: &[&Path]) -> Result<(), Failure> {
        let Some(path) = &self.checkpoint else {
            return Ok(());
        };
        if others.contains(&path.as_path()) {
            return Err(Failure::input(format!(
                "--checkpoint {}: the file is used for something else",
                path.display()
            ))
            .hint("give the checkpoint a name of its own"));
        }
        output::check_writable(path)
    }
}

/// The settings that a result depends on, in the order in which differences are looked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings(Vec<Setting>);

/// An option with its value; `None` if it is not given, empty if it is a flag.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Setting {
    name: String,
    value: Option<String>,
}

impl Setting {
    fn in_words(&self) -> String {
        match self.value.as_deref() {
            None => format!("no {}", self.name),
            Some("") => self.name.clone(),
            Some(value) => format!("{} {value}", self.name),
        }
    }
}

impl Settings {
    /// Of a command of this program.
    pub fn new(command: &str) -> Self {
        Self(Vec::new())
            .with("the program", &Model::this_program())
            .with("the command", command)
    }

    /// With one more.
    pub fn with(mut self, name: &str, value: &(impl ToString + ?Sized)) -> Self {
        self.0.push(Setting {
            name: name.into(),
            value: Some(value.to_string()),
        });
        self
    }

    /// With one more that may not be given.
    pub fn with_optional(mut self, name: &str, value: Option<&impl ToString>) -> Self {
        self.0.push(Setting {
            name: name.into(),
            value: value.map(ToString::to_string),
        });
        self
    }

    /// With a flag.
    pub fn with_flag(self, name: &str, given: bool) -> Self {
        self.with_optional(name, given.then_some(&""))
    }

    /// The first difference: ours and theirs, in words.
    fn difference(&self, other: &Self) -> Option<(String, String)> {
        let missing = || "something else".to_owned();
        let n = self.0.len().max(other.0.len());
        let pairs = (0..n).map(|k| (self.0.get(k), other.0.get(k)));
        let mut different = pairs.filter(|(a, b)| a != b);
        different.next().map(|(a, b)| {
            let words = |s: Option<&Setting>| s.map_or_else(missing, Setting::in_words);
            (words(a), words(b))
        })
    }
}

/// What is sealed: the settings can be read whatever the work is.
#[derive(Serialize, Deserialize)]
struct Contents<'a> {
    settings: Cow<'a, Settings>,
    /// Sealed itself.
    work: Vec<u8>,
}

/// Keeps work of the kind `W`, if the user wants it.
pub struct Keeper<W> {
    file: Option<PathBuf>,
    every: Duration,
    settings: Settings,
    console: Console,
    state: Mutex<State<W>>,
}

struct State<W> {
    work: W,
    written: Instant,
    /// Whether the last attempt to write it failed.
    failing: bool,
}

impl<W: Default + Serialize + DeserializeOwned> Keeper<W> {
    /// Reads the checkpoint if there is one and it is wanted. `progress` says how far it is.
    ///
    /// # Errors
    /// A checkpoint of other settings or data, a damaged one, and one that nobody asked to
    /// continue.
    pub fn new(
        args: &CheckpointArgs,
        settings: Settings,
        console: Console,
        progress: impl FnOnce(&W) -> String,
    ) -> Result<Self, Failure> {
        let earlier = match &args.checkpoint {
            None => None,
            Some(path) => read::<W>(path, args.resume, &settings)?,
        };
        if let Some(path) = &args.checkpoint
            && args.resume
        {
            let path = path.display();
            console.note(&match &earlier {
                Some(work) => format!("resuming from {path}: {}", progress(work)),
                None => format!("note: there is no checkpoint {path} yet: starting afresh"),
            });
        }
        Ok(Self {
            file: args.checkpoint.clone(),
            every: args.checkpoint_every,
            settings,
            console,
            state: Mutex::new(State {
                work: earlier.unwrap_or_default(),
                written: Instant::now(),
                failing: false,
            }),
        })
    }

    /// Whether anything is kept at all.
    pub fn is_on(&self) -> bool {
        self.file.is_some()
    }

    fn state(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A part of the work, to go on with.
    pub fn get<T>(&self, part: impl FnOnce(&W) -> T) -> T {
        part(&self.state().work)
    }

    /// Changes the work in memory, and writes it if it is time.
    pub fn keep(&self, change: impl FnOnce(&mut W)) {
        if self.is_on() {
            let mut state = self.state();
            change(&mut state.work);
            self.write_if_due(&mut state);
        }
    }

    /// Changes the work in memory and writes it, but only if it is time: for states that are
    /// costly to take.
    pub fn keep_when_due(&self, change: impl FnOnce(&mut W)) {
        if self.is_on() {
            let mut state = self.state();
            if state.written.elapsed() >= self.every {
                change(&mut state.work);
                self.write_if_due(&mut state);
            }
        }
    }

    /// A checkpoint that cannot be written is no reason to give up the work: the one before is
    /// still there.
    fn write_if_due(&self, state: &mut State<W>) {
        if state.written.elapsed() < self.every {
            return;
        }
        let outcome = self.write(&state.work);
        state.written = Instant::now();
        if let Err(failure) = &outcome
            && !state.failing
        {
            self.console
                .warning(&format!("{failure}; the work goes on without"));
        }
        state.failing = outcome.is_err();
    }

    fn write(&self, work: &W) -> Result<(), Failure> {
        let Some(path) = &self.file else {
            return Ok(());
        };
        let contents = seal(work).and_then(|work| {
            seal(&Contents {
                settings: Cow::Borrowed(&self.settings),
                work,
            })
        });
        let contents = contents.map_err(|e| Failure::input(format!("{}: {e}", path.display())))?;
        files::write(path, &contents).map_err(|e| Failure::unwritten(path, &e))
    }

    /// After the work: removes the checkpoint if its result is written, and writes it if it was
    /// interrupted or its result could not be written.
    ///
    /// # Errors
    /// That of the work, saying how to continue it.
    pub fn end<T>(&self, outcome: Result<T, Failure>) -> Result<T, Failure> {
        let Some(path) = &self.file else {
            return outcome;
        };
        let failure = match outcome {
            Ok(done) => {
                match fs::remove_file(path) {
                    Err(error) if error.kind() != ErrorKind::NotFound => self.console.warning(
                        &format!("cannot remove the checkpoint {}: {error}", path.display()),
                    ),
                    _ => {}
                }
                return Ok(done);
            }
            Err(failure) => failure,
        };
        if ![INTERRUPTED, FAILED].contains(&failure.code) {
            return Err(failure);
        }
        if let Err(unwritten) = self.write(&self.state().work) {
            return Err(Failure {
                message: format!("{failure}, and {unwritten}"),
                hint: Some("an older checkpoint of that name is untouched".into()),
                code: FAILED,
            });
        }
        Err(Failure {
            message: match failure.code {
                INTERRUPTED => format!("interrupted: the work is kept in {}", path.display()),
                _ => format!("{failure}; the work is kept in {}", path.display()),
            },
            hint: Some(format!("continue with: {}", this_command_resumed())),
            code: failure.code,
        })
    }
}

/// The work that is kept in `path`; none if there is no such file.
fn read<W: DeserializeOwned>(
    path: &Path,
    wanted: bool,
    settings: &Settings,
) -> Result<Option<W>, Failure> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::unreadable(path, &error)),
    };
    if !wanted {
        let at = path.display();
        return Err(
            Failure::input(format!("{at} is already there: another run may need it"))
                .hint("--resume continues it; to start afresh, remove it or choose another name"),
        );
    }
    parse(path, &bytes, settings).map(Some)
}

/// The work of a run with these settings.
fn parse<W: DeserializeOwned>(
    path: &Path,
    bytes: &[u8],
    settings: &Settings,
) -> Result<W, Failure> {
    let at = path.display();
    let damaged = |error: mpf_core::Error| {
        Failure::input(format!("{at}: {error}")).hint("to start afresh, remove the file")
    };
    let contents: Contents<'_> = open(bytes).map_err(damaged)?;
    if let Some((ours, theirs)) = settings.difference(&contents.settings) {
        return Err(Failure::input(format!(
            "{at}: the checkpoint was made with {theirs}, this run has {ours}"
        ))
        .hint("continue it with the same data and settings, or choose another checkpoint"));
    }
    open(&contents.work).map_err(damaged)
}

/// What was typed, with `--resume`.
fn this_command_resumed() -> String {
    let mut words: Vec<String> = std::env::args_os()
        .map(|word| quoted(&word.to_string_lossy()))
        .collect();
    if !words.iter().any(|word| word == "--resume") {
        words.push("--resume".into());
    }
    words.join(" ")
}

/// As a shell needs it.
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

    const QUIET: Console = Console {
        json: false,
        quiet: true,
    };

    fn args(path: &Path, resume: bool) -> CheckpointArgs {
        CheckpointArgs {
            checkpoint: Some(path.into()),
            checkpoint_every: Duration::ZERO,
            resume,
        }
    }

    fn settings(l1: f64, nodewise: bool) -> Settings {
        Settings::new("fit")
            .with("--l1", &l1)
            .with_flag("--nodewise", nodewise)
    }

    fn keeper(path: &Path, resume: bool, settings: Settings) -> Result<Keeper<Vec<f64>>, Failure> {
        Keeper::new(&args(path, resume), settings, QUIET, |_| String::new())
    }

    #[test]
    fn work_is_kept_until_it_is_done() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ckpt");
        let first = keeper(&path, false, settings(0.1, false)).unwrap();
        first.keep(|work| work.push(0.1));
        let again = keeper(&path, true, settings(0.1, false)).unwrap();
        assert_eq!(again.get(Clone::clone), [0.1]);
        assert_eq!(again.end(Ok(0)), Ok(0));
        assert!(!path.exists());
        // Nothing there: a fresh start.
        let fresh = keeper(&path, true, settings(0.1, false)).unwrap();
        assert!(fresh.get(Vec::is_empty));
        let failure = fresh.end::<u8>(Err(Failure::interrupted())).unwrap_err();
        assert_eq!(failure.code, INTERRUPTED);
        assert!(failure.message.contains("a.ckpt"), "{failure}");
        assert!(failure.hint.unwrap().ends_with("--resume"));
        assert!(path.exists());
        let failure = keeper(&path, false, settings(0.1, false)).err().unwrap();
        assert!(failure.message.contains("already there"), "{failure}");
    }

    #[test]
    fn differences_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ckpt");
        let first = keeper(&path, false, settings(0.1, false)).unwrap();
        first.keep(|work| work.push(0.1));
        let said = |settings| keeper(&path, true, settings).err().unwrap().message;
        let message = said(settings(0.2, false));
        let expected = "the checkpoint was made with --l1 0.1, this run has --l1 0.2";
        assert!(message.ends_with(expected), "{message}");
        let message = said(settings(0.1, true));
        let expected = "made with no --nodewise, this run has --nodewise";
        assert!(message.ends_with(expected), "{message}");
        let message = said(Settings::new("sample"));
        assert!(message.contains(" fit, this run has "), "{message}");
    }

    #[test]
    fn every_change_of_a_byte_and_every_truncation_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ckpt");
        let first = keeper(&path, false, settings(0.1, false)).unwrap();
        first.keep(|work| work.extend([0.1, f64::NAN]));
        let whole = fs::read(&path).unwrap();
        let refused = |bytes: &[u8]| {
            let work = parse::<Vec<f64>>(&path, bytes, &settings(0.1, false));
            work.is_err_and(|f| f.code == crate::failure::WRONG_INPUT)
        };
        for at in 0..whole.len() {
            for change in 1..=255 {
                let mut damaged = whole.clone();
                damaged[at] ^= change;
                assert!(refused(&damaged), "byte {at} ^ {change}");
            }
            assert!(refused(&whole[..at]), "cut at {at}");
        }
        assert!(!refused(&whole));
    }

    #[test]
    fn words_are_quoted_where_a_shell_would_split_them() {
        assert_eq!(quoted("--l1"), "--l1");
        assert_eq!(quoted("my data.csv"), "'my data.csv'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
