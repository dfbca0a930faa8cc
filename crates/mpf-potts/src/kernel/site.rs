//! One site over one chunk of sequences: sums of rows, the loss of every sequence, slopes backwards.
//!
//! ```text
//! u_m(a)    = h(a) + Σ_j J_j(a, x_mj)            rows of q numbers, added pattern by pattern
//! D_m(a)    = ∂F/∂u_m(a)
//! G_j(a, b) = Σ_m D_m(a) [x_mj = b]              the same additions backwards
//! ```

use super::patterns::{Group, Half, Patterns};
use super::{Loss, Row};
use mpf_ising::internal::{Lanes, Number};
use std::ops::Range;

/// Sequences whose exponentials are taken together: a whole number of cache lines for every width.
const BLOCK: usize = 16;

/// What the sums of one site need.
pub(super) struct SiteTask<'a, T, const Q: usize> {
    pub(super) patterns: &'a Patterns,
    /// The code of this site and the weight of every sequence.
    pub(super) targets: &'a [u8],
    pub(super) weights: &'a [f64],
    /// The number of states; a target beyond them is ignored.
    pub(super) n_states: usize,
    /// The rows J_j(·, b) by column and code.
    pub(super) rows: &'a [Row<T, Q>],
    pub(super) n_codes: usize,
    /// h, and in lanes beyond the states a number so low that its exponential vanishes.
    pub(super) fields: &'a Row<T, Q>,
    pub(super) loss: Loss,
}

impl<T: Number, const Q: usize> SiteTask<'_, T, Q> {
    /// Returns the loss of this site and adds the gradients of its rows to `grads`.
    #[inline(always)]
    pub(super) fn sum<V: Lanes<Number = T>>(
        &self,
        grads: &mut [Row<T, Q>],
        scratch: &mut [Row<T, Q>],
    ) -> f64 {
        let (sums, tables) = scratch.split_at_mut(self.targets.len());
        self.forward(sums, tables);
        let value = self.slopes::<V>(sums);
        self.backward(sums, tables, grads);
        value
    }

    #[inline(always)]
    fn column(&self, j: usize) -> Range<usize> {
        j * self.n_codes..(j + 1) * self.n_codes
    }

    /// Computes u of every sequence.
    #[inline(always)]
    fn forward(&self, sums: &mut [Row<T, Q>], tables: &mut [Row<T, Q>]) {
        sums.fill(*self.fields);
        for batch in &self.patterns.batches {
            for group in &batch.groups {
                self.fill(group, tables);
            }
            tables[batch.blank] = [T::nearest(0.0); Q];
            let tables = &tables[..=batch.blank];
            for (sum, rows) in sums.iter_mut().zip(&batch.rows) {
                // By reference: an array of four rows would be copied first.
                let [a, b, c, d] = rows.map(|row| &tables[usize::from(row)]);
                *sum = plus(*sum, plus(plus(*a, *b), plus(*c, *d)));
            }
        }
    }

    /// Computes the sums of all patterns of a group.
    #[inline(always)]
    fn fill(&self, group: &Group, tables: &mut [Row<T, Q>]) {
        if let Half::Column(j) = group.half {
            tables[group.table.start..][..self.n_codes].copy_from_slice(&self.rows[self.column(j)]);
        }
        for node in &self.patterns.nodes[group.nodes.clone()] {
            let (sums, rest) = tables[node.place..].split_at_mut(node.pairs.len());
            let (left, right) = rest.split_at(self.patterns.n_patterns(node.left));
            let rows = |half, below| match half {
                Half::Column(j) => &self.rows[self.column(j)],
                Half::Node(_) => below,
            };
            let (left, right) = (rows(node.left, left), rows(node.right, right));
            for (sum, &[l, r]) in sums.iter_mut().zip(&node.pairs) {
                *sum = plus(left[usize::from(l)], right[usize::from(r)]);
            }
        }
    }

    /// Adds the slopes of the sequences up for every pattern, and for the columns.
    #[inline(always)]
    fn backward(&self, slopes: &[Row<T, Q>], tables: &mut [Row<T, Q>], grads: &mut [Row<T, Q>]) {
        for batch in &self.patterns.batches {
            let sums = &mut tables[..=batch.blank];
            sums.fill([T::nearest(0.0); Q]);
            for (slope, rows) in slopes.iter().zip(&batch.rows) {
                for row in rows {
                    let sum = &mut sums[usize::from(*row)];
                    *sum = plus(*sum, *slope);
                }
            }
            // What is below a group takes the place of the tables after its own.
            for group in batch.groups.iter().rev() {
                self.spread(group, tables, grads);
            }
        }
    }

    /// Adds the slopes of the patterns of a group up for every pattern below, and for the columns.
    #[inline(always)]
    fn spread(&self, group: &Group, tables: &mut [Row<T, Q>], grads: &mut [Row<T, Q>]) {
        if let Half::Column(j) = group.half {
            add_rows(&mut grads[self.column(j)], &tables[group.table.start..]);
        }
        let mut own = [[T::nearest(0.0); Q]; 2 * super::MOST_CODES];
        for node in self.patterns.nodes[group.nodes.clone()].iter().rev() {
            let (slopes, rest) = tables[node.place..].split_at_mut(node.pairs.len());
            let (left, right) = rest.split_at_mut(self.patterns.n_patterns(node.left));
            let right = &mut right[..self.patterns.n_patterns(node.right)];
            // Two columns may not be borrowed at once: they are summed aside.
            let (own_left, own_right) = own.split_at_mut(super::MOST_CODES);
            let left = match node.left {
                Half::Column(_) => &mut own_left[..self.n_codes],
                Half::Node(_) => left,
            };
            let right = match node.right {
                Half::Column(_) => &mut own_right[..self.n_codes],
                Half::Node(_) => right,
            };
            if let Half::Column(_) = node.left {
                // A column may lack some of its codes.
                left.fill([T::nearest(0.0); Q]);
            }
            right.fill([T::nearest(0.0); Q]);
            // Pairs are sorted by their left pattern, whose sum stays in registers.
            let (mut sum, mut last) = ([T::nearest(0.0); Q], 0);
            for (slope, &[l, r]) in slopes.iter().zip(&node.pairs) {
                let keep = T::nearest(if l == last { 1.0 } else { 0.0 });
                let mut kept = sum;
                for number in &mut kept {
                    *number = *number * keep;
                }
                (sum, last) = (plus(kept, *slope), l);
                let (left, right) = (&mut left[usize::from(l)], &mut right[usize::from(r)]);
                (*left, *right) = (sum, plus(*right, *slope));
            }
            for (half, sums) in [(node.left, &*left), (node.right, &*right)] {
                if let Half::Column(j) = half {
                    add_rows(&mut grads[self.column(j)], sums);
                }
            }
        }
    }

    /// Replaces u of every sequence by D, and returns the loss.
    #[inline(always)]
    fn slopes<V: Lanes<Number = T>>(&self, sums: &mut [Row<T, Q>]) -> f64 {
        let mut value = 0.0;
        let targets = self.targets.chunks(BLOCK).zip(self.weights.chunks(BLOCK));
        for (rows, (targets, weights)) in sums.chunks_mut(BLOCK).zip(targets) {
            let mut block = [[T::nearest(0.0); Q]; BLOCK];
            let mut shifts = [0.0; BLOCK];
            for ((row, &x), (exponents, shift)) in rows
                .iter()
                .zip(targets)
                .zip(block.iter_mut().zip(&mut shifts))
            {
                let x = usize::from(x);
                if x >= self.n_states {
                    continue;
                }
                *shift = self.exponents(row, x, exponents);
            }
            exp::<V>(block.as_flattened_mut());
            let mut excess = [T::nearest(0.0); BLOCK];
            for (((row, &x), &weight), (powers, excess)) in rows
                .iter_mut()
                .zip(targets)
                .zip(weights)
                .zip(block.iter().zip(&mut excess))
            {
                let x = usize::from(x);
                if x >= self.n_states {
                    *row = [T::nearest(0.0); Q];
                    continue;
                }
                *excess = self.slope(powers, x, T::nearest(weight), row);
            }
            if self.loss == Loss::Pseudolikelihood {
                ln_1p::<V>(&mut excess);
            }
            for ((&weight, term), shift) in weights.iter().zip(excess).zip(shifts) {
                value += weight * (term.into() + shift);
            }
        }
        value
    }

    /// Writes the exponents of the loss. For pseudolikelihood they are u(a) less the largest u, which
    /// is returned less u(x); for the flow ½[u(a) − u(x)].
    #[inline(always)]
    fn exponents(&self, row: &Row<T, Q>, x: usize, exponents: &mut Row<T, Q>) -> f64 {
        *exponents = *row;
        let own = exponents[x];
        match self.loss {
            Loss::Pseudolikelihood => {
                let mut four = [exponents[0], exponents[1], exponents[2], exponents[3]];
                for part in exponents.as_chunks::<4>().0 {
                    for (most, &u) in four.iter_mut().zip(part) {
                        *most = if u > *most { u } else { *most };
                    }
                }
                let larger = |a, b| if a > b { a } else { b };
                let most = larger(larger(four[0], four[1]), larger(four[2], four[3]));
                for u in exponents.iter_mut() {
                    *u = *u - most;
                }
                (most - own).into()
            }
            Loss::Flow => {
                let half = T::nearest(0.5);
                for u in exponents.iter_mut() {
                    *u = half * (*u - own);
                }
                0.0
            }
        }
    }

    /// Writes D of one sequence. Returns its loss for the flow, and for pseudolikelihood the sum of
    /// its powers less the largest, which is 1.
    #[inline(always)]
    fn slope(&self, powers: &Row<T, Q>, x: usize, weight: T, slope: &mut Row<T, Q>) -> T {
        let mut four = [T::nearest(0.0); 4];
        for part in powers.as_chunks::<4>().0 {
            for (sum, &power) in four.iter_mut().zip(part) {
                *sum = *sum + power;
            }
        }
        let sum = (four[0] + four[2]) + (four[1] + four[3]);
        match self.loss {
            Loss::Pseudolikelihood => {
                let factor = weight / sum;
                for k in 0..Q {
                    slope[k] = factor * powers[k];
                }
                slope[x] = slope[x] - weight;
                sum - T::nearest(1.0)
            }
            Loss::Flow => {
                let factor = T::nearest(0.5) * weight;
                for k in 0..Q {
                    slope[k] = factor * powers[k];
                }
                let outflow = sum - powers[x];
                slope[x] = -(factor * outflow);
                outflow
            }
        }
    }
}

/// Adds two rows. Arguments and result are values: the compiler sees that none overlaps another, and
/// adds whole vectors. A plain loop is vectorised in test builds too, where closures are not inlined.
#[inline(always)]
fn plus<T: Number, const Q: usize>(a: Row<T, Q>, b: Row<T, Q>) -> Row<T, Q> {
    let mut sum = a;
    for k in 0..Q {
        sum[k] = sum[k] + b[k];
    }
    sum
}

/// Adds rows to others.
#[inline(always)]
fn add_rows<T: Number, const Q: usize>(to: &mut [Row<T, Q>], rows: &[Row<T, Q>]) {
    for (to, row) in to.iter_mut().zip(rows) {
        *to = plus(*to, *row);
    }
}

/// A function that replaces every number. A closure as its argument would not be compiled for the
/// vectors of the machine.
macro_rules! each {
    ($function:ident) => {
        #[inline(always)]
        fn $function<V: Lanes>(numbers: &mut [V::Number]) {
            let mut line = V::ZEROS;
            for part in numbers.chunks_exact_mut(V::LANES) {
                line.as_mut().copy_from_slice(part);
                V::load(&line).$function().store(&mut line);
                part.copy_from_slice(line.as_ref());
            }
        }
    };
}

each!(exp);
each!(ln_1p);
