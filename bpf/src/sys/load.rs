//! Maps made and programs loaded.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use libbpf_rs::libbpf_sys as cmd;

use super::map_info;
use super::syscall::{Attr, attr_end, bpf, bpf_fd, number, object_name};

/// Makes an array that can be mapped. Err is the errno.
pub(crate) fn create_array(name: &str, value_bytes: u32, entries: u32) -> Result<OwnedFd, i32> {
    let mut attr = new_map(name, cmd::BPF_MAP_TYPE_ARRAY, 4, value_bytes, entries);
    attr.__bindgen_anon_1.map_flags = cmd::BPF_F_MMAPABLE;
    // SAFETY: the command takes no pointers and returns a descriptor.
    unsafe { bpf_fd(cmd::BPF_MAP_CREATE, &mut attr, attr_end!(__bindgen_anon_1.map_name)) }
}

/// Makes a hash table. Err is the errno.
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

/// Puts a perf event into an array of them. Err is the errno; EINVAL for another map.
pub(crate) fn put_event(map: BorrowedFd<'_>, index: u32, event: BorrowedFd<'_>) -> Result<(), i32> {
    if !map_info(map, 0).is_ok_and(|info| info.type_ == cmd::BPF_MAP_TYPE_PERF_EVENT_ARRAY) {
        return Err(libc::EINVAL);
    }
    let value = event.as_raw_fd();
    let mut attr = Attr::default();
    attr.__bindgen_anon_2.map_fd = number(map);
    attr.__bindgen_anon_2.key = (&raw const index) as u64;
    attr.__bindgen_anon_2.__bindgen_anon_1.value = (&raw const value) as u64;
    // SAFETY: the map is an array of perf events, whose keys and values have four bytes; both locals have as many and outlive the call.
    unsafe { bpf(cmd::BPF_MAP_UPDATE_ELEM, &mut attr, attr_end!(__bindgen_anon_2.flags)) }.map(drop)
}

/// A tracing program to be loaded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tracing<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Instructions, each as its eight bytes.
    pub(crate) insns: &'a [u64],
    /// `BPF_TRACE_*`
    pub(crate) attach_type: u32,
    /// The program that it traces.
    pub(crate) target: BorrowedFd<'a>,
    /// The function of that program, as a type of its BTF.
    pub(crate) function_type_id: u32,
}

/// Loads a program; on failure the verifier's words go into `log`, if it has room. Err is the errno.
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
