//! Ctrl-C and SIGTERM.

use crate::Result;
use std::time::{Duration, Instant};

/// The exit code of a program that was asked to stop.
pub const INTERRUPTED: u8 = 130;

/// Signals that follow sooner are the same wish: a scheduler, or `timeout`, tells a program and
/// then its whole group.
const ECHO: Duration = Duration::from_secs(1);

/// Calls `stop` when the program is asked to stop for the first time; ends it at once when it is
/// asked again.
///
/// # Errors
/// When the handler cannot be installed, or for the second time.
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
