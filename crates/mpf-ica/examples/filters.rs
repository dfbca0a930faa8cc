//! Whitens rows of numbers from standard input, and prints the filters that MPF (or `ml`, maximum
//! likelihood) learns, as the Python class `LaplaceICA` does.
//!
//! ```text
//! cargo run --release -p mpf-ica --example filters ml < rows.csv > filters.csv
//! ```

use mpf_ica::{FitOptions, Fitter, Trainer, Whitening, WhiteningMethod};
use ndarray::Array2;

#[allow(clippy::print_stdout)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let text = std::io::read_to_string(std::io::stdin())?;
    let mut numbers = Vec::new();
    for number in text.lines().flat_map(|line| line.split(',')) {
        numbers.push(number.trim().parse::<f64>()?);
    }
    let n_rows = text.lines().count();
    let rows = Array2::from_shape_vec((n_rows, numbers.len() / n_rows.max(1)), numbers)?;
    let mut options = FitOptions::default();
    if std::env::args().nth(1).as_deref() == Some("ml") {
        options.trainer = Trainer::maximum_likelihood();
    }
    let whitening = Whitening::new(rows.view(), WhiteningMethod::default())?;
    let fit = Fitter::new(options)?.fit(whitening.apply(rows.view())?.view())?;
    for filter in fit.filters.as_array().rows() {
        let words: Vec<String> = filter.iter().map(ToString::to_string).collect();
        println!("{}", words.join(","));
    }
    Ok(())
}
