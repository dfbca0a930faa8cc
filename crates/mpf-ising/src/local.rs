//! The Ising model over bytes, as a [`LocalModel`]: the generic path that the kernel is tested
//! against, and the sampler's view of models with a potential of the number of active units.
//!
//! ```text
//! E(x) = xᵀJx + V(Σ_i x_i)          Δ_i = σ_i (J_ii + 2 Σ_{j≠i} J_ij x_j) + V(n + σ_i) − V(n)
//! ```
//!
//! with σ_i = 1 − 2 x_i. θ is the upper triangle of J, as [`Couplings::pack`](crate::Couplings::pack)
//! has it, and then V(0), …, V(d) if there is a V.

use crate::couplings::n_packed;
use mpf_core::{At, EnergyModel, LocalModel};

/// E = xᵀJx + V(n) with J and V as parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalIsing {
    /// d.
    pub n_units: usize,
    /// Whether there is a V.
    pub has_potential: bool,
}

impl LocalIsing {
    /// Returns V(n), 0 if there is none.
    fn potential(&self, theta: &[f64], n: usize) -> f64 {
        if self.has_potential {
            theta[n_packed(self.n_units) + n]
        } else {
            0.0
        }
    }
}

fn count(x: &[u8]) -> usize {
    x.iter().map(|&x| usize::from(x)).sum()
}

impl EnergyModel for LocalIsing {
    type State = [u8];

    fn n_params(&self) -> usize {
        let potential = if self.has_potential {
            self.n_units + 1
        } else {
            0
        };
        n_packed(self.n_units) + potential
    }

    fn energy(&self, theta: &[f64], x: &[u8]) -> f64 {
        let mut energy = self.potential(theta, count(x));
        let mut rest = theta;
        for (i, &on) in x.iter().enumerate() {
            let (row, below) = rest.split_at(self.n_units - i);
            rest = below;
            if on == 1 {
                energy += row[0];
                let others = row[1..].iter().zip(&x[i + 1..]);
                energy += others.map(|(j, &x)| 2.0 * j * f64::from(x)).sum::<f64>();
            }
        }
        energy
    }

    fn add_energy_grad(&self, _: &[f64], x: &[u8], scale: f64, out: &mut [f64]) {
        if self.has_potential {
            out[n_packed(self.n_units) + count(x)] += scale;
        }
        let mut rest = out;
        for (i, &on) in x.iter().enumerate() {
            let (row, below) = rest.split_at_mut(self.n_units - i);
            rest = below;
            if on == 1 {
                row[0] += scale;
                for (g, &x) in row[1..].iter_mut().zip(&x[i + 1..]) {
                    *g += 2.0 * scale * f64::from(x);
                }
            }
        }
    }
}

/// The surroundings are J_ii + 2 Σ_j J_ij x_j of every unit, then x in numbers, then their sum.
impl LocalModel for LocalIsing {
    fn n_sites(&self) -> usize {
        self.n_units
    }

    fn n_surroundings(&self) -> usize {
        2 * self.n_units + 1
    }

    fn surroundings(&self, theta: &[f64], x: &[u8], surroundings: &mut [f64]) {
        let (fields, numbers) = surroundings.split_at_mut(self.n_units);
        fields.fill(0.0);
        numbers[self.n_units] = count(x) as f64;
        for (number, &x) in numbers.iter_mut().zip(x) {
            *number = f64::from(x);
        }
        let mut rest = theta;
        for i in 0..self.n_units {
            let (row, below) = rest.split_at(self.n_units - i);
            rest = below;
            let (own, others) = fields[i..].split_first_mut().expect("a unit");
            *own += row[0] + 2.0 * dot(&row[1..], &numbers[i + 1..self.n_units]);
            if x[i] == 1 {
                for (field, j) in others.iter_mut().zip(&row[1..]) {
                    *field += 2.0 * j;
                }
            }
        }
    }

    fn update(&self, theta: &[f64], x: &[u8], site: usize, _: u8, surroundings: &mut [f64]) {
        let (fields, numbers) = surroundings.split_at_mut(self.n_units);
        let change = if x[site] == 1 { 1.0 } else { -1.0 };
        numbers[site] = f64::from(x[site]);
        numbers[self.n_units] += change;
        // Above the diagonal the column of the site, then its row.
        let mut at = site;
        for (i, field) in fields[..site].iter_mut().enumerate() {
            *field += 2.0 * change * theta[at];
            at += self.n_units - i - 1;
        }
        for (field, j) in fields[site + 1..].iter_mut().zip(&theta[at + 1..]) {
            *field += 2.0 * change * j;
        }
    }

    fn site_differences(&self, at: At<'_>, site: usize, differences: &mut [f64]) {
        let n = at.surroundings[2 * self.n_units] as usize;
        let own = usize::from(at.x[site]);
        let (sign, after) = [(1.0, n + 1), (-1.0, n.saturating_sub(1))][own];
        let step = self.potential(at.theta, after) - self.potential(at.theta, n);
        differences[own] = 0.0;
        differences[1 - own] = sign * at.surroundings[site] + step;
    }

    fn add_gradient(&self, at: At<'_>, weights: &[f64], grad: &mut [f64]) {
        let numbers = &at.surroundings[self.n_units..2 * self.n_units];
        // Weights of own states are 0: what is left of each pair is σ times the weight of the flip.
        let weights = weights.as_chunks::<2>().0;
        let (mut up, mut down) = (0.0, 0.0);
        for [to_zero, to_one] in weights {
            down += to_zero;
            up += to_one;
        }
        if self.has_potential {
            let n = at.surroundings[2 * self.n_units] as usize;
            let v = &mut grad[n_packed(self.n_units)..];
            v[n] -= up + down;
            // Nothing goes up from all active, or down from none.
            if up != 0.0 {
                v[n + 1] += up;
            }
            if down != 0.0 {
                v[n - 1] += down;
            }
        }
        let mut rest = grad;
        for i in 0..self.n_units {
            let (row, below) = rest.split_at_mut(self.n_units - i);
            rest = below;
            let own = weights[i][1] - weights[i][0];
            row[0] += own;
            let others = row[1..].iter_mut();
            if at.x[i] == 1 {
                for ((g, x), [to_zero, to_one]) in
                    others.zip(&numbers[i + 1..]).zip(&weights[i + 1..])
                {
                    *g += 2.0 * (own * x + (to_one - to_zero));
                }
            } else {
                for (g, x) in others.zip(&numbers[i + 1..]) {
                    *g += 2.0 * own * x;
                }
            }
        }
    }
}

/// Returns a·b, eight sums at a time, which the compiler can keep side by side.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let mut sums = [0.0; 8];
    for (a, b) in a.iter().zip(b) {
        for k in 0..8 {
            sums[k] += a[k] * b[k];
        }
    }
    let rest = a_rest.iter().zip(b_rest).map(|(a, b)| a * b);
    sums.iter().sum::<f64>() + rest.sum::<f64>()
}
