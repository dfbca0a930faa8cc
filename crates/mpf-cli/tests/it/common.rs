//! Runs the built program in a folder of its own.

use mpf_cli::internal::write_raster;
use mpf_ising::States;
use std::fs;
use std::path::Path;
use std::process::Command;

#[allow(dead_code)] // Not every test looks at all of it.
pub struct Outcome {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// `mpf` with `arguments`, split at blanks, in `folder`.
pub fn mpf(folder: &Path, arguments: &str) -> Outcome {
    let output = Command::new(env!("CARGO_BIN_EXE_mpf"))
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .env_remove("NO_COLOR")
        .output()
        .expect("the program runs");
    Outcome {
        code: output.status.code().expect("it ends by itself"),
        stdout: String::from_utf8(output.stdout).expect("it prints text"),
        stderr: String::from_utf8(output.stderr).expect("it prints text"),
    }
}

/// Writes samples of the first 17 units of the demo to `name`, and its model to `t.json`. A fit of so many
/// units takes the same steps as one of more, but their ln Z is a sum over all states: to anneal it would take
/// longer than all else.
pub fn write_few_units(folder: &Path, n_samples: usize, name: &str) {
    const UNITS: usize = 17;
    let made = mpf(
        folder,
        &format!("demo -n {n_samples} -o all.csv --truth t.json"),
    );
    assert_eq!(made.code, 0, "{}", made.stderr);
    let text = fs::read_to_string(folder.join("all.csv")).unwrap();
    fs::remove_file(folder.join("all.csv")).unwrap();
    let mut rows = text.lines().map(|row| row.split(',').take(UNITS));
    let names: Vec<String> = rows.next().unwrap().map(str::to_owned).collect();
    let mut states = States::new(UNITS).unwrap();
    for row in rows {
        let bits = row.enumerate();
        states.push(&[bits.fold(0, |word, (at, bit)| word | u64::from(bit == "1") << at)]);
    }
    write_raster(&folder.join(name), &states, &names, false).unwrap();
}
