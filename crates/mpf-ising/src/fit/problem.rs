//! One data set with the parameters that are free on it, and the joint fit.

use super::{AnyFitter, Fit, FitOptions, FitProgress, Mode, Observer};
use crate::Result;
use crate::basis::{Basis, Field, Standardized};
use crate::couplings::{Couplings, SpinCouplings, check_square};
use crate::error::{Error, check_units};
use crate::flow::{Neighbourhood, Terms, all_pairs, check_count, flip_mask};
use crate::kernel::FlipMask;
use crate::potential::CountKnots;
use crate::stream::Data;
use crate::support::{Biases, Support};
use crate::warning::Warning;
use mpf_core::{Minimizer, Minimum, Objective, Ridge};
use std::ops::Range;
use std::sync::Arc;

/// Flips to leave out because an entry is unknown, and the means of the known entries.
pub(crate) struct Masked {
    pub(crate) mask: Arc<FlipMask>,
    pub(crate) means: Vec<f64>,
}

/// One data set with the parameters that are free on it.
pub(super) struct Problem<'a> {
    fitter: AnyFitter<'a>,
    pub(super) data: Data<'a>,
    all_known: bool,
    pub(super) mask: Option<Arc<FlipMask>>,
    pub(super) left_out_fraction: f64,
    start: Option<SpinCouplings>,
    pub(super) means: Vec<f64>,
    constant: Vec<bool>,
    pub(super) pairs: Vec<(usize, usize)>,
    potential: Option<Arc<CountKnots>>,
    /// The sorted pairs that have penalties, if not all have.
    penalised: Option<Vec<(usize, usize)>>,
}

impl<'a> Problem<'a> {
    pub(super) fn new(
        fitter: AnyFitter<'a>,
        data: Data<'a>,
        masked: Option<Masked>,
    ) -> Result<Self> {
        let options = fitter.options;
        let d = data.n_units();
        fitter.estimator.check_units(d)?;
        options.biases.check(d)?;
        if let Some(start) = &options.start {
            check_units("starting couplings", d, start.n_units())?;
        }
        let all_known = masked.is_none();
        let (means, unknown) = match masked {
            None => (data.means(), None),
            Some(masked) => (masked.means, Some(masked.mask)),
        };
        let constant: Vec<bool> = means.iter().map(|m| *m <= 0.0 || *m >= 1.0).collect();
        // Ask for the memory of the result before the work, not after it.
        check_square(d)?;
        let mut pairs = free_pairs(options, d)?;
        pairs.retain(|&(i, j)| !constant[i] && !constant[j]);
        if data.stream().is_some() {
            fitter.check_streamed()?;
        }
        let (mask, left_out_fraction) =
            flip_mask(data.samples(), fitter.estimator.neighbourhood())?;
        if options.mode == Mode::NodeWise
            && let Some(unit) = mask.as_ref().and_then(|mask| mask.first_without_flips(d))
        {
            return Err(Error::NoFlipsLeftOfUnit { unit });
        }
        let potential = match options.potential {
            Some(_) if !all_known => {
                return Err(Error::NotOffered {
                    method: "a K-pairwise model",
                    option: "data with unknown entries",
                    reason: "the number of active units is not known either",
                });
            }
            Some(potential) => {
                // J takes what it can express.
                let gauge = match &options.biases {
                    Biases::Free if pairs.len() == all_pairs(d) => 3,
                    Biases::Free if constant.iter().all(|c| !c) => 2,
                    _ => 1,
                };
                Some(Arc::new(CountKnots::new(data, potential, gauge)?))
            }
            None => None,
        };
        let penalised = match fitter.penalised {
            Support::Full => None,
            some => Some(some.pairs(d)?),
        };
        Ok(Self {
            potential,
            penalised,
            fitter,
            data,
            all_known,
            mask: unknown.or(mask),
            left_out_fraction,
            start: options.start.as_ref().map(Couplings::to_spins),
            means,
            constant,
            pairs,
        })
    }

    pub(super) fn options(&self) -> &FitOptions {
        self.fitter.options
    }

    pub(super) fn has_free_parameters(&self) -> bool {
        let mut fields = (0..self.data.n_units()).map(|i| self.field(i));
        !self.pairs.is_empty() || fields.any(|field| matches!(field, Field::Free { .. }))
    }

    pub(super) fn field(&self, unit: usize) -> Field {
        let mean = self.means[unit];
        match &self.options().biases {
            Biases::Fixed(biases) => Field::FixedBias(biases[unit]),
            Biases::FixedFields(fields) => Field::Fixed(fields[unit]),
            Biases::Free if self.constant[unit] => {
                let n = self.data.n_effective();
                let odds = (mean * n + 0.5) / ((1.0 - mean) * n + 0.5);
                // J_ii = −ln odds and no couplings: h = −J_ii/2.
                Field::Fixed(0.5 * odds.min(f64::MAX).ln())
            }
            Biases::Free => Field::free(mean, self.field_ridge()),
        }
    }

    /// Returns λ₂ on ½ h².
    fn field_ridge(&self) -> f64 {
        let options = self.options();
        if options.l2_on_fields {
            options.l2
        } else {
            0.0
        }
    }

    /// Returns `penalty` for the `pairs` that have penalties, 0 for others.
    fn on_penalised<'p>(
        &'p self,
        pairs: &'p [(usize, usize)],
        penalty: f64,
    ) -> impl Iterator<Item = f64> + 'p {
        pairs.iter().map(move |pair| match &self.penalised {
            Some(penalised) if penalised.binary_search(pair).is_err() => 0.0,
            _ => penalty,
        })
    }

    /// Returns the coordinates of (h of `units`, K of `pairs`); `share` as in
    /// [`minimize`](Self::minimize).
    pub(super) fn basis(&self, units: Range<usize>, pairs: &[(usize, usize)], share: f64) -> Basis {
        let ridges = self.on_penalised(pairs, share * self.options().l2);
        let basis = Basis::new(units, pairs, &self.means, ridges, |i| self.field(i));
        match &self.potential {
            None => basis,
            Some(potential) => {
                let scales = potential.scales(self.data.n_units());
                basis.with_potential(scales, potential.null_space())
            }
        }
    }

    /// Minimises the sum over flips of `units` with the couplings of `pairs` free. `share` is the
    /// part of the coupling penalties that these units carry. Returns (h, K) and the minimum.
    pub(super) fn minimize(
        &self,
        units: Range<usize>,
        pairs: Vec<(usize, usize)>,
        share: f64,
        minimizer: &Minimizer,
        mut observer: impl FnMut(&mpf_core::Progress<'_>, &Basis),
    ) -> Result<(Vec<f64>, Minimum)> {
        let basis = self.basis(units.clone(), &pairs, share);
        let n_spin_params = units.len() + pairs.len() + self.n_knots();
        let start = match &self.start {
            None => vec![0.0; basis.n_params()],
            Some(start) => {
                let earlier = self.options().start.as_ref().and_then(Couplings::potential);
                basis.coordinates(&self.spin_params(start, earlier, &units, &pairs))
            }
        };
        let lambda = basis.l1_weights(self.on_penalised(&pairs, share * self.options().l1));
        let penalised = self.penalised(units, pairs, share, &basis)?;
        let mut objective = Standardized::new(penalised, &basis);
        let observer = |progress: &mpf_core::Progress<'_>| observer(progress, &basis);
        let minimum = minimizer.minimize_l1(&mut objective, &start, &lambda, observer)?;
        let mut spins = vec![0.0; n_spin_params];
        basis.to_spins(&minimum.theta, &mut spins);
        Ok((spins, minimum))
    }

    /// Returns the objective with its smooth penalty, over (h of `units`, K of `pairs`).
    pub(super) fn penalised<'s>(
        &'s self,
        units: Range<usize>,
        pairs: Vec<(usize, usize)>,
        share: f64,
        basis: &Basis,
    ) -> Result<Ridge<Box<dyn Objective + 's>>> {
        let options = self.options();
        let field_ridge = self.field_ridge();
        let ridge = basis
            .free_fields()
            .map(|free| if free { field_ridge } else { 0.0 })
            .chain(self.on_penalised(&pairs, share * options.l2))
            .chain(std::iter::repeat_n(0.0, self.n_knots()))
            .collect();
        let estimator = self.fitter.estimator;
        let mut terms = Terms::of(self.data, units, pairs);
        terms.mask.clone_from(&self.mask);
        terms.complement = estimator.neighbourhood() == Neighbourhood::SingleFlipsAndComplement;
        terms.potential.clone_from(&self.potential);
        // Node by node, the units run in parallel already.
        terms.kernel.serial = options.mode == Mode::NodeWise;
        let objective = estimator.objective(terms);
        Ok(Ridge::new(objective, ridge)?)
    }

    pub(super) fn fit_jointly(&self, observer: Observer<'_>) -> Result<Fit> {
        let d = self.data.n_units();
        let assemble = |spins: &[f64]| self.couplings(&spins[..d], &spins[d..]);
        let (spins, minimum) = self.minimize(
            0..d,
            self.pairs.clone(),
            1.0,
            &Minimizer::new(self.options().minimizer.clone())?,
            |progress, basis| {
                let (fields, couplings) = basis.sums(progress.theta);
                if !are_couplings(fields, couplings) {
                    return;
                }
                let couplings = || {
                    let mut spins = vec![0.0; d + self.pairs.len() + self.n_knots()];
                    basis.to_spins(progress.theta, &mut spins);
                    assemble(&spins).expect("small enough, as was just checked")
                };
                observer(&FitProgress::new(progress.point, &couplings));
            },
        )?;
        let (value, seconds) = (minimum.value, minimum.seconds);
        Ok(Fit {
            stop: minimum.stop,
            kkt_residual: minimum.kkt_residual,
            iterations: minimum.iterations,
            evaluations: minimum.evaluations,
            single_precision_evaluations: minimum.rough_evaluations,
            trace: minimum.trace,
            ..Fit::closed_form(assemble(&spins)?, value, seconds, Vec::new())
        })
    }

    /// Returns the spin parameters of a model, with V at the knots; 0 if it has none.
    pub(super) fn spin_params(
        &self,
        spins: &SpinCouplings,
        potential: Option<&[f64]>,
        units: &Range<usize>,
        pairs: &[(usize, usize)],
    ) -> Vec<f64> {
        let mut params = spin_params(spins, units, pairs);
        let n = params.len() + self.n_knots();
        if let (Some(knots), Some(potential)) = (&self.potential, potential) {
            let values: Vec<f64> = knots.values(potential).collect();
            // V(n) = b n + c n² is J_ii + b and J_ij + c: h = −½ Σ_j J_ij and K = −J/2.
            let [_, b, c] = knots.polynomial(&values);
            let (fields, couplings) = params.split_at_mut(units.len());
            fields
                .iter_mut()
                .for_each(|h| *h -= 0.5 * (b + c * self.data.n_units() as f64));
            couplings.iter_mut().for_each(|k| *k -= 0.5 * c);
            params.extend(values);
        }
        params.resize(n, 0.0);
        params
    }

    pub(super) fn n_knots(&self) -> usize {
        self.potential.as_ref().map_or(0, |p| p.n_knots())
    }

    /// Returns J, given the fields of all units and the couplings of the free pairs.
    pub(super) fn couplings(&self, fields: &[f64], couplings: &[f64]) -> Result<Couplings> {
        let (couplings, knots) = couplings.split_at(self.pairs.len());
        let pairwise = SpinCouplings::of_pairs(fields, &self.pairs, couplings);
        let pairwise = Couplings::from_spins(&pairwise)?;
        match &self.potential {
            None => Ok(pairwise),
            Some(potential) => {
                let cancel = &self.options().minimizer.cancel;
                potential.complete(&pairwise, knots, self.data, cancel)
            }
        }
    }

    pub(super) fn warnings(&self, fit: &Fit) -> Vec<Warning> {
        let options = self.options();
        let penalised = options.l1 > 0.0 || options.l2 > 0.0;
        let mut warnings = Vec::new();
        warnings.extend(Warning::constant_units(&self.means));
        warnings.extend(Warning::left_out(fit.left_out_fraction));
        // A stream does not count the pairs: what runs away is found below.
        if let Data::Samples(samples) = self.data
            && !penalised
            && self.all_known
        {
            warnings.extend(Warning::separable_pairs(samples, &self.pairs));
        }
        warnings.extend(Warning::run_away(
            &fit.couplings,
            &self.pairs,
            self.data.n_effective(),
        ));
        warnings.extend(self.potential.as_ref().and_then(|p| p.warning()));
        warnings.extend(Warning::not_converged(fit.stop, fit.kkt_residual));
        warnings
    }
}

/// Returns the pairs of the support after checking that one objective can number them.
fn free_pairs(options: &FitOptions, d: usize) -> Result<Vec<(usize, usize)>> {
    let units = match options.mode {
        Mode::Joint => d,
        Mode::NodeWise => 1,
    };
    let at_most = |n_couplings: usize| match options.mode {
        Mode::Joint => n_couplings,
        Mode::NodeWise => n_couplings.min(d),
    };
    check_count(units, d, at_most(options.support.most_pairs(d)))?;
    options.support.pairs(d)
}

/// Returns whether h and K with these Σ_i |h_i| and Σ_{i<j} |K_ij| are small enough for
/// [`Couplings`].
pub(super) fn are_couplings(fields: f64, couplings: f64) -> bool {
    // Σ_ij |J_ij| ≤ 8 Σ_{i<j} |K_ij| + 2 Σ_i |h_i|, and twice that must not overflow; another
    // factor of two is for rounding.
    (32.0 * couplings + 8.0 * fields).is_finite()
}

/// Returns θ = (h of `units`, K of `pairs`).
pub(super) fn spin_params(
    spins: &SpinCouplings,
    units: &Range<usize>,
    pairs: &[(usize, usize)],
) -> Vec<f64> {
    let fields = units.clone().map(|i| spins.fields[i]);
    let couplings = pairs.iter().map(|&pair| spins.couplings[pair]);
    fields.chain(couplings).collect()
}

/// Returns those of the sorted `pairs` that have `unit` as an end, in their order. O(d ln n), and O(d) if
/// all pairs are there: the place of the next one is then known.
pub(super) fn pairs_of(pairs: &[(usize, usize)], unit: usize) -> Vec<(usize, usize)> {
    let (before, after) = pairs.split_at(pairs.partition_point(|pair| *pair < (unit, 0)));
    // The place of the last pair, and how far it was from the one before.
    let (mut last, mut stride) = (0, 0);
    let is_free = |pair: &(usize, usize)| {
        // A row of all pairs is shorter by one than the row before it.
        let next = last + stride.max(1) - 1;
        let found = match before.get(next) == Some(pair) {
            true => Ok(next),
            false => before.binary_search(pair),
        };
        if let Ok(place) = found {
            (last, stride) = (place, place - last);
        }
        found.is_ok()
    };
    let second = (0..unit).map(|i| (i, unit)).filter(is_free);
    let first = after.iter().copied().take_while(|pair| pair.0 == unit);
    let mut found: Vec<_> = second.collect();
    found.extend(first);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pairs_of_a_unit_are_all_that_touch_it() {
        let pairs = [(0, 1), (0, 3), (1, 2), (1, 3), (2, 3), (3, 5)];
        assert_eq!(pairs_of(&pairs, 3), [(0, 3), (1, 3), (2, 3), (3, 5)]);
        assert_eq!(pairs_of(&pairs, 1), [(0, 1), (1, 2), (1, 3)]);
        assert_eq!(pairs_of(&pairs, 0), [(0, 1), (0, 3)]);
        assert!(pairs_of(&pairs, 4).is_empty());
        let all: Vec<_> = crate::support::pairs(9).collect();
        for unit in 0..9 {
            let plainly = all.iter().filter(|(i, j)| *i == unit || *j == unit);
            assert!(pairs_of(&all, unit).iter().eq(plainly));
        }
    }
}
