//! Keeps checkpoints in files.

use crate::files;
use mpf_core::CheckpointStore;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// The file of a [`Checkpoint`](mpf_core::Checkpoint), replaced whole at every write, and the lock
/// that keeps other programs from it.
///
/// The lock is on the file `.mpf-NAME.lock` beside it: the checkpoint itself is another file after
/// every write. The system frees the lock of a program that was killed, so a lock file that is left
/// behind is in nobody's way.
pub struct CheckpointFile {
    path: PathBuf,
    most_bytes: u64,
    warn: Box<dyn Fn(&str) + Send + Sync>,
    /// `None` on a file system without locks.
    lock: Option<Lock>,
}

impl CheckpointFile {
    /// Locks the file at `path`. A file of more than `most_bytes` is not read; `warn` reports that
    /// it cannot be written while the work goes on.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if another program has the lock, saying which; those of the file
    /// system.
    pub fn new(
        path: &Path,
        most_bytes: u64,
        warn: impl Fn(&str) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let path = files::target(path)?;
        Ok(Self {
            lock: Lock::new(&path)?,
            path,
            most_bytes,
            warn: Box::new(warn),
        })
    }
}

impl CheckpointStore for CheckpointFile {
    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        let found = match fs::metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            found => found?,
        };
        if !found.is_file() {
            return Err(io::Error::other("it is no ordinary file"));
        }
        if found.len() > self.most_bytes {
            return Err(io::Error::other(format!(
                "it has {} bytes, and at most {} can be read",
                found.len(),
                self.most_bytes
            )));
        }
        fs::read(&self.path).map(Some)
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

impl Drop for CheckpointFile {
    fn drop(&mut self) {
        if let Some(lock) = &self.lock {
            // Still locked: nobody else can have taken it in between.
            let _ = fs::remove_file(&lock.path);
        }
    }
}

/// A lock file that this program holds and that names it.
struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Takes the lock of the checkpoint at `path`; `None` on a file system without locks.
    fn new(path: &Path) -> io::Result<Option<Self>> {
        let mut name = files::hidden_name(path)?;
        name.push(".lock");
        let path = files::folder(path).join(name);
        loop {
            // Through a link the name of this program would go into another file.
            if fs::symlink_metadata(&path).is_ok_and(|found| !found.is_file()) {
                let path = path.display();
                return Err(io::Error::other(format!("{path} is in the way")));
            }
            let mut options = File::options();
            let mut file = options
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(held_by(&mut file)),
                Err(TryLockError::Error(_)) => {
                    let _ = fs::remove_file(&path);
                    return Ok(None);
                }
            }
            // The holder before us may have removed the file after we opened it.
            if !is_at(&file, &path) {
                continue;
            }
            // The name is for people: without it the lock still holds.
            let _ = file
                .set_len(0)
                .and_then(|()| write!(file, "process {} on {}", std::process::id(), host()));
            return Ok(Some(Self { path, _file: file }));
        }
    }
}

/// Says who holds the lock of `file`.
fn held_by(file: &mut File) -> io::Error {
    const MOST: u64 = 200;
    let mut holder = String::new();
    let read = file
        .rewind()
        .and_then(|()| file.take(MOST).read_to_string(&mut holder));
    let holder = match read {
        Ok(n) if n > 0 => holder.as_str(),
        _ => "another process",
    };
    io::Error::new(
        ErrorKind::WouldBlock,
        format!("{holder} is working with it"),
    )
}

#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |found: fs::Metadata| (found.dev(), found.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(ours), Ok(there)) => identity(ours) == identity(there),
        _ => false,
    }
}

/// Returns true: elsewhere an open file cannot be removed.
#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> bool {
    true
}

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = name.or_else(|| std::env::var("COMPUTERNAME").ok());
    name.map_or_else(|| "this machine".into(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> io::Result<CheckpointFile> {
        CheckpointFile::new(path, 10, |_| {})
    }

    #[test]
    fn one_program_at_a_time_works_with_a_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ckpt");
        let first = open(&path).unwrap();
        let error = open(&path).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        let us = format!("process {} on ", std::process::id());
        assert!(error.to_string().starts_with(&us), "{error}");
        // A write replaces the file, and not the lock.
        first.write(b"some").unwrap();
        assert!(open(&path).is_err());
        drop(first);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        // A lock file of a program that was killed.
        fs::write(
            folder.path().join(".mpf-a.ckpt.lock"),
            "process 1 on nowhere",
        )
        .unwrap();
        let second = open(&path).unwrap();
        assert_eq!(second.read().unwrap().unwrap(), b"some");
        second.write(b"eleven bytes").unwrap();
        let error = second.read().unwrap_err();
        assert!(error.to_string().contains("12 bytes"), "{error}");
        second.remove().unwrap();
        drop(second);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[cfg(unix)]
    #[test]
    fn two_names_of_one_checkpoint_have_one_lock() {
        let folder = tempfile::tempdir().unwrap();
        let [path, link] = ["a.ckpt", "link"].map(|name| folder.path().join(name));
        std::os::unix::fs::symlink("a.ckpt", &link).unwrap();
        let _first = open(&path).unwrap();
        assert!(open(&link).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_lock_is_not_written_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let precious = folder.path().join("precious");
        fs::write(&precious, "text").unwrap();
        std::os::unix::fs::symlink("precious", folder.path().join(".mpf-a.ckpt.lock")).unwrap();
        let error = open(&folder.path().join("a.ckpt")).err().unwrap();
        assert!(error.to_string().contains("in the way"), "{error}");
        assert_eq!(fs::read_to_string(&precious).unwrap(), "text");
    }

    /// Many threads take the lock in turns; only one may have it at a time.
    #[test]
    fn a_removed_lock_file_lets_nobody_slip_in() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ckpt");
        let (inside, turns) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while turns.load(Ordering::SeqCst) < 400 {
                        let Ok(file) = open(&path) else { continue };
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        turns.fetch_add(1, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(file);
                    }
                });
            }
        });
    }
}
