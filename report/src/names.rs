//! Names of code that the recording itself has, beside KSYMBOL: functions in `bpf_prog_info`, kernel functions that
//! samples hit, functions of files that simpleperf looked up.

use std::collections::BTreeMap;
use std::sync::Arc;

use bprec_format::bpf::Tag;
use bprec_format::bpf::btf::{BpfBtfSection, Btf};
use bprec_format::bpf::prog_info::{BpfProgInfoSection, Function, ProgInfo};
use bprec_format::feature::{Feature, Partial, SymbolFile, SymbolFileKind};
use bprec_format::state::KernelSymbol;
use bprec_format::{Endian, FeatureSection};
use rustc_hash::FxHashMap;

/// The most functions of each kind that are kept: more than any kernel has.
const SYMBOLS_MAX: usize = 1 << 20;
/// A kernel symbol without a length reaches no further than this.
const LEN_LIMIT: u64 = 1 << 20;

/// Types by their id.
pub(crate) fn btf_of<'s>(sections: &'s [FeatureSection<'_>], endian: Endian) -> BTreeMap<u32, Btf<'s>> {
    let sections = sections.iter().filter(|section| section.feature == Feature::BPF_BTF);
    let blobs = sections.flat_map(|section| BpfBtfSection::new(&section.bytes, section.offset, endian));
    blobs.flatten().flatten().filter_map(|(id, blob)| Some((id, Btf::parse(blob).ok()?))).collect()
}

/// The symbol of a function as perf makes it up: `bpf_prog_<tag>_<name>`, with the function's own tag.
pub(crate) fn symbol_of(info: &ProgInfo<'_>, function: &Function<'_>, btf: &BTreeMap<u32, Btf<'_>>) -> Vec<u8> {
    let types = info.btf_id().and_then(|id| btf.get(&id));
    let name = function.type_id.and_then(|id| types?.func_name(id));
    let name = name.or(info.name().filter(|_| function.index == 0)).unwrap_or(b"F");
    let tag = function.tag.or(info.tag()).unwrap_or(Tag([0; 8]));
    // The kernel has no underscore where there is no name.
    let separator: &[u8] = if name.is_empty() { b"" } else { b"_" };
    [format!("bpf_prog_{tag}").as_bytes(), separator, name].concat()
}

/// What simpleperf looked up, if this is a section of that; as far as it can be read.
pub(crate) fn symbol_files<'s>(
    section: &'s FeatureSection<'_>,
    endian: Endian,
) -> Option<Partial<Vec<SymbolFile<'s>>>> {
    match section.feature {
        Feature::FILE => Some(SymbolFile::parse_file(&section.bytes, section.offset, endian)),
        Feature::FILE2 => Some(SymbolFile::parse_file2(&section.bytes, section.offset, endian)),
        _ => None,
    }
}

/// Name of a function, and how far behind its start an address is.
pub(crate) type Found<'n> = (&'n [u8], u64);

/// Where a mapping puts an address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mapped {
    pub(crate) ip: u64,
    pub(crate) map_start: u64,
    pub(crate) pgoff: u64,
}

/// Functions of one file, by address.
#[derive(Debug, Clone)]
pub(crate) struct FileFunctions {
    count: Count,
    /// Start, length and name, by start.
    functions: Vec<(u64, u64, Arc<[u8]>)>,
}

/// How a file counts addresses.
#[derive(Debug, Clone, Copy)]
enum Count {
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
        let count = match (file.kind, file.offset_of_min_vaddr) {
            (SymbolFileKind::KERNEL | SymbolFileKind::SYMBOL_MAP, _) => Count::RunTime,
            // An ELF file that describes code made at run time has that code's addresses.
            (SymbolFileKind::ELF, _) if is_jited => Count::RunTime,
            (SymbolFileKind::ELF, Some(offset)) => Count::Segment(bias(offset)),
            (SymbolFileKind::KERNEL_MODULE, offset) => Count::Mapping(bias(offset.unwrap_or(0))),
            (SymbolFileKind::ELF, None) => Count::Mapping(file.min_vaddr),
            _ => Count::Offset,
        };
        let functions = file.symbols.iter().take(SYMBOLS_MAX);
        let mut functions: Vec<(u64, u64, Arc<[u8]>)> =
            functions.map(|symbol| (symbol.vaddr, symbol.len_bytes.into(), symbol.name.into())).collect();
        functions.sort_by_key(|(start, ..)| *start);
        FileFunctions { count, functions }
    }

    /// Number of the function at an address, and the offset in it.
    pub(crate) fn find(&self, at: Mapped) -> Option<(usize, u64)> {
        let Mapped { ip, map_start, pgoff } = at;
        let in_map = ip.wrapping_sub(map_start);
        let vaddr = match self.count {
            Count::RunTime => ip,
            Count::Offset => in_map.wrapping_add(pgoff),
            Count::Mapping(bias) => in_map.wrapping_add(bias),
            Count::Segment(bias) => in_map.wrapping_add(pgoff).wrapping_add(bias),
        };
        let below = self.functions.partition_point(|(start, ..)| *start <= vaddr).checked_sub(1)?;
        let (start, len, _) = self.functions.get(below)?;
        (vaddr - start < *len).then_some((below, vaddr - start))
    }

    /// Name of a function by its number.
    pub(crate) fn name(&self, number: usize) -> Option<&Arc<[u8]>> {
        self.functions.get(number).map(|(.., name)| name)
    }
}

/// Files by their path as maps have it.
pub(crate) type Files = FxHashMap<Vec<u8>, FileFunctions>;

/// Functions of the files that simpleperf looked up. Those of the kernel are left to [`kernel_symbols`].
pub(crate) fn functions_of_files(sections: &[FeatureSection<'_>], endian: Endian) -> Files {
    let files = sections.iter().filter_map(|section| symbol_files(section, endian)).flat_map(|files| files.value);
    let files = files.filter(|file| file.kind != SymbolFileKind::KERNEL && !file.symbols.is_empty());
    files.map(|file| (file.path.to_vec(), FileFunctions::new(&file))).collect()
}

/// Kernel functions that simpleperf looked up.
pub(crate) fn kernel_symbols(sections: &[FeatureSection<'_>], endian: Endian) -> Vec<KernelSymbol> {
    let files = sections.iter().filter_map(|section| symbol_files(section, endian)).flat_map(|files| files.value);
    let symbols = files.filter(|file| file.kind == SymbolFileKind::KERNEL).flat_map(|file| file.symbols);
    let symbols = symbols.take(SYMBOLS_MAX).map(|symbol| KernelSymbol {
        addr: symbol.vaddr,
        len_bytes: symbol.len_bytes,
        name: symbol.name.to_vec(),
    });
    symbols.collect()
}

/// A BPF function by `bpf_prog_info`. That says where a function was, but not when.
#[derive(Debug, Clone)]
struct ProgramFunction {
    start: u64,
    end: u64,
    /// `None` where several programs had the address, each at its time: it cannot be told which.
    name: Option<Arc<[u8]>>,
}

/// All of it, for looking up one address at a time.
#[derive(Debug, Default, Clone)]
pub(crate) struct Names {
    /// By start.
    programs: Vec<ProgramFunction>,
    /// Address, length and name, by address, one per address.
    kernel: Vec<(u64, u64, Arc<[u8]>)>,
    files: Files,
}

impl Names {
    /// Reads what the sections have, in place of what was read of sections before.
    pub(crate) fn read(&mut self, sections: &[FeatureSection<'_>], endian: Endian) {
        self.files = functions_of_files(sections, endian);
        self.add_kernel(kernel_symbols(sections, endian));
        let btf = btf_of(sections, endian);
        let infos = sections.iter().filter(|section| section.feature == Feature::BPF_PROG_INFO);
        let infos = infos.flat_map(|section| BpfProgInfoSection::new(&section.bytes, section.offset, endian));
        self.programs.clear();
        for info in infos.flatten().flatten() {
            let functions = info.functions().filter_map(|function| {
                let range = function.range().filter(|range| !range.is_empty())?;
                let name = Some(symbol_of(&info, &function, &btf).into());
                Some(ProgramFunction { start: range.start, end: range.end, name })
            });
            let room = SYMBOLS_MAX.saturating_sub(self.programs.len());
            self.programs.extend(functions.take(room));
        }
        self.programs.sort_by_key(|function| (function.start, function.end));
        self.forget_shared();
    }

    /// Takes the names off all that overlap.
    fn forget_shared(&mut self) {
        let mut reaches = 0;
        for at in 1..self.programs.len() {
            if self.programs[at].start < self.programs[reaches].end {
                self.programs[at].name = None;
                self.programs[reaches].name = None;
            }
            if self.programs[at].end > self.programs[reaches].end {
                reaches = at;
            }
        }
    }

    /// Learns of kernel functions.
    pub(crate) fn add_kernel(&mut self, symbols: Vec<KernelSymbol>) {
        let room = SYMBOLS_MAX.saturating_sub(self.kernel.len());
        self.kernel.extend(symbols.into_iter().take(room).map(|symbol| {
            let len = if symbol.len_bytes == 0 { LEN_LIMIT } else { symbol.len_bytes.into() };
            (symbol.addr, len, symbol.name.into())
        }));
        self.kernel.sort_by_key(|(addr, ..)| *addr);
        // Of several at an address, the one that was learnt last.
        self.kernel.dedup_by(|later, kept| {
            let is_same = later.0 == kept.0;
            if is_same {
                std::mem::swap(later, kept);
            }
            is_same
        });
    }

    /// The BPF function at an address, if `bpf_prog_info` tells.
    pub(crate) fn program(&self, ip: u64) -> Option<Found<'_>> {
        let below = self.programs.partition_point(|function| function.start <= ip).checked_sub(1)?;
        let function = self.programs.get(below).filter(|function| ip < function.end)?;
        Some((function.name.as_deref()?, ip - function.start))
    }

    /// The kernel function at an address, and its module if it is a module's.
    pub(crate) fn kernel(&self, ip: u64) -> Option<(Found<'_>, Option<&[u8]>)> {
        let below = self.kernel.partition_point(|(start, ..)| *start <= ip).checked_sub(1)?;
        let (start, len, name) = self.kernel.get(below)?;
        let offset = ip - start;
        if offset >= *len {
            return None;
        }
        Some(match name.iter().position(|byte| *byte == b' ') {
            Some(blank) => ((&name[..blank], offset), Some(&name[blank + 1..])),
            None => ((name, offset), None),
        })
    }

    /// The function of a mapped file at an address.
    pub(crate) fn file(&self, path: &[u8], at: Mapped) -> Option<Found<'_>> {
        if self.files.is_empty() {
            return None;
        }
        let functions = self.files.get(path)?;
        let (number, offset) = functions.find(at)?;
        Some((functions.name(number)?, offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(found: Option<Found<'_>>) -> Option<(String, u64)> {
        found.map(|(name, offset)| (String::from_utf8_lossy(name).into_owned(), offset))
    }

    #[test]
    fn kernel_functions_end_and_modules_are_told_apart() {
        let mut names = Names::default();
        let symbol = |addr, len_bytes, name: &str| KernelSymbol { addr, len_bytes, name: name.into() };
        names.add_kernel(vec![symbol(0x1000, 0x10, "vfs_read"), symbol(0x2000, 0, "loop_queue_rq [loop]")]);
        let place = |ip| names.kernel(ip).map(|(found, module)| (name(Some(found)), module));
        assert_eq!(place(0x100f), Some((Some(("vfs_read".into(), 15)), None)));
        assert_eq!(place(0x1010), None);
        assert_eq!(place(0x2010), Some((Some(("loop_queue_rq".into(), 16)), Some(&b"[loop]"[..]))));
    }

    #[test]
    fn an_address_that_two_programs_had_is_neithers() {
        let function = |start, end, name: &str| ProgramFunction { start, end, name: Some(name.as_bytes().into()) };
        let programs = vec![
            function(0x1000, 0x1080, "alone"),
            function(0x2000, 0x2100, "before"),
            function(0x2040, 0x2060, "within"),
            function(0x20f0, 0x2200, "after"),
            function(0x2200, 0x2240, "behind"),
        ];
        let mut names = Names { programs, ..Names::default() };
        names.forget_shared();
        assert_eq!(name(names.program(0x107f)), Some(("alone".into(), 0x7f)));
        assert_eq!(names.program(0x1080), None);
        for ip in [0x2000, 0x2050, 0x20f8, 0x21ff] {
            assert_eq!(names.program(ip), None, "{ip:x}");
        }
        assert_eq!(name(names.program(0x2200)), Some(("behind".into(), 0)));
    }
}
