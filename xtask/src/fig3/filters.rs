//! The folder `filters`: the filters of both methods, and the whitening that they work on.

use super::results::{Pair, Results};
use crate::Result;
use mpf_ica::{Filters, Whitening};
use ndarray::{Array2, ArrayD, arr0};

/// Returns every array with its name; `docs/results.md` describes them.
pub(super) fn arrays(
    size: usize,
    results: &Results,
    pair: &Pair,
) -> Result<Vec<(String, ArrayD<f64>)>> {
    let mut arrays = vec![("patch_size".to_owned(), arr0(size as f64).into_dyn())];
    // The names of the whitening that the filters work on, and of one before it.
    let prefixes = ["", "first_"];
    for (whitening, prefix) in pair.whitenings.iter().rev().zip(prefixes) {
        for (name, array) in [
            ("whitening", whitening.transform().to_owned().into_dyn()),
            ("unwhitening", whitening.inverse().to_owned().into_dyn()),
            ("mean", whitening.mean().to_owned().into_dyn()),
        ] {
            arrays.push((format!("{prefix}{name}"), array));
        }
    }
    let found = results.log_likelihood;
    let methods = [
        ("mpf", Some(&pair.mpf), Some(found.mpf)),
        ("ml", pair.ml.as_ref(), found.ml),
    ];
    for (method, filters, nats) in methods {
        let (Some(filters), Some(nats)) = (filters, nats) else {
            continue;
        };
        let (pixel_filters, basis) = in_pixels(filters, &pair.whitenings)?;
        for (name, array) in [
            ("filters", filters.as_array().to_owned().into_dyn()),
            ("pixel_filters", pixel_filters.into_dyn()),
            ("pixel_basis", basis.into_dyn()),
            ("log_likelihood", arr0(nats).into_dyn()),
        ] {
            arrays.push((format!("{method}_{name}"), array));
        }
    }
    Ok(arrays)
}

/// Returns J T, a filter of pixels per row, and its inverse, a patch per column.
fn in_pixels(filters: &Filters, whitenings: &[Whitening]) -> Result<(Array2<f64>, Array2<f64>)> {
    let mut pixel_filters = filters.as_array().to_owned();
    let mut basis = filters.log_determinant_and_inverse()?.1;
    for whitening in whitenings.iter().rev() {
        pixel_filters = pixel_filters.dot(&whitening.transform());
        basis = whitening.inverse().dot(&basis);
    }
    Ok((pixel_filters, basis))
}

#[cfg(test)]
mod tests {
    use super::super::tests::small;
    use super::super::{Args, compute};
    use super::*;
    use mpf_core::Checkpoint;
    use ndarray::{Ix1, Ix2, s};

    #[test]
    fn the_arrays_are_what_turns_patches_into_responses_and_back() {
        for normalise in [false, true] {
            let args = Args {
                normalise,
                seeds: 1,
                ..small()
            };
            let (results, pair) = compute(&args, &Checkpoint::default()).unwrap();
            let arrays = arrays(args.size, &results, &pair).unwrap();
            let read = |name: &str| {
                let mut named = arrays.iter().filter(|(n, _)| n == name);
                named.next().unwrap().1.clone()
            };
            assert_eq!(read("patch_size").sum(), 4.0);
            assert_eq!(
                read("ml_log_likelihood").sum(),
                results.log_likelihood.ml.unwrap()
            );
            assert_eq!(read("mpf_log_likelihood").sum(), results.log_likelihood.mpf);
            let matrix = |name: &str| read(name).into_dimensionality::<Ix2>().unwrap();
            assert_eq!(matrix("ml_filters"), pair.ml.as_ref().unwrap().as_array());
            let filters = matrix("mpf_filters");
            assert_eq!(filters, pair.mpf.as_array());
            let (whitening, unwhitening) = (matrix("whitening"), matrix("unwhitening"));
            let (pixels, basis) = (matrix("mpf_pixel_filters"), matrix("mpf_pixel_basis"));
            let close = |a: &Array2<f64>, b: &Array2<f64>| {
                let scale = b.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
                (a - b).iter().all(|v| v.abs() < 1e-9 * scale)
            };
            assert!(close(&whitening.dot(&unwhitening), &Array2::eye(16)));
            assert!(close(&pixels.dot(&basis), &Array2::eye(16)));
            let patches = super::super::patches(&args, args.seed).unwrap();
            assert_eq!(patches.whitenings.len(), if normalise { 2 } else { 1 });
            if normalise {
                let both = whitening.dot(&matrix("first_whitening"));
                assert!(close(&pixels, &filters.dot(&both)));
            } else {
                // From pixels to responses: the patch that the first whitened row comes from.
                let mean = read("mean").into_dimensionality::<Ix1>().unwrap();
                let white = patches.white.slice(s![..5, ..]);
                let patch = patches.whitenings[0].invert(white).unwrap();
                let responses = (&patch - &mean).dot(&pixels.t());
                assert!(close(&responses, &white.dot(&filters.t())));
            }
        }
    }
}
