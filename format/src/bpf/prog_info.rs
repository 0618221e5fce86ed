//! `bpf_prog_info` blobs: one program's identity, code, line table and statistics, as `BPF_OBJ_GET_INFO_BY_FD` returned
//! them and as the `BPF_PROG_INFO` feature section stores them.
//!
//! A blob is `info_len u32, data_len u32, arrays u64, bpf_prog_info[info_len], data[data_len]`. Bit n of `arrays` says
//! that array n is in `data`; the array's pointer field in the info then holds its offset there. A clear bit means that
//! the array was withheld or not requested, even if its count field is not 0.

mod array;
mod buf;
mod function;
mod section;

pub use array::{Array, FuncInfo, LineInfo};
pub use buf::{DEFAULT_INFO_LEN, ProgInfoBuf};
pub use function::Function;
pub use section::{BpfProgInfoSection, SectionOrder, write_encoded, write_section};

use super::names::ProgType;
use super::{Element, Elements, Insn, Tag};
use crate::{Endian, Error, Reader, Result};
use std::mem::offset_of;

/// Limit on the length of an info, in bytes. No kernel comes close to it, so a greater length is a sign of damage.
pub const MAX_INFO_LEN: usize = 4096;

/// Length of the info of Linux 5.0, in bytes. Infos in recordings are at least this long: perf has stored them only since Linux 5.1, which added
/// BPF_EVENT records.
pub const OLDEST_INFO_LEN: usize = offset_of!(Layout, run_time_ns);

/// `struct bpf_prog_info` (`include/uapi/linux/bpf.h`). Other kernels have a shorter or longer struct. Fields are read by their offset in this
/// layout; a field is absent if the info ends before it.
#[repr(C, packed)]
struct Layout {
    prog_type: u32,
    id: u32,
    tag: [u8; 8],
    jited_prog_len: u32,
    xlated_prog_len: u32,
    jited_prog_insns: u64,
    xlated_prog_insns: u64,
    load_time: u64,
    created_by_uid: u32,
    nr_map_ids: u32,
    map_ids: u64,
    name: [u8; 16],
    ifindex: u32,
    gpl_compatible: u32,
    netns_dev: u64,
    netns_ino: u64,
    nr_jited_ksyms: u32,
    nr_jited_func_lens: u32,
    jited_ksyms: u64,
    jited_func_lens: u64,
    btf_id: u32,
    func_info_rec_size: u32,
    func_info: u64,
    nr_func_info: u32,
    nr_line_info: u32,
    line_info: u64,
    jited_line_info: u64,
    nr_jited_line_info: u32,
    line_info_rec_size: u32,
    jited_line_info_rec_size: u32,
    nr_prog_tags: u32,
    prog_tags: u64,
    run_time_ns: u64,
    run_cnt: u64,
    recursion_misses: u64,
    verified_insns: u32,
    attach_btf_obj_id: u32,
    attach_btf_id: u32,
    _pad: u32,
}

const _: () = assert!(size_of::<Layout>() == 232 && offset_of!(Layout, attach_btf_id) == 224);

/// One program's `bpf_prog_info` with its arrays, borrowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgInfo<'a> {
    endian: Endian,
    info: &'a [u8],
    arrays: [Option<&'a [u8]>; Array::COUNT],
    dropped: Vec<(Array, Error)>,
}

/// Accessors of plain fields: `None` if the info ends before the field.
macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident: $read:ident -> $type:ty = $field:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name(&self) -> Option<$type> {
            self.endian.$read(self.info, offset_of!(Layout, $field))
        }
    )*};
}

/// Accessors of arrays: `None` if the array is absent or was dropped.
macro_rules! elements {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $array:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name(&self) -> Option<Elements<'a, $type>> {
            self.elements(Array::$array)
        }
    )*};
}

impl<'a> ProgInfo<'a> {
    /// Reads the blob at the position of `reader`. Damage in one array drops that array ([`dropped`](Self::dropped)).
    ///
    /// # Errors
    /// Fails if the blob is incomplete, or `info_len` exceeds [`MAX_INFO_LEN`].
    pub fn read(reader: &mut Reader<'a>) -> Result<ProgInfo<'a>> {
        let start = reader.offset();
        let info_len = reader.u32("bpf_prog_info.info_len")?;
        if info_len as usize > MAX_INFO_LEN {
            return Err(Error::value(start, "bpf_prog_info.info_len", u64::from(info_len), "at most 4096"));
        }
        let data_len = reader.u32("bpf_prog_info.data_len")?;
        let bits = reader.u64("bpf_prog_info.arrays")?;
        let info_offset = reader.offset();
        let info = reader.take(info_len as usize, "bpf_prog_info.info")?;
        let data_offset = reader.offset();
        let data = reader.take(data_len as usize, "bpf_prog_info.data")?;
        let endian = reader.endian();
        Ok(ProgInfo::new(endian, info, |array| {
            if bits & array.bit() == 0 {
                return Ok(None);
            }
            let bytes = array.stored_bytes(endian, info).map_err(|e| e.at(info_offset))?;
            let offset = array.pointer(endian, info).map_err(|e| e.at(info_offset))?;
            let end = offset.saturating_add(bytes as u64);
            let found = usize::try_from(end).ok().and_then(|end| data.get(offset as usize..end));
            found.map(Some).ok_or_else(|| Error::truncated(data_offset, array.name(), end, data.len() as u64))
        }))
    }

    /// Collects the arrays that `find` returns; an error drops only the array that it concerns.
    fn new(endian: Endian, info: &'a [u8], mut find: impl FnMut(Array) -> Result<Option<&'a [u8]>>) -> ProgInfo<'a> {
        let mut arrays = [None; Array::COUNT];
        let mut dropped = Vec::new();
        for (array, slot) in Array::ALL.into_iter().zip(&mut arrays) {
            match find(array) {
                Ok(bytes) => *slot = bytes,
                Err(error) => dropped.push((array, error)),
            }
        }
        ProgInfo { endian, info, arrays, dropped }
    }

    /// The byte order of the fields and arrays.
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// `bpf_prog_info` as stored, with the length that the writer's kernel returned.
    pub fn info(&self) -> &'a [u8] {
        self.info
    }

    /// Arrays that were dropped because their counts or offsets do not fit the data.
    pub fn dropped(&self) -> &[(Array, Error)] {
        &self.dropped
    }

    /// The bytes of an array; `None` if it is absent or was dropped.
    pub fn array(&self, array: Array) -> Option<&'a [u8]> {
        self.arrays[array as usize]
    }

    /// Type of the program.
    pub fn prog_type(&self) -> Option<ProgType> {
        self.endian.u32_at(self.info, offset_of!(Layout, prog_type)).map(ProgType)
    }

    /// Digest of the program's original instructions.
    pub fn tag(&self) -> Option<Tag> {
        self.info.get(offset_of!(Layout, tag)..)?.first_chunk().map(|b| Tag(*b))
    }

    /// Name given at load, cut to 15 bytes, without its NUL; empty if the loader gave none.
    pub fn name(&self) -> Option<&'a [u8]> {
        let name: &[u8; 16] = self.info.get(offset_of!(Layout, name)..)?.first_chunk()?;
        name.split(|b| *b == 0).next()
    }

    /// Returns true if the program declared a licence compatible with the GPL.
    pub fn gpl_compatible(&self) -> Option<bool> {
        // `gpl_compatible` is a C bit field of one bit: the lowest bit on little-endian machines, the highest on
        // big-endian ones.
        let bits = self.endian.u32_at(self.info, offset_of!(Layout, gpl_compatible))?;
        Some(match self.endian {
            Endian::Little => bits & 1 != 0,
            Endian::Big => bits >> 31 != 0,
        })
    }

    fields! {
        /// Id of the program; the kernel reuses an id only after all others.
        id: u32_at -> u32 = id;
        /// Load time of the program, ns since boot (`CLOCK_BOOTTIME`).
        load_time_ns: u64_at -> u64 = load_time;
        /// Id of the user who loaded the program.
        created_by_uid: u32_at -> u32 = created_by_uid;
        /// Network device that the program is offloaded or bound to, 0 for none.
        ifindex: u32_at -> u32 = ifindex;
        /// Device of the network namespace of `ifindex`.
        netns_dev: u64_at -> u64 = netns_dev;
        /// Inode of the network namespace of `ifindex`.
        netns_ino: u64_at -> u64 = netns_ino;
        /// Id of the BTF object that describes the program, 0 for none.
        btf_id: u32_at -> u32 = btf_id;
        /// Time spent in the program while statistics were enabled, ns.
        run_time_ns: u64_at -> u64 = run_time_ns;
        /// Runs counted while statistics were enabled.
        run_cnt: u64_at -> u64 = run_cnt;
        /// Runs skipped because the program was already running on that CPU.
        recursion_misses: u64_at -> u64 = recursion_misses;
        /// Count of instructions that the verifier walked.
        verified_insns: u32_at -> u32 = verified_insns;
        /// Id of the BTF object of the function or program that this program is attached to, 0 for none.
        attach_btf_obj_id: u32_at -> u32 = attach_btf_obj_id;
        /// BTF type id, in the object `attach_btf_obj_id`, of the function that the program is attached to, 0 for none.
        attach_btf_id: u32_at -> u32 = attach_btf_id;
        /// Bytes of machine code of all functions; 0 if the program is interpreted or its reader was not privileged.
        jited_prog_len: u32_at -> u32 = jited_prog_len;
        /// Bytes of BPF instructions after verification.
        xlated_prog_len: u32_at -> u32 = xlated_prog_len;
        /// Count of the maps that the program uses; known even if their ids are absent.
        nr_map_ids: u32_at -> u32 = nr_map_ids;
        /// Count of functions with machine code; known even if their addresses are absent.
        nr_jited_ksyms: u32_at -> u32 = nr_jited_ksyms;
    }

    /// Machine code of all functions, one after the other; [`functions`](Self::functions) splits it.
    pub fn jited_insns(&self) -> Option<&'a [u8]> {
        self.array(Array::JitedInsns)
    }

    /// BPF instructions after verification, 8 bytes each.
    pub fn xlated_insns(&self) -> Option<&'a [u8]> {
        self.array(Array::XlatedInsns)
    }

    /// BPF instructions after verification, decoded.
    pub fn xlated(&self) -> Option<Elements<'a, Insn>> {
        Some(Elements::new(self.xlated_insns()?, Insn::BYTES, self.endian))
    }

    elements! {
        /// Ids of the maps that the program uses.
        map_ids: u32 = MapIds;
        /// Entry address of each function; 0 or an address in the interpreter if the program is not compiled.
        jited_ksyms: u64 = JitedKsyms;
        /// Bytes of machine code of each function.
        jited_func_lens: u32 = JitedFuncLens;
        /// First instruction of each function, and its BTF type.
        func_info: FuncInfo = FuncInfo;
        /// Source lines by BPF instruction.
        line_info: LineInfo = LineInfo;
        /// The machine address of each entry of [`line_info`](Self::line_info).
        jited_line_info: u64 = JitedLineInfo;
        /// Digest of each function after verification.
        prog_tags: Tag = ProgTags;
    }

    fn elements<T: Element>(&self, array: Array) -> Option<Elements<'a, T>> {
        let stride = array.record_bytes(self.endian, self.info).ok()?;
        Some(Elements::new(self.array(array)?, stride, self.endian))
    }
}

#[cfg(test)]
mod tests;
