//! Checks the gradient of an objective against its values.

use crate::objective::Objective;

/// Returns the largest disagreement between a gradient and central differences of the value.
///
/// Differences at steps h and h/2 are combined so that their error is O(h⁴). The result is
/// max_k |difference_k − grad_k| / (1 + max_k |grad_k|): about 1e-10 for the right gradient of a
/// smooth function with `step` near 1e-3, and of order one for a lost factor. It is +∞, never NaN,
/// where a value or the gradient is not finite, or `step` is 0.
///
/// Takes 4n + 1 evaluations.
///
/// # Panics
/// If `theta` is shorter than the objective's parameters.
pub fn gradient_error(objective: &mut impl Objective, theta: &[f64], step: f64) -> f64 {
    let n = objective.n_params();
    let mut grad = vec![0.0; n];
    if !objective.value_and_gradient(theta, &mut grad).is_finite() {
        return f64::INFINITY;
    }
    let scale = 1.0 + grad.iter().fold(0.0f64, |m, g| m.max(g.abs()));
    let mut unused = vec![0.0; n];
    let mut point = theta.to_vec();
    let mut worst = 0.0f64;
    for k in 0..n {
        let mut difference = |h: f64| {
            point[k] = theta[k] + h;
            let up = objective.value_and_gradient(&point, &mut unused);
            point[k] = theta[k] - h;
            let down = objective.value_and_gradient(&point, &mut unused);
            point[k] = theta[k];
            (up - down) / (2.0 * h)
        };
        let richardson = (4.0 * difference(0.5 * step) - difference(step)) / 3.0;
        let off = (richardson - grad[k]).abs() / scale;
        // `max` would ignore NaN.
        worst = if off.is_nan() {
            f64::INFINITY
        } else {
            worst.max(off)
        };
    }
    worst
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objective::from_fn;

    fn error_with(factor: f64) -> f64 {
        let mut f = from_fn(2, |t: &[f64], g: &mut [f64]| {
            g[0] = factor * t[0].exp() * t[1].sin();
            g[1] = t[0].exp() * t[1].cos();
            t[0].exp() * t[1].sin()
        });
        gradient_error(&mut f, &[0.3, -1.1], 1e-3)
    }

    #[test]
    fn accepts_the_right_gradient_and_refuses_a_lost_half() {
        assert!(error_with(1.0) < 1e-10);
        assert!(error_with(0.5) > 0.1);
        assert!(error_with(-1.0) > 0.1);
    }
}
