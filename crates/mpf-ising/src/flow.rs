//! K(θ) and ∇K over bit-flip neighbourhoods, from the packed bits.
//!
//! ```text
//! K = 1/W Σ_m w_m Σ_i exp(−a_mi),     a_mi = s_mi (h_i + Σ_j K_ij s_mj)
//! ```
//!
//! (Eq. `K_finalform` with Eq. `g_ij_ising`, written in spins.) On request a term for the
//! complement of every sample, exp(−Σ_i h_i s_mi), and on request without the flips that lead to
//! data states. [`IsingFlow`] takes the paper's J; fits work in the spin parameters h and K.

use crate::Result;
use crate::bits::{RowIndex, Samples, flip_bit, for_each_set_bit, get_bit};
use crate::couplings::{n_packed, packed_index};
use crate::error::Error;
use crate::kernel::{
    FlowRate, Kernel, LeftOut, MarginLoss, Path, Rows, SAFE_EXPONENT, at_one_margin, most_entries,
};
use crate::support::Support;
use mpf_core::{FlowForm, Objective};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// Which states probability may flow to from a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Neighbourhood {
    /// Every state that differs in one bit. With exact weights the truth is then stationary
    /// whatever the number of distinct samples.
    #[default]
    SingleFlips,
    /// Those, and the state with every bit flipped.
    SingleFlipsAndComplement,
    /// Those that differ in one bit and are not themselves in the data: the paper's sum over
    /// i ∉ D. Harmful on small or repetitive data, where most flips lead to data states.
    OutsideData,
}

/// K of [`Neighbourhood`] as a function of J, packed as [`Couplings::pack`] does.
///
/// For the J of any [`Couplings`] K is a number, or +∞ where it is too large for one; its gradient
/// is finite while K is below 10³⁰⁰. ln K is finite while energies are below 10¹⁴, and never −∞: beyond, their
/// rounding can be more than an exponential takes, and then it is +∞.
///
/// [`Couplings`]: crate::Couplings
/// [`Couplings::pack`]: crate::Couplings::pack
pub struct IsingFlow<'a> {
    n_units: usize,
    left_out_fraction: f64,
    form: FlowForm,
    sum: MarginSum<'a, FlowRate>,
    spin_params: Vec<f64>,
    spin_grad: Vec<f64>,
}

impl<'a> IsingFlow<'a> {
    /// The flow out of `samples`.
    ///
    /// # Errors
    /// [`Error::NoFlipsLeft`] when [`Neighbourhood::OutsideData`] leaves nothing;
    /// [`Error::TooManyCouplings`] from 65,536 units on.
    pub fn new(samples: &'a Samples, neighbourhood: Neighbourhood, form: FlowForm) -> Result<Self> {
        Self::with_kernel(samples, neighbourhood, form, Kernel::default())
    }

    /// The same by a chosen kernel.
    ///
    /// # Errors
    /// As [`IsingFlow::new`].
    pub fn with_kernel(
        samples: &'a Samples,
        neighbourhood: Neighbourhood,
        form: FlowForm,
        kernel: Kernel,
    ) -> Result<Self> {
        let d = samples.n_units();
        check_count(d, d, all_pairs(d))?;
        let (left_out, left_out_fraction) = left_out_flips(samples, neighbourhood)?;
        let pairs = Support::Full.pairs(d)?;
        let n = d + pairs.len();
        let terms = Terms {
            samples,
            units: 0..d,
            pairs,
            left_out,
            complement: neighbourhood == Neighbourhood::SingleFlipsAndComplement,
            kernel,
        };
        Ok(Self {
            n_units: d,
            left_out_fraction,
            form,
            sum: MarginSum::new(terms, FlowRate::default()),
            spin_params: vec![0.0; n],
            spin_grad: vec![0.0; n],
        })
    }

    /// The kernel's algorithm.
    pub fn path(&self) -> Path {
        self.sum.path()
    }

    /// The fraction of all flips that lead to data states and were left out; finite.
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

/// The flips that an objective sums over, and the parameters that it has.
///
/// All units together make the joint objective; one unit alone makes its node-wise one.
#[derive(Clone, Debug)]
pub struct Terms<'a> {
    pub(crate) samples: &'a Samples,
    /// The units whose flips are summed, and whose fields are parameters.
    pub(crate) units: Range<usize>,
    /// The free couplings; each has at least one end among the units.
    pub(crate) pairs: Vec<(usize, usize)>,
    pub(crate) left_out: Option<Arc<LeftOut>>,
    /// Whether the flip of all units at once is summed too.
    pub(crate) complement: bool,
    pub(crate) kernel: Kernel,
}

impl<'a> Terms<'a> {
    /// All single flips of `units`, with the couplings of `pairs` free.
    ///
    /// # Errors
    /// [`Error::UnitCount`] for no units or units beyond those of the samples; [`Error::Edge`] for
    /// a pair that is not one, or has no end among the units; [`Error::RepeatedPair`];
    /// [`Error::TooManyCouplings`] for 2³² numbers or more: d² of them if an eighth of all pairs
    /// are free or more, two per pair if fewer are.
    pub fn new(
        samples: &'a Samples,
        units: Range<usize>,
        pairs: Vec<(usize, usize)>,
    ) -> Result<Self> {
        let n_units = samples.n_units();
        if units.is_empty() || units.end > n_units {
            return Err(Error::UnitCount {
                what: "terms",
                expected: n_units,
                found: units.end,
            });
        }
        let is_bad = |&&(i, j): &&(usize, usize)| {
            i == j || i.max(j) >= n_units || !(units.contains(&i) || units.contains(&j))
        };
        if let Some(&(i, j)) = pairs.iter().find(is_bad) {
            return Err(Error::Edge { i, j, n_units });
        }
        let mut sorted: Vec<_> = pairs.iter().map(|&(i, j)| (i.min(j), i.max(j))).collect();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|w| w[0] == w[1]) {
            let (i, j) = twice[0];
            return Err(Error::RepeatedPair { i, j });
        }
        check_count(units.len(), n_units, pairs.len())?;
        Ok(Self {
            samples,
            units,
            pairs,
            left_out: None,
            complement: false,
            kernel: Kernel::default(),
        })
    }

    /// The data.
    pub fn samples(&self) -> &'a Samples {
        self.samples
    }

    /// The units whose flips are summed, and whose fields are the first parameters.
    pub fn units(&self) -> Range<usize> {
        self.units.clone()
    }

    /// The pairs whose couplings are the other parameters.
    pub fn pairs(&self) -> &[(usize, usize)] {
        &self.pairs
    }
}

/// The slot of an end that is not among the units.
const NOWHERE: u32 = u32::MAX;

/// d(d−1)/2.
pub(crate) fn all_pairs(n_units: usize) -> usize {
    n_packed(n_units.saturating_sub(1))
}

/// Refuses more couplings between `units` of `n_units` units than there are slots.
pub(crate) fn check_count(units: usize, n_units: usize, n_couplings: usize) -> Result<()> {
    // A coupling of one unit to the others is one entry, of two among the units two.
    let n_entries = if units == 1 {
        n_couplings
    } else {
        n_couplings.saturating_mul(2)
    };
    if most_entries(units, n_units, n_entries) < NOWHERE as usize {
        Ok(())
    } else {
        Err(Error::TooManyCouplings {
            n_units,
            n_couplings,
        })
    }
}

/// A slot in four bytes: [`check_count`] has seen to it that they do.
fn in_four_bytes(slot: usize) -> u32 {
    u32::try_from(slot).expect("no more entries than were checked")
}

/// The mean over samples of φ(a), summed over flips, as a function of
/// θ = (h of the units, K of the pairs). +∞ where φ or the sum is too large for a number.
pub struct MarginSum<'a, L> {
    terms: Terms<'a>,
    rows: Rows<'a>,
    /// For both ends of every pair, where their R is kept, or [`NOWHERE`].
    slots: Vec<[u32; 2]>,
    loss: L,
}

impl<'a, L: MarginLoss> MarginSum<'a, L> {
    /// The sum of `loss` over `terms`.
    pub fn new(terms: Terms<'a>, loss: L) -> Self {
        let entries: Vec<(usize, usize)> = terms
            .pairs
            .iter()
            .flat_map(|&(i, j)| [(i, j), (j, i)])
            .filter(|(unit, _)| terms.units.contains(unit))
            .collect();
        let rows = Rows::new(
            terms.samples,
            terms.left_out.clone(),
            terms.units.clone(),
            &entries,
            terms.kernel,
        );
        let slot = |unit: usize, other: usize| {
            if terms.units.contains(&unit) {
                in_four_bytes(rows.slot(unit, other))
            } else {
                NOWHERE
            }
        };
        Self {
            slots: terms
                .pairs
                .iter()
                .map(|&(i, j)| [slot(i, j), slot(j, i)])
                .collect(),
            terms,
            rows,
            loss,
        }
    }

    /// The kernel's algorithm.
    pub fn path(&self) -> Path {
        self.rows.path()
    }

    /// z_i = −h_i + Σ_j K_ij (1 − 2 x_j).
    fn set_params(&mut self, theta: &[f64]) {
        let (fields, couplings) = theta.split_at(self.terms.units.len());
        let mut offsets: Vec<f64> = fields.iter().map(|h| -h).collect();
        let first = self.terms.units.start;
        for ((&coupling, &slots), &(i, j)) in
            couplings.iter().zip(&self.slots).zip(&self.terms.pairs)
        {
            for (unit, slot) in [i, j].into_iter().zip(slots) {
                if slot != NOWHERE {
                    offsets[unit - first] += coupling;
                    self.rows.set(slot as usize, -2.0 * coupling);
                }
            }
        }
        for (k, offset) in offsets.into_iter().enumerate() {
            self.rows.set_offset(self.terms.units.start + k, offset);
        }
    }

    fn gradient(&self, grad: &mut [f64]) {
        let (fields, couplings) = grad.split_at_mut(self.terms.units.len());
        for (k, field) in fields.iter_mut().enumerate() {
            *field = -self.rows.offset_grad(self.terms.units.start + k);
        }
        for ((coupling, &slots), &(i, j)) in
            couplings.iter_mut().zip(&self.slots).zip(&self.terms.pairs)
        {
            *coupling = 0.0;
            for (unit, slot) in [i, j].into_iter().zip(slots) {
                if slot != NOWHERE {
                    *coupling += self.rows.offset_grad(unit) - 2.0 * self.rows.grad(slot as usize);
                }
            }
        }
    }

    /// Σ_i h_i s_mi: half the energy difference to the complement.
    fn complement_margin(&self, fields: &[f64], m: usize) -> f64 {
        let mut margin: f64 = -fields.iter().sum::<f64>();
        for_each_set_bit(self.terms.samples.states().row(m), |i| {
            margin += 2.0 * fields[i];
        });
        margin
    }

    /// Adds the flips of all units at once; `grad` is that of the fields.
    fn add_complement(&self, fields: &[f64], grad: &mut [f64]) -> f64 {
        const CHUNK: usize = 4096;
        let n = self.terms.samples.n_distinct();
        let scale = 1.0 / self.terms.samples.total_weight();
        let partials: Vec<(f64, Vec<f64>)> = (0..n.div_ceil(CHUNK))
            .into_par_iter()
            .map(|chunk| {
                let mut value = 0.0;
                let mut slopes = vec![0.0; fields.len()];
                for m in chunk * CHUNK..n.min((chunk + 1) * CHUNK) {
                    let weight = scale * self.terms.samples.weight(m);
                    let margin = self.complement_margin(fields, m);
                    let (v, slope) = at_one_margin(self.loss, margin);
                    value += weight * v;
                    for (i, g) in slopes.iter_mut().enumerate() {
                        let s = if get_bit(self.terms.samples.states().row(m), i) {
                            1.0
                        } else {
                            -1.0
                        };
                        *g += weight * s * slope;
                    }
                }
                (value, slopes)
            })
            .collect();
        let mut value = 0.0;
        for (part, slopes) in &partials {
            value += part;
            for (g, s) in grad.iter_mut().zip(slopes) {
                *g += s;
            }
        }
        value
    }
}

impl<L: MarginLoss> Objective for MarginSum<'_, L> {
    fn n_params(&self) -> usize {
        self.terms.units.len() + self.terms.pairs.len()
    }

    fn value_and_gradient(&mut self, theta: &[f64], grad: &mut [f64]) -> f64 {
        self.set_params(theta);
        let mut value = self.rows.evaluate(self.loss);
        self.gradient(grad);
        if self.terms.complement {
            let d = self.terms.units.len();
            value += self.add_complement(&theta[..d], &mut grad[..d]);
        }
        value
    }
}

/// ln K and its gradient. Exponents are shifted by the largest when they could overflow.
fn log_value_and_gradient(
    sum: &mut MarginSum<'_, FlowRate>,
    theta: &[f64],
    grad: &mut [f64],
) -> f64 {
    sum.set_params(theta);
    let fields = &theta[..sum.terms.units.len()];
    let mut bound = sum.rows.margin_bound();
    if sum.terms.complement {
        bound = bound.max(fields.iter().map(|h| h.abs()).sum());
    }
    sum.loss.shift = 0.0;
    if bound >= SAFE_EXPONENT {
        let mut largest = sum.rows.largest_exponent();
        if sum.terms.complement {
            for m in 0..sum.terms.samples.n_distinct() {
                largest = largest.max(-sum.complement_margin(fields, m));
            }
        }
        sum.loss.shift = largest;
    }
    let value = sum.value_and_gradient(theta, grad);
    if value == 0.0 {
        // Not a flow of zero, but a shift that was rounded up.
        return f64::INFINITY;
    }
    for g in grad {
        *g /= value;
    }
    sum.loss.shift + value.ln()
}

/// ln of a flow: the same minimiser as the flow itself, without overflow. Node by node this is
/// the objective of logRISE.
pub(crate) struct LogFlow<'a>(pub(crate) MarginSum<'a, FlowRate>);

impl Objective for LogFlow<'_> {
    fn n_params(&self) -> usize {
        self.0.n_params()
    }

    fn value_and_gradient(&mut self, theta: &[f64], grad: &mut [f64]) -> f64 {
        log_value_and_gradient(&mut self.0, theta, grad)
    }
}

/// The flips that `neighbourhood` leaves out, and their (weighted) fraction of all.
pub(crate) fn left_out_flips(
    samples: &Samples,
    neighbourhood: Neighbourhood,
) -> Result<(Option<Arc<LeftOut>>, f64)> {
    if neighbourhood != Neighbourhood::OutsideData {
        return Ok((None, 0.0));
    }
    let states = samples.states();
    let index = RowIndex::of(states);
    let mut left_out = LeftOut::none(samples);
    let counts: Vec<u32> = left_out
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
    // (No more than all, whatever the rounding.)
    Ok((Some(Arc::new(left_out)), fraction.min(1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn couplings_are_counted_before_anything_is_held() {
        // All couplings, jointly and node by node.
        assert!(check_count(65_535, 65_535, all_pairs(65_535)).is_ok());
        assert_eq!(
            check_count(65_536, 65_536, all_pairs(65_536)),
            Err(Error::TooManyCouplings {
                n_units: 65_536,
                n_couplings: 2_147_450_880
            })
        );
        assert!(check_count(1, 1_000_000, 999_999).is_ok());
        // Few couplings of many units.
        assert!(check_count(1_000_000, 1_000_000, 2_000_000).is_ok());
        assert!(check_count(1_000_000, 1_000_000, 1 << 31).is_err());
        for n in [1 << 32, usize::MAX] {
            assert!(check_count(n, n, all_pairs(n)).is_err());
        }
        let mut states = crate::States::new(70_000).unwrap();
        states.push(&vec![0; states.words_per_row()]);
        let samples = Samples::new(&states).unwrap();
        let flow = IsingFlow::new(&samples, Neighbourhood::SingleFlips, FlowForm::Sum);
        assert!(matches!(
            flow.err(),
            Some(Error::TooManyCouplings {
                n_units: 70_000,
                ..
            })
        ));
        assert!(Terms::new(&samples, 0..70_000, vec![(0, 69_999)]).is_ok());
    }
}
