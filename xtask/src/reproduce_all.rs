//! Every figure and table of the paper, and a page that leads to them.

use crate::journal;
use crate::output::Entry;
use crate::report::Page;
use crate::{Result, fig_e1, fig_f1, fig1, fig2, fig3};
use clap::Parser;
use mpf_core::Cancel;
use serde::Serialize;
use std::ffi::OsString;
use std::path::Path;

/// Options of `reproduce-all`.
#[derive(clap::Args, Serialize)]
pub struct Args {
    #[command(flatten)]
    #[serde(skip)]
    journal: journal::Options,
}

/// The options of a command as they are when none is given.
#[derive(Parser)]
struct Defaults<A: clap::Args> {
    #[command(flatten)]
    args: A,
}

/// The options of a figure: its folder.
fn in_folder<A: clap::Args>(folder: &Path) -> A {
    parsed(vec!["--out".into(), folder.into()])
}

/// The options of a figure that keeps a journal: its folder, and what ours says.
fn options<A: clap::Args>(folder: &Path, journal: &journal::Options) -> A {
    let every = format!("--checkpoint-every={}", journal.checkpoint_every);
    let mut words = vec!["--out".into(), folder.into(), every.into()];
    if journal.resume {
        words.push("--resume".into());
    }
    parsed(words)
}

fn parsed<A: clap::Args>(words: Vec<OsString>) -> A {
    Defaults::<A>::parse_from([OsString::from("defaults")].into_iter().chain(words)).args
}

/// Makes a figure in a folder.
type Figure<'a> = dyn Fn(&Path) -> Result<Option<Entry>> + 'a;

/// Runs the command. Figures that were finished before it was stopped are not made again.
pub fn run(args: &Args, cancel: &Cancel) -> Result {
    let settings = journal::settings("reproduce-all", args)?;
    let (output, mut journal) = args.journal.open_with("", settings, cancel)?;
    let ours = &args.journal;
    let figures: [(&str, &Figure<'_>); 5] = [
        ("fig1", &|folder| fig1::run(&in_folder(folder))),
        ("fig2", &|folder| fig2::run(&options(folder, ours), cancel)),
        ("fig3", &|folder| fig3::run(&options(folder, ours), cancel)),
        ("fig-e1", &|folder| {
            fig_e1::run(&options(folder, ours), cancel)
        }),
        ("fig-f1", &|folder| {
            fig_f1::run(&options(folder, ours), cancel)
        }),
    ];
    let mut entries: Vec<Entry> = Vec::new();
    for (name, run) in figures {
        if cancel.is_cancelled() {
            break;
        }
        entries.extend(journal.unit(name, |_| run(&output.folder().join(name)))?);
    }
    output.write("index.html", &index(&entries, output.folder()))?;
    println!("index.html written to {}", output.shown());
    journal.finish()
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
    use std::path::PathBuf;

    #[test]
    fn figures_that_keep_a_journal_are_told_to_resume() {
        let mut ours = journal::Options {
            resume: true,
            checkpoint_every: 2.5,
            ..Default::default()
        };
        let figure: fig3::Args = options("there".as_ref(), &ours);
        assert!(figure.journal.resume && figure.journal.checkpoint_every == 2.5);
        assert_eq!(figure.journal.out, Some(PathBuf::from("there")));
        ours.resume = false;
        let anew: fig3::Args = options("there".as_ref(), &ours);
        assert!(!anew.journal.resume);
    }

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
