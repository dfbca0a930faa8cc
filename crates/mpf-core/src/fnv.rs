//! The 64-bit FNV-1a hash: checksums of checkpoints and model files, fingerprints of data.

use std::fmt;
use std::io::{self, Write};

/// A running FNV-1a hash. Displays as `fnv1a64:` and sixteen hexadecimal digits.
///
/// Every step is a bijection of the state for a given byte: a change of a single byte always changes
/// the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fnv1a(u64);

impl Default for Fnv1a {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv1a {
    /// Adds `bytes`.
    pub fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// Returns the hash of everything added so far.
    pub fn value(self) -> u64 {
        self.0
    }
}

impl Write for Fnv1a {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.add(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Display for Fnv1a {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fnv1a64:{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_value_of_foobar() {
        let mut hash = Fnv1a::default();
        hash.add(b"foo");
        hash.add(b"bar");
        assert_eq!(hash.value(), 0x8594_4171_f739_67e8);
        assert_eq!(hash.to_string(), "fnv1a64:85944171f73967e8");
    }
}
