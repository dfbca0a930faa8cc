//! Prints results to standard output and everything else to standard error.
//!
//! Colours appear only on a terminal, never with `NO_COLOR`. A reader that closes the pipe is no
//! error.

use crate::data;
use crate::failure::Failure;
use mpf_report::text::{duration, visible};
use serde::Serialize;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

/// The options of the command line that decide what is printed.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Everywhere")]
pub struct Console {
    /// Print only the result, as JSON, and errors
    #[arg(long, global = true)]
    pub json: bool,
    /// Print only results and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Print every step and its time as it ends
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub verbose: bool,
    /// Whether a result file takes standard output: the summary is then a note.
    #[arg(skip)]
    pub is_taken: bool,
}

impl Console {
    /// Returns a console that prints nothing but alarms.
    pub fn silent() -> Self {
        Self {
            quiet: true,
            is_taken: true,
            ..Self::default()
        }
    }

    /// Returns the console of a command that writes `output`, which may be standard output.
    ///
    /// # Errors
    /// When standard output is to hold JSON already.
    pub fn beside(self, output: &Path) -> Result<Self, Failure> {
        let is_taken = data::is_standard(output);
        if is_taken && self.json {
            return Err(
                Failure::input("-o - and --json both write to standard output")
                    .hint("give the output a name, or leave out --json"),
            );
        }
        Ok(Self { is_taken, ..self })
    }

    /// Prints a result for people; nothing with `--json`.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn result(&self, text: &str) -> Result<(), Failure> {
        if self.is_taken {
            text.lines().for_each(|line| self.note(line));
        } else if !self.json {
            print(&visible_lines(text))?;
        }
        Ok(())
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

    /// Returns whether notes are printed.
    pub fn has_notes(&self) -> bool {
        !self.quiet && !self.json
    }

    /// Prints a note to standard error.
    pub fn note(&self, text: &str) {
        if self.has_notes() {
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
        if self.has_notes() {
            self.alarm(text);
        }
    }

    /// Prints a warning even with `--quiet` and `--json`: something that was asked for is not done.
    pub fn alarm(&self, text: &str) {
        labelled("warning:", "33", text);
    }

    /// Prints why the command gave up, even with `--quiet`.
    pub fn failure(failure: &Failure) {
        labelled("error:", "31", &failure.message);
        if let Some(hint) = &failure.hint {
            self::hint(hint);
        }
    }
}

/// Prints a hint to standard error.
pub(crate) fn hint(text: &str) {
    labelled("hint:", "36", text);
}

/// Writes to standard output, where `println` would panic on a closed pipe.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_with(|out| out.write_all(text.as_bytes()))
}

/// Passes standard output to `write`.
pub(crate) fn print_with(
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::system(format!(
            "cannot write to standard output: {error}"
        ))),
        _ => Ok(()),
    }
}

fn complain(text: &str) {
    // Where this fails, nothing can report it.
    let _ = writeln!(io::stderr().lock(), "{}", visible(text));
}

/// Shows control characters, which names of files and units may hold, but for the ends of lines.
/// (Notes are one line each: there an end of line is part of a name.)
fn visible_lines(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(visible).collect();
    lines.join("\n")
}

/// Prints `text` behind a label, which has a colour on a terminal.
fn labelled(label: &str, colour: &str, text: &str) {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
        || std::env::var_os("TERM").is_some_and(|v| v == "dumb")
        || !io::stderr().is_terminal();
    let (on, off) = match plain {
        true => (String::new(), ""),
        false => (format!("\x1b[1;{colour}m"), "\x1b[0m"),
    };
    let text = visible(text);
    let _ = writeln!(io::stderr().lock(), "{on}{label}{off} {text}");
}
