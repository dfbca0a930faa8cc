//! Files that appear whole or not at all.
//!
//! A file `a.json` is written as `.mpf-a.json.XXXXXX` in the same folder, synced, and renamed; the
//! folder is synced too, so that a power cut does not undo it. A program that is killed in between
//! leaves the temporary file behind. The next write of `a.json` removes it: its name tells whose it
//! is, and its lock whether another program is still writing it.
//!
//! A symbolic link stays: the file that it points to is replaced. Pipes and devices are written
//! directly.

use mpf_core::Fnv1a;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The prefix of the names of all temporary files.
pub const TEMPORARY: &str = ".mpf-";

/// Files that are being written.
static WRITING: AtomicUsize = AtomicUsize::new(0);

/// Returns whether a file is being written under a temporary name.
pub fn is_writing() -> bool {
    WRITING.load(Ordering::SeqCst) > 0
}

/// Counts among those that write while it lives.
struct Writer;

impl Writer {
    fn new() -> Self {
        WRITING.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        WRITING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Replaces `path` by `contents`, under a temporary name first.
///
/// # Errors
/// Those of the file system; an existing file is then untouched.
pub fn write(path: &Path, contents: &[u8]) -> io::Result<()> {
    write_with(path, |file| file.write_all(contents))
}

/// Replaces `path` by what `fill` writes, and returns what it returns. The new file is written under a temporary name in the
/// same folder, synced, and renamed.
///
/// # Errors
/// Those of the file system and of `fill`; an existing file is then untouched.
pub fn write_with<T, E: From<io::Error>>(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> Result<T, E>,
) -> Result<T, E> {
    let path = &target(path)?;
    if fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        let mut file = BufWriter::new(File::options().write(true).open(path)?);
        let filled = fill(&mut file)?;
        file.flush()?;
        return Ok(filled);
    }
    let _writer = Writer::new();
    let folder = folder(path);
    let mut prefix = hidden_name(path)?;
    prefix.push(".");
    remove_stale(folder, &prefix);
    let mut temporary = tempfile::Builder::new();
    temporary.prefix(&prefix);
    // Temporary files are private by default; results get the permissions of ordinary files.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let permissions = fs::metadata(path)
            .map_or_else(|_| fs::Permissions::from_mode(0o666), |m| m.permissions());
        temporary.permissions(permissions);
    }
    let mut file = temporary.tempfile_in(folder)?;
    // On a file system without locks, stale files are never removed.
    let _ = file.as_file().try_lock();
    let mut buffer = BufWriter::new(file.as_file_mut());
    let filled = fill(&mut buffer)?;
    buffer.flush()?;
    drop(buffer);
    file.as_file().sync_all()?;
    let (file, temporary) = file.into_parts();
    fs::rename(&temporary, path)?;
    let _ = temporary.keep();
    let _ = file.unlock();
    // Not every system can sync a folder; the file itself is synced already.
    #[cfg(unix)]
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(filled)
}

/// Returns the path that a file written as `path` gets, at the end of all symbolic links.
///
/// # Errors
/// Those of the file system; links that lead in a circle.
pub fn target(path: &Path) -> io::Result<PathBuf> {
    const MOST_LINKS: usize = 40;
    let mut at = path.to_owned();
    for _ in 0..MOST_LINKS {
        if !fs::symlink_metadata(&at).is_ok_and(|found| found.is_symlink()) {
            return Ok(at);
        }
        // An absolute link replaces the folder.
        let next = folder(&at).join(fs::read_link(&at)?);
        // What /proc/self/fd says of a pipe is no path.
        if at.exists() && !next.exists() {
            return Ok(at);
        }
        at = next;
    }
    Err(io::Error::other("symbolic links lead in a circle"))
}

/// Returns the folder of a file.
pub fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Returns the start of the names of hidden files that belong to `path`: the prefix, and the name
/// or, if it is long, its beginning and a hash. File systems allow 255 bytes, and a suffix follows.
///
/// # Errors
/// A path without a name.
pub(crate) fn hidden_name(path: &Path) -> io::Result<OsString> {
    const LONGEST: usize = 200;
    let Some(name) = path.file_name() else {
        return Err(io::ErrorKind::InvalidFilename.into());
    };
    let mut hidden = OsString::from(TEMPORARY);
    let bytes = name.as_encoded_bytes();
    if bytes.len() <= LONGEST {
        hidden.push(name);
    } else {
        let mut hash = Fnv1a::default();
        hash.add(bytes);
        let start = String::from_utf8_lossy(&bytes[..LONGEST / 4]).into_owned();
        hidden.push(format!("{start}-{hash}"));
    }
    Ok(hidden)
}

/// Removes temporary files of programs that were killed. A program that is still writing holds the
/// lock of its file; on a file system without locks, nothing is removed.
fn remove_stale(folder: &Path, prefix: &OsStr) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let rest = name
            .as_encoded_bytes()
            .strip_prefix(prefix.as_encoded_bytes());
        // Six letters or digits: a file `a.json.b` has temporary files with a longer rest.
        let ours = rest.is_some_and(|r| r.len() == 6 && r.iter().all(u8::is_ascii_alphanumeric));
        // To open a pipe would wait for its writer.
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        let is_stale = |file: File| file.try_lock().is_ok();
        if ours && is_file && File::open(entry.path()).is_ok_and(is_stale) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        let failed = write_with(&path, |file| {
            file.write_all(b"three")?;
            Err::<(), _>(io::Error::other("the disk is full"))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_killed_programs_left_behind_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in [
            ".mpf-a.txt.abc123",
            ".mpf-a.txt.locked",
            ".mpf-a.txt.b.abc123",
            ".mpf-b.txt.abc123",
        ] {
            fs::write(at(name), "half").unwrap();
        }
        let busy = File::open(at(".mpf-a.txt.locked")).unwrap();
        busy.lock().unwrap();
        write(&at("a.txt"), b"whole").unwrap();
        assert!(!at(".mpf-a.txt.abc123").exists(), "stale");
        for name in [
            ".mpf-a.txt.locked",
            ".mpf-a.txt.b.abc123",
            ".mpf-b.txt.abc123",
        ] {
            assert!(at(name).exists(), "{name}");
        }
    }

    #[test]
    fn long_names_are_written() {
        let folder = tempfile::tempdir().unwrap();
        for length in [199, 200, 201, 245, 255] {
            // Of two bytes each, so that a cut may split one.
            let name = "é".repeat(length / 2) + &"x".repeat(length % 2);
            let path = folder.path().join(name);
            write(&path, b"whole").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"whole", "{length}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 5);
        assert!(write(&folder.path().join("x".repeat(256)), b"").is_err());
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("far")).unwrap();
        symlink("far/first.txt", at("a.txt")).unwrap();
        symlink(at("far/second.txt"), at("far/first.txt")).unwrap();
        for text in ["one", "two"] {
            write(&at("a.txt"), text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(at("far/second.txt")).unwrap(), text);
        }
        assert!(fs::symlink_metadata(at("a.txt")).unwrap().is_symlink());
        assert_eq!(fs::read_dir(at("far")).unwrap().count(), 2);
        symlink("circle.txt", at("circle.txt")).unwrap();
        assert!(write(&at("circle.txt"), b"").is_err());
        symlink("/dev/null", at("null.txt")).unwrap();
        write(&at("null.txt"), b"nothing").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_with_a_temporary_name_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join(".mpf-a.txt.abc123");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        if !made.is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: no mkfifo");
            return;
        }
        write(&folder.path().join("a.txt"), b"whole").unwrap();
        assert!(pipe.exists());
    }
}
