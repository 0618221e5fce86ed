//! The stream container (pipe format): 16 bytes `magic u64, size u64 = 16`, then records up to the end.
//!
//! The events and features of a recording, which a file has in its header and sections, are records here: HEADER_ATTR per event, HEADER_FEATURE per
//! feature, TRACING_DATA, BUILD_ID. [`Metadata`](crate::Metadata) collects them.

use std::ops::Range;

use crate::chunk::{Chunk, Origin, first_run};
use crate::inflate::Inflate;
use crate::{Availability, Container, Endian, Error, PIPE_HEADER_BYTES, Record, Result};

/// Limit on data after a record (tracepoint formats, AUX data) that the stream keeps; longer data is skipped. The formats of
/// a whole machine are a few MiB; AUX data comes in pieces of its ring's size, 4 MiB by default.
const OUTSIDE_MAX_BYTES: u64 = 16 << 20;

/// Reader of a stream that arrives in pieces of any size. Memory is limited to the size of a piece and 16 MiB.
///
/// After each [`Stream::feed`], take chunks until [`Availability::NeedMore`]. At the end, call [`Stream::finish`].
#[derive(Debug, Default)]
pub struct Stream {
    buffer: Vec<u8>,
    /// Count of bytes in the buffer that were returned.
    used: usize,
    /// Offset in the input of the first byte that was not returned.
    offset: u64,
    endian: Option<Endian>,
    /// Bytes to skip before the next record.
    skip: u64,
    inflate: Inflate,
    /// Place in the buffer of those bytes of the current compressed record that are not unpacked yet.
    packed: Range<usize>,
    failed: bool,
}

impl Stream {
    /// Stream without any bytes.
    pub fn new() -> Stream {
        Stream::default()
    }

    /// Byte order; `None` until the header has arrived.
    pub fn endian(&self) -> Option<Endian> {
        self.endian
    }

    /// Offset in the input of the next byte to read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Appends the next piece. The caller must have taken all chunks before.
    pub fn feed(&mut self, piece: &[u8]) {
        if self.failed {
            return;
        }
        let kept = if self.inflate.is_active() { self.packed.start.min(self.used) } else { self.used };
        self.buffer.drain(..kept);
        self.used -= kept;
        self.packed = self.packed.start.saturating_sub(kept)..self.packed.end.saturating_sub(kept);
        let skipped = if self.used == self.buffer.len() { self.skip.min(piece.len() as u64) as usize } else { 0 };
        self.skip -= skipped as u64;
        self.offset += skipped as u64;
        self.buffer.extend_from_slice(&piece[skipped..]);
    }

    /// Next chunk of whole records.
    ///
    /// # Errors
    /// Fails if the input is not a stream, or a record is damaged. After damage in a compressed record, all later compressed
    /// records fail too, but later calls still return the plain records. Any other error ends the stream.
    pub fn next_chunk(&mut self) -> Result<Availability<Chunk<'_>>> {
        if self.failed {
            return Ok(Availability::NeedMore);
        }
        let Some(endian) = self.endian else {
            return self.read_header();
        };
        if self.inflate.is_active() {
            let all = self.buffer.get(self.packed.clone()).unwrap_or_default();
            let mut left = all;
            let unpacked = self.inflate.step(&mut left, self.offset, endian);
            self.packed.start += all.len() - left.len();
            return unpacked.map(|u| Availability::Ready(Chunk::new(u.bytes, u.offset, Origin::Decompressed, endian)));
        }
        let skipped = self.skip.min((self.buffer.len() - self.used) as u64);
        self.skip -= skipped;
        self.consume(skipped as usize);
        let bytes = &self.buffer[self.used..];
        let run = first_run(bytes, self.offset, endian, OUTSIDE_MAX_BYTES);
        if run.len > 0 {
            let (start, offset) = (self.used, self.offset);
            if let Some(range) = run.compressed {
                self.packed = start + range.start..start + range.end;
                self.inflate.begin();
            }
            self.consume(run.len);
            let bytes = &self.buffer[start..start + run.len];
            return Ok(Availability::Ready(Chunk::new(bytes, offset, Origin::Input, endian)));
        }
        match run.error {
            None => self.pass_over(endian),
            Some(error) => {
                self.failed = true;
                Err(error)
            }
        }
    }

    /// Ends the stream.
    ///
    /// # Errors
    /// Fails if the input ended inside the header, a record, the data after a record, or the decompressed stream.
    pub fn finish(&mut self) -> Result<()> {
        if self.failed {
            return Ok(());
        }
        let left = (self.buffer.len() - self.used) as u64;
        let Some(endian) = self.endian else {
            return Err(Error::truncated(self.offset, "stream header", PIPE_HEADER_BYTES as u64, left));
        };
        if self.skip > 0 {
            return Err(Error::truncated(self.offset, "data after a record", self.skip, left));
        }
        if left > 0 {
            Record::parse(&self.buffer[self.used..], self.offset, endian)?;
        }
        self.inflate.finish()
    }

    fn consume(&mut self, len: usize) {
        self.used += len;
        self.offset += len as u64;
    }

    fn read_header(&mut self) -> Result<Availability<Chunk<'_>>> {
        if self.buffer.len() < PIPE_HEADER_BYTES {
            return Ok(Availability::NeedMore);
        }
        match Container::detect(&self.buffer) {
            Ok(Container::Pipe(endian)) => {
                self.endian = Some(endian);
                self.consume(PIPE_HEADER_BYTES);
                self.next_chunk()
            }
            other => {
                self.failed = true;
                other.and(Err(Error::other(
                    8,
                    "header size",
                    "the input is a perf.data file, not a pipe stream: files cannot be read from a pipe",
                )))
            }
        }
    }

    /// Handles an incomplete first record. If the data after it exceeds the limit, returns the record and skips the data.
    fn pass_over(&mut self, endian: Endian) -> Result<Availability<Chunk<'_>>> {
        let bytes = &self.buffer[self.used..];
        let Availability::Ready(record) = Record::parse_partial(bytes, self.offset, endian)? else {
            return Ok(Availability::NeedMore);
        };
        let outside = record.outside_bytes(endian)?;
        if outside <= OUTSIDE_MAX_BYTES {
            return Ok(Availability::NeedMore);
        }
        let (start, offset, len) = (self.used, self.offset, record.bytes.len());
        self.skip = outside;
        self.consume(len);
        let bytes = &self.buffer[start..start + len];
        Ok(Availability::Ready(Chunk::new(bytes, offset, Origin::InputWithoutOutside, endian)))
    }
}
