//! Reads numbers separated by commas, tabs or blanks; the first line may hold names.

use crate::data::DataArgs;
use crate::failure::Failure;
use crate::packer::{Packer, Problem};
use csv::StringRecord;
use std::io::BufRead;

/// The separator between the fields of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Separator {
    Byte(u8),
    Blanks,
}

/// Reads a text; returns its bits and the names of the units.
pub(crate) fn read(
    args: &DataArgs,
    mut file: impl BufRead,
    extension: &str,
) -> Result<(Packer, Option<Vec<String>>), Failure> {
    let path = &args.data;
    let separator = match extension {
        "csv" => Separator::Byte(b','),
        "tsv" => Separator::Byte(b'\t'),
        _ => {
            let start = file.fill_buf().map_err(|e| Failure::unreadable(path, &e))?;
            let line = start.split(|b| *b == b'\n').next().unwrap_or_default();
            match [b',', b'\t'].into_iter().find(|s| line.contains(s)) {
                Some(byte) => Separator::Byte(byte),
                None => Separator::Blanks,
            }
        }
    };
    let mut lines = Lines::new(file, separator);
    let mut reader = Reader {
        args,
        packer: None,
        header: None,
        unit_names: Vec::new(),
    };
    let mut record = StringRecord::new();
    while let Some(line) = lines.next(&mut record).map_err(|why| {
        Failure::input(format!("{}: {why}", path.display()))
            .hint("text must be UTF-8; for arrays use .npy or .npz")
    })? {
        reader.line(line, &record)?;
    }
    reader.finish()
}

/// The lines of a text, without those that are empty or comments.
enum Lines<R> {
    Separated(Box<csv::Reader<R>>),
    Blanks { file: R, text: String, line: u64 },
}

impl<R: BufRead> Lines<R> {
    fn new(file: R, separator: Separator) -> Self {
        match separator {
            Separator::Byte(byte) => Self::Separated(Box::new(
                csv::ReaderBuilder::new()
                    .delimiter(byte)
                    .has_headers(false)
                    .flexible(true)
                    .trim(csv::Trim::All)
                    .comment(Some(b'#'))
                    .from_reader(file),
            )),
            Separator::Blanks => Self::Blanks {
                file,
                text: String::new(),
                line: 0,
            },
        }
    }

    /// Reads the next line into `record`; returns its number, from 1.
    fn next(&mut self, record: &mut StringRecord) -> Result<Option<u64>, String> {
        match self {
            Self::Separated(reader) => {
                let more = reader.read_record(record).map_err(|e| match e.kind() {
                    csv::ErrorKind::Utf8 {
                        pos: Some(pos),
                        err,
                    } => format!(
                        "line {}, column {}: this is no UTF-8",
                        pos.line(),
                        err.field() + 1
                    ),
                    _ => e.to_string(),
                })?;
                Ok(more.then(|| record.position().map_or(0, csv::Position::line)))
            }
            Self::Blanks { file, text, line } => loop {
                text.clear();
                *line += 1;
                // A line may be as long as the file, but not longer: this allocates no more.
                let n = file
                    .read_line(text)
                    .map_err(|e| format!("line {line}: {e}"))?;
                if n == 0 {
                    return Ok(None);
                }
                if text.trim().is_empty() || text.trim_start().starts_with('#') {
                    continue;
                }
                *record = text.split_whitespace().collect();
                return Ok(Some(*line));
            },
        }
    }
}

struct Reader<'a> {
    args: &'a DataArgs,
    packer: Option<Packer>,
    /// The names in the first line.
    header: Option<Vec<String>>,
    /// The names in the first column, where rows are units.
    unit_names: Vec<String>,
}

impl Reader<'_> {
    fn line(&mut self, line: u64, record: &StringRecord) -> Result<(), Failure> {
        let args = self.args;
        let first = self.packer.is_none() && self.header.is_none();
        // Where rows are units, a name may stand before the numbers.
        let named = args.transpose && record.get(0).is_some_and(|f| number(f).is_none());
        if first {
            let names = record.iter().skip(usize::from(args.transpose));
            if args.header || names.clone().any(|field| number(field).is_none()) {
                self.header = Some(record.iter().map(str::to_owned).collect());
                return Ok(());
            }
        }
        if self.packer.is_none() {
            let columns = if args.transpose {
                None
            } else {
                self.header.as_deref()
            };
            let counts = args.counts_column(columns)?;
            self.packer = Some(Packer::new(args.coding(), args.transpose, counts));
        }
        let packer = self.packer.as_mut().expect("it was just made");
        if named {
            self.unit_names.push(record[0].to_owned());
        }
        let column_name = |column: usize| match self.header.as_ref().and_then(|h| h.get(column)) {
            Some(name) if !args.transpose && !name.is_empty() => format!(" ({name})"),
            _ => String::new(),
        };
        for (column, field) in record.iter().enumerate().skip(usize::from(named)) {
            let place = || format!("line {line}, column {}{}", column + 1, column_name(column));
            let Some(value) = number(field) else {
                return Err(Failure::input(format!(
                    "{}: {}: found {field:?}, which is no number",
                    args.data.display(),
                    place()
                ))
                .hint(if column == 0 {
                    "leave out the column of row labels"
                } else if field.is_empty() {
                    "an entry is missing: leave out such rows or units"
                } else {
                    "only the first line may hold names"
                }));
            };
            packer.push(value).map_err(|problem| {
                let failure = args.explain(&place(), problem);
                let told = matches!(problem, Problem::Value(v) if v == 0.0 || v == -1.0);
                if self.header.is_none() && line == 1 && !told {
                    return failure.hint("if the first line holds names, pass --header");
                }
                let index = self.header.as_ref().is_some_and(|h| h[0].is_empty());
                if column == 0 && index {
                    return failure
                        .hint("this looks like an index: write the file without it (index=False)");
                }
                failure
            })?;
        }
        let end = record.len();
        packer
            .end_line()
            .map_err(|problem| args.explain(&format!("line {line}, column {end}"), problem))
    }

    fn finish(self) -> Result<(Packer, Option<Vec<String>>), Failure> {
        let args = self.args;
        let path = args.data.display();
        let Some(packer) = self.packer else {
            return Err(Failure::input(format!("{path}: there are no data in it"))
                .hint("at least one row and one unit are needed"));
        };
        let names = if args.transpose {
            match self.unit_names.len() {
                0 => None,
                n if n == packer.lines() => Some(self.unit_names),
                n => {
                    return Err(Failure::input(format!(
                        "{path}: {n} of {} rows begin with a name",
                        packer.lines()
                    ))
                    .hint("name all units or none"));
                }
            }
        } else {
            self.header
        };
        // The column of counts is not a unit.
        let Some(mut names) = names else {
            return Ok((packer, None));
        };
        if let Some(column) = args.counts_column(Some(&names))?
            && column < names.len()
        {
            names.remove(column);
        }
        let width = packer.n_units();
        if width.is_some_and(|width| width != names.len()) {
            return Err(Failure::input(format!(
                "{path}: line 1 names {} units, but the data have {}",
                names.len(),
                width.unwrap_or_default()
            ))
            .hint("every unit needs a name"));
        }
        let mut sorted: Vec<&String> = names.iter().collect();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(
                Failure::input(format!("{path}: two units are named {:?}", twice[0]))
                    .hint("units need names of their own"),
            );
        }
        Ok((packer, Some(names)))
    }
}

/// Parses a number or a truth value.
fn number(field: &str) -> Option<f64> {
    match field {
        "0" => Some(0.0),
        "1" => Some(1.0),
        "true" | "True" | "TRUE" => Some(1.0),
        "false" | "False" | "FALSE" => Some(0.0),
        other => other.parse().ok(),
    }
}
