//! The end of a command that cannot go on: one message, a hint and an exit code.

use std::fmt;
use std::path::Path;

/// Something failed while it ran, such as a full disk.
pub const FAILED: u8 = 1;
/// A wrong input or a wrong option; nothing was written.
pub const WRONG_INPUT: u8 = 2;
/// The result is written, but the fit did not converge.
pub const NOT_CONVERGED: u8 = 3;
/// The result is written, but a step after the fit failed.
pub const STEP_FAILED: u8 = 4;
/// Stopped by Ctrl-C or SIGTERM; nothing was written but a checkpoint.
pub const INTERRUPTED: u8 = mpf_report::interrupt::INTERRUPTED;

/// The reason why a command gave up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The problem and its place.
    pub message: String,
    /// A remedy.
    pub hint: Option<String>,
    /// The exit code.
    pub code: u8,
}

impl Failure {
    fn new(code: u8, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
            code,
        }
    }

    /// Refuses the first option that is given; `why` words the message.
    pub fn given(
        options: &[(bool, &str)],
        why: impl Fn(&str) -> String,
        hint: &str,
    ) -> Result<(), Self> {
        match options.iter().find(|(is_given, _)| *is_given) {
            Some((_, option)) => Err(Self::input(why(option)).hint(hint)),
            None => Ok(()),
        }
    }

    /// A wrong input.
    pub fn input(message: impl Into<String>) -> Self {
        Self::new(WRONG_INPUT, message)
    }

    /// A file with something wrong in it.
    pub fn at(path: &Path, why: impl fmt::Display) -> Self {
        Self::input(format!("{}: {why}", path.display()))
    }

    /// Adds a hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// A file that cannot be read.
    pub fn unreadable(path: &Path, error: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        let failure = Self::input(format!("cannot read {}: {}", path.display(), plain(error)));
        match error.kind() {
            ErrorKind::NotFound => failure.hint("check the path; it is relative to where you are"),
            ErrorKind::IsADirectory => failure.hint("name a file in it"),
            _ => failure,
        }
    }

    /// A file that could not be written although it could be at the start.
    pub fn unwritten(path: &Path, error: &std::io::Error) -> Self {
        Self::system(format!("cannot write {}: {}", path.display(), plain(error)))
            .hint("an existing file of that name is untouched")
    }

    /// A failure that no input caused.
    pub fn system(message: impl Into<String>) -> Self {
        Self::new(FAILED, message)
    }

    /// A time limit that left no time for a result.
    pub fn too_late(seconds: f64) -> Self {
        Self::system(format!(
            "--max-seconds {seconds} passed before there was a result: nothing was written"
        ))
        .hint("give it more time, or less to do; where there is --checkpoint, it keeps the work")
    }

    /// Ctrl-C or SIGTERM.
    pub fn interrupted() -> Self {
        Self::new(INTERRUPTED, "interrupted: nothing was written")
    }
}

/// Returns the text of a system error without its number and path.
pub fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Figures have errors of any type.
impl From<Box<dyn std::error::Error + Send + Sync>> for Failure {
    fn from(error: Box<dyn std::error::Error + Send + Sync>) -> Self {
        Self::system(format!("cannot draw a figure: {error}"))
    }
}

/// Errors of the libraries are about data and options: wrong inputs.
impl From<mpf_baselines::Error> for Failure {
    fn from(error: mpf_baselines::Error) -> Self {
        use mpf_baselines::Error;
        match error {
            error if error.is_cancelled() => Self::interrupted(),
            Error::Ising(mpf_ising::Error::Unreadable { what }) => {
                Self::system(what).hint("the samples before it are whole; pack the data again")
            }
            other => Self::input(other.to_string()),
        }
    }
}

impl From<mpf_ising::Error> for Failure {
    fn from(error: mpf_ising::Error) -> Self {
        mpf_baselines::Error::from(error).into()
    }
}

impl From<mpf_samplers::Error> for Failure {
    fn from(error: mpf_samplers::Error) -> Self {
        mpf_baselines::Error::from(error).into()
    }
}

impl From<mpf_core::Error> for Failure {
    fn from(error: mpf_core::Error) -> Self {
        mpf_baselines::Error::from(error).into()
    }
}
