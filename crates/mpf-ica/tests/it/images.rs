//! Images from files, patches from images, and the messages about files that cannot be read.

use crate::common::normal;
use mpf_ica::internal::{covariance, normalise_contrast};
use mpf_ica::{Error, Image, draw_patches, prepare_patches, read_image, read_image_folder};
use mpf_testkit::seed;
use ndarray::{Array1, Array2, Axis, array};
use std::fs;
use std::path::PathBuf;

/// Writes `bytes` to a file called `name` and reads it as an image.
fn read(name: &str, bytes: &[u8]) -> Result<Array2<f64>, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    read_image(&path).map(|image| image.pixels().to_owned())
}

/// Returns the message without the folder that the file was in.
fn message(error: Error) -> String {
    match error {
        Error::Image {
            path,
            format,
            reason,
        } => Error::Image {
            path: path.file_name().map(PathBuf::from).unwrap(),
            format,
            reason,
        }
        .to_string(),
        other => other.to_string(),
    }
}

#[test]
fn pgm_files_are_read() {
    let expected = array![[0.0, 7.0, 255.0], [1.0, 2.0, 3.0]];
    let text = b"P2 # made by hand\n3 2\n# width, height\n255\n0 7 255\n1 2 3\n";
    assert_eq!(read("a.pgm", text).unwrap(), expected);
    let binary = b"P5 3 2 255\n\x00\x07\xff\x01\x02\x03";
    assert_eq!(read("a.PGM", binary).unwrap(), expected);
    let wide = b"P5\n2 1\n65535\n\x01\x00\x00\x02";
    assert_eq!(read("a.pgm", wide).unwrap(), array![[256.0, 2.0]]);
}

#[test]
fn iml_files_are_read_row_by_row_and_big_endian() {
    let mut bytes = vec![0u8; 2 * 1536 * 1024];
    bytes[0..2].copy_from_slice(&[1, 2]);
    let at = 2 * (1536 * 3 + 5);
    bytes[at..at + 2].copy_from_slice(&[0, 9]);
    let pixels = read("imk00001.iml", &bytes).unwrap();
    assert_eq!(pixels.dim(), (1024, 1536));
    assert_eq!((pixels[[0, 0]], pixels[[3, 5]]), (258.0, 9.0));
    assert_eq!(pixels.sum(), 267.0);
}

/// A 2 × 2 RGB file: red, green; blue, white.
fn png() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, 2, 2);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header().unwrap();
    let pixels = [255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255];
    writer.write_image_data(&pixels).unwrap();
    writer.finish().unwrap();
    bytes
}

#[test]
fn png_files_become_grey() {
    let pixels = read("a.png", &png()).unwrap();
    let expected = array![[0.299, 0.587], [0.114, 1.0]] * 255.0;
    assert!((pixels - expected).iter().all(|e| e.abs() < 1e-10));
}

/// An 8 × 8 grey JPEG, quantised by 1 everywhere: a flat 128 + 20 with only its DC coefficient.
fn jpeg() -> Vec<u8> {
    let mut bytes = vec![0xff, 0xd8, 0xff, 0xdb, 0, 67, 0];
    bytes.extend([1; 64]);
    // One component of 8 bits, 8 × 8 pixels.
    bytes.extend([0xff, 0xc0, 0, 11, 8, 0, 8, 0, 8, 1, 1, 0x11, 0]);
    // DC table: one code of one bit, for numbers of 8 bits. AC table: one code, end of block.
    for (class, symbol) in [(0x00, 8), (0x10, 0)] {
        bytes.extend([0xff, 0xc4, 0, 20, class, 1]);
        bytes.extend([0; 15]);
        bytes.push(symbol);
    }
    bytes.extend([0xff, 0xda, 0, 8, 1, 1, 0, 0, 63, 0]);
    // 0 (DC, 8 bits), 10100000 (160 = 8 · 20), 0 (end of block), filled up with ones.
    bytes.extend([0b0101_0000, 0b0011_1111, 0xff, 0xd9]);
    bytes
}

#[test]
fn jpeg_files_are_read() {
    let pixels = read("a.jpg", &jpeg()).unwrap();
    assert_eq!(pixels.dim(), (8, 8));
    // Rounding of the inverse transform and of the grey weights.
    assert!(pixels.iter().all(|p| (p - 148.0).abs() < 1.01), "{pixels}");
}

#[test]
fn files_that_are_no_images_are_errors_that_say_so() {
    let mut errors = vec![
        read("text.pgm", b"hello").unwrap_err(),
        read("short.pgm", b"P5 3 2 255\n\x00\x07").unwrap_err(),
        read("header.pgm", b"P5 3").unwrap_err(),
        read("wide.pgm", b"P5 three 2 255\n").unwrap_err(),
        read("deep.pgm", b"P5 3 2 70000\n").unwrap_err(),
        read("word.pgm", b"P2 1 2 255 7 x").unwrap_err(),
        read("empty.pgm", b"P5 0 2 255\n").unwrap_err(),
        read("short.iml", &[0; 100]).unwrap_err(),
        read_image("nowhere/x.pgm".as_ref()).unwrap_err(),
    ];
    errors.push(read("text.png", b"hello").unwrap_err());
    let png = png();
    errors.push(read("cut.png", &png[..png.len() - 30]).unwrap_err());
    assert!(read("text.jpg", b"hello").is_err());
    let jpeg = jpeg();
    assert!(read("cut.jpg", &jpeg[..jpeg.len() - 40]).is_err());
    errors.push(read("a.tiff", b"").unwrap_err());
    let text: Vec<String> = errors.into_iter().map(message).collect();
    insta::assert_snapshot!(text.join("\n"));
}

#[test]
fn folders_are_read_in_order_and_other_files_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let empty = read_image_folder(folder.path()).unwrap_err();
    assert!(matches!(empty, Error::NoImages { folder: Some(_) }));
    for (name, grey) in [("b.pgm", 2), ("a.pgm", 1), ("notes.txt", 3)] {
        fs::write(folder.path().join(name), format!("P2 1 1 9 {grey}")).unwrap();
    }
    let images = read_image_folder(folder.path()).unwrap();
    let names: Vec<&str> = images.iter().map(Image::name).collect();
    assert_eq!(names, ["a.pgm", "b.pgm"]);
    assert_eq!(images[1].pixels()[[0, 0]], 2.0);
    assert!(read_image_folder(&folder.path().join("none")).is_err());
}

#[test]
fn halving_averages_two_by_two() {
    let pixels = Array2::from_shape_fn((5, 4), |(i, j)| (10 * i + j) as f64);
    let half = Image::new("x", pixels).halved();
    assert_eq!(half.pixels(), array![[5.5, 7.5], [25.5, 27.5]]);
}

#[test]
fn patches_are_squares_of_the_image_and_every_place_is_as_likely() {
    // Pixels that tell where they are; two images with 2·3 and 1·1 places.
    let large = Array2::from_shape_fn((4, 5), |(i, j)| (10 * i + j) as f64);
    let small = Array2::from_shape_fn((3, 3), |(i, j)| (100 + 10 * i + j) as f64);
    let images = [Image::new("large", large), Image::new("small", small)];
    let n = 7000;
    let patches = draw_patches(&images, 3, n, seed()).unwrap();
    let mut counts = std::collections::BTreeMap::new();
    for patch in patches.outer_iter() {
        let corner = patch[0];
        let expected = [0., 1., 2., 10., 11., 12., 20., 21., 22.].map(|o| corner + o);
        assert_eq!(patch.to_vec(), expected);
        *counts.entry(corner as usize).or_insert(0usize) += 1;
    }
    assert_eq!(counts.len(), 7);
    // Binomial with p = 1/7: a standard deviation of 29; five of them.
    assert!(
        counts.values().all(|c| c.abs_diff(n / 7) < 150),
        "{counts:?}"
    );

    let error = draw_patches(&images, 4, 10, 1).unwrap_err();
    insta::assert_snapshot!(error, @"small is 3 × 3 pixels after down-sampling, smaller than a patch of 4 × 4: leave it out or take smaller patches");
    assert!(matches!(
        draw_patches(&[], 4, 10, 1),
        Err(Error::NoImages { folder: None })
    ));
    assert!(draw_patches(&images, 0, 10, 1).is_err());
}

#[test]
fn contrast_normalisation_divides_by_the_contrast() {
    let mut rows = array![[3.0, 4.0], [0.0, 0.0]];
    normalise_contrast(&mut rows);
    // √(0.1 + 25/2).
    let contrast = 12.6f64.sqrt();
    assert_eq!(rows, array![[3.0 / contrast, 4.0 / contrast], [0.0, 0.0]]);
    // Prepared patches are white, with and without it, and differ.
    let patches = normal(500, 4, 1) + 3.0;
    let heavy = &patches * &normal(500, 1, 2);
    let centred_covariance = |data: &Array2<f64>| {
        let mean = data.mean_axis(Axis(0)).unwrap();
        assert!(mean.iter().all(|m| m.abs() < 1e-12));
        covariance(data.view(), &Array1::zeros(4))
    };
    let (plain, _) = prepare_patches(heavy.view(), false).unwrap();
    let (normalised, _) = prepare_patches(heavy.view(), true).unwrap();
    for white in [&plain, &normalised] {
        let off = centred_covariance(white) - Array2::<f64>::eye(4);
        assert!(off.iter().all(|e| e.abs() < 1e-10));
    }
    let kurtosis = |data: &Array2<f64>| data.mapv(|v| v.powi(4)).sum() / data.len() as f64;
    assert!(kurtosis(&normalised) < kurtosis(&plain));
}
