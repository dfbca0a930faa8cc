//! Score matching, the limit of MPF over ever smaller neighbourhoods (Appendix C).
//!
//! ```text
//! K_SM(θ) = 1/N Σ_x [ ½ |∇E(x; θ)|² − ∇²E(x; θ) ]                        (Eq. `score matching`)
//!
//! ∫_C exp(½ [E(x) − E(x + α)]) dα = εᵈ + εᵈ⁺²/48 · K_SM + O(εᵈ⁺⁴)        C: cube of side ε
//! ```
//!
//! with ∇ taken in x. For an exponential family, E = Σ_k θ_k φ_k(x), K_SM is quadratic:
//!
//! ```text
//! K_SM = ½ θᵀAθ − bᵀθ,   A_kl = ⟨∇φ_k · ∇φ_l⟩,   b_k = ⟨∇²φ_k⟩,   θ̂ = A⁻¹ b
//! ```
//!
//! When *not* to use it: for energies with kinks. The second derivative of |x| is a delta at 0 that
//! no sample hits, and score matching fits a Laplace density by θ = 0. MPF over cubes of finite size
//! sees the kink.

use crate::Result;
use crate::connectivity::Connectivity;
use crate::energy::EnergyModel;
use crate::error::{Error, check_count, check_finite, check_not_zero, check_option};
use crate::linalg::{symmetric_eigen, symmetric_pseudo_inverse};
use crate::objective::Objective;
use ndarray::{Array1, Array2, ArrayView1};

/// An energy over x ∈ ℝᵈ with two derivatives in x.
pub trait StateDerivatives: EnergyModel<State = [f64]> {
    /// Writes ∇E, the gradient in x, to `gradient` and returns ∇²E = Σ_i ∂²E/∂x_i².
    fn state_derivatives(&self, theta: &[f64], x: &[f64], gradient: &mut [f64]) -> f64;

    /// Adds ∂/∂θ [`direction` · ∇E + `scale` ∇²E], with `direction` held fixed, to `out`.
    fn add_state_derivatives_grad(
        &self,
        theta: &[f64],
        x: &[f64],
        direction: &[f64],
        scale: f64,
        out: &mut [f64],
    );
}

/// K_SM over a list of states, as an [`Objective`]: +∞ or NaN on overflow.
pub struct ScoreMatching<'a, M> {
    model: &'a M,
    states: &'a [Vec<f64>],
    /// ∇E at the current state.
    gradient: Vec<f64>,
}

impl<'a, M: StateDerivatives> ScoreMatching<'a, M> {
    /// Sets up score matching of `model` to `states`.
    ///
    /// # Errors
    /// [`Error::Empty`] without states, [`Error::Count`] for states of different lengths,
    /// [`Error::Entry`] for one that is not finite.
    pub fn new(model: &'a M, states: &'a [Vec<f64>]) -> Result<Self> {
        let n_dims = check_states(states)?;
        Ok(Self {
            model,
            states,
            gradient: vec![0.0; n_dims],
        })
    }
}

impl<M: StateDerivatives> Objective for ScoreMatching<'_, M> {
    fn n_params(&self) -> usize {
        self.model.n_params()
    }

    fn value_and_gradient(&mut self, theta: &[f64], grad: &mut [f64]) -> f64 {
        grad.fill(0.0);
        let weight = 1.0 / self.states.len() as f64;
        let mut sum = 0.0;
        for x in self.states {
            let laplacian = self.model.state_derivatives(theta, x, &mut self.gradient);
            let square: f64 = self.gradient.iter().map(|g| g * g).sum();
            sum += 0.5 * square - laplacian;
            // ∂/∂θ of ½|∇E|² is ∇E · ∂∇E/∂θ.
            for g in &mut self.gradient {
                *g *= weight;
            }
            self.model
                .add_state_derivatives_grad(theta, x, &self.gradient, -weight, grad);
        }
        weight * sum
    }
}

/// Appendix C's connectivity: all of a cube of side ε about x, by Gauss-Legendre quadrature, which
/// makes K the integral itself. For few dimensions: it visits nᵈ neighbours.
#[derive(Clone, Debug, PartialEq)]
pub struct Cube {
    /// Offsets from the centre, and ln of their weights, along one axis.
    nodes: Vec<(f64, f64)>,
}

impl Cube {
    /// Makes a cube of side `side`, with `n_nodes` nodes along every axis.
    ///
    /// # Errors
    /// [`Error::Option`] for a side that is not positive, not finite or subnormal (its half could
    /// underflow to 0), and for 0 nodes.
    pub fn new(side: f64, n_nodes: usize) -> Result<Self> {
        let normal = side >= f64::MIN_POSITIVE && side.is_finite();
        check_option("side", side, "positive, finite and not subnormal", normal)?;
        check_not_zero("n_nodes", n_nodes)?;
        let scaled = |(node, weight): (f64, f64)| (0.5 * side * node, (0.5 * side * weight).ln());
        let nodes = gauss_legendre(n_nodes).into_iter().map(scaled).collect();
        Ok(Self { nodes })
    }
}

/// Returns nodes and weights over [−1, 1]: the roots x of the Legendre polynomial P_n by Newton's
/// method, and 2/((1 − x²) P_n′(x)²).
fn gauss_legendre(n: usize) -> Vec<(f64, f64)> {
    let root = |i: usize| {
        let mut x = (std::f64::consts::PI * (i as f64 + 0.75) / (n as f64 + 0.5)).cos();
        let mut slope = 1.0;
        // Convergence is quadratic from a good guess: a handful of steps would do.
        for _ in 0..20 {
            let (mut p, mut before) = (1.0, 0.0);
            for k in 0..n {
                let k = k as f64;
                (p, before) = (((2.0 * k + 1.0) * x * p - k * before) / (k + 1.0), p);
            }
            slope = n as f64 * (x * p - before) / (x * x - 1.0);
            x -= p / slope;
        }
        (x, 2.0 / ((1.0 - x * x) * slope * slope))
    };
    (0..n).map(root).collect()
}

impl Connectivity<[f64]> for Cube {
    fn for_each_neighbour(
        &self,
        _sample: usize,
        x: &[f64],
        scratch: &mut [f64],
        mut visit: impl FnMut(&[f64], f64),
    ) {
        let n = self.nodes.len();
        // More cells than a `usize` can count would not be visited in a lifetime.
        for cell in 0..n.saturating_pow(x.len() as u32) {
            let mut rest = cell;
            let mut ln_weight = 0.0;
            for (y, x) in scratch.iter_mut().zip(x) {
                let (offset, ln) = self.nodes[rest % n];
                rest /= n;
                *y = x + offset;
                ln_weight += ln;
            }
            visit(scratch, ln_weight);
        }
    }
}

/// E(x; θ) = Σ_k θ_k φ_k(x) over x ∈ ℝᵈ.
pub trait ExponentialFamily {
    /// Returns the length of θ.
    fn n_features(&self) -> usize;

    /// Writes ∇φ_k(x) to row k of `gradients` and ∇²φ_k(x) to entry k of `laplacians`.
    fn feature_derivatives(&self, x: &[f64], gradients: &mut Array2<f64>, laplacians: &mut [f64]);
}

/// Returns the θ that minimises K_SM over `states`, in closed form. O(N k² d) for k features.
///
/// # Errors
/// As [`ScoreMatching::new`]; [`Error::Singular`] where the states do not determine θ, or their
/// squares underflow; [`Error::Decomposition`] without features or where A is not finite;
/// [`Error::Overflow`] where b or θ is not.
///
/// # Panics
/// If the family panics, for instance at states of another length than its own.
pub fn score_closed_form(family: &impl ExponentialFamily, states: &[Vec<f64>]) -> Result<Vec<f64>> {
    let n_dims = check_states(states)?;
    let k = family.n_features();
    let mut gradients = Array2::zeros((k, n_dims));
    let mut laplacians = vec![0.0; k];
    let mut a = Array2::zeros((k, k));
    let mut b = Array1::<f64>::zeros(k);
    for x in states {
        family.feature_derivatives(x, &mut gradients, &mut laplacians);
        a += &gradients.dot(&gradients.t());
        b += &ArrayView1::from(&laplacians);
    }
    let eigen = symmetric_eigen(a.view())?;
    let (smallest, largest) = (eigen.0[0], eigen.0[k - 1]);
    if smallest <= (k as f64 * f64::EPSILON * largest).max(f64::MIN_POSITIVE) {
        return Err(Error::Singular { size: k });
    }
    let theta = symmetric_pseudo_inverse(&eigen, 0.0).dot(&b).to_vec();
    if theta.iter().all(|t| t.is_finite()) {
        Ok(theta)
    } else {
        Err(Error::Overflow { what: "θ" })
    }
}

/// Checks that there are states, finite and of one length, and returns that length.
fn check_states(states: &[Vec<f64>]) -> Result<usize> {
    let first = states.first().ok_or(Error::Empty { what: "states" })?;
    for x in states {
        check_count("entries of a state", first.len(), x.len())?;
        check_finite("a state", x)?;
    }
    Ok(first.len())
}

/// The Gaussian E = ½ xᵀΛx with a free precision Λ, the worked example: θ holds the entries of Λ
/// on and above the diagonal, row by row.
///
/// Score matching gives Λ = ⟨x xᵀ⟩⁻¹ exactly, which is maximum likelihood.
///
/// ```
/// use mpf_core::{GaussianPrecision, score_closed_form};
///
/// let gaussian = GaussianPrecision::new(2);
/// let states = [vec![2.0, 0.0], vec![0.0, 1.0], vec![2.0, 1.0]];
/// let precision = gaussian.unpack(&score_closed_form(&gaussian, &states)?);
/// // ⟨x xᵀ⟩ = [[8, 2], [2, 2]]/3, whose inverse is [[2, −2], [−2, 8]]/4.
/// assert!((precision[[0, 0]] - 0.5).abs() < 1e-14);
/// assert!((precision[[1, 0]] + 0.5).abs() < 1e-14);
/// assert!((precision[[1, 1]] - 2.0).abs() < 1e-14);
/// # Ok::<(), mpf_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GaussianPrecision {
    n_dims: usize,
}

impl GaussianPrecision {
    /// Returns the Gaussians of mean zero in `n_dims` dimensions.
    pub fn new(n_dims: usize) -> Self {
        Self { n_dims }
    }

    /// Returns Λ, symmetric, from θ.
    pub fn unpack(&self, theta: &[f64]) -> Array2<f64> {
        let mut precision = Array2::zeros((self.n_dims, self.n_dims));
        for ((i, j), &value) in self.pairs().zip(theta) {
            precision[[i, j]] = value;
            precision[[j, i]] = value;
        }
        precision
    }

    /// Iterates over the entries of Λ in the order of θ.
    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        let n = self.n_dims;
        (0..n).flat_map(move |i| (i..n).map(move |j| (i, j)))
    }
}

impl EnergyModel for GaussianPrecision {
    type State = [f64];

    fn n_params(&self) -> usize {
        self.n_dims * (self.n_dims + 1) / 2
    }

    fn energy(&self, theta: &[f64], x: &[f64]) -> f64 {
        let terms = self.pairs().zip(theta);
        terms.map(|((i, j), t)| t * feature(x, i, j)).sum()
    }

    fn add_energy_grad(&self, _theta: &[f64], x: &[f64], scale: f64, out: &mut [f64]) {
        for ((i, j), o) in self.pairs().zip(out) {
            *o += scale * feature(x, i, j);
        }
    }
}

/// Returns φ of Λ_ij: ½x_i² on the diagonal, x_i x_j above it, where Λ_ij stands for Λ_ji too.
fn feature(x: &[f64], i: usize, j: usize) -> f64 {
    if i == j {
        0.5 * x[i] * x[i]
    } else {
        x[i] * x[j]
    }
}

impl StateDerivatives for GaussianPrecision {
    fn state_derivatives(&self, theta: &[f64], x: &[f64], gradient: &mut [f64]) -> f64 {
        gradient.fill(0.0);
        let mut trace = 0.0;
        for ((i, j), t) in self.pairs().zip(theta) {
            gradient[i] += t * x[j];
            if i == j {
                trace += t;
            } else {
                gradient[j] += t * x[i];
            }
        }
        trace
    }

    fn add_state_derivatives_grad(
        &self,
        _theta: &[f64],
        x: &[f64],
        direction: &[f64],
        scale: f64,
        out: &mut [f64],
    ) {
        for ((i, j), o) in self.pairs().zip(out) {
            *o += if i == j {
                direction[i] * x[i] + scale
            } else {
                direction[i] * x[j] + direction[j] * x[i]
            };
        }
    }
}

impl ExponentialFamily for GaussianPrecision {
    fn n_features(&self) -> usize {
        self.n_params()
    }

    fn feature_derivatives(&self, x: &[f64], gradients: &mut Array2<f64>, laplacians: &mut [f64]) {
        gradients.fill(0.0);
        for (k, (i, j)) in self.pairs().enumerate() {
            gradients[[k, i]] = x[j];
            gradients[[k, j]] = x[i];
            laplacians[k] = if i == j { 1.0 } else { 0.0 };
        }
    }
}
