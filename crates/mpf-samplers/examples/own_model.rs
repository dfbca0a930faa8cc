//! Fits a model of one's own, with error bars, and draws from it: nearest neighbours on a ring, and a
//! three-body term. `docs/own-model.md` walks through it.
use mpf_core::{EnergyModel, LocalExact, LocalFitOptions, LocalFitter, LocalModel, SiteData};
use mpf_samplers::{LocalGibbs, draw};

/// E(x) = Σ_i θ₀ x_i + θ₁ x_i x_{i+1} + θ₂ x_i x_{i+1} x_{i+2} over a ring of sites.
struct Triples(usize);

impl Triples {
    /// Returns the three sums.
    fn sums(&self, x: &[u8]) -> [f64; 3] {
        let near = |i: usize| [0, 1, 2].map(|k| f64::from(x[(i + k) % self.0]));
        let terms = (0..self.0).map(near).map(|[a, b, c]| [a, a * b, a * b * c]);
        terms.fold([0.0; 3], |s, t| [s[0] + t[0], s[1] + t[1], s[2] + t[2]])
    }
}

impl EnergyModel for Triples {
    type State = [u8];
    fn n_params(&self) -> usize {
        3
    }
    fn energy(&self, theta: &[f64], x: &[u8]) -> f64 {
        theta.iter().zip(self.sums(x)).map(|(t, sum)| t * sum).sum()
    }
    fn add_energy_grad(&self, _: &[f64], x: &[u8], scale: f64, out: &mut [f64]) {
        (out.iter_mut().zip(self.sums(x))).for_each(|(o, sum)| *o += scale * sum);
    }
}

impl LocalModel for Triples {
    fn n_sites(&self) -> usize {
        self.0
    }
}

#[allow(clippy::print_stdout)]
fn main() -> Result<(), mpf_samplers::Error> {
    let (model, truth) = (Triples(16), [0.5, -0.8, 0.6]);
    let samples = LocalExact::new(&model, &truth)?.draw(2000, 1);
    let data = SiteData::new(samples.view(), model.n_states())?;
    let fitter = LocalFitter::new(&model, LocalFitOptions::default())?;
    let fit = fitter.fit(&data)?;
    let errors = fitter.sandwich(&fit.theta, &data, 1)?.standard_errors();
    println!("true {truth:.2?}, fitted {:.2?} ± {errors:.2?}", fit.theta);
    let draws = draw(&LocalGibbs::new(&model, &fit.theta, 1.0)?, 4000, 2)?;
    let triples = draws.rows().into_iter().map(|x| model.sums(&x.to_vec())[2]);
    println!("active triples in all draws: {}", triples.sum::<f64>());
    Ok(())
}
