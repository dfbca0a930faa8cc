//! The flow and its gradient over bit-flip neighbourhoods, from the packed bits.
//!
//! ```text
//! flow = 1/W Σ_m w_m Σ_i exp(−a_mi),     a_mi = s_mi (h_i + Σ_j K_ij s_mj)
//! ```
//!
//! (The paper's Eq. `K_finalform` with Eq. `g_ij_ising`, written in spins.) The
//! [`Neighbourhood`] can add a term for the complement of every sample, exp(−Σ_i h_i s_mi), or
//! leave out the flips that lead to data states. [`IsingFlow`] takes the paper's J; fits work in
//! the spin parameters h and K through [`MarginSum`].

mod margin_sum;
mod terms;

use crate::Result;
use crate::bits::{RowIndex, Samples, flip_bit};
use crate::couplings::{n_packed, packed_index};
use crate::error::Error;
use crate::kernel::{Algorithm, FlipMask, Kernel, MarginLoss, Number};
use crate::support::Support;
use mpf_core::{FlowForm, Objective};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub use margin_sum::MarginSum;
pub use terms::Terms;
pub(crate) use terms::{all_pairs, check_count};

/// Which states probability may flow to from a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Neighbourhood {
    /// Every state that differs in one bit. With exact weights the truth is then stationary
    /// whatever the number of distinct samples.
    #[default]
    SingleFlips,
    /// Single flips, and the state with every bit flipped.
    SingleFlipsAndComplement,
    /// Single flips that do not lead to another data state: the paper's sum over i ∉ D. Harmful on
    /// small or repetitive data, where most flips lead to data states.
    OutsideData,
}

/// The flow over a [`Neighbourhood`] as a function of J, packed as [`Couplings::pack`] does.
///
/// At the J of any [`Couplings`] the flow is a number, or +∞ on overflow; its gradient is finite
/// while the flow is below 10³⁰⁰. The logarithm is finite while energies are below 10¹⁴. Beyond,
/// the rounding of an energy can exceed what an exponential takes; the logarithm is then +∞.
///
/// [`Couplings`]: crate::Couplings
/// [`Couplings::pack`]: crate::Couplings::pack
pub struct IsingFlow<'a> {
    n_units: usize,
    left_out_fraction: f64,
    form: FlowForm,
    sum: MarginSum<'a>,
    spin_params: Vec<f64>,
    spin_grad: Vec<f64>,
}

impl<'a> IsingFlow<'a> {
    /// Makes the flow out of `samples`.
    ///
    /// # Errors
    /// [`Error::NoFlipsLeft`] when [`Neighbourhood::OutsideData`] leaves nothing;
    /// [`Error::TooManyCouplings`] from 65,536 units on.
    pub fn new(samples: &'a Samples, neighbourhood: Neighbourhood, form: FlowForm) -> Result<Self> {
        Self::with_kernel(samples, neighbourhood, form, Kernel::default())
    }

    /// Makes the flow out of `samples`, computed by `kernel`.
    ///
    /// # Errors
    /// As [`IsingFlow::new`].
    #[doc(hidden)]
    pub fn with_kernel(
        samples: &'a Samples,
        neighbourhood: Neighbourhood,
        form: FlowForm,
        kernel: Kernel,
    ) -> Result<Self> {
        let d = samples.n_units();
        check_count(d, d, all_pairs(d))?;
        let (mask, left_out_fraction) = flip_mask(samples, neighbourhood)?;
        let pairs = Support::Full.pairs(d)?;
        let n = d + pairs.len();
        let terms = Terms {
            mask,
            complement: neighbourhood == Neighbourhood::SingleFlipsAndComplement,
            kernel,
            ..Terms::of(samples.into(), 0..d, pairs)
        };
        Ok(Self {
            n_units: d,
            left_out_fraction,
            form,
            sum: MarginSum::new(terms, MarginLoss::FLOW),
            spin_params: vec![0.0; n],
            spin_grad: vec![0.0; n],
        })
    }

    /// Returns the kernel's algorithm.
    #[doc(hidden)]
    pub fn algorithm(&self) -> Algorithm {
        self.sum.algorithm()
    }

    /// Returns the fraction of all flips that lead to data states and were left out.
    pub fn left_out_fraction(&self) -> f64 {
        self.left_out_fraction
    }
}

impl Objective for IsingFlow<'_> {
    fn n_params(&self) -> usize {
        n_packed(self.n_units)
    }

    fn value_and_gradient(&mut self, theta: &[f64], grad: &mut [f64]) -> f64 {
        let d = self.n_units;
        // K_ij = −J_ij/2, h_i = −½ Σ_j J_ij.
        let (fields, couplings) = self.spin_params.split_at_mut(d);
        for (i, h) in fields.iter_mut().enumerate() {
            *h = -0.5 * theta[packed_index(d, i, i)];
        }
        for (q, &(i, j)) in self.sum.terms.pairs.iter().enumerate() {
            let half = -0.5 * theta[packed_index(d, i, j)];
            couplings[q] = half;
            fields[i] += half;
            fields[j] += half;
        }
        let value = match self.form {
            FlowForm::Sum => self
                .sum
                .value_and_gradient(&self.spin_params, &mut self.spin_grad),
            FlowForm::Log => {
                log_value_and_gradient(&mut self.sum, &self.spin_params, &mut self.spin_grad)
            }
        };
        let (fields, couplings) = self.spin_grad.split_at(d);
        for (i, h) in fields.iter().enumerate() {
            grad[packed_index(d, i, i)] = -0.5 * h;
        }
        for (q, &(i, j)) in self.sum.terms.pairs.iter().enumerate() {
            grad[packed_index(d, i, j)] = -0.5 * (couplings[q] + fields[i] + fields[j]);
        }
        value
    }
}

/// Returns the logarithm of the flow and its gradient. Exponents are shifted by the largest when
/// they could overflow.
fn log_value_and_gradient(sum: &mut MarginSum<'_>, theta: &[f64], grad: &mut [f64]) -> f64 {
    sum.set_params(theta);
    let fields = &theta[..sum.terms.units.len()];
    let mut bound = sum.engine.margin_bound();
    if sum.terms.complement {
        bound = bound.max(fields.iter().map(|h| h.abs()).sum());
    }
    let mut shift = 0.0;
    if bound >= f64::SAFE_EXPONENT {
        shift = sum.engine.largest_exponent();
        if sum.terms.complement {
            for m in 0..sum.terms.samples.n_distinct() {
                shift = shift.max(-sum.complement_margin(fields, m));
            }
        }
    }
    sum.loss = MarginLoss::FlowRate { shift };
    let value = sum.value_and_gradient(theta, grad);
    if value == 0.0 {
        // The flow is not zero: its shift was rounded up.
        return f64::INFINITY;
    }
    for g in grad {
        *g /= value;
    }
    shift + value.ln()
}

/// The logarithm of a flow: it has the same minimiser and does not overflow. Node by node this is
/// the objective of logRISE.
pub(crate) struct LogFlow<'a>(pub(crate) MarginSum<'a>);

impl Objective for LogFlow<'_> {
    fn n_params(&self) -> usize {
        self.0.n_params()
    }

    fn value_and_gradient(&mut self, theta: &[f64], grad: &mut [f64]) -> f64 {
        log_value_and_gradient(&mut self.0, theta, grad)
    }
}

/// Returns the flips that `neighbourhood` leaves out, and their (weighted) fraction of all.
pub(crate) fn flip_mask(
    samples: &Samples,
    neighbourhood: Neighbourhood,
) -> Result<(Option<Arc<FlipMask>>, f64)> {
    if neighbourhood != Neighbourhood::OutsideData {
        return Ok((None, 0.0));
    }
    let states = samples.states();
    let index = RowIndex::of(states);
    let mut mask = FlipMask::none(samples);
    let counts: Vec<u32> = mask
        .par_rows_mut()
        .enumerate()
        .map_init(
            || vec![0u64; states.words_per_row()],
            |scratch, (m, flips)| {
                scratch.copy_from_slice(states.row(m));
                for unit in 0..states.n_units() {
                    flip_bit(scratch, unit);
                    if index.find(states, scratch).is_some() {
                        flip_bit(flips, unit);
                    }
                    flip_bit(scratch, unit);
                }
                flips.iter().map(|w| w.count_ones()).sum()
            },
        )
        .collect();
    if counts.iter().all(|&c| c as usize == states.n_units()) {
        return Err(Error::NoFlipsLeft);
    }
    let weighted: f64 = counts
        .iter()
        .enumerate()
        .map(|(m, &c)| samples.weight(m) * f64::from(c))
        .sum();
    let fraction = weighted / (samples.total_weight() * states.n_units() as f64);
    // Rounding must not make it more than all.
    Ok((Some(Arc::new(mask)), fraction.min(1.0)))
}
