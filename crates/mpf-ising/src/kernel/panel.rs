//! What the tables of `dense` and the lists of `sparse` share: a panel of units over some samples.

use super::counts::{self, CountSums, Counts};
use super::lanes::Lanes;
use super::loss::{LaneLoss, Total};
use super::{FlipMask, PANEL};
use crate::bits::Samples;
use std::ops::Range;

/// One panel over some samples.
pub(super) struct Panel<'a> {
    pub(super) samples: &'a Samples,
    pub(super) mask: Option<&'a FlipMask>,
    pub(super) counts: Option<&'a Counts>,
    /// The first unit of the panel, and how many it has.
    pub(super) first: usize,
    pub(super) n_units: usize,
    /// R by column, and c, of the whole block of [`PANEL`] units around this panel.
    pub(super) rows: &'a [[f64; PANEL]],
    pub(super) offsets: &'a [f64; PANEL],
    /// The samples; the first is a multiple of 64.
    pub(super) range: Range<usize>,
    /// If exponentials may be multiplied instead of margins added: how many terms fit in a product.
    pub(super) product: Option<usize>,
}

/// The sums of a panel.
pub(super) struct Partial {
    pub(super) value: f64,
    pub(super) offsets: [f64; PANEL],
    /// By column, a number for each unit.
    pub(super) rows: Vec<f64>,
    /// By number of active units, if they matter.
    pub(super) counts: Vec<[f64; 2]>,
}

/// The units of a panel in one sample.
#[derive(Clone, Copy)]
pub(super) struct Sample<'a, V> {
    pub(super) on: u32,
    kept: u32,
    weight: V,
    counted: Option<(&'a Counts, usize)>,
}

impl Panel<'_> {
    /// Begins the sums; `grads` are zeros for [`Partial::rows`].
    #[inline(always)]
    pub(super) fn begin<V: Lanes>(&self, grads: Vec<f64>) -> (Partial, CountSums<V>) {
        let partial = Partial {
            value: 0.0,
            offsets: [0.0; PANEL],
            rows: grads,
            counts: Vec::new(),
        };
        let count_sums = self.counts.map_or_else(Vec::new, Counts::no_sums::<V>);
        (partial, count_sums)
    }

    /// Returns whether every flip counts, and counts once.
    pub(super) fn is_plain(&self) -> bool {
        self.mask.is_none() && self.counts.is_none() && self.samples.weights().is_none()
    }

    /// [`Panel::sample`] of a row of a [plain](Panel::is_plain) panel.
    #[inline(always)]
    pub(super) fn plain_sample<V: Lanes>(&self, row: &[u64]) -> Sample<'_, V> {
        Sample {
            on: (row[self.first / 64] >> (self.first % 64)) as u32,
            kept: self.present(),
            weight: V::splat(1.0),
            counted: None,
        }
    }

    /// Returns the units that exist.
    #[inline(always)]
    fn present(&self) -> u32 {
        u32::MAX >> (32 - self.n_units)
    }

    /// Returns which units are 1 in a sample, and which of their flips count.
    #[inline(always)]
    pub(super) fn sample<V: Lanes>(&self, m: usize) -> Sample<'_, V> {
        let (word, shift) = (self.first / 64, self.first % 64);
        let on = (self.samples.states().row(m)[word] >> shift) as u32;
        let present = self.present();
        let kept = match self.mask {
            None => present,
            Some(mask) => present & !(mask.row(m)[word] >> shift) as u32,
        };
        let counted = self.counts.map(|counts| (counts, counts.of(m)));
        let kept = match counted {
            None => kept,
            Some((counts, n)) => kept & counts.kept(n, on),
        };
        Sample {
            on,
            kept,
            weight: V::splat(self.samples.weight(m)),
            counted,
        }
    }
}

impl<V: Lanes> Sample<'_, V> {
    /// Moves on to the units of a line.
    #[inline(always)]
    pub(super) fn line(mut self, line: usize) -> Self {
        self.on >>= V::LANES * line;
        self.kept >>= V::LANES * line;
        self
    }

    /// Adds w φ to `value` and returns D = −w s φ′, given exp(−a) without the shift of the counts.
    #[inline(always)]
    pub(super) fn slope_of_rate(
        self,
        loss: impl LaneLoss,
        mut rate: V,
        value: &mut Total<V>,
        count_sums: &mut CountSums<V>,
    ) -> V {
        if let Some((counts, n)) = self.counted {
            rate = rate * counts.shift::<V, true>(n, self.on);
        }
        let slope = value.add_of_rate(loss, rate, self.weight, self.kept);
        self.finish(slope, count_sums)
    }

    /// The same, given z.
    #[inline(always)]
    pub(super) fn slope_of_sum(
        self,
        loss: impl LaneLoss,
        z: V,
        value: &mut Total<V>,
        count_sums: &mut CountSums<V>,
    ) -> V {
        // a = −s z.
        let mut margin = z.flip(self.on);
        if let Some((counts, n)) = self.counted {
            margin = margin + counts.shift::<V, false>(n, self.on);
        }
        let (phi, slope) = loss.value_and_slope(margin);
        value.add(phi, self.weight, self.kept);
        self.finish(slope, count_sums)
    }

    #[inline(always)]
    fn finish(self, slope: V, count_sums: &mut CountSums<V>) -> V {
        let slope = slope.keep(self.kept) * self.weight;
        if let Some((_, n)) = self.counted {
            counts::add(&mut count_sums[n], slope, self.on);
        }
        // −s φ′: minus φ′ where the bit is set.
        slope.flip(self.on)
    }
}
