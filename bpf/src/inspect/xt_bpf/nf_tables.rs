//! Rules in nf_tables that hold a match of iptables (`nft_compat`), read by netlink.

use std::path::Path;

use bprec_host::SymbolReader;

use super::rule::{MATCH, REVISION, Rule, pin};
use crate::error::{Error, Object, Result};
use crate::inspect::netlink::{self, Attributes, Listed};
use crate::sys;
use crate::sys::netlink::Family;

/// `NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETRULE`
const GETRULE: u16 = 10 << 8 | 7;
const CALL: &str = "NFT_MSG_GETRULE";
/// Bytes of `struct nfgenmsg`: family, version, number of a resource.
const NFGENMSG_BYTES: usize = 4;
/// How often rules are asked for that change while they are read.
const ATTEMPTS: usize = 3;

const NFTA_RULE_TABLE: u16 = 1;
const NFTA_RULE_CHAIN: u16 = 2;
const NFTA_RULE_EXPRESSIONS: u16 = 4;
const NFTA_LIST_ELEM: u16 = 1;
const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
const NFTA_MATCH_NAME: u16 = 1;
const NFTA_MATCH_REV: u16 = 2;
const NFTA_MATCH_INFO: u16 = 3;

/// True when the kernel has what keeps such rules, built in or loaded.
pub(super) fn is_there() -> bool {
    // What is built in has no directory there.
    let is_built_in = || {
        let is_it = |symbol: bprec_host::Symbol<'_>| match symbol.module {
            // What BPF has comes last, and is slow to read.
            Some(b"bpf") => Some(false),
            _ => (symbol.name == b"nft_match_dump").then_some(true),
        };
        SymbolReader::open().is_ok_and(|mut symbols| symbols.find_map(is_it) == Some(true))
    };
    Path::new("/sys/module/nft_compat").is_dir() || is_built_in()
}

/// The rules of the network namespace that this thread is in.
///
/// # Errors
/// When the kernel refuses to list them, or they keep changing.
pub(super) fn rules() -> Result<Vec<Rule>> {
    for _ in 0..ATTEMPTS {
        let mut numbering = Numbering::default();
        let mut rules = Vec::new();
        // Of all families.
        let request = [0; NFGENMSG_BYTES];
        let listed = netlink::dump(Family::Netfilter, CALL, GETRULE, &request, |message| {
            rules.extend(numbering.rules(message));
        })?;
        if listed == Listed::Whole {
            return Ok(rules);
        }
    }
    let problem = format!("rules changed while they were read, {ATTEMPTS} times");
    Err(Error::Answer { call: CALL, object: Object::Named("of this network namespace"), problem })
}

/// Counts the rules of the chain that is being listed: rules come chain by chain, in the order that they are evaluated in.
#[derive(Debug, Default)]
struct Numbering {
    chain: Option<(u8, Vec<u8>, Vec<u8>)>,
    number: u32,
}

impl Numbering {
    /// The matches in one rule, of which there may be several.
    fn rules(&mut self, message: &[u8]) -> Vec<Rule> {
        let (Some(family), Some(attributes)) = (message.first(), message.get(NFGENMSG_BYTES..)) else {
            return Vec::new();
        };
        let (Some(table), Some(chain)) = (find(attributes, NFTA_RULE_TABLE), find(attributes, NFTA_RULE_CHAIN)) else {
            return Vec::new();
        };
        let key = (*family, sys::up_to_nul(table).to_vec(), sys::up_to_nul(chain).to_vec());
        if self.chain.as_ref() == Some(&key) {
            self.number += 1;
        } else {
            (self.chain, self.number) = (Some(key), 1);
        }
        let text = |name| String::from_utf8_lossy(sys::up_to_nul(name));
        let place =
            || format!("{} {} {} rule {} (nf_tables)", family_name(*family), text(table), text(chain), self.number);
        let expressions = Attributes(find(attributes, NFTA_RULE_EXPRESSIONS).unwrap_or_default());
        let pins =
            expressions.filter(|(kind, _)| *kind == NFTA_LIST_ELEM).filter_map(|(_, expression)| pin_of(expression));
        pins.map(|pin| Rule { place: place(), pin }).collect()
    }
}

/// The pin that an expression matches by; None for any other expression.
fn pin_of(expression: &[u8]) -> Option<std::path::PathBuf> {
    let data = find(expression, NFTA_EXPR_DATA)?;
    let is_match = sys::up_to_nul(find(expression, NFTA_EXPR_NAME)?) == b"match";
    let is_ours = sys::up_to_nul(find(data, NFTA_MATCH_NAME)?) == MATCH
        && u32::from_be_bytes(*find(data, NFTA_MATCH_REV)?.first_chunk()?) == u32::from(REVISION);
    (is_match && is_ours).then(|| pin(find(data, NFTA_MATCH_INFO)?)).flatten()
}

fn find(attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    Attributes(attributes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

/// As `nft` calls them.
fn family_name(family: u8) -> String {
    match family {
        1 => "inet".to_owned(),
        2 => "ip".to_owned(),
        3 => "arp".to_owned(),
        5 => "netdev".to_owned(),
        7 => "bridge".to_owned(),
        10 => "ip6".to_owned(),
        other => format!("family {other}"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::rule::info as xt_bpf_info;
    use super::*;
    use crate::inspect::netlink::attribute;

    fn expression(name: &[u8], data: &[u8]) -> Vec<u8> {
        let inside = [attribute(NFTA_EXPR_NAME, name), attribute(0x8000 | NFTA_EXPR_DATA, data)].concat();
        attribute(0x8000 | NFTA_LIST_ELEM, &inside)
    }

    fn bpf_match(name: &[u8], revision: u32, path: &[u8]) -> Vec<u8> {
        let info = attribute(NFTA_MATCH_INFO, &xt_bpf_info(1, path));
        let revision = attribute(NFTA_MATCH_REV, &revision.to_be_bytes());
        [attribute(NFTA_MATCH_NAME, name), revision, info].concat()
    }

    fn rule(family: u8, table: &[u8], chain: &[u8], expressions: &[Vec<u8>]) -> Vec<u8> {
        [
            vec![family, 0, 0, 0],
            attribute(NFTA_RULE_TABLE, table),
            attribute(NFTA_RULE_CHAIN, chain),
            attribute(3, &1u64.to_be_bytes()),
            attribute(0x8000 | NFTA_RULE_EXPRESSIONS, &expressions.concat()),
        ]
        .concat()
    }

    #[test]
    fn rules_are_numbered_within_their_chains() {
        let ours = |path: &[u8]| expression(b"match\0", &bpf_match(b"bpf\0", 1, path));
        let counter = || expression(b"counter\0", &attribute(1, &[0; 8]));
        let messages = [
            rule(2, b"filter\0", b"INPUT\0", &[counter()]),
            rule(2, b"filter\0", b"INPUT\0", &[counter(), ours(b"/b/one"), ours(b"/b/two")]),
            rule(2, b"filter\0", b"OUTPUT\0", &[ours(b"/b/out")]),
            rule(10, b"filter\0", b"OUTPUT\0", &[ours(b"/b/six")]),
            rule(10, b"filter\0", b"OUTPUT\0", &[expression(b"match\0", &bpf_match(b"bpf\0", 0, b"/b/classic"))]),
            rule(10, b"filter\0", b"OUTPUT\0", &[expression(b"match\0", &bpf_match(b"tcp\0", 1, b"/b/tcp"))]),
            rule(10, b"filter\0", b"OUTPUT\0", &[expression(b"target\0", &bpf_match(b"bpf\0", 1, b"/b/target"))]),
            rule(10, b"filter\0", b"OUTPUT\0", &[ours(b"/b/last")]),
        ];
        let mut numbering = Numbering::default();
        let rules: Vec<Rule> = messages.iter().flat_map(|message| numbering.rules(message)).collect();
        let expected = [
            ("ip filter INPUT rule 2 (nf_tables)", "/b/one"),
            ("ip filter INPUT rule 2 (nf_tables)", "/b/two"),
            ("ip filter OUTPUT rule 1 (nf_tables)", "/b/out"),
            ("ip6 filter OUTPUT rule 1 (nf_tables)", "/b/six"),
            ("ip6 filter OUTPUT rule 5 (nf_tables)", "/b/last"),
        ];
        let expected = expected.map(|(place, pin)| Rule { place: place.to_owned(), pin: PathBuf::from(pin) });
        assert_eq!(rules, expected);
    }

    #[test]
    fn a_rule_that_is_cut_off_has_no_program() {
        let whole = rule(2, b"filter\0", b"INPUT\0", &[expression(b"match\0", &bpf_match(b"bpf\0", 1, b"/b/one"))]);
        assert_eq!(Numbering::default().rules(&whole).len(), 1);
        for len in 0..whole.len() {
            assert_eq!(Numbering::default().rules(&whole[..len]), [], "{len} bytes");
        }
    }
}
