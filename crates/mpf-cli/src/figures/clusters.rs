//! An order of units in which those that are strongly coupled are neighbours.

/// The most units that are ordered: it takes O(d³).
pub const MOST_UNITS: usize = 1000;

/// Clusters units by average linkage of |K| and returns them in the order of the clusters; the order
/// of the file beyond [`MOST_UNITS`]. `coupling(i, j)` for i ≠ j.
pub fn order(d: usize, coupling: impl Fn(usize, usize) -> f64) -> Vec<usize> {
    if d > MOST_UNITS {
        return (0..d).collect();
    }
    let mut clusters: Vec<Vec<usize>> = (0..d).map(|i| vec![i]).collect();
    // The mean |K| between the units of two clusters.
    let mut linkage: Vec<Vec<f64>> = (0..d)
        .map(|i| {
            let entry = |j| if i == j { 0.0 } else { coupling(i, j).abs() };
            (0..d).map(entry).collect()
        })
        .collect();
    while clusters.len() > 1 {
        let (a, b) = closest(&linkage);
        let right = clusters.remove(b);
        let weights = (clusters[a].len() as f64, right.len() as f64);
        let left = std::mem::take(&mut clusters[a]);
        clusters[a] = joined(left, right, &coupling);
        let of_right = linkage.remove(b);
        for (c, row) in linkage.iter_mut().enumerate() {
            row.remove(b);
            let from = if c < b { c } else { c + 1 };
            let mean = (weights.0 * row[a] + weights.1 * of_right[from]) / (weights.0 + weights.1);
            row[a] = if c == a { 0.0 } else { mean };
        }
        let column: Vec<f64> = linkage.iter().map(|row| row[a]).collect();
        linkage[a] = column;
    }
    clusters.pop().unwrap_or_default()
}

/// Returns the clusters a < b with the largest linkage; the first of equals.
fn closest(linkage: &[Vec<f64>]) -> (usize, usize) {
    let mut best = (0, 1);
    for (a, row) in linkage.iter().enumerate() {
        for (b, value) in row.iter().enumerate().skip(a + 1) {
            if *value > linkage[best.0][best.1] {
                best = (a, b);
            }
        }
    }
    best
}

/// Puts two clusters side by side, turned so that the units where they meet are coupled best.
fn joined(
    mut left: Vec<usize>,
    mut right: Vec<usize>,
    coupling: &impl Fn(usize, usize) -> f64,
) -> Vec<usize> {
    let ends = |units: &[usize]| [units[0], units[units.len() - 1]];
    let mut best = (f64::NEG_INFINITY, 0, 0);
    for (l, i) in ends(&left).into_iter().enumerate().rev() {
        for (r, j) in ends(&right).into_iter().enumerate() {
            if coupling(i, j).abs() > best.0 {
                best = (coupling(i, j).abs(), l, r);
            }
        }
    }
    if best.1 == 0 {
        left.reverse();
    }
    if best.2 == 1 {
        right.reverse();
    }
    left.extend(right);
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coupled_units_become_neighbours() {
        // Two chains, 0 – 2 – 4 – 6 and 1 – 3 – 5, of either sign, weakly coupled to each other.
        let coupling = |i: usize, j: usize| match (i.abs_diff(j), i % 2) {
            (2, 0) => 1.0,
            (2, _) => -0.9,
            _ => 0.01,
        };
        let found = order(7, coupling);
        let place = |unit: usize| found.iter().position(|u| *u == unit).unwrap();
        let even: Vec<usize> = [0, 2, 4, 6].map(place).to_vec();
        assert!(
            even.is_sorted() || even.iter().rev().is_sorted(),
            "{found:?}"
        );
        assert_eq!(even[0].abs_diff(even[3]), 3, "{found:?}");
        let mut all = found.clone();
        all.sort_unstable();
        assert_eq!(all, (0..7).collect::<Vec<_>>());
        assert!(order(0, coupling).is_empty());
    }

    #[test]
    fn without_couplings_the_order_is_that_of_the_file() {
        assert_eq!(order(4, |_, _| 0.0), [0, 1, 2, 3]);
        assert_eq!(order(2000, |_, _| 1.0).len(), 2000);
    }
}
