//! Every figure and table of the paper, and a page that leads to them.

use crate::output::{Entry, Output};
use crate::report::Page;
use crate::{Result, fig_e1, fig_f1, fig1, fig2, fig3};
use clap::Parser;
use mpf_core::Cancel;
use std::path::PathBuf;

/// Options of `reproduce-all`.
#[derive(clap::Args)]
pub struct Args {
    /// Folder for the results, one folder per figure inside [default: target/reproduce]
    #[arg(long)]
    out: Option<PathBuf>,
}

/// The options of a command as they are when none is given.
#[derive(Parser)]
struct Defaults<A: clap::Args> {
    #[command(flatten)]
    args: A,
}

fn with_folder<A: clap::Args>(folder: PathBuf) -> A {
    let out = folder.into_os_string();
    let words = ["defaults".into(), "--out".into(), out];
    Defaults::<A>::parse_from(words).args
}

/// Runs the command.
pub fn run(args: &Args, cancel: &Cancel) -> Result {
    let output = Output::new(args.out.as_deref(), "")?;
    let folder = |name: &str| output.folder().join(name);
    let mut entries: Vec<Entry> = Vec::new();
    let mut keep = |entry: Option<Entry>| entries.extend(entry);
    keep(fig1::run(&with_folder(folder("fig1")))?);
    keep(fig2::run(&with_folder(folder("fig2")), cancel)?);
    if !cancel.is_cancelled() {
        keep(fig3::run(&with_folder(folder("fig3")), cancel)?);
    }
    if !cancel.is_cancelled() {
        keep(fig_e1::run(&with_folder(folder("fig-e1")), cancel)?);
    }
    if !cancel.is_cancelled() {
        keep(fig_f1::run(&with_folder(folder("fig-f1")), cancel)?);
    }
    output.write("index.html", &index(&entries, output.folder()))?;
    println!("index.html written to {}", output.shown());
    Ok(())
}

fn index(entries: &[Entry], root: &std::path::Path) -> String {
    let mut page = Page::new(
        "The experiments of \u{201c}Minimum Probability Flow\u{201d}, run again",
        "What each of the paper's figures and tables looks like when it is computed by this \
         software, and what that says.",
    );
    for entry in entries {
        page.heading(&entry.title);
        page.figure(&entry.figure, &entry.title);
        page.list(&entry.reading);
        let folder = entry.folder.strip_prefix(root).unwrap_or(&entry.folder);
        page.link(
            &format!("{}/report.html", folder.display()),
            "The full report",
        );
    }
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_links_to_every_report() {
        let entry = |name: &str| Entry {
            title: name.to_owned(),
            folder: PathBuf::from("/results").join(name),
            figure: "<svg></svg>".to_owned(),
            reading: vec!["found".to_owned()],
        };
        let html = index(&[entry("a"), entry("b")], "/results".as_ref());
        assert!(html.contains("href=\"a/report.html\"") && html.contains("href=\"b/report.html\""));
    }
}
