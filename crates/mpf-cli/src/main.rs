//! The program `mpf`: `mpf --help`.

use mpf_baselines::Methods;
use mpf_core::Cancel;
use mpf_report::interrupt::{on_abort, on_interrupt};
use std::process::ExitCode;
use std::time::Duration;

/// The time in which a command may end by itself after a signal.
const GRACE: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    // Without a handler the end of memory is an abort, with the same message.
    let _ = on_abort();
    let cancel = Cancel::new();
    let on_signal = cancel.clone();
    // Without a handler Ctrl-C still ends the program, but leaves no checkpoint.
    let _ = on_interrupt(move || {
        on_signal.cancel();
        // Nor does a rank that waits for another, which may be gone; a second later mpirun kills.
        let grace = if mpf_cli::n_launched() > 1 {
            Duration::ZERO
        } else {
            GRACE
        };
        // A decomposition, say, hears nothing until it is done.
        std::thread::spawn(move || {
            std::thread::sleep(grace);
            mpf_cli::give_up();
        });
    });
    ExitCode::from(mpf_cli::run(
        std::env::args_os(),
        &Methods::default(),
        &cancel,
    ))
}
