//! Swendsen-Wang cluster flips for any Ising model.
//!
//! ```text
//! s = 2x − 1:  p(s) ∝ exp(Σ_i h_i s_i + Σ_{i<j} K_ij s_i s_j),   K_ij = −J_ij/2,  h_i = −½ Σ_j J_ij
//! bond between i and j with chance 1 − exp(−2|K_ij|) if K_ij s_i s_j > 0, else none
//! ```
//!
//! Units joined by bonds form a cluster, found by union-find; every cluster is turned over with
//! chance ½. A field is a coupling to a *ghost* spin that is always +1: its cluster stays. A
//! coupling of either sign works, so frustrated models do too.
//!
//! The paper's data (Figure 2) were drawn this way. On frustrated models the clusters are not
//! the physical ones: at σ² = 10 successive states stay alike for hundreds of steps, and
//! [`Tempering`](crate::Tempering) is the one to trust. Its home is an unfrustrated model near
//! its critical point.

#[cfg(test)]
mod tests;

use crate::Result;
use crate::error::check_magnitude;
use crate::row::{RowSampler, check_row};
use crate::sampler::{Sampler, Tally};
use mpf_ising::{Couplings, flip_bit, get_bit};
use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

/// Swendsen-Wang for one model. A step visits every bond and every unit once.
///
/// ```
/// use mpf_ising::Couplings;
/// use mpf_samplers::{Sampler, SwendsenWang};
/// use ndarray::array;
///
/// // K = 50 between the two units, no field: they always turn over together.
/// let j = Couplings::new(array![[100.0, -100.0], [-100.0, 100.0]])?;
/// let sampler = SwendsenWang::new(&j)?;
/// let mut state = sampler.state(&[0b11])?;
/// let info = sampler.step(&mut state, &mut mpf_core::rng::stream(1, 0));
/// assert_eq!((info.bonds, info.clusters), (1, 1));
/// assert!([0b00, 0b11].contains(&state[0]));
/// # Ok::<(), mpf_samplers::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SwendsenWang {
    n_units: usize,
    bonds: Vec<Bond>,
}

/// A pair of spins that may be joined.
#[derive(Clone, Copy, Debug)]
struct Bond {
    i: u32,
    /// The other unit, or `n_units` for the ghost.
    j: u32,
    /// Whether equal spins satisfy it: K > 0.
    attractive: bool,
    /// 1 − exp(−2|K|).
    probability: f64,
}

/// A tally of Swendsen-Wang steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterCount {
    /// Steps made.
    pub steps: u64,
    /// Bonds made.
    pub bonds: u64,
    /// Clusters found, without the ghost's.
    pub clusters: u64,
    /// Units that changed.
    pub flips: u64,
}

impl Tally for ClusterCount {
    fn add(&mut self, later: Self) {
        self.steps = self.steps.saturating_add(later.steps);
        self.bonds = self.bonds.saturating_add(later.bonds);
        self.clusters = self.clusters.saturating_add(later.clusters);
        self.flips = self.flips.saturating_add(later.flips);
    }
}

/// A partition of the units and the ghost, by union-find.
///
/// A cluster is known by its largest member, its root: that of the ghost is `n_units`.
struct Clusters {
    parent: Vec<u32>,
}

impl Clusters {
    /// Puts every unit and the ghost into a cluster of its own.
    fn alone(n_units: usize) -> Self {
        let ghost = u32::try_from(n_units).expect("fewer than 2³² units");
        Self {
            parent: (0..=ghost).collect(),
        }
    }

    /// Returns the root of the cluster that `member` belongs to.
    fn root(&mut self, member: usize) -> usize {
        let mut at = member;
        loop {
            let parent = self.parent[at] as usize;
            if parent == at {
                return at;
            }
            // Halve the path while walking it.
            let next = self.parent[parent];
            self.parent[at] = next;
            at = next as usize;
        }
    }

    /// Joins two clusters. The larger root wins, so the ghost stays a root.
    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        self.parent[a.min(b)] = a.max(b) as u32;
    }
}

impl SwendsenWang {
    /// Lists the bonds of p ∝ exp(−xᵀJx). O(d²).
    ///
    /// # Errors
    /// [`Error::CouplingsTooLarge`](crate::Error::CouplingsTooLarge).
    pub fn new(couplings: &Couplings) -> Result<Self> {
        crate::error::check_no_potential("Swendsen-Wang", couplings)?;
        check_magnitude(couplings, 1.0)?;
        let d = couplings.n_units();
        let spins = couplings.to_spins();
        let mut bonds = Vec::new();
        let mut bond = |i: usize, j: usize, k: f64| {
            bonds.push(Bond {
                i: i as u32,
                j: j as u32,
                attractive: k > 0.0,
                probability: -(-2.0 * k.abs()).exp_m1(),
            });
        };
        for i in 0..d {
            for j in 0..i {
                let k = spins.couplings[[i, j]];
                if k != 0.0 {
                    bond(j, i, k);
                }
            }
        }
        for (i, &h) in spins.fields.iter().enumerate() {
            let magnitude: f64 = couplings.as_array().column(i).iter().map(|v| v.abs()).sum();
            // A column that sums to zero but for rounding is a unit without a field.
            if h.abs() > 4.0 * f64::EPSILON * magnitude {
                bond(i, d, h);
            }
        }
        Ok(Self { n_units: d, bonds })
    }

    /// Makes a chain's state from a packed row.
    ///
    /// # Errors
    /// [`mpf_core::Error::Count`] and [`Error::BitsBeyond`](crate::Error::BitsBeyond)
    /// for a row of other units.
    pub fn state(&self, row: &[u64]) -> Result<Vec<u64>> {
        check_row(row, self.n_units)?;
        Ok(row.to_vec())
    }

    /// Returns the chance that a step from `row` makes this bond.
    fn bond_probability(&self, row: &[u64], bond: &Bond) -> f64 {
        let ghost = bond.j as usize == self.n_units;
        let other = ghost || get_bit(row, bond.j as usize);
        if (get_bit(row, bond.i as usize) == other) == bond.attractive {
            bond.probability
        } else {
            0.0
        }
    }

    /// Turns over every cluster that `choose` picks; it is asked once for each cluster but the
    /// ghost's. Returns the number of clusters and of changed units.
    fn flip_clusters(
        &self,
        row: &mut [u64],
        clusters: &mut Clusters,
        mut choose: impl FnMut() -> bool,
    ) -> (u64, u64) {
        let (mut count, mut flips) = (0, 0);
        // A root is its cluster's largest member, so going down it is met first.
        let mut chosen = vec![false; self.n_units];
        for unit in (0..self.n_units).rev() {
            let root = clusters.root(unit);
            if root == self.n_units {
                continue;
            }
            if root == unit {
                chosen[unit] = choose();
                count += 1;
            }
            if chosen[root] {
                flip_bit(row, unit);
                flips += 1;
            }
        }
        (count, flips)
    }
}

impl Sampler for SwendsenWang {
    type State = Vec<u64>;
    type Info = ClusterCount;

    /// Draws new bonds, then new values for all clusters.
    ///
    /// # Panics
    /// When `row` is of a model with another number of units.
    fn step<R: Rng + ?Sized>(&self, row: &mut Vec<u64>, rng: &mut R) -> ClusterCount {
        assert_eq!(row.len(), self.n_units.div_ceil(64), "words of the state");
        let mut clusters = Clusters::alone(self.n_units);
        let mut made = 0;
        for bond in &self.bonds {
            let p = self.bond_probability(row, bond);
            // A bond that is not satisfied takes no random number.
            if p > 0.0 && rng.random::<f64>() < p {
                clusters.join(bond.i as usize, bond.j as usize);
                made += 1;
            }
        }
        let (count, flips) = self.flip_clusters(row, &mut clusters, || rng.random());
        ClusterCount {
            steps: 1,
            bonds: made,
            clusters: count,
            flips,
        }
    }
}

impl RowSampler for SwendsenWang {
    fn n_units(&self) -> usize {
        self.n_units
    }
}
