//! The distinct rows of data, with their weights.

use super::{Entry, States, for_each_set_bit, last_word_mask, transpose, words_for};
use crate::Result;
use crate::error::{Error, check_data};
use hashbrown::{DefaultHashBuilder, HashTable};
use ndarray::{Array2, ArrayView2};
use rayon::prelude::*;
use std::hash::BuildHasher;

/// Distinct samples with their weights, ready to be fitted. The weights are positive, and their sum
/// is between 1e-30 and 1e30.
#[derive(Clone, Debug)]
pub struct Samples {
    /// Every distinct row once, in the order of first appearance.
    states: States,
    /// One weight per distinct row; `None` when all are 1.
    weights: Option<Vec<f64>>,
    total_weight: f64,
    n_observed: usize,
    /// The same bits by unit, for every 64 samples: `[block][unit]`.
    columns: Vec<u64>,
}

impl Samples {
    /// Packs 0/1 data, one row per sample. See [`States::from_binary`].
    ///
    /// # Errors
    /// Those of [`States::from_binary`].
    pub fn from_binary<T: Entry>(data: ArrayView2<'_, T>) -> Result<Self> {
        Self::new(&States::from_binary(data)?)
    }

    /// Packs ±1 spins, one row per sample. See [`States::from_spins`].
    ///
    /// # Errors
    /// Those of [`States::from_spins`].
    pub fn from_spins<T: Entry>(data: ArrayView2<'_, T>) -> Result<Self> {
        Self::new(&States::from_spins(data)?)
    }

    /// Collects packed samples, each counted once.
    ///
    /// # Errors
    /// [`Error::NoData`] without samples.
    pub fn new(states: &States) -> Result<Self> {
        Self::collect(states, None)
    }

    /// Collects packed samples with a weight each: counts, or other numbers that are not negative.
    /// Samples of weight zero are left out, and so are those whose share of the sum is below 2e-308.
    ///
    /// # Errors
    /// [`Error::NoData`], [`Error::WeightCount`]; [`Error::Weight`] for a weight that is negative
    /// or not finite; [`Error::NoWeight`] if all are zero; [`Error::WeightSum`] for a sum outside
    /// 1e-30 to 1e30.
    pub fn weighted(states: &States, weights: &[f64]) -> Result<Self> {
        if weights.len() != states.n_samples() {
            return Err(Error::WeightCount {
                weights: weights.len(),
                samples: states.n_samples(),
            });
        }
        if let Some((row, &value)) = weights
            .iter()
            .enumerate()
            .find(|(_, w)| !(w.is_finite() && **w >= 0.0))
        {
            return Err(Error::Weight { row, value });
        }
        if states.n_samples() > 0 {
            check_sum(weights.iter().sum())?;
        }
        Self::collect(states, Some(weights))
    }

    /// Collects packed samples without merging equal ones; all weights are 1 if there are none.
    pub(crate) fn unmerged(states: States, weights: Option<Vec<f64>>) -> Self {
        Self {
            columns: transpose(&states),
            total_weight: weights
                .as_ref()
                .map_or(states.n_samples() as f64, |w| w.iter().sum()),
            n_observed: states.n_samples(),
            weights,
            states,
        }
    }

    fn collect(states: &States, weights: Option<&[f64]>) -> Result<Self> {
        let n_units = states.n_units();
        check_data(states.n_samples(), n_units)?;
        let mut index = RowIndex::default();
        let mut distinct = States::without_samples(n_units);
        let mut sums: Vec<f64> = Vec::new();
        let least = weights.map_or(0.0, negligible);
        for (m, row) in states.rows().enumerate() {
            let weight = weights.map_or(1.0, |w| w[m]);
            if weight <= least {
                continue;
            }
            let at = index.find_or_insert(&distinct, row, sums.len());
            if at == sums.len() {
                distinct.push(row);
                sums.push(0.0);
            }
            sums[at] += weight;
        }
        check_sum(sums.iter().sum())?;
        distinct.bits.shrink_to_fit();
        let weights = sums.iter().any(|w| *w != 1.0).then_some(sums);
        Ok(Self {
            n_observed: states.n_samples(),
            ..Self::unmerged(distinct, weights)
        })
    }

    /// Returns the number of units of a sample.
    pub fn n_units(&self) -> usize {
        self.states.n_units()
    }

    /// Returns the number of samples given, repeats counted.
    pub fn n_observed(&self) -> usize {
        self.n_observed
    }

    /// Returns the number of distinct samples.
    pub fn n_distinct(&self) -> usize {
        self.states.n_samples()
    }

    /// Returns the distinct samples, in the order of first appearance.
    #[inline(always)]
    pub fn states(&self) -> &States {
        &self.states
    }

    /// Returns the weight of distinct sample `m`.
    ///
    /// # Panics
    /// For a sample that does not exist, if samples have weights.
    #[inline(always)]
    pub fn weight(&self, m: usize) -> f64 {
        self.weights.as_ref().map_or(1.0, |w| w[m])
    }

    /// Returns the weights of the distinct samples, or `None` if all are 1.
    pub fn weights(&self) -> Option<&[f64]> {
        self.weights.as_deref()
    }

    /// Returns the sum of all weights, from 1e-30 to 1e30: M for plain data.
    pub fn total_weight(&self) -> f64 {
        self.total_weight
    }

    /// Returns the number of samples that the weights stand for: their sum if they are counts, the
    /// number of samples given if they are only ratios (probabilities sum to 1).
    pub fn n_effective(&self) -> f64 {
        self.total_weight.max(self.n_observed as f64)
    }

    /// Iterates over the words of one unit: bit m mod 64 of word m / 64 is distinct sample m, zeros
    /// beyond the last.
    ///
    /// # Panics
    /// For a unit that does not exist.
    pub fn column(&self, unit: usize) -> impl Iterator<Item = u64> {
        let blocks = self.columns.chunks_exact(self.n_units());
        blocks.map(move |block| block[unit])
    }

    /// Returns the words of all units over the 64 samples of one block.
    #[inline(always)]
    pub(crate) fn column_block(&self, block: usize) -> &[u64] {
        let d = self.n_units();
        &self.columns[block * d..(block + 1) * d]
    }

    /// Returns the words of all units over 64 samples, block after block from `block` on.
    #[inline(always)]
    pub(crate) fn columns_from(&self, block: usize) -> &[u64] {
        &self.columns[block * self.n_units()..]
    }

    /// Returns the fraction of set bits among all bits of the distinct samples.
    pub(crate) fn activity(&self) -> f64 {
        let set: u64 = self
            .states
            .bits
            .iter()
            .map(|w| u64::from(w.count_ones()))
            .sum();
        set as f64 / (self.n_distinct() * self.n_units()) as f64
    }

    /// Returns the number of bytes held, weights included.
    pub fn bytes(&self) -> usize {
        8 * (self.states.bits.len()
            + self.columns.len()
            + self.weights.as_ref().map_or(0, Vec::len))
    }

    /// Returns the weighted mean of every unit. O(M d / 64) without weights.
    pub fn means(&self) -> Vec<f64> {
        let weights = self.unit_weights();
        weights.map(|weight| weight / self.total_weight).collect()
    }

    /// Iterates over the units, with the weight of the samples in which each is 1.
    pub(crate) fn unit_weights(&self) -> impl Iterator<Item = f64> + '_ {
        (0..self.n_units()).map(|unit| self.column_weight(self.column(unit)))
    }

    /// Returns the weighted mean of x_i x_j for every pair; the diagonal holds the means.
    /// O(M d² / 64) without weights; 8 d² bytes.
    #[expect(
        clippy::missing_panics_doc,
        reason = "the list has the length of the shape"
    )]
    pub fn pair_means(&self) -> Array2<f64> {
        let d = self.n_units();
        let mut means = vec![0.0; d * d];
        means.par_chunks_mut(d).enumerate().for_each(|(i, row)| {
            for (j, mean) in row[..=i].iter_mut().enumerate() {
                let both = self.column(i).zip(self.column(j)).map(|(a, b)| a & b);
                *mean = self.column_weight(both) / self.total_weight;
            }
        });
        for i in 0..d {
            for j in 0..i {
                means[j * d + i] = means[i * d + j];
            }
        }
        Array2::from_shape_vec((d, d), means).expect("d rows of d means")
    }

    /// Returns the weight of the samples whose bits are set in `mask`.
    fn column_weight(&self, mask: impl Iterator<Item = u64>) -> f64 {
        match &self.weights {
            None => mask.map(|w| f64::from(w.count_ones())).sum(),
            Some(weights) => {
                let mut sum = 0.0;
                for (w, word) in mask.enumerate() {
                    for_each_set_bit(&[word], |k| sum += weights[64 * w + k]);
                }
                sum
            }
        }
    }

    /// Returns whether all joint values of two units occur. Otherwise the samples do not determine their
    /// coupling: without a penalty it has no finite optimum.
    pub fn determine(&self, i: usize, j: usize) -> bool {
        self.joint_values(i, j) == 0b1111
    }

    /// Returns which of the four joint values (x_i, x_j) = 00, 10, 01, 11 occur, as a bit each.
    pub(crate) fn joint_values(&self, i: usize, j: usize) -> u8 {
        let n = self.n_distinct();
        let last = words_for(n) - 1;
        let mut seen = 0u8;
        for (w, (a, b)) in self.column(i).zip(self.column(j)).enumerate() {
            let valid = if w == last {
                last_word_mask(n)
            } else {
                u64::MAX
            };
            for (bit, cell) in [!a & !b, a & !b, !a & b, a & b].into_iter().enumerate() {
                seen |= u8::from(cell & valid != 0) << bit;
            }
            if seen == 0b1111 {
                break;
            }
        }
        seen
    }
}

/// Checks that the sum of weights stays away from the ends of `f64`: exponentials, which may be
/// large themselves, are multiplied by weights and divided by the sum.
pub(crate) fn check_sum(sum: f64) -> Result<()> {
    if (1e-30..=1e30).contains(&sum) {
        Ok(())
    } else if sum == 0.0 {
        Err(Error::NoWeight)
    } else {
        Err(Error::WeightSum { sum })
    }
}

/// Returns the weight up to which a sample's share of the sum is not a normal number. Fits divide by
/// the variances of units; if only such a sample makes a unit vary, its variance has no inverse.
pub(crate) fn negligible(weights: &[f64]) -> f64 {
    f64::MIN_POSITIVE * weights.iter().sum::<f64>()
}

/// Finds rows of a [`States`] by content.
#[derive(Default)]
pub(crate) struct RowIndex {
    table: HashTable<usize>,
    hasher: DefaultHashBuilder,
}

impl RowIndex {
    /// Indexes all rows, which must be distinct.
    pub(crate) fn of(states: &States) -> Self {
        let mut index = Self::default();
        for (m, row) in states.rows().enumerate() {
            index.find_or_insert(states, row, m);
        }
        index
    }

    /// Returns the index of `row` in `states`, if it is there.
    pub(crate) fn find(&self, states: &States, row: &[u64]) -> Option<usize> {
        let hash = self.hasher.hash_one(row);
        self.table.find(hash, |&k| states.row(k) == row).copied()
    }

    /// Returns the index of `row` in `states`; a new row is entered as number `next`.
    fn find_or_insert(&mut self, states: &States, row: &[u64], next: usize) -> usize {
        let hash = |row: &[u64]| self.hasher.hash_one(row);
        let is_same = |&k: &usize| states.row(k) == row;
        let table = &mut self.table;
        let entry = table.entry(hash(row), is_same, |&k| hash(states.row(k)));
        *entry.or_insert(next).get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::get_bit;
    use crate::bits::tests::random;
    use ndarray::array;

    #[test]
    fn repeated_rows_are_stored_once_with_their_count() {
        let x = array![[1u8, 0], [0, 1], [1, 0], [1, 0], [1, 1]];
        let samples = Samples::from_binary(x.view()).unwrap();
        assert_eq!((samples.n_observed(), samples.n_distinct()), (5, 3));
        assert_eq!(samples.weights(), Some(&[3.0, 1.0, 1.0][..]));
        assert_eq!(samples.total_weight(), 5.0);
        assert_eq!(samples.means(), [0.8, 0.4]);
        assert_eq!(samples.pair_means(), array![[0.8, 0.2], [0.2, 0.4]]);
        let distinct = Samples::new(&samples.states().clone()).unwrap();
        assert_eq!(distinct.weights(), None);
    }

    #[test]
    fn weights_add_up_and_zero_weights_vanish() {
        let x = array![[1u8, 0], [0, 1], [1, 0], [1, 1]];
        let states = States::from_binary(x.view()).unwrap();
        let samples = Samples::weighted(&states, &[0.5, 0.0, 1.5, 2.0]).unwrap();
        assert_eq!(samples.n_distinct(), 2);
        assert_eq!(samples.weights(), Some(&[2.0, 2.0][..]));
        assert_eq!(samples.means(), [1.0, 0.5]);
    }

    #[test]
    fn weights_that_no_mean_can_show_vanish() {
        let x = array![[1u8, 0], [0, 1], [1, 1]];
        let states = States::from_binary(x.view()).unwrap();
        let samples = Samples::weighted(&states, &[1e-300, 1e10, 1e10]).unwrap();
        assert_eq!(samples.n_distinct(), 2);
        let samples = Samples::weighted(&states, &[1e-290, 1e10, 1e10]).unwrap();
        assert_eq!(samples.n_distinct(), 3);
        for (weights, error) in [
            ([1e-31, 0.0, 0.0], Error::WeightSum { sum: 1e-31 }),
            ([1e308; 3], Error::WeightSum { sum: f64::INFINITY }),
        ] {
            assert_eq!(Samples::weighted(&states, &weights).unwrap_err(), error);
        }
    }

    #[test]
    fn columns_and_moments_agree_with_the_array() {
        for (n, d) in [(1, 1), (63, 65), (64, 64), (200, 100)] {
            let x = random(n, d, 0.3, (n + d) as u64);
            let samples = Samples::from_binary(x.view()).unwrap();
            for u in 0..d {
                for m in 0..samples.n_distinct() {
                    let column: Vec<u64> = samples.column(u).collect();
                    assert_eq!(get_bit(&column, m), samples.states().get(m, u));
                    let words = words_for(samples.n_distinct());
                    let columns = samples.states().columns();
                    assert_eq!(columns[u * words..(u + 1) * words], column[..words]);
                }
            }
            let xf = x.mapv(f64::from);
            let expected = xf.t().dot(&xf) / n as f64;
            let found = samples.pair_means();
            assert!((&found - &expected).iter().all(|e| e.abs() < 1e-15));
            assert!(
                samples
                    .means()
                    .iter()
                    .zip(found.diag())
                    .all(|(a, b)| a == b)
            );
        }
    }

    #[test]
    fn joint_values_name_the_cells_that_occur() {
        let x = array![[0u8, 0, 1], [1, 0, 1], [0, 0, 1]];
        let samples = Samples::from_binary(x.view()).unwrap();
        assert_eq!(samples.joint_values(0, 1), 0b0011);
        assert_eq!(samples.joint_values(0, 2), 0b1100);
        assert_eq!(samples.joint_values(1, 0), 0b0101);
    }

    #[test]
    fn an_entry_costs_at_most_three_bits() {
        // 10⁷ × 4096 would need 10 GB here; the cost per entry does not depend on M.
        for (n, d) in [(20_000, 100), (5_000, 4096), (10_000, 64)] {
            let samples = Samples::from_binary(random(n, d, 0.5, 9).view()).unwrap();
            let bits_per_entry = 8.0 * samples.bytes() as f64 / (n * d) as f64;
            assert!(bits_per_entry <= 3.0, "{bits_per_entry} at d = {d}");
        }
    }

    #[test]
    fn bad_weights_are_errors_that_name_the_place() {
        let states = States::from_binary(array![[0u8], [1]].view()).unwrap();
        assert!(matches!(
            Samples::weighted(&states, &[1.0]),
            Err(Error::WeightCount {
                weights: 1,
                samples: 2
            })
        ));
        assert!(matches!(
            Samples::weighted(&states, &[1.0, -1.0]),
            Err(Error::Weight { row: 1, .. })
        ));
        assert_eq!(
            Samples::weighted(&states, &[0.0, 0.0]).unwrap_err(),
            Error::NoWeight
        );
    }
}
