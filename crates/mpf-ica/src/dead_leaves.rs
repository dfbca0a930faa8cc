//! Draws images of opaque discs that fall on each other (Matheron's dead leaves; Lee, Mumford &
//! Huang 2001), to learn from where there are no photographs.
//!
//! Radii have density ∝ r⁻³, which makes the statistics of the images independent of their scale,
//! as those of photographs are. Every disc has its own grey, uniform on (0, 1). Pixels are means
//! over a finer grid, which smooths the edges, and get a little noise.

use crate::Result;
use crate::patches::Image;
use mpf_core::{check_not_zero, check_option, rng};
use ndarray::Array2;
use rand::{Rng, RngExt};
use rand_distr::StandardNormal;
use rayon::prelude::*;

/// Dead-leaves images, with unchecked options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeadLeaves {
    /// The number of images. Default 12.
    pub n_images: usize,
    /// Their side in pixels. Default 256.
    pub size: usize,
    /// The smallest radius in pixels, at least (`size` + 2 `largest`)/30,000: smaller leaves would
    /// take too long to cover an image. Default 1.
    pub smallest: f64,
    /// The largest radius in pixels. Default 64.
    pub largest: f64,
    /// Points per pixel and axis that are averaged. Default 4.
    pub oversampling: usize,
    /// Standard deviation of the noise. Default 0.02.
    pub noise: f64,
}

impl Default for DeadLeaves {
    fn default() -> Self {
        Self {
            n_images: 12,
            size: 256,
            smallest: 1.0,
            largest: 64.0,
            oversampling: 4,
            noise: 0.02,
        }
    }
}

impl DeadLeaves {
    /// Draws the images, each from its own stream of `seed`.
    ///
    /// # Errors
    /// [`mpf_core::Error::Option`] for an option outside its range.
    pub fn draw(&self, seed: u64) -> Result<Vec<Image>> {
        check_not_zero("n_images", self.n_images)?;
        check_not_zero("size", self.size)?;
        check_not_zero("oversampling", self.oversampling)?;
        let in_range =
            self.smallest > 0.0 && self.smallest < self.largest && self.largest.is_finite();
        let requirement = "positive and below `largest`";
        check_option("smallest", self.smallest, requirement, in_range)?;
        let requirement = "at least (`size` + 2 `largest`)/30,000";
        let holds = self.size as f64 + 2.0 * self.largest <= 3e4 * self.smallest;
        check_option("smallest", self.smallest, requirement, holds)?;
        // No draw is a hundred standard deviations away.
        let in_range = (0.0..=f64::MAX / 100.0).contains(&self.noise);
        check_option("noise", self.noise, "not negative, and finite", in_range)?;
        Ok((0..self.n_images)
            .into_par_iter()
            .map(|k| {
                let pixels = self.draw_one(&mut rng::substream(seed, k as u64));
                Image::new(format!("dead leaves {k}"), pixels)
            })
            .collect())
    }

    /// Draws discs from the top of the pile down, until nothing shows through.
    fn draw_one<R: Rng + ?Sized>(&self, rng: &mut R) -> Array2<f64> {
        let fine = self.oversampling;
        let side = self.size * fine;
        let unit = fine as f64;
        // NaN: not covered yet.
        let mut points = Array2::from_elem((side, side), f64::NAN);
        let mut uncovered = side * side;
        let (from, to) = (self.smallest.powi(-2), self.largest.powi(-2));
        let margin = self.largest;
        let reach = self.size as f64 + 2.0 * margin;
        while uncovered > 0 {
            // The distribution function of r⁻³ on [smallest, largest], inverted.
            let radius = (from - (from - to) * rng.random::<f64>()).powf(-0.5) * unit;
            let mut centre = || (rng.random::<f64>() * reach - margin) * unit;
            let (row, column) = (centre(), centre());
            let grey = rng.random::<f64>();
            let clip = |v: f64| v.clamp(0.0, side as f64) as usize;
            for i in clip((row - radius).ceil())..clip((row + radius).floor() + 1.0) {
                let half = (radius * radius - (i as f64 - row).powi(2)).max(0.0).sqrt();
                for j in clip((column - half).ceil())..clip((column + half).floor() + 1.0) {
                    let point = &mut points[[i, j]];
                    if point.is_nan() {
                        *point = grey;
                        uncovered -= 1;
                    }
                }
            }
        }
        Array2::from_shape_fn((self.size, self.size), |(i, j)| {
            let rows = i * fine..(i + 1) * fine;
            let columns = j * fine..(j + 1) * fine;
            let pixel = points.slice(ndarray::s![rows, columns]);
            pixel.sum() / (fine * fine) as f64 + self.noise * rng.sample::<f64, _>(StandardNormal)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> DeadLeaves {
        DeadLeaves {
            n_images: 3,
            size: 64,
            largest: 16.0,
            ..Default::default()
        }
    }

    #[test]
    fn greys_are_uniform_and_edges_are_many() {
        // Without noise and averaging every pixel is one disc's grey: uniform, so that the mean
        // is ½ and the variance 1/12; and neighbours in the same disc are equal.
        let leaves = DeadLeaves {
            n_images: 40,
            oversampling: 1,
            noise: 0.0,
            ..small()
        };
        let images = leaves.draw(3).unwrap();
        let pixels: Vec<f64> = images.iter().flat_map(|i| i.pixels().to_owned()).collect();
        assert!(pixels.iter().all(|p| (0.0..1.0).contains(p)));
        let mean = pixels.iter().sum::<f64>() / pixels.len() as f64;
        let square = pixels.iter().map(|p| (p - mean).powi(2)).sum::<f64>();
        // Some hundred discs show in each image: four standard errors of 4000 greys are 0.02.
        assert!((mean - 0.5).abs() < 0.03, "{mean}");
        assert!((square / pixels.len() as f64 - 1.0 / 12.0).abs() < 0.006);
        let pairs = pixels.windows(2);
        let same = pairs.filter(|w| w[0] == w[1]).count() as f64 / pixels.len() as f64;
        assert!((0.3..0.9).contains(&same), "{same}");
    }

    #[test]
    fn a_seed_gives_the_same_images() {
        let draw = |seed| small().draw(seed).unwrap();
        assert_eq!(draw(1)[0].pixels(), draw(1)[0].pixels());
        assert_ne!(draw(1)[0].pixels(), draw(2)[0].pixels());
        assert_ne!(draw(1)[0].pixels(), draw(1)[1].pixels());
        let bad = DeadLeaves {
            smallest: 70.0,
            ..Default::default()
        };
        assert!(bad.draw(1).is_err());
    }
}
