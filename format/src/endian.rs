//! Byte order, chosen once per input from its magic, and checked reads and writes in it.

use byteorder::{BigEndian, ByteOrder, LittleEndian};

use crate::{Error, Result};

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

    /// Decodes two bytes.
    #[inline]
    pub fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Endian::Little => u16::from_le_bytes(bytes),
            Endian::Big => u16::from_be_bytes(bytes),
        }
    }

    /// Decodes four bytes.
    #[inline]
    pub fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Endian::Little => u32::from_le_bytes(bytes),
            Endian::Big => u32::from_be_bytes(bytes),
        }
    }

    /// Decodes eight bytes.
    #[inline]
    pub fn u64(self, bytes: [u8; 8]) -> u64 {
        let value = u64::from_ne_bytes(bytes);
        if self == Endian::NATIVE { value } else { swapped(value) }
    }

    /// The `u16` at byte `at`; `None` beyond the end of `bytes`.
    #[inline]
    pub fn u16_at(self, bytes: &[u8], at: usize) -> Option<u16> {
        bytes.get(at..)?.first_chunk().map(|b| self.u16(*b))
    }

    /// The `u32` at byte `at`; `None` beyond the end of `bytes`.
    #[inline]
    pub fn u32_at(self, bytes: &[u8], at: usize) -> Option<u32> {
        bytes.get(at..)?.first_chunk().map(|b| self.u32(*b))
    }

    /// The `u64` at byte `at`; `None` beyond the end of `bytes`.
    #[inline]
    pub fn u64_at(self, bytes: &[u8], at: usize) -> Option<u64> {
        bytes.get(at..)?.first_chunk().map(|b| self.u64(*b))
    }

    /// Decodes 1 to 16 bytes as an unsigned integer; `None` for any other number of bytes.
    pub fn uint(self, bytes: &[u8]) -> Option<u128> {
        (1..=16).contains(&bytes.len()).then(|| match self {
            Endian::Little => LittleEndian::read_uint128(bytes, bytes.len()),
            Endian::Big => BigEndian::read_uint128(bytes, bytes.len()),
        })
    }

    /// The bytes of an integer in this order.
    #[inline]
    pub fn bytes_u16(self, value: u16) -> [u8; 2] {
        match self {
            Endian::Little => value.to_le_bytes(),
            Endian::Big => value.to_be_bytes(),
        }
    }

    /// The bytes of an integer in this order.
    #[inline]
    pub fn bytes_u32(self, value: u32) -> [u8; 4] {
        match self {
            Endian::Little => value.to_le_bytes(),
            Endian::Big => value.to_be_bytes(),
        }
    }

    /// The bytes of an integer in this order.
    #[inline]
    pub fn bytes_u64(self, value: u64) -> [u8; 8] {
        match self {
            Endian::Little => value.to_le_bytes(),
            Endian::Big => value.to_be_bytes(),
        }
    }
}

/// Swaps the bytes of a value. Nearly all recordings have the reader's byte order: for these, a call that is almost
/// never made costs less than a swap with an unused result.
#[cold]
#[inline(never)]
fn swapped(value: u64) -> u64 {
    value.swap_bytes()
}

/// A cursor over bytes in one byte order. Every read is checked and every error carries its offset, counted from `base`.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    base: u64,
    endian: Endian,
}

impl<'a> Reader<'a> {
    /// Reads `bytes`, which start at offset `base` of the input.
    pub fn new(bytes: &'a [u8], base: u64, endian: Endian) -> Reader<'a> {
        Reader { bytes, at: 0, base, endian }
    }

    /// Byte order of the reads.
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// Offset of the next byte in the input.
    pub fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    /// Bytes not read yet.
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

    /// One byte.
    pub fn u8(&mut self, what: &'static str) -> Result<u8> {
        self.array::<1>(what).map(|[b]| b)
    }

    /// Two bytes as an integer.
    pub fn u16(&mut self, what: &'static str) -> Result<u16> {
        self.array(what).map(|b| self.endian.u16(b))
    }

    /// Four bytes as an integer.
    pub fn u32(&mut self, what: &'static str) -> Result<u32> {
        self.array(what).map(|b| self.endian.u32(b))
    }

    /// Eight bytes as an integer.
    pub fn u64(&mut self, what: &'static str) -> Result<u64> {
        self.array(what).map(|b| self.endian.u64(b))
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
}

impl<'a> Writer<'a> {
    /// Appends to `out`.
    pub fn new(out: &'a mut Vec<u8>, endian: Endian) -> Writer<'a> {
        Writer { out, endian }
    }

    /// Byte order of the writes.
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// Number of bytes in the buffer, including those from before this writer.
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

    /// Appends an integer.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&self.endian.bytes_u16(value))
    }

    /// Appends an integer.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&self.endian.bytes_u32(value))
    }

    /// Appends an integer.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&self.endian.bytes_u64(value))
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
