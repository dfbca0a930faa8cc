//! Another program's answers: the RISE couplings that Julia and Ipopt learned from the counts of
//! two three-spin models. Runs if `MPF_REFERENCE_DATA` names the folder with the files, and says so
//! if it does not.

use mpf_core::FlowForm;
use mpf_ising::{FitOptions, Fitter, Mode, Mpf, Samples, States};
use ndarray::{Array2, s};
use std::path::PathBuf;

fn reference_data() -> Option<PathBuf> {
    let folder = std::env::var_os("MPF_REFERENCE_DATA").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("SKIPPED: no reference data (MPF_REFERENCE_DATA)");
    }
    folder
}

/// The node-wise ℓ1 fit with λ = c √(ln(n²/0.05)/M), compared in spins with fields on the diagonal.
fn compare(method: &str, c: f64, form: FlowForm) {
    let Some(folder) = reference_data() else {
        return;
    };
    for model in ["a", "b"] {
        let read = |what: &str| folder.join(format!("gml_{model}_{what}.npy"));
        let table: Array2<f64> = read_as_f64(&read("samples_counts"));
        let expected: Array2<f64> = read_as_f64(&read(&format!("{method}_learned")));
        let states = States::from_spins(table.slice(s![.., 1..])).unwrap();
        let counts = table.column(0).to_vec();
        let n = states.n_units() as f64;
        let total: f64 = counts.iter().sum();
        let lambda = c * ((n * n / 0.05).ln() / total).sqrt();

        let mut options = FitOptions {
            // The rows of a node-wise fit carry half of λ₁ each.
            l1: 2.0 * lambda,
            mode: Mode::NodeWise,
            ..FitOptions::default()
        };
        options.minimizer.gradient_tolerance = 1e-10;
        let samples = Samples::weighted(&states, &counts).unwrap();
        let mpf = Mpf {
            form,
            ..Mpf::default()
        };
        let fit = Fitter::new(mpf, options).unwrap().fit(&samples).unwrap();
        let spins = fit.couplings.to_spins();
        let mut found = spins.couplings;
        found.diag_mut().assign(&spins.fields);
        let worst = (&found - &expected)
            .iter()
            .fold(0.0f64, |m, e| m.max(e.abs()));
        eprintln!("{method}, model {model}: largest difference {worst:.1e}");
        assert!(worst < 1e-7, "{method} {model}: {found} against {expected}");
    }
}

/// The files hold integers or floats.
fn read_as_f64(path: &std::path::Path) -> Array2<f64> {
    ndarray_npy::read_npy::<_, Array2<f64>>(path)
        .or_else(|_| ndarray_npy::read_npy::<_, Array2<i64>>(path).map(|a| a.mapv(|v| v as f64)))
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn rise_is_reproduced() {
    compare("RISE", 0.4, FlowForm::Sum);
}

#[test]
fn logrise_is_reproduced() {
    compare("logRISE", 0.8, FlowForm::Log);
}
