//! Unpacks compressed records. A thread unpacks block after block, while the reader reads the earlier blocks. The blocks of a short recording stay in
//! memory for the following passes; a long recording is unpacked again in each pass.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::mpsc::{channel, sync_channel};
use std::thread::Builder;

use bprec_format::{Chunks, Endian, Error, Origin, Records};

use crate::Input;

/// Upper limit on the size, in bytes, at which a block is full. The last chunk of a block may exceed the size.
const BLOCK_BYTES: usize = 2 << 20;
/// Lower limit on the size, in bytes, at which a block is full.
const BLOCK_MIN_BYTES: usize = 64 << 10;
/// Divisor that gives the size of a block from the size of the input. Four blocks exist at a time: one is filled, two wait and one is read. With the
/// divisor 2, they take at most twice the size of the input.
const BLOCK_PART: usize = 2;
/// Number of filled blocks that wait for the reader.
const WAITING_BLOCKS: usize = 2;
/// Limit on the unpacked bytes that stay in memory between passes.
const KEPT_BYTES: usize = 40 << 20;
/// Limit on the kept bytes, as a multiple of the input's size. Damaged input may unpack to far more than real input.
const KEPT_TIMES: usize = 8;
/// Number of bytes that may be kept however small the input is.
const KEPT_MIN_BYTES: usize = 1 << 20;
/// Bytes read between two releases of memory. Only temporary copies ([`Input::is_spooled`]) are released: they may be larger than memory.
pub(crate) const RELEASE_BYTES: u64 = 8 << 20;

/// Bytes read between two updates of the progress.
const PROGRESS_BYTES: u64 = 256 << 10;

/// Consecutive records of one file.
#[derive(Clone)]
pub(crate) struct RecordSlice<'r> {
    /// Index of the file in the recording.
    pub(crate) file: usize,
    /// The records, or the error in their place.
    pub(crate) records: Result<Records<'r>, Error>,
}

/// Record bytes of one file, as they lie in the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordBytes<'a> {
    /// Index of the file in the recording.
    pub(crate) file: usize,
    pub(crate) bytes: &'a [u8],
    /// Offset of the bytes in their file.
    pub(crate) offset: u64,
}

/// A block of records, in slices: plain records that lie in their files, and unpacked records.
#[derive(Debug, Default)]
struct UnpackedBlock {
    unpacked: Vec<u8>,
    /// Slices, each with the index of the stream that its records come from.
    slices: Vec<(usize, Result<BlockSlice, Error>)>,
    /// Size expected of all unpacked data, extrapolated from the part unpacked so far.
    expected_bytes: u64,
}

#[derive(Debug)]
enum BlockSlice {
    /// Range of plain records in their stream.
    Plain(Range<usize>),
    /// Range of unpacked records in the block, and the offset of these records in all unpacked data.
    Unpacked(Range<usize>, u64),
}

impl UnpackedBlock {
    /// Empties the block for reuse.
    fn emptied(mut self) -> UnpackedBlock {
        self.unpacked.clear();
        self.slices.clear();
        UnpackedBlock { expected_bytes: 0, ..self }
    }

    /// Memory of the block in bytes.
    fn bytes(&self) -> usize {
        self.unpacked.len() + self.slices.len() * size_of::<(usize, Result<BlockSlice, Error>)>()
    }
}

/// Files of a recording with compressed records.
#[derive(Debug)]
pub(crate) struct Unpacked<'a> {
    input: &'a Input,
    streams: Vec<RecordBytes<'a>>,
    endian: Endian,
    /// Limit on the bytes that a compressed record unpacks to.
    limit_bytes: Option<u64>,
    /// All blocks, set after the first pass; `None` inside if they are too large to keep.
    kept: OnceLock<Option<Vec<UnpackedBlock>>>,
}

impl<'a> Unpacked<'a> {
    pub(crate) fn new(
        input: &'a Input,
        streams: Vec<RecordBytes<'a>>,
        endian: Endian,
        limit_bytes: Option<u64>,
    ) -> Unpacked<'a> {
        Unpacked { input, streams, endian, limit_bytes, kept: OnceLock::new() }
    }

    /// Limit on the bytes that a compressed record unpacks to; `None` if unknown.
    pub(crate) fn limit_bytes(&self) -> Option<u64> {
        self.limit_bytes
    }

    /// Calls `visit` with slices in the order of the input. If the blocks are kept, one call has all slices; otherwise each call has the slices of
    /// one block.
    pub(crate) fn for_each(&self, visit: &mut dyn FnMut(&[RecordSlice<'_>])) {
        match self.kept.get() {
            Some(Some(blocks)) => {
                let slices: Vec<RecordSlice<'_>> = blocks.iter().flat_map(|block| self.slices(block)).collect();
                visit(&slices);
            }
            Some(None) => self.unpack(&mut |block| {
                visit(&self.slices(&block));
                Some(block)
            }),
            None => {
                let mut kept = Some(Vec::new());
                let mut kept_bytes = 0;
                let most_bytes = KEPT_BYTES.min(KEPT_MIN_BYTES.max(self.packed_bytes().saturating_mul(KEPT_TIMES)));
                self.unpack(&mut |block| {
                    visit(&self.slices(&block));
                    kept_bytes += block.bytes();
                    if kept_bytes > most_bytes || block.expected_bytes > most_bytes as u64 {
                        kept = None;
                    }
                    match &mut kept {
                        Some(blocks) => {
                            blocks.push(block);
                            None
                        }
                        None => Some(block),
                    }
                });
                // If another thread was faster, it has stored the same blocks.
                let _ = self.kept.set(kept);
            }
        }
    }

    fn packed_bytes(&self) -> usize {
        self.streams.iter().map(|stream| stream.bytes.len()).sum()
    }

    fn slices<'r>(&'r self, block: &'r UnpackedBlock) -> Vec<RecordSlice<'r>> {
        let slice = |(stream, slice): &(usize, Result<BlockSlice, Error>)| {
            let RecordBytes { file, bytes, offset } = self.streams[*stream];
            let records = match slice {
                Ok(BlockSlice::Plain(range)) => {
                    Ok(Records::new(&bytes[range.clone()], offset + range.start as u64, self.endian))
                }
                Ok(BlockSlice::Unpacked(range, offset)) => {
                    Ok(Records::without_outside(&block.unpacked[range.clone()], *offset, self.endian))
                }
                Err(error) => Err(error.clone()),
            };
            RecordSlice { file, records }
        };
        block.slices.iter().map(slice).collect()
    }

    /// Unpacks all records and passes each finished block to `visit`. A separate thread, if it can be started, unpacks the next blocks meanwhile. A
    /// block that `visit` returns is reused.
    fn unpack(&self, visit: &mut dyn FnMut(UnpackedBlock) -> Option<UnpackedBlock>) {
        let has_thread = std::thread::scope(|scope| {
            let (done, blocks) = sync_channel(WAITING_BLOCKS);
            let (free, used) = channel();
            let unpacking = Builder::new().spawn_scoped(scope, move || {
                self.produce(&mut |block| {
                    // The send fails only if the reading thread has panicked. This thread then ends as well.
                    done.send(block).ok()?;
                    Some(used.try_recv().unwrap_or_default())
                });
            });
            if unpacking.is_err() {
                return false;
            }
            for block in blocks {
                if let Some(block) = visit(block) {
                    // After its last block, the unpacking thread no longer receives: the returned block is dropped.
                    let _ = free.send(block.emptied());
                }
            }
            true
        });
        if !has_thread {
            self.produce(&mut |block| Some(visit(block).map(UnpackedBlock::emptied).unwrap_or_default()));
        }
    }

    /// Fills blocks: `exchange` takes a full block and returns an empty block, or `None` to end.
    fn produce(&self, exchange: &mut dyn FnMut(UnpackedBlock) -> Option<UnpackedBlock>) {
        let total_bytes = self.packed_bytes();
        let block_bytes = (total_bytes / BLOCK_PART).clamp(BLOCK_MIN_BYTES, BLOCK_BYTES);
        let (mut packed_bytes, mut unpacked_bytes) = (0, 0);
        let mut block = UnpackedBlock::default();
        for (stream, RecordBytes { bytes, offset, .. }) in self.streams.iter().copied().enumerate() {
            let mut chunks = Chunks::new(bytes, offset, self.endian, self.limit_bytes);
            let (mut released, mut counted) = (0, offset);
            loop {
                let read = chunks.offset();
                if read - counted >= PROGRESS_BYTES {
                    self.input.progress().add_read(read - counted);
                    counted = read;
                }
                if read - released >= RELEASE_BYTES {
                    self.input.release(released..read);
                    released = read;
                }
                let slice = match chunks.next() {
                    None => break,
                    Some(Err(error)) => Err(error),
                    Some(Ok(chunk)) => Ok(match chunk.origin {
                        Origin::Decompressed => {
                            if block.unpacked.is_empty() {
                                block.unpacked.reserve(block_bytes + chunk.bytes.len());
                            }
                            let start = block.unpacked.len();
                            block.unpacked.extend_from_slice(chunk.bytes);
                            BlockSlice::Unpacked(start..block.unpacked.len(), chunk.offset)
                        }
                        _ => {
                            // A plain chunk is a range of the file's bytes, so only the range is stored.
                            let start = (chunk.offset - offset) as usize;
                            BlockSlice::Plain(start..start + chunk.bytes.len())
                        }
                    }),
                };
                block.slices.push((stream, slice));
                if block.bytes() >= block_bytes {
                    unpacked_bytes += block.bytes() as u64;
                    let packed_bytes = (packed_bytes + chunks.offset() - offset).max(1);
                    let expected_bytes = u128::from(unpacked_bytes) * total_bytes as u128 / u128::from(packed_bytes);
                    block.expected_bytes = expected_bytes.try_into().unwrap_or(u64::MAX);
                    match exchange(block) {
                        Some(empty) => block = empty,
                        None => return,
                    }
                }
            }
            packed_bytes += bytes.len() as u64;
        }
        if !block.slices.is_empty() {
            exchange(block);
        }
    }
}
