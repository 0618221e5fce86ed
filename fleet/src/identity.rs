//! Identity of a program across hosts, kernels and versions: type, full name, and source file, or else hooks.
//!
//! A hook is an attach point without the parts that differ between hosts, kernels and builds. Recordings mark the names in an attach point by kind:
//! functions, tracepoints, maps and base names of files stay, ids are removed from cgroup paths, and network namespaces, processes and offsets are
//! left out. The class of an interface replaces its name. Recordings of older versions have no marks: there, the whole target counts as words.

use bprec_report::format::Secret;
use bprec_report::model::{Attachment, OwnerBill, OwnerKind, Program};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

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
/// Words of the recorder, with all that follows them: processes, programs, namespaces, modules, offsets, and indexes of maps.
const LEFT_OUT: [&str; 6] = [" of ", " in ", " [", "net:[", "+0x", "["];
/// Ends of words that count the other functions of a probe. The named functions are the first by address, so they differ between kernels.
const COUNTS: [&str; 3] = [" more", " function", " functions"];
/// Characters of the random ends that Kubernetes gives to names of pods: five of them, after a dash.
const RANDOM_END: &str = "bcdfghjklmnpqrstvwxz2456789";
/// Beginnings of words before a name, or in place of an unknown name.
const HEADS: [&str; 4] = ["map ", "cgroup ", "0x", ", "];

/// Returns the key of a program: 16 hexadecimal digits. If the source file is known, the hooks are not a part of the key: old kernels show only some
/// of them, and a loaded program may be attached later.
pub(crate) fn prog_key(program: &Program) -> String {
    let prog_type = program.prog_type.map_or_else(String::new, |prog_type| prog_type.to_string());
    let hooks = program.attachments.iter().filter_map(key_hook);
    let place = program.source_file.clone().map_or_else(|| hooks.collect(), |file| BTreeSet::from([file.into()]));
    let mut hash = Sha256::new();
    // Names may have any bytes, so each is preceded by its length.
    for text in [prog_type, program.label()].iter().chain(&place) {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    hex::encode(&hash.finalize()[..8])
}

/// Returns the hook as it is a part of the key. The class of an interface is left out, as the interfaces of a program differ between hosts. A perf
/// event is left out as a whole: before Linux 6.6, the kernel reports neither the event nor, for a probe, its function.
fn key_hook(attachment: &Attachment) -> Option<String> {
    match hook(attachment) {
        _ if attachment.kind == "perf_event" => None,
        Some(hook) if !is_on_interface(&attachment.kind) => Some(format!("{}:{hook}", attachment.kind)),
        _ => Some(attachment.kind.clone()),
    }
}

/// Returns the target of an attach point without the parts that differ between hosts. `None` if nothing is left.
pub(crate) fn hook(attachment: &Attachment) -> Option<String> {
    let Attachment { kind, target } = attachment;
    if is_on_interface(kind) {
        return Some(class_of(&String::from_utf8_lossy(target.text())).to_owned());
    }
    let mut hook = String::new();
    let mut functions = BTreeSet::new();
    for (name, bytes) in target.parts() {
        let text = String::from_utf8_lossy(bytes);
        let is_words = matches!(name, None | Some(Secret::AttachTarget));
        let end = LEFT_OUT.iter().filter(|_| is_words).filter_map(|word| text.find(word)).min();
        let part = &text[..end.unwrap_or(text.len())];
        match name {
            Some(Secret::Symbol | Secret::Program) => drop(functions.insert(function(part).to_owned())),
            Some(Secret::Cgroup) => hook += &without_ids(part),
            Some(Secret::Path) => hook += base_name(part),
            _ if is_words && COUNTS.iter().any(|end| part.ends_with(end)) => return None,
            _ if is_words && HEADS.iter().any(|head| part.starts_with(head)) => {}
            Some(Secret::AttachTarget) if part.starts_with('/') && kind.contains("probe") => hook += base_name(part),
            Some(Secret::AttachTarget) if part.starts_with('/') => hook += &without_ids(part),
            None | Some(Secret::AttachTarget | Secret::Map | Secret::Event) => hook += function(part),
            Some(_) => {}
        }
        if end.is_some() {
            break;
        }
    }
    hook += &functions.into_iter().collect::<Vec<_>>().join(", ");
    Some(hook).filter(|hook| !hook.is_empty())
}

fn is_on_interface(kind: &str) -> bool {
    kind == "xdp" || ["tcx_", "tc_", "netkit_"].iter().any(|prefix| kind.starts_with(prefix))
}

/// Returns the class of an interface. An interface in another network namespace is usually the container's end of a veth pair.
fn class_of(target: &str) -> &'static str {
    let is_of = |prefixes: &&[&str]| prefixes.iter().any(|prefix| target.starts_with(prefix));
    match target {
        "lo" => "lo",
        _ if target.contains(" in ") || target.ends_with(" of another namespace") => "veth",
        _ => CLASSES.iter().find(|(_, prefixes)| is_of(prefixes)).map_or("other", |(class, _)| class),
    }
}

/// Returns the name of a function as in its source.
fn function(name: &str) -> &str {
    let end = COMPILER_SUFFIXES.iter().filter_map(|suffix| name.find(suffix)).min();
    &name[..end.unwrap_or(name.len())]
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Replaces ids in a path by `*`. An id is a decimal number, or at least eight hexadecimal digits with dashes and underscores between them.
fn without_ids(path: &str) -> String {
    let is_part = |c: char| c.is_ascii_hexdigit() || matches!(c, '-' | '_');
    let mut text = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(first) = rest.chars().next() {
        let before = text.chars().last();
        let begins_word = before.is_none_or(|before| !before.is_ascii_alphanumeric()) || text.ends_with("pod");
        let id = rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())].trim_end_matches(['-', '_']);
        let is_id = begins_word
            && first.is_ascii_hexdigit()
            && id.contains(|c: char| c.is_ascii_digit())
            && id.chars().filter(char::is_ascii_hexdigit).count() >= 8;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let length = if is_id { id.len() } else { digits };
        match length {
            0 => text.push(first),
            _ => text.push('*'),
        }
        rest = &rest[length.max(first.len_utf8())..];
    }
    text
}

/// Returns the name of an owner of programs without ids of processes and containers, and without the random ends of pods' names.
pub(crate) fn owner_name(owner: &OwnerBill) -> String {
    let holder = |name: &str| match owner.kind {
        OwnerKind::Process => name.rsplit_once('/').map_or(name, |(comm, _)| comm).to_owned(),
        OwnerKind::Container => name.split('/').map(without_random_end).collect::<Vec<_>>().join("/"),
        _ => without_ids(name),
    };
    let holders: BTreeSet<String> = owner.name.split(", ").map(holder).collect();
    holders.into_iter().collect::<Vec<_>>().join(", ")
}

fn without_random_end(name: &str) -> String {
    let is_random = |end: &str| end.len() == 5 && end.chars().all(|c| RANDOM_END.contains(c));
    match name.rsplit_once('-').filter(|(_, end)| is_random(end)) {
        Some((stem, _)) => without_ids(stem) + "-*",
        None => without_ids(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bprec_report::format::bprec::state::AttachTarget;

    fn words(words: &str) -> AttachTarget {
        AttachTarget::default().words(words)
    }

    fn name(kind: Secret, name: &str) -> AttachTarget {
        AttachTarget::default().name(kind, name)
    }

    #[test]
    fn owners_are_the_same_on_all_hosts() {
        for (name, expected) in [
            ("web-7d4b9c6f5-x2xbz", "web-*-*"),
            ("cilium-k8sgw", "cilium-*"),
            ("kube-proxy", "kube-proxy"),
            ("docker:0123456789ab", "docker:*"),
        ] {
            assert_eq!(without_random_end(name), expected);
        }
    }

    /// Attach points of the same hook on several hosts, as the recorder writes them.
    #[test]
    fn hooks_are_the_same_on_all_hosts() {
        let symbol = |text| name(Secret::Symbol, text);
        let network =
            |target: AttachTarget| target.words("net:[").name(Secret::NamespaceNumber, "4026532317").words("]");
        let cgroup = |pod: &str, container: &str| {
            let path = format!("/kubepods.slice/kubepods-pod{pod}.slice/cri-containerd-{container}.scope");
            name(Secret::Cgroup, &path)
        };
        let pod = ["0a1b2c3d_4e5f_6071_8293_a4b5c6d7e8f9", "ffeeddcc_0000_1111_2222_333344445555"];
        let container = ["0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"];
        for (kind, targets, expected) in [
            ("xdp", vec![words("eth0"), words("ens5"), words("bond0"), words("enp3s0f1")], Some("physical")),
            ("tcx_ingress", vec![words("lxc1a2b3c4d5e6f"), words("veth9f"), words("cali12ab")], Some("veth")),
            (
                "tc_egress",
                vec![
                    words("eth0 in netns ").name(Secret::NetworkNamespace, "blue"),
                    network(words("eth0 in ")).words(" of process 7 (").name(Secret::Comm, "nginx").words(")"),
                    words("interface 7 of another namespace"),
                ],
                Some("veth"),
            ),
            ("xdp", vec![words("lo")], Some("lo")),
            ("tcx_ingress", vec![words("docker0"), words("br-4f5a6b7c8d9e")], Some("bridge")),
            ("sk_lookup", vec![network(AttachTarget::default())], None),
            (
                "cgroup_inet_egress",
                vec![cgroup(pod[0], container[0]), cgroup(pod[1], container[1])],
                Some("/kubepods.slice/kubepods-pod*.slice/cri-containerd-*.scope"),
            ),
            (
                "cgroup_device",
                vec![
                    name(Secret::Cgroup, "/user.slice/user-1000.slice/session-12.scope"),
                    name(Secret::Cgroup, "/user.slice/user-7.slice/session-3.scope"),
                ],
                Some("/user.slice/user-*.slice/session-*.scope"),
            ),
            (
                "cgroup_sysctl",
                vec![name(Secret::Cgroup, "/system.slice/sshd.service")],
                Some("/system.slice/sshd.service"),
            ),
            ("cgroup_device", vec![words("cgroup 7"), words("cgroup 1234")], None),
            (
                "kprobe",
                vec![symbol("tcp_sendmsg"), symbol("tcp_sendmsg").words("+0x5"), symbol("tcp_sendmsg.isra.0")],
                Some("tcp_sendmsg"),
            ),
            (
                "kprobe_multi",
                vec![
                    symbol("vfs_read").words(", ").name(Secret::Symbol, "vfs_write"),
                    symbol("vfs_write").words(", ").name(Secret::Symbol, "vfs_read"),
                ],
                Some("vfs_read, vfs_write"),
            ),
            (
                "kprobe_multi",
                vec![symbol("vfs_read").words(", 3 more"), symbol("vfs_open").words(", 8 more"), words("1 function")],
                None,
            ),
            ("fentry", vec![symbol("nf_hook"), symbol("nf_hook").words(" [nf]")], Some("nf_hook")),
            (
                "uprobe",
                vec![
                    name(Secret::Path, "/usr/lib/libc.so.6").words("+0x9d850"),
                    name(Secret::Path, "/opt/lib64/libc.so.6").words("+0x10 of process 7"),
                ],
                Some("libc.so.6"),
            ),
            ("tracepoint", vec![words("syscalls:sys_enter_dup2")], Some("syscalls:sys_enter_dup2")),
            (
                "sk_skb_verdict",
                vec![words("map 12 ").name(Secret::Map, "sockets"), words("map 7 ").name(Secret::Map, "sockets")],
                Some("sockets"),
            ),
            (
                "struct_ops",
                vec![words("tcp_congestion_ops ").name(Secret::Map, "cubic").words(".init")],
                Some("tcp_congestion_ops cubic.init"),
            ),
            (
                "tail_call",
                vec![name(Secret::Map, "jumps").words("[3]"), name(Secret::Map, "jumps").words("[4]")],
                Some("jumps"),
            ),
            ("iter", vec![words("task of thread 12"), words("task")], Some("task")),
            (
                "freplace",
                vec![
                    name(Secret::Program, "part").words(" of program 12"),
                    name(Secret::Program, "part").words(" of program 88"),
                ],
                Some("part"),
            ),
            ("perf_event", vec![AttachTarget::default()], None),
        ] {
            for target in targets {
                let attachment = Attachment { kind: kind.to_owned(), target };
                assert_eq!(hook(&attachment).as_deref(), expected, "{attachment}");
            }
        }
    }

    /// Recordings of older versions have the whole target as one name. Their hooks equal those of marked targets, but for targets of several parts.
    #[test]
    fn targets_without_marks_have_hooks() {
        for (kind, target, expected) in [
            ("xdp", "eth0", Some("physical")),
            ("kprobe", "tcp_sendmsg.isra.0+0x5", Some("tcp_sendmsg")),
            ("kprobe", "0xffffffff81000000", None),
            ("kprobe_multi", "vfs_read, vfs_write, 3 more", None),
            ("uprobe", "/usr/lib/libc.so.6+0x10 of process 8", Some("libc.so.6")),
            ("tracepoint", "sched:sched_switch", Some("sched:sched_switch")),
            (
                "cgroup_device",
                "/user.slice/user-7.slice/session-3.scope",
                Some("/user.slice/user-*.slice/session-*.scope"),
            ),
            ("sk_lookup", "net:[4026532317]", None),
            ("sk_skb_verdict", "map 12 sockets", None),
            ("tail_call", "jumps[3]", Some("jumps")),
            ("freplace", "part of program 12", Some("part")),
        ] {
            let attachment = Attachment { kind: kind.to_owned(), target: name(Secret::AttachTarget, target) };
            assert_eq!(hook(&attachment).as_deref(), expected, "{attachment}");
        }
    }

    #[test]
    fn interfaces_and_events_are_in_no_key() {
        for (kind, target, expected) in [
            ("xdp", words("eth0"), Some("xdp")),
            ("xdp", words("lo"), Some("xdp")),
            ("perf_event", name(Secret::Event, "cpu-clock"), None),
            ("raw_tracepoint", words("sched_switch"), Some("raw_tracepoint:sched_switch")),
            ("cgroup_skb", AttachTarget::default(), Some("cgroup_skb")),
        ] {
            assert_eq!(key_hook(&Attachment { kind: kind.to_owned(), target }).as_deref(), expected);
        }
    }
}
