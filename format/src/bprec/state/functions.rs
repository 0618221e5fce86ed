//! Functions that samples hit: kernel functions by address, user functions by mapped file.

use crate::layout::meaning::{Mapping, Message, Symbol};
use crate::layout::{Address, Codec, CountedText, List, Public, layout};
use crate::records::{BuildId, Mmap2File};
use crate::{Reader, Result, Writer};

layout! {
    /// A kernel function.
    #[derive(Hash, Default)]
    pub struct KernelSymbol {
        /// First address.
        pub addr: u64 as Address,
        /// Bytes up to the next symbol; 0 if unknown.
        pub len_bytes: u32,
        /// Name of the function, followed by ` [module]` for a function of a module.
        pub name: Vec<u8> as CountedText<Symbol>,
    }

    /// Functions of one file. A file may have several of these payloads.
    ///
    /// `path` and `file` equal, byte for byte, the fields in the MMAP2 records of the file's mappings. To find the function at an address, find the
    /// mapping at the address first; it gives the file and the offset of the address in the file.
    #[derive(Hash)]
    pub struct FileFunctions {
        /// Path of the file.
        pub path: Vec<u8> as CountedText<Mapping>,
        /// File that is mapped.
        pub file: Mmap2File as MappedFile,
        /// The functions.
        pub functions: Vec<FileFunction> as List,
    }

    /// A function of a file.
    #[derive(Hash, PartialOrd, Ord)]
    pub struct FileFunction {
        /// First byte, from the start of the file.
        pub offset: u64,
        /// Length of the function in bytes.
        pub len_bytes: u64,
        /// Name as in the file, mangled if the language mangles names.
        pub name: Vec<u8> as CountedText<Public>,
    }

    /// Result of the lookup of user functions that samples hit, made when the file ended.
    #[derive(Default)]
    pub struct UserSymbols {
        /// Count of distinct offsets in files that samples hit.
        pub addresses: u64,
        /// Count of these offsets with a known function.
        pub named: u64,
        /// Time that the lookup took, ns.
        pub took_ns: u64,
        /// Reason why some offsets were not looked up; empty if all were looked up.
        pub cut: String as CountedText<Message>,
    }
}

/// `0u8 · major u32 · minor u32 · inode u64 · generation u64`, or `1u8 · build id text`.
struct MappedFile;

impl<'a> Codec<'a, Mmap2File> for MappedFile {
    const MIN_BYTES: usize = 3;

    fn put(value: &Mmap2File, w: &mut Writer<'_>) {
        match w.replaced(*value, |secrets, file| secrets.file(file)) {
            Mmap2File::Inode { major, minor, inode, generation } => {
                w.u8(0).u32(major).u32(minor).u64(inode).u64(generation);
            }
            Mmap2File::BuildId(id) => {
                let id = id.as_bytes();
                w.u8(1).u16(id.len() as u16).bytes(id);
            }
        }
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<Mmap2File> {
        Ok(match r.u8(what)? {
            0 => Mmap2File::Inode {
                major: r.u32(what)?,
                minor: r.u32(what)?,
                inode: r.u64(what)?,
                generation: r.u64(what)?,
            },
            _ => {
                let len = r.u16(what)?;
                Mmap2File::BuildId(BuildId::new(r.take(len.into(), what)?))
            }
        })
    }
}
