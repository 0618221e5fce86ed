//! Functions of user-space files, from the recorder's lookups.

use std::sync::Arc;

use bprec_format::bprec::state;
use bprec_format::records::Mmap2File;
use rustc_hash::FxHashMap;

use super::demangle::demangled;
use super::intervals::AddressIntervals;
use super::sections::SYMBOLS_MAX;
use super::symbols::SymbolAndOffset;

/// Address in a mapping of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mapped {
    pub(crate) ip: u64,
    pub(crate) map_start: u64,
    pub(crate) pgoff: u64,
}

impl Mapped {
    /// Offset of the address in the file.
    pub(crate) fn offset(self) -> u64 {
        self.ip.wrapping_sub(self.map_start).wrapping_add(self.pgoff)
    }
}

/// Functions of one file, by address.
#[derive(Debug, Clone)]
pub(crate) struct FileFunctions {
    /// Lowest start address of a mapping to which the functions apply.
    lowest_map: u64,
    /// Names by offset in the file.
    functions: AddressIntervals<Arc<[u8]>>,
}

impl FileFunctions {
    /// Collects the functions of a file from the recorder's states.
    fn of_states(path: &[u8], functions: &mut dyn Iterator<Item = &state::FileFunction>) -> FileFunctions {
        let functions = functions.map(|function| {
            let end = function.offset.saturating_add(function.len_bytes);
            (function.offset..end, Arc::from(&function.name[..]))
        });
        // The functions are of the 64-bit vdso. 32-bit processes have another vdso, at lower addresses.
        let lowest_map = if path == b"[vdso]" { 1 << 32 } else { 0 };
        FileFunctions { lowest_map, functions: AddressIntervals::new(functions.take(SYMBOLS_MAX).collect()) }
    }

    /// Demangles all names.
    fn demangled(self) -> FileFunctions {
        FileFunctions { functions: self.functions.map(|name: Arc<[u8]>| demangled(&name).into()), ..self }
    }

    /// Returns the number of the function at an address.
    pub(crate) fn find(&self, at: Mapped) -> Option<u32> {
        self.functions.find(self.offset(at)?)
    }

    /// Returns the function at an address.
    pub(crate) fn at(&self, at: Mapped) -> Option<SymbolAndOffset<'_>> {
        self.functions.at(self.offset(at)?).map(|(name, offset)| (&**name, offset))
    }

    /// Name of a function by its number.
    pub(crate) fn name(&self, number: u32) -> Option<&Arc<[u8]>> {
        self.functions.get(number).map(|(_, name)| name)
    }

    /// Offset of an address in the file; `None` for a mapping that the functions do not apply to.
    fn offset(&self, at: Mapped) -> Option<u64> {
        (at.map_start >= self.lowest_map).then(|| at.offset())
    }
}

/// Functions of all files.
#[derive(Debug, Default, Clone)]
pub(crate) struct Files {
    all: Vec<FileFunctions>,
    /// Files by path: the identity and the number of each file.
    by_identity: FxHashMap<Vec<u8>, Vec<(Mmap2File, u32)>>,
}

impl Files {
    /// Collects the functions that the recorder looked up.
    pub(crate) fn new(states: &[state::FileFunctions]) -> Files {
        let mut files = Files::default();
        // A file's functions may be spread over several states.
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

    /// Demangles all names.
    pub(crate) fn demangled(self) -> Files {
        Files { all: self.all.into_iter().map(FileFunctions::demangled).collect(), ..self }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the number of a file by its path and by the identity in its mapping.
    pub(crate) fn find(&self, path: &[u8], file: Option<Mmap2File>) -> Option<u32> {
        let identities = self.by_identity.get(path).into_iter().flatten();
        identities.filter(|(identity, _)| Some(*identity) == file).map(|(_, number)| *number).next()
    }

    /// Functions of a file by its number.
    pub(crate) fn get(&self, number: u32) -> Option<&FileFunctions> {
        self.all.get(number as usize)
    }
}
