//! The filters of two models as pictures, side by side.
//!
//! Every filter is scaled to its own largest entry, and zero is grey, as in the paper. The pixels
//! are a PNG inside the SVG: as rectangles they would be a megabyte.

use super::results::Pair;
use crate::Result;
use mpf_ica::{FilterMatch, Filters, match_filters};
use std::fmt::Write as _;

/// Grey of the gaps between filters.
const GAP: u8 = 255;
/// The side of a filter's pixel in the picture.
const ZOOM: usize = 4;

pub(super) fn caption(size: usize) -> String {
    format!(
        "Filters J_k of {size} × {size} pixels, in the space of whitened patches: (a) MPF, (b) \
         maximum likelihood. Each is scaled to its own maximum, zero is grey. Filters in the same \
         place are matched, the most similar pairs first, with the same sign."
    )
}

/// Draws the two mosaics as one SVG; without maximum likelihood only the first.
pub(super) fn draw(size: usize, pair: &Pair) -> Result<String> {
    let n = pair.mpf.n_dims();
    let matches = match &pair.ml {
        Some(ml) => match_filters(&pair.mpf, ml)?,
        None => (0..n)
            .map(|k| FilterMatch {
                first: k,
                second: k,
                similarity: 1.0,
            })
            .collect(),
    };
    let row = |filters: &Filters, k: usize| filters.as_array().row(k).to_vec();
    let first: Vec<Vec<f64>> = matches.iter().map(|m| row(&pair.mpf, m.first)).collect();
    let mut panels = vec![("(a) MPF", first.clone())];
    if let Some(ml) = &pair.ml {
        let partners = matches.iter().zip(&first).map(|(m, first)| {
            let mut filter = row(ml, m.second);
            let product: f64 = filter.iter().zip(first).map(|(a, b)| a * b).sum();
            if product < 0.0 {
                filter.iter_mut().for_each(|v| *v = -*v);
            }
            filter
        });
        panels.push(("(b) maximum likelihood", partners.collect()));
    }

    let columns = (n as f64).sqrt().ceil() as usize;
    let side = columns * (size + 1) + 1;
    let (width, label) = (side * ZOOM, 30);
    let total = panels.len() * (width + 20) + 20;
    let mut svg = format!(
        "<svg width=\"{total}\" height=\"{}\" viewBox=\"0 0 {total} {0}\" \
         xmlns=\"http://www.w3.org/2000/svg\" xmlns:xlink=\"http://www.w3.org/1999/xlink\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#FFFFFF\"/>\n",
        width + label + 20
    );
    for (k, (name, filters)) in panels.iter().enumerate() {
        let x = 20 + k * (width + 20);
        let picture = base64(&png(&mosaic(filters, size, columns), side)?);
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"20\" text-anchor=\"middle\" font-family=\"sans-serif\" \
             font-size=\"15\" fill=\"#1E1E1E\">{name}</text>\n\
             <image x=\"{x}\" y=\"{label}\" width=\"{width}\" height=\"{width}\" \
             style=\"image-rendering:pixelated\" \
             xlink:href=\"data:image/png;base64,{picture}\"/>",
            x + width / 2
        );
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// Arranges the filters row by row in a square of greys, with a gap of one pixel around each.
fn mosaic(filters: &[Vec<f64>], size: usize, columns: usize) -> Vec<u8> {
    let side = columns * (size + 1) + 1;
    let mut pixels = vec![GAP; side * side];
    for (k, filter) in filters.iter().enumerate() {
        let largest = filter.iter().fold(f64::MIN_POSITIVE, |m, v| m.max(v.abs()));
        let (top, left) = (k / columns * (size + 1) + 1, k % columns * (size + 1) + 1);
        for (p, value) in filter.iter().enumerate() {
            let at = (top + p / size) * side + left + p % size;
            pixels[at] = (127.5 + 127.5 * value / largest).round() as u8;
        }
    }
    pixels
}

fn png(pixels: &[u8], side: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, side as u32, side as u32);
    encoder.set_color(png::ColorType::Grayscale);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(bytes)
}

/// Encodes `bytes` as in RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |k: usize| u32::from(chunk.get(k).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for k in 0..4 {
            text.push(if k <= chunk.len() {
                char::from(DIGITS[(word >> (18 - 6 * k) & 63) as usize])
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_the_standard() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn filters_are_scaled_to_themselves_and_zero_is_grey() {
        let filters = [vec![0.0, 2.0, -1.0, 0.0], vec![0.0, -0.1, 0.0, 0.0]];
        let pixels = mosaic(&filters, 2, 2);
        assert_eq!(pixels.len(), 49);
        assert_eq!(pixels[8..10], [128, 255]);
        assert_eq!(pixels[15..17], [64, 128]);
        assert_eq!(pixels[11..13], [128, 0]);
        assert_eq!((pixels[0], pixels[10]), (GAP, GAP));
    }
}
