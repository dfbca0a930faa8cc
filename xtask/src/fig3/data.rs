//! The patches of Figure 3: of photographs, or of dead leaves.

use super::Args;
use crate::Result;
use mpf_core::{Fnv1a, Settings, rng};
use mpf_ica::{Image, Whitening, draw_patches, prepare_patches, read_image_folder};
use ndarray::Array2;
use std::path::Path;

/// Adds a checksum of the pixels of a folder of images to `settings`.
pub fn with_checksum(settings: Settings, folder: Option<&Path>) -> Result<Settings> {
    let Some(folder) = folder else {
        return Ok(settings);
    };
    let mut hash = Fnv1a::default();
    for image in read_image_folder(folder)? {
        let pixels = image.pixels();
        hash.add(&pixels.ncols().to_le_bytes());
        pixels.iter().for_each(|v| hash.add(&v.to_le_bytes()));
    }
    Ok(settings.with("the checksum of the images", hash))
}

/// The patches of a seed.
pub struct Patches {
    /// Whitened, one per row.
    pub white: Array2<f64>,
    /// With contrast normalisation two: the one before it and the one after it.
    pub whitenings: Vec<Whitening>,
    pub n_images: usize,
}

pub fn patches(args: &Args, seed: u64) -> Result<Patches> {
    let images: Vec<Image> = match &args.images {
        Some(folder) => read_image_folder(folder)?
            .iter()
            .map(Image::halved)
            .collect(),
        None => args.leaves.draw(seed)?,
    };
    let patches = draw_patches(&images, args.size, args.patches, rng::next_seed(seed))?;
    let (white, whitenings) = prepare_patches(patches.view(), args.normalise)?;
    Ok(Patches {
        white,
        whitenings,
        n_images: images.len(),
    })
}
