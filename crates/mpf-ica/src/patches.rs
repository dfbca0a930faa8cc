//! Draws and prepares square patches of grey images, one per row.
//!
//! A patch of side n is a row of n² numbers. The paper whitens random 10 × 10 patches of van
//! Hateren's photographs (Appendix G). Contrast normalisation, which is not in the paper, divides a
//! whitened patch by its own contrast:
//!
//! ```text
//! x / √(0.1 + |x|²/d),   then whitened again
//! ```

mod read;

pub use read::{read_image, read_image_folder};

use crate::whiten::{Whitening, WhiteningMethod};
use crate::{Error, Result};
use mpf_core::{check_not_zero, rng};
use ndarray::{Array2, ArrayView2, Axis, s};
use rand::RngExt;

/// A grey image. The scale of its greys is free, since patches are whitened. Pixels that are not
/// finite are not checked here; [`Whitening::new`] refuses them.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    name: String,
    pixels: Array2<f64>,
}

impl Image {
    /// Makes an image from its pixels, the top row first.
    pub fn new(name: impl Into<String>, pixels: Array2<f64>) -> Self {
        Self {
            name: name.into(),
            pixels,
        }
    }

    /// Returns its name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the pixels, the top row first.
    pub fn pixels(&self) -> ArrayView2<'_, f64> {
        self.pixels.view()
    }

    /// Returns the image at half the size: means over 2 × 2 pixels. An odd last row or column is
    /// left out.
    #[must_use]
    pub fn halved(&self) -> Self {
        let (rows, columns) = self.pixels.dim();
        let pixels = Array2::from_shape_fn((rows / 2, columns / 2), |(i, j)| {
            self.pixels
                .slice(s![2 * i..2 * i + 2, 2 * j..2 * j + 2])
                .sum()
                / 4.0
        });
        Self {
            name: self.name.clone(),
            pixels,
        }
    }
}

/// Draws `n` patches of `size` × `size` pixels; every place of every image is equally likely.
///
/// # Errors
/// [`Error::NoImages`], [`mpf_core::Error::Option`] for a size of 0, [`Error::ImageTooSmall`].
pub fn draw_patches(images: &[Image], size: usize, n: usize, seed: u64) -> Result<Array2<f64>> {
    check_not_zero("size", size)?;
    if images.is_empty() {
        return Err(Error::NoImages { folder: None });
    }
    let mut places = Vec::with_capacity(images.len());
    for image in images {
        let (height, width) = image.pixels.dim();
        if height < size || width < size {
            return Err(Error::ImageTooSmall {
                name: image.name.clone(),
                width,
                height,
                size,
            });
        }
        places.push((height - size + 1) * (width - size + 1));
    }
    let total: usize = places.iter().sum();
    let mut rng = rng::stream(seed, 0);
    let mut patches = Array2::zeros((n, size * size));
    for mut patch in patches.outer_iter_mut() {
        let mut place = rng.random_range(0..total);
        let mut chosen = 0;
        while place >= places[chosen] {
            place -= places[chosen];
            chosen += 1;
        }
        let pixels = &images[chosen].pixels;
        let columns = pixels.ncols() - size + 1;
        let (row, column) = (place / columns, place % columns);
        let square = pixels.slice(s![row..row + size, column..column + size]);
        for (to, from) in patch.iter_mut().zip(square) {
            *to = *from;
        }
    }
    Ok(patches)
}

/// Divides every row x of `white` by √(0.1 + |x|²/d): flat and contrasty patches then count alike.
/// Whiten again afterwards.
pub fn normalise_contrast(white: &mut Array2<f64>) {
    let d = white.ncols();
    let rows = white.axis_iter_mut(Axis(0));
    for mut row in rows {
        let mut square = row.dot(&row);
        if square == f64::INFINITY {
            // In units of the largest entry, beside which the 0.1 vanishes.
            let largest = row.fold(0.0, |m: f64, v| m.max(v.abs()));
            row /= largest;
            square = row.dot(&row);
            row /= (square / d as f64).sqrt();
        } else {
            row /= (0.1 + square / d as f64).sqrt();
        }
    }
}

/// Whitens patches for a fit and returns them with the whitening; with contrast normalisation there
/// are two, the one before it and the one after it.
///
/// # Errors
/// As [`Whitening::new`] and [`Whitening::apply`].
pub fn prepare_patches(
    patches: ArrayView2<'_, f64>,
    normalise: bool,
) -> Result<(Array2<f64>, Vec<Whitening>)> {
    let whitening = Whitening::new(patches, WhiteningMethod::Zca)?;
    let mut white = whitening.apply(patches)?;
    if !normalise {
        return Ok((white, vec![whitening]));
    }
    normalise_contrast(&mut white);
    let again = Whitening::new(white.view(), WhiteningMethod::Zca)?;
    let white = again.apply(white.view())?;
    Ok((white, vec![whitening, again]))
}
