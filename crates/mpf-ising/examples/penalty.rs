//! Chooses an ℓ1 penalty, fits the chosen graph again without it, and prints error bars.
//!
//! ```text
//! $ cargo run -p mpf-ising --example penalty
//! chosen of 8 penalties: λ₁ = 0.0947, 9 of 15 couplings
//! pair    J fitted        J true
//! (0, 1)   0.884 ± 0.040   0.844
//! (0, 3)   0.681 ± 0.035   0.716
//! (1, 2)  -1.921 ± 0.054  -1.916
//! (1, 4)   0.294 ± 0.120   0.452
//! (1, 5)  -0.189 ± 0.121   0.000
//! (2, 4)   0.263 ± 0.120   0.000
//! (2, 5)  -0.538 ± 0.119  -0.816
//! (3, 4)   0.410 ± 0.041   0.358
//! (4, 5)   2.947 ± 0.080   2.948
//! ```
#![allow(clippy::print_stdout)]

use mpf_core::rng::stream;
use mpf_ising::{
    Boundary, Exact, FitOptions, Fitter, Lattice, Mpf, PathOptions, PenaltyPath, Rule, Samples,
    Support,
};

fn main() -> Result<(), mpf_ising::Error> {
    // A spin glass on a 2 × 3 lattice: 7 of 15 pairs are coupled.
    let truth = Lattice::new(2, 3, Boundary::Open)?.spin_glass(1.0, &mut stream(1, 0))?;
    let states = Exact::new(&truth)?.draw(4_000, 1);

    let path = PenaltyPath::new(PathOptions {
        n_lambdas: 8,
        rule: Rule::OneStandardError,
        ..PathOptions::default()
    })?;
    let fitter: Fitter = Fitter::default();
    let found = path.cross_validate(&fitter, &states, |_| {})?;
    let (chosen, n) = (found.chosen(), found.path.len());
    let (lambda, kept) = (chosen.lambda, chosen.n_couplings);
    println!("chosen of {n} penalties: λ₁ = {lambda:.4}, {kept} of 15 couplings");

    let pairs = (0..6).flat_map(|i| (i + 1..6).map(move |j| (i, j)));
    let is_coupled = |&(i, j): &(usize, usize)| chosen.fit.couplings.get(i, j) != 0.0;
    let edges: Vec<(usize, usize)> = pairs.filter(is_coupled).collect();
    let options = FitOptions {
        support: Support::Edges(edges.clone()),
        ..FitOptions::default()
    };
    let fitter = Fitter::new(Mpf::default(), options)?;
    let fit = fitter.fit(&Samples::new(&states)?)?;
    let errors = fitter.sandwich(&fit.couplings, &states, 1)?.of_couplings();
    println!("pair    J fitted        J true");
    for (i, j) in edges {
        let (fitted, error) = (fit.couplings.get(i, j), errors[[i, j]]);
        let true_j = truth.get(i, j);
        println!("({i}, {j})  {fitted:6.3} ± {error:.3}  {true_j:6.3}");
    }
    Ok(())
}
