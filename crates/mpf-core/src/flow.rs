//! K(θ) and ∇K for any model over any connectivity, plain and slow.
//!
//! ```text
//! K(θ)  = 1/W Σ_j w_j Σ_i exp(½ [E_j − E_i] + ln √(g_ij g_ji))
//! ∇K(θ) = ½/W Σ_j w_j Σ_i exp(…) (∂E_j/∂θ − ∂E_i/∂θ)
//! ```
//!
//! (Eqs. `K_finalform` and `Kgrad`, ε = 1.) Every fast path is tested against these two plain loops.
//! They allocate nothing per neighbour.

use crate::Result;
use crate::connectivity::Connectivity;
use crate::energy::EnergyModel;
use crate::error::{Error, check_count, check_weight_sum, check_weights};
use crate::objective::Objective;
use std::borrow::{Borrow, BorrowMut};

/// Which function of the flow to minimise. Both have the same minimiser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowForm {
    /// K itself, a sum over neighbours.
    #[default]
    Sum,
    /// ln K. It overflows only where a difference of energies does, and is convex whenever the
    /// energy is linear in θ.
    Log,
}

/// The probability flow out of weighted data states, as an [`Objective`].
///
/// A state borrows as the model's state: `usize` for enumerated models, `Vec<f64>` for `[f64]`.
///
/// K is +∞ on overflow, and ln K is −∞ when no state has a neighbour. Either may be NaN where
/// energies or their differences are not finite.
pub struct Flow<'a, M: EnergyModel, C, S>
where
    M::State: ToOwned,
{
    model: &'a M,
    connectivity: &'a C,
    states: &'a [S],
    weights: Option<&'a [f64]>,
    total_weight: f64,
    form: FlowForm,
    scratch: <M::State as ToOwned>::Owned,
}

impl<'a, M, C, S> Flow<'a, M, C, S>
where
    M: EnergyModel,
    M::State: ToOwned,
    <M::State as ToOwned>::Owned: BorrowMut<M::State>,
    C: Connectivity<M::State>,
    S: Borrow<M::State>,
{
    /// Sets up the flow from `states`, each counted once.
    ///
    /// # Errors
    /// [`Error::Empty`] without states.
    pub fn new(model: &'a M, connectivity: &'a C, states: &'a [S]) -> Result<Self> {
        let first = states.first().ok_or(Error::Empty { what: "states" })?;
        Ok(Self {
            model,
            connectivity,
            states,
            weights: None,
            total_weight: states.len() as f64,
            form: FlowForm::Sum,
            scratch: first.borrow().to_owned(),
        })
    }

    /// Weighs state j by `weights[j]`; only their ratios matter.
    ///
    /// # Errors
    /// [`Error::Count`], [`Error::Entry`] for a weight that is negative or not finite,
    /// [`Error::Empty`] when all are zero, and [`Error::Overflow`] when their sum is not finite.
    pub fn weighted(mut self, weights: &'a [f64]) -> Result<Self> {
        check_count("weights", self.states.len(), weights.len())?;
        check_weights("weights", weights)?;
        self.total_weight = weights.iter().sum();
        check_weight_sum(self.total_weight)?;
        self.weights = Some(weights);
        Ok(self)
    }

    /// Chooses between K and ln K.
    pub fn form(mut self, form: FlowForm) -> Self {
        self.form = form;
        self
    }

    fn weight(&self, j: usize) -> f64 {
        self.weights.map_or(1.0, |w| w[j]) / self.total_weight
    }

    /// Returns the largest exponent ½[E_j − E_i] + ln √(g_ij g_ji), −∞ without neighbours.
    fn largest_exponent(&mut self, theta: &[f64]) -> f64 {
        let mut largest = f64::NEG_INFINITY;
        for (j, x) in self.states.iter().enumerate() {
            if self.weight(j) == 0.0 {
                continue;
            }
            let e_j = self.model.energy(theta, x.borrow());
            let scratch = self.scratch.borrow_mut();
            self.connectivity
                .for_each_neighbour(j, x.borrow(), scratch, |y, ln_weight| {
                    let e_i = self.model.energy(theta, y);
                    largest = largest.max(0.5 * (e_j - e_i) + ln_weight);
                });
        }
        largest
    }

    /// Returns K · e^−shift and writes its gradient to `grad`.
    fn accumulate(&mut self, theta: &[f64], shift: f64, grad: &mut [f64]) -> f64 {
        grad.fill(0.0);
        let mut value = 0.0;
        for (j, x) in self.states.iter().enumerate() {
            let x = x.borrow();
            let weight = self.weight(j);
            if weight == 0.0 {
                // 0 · ∞ would be NaN.
                continue;
            }
            let e_j = self.model.energy(theta, x);
            let mut outflow = 0.0;
            let scratch = self.scratch.borrow_mut();
            self.connectivity
                .for_each_neighbour(j, x, scratch, |y, ln_weight| {
                    let e_i = self.model.energy(theta, y);
                    let rate = weight * (0.5 * (e_j - e_i) + ln_weight - shift).exp();
                    // Nothing flows into a forbidden state, and its gradient may not be finite.
                    if rate != 0.0 {
                        outflow += rate;
                        self.model.add_energy_grad(theta, y, -0.5 * rate, grad);
                    }
                });
            self.model.add_energy_grad(theta, x, 0.5 * outflow, grad);
            value += outflow;
        }
        value
    }
}

impl<M, C, S> Objective for Flow<'_, M, C, S>
where
    M: EnergyModel,
    M::State: ToOwned,
    <M::State as ToOwned>::Owned: BorrowMut<M::State>,
    C: Connectivity<M::State>,
    S: Borrow<M::State>,
{
    fn n_params(&self) -> usize {
        self.model.n_params()
    }

    fn value_and_gradient(&mut self, theta: &[f64], grad: &mut [f64]) -> f64 {
        match self.form {
            FlowForm::Sum => self.accumulate(theta, 0.0, grad),
            FlowForm::Log => {
                let shift = self.largest_exponent(theta);
                let sum = self.accumulate(theta, shift, grad);
                for g in grad {
                    *g /= sum;
                }
                shift + sum.ln()
            }
        }
    }
}
