//! Functions of files that simpleperf looked up.

use std::sync::Arc;

use bprec_format::feature::{SymbolFile, SymbolFileKind};
use bprec_format::{Endian, FeatureSection};
use rustc_hash::FxHashMap;

use super::intervals::Intervals;
use super::sections::{SYMBOLS_MAX, symbol_files};
use super::symbols::Found;

/// Where a mapping puts an address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mapped {
    pub(crate) ip: u64,
    pub(crate) map_start: u64,
    pub(crate) pgoff: u64,
}

impl Mapped {
    /// The address, as an offset in the file.
    pub(crate) fn offset(self) -> u64 {
        self.ip.wrapping_sub(self.map_start).wrapping_add(self.pgoff)
    }
}

/// Functions of one file, by address.
#[derive(Debug, Clone)]
pub(crate) struct FileFunctions {
    vaddrs: VaddrMapping,
    /// Names, by address as the file counts them.
    functions: Intervals<Arc<[u8]>>,
}

/// How a file counts addresses.
#[derive(Debug, Clone, Copy)]
enum VaddrMapping {
    /// As the CPU does.
    RunTime,
    /// From the start of the file.
    Offset,
    /// From the start of the mapping, to which this is added.
    Mapping(u64),
    /// From the start of the file, to which this is added.
    Segment(u64),
}

impl FileFunctions {
    fn new(file: &SymbolFile<'_>) -> FileFunctions {
        let jited = [&b"jit_app_cache"[..], b"jit_zygote_cache", b"/TemporaryFile"];
        let is_jited = jited.iter().any(|part| file.path.windows(part.len()).any(|window| window == *part));
        let bias = |offset: u64| file.min_vaddr.wrapping_sub(offset);
        let vaddrs = match (file.kind, file.offset_of_min_vaddr) {
            (SymbolFileKind::KERNEL | SymbolFileKind::SYMBOL_MAP, _) => VaddrMapping::RunTime,
            // An ELF file that describes code made at run time has that code's addresses.
            (SymbolFileKind::ELF, _) if is_jited => VaddrMapping::RunTime,
            (SymbolFileKind::ELF, Some(offset)) => VaddrMapping::Segment(bias(offset)),
            (SymbolFileKind::KERNEL_MODULE, offset) => VaddrMapping::Mapping(bias(offset.unwrap_or(0))),
            (SymbolFileKind::ELF, None) => VaddrMapping::Mapping(file.min_vaddr),
            _ => VaddrMapping::Offset,
        };
        let functions = file.symbols.iter().take(SYMBOLS_MAX);
        let functions = functions.map(|symbol| {
            let end = symbol.vaddr.saturating_add(symbol.len_bytes.into());
            (symbol.vaddr..end, Arc::from(symbol.name))
        });
        FileFunctions { vaddrs, functions: Intervals::new(functions.collect()) }
    }

    /// Number of the function at an address.
    pub(crate) fn find(&self, at: Mapped) -> Option<u32> {
        self.functions.find(self.vaddr(at))
    }

    /// The function at an address.
    pub(crate) fn at(&self, at: Mapped) -> Option<Found<'_>> {
        self.functions.at(self.vaddr(at)).map(|(name, offset)| (&**name, offset))
    }

    /// Name of a function by its number.
    pub(crate) fn name(&self, number: u32) -> Option<&Arc<[u8]>> {
        self.functions.get(number).map(|(_, name)| name)
    }

    /// An address as the file counts it.
    fn vaddr(&self, at: Mapped) -> u64 {
        let Mapped { ip, map_start, pgoff } = at;
        let in_map = ip.wrapping_sub(map_start);
        match self.vaddrs {
            VaddrMapping::RunTime => ip,
            VaddrMapping::Offset => in_map.wrapping_add(pgoff),
            VaddrMapping::Mapping(bias) => in_map.wrapping_add(bias),
            VaddrMapping::Segment(bias) => in_map.wrapping_add(pgoff).wrapping_add(bias),
        }
    }
}

/// Files by their path as maps have it.
pub(crate) type Files = FxHashMap<Vec<u8>, FileFunctions>;

/// Functions of the files that simpleperf looked up. Those of the kernel are left to [`super::sections::kernel_symbols`].
pub(crate) fn functions_of_files(sections: &[FeatureSection<'_>], endian: Endian) -> Files {
    let files = sections.iter().filter_map(|section| symbol_files(section, endian)).flat_map(|files| files.value);
    let files = files.filter(|file| file.kind != SymbolFileKind::KERNEL && !file.symbols.is_empty());
    files.map(|file| (file.path.to_vec(), FileFunctions::new(&file))).collect()
}
