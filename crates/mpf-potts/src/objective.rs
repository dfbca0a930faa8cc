//! The joint objective and that of one node, with their penalties.
//!
//! ```text
//! F(h, J) + ½ λ_h Σ h² + ½ λ_J Σ_{i<j} Σ J_ij² + λ_g Σ_{i<j} (√(‖J_ij‖² + ε²) − ε)
//! ```
//!
//! A node-wise fit gives each of the two copies of J_ij half of the penalty.

use crate::kernel::{Engine, Loss, Trees, engine};
use crate::sequences::Sequences;
use mpf_core::Objective;
use mpf_ising::internal::{Vectors, dot};
use std::sync::Arc;

/// The rounding of the group penalty at zero.
const GROUP_EPSILON: f64 = 1e-3;

/// The weights of the penalties, in the units of a weighted mean over sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Penalties {
    /// λ_J: adds ½ λ_J Σ J².
    pub couplings: f64,
    /// λ_h: adds ½ λ_h Σ h².
    pub fields: f64,
    /// λ_g: adds λ_g Σ_{i<j} ‖J_ij‖, which sets whole pairs to nearly zero. The norm is rounded off
    /// below 1e-3, so that L-BFGS can follow it.
    pub group: f64,
}

impl Penalties {
    /// Returns the penalties of plmc's `-le`, `-lh` and `-lg` for an alignment of `n_effective`
    /// sequences: plmc adds λ Σ J² to a sum over sequences, we add ½ λ Σ J² to a mean.
    pub fn from_plmc(lambda_e: f64, lambda_h: f64, lambda_g: f64, n_effective: f64) -> Self {
        Self {
            couplings: 2.0 * lambda_e / n_effective,
            fields: 2.0 * lambda_h / n_effective,
            group: lambda_g / n_effective,
        }
    }

    /// Adds the penalty of fields and its gradient.
    fn add_fields(&self, fields: &[f64], grads: &mut [f64]) -> f64 {
        let mut value = 0.0;
        for (g, h) in grads.iter_mut().zip(fields) {
            value += 0.5 * self.fields * h * h;
            *g += self.fields * h;
        }
        value
    }

    /// Adds the part `share` of the penalty of one pair and its gradient.
    fn add_pair(&self, couplings: &[f64], grads: &mut [f64], share: f64) -> f64 {
        let square = dot(couplings, couplings);
        let mut factor = share * self.couplings;
        let mut value = 0.5 * factor * square;
        if self.group > 0.0 {
            let norm = (square + GROUP_EPSILON * GROUP_EPSILON).sqrt();
            value += share * self.group * (norm - GROUP_EPSILON);
            factor += share * self.group / norm;
        }
        for (g, j) in grads.iter_mut().zip(couplings) {
            *g += factor * j;
        }
        value
    }
}

/// F over all sites with penalties, as a function of θ = (h, J): h by site and state, then J_ij(a, b)
/// for i < j by pair, a and b.
pub struct JointObjective {
    trees: Arc<Trees>,
    loss: Loss,
    vectors: Vectors,
    is_rough: bool,
    /// Of this precision, once there was an evaluation in it.
    engine: Option<Box<dyn Engine>>,
    penalties: Penalties,
    n_fields: usize,
    n_params: usize,
}

impl JointObjective {
    /// Sets up the sums over `sequences`.
    pub fn new(sequences: &Sequences, loss: Loss, penalties: Penalties) -> Self {
        Self::with_vectors(sequences, loss, penalties, Vectors::default())
    }

    /// Sets up the sums with these vectors, for tests and benches.
    #[doc(hidden)]
    pub fn with_vectors(
        sequences: &Sequences,
        loss: Loss,
        penalties: Penalties,
        vectors: Vectors,
    ) -> Self {
        let (n, q) = (sequences.n_sites(), sequences.n_states());
        Self {
            trees: Arc::new(Trees::new(sequences)),
            loss,
            vectors,
            is_rough: false,
            engine: None,
            penalties,
            n_fields: n * q,
            n_params: n_params(n, q),
        }
    }
}

/// Returns the number of fields and couplings.
pub(crate) fn n_params(n_sites: usize, n_states: usize) -> usize {
    let pairs = n_sites.saturating_mul(n_sites - 1) / 2;
    (n_sites * n_states).saturating_add(pairs.saturating_mul(n_states * n_states))
}

impl Objective for JointObjective {
    fn n_params(&self) -> usize {
        self.n_params
    }

    fn value_and_gradient(&mut self, theta: &[f64], grad: &mut [f64]) -> f64 {
        let penalties = self.penalties;
        let pair = |couplings: &[f64], grads: &mut [f64]| penalties.add_pair(couplings, grads, 1.0);
        let make = || engine(self.trees.clone(), self.loss, self.vectors, self.is_rough);
        let value = self
            .engine
            .get_or_insert_with(make)
            .joint(theta, grad, &pair);
        let n = self.n_fields;
        value + penalties.add_fields(&theta[..n], &mut grad[..n])
    }

    fn set_rough(&mut self, rough: bool) -> bool {
        if rough != self.is_rough {
            self.is_rough = rough;
            self.engine = None;
        }
        rough
    }
}

/// The engines that all nodes share.
pub(crate) struct NodeEngines {
    exact: Box<dyn Engine>,
    rough: Box<dyn Engine>,
    n_states: usize,
    n_params: usize,
}

impl NodeEngines {
    pub(crate) fn new(sequences: &Sequences, loss: Loss) -> Self {
        let trees = Arc::new(Trees::new(sequences));
        let (n, q) = (sequences.n_sites(), sequences.n_states());
        let vectors = Vectors::default();
        Self {
            exact: engine(trees.clone(), loss, vectors, false),
            rough: engine(trees, loss, vectors, true),
            n_states: q,
            n_params: q + (n - 1) * q * q,
        }
    }
}

/// F of one site with parameters of its own.
pub(crate) struct NodeObjective<'a> {
    pub(crate) engines: &'a NodeEngines,
    pub(crate) site: usize,
    pub(crate) penalties: Penalties,
    is_rough: bool,
}

impl<'a> NodeObjective<'a> {
    pub(crate) fn new(engines: &'a NodeEngines, site: usize, penalties: Penalties) -> Self {
        Self {
            engines,
            site,
            penalties,
            is_rough: false,
        }
    }
}

impl Objective for NodeObjective<'_> {
    fn n_params(&self) -> usize {
        self.engines.n_params
    }

    fn value_and_gradient(&mut self, theta: &[f64], grad: &mut [f64]) -> f64 {
        let engine = if self.is_rough {
            &self.engines.rough
        } else {
            &self.engines.exact
        };
        let value = engine.node(self.site, theta, grad);
        let q = self.engines.n_states;
        let (fields, couplings) = theta.split_at(q);
        let (field_grads, coupling_grads) = grad.split_at_mut(q);
        let pairs = couplings.chunks_exact(q * q);
        let penalties = pairs
            .zip(coupling_grads.chunks_exact_mut(q * q))
            .map(|(couplings, grads)| self.penalties.add_pair(couplings, grads, 0.5));
        value + penalties.sum::<f64>() + self.penalties.add_fields(fields, field_grads)
    }

    fn set_rough(&mut self, rough: bool) -> bool {
        self.is_rough = rough;
        rough
    }
}
