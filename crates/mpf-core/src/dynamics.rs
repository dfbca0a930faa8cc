//! The dynamics themselves, for small state spaces.
//!
//! ```text
//! ṗ = Γ p,   Γ_ij = √(g_ij g_ji) exp(½ [E_j − E_i]),   Γ_jj = −Σ_{i≠j} Γ_ij
//! p⁽ᵗ⁾ = e^{Γt} p⁽⁰⁾ → p⁽∞⁾ ∝ exp(−E)
//! ```
//!
//! (Eqs. `mastereqn`, `detailed_balance`, `gamma symmetric`; Appendix A.) Learning never needs
//! this. It shows, and tests, that K is the first order of the divergence in t.

use crate::Result;
use crate::connectivity::DenseConnectivity;
use crate::energy::boltzmann;
use crate::error::{Error, check_count, check_finite};
use crate::linalg::{Eigen, symmetric_eigen};
use ndarray::{Array1, Array2, ArrayView1, Axis};

/// Probability flowing between a few states.
#[derive(Clone, Debug)]
pub struct Dynamics {
    rates: Array2<f64>,
    equilibrium: Array1<f64>,
    /// Eigen-decomposition of P^−½ Γ P^½, which detailed balance makes symmetric (P = diag p⁽∞⁾).
    modes: Eigen,
}

impl Dynamics {
    /// Sets the dynamics up over states with `energies`, connected by `connectivity`. O(n³).
    ///
    /// # Errors
    /// [`Error::Count`], [`Error::Entry`] for an energy that is not finite or so far above the
    /// lowest that its state has no probability in `f64`, [`Error::Decomposition`] without states.
    pub fn new(energies: &[f64], connectivity: &DenseConnectivity) -> Result<Self> {
        let n = connectivity.n_states();
        check_count("energies", n, energies.len())?;
        check_finite("energies", energies)?;
        let equilibrium = boltzmann(energies);
        if let Some(index) = equilibrium.iter().position(|p| *p < f64::MIN_POSITIVE) {
            return Err(Error::Entry {
                what: "energies",
                index,
                value: energies[index],
                requirement: "within 700 of the lowest",
            });
        }
        let mut rates = Array2::from_shape_fn((n, n), |(i, j)| {
            connectivity.weight(i, j) * (0.5 * (energies[j] - energies[i])).exp()
        });
        rates.diag_mut().fill(0.0);
        let outflow = rates.sum_axis(Axis(0));
        rates.diag_mut().assign(&(-outflow));

        let mut symmetric = Array2::from_shape_fn((n, n), |(i, j)| connectivity.weight(i, j));
        symmetric.diag_mut().assign(&rates.diag());
        let (mut values, vectors) = symmetric_eigen(symmetric.view())?;
        // No mode grows, and the modes of the equilibrium stand still: their eigenvalues are
        // rounding errors, which a long time would amplify.
        let zero = n as f64 * f64::EPSILON * values[0].abs();
        values.mapv_inplace(|v| if v > -zero { 0.0 } else { v });
        Ok(Self {
            modes: (values, vectors),
            equilibrium: equilibrium.into(),
            rates,
        })
    }

    /// Returns Γ: entry (i, j) is the rate from state j into state i, and columns sum to zero.
    pub fn rates(&self) -> &Array2<f64> {
        &self.rates
    }

    /// Returns p⁽∞⁾, the model distribution, which is nowhere 0.
    pub fn equilibrium(&self) -> &Array1<f64> {
        &self.equilibrium
    }

    /// Returns p⁽ᵗ⁾ = e^{Γt} p⁽⁰⁾ for 0 ≤ t ≤ ∞. A negative t may overflow. O(n²).
    ///
    /// # Panics
    /// If `p0` has the wrong length.
    pub fn evolve(&self, p0: ArrayView1<'_, f64>, t: f64) -> Array1<f64> {
        let (values, vectors) = &self.modes;
        let root = self.equilibrium.mapv(f64::sqrt);
        let mut amplitudes = vectors.t().dot(&(&p0 / &root));
        // Modes of eigenvalue 0 stand still even at t = ∞: 0 · ∞ would be NaN.
        amplitudes.zip_mut_with(values, |a, &v| {
            *a *= if v == 0.0 { 1.0 } else { (v * t).exp() }
        });
        vectors.dot(&amplitudes) * root
    }

    /// Returns d/dt D_KL(p⁽⁰⁾ ‖ p⁽ᵗ⁾) at t = 0: the flow from the states with data into those without
    /// (Appendix A), which is the paper's K for these data.
    ///
    /// # Panics
    /// If `p0` has the wrong length.
    pub fn initial_kl_rate(&self, p0: ArrayView1<'_, f64>) -> f64 {
        let flow = self.rates.dot(&p0);
        flow.iter()
            .zip(p0)
            .filter(|(_, p)| **p == 0.0)
            .map(|(f, _)| f)
            .sum()
    }
}

/// Returns D_KL(p ‖ q) = Σ p ln(p/q) in nats, over the states with p > 0: +∞ where q vanishes (or is
/// negative, by rounding) and p does not, NaN where p or q is NaN.
pub fn kl_divergence(p: ArrayView1<'_, f64>, q: ArrayView1<'_, f64>) -> f64 {
    p.iter()
        .zip(q)
        .filter(|(p, _)| **p > 0.0 || p.is_nan())
        .map(|(p, q)| {
            let ratio = p / q;
            if *q <= 0.0 {
                p * f64::INFINITY
            } else if ratio.is_finite() {
                p * ratio.ln()
            } else {
                // q is subnormal.
                p * (p.ln() - q.ln())
            }
        })
        .sum()
}
