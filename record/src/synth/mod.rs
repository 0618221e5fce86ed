//! Records of what was there before the recording started, as the kernel would have written them. All carry a trailer
//! of zeros, which puts them in front of everything.

use bprec_bpf::ProgSnapshot;
use bprec_format::SampleLayout;
use bprec_format::state::KernelSymbol;

/// Appends the maps of the kernel and its modules.
pub(crate) fn kernel(layout: &SampleLayout, out: &mut Vec<u8>) {
    let _ = (layout, out);
}

/// Appends FORK, COMM, NAMESPACES and MMAP2 of live tasks: of all, or of these processes.
pub(crate) fn tasks(layout: &SampleLayout, processes: Option<&[u32]>, out: &mut Vec<u8>) {
    let _ = (layout, processes, out);
}

/// Appends a CGROUP for each cgroup.
pub(crate) fn cgroups(layout: &SampleLayout, out: &mut Vec<u8>) {
    let _ = (layout, out);
}

/// Appends KSYMBOLs for all functions of a program, and its BPF_EVENT.
pub(crate) fn program(layout: &SampleLayout, program: &ProgSnapshot, out: &mut Vec<u8>) {
    let _ = (layout, program, out);
}

/// Appends KSYMBOLs for trampolines, dispatchers and stubs, each clipped at the next symbol.
pub(crate) fn images(layout: &SampleLayout, images: &[KernelSymbol], out: &mut Vec<u8>) {
    let _ = (layout, images, out);
}
