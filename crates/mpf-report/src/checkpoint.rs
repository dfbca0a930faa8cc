//! Keeps checkpoints in files.

use crate::files;
use mpf_core::CheckpointStore;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The file of a [`Checkpoint`](mpf_core::Checkpoint), replaced whole at every write.
pub struct CheckpointFile {
    path: PathBuf,
    warn: Box<dyn Fn(&str) + Send + Sync>,
}

impl CheckpointFile {
    /// Returns the file at `path`; `warn` reports that it cannot be written while the work goes on.
    pub fn new(path: &Path, warn: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self {
            path: path.to_owned(),
            warn: Box::new(warn),
        }
    }
}

impl CheckpointStore for CheckpointFile {
    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        match fs::read(&self.path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        files::write(&self.path, bytes)
    }

    fn remove(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn failed(&self, error: &io::Error) {
        let path = self.path.display();
        (self.warn)(&format!(
            "cannot write {path}: {error}; the work goes on without"
        ));
    }
}
