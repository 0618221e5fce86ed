//! Mappings: MMAP (since 2.6.31) and MMAP2 (since 3.12).

use super::{put_string, string};
use crate::layout::LastText;
use crate::record::misc;
use crate::{Reader, Result, Writer};

record! {
    /// MMAP (since 2.6.31): `pid u32, tid u32, addr u64, len u64, pgoff u64, filename`.
    ///
    /// Tools write the maps of the kernel and its modules with pid −1.
    pub struct Mmap<'a> {
        /// Process id.
        pub pid: u32,
        /// Thread id.
        pub tid: u32,
        /// First address.
        pub addr: u64,
        /// Bytes mapped.
        pub len_bytes: u64,
        /// Offset in the file; for the kernel's map, the address of its reference symbol.
        pub pgoff: u64,
        /// Path of the file, or `[vdso]`, `//anon` …
        pub filename: &'a [u8] as LastText,
    }
}

/// Build id of a linked file, at most 20 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BuildId {
    len: u8,
    bytes: [u8; 20],
}

impl BuildId {
    /// Build id with the first 20 bytes of `id`.
    pub fn new(id: &[u8]) -> BuildId {
        let len = id.len().min(20);
        let mut bytes = [0; 20];
        bytes[..len].copy_from_slice(&id[..len]);
        BuildId { len: len as u8, bytes }
    }

    /// Bytes of the build id.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Identity of a mapped file in MMAP2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mmap2File {
    /// Device and inode.
    Inode {
        /// Major number of the device.
        major: u32,
        /// Minor number of the device.
        minor: u32,
        /// Inode number.
        inode: u64,
        /// Inode generation.
        generation: u64,
    },
    /// Build id in place of device and inode (misc bit [`misc::MMAP_BUILD_ID`], since 5.12).
    BuildId(BuildId),
}

/// MMAP2 (since 3.12): the fields of MMAP up to `pgoff`, then 24 bytes of [`Mmap2File`], `prot u32, flags u32, filename`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mmap2<'a> {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// First address.
    pub addr: u64,
    /// Bytes mapped.
    pub len_bytes: u64,
    /// Offset in the file.
    pub pgoff: u64,
    /// File that is mapped.
    pub file: Mmap2File,
    /// `PROT_*` bits.
    pub prot: u32,
    /// `MAP_*` bits.
    pub flags: u32,
    /// Path of the file, or `[vdso]`, `//anon` …
    pub filename: &'a [u8],
}

impl<'a> Mmap2<'a> {
    pub(super) fn parse(r: &mut Reader<'a>, record_misc: u16) -> Result<Mmap2<'a>> {
        let (pid, tid) = (r.u32("MMAP2 pid")?, r.u32("MMAP2 tid")?);
        let (addr, len_bytes, pgoff) = (r.u64("MMAP2 addr")?, r.u64("MMAP2 len")?, r.u64("MMAP2 pgoff")?);
        let file = if record_misc & misc::MMAP_BUILD_ID != 0 {
            let len = r.u8("MMAP2 build_id_size")?;
            r.take(3, "MMAP2 build_id")?;
            let bytes: [u8; 20] = r.array("MMAP2 build_id")?;
            Mmap2File::BuildId(BuildId::new(&bytes[..usize::from(len).min(20)]))
        } else {
            Mmap2File::Inode {
                major: r.u32("MMAP2 maj")?,
                minor: r.u32("MMAP2 min")?,
                inode: r.u64("MMAP2 ino")?,
                generation: r.u64("MMAP2 ino_generation")?,
            }
        };
        Ok(Mmap2 {
            pid,
            tid,
            addr,
            len_bytes,
            pgoff,
            file,
            prot: r.u32("MMAP2 prot")?,
            flags: r.u32("MMAP2 flags")?,
            filename: string(r, "MMAP2 filename")?,
        })
    }

    /// Misc bit that the record's header needs for this payload.
    pub fn misc(&self) -> u16 {
        match self.file {
            Mmap2File::BuildId(_) => misc::MMAP_BUILD_ID,
            Mmap2File::Inode { .. } => 0,
        }
    }

    /// Appends the payload.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.pid).u32(self.tid).u64(self.addr).u64(self.len_bytes).u64(self.pgoff);
        match self.file {
            Mmap2File::Inode { major, minor, inode, generation } => {
                w.u32(major).u32(minor).u64(inode).u64(generation);
            }
            Mmap2File::BuildId(id) => {
                w.u8(id.len).zeros(3).bytes(&id.bytes);
            }
        }
        w.u32(self.prot).u32(self.flags);
        put_string(w, self.filename);
    }
}
