//! Creates maps and loads programs.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use libbpf_rs::libbpf_sys as cmd;

use super::map_info;
use super::syscall::{Attr, attr_end, bpf, bpf_fd, number, object_name};

/// Creates an array map that can be mapped into memory. `Err` holds the errno.
pub(crate) fn create_array(name: &str, value_bytes: u32, entries: u32) -> Result<OwnedFd, i32> {
    let mut attr = new_map(name, cmd::BPF_MAP_TYPE_ARRAY, 4, value_bytes, entries);
    attr.__bindgen_anon_1.map_flags = cmd::BPF_F_MMAPABLE;
    // SAFETY: the command takes no pointers and returns a descriptor.
    unsafe { bpf_fd(cmd::BPF_MAP_CREATE, &mut attr, attr_end!(__bindgen_anon_1.map_name)) }
}

/// Creates a hash map. `Err` holds the errno.
pub(crate) fn create_hash(name: &str, key_bytes: u32, value_bytes: u32, entries: u32) -> Result<OwnedFd, i32> {
    let mut attr = new_map(name, cmd::BPF_MAP_TYPE_HASH, key_bytes, value_bytes, entries);
    // SAFETY: the command takes no pointers and returns a descriptor.
    unsafe { bpf_fd(cmd::BPF_MAP_CREATE, &mut attr, attr_end!(__bindgen_anon_1.map_name)) }
}

fn new_map(name: &str, map_type: u32, key_bytes: u32, value_bytes: u32, entries: u32) -> Attr {
    let mut attr = Attr::default();
    attr.__bindgen_anon_1.map_type = map_type;
    attr.__bindgen_anon_1.key_size = key_bytes;
    attr.__bindgen_anon_1.value_size = value_bytes;
    attr.__bindgen_anon_1.max_entries = entries;
    attr.__bindgen_anon_1.map_name = object_name(name);
    attr
}

/// Puts a perf event into entry `index` of a perf event array. `Err` holds the errno; EINVAL for a map of another type.
pub(crate) fn put_event(map: BorrowedFd<'_>, index: u32, event: BorrowedFd<'_>) -> Result<(), i32> {
    if !map_info(map, 0).is_ok_and(|info| info.type_ == cmd::BPF_MAP_TYPE_PERF_EVENT_ARRAY) {
        return Err(libc::EINVAL);
    }
    let value = event.as_raw_fd();
    let mut attr = Attr::default();
    attr.__bindgen_anon_2.map_fd = number(map);
    attr.__bindgen_anon_2.key = (&raw const index) as u64;
    attr.__bindgen_anon_2.__bindgen_anon_1.value = (&raw const value) as u64;
    // SAFETY: the map is an array of perf events with keys and values of four bytes; both locals have four bytes and outlive the call.
    unsafe { bpf(cmd::BPF_MAP_UPDATE_ELEM, &mut attr, attr_end!(__bindgen_anon_2.flags)) }.map(drop)
}

/// A tracing program to load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tracing<'a> {
    /// Name of the program.
    pub(crate) name: &'a str,
    /// Instructions of eight bytes each.
    pub(crate) insns: &'a [u64],
    /// `BPF_TRACE_*`
    pub(crate) attach_type: u32,
    /// Program to trace.
    pub(crate) target: BorrowedFd<'a>,
    /// BTF id of the function to trace in the target program.
    pub(crate) function_type_id: u32,
}

/// Loads a program. If this fails, `log` has the verifier's messages; an empty `log` requests none. `Err` holds the errno.
pub(crate) fn load_tracing(program: &Tracing<'_>, log: &mut [u8]) -> Result<OwnedFd, i32> {
    let license = c"Dual BSD/GPL";
    let mut attr = Attr::default();
    attr.__bindgen_anon_3.prog_type = cmd::BPF_PROG_TYPE_TRACING;
    attr.__bindgen_anon_3.insn_cnt = program.insns.len() as u32;
    attr.__bindgen_anon_3.insns = program.insns.as_ptr() as u64;
    attr.__bindgen_anon_3.license = license.as_ptr() as u64;
    if !log.is_empty() {
        attr.__bindgen_anon_3.log_level = 1;
        attr.__bindgen_anon_3.log_size = log.len() as u32;
        attr.__bindgen_anon_3.log_buf = log.as_mut_ptr() as u64;
    }
    attr.__bindgen_anon_3.prog_name = object_name(program.name);
    attr.__bindgen_anon_3.expected_attach_type = program.attach_type;
    attr.__bindgen_anon_3.attach_btf_id = program.function_type_id;
    attr.__bindgen_anon_3.__bindgen_anon_1.attach_prog_fd = number(program.target);
    // SAFETY: instructions and log are valid for the counts beside them, the license ends in a NUL, and all outlive the
    // call; the command returns a descriptor.
    unsafe { bpf_fd(cmd::BPF_PROG_LOAD, &mut attr, attr_end!(__bindgen_anon_3.__bindgen_anon_1.attach_prog_fd)) }
}
