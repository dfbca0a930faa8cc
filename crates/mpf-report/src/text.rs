//! Formats tables and numbers as plain text.

use std::fmt::Write as _;

/// Returns a Markdown table with right-aligned numbers.
pub fn markdown_table(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|r| r[column].chars().count());
        cells
            .chain([header[column].chars().count(), 3])
            .max()
            .unwrap_or(3)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut text = String::new();
    let mut line = |cells: &[String]| {
        for (column, (cell, &width)) in cells.iter().zip(&widths).enumerate() {
            let _ = if column == 0 {
                write!(text, "| {cell:<width$} ")
            } else {
                write!(text, "| {cell:>width$} ")
            };
        }
        text.push_str("|\n");
    };
    line(&header.iter().map(|h| (*h).to_owned()).collect::<Vec<_>>());
    let rule: Vec<String> = widths
        .iter()
        .enumerate()
        .map(|(column, &w)| {
            if column == 0 {
                "-".repeat(w)
            } else {
                "-".repeat(w - 1) + ":"
            }
        })
        .collect();
    line(&rule);
    rows.iter().for_each(|row| line(row));
    text
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

/// Formats a time as people write it: "0.7 ms", "12 s", "3 min 5 s", "2 h 10 min".
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0} µs", 1e6 * s),
        s if s < 0.01 => format!("{:.1} ms", 1e3 * s),
        s if s < 1.0 => format!("{:.0} ms", 1e3 * s),
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
            markdown_table(&["method", "ε_J"], &rows),
            "| method  | ε_J |\n| ------- | --: |\n| MPF     | 0.5 |\n| MFT+TAP |  12 |\n"
        );
    }

    #[test]
    fn times_are_written_as_people_do() {
        let shown: Vec<String> = [
            3e-5, 7e-4, 0.0071, 0.25, 2.34, 9.96, 42.4, 99.7, 185.0, 7800.0,
        ]
        .into_iter()
        .map(duration)
        .collect();
        let expected = [
            "30 µs",
            "700 µs",
            "7.1 ms",
            "250 ms",
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
