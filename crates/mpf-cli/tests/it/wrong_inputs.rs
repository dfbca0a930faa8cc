//! Every wrong input: one message with the place, a hint, exit code 2, nothing touched.

use crate::common::mpf;
use ndarray::{Array2, array};
use ndarray_npy::WriteNpyExt;
use std::fs::{self, File};
use std::path::Path;

fn write_npy(folder: &Path, name: &str, array: &Array2<u8>) {
    array
        .write_npy(File::create(folder.join(name)).unwrap())
        .unwrap();
}

/// What is said, with the exit code; an existing output is untouched and alone.
fn said(name: &str, contents: &[u8], arguments: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(name), contents).unwrap();
    fs::write(folder.path().join("model.json"), "precious").unwrap();
    let outcome = mpf(folder.path(), &format!("{arguments} --force"));
    assert_eq!(outcome.code, 2, "{}", outcome.stderr);
    assert_eq!(outcome.stdout, "");
    let kept = fs::read_to_string(folder.path().join("model.json")).unwrap();
    assert_eq!(kept, "precious");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    assert!(!outcome.stderr.contains('\x1b'), "no colours in a pipe");
    format!("$ mpf {arguments}\n{}\n", outcome.stderr)
}

fn npy(array: &Array2<u8>) -> Vec<u8> {
    let mut bytes = Vec::new();
    array.write_npy(&mut bytes).unwrap();
    bytes
}

#[test]
fn data_that_cannot_be_read() {
    let mut all = String::new();
    let fit = |data: &str| format!("fit {data} -o model.json");
    let fine = npy(&array![[0, 1], [1, 0], [1, 1]]);
    all += &said("a.npy", &fine, &fit("b.npy"));
    all += &said("a.npy", &fine[..fine.len() - 3], &fit("a.npy"));
    all += &said("a.npy", &fine[..40], &fit("a.npy"));
    all += &said("a.npy", b"0 1 0", &fit("a.npy"));
    let complex = String::from_utf8_lossy(&fine).replace("|u1", "<c8");
    let complex: Vec<u8> = [&fine[..1], &complex.as_bytes()[3..]].concat();
    all += &said("a.npy", &complex, &fit("a.npy"));
    let huge =
        String::from_utf8_lossy(&fine[10..fine.len() - 6]).replace("(3, 2)", "(1000000000000, 2)");
    let huge = [
        &fine[..8],
        &(huge.len() as u16).to_le_bytes(),
        huge.as_bytes(),
    ]
    .concat();
    all += &said("a.npy", &huge, &fit("a.npy"));
    all += &said("a.npz", &fine[..20], &fit("a.npz"));
    all += &said("a.csv", b"", &fit("a.csv"));
    all += &said("a.csv", &[0xff, 0xfe, b'\n'], &fit("a.csv"));
    insta::assert_snapshot!(all);
}

#[test]
fn data_that_are_not_binary() {
    let mut all = String::new();
    let fit = "fit a.csv -o model.json";
    all += &said("a.csv", b"u,v,w\n0,1,1\n1,0,2\n", fit);
    all += &said("a.csv", b"u,v\n0,1\n1,0,1\n", fit);
    all += &said("a.csv", b"u,v\n1,-1\n1,1\n", fit);
    all += &said("a.csv", b"0,1\n1,1\n", "fit a.csv --spins -o model.json");
    all += &said("a.csv", b"u,v\n0,x\n", fit);
    all += &said("a.csv", b"u,v\n0,\n", fit);
    all += &said("a.csv", b"u,v\n0,nan\n", fit);
    all += &said("a.csv", b"0,1,2\n0,1,1\n", fit);
    all += &said("a.csv", b",u,v\n0,1,1\n1,0,1\n2,0,1\n", fit);
    all += &said("a.csv", b"u,u\n0,1\n1,0\n", fit);
    let two = npy(&array![[0, 1], [1, 2]]);
    all += &said("a.npy", &two, "fit a.npy -o model.json");
    insta::assert_snapshot!(all);
}

#[test]
fn data_without_a_model() {
    let mut all = String::new();
    let fit = "fit a.csv -o model.json";
    all += &said("a.csv", b"u,v\n0,1\n0,1\n", fit);
    all += &said(
        "a.csv",
        b"u,n\n0,1\n1,-3\n",
        "fit a.csv --counts n -o model.json",
    );
    all += &said(
        "a.csv",
        b"u,n\n0,1\n1,3\n",
        "fit a.csv --counts k -o model.json",
    );
    let data = b"a,b,c\n0,1,1\n1,0,0\n1,1,0\n0,0,1\n";
    all += &said(
        "a.csv",
        data,
        "fit a.csv --method tap --l1 0.1 -o model.json",
    );
    all += &said("a.csv", data, "fit a.csv --l1 auto --l2 auto -o model.json");
    all += &said("a.csv", data, "fit a.csv --support a.csv -o model.json");
    insta::assert_snapshot!(all);
}

#[test]
fn outputs_that_cannot_be_written() {
    let mut all = String::new();
    let data = b"a,b\n0,1\n1,0\n1,1\n0,0\n";
    all += &said("a.csv", data, "fit a.csv -o nowhere/model.json");
    all += &said("a.csv", data, "fit a.csv -o model.pdf");
    all += &said("a.csv", data, "sample model.json -o x.npy");
    all += &said("a.csv", data, "evaluate a.csv a.csv -o x.pdf");
    insta::assert_snapshot!(all);
}

#[test]
fn more_units_than_samples_is_only_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    write_npy(
        folder.path(),
        "a.npy",
        &array![[0, 1, 0, 1], [1, 0, 0, 1], [1, 1, 0, 0]],
    );
    let outcome = mpf(folder.path(), "fit a.npy --l2 0.1 -o model.json");
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let warning = outcome.stderr.lines().find(|l| l.contains("more units"));
    insta::assert_snapshot!(warning.unwrap());
    // Unit 2 is always 0: a finite bias, ln((1 − p)/p) with p = ½/(3 + 1).
    let text = fs::read_to_string(folder.path().join("model.json")).unwrap();
    let model: serde_json::Value = serde_json::from_str(&text).unwrap();
    let bias = model["couplings"][2][2].as_f64().unwrap();
    assert!((bias - 7f64.ln()).abs() < 1e-12);
}
