//! The zstd stream that COMPRESSED and COMPRESSED2 records carry in slices.
//!
//! A writer has one stream that never ends; frames span records, and what a slice unpacks to may end inside a record. The
//! remainder is kept for the next slice, so that only whole records are handed out.

use crate::{Availability, Endian, Error, Record, Result};

/// The most that one compressed record may hold. It has less than 64 KiB of compressed bytes, of records that differ in
/// their times at least: 512 times as much is beyond any real recording.
const UNPACKED_LIMIT_BYTES: u64 = 32 << 20;

/// Bytes that are unpacked at a time.
#[cfg(feature = "zstd")]
const STEP_BYTES: usize = 256 << 10;

/// Whole records, at their offset in the decompressed stream.
pub(crate) struct Unpacked<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) offset: u64,
}

/// The largest window that a stream may ask the decompressor to keep, as a power of two: the highest level (22) uses it. The format allows
/// ones of 2 TiB.
#[cfg(feature = "zstd")]
const WINDOW_LOG_MAX: u32 = 27;

/// The state of a stream between its slices.
pub(crate) struct Inflate {
    #[cfg(feature = "zstd")]
    decoder: Option<zstd::stream::raw::Decoder<'static>>,
    /// Unpacked bytes up to `filled`; those up to `used` have been handed out.
    buffer: Vec<u8>,
    filled: usize,
    used: usize,
    /// Offset of the buffer's start in the decompressed stream.
    offset: u64,
    /// Bytes that the record at hand has unpacked to so far.
    produced: u64,
    /// The record that is being read holds more, or may.
    active: bool,
    /// The most that one record may unpack to.
    #[cfg_attr(not(feature = "zstd"), expect(dead_code, reason = "nothing is unpacked"))]
    limit: u64,
    failed: bool,
}

impl std::fmt::Debug for Inflate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inflate").field("offset", &self.offset).field("failed", &self.failed).finish_non_exhaustive()
    }
}

impl Inflate {
    pub(crate) fn new(limit: Option<u64>) -> Inflate {
        Inflate {
            #[cfg(feature = "zstd")]
            decoder: None,
            buffer: Vec::new(),
            filled: 0,
            used: 0,
            offset: 0,
            produced: 0,
            active: false,
            limit: limit.unwrap_or(UNPACKED_LIMIT_BYTES).min(UNPACKED_LIMIT_BYTES),
            failed: false,
        }
    }

    /// Starts on the next compressed record.
    pub(crate) fn begin(&mut self) {
        self.produced = 0;
        self.active = true;
    }

    /// True while there is more to unpack of the record.
    pub(crate) fn is_active(&self) -> bool {
        self.active
    }

    /// Unpacks a part of `packed`, which belongs to the record in front of `offset`, takes it off its front, and returns
    /// the whole records so far: possibly none.
    ///
    /// # Errors
    /// When the bytes are no zstd stream, unpack to more than is allowed, or to no records. The stream is lost then: every
    /// further call is an error that says so.
    pub(crate) fn step(&mut self, packed: &mut &[u8], offset: u64, endian: Endian) -> Result<Unpacked<'_>> {
        if self.failed {
            self.active = false;
            return Err(Error::other(offset, "compressed record", "skipped, as the stream broke before it"));
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

    /// # Errors
    /// When the decompressed stream ends inside a record.
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
            format!("ends inside a record, of which {left} bytes are there"),
        ))
    }

    /// Length of the whole records in the buffer that have not been handed out.
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
        if self.produced > self.limit {
            let problem = format!("unpacks to more than the {} bytes that one may hold", self.limit);
            return Err(Error::other(offset, "compressed record", problem));
        }
        *packed = packed.get(status.bytes_read..).unwrap_or_default();
        // With the output full, more may wait inside the decoder although all input is read.
        self.active = status.bytes_written == STEP_BYTES || !packed.is_empty();
        if self.active && status.bytes_read == 0 && status.bytes_written == 0 {
            return Err(Error::other(offset, "compressed record", "the decompressor makes no progress"));
        }
        Ok(())
    }

    #[cfg(not(feature = "zstd"))]
    fn unpack(&mut self, _packed: &mut &[u8], offset: u64) -> Result<()> {
        Err(Error::other(offset, "compressed record", "this build reads no zstd; build with the feature `zstd`"))
    }
}
