//! Functions of files in user space, which whoever recorded has looked up.

use std::sync::Arc;

use bprec_format::feature::{SymbolFile, SymbolFileKind};
use bprec_format::records::Mmap2File;
use bprec_format::state;
use bprec_format::{Endian, FeatureSection};
use rustc_hash::FxHashMap;

use super::demangle::demangled;
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
    /// It says nothing of mappings below.
    lowest_map: u64,
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
        FileFunctions { vaddrs, lowest_map: 0, functions: Intervals::new(functions.collect()) }
    }

    /// Of a file that our recorder has looked them up in.
    fn of_states(path: &[u8], functions: &mut dyn Iterator<Item = &state::FileFunction>) -> FileFunctions {
        let functions = functions.map(|function| {
            let end = function.offset.saturating_add(function.len_bytes);
            (function.offset..end, Arc::from(&function.name[..]))
        });
        // A process of 32 bits has another one, at lower addresses.
        let lowest_map = if path == b"[vdso]" { 1 << 32 } else { 0 };
        FileFunctions {
            vaddrs: VaddrMapping::Offset,
            lowest_map,
            functions: Intervals::new(functions.take(SYMBOLS_MAX).collect()),
        }
    }

    /// The same with names as their languages have them.
    fn demangled(self) -> FileFunctions {
        FileFunctions { functions: self.functions.map(|name: Arc<[u8]>| demangled(&name).into()), ..self }
    }

    /// Number of the function at an address.
    pub(crate) fn find(&self, at: Mapped) -> Option<u32> {
        self.functions.find(self.vaddr(at)?)
    }

    /// The function at an address.
    pub(crate) fn at(&self, at: Mapped) -> Option<Found<'_>> {
        self.functions.at(self.vaddr(at)?).map(|(name, offset)| (&**name, offset))
    }

    /// Name of a function by its number.
    pub(crate) fn name(&self, number: u32) -> Option<&Arc<[u8]>> {
        self.functions.get(number).map(|(_, name)| name)
    }

    /// An address as the file counts it.
    fn vaddr(&self, at: Mapped) -> Option<u64> {
        let Mapped { ip, map_start, pgoff } = at;
        if map_start < self.lowest_map {
            return None;
        }
        let in_map = ip.wrapping_sub(map_start);
        Some(match self.vaddrs {
            VaddrMapping::RunTime => ip,
            VaddrMapping::Offset => in_map.wrapping_add(pgoff),
            VaddrMapping::Mapping(bias) => in_map.wrapping_add(bias),
            VaddrMapping::Segment(bias) => in_map.wrapping_add(pgoff).wrapping_add(bias),
        })
    }
}

/// The functions of all files.
#[derive(Debug, Default, Clone)]
pub(crate) struct Files {
    all: Vec<FileFunctions>,
    /// By their path as maps have it, of which nothing else is said.
    by_path: FxHashMap<Vec<u8>, u32>,
    /// By their path, which file each is.
    by_identity: FxHashMap<Vec<u8>, Vec<(Mmap2File, u32)>>,
}

impl Files {
    /// What simpleperf looked up, but for the kernel's, which are left to [`super::sections::kernel_symbols`]; and what our recorder did.
    pub(crate) fn new(sections: &[FeatureSection<'_>], endian: Endian, states: &[state::FileFunctions]) -> Files {
        let mut files = Files::default();
        let found = sections.iter().filter_map(|section| symbol_files(section, endian)).flat_map(|found| found.value);
        for file in found.filter(|file| file.kind != SymbolFileKind::KERNEL && !file.symbols.is_empty()) {
            files.by_path.insert(file.path.to_vec(), files.all.len() as u32);
            files.all.push(FileFunctions::new(&file));
        }
        // The functions of a file may be in several states.
        let mut parts: Vec<&state::FileFunctions> = states.iter().collect();
        parts.sort_by_key(|part| (&part.path, part.file));
        for parts in parts.chunk_by(|a, b| (&a.path, a.file) == (&b.path, b.file)) {
            let [first, ..] = parts else { continue };
            let mut functions = parts.iter().flat_map(|part| &part.functions);
            let number = files.all.len() as u32;
            files.by_identity.entry(first.path.clone()).or_default().push((first.file, number));
            files.all.push(FileFunctions::of_states(&first.path, &mut functions));
        }
        files
    }

    /// The same with names as their languages have them.
    pub(crate) fn demangled(self) -> Files {
        Files { all: self.all.into_iter().map(FileFunctions::demangled).collect(), ..self }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The number of a file, by its path and by which one it is as its mapping says.
    pub(crate) fn find(&self, path: &[u8], file: Option<Mmap2File>) -> Option<u32> {
        let identities = self.by_identity.get(path).into_iter().flatten();
        let same = identities.filter(|(identity, _)| Some(*identity) == file).map(|(_, number)| *number).next();
        same.or_else(|| self.by_path.get(path).copied())
    }

    /// The functions of a file by its number.
    pub(crate) fn get(&self, number: u32) -> Option<&FileFunctions> {
        self.all.get(number as usize)
    }
}
