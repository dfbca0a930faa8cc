//! The scores of single samples under a model.

use mpf_ising::{Couplings, States, for_each_set_bit, get_bit, n_active};
use rayon::prelude::*;

/// Returns (MPF, PL, E) of every sample. O(d · active) each.
pub(crate) fn sample_scores(couplings: &Couplings, states: &States) -> Vec<[f64; 3]> {
    let d = states.n_units();
    let spins = couplings.to_spins();
    let base: Vec<f64> = (0..d)
        .map(|i| spins.fields[i] - spins.couplings.row(i).sum())
        .collect();
    (0..states.n_samples())
        .into_par_iter()
        .map_init(
            || vec![0.0; d],
            |fields, m| {
                let row = states.row(m);
                fields.copy_from_slice(&base);
                for_each_set_bit(row, |j| {
                    for (field, k) in fields.iter_mut().zip(spins.couplings.row(j)) {
                        *field += 2.0 * k;
                    }
                });
                let shifts = margin_shifts(couplings, row);
                let (mut flow, mut pl) = (0.0, 0.0);
                for (i, &field) in fields.iter().enumerate() {
                    let margin = match get_bit(row, i) {
                        true => field + shifts[1],
                        false => shifts[0] - field,
                    };
                    flow += (-margin).exp();
                    pl += (-2.0 * margin).max(0.0) + (-2.0 * margin.abs()).exp().ln_1p();
                }
                [flow, pl, couplings.energy(row)]
            },
        )
        .collect()
}

/// Returns what the potential of a K-pairwise model adds to the margins of silent and active units:
/// ½[V(n ± 1) − V(n)].
pub(crate) fn margin_shifts(couplings: &Couplings, row: &[u64]) -> [f64; 2] {
    let Some(potential) = couplings.potential() else {
        return [0.0; 2];
    };
    let n = n_active(row);
    // All active, or none: no unit is there to be flipped.
    let step = |to: Option<&f64>| to.map_or(0.0, |v| 0.5 * (v - potential[n]));
    [
        step(potential.get(n + 1)),
        step(potential.get(n.wrapping_sub(1))),
    ]
}
