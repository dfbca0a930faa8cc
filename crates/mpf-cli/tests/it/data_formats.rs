//! Data as people have them: the same samples in every format and coding give the same model, and
//! what cannot be read is refused with its place and a remedy.

use crate::common::{Outcome, mpf};
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use mpf_cli::internal::Header;
use serde_json::Value;
use std::fs;
use std::io::{Cursor, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;
use zip::CompressionMethod::{Deflated, Stored};
use zip::write::{SimpleFileOptions, ZipWriter};

/// Twelve samples of three units.
const ROWS: [[u8; 3]; 12] = [
    [0, 1, 1],
    [1, 0, 0],
    [1, 1, 0],
    [0, 0, 1],
    [0, 0, 0],
    [1, 1, 1],
    [1, 0, 1],
    [0, 1, 0],
    [0, 0, 0],
    [1, 1, 0],
    [0, 0, 1],
    [0, 1, 1],
];

/// The rows as text, with an entry as `entry` writes it.
fn text(delimiter: &str, entry: impl Fn(u8) -> &'static str) -> String {
    let row = |row: &[u8; 3]| row.map(&entry).join(delimiter) + "\n";
    ROWS.iter().map(row).collect()
}

fn plain(delimiter: &str) -> String {
    text(delimiter, |bit| if bit == 1 { "1" } else { "0" })
}

fn npy(descr: &str, shape: &[usize], numbers: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Header::new(descr, shape).write(&mut bytes).unwrap();
    [bytes, numbers.to_vec()].concat()
}

fn dense() -> Vec<u8> {
    npy("|u1", &[12, 3], ROWS.as_flattened())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
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

fn integers(numbers: &[usize]) -> Vec<u8> {
    let bytes = numbers.iter().flat_map(|n| (*n as i32).to_le_bytes());
    npy("<i4", &[numbers.len()], &bytes.collect::<Vec<u8>>())
}

/// The matrix as `scipy.sparse.save_npz` writes it.
fn sparse(format: &str) -> Vec<u8> {
    let mut entries: Vec<(usize, usize)> = (0..12)
        .flat_map(|row| (0..3).map(move |column| (row, column)))
        .filter(|(row, column)| ROWS[*row][*column] == 1)
        .collect();
    if format == "csc" {
        entries.sort_by_key(|(row, column)| (*column, *row));
    }
    let rows: Vec<usize> = entries.iter().map(|e| e.0).collect();
    let columns: Vec<usize> = entries.iter().map(|e| e.1).collect();
    let starts = |lines: &[usize], n: usize| -> Vec<usize> {
        let before = |line| lines.iter().filter(|l| **l < line).count();
        (0..=n).map(before).collect()
    };
    let mut arrays = vec![
        ("format", npy("|S3", &[], format.as_bytes())),
        (
            "shape",
            npy("<i8", &[2], &[12, 3].map(i64::to_le_bytes).concat()),
        ),
        ("data", npy("|b1", &[rows.len()], &vec![1; rows.len()])),
    ];
    arrays.extend(match format {
        "csr" => [
            ("indptr", integers(&starts(&rows, 12))),
            ("indices", integers(&columns)),
        ],
        "csc" => [
            ("indptr", integers(&starts(&columns, 3))),
            ("indices", integers(&rows)),
        ],
        _ => [("row", integers(&rows)), ("col", integers(&columns))],
    });
    archive(Deflated, &arrays)
}

/// An element of a .mat file.
fn element(kind: u32, contents: &[u8]) -> Vec<u8> {
    let mut bytes = [kind.to_le_bytes(), (contents.len() as u32).to_le_bytes()].concat();
    bytes.extend_from_slice(contents);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// The flags, dimensions and name of a matrix of 12 × 3.
fn beginning(class: u8, name: &str) -> Vec<u8> {
    let size = [12i32, 3].map(i32::to_le_bytes).concat();
    // A name of up to four bytes is a short element.
    let mut short = [1, 0, name.len() as u8, 0, 0, 0, 0, 0];
    short[4..4 + name.len()].copy_from_slice(name.as_bytes());
    [
        element(6, &[class, 2, 0, 0, 0, 0, 0, 0]),
        element(5, &size),
        short.to_vec(),
    ]
    .concat()
}

fn by_column() -> Vec<u8> {
    (0..3).flat_map(|c| ROWS.map(|row| row[c])).collect()
}

fn mat(elements: &[Vec<u8>]) -> Vec<u8> {
    let mut header = b"MATLAB 5.0 MAT-file, Platform: TEST".to_vec();
    header.resize(124, b' ');
    header.extend_from_slice(&[0, 1, b'I', b'M']);
    [header, elements.concat()].concat()
}

/// A matrix of bytes called `name`, as MATLAB packs it.
fn packed_matrix(name: &str) -> Vec<u8> {
    let matrix = element(14, &[beginning(9, name), element(2, &by_column())].concat());
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&matrix).unwrap();
    let packed = packed.finish().unwrap();
    // Packed elements are not padded.
    [15u32.to_le_bytes(), (packed.len() as u32).to_le_bytes()]
        .concat()
        .into_iter()
        .chain(packed)
        .collect()
}

fn folder_with(name: &str, contents: &[u8]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(name), contents).unwrap();
    folder
}

fn model(folder: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(folder.join("m.json")).unwrap()).unwrap()
}

/// Fits the file; returns the fingerprint of its bits and what was said.
fn fingerprint(name: &str, contents: &[u8], options: &str) -> (String, Value, Outcome) {
    let folder = folder_with(name, contents);
    let outcome = mpf(
        folder.path(),
        &format!("fit {name} {options} --method independent --held-out 0 --polish 0 -o m.json"),
    );
    assert_eq!(outcome.code, 0, "{name} {options}: {}", outcome.stderr);
    let model = model(folder.path());
    let bits = model["data"]["fingerprint"].as_str().unwrap().to_owned();
    (bits, model["units"].clone(), outcome)
}

/// What is said about a file that is refused.
fn refusal(name: &str, contents: &[u8], options: &str) -> String {
    let folder = folder_with(name, contents);
    let outcome = mpf(folder.path(), &format!("fit {name} {options} -o m.json"));
    assert_eq!(outcome.code, 2, "{name} {options}: {}", outcome.stderr);
    assert!(outcome.stderr.contains(name), "{}", outcome.stderr);
    assert!(!folder.path().join("m.json").exists());
    outcome.stderr
}

#[test]
fn every_format_and_coding_holds_the_same_samples() {
    let (expected, ..) = fingerprint("x.npy", &dense(), "");
    let labelled: String = plain(",")
        .lines()
        .enumerate()
        .map(|(k, line)| format!("s{k},{k},{line}\n"))
        .collect();
    let labelled = format!("id,age,a,b,c\n{labelled}");
    let floats: Vec<u8> = ROWS
        .as_flattened()
        .iter()
        .flat_map(|bit| (0.25 + f64::from(*bit)).to_le_bytes())
        .collect();
    let yes = text(",", |bit| if bit == 1 { "Yes" } else { "no" });
    let coded = text(";", |bit| if bit == 1 { "2" } else { "1" });
    let full = element(
        14,
        &[beginning(6, "x"), {
            let doubles = by_column()
                .into_iter()
                .flat_map(|b| f64::from(b).to_le_bytes());
            element(9, &doubles.collect::<Vec<u8>>())
        }]
        .concat(),
    );
    let ones: Vec<usize> = (0..36).filter(|k| by_column()[*k] == 1).collect();
    let indices: Vec<u8> = ones
        .iter()
        .flat_map(|k| (*k as i32 % 12).to_le_bytes())
        .collect();
    let starts = [0, 12, 24, 36].map(|end| ones.iter().filter(|k| **k < end).count() as i32);
    let few = element(
        14,
        &[
            beginning(5, "s"),
            element(5, &indices),
            element(5, &starts.map(i32::to_le_bytes).concat()),
            element(2, &vec![1; ones.len()]),
        ]
        .concat(),
    );
    for (name, contents, options) in [
        ("x.csv", plain(",").into_bytes(), ""),
        ("x.csv", plain(";").into_bytes(), ""),
        (
            "x.csv",
            format!("\u{feff}a;b;c\n{}", plain(";")).into_bytes(),
            "",
        ),
        ("x.txt", plain("|").into_bytes(), "--delimiter |"),
        ("x.txt", plain("\t").into_bytes(), ""),
        ("x.txt", plain("  ").into_bytes(), ""),
        ("x.csv", yes.into_bytes(), ""),
        (
            "x.csv",
            text(",", |b| if b == 1 { "y" } else { "N" }).into_bytes(),
            "--spins",
        ),
        (
            "x.csv",
            text(",", |b| if b == 1 { "TRUE" } else { "false" }).into_bytes(),
            "--levels 1,2",
        ),
        ("x.csv", coded.into_bytes(), "--levels 1,2"),
        (
            "x.csv",
            text(",", |b| if b == 1 { "17" } else { "-3" }).into_bytes(),
            "--binarize",
        ),
        (
            "x.csv",
            text(",", |b| if b == 1 { "-1" } else { "-3" }).into_bytes(),
            "--binarize -2.5",
        ),
        ("x.npy", npy("<f8", &[12, 3], &floats), "--binarize 0.5"),
        ("x.csv", labelled.into_bytes(), "--index --drop age"),
        ("x.csv.gz", gzip(plain(",").as_bytes()), ""),
        ("x.npy.gz", gzip(&dense()), ""),
        ("data", gzip_twice(), ""),
        ("x.npz.gz", gzip(&archive(Stored, &[("x", dense())])), ""),
        ("csr.npz", sparse("csr"), ""),
        ("csc.npz", sparse("csc"), ""),
        ("coo.npz", sparse("coo"), ""),
        ("x.mat", mat(std::slice::from_ref(&full)), ""),
        ("x.mat", mat(&[packed_matrix("x")]), ""),
        (
            "x.mat.gz",
            gzip(&mat(&[packed_matrix("x"), full.clone(), few.clone()])),
            "--array s",
        ),
    ] {
        let (found, ..) = fingerprint(name, &contents, options);
        assert_eq!(found, expected, "{name} {options}");
    }
}

/// The text in two members, as `cat a.gz b.gz` joins them.
fn gzip_twice() -> Vec<u8> {
    let text = plain(",");
    let (a, b) = text.split_at(text.len() / 2);
    [gzip(a.as_bytes()), gzip(b.as_bytes())].concat()
}

#[test]
fn a_pipe_is_read_and_standard_output_written() {
    let folder = folder_with("x.npz", &archive(Deflated, &[("x", dense())]));
    let path = folder.path();
    let run = |arguments: &str, input: &[u8]| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_mpf"))
            .args(arguments.split_whitespace())
            .current_dir(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments}: {said}");
        (String::from_utf8(output.stdout).unwrap(), said)
    };
    let fit = "--method independent --held-out 0 --polish 0 -o -";
    let (from_file, said) = run(&format!("fit x.npz {fit}"), b"");
    assert!(said.contains("couplings differ from zero"), "{said}");
    let from_file: Value = serde_json::from_str(&from_file).expect("only the model");
    for bytes in [
        fs::read(path.join("x.npz")).unwrap(),
        dense(),
        plain(",").into_bytes(),
        gzip(plain(" ").as_bytes()),
    ] {
        let (piped, said) = run(&format!("fit - {fit}"), &bytes);
        assert!(said.contains("standard input: 12 samples"), "{said}");
        let piped: Value = serde_json::from_str(&piped).unwrap();
        assert_eq!(piped["couplings"], from_file["couplings"]);
    }
    // Draws and models go through pipes too.
    let json = from_file.to_string();
    let (draws, said) = run("sample - -n 50 --sampler exact -o -", json.as_bytes());
    assert!(said.contains("50 states of 3 units"), "{said}");
    assert_eq!(draws.lines().count(), 51);
    assert!(draws.lines().skip(1).all(|line| line.len() == 5), "{draws}");
    let outcome = mpf(path, "fit x.npz -o - --json");
    assert_eq!((outcome.code, outcome.stdout.as_str()), (2, ""));
}

#[test]
fn missing_entries_are_refused_dropped_or_masked() {
    let mut lines: Vec<String> = plain(",").lines().map(str::to_owned).collect();
    let complete = lines.join("\n");
    for (at, word) in [
        (1, "NA,0,0"),
        (4, "0,?,0"),
        (7, "0,1,"),
        (9, "n/a,null,NaN"),
    ] {
        lines.insert(at, word.to_owned());
    }
    let holes = lines.join("\n");
    let said = refusal("x.csv", holes.as_bytes(), "");
    assert!(
        said.contains("line 2, column 1: the entry is missing"),
        "{said}"
    );
    assert!(
        said.contains("--missing drop") && said.contains("--missing mask"),
        "{said}"
    );
    let (expected, ..) = fingerprint("x.csv", complete.as_bytes(), "");
    let (dropped, _, outcome) = fingerprint("x.csv", holes.as_bytes(), "--missing drop");
    assert_eq!(dropped, expected);
    assert!(
        outcome.stderr.contains("4 of 16 rows miss an entry"),
        "{}",
        outcome.stderr
    );
    // NaN in an array is missing too.
    let mut numbers: Vec<u8> = ROWS
        .as_flattened()
        .iter()
        .flat_map(|b| f32::from(*b).to_le_bytes())
        .collect();
    numbers.extend([0.0, f32::NAN, 1.0].map(f32::to_le_bytes).concat());
    let array = npy("<f4", &[13, 3], &numbers);
    let said = refusal("x.npy", &array, "--binarize");
    assert!(
        said.contains("row 12, column 1 (from 0): the entry is missing"),
        "{said}"
    );
    assert_eq!(fingerprint("x.npy", &array, "--missing drop").0, expected);
}

#[test]
fn a_mask_fits_what_is_there() {
    // Samples of two units that agree three times out of five; the second is unknown in every third
    // sample. Zeros in its place would weaken the coupling by .1.
    let rows = "0,0,0\n1,1,0\n0,0,1\n1,1,1\n0,1,0\n1,1,1\n0,0,0\n1,0,1\n1,0,0\n0,1,1\n";
    let whole = rows.repeat(50);
    let hole = |line: &str| format!("{},?,{}\n", &line[..1], &line[4..]);
    let holes: String = whole
        .lines()
        .enumerate()
        .map(|(k, line)| {
            if k % 3 == 0 {
                hole(line)
            } else {
                format!("{line}\n")
            }
        })
        .collect();
    let folder = folder_with("x.csv", whole.as_bytes());
    let path = folder.path();
    let mut plain = Value::Null;
    for (options, method) in [
        ("--method mpf", "mpf"),
        ("", "pl"),
        ("--method pl --nodewise", "pl"),
    ] {
        fs::write(path.join("x.csv"), &whole).unwrap();
        let fit = format!("fit x.csv --method {method} --held-out 0 --polish 0 -o m.json");
        assert_eq!(mpf(path, &fit).code, 0);
        plain = model(path);
        fs::write(path.join("x.csv"), &holes).unwrap();
        let outcome = mpf(
            path,
            &format!("fit x.csv --missing mask {options} -o m.json"),
        );
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
        for expected in ["11.1 % of the entries missing", "no check on held-out"] {
            assert!(outcome.stderr.contains(expected), "{}", outcome.stderr);
        }
        let masked = model(path);
        assert_eq!(masked["fit"]["method"], method);
        let [a, b] = [&masked, &plain].map(|m| m["couplings"][0][1].as_f64().unwrap());
        assert!((-0.45..-0.33).contains(&b), "{b}");
        assert!((a - b).abs() < 0.03, "{options}: {a} instead of {b}");
    }
    for options in [
        "--errors bootstrap",
        "--l1 auto",
        "--refine pl",
        "--polish 10",
        "--method ml",
        "--checkpoint c.ckpt",
        "--neighbours non-data",
    ] {
        let outcome = mpf(
            path,
            &format!("fit x.csv --missing mask {options} -o other.json"),
        );
        assert_eq!(outcome.code, 2, "{options}");
        assert!(
            outcome.stderr.contains("--missing drop"),
            "{}",
            outcome.stderr
        );
    }
    let outcome = mpf(path, "compare x.csv --missing mask");
    assert_eq!(outcome.code, 2);
    assert!(
        outcome.stderr.contains("mpf compare needs whole samples"),
        "{}",
        outcome.stderr
    );
    // Nothing is missing: an ordinary fit.
    fs::write(path.join("x.csv"), &whole).unwrap();
    let outcome = mpf(
        path,
        "fit x.csv --missing mask --method pl --held-out 0 --polish 0 -o m.json",
    );
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert_eq!(model(path)["couplings"], plain["couplings"]);
}

#[test]
fn headers_labels_and_columns() {
    let body = plain(",");
    let (_, units, outcome) = fingerprint("x.csv", format!("a,b,c\n{body}").as_bytes(), "");
    assert_eq!(units, serde_json::json!(["a", "b", "c"]));
    assert!(
        outcome
            .stderr
            .contains("the first line is a header of 3 names: a, b, c"),
        "{}",
        outcome.stderr
    );
    // Without a header nothing is said of one.
    let (_, _, outcome) = fingerprint("x.csv", body.as_bytes(), "");
    assert!(!outcome.stderr.contains("header"), "{}", outcome.stderr);
    // As pandas writes a table without names.
    let indexed: String = body
        .lines()
        .enumerate()
        .map(|(k, l)| format!("{k},{l}\n"))
        .collect();
    let indexed = format!(",0,1,2\n{indexed}");
    let (_, units, _) = fingerprint("x.csv", indexed.as_bytes(), "--index");
    assert_eq!(units, serde_json::json!(["0", "1", "2"]));
    let said = refusal("x.csv", indexed.as_bytes(), "");
    assert!(said.contains("pass --index"), "{said}");
    // By name and by number; units as rows have their names in the first column.
    let named = format!("id,b,c\n{body}");
    let (_, units, _) = fingerprint("x.csv", named.as_bytes(), "--drop b --drop 0");
    assert_eq!(units, serde_json::json!(["c"]));
    let rows: String = (0..3)
        .map(|c| format!("{c}7,{}\n", ROWS.map(|row| row[c].to_string()).join(",")))
        .collect();
    let (_, units, _) = fingerprint("x.csv", rows.as_bytes(), "--transpose --index --drop 17");
    assert_eq!(units, serde_json::json!(["07", "27"]));
    for (options, expected) in [
        ("--drop d", "there is no column \"d\" for --drop"),
        ("--drop 3", "there is no column \"3\" for --drop"),
        ("--counts 3", "there is no column \"3\" for --counts"),
        ("--counts b --drop b", "column 1 is to hold the counts"),
    ] {
        let said = refusal("x.csv", named.as_bytes(), options);
        assert!(said.contains(expected), "{options}: {said}");
    }
}

#[test]
fn wrong_data_point_to_the_option_that_reads_them() {
    for (name, contents, options, expected) in [
        ("x.csv", "a,b\n0,1\n1,2\n", "", "--binarize"),
        ("x.csv", "a,b\n1,2\n2,1\n", "", "--levels 1,2"),
        ("x.csv", "a,b\n0,1\n1,0.5\n", "", "--binarize"),
        (
            "x.csv",
            "a,b\n1,2\n2,3\n",
            "--levels 1,2",
            "line 3, column 2 (b): found 3, but the values are only 1 and 2",
        ),
        ("x.csv", "n,a,b\ns1,0,1\n", "", "pass --index"),
        (
            "x.csv",
            "a;b\n0;1\n0;1,5\n",
            "",
            "found \"1,5\", which is no number",
        ),
        ("x.mat", "MATLAB 7.3 MAT-file, Platform", "", "'-v7'"),
        ("x.h5", "\x7f", "", "x.h5"),
    ] {
        let said = refusal(name, contents.as_bytes(), options);
        assert!(said.contains(expected), "{contents:?}: {said}");
    }
    let hdf5 = refusal("x.dat", b"\x89HDF\r\n\x1a\n\0\0\0", "");
    assert!(hdf5.contains("h5py"), "{hdf5}");
    // What was cut off, or damaged, is said to be.
    let whole = mat(&[packed_matrix("x")]);
    for cut in [20, 130, whole.len() - 3] {
        refusal("x.mat", &whole[..cut], "");
    }
    let two = mat(&[packed_matrix("x"), packed_matrix("y")]);
    assert!(refusal("x.mat", &two, "").contains("--array"));
    assert!(refusal("x.mat", &two, "--array z").contains("[\"x\", \"y\"]"));
    let packed = gzip(plain(",").as_bytes());
    refusal("x.csv.gz", &packed[..packed.len() - 9], "");
    let sheet = {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        zip.start_file("xl/workbook.xml", SimpleFileOptions::default())
            .unwrap();
        zip.finish().unwrap().into_inner()
    };
    assert!(refusal("x.xlsx", &sheet, "").contains("save the sheet as .csv"));
    // Indices outside of a sparse matrix.
    for (row, column, expected) in [
        (11, 3, "an entry at row 11, column 3"),
        (usize::MAX, 0, "an entry at"),
    ] {
        let damaged = archive(
            Stored,
            &[
                ("format", npy("|S3", &[], b"coo")),
                (
                    "shape",
                    npy("<i8", &[2], &[12, 3].map(i64::to_le_bytes).concat()),
                ),
                ("data", npy("|b1", &[1], &[1])),
                ("row", integers(&[row])),
                ("col", integers(&[column])),
            ],
        );
        let said = refusal("x.npz", &damaged, "");
        assert!(said.contains(expected), "{said}");
    }
}

/// What is larger than memory is refused before it is built, in an address space that could not
/// hold it.
#[cfg(target_os = "linux")]
#[test]
fn memory_is_bounded_from_the_first_byte() {
    let refused = |name: &str, contents: &[u8], data: &str, options: &str, expected: &str| {
        let folder = folder_with(name, contents);
        let output = Command::new("sh")
            .args(["-c", "ulimit -v 600000; exec \"$@\"", "sh"])
            .arg(env!("CARGO_BIN_EXE_mpf"))
            .args(format!("fit {data} --memory-limit 100 {options} -o m.json").split_whitespace())
            .env("RAYON_NUM_THREADS", "2")
            .current_dir(folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{data}: {said}");
        assert!(said.contains(expected), "{data}: {said}");
    };
    // 195 kB that unpack to one row of 2·10⁸ columns.
    let wide = archive(
        Deflated,
        &[("x", npy("|u1", &[1, 200_000_000], &vec![0; 200_000_000]))],
    );
    assert!(wide.len() < 200_000);
    refused(
        "x.npz",
        &wide,
        "x.npz",
        "",
        "the couplings of 200000000 units",
    );
    refused("x.npz", &wide, "x.npz", "--transpose", "x.npz: ");
    drop(wide);
    let line = "0,1,".repeat(8_250_000);
    refused(
        "x.csv",
        line.as_bytes(),
        "x.csv",
        "",
        "longer than 3.125 MB",
    );
    refused(
        "x.csv",
        line.as_bytes(),
        "x.csv",
        "--transpose",
        "longer than 3.125 MB",
    );
    refused(
        "x.txt",
        line.replace(',', " ").as_bytes(),
        "x.txt",
        "",
        "longer than 3.125 MB",
    );
    refused(
        "x.csv.gz",
        &gzip(line.as_bytes()),
        "x.csv.gz",
        "",
        "longer than 3.125 MB",
    );
    let units = "0,1,".repeat(5_000);
    refused("x.csv", units.as_bytes(), "x.csv", "", "the couplings of");
    refused("x", b"", "/dev/zero", "", "zero bytes");
    // A few bytes of a sparse matrix of 10⁹ × 3.
    let empty = archive(
        Stored,
        &[
            ("format", npy("|S3", &[], b"coo")),
            (
                "shape",
                npy(
                    "<i8",
                    &[2],
                    &[1_000_000_000, 3].map(i64::to_le_bytes).concat(),
                ),
            ),
            ("data", npy("|b1", &[0], &[])),
            ("row", integers(&[])),
            ("col", integers(&[])),
        ],
    );
    refused(
        "x.npz",
        &empty,
        "x.npz",
        "",
        "1000000000 samples of 3 units",
    );
}

/// A program that waits for a pipe hears an interruption.
#[test]
fn waiting_for_a_pipe_ends_with_an_interruption() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_mpf"))
        .args(["fit", "-", "-o", "m.json"])
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    let id = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &id])
            .status()
            .unwrap()
            .success()
    );
    // The pipe stays open: only the signal can end the program.
    let pipe = child.stdin.take();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    drop(pipe);
}
