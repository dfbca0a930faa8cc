//! Files that appear whole or not at all.
//!
//! A file `a.json` is written as `.mpf-a.json.XXXXXX` in the same folder, synced, and renamed; the
//! folder is synced too, so that a power cut does not undo it. A program that is killed in between
//! leaves the temporary file behind. The next write of `a.json` removes it: its name tells whose it
//! is, and its lock whether another program is still writing it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// The prefix of the names of all temporary files.
pub const TEMPORARY: &str = ".mpf-";

/// Replaces `path` by `contents`, under a temporary name first.
///
/// # Errors
/// Those of the file system; an existing file is then untouched.
pub fn write(path: &Path, contents: &[u8]) -> io::Result<()> {
    write_with(path, |file| file.write_all(contents))
}

/// Replaces `path` by what `fill` writes. The new file is written under a temporary name in the
/// same folder, synced, and renamed.
///
/// # Errors
/// Those of the file system and of `fill`; an existing file is then untouched.
pub fn write_with<E: From<io::Error>>(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let Some(name) = path.file_name() else {
        return Err(io::Error::from(io::ErrorKind::InvalidFilename).into());
    };
    let mut prefix = OsString::from(TEMPORARY);
    prefix.push(name);
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
    fill(&mut buffer)?;
    buffer.flush()?;
    drop(buffer);
    file.as_file().sync_all()?;
    let file = file.persist(path).map_err(|e| e.error)?;
    let _ = file.unlock();
    // Not every system can sync a folder; the file itself is synced already.
    #[cfg(unix)]
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
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
        if ours && File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok()) {
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
            Err(io::Error::other("the disk is full"))
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
}
