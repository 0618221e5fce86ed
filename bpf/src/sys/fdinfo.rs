//! `/proc/PID/fdinfo/FD` of BPF descriptors: facts that other interfaces do not show, or show only to privileged callers.

use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::error::{Error, Result};

/// Fields that bprec uses; a missing field is `None` or false. Layout: `bpf_{prog,map,link}_show_fdinfo()` in `kernel/bpf/syscall.c`,
/// one `name:\tvalue` per line.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FdInfo {
    pub(crate) prog_id: Option<u32>,
    pub(crate) map_id: Option<u32>,
    pub(crate) link_id: Option<u32>,
    pub(crate) memlock_bytes: Option<u64>,
    pub(crate) frozen: bool,
}

impl FdInfo {
    pub(crate) fn parse(text: &str) -> FdInfo {
        let mut info = FdInfo::default();
        for line in text.lines() {
            let Some((name, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            match name {
                "prog_id" => info.prog_id = value.parse().ok(),
                "map_id" => info.map_id = value.parse().ok(),
                "link_id" => info.link_id = value.parse().ok(),
                "memlock" => info.memlock_bytes = value.parse().ok(),
                "frozen" => info.frozen = value == "1",
                _ => {}
            }
        }
        info
    }

    /// Reads the fdinfo of a descriptor of this process.
    pub(crate) fn of_own(fd: BorrowedFd<'_>) -> Result<FdInfo> {
        let path = format!("/proc/self/fdinfo/{}", fd.as_raw_fd());
        fs::read_to_string(&path).map(|text| FdInfo::parse(&text)).map_err(|source| Error::file(path, source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_names_count() {
        let link =
            "pos:\t0\nflags:\t02000002\nlink_type:\ttracing\nlink_id:\t3\nprog_tag:\t0011223344556677\nprog_id:\t12\n";
        assert_eq!(FdInfo::parse(link), FdInfo { prog_id: Some(12), link_id: Some(3), ..FdInfo::default() });
        let map = "map_type:\t2\nmap_flags:\t0x480\nmap_extra:\t0x0\nmemlock:\t8192\nmap_id:\t236\nfrozen:\t1\n";
        let expected = FdInfo { map_id: Some(236), memlock_bytes: Some(8192), frozen: true, ..FdInfo::default() };
        assert_eq!(FdInfo::parse(map), expected);
        assert_eq!(FdInfo::parse("prog_id: ?\nlink_id"), FdInfo::default());
    }
}
