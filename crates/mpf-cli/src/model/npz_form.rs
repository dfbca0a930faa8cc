//! A model as arrays: `J`, `names`, the same model in spins as `h` and `K`, and `about`, the
//! model file without its matrix. `J` and `about` are read back; the others must agree with them.

use super::file::ModelFile;
use super::{Convention, Model};
use crate::failure::Failure;
use crate::memory::Room;
use crate::npz::{Archive, ArchiveWriter};
use std::io::{self, Cursor, Read, Seek};
use std::path::Path;

pub(super) fn write(model: &Model) -> io::Result<Vec<u8>> {
    let d = model.names.len();
    let spins = model.couplings.to_spins();
    let names: Vec<&str> = model.names.iter().map(String::as_str).collect();
    let about = ModelFile {
        couplings: Vec::new(),
        fields: None,
        biases: None,
        ..model.file(Convention::Binary)
    };
    let about = serde_json::to_string(&about)?;
    let mut archive = ArchiveWriter::new(Cursor::new(Vec::new()));
    archive.numbers("J", &[d, d], model.couplings.as_array())?;
    archive.numbers("h", &[d], &spins.fields)?;
    archive.numbers("K", &[d, d], &spins.couplings)?;
    archive.texts("names", &[d], &names)?;
    archive.texts("about", &[], &[&about])?;
    Ok(archive.finish()?.into_inner())
}

pub(super) fn read(path: &Path, bytes: &[u8]) -> Result<Model, Failure> {
    let mut archive = Archive::open(path, Room::new(None), Cursor::new(bytes))?;
    let wrong = |why: String| {
        Failure::at(path, why).hint("docs/model-file.md describes the format; `mpf fit` writes it")
    };
    if !archive.has("about") || !archive.has("J") {
        let there = archive.names().join(", ");
        return Err(wrong(format!(
            "this is no model: it has {there}, but J and about are needed"
        )));
    }
    let about = archive.texts("about")?.concat();
    let mut file: ModelFile =
        serde_json::from_str(&about).map_err(|e| wrong(format!("this is no model file: {e}")))?;
    let (shape, values) = archive.numbers("J")?;
    let d = file.units.len();
    if shape != [d as u64, d as u64] {
        return Err(wrong(format!("J is {shape:?}, but there are {d} units")));
    }
    file.couplings = values.chunks_exact(d.max(1)).map(<[f64]>::to_vec).collect();
    let model = file.read().map_err(wrong)?;
    check_copies(&mut archive, &model, wrong)?;
    Ok(model)
}

/// Compares `h`, `K` and `names`, where they are, with the model; `wrong` words what differs.
fn check_copies<R: Read + Seek>(
    archive: &mut Archive<'_, R>,
    model: &Model,
    wrong: impl Fn(String) -> Failure,
) -> Result<(), Failure> {
    let d = model.names.len();
    let spins = model.couplings.to_spins();
    if archive.has("names") {
        let names = archive.texts("names")?;
        // NumPy's texts hold no NUL.
        let units: Vec<String> = model.names.iter().map(|n| n.replace('\0', "")).collect();
        if names.len() != d {
            return Err(wrong(format!("{} names for {d} units", names.len())));
        }
        if let Some((i, (name, unit))) = different(&names, &units) {
            let why = format!("names[{i}] is {name:?}, but unit {i} is {unit:?}");
            return Err(wrong(why));
        }
    }
    let copies: [(&str, &[u64], Vec<f64>); 2] = [
        ("h", &[d as u64], spins.fields.to_vec()),
        (
            "K",
            &[d as u64, d as u64],
            spins.couplings.iter().copied().collect(),
        ),
    ];
    for (array, expected_shape, expected) in copies {
        if !archive.has(array) {
            continue;
        }
        let (shape, found) = archive.numbers(array)?;
        if shape != expected_shape {
            let why = format!("{array} is {shape:?}, but there are {d} units");
            return Err(wrong(why));
        }
        if let Some((at, (found, expected))) = different(&found, &expected) {
            let place = match array {
                "h" => at.to_string(),
                _ => format!("{}, {}", at / d, at % d),
            };
            return Err(wrong(format!(
                "{array}[{place}] is {found}, but J gives {expected}; leave out {array} if J is right"
            )));
        }
    }
    Ok(())
}

/// Returns the first entries that differ.
fn different<'a, T: PartialEq>(
    found: &'a [T],
    expected: &'a [T],
) -> Option<(usize, (&'a T, &'a T))> {
    let mut pairs = found.iter().zip(expected).enumerate();
    pairs.find(|(_, (found, expected))| found != expected)
}
