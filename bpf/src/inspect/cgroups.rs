//! Programs attached to cgroups without a link.

use std::fs::File;
use std::os::fd::AsFd;

use bprec_format::bpf::names::{AttachType, ProgType};
use bprec_format::state::Attachment;
use bprec_host::Cgroups;

use crate::sys::{self, HookOf};

/// `BPF_CGROUP_MAX_PROGS`: the kernel allows no more at one hook of one cgroup.
const MAX_PROGS: usize = 64;

/// Programs attached to any cgroup at these hooks (`BPF_CGROUP_*`).
pub(crate) fn attachments(cgroups: &Cgroups, hooks: &[u32]) -> Vec<Attachment> {
    let mut found = Vec::new();
    let mut ids = [0u32; MAX_PROGS];
    for (_, path) in cgroups.iter() {
        let Ok(directory) = File::open(cgroups.directory(path)) else { continue };
        for hook in hooks {
            // A hook that this kernel does not have is refused, a cgroup that was removed is empty.
            let count = sys::attached_progs(HookOf::Cgroup(directory.as_fd()), *hook, &mut ids).unwrap_or(0);
            found.extend(ids.iter().take(count).map(|prog_id| Attachment {
                prog_id: *prog_id,
                link_id: None,
                kind: AttachType(*hook).to_string(),
                target: path.as_os_str().as_encoded_bytes().to_vec(),
            }));
        }
    }
    found
}

/// Attach types of the cgroup hooks of a program type.
pub(crate) fn hooks(kind: ProgType) -> &'static [u32] {
    match kind {
        ProgType::CGROUP_SKB => &[0, 1],
        ProgType::CGROUP_SOCK => &[2, 12, 13, 34],
        ProgType::SOCK_OPS => &[3],
        ProgType::CGROUP_DEVICE => &[6],
        ProgType::CGROUP_SOCK_ADDR => &[8, 9, 10, 11, 14, 15, 19, 20, 29, 30, 31, 32, 49, 50, 51, 52, 53],
        ProgType::CGROUP_SYSCTL => &[18],
        ProgType::CGROUP_SOCKOPT => &[21, 22],
        _ => &[],
    }
}
