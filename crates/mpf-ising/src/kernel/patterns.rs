//! A unit with few neighbours: count the patterns of their states once.
//!
//! z_i depends on the k neighbours of unit i alone. An objective needs only the counts of their 2^k
//! patterns with x_i = 0 and with x_i = 1, so on a lattice (k ≤ 4) an evaluation costs the same for a
//! thousand samples as for a billion.

use super::lanes::{Aligned, Lanes, Portable};
use super::{FlipMask, MarginLoss};
use crate::bits::{Samples, get_bit};

/// The most neighbours of a unit whose patterns are counted.
pub(super) const MOST_NEIGHBOURS: usize = 10;

type Line = Aligned<[f64; 8]>;

/// The patterns of one unit's neighbours.
#[derive(Clone, Debug)]
pub(super) struct Patterns {
    /// The weight of every pattern, eight at a time (padded with zeros), for x_i = 0 and 1.
    weights: [Vec<Line>; 2],
}

impl Patterns {
    /// Counts the patterns. O(M k).
    pub(super) fn new(
        samples: &Samples,
        mask: Option<&FlipMask>,
        unit: usize,
        neighbours: &[u32],
    ) -> Self {
        let lines = (1usize << neighbours.len()).div_ceil(8);
        let mut weights = [const { Portable::ZEROS }; 2].map(|zeros| vec![zeros; lines]);
        for (m, x) in samples.states().rows().enumerate() {
            if mask.is_some_and(|mask| get_bit(mask.row(m), unit)) {
                continue;
            }
            let mut pattern = 0;
            for (bit, &j) in neighbours.iter().enumerate() {
                pattern |= usize::from(get_bit(x, j as usize)) << bit;
            }
            let own = usize::from(get_bit(x, unit));
            weights[own][pattern / 8].0[pattern % 8] += samples.weight(m);
        }
        Self { weights }
    }

    /// Returns Σ w φ of the unit and writes r and G of its row.
    pub(super) fn sum(
        &self,
        row: &[f64],
        offset: f64,
        loss: MarginLoss,
        row_grad: &mut [f64],
        offset_grad: &mut f64,
    ) -> f64 {
        // z of every pattern, doubling with every neighbour.
        let n = 1usize << row.len();
        let mut z = vec![offset; n.max(8)];
        for (bit, r) in row.iter().enumerate() {
            let (known, next) = z[..2 << bit].split_at_mut(1 << bit);
            for (next, known) in next.iter_mut().zip(known) {
                *next = *known + r;
            }
        }
        let mut value = Portable::splat(0.0);
        let mut slopes = vec![[0.0; 8]; z.len() / 8];
        for (own, weights) in self.weights.iter().enumerate() {
            // a = −s z.
            let flip = if own == 1 { 255 } else { 0 };
            for ((z, weight), total) in z.as_chunks::<8>().0.iter().zip(weights).zip(&mut slopes) {
                let (phi, slope) = loss.of_margins(Portable::round(z).flip(flip));
                let weight = Portable::load(weight);
                // φ may be infinite at a pattern that never occurs.
                value = value + weighted(phi, weight);
                weighted(slope.flip(flip), weight).add_to(total);
            }
        }
        // Fold the patterns: the upper half has the last neighbour's bit set.
        let slopes = slopes.as_flattened_mut();
        let mut width = n;
        for g in row_grad.iter_mut().rev() {
            width /= 2;
            let (without, with) = slopes[..2 * width].split_at_mut(width);
            *g = with.iter().sum();
            for (a, b) in without.iter_mut().zip(with) {
                *a += *b;
            }
        }
        *offset_grad = slopes[0];
        value.sum()
    }
}

/// Returns w·a, and 0 if w is 0, even for an infinite a.
fn weighted(a: Portable, weight: Portable) -> Portable {
    let (mut products, mut weights) = (Portable::ZEROS, Portable::ZEROS);
    (a * weight).store(&mut products);
    weight.store(&mut weights);
    for (product, weight) in products.0.iter_mut().zip(weights.0) {
        if weight == 0.0 {
            *product = 0.0;
        }
    }
    Portable::load(&products)
}
