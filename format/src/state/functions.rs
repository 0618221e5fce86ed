//! Functions that samples hit: the kernel's by address, those of user space by the file that was mapped.

use super::parts::{get_list, get_string, get_text, put_list, put_text};
use crate::records::{BuildId, Mmap2File};
use crate::{Reader, Result, Writer};

/// A kernel function.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct KernelSymbol {
    /// First address.
    pub addr: u64,
    /// Bytes up to the next symbol; 0 when not known.
    pub len_bytes: u32,
    /// Name, with ` [module]` behind it for a module's.
    pub name: Vec<u8>,
}

/// Functions of one file. A file may have several of these payloads.
///
/// Path and file are those of the MMAP2 records of its mappings, to the letter: an address belongs to the functions of the file that
/// was mapped there.
///
/// ```text
/// path text · file u8 · (0: major u32 · minor u32 · inode u64 · generation u64 | 1: build id text) · functions list
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FileFunctions {
    /// Path.
    pub path: Vec<u8>,
    /// Which file.
    pub file: Mmap2File,
    /// The functions.
    pub functions: Vec<FileFunction>,
}

/// A function: `offset u64 · length u64 · name text`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileFunction {
    /// Where it starts, bytes from the start of the file.
    pub offset: u64,
    /// Its length in bytes.
    pub len_bytes: u64,
    /// Its name as the file has it, mangled where the language does so.
    pub name: Vec<u8>,
}

/// How far the functions of user space were named when the file ended: `addresses u64 · named u64 · took_ns u64 · cut text`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UserSymbols {
    /// Places in files that samples hit, each once.
    pub addresses: u64,
    /// Those of them whose function was found.
    pub named: u64,
    /// How long it took, ns.
    pub took_ns: u64,
    /// Why not everything was looked up; empty when it was.
    pub cut: String,
}

impl FileFunctions {
    /// The most bytes that a payload takes beside its functions, with a path of so many bytes.
    pub fn overhead_bytes(path: usize) -> usize {
        64 + path
    }

    pub(super) fn put(&self, w: &mut Writer<'_>) {
        put_text(w, &self.path);
        match self.file {
            Mmap2File::Inode { major, minor, inode, generation } => {
                w.u8(0).u32(major).u32(minor).u64(inode).u64(generation);
            }
            Mmap2File::BuildId(id) => {
                w.u8(1);
                put_text(w, id.as_bytes());
            }
        }
        put_list(w, &self.functions, FileFunction::put);
    }

    pub(super) fn get(r: &mut Reader<'_>) -> Result<FileFunctions> {
        let path = get_text(r, "functions path")?;
        let file = match r.u8("functions file")? {
            0 => Mmap2File::Inode {
                major: r.u32("functions major")?,
                minor: r.u32("functions minor")?,
                inode: r.u64("functions inode")?,
                generation: r.u64("functions generation")?,
            },
            _ => Mmap2File::BuildId(BuildId::new(&get_text(r, "functions build id")?)),
        };
        Ok(FileFunctions { path, file, functions: get_list(r, FileFunction::MIN_BYTES, FileFunction::get)? })
    }
}

impl FileFunction {
    /// What it takes beside its name.
    pub const MIN_BYTES: usize = 18;

    fn put(&self, w: &mut Writer<'_>) {
        w.u64(self.offset).u64(self.len_bytes);
        put_text(w, &self.name);
    }

    fn get(r: &mut Reader<'_>) -> Result<FileFunction> {
        Ok(FileFunction {
            offset: r.u64("function offset")?,
            len_bytes: r.u64("function length")?,
            name: get_text(r, "function name")?,
        })
    }
}

impl UserSymbols {
    pub(super) fn put(&self, w: &mut Writer<'_>) {
        w.u64(self.addresses).u64(self.named).u64(self.took_ns);
        put_text(w, self.cut.as_bytes());
    }

    pub(super) fn get(r: &mut Reader<'_>) -> Result<UserSymbols> {
        Ok(UserSymbols {
            addresses: r.u64("user symbols addresses")?,
            named: r.u64("user symbols named")?,
            took_ns: r.u64("user symbols time")?,
            cut: get_string(r, "user symbols cut")?,
        })
    }
}

impl KernelSymbol {
    pub(super) fn put(&self, w: &mut Writer<'_>) {
        w.u64(self.addr).u32(self.len_bytes);
        put_text(w, &self.name);
    }

    pub(super) fn get(r: &mut Reader<'_>) -> Result<KernelSymbol> {
        Ok(KernelSymbol {
            addr: r.u64("symbol address")?,
            len_bytes: r.u32("symbol length")?,
            name: get_text(r, "symbol name")?,
        })
    }
}
