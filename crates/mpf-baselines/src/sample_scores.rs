//! The scores of single samples under a model.

use mpf_ising::{Couplings, States, for_each_set_bit, get_bit};
use rayon::prelude::*;

/// (MPF, PL, E) of every sample. O(d · active) each.
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
                let (mut flow, mut pl) = (0.0, 0.0);
                for (i, &field) in fields.iter().enumerate() {
                    let margin = if get_bit(row, i) { field } else { -field };
                    flow += (-margin).exp();
                    pl += (-2.0 * margin).max(0.0) + (-2.0 * margin.abs()).exp().ln_1p();
                }
                [flow, pl, couplings.energy(row)]
            },
        )
        .collect()
}
