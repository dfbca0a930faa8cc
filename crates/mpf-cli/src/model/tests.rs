//! Model files are read back to the last bit, and damage is noticed.

use super::*;
use mpf_core::TracePoint;
use mpf_ising::ErrorBars;
use ndarray::{Array2, array};
use rayon::prelude::*;
use std::fs;
use std::io::{self, Cursor};
use std::ops::Range;
use zip::ZipArchive;

fn example() -> Model {
    Model {
        program: "mpf 0.1.0".into(),
        couplings: Couplings::new(array![
            [1.0 / 3.0, -0.7, 1e-17],
            [-0.7, 2.2, 0.1],
            [1e-17, 0.1, 5e300]
        ])
        .unwrap(),
        hidden: None,
        names: vec!["a".into(), "b,\"β\"".into(), "c".into()],
        errors: Some(StandardErrors {
            method: "sandwich".into(),
            block_length: 7,
            bars: ErrorBars {
                fields: vec![0.1, f64::NAN, 0.3],
                biases: vec![0.1, 0.2, 0.3],
                couplings: vec![vec![f64::NAN, 0.1, 0.2]; 3],
                corrected: Some(Couplings::new(Array2::eye(3)).unwrap()),
            },
        }),
        fit: Some(FitRecord {
            method: "mpf".into(),
            value: Some(0.1),
            trace: vec![TracePoint {
                iteration: 1,
                evaluations: 2,
                value: 0.3,
                gradient_norm: 1e-7,
                seconds: 0.25,
            }],
            ..Default::default()
        }),
        data: None,
    }
}

/// NaN differs from itself, so that models are compared as they are written.
fn same(a: &Model, b: &Model) -> bool {
    a.to_json(Convention::Binary) == b.to_json(Convention::Binary)
}

#[test]
fn every_form_and_convention_is_read_back_to_the_last_bit() {
    let folder = tempfile::tempdir().unwrap();
    for convention in [Convention::Binary, Convention::Spins] {
        // (A .npz file holds both.)
        for name in ["m.json", "m.npz", "m.csv"] {
            let path = folder.path().join(name);
            example().write(&path, convention).unwrap();
            let back = Model::read(&path, None).unwrap();
            assert!(same(&example(), &back), "{name} {convention:?}");
            assert_eq!(example().couplings, back.couplings);
        }
    }
}

#[test]
fn a_matrix_looks_like_one() {
    let value = serde_json::json!({
        "fit": {"stop": "converged", "stages": [{"a": 1, "b": []}, {"a": [true, null]}]},
        "rows": [[1.5, 2.0], [3.0, "x, ["]],
        "units": ["a", "b"],
    });
    let mut text = Vec::new();
    let mut json = Serializer::with_formatter(&mut text, ShortLists::default());
    value.serialize(&mut json).unwrap();
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&text).unwrap(),
        value
    );
    let expected = r#"{
  "fit": {
    "stages": [
      {
        "a": 1,
        "b": []
      },
      {
        "a": [true, null]
      }
    ],
    "stop": "converged"
  },
  "rows": [
    [1.5, 2.0],
    [3.0, "x, ["]
  ],
  "units": ["a", "b"]
}"#;
    assert_eq!(String::from_utf8(text).unwrap(), expected);
}

#[test]
fn a_changed_digit_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.json");
    let text = example().to_json(Convention::Binary);
    fs::write(&path, text.replace("2.2", "2.3")).unwrap();
    let failure = Model::read(&path, None).unwrap_err();
    assert!(failure.message.contains("checksum"), "{failure}");
    let start = text.find("  \"checksum\"").unwrap();
    let end = start + text[start..].find('\n').unwrap() + 1;
    let by_hand = text.replace(&text[start..end], "").replace("2.2", "2.3");
    fs::write(&path, by_hand).unwrap();
    let back = Model::read(&path, None).unwrap();
    assert_eq!(back.couplings.get(1, 1), 2.3);
}

/// Damages the file of a model at every place, to `values` of the byte that is there, and at
/// every length. What is still read is the same model. Returns how often it was noticed.
///
/// A byte of a number or letter in an array of a .npz file loses one bit alone: its checksum,
/// CRC-32, notices every change of a single byte, so that one shows that it is looked at.
fn damage(
    model: &Model,
    form: Form,
    convention: Convention,
    values: impl Fn(usize, u8) -> Vec<u8> + Sync,
) -> usize {
    let (name, whole) = match form {
        Form::Json => ("m.json", model.to_json(convention).into_bytes()),
        Form::Npz => ("m.npz", npz_form::write(model).unwrap()),
        Form::Csv => ("m.csv", csv_form::write(model, convention).into_bytes()),
    };
    let sealed = match form {
        Form::Npz => entries(&whole),
        _ => Vec::new(),
    };
    // A convention that may be wrong is only for tables that do not say theirs.
    let assumptions: &[_] = match form {
        Form::Csv => &[None, Some(Convention::Spins)],
        _ => &[None],
    };
    let check = |bytes: &[u8], what: &dyn Fn() -> String| {
        let noticed = assumptions.iter().filter(|assumed| {
            match Model::from_bytes(Path::new(name), bytes, **assumed) {
                Ok(read) => {
                    assert!(same(&read, model), "{form:?} {}", what());
                    false
                }
                Err(failure) => {
                    assert!(!failure.message.is_empty());
                    true
                }
            }
        });
        noticed.count()
    };
    assert_eq!(check(&whole, &|| "untouched".into()), 0);
    let places = whole.par_iter().enumerate().map(|(at, &byte)| {
        let mut damaged = whole.clone();
        let mut noticed = check(&whole[..at], &|| format!("cut at {at}"));
        let is_sealed = sealed.iter().any(|entries| entries.contains(&at));
        let values = match is_sealed {
            true => vec![byte ^ (1 << (at % 8))],
            false => values(at, byte),
        };
        for value in values {
            damaged[at] = value;
            noticed += check(&damaged, &|| format!("byte {at}: {byte} to {value}"));
        }
        noticed
    });
    places.sum()
}

/// Where the entries of the arrays of an archive are, after their headers.
fn entries(archive: &[u8]) -> Vec<Range<usize>> {
    let mut zip = ZipArchive::new(Cursor::new(archive)).unwrap();
    let entries = (0..zip.len()).map(|k| {
        let mut file = zip.by_index(k).unwrap();
        let start = file.data_start().unwrap() as usize;
        crate::npy::Header::read(&mut file).unwrap();
        let left = io::copy(&mut file, &mut io::sink()).unwrap() as usize;
        let end = start + file.size() as usize;
        end - left..end
    });
    entries.collect()
}

/// Every bit of a byte, what has a meaning in one of the forms, and two values that the seed chooses. All
/// values if `MPF_EVERY_BYTE` is set.
fn some(at: usize, byte: u8) -> Vec<u8> {
    if std::env::var_os("MPF_EVERY_BYTE").is_some() {
        return every(at, byte);
    }
    let bits = (0..8).map(|bit| byte ^ (1 << bit));
    let chosen = mpf_core::rng::next_seed(mpf_testkit::seed() ^ at as u64).to_le_bytes();
    let all = bits
        .chain(*b"09-.e,:\"#{}[] \n\r\0\xff")
        .chain([chosen[0], chosen[1]]);
    all.filter(|v| *v != byte).collect()
}

/// Every bit of a byte and one value that the seed chooses, or all values as in [`some`]: an archive is slow
/// to read, and what has a meaning in a text has none in it.
fn few(at: usize, byte: u8) -> Vec<u8> {
    let values = some(at, byte);
    match std::env::var_os("MPF_EVERY_BYTE") {
        Some(_) => values,
        None => values[..8].iter().chain(values.last()).copied().collect(),
    }
}

fn every(_: usize, byte: u8) -> Vec<u8> {
    (0..=255).filter(|v| *v != byte).collect()
}

#[test]
fn every_changed_byte_of_a_small_file_is_noticed_or_harmless() {
    let couplings = Couplings::new(array![[1.0 / 3.0, -0.7], [-0.7, 2.5e-7]]).unwrap();
    let model = Model::unfitted(couplings, vec!["a".into(), "b".into()]);
    let binary = Convention::Binary;
    let noticed = damage(&model, Form::Json, binary, every);
    assert!(noticed > 50_000, "{noticed}");
    let noticed = damage(&model, Form::Csv, binary, some);
    assert!(noticed > 15_000, "{noticed}");
    let noticed = damage(&model, Form::Npz, binary, few);
    assert!(noticed > 5_000, "{noticed}");
}

#[test]
fn changed_bytes_of_any_form_are_noticed_or_harmless() {
    let model = Model {
        couplings: Couplings::new(array![[1.0 / 3.0, -0.7], [-0.7, 2.5e-7]]).unwrap(),
        names: vec!["a".into(), "b,\"β\"".into()],
        errors: Some(StandardErrors {
            method: "sandwich".into(),
            block_length: 1,
            bars: ErrorBars {
                fields: vec![0.1, f64::NAN],
                biases: vec![0.1, 0.2],
                couplings: vec![vec![f64::NAN, 0.1]; 2],
                corrected: None,
            },
        }),
        fit: None,
        ..example()
    };
    let noticed = damage(&model, Form::Json, Convention::Spins, some);
    assert!(noticed > 5_000, "{noticed}");
    let noticed = damage(&model, Form::Csv, Convention::Spins, some);
    assert!(noticed > 5_000, "{noticed}");
    // It holds both conventions. Its headers are those of the other test: one bit of each byte.
    let one = |at: usize, byte: u8| match std::env::var_os("MPF_EVERY_BYTE") {
        Some(_) => every(at, byte),
        None => vec![byte ^ (1 << (at % 8))],
    };
    let noticed = damage(&model, Form::Npz, Convention::Binary, one);
    assert!(noticed > 4_000, "{noticed}");
}

#[test]
fn spins_without_biases_are_read() {
    let text = r#"{"format": "mpf-model", "format_version": 1, "units": ["a", "b"],
        "convention": "p(s) = exp(sum_i h_i s_i + sum_{i<j} K_ij s_i s_j)/Z, s in {-1,+1}^d",
        "fields": [0.5, 0.25], "couplings": [[0, 1], [1, 0]]}"#;
    let model = serde_json::from_str::<ModelFile>(text).unwrap().read();
    assert_eq!(
        model.unwrap().couplings.as_array(),
        array![[1.0, -2.0], [-2.0, 1.5]]
    );
    let edited = text.replace("[0.5, 0.25]", "[0.5, 0.25], \"biases\": [1.0, 1.0]");
    let error = serde_json::from_str::<ModelFile>(&edited).unwrap().read();
    assert!(error.unwrap_err().contains("disagree at unit 1"));
}

#[test]
fn names_of_any_kind_are_read_back() {
    let names = [
        "=1+1",
        "-a",
        "'@x",
        "''+b",
        "-1",
        "#c",
        " d ",
        "e\nf",
        "\u{1b}[31m",
        "\t=g",
        "",
        "\0",
    ];
    let d = names.len();
    let couplings = Couplings::new(Array2::eye(d)).unwrap();
    let model = Model::unfitted(couplings, names.map(str::to_owned).to_vec());
    let folder = tempfile::tempdir().unwrap();
    for name in ["m.json", "m.npz", "m.csv"] {
        let path = folder.path().join(name);
        model.write(&path, Convention::Binary).unwrap();
        let back = Model::read(&path, None).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(back.names, model.names, "{name}");
    }
    let table = fs::read_to_string(folder.path().join("m.csv")).unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[2].starts_with("unit,'=1+1,'-a,"), "{}", lines[2]);
}

#[test]
fn models_that_contradict_themselves_are_refused() {
    let spins = r#"{"format": "mpf-model", "format_version": 1, "units": ["a", "b"],
        "convention": "p(s) = exp(sum_i h_i s_i + sum_{i<j} K_ij s_i s_j)/Z, s in {-1,+1}^d",
        "fields": [0.5, 0.25], "couplings": [[0, 1], [1, 0]]}"#;
    for (changed, expected) in [
        (spins.replace("[1, 0]]", "[1, 0.5]]"), "K[1, 1] is 0.5"),
        (
            spins.replace("\"b\"", "\"a\""),
            "units 0 and 1 are both named \"a\"",
        ),
    ] {
        let outcome = serde_json::from_str::<ModelFile>(&changed).unwrap().read();
        let error = outcome.unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn arrays_of_one_model_must_agree() {
    use crate::npz::ArchiveWriter;
    use std::io::Cursor;
    let couplings = Couplings::new(array![[1.0, -0.5], [-0.5, 2.0]]).unwrap();
    let model = Model::unfitted(couplings, vec!["a".into(), "b".into()]);
    let about = ModelFile {
        couplings: Vec::new(),
        ..model.file(Convention::Binary)
    };
    let about = serde_json::to_string(&about).unwrap();
    let read = |h: &[f64], k: &[f64], names: &[&str]| {
        let mut archive = ArchiveWriter::new(Cursor::new(Vec::new()));
        let j = [1.0, -0.5, -0.5, 2.0];
        archive.numbers("J", &[2, 2], &j).unwrap();
        archive.numbers("h", &[h.len()], h).unwrap();
        archive.numbers("K", &[2, k.len() / 2], k).unwrap();
        archive.texts("names", &[names.len()], names).unwrap();
        archive.texts("about", &[], &[&about]).unwrap();
        let bytes = archive.finish().unwrap().into_inner();
        Model::from_bytes(Path::new("m.npz"), &bytes, None)
    };
    // K_ij = −J_ij/2, h_i = −½ Σ_j J_ij.
    let (h, k) = ([-0.25, -0.75], [0.0, 0.25, 0.25, 0.0]);
    assert_eq!(read(&h, &k, &["a", "b"]).unwrap(), model);
    for (outcome, expected) in [
        (
            read(&[-0.25, 0.75], &k, &["a", "b"]),
            "h[1] is 0.75, but J gives -0.75",
        ),
        (
            read(&h, &[0.0, 0.3, 0.3, 0.0], &["a", "b"]),
            "K[0, 1] is 0.3, but J gives 0.25",
        ),
        (read(&h, &k, &["a", "c"]), "names[1] is \"c\""),
        (read(&h, &k, &["a"]), "1 names for 2 units"),
        (read(&[0.0], &k, &["a", "b"]), "h is [1]"),
    ] {
        let failure = outcome.unwrap_err();
        assert!(failure.message.contains(expected), "{failure}");
    }
}
