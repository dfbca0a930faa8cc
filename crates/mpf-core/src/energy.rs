//! Energy models: p(x; θ) ∝ exp(−E(x; θ)), the paper's Eq. `p infinity`.
//!
//! E is dimensionless (β = 1) and lower E is likelier.

use crate::Result;
use crate::error::{Error, check_finite};
use ndarray::Array2;

/// A family of distributions p(x; θ) ∝ exp(−E(x; θ)).
pub trait EnergyModel {
    /// One state x. Unsized states (`[f64]`, `[u64]`) are borrowed, never copied.
    type State: ?Sized;

    /// Returns the length of θ.
    fn n_params(&self) -> usize;

    /// Returns E(x; θ): +∞ for a forbidden state, ±∞ or NaN on overflow.
    fn energy(&self, theta: &[f64], x: &Self::State) -> f64;

    /// Adds `scale · ∂E/∂θ` at `x` to `out`.
    fn add_energy_grad(&self, theta: &[f64], x: &Self::State, scale: f64, out: &mut [f64]);
}

/// The exponential family E_i(θ) = Σ_k θ_k φ_ik over a few enumerated states i.
///
/// The smallest complete model: every sum over states is exact, as tests and Figure 1 need it.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearEnergies {
    features: Array2<f64>,
}

impl LinearEnergies {
    /// Makes a model of its features φ, one row per state and one column per parameter.
    ///
    /// # Errors
    /// [`Error::Empty`] without states, [`Error::Entry`] for a feature that is not finite.
    pub fn new(features: Array2<f64>) -> Result<Self> {
        if features.nrows() == 0 {
            return Err(Error::Empty { what: "features" });
        }
        check_finite("features", &features)?;
        Ok(Self { features })
    }

    /// Returns the number of states.
    pub fn n_states(&self) -> usize {
        self.features.nrows()
    }

    /// Returns E of every state: ±∞ or NaN on overflow.
    pub fn energies(&self, theta: &[f64]) -> Vec<f64> {
        (0..self.n_states())
            .map(|i| self.energy(theta, &i))
            .collect()
    }

    /// Returns p(x; θ) of every state, by [`boltzmann`].
    pub fn probabilities(&self, theta: &[f64]) -> Vec<f64> {
        boltzmann(&self.energies(theta))
    }
}

impl EnergyModel for LinearEnergies {
    type State = usize;

    fn n_params(&self) -> usize {
        self.features.ncols()
    }

    fn energy(&self, theta: &[f64], &i: &usize) -> f64 {
        self.features
            .row(i)
            .iter()
            .zip(theta)
            .map(|(phi, t)| phi * t)
            .sum()
    }

    fn add_energy_grad(&self, _theta: &[f64], &i: &usize, scale: f64, out: &mut [f64]) {
        for (o, phi) in out.iter_mut().zip(self.features.row(i)) {
            *o += scale * phi;
        }
    }
}

/// Returns exp(−E_i) / Σ_k exp(−E_k) for every energy. The sum is shifted and cannot overflow. An
/// energy of +∞ has probability 0; the result is NaN if an energy is NaN or −∞, or all are +∞.
pub fn boltzmann(energies: &[f64]) -> Vec<f64> {
    boltzmann_and_log_z(energies).0
}

/// Returns the same with ln Σ_k exp(−E_k).
pub(crate) fn boltzmann_and_log_z(energies: &[f64]) -> (Vec<f64>, f64) {
    let lowest = energies.iter().copied().fold(f64::INFINITY, f64::min);
    let mut p: Vec<f64> = energies.iter().map(|e| (lowest - e).exp()).collect();
    let z: f64 = p.iter().sum();
    for v in &mut p {
        *v /= z;
    }
    (p, z.ln() - lowest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn probabilities_follow_the_energies() {
        let model = LinearEnergies::new(array![[0.0, 1.0], [1.0, 0.0], [2.0, -1.0]]).unwrap();
        let p = model.probabilities(&[0.7, -0.2]);
        // E = (−0.2, 0.7, 1.6): equal steps of 0.9.
        assert!((p[0] / p[1] - 0.9f64.exp()).abs() < 1e-14);
        assert!((p[1] / p[2] - 0.9f64.exp()).abs() < 1e-14);
        assert!((p.iter().sum::<f64>() - 1.0).abs() < 1e-15);
    }

    #[test]
    fn boltzmann_survives_large_energies() {
        assert_eq!(
            boltzmann(&[-2000.0, 2000.0, f64::INFINITY]),
            [1.0, 0.0, 0.0]
        );
    }

    #[test]
    fn features_are_checked() {
        assert!(matches!(
            LinearEnergies::new(Array2::zeros((0, 2))),
            Err(Error::Empty { what: "features" })
        ));
        assert!(matches!(
            LinearEnergies::new(array![[1.0], [f64::NAN]]),
            Err(Error::Entry { index: 1, .. })
        ));
    }
}
