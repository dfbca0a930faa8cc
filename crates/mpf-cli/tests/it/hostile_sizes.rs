//! Files of a few hundred bytes that claim to be huge, archives that are more than they say, and
//! options that ask for more than there can be: refused by the built program within an address
//! space in which none of them would fit.
use crate::common::mpf;
use mpf_cli::internal::Header;
use std::fs;
use std::io::{Cursor, Write};
use std::path::Path;
use std::process::Command;
use zip::CompressionMethod::{Deflated, Stored};
use zip::write::{SimpleFileOptions, ZipWriter};

/// Kilobytes of address space: enough for the program and its threads, and a few files as these.
const LIMIT: usize = 1_000_000;

/// What `mpf` says about a file that it must refuse.
fn refusal(folder: &Path, name: &str, contents: &[u8], arguments: &str) -> String {
    fs::write(folder.join(name), contents).unwrap();
    let output = Command::new("sh")
        .args(["-c", "ulimit -v $0; exec \"$@\"", &LIMIT.to_string()])
        .arg(env!("CARGO_BIN_EXE_mpf"))
        .args(arguments.split_whitespace())
        .env("RAYON_NUM_THREADS", "2")
        .current_dir(folder)
        .output()
        .expect("the program runs");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{name}: {said}");
    said
}

fn array(descr: &str, shape: &[usize], numbers: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Header::new(descr, shape).write(&mut bytes).unwrap();
    [bytes, numbers.to_vec()].concat()
}

fn archive(method: zip::CompressionMethod, entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(method);
    for (name, contents) in entries {
        zip.start_file(format!("{name}.npy"), options).unwrap();
        zip.write_all(contents).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// The archive with another size of its first entry, in both places that say it.
fn with_size(mut zip: Vec<u8>, size: u32) -> Vec<u8> {
    let at = |signature: &[u8]| zip.windows(4).position(|w| w == signature).unwrap();
    let places = [at(b"PK\x03\x04") + 22, at(b"PK\x01\x02") + 24];
    for place in places {
        zip[place..place + 4].copy_from_slice(&size.to_le_bytes());
    }
    zip
}

const TRILLION: usize = 1_000_000_000_000;
const FIT: &str = "fit x.npz -o out.json";

#[test]
fn arrays_that_claim_more_than_they_hold() {
    let folder = tempfile::tempdir().unwrap();
    for shape in [
        &[TRILLION, 3][..],
        &[3, TRILLION],
        &[usize::MAX, usize::MAX],
        &[1 << 40, 1 << 40],
    ] {
        let claim = array("|u1", shape, &[0, 1, 1]);
        assert!(claim.len() < 200);
        refusal(folder.path(), "x.npy", &claim, "fit x.npy -o out.json");
        refusal(
            folder.path(),
            "x.npy",
            &claim,
            "fit x.npy --transpose -o out.json",
        );
        for method in [Stored, Deflated] {
            let claim = archive(method, &[("x", claim.clone())]);
            refusal(folder.path(), "x.npz", &claim, FIT);
        }
    }
}

#[test]
fn archives_that_lie_about_their_entries() {
    let folder = tempfile::tempdir().unwrap();
    let claim = array("|u1", &[1_000_000_000, 4], &[0, 1, 1, 0]);
    let lie = with_size(archive(Deflated, &[("x", claim)]), 4_000_000_128);
    let said = refusal(folder.path(), "x.npz", &lie, FIT);
    assert!(said.contains("are said to hold"), "{said}");

    // 256 MiB of zeros after an array of two rows, in a quarter of a megabyte.
    let mut bomb = array("|u1", &[2, 2], &[0, 1, 1, 0]);
    let length = bomb.len() as u32;
    bomb.resize(256 << 20, 0);
    let bomb = archive(Deflated, &[("x", bomb)]);
    assert!(bomb.len() < 1 << 19);
    refusal(folder.path(), "x.npz", &bomb, FIT);
    let said = refusal(folder.path(), "x.npz", &with_size(bomb, length), FIT);
    assert!(said.contains("larger than its declared"), "{said}");

    // Names that take no room at all.
    let bits = array("|u1", &[2, 2], &[0, 1, 1, 0]);
    for descr in ["<U0", "<U1", "<U99999999999999999"] {
        let names = array(descr, &[TRILLION], &[]);
        let zip = archive(Stored, &[("x", bits.clone()), ("names", names)]);
        refusal(folder.path(), "x.npz", &zip, FIT);
    }
    // Names that take more than there is.
    let names = array("<U200000", &[2], &b"a\0\0\0".repeat(400_000));
    let zip = archive(Deflated, &[("x", bits), ("names", names)]);
    let limited = format!("{FIT} --memory-limit 1");
    let said = refusal(folder.path(), "x.npz", &zip, &limited);
    assert!(said.contains("the array \"names\" would take"), "{said}");
}

#[test]
fn models_that_claim_more_than_they_hold() {
    let folder = tempfile::tempdir().unwrap();
    let convert = "convert m.npz -o out.json";
    let empty = array("<U1", &[1], &[0; 4]);
    for (j, about) in [
        (array("<f8", &[TRILLION, TRILLION], &[]), empty.clone()),
        (array("<f8", &[1 << 20, 1 << 20], &[0; 64]), empty),
        (
            array("<f8", &[1, 1], &[0; 8]),
            array("<U1000000000000", &[], &[]),
        ),
    ] {
        let zip = archive(Stored, &[("J", j), ("about", about)]);
        refusal(folder.path(), "m.npz", &zip, convert);
    }
    let deep = "[".repeat(1 << 20);
    refusal(
        folder.path(),
        "m.json",
        deep.as_bytes(),
        "convert m.json -o out.npz",
    );
}

/// Devices without an end are given up at their first block, not at a quarter of the memory.
#[test]
fn texts_that_are_devices_are_not_read_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let made = mpf(path, "demo -n 50 -o r.npy --truth t.json");
    assert_eq!(made.code, 0, "{}", made.stderr);
    for name in ["z.json", "z.csv", "z.a2m"] {
        std::os::unix::fs::symlink("/dev/zero", path.join(name)).unwrap();
    }
    for arguments in [
        "fit r.npy --support /dev/zero -o m.json",
        "sample z.json -n 5 -o s.npy",
        "convert z.csv -o m.json",
        "evaluate z.json r.npy -o e.html",
        "dca z.a2m -o s.csv",
    ] {
        let refused = mpf(path, arguments);
        assert_eq!(refused.code, 2, "{arguments}: {}", refused.stderr);
        assert!(
            refused.stderr.contains("zero bytes"),
            "{arguments}: {}",
            refused.stderr
        );
    }
}

#[test]
fn options_that_ask_for_more_than_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let data = "0,1,0\n1,0,0\n1,1,1\n0,0,1\n".repeat(5);
    fs::write(folder.join("x.csv"), &data).unwrap();
    assert_eq!(crate::common::mpf(folder, "fit x.csv -o m.json").code, 0);
    let refused = |arguments: &str, because: &str| {
        let said = refusal(folder, "x.csv", data.as_bytes(), arguments);
        assert!(said.contains(because), "{arguments}: {said}");
    };
    for number in [TRILLION, usize::MAX] {
        for (arguments, because) in [
            ("sample m.json -o s.npy -n", "so many draws would take"),
            ("sample m.json --sampler exact -o s.npy -n", "so many draws"),
            ("demo -n", "so many draws would take"),
            ("evaluate m.json x.csv --block-length", "blocks of"),
            (
                "fit x.csv -o o.json --errors sandwich --block-length",
                "blocks of",
            ),
            (
                "fit x.csv -o o.json --errors bootstrap --resamples",
                "use fewer --resamples",
            ),
            ("fit x.csv -o o.json --l1 auto --folds", "folds"),
            ("fit x.csv -o o.json --threads", "more than 1024 threads"),
            ("compare x.csv --folds", "folds"),
            ("compare x.csv --block-length", "blocks of"),
        ] {
            refused(&format!("{arguments} {number}"), because);
        }
    }
    for steps in ["--thin", "--thin 2 --burn-in"] {
        let arguments = format!("sample m.json -o s.npy -n 10 {steps} {}", usize::MAX);
        refused(&arguments, "more than can be counted");
    }
    refused("sample m.json -o s.npy --chains 0", "--chains 0");
    refused(
        "compare x.csv --memory-limit 1",
        "--memory-limit allows only 1.000 MB",
    );
    // Three rows that stand for twenty million.
    let counts = b"a,b,n\n0,1,9e6\n1,0,9e6\n1,1,2e6\n";
    for command in ["fit x.csv -o o.json --errors bootstrap", "compare x.csv"] {
        let arguments = format!("{command} --counts n --memory-limit 100");
        let said = refusal(folder, "x.csv", counts, &arguments);
        assert!(said.contains("every sample by itself"), "{said}");
    }
    let files = fs::read_dir(folder).unwrap().count();
    assert_eq!(files, 2, "nothing is written");
}
