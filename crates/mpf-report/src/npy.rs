//! Reads and writes the `.npy` format as a stream: a header, then numbers.
//!
//! ```text
//! 93 "NUMPY" major minor, length of the header (u16, from version 2 on u32, little endian),
//! {'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }   padded with spaces, then a newline
//! ```
//!
//! Numbers are passed on as they are read; `ndarray-npy` would hold them all, which for a raster of
//! doubles takes 64 times as much memory as its bits. Shapes in headers are compared with the length
//! of the file, never allocated.

use std::io::{self, Read, Write};

/// The first bytes of every file.
pub const MAGIC: &[u8] = b"\x93NUMPY";
/// The longest header that is read. NumPy itself refuses more than 10,000 bytes.
const LONGEST_HEADER: usize = 1 << 16;

/// The contents of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The type in NumPy's notation: `<f8`, `|u1`, …
    pub descr: String,
    /// Whether the first index runs fastest.
    pub fortran: bool,
    /// The extent along every axis.
    pub shape: Vec<u64>,
}

/// A file that cannot be read.
#[derive(Debug)]
pub enum Error {
    /// It does not begin as it should, or its header cannot be understood.
    Header(&'static str),
    /// A type that does not hold plain numbers.
    Dtype(String),
    /// It ends after this many numbers.
    Truncated(u64),
    /// It cannot be read.
    Io(io::Error),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            Self::Header("it ends within the header")
        } else {
            Self::Io(error)
        }
    }
}

impl Header {
    /// Returns the header of an array in C order.
    pub fn new(descr: &str, shape: &[usize]) -> Self {
        Self {
            descr: descr.to_owned(),
            fortran: false,
            shape: shape.iter().map(|n| *n as u64).collect(),
        }
    }

    /// Reads a header.
    ///
    /// # Errors
    /// [`Error::Header`], [`Error::Io`].
    pub fn read(file: &mut impl Read) -> Result<Self, Error> {
        let mut start = [0; 8];
        file.read_exact(&mut start)?;
        if &start[..6] != MAGIC {
            return Err(Error::Header("it does not begin as a .npy file does"));
        }
        let size = match start[6] {
            1 => 2,
            2 | 3 => 4,
            _ => return Err(Error::Header("its format version is unknown")),
        };
        let mut length = [0; 4];
        file.read_exact(&mut length[..size])?;
        let length = u32::from_le_bytes(length) as usize;
        if length > LONGEST_HEADER {
            return Err(Error::Header("its header is too long to be one"));
        }
        let mut text = vec![0; length];
        file.read_exact(&mut text)?;
        let text =
            std::str::from_utf8(&text).map_err(|_| Error::Header("its header is no text"))?;
        Self::parse(text)
    }

    /// Parses the Python dictionary of the header: three keys in any order, each of them once, and
    /// nothing else.
    fn parse(text: &str) -> Result<Self, Error> {
        const UNCLEAR: Error = Error::Header("its header cannot be understood");
        let mut literal = Literal(text);
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        let mut next = || -> Option<Result<(), Error>> {
            literal.token("{")?;
            while literal.token("}").is_none() {
                let key = literal.string()?;
                literal.token(":")?;
                let is_new = match key {
                    "descr" if literal.0.trim_start().starts_with(['[', '(']) => {
                        return Some(Err(Error::Dtype("a record".into())));
                    }
                    "descr" => descr.replace(literal.string()?).is_none(),
                    "fortran_order" => fortran.replace(literal.boolean()?).is_none(),
                    "shape" => shape.replace(literal.shape()?).is_none(),
                    _ => false,
                };
                if !is_new {
                    return Some(Err(Error::Header(
                        "its header has a key twice, or an unknown one",
                    )));
                }
                if literal.token(",").is_none() {
                    literal.token("}")?;
                    break;
                }
            }
            literal.0.trim_start().is_empty().then_some(Ok(()))
        };
        next().ok_or(UNCLEAR)??;
        match (descr, fortran, shape) {
            (Some(descr), Some(fortran), Some(shape)) => Ok(Self {
                descr: descr.to_owned(),
                fortran,
                shape,
            }),
            _ => Err(UNCLEAR),
        }
    }

    /// Writes the header, padded so that the numbers begin at a multiple of 64 bytes.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&self, file: &mut dyn Write) -> io::Result<()> {
        let order = if self.fortran { "True" } else { "False" };
        let shape: String = self.shape.iter().map(|n| format!("{n},")).collect();
        let mut text = format!(
            "{{'descr': '{}', 'fortran_order': {order}, 'shape': ({shape}), }}",
            self.descr
        );
        let padding = 63 - (10 + text.len()) % 64;
        text.extend(std::iter::repeat_n(' ', padding));
        text.push('\n');
        let length = u16::try_from(text.len()).expect("two axes take little room");
        file.write_all(MAGIC)?;
        file.write_all(&[1, 0])?;
        file.write_all(&length.to_le_bytes())?;
        file.write_all(text.as_bytes())
    }

    /// Returns how numbers are stored.
    ///
    /// # Errors
    /// [`Error::Dtype`].
    pub fn dtype(&self) -> Result<Dtype, Error> {
        let unknown = || Error::Dtype(self.descr.clone());
        let mut characters = self.descr.chars();
        let big_endian = match characters.next().ok_or_else(unknown)? {
            '<' | '|' | '=' => false,
            '>' => true,
            _ => return Err(unknown()),
        };
        let (kind, size) = match characters.as_str().as_bytes() {
            b"b1" | b"?" => (Kind::Bool, 1),
            [b'u', size @ (b'1' | b'2' | b'4' | b'8')] => (Kind::Unsigned, size - b'0'),
            [b'i', size @ (b'1' | b'2' | b'4' | b'8')] => (Kind::Signed, size - b'0'),
            [b'f', size @ (b'2' | b'4' | b'8')] => (Kind::Float, size - b'0'),
            _ => return Err(unknown()),
        };
        Ok(Dtype {
            kind,
            size: usize::from(size),
            big_endian,
        })
    }

    /// Returns the number of entries; `None` if it overflows.
    pub fn n_entries(&self) -> Option<u64> {
        self.shape.iter().try_fold(1u64, |n, m| n.checked_mul(*m))
    }
}

/// The rest of a Python literal. Every method takes what it returns from the front, after blanks.
struct Literal<'a>(&'a str);

impl<'a> Literal<'a> {
    fn token(&mut self, token: &str) -> Option<()> {
        self.0 = self.0.trim_start().strip_prefix(token)?;
        Some(())
    }

    /// Takes a string without escapes.
    fn string(&mut self) -> Option<&'a str> {
        let text = self.0.trim_start();
        let quote = text.chars().next().filter(|c| ['\'', '"'].contains(c))?;
        let (inside, rest) = text[1..].split_once(quote)?;
        self.0 = rest;
        (!inside.contains(['\\', '\n'])).then_some(inside)
    }

    fn boolean(&mut self) -> Option<bool> {
        let is_true = self.token("True").is_some();
        (is_true || self.token("False").is_some()).then_some(is_true)
    }

    /// Takes a tuple of numbers. Python 2 wrote an L behind long ones.
    fn shape(&mut self) -> Option<Vec<u64>> {
        self.token("(")?;
        let mut shape = Vec::new();
        while self.token(")").is_none() {
            let text = self.0.trim_start();
            let end = text.find(|c: char| !c.is_ascii_digit())?;
            shape.push(text[..end].parse().ok()?);
            self.0 = text[end..].strip_prefix('L').unwrap_or(&text[end..]);
            if self.token(",").is_none() {
                self.token(")")?;
                // (3) is a number.
                return (shape.len() > 1).then_some(shape);
            }
        }
        Some(shape)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bool,
    Unsigned,
    Signed,
    Float,
}

/// How a number is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dtype {
    kind: Kind,
    /// 1, 2, 4 or 8 bytes.
    size: usize,
    big_endian: bool,
}

impl Dtype {
    /// Returns the bytes of a number.
    pub fn size(self) -> usize {
        self.size
    }

    /// Calls `f` with each of `n` numbers.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Io`], and those of `f`.
    pub fn for_each<E: From<Error>>(
        self,
        file: &mut impl Read,
        n: u64,
        mut f: impl FnMut(f64) -> Result<(), E>,
    ) -> Result<(), E> {
        self.for_each_run(file, n, |bytes| {
            let mut numbers = bytes.chunks_exact(self.size);
            numbers.try_for_each(|number| f(self.decode(number)))
        })
    }

    /// Calls `f` with the bytes of `n` numbers, some thousands of them at a time.
    ///
    /// # Errors
    /// As [`Dtype::for_each`].
    pub fn for_each_run<E: From<Error>>(
        self,
        file: &mut impl Read,
        n: u64,
        mut f: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let size = self.size();
        let mut buffer = vec![0; size << 13];
        let mut done = 0u64;
        while done < n {
            let wanted = usize::try_from(n - done).map_or(1 << 13, |left| left.min(1 << 13));
            let filled = fill(file, &mut buffer[..wanted * size]).map_err(Error::from)?;
            let whole = filled / size;
            f(&buffer[..whole * size])?;
            done += whole as u64;
            if whole < wanted {
                return Err(Error::Truncated(done).into());
            }
        }
        Ok(())
    }

    /// Decodes one number. Integers beyond 2⁵³ are rounded.
    #[inline]
    pub fn decode(self, bytes: &[u8]) -> f64 {
        let bits = match *bytes {
            [a] => u64::from(a),
            [a, b] => u16::from_le_bytes([a, b]).into(),
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]).into(),
            _ => u64::from_le_bytes(bytes.try_into().expect("at most eight bytes")),
        };
        let unused = 64 - 8 * self.size;
        let bits = if self.big_endian {
            bits.swap_bytes() >> unused
        } else {
            bits
        };
        match (self.kind, self.size) {
            (Kind::Bool, _) => f64::from(u8::from(bits != 0)),
            (Kind::Unsigned, _) => bits as f64,
            // Shifting left and back copies the sign.
            (Kind::Signed, _) => ((bits << unused).cast_signed() >> unused) as f64,
            (Kind::Float, 2) => half(bits as u16),
            (Kind::Float, 4) => f64::from(f32::from_bits(bits as u32)),
            (Kind::Float, _) => f64::from_bits(bits),
        }
    }
}

/// Decodes IEEE 754 binary16.
fn half(bits: u16) -> f64 {
    let fraction = f64::from(bits & 0x3ff) / 1024.0;
    let size = match (bits >> 10) & 0x1f {
        0 => fraction * 2f64.powi(-14),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        exponent => (1.0 + fraction) * 2f64.powi(i32::from(exponent) - 15),
    };
    if bits >> 15 == 1 { -size } else { size }
}

/// Reads until `buffer` is full or the file ends.
///
/// # Errors
/// Those of the reader.
pub fn fill(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_back() {
        for (descr, shape) in [("|u1", &[3, 4][..]), ("<f8", &[7]), ("<U5", &[])] {
            let header = Header::new(descr, shape);
            let mut bytes = Vec::new();
            header.write(&mut bytes).unwrap();
            assert_eq!(bytes.len() % 64, 0);
            assert_eq!(Header::read(&mut &bytes[..]).unwrap(), header);
        }
        let text = "{\"shape\": (2L, 3), 'fortran_order': True, 'descr' : '>i4'}";
        let header = Header::parse(text).unwrap();
        assert_eq!((header.shape, header.fortran), (vec![2, 3], true));
    }

    #[test]
    fn only_a_dictionary_of_three_keys_is_a_header() {
        let whole = "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }";
        assert_eq!(Header::parse(whole).unwrap().shape, [3, 4]);
        // A key inside a string is part of the string.
        let inside = whole.replace("<f8", "<f8'shape': (7, 7), ");
        assert!(Header::parse(&inside).is_err());
        let inside = whole.replace("'<f8'", "\"'shape': (7, 7), \"");
        let header = Header::parse(&inside).unwrap();
        assert_eq!(header.shape, [3, 4]);
        assert!(header.dtype().is_err());
        for (from, to) in [
            ("'shape': (3, 4)", "'shape': (3, 4), 'shape': (7, 7)"),
            ("'shape': (3, 4)", "'shape': (3, 4), 'more': 1"),
            ("'shape': (3, 4), ", ""),
            ("(3, 4)", "(3)"),
            ("(3, 4)", "(3 4)"),
            ("(3, 4)", "(3, -4)"),
            ("(3, 4)", "(3, 4"),
            ("(3, 4)", "(99999999999999999999, 1)"),
            ("False", "7"),
            ("False", "Falsehood"),
            ("<f8", "<f\\x38"),
            ("{", ""),
            ("}", "} {}"),
            (whole, ""),
        ] {
            let text = whole.replace(from, to);
            assert!(Header::parse(&text).is_err(), "{text}");
        }
        let record = whole.replace("'<f8'", "[('shape', '<i4', (7,))]");
        assert!(matches!(Header::parse(&record), Err(Error::Dtype(_))));
    }

    #[test]
    fn every_type_is_decoded() {
        let decode = |descr: &str, bytes: &[u8]| {
            let dtype = Header::new(descr, &[1]).dtype().unwrap();
            assert_eq!(dtype.size(), bytes.len());
            dtype.decode(bytes)
        };
        assert_eq!(decode("|b1", &[1]), 1.0);
        assert_eq!(decode("|i1", &[255]), -1.0);
        assert_eq!(decode(">i2", &[255, 254]), -2.0);
        assert_eq!(decode("<u4", &[1, 1, 0, 0]), 257.0);
        assert_eq!(decode("<i8", &(-3i64).to_le_bytes()), -3.0);
        assert_eq!(decode(">f8", &1.5f64.to_be_bytes()), 1.5);
        assert_eq!(decode("<f4", &0.5f32.to_le_bytes()), 0.5);
        let halves = [
            (0x3c00u16, 1.0),
            (0xbc00, -1.0),
            (0x0001, 2f64.powi(-24)),
            (0x7c00, f64::INFINITY),
        ];
        for (bits, value) in halves {
            assert_eq!(decode("<f2", &bits.to_le_bytes()), value);
        }
        assert!(decode("<f2", &0x7e00u16.to_le_bytes()).is_nan());
        for unsupported in ["<c16", "|O", "<U3", "<M8[ns]", "<f16", "", "f8"] {
            assert!(Header::new(unsupported, &[1]).dtype().is_err());
        }
    }
}
