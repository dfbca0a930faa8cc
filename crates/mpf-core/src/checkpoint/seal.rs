//! Encodes values as bytes whose damage is detected.
//!
//! ```text
//! "mpf-ckpt"  format version (u32)  length n (u64)  checksum (u64)  n bytes
//! ```
//!
//! Numbers are little-endian. The checksum is [`Fnv1a`] over version, length and contents. The
//! contents are `bincode`'s encoding, which keeps every bit of a number.
//!
//! Only this module knows `bincode`, which is complete but no longer maintained. To replace it,
//! write another encoding here and raise [`VERSION`].

use crate::Result;
use crate::error::Error;
use crate::fnv::Fnv1a;
use bincode::config::{self, Configuration};
use bincode::error::EncodeError;
use serde::Serialize;
use serde::de::DeserializeOwned;

const MAGIC: &[u8; 8] = b"mpf-ckpt";
/// The format version that this program writes and reads.
const VERSION: u32 = 4;
const HEADER: usize = 28;

const ENCODING: Configuration = config::standard();

/// Encodes `value` behind a header that lets [`open`] detect any damage.
pub(super) fn seal(value: &impl Serialize) -> Result<Vec<u8>> {
    // Written in place: a checkpoint may be as large as all the rest.
    let mut bytes = vec![0; HEADER];
    bincode::serde::encode_into_std_write(value, &mut bytes, ENCODING).map_err(unencoded)?;
    let (header, contents) = bytes.split_at_mut(HEADER);
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..20].copy_from_slice(&(contents.len() as u64).to_le_bytes());
    let sum = checksum(&header[8..20], contents);
    header[20..].copy_from_slice(&sum.to_le_bytes());
    Ok(bytes)
}

/// Decodes what [`seal`] wrote; refuses bytes that are not a checkpoint, are of another version,
/// were cut short or changed, or hold something else.
pub(super) fn open<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let header = bytes.split_first_chunk::<HEADER>();
    let Some((header, contents)) = header.filter(|(header, _)| header.starts_with(MAGIC)) else {
        return Err(Error::checkpoint(
            "it is not a checkpoint, or only the beginning of one",
        ));
    };
    let little_endian = |bytes: &[u8]| {
        bytes
            .iter()
            .rfold(0, |word, &byte| word << 8 | u64::from(byte))
    };
    let version = little_endian(&header[8..12]);
    if version != u64::from(VERSION) {
        return Err(Error::checkpoint(format!(
            "it has format version {version}, this program reads {VERSION}"
        )));
    }
    if little_endian(&header[12..20]) != contents.len() as u64 {
        return Err(Error::checkpoint(
            "it was cut short, or something follows it",
        ));
    }
    if little_endian(&header[20..]) != checksum(&header[8..20], contents) {
        return Err(Error::checkpoint(
            "its checksum does not match: the file is damaged",
        ));
    }
    decode(contents)
}

/// Encodes `value` without a header.
pub(crate) fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    bincode::serde::encode_to_vec(value, ENCODING).map_err(unencoded)
}

fn unencoded(error: EncodeError) -> Error {
    Error::checkpoint(error.to_string())
}

/// Decodes what [`encode`] wrote; all bytes must be used.
///
/// `bincode` allocates a text before it reads it, so the allocation is limited: no number takes more
/// than eight times its size in the file.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    const MIB: usize = 1 << 20;
    let decoded = match bytes.len() {
        0..MIB => bincode::serde::decode_from_slice(bytes, ENCODING.with_limit::<{ 8 * MIB }>()),
        _ => bincode::serde::decode_from_slice(
            bytes,
            ENCODING.with_limit::<{ isize::MAX as usize }>(),
        ),
    };
    match decoded {
        Ok((value, used)) if used == bytes.len() => Ok(value),
        Ok(_) => Err(Error::checkpoint("it holds something else than expected")),
        Err(error) => Err(Error::checkpoint(format!(
            "it holds something else than expected ({error})"
        ))),
    }
}

fn checksum(header: &[u8], contents: &[u8]) -> u64 {
    let mut hash = Fnv1a::default();
    hash.add(header);
    hash.add(contents);
    hash.value()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Contents = (u32, Vec<f64>, String);

    fn contents() -> Contents {
        let numbers = vec![0.1, -0.0, f64::MIN_POSITIVE / 8.0, f64::NAN, f64::INFINITY];
        (7, numbers, "units".to_owned())
    }

    #[test]
    fn a_round_trip_keeps_every_bit() {
        let (n, numbers, text): Contents = open(&seal(&contents()).unwrap()).unwrap();
        let bits = |v: &[f64]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&numbers), bits(&contents().1));
        assert_eq!((n, text), (7, "units".to_owned()));
    }

    #[test]
    fn every_change_of_a_byte_and_every_truncation_is_detected() {
        let sealed = seal(&contents()).unwrap();
        for at in 0..sealed.len() {
            for change in 1..=255u8 {
                let mut damaged = sealed.clone();
                damaged[at] ^= change;
                assert!(open::<Contents>(&damaged).is_err(), "byte {at} ^ {change}");
            }
            assert!(open::<Contents>(&sealed[..at]).is_err(), "cut at {at}");
        }
        let longer = [&sealed[..], &[0]].concat();
        assert!(open::<Contents>(&longer).is_err());
    }

    #[test]
    fn other_contents_are_refused() {
        let sealed = seal(&(1u8, 2u8)).unwrap();
        assert!(open::<Contents>(&sealed).is_err());
        assert!(open::<u8>(&sealed).is_err());
    }

    #[test]
    fn lengths_are_not_believed() {
        // 253 announces a u64: more than any memory, and a tebibyte.
        for length in [u64::MAX, 1 << 40] {
            let contents = [&[253][..], &length.to_le_bytes(), b"short"].concat();
            assert!(decode::<String>(&contents).is_err());
            assert!(decode::<Vec<f64>>(&contents).is_err());
        }
    }
}
