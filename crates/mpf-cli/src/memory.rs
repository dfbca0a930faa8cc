//! Estimates the memory that a command takes, and refuses what does not fit.

use crate::data::{self, Raster};
use crate::failure::Failure;
use crate::methods::not_negative;
use mpf_baselines::{MachineOptions, MachineTrainer};
use mpf_ising::Samples;
use mpf_ising::internal::bytes_of_fit;
use mpf_report::text::digits;
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Bytes of the program's code, on a system that does not say how much of it is in memory.
const CODE: u64 = 8_500_000;
/// The bytes of that code at the most.
const MOST_CODE: u64 = 32_000_000;
/// Bytes of the program beside its data: code that is read later, threads, lists.
const PROGRAM: u64 = 2_500_000;
/// Bytes of a sample while equal ones are merged.
pub(crate) const MERGED: u64 = 40;
/// Bytes per draw that the diagnostics of a series need.
const DIAGNOSTICS: u64 = 56;
/// Bytes of a chain: its generator and its list of draws.
const CHAIN: u64 = 220;

/// Bytes of a distinct sample of a machine, while equal ones are merged.
const MACHINE_ROW: u64 = 120;
/// Bytes per parameter of a machine: L-BFGS, and a gradient for each of 64 chunks of the samples; and of
/// contrastive divergence, which has neither.
const MACHINE_PARAMETER: u64 = 900;
const UPDATED_PARAMETER: u64 = 100;

/// The option that limits memory.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct MemoryLimit {
    /// Refuse a fit that would take more memory; by default, more than the machine has left
    #[arg(long, value_name = "MB", value_parser = not_negative, help_heading = "Limits")]
    memory_limit: Option<f64>,
}

impl MemoryLimit {
    /// Returns the limit in bytes.
    pub fn bytes(self) -> Option<u64> {
        self.memory_limit.map(|megabytes| (1e6 * megabytes) as u64)
    }

    /// Returns the limit, or another number of megabytes if there is none.
    pub(crate) fn or(self, megabytes: Option<f64>) -> Self {
        Self {
            memory_limit: self.memory_limit.or(megabytes),
        }
    }
}

/// The bytes of the parts of a fit.
#[derive(Clone, Copy, Debug)]
pub struct FitBytes {
    /// The program.
    pub program: u64,
    /// The data as they were read.
    pub raster: u64,
    /// The data as they are fitted.
    pub samples: u64,
    /// What a fit takes beside them.
    pub working: u64,
}

impl FitBytes {
    /// Returns the parts of a fit of `samples`, made from `raster`: see [`bytes_of_fit`].
    pub fn new(raster: &Raster, samples: &Samples, n_parameters: usize) -> Self {
        let states = &raster.states;
        let rows = 8 * states.n_samples() * states.words_per_row();
        let counts = 8 * raster.weights.as_ref().map_or(0, Vec::len);
        let fit = bytes_of_fit(samples, n_parameters) as u64;
        let samples = samples.bytes() as u64;
        Self {
            program: of_program(),
            raster: (rows + counts) as u64,
            samples,
            working: fit - samples,
        }
    }

    /// Returns what the data take, as they were read and as they are fitted.
    pub fn data(self) -> u64 {
        self.raster.saturating_add(self.samples)
    }

    /// Returns what is there before a step: the program and the data.
    pub fn before(self) -> u64 {
        self.program.saturating_add(self.data())
    }

    /// Returns their sum.
    pub fn total(self) -> u64 {
        self.before().saturating_add(self.working)
    }
}

/// Returns the bytes of the program without data. How much of its file is in memory is for the system to
/// decide: what is there already is nearly all that a command needs. (Another program, as Python, may have
/// files of its own.)
pub fn of_program() -> u64 {
    let code = resident(&["RssFile:", "RssShmem:"]).unwrap_or(CODE);
    PROGRAM + code.min(MOST_CODE)
}

/// Returns the bytes of the program with the data that it holds now.
pub fn held() -> u64 {
    resident(&["VmRSS:"]).map_or_else(of_program, |held| held + PROGRAM)
}

/// Returns the sum of some lines of `/proc/self/status`.
fn resident(names: &[&str]) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    names.iter().map(|name| bytes_of_line(&status, name)).sum()
}

/// Returns the bytes in the line that begins with `name`, of a file in `/proc`.
fn bytes_of_line(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// Returns the product, or the largest number.
pub fn product(factors: &[u64]) -> u64 {
    factors.iter().fold(1, |p: u64, f| p.saturating_mul(*f))
}

/// Returns the bytes that a process takes to draw `n_draws` states of `n_units` in `n_chains`. It holds
/// them once while it diagnoses every unit beside the numbers of a series, and twice while it pools the
/// chains. The state of a chain takes `state` bytes. A checkpoint holds chains and draws once more, and
/// once again, encoded, while it is written: the estimate takes the mean of the two.
pub fn of_draws(
    n_draws: usize,
    n_units: usize,
    n_chains: usize,
    state: usize,
    is_kept: bool,
) -> u64 {
    let row = 8 * n_units.div_ceil(64) as u64;
    let chain = CHAIN + state as u64;
    let (kept, chain) = match is_kept {
        true => (row, 12 * chain / 5),
        false => (0, chain),
    };
    let draw = kept + (2 * row).max(row + DIAGNOSTICS);
    product(&[n_draws as u64, draw]).saturating_add(product(&[n_chains as u64, chain]))
}

/// Returns what the fit of a machine takes beside `samples`: their sites, a byte each, and numbers for
/// every parameter.
///
/// # Errors
/// Those of [`MachineOptions::n_parameters`].
pub fn of_machine(samples: &Samples, options: &MachineOptions) -> Result<u64, Failure> {
    let row = MACHINE_ROW + 2 * samples.n_units() as u64;
    let rows = product(&[samples.n_distinct() as u64, row]);
    let parameter = match options.trainer {
        MachineTrainer::Pseudolikelihood | MachineTrainer::Mpf => MACHINE_PARAMETER,
        MachineTrainer::Contrastive | MachineTrainer::Persistent => UPDATED_PARAMETER,
    };
    let n_parameters = options.n_parameters(samples.n_units())? as u64;
    Ok(rows.saturating_add(product(&[parameter, n_parameters])))
}

/// Refuses `what` if it needs more than `limit` bytes or, without a limit, more than the machine has
/// left; `instead` is the hint. Without a limit on a system that does not say what is left, nothing
/// is refused.
///
/// # Errors
/// A [`Failure`] with both numbers.
pub fn check(what: &str, needed: u64, limit: Option<u64>, instead: &str) -> Result<(), Failure> {
    Room::new(limit).check(what, needed, instead)
}

/// The memory that a command may take.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Its bytes.
    pub bytes: u64,
    /// Who says so.
    whose: &'static str,
}

impl Room {
    /// Returns `limit` or, without one, what the machine has left.
    pub fn new(limit: Option<u64>) -> Self {
        match limit {
            Some(bytes) => Self {
                bytes,
                whose: "--memory-limit allows",
            },
            None => Self {
                bytes: available().unwrap_or(u64::MAX),
                whose: "this machine has left",
            },
        }
    }

    /// Refuses `what` if it needs more; `instead` is the hint.
    ///
    /// # Errors
    /// A [`Failure`] with both numbers.
    pub fn check(self, what: &str, needed: u64, instead: &str) -> Result<(), Failure> {
        if needed <= self.bytes {
            return Ok(());
        }
        Err(Failure::input(format!(
            "{what} would take about {}, but {} only {}",
            in_words(needed),
            self.whose,
            in_words(self.bytes)
        ))
        .hint(instead))
    }

    /// Reads all bytes of `path`, of which there may be a quarter of the room: what is made of them takes
    /// more. A pipe or device is read no further.
    ///
    /// # Errors
    /// A [`Failure`] for bytes that cannot be read, or are more.
    pub fn read_whole(self, path: &Path, bytes: impl Read) -> Result<Vec<u8>, Failure> {
        let most = self.bytes / 4;
        let mut all = Vec::new();
        let read = bytes.take(most.saturating_add(1)).read_to_end(&mut all);
        let n = read.map_err(|error| match error.kind() {
            ErrorKind::InvalidData => Failure::at(path, error),
            _ => Failure::unreadable(path, &error),
        })?;
        if n as u64 <= most {
            return Ok(all);
        }
        let most = in_words(most);
        let why = format!("it has more than {most}, a quarter of what {}", self.whose);
        Err(Failure::at(path, why).hint("is it the right file?"))
    }
}

/// Reads a whole file, or standard input for `-`: see [`Room::read_whole`].
///
/// # Errors
/// A [`Failure`] for a file that cannot be read, or is larger.
pub fn read_file(path: &Path, limit: Option<u64>) -> Result<Vec<u8>, Failure> {
    Room::new(limit).read_whole(path, open(path)?)
}

/// As [`read_file`], of a text. A device of zero bytes is read no further.
///
/// # Errors
/// As [`read_file`]; a [`Failure`] for bytes that are no text.
pub fn read_text(path: &Path, limit: Option<u64>) -> Result<String, Failure> {
    let bytes = Room::new(limit).read_whole(path, Text(open(path)?))?;
    String::from_utf8(bytes).map_err(|_| Failure::at(path, "this is no text in UTF-8"))
}

fn open(path: &Path) -> Result<Box<dyn Read>, Failure> {
    if data::is_standard(path) {
        return Ok(Box::new(io::stdin()));
    }
    match fs::File::open(path) {
        Ok(file) => Ok(Box::new(file)),
        Err(error) => Err(Failure::unreadable(path, &error)),
    }
}

/// A reader that fails where it reads nothing but zero bytes, as a device gives them.
pub struct Text<R>(pub R);

/// Fewer zero bytes may be the name of a unit.
const FEW_ZEROS: usize = 16;

impl<R: Read> Read for Text<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.0.read(buffer)?;
        match n > FEW_ZEROS && buffer[..n].iter().all(|byte| *byte == 0) {
            true => Err(io::Error::new(
                ErrorKind::InvalidData,
                "this is no text in UTF-8: it holds zero bytes",
            )),
            false => Ok(n),
        }
    }
}

/// Formats the bytes that a command is expected to take: no fewer than it has taken so far.
pub fn expected_in_words(bytes: u64) -> String {
    in_words(bytes.max(resident(&["VmHWM:"]).unwrap_or(0)))
}

/// Formats a number of bytes in MB, GB or TB.
pub fn in_words(bytes: u64) -> String {
    let bytes = bytes as f64;
    let units = [("TB", 1e12), ("GB", 1e9)];
    let large = units.into_iter().find(|(_, size)| bytes >= 10.0 * size);
    let (unit, size) = large.unwrap_or(("MB", 1e6));
    format!("{} {unit}", digits(bytes / size))
}

/// Returns the bytes that can be had without swapping: the least of what the machine, the control
/// groups of this process and its own limits (`ulimit -v`) have left. `None` on a system that does
/// not say.
pub fn available() -> Option<u64> {
    let text = |path: &Path| fs::read_to_string(path).ok();
    let machine = text(Path::new("/proc/meminfo"));
    let machine = machine.and_then(|text| bytes_of_line(&text, "MemAvailable:"));
    let groups = text(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let groups = group_folders(&groups);
    let left = groups.iter().filter_map(|folder| {
        let read = |name: &str| text(&Path::new(folder).join(name));
        of_group(
            &read("memory.max").or_else(|| read("memory.limit_in_bytes"))?,
            &read("memory.current").or_else(|| read("memory.usage_in_bytes"))?,
            &read("memory.stat").unwrap_or_default(),
        )
    });
    let limits = text(Path::new("/proc/self/limits")).zip(text(Path::new("/proc/self/status")));
    let own = limits.and_then(|(limits, status)| of_limits(&limits, &status, of_program()));
    machine.into_iter().chain(left).chain(own).min()
}

/// Returns what `/proc/self/limits` leaves beside the sizes of `/proc/self/status`, and what the program takes.
fn of_limits(limits: &str, status: &str, program: u64) -> Option<u64> {
    let left = [
        ("Max address space", "VmSize:"),
        ("Max data size", "VmData:"),
    ]
    .map(|(limit, size)| {
        let limit = limits.lines().find_map(|l| l.strip_prefix(limit))?;
        let limit: u64 = limit.split_whitespace().next()?.parse().ok()?;
        // The program that is counted is there already.
        Some(limit.saturating_sub(bytes_of_line(status, size)?) + program)
    });
    left.into_iter().flatten().min()
}

/// Returns the folders of the control groups in `/proc/self/cgroup` and of their ancestors, of
/// versions 2 and 1. (In a container the group itself is mounted at the root.)
fn group_folders(text: &str) -> Vec<String> {
    let mut folders = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let root = match controllers {
            "" => "/sys/fs/cgroup",
            _ if controllers.split(',').any(|c| c == "memory") => "/sys/fs/cgroup/memory",
            _ => continue,
        };
        let ancestors = Path::new(path).ancestors();
        folders.extend(ancestors.map(|a| format!("{root}{}", a.display())));
    }
    folders
}

/// Returns the bytes that a group has left. Cached files count as free.
fn of_group(limit: &str, usage: &str, stat: &str) -> Option<u64> {
    let limit: u64 = limit.trim().parse().ok()?;
    let usage: u64 = usage.trim().parse().ok()?;
    let forgettable = ["inactive_file ", "total_inactive_file "]
        .iter()
        .find_map(|key| stat.lines().find_map(|l| l.strip_prefix(key)))
        .and_then(|n| n.trim().parse().ok())
        .unwrap_or(0);
    Some(limit.saturating_sub(usage.saturating_sub(forgettable)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_understood() {
        let meminfo = "MemTotal:       24000000 kB\nMemAvailable:   1000 kB\n";
        let left = |text| bytes_of_line(text, "MemAvailable:");
        assert_eq!(left(meminfo), Some(1_024_000));
        assert_eq!(left("MemTotal: 3 kB"), None);
        let groups = "0::/user/job\n5:cpu:/x\n7:memory,cpuset:/y\n";
        assert_eq!(
            group_folders(groups),
            [
                "/sys/fs/cgroup/user/job",
                "/sys/fs/cgroup/user",
                "/sys/fs/cgroup/",
                "/sys/fs/cgroup/memory/y",
                "/sys/fs/cgroup/memory/",
            ]
        );
        let stat = "anon 500\ninactive_file 300\n";
        assert_eq!(of_group("1000\n", "900\n", stat), Some(400));
        assert_eq!(of_group("max\n", "900\n", stat), None);
        assert_eq!(of_group("100\n", "900\n", ""), Some(0));
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max data size             unlimited            unlimited            bytes\n\
                      Max address space         40000000             unlimited            bytes\n";
        let status = "VmSize:\t   10000 kB\nVmData:\t  1 kB\n";
        let left = 40_000_000 - 10_240_000 + 7;
        assert_eq!(of_limits(limits, status, 7), Some(left));
        let unlimited = limits.replace("40000000", "unlimited");
        assert_eq!(of_limits(&unlimited, status, 7), None);
    }

    #[test]
    fn what_is_too_much_is_refused_with_both_numbers() {
        let check = |needed, limit| check("this fit", needed, limit, "do less");
        assert_eq!(check(5_000_000, Some(5_000_000)), Ok(()));
        let failure = check(50_000_000, Some(5_000_000)).unwrap_err();
        assert!(
            failure.message.contains("this fit would take about 50"),
            "{failure}"
        );
        assert_eq!(failure.hint.unwrap(), "do less");
        #[cfg(target_os = "linux")]
        {
            assert!(available().is_some());
            assert!(check(u64::MAX, None).is_err());
        }
        assert_eq!(check(1, None), Ok(()));
        assert_eq!(of_draws(usize::MAX, 1000, 4, 8000, false), u64::MAX);
        assert_eq!(of_draws(1, 1000, usize::MAX, 8000, true), u64::MAX);
        assert_eq!(in_words(31_400_000), "31.40 MB");
        assert_eq!(in_words(23_830_000_000), "23.83 GB");
        assert_eq!(in_words(64_000_000_000_000), "64.00 TB");
    }
}
