//! Makes every figure and table of the paper, and a page that links to them.

use crate::output::{Entry, OutputArgs};
use crate::report::Page;
use crate::run::{RunArgs, parsed, settings};
use crate::{Result, fig_e1, fig_f1, fig1, fig2, fig3};
use mpf_core::Cancel;
use serde_json::json;
use std::path::Path;

/// Returns the options of a figure in a folder: those of `run` but for the folder.
fn within(run: &RunArgs, folder: &Path) -> RunArgs {
    let out = Some(folder.to_owned());
    RunArgs {
        output: OutputArgs { out },
        ..run.clone()
    }
}

type Figure<'a> = dyn Fn(&RunArgs) -> Result<Entry> + 'a;

/// Makes the figures that an interrupted run did not finish, and the index.
pub fn run(ours: &RunArgs, cancel: &Cancel) -> Result {
    let figures: [(&str, &Figure<'_>); 5] = [
        ("fig1", &|its| fig1::run(&parsed(Vec::new()), &its.output)),
        ("fig2", &|its| fig2::run(&parsed(Vec::new()), its, cancel)),
        ("fig3", &|its| fig3::run(&parsed(Vec::new()), its, cancel)),
        ("fig-e1", &|its| {
            fig_e1::run(&parsed(Vec::new()), its, cancel)
        }),
        ("fig-f1", &|its| {
            fig_f1::run(&parsed(Vec::new()), its, cancel)
        }),
    ];
    let settings = settings("reproduce-all", &json!({}))?;
    ours.run_with("", settings, cancel, |output, checkpoint| {
        let mut entries: Vec<Entry> = Vec::new();
        for (name, run) in figures {
            if cancel.is_cancelled() {
                break;
            }
            let its = within(ours, &output.folder().join(name));
            match checkpoint.unit(name, |_| run(&its)) {
                Err(_) if cancel.is_cancelled() => break,
                entry => entries.push(entry?),
            }
        }
        output.write("index.html", &index(&entries, output.folder()))?;
        eprintln!("index.html written to {}", output.shown());
        Ok(())
    })
}

fn index(entries: &[Entry], root: &Path) -> String {
    let mut page = Page::new(
        "The experiments of \u{201c}Minimum Probability Flow\u{201d}, run again",
        "The paper's figures and tables, computed by this software, and the findings.",
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
    fn figures_are_told_to_resume() {
        let mut ours = RunArgs {
            resume: true,
            checkpoint_every: 2.5,
            ..parsed(Vec::new())
        };
        let figure = within(&ours, "there".as_ref());
        assert!(figure.resume && figure.checkpoint_every == 2.5);
        assert_eq!(figure.output.out, Some(PathBuf::from("there")));
        ours.resume = false;
        assert!(!within(&ours, "there".as_ref()).resume);
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
