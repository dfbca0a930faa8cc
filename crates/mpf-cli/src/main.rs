//! The program `mpf`: `mpf --help`.

use mpf_baselines::Methods;
use mpf_core::Cancel;
use mpf_report::interrupt::on_interrupt;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cancel = Cancel::new();
    let on_signal = cancel.clone();
    // Without a handler Ctrl-C still ends the program, but leaves no checkpoint.
    let _ = on_interrupt(move || on_signal.cancel());
    ExitCode::from(mpf_cli::run(
        std::env::args_os(),
        &Methods::default(),
        &cancel,
    ))
}
