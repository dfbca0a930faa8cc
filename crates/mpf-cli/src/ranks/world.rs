//! The processes of an MPI job.

use mpf_core::{Node, Ranks, TreeSum};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, Destination, Root, Source};

/// All processes that `mpirun` started, of which this is one.
#[derive(Debug)]
pub(super) struct World {
    rank: usize,
    n_ranks: usize,
}

impl World {
    /// Asks MPI, which has been started.
    pub(super) fn new() -> Self {
        let world = SimpleCommunicator::world();
        Self {
            rank: world.rank() as usize,
            n_ranks: world.size() as usize,
        }
    }
}

impl Ranks for World {
    fn rank(&self) -> usize {
        self.rank
    }

    fn n_ranks(&self) -> usize {
        self.n_ranks
    }

    /// Rank r gets the nodes of r + 1, then of r + 2 with those that it got, of r + 4 and so on, each
    /// of which holds the parts that follow. With 2^k ranks everyone sends one node.
    fn add_up(&self, own: TreeSum) -> Option<Vec<f64>> {
        let world = SimpleCommunicator::world();
        let mut sum = own;
        let mut distance = 1;
        while distance < self.n_ranks {
            if self.rank % (2 * distance) != 0 {
                let receiver = world.process_at_rank((self.rank - distance) as i32);
                let places = sum
                    .nodes()
                    .iter()
                    .flat_map(|n| [n.start as u64, n.size as u64]);
                receiver.send(&places.collect::<Vec<u64>>()[..]);
                for node in sum.nodes() {
                    receiver.send(&node.sum[..]);
                }
                return None;
            }
            if self.rank + distance < self.n_ranks {
                let sender = world.process_at_rank((self.rank + distance) as i32);
                let (places, _) = sender.receive_vec::<u64>();
                for place in places.chunks_exact(2) {
                    let (numbers, _) = sender.receive_vec::<f64>();
                    sum.push_node(Node {
                        start: place[0] as usize,
                        size: place[1] as usize,
                        sum: numbers,
                    });
                }
            }
            distance *= 2;
        }
        sum.finish()
    }

    fn tell(&self, mut message: Vec<f64>) -> Vec<f64> {
        let world = SimpleCommunicator::world();
        let first = world.process_at_rank(0);
        let mut length = message.len() as u64;
        first.broadcast_into(&mut length);
        message.resize(length as usize, 0.0);
        first.broadcast_into(&mut message[..]);
        message
    }
}
