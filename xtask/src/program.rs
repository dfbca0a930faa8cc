//! The program `mpf`, for commands that try it from outside.

use crate::Result;
use std::path::PathBuf;
use std::process::Command;

/// Builds `mpf` with the profile of this program; returns its path.
pub fn build() -> Result<PathBuf> {
    build_with(&[])
}

/// Builds `mpf` with more arguments of cargo.
pub fn build_with(more: &[&str]) -> Result<PathBuf> {
    let mut build = Command::new(env!("CARGO"));
    build
        .args(["build", "--quiet", "--package", "mpf-cli"])
        .args(more);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    if !build.status()?.success() {
        return Err("cannot build mpf".into());
    }
    Ok(std::env::current_exe()?.with_file_name("mpf"))
}
