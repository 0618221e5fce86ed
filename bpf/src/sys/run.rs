//! Test runs of programs (`BPF_PROG_TEST_RUN`).

use std::os::fd::BorrowedFd;

use libbpf_rs::libbpf_sys as cmd;

use super::syscall::{Attr, attr_end, bpf, number};

/// Runs a raw tracepoint program once on `cpu` and returns its return value. The program must not read its arguments; its current task is
/// the task that runs on that CPU. `Err` holds the errno: ENXIO if the CPU is offline.
pub(crate) fn run_on_cpu(program: BorrowedFd<'_>, cpu: u32) -> Result<u32, i32> {
    let mut attr = Attr::default();
    attr.test.prog_fd = number(program);
    attr.test.flags = cmd::BPF_F_TEST_RUN_ON_CPU;
    attr.test.cpu = cpu;
    // SAFETY: all pointers are null, with lengths of 0; the kernel writes only numbers of the attributes.
    unsafe { bpf(cmd::BPF_PROG_TEST_RUN, &mut attr, attr_end!(test.cpu)) }?;
    // SAFETY: the kernel wrote this field.
    Ok(unsafe { attr.test.retval })
}

/// Runs a socket filter `repeat` times on a small packet. Returns the kernel's mean time per run, ns. `Err` holds the errno.
pub(crate) fn run_socket_filter(program: BorrowedFd<'_>, repeat: u32) -> Result<u32, i32> {
    let packet = [0u8; 64];
    let mut attr = Attr::default();
    attr.test.prog_fd = number(program);
    attr.test.data_size_in = packet.len() as u32;
    attr.test.data_in = packet.as_ptr() as u64;
    attr.test.repeat = repeat;
    // SAFETY: the kernel reads the packet, which has its length beside it and outlives the call. Without a buffer for the result, the kernel
    // writes only numbers of the attributes.
    unsafe { bpf(cmd::BPF_PROG_TEST_RUN, &mut attr, attr_end!(test.ctx_size_out)) }?;
    // SAFETY: the kernel wrote this field.
    Ok(unsafe { attr.test.duration })
}
