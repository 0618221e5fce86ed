//! CGROUP records of the cgroups that exist: in the unified hierarchy (cgroup v2), which samples' cgroup ids refer to.

use std::os::unix::ffi::OsStrExt;

use bprec_format::records::Cgroup;
use bprec_format::{RecordType, SampleLayout};
use bprec_host::Cgroups;

use super::append;

/// Appends a CGROUP for each cgroup, parents first. None where no unified hierarchy is mounted.
pub(crate) fn cgroups(layout: &SampleLayout, out: &mut Vec<u8>) {
    for (id, path) in Cgroups::read().iter() {
        let cgroup = Cgroup { id, path: path.as_os_str().as_bytes() };
        append(layout, out, RecordType::CGROUP, 0, |w| cgroup.encode(w));
    }
}
