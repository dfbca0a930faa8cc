//! Does a model agree with data? Moments of both side by side, with standard errors.
//!
//! ```text
//! m_i = ⟨x_i⟩    C_ij = ⟨δ_i δ_j⟩    T_ijk = ⟨δ_i δ_j δ_k⟩,  δ = x − m    P(n) = share with n active
//! z = (model − data)/σ,  σ² = error²_model + error²_data
//! S = ln Z + ⟨E⟩    I = Σ_i S(m_i) − S,   S(m) = −m ln m − (1 − m) ln(1 − m)       nats
//! ```
//!
//! An Ising model is fitted to the means and the pairs; triplets and P(n) are what it predicts.
//! The model's moments are exact up to 24 units ([`Moments::exact`]) and from draws otherwise
//! ([`Moments::of_states`]). Standard errors come from blocks of successive samples
//! ([`block_mean`](mpf_ising::block_mean)) through the influence of a block on each moment, in which the means'
//! own errors are accounted for: δ_i δ_j − C_ij, and
//! δ_i δ_j δ_k − T_ijk − C_jk δ_i − C_ik δ_j − C_ij δ_k.
//!
//! Four things make z large without a difference, and each is dealt with:
//!
//! - The influences of the means may cancel the rest. With two modes T = m (1 − m)(1 − 2m) is
//!   stationary in m near weights of 4 : 1, and first-order errors vanish. The error of a triplet is
//!   therefore at least that with means taken as known.
//! - Chains may differ by more than blocks within them say. [`Moments::of_chains`] takes the larger
//!   error.
//! - A sample that misses a rare event knows neither the event nor its variance. An error is at least
//!   that of as many independent draws of the other side's variance.
//! - Counts of rare events have a longer tail than the normal distribution. z is the number of
//!   standard deviations at which the latter has the bound exp(−z²/2) that Bennett's inequality
//!   gives: z² = 2 σ²/b² h(b |model − data|/σ²), h(u) = (1 + u) ln(1 + u) − u, for sums of independent
//!   terms of at most b. For small u it is the z above.
//!
//! [`GoodnessOfFit::chance_limit`] is what the largest of all z may be by chance.

use crate::Result;
use crate::error::{Error, check_mean};
use mpf_core::check_count;
use mpf_ising::internal::{check_units, n_blocks, part};
use mpf_ising::{BlockMean, Couplings, Exact, Samples, States};
use serde::Serialize;

/// The first three central moments and the distribution of the number of active units. Finite, and
/// within ±1 but for rounding, as made here; the fields are open, and what reads them checks them.
#[derive(Clone, Debug, Serialize)]
pub struct Moments {
    /// m_i.
    pub means: Vec<BlockMean>,
    /// C_ij for i < j, row by row.
    pub pairs: Vec<BlockMean>,
    /// T_ijk for i < j < k, row by row; empty without triplets.
    pub triplets: Vec<BlockMean>,
    /// P(n) for n = 0 … d.
    pub n_active: Vec<BlockMean>,
    /// The number of samples or draws; `None` for exact moments.
    pub n_samples: Option<usize>,
}

pub use mpf_ising::internal::pairs;

/// Iterates over (i, j, k), i < j < k, in the order of [`Moments::triplets`].
pub fn triplets(n_units: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    pairs(n_units).flat_map(move |(i, j)| (j + 1..n_units).map(move |k| (i, j, k)))
}

/// Returns the place of (i, j), i < j, in [`Moments::pairs`].
fn pair_index(d: usize, i: usize, j: usize) -> usize {
    i * d + j - (i + 1) * (i + 2) / 2
}

/// Beyond it a number is no moment, nor the error of one: moments are within ±1, and the influence
/// of a sample on a triplet within ±5, which leaves errors below 10 even with two blocks.
const LARGEST: f64 = 10.0;

/// Means of x_i, x_i x_j, x_i x_j x_k and of "n are active" over some samples.
struct Raw {
    ones: Vec<f64>,
    pairs: Vec<f64>,
    triplets: Vec<f64>,
    n_active: Vec<f64>,
}

impl Raw {
    /// Counts 64 samples at a time: O(d³ M/64), or O(d² M/64) without triplets.
    fn of(states: &States, with_triplets: bool) -> Self {
        let d = states.n_units();
        let n = states.n_samples() as f64;
        let columns = states.columns();
        let words = columns.len() / d;
        let column = |unit: usize| &columns[unit * words..(unit + 1) * words];
        let count = |word: u64| f64::from(word.count_ones());
        let mut both = vec![0u64; words];
        let mut raw = Self {
            ones: (0..d)
                .map(|i| column(i).iter().map(|w| count(*w)).sum::<f64>() / n)
                .collect(),
            pairs: Vec::with_capacity(d * d.saturating_sub(1) / 2),
            triplets: Vec::new(),
            n_active: vec![0.0; d + 1],
        };
        for (i, j) in pairs(d) {
            for (both, (a, b)) in both.iter_mut().zip(column(i).iter().zip(column(j))) {
                *both = a & b;
            }
            raw.pairs
                .push(both.iter().map(|w| count(*w)).sum::<f64>() / n);
            let thirds = if with_triplets { j + 1..d } else { 0..0 };
            for k in thirds {
                let all = both.iter().zip(column(k)).map(|(a, b)| count(a & b));
                raw.triplets.push(all.sum::<f64>() / n);
            }
        }
        for row in states.rows() {
            raw.n_active[mpf_ising::n_active(row)] += 1.0 / n;
        }
        raw
    }

    /// Sums the probabilities of all states over supersets, after which entry S is the chance
    /// that all units of S are active. O(d 2^d).
    fn of_probabilities(d: usize, mut p: Vec<f64>) -> Self {
        let mut n_active = vec![0.0; d + 1];
        for (state, p) in p.iter().enumerate() {
            n_active[state.count_ones() as usize] += p;
        }
        for bit in 0..d {
            for block in p.chunks_exact_mut(2 << bit) {
                let (off, on) = block.split_at_mut(1 << bit);
                for (off, on) in off.iter_mut().zip(on) {
                    *off += *on;
                }
            }
        }
        Self {
            ones: (0..d).map(|i| p[1 << i]).collect(),
            pairs: pairs(d).map(|(i, j)| p[1 << i | 1 << j]).collect(),
            triplets: triplets(d)
                .map(|(i, j, k)| p[1 << i | 1 << j | 1 << k])
                .collect(),
            n_active,
        }
    }

    /// Returns ⟨(x_i − m_i)(x_j − m_j)⟩ about given means.
    fn pair_about(&self, m: &[f64], q: usize, (i, j): (usize, usize)) -> f64 {
        self.pairs[q] - m[i] * self.ones[j] - m[j] * self.ones[i] + m[i] * m[j]
    }

    fn triplet_about(&self, m: &[f64], t: usize, (i, j, k): (usize, usize, usize)) -> f64 {
        let d = m.len();
        let pair = |a, b| self.pairs[pair_index(d, a, b)];
        self.triplets[t] - m[i] * pair(j, k) - m[j] * pair(i, k) - m[k] * pair(i, j)
            + m[i] * m[j] * self.ones[k]
            + m[i] * m[k] * self.ones[j]
            + m[j] * m[k] * self.ones[i]
            - m[i] * m[j] * m[k]
    }
}

impl Moments {
    /// Computes the moments of data, or of independent draws, with errors from blocks of `block_length`;
    /// finite. O(d³ M/64).
    ///
    /// # Errors
    /// [`mpf_ising::Error::BlockLength`].
    pub fn of_states(states: &States, block_length: usize) -> Result<Self> {
        Self::of_chains(states, 1, block_length, true)
    }

    /// Computes those of `n_chains` chains of equal length, one after another. Errors are from blocks of
    /// `block_length`, or from the differences between chains where these are larger. Without
    /// triplets, of which a thousand units have 166 million, it takes O(d² M/64) instead of
    /// O(d³ M/64). Finite.
    ///
    /// # Errors
    /// [`mpf_ising::Error::BlockLength`] for blocks or chains that are too long.
    pub fn of_chains(
        states: &States,
        n_chains: usize,
        block_length: usize,
        with_triplets: bool,
    ) -> Result<Self> {
        let n = states.n_samples();
        let blocks = n_blocks(n, block_length)?;
        let all = Raw::of(states, with_triplets);
        let mut found = Self::central(&all);
        found.n_samples = Some(n);
        let mut errors = found.errors(&all, states, blocks);
        if n_chains > 1 {
            let chains = n_blocks(n, n / n_chains)?;
            let between = found.errors(&all, states, chains);
            for (error, between) in errors.iter_mut().zip(between) {
                *error = between.max(*error);
            }
        }
        for (mean, error) in found.all_mut().zip(errors) {
            mean.standard_error = error;
        }
        Ok(found)
    }

    /// Returns the standard errors of all moments, from the influences of `parts` parts of `states`.
    fn errors(&self, all: &Raw, states: &States, parts: usize) -> Vec<f64> {
        let (n, d) = (states.n_samples(), states.n_units());
        let m = &all.ones;
        let mut squares = vec![0.0f64; self.all().count()];
        // Of the triplets, with means taken as known.
        let mut known = vec![0.0f64; all.triplets.len()];
        for b in 0..parts {
            let range = part(n, parts, b);
            let length = range.len() as f64;
            let square = |influence: f64| (length * influence) * (length * influence);
            let raw = Raw::of(&states.slice(range), !all.triplets.is_empty());
            let mut sums = squares.iter_mut();
            let mut add = |influence: f64| {
                *sums.next().expect("a sum for every moment") += square(influence);
            };
            for (here, overall) in raw.ones.iter().zip(m) {
                add(here - overall);
            }
            for (q, pair) in pairs(d).enumerate() {
                add(raw.pair_about(m, q, pair) - self.pairs[q].value);
            }
            for (t, (i, j, k)) in triplets(d).take(all.triplets.len()).enumerate() {
                let c = |a, b| self.pairs[pair_index(d, a, b)].value;
                let delta = |a: usize| raw.ones[a] - m[a];
                let plain = raw.triplet_about(m, t, (i, j, k)) - self.triplets[t].value;
                known[t] += square(plain);
                add(plain - c(j, k) * delta(i) - c(i, k) * delta(j) - c(i, j) * delta(k));
            }
            for (here, overall) in raw.n_active.iter().zip(&all.n_active) {
                add(here - overall);
            }
        }
        let first = d + self.pairs.len();
        for (square, known) in squares[first..].iter_mut().zip(known) {
            *square = known.max(*square);
        }
        let scale = parts as f64 / (parts - 1) as f64 / (n as f64 * n as f64);
        squares.iter().map(|sum| (scale * sum).sqrt()).collect()
    }

    /// Computes those of a small model, without error. O(d 2^d), and 8 · 2^d bytes.
    pub fn exact(exact: &Exact) -> Self {
        Self::of_probabilities(exact.couplings().n_units(), exact.probabilities())
    }

    /// As [`Moments::exact`], from the probabilities of all states of `n_units` units; bit i of the
    /// number of a state is unit i.
    ///
    /// # Panics
    /// Unless there are 2^d of them.
    pub fn of_probabilities(n_units: usize, probabilities: Vec<f64>) -> Self {
        assert_eq!(probabilities.len(), 1 << n_units, "states of the model");
        Self::central(&Raw::of_probabilities(n_units, probabilities))
    }

    /// Returns the central moments, with errors of zero.
    fn central(raw: &Raw) -> Self {
        let d = raw.ones.len();
        let known = |value| BlockMean {
            value,
            standard_error: 0.0,
        };
        Self {
            means: raw.ones.iter().map(|m| known(*m)).collect(),
            pairs: pairs(d)
                .enumerate()
                .map(|(q, pair)| known(raw.pair_about(&raw.ones, q, pair)))
                .collect(),
            triplets: triplets(d)
                .take(raw.triplets.len())
                .enumerate()
                .map(|(t, triplet)| known(raw.triplet_about(&raw.ones, t, triplet)))
                .collect(),
            n_active: raw.n_active.iter().map(|p| known(*p)).collect(),
            n_samples: None,
        }
    }

    /// Checks that these can be moments of so many units.
    fn check(&self, n_units: usize) -> Result<()> {
        check_units("moments of the model", n_units, self.means.len())?;
        let n_pairs = n_units * n_units.saturating_sub(1) / 2;
        let n_triplets = if self.triplets.is_empty() {
            0
        } else {
            n_pairs * n_units.saturating_sub(2) / 3
        };
        for (what, moments, expected) in [
            ("means", &self.means, n_units),
            ("pair moments", &self.pairs, n_pairs),
            ("triplet moments", &self.triplets, n_triplets),
            ("chances of n active units", &self.n_active, n_units + 1),
        ] {
            check_count(what, expected, moments.len())?;
            let is_moment = |m: &BlockMean| {
                m.value.abs() <= LARGEST && (0.0..=LARGEST).contains(&m.standard_error)
            };
            if let Some(index) = moments.iter().position(|m| !is_moment(m)) {
                return Err(Error::NotAMoment {
                    what,
                    index,
                    value: moments[index].value,
                    standard_error: moments[index].standard_error,
                });
            }
        }
        Ok(())
    }

    fn all(&self) -> impl Iterator<Item = &BlockMean> {
        let first = self.means.iter().chain(&self.pairs);
        first.chain(&self.triplets).chain(&self.n_active)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut BlockMean> {
        let first = self.means.iter_mut().chain(&mut self.pairs);
        first.chain(&mut self.triplets).chain(&mut self.n_active)
    }

    /// Returns what independent draws of g = x_i, δ_i δ_j, δ_i δ_j δ_k and "n are active" vary by.
    /// The squares are linear in δ: δ² = m (1 − m) + (1 − 2m) δ.
    fn spreads(&self) -> [Vec<Spread>; 4] {
        let d = self.means.len();
        let m = |i: usize| self.means[i].value;
        let v = |i: usize| m(i) * (1.0 - m(i));
        let s = |i: usize| 1.0 - 2.0 * m(i);
        let largest = |i: usize| m(i).max(1.0 - m(i));
        let c = |i: usize, j: usize| self.pairs[pair_index(d, i, j)].value;
        let spread = |square: f64, mean: f64, largest: f64| Spread {
            variance: (square - mean * mean).max(0.0),
            largest: largest + mean.abs(),
        };
        let of_pair = |(i, j): (usize, usize)| {
            let square = v(i) * v(j) + s(i) * s(j) * c(i, j);
            spread(square, c(i, j), largest(i) * largest(j))
        };
        let of_triplet = |((i, j, k), mean): ((usize, usize, usize), &BlockMean)| {
            let square = v(i) * v(j) * v(k)
                + v(i) * s(j) * s(k) * c(j, k)
                + v(j) * s(i) * s(k) * c(i, k)
                + v(k) * s(i) * s(j) * c(i, j)
                + s(i) * s(j) * s(k) * mean.value;
            spread(square, mean.value, largest(i) * largest(j) * largest(k))
        };
        let indicator = |p: &BlockMean| Spread {
            variance: (p.value * (1.0 - p.value)).max(0.0),
            largest: p.value.max(1.0 - p.value),
        };
        [
            self.means.iter().map(indicator).collect(),
            pairs(d).map(of_pair).collect(),
            triplets(d).zip(&self.triplets).map(of_triplet).collect(),
            self.n_active.iter().map(indicator).collect(),
        ]
    }
}

/// The variance of a quantity, and the most that one draw is off its mean.
#[derive(Clone, Copy)]
struct Spread {
    variance: f64,
    largest: f64,
}

/// Returns z of a sum of independent terms of at most `largest` and of so much variance in all that
/// is `off` its mean: √(2 σ²/b² h(b off/σ²)).
fn bennett(off: f64, variance: f64, largest: f64) -> f64 {
    let u = largest * off / variance;
    if u < 1e-3 {
        // h(u) = u²/2 − u³/6 + …, which the difference of logarithms loses to rounding.
        return off / variance.sqrt() * (1.0 - u / 6.0);
    }
    let h = (1.0 + u) * u.ln_1p() - u;
    (2.0 * variance * h).sqrt() / largest
}

/// How far one kind of moment of a model is from that of data. Finite; all zero where there are
/// none of the kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Agreement {
    /// √⟨(model − data)²⟩.
    pub rms_difference: f64,
    /// √⟨error²_model + error²_data⟩: what the difference of equals would be.
    pub rms_error: f64,
    /// The share of differences within two standard errors: .95 for equals.
    pub within_two_errors: f64,
    /// The largest |z|.
    pub largest_z: f64,
}

impl Agreement {
    /// Compares moments in the same order, with their spreads and numbers of draws. Pairs that have no
    /// error on either side, such as two exact ones, are left out of z.
    fn of(
        (model, model_spreads, n_draws): (&[BlockMean], &[Spread], Option<usize>),
        (data, data_spreads, n_samples): (&[BlockMean], &[Spread], Option<usize>),
    ) -> Self {
        let n = data.len() as f64;
        let mut found = Self::default();
        let mut judged = 0.0f64;
        let spreads = model_spreads.iter().zip(data_spreads);
        for ((model, data), (a, b)) in model.iter().zip(data).zip(spreads) {
            let off = (model.value - data.value).abs();
            // Of both together, which vary even where neither does.
            let per_draw = a.variance.max(b.variance) + off * off / 4.0;
            let largest = a.largest.max(b.largest);
            let mut variance = 0.0;
            let mut largest_term = 0.0f64;
            for (error, n) in [
                (model.standard_error, n_draws),
                (data.standard_error, n_samples),
            ] {
                let independent = n.map_or(0.0, |n| per_draw / n.max(1) as f64);
                let own = independent.max(error * error);
                variance += own;
                if n.is_some() && per_draw > 0.0 {
                    // One of per_draw/own effective draws.
                    largest_term = largest_term.max(largest * own / per_draw);
                }
            }
            found.rms_difference += off * off / n;
            found.rms_error += variance / n;
            if variance > 0.0 {
                let z = bennett(off, variance, largest_term);
                judged += 1.0;
                found.within_two_errors += f64::from(u8::from(z < 2.0));
                found.largest_z = found.largest_z.max(z);
            }
        }
        found.rms_difference = found.rms_difference.sqrt();
        found.rms_error = found.rms_error.sqrt();
        found.within_two_errors /= judged.max(1.0);
        found
    }
}

/// A model beside data.
#[derive(Clone, Debug, Serialize)]
pub struct GoodnessOfFit {
    /// The moments of the model.
    pub model: Moments,
    /// The moments of the data.
    pub data: Moments,
    /// How well means agree.
    pub means: Agreement,
    /// How well pair correlations agree.
    pub pairs: Agreement,
    /// How well triplet correlations agree.
    pub triplets: Agreement,
    /// How well P(number active) agrees.
    pub n_active: Agreement,
}

impl GoodnessOfFit {
    /// Compares a model with data; triplets only where both have them.
    ///
    /// # Errors
    /// [`mpf_ising::Error::UnitCount`] for moments of other units; [`mpf_core::Error::Count`] and
    /// [`Error::NotAMoment`] for fields that were set to what moments cannot be.
    pub fn new(model: Moments, data: Moments) -> Result<Self> {
        model.check(data.means.len())?;
        data.check(data.means.len())?;
        let [of_model, of_data] = [&model, &data].map(Moments::spreads);
        let of = |kind: usize, a: &[BlockMean], b: &[BlockMean]| {
            Agreement::of(
                (a, &of_model[kind], model.n_samples),
                (b, &of_data[kind], data.n_samples),
            )
        };
        Ok(Self {
            means: of(0, &model.means, &data.means),
            pairs: of(1, &model.pairs, &data.pairs),
            triplets: if model.triplets.len() == data.triplets.len() {
                of(2, &model.triplets, &data.triplets)
            } else {
                of(2, &[], &[])
            },
            n_active: of(3, &model.n_active, &data.n_active),
            model,
            data,
        })
    }

    /// Returns the |z| that the largest of all moments exceeds by chance in at most one of 10,000
    /// comparisons, however the moments depend on each other: N of them do with a probability below
    /// 2 N exp(−z²/2).
    pub fn chance_limit(&self) -> f64 {
        let n = self.data.all().count().max(1) as f64;
        (2.0 * (2.0 * n / 1e-4).ln()).sqrt()
    }
}

/// Entropies of a model whose ln Z is known, in nats. All finite.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Entropies {
    /// S of the model.
    pub entropy: BlockMean,
    /// Σ_i S(m_i): independent units with the same means.
    pub independent: BlockMean,
    /// I, their difference: what the couplings say.
    pub multi_information: BlockMean,
}

impl Entropies {
    /// Computes entropies from ln Z and the moments of the model: ⟨E⟩ = Σ_i J_ii m_i + 2 Σ_{i<j} J_ij (C_ij + m_i m_j).
    ///
    /// The errors are those of ln Z and of the moments, as far as the latter are taken to be
    /// independent of each other: a guide, not a bound. They are zero for exact moments.
    ///
    /// # Errors
    /// [`mpf_ising::Error::UnitCount`] for moments of other units; [`mpf_core::Error::Count`] and
    /// [`Error::NotAMoment`] for fields that were set to what moments cannot be;
    /// [`Error::NotFinite`] for a ln Z that is not, and for couplings so large that a result is not.
    pub fn new(couplings: &Couplings, log_z: BlockMean, model: &Moments) -> Result<Self> {
        let d = couplings.n_units();
        model.check(d)?;
        check_mean("ln Z", &log_z)?;
        let m: Vec<f64> = model.means.iter().map(|m| m.value).collect();
        let mut energy = 0.0;
        // ∂E/∂m_i, and the errors that ln Z and the pairs make.
        let mut slopes: Vec<f64> = (0..d).map(|i| couplings.get(i, i)).collect();
        let mut errors = vec![log_z.standard_error];
        for (q, (i, j)) in pairs(d).enumerate() {
            let strength = 2.0 * couplings.get(i, j);
            energy += strength * (model.pairs[q].value + m[i] * m[j]);
            errors.push(strength * model.pairs[q].standard_error);
            slopes[i] += strength * m[j];
            slopes[j] += strength * m[i];
        }
        let mut independent = 0.0;
        let (mut information_errors, mut independent_errors) = (errors.clone(), Vec::new());
        for i in 0..d {
            energy += couplings.get(i, i) * m[i];
            let error = model.means[i].standard_error;
            let own = |p: f64| if p > 0.0 { -p * p.ln() } else { 0.0 };
            independent += own(m[i]) + own(1.0 - m[i]);
            // S′(m) = ln((1 − m)/m), whose quotient may overflow; a unit that never changes adds
            // nothing.
            let slope = if m[i] > 0.0 && m[i] < 1.0 {
                (-m[i]).ln_1p() - m[i].ln()
            } else {
                0.0
            };
            errors.push(slopes[i] * error);
            independent_errors.push(slope * error);
            information_errors.push((slope - slopes[i]) * error);
        }
        let entropy = log_z.value + energy;
        let with = |what: &'static str, value: f64, errors: &[f64]| {
            let mean = BlockMean {
                value,
                standard_error: root_of_squares(errors),
            };
            check_mean(what, &mean).map(|()| mean)
        };
        let information = independent - entropy;
        let of_independent = "the entropy of independent units";
        Ok(Self {
            entropy: with("the entropy", entropy, &errors)?,
            independent: with(of_independent, independent, &independent_errors)?,
            multi_information: with("the multi-information", information, &information_errors)?,
        })
    }
}

/// Returns the share of the multi-information of the data that a model explains, up to
/// 20 units: (H₁ + LL)/(H₁ − H), where H₁ is the entropy of independent units
/// with the means of the data, H that of the observed states, and LL the mean log-likelihood of the
/// samples. Few samples make H too small, and the share with it. `None` for more units, and for data
/// whose units are independent.
///
/// # Errors
/// Those of [`Exact`].
pub fn multi_information_share(couplings: &Couplings, samples: &Samples) -> Result<Option<f64>> {
    if couplings.n_units() > MULTI_INFORMATION_UNITS {
        return Ok(None);
    }
    let own = |p: f64| if p > 0.0 { -p * p.ln() } else { 0.0 };
    let means = samples.means();
    let independent: f64 = means.iter().map(|&m| own(m) + own(1.0 - m)).sum();
    let total = samples.total_weight();
    let observed: f64 = (0..samples.n_distinct())
        .map(|m| own(samples.weight(m) / total))
        .sum();
    let explained = independent + Exact::new(couplings)?.log_likelihood(samples)?;
    let information = independent - observed;
    Ok((information > 1e-9).then(|| explained / information))
}

/// The most units for which [`multi_information_share`] sums over all states.
const MULTI_INFORMATION_UNITS: usize = 20;

/// Returns √Σ e², where the squares may overflow but the root does not.
fn root_of_squares(errors: &[f64]) -> f64 {
    let sum = errors.iter().map(|e| e * e).sum::<f64>();
    if sum.is_finite() {
        return sum.sqrt();
    }
    errors.iter().fold(0.0, |root: f64, e| root.hypot(*e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn z_of_rare_events_bounds_their_tail() {
        // A Poisson count of mean λ is the limit of independent terms of at most 1.
        for mean in [0.3f64, 3.0, 30.0] {
            let chance = |k: usize| {
                let factorial: f64 = (1..=k).map(|i| (i as f64).ln()).sum();
                (k as f64 * mean.ln() - mean - factorial).exp()
            };
            let first = mean.ceil() as usize + 1;
            for least in first..first + 40 {
                let tail: f64 = (least..least + 200).map(chance).sum();
                let off = least as f64 - mean;
                let z = bennett(off, mean, 1.0);
                assert!(tail <= (-z * z / 2.0).exp(), "{mean} {least}");
                // Not by much: the normal tail itself is about z √(2π) below exp(−z²/2).
                assert!(
                    tail > (-z * z / 2.0).exp() / (10.0 * (1.0 + z)),
                    "{mean} {least}"
                );
                // The plain z would promise far less.
                assert!(z < off / mean.sqrt());
            }
        }
        // Frequent events: the plain z, across the series at u = 10⁻³.
        for off in [0.999e-3, 1.001e-3] {
            let z = bennett(off, 1.0, 1.0);
            assert!((z - off * (1.0 - off / 6.0)).abs() < 1e-6 * off, "{z}");
        }
        assert_eq!(bennett(3.0, 4.0, 0.0), 1.5);
    }
}
