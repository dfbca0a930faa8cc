//! A method is one implementation of [`Method`]: once listed, `mpf` shows, fits and compares it.

use mpf_baselines::{Description, Method, MethodOptions, Methods, Observer, OwnObjective};
use mpf_cli::internal::Model;
use mpf_core::Cancel;
use mpf_ising::{Couplings, Data, Fit};
use ndarray::Array2;
use std::fs;
use std::path::Path;

/// Couples every pair by the covariance of its spins.
struct Hebb;

impl Method for Hebb {
    fn describe(&self) -> Description {
        Description {
            objective: Some(OwnObjective::Pseudolikelihood),
            max_units: 100,
            ..Description::new("hebb", "Hebb", "Couples units that are active together")
        }
    }

    fn fit(
        &self,
        data: Data<'_>,
        _: &MethodOptions,
        _: Observer<'_>,
    ) -> mpf_baselines::Result<Fit> {
        let samples = self.in_memory(data)?;
        let pairs = samples.pair_means();
        let d = samples.n_units();
        let j = Array2::from_shape_fn((d, d), |(i, j)| {
            if i == j {
                0.0
            } else {
                pairs[[i, i]] * pairs[[j, j]] - pairs[[i, j]]
            }
        });
        Ok(Fit::closed_form(Couplings::new(j)?, 0.0, 0.0, Vec::new()))
    }
}

fn methods() -> Methods {
    Methods::default().with(&Hebb)
}

fn mpf(folder: &Path, arguments: &str) -> u8 {
    let word = |word: &str| match word.split_once('@') {
        Some(("", file)) => folder.join(file).into_os_string(),
        _ => word.into(),
    };
    let words = arguments.split_whitespace().map(word);
    mpf_cli::run(words, &methods(), &Cancel::new())
}

#[test]
fn the_help_lists_it() {
    let help = |command: &str| {
        let mut all = mpf_cli::command(&methods());
        let command = all.find_subcommand_mut(command).unwrap();
        command.render_long_help().to_string()
    };
    for command in ["fit", "compare"] {
        let help = help(command);
        let line = help.lines().find(|line| line.contains("- hebb:"));
        let line = line.unwrap_or_else(|| panic!("{help}"));
        assert!(line.ends_with("Couples units that are active together"));
    }
}

#[test]
fn it_fits_and_competes() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let rows = ["1,1,0", "1,1,1", "0,0,1", "0,0,0", "1,0,1", "1,1,0"];
    fs::write(at.join("x.csv"), format!("a,b,c\n{}\n", rows.join("\n"))).unwrap();

    assert_eq!(
        mpf(at, "mpf fit @x.csv --method hebb --polish 0 -o @m.json"),
        0
    );
    let model = Model::read(&at.join("m.json"), None).unwrap();
    // ⟨ab⟩ − ⟨a⟩⟨b⟩ = 3/6 − 4/6 · 3/6.
    assert!((model.couplings.get(0, 1) + 1.0 / 6.0).abs() < 1e-12);
    assert_eq!(model.fit.unwrap().method, "hebb");

    // Options that it does not take are refused by name.
    assert_eq!(
        mpf(at, "mpf fit @x.csv --method hebb --l1 0.1 -o @m.json"),
        2
    );

    // It enters unasked, and by name.
    for named in ["", "--methods hebb,independent"] {
        let arguments = format!("mpf compare @x.csv --folds 2 {named} -o @c.json");
        assert_eq!(mpf(at, &arguments), 0);
        let table = fs::read_to_string(at.join("c.json")).unwrap();
        assert!(table.contains("\"Hebb\""), "{table}");
    }
}
