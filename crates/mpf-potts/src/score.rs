//! From couplings to contacts: the norm of each pair, and its average product correction.
//!
//! ```text
//! F_ij = √Σ_{a,b} J_ij(a, b)²                   zero-sum gauge, without the gap
//! S_ij = F_ij − F_i· F_·j / F_··                means over the other sites, and over all pairs
//! ```

use crate::Potts;
use crate::kernel::pair_index;
use mpf_ising::internal::pairs;

/// The scores of all pairs of sites.
#[derive(Clone, Debug, PartialEq)]
pub struct Scores {
    n_sites: usize,
    norms: Vec<f64>,
    corrected: Vec<f64>,
}

/// A pair of sites with its score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// The first site, from 0.
    pub i: usize,
    /// The second site, after the first.
    pub j: usize,
    /// The norm of its couplings.
    pub norm: f64,
    /// The norm with the average product correction.
    pub score: f64,
}

impl Scores {
    /// Scores the couplings of `model`. `gap` is the state that the norm leaves out.
    pub fn new(model: &Potts, gap: Option<usize>) -> Self {
        let (n, q) = (model.n_sites(), model.n_states());
        let model = model.zero_sum();
        let blocks = model.couplings().chunks_exact(q * q);
        let norms: Vec<f64> = blocks
            .map(|block| {
                let terms = block.iter().enumerate();
                let kept = terms.filter(|(k, _)| gap != Some(k / q) && gap != Some(k % q));
                kept.map(|(_, value)| value * value).sum::<f64>().sqrt()
            })
            .collect();
        let mut means = vec![0.0; n];
        for ((i, j), norm) in pairs(n).zip(&norms) {
            let norm = norm / (n - 1) as f64;
            means[i] += norm;
            means[j] += norm;
        }
        let mean = means.iter().sum::<f64>() / n as f64;
        let mut corrected = norms.clone();
        if mean > 0.0 {
            for ((i, j), score) in pairs(n).zip(&mut corrected) {
                *score -= means[i] * means[j] / mean;
            }
        }
        Self {
            n_sites: n,
            norms,
            corrected,
        }
    }

    /// Returns the number of sites.
    pub fn n_sites(&self) -> usize {
        self.n_sites
    }

    /// Returns the score of two different sites.
    pub fn get(&self, i: usize, j: usize) -> f64 {
        self.corrected[pair_index(self.n_sites, i, j)]
    }

    /// Returns all pairs, the highest score first; equal scores by site.
    pub fn ranked(&self) -> Vec<Pair> {
        let scores = self.norms.iter().zip(&self.corrected);
        let mut ranked: Vec<Pair> = pairs(self.n_sites)
            .zip(scores)
            .map(|((i, j), (&norm, &score))| Pair { i, j, norm, score })
            .collect();
        ranked.sort_by(|a, b| b.score.total_cmp(&a.score));
        ranked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_of_three_sites_by_hand() {
        // q = 2, zero-sum blocks c · [[1, −1], [−1, 1]] of norm 2c: c = 1, 2, 3 for 01, 02, 12.
        let mut theta = vec![0.5, 0.0, 0.0, 0.0, 0.0, 0.0];
        for c in [1.0, 2.0, 3.0] {
            // A shift of rows and columns changes nothing but the fields.
            theta.extend([c + 0.3, -c + 0.3, -c, c]);
        }
        let scores = Scores::new(&Potts::new(3, 2, theta), None);
        let ranked = scores.ranked();
        let order: Vec<_> = ranked.iter().map(|p| (p.i, p.j)).collect();
        let norms: Vec<_> = ranked.iter().map(|p| p.norm).collect();
        assert!((norms[0] - 6.0).abs() < 1e-12 || (norms[2] - 2.0).abs() < 1e-12);
        // Means of the sites: (2 + 4)/2, (2 + 6)/2, (4 + 6)/2; of all: 4.
        for (pair, means) in [((0, 1), 12.0), ((0, 2), 15.0), ((1, 2), 20.0)] {
            let place = order.iter().position(|p| *p == pair).unwrap();
            let expected = norms[place] - means / 4.0;
            assert!((ranked[place].score - expected).abs() < 1e-12);
            assert_eq!(scores.get(pair.1, pair.0), ranked[place].score);
        }
        assert_eq!(order[0], (1, 2));

        // Without state 0 only J(1, 1) = c is left.
        let gapless = Scores::new(
            &Potts::new(
                3,
                2,
                [vec![0.0; 6], vec![1.0, -1.0, -1.0, 1.0], vec![0.0; 8]].concat(),
            ),
            Some(0),
        );
        assert!((gapless.ranked()[0].norm - 1.0).abs() < 1e-12);
    }
}
