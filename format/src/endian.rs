//! Byte order, chosen once per input from its magic, and checked reads and writes in it.

use byteorder::{BigEndian, ByteOrder, LittleEndian};

use crate::{Error, Result, Secrets};

/// The byte order of the machine that wrote the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endian {
    /// Least significant byte first (x86-64, arm64, riscv64).
    Little,
    /// Most significant byte first (s390x).
    Big,
}

impl Endian {
    /// The byte order of the machine this code runs on.
    pub const NATIVE: Endian = if cfg!(target_endian = "big") { Endian::Big } else { Endian::Little };

    /// Decodes 1 to 16 bytes as an unsigned integer; `None` for any other number of bytes.
    pub fn uint(self, bytes: &[u8]) -> Option<u128> {
        (1..=16).contains(&bytes.len()).then(|| match self {
            Endian::Little => LittleEndian::read_uint128(bytes, bytes.len()),
            Endian::Big => BigEndian::read_uint128(bytes, bytes.len()),
        })
    }
}

/// Swaps the bytes of a value. Nearly all recordings have the byte order of this machine and need no swap. For these, a branch around this call costs
/// less than an unconditional swap with an unused result.
#[cold]
#[inline(never)]
fn swapped(value: u64) -> u64 {
    value.swap_bytes()
}

/// Defines decoding, encoding, checked reads and writes of integers.
macro_rules! integers {
    ($($ty:ident, $swapped:path, $at:ident, $bytes:ident;)*) => {
        impl Endian {
            $(
                #[doc = concat!("Decodes a `", stringify!($ty), "`.")]
                #[inline]
                pub fn $ty(self, bytes: [u8; size_of::<$ty>()]) -> $ty {
                    let value = $ty::from_ne_bytes(bytes);
                    if self == Endian::NATIVE { value } else { $swapped(value) }
                }

                #[doc = concat!("Decodes the `", stringify!($ty), "` at byte `at`; `None` beyond the end of `bytes`.")]
                #[inline]
                pub fn $at(self, bytes: &[u8], at: usize) -> Option<$ty> {
                    bytes.get(at..)?.first_chunk().map(|bytes| self.$ty(*bytes))
                }

                #[doc = concat!("Encodes a `", stringify!($ty), "`.")]
                #[inline]
                pub fn $bytes(self, value: $ty) -> [u8; size_of::<$ty>()] {
                    let value = if self == Endian::NATIVE { value } else { value.swap_bytes() };
                    value.to_ne_bytes()
                }
            )*
        }

        impl Reader<'_> {
            $(
                #[doc = concat!("Reads a `", stringify!($ty), "`; `what` names it in errors.")]
                pub fn $ty(&mut self, what: &'static str) -> Result<$ty> {
                    self.array(what).map(|bytes| self.endian.$ty(bytes))
                }
            )*
        }

        impl Writer<'_> {
            $(
                #[doc = concat!("Appends a `", stringify!($ty), "`.")]
                pub fn $ty(&mut self, value: $ty) -> &mut Self {
                    self.bytes(&self.endian.$bytes(value))
                }
            )*
        }
    };
}

integers! {
    u16, u16::swap_bytes, u16_at, bytes_u16;
    u32, u32::swap_bytes, u32_at, bytes_u32;
    u64, swapped, u64_at, bytes_u64;
}

/// A cursor over bytes in one byte order. Every read is checked and every error carries its offset, counted from `base`.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    base: u64,
    endian: Endian,
    misc: u16,
}

impl<'a> Reader<'a> {
    /// Reads `bytes`, which start at offset `base` of the input.
    pub fn new(bytes: &'a [u8], base: u64, endian: Endian) -> Reader<'a> {
        Reader { bytes, at: 0, base, endian, misc: 0 }
    }

    /// Reader of a payload whose layout depends on `misc`, a field of the record's header.
    pub(crate) fn with_misc(self, misc: u16) -> Reader<'a> {
        Reader { misc, ..self }
    }

    /// Field `misc` of the record's header; 0 outside of records.
    pub(crate) fn misc(&self) -> u16 {
        self.misc
    }

    /// Byte order of the reads.
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// Offset of the next byte in the input.
    pub fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    /// Count of bytes that are not yet read.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Returns true if all bytes are read.
    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// Returns all bytes not read yet and marks them as read.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        self.at = self.bytes.len();
        rest
    }

    /// Reads the next `len` bytes; `what` names them in errors.
    pub fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8]> {
        let bytes = self
            .at
            .checked_add(len)
            .and_then(|end| self.bytes.get(self.at..end))
            .ok_or_else(|| Error::truncated(self.offset(), what, len as u64, self.remaining() as u64))?;
        self.at += len;
        Ok(bytes)
    }

    /// Reads the next `N` bytes; `what` names them in errors.
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N]> {
        let bytes = self
            .bytes
            .get(self.at..)
            .and_then(|rest| rest.first_chunk::<N>())
            .ok_or_else(|| Error::truncated(self.offset(), what, N as u64, self.remaining() as u64))?;
        self.at += N;
        Ok(*bytes)
    }

    /// Reads one byte; `what` names it in errors.
    pub fn u8(&mut self, what: &'static str) -> Result<u8> {
        self.array::<1>(what).map(|[b]| b)
    }

    /// Checks a count of elements of at least `min_bytes` each: fails if fewer bytes are left, so that the caller may
    /// allocate by the count.
    pub fn count(&mut self, count: u64, min_bytes: usize, what: &'static str) -> Result<usize> {
        let needed = count.saturating_mul(min_bytes as u64);
        if needed > self.remaining() as u64 {
            return Err(Error::truncated(self.offset(), what, needed, self.remaining() as u64));
        }
        Ok(count as usize)
    }

    /// Reads the bytes up to the next NUL, and skips the NUL.
    pub fn cstr(&mut self, what: &'static str) -> Result<&'a [u8]> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let len = rest.iter().position(|b| *b == 0).ok_or(Error {
            offset: self.offset(),
            what,
            problem: crate::Problem::NoNul,
        })?;
        self.at += len + 1;
        Ok(&rest[..len])
    }
}

/// Grows a byte buffer in one byte order: the writing counterpart of [`Reader`].
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    endian: Endian,
    secrets: Option<&'a mut dyn Secrets>,
}

impl<'a> Writer<'a> {
    /// Appends to `out`.
    pub fn new(out: &'a mut Vec<u8>, endian: Endian) -> Writer<'a> {
        Writer { out, endian, secrets: None }
    }

    /// Appends to the same buffer, with `secrets` in place of the secrets that layouts mark.
    pub fn redacting<'s>(&'s mut self, secrets: &'s mut dyn Secrets) -> Writer<'s> {
        Writer { out: self.out, endian: self.endian, secrets: Some(secrets) }
    }

    /// Returns what to write in place of a secret value: the replacement if this writer redacts, else the value.
    #[inline]
    pub(crate) fn replaced<T>(&mut self, value: T, replace: impl FnOnce(&mut dyn Secrets, T) -> T) -> T {
        match &mut self.secrets {
            Some(secrets) => replace(&mut **secrets, value),
            None => value,
        }
    }

    /// Byte order of the writes.
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// Length of the buffer in bytes, including bytes from before this writer.
    pub fn position(&self) -> usize {
        self.out.len()
    }

    /// Appends bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.out.extend_from_slice(bytes);
        self
    }

    /// Appends one byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.out.push(value);
        self
    }

    /// Appends `count` zero bytes.
    pub fn zeros(&mut self, count: usize) -> &mut Self {
        self.out.resize(self.out.len() + count, 0);
        self
    }

    /// Appends zero bytes until the bytes written since `start` are a multiple of `to`.
    pub fn align(&mut self, start: usize, to: usize) -> &mut Self {
        let len = self.out.len().saturating_sub(start);
        self.zeros(len.next_multiple_of(to) - len)
    }

    /// Overwrites the integer at `at`, which must have been written before.
    pub fn patch_u16(&mut self, at: usize, value: u16) {
        self.out[at..at + 2].copy_from_slice(&self.endian.bytes_u16(value));
    }

    /// Overwrites the integer at `at`, which must have been written before.
    pub fn patch_u32(&mut self, at: usize, value: u32) {
        self.out[at..at + 4].copy_from_slice(&self.endian.bytes_u32(value));
    }
}
