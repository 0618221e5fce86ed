//! Parser of `/proc/PID/maps`.

/// Mapping, parsed from its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mapping<'a> {
    pub(super) start: u64,
    pub(super) end: u64,
    /// `PROT_*` bits.
    pub(super) prot: u32,
    /// `MAP_SHARED` or `MAP_PRIVATE`.
    pub(super) flags: u32,
    pub(super) pgoff: u64,
    pub(super) major: u32,
    pub(super) minor: u32,
    /// Inode of the file; 0 without a file.
    pub(super) inode: u64,
    /// Path of the file or a name in brackets; empty for anonymous memory.
    pub(super) path: &'a [u8],
}

impl<'a> Mapping<'a> {
    /// Returns the executable mappings.
    pub(super) fn executable(text: &'a [u8]) -> impl Iterator<Item = Mapping<'a>> {
        text.split(|byte| *byte == b'\n')
            .filter_map(Mapping::parse)
            .filter(|map| map.prot & libc::PROT_EXEC as u32 != 0)
    }

    /// Parses `start-end perms offset major:minor inode [path]`. Numbers are hexadecimal, except the inode.
    fn parse(line: &'a [u8]) -> Option<Mapping<'a>> {
        let mut rest = line;
        let mut field = |end: u8| -> Option<&'a [u8]> {
            let at = rest.iter().position(|byte| *byte == end)?;
            let (field, after) = (rest.get(..at)?, rest.get(at + 1..)?);
            rest = after;
            Some(field)
        };
        let (start, end) = (hexadecimal(field(b'-')?)?, hexadecimal(field(b' ')?)?);
        let perms = field(b' ')?;
        let pgoff = hexadecimal(field(b' ')?)?;
        let (major, minor) = (hexadecimal(field(b':')?)?, hexadecimal(field(b' ')?)?);
        // A line without a path has a blank after the inode.
        let inode = std::str::from_utf8(field(b' ')?).ok()?.parse().ok()?;
        let path = rest.trim_ascii_start();
        let bit = |at: usize, letter: u8, bit: libc::c_int| match perms.get(at) == Some(&letter) {
            true => bit as u32,
            false => 0,
        };
        Some(Mapping {
            start,
            end,
            prot: bit(0, b'r', libc::PROT_READ) | bit(1, b'w', libc::PROT_WRITE) | bit(2, b'x', libc::PROT_EXEC),
            flags: bit(3, b's', libc::MAP_SHARED) | bit(3, b'p', libc::MAP_PRIVATE),
            pgoff,
            major: u32::try_from(major).ok()?,
            minor: u32::try_from(minor).ok()?,
            inode,
            path,
        })
    }
}

/// Parses a hexadecimal number.
pub(super) fn hexadecimal(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_all_kinds() {
        let text: &[u8] =
            b"55d0c0400000-55d0c0500000 r-xp 00002000 fe:01 1835012                    /usr/bin/a b (deleted)
7f0000000000-7f0000001000 rw-p 00000000 00:00 0 
7f0000002000-7f0000003000 rwxs 00000000 00:00 0 
7ffe00000000-7ffe00002000 r-xp 00000000 00:00 0                          [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
garbage
";
        let maps: Vec<Mapping<'_>> = Mapping::executable(text).collect();
        let paths: Vec<&[u8]> = maps.iter().map(|map| map.path).collect();
        assert_eq!(paths, [&b"/usr/bin/a b (deleted)"[..], b"", b"[vdso]", b"[vsyscall]"]);
        assert_eq!(
            maps[0],
            Mapping {
                start: 0x55d0_c040_0000,
                end: 0x55d0_c050_0000,
                prot: 5,
                flags: 2,
                pgoff: 0x2000,
                major: 0xfe,
                minor: 1,
                inode: 1_835_012,
                path: b"/usr/bin/a b (deleted)",
            }
        );
        assert_eq!((maps[1].prot, maps[1].flags), (7, 1));
        assert_eq!((maps[3].start, maps[3].prot), (0xffff_ffff_ff60_0000, 4));
    }
}
