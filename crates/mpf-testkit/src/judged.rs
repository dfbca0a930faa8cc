//! Models that `mpf evaluate` judges: those of its tests, and of `cargo xtask check-verdicts`, which
//! includes this file, as it may not depend on an unpublished crate.

use mpf_core::rng::stream;
use mpf_ising::{Boundary, Couplings, Lattice, SpinCouplings, States};
use mpf_samplers::{ExactEnumeration, ExactLattice};
use ndarray::{Array1, Array2};
use rand::RngExt;

/// A model beyond the units that `mpf evaluate` enumerates, of which exact draws can be had.
pub struct JudgedModel {
    /// A name for tables.
    pub name: &'static str,
    /// The model.
    pub couplings: Couplings,
    /// The lattice of a model that has more than 24 units.
    lattice: Option<Lattice>,
}

impl JudgedModel {
    /// Makes an open lattice of spins with equal fields and equal couplings of neighbours.
    ///
    /// # Panics
    /// For no rows or columns.
    pub fn on_lattice(name: &'static str, (rows, columns): (usize, usize), k: f64, h: f64) -> Self {
        let lattice = Lattice::new(rows, columns, Boundary::Open).unwrap();
        let edges = lattice.edges();
        Self {
            name,
            couplings: of_spins(lattice.n_units(), h, |i, j| {
                if edges.contains(&(i, j)) { k } else { 0.0 }
            }),
            lattice: Some(lattice),
        }
    }

    /// Returns `n` independent draws.
    ///
    /// # Panics
    /// Never: the models are small.
    pub fn draw(&self, n: usize, seed: u64) -> States {
        match &self.lattice {
            Some(lattice) => ExactLattice::new(&self.couplings, lattice)
                .unwrap()
                .draw(n, seed),
            None => ExactEnumeration::new(&self.couplings)
                .unwrap()
                .draw(n, seed),
        }
    }
}

/// Returns ten models, warm and frozen, with one mode, two and many.
pub fn judged_models() -> Vec<JudgedModel> {
    let on_lattice = JudgedModel::on_lattice;
    let dense = |name, d: usize, h: f64, k: &mut dyn FnMut(usize, usize) -> f64| JudgedModel {
        name,
        couplings: of_spins(d, h, k),
        lattice: None,
    };
    let glass = |name, side: usize, variance: f64| {
        let lattice = Lattice::new(side, side, Boundary::Open).unwrap();
        JudgedModel {
            name,
            couplings: lattice.spin_glass(variance, &mut stream(5, 0)).unwrap(),
            lattice: Some(lattice),
        }
    };
    let mut rng = stream(9, 0);
    let mut random = move |scale: f64| scale * rng.random_range(-1.0..1.0);
    // Two patterns, of which the field favours the one with more active units.
    let pattern = |i: usize| if i.is_multiple_of(3) { -1.0 } else { 1.0 };
    vec![
        on_lattice("warm lattice", (5, 5), 0.2, 0.1),
        on_lattice("ferromagnet, K = .6", (5, 5), 0.6, 0.0),
        on_lattice("ferromagnet, K = 1.2", (4, 6), 1.2, 0.0),
        on_lattice("antiferromagnet, K = -1.2", (4, 6), -1.2, 0.0),
        on_lattice("ferromagnet, modes 4 : 1", (4, 6), 0.8, 0.03),
        glass("spin glass, variance 1", 6, 1.0),
        glass("spin glass, variance 10", 6, 10.0),
        dense("sparse firing", 22, -1.5, &mut |_, _| random(0.15)),
        dense("dense glass", 22, 0.1, &mut |i, j| {
            0.5 * ((7 * i + 13 * j) as f64).sin()
        }),
        dense("stored pattern, modes 10 : 1", 22, 0.15, &mut |i, j| {
            0.1 * pattern(i) * pattern(j)
        }),
    ]
}

/// Fields h and couplings K(i, j), i < j.
fn of_spins(d: usize, h: f64, mut k: impl FnMut(usize, usize) -> f64) -> Couplings {
    let mut couplings = Array2::zeros((d, d));
    for i in 0..d {
        for j in i + 1..d {
            couplings[[i, j]] = k(i, j);
            couplings[[j, i]] = couplings[[i, j]];
        }
    }
    let fields = Array1::from_elem(d, h);
    Couplings::from_spins(&SpinCouplings { fields, couplings }).unwrap()
}
