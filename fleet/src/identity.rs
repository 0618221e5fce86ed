//! Identity of a program across hosts, kernels and versions: type, full name and hooks.
//!
//! A hook is an attach point without the parts that differ between hosts. The class of an interface replaces its name. Ids are removed from
//! cgroup paths, maps, processes, programs and network namespaces. Functions and tracepoints stay. So a program on five physical interfaces has
//! the same hooks as on four.

use bprec_report::model::Program;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

/// Separator between the name of an interface and its network namespace.
const IN_NETWORK: &str = " in ";

/// Prefixes of interface names by class; the first match counts. Container networks name the host's end of a veth pair in various ways.
const CLASSES: [(&str, &[&str]); 5] = [
    ("veth", &["veth", "lxc", "cali", "azv", "eni", "gke", "vnet", "cilium_host", "cilium_net"]),
    ("bridge", &["br", "docker", "podman", "cni", "cbr", "virbr", "kube-bridge", "ovs"]),
    ("tunnel", &["tun", "tap", "ppp", "wg", "vxlan", "flannel", "cilium_", "geneve", "gre", "ipip", "sit", "ip6"]),
    ("dummy", &["dummy", "ifb", "nodelocaldns", "kube-ipvs", "nlmon"]),
    ("physical", &["eth", "en", "em", "bond", "team", "wl", "ww", "ib", "p", "net"]),
];

/// Suffixes that compilers add to names of functions.
const COMPILER_SUFFIXES: [&str; 5] = [".isra.", ".constprop.", ".part.", ".cold", ".llvm."];

/// Returns the key of a program: 16 hexadecimal digits.
pub(crate) fn prog_key(program: &Program) -> String {
    let prog_type = program.prog_type.map_or_else(String::new, |prog_type| prog_type.to_string());
    let hooks: BTreeSet<String> = program.attachments.iter().filter_map(|attachment| hook(attachment)).collect();
    let mut hash = Sha256::new();
    // Names may have any bytes, so each is preceded by its length.
    for text in [prog_type, program.label()].iter().chain(&hooks) {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    let key = hash.finalize()[..8].iter().fold(0, |key, byte| key << 8 | u64::from(*byte));
    format!("{key:016x}")
}

/// Returns the hook of an attach point, `kind:target` or `kind`. `None` for a perf event without a target: the kernel does not report the event.
fn hook(attachment: &str) -> Option<String> {
    let (kind, target) = kind_and_target(attachment);
    let target = match kind {
        "perf_event" if target.is_empty() => return None,
        _ if is_on_interface(kind) => class_of(target).to_owned(),
        _ if target.starts_with("net:[") => "netns".to_owned(),
        _ if kind.contains("cgroup") || is_cgroup(kind, target) => without_ids(target),
        _ if target.starts_with("map ") => target.splitn(3, ' ').nth(2).unwrap_or_default().to_owned(),
        "iter" => target.split(" of ").next().unwrap_or_default().to_owned(),
        "netfilter" => without_ids(target.split(IN_NETWORK).next().unwrap_or_default()),
        _ => functions(target),
    };
    Some(if target.is_empty() { kind.to_owned() } else { format!("{kind}:{target}") })
}

/// Splits an attach point into kind and target. The kind of a tc class ends in a colon: `tc_1:`.
fn kind_and_target(attachment: &str) -> (&str, &str) {
    let (kind, target) = attachment.split_once(':').unwrap_or((attachment, ""));
    match target.strip_prefix(':') {
        Some(target) => (kind, target),
        None => (kind, target),
    }
}

fn is_on_interface(kind: &str) -> bool {
    kind == "xdp" || ["xdp_", "xdp ", "tcx_", "tc_", "netkit_"].iter().any(|prefix| kind.starts_with(prefix))
}

/// Returns true if the target is the path of a cgroup, not of a probed file.
fn is_cgroup(kind: &str, target: &str) -> bool {
    target.starts_with('/') && !kind.contains("uprobe") && !kind.contains("uretprobe") && !kind.contains("usdt")
}

/// Returns the class of an interface.
fn class_of(target: &str) -> &'static str {
    let (name, network) = target.split_once(IN_NETWORK).map_or((target, None), |(name, network)| (name, Some(network)));
    if name == "lo" {
        return "lo";
    }
    // An interface in another network namespace is usually the container's end of a veth pair.
    if network.is_some() || name.ends_with(" of another namespace") {
        return "veth";
    }
    let is_of = |prefixes: &&[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    CLASSES.iter().find(|(_, prefixes)| is_of(prefixes)).map_or("other", |(class, _)| class)
}

/// Replaces ids in a path by `*`. An id is a decimal number, or at least eight hexadecimal digits with dashes and underscores between them.
fn without_ids(target: &str) -> String {
    let is_part = |c: char| c.is_ascii_hexdigit() || matches!(c, '-' | '_');
    let mut text = String::with_capacity(target.len());
    let mut rest = target;
    while let Some(first) = rest.chars().next() {
        let before = text.chars().last();
        let begins_word = before.is_none_or(|before| !before.is_ascii_alphanumeric());
        let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let id = rest[..length].trim_end_matches(['-', '_']);
        let digits = id.chars().filter(char::is_ascii_hexdigit).count();
        let number = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let is_id = digits >= 8 && id.contains(|c: char| c.is_ascii_digit());
        if is_id && first.is_ascii_hexdigit() && (begins_word || text.ends_with("pod")) {
            text.push('*');
            rest = &rest[id.len()..];
        } else if number > 0 {
            text.push('*');
            rest = &rest[number..];
        } else {
            text.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    text
}

/// Returns the functions of a probe without addresses, offsets, ids of programs, compiler suffixes and the count of unnamed functions.
fn functions(target: &str) -> String {
    let one = |text: &str| {
        let text = text.split_once(" of program ").map_or(text, |(name, _)| name);
        let is_number = text.split(' ').next().is_some_and(|word| word.parse::<u64>().is_ok());
        if text.starts_with("0x") || is_number {
            return None;
        }
        let text = text.split_once("+0x").map_or(text, |(name, _)| name);
        let end = COMPILER_SUFFIXES.iter().filter_map(|suffix| text.find(suffix)).min();
        Some(text[..end.unwrap_or(text.len())].to_owned())
    };
    target.split(", ").filter_map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_are_the_same_on_all_hosts() {
        for (attachments, expected) in [
            (&["xdp:eth0", "xdp:ens5", "xdp:bond0", "xdp:enp3s0f1"][..], Some("xdp:physical")),
            (&["tcx_ingress:lxc1a2b3c4d5e6f", "tcx_ingress:veth9f", "tcx_ingress:cali12ab"], Some("tcx_ingress:veth")),
            (&["tc_egress:eth0 in netns blue", "tc_egress:interface 7 of another namespace"], Some("tc_egress:veth")),
            (&["tc_1::eth0", "tc_1::ens5"], Some("tc_1:physical")),
            (&["xdp:lo"], Some("xdp:lo")),
            (&["tcx_ingress:docker0", "tcx_ingress:br-4f5a6b7c8d9e"], Some("tcx_ingress:bridge")),
            (&["sk_lookup:net:[4026532317]", "sk_lookup:net:[4026531840]"], Some("sk_lookup:netns")),
            (
                &[
                    "cgroup_inet_egress:/kubepods.slice/kubepods-pod0a1b2c3d_4e5f_6071_8293_a4b5c6d7e8f9.slice/cri-containerd-\
                     0123456789abcdef0123456789abcdef.scope",
                    "cgroup_inet_egress:/kubepods.slice/kubepods-podffeeddcc_0000_1111_2222_333344445555.slice/cri-containerd-\
                     fedcba9876543210fedcba9876543210.scope",
                ],
                Some("cgroup_inet_egress:/kubepods.slice/kubepods-pod*.slice/cri-containerd-*.scope"),
            ),
            (
                &[
                    "cgroup_device:/user.slice/user-1000.slice/session-12.scope",
                    "cgroup_device:/user.slice/user-7.slice/session-3.scope",
                ],
                Some("cgroup_device:/user.slice/user-*.slice/session-*.scope"),
            ),
            (&["cgroup_sysctl:/system.slice/sshd.service"], Some("cgroup_sysctl:/system.slice/sshd.service")),
            (
                &["kprobe:tcp_sendmsg", "kprobe:tcp_sendmsg+0x5", "kprobe:tcp_sendmsg.isra.0"],
                Some("kprobe:tcp_sendmsg"),
            ),
            (
                &["kprobe_multi:vfs_read, vfs_write, 3 more", "kprobe_multi:vfs_read, vfs_write, 8 more"],
                Some("kprobe_multi:vfs_read, vfs_write"),
            ),
            (&["uprobe:/usr/lib/libc.so.6:malloc"], Some("uprobe:/usr/lib/libc.so.6:malloc")),
            (&["tracepoint:sched:sched_switch"], Some("tracepoint:sched:sched_switch")),
            (&["sk_skb_verdict:map 12 sockets", "sk_skb_verdict:map 7 sockets"], Some("sk_skb_verdict:sockets")),
            (&["iter:task of thread 12", "iter:task"], Some("iter:task")),
            (&["freplace:part of program 12", "freplace:part of program 88"], Some("freplace:part")),
            (&["perf_event"], None),
        ] {
            for attachment in attachments {
                assert_eq!(hook(attachment).as_deref(), expected, "{attachment}");
            }
        }
    }
}
