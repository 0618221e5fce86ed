//! Records of tasks, mappings and programs from before the recording, as the kernel would have written them. All these records carry a trailer of
//! zeros, so their timestamp 0 sorts before all other records.
//!
//! The data is read once, from `/proc` and `/sys`, and appended to a buffer of the caller. Objects that vanish meanwhile
//! are left out: a task that has ended gets no samples.

mod build_id;
mod kernel;
mod maps;
mod programs;
mod tasks;
#[cfg(test)]
mod tests;
mod user_functions;

use std::os::unix::ffi::OsStrExt;

use bprec_format::records::Cgroup;
use bprec_format::{RecordType, SampleId, SampleLayout, Writer};
use bprec_host::Cgroups;

pub(crate) use kernel::kernel;
pub(crate) use programs::{images, measure_images, program};
pub(crate) use tasks::{each_process, has_mappings, unknown_tasks};
pub(crate) use user_functions::UserFunctions;

/// Process id in the MMAP records of the kernel and its modules.
const NO_PID: u32 = u32::MAX;

/// Appends a record.
fn append(layout: &SampleLayout, out: &mut Vec<u8>, kind: RecordType, misc: u16, fill: impl FnOnce(&mut Writer<'_>)) {
    // Only records above 65,535 bytes are refused. The longest records here hold one path or name of at most 4,096 bytes.
    let _ = bprec_format::records::write_record(out, kind, misc, layout, &SampleId::default(), fill);
}

/// Appends a CGROUP record for each cgroup of the unified hierarchy (cgroup v2), parents first. Cgroup ids of samples refer to these records.
pub(crate) fn cgroups(layout: &SampleLayout, out: &mut Vec<u8>) {
    for (id, path) in Cgroups::read().iter() {
        let cgroup = Cgroup { id, path: path.as_os_str().as_bytes() };
        append(layout, out, RecordType::CGROUP, 0, |w| cgroup.encode(w));
    }
}
