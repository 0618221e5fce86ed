//! ELF files: build ids, and functions at file offsets.
//!
//! ELF files are not trusted. They are read, never mapped: access to a mapped file that was truncated raises SIGBUS. Tables and decompressed data
//! have size limits, and the caller can end a search at any time.

mod bytes;
mod debug;
mod functions;
mod notes;

use object::Endianness;
use object::elf::{EM_AARCH64, EM_ARM, EM_RISCV, FileHeader32, FileHeader64, PF_X, PT_LOAD};
use object::pod::{Pod, from_bytes, slice_from_all_bytes};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

pub use bytes::{ReadAt, open_regular, vdso};
pub use debug::functions_at;
pub use functions::ElfFunction;
pub use notes::{build_id, build_id_in_notes};

/// Limit on the count of program headers; further headers are ignored.
const SEGMENTS_MAX: u16 = 1024;
/// Limit on the count of sections. A file with more sections stores the count in another field; its sections are ignored.
const SECTIONS_MAX: u16 = 0xff00;
/// Limit on the bytes of the table of section names.
const SECTION_NAMES_MAX_BYTES: u64 = 4 << 20;

/// Headers of an ELF file.
#[derive(Debug)]
pub struct Elf<S> {
    source: S,
    endian: Endianness,
    is_64: bool,
    /// True for arm, arm64 and RISC-V. Local labels in their files mark the start of code and data (`$x`, `$d`) and are not functions.
    has_marks: bool,
    segments: Vec<Segment>,
    sections: Vec<Section>,
    names: Vec<u8>,
}

/// A segment that is loaded into memory.
#[derive(Debug, Clone, Copy)]
struct Segment {
    offset: u64,
    vaddr: u64,
    file_bytes: u64,
    is_executable: bool,
}

/// A section, as its header describes it.
#[derive(Debug, Clone, Copy)]
struct Section {
    /// Offset of the section name in the table of names.
    name: u32,
    kind: u32,
    vaddr: u64,
    offset: u64,
    bytes: u64,
    /// Index of the related section: for a symbol table, its string table.
    link: u32,
}

impl<S: ReadAt> Elf<S> {
    /// Reads the headers; `None` if the file is not an ELF file, or its program headers cannot be read.
    pub fn parse(source: S) -> Option<Elf<S>> {
        let ident = source.read_at(0, 16)?;
        match ident.get(4) {
            Some(2) => Elf::of_class::<FileHeader64<Endianness>>(source, true),
            Some(1) => Elf::of_class::<FileHeader32<Endianness>>(source, false),
            _ => None,
        }
    }

    fn of_class<H: FileHeader<Endian = Endianness>>(source: S, is_64: bool) -> Option<Elf<S>> {
        let (header, endian) = header::<S, H>(&source)?;
        let loaded = |it: &H::ProgramHeader| Segment {
            offset: it.p_offset(endian).into(),
            vaddr: it.p_vaddr(endian).into(),
            file_bytes: it.p_filesz(endian).into(),
            is_executable: it.p_flags(endian) & PF_X != 0,
        };
        let headers = program_headers::<S, H>(&source, &header, endian)?;
        let segments = items::<H::ProgramHeader>(&headers).iter().filter(|it| it.p_type(endian) == PT_LOAD);
        let segments = segments.map(loaded).collect();
        let section_count = Some(header.e_shnum(endian)).filter(|count| *count <= SECTIONS_MAX).unwrap_or(0);
        let headers = table::<S, H::SectionHeader>(&source, header.e_shoff(endian).into(), section_count);
        let sections: Vec<Section> = items::<H::SectionHeader>(headers.as_deref().unwrap_or_default())
            .iter()
            .map(|it| Section {
                name: it.sh_name(endian),
                kind: it.sh_type(endian),
                vaddr: it.sh_addr(endian).into(),
                offset: it.sh_offset(endian).into(),
                bytes: it.sh_size(endian).into(),
                link: it.sh_link(endian),
            })
            .collect();
        let names = sections.get(usize::from(header.e_shstrndx(endian)));
        let names = names.filter(|names| names.bytes <= SECTION_NAMES_MAX_BYTES);
        let names = names.and_then(|names| source.read_at(names.offset, names.bytes as usize)).unwrap_or_default();
        let has_marks = matches!(header.e_machine(endian), EM_AARCH64 | EM_ARM | EM_RISCV);
        Some(Elf { source, endian, is_64, has_marks, segments, sections, names })
    }

    /// Build id of the file, if the file has one.
    pub fn build_id(&self) -> Option<Vec<u8>> {
        build_id(&self.source)
    }

    /// Section of this name.
    fn section(&self, name: &[u8]) -> Option<&Section> {
        self.sections.iter().find(|section| {
            let rest = self.names.get(section.name as usize..).unwrap_or_default();
            rest.strip_prefix(name).is_some_and(|rest| rest.first() == Some(&0))
        })
    }

    /// Contents of a section; `None` if the section is missing, exceeds `bytes_max`, or cannot be read.
    fn contents(&self, name: &[u8], bytes_max: u64) -> Option<Vec<u8>> {
        let section = self.section(name).filter(|section| section.bytes <= bytes_max)?;
        self.source.read_at(section.offset, section.bytes as usize)
    }

    /// Segment that contains a file offset; an executable segment is preferred.
    fn segment_of(&self, offset: u64) -> Option<Segment> {
        let mut holding = self
            .segments
            .iter()
            .filter(|it| offset.checked_sub(it.offset).is_some_and(|in_segment| in_segment < it.file_bytes));
        holding.clone().find(|it| it.is_executable).or_else(|| holding.next()).copied()
    }
}

/// File header; `None` if the file is not an ELF file of this class.
fn header<S: ReadAt, H: FileHeader<Endian = Endianness>>(source: &S) -> Option<(H, Endianness)> {
    let bytes = source.read_at(0, size_of::<H>())?;
    let (header, _) = from_bytes::<H>(&bytes).ok()?;
    let endian = header.is_supported().then(|| header.endian().ok())??;
    Some((*header, endian))
}

/// Bytes of the first [`SEGMENTS_MAX`] program headers; `None` if the file is too short.
fn program_headers<S: ReadAt, H: FileHeader>(source: &S, header: &H, endian: H::Endian) -> Option<Vec<u8>> {
    table::<S, H::ProgramHeader>(source, header.e_phoff(endian).into(), header.e_phnum(endian).min(SEGMENTS_MAX))
}

/// Bytes of a table of `count` items; `None` if the file is too short.
fn table<S: ReadAt, T>(source: &S, offset: u64, count: u16) -> Option<Vec<u8>> {
    source.read_at(offset, usize::from(count) * size_of::<T>())
}

fn items<T: Pod>(bytes: &[u8]) -> &[T] {
    slice_from_all_bytes(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

    use super::*;

    /// Symbols of a small 64-bit ELF file: value, size, type and binding, name.
    type Symbols<'a> = &'a [(u64, u64, u8, &'a str)];

    const FUNC: u8 = 2;
    const LABEL: u8 = 0;
    const GLOBAL: u8 = 1 << 4;
    const WEAK: u8 = 2 << 4;
    /// File offset of the segment.
    const OFFSET: u64 = 0x1000;
    /// Address of the segment.
    const VADDR: u64 = 0x40_2000;
    /// Length of the only code section, which starts where the segment starts.
    const SECTION_BYTES: u64 = 0x800;

    fn file(symbols: Symbols<'_>) -> Vec<u8> {
        let (mut table, mut strings) = (vec![0; 24], vec![0]);
        for (value, size, info, name) in symbols {
            table.extend((strings.len() as u32).to_le_bytes());
            table.extend([*info, 0, 1, 0]);
            table.extend(value.to_le_bytes());
            table.extend(size.to_le_bytes());
            strings.extend(name.bytes());
            strings.push(0);
        }
        let mut section_names = vec![0];
        section_names.extend(b".text\0");
        let parts = [table, strings, section_names];
        let mut bytes = vec![0; 64];
        bytes[..20].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0");
        bytes[20] = 1;
        let mut words = vec![1u64 | 5 << 32, OFFSET, VADDR, VADDR, 0x1000, 0x1000, 0x1000];
        bytes[32..40].copy_from_slice(&64u64.to_le_bytes());
        words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        let mut places = Vec::new();
        for part in &parts {
            places.push((bytes.len() as u64, part.len() as u64));
            bytes.extend(part);
        }
        let headers_at = bytes.len() as u64;
        words = vec![0; 8];
        let text: [u64; 8] = [1 | 1 << 32, 6, VADDR, OFFSET, SECTION_BYTES, 0, 16, 0];
        words.extend(text);
        for (number, (at, len)) in places.iter().enumerate() {
            let (kind, link, size) = if number == 0 { (2u64, 3, 24) } else { (3, 0, 0) };
            words.extend([kind << 32, 0, 0, *at, *len, link, 1, size]);
        }
        words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes[40..48].copy_from_slice(&headers_at.to_le_bytes());
        for (at, value) in [(52, 64u16), (54, 56), (56, 1), (58, 64), (60, 5), (62, 4)] {
            bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    fn found(symbols: Symbols<'_>, vaddrs: &[u64]) -> Vec<(u64, u64, String)> {
        let elf = Elf::parse(file(symbols)).unwrap();
        let offsets: Vec<u64> = vaddrs.iter().map(|vaddr| vaddr - VADDR + OFFSET).collect();
        let functions = functions_at(&elf, &offsets, None, &|| false);
        functions
            .into_iter()
            .map(|it| (it.offset - OFFSET + VADDR, it.len_bytes, String::from_utf8(it.name).unwrap()))
            .collect()
    }

    #[test]
    fn functions_are_found_by_their_range() {
        let symbols: Symbols<'_> = &[
            (VADDR + 0x100, 0x20, FUNC | GLOBAL, "sized"),
            (VADDR + 0x200, 0, FUNC | GLOBAL, "unsized"),
            (VADDR + 0x280, 0x10, FUNC, "next"),
            (VADDR + 0x300, 0, LABEL, "label"),
            (VADDR + 0x400, 0x40, FUNC, "with_label"),
            (VADDR + 0x410, 0, LABEL, "within"),
            (VADDR + 0x7f0, 0, FUNC, "last"),
        ];
        let at = |addr: u64| found(symbols, &[VADDR + addr]).pop().map(|(start, len, name)| (start - VADDR, len, name));
        for (addr, expected) in [
            (0xff, None),
            (0x100, Some((0x100, 0x20, "sized"))),
            (0x11f, Some((0x100, 0x20, "sized"))),
            (0x120, None),
            (0x27f, Some((0x200, 0x80, "unsized"))),
            (0x290, None),
            (0x305, Some((0x300, 0x100, "label"))),
            (0x420, Some((0x400, 0x40, "with_label"))),
            (0x7ff, Some((0x7f0, 0x10, "last"))),
            (0x800, None),
        ] {
            let expected = expected.map(|(start, len, name): (u64, u64, &str)| (start, len, name.to_owned()));
            assert_eq!(at(addr), expected, "{addr:#x}");
        }
        let all: Vec<u64> = (0..0x900).map(|addr| VADDR + addr).collect();
        let names: Vec<String> = found(symbols, &all).into_iter().map(|(_, _, name)| name).collect();
        assert_eq!(names, ["sized", "unsized", "next", "label", "with_label", "last"]);
    }

    #[test]
    fn of_several_names_the_strong_the_global_and_the_plain_one_is_taken() {
        let all = [
            (VADDR, 0, FUNC | GLOBAL, "no_length"),
            (VADDR, 8, FUNC | WEAK, "weak"),
            (VADDR, 8, FUNC, "local"),
            (VADDR, 8, FUNC | GLOBAL, "__write"),
            (VADDR, 8, FUNC | GLOBAL, "write"),
        ];
        for count in (2..=all.len()).rev() {
            let mut symbols = all[..count].to_vec();
            let best = symbols[count - 1].3;
            for _ in 0..count {
                // The order of the symbols has no effect.
                symbols.rotate_left(1);
                assert_eq!(found(&symbols, &[VADDR + 1]).pop().unwrap().2, best);
            }
        }
    }

    /// Compares the functions of this test program with the list of nm.
    #[test]
    fn the_functions_of_this_program_are_those_that_nm_lists() {
        let exe = std::env::current_exe().unwrap();
        let Ok(output) = std::process::Command::new("nm").args(["--defined-only", "-S"]).arg(&exe).output() else {
            return;
        };
        let text = String::from_utf8(output.stdout).unwrap();
        let elf = Elf::parse(std::fs::File::open(&exe).unwrap()).unwrap();
        let lines = text.lines().filter_map(|line| {
            let [start, len, kind, name] = line.split_whitespace().collect::<Vec<_>>()[..] else { return None };
            let number = |text| u64::from_str_radix(text, 16).ok();
            Some((number(start)?, number(len)?, name)).filter(|_| kind == "t" || kind == "T")
        });
        let listed: Vec<(u64, u64, &str)> = lines.collect();
        assert!(listed.len() > 100, "{}", listed.len());
        for (start, len, _) in listed.iter().step_by(listed.len() / 50) {
            let segment = elf.segments.iter().find(|it| (it.vaddr..it.vaddr + it.file_bytes).contains(start)).unwrap();
            let offset = start - segment.vaddr + segment.offset;
            let function = functions_at(&elf, &[offset + len - 1], None, &|| false).pop().unwrap();
            let name = String::from_utf8(function.name).unwrap();
            assert!(listed.iter().any(|it| (it.0, it.2) == (*start, &name)), "{start:x} {name}");
            assert_eq!((function.offset, function.len_bytes), (offset, *len), "{name}");
        }
    }

    /// Files with false headers cause no panic, no delay, and no allocation larger than the file.
    #[test]
    fn files_that_lie_have_few_functions_and_no_other_effect() {
        let good = file(&[(VADDR + 0x100, 0x20, FUNC | GLOBAL, "one"), (VADDR + 0x200, 0, LABEL, "two")]);
        let offsets: Vec<u64> = (0..0x900).step_by(0xf0).map(|addr| OFFSET + addr).chain([0, u64::MAX]).collect();
        let try_out = |bytes: Vec<u8>| {
            if let Some(elf) = Elf::parse(bytes) {
                functions_at(&elf, &offsets, None, &|| false);
            }
        };
        let lies = [0u64, 1, 0xff, 0xffff, 0xffff_ffff, u64::MAX, u64::MAX - 7, 1 << 63];
        for at in 0..good.len() {
            try_out(good[..at].to_vec());
            for lie in lies {
                for width in [1, 2, 4, 8] {
                    let mut bytes = good.clone();
                    let end = (at + width).min(bytes.len());
                    bytes[at..end].copy_from_slice(&lie.to_le_bytes()[..end - at]);
                    try_out(bytes);
                }
            }
        }
    }

    /// Many equal symbols that overlap. Comparing every symbol with every other symbol would take too long.
    #[test]
    fn overlapping_symbols_are_one_function() {
        let names: Vec<String> = (0..20_000).map(|number| format!("f{number}")).collect();
        let symbols: Vec<(u64, u64, u8, &str)> =
            names.iter().map(|name| (VADDR, u64::MAX, FUNC | GLOBAL, name.as_str())).collect();
        let offsets: Vec<u64> = (0..0x1000).map(|addr| VADDR + addr).collect();
        assert_eq!(found(&symbols, &offsets).len(), 1);
    }
}
