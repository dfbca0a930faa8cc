//! What a long command has done so far, in one file, so that it goes on when it was killed.
//!
//! A run is a sequence of named units of work, each with a result. `checkpoint.bin`, in the folder
//! of the command, holds the settings of the run, the results of the units that are finished, and
//! where the unit under way is, if it can say so. The file is replaced whole: when a unit is
//! finished, at an interval while one is under way, and on Ctrl-C and SIGTERM. It is removed when
//! the command is done. Units must not depend on each other but through their results, and on
//! nothing that is not in the settings; then a run that goes on ends with the same bits.

use crate::Result;
use crate::output::Output;
use mpf_core::{Cancel, checkpoint};
use mpf_report::files;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The file's name.
pub const FILE: &str = "checkpoint.bin";
/// What becomes of it when a run starts from the beginning.
const OLD_FILE: &str = "checkpoint-old.bin";

/// Options of every command that keeps a journal.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Folder for the results, and for the checkpoint of a run that is stopped
    /// [default: one of this command's own in target/reproduce]
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// Go on from the checkpoint that a run with the same options left in its folder.
    #[arg(long)]
    pub resume: bool,
    /// Seconds between checkpoints of what is under way.
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    pub checkpoint_every: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            out: None,
            resume: false,
            checkpoint_every: 30.0,
        }
    }
}

impl Options {
    /// The folder of `command`, and its journal: of a run that `args` decides.
    pub fn open(
        &self,
        command: &str,
        args: &impl Serialize,
        cancel: &Cancel,
    ) -> Result<(Output, Journal)> {
        self.open_with(command, settings(command, args)?, cancel)
    }

    /// The same, for a run that more than its options decides.
    pub fn open_with(
        &self,
        command: &str,
        settings: Settings,
        cancel: &Cancel,
    ) -> Result<(Output, Journal)> {
        let output = Output::new(self.out.as_deref(), command)?;
        let journal = Journal::open(output.folder(), self, settings, cancel)?;
        Ok((output, journal))
    }
}

/// What decides the numbers of a run: names and values.
pub type Settings = Vec<(String, String)>;

/// The settings of `command`: the options that `args` writes, and the version of this program.
pub fn settings(command: &str, args: &impl Serialize) -> Result<Settings> {
    let mut settings = vec![
        ("command".to_owned(), command.to_owned()),
        ("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
    ];
    let Value::Object(options) = serde_json::to_value(args)? else {
        return Err("the options of a command must have names".into());
    };
    settings.extend(options.into_iter().map(|(name, value)| {
        let value = match value {
            Value::String(text) => text,
            Value::Null => "not given".to_owned(),
            other => other.to_string(),
        };
        (format!("--{}", name.replace('_', "-")), value)
    }));
    Ok(settings)
}

/// What is in the file.
#[derive(Serialize, Deserialize)]
struct Contents {
    settings: Settings,
    /// Names and sealed results, in the order in which they were found.
    finished: Vec<(String, Vec<u8>)>,
    /// The unit under way and its sealed state.
    under_way: Option<(String, Vec<u8>)>,
}

/// The state of a unit, to be sealed when it is written.
type Sealed = Box<dyn Fn() -> mpf_core::Result<Vec<u8>> + Send>;

/// The journal of one run.
pub struct Journal {
    path: PathBuf,
    contents: Contents,
    /// The last state that the unit under way gave, not yet in `contents`.
    latest: Option<(String, Sealed)>,
    every: Duration,
    written: Instant,
    cancel: Cancel,
    /// Whether a failure to write has been told.
    complained: bool,
    /// Stops the run after so many states and results.
    #[cfg(test)]
    pub stop_after: Option<usize>,
}

impl Journal {
    /// The journal of a run with `settings` in `folder`: that of the run before, if it is to be
    /// resumed, or an empty one.
    pub fn open(
        folder: &Path,
        options: &Options,
        settings: Settings,
        cancel: &Cancel,
    ) -> Result<Self> {
        let every = Duration::try_from_secs_f64(options.checkpoint_every)
            .map_err(|_| "--checkpoint-every must be a number of seconds, 0 or more")?;
        let path = folder.join(FILE);
        let contents = match (read(&path)?, options.resume) {
            (Some(bytes), true) => continued(&path, &bytes, &settings)?,
            (found, resume) => {
                if resume {
                    eprintln!("note: there is no {}: starting anew", path.display());
                }
                if found.is_some() {
                    let old = folder.join(OLD_FILE);
                    move_away(&path, &old)?;
                    eprintln!(
                        "note: {} is of a run that was stopped, from which --resume would have \
                         gone on; it is kept as {}",
                        path.display(),
                        old.display()
                    );
                }
                Contents {
                    settings,
                    finished: Vec::new(),
                    under_way: None,
                }
            }
        };
        Ok(Self {
            path,
            contents,
            latest: None,
            every,
            written: Instant::now(),
            cancel: cancel.clone(),
            complained: false,
            #[cfg(test)]
            stop_after: None,
        })
    }

    /// Whether a unit is finished.
    pub fn has(&self, name: &str) -> bool {
        self.contents.finished.iter().any(|(unit, _)| unit == name)
    }

    /// The result of a unit that is finished.
    fn finished<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let mut units = self.contents.finished.iter();
        match units.find(|(unit, _)| unit == name) {
            None => Ok(None),
            Some((_, bytes)) => Ok(Some(self.unseal(bytes)?)),
        }
    }

    /// The result of the unit `name`: read back, or that of `work`, which is then written down. A
    /// unit during which a stop was asked for does not count as finished.
    pub fn unit<T: Serialize + DeserializeOwned>(
        &mut self,
        name: &str,
        work: impl FnOnce(&mut Unit<'_>) -> Result<T>,
    ) -> Result<T> {
        if let Some(found) = self.finished(name)? {
            return Ok(found);
        }
        let found = work(&mut Unit {
            journal: self,
            name,
        });
        if self.cancel.is_cancelled() {
            self.write()?;
            return found;
        }
        let found = found?;
        let sealed = checkpoint::seal(&found)?;
        self.contents.finished.push((name.to_owned(), sealed));
        self.contents.under_way = None;
        self.latest = None;
        self.write_or_complain();
        self.count();
        Ok(found)
    }

    /// Removes the file when the run is at its end; says how to go on when it was stopped.
    pub fn finish(self) -> Result {
        if self.cancel.is_cancelled() {
            if self.path.exists() {
                eprintln!(
                    "{} is written: the same command with --resume goes on from there",
                    self.path.display()
                );
            }
            return Ok(());
        }
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(format!("cannot remove {}: {error}", self.path.display()).into())
            }
            _ => Ok(()),
        }
    }

    fn unseal<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T> {
        checkpoint::open(bytes).map_err(|error| unusable(&self.path, &error).into())
    }

    fn write(&mut self) -> Result {
        if let Some((name, seal)) = self.latest.take() {
            self.contents.under_way = Some((name, seal()?));
        }
        self.written = Instant::now();
        files::write(&self.path, &checkpoint::seal(&self.contents)?)
            .map_err(|error| format!("cannot write {}: {error}", self.path.display()).into())
    }

    /// A run that cannot be resumed is better than none.
    fn write_or_complain(&mut self) {
        if let Err(error) = self.write()
            && !self.complained
        {
            self.complained = true;
            eprintln!("warning: {error}; the run goes on, but what it does is not safe");
        }
    }

    #[cfg(not(test))]
    fn count(&mut self) {}

    #[cfg(test)]
    fn count(&mut self) {
        if let Some(left) = &mut self.stop_after {
            *left -= 1;
            if *left == 0 {
                self.stop_after = None;
                self.cancel.cancel();
            }
        }
    }
}

/// A unit of work under way.
pub struct Unit<'a> {
    journal: &'a mut Journal,
    name: &'a str,
}

impl Unit<'_> {
    /// Where an earlier run left this unit.
    pub fn left_off<S: DeserializeOwned>(&self) -> Result<Option<S>> {
        match &self.journal.contents.under_way {
            Some((name, bytes)) if name == self.name => Ok(Some(self.journal.unseal(bytes)?)),
            _ => Ok(None),
        }
    }

    /// Keeps `state` as where this unit is, and writes it when it is time. What was cut short
    /// after a stop was asked for is not kept.
    pub fn keep<S: Serialize + Send + 'static>(&mut self, state: S) {
        let journal = &mut *self.journal;
        if journal.cancel.is_cancelled() {
            return;
        }
        let seal = move || checkpoint::seal(&state);
        journal.latest = Some((self.name.to_owned(), Box::new(seal)));
        if journal.written.elapsed() >= journal.every {
            journal.write_or_complain();
        }
        journal.count();
    }
}

fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot read {}: {error}", path.display()).into()),
    }
}

fn move_away(from: &Path, to: &Path) -> Result {
    fs::rename(from, to).map_err(|error| {
        format!(
            "cannot rename {} to {}: {error}",
            from.display(),
            to.display()
        )
        .into()
    })
}

fn unusable(path: &Path, problem: &dyn std::fmt::Display) -> String {
    format!(
        "cannot go on from {}: {problem}; leave out --resume to start from the beginning",
        path.display()
    )
}

/// The contents of a file, if it is whole and of a run with these settings.
fn continued(path: &Path, bytes: &[u8], settings: &Settings) -> Result<Contents> {
    let contents: Contents =
        checkpoint::open(bytes).map_err(|error| unusable(path, &error.to_string()))?;
    let theirs = &contents.settings;
    if theirs != settings {
        let of = |list: &Settings, name: &str| {
            let found = list.iter().find(|(key, _)| key == name);
            found.map_or("not there".to_owned(), |(_, value)| value.clone())
        };
        let only_theirs = theirs.iter().filter(|(key, _)| {
            let here = settings.iter().any(|(ours, _)| ours == key);
            !here
        });
        let differences: Vec<String> = settings
            .iter()
            .chain(only_theirs)
            .map(|(name, _)| (name, of(theirs, name), of(settings, name)))
            .filter(|(_, there, here)| there != here)
            .map(|(name, there, here)| format!("{name} was {there} and is {here}"))
            .collect();
        let differences = format!("{} (use the options of that run)", differences.join(", "));
        return Err(unusable(path, &differences).into());
    }
    Ok(contents)
}

/// `work` with the journal of `folder`, from where it was left, stopped after so many entries.
#[cfg(test)]
pub fn in_folder<T>(
    folder: &Path,
    settings: Settings,
    stop: Option<usize>,
    work: impl FnOnce(&mut Journal, &Cancel) -> Result<T>,
) -> Result<T> {
    let options = Options {
        resume: true,
        ..Default::default()
    };
    let cancel = Cancel::new();
    let mut journal = Journal::open(folder, &options, settings, &cancel)?;
    journal.stop_after = stop;
    let found = work(&mut journal, &cancel)?;
    assert!(journal.stop_after.is_none(), "it was to be stopped");
    journal.finish()?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(seed: u64) -> Settings {
        #[derive(Serialize)]
        struct Args {
            seed: u64,
            tap_lambda: Option<f64>,
        }
        let args = Args {
            seed,
            tap_lambda: None,
        };
        settings("try", &args).unwrap()
    }

    fn open(folder: &Path, resume: bool, cancel: &Cancel) -> Result<Journal> {
        let options = Options {
            resume,
            checkpoint_every: 0.0,
            ..Default::default()
        };
        Journal::open(folder, &options, of(1), cancel)
    }

    /// Three units; the second counts to four and can be left in between.
    fn run(journal: &mut Journal, worked: &mut Vec<String>) -> Result<Vec<f64>> {
        let mut found = Vec::new();
        for name in ["a", "b", "c"] {
            let result = journal.unit(name, |unit| {
                let (mut n, mut sum) = unit.left_off()?.unwrap_or((0u32, 0.1f64));
                while n < 4 && !unit.journal.cancel.is_cancelled() {
                    n += 1;
                    sum = 3.0 * sum + 0.7;
                    worked.push(format!("{name}{n}"));
                    unit.keep((n, sum));
                }
                Ok(sum)
            })?;
            if journal.cancel.is_cancelled() {
                break;
            }
            found.push(result);
        }
        Ok(found)
    }

    #[test]
    fn a_run_goes_on_where_it_was_stopped() {
        let whole = tempfile::tempdir().unwrap();
        let mut all = Vec::new();
        let mut journal = open(whole.path(), false, &Cancel::new()).unwrap();
        let expected = run(&mut journal, &mut all).unwrap();
        assert!(whole.path().join(FILE).exists());
        journal.finish().unwrap();
        assert_eq!(fs::read_dir(whole.path()).unwrap().count(), 0);
        // A unit is four states and a result.
        for stop in 1..15 {
            let folder = tempfile::tempdir().unwrap();
            let cancel = Cancel::new();
            let mut worked = Vec::new();
            let mut journal = open(folder.path(), false, &cancel).unwrap();
            journal.stop_after = Some(stop);
            run(&mut journal, &mut worked).unwrap();
            assert!(cancel.is_cancelled());
            journal.finish().unwrap();
            let mut journal = open(folder.path(), true, &Cancel::new()).unwrap();
            assert_eq!(run(&mut journal, &mut worked).unwrap(), expected);
            assert_eq!(worked, all, "nothing is done twice or left out");
        }
    }

    #[test]
    fn what_is_cut_short_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let cancel = Cancel::new();
        let mut journal = open(folder.path(), false, &cancel).unwrap();
        let found = journal.unit("a", |unit| {
            unit.keep(1u8);
            cancel.cancel();
            unit.keep(2u8);
            Ok(3u8)
        });
        assert_eq!(found.unwrap(), 3);
        let mut journal = open(folder.path(), true, &Cancel::new()).unwrap();
        let left = journal.unit("a", |unit| Ok(unit.left_off::<u8>()?.unwrap()));
        assert_eq!(left.unwrap(), 1);
    }

    #[test]
    fn other_settings_are_refused_with_the_difference() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = open(folder.path(), false, &Cancel::new()).unwrap();
        journal.unit("a", |_| Ok(1u8)).unwrap();
        let mut other = of(2);
        other[1].1 = "9.9.9".to_owned();
        let options = Options {
            resume: true,
            ..Default::default()
        };
        let refused = Journal::open(folder.path(), &options, other, &Cancel::new());
        let message = refused.err().unwrap().to_string();
        let version = env!("CARGO_PKG_VERSION");
        assert!(message.contains("--seed was 1 and is 2"), "{message}");
        assert!(message.contains(&format!("version was {version} and is 9.9.9")));
        assert!(!message.contains("tap-lambda") && message.contains("leave out --resume"));
        let mut fewer = of(1);
        fewer.retain(|(name, _)| name != "--tap-lambda");
        let refused = Journal::open(folder.path(), &options, fewer, &Cancel::new());
        let message = refused.err().unwrap().to_string();
        assert!(message.contains("--tap-lambda was not given and is not there"));
    }

    #[test]
    fn every_damage_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = open(folder.path(), false, &Cancel::new()).unwrap();
        journal.unit("a", |_| Ok(1u8)).unwrap();
        let path = folder.path().join(FILE);
        let whole = fs::read(&path).unwrap();
        let refused = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            let error = open(folder.path(), true, &Cancel::new()).err().unwrap();
            assert!(error.to_string().contains("checkpoint.bin"), "{error}");
        };
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x20;
            refused(&damaged);
            refused(&whole[..at]);
        }
        fs::write(&path, &whole).unwrap();
        let journal = open(folder.path(), true, &Cancel::new()).unwrap();
        assert_eq!(journal.finished("a").unwrap(), Some(1u8));
        // A result of another type.
        let error = journal.finished::<(f64, f64)>("a").err().unwrap();
        assert!(error.to_string().contains("leave out --resume"), "{error}");
    }

    #[test]
    fn without_resume_an_old_checkpoint_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = open(folder.path(), false, &Cancel::new()).unwrap();
        journal.unit("a", |_| Ok(1u8)).unwrap();
        let mut again = open(folder.path(), false, &Cancel::new()).unwrap();
        assert_eq!(again.unit("a", |_| Ok(2u8)).unwrap(), 2);
        again.finish().unwrap();
        let old = folder.path().join(OLD_FILE);
        fs::rename(old, folder.path().join(FILE)).unwrap();
        let kept = open(folder.path(), true, &Cancel::new()).unwrap();
        assert_eq!(kept.finished("a").unwrap(), Some(1u8));
    }

    #[test]
    fn a_bad_interval_is_refused() {
        for checkpoint_every in [-1.0, f64::NAN, f64::INFINITY] {
            let options = Options {
                checkpoint_every,
                ..Default::default()
            };
            let folder = std::env::temp_dir();
            let refused = Journal::open(&folder, &options, of(1), &Cancel::new());
            let message = refused.err().unwrap().to_string();
            assert!(message.contains("--checkpoint-every"), "{message}");
        }
    }
}
