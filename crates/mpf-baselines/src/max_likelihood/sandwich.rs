//! Standard errors of exact maximum likelihood.
//!
//! ```text
//! t = (s_i for every h_i, s_i s_j for every K_ij)
//! H = Cov_model(t) [+ ridge],   V = Var(√M mean_m t(x_m)),   Cov θ̂ = H⁻¹ V H⁻¹ / M
//! ```
//!
//! Products of the entries of t are products of spins again, s_S s_T = s_{S △ T}, so that every
//! entry of H is a difference of moments ⟨Π_{i∈S} s_i⟩, and one Walsh-Hadamard transform of the
//! probabilities has them all.

use crate::Result;
use mpf_core::linalg::positive_definite_inverse;
use mpf_ising::internal::{n_blocks, part};
use mpf_ising::{Couplings, ErrorBars, Exact, FitOptions, States};
use ndarray::{Array1, Array2};

/// Returns the standard errors of `couplings`, a fit of `states` with these options.
pub(super) fn error_bars(
    couplings: &Couplings,
    states: &States,
    block_length: usize,
    options: &FitOptions,
) -> Result<ErrorBars> {
    let (d, n) = (states.n_units(), states.n_samples());
    let n_blocks = n_blocks(n, block_length)?;
    let exact = Exact::new(couplings)?;
    let mut varies = vec![0usize; 2];
    for row in states.rows() {
        varies[0] |= row[0] as usize;
        varies[1] |= !row[0] as usize;
    }
    let varies = |unit: usize| varies.iter().all(|seen| seen >> unit & 1 == 1);
    let mut pairs = options.support.pairs(d)?;
    pairs.retain(|&(i, j)| {
        let present = options.l1 == 0.0 || couplings.get(i, j) != 0.0;
        present && varies(i) && varies(j)
    });
    let free: Vec<usize> = (0..d).filter(|&i| varies(i)).collect();
    // The spins whose product each entry of t is, as bits.
    let fields = free.iter().map(|&i| 1usize << i);
    let masks: Vec<usize> = fields
        .chain(pairs.iter().map(|&(i, j)| 1 << i | 1 << j))
        .collect();
    let moments = spin_moments(exact.probabilities());
    let p = masks.len();
    let hessian = Array2::from_shape_fn((p, p), |(a, b)| {
        let ridge = if a == b && a >= free.len() {
            options.l2
        } else {
            0.0
        };
        moments[masks[a] ^ masks[b]] - moments[masks[a]] * moments[masks[b]] + ridge
    });
    let inverse = positive_definite_inverse(hessian.view())?;
    // The sum over samples of t − ⟨t⟩ of the fit, whose mean is the slope of the penalty.
    let sign = |row: &[u64], mask: usize| {
        let down = (!row[0] as usize & mask).count_ones();
        if down.is_multiple_of(2) { 1.0 } else { -1.0 }
    };
    let mut mean = Array1::zeros(p);
    for row in states.rows() {
        for (sum, &mask) in mean.iter_mut().zip(&masks) {
            *sum += sign(row, mask) / n as f64;
        }
    }
    let mut variances = Array1::zeros(p);
    let mut bias_variances = vec![0.0; d];
    for block in 0..n_blocks {
        let samples = part(n, n_blocks, block);
        let mut sum = -(samples.len() as f64) * &mean;
        for m in samples {
            for (sum, &mask) in sum.iter_mut().zip(&masks) {
                *sum += sign(states.row(m), mask);
            }
        }
        let influence = inverse.dot(&sum) / n as f64;
        variances += &(&influence * &influence);
        // J_ii = −2 h_i + 2 Σ_j K_ij.
        let mut biases = vec![0.0; d];
        for (&i, h) in free.iter().zip(&influence) {
            biases[i] -= 2.0 * h;
        }
        for (&(i, j), k) in pairs.iter().zip(influence.iter().skip(free.len())) {
            biases[i] += 2.0 * k;
            biases[j] += 2.0 * k;
        }
        for (variance, bias) in bias_variances.iter_mut().zip(biases) {
            *variance += bias * bias;
        }
    }
    // Blocks vary about a mean that they were made from.
    let correction = n_blocks as f64 / (n_blocks as f64 - 1.0);
    let error = |variance: f64| (correction * variance).sqrt();
    let mut bars = ErrorBars {
        fields: vec![f64::NAN; d],
        biases: vec![f64::NAN; d],
        couplings: vec![vec![f64::NAN; d]; d],
    };
    for (&i, variance) in free.iter().zip(&variances) {
        bars.fields[i] = error(*variance);
        bars.biases[i] = error(bias_variances[i]);
    }
    for (&(i, j), variance) in pairs.iter().zip(variances.iter().skip(free.len())) {
        bars.couplings[i][j] = error(*variance);
        bars.couplings[j][i] = error(*variance);
    }
    Ok(bars)
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
    use crate::MaximumLikelihood;
    use mpf_core::{Objective, rng};
    use mpf_ising::{Fitter, Samples, Support};
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
        for set in 0..16usize {
            let sum: f64 = (0..16usize)
                .map(|x| {
                    let down = (!x & set).count_ones();
                    probabilities[x] * if down % 2 == 0 { 1.0 } else { -1.0 }
                })
                .sum();
            assert!((moments[set] - sum).abs() < 1e-14);
        }
    }

    /// The spread of refits is what the formula says, for independent samples.
    #[test]
    fn errors_are_the_spread_of_refits() {
        let truth = model(3);
        let exact = Exact::new(&truth).unwrap();
        let options = FitOptions {
            l2: 0.01,
            ..Default::default()
        };
        let fitter = Fitter::new(MaximumLikelihood, options.clone()).unwrap();
        let (n, repeats) = (2000, 400);
        let fits: Vec<Couplings> = (0..repeats)
            .map(|seed| {
                let states = exact.draw(n, 100 + seed);
                let samples = Samples::new(&states).unwrap();
                fitter.fit(&samples).unwrap().couplings
            })
            .collect();
        let states = exact.draw(n, 1);
        let fit = fitter.fit(&Samples::new(&states).unwrap()).unwrap();
        let bars = error_bars(&fit.couplings, &states, 1, &options).unwrap();
        let expected = bars.of_couplings();
        for i in 0..3 {
            for j in 0..=i {
                let values: Vec<f64> = fits.iter().map(|f| f.get(i, j)).collect();
                let mean = values.iter().sum::<f64>() / repeats as f64;
                let variance =
                    values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (repeats as f64 - 1.0);
                let ratio = variance.sqrt() / expected[[i, j]];
                // The spread of 400 values is known to 1/√800 = 3.5 %, the formula at one fit to
                // about as much.
                assert!((ratio - 1.0).abs() < 0.2, "J[{i}, {j}]: {ratio}");
            }
        }
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
