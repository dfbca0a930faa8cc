//! Checks that results can be written, before hours are spent on them.

use crate::data;
use crate::failure::{Failure, plain};
use std::fs;
use std::path::Path;

/// Checks that a file can be made at `path`, by making another one in its folder.
///
/// # Errors
/// A [`Failure`] that says why it cannot be written.
pub fn check_writable(path: &Path) -> Result<(), Failure> {
    if data::is_standard(path) {
        return Ok(());
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let wrong = |why: String| Failure::input(format!("cannot write {}: {why}", path.display()));
    if path.is_dir() {
        return Err(wrong("it is a folder".into()).hint("name a file in it"));
    }
    if !folder.is_dir() {
        return Err(
            wrong(format!("there is no folder {}", folder.display())).hint("make the folder first")
        );
    }
    if fs::metadata(path).is_ok_and(|m| m.permissions().readonly()) {
        return Err(wrong("the file there is write-protected".into())
            .hint("choose another name, or make it writable"));
    }
    match tempfile::tempfile_in(folder) {
        Ok(_) => Ok(()),
        Err(error) => Err(wrong(plain(&error)).hint("choose a folder that you may write to")),
    }
}

/// Refuses a name that does not end in one of `known`.
///
/// # Errors
/// A [`Failure`] that lists them.
pub fn check_extension(path: &Path, known: &[&str]) -> Result<(), Failure> {
    if known.contains(&extension(path).as_str()) {
        return Ok(());
    }
    Err(Failure::input(format!(
        "{}: the name must end in .{}",
        path.display(),
        known.join(", .")
    ))
    .hint(format!("name it result.{}", known[0])))
}

/// Returns the extension of a name in small letters.
pub fn extension(path: &Path) -> String {
    let end = path.extension().and_then(|e| e.to_str());
    end.map_or_else(String::new, str::to_ascii_lowercase)
}
