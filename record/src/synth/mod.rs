//! Records of what was there before the recording started, as the kernel would have written them. All carry a trailer
//! of zeros, which puts them in front of everything.
//!
//! Everything is read once, from `/proc` and `/sys`, and appended to a buffer of the caller's. What vanishes meanwhile
//! is left out: a task that ended has no samples to come.

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

/// The process that kernel maps belong to.
const NO_PID: u32 = u32::MAX;

/// Appends a record.
fn append(layout: &SampleLayout, out: &mut Vec<u8>, kind: RecordType, misc: u16, fill: impl FnOnce(&mut Writer<'_>)) {
    // Refused are only records above 65,535 bytes. The longest here hold one path or name, of 4,096 bytes at most.
    let _ = bprec_format::records::write_record(out, kind, misc, layout, &SampleId::default(), fill);
}

/// Appends a CGROUP for each cgroup of the unified hierarchy (cgroup v2), which samples' cgroup ids refer to, parents first.
pub(crate) fn cgroups(layout: &SampleLayout, out: &mut Vec<u8>) {
    for (id, path) in Cgroups::read().iter() {
        let cgroup = Cgroup { id, path: path.as_os_str().as_bytes() };
        append(layout, out, RecordType::CGROUP, 0, |w| cgroup.encode(w));
    }
}
