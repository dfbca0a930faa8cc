//! Formats tables and numbers as plain text.

use std::borrow::Cow;
use std::fmt::Write as _;

/// A table of texts.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The headings of the columns.
    pub header: Vec<String>,
    /// A cell for every column.
    pub rows: Vec<Vec<String>>,
}

/// The heading of a column, and the cell of an item in it.
pub type Column<'a, T> = (&'static str, &'a dyn Fn(&T) -> String);

impl Table {
    /// Makes a table of its parts.
    pub fn new<H: ToString, R: Into<Vec<String>>>(
        header: impl IntoIterator<Item = H>,
        rows: impl IntoIterator<Item = R>,
    ) -> Self {
        Self {
            header: header
                .into_iter()
                .map(|heading| heading.to_string())
                .collect(),
            rows: rows.into_iter().map(Into::into).collect(),
        }
    }

    /// Makes a table with a row for every item.
    pub fn of<'a, T: 'a>(
        items: impl IntoIterator<Item = &'a T>,
        columns: &[Column<'_, T>],
    ) -> Self {
        let row = |item| {
            columns
                .iter()
                .map(|(_, cell)| cell(item))
                .collect::<Vec<_>>()
        };
        Self::new(
            columns.iter().map(|(heading, _)| heading),
            items.into_iter().map(row),
        )
    }

    /// Returns it in Markdown, with numbers to the right.
    pub fn markdown(&self) -> String {
        let rows = || [&self.header].into_iter().chain(&self.rows);
        let width = |column: usize| {
            rows()
                .map(|row| row[column].chars().count())
                .fold(3, usize::max)
        };
        let widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        let mut text = String::new();
        for (at, row) in rows().enumerate() {
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                let _ = match column {
                    0 => write!(text, "| {cell:<width$} "),
                    _ => write!(text, "| {cell:>width$} "),
                };
            }
            text.push_str("|\n");
            if at == 0 {
                for (column, width) in widths.iter().enumerate() {
                    let _ = match column {
                        0 => write!(text, "| {} ", "-".repeat(*width)),
                        _ => write!(text, "| {}: ", "-".repeat(width - 1)),
                    };
                }
                text.push_str("|\n");
            }
        }
        text
    }

    /// Returns it as CSV (RFC 4180), with every cell [`guarded`].
    pub fn csv(&self) -> String {
        let quoted = |cell: &String| {
            let cell = guarded(cell);
            let is_text = matches!(cell, Cow::Owned(_));
            if is_text || cell.contains([',', '"', '\r', '\n']) {
                format!("\"{}\"", cell.replace('"', "\"\""))
            } else {
                cell.into_owned()
            }
        };
        let lines = [&self.header].into_iter().chain(&self.rows);
        let lines = lines.map(|row| row.iter().map(quoted).collect::<Vec<_>>().join(",") + "\r\n");
        lines.collect()
    }
}

/// Formats a number with four significant digits.
pub fn digits(value: f64) -> String {
    if value == 0.0 || (1e-3..1e4).contains(&value.abs()) {
        let decimals = 3 - value.abs().max(1e-3).log10().floor().clamp(-3.0, 3.0) as i32;
        format!("{value:.*}", decimals.max(0) as usize)
    } else {
        format!("{value:.3e}")
    }
}

/// Returns whether a spreadsheet would run a cell of a CSV file: one that begins with `=`, `+`, `-` or
/// `@`, also after a tab or a line break, and is no number.
fn is_run(cell: &str) -> bool {
    cell.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']) && cell.parse::<f64>().is_err()
}

/// Puts an apostrophe in front of a cell that a spreadsheet would run, the usual way to make it text;
/// [`unguarded`] takes it away.
pub fn guarded(cell: &str) -> Cow<'_, str> {
    if is_run(cell.trim_start_matches('\'')) {
        Cow::Owned(format!("'{cell}"))
    } else {
        Cow::Borrowed(cell)
    }
}

/// Returns the cell that [`guarded`] was given.
pub fn unguarded(cell: &str) -> &str {
    match cell.strip_prefix('\'') {
        Some(rest) if is_run(rest.trim_start_matches('\'')) => rest,
        _ => cell,
    }
}

/// Writes control characters, and those that turn the direction of text, as `\n` or `\u{1b}`.
pub fn visible(text: &str) -> String {
    let is_hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Formats a time as people write it: "0.7 ms", "12 s", "3 min 5 s", "2 h 10 min".
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 9.95e-5 => format!("{:.0} µs", 1e6 * s),
        s if s < 9.95e-3 => format!("{:.1} ms", 1e3 * s),
        s if s < 0.9995 => format!("{:.0} ms", 1e3 * s),
        s if s < 9.95 => format!("{s:.1} s"),
        s if s < 99.5 => format!("{s:.0} s"),
        s if s < 5970.0 => format!(
            "{:.0} min {:.0} s",
            (s.round() / 60.0).floor(),
            s.round() % 60.0
        ),
        s if s.is_finite() => {
            let minutes = (s / 60.0).round();
            format!(
                "{:.0} h {:.0} min",
                (minutes / 60.0).floor(),
                minutes % 60.0
            )
        }
        s => format!("{s} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits() {
        let shown: Vec<String> = [0.0, 0.017_2, 7.770_4, 59.86, 1234.5, 2.5e-5, -0.5]
            .into_iter()
            .map(digits)
            .collect();
        assert_eq!(
            shown,
            [
                "0.000000", "0.01720", "7.770", "59.86", "1234", "2.500e-5", "-0.5000"
            ]
        );
    }

    #[test]
    fn tables_line_up() {
        let rows = vec![
            vec!["MPF".into(), "0.5".into()],
            vec!["MFT+TAP".into(), "12".into()],
        ];
        assert_eq!(
            Table::new(["method", "ε_J"], rows).markdown(),
            "| method  | ε_J |\n| ------- | --: |\n| MPF     | 0.5 |\n| MFT+TAP |  12 |\n"
        );
    }

    #[test]
    fn columns_make_a_table() {
        let Table { header, rows } = Table::of(
            &[2.0, 3.0],
            &[
                ("x", &|x: &f64| x.to_string()),
                ("x²", &|x| (x * x).to_string()),
            ],
        );
        assert_eq!(header, ["x", "x²"]);
        assert_eq!(rows, [["2", "4"], ["3", "9"]]);
    }

    #[test]
    fn no_cell_of_a_csv_is_run() {
        let cells = [
            "=1+1",
            "+cmd",
            "-a",
            "@x",
            "\t=1",
            "-0.43",
            "+1e-5",
            "a=b",
            "say \"a\"",
        ];
        for cell in cells
            .into_iter()
            .chain(["'=1", "''-a", "'", "'a", "", "'-1"])
        {
            assert_eq!(unguarded(&guarded(cell)), cell);
        }
        let rows: Vec<Vec<String>> = cells.iter().map(|c| vec![(*c).to_owned()]).collect();
        assert_eq!(
            Table::new(["-name", "a,b"], rows).csv(),
            "\"'-name\",\"a,b\"\r\n\"'=1+1\"\r\n\"'+cmd\"\r\n\"'-a\"\r\n\"'@x\"\r\n\"'\t=1\"\r\n\
             -0.43\r\n+1e-5\r\na=b\r\n\"say \"\"a\"\"\"\r\n"
        );
    }

    #[test]
    fn times_are_written_as_people_do() {
        let shown: Vec<String> = [
            3e-5, 7e-4, 0.0071, 0.25, 0.9996, 2.34, 9.96, 42.4, 99.7, 185.0, 7800.0,
        ]
        .into_iter()
        .map(duration)
        .collect();
        let expected = [
            "30 µs",
            "0.7 ms",
            "7.1 ms",
            "250 ms",
            "1.0 s",
            "2.3 s",
            "10 s",
            "42 s",
            "1 min 40 s",
            "3 min 5 s",
            "2 h 10 min",
        ];
        assert_eq!(shown, expected);
    }
}
