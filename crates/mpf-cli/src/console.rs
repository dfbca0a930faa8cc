//! Prints results to standard output and everything else to standard error.
//!
//! Colours appear only on a terminal, never with `NO_COLOR`. A reader that closes the pipe is no
//! error.

use crate::failure::Failure;
use mpf_report::text::duration;
use serde::Serialize;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::time::Duration;

/// The options of the command line that decide what is printed.
#[derive(Clone, Copy, Debug)]
pub struct Console {
    /// Results as one JSON object on standard output, and nothing else but errors.
    pub json: bool,
    /// Only results and errors.
    pub quiet: bool,
    /// Also every step and its time.
    pub verbose: bool,
}

impl Console {
    /// Prints a result for people; nothing with `--json`.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn result(&self, text: &str) -> Result<(), Failure> {
        if self.json { Ok(()) } else { print(text) }
    }

    /// Prints the result for programs; nothing without `--json`.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn json(&self, value: &impl Serialize) -> Result<(), Failure> {
        if !self.json {
            return Ok(());
        }
        let text = serde_json::to_string_pretty(value).expect("a result can be written");
        print(&(text + "\n"))
    }

    /// Prints a note to standard error.
    pub fn note(&self, text: &str) {
        if !self.quiet && !self.json {
            complain(text);
        }
    }

    /// Prints how long a step took, with `--verbose`.
    pub fn stage(&self, step: &str, time: Duration) {
        if self.verbose {
            self.note(&format!("{step}: {}", duration(time.as_secs_f64())));
        }
    }

    /// Prints a warning to standard error.
    pub fn warning(&self, text: &str) {
        self.note(&format!("{} {text}", label("warning:", "33")));
    }

    /// Prints why the command gave up, even with `--quiet`.
    pub fn failure(failure: &Failure) {
        complain(&format!("{} {}", label("error:", "31"), failure.message));
        if let Some(hint) = &failure.hint {
            complain(&format!("{} {hint}", label("hint:", "36")));
        }
    }
}

/// Writes to standard output, where `println` would panic on a closed pipe.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::system(format!(
            "cannot write to standard output: {error}"
        ))),
        _ => Ok(()),
    }
}

fn complain(text: &str) {
    // Where this fails, nothing can report it.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

fn label(text: &str, colour: &str) -> String {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
        || std::env::var_os("TERM").is_some_and(|v| v == "dumb");
    if plain || !io::stderr().is_terminal() {
        text.to_owned()
    } else {
        format!("\x1b[1;{colour}m{text}\x1b[0m")
    }
}
