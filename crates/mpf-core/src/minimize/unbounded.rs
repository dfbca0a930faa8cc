//! L-BFGS without bounds, for many parameters.
//!
//! ```text
//! θ ← θ + t d,   d = −H ∇f,   H the inverse of the matrix by which L-BFGS-B approximates ∇²f
//! ```
//!
//! `basin`'s L-BFGS-B takes 100 ns per parameter and step, on one thread, most of them for bounds. Where
//! no parameter has one, the two loops of Nocedal and Wright (Algorithm 7.4) give the same direction up
//! to rounding. Line search and first step are those of L-BFGS-B.
//!
//! Sums are over chunks that depend on the number of parameters alone, added in their order: threads
//! cannot change a digit.

use super::basin_backend::{Boxed, foreign_memory};
use super::search::{Halt, Search};
use crate::checkpoint;
use crate::error::Error;
use basin::{
    LineSearch, LineSearchBounds, LineSearchOutcome, LineSearchResult, MoreThuente, Problem,
};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::VecDeque;

/// The fewest parameters: with fewer, bounds cost little.
pub(super) const LEAST: usize = 1 << 15;

/// Begins every encoded memory: those of `basin`'s solver begin otherwise.
const NAME: &str = "two loops";

/// The longest step, in units of the direction, as L-BFGS-B has it.
const LONGEST: f64 = 1e10;

/// Numbers that are summed on one thread.
const CHUNK: usize = 1 << 14;

/// A step, the change of the gradient along it, and 1 over their product.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Pair {
    step: Vec<f64>,
    change: Vec<f64>,
    rho: f64,
}

/// What L-BFGS remembers, the oldest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Pairs {
    pairs: VecDeque<Pair>,
    /// H without any pair is this times 1.
    scale: f64,
}

impl Pairs {
    /// Decodes the memory of an earlier run with `n` parameters.
    pub(super) fn recall(bytes: &[u8], n: usize) -> crate::Result<Self> {
        let decoded: crate::Result<(String, Self)> = checkpoint::decode(bytes);
        let Some((_, recalled)) = decoded.ok().filter(|(name, _)| name == NAME) else {
            let message =
                "its L-BFGS is that of an earlier version, which this one cannot go on with";
            return Err(Error::checkpoint(message));
        };
        let fits = |pair: &Pair| pair.step.len() == n && pair.change.len() == n;
        if recalled.pairs.iter().all(fits) {
            Ok(recalled)
        } else {
            Err(foreign_memory())
        }
    }

    /// Returns d = −H g and gᵀd.
    fn direction(&self, grad: &[f64]) -> (Vec<f64>, f64) {
        let mut d: Vec<f64> = grad.par_iter().with_min_len(CHUNK).map(|g| -g).collect();
        let Some(newest) = self.pairs.back() else {
            let slope = dot(&d, grad);
            return (d, slope);
        };
        // Each sweep also prepares the next: its product is taken while the chunk is in the cache.
        let mut product = dot(&newest.step, &d);
        let mut alphas = Vec::with_capacity(self.pairs.len());
        for (k, pair) in self.pairs.iter().enumerate().rev() {
            let alpha = pair.rho * product;
            let next = match k.checked_sub(1) {
                Some(older) => &self.pairs[older].step,
                None => &pair.change,
            };
            product = sweep(&mut d, 1.0, -alpha, &pair.change, next);
            alphas.push(alpha);
        }
        product *= self.scale;
        let mut factor = self.scale;
        for (k, (pair, alpha)) in self.pairs.iter().zip(alphas.into_iter().rev()).enumerate() {
            let beta = pair.rho * product;
            let next = self.pairs.get(k + 1).map_or(grad, |newer| &newer.change);
            product = sweep(&mut d, factor, alpha - beta, &pair.step, next);
            factor = 1.0;
        }
        (d, product)
    }

    /// Remembers the step t d between two gradients, if the second is larger along it.
    fn push(&mut self, capacity: usize, mut d: Vec<f64>, t: f64, slope: f64, grads: [&[f64]; 2]) {
        let [before, after] = grads.map(|grad| grad.par_iter().with_min_len(CHUNK));
        let change: Vec<f64> = after.zip(before).map(|(a, b)| a - b).collect();
        d.par_iter_mut().with_min_len(CHUNK).for_each(|s| *s *= t);
        let (product, square) = (dot(&d, &change), dot(&change, &change));
        // The rule of L-BFGS-B.
        if product > f64::EPSILON * (slope * t).abs() && square.is_finite() {
            if self.pairs.len() == capacity {
                self.pairs.pop_front();
            }
            self.scale = product / square;
            self.pairs.push_back(Pair {
                step: d,
                change,
                rho: 1.0 / product,
            });
        }
    }
}

/// Minimises from the search's last accepted point, with the memory of an earlier run if there is one.
pub(super) fn run(search: &mut Search<'_>, memory: Option<Pairs>) -> Halt {
    let mut memory = memory.unwrap_or_default();
    let search = RefCell::new(search);
    let mut problem = Problem::new(Boxed::without_bounds(&search));
    loop {
        if search.borrow().must_sharpen() {
            search.borrow_mut().turn_exact();
        }
        let (capacity, theta, value, grad) = {
            let search = search.borrow();
            let last = search.last();
            let capacity = search.options.memory;
            (capacity, last.theta.clone(), last.value, last.grad.clone())
        };
        let (d, slope) = memory.direction(&grad);
        let first = if memory.pairs.is_empty() {
            1.0 / dot(&d, &d).sqrt()
        } else {
            1.0
        };
        let found = if slope < 0.0 && first > 0.0 && first <= LONGEST {
            let bounds = LineSearchBounds::new(first, LONGEST);
            let mut line = MoreThuente::new();
            match line.next_with_bounds(&mut problem, &theta, value, &grad, &d, bounds) {
                Ok(found) => found,
                Err(stop) => return stop.into(),
            }
        } else {
            LineSearchResult::new(LineSearchOutcome::Failed)
        };
        let found = match (found.outcome, found.evaluation) {
            (LineSearchOutcome::Step(t), Some(point)) if t > 0.0 => {
                Some((t, point.param, point.cost, point.gradient))
            }
            // The search gave up at a step that is not its last.
            (LineSearchOutcome::Step(t), None) if t > 0.0 => {
                let there: Vec<f64> = theta.iter().zip(&d).map(|(x, d)| x + t * d).collect();
                let mut grad = vec![0.0; there.len()];
                match search.borrow_mut().evaluate(&there, &mut grad) {
                    Ok(value) => Some((t, there, value, grad)),
                    Err(stop) => return stop.into(),
                }
            }
            _ => None,
        };
        match found {
            Some((t, there, value, slopes)) => {
                memory.push(capacity, d, t, slope, [&grad, &slopes]);
                let encode = || checkpoint::encode(&(NAME, &memory)).ok();
                let mut search = search.borrow_mut();
                match search.accept(&there, value, &slopes, encode, false) {
                    Ok(()) | Err(Halt::Rough) => {}
                    Err(halt) => return halt,
                }
            }
            // No step from the rough point: the same curvature, from its exact value and gradient.
            None if search.borrow().is_turning() => {
                if let Err(halt) = search.borrow_mut().sharpen() {
                    return halt;
                }
            }
            None if memory.pairs.is_empty() => return Halt::Orthant,
            // Once more, downhill.
            None => memory = Pairs::default(),
        }
    }
}

/// Returns aᵀb.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let parts = a.par_chunks(CHUNK).zip(b.par_chunks(CHUNK));
    in_order(parts.map(|(a, b)| dot_of_chunk(a, b)))
}

/// Replaces q by c q + a v, and returns uᵀq.
fn sweep(q: &mut [f64], c: f64, a: f64, v: &[f64], u: &[f64]) -> f64 {
    let chunks = q.par_chunks_mut(CHUNK).zip(v.par_chunks(CHUNK));
    in_order(chunks.zip(u.par_chunks(CHUNK)).map(|((q, v), u)| {
        for (q, v) in q.iter_mut().zip(v) {
            *q = c * *q + a * v;
        }
        dot_of_chunk(u, q)
    }))
}

fn in_order(parts: impl IndexedParallelIterator<Item = f64>) -> f64 {
    parts.collect::<Vec<f64>>().into_iter().sum()
}

/// Sums in eight lanes, none of which waits for its own last addition.
fn dot_of_chunk(a: &[f64], b: &[f64]) -> f64 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let mut lanes = [0.0; 8];
    for (a, b) in a.iter().zip(b) {
        for (lane, (a, b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
            *lane += a * b;
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    lanes.into_iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use basin::{EvalCounts, FirstOrderState, Lbfgsb};

    #[test]
    fn memories_of_another_version_or_problem_are_refused() {
        let mut pairs = Pairs::default();
        pairs.push(3, vec![-1.0, 0.5], 2.0, -1.0, [&[1.0, 0.0], &[0.0, 1.0]]);
        let own = checkpoint::encode(&(NAME, &pairs)).unwrap();
        assert_eq!(Pairs::recall(&own, 2).unwrap().pairs.len(), 1);
        let refusal = |bytes: &[u8], n: usize| Pairs::recall(bytes, n).unwrap_err().to_string();
        assert!(refusal(&own, 3).contains("another problem"));
        // As earlier versions encoded the memory of L-BFGS-B.
        let state = FirstOrderState::<Vec<f64>>::new(vec![0.0; 2]);
        let old = (Lbfgsb::<Vec<f64>>::new(), state, EvalCounts::default());
        let old = checkpoint::encode(&old).unwrap();
        for bytes in [&old[..], &[1, 2, 3]] {
            assert!(refusal(bytes, 2).contains("earlier version"));
        }
    }

    #[test]
    fn the_direction_solves_the_secant_equation() {
        // H y = s for the newest pair, whatever the older ones are.
        let mut pairs = Pairs::default();
        let grads: Vec<Vec<f64>> = (0..4)
            .map(|k| (0..9).map(|i| ((3 * k + i) as f64).sin()).collect())
            .collect();
        for k in 0..3 {
            let step = |i: usize| 0.3 * (grads[k + 1][i] - grads[k][i]) + 0.01 * (i as f64).cos();
            let d = (0..9).map(step).collect();
            pairs.push(2, d, 1.0, -1.0, [&grads[k], &grads[k + 1]]);
        }
        assert_eq!(pairs.pairs.len(), 2);
        let newest = pairs.pairs.back().unwrap();
        let (d, slope) = pairs.direction(&newest.change);
        let expected = -dot(&newest.step, &newest.change);
        assert!((slope / expected - 1.0).abs() < 1e-13);
        // Sums of nine terms of size 1.
        assert!(
            d.iter()
                .zip(&newest.step)
                .all(|(d, s)| (d + s).abs() < 1e-13)
        );
    }
}
