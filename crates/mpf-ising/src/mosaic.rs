//! Models whose draws look like recordings of a retina: sparse activity, neighbours that fire
//! together, and random other couplings.
//!
//! ```text
//! cells on a jittered square mosaic, r_ij their distance in spacings
//! J_ii ~ N(3.2, .5²)        −2 J_ij = 1.2 exp(−r_ij²/2) + N(0, .2²)
//! ```
//!
//! A firing cell j adds −2 J_ij to the log odds of cell i. Cells fire in about one bin of twenty.
//! For demonstrations and tests that need to know the truth; it models no particular animal.

use crate::Result;
use crate::couplings::{Couplings, square};
use crate::lattice::{Boundary, Lattice};
use rand::{Rng, RngExt};
use rand_distr::{Distribution, StandardNormal};

/// The largest displacement of a cell in each direction, in spacings.
const JITTER: f64 = 0.3;

/// Draws the couplings of `rows` × `columns` cells; cell (r, c) has the index r · columns + c.
///
/// ```
/// let j = mpf_ising::mosaic_couplings(5, 8, &mut mpf_core::rng::stream(1, 0))?;
/// assert_eq!(j.n_units(), 40);
/// // Next to each other: attractive.
/// assert!(j.get(0, 1) < 0.0);
/// # Ok::<(), mpf_ising::Error>(())
/// ```
///
/// # Errors
/// [`Error::EmptyLattice`], [`Error::LargeLattice`], [`Error::OutOfMemory`].
///
/// [`Error::EmptyLattice`]: crate::Error::EmptyLattice
/// [`Error::LargeLattice`]: crate::Error::LargeLattice
/// [`Error::OutOfMemory`]: crate::Error::OutOfMemory
pub fn mosaic_couplings(rows: usize, columns: usize, rng: &mut impl Rng) -> Result<Couplings> {
    let d = Lattice::new(rows, columns, Boundary::Open)?.n_units();
    let mut j = square(d)?;
    let mut off = || rng.random_range(-JITTER..JITTER);
    let places: Vec<(f64, f64)> = (0..d)
        .map(|i| ((i / columns) as f64 + off(), (i % columns) as f64 + off()))
        .collect();
    let mut normal = |mean: f64, deviation: f64| {
        let z: f64 = StandardNormal.sample(rng);
        mean + deviation * z
    };
    for a in 0..d {
        j[[a, a]] = normal(3.2, 0.5);
        for b in 0..a {
            let (dx, dy) = (places[a].0 - places[b].0, places[a].1 - places[b].1);
            let near = 1.2 * (-0.5 * (dx * dx + dy * dy)).exp();
            j[[a, b]] = -0.5 * (near + normal(0.0, 0.2));
            j[[b, a]] = j[[a, b]];
        }
    }
    Couplings::new(j)
}
