//! Stops and resumes every long computation, to the same bits, by one mechanism.
//!
//! A [`Checkpoint`] is a handle to one entry of one file. A loop that takes one does three things:
//! it asks for the state that an earlier run left ([`Checkpoint::resume`]), offers its state
//! between two steps ([`Checkpoint::offer`]), and leaves its last state when it ends, finished or
//! not ([`Checkpoint::note`]). Work that has a result rather than a state is a
//! [`Checkpoint::unit`]. A program opens the file once, with the [`Settings`] that its result
//! depends on; data, options and checksum are checked there and nowhere else. Entries that pass
//! are trusted: a forged one may give wrong numbers, but no panic.
//!
//! ```
//! use mpf_core::{Cancel, Checkpoint, CheckpointStore, Settings};
//! use std::sync::{Arc, Mutex};
//! use std::time::Duration;
//!
//! /// Keeps the file in memory.
//! #[derive(Clone, Default)]
//! struct Memory(Arc<Mutex<Option<Vec<u8>>>>);
//!
//! impl CheckpointStore for Memory {
//!     fn read(&self) -> std::io::Result<Option<Vec<u8>>> {
//!         Ok(self.0.lock().unwrap().clone())
//!     }
//!     fn write(&self, bytes: &[u8]) -> std::io::Result<()> {
//!         *self.0.lock().unwrap() = Some(bytes.to_vec());
//!         Ok(())
//!     }
//!     fn remove(&self) -> std::io::Result<()> {
//!         *self.0.lock().unwrap() = None;
//!         Ok(())
//!     }
//! }
//!
//! fn add_up(checkpoint: &Checkpoint, steps: u64) -> mpf_core::Result<u64> {
//!     let (mut step, mut sum) = checkpoint.resume()?.unwrap_or((0, 0));
//!     while step < steps {
//!         step += 1;
//!         sum += step;
//!         checkpoint.offer(|| (step, sum));
//!     }
//!     Ok(sum)
//! }
//!
//! let (file, settings) = (Memory::default(), Settings::new("add up").with("--seed", 1));
//! let open = || Checkpoint::new(file.clone(), settings.clone(), Duration::ZERO, &Cancel::new());
//! add_up(&open(), 3)?;
//! let second = open();
//! assert!(second.load()?);
//! assert_eq!(add_up(&second, 5)?, 15); // two more steps
//! # Ok::<(), mpf_core::Error>(())
//! ```

mod seal;
#[cfg(test)]
mod tests;

use crate::Result;
use crate::cancel::Cancel;
use crate::error::Error;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

pub(crate) use seal::{decode, encode};

/// Stores one checkpoint file, which is replaced as a whole.
pub trait CheckpointStore: Send + Sync {
    /// Returns the bytes of the file, or `None` if it does not exist.
    ///
    /// # Errors
    /// Those of the file system.
    fn read(&self) -> io::Result<Option<Vec<u8>>>;

    /// Replaces the file. After an error or a crash the old file must still be there.
    ///
    /// # Errors
    /// Those of the file system.
    fn write(&self, bytes: &[u8]) -> io::Result<()>;

    /// Removes the file, if it exists.
    ///
    /// # Errors
    /// Those of the file system.
    fn remove(&self) -> io::Result<()>;

    /// Reports a failed write while the work continues: called at the first failure after a
    /// success. Ignored by default.
    fn failed(&self, error: &io::Error) {
        let _ = error;
    }
}

/// Everything that the result of a run depends on, as names and values: options, and fingerprints of
/// the data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings(Vec<(String, String)>);

impl Settings {
    /// Starts the list with the command.
    pub fn new(command: impl fmt::Display) -> Self {
        Self(Vec::new()).with("the command", command)
    }

    /// Adds a setting.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl fmt::Display) -> Self {
        self.0.push((name.into(), value.to_string()));
        self
    }

    /// Returns the names and values.
    pub fn entries(&self) -> &[(String, String)] {
        &self.0
    }

    /// Lists the differences, "NAME was VALUE and is VALUE", from `earlier` to `self`.
    fn differences(&self, earlier: &Self) -> Vec<String> {
        let find = |list: &Self, name: &str| {
            let found = list.0.iter().find(|(key, _)| key == name);
            found.map_or("not given".to_owned(), |(_, value)| value.clone())
        };
        let only_earlier = earlier
            .0
            .iter()
            .filter(|(name, _)| self.0.iter().all(|(ours, _)| ours != name));
        self.0
            .iter()
            .chain(only_earlier)
            .map(|(name, _)| (name, find(earlier, name), find(self, name)))
            .filter(|(_, was, is)| was != is)
            .map(|(name, was, is)| format!("{name} was {was} and is {is}"))
            .collect()
    }
}

/// The contents of the file behind its [`Settings`].
#[derive(Default, Serialize, Deserialize)]
struct Contents {
    /// Encoded results of units.
    finished: BTreeMap<String, Vec<u8>>,
    /// Encoded states of loops.
    under_way: BTreeMap<String, Vec<u8>>,
}

/// Encodes a state when it is written, not before.
type Unencoded = Box<dyn Fn() -> Result<Vec<u8>> + Send>;

struct Entries {
    contents: Contents,
    /// States of loops that are not in the contents yet, and in their place.
    live: BTreeMap<String, Unencoded>,
    written: Instant,
    /// Whether the last write failed.
    failing: bool,
}

struct File {
    store: Box<dyn CheckpointStore>,
    settings: Settings,
    every: Duration,
    cancel: Cancel,
    entries: Mutex<Entries>,
}

/// An entry of a checkpoint file. Clones share the file. The default is off: it keeps nothing and
/// costs nothing.
#[derive(Clone, Default)]
pub struct Checkpoint {
    file: Option<Arc<File>>,
    name: String,
}

/// A [`Checkpoint`] that does not keep its file open.
#[derive(Clone, Default)]
pub struct WeakCheckpoint {
    file: Weak<File>,
    name: String,
}

impl WeakCheckpoint {
    /// Returns the checkpoint, off if its file was closed.
    pub fn upgrade(&self) -> Checkpoint {
        Checkpoint {
            file: self.file.upgrade(),
            name: self.name.clone(),
        }
    }
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = if self.is_on() { &self.name } else { "off" };
        f.debug_tuple("Checkpoint").field(&kept).finish()
    }
}

impl Checkpoint {
    /// Returns an empty checkpoint that is written to `store` at most once in `every`. Units during
    /// which `cancel` is set do not count as finished.
    pub fn new(
        store: impl CheckpointStore + 'static,
        settings: Settings,
        every: Duration,
        cancel: &Cancel,
    ) -> Self {
        Self {
            file: Some(Arc::new(File {
                store: Box::new(store),
                settings,
                every,
                cancel: cancel.clone(),
                entries: Mutex::new(Entries {
                    contents: Contents::default(),
                    live: BTreeMap::new(),
                    written: Instant::now(),
                    failing: false,
                }),
            })),
            name: String::new(),
        }
    }

    /// Reads the file that an earlier run wrote. Returns false if there is none.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] for a file that cannot be read, is damaged or of another version, or has
    /// other settings; the message names each difference.
    pub fn load(&self) -> Result<bool> {
        let Some(file) = &self.file else {
            return Ok(false);
        };
        let bytes = file.store.read();
        let Some(bytes) = bytes.map_err(|e| Error::checkpoint(e.to_string()))? else {
            return Ok(false);
        };
        let (settings, contents): (Settings, Contents) = seal::open(&bytes)?;
        let differences = file.settings.differences(&settings);
        if !differences.is_empty() {
            return Err(Error::checkpoint(format!(
                "it is of another run: {}",
                differences.join(", ")
            )));
        }
        file.entries().contents = contents;
        Ok(true)
    }

    /// Returns a handle that does not keep the file open.
    pub fn downgrade(&self) -> WeakCheckpoint {
        WeakCheckpoint {
            file: self.file.as_ref().map_or_else(Weak::new, Arc::downgrade),
            name: self.name.clone(),
        }
    }

    /// Returns whether states are kept.
    pub fn is_on(&self) -> bool {
        self.file.is_some()
    }

    /// Returns the flag that cancels the run; one that nobody sets if nothing is kept.
    pub fn cancel(&self) -> Cancel {
        let file = self.file.as_ref();
        file.map_or_else(Cancel::new, |file| file.cancel.clone())
    }

    /// Returns whether the run was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancel().is_cancelled()
    }

    /// Fails if the run was cancelled.
    ///
    /// # Errors
    /// [`Error::Cancelled`].
    pub fn check_cancelled(&self) -> Result<()> {
        self.cancel().check()
    }

    /// Returns the entry `name` below this one.
    #[must_use]
    pub fn entry(&self, name: impl fmt::Display) -> Self {
        match &self.file {
            None => Self::default(),
            Some(_) if self.name.is_empty() => Self {
                file: self.file.clone(),
                name: name.to_string(),
            },
            Some(_) => Self {
                file: self.file.clone(),
                name: format!("{}/{name}", self.name),
            },
        }
    }

    /// Returns the state that an earlier run left in this entry.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] for a state of another kind.
    pub fn resume<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let Some(file) = &self.file else {
            return Ok(None);
        };
        let entries = file.entries();
        if let Some(encode) = entries.live.get(&self.name) {
            return decode(&encode()?).map(Some);
        }
        let bytes = entries.contents.under_way.get(&self.name);
        bytes.map(|bytes| decode(bytes)).transpose()
    }

    /// Keeps `state` in memory until the next write. An observer uses this for its own state: it is
    /// written together with that of the loop that calls it.
    pub fn note<T: Serialize + Send + 'static>(&self, state: T) {
        if let Some(file) = &self.file {
            let mut entries = file.entries();
            entries.contents.under_way.remove(&self.name);
            let live = Box::new(move || encode(&state));
            entries.live.insert(self.name.clone(), live);
        }
    }

    /// Calls `state` and writes the file, if a write is due. `state` must not use the checkpoint.
    pub fn offer<T: Serialize>(&self, state: impl FnOnce() -> T) {
        let Some(file) = &self.file else {
            return;
        };
        let mut entries = file.entries();
        if entries.written.elapsed() < file.every {
            return;
        }
        // A state that cannot be encoded is a bug of the caller: the one before stays.
        if let Ok(bytes) = encode(&state()) {
            entries.live.remove(&self.name);
            let name = self.name.clone();
            entries.contents.under_way.insert(name, bytes);
        }
        file.write_and_go_on(&mut entries);
    }

    /// Writes the file, with all states noted, if a write is due.
    pub fn write_if_due(&self) {
        if let Some(file) = &self.file {
            let mut entries = file.entries();
            if entries.written.elapsed() >= file.every {
                file.write_and_go_on(&mut entries);
            }
        }
    }

    /// Returns the result of the unit of work `name`: that of an earlier run if it was finished, or
    /// else that of `work`, which gets the entry of the unit for its own states. A result is not kept
    /// if the run was cancelled in the meantime.
    ///
    /// # Errors
    /// Those of `work`; [`Error::Checkpoint`] for a result of another kind.
    pub fn unit<T, E>(
        &self,
        name: impl fmt::Display,
        work: impl FnOnce(&Self) -> Result<T, E>,
    ) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<Error>,
    {
        let entry = self.entry(name);
        let Some(file) = &self.file else {
            return work(&entry);
        };
        let earlier = file.entries().contents.finished.get(&entry.name).cloned();
        if let Some(bytes) = earlier {
            return Ok(decode(&bytes)?);
        }
        let found = work(&entry)?;
        if !file.cancel.is_cancelled() {
            let bytes = encode(&found)?;
            let mut entries = file.entries();
            let below = format!("{}/", entry.name);
            let is_inside = |name: &String| *name == entry.name || name.starts_with(&below);
            entries.live.retain(|name, _| !is_inside(name));
            let Contents {
                finished,
                under_way,
            } = &mut entries.contents;
            under_way.retain(|name, _| !is_inside(name));
            finished.retain(|name, _| !is_inside(name));
            finished.insert(entry.name.clone(), bytes);
            drop(entries);
            self.write_if_due();
        }
        Ok(found)
    }

    /// Returns whether the unit `name` was finished.
    pub fn is_finished(&self, name: impl fmt::Display) -> bool {
        let name = self.entry(name).name;
        let file = self.file.as_ref();
        file.is_some_and(|file| file.entries().contents.finished.contains_key(&name))
    }

    /// Describes what an earlier run left: "fit under way, 12 of resample done". Entries whose name
    /// begins with a dot are not work.
    pub fn progress(&self) -> String {
        let Some(file) = &self.file else {
            return "nothing is kept".to_owned();
        };
        let entries = file.entries();
        // Entries are counted by their first word: there may be thousands of resamples.
        let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        let under_way = entries.contents.under_way.keys().chain(entries.live.keys());
        let under_way = under_way.filter(|name| !name.starts_with('.'));
        let under_way = under_way.map(|name| (name, "under way"));
        let finished = entries.contents.finished.keys();
        let finished = finished.map(|name| (name, "done"));
        for (name, how) in under_way.chain(finished) {
            let word = name.split(['/', ' ']).next().unwrap_or_default();
            *counts.entry((word, how)).or_default() += 1;
        }
        let parts: Vec<String> = counts
            .into_iter()
            .map(|((what, how), n)| match n {
                1 => format!("{what} {how}"),
                n => format!("{n} of {what} {how}"),
            })
            .collect();
        if parts.is_empty() {
            "nothing is done yet".to_owned()
        } else {
            parts.join(", ")
        }
    }

    /// Writes the file now. Call it when the work was interrupted, or its result could not be
    /// written.
    ///
    /// # Errors
    /// Those of the store.
    pub fn write(&self) -> io::Result<()> {
        match &self.file {
            None => Ok(()),
            Some(file) => file.write(&mut file.entries()),
        }
    }

    /// Removes the file. Call it when the result is written.
    ///
    /// # Errors
    /// Those of the store.
    pub fn remove(&self) -> io::Result<()> {
        self.file
            .as_ref()
            .map_or(Ok(()), |file| file.store.remove())
    }
}

impl File {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, entries: &mut Entries) -> io::Result<()> {
        entries.written = Instant::now();
        while let Some(entry) = entries.live.first_entry() {
            let bytes = entry.get()().map_err(io::Error::other)?;
            entries
                .contents
                .under_way
                .insert(entry.remove_entry().0, bytes);
        }
        let sealed = seal::seal(&(&self.settings, &entries.contents));
        self.store.write(&sealed.map_err(io::Error::other)?)
    }

    /// Writes the file and ignores a failure, except for one report: the work goes on, and the file
    /// before is still there.
    fn write_and_go_on(&self, entries: &mut Entries) {
        let outcome = self.write(entries);
        if let Err(error) = &outcome
            && !entries.failing
        {
            self.store.failed(error);
        }
        entries.failing = outcome.is_err();
    }
}
