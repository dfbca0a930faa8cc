//! The mean of a function of the margin over flips, as an objective in spin parameters.

use super::Terms;
use crate::bits::{for_each_set_bit, get_bit};
use crate::kernel::{Algorithm, Counts, MarginEngine, MarginLoss, Precision, Tile};
use crate::stream::request::{self, Request};
use crate::stream::{Accumulate, Stream};
use mpf_core::Objective;
use rayon::prelude::*;
use std::ops::Range;

/// The slot of an end that is not among the units.
const NOWHERE: u32 = u32::MAX;

/// Returns a slot in four bytes; [`check_count`](super::check_count) has made sure that it fits.
fn in_four_bytes(slot: usize) -> u32 {
    u32::try_from(slot).expect("no more entries than were checked")
}

/// The mean over samples of φ(a), summed over flips, as a function of
/// θ = (h of the units, K of the pairs, V at the knots if there is one); +∞ on overflow.
pub struct MarginSum<'a> {
    pub(super) terms: Terms<'a>,
    pub(super) engine: MarginEngine<'a>,
    /// For both ends of every pair, where their R is kept, or [`NOWHERE`].
    slots: Vec<[u32; 2]>,
    /// V at every number of active units.
    potential: Vec<f64>,
    pub(super) loss: MarginLoss,
    /// Of a stream: the number of this objective, and the sum of the part so far.
    number: u64,
    value: f64,
    /// The other lane of a stream, if there are two: it sums over other tiles at the same parameters.
    pub(crate) other: Option<Box<Self>>,
}

impl<'a> MarginSum<'a> {
    /// Sums `loss` over `terms`.
    pub fn new(terms: Terms<'a>, loss: MarginLoss) -> Self {
        let mut sum = Self::lane(terms, loss);
        if let Some(stream) = sum.terms.stream {
            sum.number = stream.new_objective();
            if stream.n_lanes() == 2 {
                sum.other = Some(Box::new(Self::lane(sum.terms.clone(), loss)));
            }
        }
        sum
    }

    /// Makes one lane of a sum.
    fn lane(terms: Terms<'a>, loss: MarginLoss) -> Self {
        let entries: Vec<(usize, usize)> = terms
            .pairs
            .iter()
            .flat_map(|&(i, j)| [(i, j), (j, i)])
            .filter(|(unit, _)| terms.units.contains(unit))
            .collect();
        let engine = MarginEngine::new(
            terms.samples,
            terms.mask.clone(),
            terms.potential.as_ref().map(|_| Counts::new(terms.samples)),
            terms.units.clone(),
            &entries,
            terms.kernel,
        );
        let potential = match &terms.potential {
            None => Vec::new(),
            Some(_) => vec![0.0; terms.samples.n_units() + 1],
        };
        let slot = |unit: usize, other: usize| {
            if terms.units.contains(&unit) {
                in_four_bytes(engine.slot(unit, other))
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
            potential,
            number: 0,
            value: 0.0,
            other: None,
            terms,
            engine,
            loss,
        }
    }

    /// Returns what other ranks have to know of this objective over `rows`.
    pub(crate) fn request(&self, rows: [Range<usize>; 2]) -> Request {
        Request::Objective(request::Objective {
            rows,
            loss: self.loss,
            pairs: self.terms.pairs.clone(),
            potential: self.terms.potential.as_deref().cloned(),
        })
    }

    pub(crate) fn precision(&self) -> Precision {
        self.terms.kernel.precision
    }

    /// Gets ready to sum over tiles.
    pub(crate) fn prepare(&mut self, theta: &[f64], precision: Precision) {
        self.terms.kernel.precision = precision;
        self.set_params(theta);
        self.engine.clear();
        self.value = 0.0;
        if let Some(other) = &mut self.other {
            other.prepare(theta, precision);
        }
    }

    /// Returns the value over a stream, NaN if it cannot be read, and writes the gradient.
    fn sum_over(&mut self, stream: &Stream, theta: &[f64], grad: &mut [f64]) -> f64 {
        self.prepare(theta, self.precision());
        let Some(mut sum) = stream.sum(self.number, theta, self) else {
            return f64::NAN;
        };
        let scale = 1.0 / stream.total_weight();
        sum.iter_mut().for_each(|number| *number *= scale);
        let (slopes, shifts) = sum[1..].split_at(self.terms.units.len() + self.terms.pairs.len());
        grad[..slopes.len()].copy_from_slice(slopes);
        let penalty = self.terms.potential.as_ref().map(|potential| {
            let (shifts, _) = shifts.as_chunks::<2>();
            potential.pull_back(&self.potential, shifts, &mut grad[slopes.len()..])
        });
        sum[0] + penalty.unwrap_or(0.0)
    }

    /// Returns the kernel's algorithm.
    #[doc(hidden)]
    pub fn algorithm(&self) -> Algorithm {
        self.engine.algorithm()
    }

    /// Sets R and c of z_i = −h_i + Σ_j K_ij (1 − 2 x_j).
    pub(super) fn set_params(&mut self, theta: &[f64]) {
        let (fields, couplings) = theta.split_at(self.terms.units.len());
        let (couplings, knots) = couplings.split_at(self.terms.pairs.len());
        if let Some(potential) = &self.terms.potential {
            potential.expand(knots, &mut self.potential);
            for n in 0..self.potential.len() {
                let shifts = potential.shifts(&self.potential, n);
                self.engine.set_shifts(n, shifts);
            }
        }
        let mut offsets: Vec<f64> = fields.iter().map(|h| -h).collect();
        let first = self.terms.units.start;
        for ((&coupling, &slots), &(i, j)) in
            couplings.iter().zip(&self.slots).zip(&self.terms.pairs)
        {
            for (unit, slot) in [i, j].into_iter().zip(slots) {
                if slot != NOWHERE {
                    offsets[unit - first] += coupling;
                    self.engine.set(slot as usize, -2.0 * coupling);
                }
            }
        }
        for (k, offset) in offsets.into_iter().enumerate() {
            self.engine.set_offset(self.terms.units.start + k, offset);
        }
    }

    fn gradient(&self, grad: &mut [f64]) {
        let (fields, couplings) = grad.split_at_mut(self.terms.units.len());
        let couplings = &mut couplings[..self.terms.pairs.len()];
        for (k, field) in fields.iter_mut().enumerate() {
            *field = -self.engine.offset_grad(self.terms.units.start + k);
        }
        for ((coupling, &slots), &(i, j)) in
            couplings.iter_mut().zip(&self.slots).zip(&self.terms.pairs)
        {
            *coupling = 0.0;
            for (unit, slot) in [i, j].into_iter().zip(slots) {
                if slot != NOWHERE {
                    *coupling +=
                        self.engine.offset_grad(unit) - 2.0 * self.engine.grad(slot as usize);
                }
            }
        }
    }

    /// Returns Σ_i h_i s_mi, half the energy difference to the complement.
    pub(super) fn complement_margin(&self, fields: &[f64], m: usize) -> f64 {
        let mut margin: f64 = -fields.iter().sum::<f64>();
        for_each_set_bit(self.terms.samples.states().row(m), |i| {
            margin += 2.0 * fields[i];
        });
        margin
    }

    /// Returns the sum over flips of all units at once, and adds its gradient to that of the fields.
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
                    let (v, slope) = self.loss.value_and_slope(margin);
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

impl Accumulate for MarginSum<'_> {
    fn add(&mut self, tile: &Tile) {
        self.engine.turn_to(tile);
        self.value += self.engine.add(self.loss, self.terms.kernel.precision);
    }

    fn take(&mut self) -> Vec<f64> {
        let n = self.terms.units.len() + self.terms.pairs.len();
        let mut sum = vec![self.value; 1 + n];
        self.gradient(&mut sum[1..]);
        sum.extend(self.engine.shift_grads().as_flattened());
        self.value = 0.0;
        self.engine.clear();
        sum
    }
}

impl Objective for MarginSum<'_> {
    fn n_params(&self) -> usize {
        let potential = self.terms.potential.as_ref();
        let n_knots = potential.map_or(0, |p| p.n_knots());
        self.terms.units.len() + self.terms.pairs.len() + n_knots
    }

    fn value_and_gradient(&mut self, theta: &[f64], grad: &mut [f64]) -> f64 {
        if let Some(stream) = self.terms.stream {
            return self.sum_over(stream, theta, grad);
        }
        self.set_params(theta);
        let mut value = self.engine.evaluate(self.loss, self.terms.kernel.precision);
        self.gradient(grad);
        if let Some(potential) = &self.terms.potential {
            let knots = &mut grad[self.terms.units.len() + self.terms.pairs.len()..];
            let slopes = self.engine.shift_grads();
            value += potential.pull_back(&self.potential, slopes, knots);
        }
        if self.terms.complement {
            let d = self.terms.units.len();
            value += self.add_complement(&theta[..d], &mut grad[..d]);
        }
        value
    }

    fn set_rough(&mut self, rough: bool) -> bool {
        let rough = rough && self.engine.gains_by_single_precision();
        self.terms.kernel.precision = if rough {
            Precision::Single
        } else {
            Precision::Double
        };
        rough
    }
}
