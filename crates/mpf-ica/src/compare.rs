//! Compares two sets of filters up to their order, signs and lengths.

use crate::error::check_finite;
use crate::model::Filters;
use crate::{Error, Result};
use mpf_core::check_count;
use ndarray::{Array2, ArrayView1, ArrayView2};

/// Returns Amari's index of P = W A, W the filters found and A the true mixing matrix: 0 when every
/// filter finds one source of its own, up to order, sign and length; 1 at worst.
///
/// ```text
/// 1/(2d(d − 1)) [ Σ_i (Σ_j |P_ij| / max_j |P_ij| − 1) + Σ_j (Σ_i |P_ij| / max_i |P_ij| − 1) ]
/// ```
///
/// # Errors
/// [`mpf_core::Error::Count`] for another size, or fewer than two dimensions; [`Error::NonFinite`]
/// for a mixing matrix, or a P, that is not finite; [`Error::SingularFilters`] for a row or a column
/// of P that is 0.
pub fn amari_index(filters: &Filters, mixing: ArrayView2<'_, f64>) -> Result<f64> {
    let d = filters.n_dims();
    check_count("rows of the mixing matrix", d, mixing.nrows())?;
    check_count("columns of the mixing matrix", d, mixing.ncols())?;
    if d < 2 {
        check_count("sources to tell apart", 2, d)?;
    }
    check_finite("mixing matrix", mixing)?;
    let mut product = filters.as_array().dot(&mixing).mapv(f64::abs);
    check_finite("filters times mixing matrix", product.view())?;
    let largest = |p: ArrayView1<'_, f64>| p.fold(0.0, |m: f64, &v| m.max(v));
    let overall = product.fold(0.0, |m: f64, &v| m.max(v));
    if overall > 1e300 {
        // Keeps sums from overflowing; the index does not change.
        product /= overall;
    }
    let mut lines = product.rows().into_iter().chain(product.columns());
    if lines.any(|line| largest(line) == 0.0) {
        return Err(Error::SingularFilters { n_dims: d });
    }
    let spread = |p: ArrayView2<'_, f64>| -> f64 {
        p.outer_iter()
            .map(|row| row.sum() / largest(row) - 1.0)
            .sum()
    };
    Ok((spread(product.view()) + spread(product.t())) / (2 * d * (d - 1)) as f64)
}

/// A filter of one model and its match in another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FilterMatch {
    /// The row in the first set.
    pub first: usize,
    /// The row in the second set.
    pub second: usize,
    /// |cos| of the angle between them; 0 for a filter of zeros.
    pub similarity: f64,
}

/// Matches the filters of two models one to one, the most similar pair first, then the most
/// similar of what is left, and so on. O(d² log d + d³).
///
/// # Errors
/// [`mpf_core::Error::Count`] for different sizes.
pub fn match_filters(first: &Filters, second: &Filters) -> Result<Vec<FilterMatch>> {
    let d = first.n_dims();
    check_count("filters of the second model", d, second.n_dims())?;
    let unit = |filters: &Filters| -> Array2<f64> {
        let mut unit = filters.as_array().to_owned();
        for mut row in unit.outer_iter_mut() {
            let largest = row.fold(0.0, |m: f64, v| m.max(v.abs()));
            if largest > 0.0 && !(1e-150..1e150).contains(&largest) {
                // The square would be 0 or ∞.
                row /= largest;
            }
            let length = row.dot(&row).sqrt();
            row /= if length > 0.0 { length } else { 1.0 };
        }
        unit
    };
    let cosines = unit(first).dot(&unit(second).t());
    let mut pairs: Vec<FilterMatch> = cosines
        .indexed_iter()
        .map(|((first, second), cosine)| FilterMatch {
            first,
            second,
            similarity: cosine.abs(),
        })
        .collect();
    pairs.sort_by(|a, b| b.similarity.total_cmp(&a.similarity));
    let (mut first_free, mut second_free) = (vec![true; d], vec![true; d]);
    pairs.retain(|pair| {
        let free = first_free[pair.first] && second_free[pair.second];
        if free {
            first_free[pair.first] = false;
            second_free[pair.second] = false;
        }
        free
    });
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn the_amari_index_is_blind_to_order_sign_and_length() {
        let filters = |a| Filters::new(a).unwrap();
        let identity = array![[1.0, 0.0], [0.0, 1.0]];
        let same = filters(array![[0.0, -2.0], [0.5, 0.0]]);
        assert_eq!(amari_index(&same, identity.view()).unwrap(), 0.0);
        // The worst: all entries are of one size.
        let worst = filters(array![[1.0, 1.0], [1.0, -1.0]]);
        assert_eq!(amari_index(&worst, identity.view()).unwrap(), 1.0);
        // Rows: 0.5 and 0; columns: 0.25 and 0.
        let mut half = filters(array![[2.0, 1.0], [0.0, 4.0]]);
        assert_eq!(amari_index(&half, identity.view()).unwrap(), 0.75 / 4.0);
        // P is W A, not W Aᵀ: with A = W⁻¹ it is the identity.
        half = filters(array![[1.0, 3.0], [0.0, 1.0]]);
        let mixing = array![[1.0, -3.0], [0.0, 1.0]];
        assert_eq!(amari_index(&half, mixing.view()).unwrap(), 0.0);
        assert!(matches!(
            amari_index(&half, array![[1.0]].view()),
            Err(Error::Core(mpf_core::Error::Count { found: 1, .. }))
        ));
    }

    #[test]
    fn matching_takes_the_most_similar_first_and_no_filter_twice() {
        let first = Filters::new(array![[1.0, 0.0], [0.6, 0.8]]).unwrap();
        let second = Filters::new(array![[0.0, 3.0], [-0.8, -0.6]]).unwrap();
        // |cos|: (0, 0) 0, (0, 1) .8, (1, 0) .8, (1, 1) .96.
        let pairs = match_filters(&first, &second).unwrap();
        assert_eq!((pairs[0].first, pairs[0].second), (1, 1));
        assert!((pairs[0].similarity - 0.96).abs() < 1e-15);
        assert_eq!((pairs[1].first, pairs[1].second), (0, 0));
        assert_eq!(pairs.len(), 2);
    }
}
