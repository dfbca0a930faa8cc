//! Sums over data that several processes hold, to the same bits however many they are.
//!
//! Rounding makes (a + b) + c differ from a + (b + c). The data are therefore cut into a number of
//! parts that depends on the data alone, and the sums of the parts are the leaves of one binary
//! tree: part 2k is added to part 2k + 1, pairs to pairs, and so on. A process adds up the nodes
//! that lie within its own parts, and others go on from there.
//!
//! ```text
//! parts   0 1 2 3 4 5 6        one process: ((0+1)+(2+3)) + ((4+5)+6)
//! ranks   └ 0 ┘ └ 1 ┘ └ 2      three: 0+1 | 2+3 | (4+5), 6: the same nodes, the same bits
//! ```

use crate::{Result, checkpoint};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::ops::Range;

/// The sums of some successive parts, as the largest nodes of the tree that lie within them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TreeSum {
    nodes: Vec<Node>,
}

/// The sum of `size` parts from `start` on: a power of two, of which `start` is a multiple.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The first part.
    pub start: usize,
    /// The number of parts.
    pub size: usize,
    /// Their sum.
    pub sum: Vec<f64>,
}

impl TreeSum {
    /// Adds the sum of one part. Parts come in order, without gaps.
    ///
    /// # Panics
    /// For parts out of order, and for sums of different lengths.
    pub fn push(&mut self, part: usize, sum: Vec<f64>) {
        self.push_node(Node {
            start: part,
            size: 1,
            sum,
        });
    }

    /// Adds the parts that follow.
    ///
    /// # Panics
    /// As [`TreeSum::push`].
    pub fn append(&mut self, next: Self) {
        next.nodes.into_iter().for_each(|node| self.push_node(node));
    }

    /// Adds a node that follows.
    ///
    /// # Panics
    /// As [`TreeSum::push`].
    pub fn push_node(&mut self, mut node: Node) {
        if let Some(last) = self.nodes.last() {
            assert_eq!(last.start + last.size, node.start, "parts in order");
        }
        while let Some(left) = self
            .nodes
            .pop_if(|left| left.size == node.size && left.start.is_multiple_of(2 * left.size))
        {
            node = Node {
                start: left.start,
                size: 2 * left.size,
                sum: add(left.sum, &node.sum),
            };
        }
        self.nodes.push(node);
    }

    /// Returns the nodes, in order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the sum of everything; `None` without parts.
    pub fn finish(mut self) -> Option<Vec<f64>> {
        let mut sum = self.nodes.pop()?.sum;
        while let Some(left) = self.nodes.pop() {
            sum = add(left.sum, &sum);
        }
        Some(sum)
    }
}

fn add(mut left: Vec<f64>, right: &[f64]) -> Vec<f64> {
    assert_eq!(left.len(), right.len(), "numbers in a sum");
    left.iter_mut().zip(right).for_each(|(l, r)| *l += r);
    left
}

/// The processes that work on one problem, each on its own part of the data. Rank 0 leads: it says
/// what is to be computed and gets the sums.
pub trait Ranks: Debug + Send + Sync {
    /// Returns the number of this process, from 0.
    fn rank(&self) -> usize;

    /// Returns the number of processes.
    fn n_ranks(&self) -> usize;

    /// Adds up the parts of all ranks, each of which passes its own. Returns the sum on rank 0, and
    /// nothing on the others.
    fn add_up(&self, own: TreeSum) -> Option<Vec<f64>>;

    /// Returns the message of rank 0 to all; the other ranks pass anything.
    fn tell(&self, message: Vec<f64>) -> Vec<f64>;

    /// Returns which of `n_parts` parts belong to this process.
    fn own_parts(&self, n_parts: usize) -> Range<usize> {
        let (rank, n) = (self.rank(), self.n_ranks());
        rank * n_parts / n..(rank + 1) * n_parts / n
    }
}

/// Tells all other ranks a message, on rank 0; they [`hear`] it.
///
/// # Errors
/// [`Error::Checkpoint`](crate::Error::Checkpoint) for what cannot be encoded.
pub fn tell(ranks: &dyn Ranks, message: &impl Serialize) -> Result<()> {
    let bytes = checkpoint::encode(message)?;
    let numbers = [bytes.len() as f64].into_iter().chain(to_numbers(&bytes));
    ranks.tell(numbers.collect());
    Ok(())
}

/// Returns what rank 0 [tells](tell), on another rank.
///
/// # Errors
/// [`Error::Checkpoint`](crate::Error::Checkpoint) for a message of another type.
pub fn hear<T: DeserializeOwned>(ranks: &dyn Ranks) -> Result<T> {
    let numbers = ranks.tell(Vec::new());
    checkpoint::decode(&to_bytes(&numbers[1..], numbers[0] as usize))
}

/// Returns what every rank holds, in order and on all of them. Each passes its own.
///
/// # Errors
/// [`Error::Checkpoint`](crate::Error::Checkpoint) for what cannot be encoded.
pub fn share<T: Serialize + DeserializeOwned>(ranks: &dyn Ranks, own: &T) -> Result<Vec<T>> {
    let all = share_bytes(ranks, &checkpoint::encode(own)?);
    all.iter().map(|bytes| checkpoint::decode(bytes)).collect()
}

/// Bytes that a number holds without rounding.
const BYTES: usize = 6;

fn to_numbers(bytes: &[u8]) -> impl Iterator<Item = f64> {
    bytes.chunks(BYTES).map(|bytes| {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(whole) as f64
    })
}

/// Returns the `n` bytes that became `numbers`.
fn to_bytes(numbers: &[f64], n: usize) -> Vec<u8> {
    let whole = numbers.iter().map(|number| (*number as u64).to_le_bytes());
    let bytes = whole.flat_map(|whole| whole.into_iter().take(BYTES));
    bytes.take(n).collect()
}

fn share_bytes(ranks: &dyn Ranks, own: &[u8]) -> Vec<Vec<u8>> {
    let (rank, n) = (ranks.rank(), ranks.n_ranks());
    // Every rank fills places of its own: the sum is all of them.
    let everywhere = |places: Vec<f64>| {
        let mut sum = TreeSum::default();
        sum.push(rank, places);
        ranks.tell(ranks.add_up(sum).unwrap_or_default())
    };
    let mut lengths = vec![0.0; n];
    lengths[rank] = own.len() as f64;
    let lengths = everywhere(lengths);
    let lengths: Vec<usize> = lengths.into_iter().map(|n| n as usize).collect();
    let n_numbers = |rank: usize| lengths[rank].div_ceil(BYTES);
    let start: usize = (0..rank).map(n_numbers).sum();
    let mut numbers = vec![0.0; (0..n).map(n_numbers).sum()];
    for (number, own) in numbers[start..].iter_mut().zip(to_numbers(own)) {
        *number = own;
    }
    let numbers = everywhere(numbers);
    let mut rest = &numbers[..];
    let of_rank = |rank: usize| {
        let (own, others) = rest.split_at(n_numbers(rank));
        rest = others;
        to_bytes(own, lengths[rank])
    };
    (0..n).map(of_rank).collect()
}

/// One process that holds all data.
#[derive(Clone, Copy, Debug, Default)]
pub struct OneProcess;

impl Ranks for OneProcess {
    fn rank(&self) -> usize {
        0
    }

    fn n_ranks(&self) -> usize {
        1
    }

    fn add_up(&self, own: TreeSum) -> Option<Vec<f64>> {
        own.finish()
    }

    fn tell(&self, message: Vec<f64>) -> Vec<f64> {
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::stream;
    use rand::RngExt;
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// One of several ranks, for its parts alone.
    #[derive(Debug)]
    struct Rank(usize, usize);

    impl Ranks for Rank {
        fn rank(&self) -> usize {
            self.0
        }
        fn n_ranks(&self) -> usize {
            self.1
        }
        fn add_up(&self, _: TreeSum) -> Option<Vec<f64>> {
            None
        }
        fn tell(&self, message: Vec<f64>) -> Vec<f64> {
            message
        }
    }

    #[test]
    fn any_number_of_ranks_gives_the_same_bits() {
        let mut rng = stream(7, 0);
        for n_parts in [1, 2, 3, 7, 8, 61, 100] {
            // Of very different sizes: the order of the sum shows in the last digits.
            let mut number = || (rng.random::<f64>() - 0.5) * 2f64.powi(rng.random_range(0..40));
            let parts: Vec<Vec<f64>> = (0..n_parts).map(|_| vec![number(), number()]).collect();
            let sum_of = |range: Range<usize>| {
                let mut sum = TreeSum::default();
                range.for_each(|part| sum.push(part, parts[part].clone()));
                sum
            };
            let expected = sum_of(0..n_parts).finish().unwrap();
            for n_ranks in 1..=n_parts.min(9) {
                let own: Vec<TreeSum> = (0..n_ranks)
                    .map(|rank| sum_of(Rank(rank, n_ranks).own_parts(n_parts)))
                    .collect();
                // One after the other, and the first pairs first.
                let mut in_turn = TreeSum::default();
                own.iter().for_each(|o| in_turn.append(o.clone()));
                assert_eq!(in_turn.finish().unwrap(), expected);
                let mut pairs = TreeSum::default();
                for two in own.chunks(2) {
                    let mut both = two[0].clone();
                    two[1..].iter().for_each(|o| both.append(o.clone()));
                    pairs.append(both);
                }
                assert_eq!(pairs.finish().unwrap(), expected, "{n_parts} {n_ranks}");
            }
        }
    }

    #[test]
    fn the_sum_is_a_tree_and_not_a_row() {
        let tiny = f64::EPSILON / 2.0;
        let mut sum = TreeSum::default();
        for (part, number) in [1.0, tiny, tiny, tiny].into_iter().enumerate() {
            sum.push(part, vec![number]);
        }
        assert_eq!(sum.nodes().len(), 1);
        // (1 + ε/2) + (ε/2 + ε/2): one after the other, every ε/2 would be rounded away.
        assert_eq!(sum.finish(), Some(vec![1.0 + f64::EPSILON]));
    }

    /// Threads as ranks, each with a line to rank 0 and one from it.
    #[derive(Debug)]
    struct Threads {
        rank: usize,
        n_ranks: usize,
        to: Vec<Sender<Vec<f64>>>,
        from: Vec<Mutex<Receiver<Vec<f64>>>>,
    }

    impl Ranks for Threads {
        fn rank(&self) -> usize {
            self.rank
        }
        fn n_ranks(&self) -> usize {
            self.n_ranks
        }
        fn add_up(&self, mut own: TreeSum) -> Option<Vec<f64>> {
            if self.rank > 0 {
                self.to[0].send(own.finish().unwrap()).unwrap();
                return None;
            }
            for (rank, from) in self.from.iter().enumerate() {
                own.push(rank + 1, from.lock().unwrap().recv().unwrap());
            }
            own.finish()
        }
        fn tell(&self, message: Vec<f64>) -> Vec<f64> {
            if self.rank > 0 {
                return self.from[0].lock().unwrap().recv().unwrap();
            }
            self.to
                .iter()
                .for_each(|to| to.send(message.clone()).unwrap());
            message
        }
    }

    #[test]
    fn every_rank_gets_the_bytes_of_all() {
        let n_ranks = 4;
        let bytes_of = |rank: usize| -> Vec<u8> {
            // Of no common length; one rank has nothing to say.
            let n = [17, 0, 6, 1][rank];
            (0..n).map(|k| (200 + 31 * rank + 57 * k) as u8).collect()
        };
        let expected: Vec<Vec<u8>> = (0..n_ranks).map(bytes_of).collect();
        assert_eq!(share_bytes(&OneProcess, &expected[0]), expected[..1]);
        let (mut to, mut from) = (Vec::new(), Vec::new());
        let mut ranks = Vec::new();
        for rank in 1..n_ranks {
            let ((up, at_root), (down, at_rank)) = (channel(), channel());
            to.push(down);
            from.push(Mutex::new(at_root));
            ranks.push(Threads {
                rank,
                n_ranks,
                to: vec![up],
                from: vec![Mutex::new(at_rank)],
            });
        }
        ranks.push(Threads {
            rank: 0,
            n_ranks,
            to,
            from,
        });
        std::thread::scope(|scope| {
            for rank in ranks {
                let expected = &expected;
                scope.spawn(move || {
                    let own = &expected[rank.rank];
                    assert_eq!(share_bytes(&rank, own), *expected);
                    assert_eq!(share(&rank, own).unwrap(), *expected);
                });
            }
        });
    }

    #[test]
    #[should_panic(expected = "parts in order")]
    fn parts_may_not_be_left_out() {
        let mut sum = TreeSum::default();
        sum.push(0, vec![1.0]);
        sum.push(2, vec![1.0]);
    }
}
