//! An estimator's objective and its slopes at given couplings.

use super::problem::{Problem, pairs_of, spin_params};
use super::{AnyFitter, Estimator, Fitter, Mode};
use crate::Result;
use crate::basis::Standardized;
use crate::couplings::Couplings;
use crate::error::{Error, check_units};
use crate::flow::{Neighbourhood, Terms, check_count, flip_mask};
use crate::potential::CountKnots;
use crate::stream::{Data, Stream};
use crate::support::pairs;
use mpf_core::{Objective, StopReason};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

impl<E: Estimator> Fitter<E> {
    /// Returns the objective of `couplings` on `samples` without penalties; the samples need not be
    /// those of a fit. Node by node it is the sum over the rows. +∞ on overflow, which strong
    /// couplings can cause; never NaN.
    ///
    /// # Errors
    /// [`Error::UnitCount`] when model and data differ in size, [`Error::NoFlipsLeft`],
    /// [`Error::TooManyCouplings`].
    pub fn objective_value<'a>(
        &self,
        couplings: &Couplings,
        data: impl Into<Data<'a>>,
    ) -> Result<f64> {
        self.any().objective_value(couplings, data.into())
    }

    /// Returns |∂F/∂K_ij| of every free coupling at `couplings`, in units of λ₁: a coupling that is
    /// zero stays zero while its slope is at most λ₁. Pairs (i, j), i < j, are sorted; those of
    /// constant units are not free.
    ///
    /// # Errors
    /// As [`Fitter::fit`]; [`Error::UnitCount`] when model and data differ in size;
    /// [`Error::NotFiniteObjective`] if the objective or a slope overflows; [`mpf_core::Error::Cancelled`] in a
    /// node-wise fit. Its units that the time limit leaves out have slopes of zero.
    pub fn coupling_slopes<'a>(
        &self,
        couplings: &Couplings,
        data: impl Into<Data<'a>>,
    ) -> Result<Vec<((usize, usize), f64)>> {
        self.any().coupling_slopes(couplings, data.into())
    }
}

impl AnyFitter<'_> {
    fn objective_value(self, couplings: &Couplings, data: Data<'_>) -> Result<f64> {
        let d = data.n_units();
        check_units("couplings", d, couplings.n_units())?;
        if data.stream().is_some() {
            self.check_streamed()?;
        }
        let (mask, _) = flip_mask(data.samples(), self.estimator.neighbourhood())?;
        let spins = couplings.to_spins();
        // Pairs without a coupling add nothing to the margins: a sparse model is cheap.
        let coupled: Vec<(usize, usize)> = pairs(d)
            .filter(|&pair| spins.couplings[pair] != 0.0)
            .collect();
        let by_node = self.options.mode == Mode::NodeWise;
        if by_node && couplings.potential().is_some() {
            return Err(Error::NotOffered {
                method: "a K-pairwise model",
                option: "node-wise objectives",
                reason: "V belongs to all units",
            });
        }
        if !by_node {
            check_count(d, d, coupled.len())?;
        }
        let potential = couplings.potential();
        let knots = potential.map(|_| Arc::new(CountKnots::all(d)));
        let value = |units: Range<usize>, pairs: Vec<(usize, usize)>| {
            let mut theta = spin_params(&spins, &units, &pairs);
            theta.extend(potential.unwrap_or(&[]));
            let mut terms = Terms::of(data, units, pairs);
            terms.mask.clone_from(&mask);
            terms.complement =
                self.estimator.neighbourhood() == Neighbourhood::SingleFlipsAndComplement;
            terms.potential.clone_from(&knots);
            terms.kernel.serial = by_node;
            let mut objective = self.estimator.objective(terms);
            objective.value_and_gradient(&theta, &mut vec![0.0; theta.len()])
        };
        if by_node {
            let rows: Vec<f64> = (0..d)
                .into_par_iter()
                .map(|unit| value(unit..unit + 1, pairs_of(&coupled, unit)))
                .collect();
            Ok(rows.iter().sum())
        } else {
            let value = value(0..d, coupled);
            data.stream().map_or(Ok(()), Stream::check)?;
            Ok(value)
        }
    }

    fn coupling_slopes(
        self,
        couplings: &Couplings,
        data: Data<'_>,
    ) -> Result<Vec<((usize, usize), f64)>> {
        let d = data.n_units();
        check_units("couplings", d, couplings.n_units())?;
        let problem = Problem::new(self, data, None)?;
        let spins = couplings.to_spins();
        let slopes = |units: Range<usize>, pairs: &[(usize, usize)], share: f64| {
            let basis = problem.basis(units.clone(), pairs, share);
            let params = problem.spin_params(&spins, couplings.potential(), &units, pairs);
            let theta = basis.coordinates(&params);
            let penalised = problem.penalised(units, pairs.to_vec(), share, &basis)?;
            let mut grad = vec![0.0; theta.len()];
            let value = Standardized::new(penalised, &basis).value_and_gradient(&theta, &mut grad);
            let weights = basis.l1_weights(pairs.iter().map(|_| share));
            let last = theta.len() - problem.n_knots();
            let slopes: Vec<f64> = (last - pairs.len()..last)
                .map(|k| grad[k].abs() / weights[k])
                .collect();
            match [value].iter().chain(&slopes).find(|v| !v.is_finite()) {
                None => Ok(slopes),
                Some(&value) => Err(Error::NotFiniteObjective { value }),
            }
        };
        match self.options.mode {
            Mode::Joint => {
                let slopes = slopes(0..d, &problem.pairs, 1.0);
                data.stream().map_or(Ok(()), Stream::check)?;
                let slopes: Vec<f64> = slopes?;
                Ok(problem.pairs.iter().copied().zip(slopes).collect())
            }
            Mode::NodeWise => {
                // A coupling differs from zero as soon as one of its rows says so.
                let rows = (0..d)
                    .into_par_iter()
                    .map(|unit| {
                        if self.options.minimizer.cancel.reason() == Some(StopReason::TimeLimit) {
                            return Ok(Vec::new());
                        }
                        self.options.minimizer.cancel.check()?;
                        slopes(unit..unit + 1, &pairs_of(&problem.pairs, unit), 0.5)
                    })
                    .collect::<Result<Vec<Vec<f64>>>>()?;
                // Each row lists its pairs in the order of the sorted pairs.
                let mut taken = vec![0; d];
                let mut next = |unit: usize| {
                    taken[unit] += 1;
                    rows[unit].get(taken[unit] - 1).copied().unwrap_or(0.0)
                };
                Ok(problem
                    .pairs
                    .iter()
                    .map(|&(i, j)| ((i, j), next(i).max(next(j))))
                    .collect())
            }
        }
    }
}
