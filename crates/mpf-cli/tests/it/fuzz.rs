//! The fuzz targets on stable: the seeds, then inputs that are made of them by a seeded mutation or by
//! proptest, no panic. There are 5000 of these per target, or as many as `MPF_FUZZ_INPUTS` says;
//! `MPF_TEST_SEED` gives others.
//!
//! What `cargo fuzz` finds belongs into `fuzz/seeds/`, where it is tried first ever after.

#[path = "../../../../fuzz/src/lib.rs"]
mod targets;

use mpf_cli::internal::{Convention, FitRecord, Model};
use mpf_core::rng::{Xoshiro256PlusPlus, stream};
use mpf_ising::Couplings;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use rand::RngExt;
use std::fs;
use std::io::{Cursor, Write};
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::time::Duration;
use zip::write::{SimpleFileOptions, ZipWriter};

/// Inputs per target.
const INPUTS: u32 = 5000;
/// One in so many inputs is any bytes; the others are mutated seeds.
const ARBITRARY: u32 = 10;

fn folder(target: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    root.join(target)
}

/// The seeds in the order of their names.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let files = fs::read_dir(folder(target)).expect("seeds are committed");
    let mut paths: Vec<PathBuf> = files.map(|f| f.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn exercise(name: &str, target: fn(&[u8])) {
    let attempt = |input: &[u8]| {
        if catch_unwind(|| target(input)).is_err() {
            panic!("{name} fails on {:?}", input.escape_ascii().to_string());
        }
    };
    let seeds = seeds(name);
    assert!(!seeds.is_empty());
    seeds.iter().for_each(|seed| attempt(seed));
    let seed = std::env::var("MPF_TEST_SEED").map_or(0, |s| s.parse().unwrap());
    let inputs = std::env::var("MPF_FUZZ_INPUTS").map_or(INPUTS, |n| n.parse().unwrap());
    let mut rng = stream(seed, 0);
    for _ in 0..inputs - inputs / ARBITRARY {
        attempt(&mutated(&seeds, &mut rng));
    }
    let config = ProptestConfig {
        cases: inputs / ARBITRARY,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let mut runner = TestRunner::new_with_rng(
        config,
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    );
    runner
        .run(&vec(any::<u8>(), 0..160), |input| {
            target(&input);
            Ok(())
        })
        .unwrap();
}

/// Numbers as text that readers may stumble over.
const WORDS: [&str; 12] = [
    "1000000000000",
    "18446744073709551615",
    "-1",
    "0",
    "1",
    "1e300",
    "1e-320",
    "nan",
    "inf",
    "null",
    "\"",
    "\n",
];

/// A seed after a few changes.
fn mutated(seeds: &[Vec<u8>], rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let mut bytes = seeds[rng.random_range(0..seeds.len())].clone();
    for _ in 0..rng.random_range(1..4) {
        let n = bytes.len();
        let at = rng.random_range(0..n.max(1)).min(n);
        let end = n.min(at + rng.random_range(0..24));
        match rng.random_range(0..10) {
            0 => bytes.truncate(at),
            1 if at < n => bytes[at] ^= 1 << rng.random_range(0..8),
            2 if at < n => bytes[at] = rng.random(),
            3 if at < n => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, b'0', b',', b'"'][at % 8],
            4 => drop(bytes.drain(at..end)),
            5 => bytes.extend_from_within(at..end),
            6 => {
                // The end of another seed.
                let other = &seeds[rng.random_range(0..seeds.len())];
                let from = rng.random_range(0..other.len().max(1)).min(other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            7 => {
                // A run of digits becomes another number.
                let start = (at..n).find(|k| bytes[*k].is_ascii_digit()).unwrap_or(n);
                let digits = bytes[start..].iter().take_while(|b| b.is_ascii_digit());
                let end = start + digits.count();
                let word = WORDS[rng.random_range(0..WORDS.len())];
                drop(bytes.splice(start..end, word.bytes()));
            }
            8 => {
                let word = WORDS[rng.random_range(0..WORDS.len())];
                drop(bytes.splice(at..at, word.bytes()));
            }
            _ => {
                // A length or a number in a binary header.
                let extreme = [u64::MAX, 1 << 40, 0x7fff_ffff, 1e300f64.to_bits(), 0];
                let value = extreme[rng.random_range(0..extreme.len())].to_le_bytes();
                let width = [2, 4, 8][rng.random_range(0..3)].min(n - at);
                bytes[at..at + width].copy_from_slice(&value[..width]);
            }
        }
    }
    bytes
}

macro_rules! targets {
    ($($name:ident),*) => {$(
        #[test]
        fn $name() {
            exercise(stringify!($name), targets::$name);
        }
    )*};
}

targets!(npy, npz, text, edges, model, checkpoint, fit);

/// The checkpoints among the seeds, with the work that left them and the write that they are.
const CHECKPOINTS: [(&str, &str, usize); 6] = [
    ("fit-start", "fit", 0),
    ("fit", "fit", 3),
    ("rows", "rows", 1),
    ("updates", "updates", 3),
    ("path", "path", 1),
    ("chains", "chains", 3),
];

/// Mutations of the seeds reach the code that resumes, because the seeds themselves are resumed.
#[test]
fn checkpoints_among_the_seeds_are_whole() {
    let work = targets::LongWork::new();
    for (name, kind, _) in CHECKPOINTS {
        let afresh = targets::Memory::default();
        let expected = work.run(kind, &afresh.checkpoint(Duration::ZERO)).unwrap();
        let seed = fs::read(folder("checkpoint").join(name)).unwrap();
        let resumed = targets::Memory::new(&seed);
        let checkpoint = resumed.checkpoint(Duration::ZERO);
        assert!(checkpoint.load().unwrap(), "{name}");
        assert_eq!(work.run(kind, &checkpoint).unwrap(), expected, "{name}");
        // The seed is the first of its writes.
        let n_writes = resumed.writes().len() - 1;
        assert!(n_writes < afresh.writes().len(), "{name} starts afresh");
    }
}

/// `cargo test -p mpf-cli write_seeds -- --ignored` makes the seeds again.
#[test]
#[ignore = "writes fuzz/seeds"]
fn write_seeds() {
    let write = |target: &str, name: &str, contents: &[u8]| {
        fs::create_dir_all(folder(target)).unwrap();
        fs::write(folder(target).join(name), contents).unwrap();
    };
    let array = |descr: &str, fortran: bool, shape: &[usize], numbers: &[u8]| {
        let mut header = mpf_cli::internal::Header::new(descr, shape);
        header.fortran = fortran;
        let mut bytes = Vec::new();
        header.write(&mut bytes).unwrap();
        [bytes, numbers.to_vec()].concat()
    };
    let bits = array("|u1", false, &[3, 2], &[0, 1, 1, 0, 1, 1]);
    write("npy", "bytes", &bits);
    let doubles: Vec<u8> = [1.0, -1.0, -1.0, 1.0].map(f64::to_le_bytes).concat();
    write("npy", "spins", &array("<f8", false, &[2, 2], &doubles));
    let wide: Vec<u8> = [0u16, 1, 1, 1, 0, 0].map(u16::to_be_bytes).concat();
    write("npy", "fortran", &array(">u2", true, &[3, 2], &wide));

    let names: Vec<u8> = "ab"
        .chars()
        .flat_map(|c| (c as u32).to_le_bytes())
        .collect();
    let names = array("<U1", false, &[2], &names);
    for (file, method) in [
        ("stored", zip::CompressionMethod::Stored),
        ("deflated", zip::CompressionMethod::Deflated),
    ] {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default().compression_method(method);
        for (name, contents) in [("x.npy", &bits), ("names.npy", &names)] {
            zip.start_file(name, options).unwrap();
            zip.write_all(contents).unwrap();
        }
        write("npz", file, &zip.finish().unwrap().into_inner());
    }

    write("text", "names", b"a,b,c\n0,1,1\n1,0,0\n1,1,0\n");
    write("text", "blanks", b"# recording\n0 1 7\n1 0 2\n\n1 1 0\n");
    write("text", "spins", b"\"a\"\t\"b\"\n-1\t1\n1\t-1\n");
    write(
        "edges",
        "edges",
        b"# graph\nfrom,to,weight\na,b,0.3\n2 0\nc\tb\n",
    );
    write("edges", "numbers", b"0 1\n1 2\n3 4\n");

    let model = Model {
        program: "mpf".into(),
        couplings: Couplings::unpack(2, &[0.5, -0.25, 1e-3]).unwrap(),
        hidden: None,
        names: vec!["a".into(), "b".into()],
        errors: None,
        fit: Some(FitRecord::default()),
        data: None,
    };
    let work = tempfile::tempdir().unwrap();
    for name in ["json", "npz", "csv"] {
        let path = work.path().join("m").with_extension(name);
        model.write(&path, Convention::Spins).unwrap();
        write("model", name, &fs::read(path).unwrap());
    }
    let plain = Model { fit: None, ..model };
    write(
        "model",
        "short",
        plain.to_json(Convention::Binary).as_bytes(),
    );
    write("model", "table", b"unit,a,b\na,0.5,-1\nb,-1,2\n");

    let work = targets::LongWork::new();
    for (name, kind, at) in CHECKPOINTS {
        let file = targets::Memory::default();
        drop(work.run(kind, &file.checkpoint(Duration::ZERO)).unwrap());
        write("checkpoint", name, &file.writes()[at]);
    }

    // Units, samples, method, neighbours and support, switches, rows, numbers.
    for (name, input) in [
        ("mpf", &[3, 7, 0, 0xff, 0, 1, 2, 3, 4, 5, 6, 7, 8][..]),
        ("pl-l1", &[2, 5, 4, 0xff, 4, 1, 2, 3, 7, 0, 5, 9]),
        ("rise-l2", &[2, 5, 7, 0xff, 8, 1, 2, 3, 7, 0, 5, 9]),
        (
            "ml-start",
            &[1, 4, 9, 0xff, 2, 0, 1, 2, 3, 3, 110, 130, 160],
        ),
        (
            "tap-weights",
            &[2, 4, 11, 0xff, 5, 1, 2, 3, 7, 0, 9, 9, 16, 80, 9, 2],
        ),
        ("cd", &[3, 7, 15, 0xff, 0x40, 1, 2, 3, 4, 5, 6, 7, 8]),
        (
            "rows-fixed",
            &[
                3, 7, 0x10, 0xe0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 150, 151, 152, 153,
            ],
        ),
        ("complement", &[1, 3, 1, 0x7f, 0x20, 0, 1, 2, 3]),
    ] {
        write("fit", name, input);
    }
}
