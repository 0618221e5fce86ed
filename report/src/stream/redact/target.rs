//! Redaction of attach targets. The recorder writes them as text, in a form per kind of attachment; text of another form is replaced as a whole.
//! Words of the form, numbers, and names listed in docs/redact.md stay.

use bprec_format::bpf::names::{AttachType, LinkType};
use bprec_format::bprec::state::Attachment;

use super::Redactor;
use super::names::{SecretKind, is_identifier};

/// Form of a kind's target text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `sched:sched_switch`
    Tracepoint,
    /// `tcp_sendmsg`, `tcp_sendmsg [mod]`, `main_func of program 12`
    Function,
    /// `do_exit+0x10`, `0xffff888012345678`, `first, second, 7 more`
    Probes,
    /// `/bin/bash+0x1234 and 2 more of process 7`
    UserProbe,
    /// `eth0`, `eth0 in NETWORK`, `interface 7 of another namespace`
    Interface,
    /// `net:[4026531840]`
    Network,
    /// `/system.slice`, `cgroup 7`
    Cgroup,
    /// `bpf_map_elem of map 9`
    Iterator,
    /// `ipv4 postrouting priority -100`
    Netfilter,
    /// `cpu-clock`, `type 4 config 0x3c`, `event of process 7`
    PerfEvent,
    /// `jumps[3]`
    TailCall,
    /// `tcp_congestion_ops table.cong_avoid`
    StructOps,
    /// `map 7 sockets`
    Map,
    /// `ip filter INPUT rule 1 (legacy)`, `… in NETWORK`
    Rule,
    /// Unknown kinds of attachments.
    Other,
}

impl Form {
    /// Returns the form of the target text of a kind of attachment; `None` for unknown kinds.
    fn of(kind: &str) -> Option<Form> {
        Some(match kind {
            "tracepoint" | "raw_tracepoint" => Form::Tracepoint,
            "tp_btf" | "fentry" | "fexit" | "fsession" | "fmod_ret" | "lsm" | "freplace" | "tracing" => Form::Function,
            "kprobe" | "kretprobe" | "kprobe_multi" | "kretprobe_multi" => Form::Probes,
            "fentry_multi" | "fexit_multi" | "fsession_multi" => Form::Probes,
            "uprobe" | "uretprobe" | "uprobe_multi" | "uretprobe_multi" => Form::UserProbe,
            "xdp" | "tc_ingress" | "tc_egress" | "tcx_ingress" | "tcx_egress" | "netkit_primary" | "netkit_peer" => {
                Form::Interface
            }
            "flow_dissector" | "sk_lookup" => Form::Network,
            "iter" => Form::Iterator,
            "netfilter" => Form::Netfilter,
            "perf_event" => Form::PerfEvent,
            "tail_call" => Form::TailCall,
            "struct_ops" => Form::StructOps,
            "sk_skb_stream_parser" | "sk_skb_stream_verdict" | "sk_skb_verdict" | "sk_msg_verdict" => Form::Map,
            "xt_bpf" => Form::Rule,
            _ if is_class(kind) => Form::Interface,
            _ if AttachType::from_name(kind).is_some() => {
                if kind.contains("cgroup") {
                    Form::Cgroup
                } else {
                    Form::Other
                }
            }
            _ if LinkType::from_name(kind).is_some() || is_decimal(kind) => Form::Other,
            _ => return None,
        })
    }
}

/// Returns true for a tc class, `tc_10:`.
fn is_class(kind: &str) -> bool {
    kind.strip_prefix("tc_").and_then(|class| class.strip_suffix(':')).is_some_and(is_hex)
}

fn is_decimal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Splits `word` and a decimal number off the end of `text`.
fn split_number<'t>(text: &'t str, word: &str) -> (&'t str, &'t str) {
    match text.rfind(word) {
        Some(at) if is_decimal(&text[at + word.len()..]) => text.split_at(at),
        _ => (text, ""),
    }
}

/// Splits a hexadecimal offset off the end of `text`.
fn split_offset(text: &str) -> (&str, &str) {
    match text.rfind("+0x") {
        Some(at) if is_hex(&text[at + 3..]) => text.split_at(at),
        _ => (text, ""),
    }
}

impl Redactor {
    /// Redacts an attach target.
    pub(super) fn attachment(&mut self, attachment: Attachment) -> Attachment {
        let Some(form) = Form::of(&attachment.kind) else {
            let kind = self.text(SecretKind::Attachment, &attachment.kind);
            let target = self.names.replace(SecretKind::Target, &attachment.target);
            return Attachment { kind, target, ..attachment };
        };
        let target = match std::str::from_utf8(&attachment.target) {
            Ok("") => Some(String::new()),
            Ok(target) => self.target(form, target),
            Err(_) => None,
        };
        let target =
            target.map_or_else(|| self.names.replace(SecretKind::Target, &attachment.target), String::into_bytes);
        Attachment { target, ..attachment }
    }

    /// Redacts a target of a form; `None` if the text does not have the form.
    fn target(&mut self, form: Form, target: &str) -> Option<String> {
        match form {
            Form::Tracepoint => {
                let parts = target.splitn(2, ':').all(is_identifier);
                parts.then(|| target.to_owned())
            }
            Form::Function => self.function(target),
            Form::Probes => {
                let probes: Option<Vec<String>> = target.split(", ").map(|probe| self.probe(probe)).collect();
                Some(probes?.join(", "))
            }
            Form::UserProbe => {
                let (rest, process) = split_number(target, " of process ");
                let (rest, more) = match rest.strip_suffix(" more") {
                    Some(before) => match split_number(before, " and ") {
                        (_, "") => (rest, ""),
                        (path, _) => rest.split_at(path.len()),
                    },
                    None => (rest, ""),
                };
                let (path, offset) = split_offset(rest);
                Some(format!("{}{offset}{more}{process}", self.text(SecretKind::Path, path)))
            }
            Form::Interface => {
                if target.starts_with("interface ") {
                    let whole = target.strip_suffix(" of another namespace").unwrap_or(target);
                    if split_number(whole, "interface ").0.is_empty() {
                        return Some(target.to_owned());
                    }
                }
                let (name, rest) = target.split_at(target.find(' ').unwrap_or(target.len()));
                Some(format!("{}{}", interface(name)?, self.in_network(rest)?))
            }
            Form::Network => self.network_number(target),
            Form::Cgroup if target.starts_with('/') => {
                let path = self.names.cgroup(target.as_bytes());
                Some(String::from_utf8_lossy(&path).into_owned())
            }
            Form::Cgroup => split_number(target, "cgroup ").0.is_empty().then(|| target.to_owned()),
            Form::Iterator => {
                let (name, _) = [" of map ", " of process ", " of thread "]
                    .map(|word| split_number(target, word))
                    .into_iter()
                    .min_by_key(|(name, _)| name.len())?;
                is_identifier(name).then(|| target.to_owned())
            }
            Form::Netfilter => {
                const HOOKS: [&str; 6] =
                    [" prerouting", " input", " forward", " output", " postrouting", " unknown hook"];
                let (place, priority) = target.split_once(" priority ")?;
                let family = HOOKS.iter().find_map(|hook| place.strip_suffix(hook))?;
                let is_family = ["ipv4", "ipv6"].contains(&family) || split_number(family, "family ").0.is_empty();
                let is_number = is_decimal(priority.strip_prefix('-').unwrap_or(priority));
                (is_family && is_number).then(|| target.to_owned())
            }
            Form::PerfEvent => {
                if split_number(target, "event of process ").0.is_empty() {
                    return Some(target.to_owned());
                }
                match target.strip_prefix("type ").and_then(|numbers| numbers.split_once(" config 0x")) {
                    Some((kind, config)) if is_decimal(kind) && is_hex(config) => Some(target.to_owned()),
                    _ => Some(self.event(target)),
                }
            }
            Form::TailCall => {
                let (map, index) = target.strip_suffix(']')?.rsplit_once('[')?;
                is_decimal(index).then(|| format!("{}[{index}]", self.map(map)))
            }
            Form::StructOps => {
                let (kind, rest) = target.split_once(' ')?;
                let (table, member) = rest.rsplit_once('.')?;
                let is_known = is_identifier(kind) && is_identifier(member);
                is_known.then(|| format!("{kind} {}.{member}", self.map(table)))
            }
            Form::Map => {
                let rest = target.strip_prefix("map ")?;
                let (id, name) = rest.split_once(' ').unwrap_or((rest, ""));
                let space = if name.is_empty() { "" } else { " " };
                is_decimal(id).then(|| format!("map {id}{space}{}", self.map(name)))
            }
            Form::Rule => self.rule(target),
            Form::Other => None,
        }
    }

    /// Redacts a function of the kernel or of another program.
    fn function(&mut self, target: &str) -> Option<String> {
        let (name, of_program) = split_number(target, " of program ");
        if !of_program.is_empty() {
            let name = if self.programs { self.program_name(name) } else { name.to_owned() };
            return is_symbol(&name).then(|| name + of_program);
        }
        let (function, module) = target.split_at(target.find(" [").unwrap_or(target.len()));
        let module = module.strip_prefix(" [").map_or(Some(""), |module| module.strip_suffix(']'))?;
        (is_symbol(function) && (module.is_empty() || is_symbol(module))).then(|| target.to_owned())
    }

    /// Redacts one function of a probe; the number of further functions stays.
    fn probe(&mut self, probe: &str) -> Option<String> {
        if let Some(addr) = probe.strip_prefix("0x") {
            return Some(format!("{:#x}", self.shift.of(u64::from_str_radix(addr, 16).ok()?)));
        }
        let number = [" more", " functions", " function"].iter().find_map(|word| probe.strip_suffix(word));
        if number.is_some_and(is_decimal) {
            return Some(probe.to_owned());
        }
        let (function, offset) = split_offset(probe);
        let symbol = String::from_utf8_lossy(&self.symbol(function.as_bytes())).into_owned();
        Some(self.function(&symbol)? + offset)
    }

    /// Redacts the end of a target: empty, ` in netns NAME` or ` in net:[INODE] of process PID (COMM)`.
    fn in_network(&mut self, text: &str) -> Option<String> {
        if text.is_empty() {
            return Some(String::new());
        }
        let label = text.strip_prefix(" in ")?;
        if let Some(name) = label.strip_prefix("netns ") {
            return Some(format!(" in netns {}", self.text(SecretKind::Network, name)));
        }
        let (number, process) = label.split_at(label.find(' ')?);
        let (pid, comm) = process.strip_prefix(" of process ")?.strip_suffix(')')?.split_once(" (")?;
        let comm = self.names.comm(comm.as_bytes());
        let number = self.network_number(number)?;
        is_decimal(pid).then(|| format!(" in {number} of process {pid} ({})", String::from_utf8_lossy(&comm)))
    }

    fn network_number(&mut self, text: &str) -> Option<String> {
        let inode = text.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()?;
        Some(format!("net:[{}]", self.names.namespace(inode)))
    }

    /// Redacts `ip filter INPUT rule 1 (legacy)`, with an optional network namespace.
    fn rule(&mut self, target: &str) -> Option<String> {
        const FAMILIES: [&str; 6] = ["inet", "ip", "arp", "netdev", "bridge", "ip6"];
        const TABLES: [&str; 5] = ["filter", "nat", "mangle", "raw", "security"];
        const CHAINS: [&str; 5] = ["INPUT", "OUTPUT", "FORWARD", "PREROUTING", "POSTROUTING"];
        let mut words = target.splitn(4, ' ');
        let (family, table, chain) = (words.next()?, words.next()?, words.next()?);
        let rest = words.next()?.strip_prefix("rule ")?;
        let (number, rest) = rest.split_once(' ')?;
        let kind = ["(legacy)", "(nf_tables)"].into_iter().find(|kind| rest.starts_with(kind))?;
        let network = self.in_network(&rest[kind.len()..])?;
        if !FAMILIES.contains(&family) || !is_decimal(number) {
            return None;
        }
        let table = if TABLES.contains(&table) { table.to_owned() } else { self.text(SecretKind::Table, table) };
        let chain = if CHAINS.contains(&chain) { chain.to_owned() } else { self.text(SecretKind::Chain, chain) };
        Some(format!("{family} {table} {chain} rule {number} {kind}{network}"))
    }

    fn map(&mut self, name: &str) -> String {
        if self.programs { self.text(SecretKind::Map, name) } else { name.to_owned() }
    }

    pub(super) fn text(&mut self, kind: SecretKind, secret: &str) -> String {
        String::from_utf8_lossy(&self.names.replace(kind, secret.as_bytes())).into_owned()
    }

    pub(super) fn program_name(&mut self, name: &str) -> String {
        String::from_utf8_lossy(&self.names.program(name.as_bytes())).into_owned()
    }
}

/// Returns the text if the kernel accepts it as the name of a network device.
fn interface(name: &str) -> Option<&str> {
    const NAME_BYTES_MAX: usize = 15;
    let is_name = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(['/', ':']);
    is_name.then_some(name)
}

/// Returns true if the text can be the name of a function or a module.
fn is_symbol(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.$-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::redact::Redact;

    fn redacted(redactor: &mut Redactor, kind: &str, target: &str) -> String {
        let attachment = Attachment { prog_id: 1, link_id: None, kind: kind.into(), target: target.into() };
        let attachment = redactor.attachment(attachment);
        format!("{}:{}", attachment.kind, String::from_utf8_lossy(&attachment.target))
    }

    #[test]
    fn targets_as_recorders_write_them_keep_their_form() {
        let mut redactor = Redactor::new(Redact::Machine);
        for (kind, target, expected) in [
            ("xdp", "lo", "lo"),
            ("xdp", "atkveth1 in netns atk-customer-acme", "atkveth1 in netns netns-1"),
            ("tcx_ingress", "eth0 in netns a in netns (b)", "eth0 in netns netns-2"),
            ("xdp", "lo in net:[4026532317] of process 3006 (secret) nginx)", "lo in net:[1] of process 3006 (comm-1)"),
            ("tc_10:", "lo in net:[4026532317] of process 7 ()", "lo in net:[1] of process 7 ()"),
            ("xdp", "interface 7 of another namespace", "interface 7 of another namespace"),
            ("tc_egress", "interface 7", "interface 7"),
            ("sk_lookup", "net:[4026532317]", "net:[1]"),
            ("sk_lookup", "net:[4026531840]", "net:[2]"),
            ("xdp", "interface of acme", "target-1"),
            ("xdp", "eth0 of acme", "target-2"),
            ("xt_bpf", "ip filter INPUT rule 1 (legacy)", "ip filter INPUT rule 1 (legacy)"),
            (
                "xt_bpf",
                "ip6 acme KUBE-ACME rule 12 (nf_tables) in netns x",
                "ip6 table-1 chain-1 rule 12 (nf_tables) in netns netns-3",
            ),
            ("xt_bpf", "ip filter a b rule 1 (legacy)", "target-3"),
            ("uprobe", "/srv/a b+0x1+0x10", "/path-1+0x10"),
            ("uretprobe_multi", "/bin/sh+0x10 and 2 more of process 77", "/path-2+0x10 and 2 more of process 77"),
            ("uprobe", "/bin/sh and a friend of process x", "/path-3"),
            ("cgroup_inet_ingress", "/", "/"),
            ("cgroup_inet_ingress", "/system.slice/acme", "/cgroup-1"),
            ("cgroup_device", "cgroup 12", "cgroup 12"),
            ("cgroup_device", "acme", "target-4"),
            ("kprobe", "do_exit+0x10", "do_exit+0x10"),
            ("kprobe_multi", "do_exit, tls_push [tls], 7 more", "do_exit, tls_push [tls], 7 more"),
            ("kretprobe_multi", "3 functions", "3 functions"),
            ("kprobe", "/srv/acme", "target-5"),
            ("fentry", "tcp_sendmsg [mod]", "tcp_sendmsg [mod]"),
            ("freplace", "main_func of program 12", "main_func of program 12"),
            ("iter", "bpf_map_elem of map 9", "bpf_map_elem of map 9"),
            ("iter", "task_file of process 12", "task_file of process 12"),
            ("iter", "bpf_prog", "bpf_prog"),
            ("netfilter", "ipv4 postrouting priority -100", "ipv4 postrouting priority -100"),
            ("netfilter", "family 7 unknown hook priority 3", "family 7 unknown hook priority 3"),
            ("netfilter", "ipv4 acme priority 3", "target-6"),
            ("perf_event", "cpu-clock", "cpu-clock"),
            ("perf_event", "cpu-clock (on_sample)", "cpu-clock (on_sample)"),
            ("perf_event", "event of process 12", "event of process 12"),
            ("perf_event", "type 4 config 0x3c", "type 4 config 0x3c"),
            ("perf_event", "", ""),
            ("tail_call", "chain[0]", "chain[0]"),
            ("struct_ops", "tcp_congestion_ops reno.cong_avoid", "tcp_congestion_ops reno.cong_avoid"),
            ("sk_msg_verdict", "map 7 socks", "map 7 socks"),
            ("tracepoint", "sched:sched_switch", "sched:sched_switch"),
            ("raw_tracepoint", "of acme", "target-7"),
            ("99", "", ""),
            ("99", "acme", "target-4"),
        ] {
            assert_eq!(redacted(&mut redactor, kind, target), format!("{kind}:{expected}"), "{target}");
        }
        assert_eq!(redacted(&mut redactor, "acme", "globex"), "kind-1:target-8");
        let addr = 0xffff_8880_1234_5678;
        let expected = format!("kprobe:{:#x}", redactor.shift.of(addr));
        assert_eq!(redacted(&mut redactor, "kprobe", "0xffff888012345678"), expected);
    }

    #[test]
    fn names_of_programs_and_maps_go_where_that_is_asked_for() {
        let mut redactor = Redactor::new(Redact::MachineAndPrograms);
        for (kind, target, expected) in [
            ("tail_call", "chain[0]", "map-1[0]"),
            ("tail_call", "chain[12]", "map-1[12]"),
            ("struct_ops", "tcp_congestion_ops my.reno.cong_avoid", "tcp_congestion_ops map-2.cong_avoid"),
            ("sk_msg_verdict", "map 7 socks", "map 7 map-3"),
            ("sk_msg_verdict", "map 7", "map 7"),
            ("freplace", "main_func of program 12", "prog-1 of program 12"),
            ("perf_event", "cpu-clock (main_func)", "cpu-clock (prog-1)"),
            ("fentry", "tcp_sendmsg", "tcp_sendmsg"),
        ] {
            assert_eq!(redacted(&mut redactor, kind, target), format!("{kind}:{expected}"), "{target}");
        }
        let probed = redacted(&mut redactor, "kprobe", "bpf_prog_0123456789abcdef_main_func+0x4");
        assert!(probed.starts_with("kprobe:bpf_prog_") && probed.ends_with("_prog-1+0x4"), "{probed}");
        assert!(!probed.contains("0123456789abcdef"), "{probed}");
    }
}
