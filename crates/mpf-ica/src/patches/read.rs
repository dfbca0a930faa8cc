//! Reads images from files: PGM and van Hateren's `.iml` always, PNG and JPEG with the feature `images`.
//!
//! Colours become grey by the weights of Rec. 601, 0.299 R + 0.587 G + 0.114 B. An `.iml` file is
//! 1536 × 1024 unsigned 16-bit numbers, big-endian, row by row (van Hateren & van der Schaaf
//! 1998).

use super::Image;
use crate::{Error, Result};
use ndarray::Array2;
use std::path::{Path, PathBuf};

/// Rows and columns of an `.iml` file.
const IML: (usize, usize) = (1024, 1536);

/// The contents of a file, or the reason why it cannot be read.
type Reason<T> = std::result::Result<T, String>;

/// A reader of one format: from a file's bytes to grey pixels.
type Reader = fn(&[u8]) -> Reason<Array2<f64>>;

/// Returns the format that the extension of `path` names, and its reader.
fn reader(path: &Path) -> Option<(&'static str, Reader)> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    match extension.as_str() {
        "pgm" => Some(("PGM", read_pgm)),
        "iml" => Some(("van Hateren's .iml", read_iml)),
        #[cfg(feature = "images")]
        "png" => Some(("PNG", read_png)),
        #[cfg(feature = "images")]
        "jpg" | "jpeg" => Some(("JPEG", read_jpeg)),
        _ => None,
    }
}

/// Reads an image in the format that its extension names.
///
/// # Errors
/// [`Error::Image`] for a file that cannot be read, is corrupt, or has an unknown extension.
pub fn read_image(path: &Path) -> Result<Image> {
    let failed = |format, reason| Error::Image {
        path: path.to_owned(),
        format,
        reason,
    };
    let (format, read) = reader(path).ok_or_else(|| {
        let known = if cfg!(feature = "images") {
            ".png, .jpg, .jpeg, .pgm and .iml"
        } else {
            ".pgm and .iml, and with the feature `images` .png, .jpg and .jpeg"
        };
        failed("an image", format!("known extensions are {known}"))
    })?;
    let bytes = std::fs::read(path).map_err(|e| failed(format, e.to_string()))?;
    let pixels = read(&bytes).map_err(|reason| failed(format, reason))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Ok(Image::new(name, pixels))
}

/// Reads every image of a folder, in the order of their names. Other files are ignored.
///
/// # Errors
/// [`Error::NoImages`] where there is none, [`Error::Image`] for the first that cannot be read.
pub fn read_image_folder(folder: &Path) -> Result<Vec<Image>> {
    let entries = std::fs::read_dir(folder).map_err(|e| Error::Image {
        path: folder.to_owned(),
        format: "a folder of images",
        reason: e.to_string(),
    })?;
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| reader(path).is_some())
        .collect();
    paths.sort();
    if paths.is_empty() {
        return Err(Error::NoImages {
            folder: Some(folder.to_owned()),
        });
    }
    paths.iter().map(|path| read_image(path)).collect()
}

/// Makes `n_rows` × `n_columns` pixels of as many numbers, row by row.
fn grey(n_rows: usize, n_columns: usize, pixels: Vec<f64>) -> Reason<Array2<f64>> {
    let found = pixels.len();
    Array2::from_shape_vec((n_rows, n_columns), pixels).map_err(|_| {
        format!("{found} pixels, where {n_columns} × {n_rows} were promised: the file is cut short")
    })
}

/// Decodes big-endian 16-bit numbers.
fn sixteen_bit(bytes: &[u8]) -> Vec<f64> {
    let pairs = bytes.chunks_exact(2);
    pairs
        .map(|b| f64::from(u16::from_be_bytes([b[0], b[1]])))
        .collect()
}

fn read_iml(bytes: &[u8]) -> Reason<Array2<f64>> {
    let (rows, columns) = IML;
    let (found, expected) = (bytes.len(), 2 * rows * columns);
    if found != expected {
        return Err(format!("{found} bytes, where {expected} were expected"));
    }
    grey(rows, columns, sixteen_bit(bytes))
}

/// Reads P2 (text) and P5 (binary), 8 and 16 bits.
fn read_pgm(bytes: &[u8]) -> Reason<Array2<f64>> {
    let mut rest = bytes;
    let magic = pgm_token(&mut rest).unwrap_or_default();
    if magic != "P5" && magic != "P2" {
        return Err("it does not begin with P2 or P5".into());
    }
    let mut number = |what: &str| -> Reason<usize> {
        let token = pgm_token(&mut rest).ok_or(format!("no {what} in the header"))?;
        token
            .parse()
            .map_err(|_| format!("{what} is `{token}`, not a number"))
    };
    let (columns, rows) = (number("width")?, number("height")?);
    let largest = number("largest grey")?;
    if !(1..=65_535).contains(&largest) {
        return Err(format!("largest grey is {largest}, not from 1 to 65535"));
    }
    let n = rows
        .checked_mul(columns)
        .filter(|n| *n > 0)
        .ok_or(format!("{columns} × {rows} pixels"))?;
    let pixels = if magic == "P2" {
        let mut pixels = Vec::new();
        while let Some(token) = pgm_token(&mut rest) {
            let value: u16 = token
                .parse()
                .map_err(|_| format!("pixel {} is `{token}`, not a grey", pixels.len()))?;
            pixels.push(f64::from(value));
        }
        pixels
    } else {
        // One white-space character ends the header.
        let data = rest.get(1..).unwrap_or_default();
        let pixels = if largest < 256 {
            data.iter().map(|b| f64::from(*b)).collect()
        } else {
            sixteen_bit(data)
        };
        // Another image may follow.
        pixels.into_iter().take(n).collect()
    };
    grey(rows, columns, pixels)
}

/// Takes the next word of a PGM header off `rest`, skipping comments.
fn pgm_token<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    loop {
        *rest = rest.trim_ascii_start();
        if rest.first() != Some(&b'#') {
            break;
        }
        let end = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
        *rest = &rest[end..];
    }
    let end = rest.iter().position(u8::is_ascii_whitespace);
    let (token, after) = rest.split_at(end.unwrap_or(rest.len()));
    *rest = after;
    std::str::from_utf8(token).ok().filter(|t| !t.is_empty())
}

/// Converts pixels of 1 (grey), 2 (grey, alpha), 3 (RGB) or 4 (RGB, alpha) numbers to grey.
#[cfg(feature = "images")]
fn grey_from_channels(values: &[f64], n_channels: usize) -> Vec<f64> {
    let pixels = values.chunks_exact(n_channels);
    pixels
        .map(|p| match n_channels {
            1 | 2 => p[0],
            _ => 0.299 * p[0] + 0.587 * p[1] + 0.114 * p[2],
        })
        .collect()
}

#[cfg(feature = "images")]
fn read_png(bytes: &[u8]) -> Reason<Array2<f64>> {
    let mut decoder = png::Decoder::new(std::io::Cursor::new(bytes));
    // Palettes and fewer than 8 bits become 8-bit colours.
    decoder.set_transformations(png::Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(|e| e.to_string())?;
    let size = reader.output_buffer_size().ok_or("it is too large")?;
    let mut buffer = vec![0; size];
    let info = reader.next_frame(&mut buffer).map_err(|e| e.to_string())?;
    let bytes = &buffer[..info.buffer_size()];
    let values = match info.bit_depth {
        png::BitDepth::Sixteen => sixteen_bit(bytes),
        _ => bytes.iter().map(|b| f64::from(*b)).collect(),
    };
    let pixels = grey_from_channels(&values, info.color_type.samples());
    grey(info.height as usize, info.width as usize, pixels)
}

#[cfg(feature = "images")]
fn read_jpeg(bytes: &[u8]) -> Reason<Array2<f64>> {
    use zune_jpeg::JpegDecoder;
    use zune_jpeg::zune_core::bytestream::ZCursor;
    use zune_jpeg::zune_core::colorspace::ColorSpace;
    use zune_jpeg::zune_core::options::DecoderOptions;

    // Strict: a file that is cut short is an error, not a picture with a grey bottom.
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    let values = decoder.decode().map_err(|e| e.to_string())?;
    let values: Vec<f64> = values.into_iter().map(f64::from).collect();
    let (columns, rows) = decoder.dimensions().ok_or("it has no size")?;
    grey(rows, columns, grey_from_channels(&values, 3))
}
