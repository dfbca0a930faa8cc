//! The integration tests of mpf-cli, in one program: it links once.

mod common;
#[cfg(unix)]
mod data_formats;
mod end_to_end;
#[cfg(target_os = "linux")]
mod full_disk;
mod fuzz;
#[cfg(target_os = "linux")]
mod hostile_sizes;
#[cfg(unix)]
mod kill;
#[cfg(target_os = "linux")]
mod memory;
mod own_method;
mod threads;
mod verdicts;
mod wrong_inputs;
