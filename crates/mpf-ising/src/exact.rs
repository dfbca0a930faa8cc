//! Sums over all 2^d states, d ≤ 24.
//!
//! ```text
//! ln Z = ln Σ_x exp(−xᵀJx),   ⟨x_i⟩,   ⟨x_i x_j⟩,   S = ln Z + ⟨E⟩
//! ```
//!
//! The high bits of a state choose a block; the low 14 are walked in Gray-code order, where one flip
//! costs O(d). Blocks run in parallel and are added in their order, so the thread count cannot
//! change a digit. Within a block all pair sums come from folding the block onto itself: O(1) per
//! state, not O(d²).

use crate::Result;
use crate::bits::{Samples, States, for_each_set_bit};
use crate::couplings::Couplings;
use crate::error::{Error, check_units};
use mpf_core::rng::{DrawTable, stream};
use ndarray::Array2;
use rayon::prelude::*;

/// Bits that vary within a block: 2¹⁴ weights are 128 KB.
const BLOCK_BITS: usize = 14;

/// An Ising model of few units with its exact partition function, moments and probabilities.
#[derive(Clone, Debug)]
pub struct Exact {
    couplings: Couplings,
    /// The largest −E, and Z in units of its exponential. They are kept apart because their sum loses
    /// the second where E is large.
    top: f64,
    z: f64,
    pair_means: Array2<f64>,
    /// ⟨V⟩.
    mean_potential: f64,
}

impl Exact {
    /// The most units that can be enumerated.
    pub const MAX_UNITS: usize = 24;

    /// Sums over all states. O(2^d · d): d = 24 takes about a second. Results are exact up to the
    /// rounding of the largest energy.
    ///
    /// # Errors
    /// [`Error::TooManyUnits`] beyond [`Exact::MAX_UNITS`].
    pub fn new(couplings: &Couplings) -> Result<Self> {
        let d = couplings.n_units();
        if d > Self::MAX_UNITS {
            return Err(Error::TooManyUnits {
                n_units: d,
                limit: Self::MAX_UNITS,
            });
        }
        let low = d.min(BLOCK_BITS);
        let blocks: Vec<(BlockSums, f64)> = (0..1usize << (d - low))
            .into_par_iter()
            .map_init(
                || (vec![0.0; 1 << low], vec![0.0; 1 << low.saturating_sub(1)]),
                |(weights, scratch), high| {
                    let shift = fill_block(couplings, high, low, weights);
                    let potential = couplings.potential().map_or(0.0, |v| {
                        let of = |state: usize| v[(state | high << low).count_ones() as usize];
                        weights.iter().enumerate().map(|(x, w)| w * of(x)).sum()
                    });
                    (BlockSums::fold(weights, scratch, low, shift), potential)
                },
            )
            .collect();

        let top = blocks
            .iter()
            .fold(f64::NEG_INFINITY, |m, (b, _)| m.max(b.shift));
        let (mut z, mut mean_potential) = (0.0, 0.0);
        let mut pairs = Array2::<f64>::zeros((d, d));
        for (high, (block, potential)) in blocks.iter().enumerate() {
            let scale = (block.shift - top).exp();
            z += scale * block.total;
            mean_potential += scale * potential;
            for i in 0..low {
                for j in 0..=i {
                    pairs[[i, j]] += scale * block.pairs[[i, j]];
                }
            }
            for_each_set_bit(&[high as u64], |a| {
                for j in 0..low {
                    pairs[[low + a, j]] += scale * block.pairs[[j, j]];
                }
                for_each_set_bit(&[high as u64], |b| {
                    pairs[[low + a, low + b]] += scale * block.total;
                });
            });
        }
        for i in 0..d {
            for j in 0..=i {
                let mean = pairs[[i, j]] / z;
                pairs[[i, j]] = mean;
                pairs[[j, i]] = mean;
            }
        }
        Ok(Self {
            couplings: couplings.clone(),
            top,
            z,
            pair_means: pairs,
            mean_potential: mean_potential / z,
        })
    }

    /// Returns the model.
    pub fn couplings(&self) -> &Couplings {
        &self.couplings
    }

    /// Returns ln Z.
    pub fn log_z(&self) -> f64 {
        self.top + self.z.ln()
    }

    /// Returns ⟨x_i⟩.
    pub fn means(&self) -> Vec<f64> {
        self.pair_means.diag().to_vec()
    }

    /// Returns ⟨x_i x_j⟩, with ⟨x_i⟩ on the diagonal.
    pub fn pair_means(&self) -> &Array2<f64> {
        &self.pair_means
    }

    /// Returns ⟨s_i s_j⟩ of the spins s = 2x − 1.
    pub fn spin_correlations(&self) -> Array2<f64> {
        spin_correlations(&self.pair_means)
    }

    /// Returns ⟨E⟩.
    pub fn mean_energy(&self) -> f64 {
        let terms = self.couplings.as_array().iter().zip(&self.pair_means);
        self.mean_potential + terms.map(|(j, m)| j * m).sum::<f64>()
    }

    /// Returns the entropy ln Z + ⟨E⟩ in nats, exact up to the rounding of the largest energy.
    pub fn entropy(&self) -> f64 {
        self.z.ln() + (self.top + self.mean_energy())
    }

    /// Returns the mean log-likelihood of `samples` in nats per sample.
    ///
    /// # Errors
    /// [`Error::UnitCount`] for samples of other units.
    pub fn log_likelihood(&self, samples: &Samples) -> Result<f64> {
        check_units("samples", self.couplings.n_units(), samples.n_units())?;
        let mean_energy = |scale: f64, total: f64| {
            let rows = samples.states().rows().enumerate();
            let energies =
                rows.map(|(m, row)| scale * samples.weight(m) * self.couplings.energy(row));
            energies.sum::<f64>() / total
        };
        let total = samples.total_weight();
        let mut energy = mean_energy(1.0, total);
        if !energy.is_finite() {
            // A large weight times a large energy overflowed; their mean does not.
            energy = mean_energy(1.0 / total, 1.0);
        }
        Ok(-energy - self.log_z())
    }

    /// Returns p(x) of every state, in the order of the state numbers Σ_i x_i 2^i. 8 · 2^d bytes.
    pub fn probabilities(&self) -> Vec<f64> {
        let d = self.couplings.n_units();
        let low = d.min(BLOCK_BITS);
        let mut probabilities = vec![0.0; 1 << d];
        probabilities
            .par_chunks_mut(1 << low)
            .enumerate()
            .for_each(|(high, block)| {
                let shift = fill_block(&self.couplings, high, low, block);
                let scale = (shift - self.top).exp() / self.z;
                for p in block {
                    *p *= scale;
                }
            });
        probabilities
    }

    /// Draws `n` independent states. The same `n` and `seed` give the same states. O(2^d + n d);
    /// holds 8 · 2^d bytes meanwhile.
    pub fn draw(&self, n: usize, seed: u64) -> States {
        let mut rng = stream(seed, 0);
        let numbers = DrawTable::new(self.probabilities());
        let mut states = States::without_samples(self.couplings.n_units());
        for _ in 0..n {
            states.push(&[numbers.draw(&mut rng) as u64]);
        }
        states
    }
}

/// Converts ⟨x_i x_j⟩ of the bits to ⟨s_i s_j⟩ of the spins: 4⟨x_i x_j⟩ − 2⟨x_i⟩ − 2⟨x_j⟩ + 1, and
/// 1 on the diagonal.
///
/// # Panics
/// If the array is not square.
pub fn spin_correlations(pair_means: &Array2<f64>) -> Array2<f64> {
    Array2::from_shape_fn(pair_means.dim(), |(i, j)| {
        if i == j {
            1.0
        } else {
            let (mi, mj) = (pair_means[[i, i]], pair_means[[j, j]]);
            4.0 * pair_means[[i, j]] - 2.0 * (mi + mj) + 1.0
        }
    })
}

/// Writes exp(−E − shift) of every state of a block; returns the shift, the block's largest −E.
fn fill_block(couplings: &Couplings, high: usize, low: usize, weights: &mut [f64]) -> f64 {
    let j = couplings.as_array();
    let mut on = Vec::with_capacity(Exact::MAX_UNITS);
    for_each_set_bit(&[high as u64], |a| on.push(low + a));
    let mut energy: f64 = on
        .iter()
        .map(|&a| on.iter().map(|&b| j[[a, b]]).sum::<f64>())
        .sum();
    // field_i = E(x_i = 1) − E(x_i = 0), kept up to date as bits flip.
    let mut field: [f64; BLOCK_BITS] = std::array::from_fn(|i| {
        if i < low {
            j[[i, i]] + 2.0 * on.iter().map(|&a| j[[i, a]]).sum::<f64>()
        } else {
            0.0
        }
    });
    let mut state = 0usize;
    let potential = couplings.potential();
    let with_potential = |energy: f64, state: usize| match potential {
        None => energy,
        Some(v) => energy + v[(state | high << low).count_ones() as usize],
    };
    weights[0] = -with_potential(energy, 0);
    let mut largest = weights[0];
    for step in 1..1usize << low {
        let i = step.trailing_zeros() as usize;
        state ^= 1 << i;
        let sign = if state >> i & 1 == 1 { 1.0 } else { -1.0 };
        energy += sign * field[i];
        for (k, f) in field.iter_mut().enumerate().take(low) {
            if k != i {
                *f += sign * 2.0 * j[[i, k]];
            }
        }
        weights[state] = -with_potential(energy, state);
        largest = largest.max(weights[state]);
    }
    for w in weights.iter_mut() {
        *w = (*w - largest).exp();
    }
    largest
}

/// Sums over one block, in units of e^shift.
struct BlockSums {
    shift: f64,
    total: f64,
    /// Lower triangle: Σ w x_i x_j over the low bits.
    pairs: Array2<f64>,
}

impl BlockSums {
    /// Folds the block onto itself, which destroys `weights`. `scratch` is half as long.
    fn fold(weights: &mut [f64], scratch: &mut [f64], low: usize, shift: f64) -> Self {
        let mut pairs = Array2::zeros((low, low));
        for top in (0..low).rev() {
            let half = 1 << top;
            let (off, on) = weights[..2 * half].split_at_mut(half);
            // Σ over the states with bit `top` set, of each lower bit.
            let rest = &mut scratch[..half];
            rest.copy_from_slice(on);
            for bit in (0..top).rev() {
                let (zeros, ones) = rest[..2 << bit].split_at_mut(1 << bit);
                pairs[[top, bit]] = ones.iter().sum();
                for (z, o) in zeros.iter_mut().zip(ones) {
                    *z += *o;
                }
            }
            pairs[[top, top]] = rest[0];
            for (z, o) in off.iter_mut().zip(on) {
                *z += *o;
            }
        }
        Self {
            shift,
            total: weights[0],
            pairs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::couplings::n_packed;
    use crate::model::IsingModel;
    use mpf_core::EnergyModel;
    use rand::RngExt;

    fn random(d: usize, scale: f64, seed: u64) -> Couplings {
        let mut rng = stream(seed, 0);
        let packed: Vec<f64> = (0..n_packed(d))
            .map(|_| scale * rng.random_range(-1.0..1.0))
            .collect();
        Couplings::unpack(d, &packed).unwrap()
    }

    /// Brute force, state by state.
    fn plain(couplings: &Couplings) -> (f64, Array2<f64>) {
        let d = couplings.n_units();
        let (model, theta) = (IsingModel::new(d), couplings.pack());
        let weight = |x: u64| (-model.energy(&theta, &[x])).exp();
        let z: f64 = (0..1u64 << d).map(weight).sum();
        let pair = |(i, j): (usize, usize)| {
            (0..1u64 << d)
                .filter(|x| x >> i & 1 == 1 && x >> j & 1 == 1)
                .map(weight)
                .sum::<f64>()
                / z
        };
        (z.ln(), Array2::from_shape_fn((d, d), pair))
    }

    #[test]
    fn agrees_with_a_plain_sum() {
        for d in [1, 2, 3, 7, 11] {
            let couplings = random(d, 1.5, d as u64);
            let exact = Exact::new(&couplings).unwrap();
            let (log_z, pairs) = plain(&couplings);
            assert!((exact.log_z() - log_z).abs() < 1e-12);
            assert!(
                (exact.pair_means() - &pairs)
                    .iter()
                    .all(|e| e.abs() < 1e-13)
            );
        }
    }

    #[test]
    fn blocks_join_seamlessly() {
        // Independent units, 17 of them: three high bits, and everything known in closed form.
        let d = 17;
        let mut j = Array2::zeros((d, d));
        for i in 0..d {
            j[[i, i]] = 0.3 * i as f64 - 2.0;
        }
        // One coupling across the border between low and high bits.
        j[[2, 15]] = 0.4;
        j[[15, 2]] = 0.4;
        let exact = Exact::new(&Couplings::new(j.clone()).unwrap()).unwrap();
        let p = |i: usize| 1.0 / (1.0 + j[[i, i]].exp());
        for (a, b) in [(0, 1), (0, 16), (14, 16), (5, 14), (1, 13)] {
            assert!((exact.pair_means()[[a, b]] - p(a) * p(b)).abs() < 1e-13);
        }
        let w = |x: f64, y: f64| (-j[[2, 2]] * x - j[[15, 15]] * y - 0.8 * x * y).exp();
        let z = w(0., 0.) + w(1., 0.) + w(0., 1.) + w(1., 1.);
        assert!((exact.pair_means()[[2, 15]] - w(1., 1.) / z).abs() < 1e-13);
        assert!((exact.means()[15] - (w(0., 1.) + w(1., 1.)) / z).abs() < 1e-13);
    }

    #[test]
    fn entropy_and_likelihood_follow_from_the_probabilities() {
        let exact = Exact::new(&random(5, 1.0, 4)).unwrap();
        let p = exact.probabilities();
        assert!((p.iter().sum::<f64>() - 1.0).abs() < 1e-13);
        let entropy: f64 = -p.iter().map(|p| p * p.ln()).sum::<f64>();
        assert!((exact.entropy() - entropy).abs() < 1e-12);
        // Samples weighted by the model itself: the log-likelihood is minus the entropy.
        let mut states = States::new(5).unwrap();
        (0..32).for_each(|x| states.push(&[x]));
        let samples = Samples::weighted(&states, &p).unwrap();
        assert!((exact.log_likelihood(&samples).unwrap() + entropy).abs() < 1e-12);
    }

    #[test]
    fn large_energies_times_large_weights_do_not_overflow() {
        let exact = Exact::new(&random(3, 1e300, 5)).unwrap();
        let mut states = States::new(3).unwrap();
        (0..8).for_each(|x| states.push(&[x]));
        let plain = exact.log_likelihood(&Samples::new(&states).unwrap());
        let heavy = Samples::weighted(&states, &[1e28; 8]).unwrap();
        let ratio = exact.log_likelihood(&heavy).unwrap() / plain.unwrap();
        assert!((ratio - 1.0).abs() < 1e-12, "{ratio}");
    }

    #[test]
    fn large_energies_do_not_overflow() {
        // Gaps between energies are of the order 1, far above rounding: one state has all weight.
        let couplings = random(16, 1e4, 5);
        let exact = Exact::new(&couplings).unwrap();
        let energy = |x: &u64| couplings.energy(&[*x]);
        let ground = (0..1 << 16).min_by(|a, b| energy(a).total_cmp(&energy(b)));
        let ground = ground.unwrap();
        // Gray-code steps add up 2¹⁴ roundings of energies near 10⁶.
        assert!((exact.log_z() + energy(&ground)).abs() < 1e-5);
        assert!(energy(&ground) < -1e4 && exact.entropy().abs() < 1e-5);
        for (unit, mean) in exact.means().into_iter().enumerate() {
            assert!(
                (mean - (ground >> unit & 1) as f64).abs() < 1e-5,
                "{unit}: {mean}"
            );
        }
    }

    #[test]
    fn draws_have_the_right_moments() {
        let exact = Exact::new(&random(6, 1.0, 6)).unwrap();
        let n = 40_000;
        let samples = Samples::new(&exact.draw(n, 11)).unwrap();
        for (found, expected) in samples.pair_means().iter().zip(exact.pair_means()) {
            // Five standard errors of a Bernoulli mean.
            let error = (expected * (1.0 - expected) / n as f64).sqrt();
            assert!((found - expected).abs() < 5.0 * error);
        }
    }

    #[test]
    fn too_many_units_and_other_units_are_errors() {
        assert!(matches!(
            Exact::new(&Couplings::zeros(25).unwrap()),
            Err(Error::TooManyUnits {
                n_units: 25,
                limit: 24
            })
        ));
        let exact = Exact::new(&Couplings::zeros(2).unwrap()).unwrap();
        let samples = Samples::from_binary(Array2::<u8>::zeros((1, 3)).view()).unwrap();
        assert!(matches!(
            exact.log_likelihood(&samples),
            Err(Error::UnitCount {
                expected: 2,
                found: 3,
                ..
            })
        ));
    }
}
