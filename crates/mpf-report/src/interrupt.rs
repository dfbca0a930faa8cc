//! Handles Ctrl-C, SIGTERM and the end of memory.

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

/// The exit code of a program that ran out of memory.
pub const OUT_OF_MEMORY: u8 = 5;

/// Ends the program with [`OUT_OF_MEMORY`] where it would abort: after an allocation that failed,
/// which the standard library reports on standard error.
///
/// # Errors
/// If the handler cannot be installed.
#[cfg(unix)]
pub fn on_abort() -> Result {
    let always = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let code = OUT_OF_MEMORY.into();
    signal_hook::flag::register_conditional_shutdown(signal_hook::consts::SIGABRT, code, always)?;
    Ok(())
}

/// Does nothing: there are no signals here.
///
/// # Errors
/// None.
#[cfg(not(unix))]
pub fn on_abort() -> Result {
    Ok(())
}
