//! A checkpoint file in memory, and a run that stops after so many writes.

use mpf_core::{Cancel, Checkpoint, CheckpointStore, Settings};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A file in memory that cancels the run after `writes` writes; `usize::MAX` never does.
#[derive(Clone, Default)]
pub struct StopAfter {
    bytes: Arc<Mutex<Option<Vec<u8>>>>,
    left: Arc<Mutex<usize>>,
    cancel: Cancel,
}

impl StopAfter {
    /// Makes an empty file that cancels the run after `writes` writes.
    pub fn new(writes: usize) -> Self {
        Self {
            left: Arc::new(Mutex::new(writes)),
            ..Self::default()
        }
    }

    /// Returns the handle that the last write sets.
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Returns a checkpoint that is written whenever it may be.
    pub fn checkpoint(&self) -> Checkpoint {
        let settings = Settings::new("test");
        Checkpoint::new(self.clone(), settings, Duration::ZERO, &self.cancel)
    }

    /// Returns the same file with another limit and a handle of its own.
    #[must_use]
    pub fn with_limit(&self, writes: usize) -> Self {
        Self {
            bytes: self.bytes.clone(),
            ..Self::new(writes)
        }
    }

    /// Returns the same file without a limit, and a checkpoint that resumes from it.
    pub fn resumed(&self) -> (Self, Checkpoint) {
        let file = self.with_limit(usize::MAX);
        let checkpoint = file.checkpoint();
        assert!(checkpoint.load().expect("it is of the same run"));
        (file, checkpoint)
    }
}

impl CheckpointStore for StopAfter {
    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.bytes.lock().expect("no panic").clone())
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        *self.bytes.lock().expect("no panic") = Some(bytes.to_vec());
        let mut left = self.left.lock().expect("no panic");
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.cancel.cancel();
        }
        Ok(())
    }

    fn remove(&self) -> io::Result<()> {
        *self.bytes.lock().expect("no panic") = None;
        Ok(())
    }
}

/// Returns a checkpoint whose entry holds `state`, as if a run had left it: for forged states.
pub fn in_memory<T: serde::Serialize + Send + 'static>(state: T) -> Checkpoint {
    let checkpoint = StopAfter::new(usize::MAX).checkpoint();
    checkpoint.note(state);
    checkpoint
}
