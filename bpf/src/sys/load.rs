//! Maps made, and programs loaded, attached and run, for the programs of our own around those of others.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use super::{Attr, bpf, bpf_fd, cmd};

/// `BPF_MAP_TYPE_ARRAY`
const ARRAY: u32 = 2;
/// `BPF_F_MMAPABLE`
const MMAPABLE: u32 = 1 << 10;
/// `BPF_PROG_TYPE_TRACING`
const TRACING: u32 = 26;

/// Makes an array that can be mapped. Err is the errno.
pub(crate) fn create_array(name: &str, value_bytes: u32, entries: u32) -> Result<OwnedFd, i32> {
    let mut attr = Attr::new();
    for (at, value) in [(0, ARRAY), (4, 4), (8, value_bytes), (12, entries), (16, MMAPABLE)] {
        attr.put_u32(at, value);
    }
    attr.put_name(28, name);
    // SAFETY: the command takes no pointers and returns a descriptor.
    unsafe { bpf_fd(cmd::MAP_CREATE, &mut attr, 44) }
}

/// Puts a perf event into an array of them. Err is the errno.
pub(crate) fn put_event(map: BorrowedFd<'_>, index: u32, event: BorrowedFd<'_>) -> Result<(), i32> {
    let value = event.as_raw_fd();
    let mut attr = Attr::new();
    attr.put_fd(0, map);
    attr.put_u64(8, (&raw const index) as u64);
    attr.put_u64(16, (&raw const value) as u64);
    // SAFETY: the maps this is called with are arrays of perf events, whose keys and values have four bytes; both locals
    // have as many and outlive the call. Another map would be read beyond them, which the callers rule out.
    unsafe { bpf(cmd::MAP_UPDATE_ELEM, &mut attr, 32) }.map(drop)
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
    let mut attr = Attr::new();
    attr.put_u32(0, TRACING);
    attr.put_u32(4, program.insns.len() as u32);
    attr.put_u64(8, program.insns.as_ptr() as u64);
    attr.put_u64(16, license.as_ptr() as u64);
    if !log.is_empty() {
        attr.put_u32(24, 1);
        attr.put_u32(28, log.len() as u32);
        attr.put_u64(32, log.as_mut_ptr() as u64);
    }
    attr.put_name(48, program.name);
    attr.put_u32(68, program.attach_type);
    attr.put_u32(108, program.function_type_id);
    attr.put_fd(112, program.target);
    // SAFETY: instructions and log are valid for the counts beside them, the license ends in a NUL, and all outlive the
    // call; the command returns a descriptor.
    unsafe { bpf_fd(cmd::PROG_LOAD, &mut attr, 116) }
}

/// Attaches a tracing program to what it was loaded for. Err is the errno.
pub(crate) fn attach_tracing(program: BorrowedFd<'_>) -> Result<OwnedFd, i32> {
    let mut attr = Attr::new();
    // Older than links, and the way that every kernel with such programs knows.
    attr.put_fd(8, program);
    // SAFETY: the pointer to a name is null; the command returns a descriptor.
    unsafe { bpf_fd(cmd::RAW_TRACEPOINT_OPEN, &mut attr, 12) }
}

/// Attaches a program to a raw tracepoint for as long as the descriptor is open. Err is the errno.
pub(crate) fn attach_raw_tracepoint(program: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, i32> {
    let mut attr = Attr::new();
    attr.put_u64(0, name.as_ptr() as u64);
    attr.put_fd(8, program);
    // SAFETY: the name ends in a NUL and outlives the call; the command returns a descriptor.
    unsafe { bpf_fd(cmd::RAW_TRACEPOINT_OPEN, &mut attr, 12) }
}

/// Runs a raw tracepoint program that looks at no arguments once on `cpu`, where the task that is on it is current; what it
/// returned. Err is the errno: ENXIO for a CPU that is not online.
pub(crate) fn run_on_cpu(program: BorrowedFd<'_>, cpu: u32) -> Result<u32, i32> {
    /// `BPF_F_TEST_RUN_ON_CPU`
    const ON_CPU: u32 = 1;
    let mut attr = Attr::new();
    attr.put_fd(0, program);
    attr.put_u32(64, ON_CPU);
    attr.put_u32(68, cpu);
    // SAFETY: all pointers are null, with lengths of 0; nothing is written but numbers of the block.
    unsafe { bpf(cmd::PROG_TEST_RUN, &mut attr, 72) }?;
    Ok(attr.u32(4))
}

/// Runs a socket filter `repeat` times on a small packet; the kernel's mean time per run, ns. Err is the errno.
pub(crate) fn run_socket_filter(program: BorrowedFd<'_>, repeat: u32) -> Result<u32, i32> {
    let packet = [0u8; 64];
    let mut attr = Attr::new();
    attr.put_fd(0, program);
    attr.put_u32(8, packet.len() as u32);
    attr.put_u64(16, packet.as_ptr() as u64);
    attr.put_u32(32, repeat);
    // SAFETY: the kernel reads the packet, whose length stands beside it and which outlives the call; nothing is written
    // but numbers of the block, as there is no buffer for the result.
    unsafe { bpf(cmd::PROG_TEST_RUN, &mut attr, 48) }?;
    Ok(attr.u32(36))
}
