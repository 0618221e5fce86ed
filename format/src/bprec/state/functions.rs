//! Functions that samples hit: kernel functions by address, user functions by mapped file.

use crate::layout::meaning::{Mapping, Message, Symbol};
use crate::layout::{Address, Codec, CountedText, List, Public, Secrets, layout};
use crate::records::{BuildId, Mmap2File};
use crate::{Reader, Result, Writer};

layout! {
    /// A kernel function.
    #[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
    pub struct KernelSymbol {
        /// First address.
        pub addr: u64 as Address,
        /// Bytes up to the next symbol; 0 if unknown.
        pub len_bytes: u32,
        /// Name, with ` [module]` behind it for a module's.
        pub name: Vec<u8> as CountedText<Symbol>,
    }
}

layout! {
    /// Functions of one file. A file may have several of these payloads.
    ///
    /// Path and file equal those in the MMAP2 records of its mappings byte for byte: an address belongs to the
    /// functions of the file mapped there.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub struct FileFunctions {
        /// Path.
        pub path: Vec<u8> as CountedText<Mapping>,
        /// File that is mapped.
        pub file: Mmap2File as MappedFile,
        /// The functions.
        pub functions: Vec<FileFunction> as List,
    }
}

layout! {
    /// A function of a file.
    #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct FileFunction {
        /// First byte, from the start of the file.
        pub offset: u64,
        /// Length of the function in bytes.
        pub len_bytes: u64,
        /// Name as in the file, mangled if the language mangles names.
        pub name: Vec<u8> as CountedText<Public>,
    }
}

layout! {
    /// Number of functions of user space that were named when the file ended.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct UserSymbols {
        /// Number of distinct places in files that samples hit.
        pub addresses: u64,
        /// Number of these places whose function was found.
        pub named: u64,
        /// Time that the lookup took, ns.
        pub took_ns: u64,
        /// Why some places were not looked up; empty if all were.
        pub cut: String as CountedText<Message>,
    }
}

impl FileFunctions {
    /// Upper bound of the bytes that a payload takes beside its functions, for a path of `path` bytes.
    pub fn overhead_bytes(path: usize) -> usize {
        64 + path
    }
}

impl FileFunction {
    /// Bytes that a function takes beside its name.
    pub const MIN_BYTES: usize = 18;
}

/// `0u8 · major u32 · minor u32 · inode u64 · generation u64`, or `1u8 · build id text`.
struct MappedFile;

impl<'a> Codec<'a, Mmap2File> for MappedFile {
    const MIN_BYTES: usize = 3;

    fn put(value: &Mmap2File, w: &mut Writer<'_>) {
        match value {
            Mmap2File::Inode { major, minor, inode, generation } => {
                w.u8(0).u32(*major).u32(*minor).u64(*inode).u64(*generation);
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

    fn secrets(value: &mut Mmap2File, secrets: &mut dyn Secrets) {
        secrets.file(value);
    }
}
