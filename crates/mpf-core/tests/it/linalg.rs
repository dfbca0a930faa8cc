//! Decompositions and inverses.

use mpf_core::linalg::{
    log_determinant_and_inverse, positive_definite_inverse, positive_definite_inverse_until,
    singular_values, symmetric_eigen, symmetric_pseudo_inverse,
};
use mpf_core::rng::stream;
use mpf_core::{Cancel, Error};
use ndarray::{Array2, array};
use rand::RngExt;

fn random_symmetric(n: usize, seed: u64) -> Array2<f64> {
    let mut rng = stream(seed, 0);
    let a = Array2::from_shape_simple_fn((n, n), || rng.random::<f64>() - 0.5);
    &a + &a.t()
}

#[test]
fn eigen_rebuilds_the_matrix() {
    for n in [1, 2, 7, 40] {
        let a = random_symmetric(n, n as u64);
        let (values, v) = symmetric_eigen(a.view()).unwrap();
        assert!(
            values
                .iter()
                .zip(values.iter().skip(1))
                .all(|(p, q)| p <= q)
        );
        let rebuilt = v.dot(&Array2::from_diag(&values)).dot(&v.t());
        let identity = v.t().dot(&v);
        // Backward stable: errors of a few n·ε.
        assert!((rebuilt - &a).iter().all(|e| e.abs() < 1e-12));
        assert!(
            (identity - Array2::<f64>::eye(n))
                .iter()
                .all(|e| e.abs() < 1e-12)
        );
    }
}

#[test]
fn only_the_lower_triangle_is_read() {
    let full = array![[2.0, 1.0], [1.0, 3.0]];
    let lower = array![[2.0, 99.0], [1.0, 3.0]];
    assert_eq!(
        symmetric_eigen(full.view()).unwrap().0,
        symmetric_eigen(lower.view()).unwrap().0
    );
}

#[test]
fn pseudo_inverse_inverts_what_can_be_inverted() {
    for n in [1, 2, 7, 40] {
        // Far from singular: eigenvalues of the random part stay well below 2n.
        let a = random_symmetric(n, 3 + n as u64) + 2.0 * n as f64 * Array2::<f64>::eye(n);
        let inverse = symmetric_pseudo_inverse(&symmetric_eigen(a.view()).unwrap(), 0.0);
        let off = inverse.dot(&a) - Array2::<f64>::eye(n);
        assert!(off.iter().all(|e| e.abs() < 1e-12));
    }
    // diag(2, 0): 1/2 and 0; with λ = 1, 2/(4 + 1) and 0.
    let singular = symmetric_eigen(array![[2.0, 0.0], [0.0, 0.0]].view()).unwrap();
    for (lambda, expected) in [(0.0, 0.5), (1.0, 0.4)] {
        let inverse = symmetric_pseudo_inverse(&singular, lambda);
        let off = inverse - array![[expected, 0.0], [0.0, 0.0]];
        assert!(off.iter().all(|e| e.abs() < 1e-15));
    }
}

fn random_square(n: usize, seed: u64) -> Array2<f64> {
    let mut rng = stream(seed, 1);
    Array2::from_shape_simple_fn((n, n), || rng.random::<f64>() - 0.5)
        + Array2::<f64>::eye(n) * (0.2 * n as f64)
}

#[test]
fn log_determinant_and_inverse_are_what_they_say() {
    // By hand: det = −2·5 − 1·3 = −13.
    let a = array![[-2.0, 1.0], [3.0, 5.0]];
    let (log_determinant, inverse) = log_determinant_and_inverse(a.view()).unwrap();
    assert!((log_determinant - 13f64.ln()).abs() < 1e-14);
    let off = inverse - array![[5.0, -1.0], [-3.0, -2.0]] / -13.0;
    assert!(off.iter().all(|e| e.abs() < 1e-15));
    for n in [1, 3, 40] {
        let a = random_square(n, n as u64);
        let (log_determinant, inverse) = log_determinant_and_inverse(a.view()).unwrap();
        let off = a.dot(&inverse) - Array2::<f64>::eye(n);
        // Conditions of a hundred at most, so errors of a few hundred n·ε.
        assert!(off.iter().all(|e| e.abs() < 1e-11));
        // |det A| is the product of the singular values.
        let (u, values, vt) = singular_values(a.view()).unwrap();
        let sum: f64 = values.iter().map(|s| s.ln()).sum();
        assert!((log_determinant - sum).abs() < 1e-10);
        assert!(values.windows(2).into_iter().all(|w| w[0] >= w[1]));
        let rebuilt = (&u * &values).dot(&vt);
        assert!((rebuilt - &a).iter().all(|e| e.abs() < 1e-11));
        let identity = u.t().dot(&u) - Array2::<f64>::eye(n);
        assert!(identity.iter().all(|e| e.abs() < 1e-12));
    }
    assert_eq!(
        log_determinant_and_inverse(array![[1.0, 2.0], [2.0, 4.0]].view()),
        Err(Error::Singular { size: 2 })
    );
}

#[test]
fn positive_definite_matrices_are_inverted() {
    for n in [1, 2, 7, 40, 145] {
        let a = random_symmetric(n, 5 + n as u64) + 2.0 * n as f64 * Array2::<f64>::eye(n);
        let off = positive_definite_inverse(a.view()).unwrap().dot(&a) - Array2::<f64>::eye(n);
        assert!(off.iter().all(|e| e.abs() < 1e-12));
    }
    // The third row is the sum of the first two.
    let dependent = array![[2.0, 1.0, 3.0], [1.0, 3.0, 4.0], [3.0, 4.0, 7.0]];
    for (matrix, at) in [(dependent, 2), (array![[1.0, 2.0], [2.0, 1.0]], 1)] {
        assert!(matches!(
            positive_definite_inverse(matrix.view()),
            Err(Error::NotPositiveDefinite { pivot }) if pivot == at
        ));
    }
    assert!(positive_definite_inverse(array![[f64::NAN]].view()).is_err());
    let stopped = Cancel::new();
    stopped.cancel();
    let outcome = positive_definite_inverse_until(array![[1.0]].view(), &stopped);
    assert_eq!(outcome, Err(Error::Cancelled));
}

#[test]
fn bad_matrices_are_errors() {
    assert!(matches!(
        symmetric_eigen(Array2::zeros((2, 3)).view()),
        Err(Error::NotSquare {
            rows: 2,
            columns: 3
        })
    ));
    assert!(matches!(
        symmetric_eigen(array![[f64::NAN]].view()),
        Err(Error::Decomposition { .. })
    ));
}
