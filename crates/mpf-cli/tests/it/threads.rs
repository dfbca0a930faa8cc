//! The same bits for any number of threads, from the built program.

use mpf_cli::internal::write_raster;
use mpf_cli::internal::{Convention, Model};
use mpf_core::rng::stream;
use mpf_ising::{Couplings, Exact};
use rand::RngExt;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs `mpf` with so many threads.
fn mpf(folder: &Path, threads: usize, arguments: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_mpf"))
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .env("RAYON_NUM_THREADS", threads.to_string())
        .output()
        .expect("the program runs");
    // 3: the model is written, though the fit did not converge.
    assert!(
        matches!(output.status.code(), Some(0 | 3)),
        "{arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A file without what is about time: its checksum goes with it.
fn timeless(text: &str) -> String {
    let timed = ["\"seconds\"", "\"checksum\"", "_seconds\""];
    let lines = text.lines();
    lines
        .filter(|line| !timed.iter().any(|word| line.contains(word)))
        .collect::<Vec<_>>()
        .join("\n")
}

/// `truth.json` and 3000 samples of it in `x.csv`.
fn write_example(folder: &Path) {
    let d = 9;
    let mut rng = stream(3, 0);
    let packed: Vec<f64> = (0..d * (d + 1) / 2)
        .map(|_| rng.random_range(-0.6..0.8))
        .collect();
    let couplings = Couplings::unpack(d, &packed).unwrap();
    let states = Exact::new(&couplings).unwrap().draw(3000, 3);
    let names: Vec<String> = (0..d).map(|i| format!("u{i}")).collect();
    write_raster(&folder.join("x.csv"), &states, &names, false).unwrap();
    let truth = Model::unfitted(couplings, names);
    truth
        .write(&folder.join("truth.json"), Convention::Binary)
        .unwrap();
}

/// Checks that commands leave the same bytes in their file for one, two, three and eight threads.
fn check(commands: &[(&str, &str)]) {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    write_example(at);
    for (arguments, file) in commands {
        let mut first = None;
        for threads in [1, 2, 3, 8] {
            mpf(at, threads, arguments);
            let bytes = fs::read(at.join(file)).unwrap();
            let bytes = match String::from_utf8(bytes) {
                Ok(text) => timeless(&text).into_bytes(),
                Err(array) => array.into_bytes(),
            };
            fs::remove_file(at.join(file)).unwrap();
            let expected = first.get_or_insert_with(|| bytes.clone());
            assert!(*expected == bytes, "{arguments}: {threads} threads differ");
        }
    }
}

/// Fits by every kind of estimator.
const FITS: [&str; 8] = [
    "--method mpf --polish 20",
    "--method mpf --nodewise --l1 0.01 --polish 0",
    "--method rise --l1 0.02 --polish 0",
    "--method cd --updates 15",
    "--method ml --max-iterations 8",
    "--model k-pairwise --max-iterations 8",
    "--model srbm --hidden 3 --starts 2 --max-iterations 8",
    "--model rbm --hidden 3 --method pcd --updates 20",
];

#[test]
fn fits_have_the_same_bits_for_any_number_of_threads() {
    let fits = FITS.map(|options| format!("fit x.csv {options} -o m.json"));
    check(&fits.each_ref().map(|fit| (fit.as_str(), "m.json")));
}

#[test]
fn other_commands_have_the_same_bits_for_any_number_of_threads() {
    check(&[
        (
            "fit x.csv --method pl --errors sandwich -o m.json",
            "m.json",
        ),
        (
            "fit x.csv --method pl --errors bootstrap --resamples 8 -o m.json",
            "m.json",
        ),
        (
            "fit x.csv --l1 auto --folds 3 --tolerance 1e-3 -o m.json",
            "m.json",
        ),
        (
            "sample truth.json -n 300 --sampler gibbs -o draws.npy",
            "draws.npy",
        ),
        (
            "sample truth.json -n 300 --sampler tempering -o draws.npy",
            "draws.npy",
        ),
        (
            "compare x.csv --methods mpf,pl,independent -o c.json",
            "c.json",
        ),
        ("evaluate truth.json x.csv -o e.json", "e.json"),
    ]);
}
