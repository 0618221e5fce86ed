//! Splits the bytes of an input into runs of whole, plain records and unpacks compressed records on the way.

use std::ops::Range;

use crate::inflate::Inflate;
use crate::{Availability, Endian, Error, Record, RecordType, Records, Result};

/// Size at which a run ends, so that its records are still in the CPU cache when they are decoded.
const RUN_BYTES: usize = 1 << 20;

/// A run of whole records.
#[derive(Debug, Clone, Copy)]
pub struct Chunk<'a> {
    /// The records.
    pub bytes: &'a [u8],
    /// Offset of the records: in the input, or in the decompressed stream.
    pub offset: u64,
    /// Origin of the records.
    pub origin: Origin,
    endian: Endian,
}

/// Origin of the bytes of a [`Chunk`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Bytes of the input, unchanged.
    Input,
    /// Bytes of a stream. Large data that follows a record, outside of the record's size, was skipped.
    InputWithoutOutside,
    /// Records unpacked from COMPRESSED records.
    Decompressed,
}

impl<'a> Chunk<'a> {
    /// Records of the chunk, all complete. The records unpacked from a COMPRESSED record are in the chunks after it.
    pub fn records(&self) -> Records<'a> {
        match self.origin {
            Origin::Input => Records::new(self.bytes, self.offset, self.endian),
            _ => Records::without_outside(self.bytes, self.offset, self.endian),
        }
    }

    /// Byte order of the records.
    pub fn endian(&self) -> Endian {
        self.endian
    }

    pub(crate) fn new(bytes: &'a [u8], offset: u64, origin: Origin, endian: Endian) -> Chunk<'a> {
        Chunk { bytes, offset, origin, endian }
    }
}

/// Run of whole records at the start of some bytes.
pub(crate) struct Run {
    /// Bytes of the run.
    pub(crate) len: usize,
    /// Range of the zstd bytes in `bytes`, if the run ends with a compressed record.
    pub(crate) compressed: Option<Range<usize>>,
    /// Damage that ends the run.
    pub(crate) error: Option<Error>,
}

/// Finds the first run in `bytes`, which lie at `offset`. The run ends before an incomplete record, and before a record that is followed by more than
/// `outside_max` bytes of data outside its size.
pub(crate) fn first_run(bytes: &[u8], offset: u64, endian: Endian, outside_max: u64) -> Run {
    let mut run = Run { len: 0, compressed: None, error: None };
    while run.len < RUN_BYTES {
        let rest = &bytes[run.len..];
        let record = match Record::parse_partial(rest, offset + run.len as u64, endian) {
            Ok(Availability::Ready(record)) => record,
            Ok(Availability::NeedMore) => break,
            Err(error) => {
                run.error = Some(error);
                break;
            }
        };
        let mut total_bytes = record.bytes.len();
        if record.announces_outside() {
            match record.outside_bytes(endian) {
                Ok(outside) if outside <= outside_max.min((rest.len() - total_bytes) as u64) => {
                    total_bytes += outside as usize;
                }
                outside => {
                    run.error = outside.err();
                    break;
                }
            }
        }
        if record.kind.is_compressed() {
            run.compressed = Some(compressed_range(&record, run.len, endian));
        }
        run.len += total_bytes;
        if run.compressed.is_some() {
            break;
        }
    }
    run
}

/// Range of the zstd bytes of a compressed record that starts at `start`. If the length in a COMPRESSED2 record exceeds the record, the range ends
/// with the record.
fn compressed_range(record: &Record<'_>, start: usize, endian: Endian) -> Range<usize> {
    let end = start + record.bytes.len();
    if record.kind == RecordType::COMPRESSED {
        return start + crate::RECORD_HEADER_BYTES..end;
    }
    let first = (start + crate::RECORD_HEADER_BYTES + 8).min(end);
    let size = endian.u64_at(record.body(), 0).unwrap_or_default().min((end - first) as u64) as usize;
    first..first + size
}

/// Chunks of a complete record stream, first to last.
#[derive(Debug)]
pub struct Chunks<'a> {
    rest: &'a [u8],
    offset: u64,
    endian: Endian,
    inflate: Inflate,
    /// Rest of the compressed record that is being unpacked.
    packed: &'a [u8],
    error: Option<Error>,
    /// Damage to skip, first to last.
    damage: std::vec::IntoIter<Range<u64>>,
}

impl<'a> Chunks<'a> {
    /// Chunks of the records in `bytes`, which lie at `offset` of the input. `unpacked_limit_bytes` limits the bytes that one
    /// compressed record unpacks to (`mmap_len` of the COMPRESSED feature).
    pub fn new(bytes: &'a [u8], offset: u64, endian: Endian, unpacked_limit_bytes: Option<u64>) -> Chunks<'a> {
        let inflate = Inflate::new(unpacked_limit_bytes);
        Chunks { rest: bytes, offset, endian, inflate, packed: &[], error: None, damage: Vec::new().into_iter() }
    }

    /// Skips these damaged ranges of offsets in the input. The ranges must ascend, and all records between them must be whole
    /// ([`Resync::damage`](crate::Resync::damage)).
    #[must_use]
    pub fn around(self, damage: Vec<Range<u64>>) -> Chunks<'a> {
        Chunks { damage: damage.into_iter(), ..self }
    }

    /// Offset in the input of the next byte to read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Next chunk; `None` at the end.
    ///
    /// After an error in a compressed record, iteration continues with the plain records after it; any other error
    /// ends it.
    #[expect(clippy::should_implement_trait, reason = "a chunk borrows from the buffer it was unpacked into")]
    pub fn next(&mut self) -> Option<Result<Chunk<'_>>> {
        if self.inflate.is_active() {
            let unpacked = self.inflate.step(&mut self.packed, self.offset, self.endian);
            return Some(unpacked.map(|u| Chunk::new(u.bytes, u.offset, Origin::Decompressed, self.endian)));
        }
        if let Some(error) = self.error.take() {
            self.rest = &[];
            return Some(Err(error));
        }
        let mut whole_bytes = self.rest.len();
        while let Some(damage) = self.damage.as_slice().first() {
            if damage.start > self.offset {
                whole_bytes = whole_bytes.min(usize::try_from(damage.start - self.offset).unwrap_or(usize::MAX));
                break;
            }
            let skipped = damage.end.saturating_sub(self.offset).min(self.rest.len() as u64);
            self.rest = &self.rest[skipped as usize..];
            self.offset += skipped;
            whole_bytes = self.rest.len();
            self.damage.next();
        }
        if self.rest.is_empty() {
            return self.inflate.finish().err().map(Err);
        }
        let run = first_run(&self.rest[..whole_bytes], self.offset, self.endian, u64::MAX);
        let (bytes, rest) = self.rest.split_at(run.len);
        if let Some(range) = &run.compressed {
            self.packed = bytes.get(range.clone()).unwrap_or_default();
            self.inflate.begin();
        }
        let chunk = Chunk::new(bytes, self.offset, Origin::Input, self.endian);
        self.rest = rest;
        self.offset += bytes.len() as u64;
        // The input has ended: an incomplete record is damage.
        let is_cut = run.error.is_none() && run.compressed.is_none() && bytes.len() < whole_bytes.min(RUN_BYTES);
        let cut = is_cut.then(|| Record::parse(&rest[..whole_bytes - bytes.len()], self.offset, self.endian).err());
        match run.error.or(cut.flatten()) {
            Some(error) if bytes.is_empty() => {
                self.rest = &[];
                Some(Err(error))
            }
            error => {
                self.error = error;
                Some(Ok(chunk))
            }
        }
    }
}
