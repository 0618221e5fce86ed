//! Records of what was there before the recording started, as the kernel would have written them. All carry a trailer
//! of zeros, which puts them in front of everything.
//!
//! Everything is read once, from `/proc` and `/sys`, and appended to a buffer of the caller's. What vanishes meanwhile
//! is left out: a task that ended has no samples to come.

mod build_id;
mod cgroups;
mod kernel;
mod maps;
mod programs;
mod tasks;
#[cfg(test)]
mod tests;
mod user_functions;

use bprec_format::{RecordType, SampleId, SampleLayout, Writer};

pub(crate) use cgroups::cgroups;
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
