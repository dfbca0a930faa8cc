//! Makes a page of the results of `cargo bench`: curves, exponents, rates and the machine.

use crate::Result;
use crate::output::{Machine, OutputArgs, digits, markdown_table, workspace};
use crate::plot::{INK, STYLES, TEXT, TITLE};
use mpf_ising::internal::{Vectors, flops_per_second};
use plotters::prelude::*;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(clap::Args)]
pub struct Args {
    /// Run `cargo bench` first; otherwise its last results are read.
    #[arg(long)]
    run: bool,
    /// Folder with criterion's results [default: target/criterion]
    #[arg(long)]
    criterion: Option<PathBuf>,
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
    let folder = match &args.criterion {
        Some(folder) => folder.clone(),
        None => workspace().join("target/criterion"),
    };
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
    output.show(&table(&groups, peak), &notes)
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

fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let mean = |f: fn(&(f64, f64)) -> f64| points.iter().map(f).sum::<f64>() / n;
    let (mx, my) = (mean(|p| p.0), mean(|p| p.1));
    let covariance: f64 = points.iter().map(|p| (p.0 - mx) * (p.1 - my)).sum();
    covariance / points.iter().map(|p| (p.0 - mx).powi(2)).sum::<f64>()
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

fn table(groups: &Groups, peak: f64) -> String {
    let mut rows = Vec::new();
    for (group, series) in groups {
        for (name, points) in series {
            for point in points {
                let share = share_of_peak(group, name, point, peak);
                rows.push(vec![
                    group.clone(),
                    name.clone(),
                    point.label.clone(),
                    format!("{} ms", digits(1e3 * point.seconds)),
                    point
                        .per_second
                        .map_or(String::new(), |r| format!("{} M", digits(1e-6 * r))),
                    share.map_or(String::new(), |s| format!("{:.0} %", 100.0 * s)),
                ]);
            }
        }
    }
    let header = [
        "bench",
        "series",
        "at",
        "time",
        "elements/s",
        "plain operations, of peak",
    ];
    markdown_table(&header, &rows)
}

fn page(report: &Report<'_>) -> Result<String> {
    let mut html = String::from(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>mpf benches</title><style>\
         body{font:16px/1.5 sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;\
         color:#222;background:#fff}table{border-collapse:collapse;font-size:14px;display:block;\
         overflow-x:auto}td,th{padding:.2rem .6rem;border-bottom:1px solid #ddd;text-align:right}\
         td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto}</style>\
         <h1>Results of cargo bench</h1>",
    );
    let machine = &report.machine;
    write!(
        html,
        "<p>{}, {} threads; measured peak of one core {:.1} GFLOP/s ({}, double precision); mpf \
         {}. Times are criterion's medians.</p>",
        machine.processor.as_deref().unwrap_or("unknown processor"),
        machine.threads,
        report.peak_gflops,
        report.vectors,
        machine.version
    )?;
    html.push_str("<h2>Exponents</h2><table><tr><th>bench<th>series<th>cost grows as");
    for (group, series, exponent) in &report.exponents {
        let variable = group.rsplit(' ').next().unwrap_or("x");
        write!(
            html,
            "<tr><td>{group}<td>{series}<td>{variable}<sup>{exponent:.2}</sup>"
        )?;
    }
    html.push_str("</table>");
    for (group, series) in report.groups {
        write!(html, "<h2>{group}</h2>")?;
        if let Some(svg) = curve(group, series)? {
            html.push_str(&svg);
        }
        html.push_str("<table><tr><th>series<th>at<th>time<th>elements/s<th>of peak");
        for (name, points) in series {
            for p in points {
                let rate = p.per_second.map_or(String::new(), digits);
                let time = digits(1e3 * p.seconds);
                let share = share_of_peak(group, name, p, 1e9 * report.peak_gflops);
                let share = share.map_or(String::new(), |s| format!("{:.0} %", 100.0 * s));
                let label = &p.label;
                write!(
                    html,
                    "<tr><td>{name}<td>{label}<td>{time} ms<td>{rate}<td>{share}"
                )?;
            }
        }
        html.push_str("</table>");
    }
    Ok(html + "</html>\n")
}

/// Draws time against x, both logarithmic, if every point has an x.
fn curve(group: &str, series: &BTreeMap<String, Vec<Point>>) -> Result<Option<String>> {
    let all: Vec<(f64, f64)> = series
        .values()
        .flatten()
        .filter_map(|p| Some((p.x?, 1e3 * p.seconds)))
        .collect();
    let distinct = |a: &(f64, f64)| all.iter().any(|b| b.0 != a.0);
    if all.len() < series.values().flatten().count() || !all.first().is_some_and(distinct) {
        return Ok(None);
    }
    let range = |f: fn(&(f64, f64)) -> f64| {
        let values = all.iter().map(f);
        let (low, high) = values.fold((f64::INFINITY, 0.0f64), |(l, h), v| (l.min(v), h.max(v)));
        (0.8 * low, 1.25 * high)
    };
    let (x, y) = (range(|p| p.0), range(|p| p.1));
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (720, 380)).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(group, TITLE.into_font())
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(72)
            .build_cartesian_2d((x.0..x.1).log_scale(), (y.0..y.1).log_scale())?;
        chart
            .configure_mesh()
            .x_desc(group.rsplit(' ').next().unwrap_or("x"))
            .y_desc("time (ms)")
            .label_style(TEXT)
            .axis_desc_style(TEXT)
            .light_line_style(INK.mix(0.05))
            .bold_line_style(INK.mix(0.15))
            .x_label_formatter(&|v| digits(*v))
            .y_label_formatter(&|v| digits(*v))
            .draw()?;
        for ((name, points), style) in series.iter().zip(STYLES.iter().cycle()) {
            let line: Vec<(f64, f64)> = points
                .iter()
                .filter_map(|p| Some((p.x?, 1e3 * p.seconds)))
                .collect();
            style.draw(&mut chart, &line, name)?;
        }
        chart
            .configure_series_labels()
            .label_font(TEXT)
            .background_style(WHITE.mix(0.9))
            .border_style(INK.mix(0.3))
            .position(SeriesLabelPosition::UpperLeft)
            .draw()?;
        root.present()?;
    }
    Ok(Some(svg))
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
        assert!(page.contains("<svg") && page.contains("M<sup>1.00</sup>"));
        // 2e8 flips per second and 400 operations per flip of d = 100: 8e10 per second.
        assert!(table(&groups, 8e10).contains("100 %"));
    }
}
