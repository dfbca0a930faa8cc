//! The built program from end to end.

use crate::common::mpf;
use ndarray::Array2;
use ndarray_npy::{ReadNpyExt, WriteNpyExt};
use serde_json::Value;
use std::fs::{self, File};
use std::path::Path;

/// Runs it and expects success.
fn run(folder: &Path, arguments: &str) -> String {
    let outcome = mpf(folder, arguments);
    assert_eq!(outcome.code, 0, "mpf {arguments}: {}", outcome.stderr);
    outcome.stdout
}

fn json(folder: &Path, name: &str) -> Value {
    let text = fs::read_to_string(folder.join(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// 60 samples of 5 units.
fn data() -> Array2<u8> {
    Array2::from_shape_fn((60, 5), |(m, i)| {
        u8::from((m * (2 * i + 3) + m / (i + 2)) % 5 < 2)
    })
}

#[test]
fn every_format_gives_the_same_model() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let x = data();
    let text = |separator: &str| -> String {
        let line = |row: ndarray::ArrayView1<'_, u8>| {
            let cells: Vec<String> = row.iter().map(u8::to_string).collect();
            cells.join(separator) + "\n"
        };
        x.rows().into_iter().map(line).collect()
    };
    let write = |name: &str| File::create(at(name)).unwrap();
    x.write_npy(write("u1.npy")).unwrap();
    x.mapv(f64::from).write_npy(write("f8.npy")).unwrap();
    x.mapv(|v| v == 1).write_npy(write("bool.npy")).unwrap();
    x.mapv(i64::from).write_npy(write("i8.npy")).unwrap();
    x.mapv(|v| 2 * v as i8 - 1)
        .write_npy(write("spins.npy"))
        .unwrap();
    x.t().to_owned().write_npy(write("transposed.npy")).unwrap();
    // Columns one after the other: Fortran order.
    let columns = Array2::from_shape_vec(x.t().dim(), x.t().iter().copied().collect()).unwrap();
    columns.t().write_npy(write("fortran.npy")).unwrap();
    fs::write(at("plain.csv"), text(",")).unwrap();
    fs::write(at("plain.tsv"), text("\t")).unwrap();
    fs::write(at("plain.txt"), format!("# a comment\n{}", text(" "))).unwrap();
    fs::write(at("names.csv"), format!("a,b,c,d,e\n{}", text(","))).unwrap();
    let columns: Vec<&str> = ["a,b,c,d,e,k\n"].into();
    let counted = text(",").replace('\n', ",1\n");
    fs::write(at("counts.csv"), columns.concat() + &counted).unwrap();

    let mut found = Vec::new();
    for arguments in [
        "u1.npy",
        "f8.npy",
        "bool.npy",
        "i8.npy",
        "spins.npy --spins",
        "transposed.npy --transpose",
        "fortran.npy",
        "plain.csv",
        "plain.tsv",
        "plain.txt",
        "names.csv",
        "counts.csv --counts k",
    ] {
        run(folder.path(), &format!("fit {arguments} -o m.json"));
        let model = json(folder.path(), "m.json");
        found.push((
            arguments,
            model["couplings"].clone(),
            model["units"].clone(),
        ));
    }
    for (arguments, couplings, units) in &found {
        assert_eq!(couplings, &found[0].1, "{arguments}");
        let named = arguments.starts_with("names") || arguments.starts_with("counts");
        assert_eq!(units[4], if named { "e" } else { "4" });
    }
}

#[test]
fn threads_change_no_digit() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), "demo -n 1000 -o r.npy --truth t.json");
    let mut found = Vec::new();
    for threads in [1, 3] {
        run(
            folder.path(),
            &format!("--threads {threads} fit r.npy -o m.json --polish 5"),
        );
        run(
            folder.path(),
            &format!("--threads {threads} sample m.json -n 500 -o x.npy --force"),
        );
        let couplings = json(folder.path(), "m.json")["couplings"].to_string();
        found.push((couplings, fs::read(folder.path().join("x.npy")).unwrap()));
    }
    assert!(found.iter().all(|f| *f == found[0]));
}

/// 400 samples of six units with awkward names: the first two are never active together, the third
/// and fourth are always equal.
fn awkward() -> String {
    let mut text = "alpha,<b>,=cmd(),d\u{1b}[31m,e,f\n".to_owned();
    for m in 0..400usize {
        let bit = |i: usize| (m * (2 * i + 3) + m / (i + 2)) % 5 < 2;
        let (a, c) = (bit(0), bit(2));
        let row = [a, bit(1) && !a, c, c, bit(4), bit(5)].map(|x| u8::from(x).to_string());
        text += &(row.join(",") + "\n");
    }
    text
}

#[test]
fn a_report_shows_names_and_exact_scores() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("x.csv"), awkward()).unwrap();
    let fit = mpf(
        folder.path(),
        "-v fit x.csv --method mpf --l2 0 --max-iterations 30 --errors sandwich -o m.json",
    );
    assert!(fit.stderr.contains("K(=cmd(), d"), "names: {}", fit.stderr);
    for step in ["reading: ", "\nMPF: ", "held-out check: "] {
        assert!(fit.stderr.contains(step), "{step:?} in {}", fit.stderr);
    }
    let table = run(folder.path(), "evaluate m.json x.csv -o r.html -o e.json");
    assert!(table.contains("KL(data ‖ model)"), "{table}");
    let exact = &json(folder.path(), "e.json")["exact"];
    let number = |value: &Value| value.as_f64().unwrap();
    let likelihood = number(&exact["log_likelihood"]["value"]);
    let kl = number(&exact["kl_data_model"]);
    assert!((kl + number(&exact["data_entropy"]) + likelihood).abs() < 1e-9);
    assert!(kl > 0.0 && likelihood < 0.0 && number(&exact["kl_bias"]) > 0.0);
    let page = fs::read_to_string(folder.path().join("r.html")).unwrap();
    for part in [
        "KL(data ‖ model)",
        "<td>undetermined</td>",
        "K(=cmd(), d\\u{1b}[31m)",
        "%0D%0A%22%27%3Dcmd",
        "&lt;b&gt;",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains('\u{1b}') && !page.contains("<b>"));
    assert!(!page.contains("without the penalty"));
}

#[test]
fn a_report_shows_the_estimate_that_intervals_are_around() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    data()
        .write_npy(File::create(path.join("x.npy")).unwrap())
        .unwrap();
    run(
        path,
        "fit x.npy --method pl --l2 0.2 --errors sandwich -o m.json",
    );
    run(path, "evaluate m.json x.npy -o r.html");
    let model = json(path, "m.json");
    let number = |matrix: &Value, i: usize, j: usize| matrix[i][j].as_f64().unwrap();
    let d = model["units"].as_array().unwrap().len();
    let pairs = (0..d).flat_map(|i| (i + 1..d).map(move |j| (i, j)));
    let strength = |&(i, j): &(usize, usize)| number(&model["couplings"], i, j).abs();
    let (i, j) = pairs
        .max_by(|a, b| strength(a).total_cmp(&strength(b)))
        .unwrap();
    let errors = &model["standard_errors"];
    let shrunken = -0.5 * number(&model["couplings"], i, j);
    let corrected = -0.5 * number(&errors["corrected"], i, j);
    assert!(
        corrected.abs() > shrunken.abs() + 0.01,
        "{corrected} {shrunken}"
    );
    let row = format!(
        "<td>{shrunken:.3}</td><td>{corrected:.3}</td><td>{:.3}</td>",
        number(&errors["couplings"], i, j)
    );
    let page = fs::read_to_string(path.join("r.html")).unwrap();
    assert!(page.contains(&row), "{row}");
}

#[test]
fn the_walk_through() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), "demo");
    run(
        folder.path(),
        "fit retina.csv --errors sandwich -o model.json",
    );
    let model = json(folder.path(), "model.json");
    assert_eq!(model["units"][9], "B2");
    assert_eq!(model["fit"]["converged"], true);
    assert_eq!(model["data"]["n_samples"], 20_000);
    let table = run(
        folder.path(),
        "evaluate model.json retina.csv --truth retina-truth.json -o report.html -o e.json",
    );
    assert!(table.contains("pairs"), "{table}");
    let evaluation = json(folder.path(), "e.json");
    for what in ["means", "pairs"] {
        let within = &evaluation["agreement"][what]["within_two_errors"];
        assert!(within.as_f64().unwrap() > 0.9, "{what} {within}");
    }
    let error = evaluation["mean_square_error_of_couplings"]
        .as_f64()
        .unwrap();
    assert!(error < 0.05, "{error}");
    let page = fs::read_to_string(folder.path().join("report.html")).unwrap();
    for part in [
        "couplings K",
        "the strongest",
        "learning curve",
        "P(n active)",
        "fitted against true",
        "the strongest as a network",
        "slope 1.0",
        "ordered by clusters",
        "<td>MPF</td>",
        "<td>PL</td>",
        "bits per sample, independent units",
        "The model stays with the data",
        "download=\"how-it-was-fitted-",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let links = page.replace("http://www.w3.org/2000/svg", "");
    assert!(!links.contains("http"), "nothing from the network");
}

#[test]
fn a_model_that_misses_the_pairs_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    run(at, "demo -n 5000 -o r.npy --truth t.json");
    run(at, "fit r.npy --method independent -o m.json");
    let outcome = mpf(at, "evaluate m.json r.npy -o report.html");
    let told = |text: &str| text.contains("the pairs differ from");
    assert!(told(&outcome.stderr), "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("the means differ"));
    assert!(told(&fs::read_to_string(at.join("report.html")).unwrap()));
    // The model that made them does not.
    assert!(!told(&mpf(at, "evaluate t.json r.npy").stderr));
}

#[test]
fn draws_have_the_means_of_the_model() {
    let folder = tempfile::tempdir().unwrap();
    data()
        .write_npy(File::create(folder.path().join("a.npy")).unwrap())
        .unwrap();
    run(folder.path(), "fit a.npy --method ml -o m.json");
    // Maximum likelihood: the model's means are the data's.
    let truth = data().mapv(f64::from).mean_axis(ndarray::Axis(0)).unwrap();
    for sampler in ["gibbs", "sw", "tempering", "exact"] {
        let said = run(
            folder.path(),
            &format!("--json sample m.json -n 20000 --sampler {sampler} -o x.npy --force"),
        );
        let said: Value = serde_json::from_str(&said).unwrap();
        let rhat = said["diagnostics"]["energy"]["rhat"].as_f64().unwrap();
        assert!(rhat < 1.05, "{sampler} {rhat}");
        let x = Array2::<u8>::read_npy(File::open(folder.path().join("x.npy")).unwrap()).unwrap();
        assert_eq!(x.dim(), (20_000, 5));
        let means = x.mapv(f64::from).mean_axis(ndarray::Axis(0)).unwrap();
        // Five standard errors of 2000 effective draws of a fair unit.
        assert!(
            (means - &truth)
                .iter()
                .all(|off| off.abs() < 5.0 * 0.5 / 2000f64.sqrt())
        );
    }
}

#[test]
fn conversions_are_exact() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    run(path, "demo -n 2000");
    run(
        path,
        "fit retina.csv --nodewise --errors sandwich --l1 0.001 -o a.json",
    );
    run(path, "convert a.json -o b.npz");
    run(path, "convert b.npz --to spins -o c.csv");
    run(path, "convert c.csv --to spins -o d.json");
    run(path, "convert d.json -o e.json");
    let (first, last) = (fs::read(path.join("a.json")), fs::read(path.join("e.json")));
    assert_eq!(first.unwrap(), last.unwrap());
    let spins = json(path, "d.json");
    let binary = json(path, "a.json");
    let k = spins["couplings"][0][1].as_f64().unwrap();
    assert_eq!(binary["couplings"][0][1].as_f64().unwrap(), -2.0 * k);
}

#[test]
fn error_bars_around_shrunken_couplings_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    data()
        .write_npy(File::create(path.join("a.npy")).unwrap())
        .unwrap();
    for (penalty, errors, is_named) in [
        ("--l1 0.05", "bootstrap --resamples 4", true),
        ("--l2 0.2", "bootstrap --resamples 4", true),
        ("", "bootstrap --resamples 4", false),
        ("--l2 0", "bootstrap --resamples 4", false),
        ("--l1 0.05", "sandwich", false),
    ] {
        let arguments = format!("fit a.npy {penalty} --errors {errors} -o m.json");
        let outcome = mpf(path, &arguments);
        let warns = outcome.stderr.contains("does not take the penalty back");
        assert_eq!(warns, is_named, "{arguments}: {}", outcome.stderr);
        let has_l1 = outcome.stdout.contains("λ₁ = 0.05");
        assert_eq!(
            has_l1,
            penalty.contains("l1"),
            "{arguments}: {}",
            outcome.stdout
        );
    }
}

#[test]
fn methods_and_options() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    data()
        .write_npy(File::create(path.join("a.npy")).unwrap())
        .unwrap();
    fs::write(path.join("edges.txt"), "0 1\n3 4\n").unwrap();
    for arguments in [
        "--method pl",
        "--method rise --l1 0.01",
        "--method logrise",
        "--method cd --updates 20",
        "--method tap",
        "--method ml",
        "--method independent",
        "--neighbours single+all",
        "--nodewise --errors sandwich",
        "--method ml --errors bootstrap --resamples 10",
        "--l1 auto --rule 1se",
        "--l2 auto --method pl",
        "--support edges.txt",
    ] {
        run(path, &format!("fit a.npy {arguments} -o m.json"));
        let model = json(path, "m.json");
        let j = |i: usize, k: usize| model["couplings"][i][k].as_f64().unwrap();
        if arguments.contains("auto") {
            assert!(model["fit"]["path"].as_array().unwrap().len() > 3);
        }
        if arguments.contains("errors") {
            assert!(
                model["standard_errors"]["couplings"][0][1]
                    .as_f64()
                    .unwrap()
                    > 0.0
            );
        }
        if arguments.contains("support") {
            assert!(j(0, 1) != 0.0 && j(4, 3) != 0.0 && j(0, 2) == 0.0);
        }
    }
    let outcome = mpf(path, "fit a.npy --max-iterations 2 -o m.json");
    assert_eq!(outcome.code, 3, "not converged has a code of its own");
    assert!(
        outcome.stderr.contains("not converged"),
        "{}",
        outcome.stderr
    );
    let table = run(
        path,
        "compare a.npy --methods mpf,independent,ml -o c.html -o c.svg -o c.json",
    );
    assert!(table.contains("Best by held-out"), "{table}");
    assert_eq!(
        json(path, "c.json")["entrants"].as_array().unwrap().len(),
        5,
        "MPF and ML with their penalty and without"
    );
}

#[test]
fn every_command_has_help_json_and_completions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    for command in [
        "fit",
        "compare",
        "sample",
        "evaluate",
        "convert",
        "demo",
        "completions",
    ] {
        let help = run(path, &format!("{command} --help"));
        assert!(help.contains("Example"), "{command}");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(run(path, &format!("completions {shell}")).contains("evaluate"));
    }
    for arguments in [
        "demo -n 500",
        "fit retina.csv --l2 0.1 -o m.json",
        "sample m.json -n 100 -o x.npy",
        "evaluate m.json retina.csv",
        "convert m.json -o m.npz",
        "compare retina.csv --methods independent --folds 2",
    ] {
        let outcome = mpf(path, &format!("--json {arguments}"));
        assert_eq!(
            (outcome.code, outcome.stderr.as_str()),
            (0, ""),
            "{arguments}"
        );
        let _: Value = serde_json::from_str(&outcome.stdout).expect("one JSON value");
    }
}

#[test]
fn k_pairwise_models_go_all_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    // 0 to 4 of 6 units active, never 5 or 6.
    let x = Array2::from_shape_fn((400, 6), |(m, i)| {
        u8::from((m * (2 * i + 3) + m / (i + 2)) % 7 < 2 && (m + i) % 3 > 0)
    });
    x.write_npy(File::create(here.join("x.npy")).unwrap())
        .unwrap();
    run(here, "fit x.npy -o m.json --model k-pairwise");
    let potential = json(here, "m.json")["potential"].clone();
    assert_eq!(potential.as_array().unwrap().len(), 7);
    // Every form and convention keeps V.
    run(here, "convert m.json --to spins -o s.json");
    run(here, "convert s.json -o m.npz");
    run(here, "convert m.npz -o m.csv");
    run(here, "convert m.csv -o back.json");
    assert_eq!(json(here, "back.json")["potential"], potential);
    assert_eq!(
        json(here, "back.json")["couplings"],
        json(here, "m.json")["couplings"]
    );
    // Draws follow V: hardly any with 5 or 6 active.
    run(here, "sample m.json -n 4000 -o draws.npy");
    let draws = Array2::<u8>::read_npy(File::open(here.join("draws.npy")).unwrap()).unwrap();
    let many = draws
        .rows()
        .into_iter()
        .filter(|row| row.sum() >= 5)
        .count();
    assert!(many <= 20, "{many}");
    run(here, "evaluate m.json x.npy");
    let compared = run(
        here,
        "compare x.npy --methods auto,mpf --model k-pairwise --folds 2",
    );
    assert!(compared.contains("MPF"));
    let compared = run(here, "compare x.npy --methods auto --folds 2");
    assert!(compared.contains("auto, K-pairwise"), "{compared}");
    for (arguments, words) in [
        (
            "fit x.npy -o n.json --smooth-potential 1",
            "--model k-pairwise",
        ),
        (
            "fit x.npy -o n.json --model k-pairwise --nodewise",
            "V belongs to all units",
        ),
        (
            "fit x.npy -o n.json --model k-pairwise --method tap",
            "no --model k-pairwise",
        ),
        (
            "fit x.npy -o n.json --model k-pairwise --errors sandwich",
            "bootstrap",
        ),
        ("sample m.json --sampler sw -o n.npy", "K-pairwise"),
    ] {
        let outcome = mpf(here, arguments);
        assert_ne!(outcome.code, 0, "{arguments}");
        assert!(
            outcome.stderr.contains(words),
            "{arguments}: {}",
            outcome.stderr
        );
    }
}

#[test]
fn machines_go_all_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    // The first three units are all active or all silent; the others go their own ways.
    let x = Array2::from_shape_fn((600, 6), |(m, i)| {
        u8::from(match i {
            0..3 => (m * m + m / 3) % 5 < 2,
            _ => (m * (2 * i + 1) + m / (i + 1)) % 7 < 3,
        })
    });
    x.write_npy(File::create(here.join("x.npy")).unwrap())
        .unwrap();
    for (model, method) in [
        ("rbm", "pl"),
        ("srbm", "mpf"),
        ("rbm", "cd"),
        ("srbm", "pcd"),
    ] {
        let updates = match method {
            "cd" | "pcd" => "--updates 500",
            _ => "--starts 2",
        };
        let said = run(
            here,
            &format!(
                "fit x.npy -o {method}.json --model {model} --hidden 2 --method {method} {updates}"
            ),
        );
        assert!(said.contains("bits per sample"), "{said}");
        let file = json(here, &format!("{method}.json"));
        let weights = file["hidden"]["weights"].as_array().unwrap();
        assert_eq!(
            (weights.len(), weights[0].as_array().unwrap().len()),
            (2, 6)
        );
        let coupled = file["couplings"][0][1].as_f64().unwrap() != 0.0;
        assert_eq!(coupled, model == "srbm");
        // What the hidden units are for.
        run(
            here,
            &format!("sample {method}.json -n 2000 -o {method}.npy"),
        );
        let draws = File::open(here.join(format!("{method}.npy"))).unwrap();
        let draws = Array2::<u8>::read_npy(draws).unwrap();
        let alike = draws.rows().into_iter();
        let alike = alike.filter(|row| row[0] == row[1] && row[1] == row[2]);
        let alike = alike.count() as f64 / 2000.0;
        // A quarter of independent ones would be; so few updates of CD learn little more.
        let least = if method == "cd" { 0.25 } else { 0.6 };
        assert!(alike > least, "{method}: {alike}");
        run(
            here,
            &format!("evaluate {method}.json x.npy -o {method}.html"),
        );
    }
    // Every form and convention keeps the hidden units.
    run(here, "convert mpf.json --to spins -o s.json");
    run(here, "convert s.json -o m.npz");
    run(here, "convert m.npz -o m.csv");
    run(here, "convert m.csv -o back.json");
    for part in ["hidden", "couplings", "checksum"] {
        assert_eq!(json(here, "back.json")[part], json(here, "mpf.json")[part]);
    }
    run(here, "sample pl.json -n 300 --sampler gibbs -o g.npy");
    run(here, "sample pl.json -n 300 --sampler tempering -o t.npy");
    let compared = run(
        here,
        "compare x.npy --methods auto --hidden 2 --starts 1 --folds 2",
    );
    for name in ["auto", "auto, K-pairwise", "RBM 2, pl", "sRBM 2, mpf"] {
        assert!(compared.contains(name), "{compared}");
    }
    // Damage is noticed.
    let text = std::fs::read_to_string(here.join("pl.json")).unwrap();
    let biases = text.find("\"biases\"").unwrap();
    let digit = biases + text[biases..].find(|c: char| c.is_ascii_digit()).unwrap();
    let mut damaged = text.into_bytes();
    damaged[digit] = if damaged[digit] == b'1' { b'2' } else { b'1' };
    std::fs::write(here.join("damaged.json"), damaged).unwrap();
    for (arguments, words) in [
        ("fit x.npy -o n.json --hidden 2", "--model rbm or srbm"),
        ("fit x.npy -o n.json --starts 2", "--model rbm or srbm"),
        ("fit x.npy -o n.json --method pcd", "--model rbm"),
        ("fit x.npy -o n.json --model rbm --hidden 0", "at least one"),
        ("fit x.npy -o n.json --model rbm --starts 0", "at least one"),
        ("fit x.npy -o n.json --model rbm --l1 1", "have no --l1"),
        (
            "fit x.npy -o n.json --model rbm --errors sandwich",
            "--errors",
        ),
        ("fit x.npy -o n.json --model rbm --method rise", "cd or pcd"),
        ("fit x.npy -o n.json --model rbm --updates 9", "cd or pcd"),
        (
            "fit x.npy -o n.json --model rbm --method cd --starts 2",
            "no objective to choose by",
        ),
        (
            "fit x.npy -o n.json --model rbm --hidden 100000 --memory-limit 50",
            "fewer --hidden units",
        ),
        ("compare x.npy --model rbm", "--hidden 20"),
        ("sample pl.json --sampler sw -o n.npy", "hidden units"),
        ("sample damaged.json -o n.npy", "checksum"),
        (
            "evaluate pl.json x.npy --truth mpf.json",
            "leave out --truth",
        ),
    ] {
        let outcome = mpf(here, arguments);
        assert_eq!(outcome.code, 2, "{arguments}: {}", outcome.stderr);
        let said = &outcome.stderr;
        assert!(said.contains(words), "{arguments}: {said}");
    }
    assert!(!here.join("n.json").exists());
    // A penalty that kills every hidden unit: the model is written, and the warning says what to do.
    let killed = mpf(here, "fit x.npy -o k.json --model rbm --hidden 2 --l2 100");
    assert_eq!(killed.code, 0, "{}", killed.stderr);
    assert!(killed.stderr.contains("2 of 2 hidden units do nothing"));
}
