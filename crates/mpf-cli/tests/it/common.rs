//! Runs the built program in a folder of its own.

use std::path::Path;
use std::process::Command;

#[allow(dead_code)] // Not every test looks at all of it.
pub struct Outcome {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// `mpf` with `arguments`, split at blanks, in `folder`.
pub fn mpf(folder: &Path, arguments: &str) -> Outcome {
    let output = Command::new(env!("CARGO_BIN_EXE_mpf"))
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .env_remove("NO_COLOR")
        .output()
        .expect("the program runs");
    Outcome {
        code: output.status.code().expect("it ends by itself"),
        stdout: String::from_utf8(output.stdout).expect("it prints text"),
        stderr: String::from_utf8(output.stderr).expect("it prints text"),
    }
}
