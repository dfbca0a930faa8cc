//! Steps in centred couplings, for learning by samples.
//!
//! ```text
//! −E = Σ h̃_i(a) x_ia + Σ_{i<j} J_ij(a, b) (x_ia − f_ia) (x_jb − f_jb)      h = h̃ − Σ_j Σ_b J_ij(·, b) f_jb
//! ```
//!
//! x_ia says whether site i has letter a, f_ia how often it has. A coupling J_ij(a, b) changes the
//! frequencies of its letters; with h̃ held it does not, so that fields and couplings can be learned
//! at once. Each step is divided by the variance that its parameter would have in independent sites.

use crate::sequences::Sequences;
use mpf_ising::internal::pairs;

/// Added to variances, so that rare letters, whose slopes are mostly noise, make small steps.
const FLOOR: f64 = 0.02;

/// Turns slopes into directions of steps.
#[derive(Clone, Debug)]
pub struct CentredSteps {
    n_states: usize,
    /// f_ia by site and letter.
    frequencies: Vec<f64>,
}

impl CentredSteps {
    /// Takes the frequencies of the letters of `sequences`.
    pub fn new(sequences: &Sequences) -> Self {
        Self {
            n_states: sequences.n_states(),
            frequencies: sequences.frequencies(),
        }
    }

    /// Replaces ∂F/∂(h, J) by the direction in which to go down.
    ///
    /// # Panics
    /// If `slope` has another number of parameters.
    pub fn apply(&self, slope: &mut [f64]) {
        let (f, q) = (&self.frequencies, self.n_states);
        let n = f.len() / q;
        let (fields, couplings) = slope.split_at_mut(n * q);
        assert_eq!(couplings.len(), n * (n - 1) / 2 * q * q);
        let variances: Vec<f64> = f.iter().map(|f| f * (1.0 - f)).collect();
        let mut shifts = vec![0.0; n * q];
        for ((i, j), block) in pairs(n).zip(couplings.chunks_exact_mut(q * q)) {
            for (k, slope) in block.iter_mut().enumerate() {
                let (a, b) = (i * q + k / q, j * q + k % q);
                let centred = *slope - f[b] * fields[a] - f[a] * fields[b];
                *slope = centred / (variances[a] * variances[b] + FLOOR);
                shifts[a] += f[b] * *slope;
                shifts[b] += f[a] * *slope;
            }
        }
        for ((field, variance), shift) in fields.iter_mut().zip(&variances).zip(shifts) {
            *field = *field / (variance + FLOOR) - shift;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes h and J from h̃ and J, as the formula above says.
    fn uncentred(f: &[f64], n: usize, q: usize, centred: &[f64]) -> Vec<f64> {
        let mut theta = centred.to_vec();
        for (k, (i, j)) in pairs(n).enumerate() {
            for a in 0..q {
                for b in 0..q {
                    let coupling = centred[n * q + (k * q + a) * q + b];
                    theta[i * q + a] -= coupling * f[j * q + b];
                    theta[j * q + b] -= coupling * f[i * q + a];
                }
            }
        }
        theta
    }

    #[test]
    fn directions_are_scaled_slopes_of_centred_parameters() {
        let (n, q) = (3, 2);
        let frequencies = vec![0.2, 0.8, 0.5, 0.5, 0.9, 0.1];
        let steps = CentredSteps {
            n_states: q,
            frequencies: frequencies.clone(),
        };
        let n_params = n * q + 3 * q * q;
        let slope: Vec<f64> = (0..n_params).map(|k| (1.0 + k as f64).sin()).collect();
        let scale = |k: usize| {
            let v = |k: usize| frequencies[k] * (1.0 - frequencies[k]);
            let variance = match k.checked_sub(n * q) {
                None => v(k),
                Some(k) => {
                    let (i, j) = [(0, 1), (0, 2), (1, 2)][k / (q * q)];
                    v(i * q + k / q % q) * v(j * q + k % q)
                }
            };
            1.0 / (variance + FLOOR)
        };
        // Columns of ∂(h, J)/∂(h̃, J), the map being linear.
        let column = |k: usize| {
            let mut unit = vec![0.0; n_params];
            unit[k] = 1.0;
            uncentred(&frequencies, n, q, &unit)
        };
        let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
        let centred: Vec<f64> = (0..n_params)
            .map(|k| scale(k) * dot(&column(k), &slope))
            .collect();
        let expected = uncentred(&frequencies, n, q, &centred);

        let mut direction = slope;
        steps.apply(&mut direction);
        for (found, expected) in direction.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        }
    }
}
