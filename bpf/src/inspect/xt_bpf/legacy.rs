//! Rules in legacy tables: `ip_tables` and `ip6_tables`, read by socket options.
//!
//! A table is one run of entries. Where a hook begins stands beside it; a chain that a user made begins with an entry whose target `ERROR`
//! has the chain's name. The last entry of each chain is its policy, and the last of the table is an `ERROR` without a chain.

use std::fs;
use std::os::fd::AsFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::rule::{MATCH, REVISION, Rule, pin};
use crate::error::{Error, Object, Result};
use crate::sys;

/// `IPT_SO_GET_INFO` and `IPT_SO_GET_ENTRIES`; those of IPv6 have the same numbers.
const GET_INFO: i32 = 64;
const GET_ENTRIES: i32 = 65;
/// Bytes of `struct ipt_getinfo`: name, valid hooks, entries and underflows of the five hooks, number of entries, bytes of the table.
const INFO_BYTES: usize = NAME_BYTES + 4 + 20 + 20 + 4 + 4;
/// `XT_TABLE_MAXNAMELEN`
const NAME_BYTES: usize = 32;
/// What structures that hold counters are aligned to.
const ALIGN: usize = align_of::<u64>();
/// Where in `struct ipt_get_entries` the entries begin, behind the name and their bytes.
const ENTRIES_OFFSET: usize = (NAME_BYTES + 4).next_multiple_of(ALIGN);
/// Bytes of `struct xt_entry_match` and `struct xt_entry_target`: their own size, a name and a revision.
const EXTENSION_BYTES: usize = 32;
/// The largest table that is read: some hundred thousand rules.
const TABLE_BYTES_MAX: usize = 64 << 20;
/// How often a table is asked for that changes while it is.
const ATTEMPTS: usize = 3;
/// Names of the hooks, by their numbers.
const HOOKS: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

/// What the families of addresses differ in.
#[derive(Debug, Clone, Copy)]
struct Family {
    name: &'static str,
    /// The tables that are there, below /proc/thread-self/net.
    tables: &'static str,
    /// The matches that are there.
    matches: &'static str,
    address_family: AddressFamily,
    /// `SOL_IP`, `SOL_IPV6`
    level: i32,
    /// Where in an entry `target_offset` is; `next_offset` follows.
    offsets_at: usize,
    /// Bytes of `struct ipt_entry`, `struct ip6t_entry`.
    entry_bytes: usize,
}

const IPV4: Family = Family {
    name: "ip",
    tables: "ip_tables_names",
    matches: "ip_tables_matches",
    address_family: AddressFamily::INET,
    level: 0,
    offsets_at: 88,
    entry_bytes: 96usize.next_multiple_of(ALIGN) + 16,
};
const IPV6: Family = Family {
    name: "ip6",
    tables: "ip6_tables_names",
    matches: "ip6_tables_matches",
    address_family: AddressFamily::INET6,
    level: 41,
    offsets_at: 140,
    entry_bytes: 148usize.next_multiple_of(ALIGN) + 16,
};

/// The rules of the network namespace that this thread is in.
///
/// # Errors
/// When the kernel refuses to tell a table, or it is none.
pub(super) fn rules() -> Result<Vec<Rule>> {
    let mut rules = Vec::new();
    for family in [IPV4, IPV6] {
        // `net` itself is that of the process's first thread. The files are not there without the modules, and not for everyone to read.
        let lines = |file: &str| fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
        if !lines(family.matches).lines().any(|name| name.as_bytes() == MATCH) {
            continue;
        }
        // Any table that is not in this list would be made by asking for it.
        for table in lines(family.tables).lines() {
            rules.extend(family.rules(table)?);
        }
    }
    Ok(rules)
}

impl Family {
    fn rules(self, table: &str) -> Result<Vec<Rule>> {
        let refused = |call: &'static str, errno: i32| {
            let remedy = (errno == libc::EPERM).then_some("needs CAP_NET_ADMIN");
            Error::Syscall { call, object: Object::Named("of a table of iptables"), errno, remedy }
        };
        let Some(name) = table_name(table) else { return Ok(Vec::new()) };
        let socket = socket_with(self.address_family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .map_err(|error| refused("socket", error.raw_os_error()))?;
        let mut attempts = 1..=ATTEMPTS;
        loop {
            let mut info = [0u8; INFO_BYTES];
            info[..NAME_BYTES].copy_from_slice(&name);
            sys::socket_option(socket.as_fd(), self.level, GET_INFO, &mut info)
                .map_err(|errno| refused("getsockopt(IPT_SO_GET_INFO)", errno))?;
            let table_bytes = sys::get_u32(&info, INFO_BYTES - 4);
            let call = "getsockopt(IPT_SO_GET_ENTRIES)";
            let unusable = |problem| Error::Answer { call, object: Object::Named("of a table of iptables"), problem };
            if table_bytes as usize > TABLE_BYTES_MAX {
                return Err(unusable(format!("{} {table} has {table_bytes} bytes, more than are read", self.name)));
            }
            let mut answer = vec![0u8; ENTRIES_OFFSET + table_bytes as usize];
            answer[..NAME_BYTES].copy_from_slice(&name);
            answer[NAME_BYTES..NAME_BYTES + 4].copy_from_slice(&table_bytes.to_ne_bytes());
            match sys::socket_option(socket.as_fd(), self.level, GET_ENTRIES, &mut answer) {
                Ok(_) => {}
                // Its size is another by now.
                Err(libc::EAGAIN) if attempts.next().is_some() => continue,
                Err(errno) => return Err(refused(call, errno)),
            }
            let entries = answer.get(ENTRIES_OFFSET..).unwrap_or_default();
            return self.parse(table, &info, entries).map_err(|at| {
                unusable(format!("the entry at byte {at} of {} {table} does not have the shape of one", self.name))
            });
        }
    }

    /// The rules among the entries of a table. Err is where an entry is none.
    fn parse(self, table: &str, info: &[u8], entries: &[u8]) -> Result<Vec<Rule>, usize> {
        let valid_hooks = sys::get_u32(info, NAME_BYTES);
        let hook_at = |offset: usize| {
            let begins = |hook: &usize| sys::get_u32(info, NAME_BYTES + 4 + 4 * hook) as usize == offset;
            (0..HOOKS.len()).filter(|hook| valid_hooks >> hook & 1 == 1).find(begins).and_then(|hook| HOOKS.get(hook))
        };
        let (mut chain, mut number, mut offset) = (String::new(), 0u32, 0);
        let mut rules = Vec::new();
        while offset < entries.len() {
            let entry = self.entry(entries.get(offset..).unwrap_or_default()).ok_or(offset)?;
            if let Some(hook) = hook_at(offset) {
                (chain, number) = ((*hook).to_owned(), 0);
            }
            if entry.target.name == b"ERROR" {
                (chain, number) = (String::from_utf8_lossy(sys::up_to_nul(entry.target.data)).into_owned(), 0);
            } else {
                number += 1;
                let mut rest = entry.matches;
                while !rest.is_empty() {
                    let (extension, behind) = Extension::first(rest).ok_or(offset)?;
                    let is_ours = extension.name == MATCH && extension.revision == REVISION;
                    if let Some(pin) = is_ours.then(|| pin(extension.data)).flatten() {
                        rules
                            .push(Rule { place: format!("{} {table} {chain} rule {number} (legacy)", self.name), pin });
                    }
                    rest = behind;
                }
            }
            offset += entry.len_bytes;
        }
        Ok(rules)
    }

    /// The entry that these bytes begin with.
    fn entry(self, bytes: &[u8]) -> Option<Entry<'_>> {
        let offset_at = |at: usize| Some(usize::from(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?)));
        let (target, next) = (offset_at(self.offsets_at)?, offset_at(self.offsets_at + 2)?);
        let matches = bytes.get(self.entry_bytes..target)?;
        let (target, _) = Extension::first(bytes.get(target..next)?)?;
        Some(Entry { matches, target, len_bytes: next })
    }
}

/// A rule, a policy, or the begin of a chain.
struct Entry<'a> {
    matches: &'a [u8],
    target: Extension<'a>,
    len_bytes: usize,
}

/// A match or a target.
struct Extension<'a> {
    name: &'a [u8],
    revision: u8,
    data: &'a [u8],
}

impl<'a> Extension<'a> {
    /// The first of several, and what is behind it.
    fn first(bytes: &'a [u8]) -> Option<(Extension<'a>, &'a [u8])> {
        let size = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let (own, behind) = bytes.split_at_checked(size)?;
        let (header, data) = own.split_at_checked(EXTENSION_BYTES)?;
        let (revision, name) = header.get(2..)?.split_last()?;
        Some((Extension { name: sys::up_to_nul(name), revision: *revision, data }, behind))
    }
}

/// The name as the kernel takes it; None for one that it cannot have.
fn table_name(table: &str) -> Option<[u8; NAME_BYTES]> {
    let mut name = [0; NAME_BYTES];
    name.get_mut(..table.len()).filter(|_| table.len() < NAME_BYTES)?.copy_from_slice(table.as_bytes());
    Some(name)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::rule::info as xt_bpf_info;
    use super::*;

    /// Sizes of the headers linux/netfilter_ipv4/ip_tables.h and linux/netfilter_ipv6/ip6_tables.h on 64-bit machines.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn structures_have_the_sizes_of_the_headers() {
        assert_eq!((INFO_BYTES, ENTRIES_OFFSET), (84, 40));
        assert_eq!((IPV4.entry_bytes, IPV6.entry_bytes), (112, 168));
    }

    fn extension(name: &[u8], revision: u8, data: &[u8]) -> Vec<u8> {
        let size = (32 + data.len()).next_multiple_of(8);
        let mut bytes = (size as u16).to_ne_bytes().to_vec();
        bytes.extend(name);
        bytes.resize(31, 0);
        bytes.push(revision);
        bytes.extend(data);
        bytes.resize(size, 0);
        bytes
    }

    fn entry(family: Family, matches: &[Vec<u8>], target: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0xaa; family.entry_bytes];
        let target_offset = family.entry_bytes + matches.concat().len();
        bytes[family.offsets_at..][..2].copy_from_slice(&(target_offset as u16).to_ne_bytes());
        bytes[family.offsets_at + 2..][..2].copy_from_slice(&((target_offset + target.len()) as u16).to_ne_bytes());
        bytes.extend(matches.concat());
        bytes.extend(target);
        bytes
    }

    /// INPUT with two rules and its policy, OUTPUT with its policy, the chain `mine` with two rules and its return, the end.
    fn table(family: Family) -> (Vec<u8>, Vec<u8>) {
        let verdict = extension(b"", 0, &(-2i32).to_ne_bytes());
        let chain = |name: &[u8]| entry(family, &[], &extension(b"ERROR", 0, &[name, &[0; 30][name.len()..]].concat()));
        let bpf = |path: &[u8]| extension(b"bpf", 1, &xt_bpf_info(1, path));
        let plain = || entry(family, &[extension(b"tcp", 0, &[0; 16])], &verdict);
        let input = [
            plain(),
            entry(family, &[extension(b"tcp", 0, &[0; 16]), bpf(b"/b/one"), bpf(b"/b/two")], &verdict),
            entry(family, &[], &verdict),
        ];
        let output = [entry(family, &[], &verdict)];
        let mine = [
            chain(b"mine"),
            entry(family, &[bpf(b"/b/mine")], &verdict),
            // Of revision 0 all data is classic BPF.
            entry(family, &[extension(b"bpf", 0, &xt_bpf_info(1, b"/b/other"))], &verdict),
            entry(family, &[], &verdict),
            chain(b"ERROR"),
        ];
        let mut info = b"filter".to_vec();
        info.resize(32, 0);
        info.extend((1u32 << 1 | 1 << 3).to_ne_bytes());
        // FORWARD begins at byte 0 as hooks do that a table does not have.
        for hook_entry in [0, 0, 0, input.concat().len() as u32, 0] {
            info.extend(hook_entry.to_ne_bytes());
        }
        info.resize(84, 0);
        (info, [input.concat(), output.concat(), mine.concat()].concat())
    }

    #[test]
    fn rules_are_numbered_within_their_chains() {
        for (family, ip) in [(IPV4, "ip"), (IPV6, "ip6")] {
            let (info, entries) = table(family);
            let rule = |place: &str, path: &str| Rule { place: format!("{ip} {place}"), pin: PathBuf::from(path) };
            let expected = [
                rule("filter INPUT rule 2 (legacy)", "/b/one"),
                rule("filter INPUT rule 2 (legacy)", "/b/two"),
                rule("filter mine rule 1 (legacy)", "/b/mine"),
            ];
            assert_eq!(family.parse("filter", &info, &entries).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_cut_off_or_damaged_is_said_and_ends() {
        let (info, entries) = table(IPV4);
        let mut starts = Vec::new();
        let mut at = 0;
        while at < entries.len() {
            starts.push(at);
            at += usize::from(u16::from_ne_bytes([entries[at + 90], entries[at + 91]]));
        }
        for len in 0..entries.len() {
            let parsed = IPV4.parse("filter", &info, &entries[..len]);
            match starts.contains(&len) {
                true => assert!(parsed.is_ok()),
                false => assert_eq!(parsed, Err(*starts.iter().rfind(|start| **start < len).unwrap())),
            }
        }
        // Sizes that lead nowhere: an entry's, then a match's.
        for (at, value) in [(90, 0u16), (90, 0xffff), (88, 0), (88, 0xffff), (112, 0), (112, 31), (112, 0xffff)] {
            let mut damaged = entries.clone();
            damaged[at..at + 2].copy_from_slice(&value.to_ne_bytes());
            assert_eq!(IPV4.parse("filter", &info, &damaged), Err(0), "{value} at byte {at}");
        }
    }

    #[test]
    fn a_name_that_no_table_can_have_is_not_asked_for() {
        assert_eq!(table_name("nat").unwrap()[..4], *b"nat\0");
        assert_eq!(table_name(&"x".repeat(31)).unwrap()[31], 0);
        assert_eq!(table_name(&"x".repeat(32)), None);
    }
}
