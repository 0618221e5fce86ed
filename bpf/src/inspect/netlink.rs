//! Netlink dump requests, and attributes in the answers.
//!
//! The answers are about the network namespace of the calling thread.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::error::{Error, Object, Result};
use crate::sys;

/// `NLMSG_ERROR`
const ERROR: u16 = 2;
/// `NLMSG_DONE`
const DONE: u16 = 3;
/// `NLM_F_REQUEST | NLM_F_DUMP`
const DUMP: u16 = 0x301;
/// Bytes of `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;

/// Sends one dump request and passes the payload of each message of the answer to `each`. A dump during which entries came or went is no error.
///
/// # Errors
/// Fails if the kernel refuses the request, or its answer is malformed.
pub(crate) fn dump(call: &'static str, request: u16, payload: &[u8], mut each: impl FnMut(&[u8])) -> Result<()> {
    let refused = |source: io::Error| refusal(call, source.raw_os_error().unwrap_or(libc::EIO));
    // `NETLINK_ROUTE` is protocol 0.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)
        .map_err(|errno| refused(errno.into()))?;
    let socket = UnixDatagram::from(socket);
    // The kernel answers at once or not at all.
    socket.set_read_timeout(Some(Duration::from_secs(2))).map_err(refused)?;
    let mut message = Vec::with_capacity(HEADER_BYTES + payload.len());
    message.extend(((HEADER_BYTES + payload.len()) as u32).to_ne_bytes());
    message.extend(request.to_ne_bytes());
    message.extend(DUMP.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(payload);
    socket.send(&message).map_err(refused)?;

    let mut buffer = vec![0u8; 64 << 10];
    loop {
        let len = socket.recv(&mut buffer).map_err(refused)?;
        if messages(call, buffer.get(..len).unwrap_or_default(), &mut each)? {
            return Ok(());
        }
    }
}

/// Passes on the payloads of one datagram. Returns true if the datagram ends the dump.
fn messages(call: &'static str, part: &[u8], each: &mut impl FnMut(&[u8])) -> Result<bool> {
    let mut rest = part;
    if rest.len() < HEADER_BYTES {
        return Err(refusal(call, libc::EIO));
    }
    while rest.len() >= HEADER_BYTES {
        let size = sys::get_u32(rest, 0) as usize;
        let kind = sys::get_u16(rest, 4);
        let Some(body) = rest.get(HEADER_BYTES..size) else {
            let problem = format!("the kernel announced a message of {size} bytes in {} bytes", rest.len());
            return Err(Error::Answer { call, object: OF_NAMESPACE, problem });
        };
        match kind {
            ERROR | DONE => {
                let errno = body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code).wrapping_neg());
                return if kind == DONE && errno <= 0 { Ok(true) } else { Err(refusal(call, errno)) };
            }
            _ => each(body),
        }
        rest = rest.get(size.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

const OF_NAMESPACE: Object = Object::Named("of this network namespace");

fn refusal(call: &'static str, errno: i32) -> Error {
    Error::refused(call, OF_NAMESPACE)(errno)
}

/// Walks netlink attributes: `length u16 · type u16 · value`, each padded to four bytes. Ends at the first bad length.
pub(crate) struct Attributes<'a>(pub(crate) &'a [u8]);

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

/// Encodes an attribute in the kernel's layout.
#[cfg(test)]
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn read(part: &[u8]) -> (Result<bool>, Vec<Vec<u8>>) {
        let mut bodies = Vec::new();
        let read = messages("GET", part, &mut |body| bodies.push(body.to_vec()));
        (read, bodies)
    }

    #[test]
    fn a_list_ends_with_its_last_message() {
        let part = [message(0x0a06, 2, b"one"), message(0x0a06, 2, b"second")].concat();
        let (more, bodies) = read(&part);
        assert!(!more.unwrap());
        assert_eq!(bodies, [b"one".to_vec(), b"second".to_vec()]);
        let (last, bodies) = read(&[message(16, 0x12, b"one"), message(DONE, 2, &[0; 4])].concat());
        assert_eq!((last.unwrap(), bodies.len()), (true, 1));
    }

    #[test]
    fn refusals_and_cut_off_messages_are_errors() {
        let code = (-libc::EPERM).to_ne_bytes();
        for kind in [ERROR, DONE] {
            assert_eq!(read(&message(kind, 0, &code)).0.unwrap_err().errno(), Some(libc::EPERM));
        }
        let whole = message(16, 0, b"12345678");
        for len in 0..whole.len() {
            assert!(read(&whole[..len]).0.is_err(), "{len} bytes");
        }
        let short = [&15u32.to_ne_bytes()[..], &whole[4..]].concat();
        assert!(read(&short).0.is_err(), "the length is below the length of the header");
    }

    #[test]
    fn attributes_end_at_the_first_bad_length() {
        let mut bytes = attribute(3, b"lo\0");
        bytes.extend(attribute(0x8000 | 43, &[1, 2, 3, 4]));
        let all: Vec<_> = Attributes(&bytes).collect();
        assert_eq!(all, [(3, &b"lo\0"[..]), (43, &[1, 2, 3, 4][..])]);
        assert_eq!(Attributes(&bytes[..bytes.len() - 1]).count(), 1);
        assert_eq!(Attributes(&[2, 0, 3, 0, 9, 9, 9, 9]).count(), 0, "the length is below the length of the header");
    }
}
