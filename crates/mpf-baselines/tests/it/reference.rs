//! Node-wise ℓ1 fits against couplings that Julia and Ipopt learned (GraphicalModelLearning.jl).
//!
//! Runs if `MPF_REFERENCE_DATA` names the folder with `gml_{a,b}_*.npy`, and says so if it does not.

use mpf_baselines::{Pseudolikelihood, log_rise, rise};
use mpf_core::MinimizerOptions;
use mpf_ising::{Fit, FitOptions, Fitter, Mode, Samples, States};
use ndarray::{Array2, s};
use std::path::Path;

fn samples(folder: &Path, which: char) -> Samples {
    let path = folder.join(format!("gml_{which}_samples_counts.npy"));
    let table: Array2<f64> = ndarray_npy::read_npy(path).unwrap();
    let states = States::from_spins(table.slice(s![.., 1..])).unwrap();
    Samples::weighted(&states, &table.column(0).to_vec()).unwrap()
}

/// The largest difference to the learned couplings, which hold h on the diagonal and K elsewhere.
fn off(folder: &Path, which: char, method: &str, fit: &Fit) -> f64 {
    let path = folder.join(format!("gml_{which}_{method}_learned.npy"));
    let learned: Array2<f64> = ndarray_npy::read_npy(path).unwrap();
    let spins = fit.couplings.to_spins();
    let mut ours = spins.couplings;
    ours.diag_mut().assign(&spins.fields);
    (ours - learned).iter().fold(0.0, |m, e| m.max(e.abs()))
}

#[test]
fn node_wise_fits_reproduce_the_reference() {
    let Some(folder) = std::env::var_os("MPF_REFERENCE_DATA") else {
        eprintln!("SKIPPED: no reference data (MPF_REFERENCE_DATA)");
        return;
    };
    let folder = Path::new(&folder);
    for which in ['a', 'b'] {
        let samples = samples(folder, which);
        let n = samples.n_units() as f64;
        // The penalty that the reference used, with its own factor per method.
        let lambda = |c: f64| c * ((n * n / 0.05).ln() / samples.total_weight()).sqrt();
        let tight = FitOptions {
            minimizer: MinimizerOptions {
                gradient_tolerance: 1e-10,
                ..Default::default()
            },
            ..Default::default()
        };
        let by_node = FitOptions {
            l1: 2.0 * lambda(0.2),
            mode: Mode::NodeWise,
            ..tight.clone()
        };
        let pl = Fitter::new(Pseudolikelihood, by_node).unwrap();
        let fits = [
            ("RPLE", pl.fit(&samples).unwrap()),
            (
                "RISE",
                rise(lambda(0.4), tight.clone())
                    .unwrap()
                    .fit(&samples)
                    .unwrap(),
            ),
            (
                "logRISE",
                log_rise(lambda(0.8), tight).unwrap().fit(&samples).unwrap(),
            ),
        ];
        for (method, fit) in fits {
            let off = off(folder, which, method, &fit);
            eprintln!(
                "{which} {method}: {off:.1e} ({}, {:.1e})",
                fit.stop, fit.kkt_residual
            );
            // Ipopt's own tolerance is 1e-8.
            assert!(off < 1e-7, "{which} {method}: {off:e}");
        }
    }
}
