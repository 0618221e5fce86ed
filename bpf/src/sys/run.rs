//! Test runs of programs (`BPF_PROG_TEST_RUN`).

use std::os::fd::BorrowedFd;

use libbpf_rs::libbpf_sys as cmd;

use super::syscall::{Attr, attr_end, bpf, number};

/// Runs a raw tracepoint program that looks at no arguments once on `cpu`, where the task that is on it is current; what it
/// returned. Err is the errno: ENXIO for a CPU that is not online.
pub(crate) fn run_on_cpu(program: BorrowedFd<'_>, cpu: u32) -> Result<u32, i32> {
    let mut attr = Attr::default();
    attr.test.prog_fd = number(program);
    attr.test.flags = cmd::BPF_F_TEST_RUN_ON_CPU;
    attr.test.cpu = cpu;
    // SAFETY: all pointers are null, with lengths of 0; nothing is written but numbers of the block.
    unsafe { bpf(cmd::BPF_PROG_TEST_RUN, &mut attr, attr_end!(test.cpu)) }?;
    // SAFETY: the kernel wrote it there.
    Ok(unsafe { attr.test.retval })
}

/// Runs a socket filter `repeat` times on a small packet; the kernel's mean time per run, ns. Err is the errno.
pub(crate) fn run_socket_filter(program: BorrowedFd<'_>, repeat: u32) -> Result<u32, i32> {
    let packet = [0u8; 64];
    let mut attr = Attr::default();
    attr.test.prog_fd = number(program);
    attr.test.data_size_in = packet.len() as u32;
    attr.test.data_in = packet.as_ptr() as u64;
    attr.test.repeat = repeat;
    // SAFETY: the kernel reads the packet, whose length stands beside it and which outlives the call; nothing is written
    // but numbers of the block, as there is no buffer for the result.
    unsafe { bpf(cmd::BPF_PROG_TEST_RUN, &mut attr, attr_end!(test.ctx_size_out)) }?;
    // SAFETY: the kernel wrote it there.
    Ok(unsafe { attr.test.duration })
}
