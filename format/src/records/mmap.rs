//! Mappings: MMAP (since 2.6.31) and MMAP2 (since 3.12).

use crate::layout::meaning::Mapping;
use crate::layout::{Address, Codec, LastText, Plain};
use crate::record::misc;
use crate::{Reader, Result, Writer};

record! {
    /// MMAP (since 2.6.31): `pid u32, tid u32, addr u64, len u64, pgoff u64, filename`.
    ///
    /// Tools write the mappings of the kernel and its modules with pid −1.
    pub struct Mmap<'a> {
        /// Process id.
        pub pid: u32,
        /// Thread id.
        pub tid: u32,
        /// First address.
        pub addr: u64 as Address,
        /// Bytes mapped.
        pub len_bytes: u64,
        /// Offset in the file; for the mapping of the kernel, the address of the kernel's reference symbol.
        pub pgoff: u64,
        /// Path of the file, or `[vdso]`, `//anon` …
        pub filename: &'a [u8] as LastText<Mapping>,
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

record! {
    /// MMAP2 (since 3.12): the fields of MMAP up to `pgoff`, then 24 bytes of [`Mmap2File`], `prot u32, flags u32, filename`.
    pub struct Mmap2<'a> {
        /// Process id.
        pub pid: u32,
        /// Thread id.
        pub tid: u32,
        /// First address.
        pub addr: u64 as Address,
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
        pub filename: &'a [u8] as LastText<Mapping>,
    }
}

impl<'a> Codec<'a, Mmap2File> for Plain {
    const MIN_BYTES: usize = 24;

    fn put(value: &Mmap2File, w: &mut Writer<'_>) {
        match w.replaced(*value, |secrets, file| secrets.file(file)) {
            Mmap2File::Inode { major, minor, inode, generation } => {
                w.u32(major).u32(minor).u64(inode).u64(generation);
            }
            Mmap2File::BuildId(id) => {
                w.u8(id.len).zeros(3).bytes(&id.bytes);
            }
        }
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<Mmap2File> {
        if r.misc() & misc::MMAP_BUILD_ID == 0 {
            let (major, minor) = (r.u32(what)?, r.u32(what)?);
            return Ok(Mmap2File::Inode { major, minor, inode: r.u64(what)?, generation: r.u64(what)? });
        }
        let [len, ..] = r.array::<4>(what)?;
        let bytes: [u8; 20] = r.array(what)?;
        Ok(Mmap2File::BuildId(BuildId::new(&bytes[..usize::from(len).min(20)])))
    }
}

impl Mmap2<'_> {
    /// Misc bit that the record's header needs for this payload.
    pub fn misc(&self) -> u16 {
        match self.file {
            Mmap2File::BuildId(_) => misc::MMAP_BUILD_ID,
            Mmap2File::Inode { .. } => 0,
        }
    }
}
