//! The integration tests of mpf-cli, in one program: it links once.

mod common;
mod corpus;
#[cfg(unix)]
mod data_formats;
mod dca;
mod end_to_end;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod faults;
#[cfg(target_os = "linux")]
mod full_disk;
mod fuzz;
#[cfg(target_os = "linux")]
mod hostile_sizes;
#[cfg(unix)]
mod kill;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(all(feature = "mpi", target_os = "linux"))]
mod mpi;
mod own_method;
mod packed;
mod threads;
mod verdicts;
mod wrong_inputs;
