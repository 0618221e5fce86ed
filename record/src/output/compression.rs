//! COMPRESSED records with zstd, in the format of `perf record -z`. A file has one zstd stream without an end; each
//! record holds a slice of the stream.
//!
//! Each slice is flushed and holds whole records, few enough that the compressed bytes fit into one record. perf
//! refuses a slice that unpacks to no bytes, and uncompressed records may stand between two slices.

use std::fmt;
use std::io;

use bprec_format::feature::{Compression, Feature, SectionContent};
use bprec_format::{Endian, RECORD_HEADER_BYTES, RecordType, Writer};
use zstd::stream::raw::{Decoder, Encoder, InBuffer, Operation, OutBuffer};
use zstd::zstd_safe::compress_bound;

use super::sections::Section;

/// Limit on the bytes of records in a COMPRESSED record: they fit into the record even if compression does not shrink
/// them.
const SLICE_MAX_BYTES: usize = 60_000;
/// Size of a reader's buffer, written into the feature section. The buffer holds the data of one COMPRESSED record, and the
/// partial record that the reader carries over from the COMPRESSED record before.
const UNPACKED_MAX_BYTES: u32 = 128 << 10;

/// Compresses the records of one file.
pub(super) struct Packer {
    encoder: Encoder<'static>,
    level: u8,
    counts: PackedBytes,
    /// Buffer for one compressed slice.
    slice: Vec<u8>,
}

/// Byte counts of compression.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PackedBytes {
    /// Bytes of records before compression.
    pub(crate) unpacked_bytes: u64,
    /// Bytes of the COMPRESSED records.
    pub(crate) packed_bytes: u64,
    /// Bytes that were written uncompressed because compression did not keep up.
    pub(crate) skipped_bytes: u64,
}

impl PackedBytes {
    /// Message about records that were left uncompressed; `None` if compression kept up.
    pub(crate) fn uncompressed(self) -> Option<String> {
        let (bytes, all) = (self.skipped_bytes, self.skipped_bytes + self.unpacked_bytes);
        (bytes > 0).then(|| {
            format!(
                "compression was too slow, so bprec wrote {bytes} of {all} bytes of records uncompressed; a lower -z level \
                 is faster"
            )
        })
    }
}

impl Packer {
    /// Begins a zstd stream.
    ///
    /// # Errors
    /// Fails if there is not enough memory.
    pub(super) fn new(level: u8) -> io::Result<Packer> {
        let encoder = Encoder::new(level.into())?;
        let slice = vec![0; compress_bound(SLICE_MAX_BYTES) + 64];
        Ok(Packer { encoder, level, counts: PackedBytes::default(), slice })
    }

    pub(super) fn counts(&self) -> PackedBytes {
        self.counts
    }

    /// Counts bytes that are written uncompressed.
    pub(super) fn skip(&mut self, bytes: usize) {
        self.counts.skipped_bytes += bytes as u64;
    }

    /// The COMPRESSED feature section.
    pub(super) fn feature(&self) -> Section {
        let ratio = self.counts.unpacked_bytes.checked_div(self.counts.packed_bytes).unwrap_or(1).max(1);
        let section = Compression {
            version: 1,
            kind: 1,
            level: self.level.into(),
            ratio: u32::try_from(ratio).unwrap_or(u32::MAX),
            mmap_len_bytes: UNPACKED_MAX_BYTES,
        };
        (Feature::COMPRESSED.0, section.to_bytes(Endian::NATIVE))
    }

    /// Appends `records`, which must be whole, as COMPRESSED records. A record longer than a slice stays uncompressed.
    ///
    /// # Errors
    /// Fails if zstd has not enough memory.
    pub(super) fn pack(&mut self, mut records: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        while !records.is_empty() {
            let slice_bytes = whole_records_bytes(records, SLICE_MAX_BYTES);
            if slice_bytes == 0 {
                let (plain, rest) = records.split_at(record_bytes(records).unwrap_or(records.len()));
                out.extend_from_slice(plain);
                records = rest;
                continue;
            }
            let (slice, rest) = records.split_at(slice_bytes);
            self.pack_slice(slice, out)?;
            records = rest;
        }
        Ok(())
    }

    fn pack_slice(&mut self, records: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let mut output = OutBuffer::around(&mut self.slice[..]);
        let mut input = InBuffer::around(records);
        while input.pos() < records.len() {
            self.encoder.run(&mut input, &mut output)?;
        }
        if self.encoder.flush(&mut output)? > 0 {
            return Err(io::Error::other("zstd wrote more bytes than its documented limit"));
        }
        let packed = output.as_slice();
        let size = RECORD_HEADER_BYTES + packed.len();
        let size_field = u16::try_from(size).map_err(io::Error::other)?;
        Writer::new(out, Endian::NATIVE).u32(RecordType::COMPRESSED.0).u16(0).u16(size_field).bytes(packed);
        self.counts.unpacked_bytes += records.len() as u64;
        self.counts.packed_bytes += size as u64;
        Ok(())
    }
}

impl fmt::Debug for Packer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packer").field("level", &self.level).field("counts", &self.counts).finish_non_exhaustive()
    }
}

/// Unpacks the COMPRESSED records of one file, first to last.
#[derive(Default)]
pub(super) struct Unpacker {
    decoder: Option<Decoder<'static>>,
}

impl Unpacker {
    /// Unpacks a slice into `records`.
    ///
    /// # Errors
    /// Fails if the slice does not continue the stream, or unpacks to more bytes than a slice of the recorder can hold.
    pub(super) fn unpack(&mut self, slice: &[u8], records: &mut Vec<u8>) -> io::Result<()> {
        let decoder = match &mut self.decoder {
            Some(decoder) => decoder,
            none => none.insert(Decoder::new()?),
        };
        records.clear();
        records.resize(UNPACKED_MAX_BYTES as usize, 0);
        let status = decoder.run_on_buffers(slice, records)?;
        if status.bytes_read < slice.len() {
            return Err(io::Error::other("the compressed data decompresses to more bytes than expected"));
        }
        records.truncate(status.bytes_written);
        Ok(())
    }
}

impl fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unpacker").finish_non_exhaustive()
    }
}

/// Bytes of the whole records at the start of `records`, at most `max_bytes`.
pub(super) fn whole_records_bytes(records: &[u8], max_bytes: usize) -> usize {
    let mut whole = 0;
    while let Some(bytes) = record_bytes(&records[whole..]) {
        if whole + bytes > max_bytes.min(records.len()) {
            break;
        }
        whole += bytes;
    }
    whole
}

/// Size of the first record by its header; `None` if there is no whole header.
fn record_bytes(records: &[u8]) -> Option<usize> {
    let size = records.get(6..RECORD_HEADER_BYTES)?;
    Some(usize::from(u16::from_ne_bytes([size[0], size[1]])).max(RECORD_HEADER_BYTES))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    /// A SAMPLE record with an incompressible body.
    fn noise(bytes: usize, seed: &mut u64) -> Vec<u8> {
        let mut record = 9u32.to_ne_bytes().to_vec();
        record.extend([0, 0]);
        record.extend((bytes as u16).to_ne_bytes());
        record.resize_with(bytes, || {
            *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (*seed >> 56) as u8
        });
        record
    }

    #[test]
    fn what_is_packed_is_unpacked_and_no_record_is_too_long() {
        let mut seed = 1;
        let records: Vec<u8> = [8, 40, 65_528, 60_000, 59_992, 30_000, 30_000, 30_008, 64, 65_528]
            .into_iter()
            .flat_map(|bytes| noise(bytes, &mut seed))
            .collect();
        let mut packer = Packer::new(1).unwrap();
        let mut file = Vec::new();
        packer.pack(&records, &mut file).unwrap();

        let (mut unpacker, mut unpacked, mut back) = (Unpacker::default(), Vec::new(), Vec::new());
        let mut rest = &file[..];
        while !rest.is_empty() {
            let (record, behind) = rest.split_at(record_bytes(rest).unwrap());
            if record[..4] == RecordType::COMPRESSED.0.to_ne_bytes() {
                unpacker.unpack(&record[RECORD_HEADER_BYTES..], &mut unpacked).unwrap();
                assert!(!unpacked.is_empty(), "perf refuses a slice that unpacks to nothing");
                assert_eq!(whole_records_bytes(&unpacked, usize::MAX), unpacked.len());
                back.extend_from_slice(&unpacked);
            } else {
                back.extend_from_slice(record);
            }
            rest = behind;
        }
        assert!(back == records);
        let counts = packer.counts();
        assert_eq!(counts.unpacked_bytes + 2 * 65_528, records.len() as u64);
    }
}
