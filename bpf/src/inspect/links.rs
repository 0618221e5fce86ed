//! BPF links: the program and the attach point of each.

use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;

use bprec_format::Secret;
use bprec_format::bpf::names::{AttachType, LinkType};
use bprec_format::bprec::state::{AttachTarget, Attachment, KernelSymbol, LinkMisses};

use crate::error::Result;
use crate::inspect::btf::BtfCache;
use crate::inspect::kallsyms::Kallsyms;
use crate::inspect::names::{self, Names};
use crate::inspect::tracing::{self, TracedFunction};
use crate::inspect::{other_networks, struct_ops};
use crate::sys::{self, Kind, LinkArrays, LinkInfo, TracingMulti, link_field};

/// Attachments by links, and the links that could not be read.
#[derive(Debug, Default)]
pub struct Links {
    /// Attachment for each pair of program and attach point.
    pub attachments: Vec<Attachment>,
    /// Objects that could not be read, each with the reason.
    pub problems: Vec<String>,
}

/// Reads all links. If a link cannot be read, the reason is added to the problems. Names of kernel functions come from `kallsyms` if no module has
/// changed since it was read; otherwise the table is read again.
///
/// # Errors
/// Fails if links cannot be listed: EPERM without CAP_SYS_ADMIN, EINVAL before Linux 5.8.
pub fn links(names: &Names, btfs: &BtfCache, kallsyms: Option<&Kallsyms>) -> Result<Links> {
    let mut found = Links::default();
    let mut infos = Vec::new();
    for id in sys::ids(Kind::Link) {
        let id = match id {
            Ok(id) => id,
            Err(error) if infos.is_empty() => return Err(error),
            Err(error) => {
                found.problems.push(error.to_string());
                break;
            }
        };
        match Info::of(id) {
            Ok(info) => infos.push(info),
            Err(error) if error.is_gone() => {}
            Err(error) => found.problems.push(error.to_string()),
        }
    }
    // Kernel BTF and kallsyms are large: each is read once for all links, and only if a link needs it.
    let targets: Vec<TracedFunction> =
        infos.iter().flat_map(|info| info.target.into_iter().chain(info.multi_targets())).collect();
    let target_names = if targets.is_empty() { HashMap::new() } else { tracing::names(&targets, btfs) };
    let addresses: Vec<u64> = infos.iter().flat_map(|info| info.kernel_addresses()).copied().collect();
    let current = kallsyms.filter(|kallsyms| kallsyms.has_current_modules());
    let functions = match current {
        _ if addresses.iter().all(|addr| *addr == 0) => Ok(Vec::new()),
        Some(kallsyms) => Ok(kallsyms.functions_at(&addresses)),
        None => Kallsyms::read_without_bpf().map(|kallsyms| kallsyms.functions_at(&addresses)),
    };
    let functions = functions.unwrap_or_else(|error| {
        found.problems.push(error.to_string());
        Vec::new()
    });
    for info in infos {
        if info.link_type() == LinkType::STRUCT_OPS {
            match struct_ops::attachments(info.u32(link_field!(struct_ops.map_id)).unwrap_or(0), info.id()) {
                Ok(members) => found.attachments.extend(members),
                Err(error) => found.problems.push(error.to_string()),
            }
            continue;
        }
        if info.link_type() == LinkType::TRACING_MULTI {
            found.attachments.extend(info.multi_attachments(&target_names));
            continue;
        }
        let (kind, target) = match info.target {
            Some(target) => (info.tracing_kind(), target_names.get(&target).cloned().unwrap_or_default()),
            None => decode(&info, &functions, names),
        };
        let (prog_id, link_id) = (info.prog_id(), Some(info.id()));
        found.attachments.push(Attachment { prog_id, link_id, kind, target });
    }
    Ok(found)
}

/// Programs with a function that an extension (freplace) has replaced.
pub(crate) fn extended() -> Result<HashSet<u32>> {
    let mut extended = HashSet::new();
    for info in untargeted() {
        let info = info?;
        if info.link_type() == LinkType::TRACING && info.tracing_kind() == FREPLACE {
            extended.extend(info.u32(link_field!(tracing.target_obj_id)));
        }
    }
    Ok(extended)
}

/// Hits of kprobes that ran no program, by link: `last` is the count since the attachment, `first` is 0. Empty before Linux 6.7, which does not show
/// them.
///
/// # Errors
/// Fails if links cannot be listed or read, see [`links`].
pub fn probe_misses() -> Result<Vec<LinkMisses>> {
    let misses = untargeted().filter_map(|info| {
        let link = |info: Info| {
            Some(LinkMisses { link_id: info.id(), prog_id: info.prog_id(), first: 0, last: Some(info.misses()?) })
        };
        info.map(link).transpose()
    });
    misses.collect()
}

/// Infos of all links; [`Info::target`] is `None` in all of them. A link that is removed meanwhile is left out.
fn untargeted() -> impl Iterator<Item = Result<Info>> {
    let read = |id| {
        let fd = sys::fd_by_id(Kind::Link, id)?;
        let (info, arrays) = sys::link_info(fd.as_fd(), id)?;
        Ok(Info { info, arrays, target: None })
    };
    sys::ids(Kind::Link).map(move |id| id.and_then(read)).filter(|info| !info.as_ref().is_err_and(|it| it.is_gone()))
}

/// Info block of a link with its arrays.
struct Info {
    info: LinkInfo,
    arrays: LinkArrays,
    /// Traced object of a tracing link; `None` for other links, or if the object is unknown.
    target: Option<TracedFunction>,
}

impl Info {
    fn of(id: u32) -> Result<Info> {
        let fd = sys::fd_by_id(Kind::Link, id)?;
        let (info, arrays) = sys::link_info(fd.as_fd(), id)?;
        let mut info = Info { info, arrays, target: None };
        if info.link_type() == LinkType::TRACING {
            let is_extension = info.tracing_kind() == FREPLACE;
            let object_id = info.u32(link_field!(tracing.target_obj_id)).unwrap_or(0);
            let type_id = info.u32(link_field!(tracing.target_btf_id)).unwrap_or(0);
            info.target = TracedFunction::of_link(info.prog_id(), is_extension, object_id, type_id);
        }
        Ok(info)
    }

    fn u32(&self, at: usize) -> Option<u32> {
        self.info.u32(at)
    }

    fn u64(&self, at: usize) -> Option<u64> {
        self.info.u64(at)
    }

    fn link_type(&self) -> LinkType {
        LinkType(self.info.link_type())
    }

    fn id(&self) -> u32 {
        self.info.id()
    }

    fn prog_id(&self) -> u32 {
        self.info.prog_id()
    }

    fn name(&self) -> Option<&[u8]> {
        self.arrays.name.as_deref()
    }

    /// Number of hits of the link's kprobes that ran no program; `None` for other links, and before Linux 6.7.
    fn misses(&self) -> Option<u64> {
        // Linux 6.7 added `missed` to both link types. Only the field of perf events lies beyond the end of the older structure, so its presence
        // shows that the kernel also has the field of kprobe.multi.
        let of_perf_event = self.u64(link_field!(perf_event.__bindgen_anon_1.kprobe.missed))?;
        match self.link_type() {
            LinkType::PERF_EVENT => {
                let kind = self.u32(link_field!(perf_event.type_)).and_then(ProbeKind::of);
                matches!(kind, Some(ProbeKind::Kprobe | ProbeKind::Kretprobe)).then_some(of_perf_event)
            }
            LinkType::KPROBE_MULTI => self.u64(link_field!(kprobe_multi.missed)),
            _ => None,
        }
    }

    fn tracing_kind(&self) -> String {
        match self.u32(link_field!(tracing.attach_type)).map(AttachType) {
            Some(AttachType::TRACE_RAW_TP) => "tp_btf".to_owned(),
            Some(AttachType::TRACE_FENTRY) => "fentry".to_owned(),
            Some(AttachType::TRACE_FEXIT) => "fexit".to_owned(),
            Some(AttachType::TRACE_FSESSION) => "fsession".to_owned(),
            Some(AttachType::MODIFY_RETURN) => "fmod_ret".to_owned(),
            Some(AttachType::LSM_MAC) => "lsm".to_owned(),
            // Extensions have no attach type of their own.
            Some(AttachType(0)) => FREPLACE.to_owned(),
            Some(other) => other.to_string(),
            None => "tracing".to_owned(),
        }
    }

    /// Functions of a `tracing_multi` link, up to the limit of [`sys::link_info`].
    fn multi_targets(&self) -> impl Iterator<Item = TracedFunction> + '_ {
        let object_id = self.u32(TracingMulti::BTF_OBJ_ID).unwrap_or(0);
        self.arrays.types.iter().map(move |type_id| TracedFunction::Kernel(object_id, *type_id))
    }

    /// Returns one attachment for each named function of a `tracing_multi` link, and one attachment ("3 more") for all other functions.
    fn multi_attachments(&self, names: &HashMap<TracedFunction, AttachTarget>) -> Vec<Attachment> {
        let kind = match self.u32(TracingMulti::ATTACH_TYPE).map(AttachType) {
            Some(AttachType::TRACE_FEXIT_MULTI) => "fexit_multi",
            Some(AttachType::TRACE_FSESSION_MULTI) => "fsession_multi",
            _ => "fentry_multi",
        };
        let mut targets: Vec<AttachTarget> =
            self.multi_targets().filter_map(|target| names.get(&target).cloned()).collect();
        let more = (self.u32(TracingMulti::COUNT).unwrap_or(0) as usize).saturating_sub(targets.len());
        if more > 0 || targets.is_empty() {
            targets.push(AttachTarget::default().words(format!("{more} more")));
        }
        let attachment =
            |target| Attachment { prog_id: self.prog_id(), link_id: Some(self.id()), kind: kind.to_owned(), target };
        targets.into_iter().map(attachment).collect()
    }

    /// Addresses of the kernel functions that a kprobe.multi link is attached to.
    fn kernel_addresses(&self) -> &[u64] {
        if self.link_type() == LinkType::KPROBE_MULTI { &self.arrays.addresses } else { &[] }
    }
}

const FREPLACE: &str = "freplace";

/// Kind and target of a link; the target is empty if the kernel does not show it.
fn decode(info: &Info, functions: &[KernelSymbol], names: &Names) -> (String, AttachTarget) {
    let field = |at| info.u32(at).unwrap_or(0);
    let plain = |kind: &str, target: Option<AttachTarget>| (kind.to_owned(), target.unwrap_or_default());
    match info.link_type() {
        LinkType::RAW_TRACEPOINT => {
            plain("raw_tracepoint", info.name().map(|name| AttachTarget::default().words(name)))
        }
        // The caller handles tracing links with a known target.
        LinkType::TRACING => (info.tracing_kind(), AttachTarget::default()),
        LinkType::CGROUP => (
            AttachType(field(link_field!(cgroup.attach_type))).to_string(),
            info.u64(link_field!(cgroup.cgroup_id))
                .filter(|id| *id != 0)
                .map(|id| names.cgroup(id))
                .unwrap_or_default(),
        ),
        LinkType::ITER => plain("iter", iter_target(info)),
        LinkType::NETNS => (
            AttachType(field(link_field!(netns.attach_type))).to_string(),
            other_networks::network(AttachTarget::default(), field(link_field!(netns.netns_ino)).into()),
        ),
        LinkType::XDP => plain("xdp", interface(info, names)),
        LinkType::TCX | LinkType::NETKIT => {
            (AttachType(field(link_field!(tcx.attach_type))).to_string(), interface(info, names).unwrap_or_default())
        }
        LinkType::PERF_EVENT => perf_event(info, names),
        LinkType::KPROBE_MULTI => {
            const BPF_F_KPROBE_MULTI_RETURN: u32 = 1;
            let is_return = field(link_field!(kprobe_multi.flags)) & BPF_F_KPROBE_MULTI_RETURN != 0;
            let kind = if is_return { "kretprobe_multi" } else { "kprobe_multi" };
            (kind.to_owned(), kprobes(info, functions))
        }
        LinkType::UPROBE_MULTI => {
            const BPF_F_UPROBE_MULTI_RETURN: u32 = 1;
            let is_return = field(link_field!(uprobe_multi.flags)) & BPF_F_UPROBE_MULTI_RETURN != 0;
            let kind = if is_return { "uretprobe_multi" } else { "uprobe_multi" };
            (kind.to_owned(), uprobes(info))
        }
        LinkType::NETFILTER => plain("netfilter", Some(AttachTarget::default().words(netfilter(info)))),
        LinkType::SOCKMAP => (
            AttachType(field(link_field!(sockmap.attach_type))).to_string(),
            names.map(field(link_field!(sockmap.map_id))),
        ),
        other => plain(&other.to_string(), None),
    }
}

fn interface(info: &Info, names: &Names) -> Option<AttachTarget> {
    // XDP, tcx and netkit links have the interface index at the same offset; XDP has no attach type.
    let index = info.u32(link_field!(tcx.ifindex)).filter(|index| *index != 0)?;
    let attach_type = info.u32(link_field!(tcx.attach_type)).unwrap_or(0);
    Some(names.interface(index, info.link_type(), attach_type, info.prog_id()))
}

fn iter_target(info: &Info) -> Option<AttachTarget> {
    let name = info.name()?;
    let target = AttachTarget::default().words(name);
    if name.starts_with(b"bpf_map_elem") || name.ends_with(b"sk_storage_map") {
        let map_id = info.u32(link_field!(iter.__bindgen_anon_1.map.map_id))?;
        return Some(target.words(format!(" of map {map_id}")));
    }
    if name.starts_with(b"task") {
        let tid = info.u32(link_field!(iter.__bindgen_anon_2.task.tid)).unwrap_or(0);
        let pid = info.u32(link_field!(iter.__bindgen_anon_2.task.pid)).unwrap_or(0);
        if tid != 0 {
            return Some(target.words(format!(" of thread {tid}")));
        }
        if pid != 0 {
            return Some(target.words(format!(" of process {pid}")));
        }
    }
    Some(target)
}

/// Kind and target of a link on a perf event; before Linux 6.6 without a target.
fn perf_event(info: &Info, names: &Names) -> (String, AttachTarget) {
    let link_kind = info.u32(link_field!(perf_event.type_));
    let kind = match link_kind.and_then(ProbeKind::of) {
        Some(kind) => kind,
        None if link_kind == Some(6) => {
            let kind = info.u32(link_field!(perf_event.__bindgen_anon_1.event.type_));
            let config = info.u64(link_field!(perf_event.__bindgen_anon_1.event.config));
            let name = kind.zip(config).map(|(kind, config)| names::perf_event(kind, config));
            return ("perf_event".to_owned(), AttachTarget::default().name(Secret::Event, name.unwrap_or_default()));
        }
        None => return ("perf_event".to_owned(), AttachTarget::default()),
    };
    let offset = info.u32(link_field!(perf_event.__bindgen_anon_1.kprobe.offset)).unwrap_or(0).into();
    let addr = info
        .u64(link_field!(perf_event.__bindgen_anon_1.kprobe.addr))
        .filter(|_| matches!(kind, ProbeKind::Kprobe | ProbeKind::Kretprobe))
        .unwrap_or(0);
    (kind.name().to_owned(), kind.target(info.name(), offset, addr, names))
}

/// Kind of a tracing perf event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeKind {
    Tracepoint,
    Kprobe,
    Kretprobe,
    Uprobe,
    Uretprobe,
}

impl ProbeKind {
    /// Kind of a perf event link with this `enum bpf_perf_event_type`; `None` for an event that is no probe.
    fn of(link_kind: u32) -> Option<ProbeKind> {
        Some(match link_kind {
            1 => ProbeKind::Uprobe,
            2 => ProbeKind::Uretprobe,
            3 => ProbeKind::Kprobe,
            4 => ProbeKind::Kretprobe,
            5 => ProbeKind::Tracepoint,
            _ => return None,
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            ProbeKind::Tracepoint => "tracepoint",
            ProbeKind::Kprobe => "kprobe",
            ProbeKind::Kretprobe => "kretprobe",
            ProbeKind::Uprobe => "uprobe",
            ProbeKind::Uretprobe => "uretprobe",
        }
    }

    /// Attach point as text: `sched:sched_switch`, `do_exit`, `do_exit+0x10`, `/bin/bash+0x1234`.
    pub(crate) fn target(self, name: Option<&[u8]>, offset: u64, addr: u64, names: &Names) -> AttachTarget {
        let target = AttachTarget::default();
        match (self, name.filter(|name| !name.is_empty())) {
            (ProbeKind::Tracepoint, Some(name)) => target.words(names.tracepoint(&String::from_utf8_lossy(name))),
            (ProbeKind::Tracepoint, None) => target,
            (ProbeKind::Uprobe | ProbeKind::Uretprobe, Some(path)) => {
                target.name(Secret::Path, path).words(format!("+{offset:#x}"))
            }
            (_, Some(function)) if offset == 0 => target.name(Secret::Symbol, function),
            (_, Some(function)) => target.name(Secret::Symbol, function).words(format!("+{offset:#x}")),
            (_, None) if addr != 0 => target.name(Secret::Address, format!("{addr:#x}")),
            (_, None) => target,
        }
    }
}

/// Functions of a kprobe.multi link: the names of up to four and the count of the others. Only the count if no name is known.
fn kprobes(info: &Info, functions: &[KernelSymbol]) -> AttachTarget {
    const SHOWN: usize = 4;
    let count = info.u32(link_field!(kprobe_multi.count)).unwrap_or(0) as usize;
    let name_of = |addr: &u64| {
        let function = functions.iter().find(|it| it.addr <= *addr && addr - it.addr < u64::from(it.len_bytes))?;
        Some(&function.name)
    };
    let (mut target, mut named) = (AttachTarget::default(), 0);
    for name in info.arrays.addresses.iter().filter_map(name_of).take(SHOWN) {
        target = target.words(if named == 0 { "" } else { ", " }).name(Secret::Symbol, name);
        named += 1;
    }
    match count - named.min(count) {
        0 => target,
        1 if named == 0 => target.words("1 function"),
        more if named == 0 => target.words(format!("{more} functions")),
        more => target.words(format!(", {more} more")),
    }
}

fn uprobes(info: &Info) -> AttachTarget {
    let count = info.u32(link_field!(uprobe_multi.count)).unwrap_or(0) as usize;
    let target = AttachTarget::default().name(Secret::Path, info.name().unwrap_or_default());
    let target = match info.arrays.addresses.as_slice() {
        [] => target,
        [only] if count == 1 => target.words(format!("+{only:#x}")),
        [first, ..] => target.words(format!("+{first:#x} and {} more", count.saturating_sub(1))),
    };
    match info.u32(link_field!(uprobe_multi.pid)) {
        Some(pid) if pid != 0 => target.words(format!(" of process {pid}")),
        _ => target,
    }
}

fn netfilter(info: &Info) -> String {
    let family = match info.u32(link_field!(netfilter.pf)) {
        Some(2) => "ipv4".to_owned(),
        Some(10) => "ipv6".to_owned(),
        Some(other) => format!("family {other}"),
        None => return String::new(),
    };
    let hook = match info.u32(link_field!(netfilter.hooknum)) {
        Some(0) => "prerouting",
        Some(1) => "input",
        Some(2) => "forward",
        Some(3) => "output",
        Some(4) => "postrouting",
        _ => "unknown hook",
    };
    format!("{family} {hook} priority {}", info.u32(link_field!(netfilter.priority)).unwrap_or(0).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a `bpf_link_info` with `fields` (pairs of offset and `u32` value).
    fn info(fields: &[(usize, u32)], name: Option<&str>, addresses: &[u64]) -> Info {
        let arrays = LinkArrays {
            name: name.map(|name| name.as_bytes().to_vec()),
            addresses: addresses.to_vec(),
            types: Vec::new(),
        };
        Info { info: LinkInfo::of(fields, usize::MAX), arrays, target: None }
    }

    fn decoded(fields: &[(usize, u32)], name: Option<&str>, addresses: &[u64]) -> (String, String) {
        let (kind, target) = decode(&info(fields, name, addresses), &[], &Names::new());
        (kind, String::from_utf8_lossy(target.text()).into_owned())
    }

    #[test]
    fn probes_are_named_with_their_offsets() {
        let uprobe = decoded(&[(0, 7), (16, 2), (36, 0x1234)], Some("/bin/bash"), &[]);
        assert_eq!(uprobe, ("uretprobe".to_owned(), "/bin/bash+0x1234".to_owned()));
        let kprobe = decoded(&[(0, 7), (16, 3)], Some("do_exit"), &[]);
        assert_eq!(kprobe, ("kprobe".to_owned(), "do_exit".to_owned()));
        let unnamed = decoded(&[(0, 7), (16, 4), (40, 0x1000)], None, &[]);
        assert_eq!(unnamed, ("kretprobe".to_owned(), "0x1000".to_owned()));
        let multi = decoded(&[(0, 12), (52, 3), (60, 77)], Some("/bin/sh"), &[16, 32, 48]);
        assert_eq!(multi, ("uprobe_multi".to_owned(), "/bin/sh+0x10 and 2 more of process 77".to_owned()));
        let marked = decode(&info(&[(0, 7), (16, 1), (36, 0x10)], Some("/bin/sh"), &[]), &[], &Names::new()).1;
        assert_eq!(marked, AttachTarget::default().name(Secret::Path, "/bin/sh").words("+0x10"));
        let hidden = decoded(&[(0, 8), (24, 3), (28, 1)], None, &[0, 0, 0]);
        assert_eq!(hidden, ("kretprobe_multi".to_owned(), "3 functions".to_owned()));
    }

    /// Layout of `bpf_link_info` in Linux 7.3.4: attach_type, count and btf_obj_id are at offsets 16, 20 and 24.
    #[test]
    fn each_function_of_a_multi_link_is_an_attachment() {
        let mut link = info(&[(0, 15), (4, 31), (8, 7), (16, 60), (20, 3), (24, 1)], None, &[]);
        link.arrays.types = vec![100, 200];
        let names =
            HashMap::from([(TracedFunction::Kernel(1, 100), AttachTarget::default().name(Secret::Symbol, "vfs_read"))]);
        let attachments = link.multi_attachments(&names);
        let targets: Vec<_> = attachments.iter().map(|it| String::from_utf8_lossy(it.target.text())).collect();
        assert_eq!(targets, ["vfs_read", "2 more"]);
        assert!(
            attachments.iter().all(|it| (it.prog_id, it.link_id, it.kind.as_str()) == (7, Some(31), "fexit_multi"))
        );
    }

    #[test]
    fn perf_events_are_named_as_perf_names_them() {
        let clock = decoded(&[(0, 7), (16, 6), (24, 0), (32, 1)], None, &[]);
        assert_eq!(clock, ("perf_event".to_owned(), "cpu-clock".to_owned()));
        let old_kernel = Info { info: LinkInfo::of(&[(0, 7)], 16), ..info(&[], None, &[]) };
        assert_eq!(decode(&old_kernel, &[], &Names::new()), ("perf_event".to_owned(), AttachTarget::default()));
    }

    /// Layout of `bpf_link_info` in Linux 6.7: `missed` is at offset 48 for kprobes on perf events (the last field), and at offset 32 for
    /// kprobe.multi.
    #[test]
    fn hits_without_a_run_are_those_of_kprobes() {
        let misses = |fields: &[(usize, u32)], known| {
            Info { info: LinkInfo::of(fields, known), arrays: LinkArrays::default(), target: None }.misses()
        };
        assert_eq!(misses(&[(0, 7), (16, 3), (48, 7)], 56), Some(7));
        assert_eq!(misses(&[(0, 7), (16, 4), (52, 1)], 56), Some(1 << 32));
        assert_eq!(misses(&[(0, 8), (32, 9)], 56), Some(9));
        // Links without kprobes: a uprobe, a tracepoint, XDP.
        for fields in [[(0, 7), (16, 1)], [(0, 7), (16, 5)], [(0, 6), (16, 3)]] {
            assert_eq!(misses(&fields, 56), None);
        }
        // In Linux 6.6, the structure has 48 bytes.
        assert_eq!((misses(&[(0, 7), (16, 3)], 48), misses(&[(0, 8)], 48)), (None, None));
    }

    #[test]
    fn hooks_of_the_network_are_named() {
        let netfilter = decoded(&[(0, 10), (16, 2), (20, 4), (24, (-100i32).cast_unsigned())], None, &[]);
        assert_eq!(netfilter, ("netfilter".to_owned(), "ipv4 postrouting priority -100".to_owned()));
        let netns = decoded(&[(0, 5), (16, 4026531840), (20, 36)], None, &[]);
        assert_eq!(netns, ("sk_lookup".to_owned(), "net:[4026531840]".to_owned()));
    }

    #[test]
    fn iterators_say_over_what() {
        assert_eq!(decoded(&[(0, 4)], Some("bpf_prog"), &[]).1, "bpf_prog");
        assert_eq!(decoded(&[(0, 4), (28, 9)], Some("bpf_map_elem"), &[]).1, "bpf_map_elem of map 9");
        assert_eq!(decoded(&[(0, 4), (36, 12)], Some("task_file"), &[]).1, "task_file of process 12");
    }

    #[test]
    fn unknown_types_stay_numbers() {
        assert_eq!(decoded(&[(0, 99)], None, &[]), ("99".to_owned(), String::new()));
    }
}
