//! A model as arrays: `J`, `names`, the same model in spins as `h` and `K`, and `about`, the
//! model file without its matrix. Only `J` and `about` are read back; the others are checked for
//! damage.

use super::file::ModelFile;
use super::{Convention, Model};
use crate::failure::Failure;
use crate::npz::{Archive, ArchiveWriter};
use std::io::{self, Cursor};
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
    let mut archive = Archive::open(path, Cursor::new(bytes))?;
    let wrong = |why: String| {
        Failure::input(format!("{}: {why}", path.display()))
            .hint("docs/model-file.md describes the format; `mpf fit` writes it")
    };
    if !archive.has("about") || !archive.has("J") {
        let there = archive.names().join(", ");
        return Err(wrong(format!(
            "this is no model: it has {there}, but J and about are needed"
        )));
    }
    for name in ["names", "h", "K"] {
        archive.check(name)?;
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
    file.read().map_err(wrong)
}
