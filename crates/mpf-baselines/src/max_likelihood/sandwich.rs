//! Standard errors of exact maximum likelihood.
//!
//! ```text
//! t = (s_i for every h_i, s_i s_j for every K_ij)
//! H = Cov_model(t),   V = Var(√M mean_m t(x_m)),   Cov θ̂ = H⁻¹ V H⁻¹ / M
//! ```
//!
//! Products of the entries of t are products of spins again, s_S s_T = s_{S △ T}, so that every
//! entry of H is a difference of moments ⟨Π_{i∈S} s_i⟩, and one Walsh-Hadamard transform of the
//! probabilities has them all.

use super::MaximumLikelihood;
use mpf_core::linalg::positive_definite_inverse;
use mpf_ising::internal::{n_blocks, part};
use mpf_ising::{Couplings, Error, ErrorBars, Exact, Fitter, Samples, States, Warning};
use ndarray::{Array1, Array2};

/// The entries of t that are free, and their means over the data.
struct Statistics<'a> {
    states: &'a States,
    /// Units with a free field.
    units: Vec<usize>,
    pairs: Vec<(usize, usize)>,
    /// The spins whose product each entry is, as bits: units first, then pairs.
    masks: Vec<usize>,
    means: Array1<f64>,
}

impl<'a> Statistics<'a> {
    fn new(states: &'a States, pairs: Vec<(usize, usize)>, units: Vec<usize>) -> Self {
        let fields = units.iter().map(|&i| 1usize << i);
        let masks: Vec<usize> = fields
            .chain(pairs.iter().map(|&(i, j)| 1 << i | 1 << j))
            .collect();
        let mut means = Array1::zeros(masks.len());
        for row in states.rows() {
            for (sum, &mask) in means.iter_mut().zip(&masks) {
                *sum += product(row, mask);
            }
        }
        means /= states.n_samples() as f64;
        Self {
            states,
            units,
            pairs,
            masks,
            means,
        }
    }

    /// Returns H⁻¹ at `couplings`, and the slope of the log-likelihood there.
    fn newton(&self, couplings: &Couplings) -> mpf_ising::Result<(Array2<f64>, Array1<f64>)> {
        let moments = spin_moments(Exact::new(couplings)?.probabilities());
        let (masks, p) = (&self.masks, self.masks.len());
        let hessian = Array2::from_shape_fn((p, p), |(a, b)| {
            moments[masks[a] ^ masks[b]] - moments[masks[a]] * moments[masks[b]]
        });
        let model: Array1<f64> = masks.iter().map(|&mask| moments[mask]).collect();
        let inverse = positive_definite_inverse(hessian.view()).map_err(|error| match error {
            mpf_core::Error::NotPositiveDefinite { pivot } => {
                let fields = self.units.iter().map(|&i| (i, i));
                let mut all = fields.chain(self.pairs.iter().copied());
                let (i, j) = all.nth(pivot).expect("one of the parameters");
                Error::Undetermined { i, j }
            }
            other => other.into(),
        })?;
        Ok((inverse, &self.means - &model))
    }

    /// Adds a step in (h, K) to `couplings`.
    fn moved(&self, couplings: &Couplings, step: &Array1<f64>) -> mpf_ising::Result<Couplings> {
        let mut spins = couplings.to_spins();
        for (&i, h) in self.units.iter().zip(step) {
            spins.fields[i] += h;
        }
        for (&(i, j), k) in self.pairs.iter().zip(step.iter().skip(self.units.len())) {
            spins.couplings[[i, j]] += k;
            spins.couplings[[j, i]] += k;
        }
        Couplings::from_spins(&spins)
    }

    /// Returns the roots of the summed squares of the influences of blocks.
    fn error_bars(&self, inverse: &Array2<f64>, n_blocks: usize) -> ErrorBars {
        let (d, n) = (self.states.n_units(), self.states.n_samples());
        let mut variances = Array1::zeros(self.masks.len());
        let mut bias_variances = vec![0.0; d];
        for block in 0..n_blocks {
            let samples = part(n, n_blocks, block);
            let mut sum = -(samples.len() as f64) * &self.means;
            for m in samples {
                for (sum, &mask) in sum.iter_mut().zip(&self.masks) {
                    *sum += product(self.states.row(m), mask);
                }
            }
            let influence = inverse.dot(&sum) / n as f64;
            variances += &(&influence * &influence);
            // J_ii = −2 h_i + 2 Σ_j K_ij.
            let mut biases = vec![0.0; d];
            for (&i, h) in self.units.iter().zip(&influence) {
                biases[i] -= 2.0 * h;
            }
            let couplings = influence.iter().skip(self.units.len());
            for (&(i, j), k) in self.pairs.iter().zip(couplings) {
                biases[i] += 2.0 * k;
                biases[j] += 2.0 * k;
            }
            for (variance, bias) in bias_variances.iter_mut().zip(biases) {
                *variance += bias * bias;
            }
        }
        // Blocks vary about a mean that they were made from.
        let correction = n_blocks as f64 / (n_blocks as f64 - 1.0);
        let variances = (correction * variances).to_vec();
        let (of_units, of_pairs) = variances.split_at(self.units.len());
        let (mut fields, mut biases) = (vec![f64::NAN; d], vec![f64::NAN; d]);
        for (&i, variance) in self.units.iter().zip(of_units) {
            fields[i] = *variance;
            biases[i] = correction * bias_variances[i];
        }
        ErrorBars::from_variances(&fields, &biases, &self.pairs, of_pairs)
    }
}

/// Returns Π_{i∈S} s_i of a state, S as bits.
fn product(row: &[u64], mask: usize) -> f64 {
    let down = (!row[0] as usize & mask).count_ones();
    if down.is_multiple_of(2) { 1.0 } else { -1.0 }
}

/// Returns the standard errors of `couplings`, a fit of `states`; with a penalty, those of the estimate
/// without it. Couplings that the data do not determine are held, and have no finite error.
pub(super) fn error_bars(
    fitter: &Fitter<MaximumLikelihood>,
    couplings: &Couplings,
    states: &States,
    block_length: usize,
) -> mpf_ising::Result<ErrorBars> {
    let n_blocks = n_blocks(states.n_samples(), block_length)?;
    let samples = Samples::new(states)?;
    let means = samples.means();
    let units: Vec<usize> = (0..means.len())
        .filter(|&i| means[i] > 0.0 && means[i] < 1.0)
        .collect();
    let mut pairs = fitter.options().support.pairs(means.len())?;
    pairs.retain(|(i, j)| units.contains(i) && units.contains(j));
    let statistics = |held: &[(usize, usize)]| {
        let free = pairs.iter().copied().filter(|pair| !held.contains(pair));
        Statistics::new(states, free.collect(), units.clone())
    };
    if fitter.options().l1 == 0.0 && fitter.options().l2 == 0.0 {
        let held = match Warning::separable_pairs(&samples, &pairs) {
            Some(Warning::SeparablePairs { pairs }) => pairs,
            _ => Vec::new(),
        };
        let statistics = statistics(&held);
        let mut bars = statistics.error_bars(&statistics.newton(couplings)?.0, n_blocks);
        bars.mark(held);
        return Ok(bars);
    }
    fitter.bars_without_penalty(couplings, &samples, |found| {
        let statistics = statistics(&found.undetermined);
        // L-BFGS ended near the maximum, and one Newton step ends there.
        let (inverse, slope) = statistics.newton(&found.couplings)?;
        let mut bars = statistics.error_bars(&inverse, n_blocks);
        bars.corrected = Some(statistics.moved(&found.couplings, &inverse.dot(&slope))?);
        Ok(bars)
    })
}

/// Returns ⟨Π_{i∈S} s_i⟩ for every set S of units, as bits, given the probability of every state.
fn spin_moments(mut probabilities: Vec<f64>) -> Vec<f64> {
    let mut half = 1;
    while half < probabilities.len() {
        for block in probabilities.chunks_exact_mut(2 * half) {
            let (down, up) = block.split_at_mut(half);
            for (down, up) in down.iter_mut().zip(up) {
                (*down, *up) = (*down + *up, *up - *down);
            }
        }
        half *= 2;
    }
    probabilities
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpf_core::{Objective, rng};
    use mpf_ising::{FitOptions, Support};
    use rand::RngExt;

    fn model(d: usize) -> Couplings {
        let mut rng = rng::stream(5, 0);
        let mut j = Array2::zeros((d, d));
        for i in 0..d {
            for k in 0..=i {
                j[[i, k]] = rng.random_range(-0.8..0.8);
                j[[k, i]] = j[[i, k]];
            }
        }
        Couplings::new(j).unwrap()
    }

    #[test]
    fn moments_are_sums_over_states() {
        let exact = Exact::new(&model(4)).unwrap();
        let probabilities = exact.probabilities();
        let moments = spin_moments(probabilities.clone());
        for (set, moment) in moments.iter().enumerate() {
            let sum: f64 = (0..16usize)
                .map(|x| {
                    let down = (!x & set).count_ones();
                    probabilities[x] * if down % 2 == 0 { 1.0 } else { -1.0 }
                })
                .sum();
            assert!((moment - sum).abs() < 1e-14);
        }
    }

    /// The spread of refits is what the formula says, for independent samples.
    #[test]
    fn errors_are_the_spread_of_refits() {
        let truth = model(3);
        let exact = Exact::new(&truth).unwrap();
        let options = FitOptions {
            l2: 0.1,
            ..Default::default()
        };
        let fitter = Fitter::new(MaximumLikelihood, options).unwrap();
        let (n, repeats) = (2000, 400);
        // The estimates that the intervals are centred on.
        let fits: Vec<Couplings> = (0..repeats)
            .map(|seed| {
                let states = exact.draw(n, 100 + seed);
                let samples = Samples::new(&states).unwrap();
                let fit = fitter.fit(&samples).unwrap().couplings;
                let bars = error_bars(&fitter, &fit, &states, 1).unwrap();
                bars.corrected.unwrap()
            })
            .collect();
        let states = exact.draw(n, 1);
        let fit = fitter.fit(&Samples::new(&states).unwrap()).unwrap();
        let bars = error_bars(&fitter, &fit.couplings, &states, 1).unwrap();
        let expected = bars.of_couplings();
        for i in 0..3 {
            for j in 0..=i {
                let values: Vec<f64> = fits.iter().map(|f| f.get(i, j)).collect();
                let mean = values.iter().sum::<f64>() / repeats as f64;
                // They are not shrunken: their mean is off by its own error of ½/√400 at most, but
                // for a bias of order 1/n.
                let off = (mean - truth.get(i, j)) / expected[[i, j]];
                assert!(off.abs() < 0.25, "J[{i}, {j}]: {off}");
                let variance =
                    values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (repeats as f64 - 1.0);
                let ratio = variance.sqrt() / expected[[i, j]];
                // The spread of 400 values is known to 1/√800 = 3.5 %, the formula at one fit to
                // about as much.
                assert!((ratio - 1.0).abs() < 0.2, "J[{i}, {j}]: {ratio}");
            }
        }
    }

    /// Two rarely active units, often active together: the closed form of a saturated model.
    #[test]
    fn a_penalty_on_rarely_active_units_is_taken_back() {
        let counts = [19_100, 300, 300, 300];
        let mut states = States::new(2).unwrap();
        for (state, &n) in counts.iter().enumerate() {
            (0..n).for_each(|_| states.push(&[state as u64]));
        }
        let [n00, n10, n01, n11] = counts.map(f64::from);
        let k = 0.25 * (n11 * n00 / (n10 * n01)).ln();
        let error = 0.25
            * counts
                .iter()
                .map(|&n| 1.0 / f64::from(n))
                .sum::<f64>()
                .sqrt();
        for (l1, l2) in [(0.05, 0.0), (0.0, 0.2), (0.0, 0.0)] {
            let options = FitOptions {
                l1,
                l2,
                ..Default::default()
            };
            let fitter = Fitter::new(MaximumLikelihood, options).unwrap();
            let fit = fitter.fit(&Samples::new(&states).unwrap()).unwrap();
            let bars = error_bars(&fitter, &fit.couplings, &states, 1).unwrap();
            let at = bars.corrected.unwrap_or(fit.couplings).to_spins();
            // L-BFGS stops at gradients of 1e-6, where curvatures are about .01.
            assert!((at.couplings[[0, 1]] - k).abs() < 1e-3);
            assert!((bars.couplings[0][1] / error - 1.0).abs() < 0.01);
        }
    }

    /// One unit is what most of three others are: the maximum is at infinity in its couplings.
    #[test]
    fn couplings_that_run_away_are_marked() {
        let mut states = States::new(5).unwrap();
        for sample in 0..320u64 {
            let others = sample & 0b10111;
            let majority = u64::from((others & 0b111).count_ones() >= 2);
            states.push(&[others | majority << 3]);
        }
        let options = FitOptions {
            l2: 0.2,
            ..Default::default()
        };
        let fitter = Fitter::new(MaximumLikelihood, options).unwrap();
        let fit = fitter.fit(&Samples::new(&states).unwrap()).unwrap();
        let bars = error_bars(&fitter, &fit.couplings, &states, 1).unwrap();
        assert!((0..3).any(|i| bars.couplings[i][3] == f64::INFINITY));
        assert!((0..3).all(|i| bars.couplings[i][4] < 0.1));
    }

    /// With V = H, and no penalty, errors are those of the inverse Hessian, taken here by
    /// differences of the gradient.
    #[test]
    fn the_hessian_is_the_derivative_of_the_gradient() {
        let states = Exact::new(&model(3)).unwrap().draw(50, 2);
        let samples = Samples::new(&states).unwrap();
        let pairs = Support::Full.pairs(3).unwrap();
        let mut objective = crate::NegativeLogLikelihood::new(&samples, pairs).unwrap();
        let spins = model(3).to_spins();
        let theta: Vec<f64> = (0..3)
            .map(|i| spins.fields[i])
            .chain([(0, 1), (0, 2), (1, 2)].map(|p| spins.couplings[p]))
            .collect();
        let moments = spin_moments(Exact::new(&model(3)).unwrap().probabilities());
        let masks = [1usize, 2, 4, 3, 5, 6];
        for a in 0..6 {
            let step = 1e-5;
            let (mut up, mut down) = (theta.clone(), theta.clone());
            up[a] += step;
            down[a] -= step;
            let (mut gu, mut gd) = ([0.0; 6], [0.0; 6]);
            objective.value_and_gradient(&up, &mut gu);
            objective.value_and_gradient(&down, &mut gd);
            for b in 0..6 {
                let h = moments[masks[a] ^ masks[b]] - moments[masks[a]] * moments[masks[b]];
                // Second-order differences err by step², rounding by 1e-16/step.
                assert!(((gu[b] - gd[b]) / (2.0 * step) - h).abs() < 1e-8);
            }
        }
    }
}
