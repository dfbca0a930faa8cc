//! Autocovariances, mean over chains.
//!
//! ```text
//! c_t = mean over chains of 1/n Σ_i (x_i − x̄)(x_{i+t} − x̄)
//! ```
//!
//! The first lags are summed one by one: a chain without memory needs no others. One Fourier
//! transform gives all the others, which keeps a chain with a long memory at O(n log n) instead of
//! O(n τ).

/// Lags that are summed one by one, which costs about as much as a transform.
const DIRECT: usize = 64;

/// Computes c_t on demand.
pub(super) struct Autocovariance {
    centred: Vec<Vec<f64>>,
    transformed: Option<Vec<f64>>,
}

impl Autocovariance {
    /// Takes chains of one length.
    pub(super) fn new(chains: &[Vec<f64>]) -> Self {
        let centre = |chain: &Vec<f64>| {
            let mean = chain.iter().sum::<f64>() / chain.len() as f64;
            chain.iter().map(|x| x - mean).collect()
        };
        Self {
            centred: chains.iter().map(centre).collect(),
            transformed: None,
        }
    }

    /// Returns c_lag.
    pub(super) fn at(&mut self, lag: usize) -> f64 {
        if lag < DIRECT {
            let n = self.centred[0].len() as f64;
            let sum = |c: &Vec<f64>| c[lag..].iter().zip(c).map(|(a, b)| a * b).sum::<f64>();
            self.centred.iter().map(sum).sum::<f64>() / (n * self.centred.len() as f64)
        } else {
            self.transformed
                .get_or_insert_with(|| by_transform(&self.centred))[lag]
        }
    }
}

/// Returns all c_t, the transform of the power spectrum.
pub(super) fn by_transform(centred: &[Vec<f64>]) -> Vec<f64> {
    let n = centred[0].len();
    // Twice the length keeps the ends from meeting.
    let size = (2 * n).next_power_of_two();
    let mut power = vec![(0.0, 0.0); size];
    for chain in centred {
        let mut z = vec![(0.0, 0.0); size];
        for (z, x) in z.iter_mut().zip(chain) {
            z.0 = *x;
        }
        fourier(&mut z);
        for (p, z) in power.iter_mut().zip(&z) {
            p.0 += z.0 * z.0 + z.1 * z.1;
        }
    }
    // The spectrum is real and even: forwards or backwards is the same.
    fourier(&mut power);
    let scale = 1.0 / (size as f64 * (n * centred.len()) as f64);
    power[..n].iter().map(|p| p.0 * scale).collect()
}

/// Transforms in place, z_k ← Σ_j z_j exp(−2πi jk/n), n a power of two (Cooley & Tukey).
fn fourier(z: &mut [(f64, f64)]) {
    let n = z.len();
    let shift = usize::BITS - n.trailing_zeros();
    for i in 0..n {
        let j = if n > 1 { i.reverse_bits() >> shift } else { i };
        if i < j {
            z.swap(i, j);
        }
    }
    let turn: Vec<(f64, f64)> = (0..n / 2)
        .map(|k| {
            let (sin, cos) = (-std::f64::consts::TAU * k as f64 / n as f64).sin_cos();
            (cos, sin)
        })
        .collect();
    let mut half = 1;
    while half < n {
        let stride = n / (2 * half);
        for block in z.chunks_exact_mut(2 * half) {
            let (low, high) = block.split_at_mut(half);
            for ((a, b), w) in low.iter_mut().zip(high).zip(turn.iter().step_by(stride)) {
                let t = (b.0 * w.0 - b.1 * w.1, b.0 * w.1 + b.1 * w.0);
                *b = (a.0 - t.0, a.1 - t.1);
                *a = (a.0 + t.0, a.1 + t.1);
            }
        }
        half *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpf_core::rng::stream;
    use rand::RngExt;

    #[test]
    fn the_transform_agrees_with_the_plain_sum() {
        for n in [2, 3, 64, 65, 300] {
            let mut rng = stream(n as u64, 0);
            let chains: Vec<Vec<f64>> = (0..3)
                .map(|_| (0..n).map(|_| rng.random_range(-1.0..3.0)).collect())
                .collect();
            let Autocovariance { centred, .. } = Autocovariance::new(&chains);
            let all = by_transform(&centred);
            assert_eq!(all.len(), n);
            for (lag, found) in all.into_iter().enumerate() {
                let plain: f64 = centred
                    .iter()
                    .map(|c| (lag..n).map(|i| c[i] * c[i - lag]).sum::<f64>())
                    .sum();
                // A few ulps of c_0 ≈ 1.3.
                assert!((found - plain / (3 * n) as f64).abs() < 1e-14, "{n}, {lag}");
            }
        }
    }
}
