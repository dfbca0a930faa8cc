//! Reads lists of edges: two units on a line, by name or by number from 0; further columns are
//! ignored.

use crate::failure::Failure;
use crate::memory;
use mpf_ising::Support;
use std::collections::HashMap;
use std::path::Path;

/// Reads the free couplings. Fields are separated by commas, tabs or blanks; lines that
/// begin with `#` are comments, and a first line that names no units is a header. `limit` is that of
/// memory.
///
/// # Errors
/// A [`Failure`] with the line that is wrong.
pub fn read(path: &Path, names: &[String], limit: Option<u64>) -> Result<Support, Failure> {
    let text = memory::read_text(path, limit)?;
    parse(&text, names).map_err(|(line, why)| {
        Failure::at(path, format!("line {line}: {why}"))
            .hint("an edge is two units, by name or by number from 0")
    })
}

/// Parses a list of free couplings.
///
/// # Errors
/// The number of a line, from 1, and what is wrong with it.
pub fn parse(text: &str, names: &[String]) -> Result<Support, (usize, String)> {
    let by_name: HashMap<&str, usize> = names
        .iter()
        .enumerate()
        .map(|(i, n)| (n.as_str(), i))
        .collect();
    let unit = |field: &str| {
        let found = by_name.get(field).copied();
        found.or_else(|| field.parse().ok().filter(|i| *i < names.len()))
    };
    let mut edges = Vec::new();
    let mut first = true;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let separators = |c: char| c == ',' || c.is_whitespace();
        let fields: Vec<&str> = line.split(separators).filter(|f| !f.is_empty()).collect();
        let [a, b, ..] = fields[..] else {
            return Err((at + 1, format!("found only {line:?}")));
        };
        match (unit(a), unit(b)) {
            (Some(i), Some(j)) if i != j => edges.push((i, j)),
            (Some(_), Some(_)) => return Err((at + 1, format!("{a} is joined to itself"))),
            (None, None) if first => {}
            (i, _) => {
                let unknown = if i.is_none() { a } else { b };
                return Err((at + 1, format!("there is no unit {unknown:?}")));
            }
        }
        first = false;
    }
    Ok(Support::Edges(edges))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_read_by_name_and_by_number() {
        let names = ["a", "b", "c"].map(String::from);
        let text = "# graph\nfrom,to\na,b,0.3\n2 0\n\n";
        let support = parse(text, &names).unwrap();
        assert_eq!(support, Support::Edges(vec![(0, 1), (2, 0)]));
        for (text, line) in [("a b\na z", 2), ("a\n", 1), ("b b", 1), ("0 1\n0 3", 2)] {
            assert_eq!(parse(text, &names).unwrap_err().0, line, "{text}");
        }
    }
}
