//! Handles Ctrl-C and SIGTERM.

use crate::Result;
use std::time::{Duration, Instant};

/// The exit code of a program that was asked to stop.
pub const INTERRUPTED: u8 = 130;

/// Signals that follow within this time count as one: a scheduler, or `timeout`, signals a program
/// and then its whole group.
const ECHO: Duration = Duration::from_secs(1);

/// Calls `stop` at the first signal; ends the program at the next.
///
/// # Errors
/// If the handler cannot be installed, or was installed before.
pub fn on_interrupt(stop: impl Fn() + Send + 'static) -> Result {
    let mut first: Option<Instant> = None;
    ctrlc::set_handler(move || match first {
        None => {
            first = Some(Instant::now());
            stop();
        }
        Some(at) if at.elapsed() < ECHO => {}
        Some(_) => std::process::exit(INTERRUPTED.into()),
    })?;
    Ok(())
}
