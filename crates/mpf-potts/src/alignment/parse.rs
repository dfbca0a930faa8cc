//! FASTA, a2m, a3m, one sequence a line, and Stockholm.

use crate::{Error, Result};
use std::collections::HashMap;

/// A sequence as it was read, wrapped lines joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) name: String,
    /// The line of its first letters, from 1.
    pub(super) line: usize,
    pub(super) letters: Vec<u8>,
}

/// Reads the records of an alignment, whose format its first characters tell.
pub(super) fn records(text: &[u8]) -> Result<Vec<Record>> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    if let Some(place) = text.iter().position(|c| *c == 0) {
        let line = 1 + text[..place].iter().filter(|c| **c == b'\n').count();
        return Err(Error::NotText { line });
    }
    let first = text.iter().find(|c| !c.is_ascii_whitespace());
    let records = match first {
        None => Vec::new(),
        Some(b'>') => fasta(text)?,
        Some(b'#') if text.trim_ascii_start().starts_with(b"# STOCKHOLM") => stockholm(text)?,
        Some(_) => lines_of_sequences(text)?,
    };
    if records.is_empty() {
        return Err(Error::NoSequences);
    }
    Ok(records)
}

/// Returns the lines with their numbers from 1, without white space at the ends.
fn lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let lines = text.split(|c| *c == b'\n').enumerate();
    lines.map(|(k, line)| (k + 1, line.trim_ascii()))
}

fn fasta(text: &[u8]) -> Result<Vec<Record>> {
    let mut records: Vec<Record> = Vec::new();
    for (line, content) in lines(text) {
        if let Some(name) = content.strip_prefix(b">") {
            check_letters(records.last())?;
            let name = String::from_utf8_lossy(name).trim().to_string();
            records.push(Record {
                name,
                line: line + 1,
                letters: Vec::new(),
            });
        } else if let Some(record) = records.last_mut() {
            let letters = content.iter().filter(|c| !c.is_ascii_whitespace());
            record.letters.extend(letters);
        }
    }
    check_letters(records.last())?;
    Ok(records)
}

/// Checks that a sequence of FASTA, whose letters follow the line of its name, has letters.
fn check_letters(record: Option<&Record>) -> Result<()> {
    match record.filter(|record| record.letters.is_empty()) {
        Some(record) => Err(Error::EmptySequence {
            line: record.line - 1,
            name: record.name.clone(),
        }),
        None => Ok(()),
    }
}

/// Returns the words of a line.
fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let words = line.split(u8::is_ascii_whitespace);
    words.filter(|word| !word.is_empty())
}

/// Reads one sequence a line, or a name and a sequence.
fn lines_of_sequences(text: &[u8]) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for (line, content) in lines(text) {
        if content.is_empty() || content.starts_with(b"#") {
            continue;
        }
        let mut words = words(content);
        let first = words.next().expect("the line is not empty");
        let (name, letters) = match (words.next(), words.next()) {
            (None, _) => (format!("sequence {}", records.len() + 1), first),
            (Some(second), None) => (String::from_utf8_lossy(first).into_owned(), second),
            _ => return Err(Error::Words { line }),
        };
        records.push(Record {
            name,
            line,
            letters: letters.to_vec(),
        });
    }
    Ok(records)
}

/// Reads Stockholm: blocks of "name letters", which continue by name.
fn stockholm(text: &[u8]) -> Result<Vec<Record>> {
    let mut records: Vec<Record> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (line, content) in lines(text) {
        if content.is_empty() || content.starts_with(b"#") {
            continue;
        }
        if content == b"//" {
            break;
        }
        let mut words = words(content);
        let (Some(name), Some(letters), None) = (words.next(), words.next(), words.next()) else {
            return Err(Error::Words { line });
        };
        let name = String::from_utf8_lossy(name).into_owned();
        let place = *places.entry(name.clone()).or_insert(records.len());
        if place == records.len() {
            records.push(Record {
                name,
                line,
                letters: Vec::new(),
            });
        }
        records[place].letters.extend_from_slice(letters);
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(String, usize, String)> {
        let records = records(text.as_bytes()).unwrap();
        let spell = |letters| String::from_utf8(letters).unwrap();
        let parts = records
            .into_iter()
            .map(|r| (r.name, r.line, spell(r.letters)));
        parts.collect()
    }

    fn expected(records: &[(&str, usize, &str)]) -> Vec<(String, usize, String)> {
        let parts = records.iter();
        parts
            .map(|(n, l, s)| (n.to_string(), *l, s.to_string()))
            .collect()
    }

    #[test]
    fn wrapped_fasta_with_crlf_is_joined() {
        let found = read("\n>one x/1-4\r\nAC\r\nGU\r\n\r\n>two\r\nA C-U\r\n");
        assert_eq!(
            found,
            expected(&[("one x/1-4", 3, "ACGU"), ("two", 7, "AC-U")])
        );
    }

    #[test]
    fn lines_may_have_names() {
        assert_eq!(
            read("ACG\n\nAC-\n"),
            expected(&[("sequence 1", 1, "ACG"), ("sequence 2", 3, "AC-")])
        );
        assert_eq!(
            read("a ACG\nb AC-"),
            expected(&[("a", 1, "ACG"), ("b", 2, "AC-")])
        );
        assert!(matches!(records(b"a b c"), Err(Error::Words { line: 1 })));
    }

    #[test]
    fn stockholm_blocks_continue_by_name() {
        let text =
            "# STOCKHOLM 1.0\n#=GF ID x\n\na  AC\nb  G-\n#=GC SS ..\n\na  UU\nb  AA\n//\nc  XX\n";
        assert_eq!(read(text), expected(&[("a", 4, "ACUU"), ("b", 5, "G-AA")]));
    }

    #[test]
    fn what_is_no_alignment_is_named() {
        assert!(matches!(records(b" \n"), Err(Error::NoSequences)));
        assert!(matches!(
            records(b">a\nAC\n>b\n>c\nAC"),
            Err(Error::EmptySequence { line: 3, .. })
        ));
        assert!(matches!(
            records(b">a\nAC\n>b\n"),
            Err(Error::EmptySequence { line: 3, .. })
        ));
        assert!(matches!(
            records(b">a\nAC\n\0"),
            Err(Error::NotText { line: 3 })
        ));
    }
}
