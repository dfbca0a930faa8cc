//! Fits a small raster and reads the couplings.
//!
//! ```text
//! $ cargo run -p mpf-ising --example fit
//! 5000 bins, 16 distinct states
//! stopped: converged after 10 iterations
//! pair    J fitted  J true  K fitted
//! (0, 1)    -0.604  -0.600     0.302
//! (0, 2)     0.000   0.000    -0.000
//! (0, 3)     0.021   0.000    -0.011
//! (1, 2)     0.492   0.400    -0.246
//! (1, 3)    -0.047   0.000     0.023
//! (2, 3)     0.051   0.000    -0.025
//! ```
#![allow(clippy::print_stdout)]

use mpf_ising::{Couplings, Exact, Fitter, Samples};
use ndarray::{Array2, array};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A raster of 5,000 time bins (rows) and 4 cells (columns), drawn from a known model: cells 0
    // and 1 excite each other, cells 1 and 2 inhibit each other, and cell 3 is independent.
    let truth = Couplings::new(array![
        [1.0, -0.6, 0.0, 0.0],
        [-0.6, 1.5, 0.4, 0.0],
        [0.0, 0.4, 0.8, 0.0],
        [0.0, 0.0, 0.0, 2.0]
    ])?;
    let raster: Array2<u8> = Exact::new(&truth)?.draw(5_000, 1).to_binary();

    let samples = Samples::from_binary(raster.view())?;
    let fitter: Fitter = Fitter::default();
    let fit = fitter.fit(&samples)?;
    let (n, distinct) = (samples.n_observed(), samples.n_distinct());
    println!("{n} bins, {distinct} distinct states");
    println!("stopped: {} after {} iterations", fit.stop, fit.iterations);
    for warning in &fit.warnings {
        println!("careful: {warning}");
    }

    // J is the paper's convention (attractive is negative); K and h are those of ±1 spins.
    let spins = fit.couplings.to_spins();
    println!("pair    J fitted  J true  K fitted");
    for i in 0..4 {
        for j in i + 1..4 {
            let (fitted, true_j) = (fit.couplings.get(i, j), truth.get(i, j));
            let k = spins.couplings[[i, j]];
            println!("({i}, {j})  {fitted:8.3}  {true_j:6.3}  {k:8.3}");
        }
    }
    Ok(())
}
