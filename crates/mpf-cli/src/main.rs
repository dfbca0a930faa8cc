//! The program `mpf`: `mpf --help`.

use clap::Parser;
use mpf_cli::cli::{self, Cli};
use mpf_cli::failure::INTERRUPTED;
use mpf_core::Cancel;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let cancel = Cancel::new();
    let on_signal = cancel.clone();
    // Without a handler Ctrl-C still ends the program, only less politely.
    let _ = ctrlc::set_handler(move || {
        if on_signal.is_cancelled() {
            // Asked twice: leave at once.
            std::process::exit(INTERRUPTED.into());
        }
        on_signal.cancel();
    });
    ExitCode::from(cli::run(&cli, &cancel))
}
