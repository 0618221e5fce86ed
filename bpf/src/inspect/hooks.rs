//! Programs attached without a link to hooks of cgroups, interfaces, a network namespace and sockmaps, from `BPF_PROG_QUERY`.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use bprec_format::Secret;
use bprec_format::bpf::names::{AttachType, MapType, ProgType};
use bprec_format::bprec::state::{AttachTarget, Attachment};
use bprec_host::Cgroups;

use crate::inspect::maps::map_ids;
use crate::inspect::net::Interface;
use crate::inspect::other_networks;
use crate::sys::{self, HookOf, Kind};

/// `BPF_CGROUP_MAX_PROGS` and `BPF_MPROG_MAX`: the kernel allows no more programs at one hook.
const MAX_PROGS: usize = 64;
/// Hooks of an interface: `BPF_TCX_INGRESS`, `BPF_TCX_EGRESS`, `BPF_NETKIT_PRIMARY`, `BPF_NETKIT_PEER`.
pub(crate) const INTERFACE_HOOKS: [u32; 4] = [46, 47, 54, 55];
/// Hooks of a sockmap: `BPF_SK_SKB_STREAM_PARSER`, `BPF_SK_SKB_STREAM_VERDICT`, `BPF_SK_MSG_VERDICT`, `BPF_SK_SKB_VERDICT`.
const SOCKMAP_HOOKS: [u32; 4] = [4, 5, 7, 38];

/// Ids of the programs at a hook; empty if the kernel refuses the query, for example because it has no such hook or the cgroup was removed.
pub(crate) fn programs(hook: HookOf<'_>, attach_type: u32) -> Vec<u32> {
    let mut ids = [0u32; MAX_PROGS];
    let count = sys::attached_progs(hook, attach_type, &mut ids).unwrap_or(0);
    ids[..count].to_vec()
}

/// Programs at these hooks of one cgroup, interface, namespace or map.
fn attachments(of: HookOf<'_>, hooks: &[u32], target: &AttachTarget) -> Vec<Attachment> {
    let at = |hook: &u32| {
        let kind = AttachType(*hook).to_string();
        let attachment =
            move |prog_id| Attachment { prog_id, link_id: None, kind: kind.clone(), target: target.clone() };
        programs(of, *hook).into_iter().map(attachment)
    };
    hooks.iter().flat_map(at).collect()
}

/// Programs attached to any cgroup at these hooks (`BPF_CGROUP_*`).
pub(crate) fn cgroup_attachments(cgroups: &Cgroups, hooks: &[u32]) -> Vec<Attachment> {
    let opened = cgroups.iter().filter_map(|(_, path)| Some((path, File::open(cgroups.directory(path)).ok()?)));
    let of = |(path, directory): (&std::path::Path, File)| {
        let target = AttachTarget::default().name(Secret::Cgroup, path.as_os_str().as_encoded_bytes());
        attachments(HookOf::Descriptor(directory.as_fd()), hooks, &target)
    };
    opened.flat_map(of).collect()
}

/// Programs at tcx and netkit hooks of interfaces.
pub(crate) fn interface_attachments(interfaces: &[Interface]) -> Vec<Attachment> {
    let of = |interface: &Interface| {
        attachments(
            HookOf::Interface(interface.index),
            &INTERFACE_HOOKS,
            &AttachTarget::default().words(&interface.name),
        )
    };
    interfaces.iter().flat_map(of).collect()
}

/// The flow dissector of the calling thread's network namespace.
pub(crate) fn dissectors() -> Vec<Attachment> {
    let Ok(namespace) = File::open("/proc/thread-self/ns/net") else { return Vec::new() };
    let target = namespace
        .metadata()
        .map(|about| other_networks::network(AttachTarget::default(), about.ino()))
        .unwrap_or_default();
    attachments(HookOf::Descriptor(namespace.as_fd()), &[AttachType::FLOW_DISSECTOR.0], &target)
}

/// Programs of sockmaps and sockhashes; empty before Linux 5.18, which cannot query these maps.
pub(crate) fn sockmap_attachments(name_of: impl Fn(u32) -> AttachTarget) -> Vec<Attachment> {
    let of = |id: u32| {
        let map = sys::fd_by_id(Kind::Map, id).ok()?;
        let map_type = MapType(sys::map_info(map.as_fd(), id).ok()?.type_);
        let has_hooks = [MapType::SOCKMAP, MapType::SOCKHASH].contains(&map_type);
        has_hooks.then(|| attachments(HookOf::Descriptor(map.as_fd()), &SOCKMAP_HOOKS, &name_of(id)))
    };
    map_ids().map_while(Result::ok).filter_map(of).flatten().collect()
}

/// Attach types of the cgroup hooks of a program type.
pub(crate) fn of_cgroups(kind: ProgType) -> &'static [u32] {
    match kind {
        ProgType::CGROUP_SKB => &[0, 1],
        ProgType::CGROUP_SOCK => &[2, 12, 13, 34],
        ProgType::SOCK_OPS => &[3],
        ProgType::CGROUP_DEVICE => &[6],
        ProgType::CGROUP_SOCK_ADDR => &[8, 9, 10, 11, 14, 15, 19, 20, 29, 30, 31, 32, 49, 50, 51, 52, 53],
        ProgType::CGROUP_SYSCTL => &[18],
        ProgType::CGROUP_SOCKOPT => &[21, 22],
        ProgType::LSM => &[43],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_have_the_numbers_of_their_names() {
        let names = INTERFACE_HOOKS.map(|hook| AttachType(hook).to_string());
        assert_eq!(names, ["tcx_ingress", "tcx_egress", "netkit_primary", "netkit_peer"]);
        let names = SOCKMAP_HOOKS.map(|hook| AttachType(hook).to_string());
        assert_eq!(names, ["sk_skb_stream_parser", "sk_skb_stream_verdict", "sk_msg_verdict", "sk_skb_verdict"]);
        assert_eq!(
            of_cgroups(ProgType::LSM).iter().map(|hook| AttachType(*hook).to_string()).collect::<Vec<_>>(),
            ["lsm_cgroup"]
        );
    }
}
