//! Makes a page of the results of `cargo bench`: curves, exponents, rates and the machine.

use crate::Result;
use crate::output::{Machine, OutputArgs, Table, digits, slope, workspace};
use crate::plot::{self, Marks, Panel, STYLES, Series};
use crate::report::Page;
use mpf_ising::internal::{Vectors, flops_per_second};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

#[derive(clap::Args)]
pub struct Args {
    /// Run `cargo bench` first; otherwise its last results are read.
    #[arg(long)]
    run: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// One measured point.
#[derive(Clone, Debug, Serialize)]
struct Point {
    /// The place on the horizontal axis, where the bench has one.
    x: Option<f64>,
    label: String,
    /// The median of criterion's measurements.
    seconds: f64,
    /// Flips, spin updates or draws per second.
    per_second: Option<f64>,
}

/// Group → series → points.
type Groups = BTreeMap<String, BTreeMap<String, Vec<Point>>>;

#[derive(Serialize)]
struct Report<'a> {
    machine: Machine,
    /// The widest vectors of the machine, and their peak.
    vectors: String,
    peak_gflops: f64,
    groups: &'a Groups,
    exponents: Vec<(String, String, f64)>,
}

pub fn run(args: &Args) -> Result {
    if args.run {
        let status = Command::new(env!("CARGO"))
            .args(["bench", "--package", "mpf-benches"])
            .current_dir(workspace())
            .status()?;
        if !status.success() {
            return Err("cargo bench failed".into());
        }
    }
    let folder = workspace().join("target/criterion");
    let groups = read_groups(&folder)?;
    if groups.is_empty() {
        let place = folder.display();
        return Err(format!("no results in {place}: run `cargo bench`, or pass --run").into());
    }
    let vectors = Vectors::default();
    let peak = flops_per_second(vectors);
    let output = args.output.open("bench-report")?;
    let report = Report {
        machine: Machine::this(),
        vectors: vectors.to_string(),
        peak_gflops: 1e-9 * peak,
        exponents: exponents(&groups),
        groups: &groups,
    };
    output.write_json("results.json", &report)?;
    output.write("report.html", &page(&report)?)?;
    let exponents = report.exponents.iter().map(|(group, series, exponent)| {
        format!("{group}, {series}: cost grows as the power {exponent:.2}")
    });
    let mut notes: Vec<String> = exponents.collect();
    if let Some(worst) = worst_choice(&groups) {
        notes.push(format!(
            "the algorithm that is chosen takes at most {worst:.2} times as long as the better one"
        ));
    }
    notes.push(format!(
        "peak of this core, {vectors}: {:.1} GFLOP/s in double precision",
        report.peak_gflops
    ));
    output.show(&table(&groups, peak).markdown(), &notes)
}

/// Reads every `new/benchmark.json` below `folder`.
fn read_groups(folder: &Path) -> Result<Groups> {
    let mut groups = Groups::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(folder) = pending.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries {
            let path = entry?.path();
            if path.ends_with("new") && path.join("benchmark.json").exists() {
                read_point(&path, &mut groups)?;
            } else if path.is_dir() {
                pending.push(path);
            }
        }
    }
    for points in groups.values_mut().flat_map(BTreeMap::values_mut) {
        let key = |p: &Point| p.x.unwrap_or(0.0);
        points.sort_by(|a, b| key(a).total_cmp(&key(b)).then(a.label.cmp(&b.label)));
    }
    Ok(groups)
}

fn read_point(folder: &Path, groups: &mut Groups) -> Result {
    let read = |name: &str| -> Result<Value> {
        let path = folder.join(name);
        let text = fs::read_to_string(&path);
        let text = text.map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        Ok(serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?)
    };
    let (benchmark, estimates) = (read("benchmark.json")?, read("estimates.json")?);
    let text = |key: &str| benchmark[key].as_str().unwrap_or_default().to_owned();
    let seconds = estimates["median"]["point_estimate"]
        .as_f64()
        .map(|ns| 1e-9 * ns)
        .ok_or_else(|| format!("{}: no median", folder.display()))?;
    let label = text("value_str");
    let point = Point {
        x: label.parse().ok(),
        seconds,
        per_second: benchmark["throughput"]["Elements"]
            .as_f64()
            .map(|elements| elements / seconds),
        label,
    };
    groups
        .entry(text("group_id"))
        .or_default()
        .entry(text("function_id"))
        .or_default()
        .push(point);
    Ok(())
}

/// Returns the slope of ln seconds against ln x for every series with at least three points.
fn exponents(groups: &Groups) -> Vec<(String, String, f64)> {
    let mut found = Vec::new();
    for (group, series) in groups {
        for (name, points) in series {
            let logs: Vec<(f64, f64)> = points
                .iter()
                .filter_map(|p| Some((p.x?.ln(), time_per_sample(group, p)?.ln())))
                .collect();
            if logs.len() >= 3 && !group.contains("activity") {
                found.push((group.clone(), name.clone(), slope(&logs)));
            }
        }
    }
    found
}

/// Returns the largest ratio of the chosen algorithm's time to the better one's.
fn worst_choice(groups: &Groups) -> Option<f64> {
    let ratios = groups
        .iter()
        .filter(|(group, _)| group.starts_with("paths"))
        .flat_map(|(_, series)| {
            let points = move |chosen: bool| {
                let named = move |name: &&String| name.ends_with("(chosen)") == chosen;
                let names = series.keys().filter(named);
                names.flat_map(move |name| &series[name])
            };
            points(true).filter_map(move |here| {
                let there = points(false).find(|p| p.label == here.label)?;
                Some((here.seconds / there.seconds).max(1.0))
            })
        });
    ratios.reduce(f64::max)
}

/// Returns seconds for benches against M, and seconds per sample against d, where M changes too.
fn time_per_sample(group: &str, point: &Point) -> Option<f64> {
    if group.starts_with("objective against d") || group.starts_with("pseudolikelihood against d") {
        Some(point.x? / point.per_second?)
    } else {
        Some(point.seconds)
    }
}

/// Returns the operations per second of the plain computation, 4 M d², over the core's peak.
fn share_of_peak(group: &str, series: &str, point: &Point, peak: f64) -> Option<f64> {
    if !group.starts_with("objective") {
        return None;
    }
    let d: f64 = match series.strip_prefix("d=") {
        Some(rest) => rest.split(',').next()?.trim().parse().ok()?,
        None => point.x?,
    };
    Some(4.0 * d * point.per_second? / peak)
}

/// Makes a table of the points of all `groups`.
fn table<'a>(
    groups: impl IntoIterator<Item = (&'a String, &'a BTreeMap<String, Vec<Point>>)>,
    peak: f64,
) -> Table {
    let mut all = Vec::new();
    for (group, series) in groups {
        for (name, points) in series {
            all.extend(points.iter().map(|point| (group, name, point)));
        }
    }
    Table::of(
        &all,
        &[
            ("bench", &|(group, ..)| (*group).clone()),
            ("series", &|(_, name, _)| (*name).clone()),
            ("at", &|(.., p)| p.label.clone()),
            ("time", &|(.., p)| format!("{} ms", digits(1e3 * p.seconds))),
            ("elements/s", &|(.., p)| {
                let rate = p.per_second;
                rate.map_or(String::new(), |r| format!("{} M", digits(1e-6 * r)))
            }),
            ("plain operations, of peak", &|(group, name, p)| {
                let share = share_of_peak(group, name, p, peak);
                share.map_or(String::new(), |s| format!("{:.0} %", 100.0 * s))
            }),
        ],
    )
}

/// Returns the variable that a group is measured against, the last word of its name.
fn variable(group: &str) -> &str {
    group.rsplit(' ').next().unwrap_or("x")
}

fn page(report: &Report<'_>) -> Result<String> {
    let machine = &report.machine;
    let lead = format!(
        "{}, {} threads; measured peak of one core {:.1} GFLOP/s ({}, double precision). Times are \
         criterion's medians.",
        machine.processor.as_deref().unwrap_or("unknown processor"),
        machine.threads,
        report.peak_gflops,
        report.vectors,
    );
    let mut page = Page::new("Results of cargo bench", &lead);
    page.heading("Exponents");
    page.table(&Table::of(
        &report.exponents,
        &[
            ("bench", &|e| e.0.clone()),
            ("series", &|e| e.1.clone()),
            ("cost grows as", &|e| {
                format!("{}^{:.2}", variable(&e.0), e.2)
            }),
        ],
    ));
    for (group, series) in report.groups {
        page.heading(group);
        if let Some(svg) = curve(group, series)? {
            page.figure(&svg, &format!("{group}, both axes logarithmic"));
        }
        page.table(&table([(group, series)], 1e9 * report.peak_gflops));
    }
    Ok(page.finish())
}

/// Draws time against x, both logarithmic; `None` without two numbers to draw against.
fn curve(group: &str, series: &BTreeMap<String, Vec<Point>>) -> Result<Option<String>> {
    let line = |points: &[Point]| -> Vec<(f64, f64)> {
        let points = points.iter();
        points
            .filter_map(|p| Some((p.x?, 1e3 * p.seconds)))
            .collect()
    };
    let all: Vec<(f64, f64)> = series.values().flat_map(|points| line(points)).collect();
    let distinct = |a: &(f64, f64)| all.iter().any(|b| b.0 != a.0);
    if all.len() < series.values().flatten().count() || !all.first().is_some_and(distinct) {
        return Ok(None);
    }
    let range = |f: fn(&(f64, f64)) -> f64| {
        let values = all.iter().map(f);
        let (low, high) = values.fold((f64::INFINITY, 0.0f64), |(l, h), v| (l.min(v), h.max(v)));
        (0.8 * low, 1.25 * high)
    };
    let lines = series.iter().zip(STYLES.into_iter().cycle());
    let panel = Panel {
        title: group.to_owned(),
        x: variable(group),
        y: "time (ms)",
        x_range: range(|p| p.0),
        y_range: range(|p| p.1),
        log_x: true,
        series: lines
            .map(|((name, points), style)| Series::new(name, style, line(points), Marks::All))
            .collect(),
    };
    plot::svg((720, 420), |root| plot::panels(root, 380, 1, &[panel])).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_bench(folder: &Path, at: f64, ns: f64) {
        let folder = folder.join(format!("g/s/{at}/new"));
        fs::create_dir_all(&folder).unwrap();
        let benchmark = serde_json::json!({
            "group_id": "objective against M", "function_id": "d=100, half set",
            "value_str": at.to_string(), "throughput": {"Elements": 100.0 * at},
        });
        let estimates = serde_json::json!({"median": {"point_estimate": ns}});
        fs::write(folder.join("benchmark.json"), benchmark.to_string()).unwrap();
        fs::write(folder.join("estimates.json"), estimates.to_string()).unwrap();
    }

    #[test]
    fn results_are_read_and_their_slope_is_found() {
        let folder = tempfile::tempdir().unwrap();
        for at in [1000.0, 10_000.0, 100_000.0] {
            write_bench(folder.path(), at, 500.0 * at);
        }
        let groups = read_groups(folder.path()).unwrap();
        let found = exponents(&groups);
        assert_eq!(found.len(), 1);
        assert!((found[0].2 - 1.0).abs() < 1e-12);
        let report = Report {
            machine: Machine::this(),
            vectors: "AVX2".into(),
            peak_gflops: 1.0,
            exponents: found,
            groups: &groups,
        };
        let page = page(&report).unwrap();
        assert!(page.contains("<svg") && page.contains("M^1.00"));
        // 2e8 flips per second and 400 operations per flip of d = 100: 8e10 per second.
        assert!(table(&groups, 8e10).markdown().contains("100 %"));
    }
}
