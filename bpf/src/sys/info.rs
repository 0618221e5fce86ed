//! `BPF_OBJ_GET_INFO_BY_FD`: the kernel's information about one program, BTF blob, map or link.
//!
//! The tables of pointer fields are in this file, beside the calls that use them. Callers therefore cannot make the kernel write outside
//! the buffers that this file allocates.

use std::mem::offset_of;
use std::os::fd::BorrowedFd;

use libbpf_rs::libbpf_sys::{self as cmd, bpf_btf_info, bpf_link_info, bpf_map_info, bpf_prog_info};

use bprec_format::bpf::names::LinkType;

use super::bytes::{get_u32, get_u64, up_to_nul};
use super::syscall::{Attr, attr_end, bpf, number};
use crate::error::{Error, Object, Result};

const CALL: &str = "bpf(BPF_OBJ_GET_INFO_BY_FD)";

/// Limit on attempts for an object with arrays that grow between the two calls.
const ATTEMPTS: usize = 8;

/// Queries the info of the object behind `fd`. `info` is input (pointers and counts of arrays) and output. Returns how many of its bytes this kernel
/// knows.
///
/// # Safety
///
/// In the layout of the object behind `fd`, every pointer field of `info` must be zero, or valid for writes of the length that its count
/// field announces.
unsafe fn info_by_fd(fd: BorrowedFd<'_>, info: &mut [u8]) -> Result<usize, i32> {
    let mut attr = Attr::default();
    attr.info.bpf_fd = number(fd);
    attr.info.info_len = info.len() as u32;
    attr.info.info = info.as_mut_ptr() as u64;
    // SAFETY: `info` is writable for the given length; the caller guarantees the pointers in it.
    unsafe { bpf(cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attr, attr_end!(info.info)) }?;
    // SAFETY: the kernel wrote the length.
    Ok((unsafe { attr.info.info_len } as usize).min(info.len()))
}

/// Queries the first `bytes` bytes of an info structure, see [`info_by_fd`].
///
/// # Safety
///
/// The conditions of [`info_by_fd`] apply, and `T` must be a structure of integers.
unsafe fn info_of<T>(fd: BorrowedFd<'_>, info: &mut T, bytes: usize) -> Result<usize, i32> {
    let bytes = bytes.min(size_of::<T>());
    // SAFETY: `info` is borrowed exclusively during the call, has at least `bytes` bytes, and any bytes are a valid `T`.
    let block = unsafe { std::slice::from_raw_parts_mut((&raw mut *info).cast::<u8>(), bytes) };
    // SAFETY: the caller guarantees the same conditions.
    unsafe { info_by_fd(fd, block) }
}

fn refused(object: Object, errno: i32) -> Error {
    Error::refused(CALL, object)(errno)
}

fn put_u32(info: &mut [u8], at: usize, value: u32) {
    info[at..at + 4].copy_from_slice(&value.to_ne_bytes());
}

fn put_buffer(info: &mut [u8], at: usize, buffer: &mut [u8]) {
    info[at..at + 8].copy_from_slice(&(buffer.as_mut_ptr() as u64).to_ne_bytes());
}

/// Size of an element in an array of a program's info.
#[derive(Debug, Clone, Copy)]
enum Element {
    /// Constant size, bytes.
    Bytes(usize),
    /// Offset of the `u32` in the info that has the size in bytes.
    SizeAt(usize),
}

/// Offsets of the fields in `struct bpf_prog_info` that describe one array.
#[derive(Debug, Clone, Copy)]
struct ProgArray {
    pointer_at: usize,
    count_at: usize,
    element: Element,
}

const fn array(pointer_at: usize, count_at: usize, element: Element) -> ProgArray {
    ProgArray { pointer_at, count_at, element }
}

/// Arrays of `struct bpf_prog_info`, in the order in which perf.data files number them.
const PROG_ARRAYS: [ProgArray; 9] = {
    macro_rules! at {
        ($field:ident) => {
            offset_of!(bpf_prog_info, $field)
        };
    }
    [
        array(at!(jited_prog_insns), at!(jited_prog_len), Element::Bytes(1)),
        array(at!(xlated_prog_insns), at!(xlated_prog_len), Element::Bytes(1)),
        array(at!(map_ids), at!(nr_map_ids), Element::Bytes(4)),
        array(at!(jited_ksyms), at!(nr_jited_ksyms), Element::Bytes(8)),
        array(at!(jited_func_lens), at!(nr_jited_func_lens), Element::Bytes(4)),
        array(at!(func_info), at!(nr_func_info), Element::SizeAt(at!(func_info_rec_size))),
        array(at!(line_info), at!(nr_line_info), Element::SizeAt(at!(line_info_rec_size))),
        array(at!(jited_line_info), at!(nr_jited_line_info), Element::SizeAt(at!(jited_line_info_rec_size))),
        array(at!(prog_tags), at!(nr_prog_tags), Element::Bytes(8)),
    ]
};

/// Index of the translated instructions in [`PROG_ARRAYS`].
const XLATED: usize = 1;
/// Index of the map ids in [`PROG_ARRAYS`], the only array that can grow while the program is held (`BPF_PROG_BIND_MAP`).
const MAP_IDS: usize = 2;
/// Map ids to request beyond the kernel's count, so that a few new maps do not need another attempt.
const MAP_IDS_SLACK: u32 = 32;

/// Size of `struct bpf_prog_info` in Linux 6.0, bytes; newer kernels have added no fields.
const PROG_INFO_BYTES: usize = size_of::<bpf_prog_info>();

/// Info block and arrays of a program, as returned by the kernel.
#[derive(Debug)]
pub(crate) struct RawProgInfo {
    /// `struct bpf_prog_info`, cut to the bytes that this kernel knows. Pointers are zero. Counts are those of `arrays`; for an absent array, the
    /// kernel's count.
    pub(crate) info: Vec<u8>,
    /// Arrays in the order of [`PROG_ARRAYS`]; `None` for an empty or withheld array.
    pub(crate) arrays: [Option<Vec<u8>>; 9],
    /// True for arrays that have elements, all of them hidden from this process.
    pub(crate) withheld: [bool; 9],
}

impl RawProgInfo {
    /// Id of the program's BTF; 0 without BTF.
    pub(crate) fn btf_id(&self) -> u32 {
        get_u32(&self.info, offset_of!(bpf_prog_info, btf_id))
    }
}

/// Reads everything that the kernel shows of a program: the info block and all nine arrays.
pub(crate) fn prog_info(fd: BorrowedFd<'_>, id: u32) -> Result<RawProgInfo> {
    let mut withheld = [false; 9];
    for _ in 0..ATTEMPTS {
        let mut info = [0u8; PROG_INFO_BYTES];
        // SAFETY: all pointers are zero.
        let known = unsafe { info_by_fd(fd, &mut info) }.map_err(|errno| refused(Object::Prog(id), errno))?;
        let counts = info;

        info = [0; PROG_INFO_BYTES];
        let mut arrays: [Option<Vec<u8>>; 9] = Default::default();
        for (index, (field, slot)) in PROG_ARRAYS.iter().zip(&mut arrays).enumerate() {
            let slack = if index == MAP_IDS { MAP_IDS_SLACK } else { 0 };
            let count = get_u32(&counts, field.count_at).saturating_add(slack);
            let element_bytes = match field.element {
                Element::Bytes(bytes) => bytes,
                Element::SizeAt(at) => get_u32(&counts, at) as usize,
            };
            if count == 0 || element_bytes == 0 || withheld[index] || field.pointer_at + 8 > known {
                continue;
            }
            let buffer = slot.insert(vec![0; count as usize * element_bytes]);
            put_u32(&mut info, field.count_at, count);
            put_buffer(&mut info, field.pointer_at, buffer);
            if let Element::SizeAt(at) = field.element {
                put_u32(&mut info, at, element_bytes as u32);
            }
        }
        // SAFETY: each pointer is zero or a buffer in `arrays` of exactly count × element size bytes; the kernel writes
        // at most the announced count of elements, and refuses an element size that is not its own. `arrays` outlives
        // the call and is not touched during it.
        unsafe { info_by_fd(fd, &mut info) }.map_err(|errno| refused(Object::Prog(id), errno))?;

        if arrays[XLATED].is_some() && get_u64(&info, PROG_ARRAYS[XLATED].pointer_at) == 0 {
            // The kernel withholds the instructions (constant blinding) and then skips all later arrays: try again without requesting the
            // instructions.
            withheld[XLATED] = true;
            continue;
        }
        let mut grew = false;
        for (index, (field, slot)) in PROG_ARRAYS.iter().zip(&mut arrays).enumerate() {
            let Some(buffer) = slot else { continue };
            let count = get_u32(&info, field.count_at);
            if count == 0 {
                *slot = None;
            } else if get_u64(&info, field.pointer_at) == 0 {
                withheld[index] = true;
                *slot = None;
            } else if index == MAP_IDS {
                grew |= count as usize * 4 > buffer.len();
                buffer.truncate(count as usize * 4);
            } else {
                grew |= count != get_u32(&counts, field.count_at);
            }
        }
        if grew {
            continue;
        }
        for field in &PROG_ARRAYS {
            info[field.pointer_at..field.pointer_at + 8].fill(0);
        }
        return Ok(RawProgInfo { info: info[..known].to_vec(), arrays, withheld });
    }
    Err(Error::Grew { object: Object::Prog(id) })
}

/// Reads a program's info without its arrays, and how many bytes of the info this kernel knows. Unknown fields are zero.
pub(crate) fn prog_summary(fd: BorrowedFd<'_>, id: u32) -> Result<(bpf_prog_info, usize)> {
    let mut info = bpf_prog_info::default();
    // SAFETY: all pointers are zero.
    let known = unsafe { info_of(fd, &mut info, PROG_INFO_BYTES) }.map_err(|errno| refused(Object::Prog(id), errno))?;
    Ok((info, known))
}

/// Returns true if a kernel that knows `known` bytes of a program's info counts the runs that its recursion guard refuses (since Linux 5.12).
pub(crate) fn knows_misses(known: usize) -> bool {
    known >= offset_of!(bpf_prog_info, verified_insns)
}

/// Returns true if a kernel that knows `known` bytes of a program's info shows the target that the program traces (since Linux 6.0).
pub(crate) fn knows_target(known: usize) -> bool {
    known >= offset_of!(bpf_prog_info, attach_btf_id) + size_of::<u32>()
}

/// Information about one BTF blob.
#[derive(Debug)]
pub(crate) struct BtfInfo {
    /// Raw bytes; empty if not requested.
    pub(crate) blob: Vec<u8>,
    /// `vmlinux`, the name of a module, or empty for the BTF of a program.
    pub(crate) name: Vec<u8>,
    /// True for the BTF of the kernel and its modules.
    pub(crate) is_kernel: bool,
}

/// Reads the kernel's information about a BTF blob; its bytes only if `with_blob` is true.
pub(crate) fn btf_info(fd: BorrowedFd<'_>, id: u32, with_blob: bool) -> Result<BtfInfo> {
    for _ in 0..ATTEMPTS {
        let mut info = bpf_btf_info::default();
        // SAFETY: all pointers are zero.
        let known = unsafe { info_of(fd, &mut info, size_of::<bpf_btf_info>()) };
        let known = known.map_err(|errno| refused(Object::Btf(id), errno))?;
        let (blob_bytes, is_kernel) = (info.btf_size, info.kernel_btf != 0);

        let mut name = [0u8; 64];
        let mut blob = vec![0u8; if with_blob { blob_bytes as usize } else { 0 }];
        info = bpf_btf_info::default();
        if !blob.is_empty() {
            info.btf = blob.as_mut_ptr() as u64;
            info.btf_size = blob_bytes;
        }
        // Before Linux 5.11, BTF info has no name, and the kernel requires fields that it does not know to be zero.
        if known > offset_of!(bpf_btf_info, name) {
            info.name = name.as_mut_ptr() as u64;
            info.name_len = name.len() as u32;
        }
        // SAFETY: each pointer is zero or has its buffer's length beside it, and the buffers outlive the call.
        unsafe { info_of(fd, &mut info, size_of::<bpf_btf_info>()) }
            .map_err(|errno| refused(Object::Btf(id), errno))?;
        if info.btf_size != blob_bytes {
            continue;
        }
        return Ok(BtfInfo { blob, name: up_to_nul(&name).to_vec(), is_kernel });
    }
    Err(Error::Grew { object: Object::Btf(id) })
}

/// Reads the kernel's information about a map. Fields that this kernel does not know are zero. Fields after `map_extra` are not requested.
pub(crate) fn map_info(fd: BorrowedFd<'_>, id: u32) -> Result<bpf_map_info> {
    let mut info = bpf_map_info::default();
    // SAFETY: the requested part of the structure has no pointers.
    let answer = unsafe { info_of(fd, &mut info, offset_of!(bpf_map_info, hash)) };
    answer.map_err(|errno| refused(Object::Map(id), errno))?;
    Ok(info)
}

/// Size of `struct bpf_link_info` in Linux 6.18, bytes.
const LINK_INFO_BYTES: usize = size_of::<bpf_link_info>();

/// Offset of a field of `struct bpf_link_info`: `all.FIELD` for a field of all links, `MEMBER.FIELD` for a field of one link type.
macro_rules! link_field {
    (all.$field:ident) => {
        std::mem::offset_of!(libbpf_rs::libbpf_sys::bpf_link_info, $field)
    };
    ($($field:ident).+) => {
        std::mem::offset_of!(libbpf_rs::libbpf_sys::bpf_link_info, __bindgen_anon_1.$($field).+)
    };
}
pub(crate) use link_field;

/// `struct bpf_link_info`. The link type selects the member of its union. A field that this kernel does not know reads as `None`.
#[derive(Debug)]
pub(crate) struct LinkInfo {
    bytes: [u8; LINK_INFO_BYTES],
    known: usize,
}

impl LinkInfo {
    /// Reads the `u32` at an offset from [`link_field`]; `None` if this kernel does not know the field.
    pub(crate) fn u32(&self, at: usize) -> Option<u32> {
        (at + 4 <= self.known).then(|| get_u32(&self.bytes, at))
    }

    /// Reads the `u64` at an offset from [`link_field`]; `None` if this kernel does not know the field.
    pub(crate) fn u64(&self, at: usize) -> Option<u64> {
        (at + 8 <= self.known).then(|| get_u64(&self.bytes, at))
    }

    /// `enum bpf_link_type`
    pub(crate) fn link_type(&self) -> u32 {
        get_u32(&self.bytes, link_field!(all.type_))
    }

    /// Id of the link.
    pub(crate) fn id(&self) -> u32 {
        get_u32(&self.bytes, link_field!(all.id))
    }

    /// Id of the link's program.
    pub(crate) fn prog_id(&self) -> u32 {
        get_u32(&self.bytes, link_field!(all.prog_id))
    }

    /// Makes a link info with `u32` values at the given offsets, for a kernel that knows `known` bytes.
    #[cfg(test)]
    pub(crate) fn of(fields: &[(usize, u32)], known: usize) -> LinkInfo {
        let mut bytes = [0u8; LINK_INFO_BYTES];
        fields.iter().for_each(|(at, value)| put_u32(&mut bytes, *at, *value));
        LinkInfo { bytes, known: known.min(LINK_INFO_BYTES) }
    }
}

/// Offsets of the fields of `bpf_link_info.tracing_multi` (Linux 7.3), which libbpf's headers do not have yet.
pub(crate) struct TracingMulti;

impl TracingMulti {
    pub(crate) const ATTACH_TYPE: usize = 16;
    pub(crate) const COUNT: usize = 20;
    pub(crate) const BTF_OBJ_ID: usize = 24;
    const IDS: usize = 32;
    const LINK_TYPE: u32 = LinkType::TRACING_MULTI.0;
}

/// Arrays to which the pointers in a link's info refer.
#[derive(Debug, Default)]
pub(crate) struct LinkArrays {
    /// Name of the tracepoint, iterator target, function or file.
    pub(crate) name: Option<Vec<u8>>,
    /// Function addresses of a kprobe.multi link (zeros if the kernel hides them) or offsets of an uprobe.multi link; at most
    /// [`LINK_ADDRESSES`] of them.
    pub(crate) addresses: Vec<u64>,
    /// BTF ids of the functions of a tracing_multi link; at most [`LINK_ADDRESSES`] of them.
    pub(crate) types: Vec<u32>,
}

/// Limit on the attach points that are read from a multi link.
const LINK_ADDRESSES: usize = 64;
/// Size of the buffer for a path or symbol, bytes: the kernel's `PATH_MAX`.
const LINK_NAME_BYTES: usize = 4096;

/// Builds the result of [`link_info`] for a tracing_multi link: its info and the BTF ids of its functions.
fn tracing_multi_info(fd: BorrowedFd<'_>, counts: [u8; LINK_INFO_BYTES], known: usize) -> (LinkInfo, LinkArrays) {
    let count = (get_u32(&counts, TracingMulti::COUNT) as usize).min(LINK_ADDRESSES);
    let mut ids = vec![0u8; count * size_of::<u32>()];
    let mut info = [0u8; LINK_INFO_BYTES];
    if count > 0 {
        put_buffer(&mut info, TracingMulti::IDS, &mut ids);
        put_u32(&mut info, TracingMulti::COUNT, count as u32);
        // SAFETY: a link's type never changes, so the field is the pointer to this link's ids. The buffer's length is beside it, and the buffer
        // outlives the call.
        let answer = unsafe { info_by_fd(fd, &mut info) };
        // ENOSPC: the link has more functions; the kernel wrote the ids that fit.
        if !matches!(answer, Ok(_) | Err(libc::ENOSPC)) {
            ids.clear();
        }
    }
    let types = ids.chunks_exact(size_of::<u32>()).map(|bytes| get_u32(bytes, 0)).collect();
    (LinkInfo { bytes: counts, known }, LinkArrays { types, ..LinkArrays::default() })
}

/// Types of perf event links that have a name.
const NAMED_PERF_EVENTS: std::ops::RangeInclusive<u32> = cmd::BPF_PERF_EVENT_UPROBE..=cmd::BPF_PERF_EVENT_TRACEPOINT;

/// Reads everything that the kernel shows of a link: the info block, with pointers set to zero, and the arrays.
pub(crate) fn link_info(fd: BorrowedFd<'_>, id: u32) -> Result<(LinkInfo, LinkArrays)> {
    let mut counts = [0u8; LINK_INFO_BYTES];
    // SAFETY: all pointers are zero.
    let known = unsafe { info_by_fd(fd, &mut counts) }.map_err(|errno| refused(Object::Link(id), errno))?;

    if get_u32(&counts, link_field!(all.type_)) == TracingMulti::LINK_TYPE {
        return Ok(tracing_multi_info(fd, counts, known));
    }
    // Offsets of two pairs of fields: pointer and length of the name, pointer and count of the addresses.
    let (name_at, addresses_at) = match get_u32(&counts, link_field!(all.type_)) {
        cmd::BPF_LINK_TYPE_RAW_TRACEPOINT => {
            (Some((link_field!(raw_tracepoint.tp_name), link_field!(raw_tracepoint.tp_name_len))), None)
        }
        cmd::BPF_LINK_TYPE_ITER => (Some((link_field!(iter.target_name), link_field!(iter.target_name_len))), None),
        cmd::BPF_LINK_TYPE_PERF_EVENT
            if NAMED_PERF_EVENTS.contains(&get_u32(&counts, link_field!(perf_event.type_))) =>
        {
            // The name pointers for files, functions and tracepoints have the same offset.
            let pointer = link_field!(perf_event.__bindgen_anon_1.uprobe.file_name);
            (Some((pointer, link_field!(perf_event.__bindgen_anon_1.uprobe.name_len))), None)
        }
        cmd::BPF_LINK_TYPE_KPROBE_MULTI => {
            (None, Some((link_field!(kprobe_multi.addrs), link_field!(kprobe_multi.count))))
        }
        cmd::BPF_LINK_TYPE_UPROBE_MULTI => (
            Some((link_field!(uprobe_multi.path), link_field!(uprobe_multi.path_size))),
            Some((link_field!(uprobe_multi.offsets), link_field!(uprobe_multi.count))),
        ),
        _ => return Ok((LinkInfo { bytes: counts, known }, LinkArrays::default())),
    };
    let mut name = vec![0u8; if name_at.is_some() { LINK_NAME_BYTES } else { 0 }];
    let count = addresses_at.map_or(0, |(_, at)| (get_u32(&counts, at) as usize).min(LINK_ADDRESSES));
    let mut addresses = vec![0u8; count * 8];
    let mut info = [0u8; LINK_INFO_BYTES];
    if let Some((pointer, length)) = name_at {
        put_buffer(&mut info, pointer, &mut name);
        put_u32(&mut info, length, name.len() as u32);
    }
    if let (Some((pointer, length)), true) = (addresses_at, count > 0) {
        put_buffer(&mut info, pointer, &mut addresses);
        put_u32(&mut info, length, count as u32);
    }
    // SAFETY: the type of a link and of its perf event never change, so the fields found above are the pointers of this link. Each pointer has
    // its buffer's length beside it, and the buffers outlive the call.
    let info = match unsafe { info_by_fd(fd, &mut info) } {
        Ok(_) => info,
        // ENOSPC: the name was cut, or the link has more addresses than requested. The kernel wrote what fits, but not the info block.
        Err(libc::ENOSPC) => counts,
        // The kernel refuses the name (the probe is being removed, or the kernel lacks the symbol): return the other fields.
        Err(_) => return Ok((LinkInfo { bytes: counts, known }, LinkArrays::default())),
    };
    let mut info = info;
    for pointer in [name_at, addresses_at].into_iter().flatten().map(|(pointer, _)| pointer) {
        info[pointer..pointer + 8].fill(0);
    }
    let arrays = LinkArrays {
        types: Vec::new(),
        name: name_at.map(|_| up_to_nul(&name).to_vec()).filter(|name| !name.is_empty()),
        addresses: addresses.chunks_exact(8).map(|bytes| get_u64(bytes, 0)).collect(),
    };
    Ok((LinkInfo { bytes: info, known }, arrays))
}
