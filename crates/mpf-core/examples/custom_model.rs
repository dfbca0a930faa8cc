//! Fits a custom energy model over custom neighbours, without its partition function.
//!
//! ```text
//! e^-θ₀ = 2.018, θ₁ = 1.014: converged after 5 iterations
//! ```

use mpf_core::{Connectivity, EnergyModel, Error, Flow, FlowForm, Minimizer};

/// Counts x = 0, 1, 2, … with E = θ₀ x + θ₁ ln x!, the Conway-Maxwell-Poisson distribution. Its
/// partition function has no closed form; at θ₁ = 1 it is a Poisson of mean e^−θ₀.
struct Counts;

fn ln_factorial(x: u32) -> f64 {
    (2..=x).map(|k| f64::from(k).ln()).sum()
}

impl EnergyModel for Counts {
    type State = u32;

    fn n_params(&self) -> usize {
        2
    }

    fn energy(&self, theta: &[f64], &x: &u32) -> f64 {
        theta[0] * f64::from(x) + theta[1] * ln_factorial(x)
    }

    fn add_energy_grad(&self, _theta: &[f64], &x: &u32, scale: f64, out: &mut [f64]) {
        out[0] += scale * f64::from(x);
        out[1] += scale * ln_factorial(x);
    }
}

/// Joins every count to the next higher and the next lower one, with weight 1.
struct OneMoreOrLess;

impl Connectivity<u32> for OneMoreOrLess {
    fn for_each_neighbour(&self, _: usize, &x: &u32, y: &mut u32, mut f: impl FnMut(&u32, f64)) {
        for neighbour in [x.checked_add(1), x.checked_sub(1)].into_iter().flatten() {
            *y = neighbour;
            f(y, 0.0);
        }
    }
}

#[allow(clippy::print_stdout)]
fn main() -> Result<(), Error> {
    // How often each count was seen: the rounded frequencies of a Poisson of mean 2.
    let states = [0u32, 1, 2, 3, 4, 5, 6, 7];
    let seen = [135.0, 271.0, 271.0, 180.0, 90.0, 36.0, 12.0, 3.0];
    let flow = Flow::new(&Counts, &OneMoreOrLess, &states)?;
    let mut flow = flow.weighted(&seen)?.form(FlowForm::Log);
    let fit = Minimizer::default().minimize(&mut flow, &[0.0, 0.0])?;
    let (rate, power) = ((-fit.theta[0]).exp(), fit.theta[1]);
    print!("e^-θ₀ = {rate:.3}, θ₁ = {power:.3}: ");
    println!("{} after {} iterations", fit.stop, fit.iterations);
    Ok(())
}
