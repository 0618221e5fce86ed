//! Names of code at the current place in a stream. Unloaded code is forgotten, so that a stream may be endless; [`super::symbolizer::Symbolizer`] has
//! all code of a recording with its times instead.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bprec_format::bprec::state::{FileFunctions, KernelSymbol};
use bprec_format::records::{Ksymbol, Mmap2File};
use bprec_format::{Endian, FeatureSection};

use super::file_functions::{Files, Mapped};
use super::intervals::AddressIntervals;
use super::sections::{SYMBOLS_MAX, btf_of, prog_infos, symbol_of};
use super::symbols::{KernelSymbols, SymbolAndOffset};

/// Limit on announced symbols; beyond it, all of them are forgotten.
const ANNOUNCED_MAX: usize = 1 << 17;

/// Names from feature sections and states, which hold for all of the recording.
#[derive(Debug, Default)]
pub(crate) struct SectionSymbols {
    /// BPF functions from `bpf_prog_info`, which gives addresses without times. `None` for addresses at which several programs had functions at
    /// different times.
    programs: AddressIntervals<Option<Arc<[u8]>>>,
    kernel: KernelSymbols,
    files: Files,
}

/// Functions from states at the end of a file.
#[derive(Debug, Default)]
pub(crate) struct SymbolsAhead {
    pub(crate) kernel: Vec<KernelSymbol>,
    pub(crate) files: Vec<FileFunctions>,
    /// True if names of functions of files stay mangled.
    pub(crate) keeps_mangled: bool,
}

impl SectionSymbols {
    /// Collects the symbols of the sections and of `ahead`.
    pub(crate) fn new(sections: &[FeatureSection<'_>], endian: Endian, ahead: &SymbolsAhead) -> SectionSymbols {
        let files = Files::new(&ahead.files);
        let kernel = ahead.kernel.iter().take(SYMBOLS_MAX).cloned();
        SectionSymbols {
            programs: AddressIntervals::new(without_shared(program_functions(sections, endian))),
            kernel: KernelSymbols::new(kernel.collect()),
            files: if ahead.keeps_mangled { files } else { files.demangled() },
        }
    }
}

/// Range of a BPF function, and its name if unambiguous.
type NamedRange = (Range<u64>, Option<Arc<[u8]>>);

fn program_functions(sections: &[FeatureSection<'_>], endian: Endian) -> Vec<NamedRange> {
    let btf = btf_of(sections, endian, |_| true);
    let mut found = Vec::new();
    for info in prog_infos(sections, endian) {
        let functions = info.functions().filter_map(|function| {
            let range = function.range().filter(|range| !range.is_empty())?;
            Some((range, Some(symbol_of(&info, &function, &btf).into())))
        });
        let free = SYMBOLS_MAX.saturating_sub(found.len());
        found.extend(functions.take(free));
    }
    found
}

/// Removes the names of functions whose addresses overlap: they were loaded at different times, so the name is ambiguous.
fn without_shared(mut functions: Vec<NamedRange>) -> Vec<NamedRange> {
    functions.sort_by_key(|(range, _)| (range.start, range.end));
    let mut reaches = 0;
    for at in 1..functions.len() {
        if functions[at].0.start < functions[reaches].0.end {
            functions[at].1 = None;
            functions[reaches].1 = None;
        }
        if functions[at].0.end > functions[reaches].0.end {
            reaches = at;
        }
    }
    functions
}

/// Names of code at the current place in the stream.
#[derive(Debug, Default)]
pub(crate) struct StreamSymbols {
    /// Symbols that KSYMBOL has registered and not unregistered, by start: one past the last address, and the name.
    announced: BTreeMap<u64, (u64, Arc<[u8]>)>,
    sections: Arc<SectionSymbols>,
    /// True if symbols were dropped because there were too many.
    pub(crate) has_forgotten: bool,
}

impl StreamSymbols {
    /// Replaces the names from sections.
    pub(crate) fn set_sections(&mut self, sections: Arc<SectionSymbols>) {
        self.sections = sections;
    }

    /// Adds a KSYMBOL record.
    pub(crate) fn announce(&mut self, symbol: &Ksymbol<'_>) {
        if symbol.is_unregister() {
            self.announced.remove(&symbol.addr);
        } else if symbol.len_bytes > 0 {
            if self.announced.len() >= ANNOUNCED_MAX {
                self.announced.clear();
                self.has_forgotten = true;
            }
            let end = symbol.addr.saturating_add(symbol.len_bytes.into());
            self.announced.insert(symbol.addr, (end, symbol.name.into()));
        }
    }

    /// Returns the BPF code at an address, named by KSYMBOL or else by `bpf_prog_info`.
    pub(crate) fn bpf(&self, ip: u64) -> Option<SymbolAndOffset<'_>> {
        let announced = self.announced.range(..=ip).next_back().filter(|(_, (end, _))| ip < *end);
        let announced = announced.map(|(start, (_, name))| (&**name, ip - start));
        match announced {
            Some((name, offset)) if name.starts_with(b"bpf_prog_") => Some((name, offset)),
            // An image claims a whole page, but programs may follow it in the same page. The nearest start before the address therefore has
            // precedence.
            Some((name, offset)) => match self.program(ip) {
                Some((program, nearer)) if nearer < offset => Some((program, nearer)),
                _ => Some((name, offset)),
            },
            None => self.program(ip),
        }
    }

    /// Returns the BPF function at an address by `bpf_prog_info`.
    fn program(&self, ip: u64) -> Option<SymbolAndOffset<'_>> {
        let (name, offset) = self.sections.programs.at(ip)?;
        Some((name.as_deref()?, offset))
    }

    /// Returns the kernel function at an address, and its module, if any.
    pub(crate) fn kernel(&self, ip: u64) -> Option<(SymbolAndOffset<'_>, Option<&[u8]>)> {
        self.sections.kernel.at(ip)
    }

    /// Returns the function of a mapped file at an address.
    pub(crate) fn file(&self, path: &[u8], file: Option<Mmap2File>, at: Mapped) -> Option<SymbolAndOffset<'_>> {
        let files = &self.sections.files;
        if files.is_empty() {
            return None;
        }
        files.get(files.find(path, file)?)?.at(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_two_programs_had_is_neithers() {
        let function = |addrs, name: &str| (addrs, Some(name.as_bytes().into()));
        let programs = vec![
            function(0x1000..0x1080, "alone"),
            function(0x2000..0x2100, "before"),
            function(0x2040..0x2060, "within"),
            function(0x20f0..0x2200, "after"),
            function(0x2200..0x2240, "behind"),
        ];
        let sections =
            SectionSymbols { programs: AddressIntervals::new(without_shared(programs)), ..SectionSymbols::default() };
        let symbols = StreamSymbols { sections: Arc::new(sections), ..StreamSymbols::default() };
        assert_eq!(symbols.bpf(0x107f), Some((&b"alone"[..], 0x7f)));
        assert_eq!(symbols.bpf(0x1080), None);
        for ip in [0x2000, 0x2050, 0x20f8, 0x21ff] {
            assert_eq!(symbols.bpf(ip), None, "{ip:x}");
        }
        assert_eq!(symbols.bpf(0x2200), Some((&b"behind"[..], 0)));
    }
}
