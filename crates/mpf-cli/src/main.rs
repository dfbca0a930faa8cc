//! The program `mpf`: `mpf --help`.

use clap::Parser;
use mpf_cli::cli::{self, Cli};
use mpf_core::Cancel;
use mpf_report::interrupt::on_interrupt;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let cancel = Cancel::new();
    let on_signal = cancel.clone();
    // Without a handler Ctrl-C still ends the program, only less politely.
    let _ = on_interrupt(move || on_signal.cancel());
    ExitCode::from(cli::run(&cli, &cancel))
}
