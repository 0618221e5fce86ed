//! A rule, and what the kernel tells of the program in it, whichever way it keeps the rule.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::sys;

/// The match and the one revision of it that takes programs; those before took classic BPF.
pub(super) const MATCH: &[u8] = b"bpf";
pub(super) const REVISION: u8 = 1;
/// `XT_BPF_MODE_PATH_PINNED`
const PATH_PINNED: u16 = 1;
/// Where in `struct xt_bpf_info_v1` the path is: behind `mode`, `bpf_program_num_elem` and `fd`.
const PATH_OFFSET: usize = 8;
/// `XT_BPF_PATH_MAX`
const PATH_BYTES: usize = 512;

/// A rule that a program decides on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    /// `ip filter INPUT rule 1 (legacy)`
    pub(super) place: String,
    /// Where the program was pinned when the rule was made.
    pub(super) pin: PathBuf,
}

/// The pin in a `struct xt_bpf_info_v1`; None where it has a descriptor or classic BPF instead, of which nothing leads to a program.
pub(super) fn pin(info: &[u8]) -> Option<PathBuf> {
    let mode = u16::from_ne_bytes(*info.first_chunk()?);
    let path = sys::up_to_nul(info.get(PATH_OFFSET..PATH_OFFSET + PATH_BYTES)?);
    (mode == PATH_PINNED && !path.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(path)))
}

/// A `struct xt_bpf_info_v1`, as it is laid out in linux/netfilter/xt_bpf.h.
#[cfg(test)]
pub(super) fn info(mode: u16, path: &[u8]) -> Vec<u8> {
    let mut info = mode.to_ne_bytes().to_vec();
    info.extend(0u16.to_ne_bytes());
    info.extend((-1i32).to_ne_bytes());
    info.extend(path);
    info.resize(8 + 512 + 8, 0);
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_pin_leads_to_a_program() {
        assert_eq!(pin(&info(1, b"/sys/fs/bpf/x")), Some(PathBuf::from("/sys/fs/bpf/x")));
        assert_eq!(pin(&info(0, b"\x06\0\0\0\xff\xff\0\0")), None, "classic BPF");
        assert_eq!(pin(&info(2, b"")), None, "a descriptor");
        assert_eq!(pin(&info(1, b"")), None);
        let whole = info(1, &[b'x'; 512]);
        assert_eq!(pin(&whole), Some(PathBuf::from("x".repeat(512))), "without its end");
        for len in 0..520 {
            assert_eq!(pin(&whole[..len]), None, "cut off after {len} bytes");
        }
    }
}
