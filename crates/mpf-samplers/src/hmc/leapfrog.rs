//! The leapfrog integrator and the energies that it takes.
//!
//! ```text
//! H(q, v) = E(q) + ½ vᵀv
//! one step of ε:  v ← v − ½ε ∇E(q),   q ← q + ε v,   v ← v − ½ε ∇E(q)
//! ```
//!
//! The map keeps volume, and integrating again after v ← −v leads back to the start. This makes
//! the connectivity of the paper's Appendix H symmetric.

use crate::Result;
use crate::error::Error;
use mpf_core::{check_count, check_finite};
use serde::{Deserialize, Serialize};

/// The energy E(q) of a density p(q) ∝ exp(−E(q)), with its gradient.
///
/// Value and gradient come together because they share their work.
pub trait SmoothEnergy {
    /// Returns the length of q.
    fn n_dims(&self) -> usize;

    /// Writes ∇E(q) to `gradient` and returns E(q). +∞ forbids q, and so do −∞ and NaN, here or in
    /// the gradient: no chain stays there. A trajectory may ask at any q, even an infinite or NaN
    /// one.
    fn energy_and_gradient(&self, q: &[f64], gradient: &mut [f64]) -> f64;
}

impl<E: SmoothEnergy + ?Sized> SmoothEnergy for &E {
    fn n_dims(&self) -> usize {
        (**self).n_dims()
    }

    fn energy_and_gradient(&self, q: &[f64], gradient: &mut [f64]) -> f64 {
        (**self).energy_and_gradient(q, gradient)
    }
}

/// A point (q, v) of phase space, with E and ∇E there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhasePoint {
    /// The position q.
    pub position: Vec<f64>,
    /// The momentum v.
    pub momentum: Vec<f64>,
    /// E(q).
    pub potential: f64,
    /// ∇E(q).
    pub gradient: Vec<f64>,
}

impl PhasePoint {
    /// Makes the point at `position` with `momentum`.
    ///
    /// # Errors
    /// [`mpf_core::Error::Count`] for a wrong length; [`mpf_core::Error::Entry`] for a position or
    /// momentum that is not finite, [`Error::NonFiniteStart`] where E or ∇E is not.
    pub fn new<E: SmoothEnergy>(energy: &E, position: &[f64], momentum: &[f64]) -> Result<Self> {
        check_count("entries of the position", energy.n_dims(), position.len())?;
        check_count("entries of the momentum", energy.n_dims(), momentum.len())?;
        check_finite("position", position)?;
        check_finite("momentum", momentum)?;
        let mut gradient = vec![0.0; position.len()];
        let potential = energy.energy_and_gradient(position, &mut gradient);
        let gradient_index = gradient.iter().position(|g| !g.is_finite());
        if !potential.is_finite() || gradient_index.is_some() {
            return Err(Error::NonFiniteStart {
                energy: potential,
                gradient_index,
            });
        }
        Ok(Self {
            position: position.to_vec(),
            momentum: momentum.to_vec(),
            potential,
            gradient,
        })
    }

    /// Returns H = E(q) + ½ vᵀv; +∞ where vᵀv overflows.
    pub fn hamiltonian(&self) -> f64 {
        self.potential + 0.5 * self.momentum.iter().map(|v| v * v).sum::<f64>()
    }

    /// Reverses the momentum: v ← −v.
    pub fn negate_momentum(&mut self) {
        for v in &mut self.momentum {
            *v = -*v;
        }
    }
}

/// Moves `point` by `n_steps` leapfrog steps of `step_size`, each one evaluation of E.
///
/// Negating the momentum and integrating again leads back to the start, to rounding, unless the
/// trajectory is chaotic or crosses a kink of E. Stops early where E is not finite, and leaves
/// the point there. Steps that are too long, or a gradient that is not finite, may leave ∞ or NaN
/// in the point: look before you use it.
///
/// ```
/// use mpf_samplers::{PhasePoint, SmoothEnergy, leapfrog};
///
/// struct Bowl;
/// impl SmoothEnergy for Bowl {
///     fn n_dims(&self) -> usize { 1 }
///     fn energy_and_gradient(&self, q: &[f64], gradient: &mut [f64]) -> f64 {
///         gradient[0] = q[0];
///         0.5 * q[0] * q[0]
///     }
/// }
/// let mut point = PhasePoint::new(&Bowl, &[1.0], &[0.0])?;
/// leapfrog(&Bowl, &mut point, 0.01, 314);
/// assert!((point.position[0] + 1.0).abs() < 1e-4); // half a turn: cos π
/// point.negate_momentum();
/// leapfrog(&Bowl, &mut point, 0.01, 314);
/// assert!((point.position[0] - 1.0).abs() < 1e-12);
/// # Ok::<(), mpf_samplers::Error>(())
/// ```
///
/// # Panics
/// May panic when `point` is of another energy.
pub fn leapfrog<E: SmoothEnergy>(
    energy: &E,
    point: &mut PhasePoint,
    step_size: f64,
    n_steps: usize,
) {
    let PhasePoint {
        position,
        momentum,
        potential,
        gradient,
    } = point;
    let kick = |momentum: &mut [f64], gradient: &[f64], by: f64| {
        for (v, g) in momentum.iter_mut().zip(gradient) {
            *v -= by * g;
        }
    };
    for _ in 0..n_steps {
        // Two half kicks, never joined to a whole one, make every step the mirror image of its
        // reverse.
        kick(momentum, gradient, 0.5 * step_size);
        for (q, v) in position.iter_mut().zip(&*momentum) {
            *q += step_size * v;
        }
        *potential = energy.energy_and_gradient(position, gradient);
        if !potential.is_finite() {
            return;
        }
        kick(momentum, gradient, 0.5 * step_size);
    }
}
