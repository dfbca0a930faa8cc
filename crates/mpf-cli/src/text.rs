//! Reads numbers separated by commas, semicolons, tabs or blanks; the first line may hold names.

use crate::data::{DataArgs, Delimiter, check_units};
use crate::failure::Failure;
use crate::memory::{self, Room};
use crate::packer::{Packer, Problem, Values};
use csv::StringRecord;
use mpf_report::text::unguarded;
use std::io::{self, BufRead, BufReader, Read, Take};

/// The memory that a line of text takes, per byte: its fields are at least two bytes long, and each
/// may become a name of some 50.
const BYTES_PER_BYTE: u64 = 32;
/// Names of a header that are shown.
const NAMES: usize = 4;

/// Reads a text; returns its bits and the names of the units.
pub(crate) fn read(
    args: &DataArgs,
    room: Room,
    mut file: impl BufRead,
    extension: &str,
    notes: &mut Vec<String>,
) -> Result<(Packer, Option<Vec<String>>), Failure> {
    let path = &args.data;
    let start = file.fill_buf().map_err(|e| Failure::unreadable(path, &e))?;
    if start.starts_with(b"\xef\xbb\xbf") {
        file.consume(3);
    }
    let start = file.fill_buf().map_err(|e| Failure::unreadable(path, &e))?;
    let delimiter = args.delimiter.unwrap_or_else(|| find(start, extension));
    let mut lines = Lines::new(file, delimiter, room.bytes / BYTES_PER_BYTE);
    let mut reader = Reader {
        args,
        room,
        packer: None,
        header: None,
        unit_names: Vec::new(),
    };
    let mut record = StringRecord::new();
    while let Some(line) = lines.next(&mut record).map_err(|why| {
        Failure::at(path, why)
            .hint("text must be UTF-8 with a line per row; for arrays use .npy or .npz")
    })? {
        reader.line(line, &record)?;
    }
    if let Some(header) = &reader.header {
        let shown: Vec<&str> = header.iter().take(NAMES).map(String::as_str).collect();
        let more = if header.len() > NAMES { ", …" } else { "" };
        notes.push(format!(
            "the first line is a header of {} names: {}{more}",
            header.len(),
            shown.join(", ").escape_debug()
        ));
    }
    reader.finish()
}

/// Finds the delimiter in the first line: the one that occurs most often outside of quotes.
fn find(start: &[u8], extension: &str) -> Delimiter {
    let lines = start.split(|b| *b == b'\n');
    let line = lines.into_iter().find(|line| !line.starts_with(b"#"));
    let mut counts = [(0, b','), (0, b'\t'), (0, b';')];
    let mut quoted = false;
    for byte in line.unwrap_or_default() {
        quoted ^= *byte == b'"';
        for (count, candidate) in &mut counts {
            *count += usize::from(!quoted && byte == candidate);
        }
    }
    let default = match extension {
        "csv" => Delimiter::Byte(b','),
        "tsv" => Delimiter::Byte(b'\t'),
        _ => Delimiter::Blanks,
    };
    match counts.into_iter().max_by_key(|(count, _)| *count) {
        Some((1.., byte)) => Delimiter::Byte(byte),
        _ => default,
    }
}

/// Bytes of a text: no zeros, and no line that memory cannot hold.
struct Bounded<R> {
    /// Limited to what is left of `most`; whoever ends a line sets it back.
    inner: Take<R>,
    most: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.inner.limit() == 0 {
            return Err(io::Error::other(format!(
                "the line is longer than {}, more than there is memory for",
                memory::in_words(self.most)
            )));
        }
        let n = self.inner.read(buffer)?;
        if buffer[..n].contains(&0) {
            return Err(io::Error::other(
                "this is no text in UTF-8: it holds zero bytes",
            ));
        }
        Ok(n)
    }
}

/// The lines of a text, without those that are empty or comments.
enum Lines<R> {
    Separated(Box<csv::Reader<Bounded<R>>>),
    Blanks {
        file: BufReader<Bounded<R>>,
        text: String,
        line: u64,
    },
}

impl<R: BufRead> Lines<R> {
    fn new(file: R, delimiter: Delimiter, most: u64) -> Self {
        let inner = file.take(most);
        let file = Bounded { inner, most };
        match delimiter {
            Delimiter::Byte(byte) => Self::Separated(Box::new(
                csv::ReaderBuilder::new()
                    .delimiter(byte)
                    .has_headers(false)
                    .flexible(true)
                    .trim(csv::Trim::All)
                    .comment(Some(b'#'))
                    .from_reader(file),
            )),
            Delimiter::Blanks => Self::Blanks {
                file: BufReader::new(file),
                text: String::new(),
                line: 0,
            },
        }
    }

    /// Reads the next line into `record`; returns its number, from 1.
    fn next(&mut self, record: &mut StringRecord) -> Result<Option<u64>, String> {
        match self {
            Self::Separated(reader) => {
                let bytes = reader.get_mut();
                bytes.inner.set_limit(bytes.most);
                let read = reader.read_record(record);
                let more = read.map_err(|e| match e.kind() {
                    csv::ErrorKind::Utf8 {
                        pos: Some(pos),
                        err,
                    } => format!(
                        "line {}, column {}: this is no UTF-8",
                        pos.line(),
                        err.field() + 1
                    ),
                    csv::ErrorKind::Io(error) => {
                        format!("line {}: {error}", reader.position().line())
                    }
                    _ => e.to_string(),
                })?;
                Ok(more.then(|| record.position().map_or(0, csv::Position::line)))
            }
            Self::Blanks { file, text, line } => loop {
                text.clear();
                *line += 1;
                let bytes = file.get_mut();
                bytes.inner.set_limit(bytes.most);
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
    room: Room,
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
        if first && !args.transpose {
            let others = args.drop.len() + 2;
            check_units(args, self.room, record.len().saturating_sub(others))?;
        }
        if first && self.is_header(record) {
            let names = record.iter().map(unguarded);
            self.header = Some(names.map(str::to_owned).collect());
            return Ok(());
        }
        // Where rows are units, a name may stand before the numbers.
        let named = args.transpose
            && (args.index || record.get(0).is_some_and(|f| self.value(f).is_none()));
        if self.packer.is_none() {
            let columns = match args.transpose {
                // Rows that are not read are found one by one.
                true => args.columns(None, &[])?,
                false => args.columns(self.header.as_deref(), &args.drop)?,
            };
            self.packer = Some(args.packer(args.transpose, columns, self.room));
        }
        let mut packer = self.packer.take().expect("it was just made");
        if args.transpose {
            let label = Some(&record[0]).filter(|_| named);
            let number = packer.lines();
            let is_this =
                |wanted: &String| label == Some(wanted.as_str()) || wanted.parse() == Ok(number);
            if args.drop.iter().any(is_this) {
                packer.drop_line();
            }
            self.unit_names.extend(label.map(str::to_owned));
        }
        let is_skipped = |packer: &Packer, column: usize| {
            let column = if args.transpose {
                packer.lines()
            } else {
                column
            };
            packer.columns().dropped.contains(&column)
        };
        for (column, field) in record.iter().enumerate().skip(usize::from(named)) {
            if is_skipped(&packer, column) {
                packer.skip();
                continue;
            }
            let Some(value) = self.value(field) else {
                let why = format!(
                    "{}: found {field:?}, which is no number",
                    self.place(line, column)
                );
                return Err(Failure::at(&args.data, why).hint(if column == 0 {
                    "if the first column holds labels of the rows, pass --index"
                } else {
                    "only the first line may hold names; --drop leaves out a column"
                }));
            };
            packer
                .push(value)
                .map_err(|problem| self.explain(line, column, problem))?;
        }
        let end = record.len();
        packer
            .end_line()
            .map_err(|problem| args.explain(&format!("line {line}, column {end}"), problem))?;
        if args.transpose {
            check_units(args, self.room, packer.n_units().unwrap_or_default())?;
        }
        self.packer = Some(packer);
        Ok(())
    }

    /// Returns whether the first line holds names.
    fn is_header(&self, record: &StringRecord) -> bool {
        let args = self.args;
        // The index of a table has no name. (Without --missing, an empty field is no entry either.)
        let unnamed = record.get(0).is_some_and(str::is_empty);
        let labels = usize::from(args.transpose || args.index);
        let mut entries = record.iter().skip(labels);
        args.header
            || entries.any(|field| self.value(field).is_none())
            || (unnamed && record.len() > 1 && (args.index || args.missing.is_none()))
    }

    fn place(&self, line: u64, column: usize) -> String {
        let name = self.header.as_ref().and_then(|h| h.get(column));
        let name = match name {
            Some(name) if !self.args.transpose && !name.is_empty() => {
                format!(" ({})", name.escape_debug())
            }
            _ => String::new(),
        };
        format!("line {line}, column {}{name}", column + 1)
    }

    /// Explains what is wrong with a field.
    fn explain(&self, line: u64, column: usize, problem: Problem) -> Failure {
        let failure = self.args.explain(&self.place(line, column), problem);
        let Problem::Value(value) = problem else {
            return failure;
        };
        if self.header.is_none() && line == 1 && ![0.0, -1.0].contains(&value) {
            let more = failure.hint.clone().unwrap_or_default();
            return failure.hint(format!(
                "if the first line holds names, pass --header; {more}"
            ));
        }
        let unnamed = self.header.as_ref().is_some_and(|h| h[0].is_empty());
        if column == 0 && unnamed {
            return failure.hint("this looks like an index of the rows: pass --index");
        }
        failure
    }

    /// Parses a number, a truth value or a word for a missing entry, which is NaN.
    fn value(&self, field: &str) -> Option<f64> {
        let is = |words: &[&str]| words.iter().any(|word| field.eq_ignore_ascii_case(word));
        let (zero, one) = match self.args.values() {
            Values::Levels(zero, one) => (zero, one),
            Values::Above(_) => (0.0, 1.0),
        };
        match field {
            "0" => Some(0.0),
            "1" => Some(1.0),
            _ if is(&["true", "yes", "y"]) => Some(one),
            _ if is(&["false", "no", "n"]) => Some(zero),
            _ if is(&["", "na", "n/a", "nan", "null", "?"]) => Some(f64::NAN),
            other => other.parse().ok(),
        }
    }

    fn finish(self) -> Result<(Packer, Option<Vec<String>>), Failure> {
        let args = self.args;
        let packer = self.packer.ok_or_else(|| args.no_data())?;
        let names = if args.transpose {
            let is_there = |wanted: &&String| {
                let number = wanted.parse::<usize>();
                self.unit_names.contains(wanted) || number.is_ok_and(|n| n < packer.lines())
            };
            if let Some(wanted) = args.drop.iter().find(|wanted| !is_there(wanted)) {
                return Err(args.no_column(wanted, "--drop"));
            }
            match self.unit_names.len() {
                0 => None,
                n if n == packer.lines() => Some(self.unit_names),
                n => {
                    let why = format!("{n} of {} rows begin with a name", packer.lines());
                    return Err(Failure::at(&args.data, why).hint("name all units or none"));
                }
            }
        } else {
            self.header
        };
        let Some(names) = names else {
            return Ok((packer, None));
        };
        if packer.n_columns().is_some_and(|n| n != names.len()) {
            let why = format!(
                "line 1 has {} names, but the other lines have {} entries",
                names.len(),
                packer.n_columns().unwrap_or_default()
            );
            return Err(Failure::at(&args.data, why).hint("every column needs a name"));
        }
        // Columns of counts and labels are not units.
        let names = packer.columns().units(names);
        Ok((packer, Some(names)))
    }
}
