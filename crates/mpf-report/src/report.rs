//! Makes self-contained HTML pages of text, tables and figures.
//!
//! A page is one file without scripts and loads nothing from the network. It follows the reader's
//! light or dark setting and fits a narrow screen.

use crate::text::{Table, visible};
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write as _;

const STYLE: &str = include_str!("page.css");

/// The most characters of a cell that is kept on one line.
const LONG_CELL: usize = 20;

/// A page under construction.
pub struct Page {
    title: String,
    body: String,
    section: String,
    n_tables: usize,
}

impl Page {
    /// Starts a page with a title and a first paragraph.
    pub fn new(title: &str, lead: &str) -> Self {
        let mut page = Self {
            title: title.to_owned(),
            body: String::new(),
            section: title.to_owned(),
            n_tables: 0,
        };
        page.add("h1", title);
        page.text(lead);
        page
    }

    /// Starts a section.
    pub fn heading(&mut self, text: &str) {
        text.clone_into(&mut self.section);
        self.add("h2", text);
    }

    /// Adds a paragraph.
    pub fn text(&mut self, text: &str) {
        self.add("p", text);
    }

    /// Adds a list with a bullet for every item.
    pub fn list(&mut self, items: &[String]) {
        self.body.push_str("<ul>\n");
        for item in items {
            self.add("li", item);
        }
        self.body.push_str("</ul>\n");
    }

    /// Adds a table, and a link that holds it as CSV. The first column holds names, the others
    /// numbers or words.
    pub fn table(&mut self, table: &Table) {
        self.body
            .push_str("<div class=\"table\"><table>\n<thead><tr>");
        for cell in &table.header {
            let _ = write!(self.body, "<th>{}</th>", escape(cell));
        }
        self.body.push_str("</tr></thead>\n<tbody>\n");
        for row in &table.rows {
            self.body.push_str("<tr>");
            for cell in row {
                let long = if cell.chars().count() > LONG_CELL {
                    " class=\"long\""
                } else {
                    ""
                };
                let _ = write!(self.body, "<td{long}>{}</td>", escape(cell));
            }
            self.body.push_str("</tr>\n");
        }
        self.n_tables += 1;
        let words: Vec<String> = self
            .section
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase)
            .collect();
        let _ = writeln!(
            self.body,
            "</tbody></table></div>\n<p class=\"csv\"><a download=\"{}-{}.csv\" \
             href=\"data:text/csv;charset=utf-8,{}\">this table as CSV</a></p>",
            words.join("-"),
            self.n_tables,
            percent_encoded(&table.csv()),
        );
    }

    /// Adds a table that the reader unfolds.
    pub fn folded_table(&mut self, summary: &str, table: &Table) {
        self.body.push_str("<details>");
        self.add("summary", summary);
        self.table(table);
        self.body.push_str("</details>\n");
    }

    /// Adds a drawing with its caption, on white in either theme.
    pub fn figure(&mut self, svg: &str, caption: &str) {
        let caption = escape(caption);
        let _ = writeln!(
            self.body,
            "<figure role=\"img\" aria-label=\"{caption}\"><div>{svg}</div>\
             <figcaption>{caption}</figcaption></figure>"
        );
    }

    /// Adds small drawings, side by side or, on a narrow screen, below each other.
    pub fn figures(&mut self, figures: &[(String, String)]) {
        self.body.push_str("<div class=\"figures\">\n");
        for (svg, caption) in figures {
            self.figure(svg, caption);
        }
        self.body.push_str("</div>\n");
    }

    /// Adds a table of the fields of `settings` and their values.
    pub fn settings(&mut self, settings: &impl Serialize) {
        let mut rows = Vec::new();
        if let Ok(value) = serde_json::to_value(settings) {
            flatten(&value, "", &mut rows);
        }
        self.table(&Table::new(["setting", "value"], rows));
    }

    /// Adds a link to another page.
    pub fn link(&mut self, address: &str, text: &str) {
        let _ = writeln!(
            self.body,
            "<p><a href=\"{}\">{}</a></p>",
            escape(address),
            escape(text)
        );
    }

    /// Returns the HTML.
    pub fn finish(self) -> String {
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"generator\" content=\"written by mpf\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{}\
             <footer>mpf {}, minimum probability flow in Rust</footer>\n</body>\n</html>\n",
            escape(&self.title),
            self.body,
            env!("CARGO_PKG_VERSION"),
        )
    }

    fn add(&mut self, element: &str, text: &str) {
        let _ = writeln!(self.body, "<{element}>{}</{element}>", escape(text));
    }
}

/// Appends a row for every leaf of a JSON value.
fn flatten(value: &Value, name: &str, rows: &mut Vec<Vec<String>>) {
    let shown = match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                flatten(field, &key.replace('_', " "), rows);
            }
            return;
        }
        Value::String(text) => text.clone(),
        Value::Null => "–".to_owned(),
        other => other.to_string(),
    };
    rows.push(vec![name.to_owned(), shown]);
}

/// Makes text safe for HTML and SVG; control characters become visible.
pub fn escape(text: &str) -> String {
    visible(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(2 * text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b',' => {
                encoded.push(char::from(byte));
            }
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_drawings_are_not() {
        let mut page = Page::new("a < b & \"c\"", "lead");
        page.heading("table");
        page.table(&Table::new(["x", "<y>"], [["1".into(), "<2>".into()]]));
        page.list(&["one".into()]);
        page.figure("<svg></svg>", "what \"it\" shows");
        page.figures(&[("<svg/>".into(), "small".into())]);
        page.link("a/b.html", "more");
        page.settings(&serde_json::json!({"inner": {"a_b": 1}, "none": null}));
        let html = page.finish();
        assert!(html.contains("<td>a b</td><td>1</td>"));
        assert!(html.contains("<td>none</td><td>–</td>"));
        assert!(html.contains("<h1>a &lt; b &amp; &quot;c&quot;</h1>"));
        assert!(html.contains("<td>&lt;2&gt;</td>"));
        assert!(html.contains("<div><svg></svg></div>"));
        assert!(
            html.contains("<div class=\"figures\">\n<figure role=\"img\" aria-label=\"small\">")
        );
        assert!(html.contains("aria-label=\"what &quot;it&quot; shows\""));
        assert!(!html.contains("http"), "nothing from the network");
    }

    #[test]
    fn every_table_can_be_saved() {
        let mut page = Page::new("title", "lead");
        page.heading("Does it agree?");
        page.table(&Table::new(
            ["unit", "K"],
            [["a, \"b\"".into(), "-0.5".into()]],
        ));
        page.folded_table("all", &Table::new(["unit"], [["é".into()]]));
        let html = page.finish();
        assert!(html.contains(
            "<a download=\"does-it-agree-1.csv\" \
             href=\"data:text/csv;charset=utf-8,unit,K%0D%0A%22a,%20%22%22b%22%22%22,-0.5%0D%0A\">"
        ));
        assert!(html.contains("does-it-agree-2.csv"));
        assert!(html.contains("charset=utf-8,unit%0D%0A%C3%A9%0D%0A"));
        assert!(html.contains("<details><summary>all</summary>"));
        assert!(!html.contains("<script"));
    }

    #[test]
    fn control_characters_are_shown_and_long_cells_wrap() {
        let mut page = Page::new("a\u{1b}[31m\u{0}", "b\nc\u{202e}d");
        let long = "5-fold cross-validation, rule best";
        page.table(&Table::new(["x\ty"], [[long.into()], ["1.2e-5".into()]]));
        let html = page.finish();
        assert!(html.contains("<h1>a\\u{1b}[31m\\u{0}</h1>"), "{html}");
        assert!(html.contains("<p>b\\nc\\u{202e}d</p>"));
        assert!(html.contains("<th>x\\ty</th>"));
        assert!(html.contains(&format!("<td class=\"long\">{long}</td>")));
        assert!(html.contains("<td>1.2e-5</td>"));
    }
}
