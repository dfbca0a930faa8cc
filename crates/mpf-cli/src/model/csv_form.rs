//! A model as a table: names along both sides, J inside; or K, with h on its diagonal.
//!
//! The first line says the convention, the second holds the model file without its matrix; both
//! begin with `#`. A table without them is read too, if `--assume` states its convention.

use super::file::{FORMAT, ModelFile, VERSION};
use super::{Convention, Model};
use csv::{ReaderBuilder, WriterBuilder};
use mpf_report::text::{guarded, unguarded};

pub(super) fn write(model: &Model, convention: Convention) -> String {
    let file = model.file(convention);
    let about = ModelFile {
        couplings: Vec::new(),
        fields: None,
        ..file.clone()
    };
    let about = serde_json::to_string(&about).expect("a model can be written");
    let first = match convention {
        Convention::Binary => "p(x) = exp(-x'Jx)/Z, x in {0,1}^d: J, biases on the diagonal",
        Convention::Spins => {
            "p(s) = exp(sum_i h_i s_i + sum_{i<j} K_ij s_i s_j)/Z, s in {-1,+1}^d: K, fields h on \
             the diagonal"
        }
    };
    let mut table = WriterBuilder::new()
        .comment(Some(b'#'))
        .from_writer(Vec::new());
    let mut line = |cells: Vec<String>| table.write_record(cells).expect("memory can be written");
    let names: Vec<String> = file.units.iter().map(|n| guarded(n).into_owned()).collect();
    line([vec!["unit".to_owned()], names.clone()].concat());
    for (i, row) in file.couplings.iter().enumerate() {
        let number = |(j, v): (usize, &f64)| match &file.fields {
            Some(fields) if i == j => fields[i].to_string(),
            _ => v.to_string(),
        };
        let mut cells = vec![names[i].clone()];
        cells.extend(row.iter().enumerate().map(number));
        line(cells);
    }
    let table = table.into_inner().expect("memory can be written");
    let table = String::from_utf8(table).expect("names are text");
    format!("# {first}\n# {about}\n{table}")
}

pub(super) fn read(text: &str, assumed: Option<Convention>) -> Result<Model, String> {
    let comment = |line: &str| line.strip_prefix('#').map(|l| l.trim().to_owned());
    let comments: Vec<String> = text.lines().map_while(comment).collect();
    let about = comments.iter().find(|line| line.starts_with('{'));
    if about.is_none() && text.contains(FORMAT) {
        return Err("its second line is damaged: the model cannot be checked".into());
    }
    let mut reader = ReaderBuilder::new()
        .comment(Some(b'#'))
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let names = reader.headers().map_err(|e| e.to_string())?;
    let names = names.iter().skip(1).map(|name| unguarded(name).to_owned());
    let names: Vec<String> = names.collect();
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|e| e.to_string())?;
        let line = record.position().map_or(0, csv::Position::line);
        let mut row = Vec::new();
        for (column, field) in record.iter().enumerate().skip(1) {
            row.push(field.parse::<f64>().map_err(|_| {
                format!(
                    "line {line}, column {}: found {field:?}, which is no number",
                    column + 1
                )
            })?);
        }
        if record.get(0).map(unguarded) != names.get(rows.len()).map(String::as_str) {
            return Err(format!(
                "line {line} is of {:?}, but the column of that number is of {:?}",
                record.get(0).unwrap_or_default(),
                names.get(rows.len()).map_or("nothing", String::as_str)
            ));
        }
        rows.push(row);
    }
    let mut file: ModelFile = match about {
        Some(about) => {
            serde_json::from_str(about).map_err(|e| format!("this is no model file: {e}"))?
        }
        None => {
            let convention = assumed.ok_or(
                "a bare table does not say its convention: pass --assume binary (J, biases on the \
                 diagonal) or --assume spins (K, fields on the diagonal)",
            )?;
            ModelFile {
                format: FORMAT.into(),
                format_version: VERSION,
                program: Model::this_program(),
                convention,
                units: names.clone(),
                ..ModelFile::default()
            }
        }
    };
    // Blanks around a name are lost in a table, and none is kept there.
    if !file
        .units
        .iter()
        .map(|unit| unit.trim())
        .eq(names.iter().map(|name| name.trim()))
    {
        return Err("the names in the table are not those of the model".into());
    }
    if file.convention == Convention::Spins {
        let diagonal = rows.iter().enumerate().map(|(i, row)| row.get(i).copied());
        let fields: Option<Vec<f64>> = diagonal.collect();
        file.fields = Some(fields.ok_or("the table is not square")?);
        for (i, row) in rows.iter_mut().enumerate() {
            row[i] = 0.0;
        }
    }
    file.couplings = rows;
    file.read()
}
