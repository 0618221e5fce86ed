//! Programs that were attached to network interfaces by netlink: XDP and tc filters.
//!
//! All functions query the network namespace of the calling thread.

use bprec_format::bprec::state::{AttachTarget, Attachment};

use crate::error::Result;
use crate::inspect::netlink::{self, Attributes};
use crate::sys;

/// Message types and attributes of `rtnetlink(7)`.
mod rt {
    pub(super) const GETLINK: u16 = 18;
    pub(super) const GETQDISC: u16 = 38;
    pub(super) const GETTFILTER: u16 = 46;

    pub(super) const IFLA_IFNAME: u16 = 3;
    pub(super) const IFLA_XDP: u16 = 43;
    pub(super) const IFLA_XDP_PROG_ID: u16 = 4;
    pub(super) const IFLA_XDP_DRV_PROG_ID: u16 = 5;
    pub(super) const IFLA_XDP_SKB_PROG_ID: u16 = 6;
    pub(super) const IFLA_XDP_HW_PROG_ID: u16 = 7;

    pub(super) const TCA_KIND: u16 = 1;
    pub(super) const TCA_OPTIONS: u16 = 2;
    pub(super) const TCA_BPF_ID: u16 = 11;

    /// `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)`
    pub(super) const CLSACT_INGRESS: u32 = 0xffff_fff2;
    /// `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_EGRESS)`
    pub(super) const CLSACT_EGRESS: u32 = 0xffff_fff3;
    /// `TC_H_MAJ_MASK`
    pub(super) const MAJOR: u32 = 0xffff_0000;
}

/// Bytes of `struct ifinfomsg`.
const IFINFO_BYTES: usize = 16;
/// Bytes of `struct tcmsg`.
const TCMSG_BYTES: usize = 20;

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// Programs on the interface's XDP hook, in all modes.
    pub(crate) xdp: Vec<u32>,
}

/// The interfaces of this network namespace.
///
/// # Errors
/// Fails if the kernel refuses to list them.
pub(crate) fn interfaces() -> Result<Vec<Interface>> {
    let mut interfaces = Vec::new();
    netlink::dump("RTM_GETLINK", rt::GETLINK, &[0; IFINFO_BYTES], |message| {
        let index = sys::get_u32(message, 4);
        let mut interface = Interface { index, name: String::new(), xdp: Vec::new() };
        for (kind, value) in Attributes(message.get(IFINFO_BYTES..).unwrap_or_default()) {
            match kind {
                rt::IFLA_IFNAME => interface.name = String::from_utf8_lossy(sys::up_to_nul(value)).into_owned(),
                rt::IFLA_XDP => interface.xdp = xdp_progs(value),
                _ => {}
            }
        }
        interfaces.push(interface);
    })?;
    Ok(interfaces)
}

/// Ids of the programs in an `IFLA_XDP` attribute, which has one field for each mode.
fn xdp_progs(nested: &[u8]) -> Vec<u32> {
    use rt::{IFLA_XDP_DRV_PROG_ID, IFLA_XDP_HW_PROG_ID, IFLA_XDP_PROG_ID, IFLA_XDP_SKB_PROG_ID};
    let fields = [IFLA_XDP_PROG_ID, IFLA_XDP_DRV_PROG_ID, IFLA_XDP_SKB_PROG_ID, IFLA_XDP_HW_PROG_ID];
    let mut ids: Vec<u32> = Attributes(nested)
        .filter(|(kind, value)| fields.contains(kind) && value.len() >= 4)
        .map(|(_, value)| sys::get_u32(value, 0))
        .filter(|id| *id != 0)
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Programs on XDP hooks.
pub(crate) fn xdp_attachments(interfaces: &[Interface]) -> Vec<Attachment> {
    let on_each = |interface: &Interface| {
        let name = interface.name.clone();
        interface.xdp.clone().into_iter().map(move |prog_id| attachment(prog_id, "xdp", &name))
    };
    interfaces.iter().flat_map(on_each).collect()
}

fn attachment(prog_id: u32, kind: &str, target: &str) -> Attachment {
    Attachment { prog_id, link_id: None, kind: kind.to_owned(), target: AttachTarget::default().words(target) }
}

/// Programs in tc filters of all interfaces.
///
/// # Errors
/// Fails if the kernel refuses to list queueing disciplines or filters.
pub(crate) fn tc_attachments(interfaces: &[Interface]) -> Result<Vec<Attachment>> {
    // Hooks to query for filters: interface index and parent handle.
    let mut hooks: Vec<(u32, u32)> = Vec::new();
    netlink::dump("RTM_GETQDISC", rt::GETQDISC, &[0; TCMSG_BYTES], |message| {
        let (index, handle) = (sys::get_u32(message, 4), sys::get_u32(message, 8));
        let kind = Attributes(message.get(TCMSG_BYTES..).unwrap_or_default())
            .find(|(kind, _)| *kind == rt::TCA_KIND)
            .map(|(_, name)| sys::up_to_nul(name));
        match kind {
            Some(b"clsact") => hooks.extend([(index, rt::CLSACT_INGRESS), (index, rt::CLSACT_EGRESS)]),
            Some(b"ingress") => hooks.push((index, handle)),
            _ if handle & rt::MAJOR != 0 => hooks.push((index, handle)),
            _ => {}
        }
    })?;
    let mut found: Vec<Attachment> = Vec::new();
    for (index, parent) in hooks {
        let name = interfaces.iter().find(|interface| interface.index == index).map(|interface| &interface.name);
        let name = name.cloned().unwrap_or_else(|| format!("interface {index}"));
        let kind = match parent {
            rt::CLSACT_EGRESS => "tc_egress".to_owned(),
            ingress if ingress & rt::MAJOR == rt::MAJOR => "tc_ingress".to_owned(),
            class => format!("tc_{:x}:", class >> 16),
        };
        let mut request = [0u8; TCMSG_BYTES];
        request[4..8].copy_from_slice(&index.to_ne_bytes());
        request[12..16].copy_from_slice(&parent.to_ne_bytes());
        netlink::dump("RTM_GETTFILTER", rt::GETTFILTER, &request, |message| {
            if let Some(prog_id) = filter_prog(message.get(TCMSG_BYTES..).unwrap_or_default()) {
                let new = attachment(prog_id, &kind, &name);
                if !found.contains(&new) {
                    found.push(new);
                }
            }
        })?;
    }
    Ok(found)
}

/// Id of the program of a filter of kind `bpf`.
fn filter_prog(attributes: &[u8]) -> Option<u32> {
    let find = |wanted: u16| Attributes(attributes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    if sys::up_to_nul(find(rt::TCA_KIND)?) != b"bpf" {
        return None;
    }
    let (_, id) =
        Attributes(find(rt::TCA_OPTIONS)?).find(|(kind, value)| *kind == rt::TCA_BPF_ID && value.len() >= 4)?;
    Some(sys::get_u32(id, 0)).filter(|id| *id != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::netlink::attribute;

    #[test]
    fn a_filter_of_another_kind_has_no_program() {
        let id = attribute(rt::TCA_BPF_ID, &7u32.to_ne_bytes());
        let of_kind = |kind: &[u8]| [attribute(rt::TCA_KIND, kind), attribute(rt::TCA_OPTIONS, &id)].concat();
        assert_eq!(filter_prog(&of_kind(b"bpf\0")), Some(7));
        assert_eq!(filter_prog(&of_kind(b"flower\0")), None);
        assert_eq!(filter_prog(&attribute(rt::TCA_KIND, b"bpf\0")), None);
    }

    #[test]
    fn a_program_in_one_mode_is_told_once() {
        let one = [attribute(2, &[2]), attribute(4, &9u32.to_ne_bytes()), attribute(6, &9u32.to_ne_bytes())].concat();
        assert_eq!(xdp_progs(&one), [9]);
        assert_eq!(xdp_progs(&attribute(2, &[0])), []);
    }
}
