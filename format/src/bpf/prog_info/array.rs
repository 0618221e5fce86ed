//! The nine arrays that `bpf_prog_info` points to, and typed views of their bytes.

use super::{Element, Layout, Tag};
use crate::{Endian, Error, Result};
use std::mem::offset_of;

/// Offsets of the fields that describe an array.
struct Fields {
    /// Offset of the pointer to the array.
    pointer: usize,
    /// Offset of the count of records.
    count: usize,
    /// Offset of the field that gives the size of a record, if the array has such a field.
    record_bytes: Option<usize>,
    /// Size of a record in bytes; the minimum if a field gives the size.
    min_record_bytes: usize,
}

/// Declares the arrays in the order of their bits; a blob has the same order. Each line has the fields of `bpf_prog_info` with the pointer, the count
/// and, if there is such a field, the size of a record. The last column is the size of a record in bytes: the minimum if a field gives the size.
macro_rules! arrays {
    ($($(#[$doc:meta])* $name:ident = $pointer:ident, $count:ident, $($record_bytes:ident >=)? $bytes:literal;)*) => {
        /// An array of `bpf_prog_info`; the discriminant is the number of its bit in a blob.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Array {
            $($(#[$doc])* $name,)*
        }

        impl Array {
            /// Count of arrays.
            pub const COUNT: usize = [$(Array::$name),*].len();

            /// All arrays in the order of their bits.
            pub const ALL: [Array; Array::COUNT] = [$(Array::$name),*];

            /// Field of `bpf_prog_info` that points to the array.
            pub fn name(self) -> &'static str {
                match self {
                    $(Array::$name => concat!("bpf_prog_info.", stringify!($pointer)),)*
                }
            }

            fn fields(self) -> Fields {
                match self {
                    $(Array::$name => Fields {
                        pointer: offset_of!(Layout, $pointer),
                        count: offset_of!(Layout, $count),
                        record_bytes: [$(offset_of!(Layout, $record_bytes))?].first().copied(),
                        min_record_bytes: $bytes,
                    },)*
                }
            }
        }
    };
}

arrays! {
    /// Machine code of all functions, in their order.
    JitedInsns = jited_prog_insns, jited_prog_len, 1;
    /// BPF instructions after verification.
    XlatedInsns = xlated_prog_insns, xlated_prog_len, 1;
    /// Ids of maps.
    MapIds = map_ids, nr_map_ids, 4;
    /// Entry address of each function.
    JitedKsyms = jited_ksyms, nr_jited_ksyms, 8;
    /// Bytes of machine code of each function.
    JitedFuncLens = jited_func_lens, nr_jited_func_lens, 4;
    /// [`FuncInfo`] of each function.
    FuncInfo = func_info, nr_func_info, func_info_rec_size >= 8;
    /// [`LineInfo`] entries.
    LineInfo = line_info, nr_line_info, line_info_rec_size >= 16;
    /// Machine address of each [`LineInfo`] entry.
    JitedLineInfo = jited_line_info, nr_jited_line_info, jited_line_info_rec_size >= 8;
    /// Digest of each function.
    ProgTags = prog_tags, nr_prog_tags, 8;
}

impl Array {
    /// Bit of the array in a blob's `arrays` word.
    pub fn bit(self) -> u64 {
        1 << self as u8
    }

    /// Offset in the info of the field with the count of records.
    pub(super) fn count_at(self) -> usize {
        self.fields().count
    }

    /// Offset in the info of the field that points to the array.
    pub(super) fn pointer_at(self) -> usize {
        self.fields().pointer
    }

    /// Value of the pointer field. In a blob, it is an offset into the blob's data.
    pub(super) fn pointer(self, endian: Endian, info: &[u8]) -> Result<u64> {
        let at = self.fields().pointer;
        endian.u64_at(info, at).ok_or_else(|| Error::truncated(0, self.name(), at as u64 + 8, info.len() as u64))
    }

    /// Bytes of one record of the array.
    pub(super) fn record_bytes(self, endian: Endian, info: &[u8]) -> Result<usize> {
        let fields = self.fields();
        let Some(at) = fields.record_bytes else { return Ok(fields.min_record_bytes) };
        let bytes = endian.u32_at(info, at).ok_or_else(|| self.too_short(at, info))?;
        if bytes == 0 {
            // A record size of 0 means that the kernel has no records.
            return Ok(fields.min_record_bytes);
        }
        if (bytes as usize) < fields.min_record_bytes {
            return Err(Error::value(at as u64, self.name(), u64::from(bytes), "a larger record size"));
        }
        Ok(bytes as usize)
    }

    /// Bytes of the whole array, computed from the count and record size in the info. Offsets in errors count from the
    /// info.
    pub(super) fn stored_bytes(self, endian: Endian, info: &[u8]) -> Result<usize> {
        let at = self.fields().count;
        let count = endian.u32_at(info, at).ok_or_else(|| self.too_short(at, info))?;
        let record_bytes = self.record_bytes(endian, info)?;
        (count as usize)
            .checked_mul(record_bytes)
            .filter(|bytes| *bytes <= u32::MAX as usize)
            .ok_or_else(|| Error::value(at as u64, self.name(), u64::from(count), "a count that fits the data"))
    }

    fn too_short(self, at: usize, info: &[u8]) -> Error {
        Error::truncated(0, self.name(), at as u64 + 4, info.len() as u64)
    }
}

/// Start of a function in the BPF instructions, and its BTF type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FuncInfo {
    /// First instruction, in units of 8 bytes of the verified program.
    pub insn_off: u32,
    /// BTF type of kind FUNC.
    pub type_id: u32,
}

/// Source line of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LineInfo {
    /// First instruction of the line, in units of 8 bytes of the verified program.
    pub insn_off: u32,
    /// BTF string: the file's name.
    pub file_name_off: u32,
    /// BTF string: the text of the line.
    pub line_off: u32,
    /// Line number, from 1; 0 for code that the compiler could not assign to a line.
    pub line: u32,
    /// Column, from 1; 0 if the compiler gave none.
    pub column: u16,
}

impl Element for Tag {
    const BYTES: usize = 8;

    fn decode(_: Endian, bytes: &[u8]) -> Option<Tag> {
        bytes.first_chunk().map(|b| Tag(*b))
    }
}

impl Element for FuncInfo {
    const BYTES: usize = 8;

    fn decode(endian: Endian, bytes: &[u8]) -> Option<FuncInfo> {
        Some(FuncInfo { insn_off: endian.u32_at(bytes, 0)?, type_id: endian.u32_at(bytes, 4)? })
    }
}

impl Element for LineInfo {
    const BYTES: usize = 16;

    fn decode(endian: Endian, bytes: &[u8]) -> Option<LineInfo> {
        let line_col = endian.u32_at(bytes, 12)?;
        Some(LineInfo {
            insn_off: endian.u32_at(bytes, 0)?,
            file_name_off: endian.u32_at(bytes, 4)?,
            line_off: endian.u32_at(bytes, 8)?,
            line: line_col >> 10,
            column: (line_col & 0x3ff) as u16,
        })
    }
}
