//! Makes every figure and table of the paper, and a page that links to them.

use crate::output::Entry;
use crate::report::Page;
use crate::run::{RunArgs, parsed, settings};
use crate::{Result, fig_e1, fig_f1, fig1, fig2, fig3};
use mpf_core::Cancel;
use serde::Serialize;
use std::path::Path;

#[derive(clap::Args, Serialize)]
pub struct Args {
    #[command(flatten)]
    #[serde(skip)]
    run: RunArgs,
}

/// Returns the options of a figure: defaults, its folder, and the checkpoint options of `run`.
fn options<A: clap::Args>(folder: &Path, run: &RunArgs) -> A {
    let every = format!("--checkpoint-every={}", run.checkpoint_every);
    let mut words = vec!["--out".into(), folder.into(), every.into()];
    if run.resume {
        words.push("--resume".into());
    }
    parsed(words)
}

/// Makes a figure in a folder.
type Figure<'a> = dyn Fn(&Path) -> Result<Entry> + 'a;

/// Makes the figures that an interrupted run did not finish, and the index.
pub fn run(args: &Args, cancel: &Cancel) -> Result {
    let ours = &args.run;
    let figures: [(&str, &Figure<'_>); 5] = [
        ("fig1", &|folder| {
            fig1::run(&parsed(vec!["--out".into(), folder.into()]))
        }),
        ("fig2", &|folder| fig2::run(&options(folder, ours), cancel)),
        ("fig3", &|folder| fig3::run(&options(folder, ours), cancel)),
        ("fig-e1", &|folder| {
            fig_e1::run(&options(folder, ours), cancel)
        }),
        ("fig-f1", &|folder| {
            fig_f1::run(&options(folder, ours), cancel)
        }),
    ];
    let settings = settings("reproduce-all", args)?;
    ours.run_with("", settings, cancel, |output, checkpoint| {
        let mut entries: Vec<Entry> = Vec::new();
        for (name, run) in figures {
            if cancel.is_cancelled() {
                break;
            }
            match checkpoint.unit(name, |_| run(&output.folder().join(name))) {
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
        let figure: fig3::Args = options("there".as_ref(), &ours);
        assert!(figure.run.resume && figure.run.checkpoint_every == 2.5);
        assert_eq!(figure.run.output.out, Some(PathBuf::from("there")));
        ours.resume = false;
        let anew: fig3::Args = options("there".as_ref(), &ours);
        assert!(!anew.run.resume);
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
