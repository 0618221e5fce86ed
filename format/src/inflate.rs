//! The zstd stream that COMPRESSED and COMPRESSED2 records carry in slices.
//!
//! All slices of a recording form one stream: a zstd frame spans several slices, and the unpacked bytes of a slice may end inside a record. An
//! incomplete record waits for the next slice, so only whole records are returned.

use crate::{Availability, Endian, Error, Record, Result};

/// Limit on the bytes that one compressed record unpacks to: 512 times the size limit of a record, 64 KiB. No real recording compresses so well,
/// because its records differ at least in their times.
#[cfg(feature = "zstd")]
const UNPACKED_LIMIT_BYTES: u64 = 32 << 20;

/// Bytes that are unpacked at a time.
#[cfg(feature = "zstd")]
const STEP_BYTES: usize = 256 << 10;

/// Whole records and their offset in the decompressed stream.
pub(crate) struct Unpacked<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) offset: u64,
}

/// Limit on the window of a stream, as the base-2 logarithm of its bytes: the window of zstd's highest level, 22.
/// The format allows 2 TiB.
#[cfg(feature = "zstd")]
const WINDOW_LOG_MAX: u32 = 27;

/// State of a decompressed stream between its slices.
#[derive(Default)]
pub(crate) struct Inflate {
    #[cfg(feature = "zstd")]
    decoder: Option<zstd::stream::raw::Decoder<'static>>,
    /// Unpacked bytes: valid up to `filled`, already returned up to `used`.
    buffer: Vec<u8>,
    filled: usize,
    used: usize,
    /// Offset of the buffer in the decompressed stream.
    offset: u64,
    /// Bytes that the current compressed record has unpacked to so far.
    produced: u64,
    /// True if the current compressed record may unpack to more bytes.
    active: bool,
    /// Limit on the bytes that one record unpacks to, if the recording has one.
    #[cfg_attr(not(feature = "zstd"), expect(dead_code, reason = "nothing is unpacked"))]
    limit: Option<u64>,
    failed: bool,
}

impl std::fmt::Debug for Inflate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inflate").field("offset", &self.offset).field("failed", &self.failed).finish_non_exhaustive()
    }
}

impl Inflate {
    pub(crate) fn new(limit: Option<u64>) -> Inflate {
        Inflate { limit, ..Inflate::default() }
    }

    /// Starts the next compressed record.
    pub(crate) fn begin(&mut self) {
        self.produced = 0;
        self.active = true;
    }

    /// Returns true if the current compressed record may unpack to more bytes.
    pub(crate) fn is_active(&self) -> bool {
        self.active
    }

    /// Unpacks a part of `packed`, removes it from `packed`, and returns the new whole records, possibly none. `offset` is the
    /// end of the compressed record.
    ///
    /// # Errors
    /// Fails if the bytes are not a zstd stream, unpack to more bytes than the limit, or do not unpack to records. Every
    /// further call fails, too.
    pub(crate) fn step(&mut self, packed: &mut &[u8], offset: u64, endian: Endian) -> Result<Unpacked<'_>> {
        if self.failed {
            self.active = false;
            return Err(Error::other(
                offset,
                "compressed record",
                "the record is skipped, because an earlier record of the compressed stream is damaged",
            ));
        }
        let result = self.unpack(packed, offset).and_then(|()| self.whole_records(offset, endian));
        match result {
            Ok(len) => {
                let start = self.used;
                self.used += len;
                Ok(Unpacked { bytes: &self.buffer[start..start + len], offset: self.offset + start as u64 })
            }
            Err(error) => {
                self.failed = true;
                self.active = false;
                Err(error)
            }
        }
    }

    /// Ends the stream.
    ///
    /// # Errors
    /// Fails if the decompressed stream ends inside a record.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let left = self.filled - self.used;
        if left == 0 || self.failed {
            return Ok(());
        }
        self.failed = true;
        let offset = self.offset + self.used as u64;
        Err(Error::other(
            offset,
            "decompressed stream",
            format!("the decompressed stream ends inside a record, after {left} bytes of the record"),
        ))
    }

    /// Length in bytes of the whole records in the buffer that were not yet returned.
    fn whole_records(&self, offset: u64, endian: Endian) -> Result<usize> {
        let bytes = self.buffer.get(self.used..self.filled).unwrap_or_default();
        let mut len = 0;
        loop {
            match Record::parse_partial(&bytes[len..], self.offset + (self.used + len) as u64, endian) {
                Ok(Availability::Ready(record)) => len += record.bytes.len(),
                Ok(Availability::NeedMore) => return Ok(len),
                Err(error) => {
                    let problem = format!("decompressed stream at {error}");
                    return Err(Error::other(offset, "compressed record", problem));
                }
            }
        }
    }

    #[cfg(feature = "zstd")]
    fn unpack(&mut self, packed: &mut &[u8], offset: u64) -> Result<()> {
        use zstd::stream::raw::{DParameter, Decoder, Operation};

        self.buffer.copy_within(self.used..self.filled, 0);
        self.filled -= self.used;
        self.offset += self.used as u64;
        self.used = 0;
        let broken = |error: std::io::Error| Error::other(offset, "compressed record", error.to_string());
        let mut decoder = match self.decoder.take() {
            Some(decoder) => decoder,
            None => {
                let mut decoder = Decoder::new().map_err(broken)?;
                decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX)).map_err(broken)?;
                decoder
            }
        };
        let end = self.filled + STEP_BYTES;
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        let status = decoder.run_on_buffers(packed, &mut self.buffer[self.filled..end]).map_err(broken)?;
        self.filled += status.bytes_written;
        self.decoder = Some(decoder);
        self.produced += status.bytes_written as u64;
        let limit = self.limit.unwrap_or(UNPACKED_LIMIT_BYTES).min(UNPACKED_LIMIT_BYTES);
        if self.produced > limit {
            let problem = format!("the record decompresses to more than the limit of {limit} bytes");
            return Err(Error::other(offset, "compressed record", problem));
        }
        *packed = packed.get(status.bytes_read..).unwrap_or_default();
        // If the output is full, the decoder may hold more although all input is read.
        self.active = status.bytes_written == STEP_BYTES || !packed.is_empty();
        if self.active && status.bytes_read == 0 && status.bytes_written == 0 {
            return Err(Error::other(
                offset,
                "compressed record",
                "the compressed data is damaged: the decompressor makes no progress",
            ));
        }
        Ok(())
    }

    #[cfg(not(feature = "zstd"))]
    fn unpack(&mut self, _packed: &mut &[u8], offset: u64) -> Result<()> {
        Err(Error::other(offset, "compressed record", "this build cannot read zstd; build it with the feature `zstd`"))
    }
}
