//! Programs on network interfaces that were put there by netlink, without a link: XDP, and tc filters.
//!
//! Only interfaces of the network namespace that the calling thread is in are seen.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use bprec_format::state::Attachment;

use crate::error::{Error, Object, Result};
use crate::sys;

/// `rtnetlink(7)` message types and attributes that are used.
mod rt {
    pub(super) const GETLINK: u16 = 18;
    pub(super) const GETQDISC: u16 = 38;
    pub(super) const GETTFILTER: u16 = 46;
    pub(super) const DONE: u16 = 3;
    pub(super) const ERROR: u16 = 2;
    /// `NLM_F_REQUEST | NLM_F_DUMP`
    pub(super) const DUMP: u16 = 0x301;

    pub(super) const IFLA_IFNAME: u16 = 3;
    pub(super) const IFLA_XDP: u16 = 43;
    pub(super) const IFLA_XDP_PROG_ID: u16 = 4;
    pub(super) const IFLA_XDP_DRV_PROG_ID: u16 = 5;
    pub(super) const IFLA_XDP_SKB_PROG_ID: u16 = 6;
    pub(super) const IFLA_XDP_HW_PROG_ID: u16 = 7;

    pub(super) const TCA_KIND: u16 = 1;
    pub(super) const TCA_OPTIONS: u16 = 2;
    pub(super) const TCA_BPF_ID: u16 = 11;

    /// `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)` and `…_EGRESS`.
    pub(super) const CLSACT_INGRESS: u32 = 0xffff_fff2;
    pub(super) const CLSACT_EGRESS: u32 = 0xffff_fff3;
    /// `TC_H_MAJ_MASK`
    pub(super) const MAJOR: u32 = 0xffff_0000;
}

/// Bytes of `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;
/// Bytes of `struct ifinfomsg`.
const IFINFO_BYTES: usize = 16;
/// Bytes of `struct tcmsg`.
const TCMSG_BYTES: usize = 20;

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// Programs on its XDP hook, in whichever mode.
    pub(crate) xdp: Vec<u32>,
}

/// The interfaces of this network namespace.
///
/// # Errors
/// When the kernel refuses to list them.
pub(crate) fn interfaces() -> Result<Vec<Interface>> {
    let mut interfaces = Vec::new();
    dump("RTM_GETLINK", rt::GETLINK, &[0; IFINFO_BYTES], |message| {
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

/// Ids of the programs in an `IFLA_XDP` attribute. With programs in several modes each has its own field.
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
    Attachment { prog_id, link_id: None, kind: kind.to_owned(), target: target.as_bytes().to_vec() }
}

/// Programs in tc filters, on every hook of every interface that has one.
///
/// # Errors
/// When the kernel refuses to list queueing disciplines or filters.
pub(crate) fn tc_attachments(interfaces: &[Interface]) -> Result<Vec<Attachment>> {
    // (interface, parent to ask for filters of)
    let mut hooks: Vec<(u32, u32)> = Vec::new();
    dump("RTM_GETQDISC", rt::GETQDISC, &[0; TCMSG_BYTES], |message| {
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
        dump("RTM_GETTFILTER", rt::GETTFILTER, &request, |message| {
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

/// Walks netlink attributes: `length u16 · type u16 · value`, each padded to four bytes. Ends at the first bad length.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        const NLA_TYPE_MASK: u16 = 0x3fff;
        let [a, b, c, d] = *self.0.first_chunk::<4>()?;
        let len = usize::from(u16::from_ne_bytes([a, b]));
        let value = self.0.get(4..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([c, d]) & NLA_TYPE_MASK, value))
    }
}

/// Sends one dump request and hands the payload of each message of the answer to `each`.
fn dump(call: &'static str, request: u16, payload: &[u8], mut each: impl FnMut(&[u8])) -> Result<()> {
    let refused = |source: io::Error| {
        let errno = source.raw_os_error().unwrap_or(libc::EIO);
        Error::Syscall { call, object: Object::Named("of this network namespace"), errno, remedy: None }
    };
    let socket = UnixDatagram::from(sys::netlink::route_socket().map_err(refused)?);
    // The kernel answers at once or not at all.
    socket.set_read_timeout(Some(Duration::from_secs(2))).map_err(refused)?;
    let mut message = Vec::with_capacity(HEADER_BYTES + payload.len());
    message.extend(((HEADER_BYTES + payload.len()) as u32).to_ne_bytes());
    message.extend(request.to_ne_bytes());
    message.extend(rt::DUMP.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(payload);
    socket.send(&message).map_err(refused)?;

    let mut buffer = vec![0u8; 64 << 10];
    loop {
        let len = socket.recv(&mut buffer).map_err(refused)?;
        let mut rest = buffer.get(..len).unwrap_or_default();
        if rest.is_empty() {
            return Err(refused(io::Error::from_raw_os_error(libc::EIO)));
        }
        while rest.len() >= HEADER_BYTES {
            let size = sys::get_u32(rest, 0) as usize;
            let kind = sys::get_u32(rest, 4) as u16;
            let Some(body) = rest.get(HEADER_BYTES..size) else {
                let problem = format!("a message of {size} bytes of which {} came", rest.len());
                return Err(Error::Answer { call, object: Object::Named("of this network namespace"), problem });
            };
            match kind {
                rt::DONE => return Ok(()),
                rt::ERROR => {
                    let errno = sys::get_u32(body, 0).cast_signed().wrapping_neg();
                    return Err(refused(io::Error::from_raw_os_error(errno)));
                }
                _ => each(body),
            }
            rest = rest.get(size.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn attributes_end_at_the_first_bad_length() {
        let mut bytes = attribute(3, b"lo\0");
        bytes.extend(attribute(0x8000 | 43, &[1, 2, 3, 4]));
        let all: Vec<_> = Attributes(&bytes).collect();
        assert_eq!(all, [(3, &b"lo\0"[..]), (43, &[1, 2, 3, 4][..])]);
        assert_eq!(Attributes(&bytes[..bytes.len() - 1]).count(), 1);
        assert_eq!(Attributes(&[2, 0, 3, 0, 9, 9, 9, 9]).count(), 0, "shorter than its own header");
    }

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
