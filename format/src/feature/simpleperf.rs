//! Sections of simpleperf, Android's recorder: functions of the files that were hit, and what it says about itself.
//!
//! simpleperf numbers its sections from 128; perf ignores them. Source: `simpleperf/record_file_format.h` and
//! `record_file.proto` in Android's `platform/system/extras`. They are read and never written: rewriting a recording
//! copies them as they are.

use super::{Partial, read_items};
use crate::{Endian, Error, Reader, Result};

/// What a file is to simpleperf. A newer number keeps itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SymbolFileKind(pub u32);

impl SymbolFileKind {
    /// The kernel: addresses of symbols are those at run time.
    pub const KERNEL: SymbolFileKind = SymbolFileKind(0);
    /// A kernel module.
    pub const KERNEL_MODULE: SymbolFileKind = SymbolFileKind(1);
    /// An ELF file, or code that was compiled at run time and described by one.
    pub const ELF: SymbolFileKind = SymbolFileKind(2);
    /// Java bytecode: addresses of symbols are offsets in the file.
    pub const DEX: SymbolFileKind = SymbolFileKind(3);
    /// A `perf-PID.map`: addresses of symbols are those at run time.
    pub const SYMBOL_MAP: SymbolFileKind = SymbolFileKind(4);
    /// Anything else.
    pub const UNKNOWN: SymbolFileKind = SymbolFileKind(5);
}

/// A function of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSymbol<'a> {
    /// Where it starts, as its file counts.
    pub vaddr: u64,
    /// Its length.
    pub len_bytes: u32,
    /// Its name as the linker has it: not demangled. A module's function in the kernel's list ends in ` [module]`.
    pub name: &'a [u8],
}

/// A file and those of its functions that samples hit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SymbolFile<'a> {
    /// Its path, as maps have it.
    pub path: &'a [u8],
    /// What it is.
    pub kind: SymbolFileKind,
    /// `p_vaddr` of the first executable segment.
    pub min_vaddr: u64,
    /// Where in the file that segment is, of an ELF file; where in the memory of the module its text is, of a module.
    /// Recorders before 2019 do not tell: the segment is taken to start where the map starts.
    pub offset_of_min_vaddr: Option<u64>,
    /// The functions, ascending in all files known so far; readers should not rely on it.
    pub symbols: Vec<FileSymbol<'a>>,
}

impl Default for SymbolFileKind {
    fn default() -> SymbolFileKind {
        SymbolFileKind::UNKNOWN
    }
}

impl<'a> SymbolFile<'a> {
    /// FILE (128), written until 2021: files to the end of the section, each `size u32` (of what follows), `path` with its
    /// NUL, `type u32`, `min_vaddr u64`, `count u32`, that many of `{vaddr u64, len u32, name}`, the name with its NUL.
    /// Behind them a DEX file has `count u32` and that many `u64`; an ELF file or a module may have its `u64` offset.
    pub fn parse_file(bytes: &'a [u8], base: u64, endian: Endian) -> Partial<Vec<SymbolFile<'a>>> {
        Self::parse_sized(bytes, base, endian, Self::plain)
    }

    /// FILE2 (132), written since 2021: files to the end of the section, each `size u32` and a message in Protocol Buffers'
    /// wire format: 1 path, 2 type, 3 min_vaddr, 4 symbol {1 vaddr, 2 len, 3 name}, 5 DEX offsets, 6 ELF {1 offset},
    /// 7 module {1 offset}. Fields that are 0 are left out.
    pub fn parse_file2(bytes: &'a [u8], base: u64, endian: Endian) -> Partial<Vec<SymbolFile<'a>>> {
        Self::parse_sized(bytes, base, endian, Self::message)
    }

    fn parse_sized(
        bytes: &'a [u8],
        base: u64,
        endian: Endian,
        file: fn(&mut Reader<'a>) -> Result<SymbolFile<'a>>,
    ) -> Partial<Vec<SymbolFile<'a>>> {
        let mut r = Reader::new(bytes, base, endian);
        let mut problem = None;
        let mut files = Vec::new();
        while !r.is_empty() && problem.is_none() {
            files.extend(read_items(&mut r, 1, &mut problem, |r| {
                let size = r.u32("simpleperf file size")?;
                let offset = r.offset();
                let body = r.take(size as usize, "simpleperf file")?;
                file(&mut Reader::new(body, offset, endian))
            }));
        }
        Partial { value: files, problem }
    }

    fn plain(r: &mut Reader<'a>) -> Result<SymbolFile<'a>> {
        let path = r.cstr("simpleperf file path")?;
        let kind = SymbolFileKind(r.u32("simpleperf file type")?);
        let min_vaddr = r.u64("simpleperf min_vaddr")?;
        let count = r.u32("simpleperf symbol count")?;
        // Address, length, and a name that is empty.
        let count = r.count(count.into(), 13, "simpleperf symbols")?;
        let mut symbols = Vec::with_capacity(count);
        for _ in 0..count {
            symbols.push(FileSymbol {
                vaddr: r.u64("simpleperf symbol address")?,
                len_bytes: r.u32("simpleperf symbol length")?,
                name: r.cstr("simpleperf symbol name")?,
            });
        }
        let may_tell = matches!(kind, SymbolFileKind::ELF | SymbolFileKind::KERNEL_MODULE) && !r.is_empty();
        let offset_of_min_vaddr = if may_tell { Some(r.u64("simpleperf offset of min_vaddr")?) } else { None };
        Ok(SymbolFile { path, kind, min_vaddr, offset_of_min_vaddr, symbols })
    }

    fn message(r: &mut Reader<'a>) -> Result<SymbolFile<'a>> {
        // A field that is left out is 0.
        let mut file = SymbolFile { kind: SymbolFileKind::KERNEL, ..SymbolFile::default() };
        while let Some((field, value)) = next_field(r)? {
            match (field, value) {
                (1, Field::Bytes(path, _)) => file.path = path,
                (2, Field::Number(kind)) => file.kind = SymbolFileKind(kind as u32),
                (3, Field::Number(vaddr)) => file.min_vaddr = vaddr,
                (4, Field::Bytes(bytes, offset)) => {
                    file.symbols.push(symbol(&mut Reader::new(bytes, offset, r.endian()))?);
                }
                (6 | 7, Field::Bytes(bytes, offset)) => {
                    let mut offset_of_min_vaddr = 0;
                    let mut r = Reader::new(bytes, offset, r.endian());
                    while let Some((field, value)) = next_field(&mut r)? {
                        if let (1, Field::Number(number)) = (field, value) {
                            offset_of_min_vaddr = number;
                        }
                    }
                    file.offset_of_min_vaddr = Some(offset_of_min_vaddr);
                }
                _ => {}
            }
        }
        Ok(file)
    }
}

fn symbol<'a>(r: &mut Reader<'a>) -> Result<FileSymbol<'a>> {
    let mut symbol = FileSymbol { vaddr: 0, len_bytes: 0, name: &[] };
    while let Some((field, value)) = next_field(r)? {
        match (field, value) {
            (1, Field::Number(vaddr)) => symbol.vaddr = vaddr,
            (2, Field::Number(len)) => symbol.len_bytes = len as u32,
            (3, Field::Bytes(name, _)) => symbol.name = name,
            _ => {}
        }
    }
    Ok(symbol)
}

/// A field of a message.
enum Field<'a> {
    Number(u64),
    /// Text or a message, and where it is in the input.
    Bytes(&'a [u8], u64),
}

/// The next field with its number; `None` at the end.
fn next_field<'a>(r: &mut Reader<'a>) -> Result<Option<(u64, Field<'a>)>> {
    if r.is_empty() {
        return Ok(None);
    }
    let offset = r.offset();
    let key = varint(r)?;
    let value = match key & 7 {
        0 => Field::Number(varint(r)?),
        1 => Field::Number(u64::from_le_bytes(r.array("simpleperf message")?)),
        5 => Field::Number(u32::from_le_bytes(r.array("simpleperf message")?).into()),
        2 => {
            let len = varint(r)?;
            let len = r.count(len, 1, "simpleperf message")?;
            let at = r.offset();
            Field::Bytes(r.take(len, "simpleperf message")?, at)
        }
        wire => return Err(Error::value(offset, "simpleperf message: wire type", wire, "0, 1, 2 or 5")),
    };
    Ok(Some((key >> 3, value)))
}

/// Seven bits per byte, lowest first; the highest bit says that there are more.
fn varint(r: &mut Reader<'_>) -> Result<u64> {
    let offset = r.offset();
    let mut value = 0;
    for shift in (0..70).step_by(7) {
        let byte = r.u8("simpleperf message: number")?;
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Error::other(offset, "simpleperf message: number", "goes on after ten bytes"))
}

/// META_INFO (129), since 2016: pairs of a key and a value to the end of the section, each text with its NUL. Keys are
/// `simpleperf_version`, `kernel_version`, `clockid`, `event_type_info` (lines of `name,type,config`), and others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MetaInfo<'a>(pub Vec<(&'a [u8], &'a [u8])>);

impl<'a> MetaInfo<'a> {
    /// Reads the section, as far as it can be read.
    pub fn parse(bytes: &'a [u8], base: u64, endian: Endian) -> Partial<MetaInfo<'a>> {
        let mut r = Reader::new(bytes, base, endian);
        let mut problem = None;
        let mut pairs = Vec::new();
        while !r.is_empty() && problem.is_none() {
            pairs.extend(read_items(&mut r, 1, &mut problem, |r| {
                Ok((r.cstr("META_INFO key")?, r.cstr("META_INFO value")?))
            }));
        }
        Partial { value: MetaInfo(pairs), problem }
    }
}
