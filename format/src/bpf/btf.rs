//! BTF: the names and types that a BPF object carries (`include/uapi/linux/btf.h`).
//!
//! A blob has a header and sections at offsets from the end of the header: type records, strings, and since Linux 7.3 a table of record lengths by
//! kind. With this table, a reader can skip unknown kinds. Types are numbered from 1 in the order of their records; 0 is `void`. Records may refer to
//! each other in cycles, so this module limits every chain of references that it follows.

mod decode;
mod header;
mod maps;
mod section;
mod strings;
mod types;
mod value;

pub use maps::DeclaredMap;
pub use section::{BpfBtfSection, write_section};
pub use types::{ArrayType, Enumerator, IntType, Kind, Member, Param, SectionVar, Type};
pub use value::{Limits, Value};

use super::prog_info::LineInfo;
use crate::{Endian, Error, Result};

/// Magic number at the start of a blob, in the byte order of the blob.
pub const MAGIC: u16 = 0xeb9f;

/// Limit on the length of a chain of references between types. The kernel has the same limit when it checks BTF.
const MAX_HOPS: usize = 32;

/// A BTF blob with an index of its types.
#[derive(Debug, Clone)]
pub struct Btf<'a> {
    endian: Endian,
    types: &'a [u8],
    strings: &'a [u8],
    /// Offset of each type's record in `types`, from type 1 on.
    starts: Vec<u32>,
    problem: Option<Error>,
}

impl<'a> Btf<'a> {
    /// Reads a blob in the byte order that its magic shows. Types are indexed up to the first record that is cut off or
    /// of unknown size ([`problem`](Self::problem)).
    ///
    /// # Errors
    /// Fails if `bytes` have no BTF header, or its sections are not within `bytes`. Offsets count from the start of `bytes`.
    pub fn parse(bytes: &'a [u8]) -> Result<Btf<'a>> {
        let magic = bytes.first_chunk().ok_or_else(|| Error::truncated(0, "BTF magic", 2, bytes.len() as u64))?;
        let endian = [Endian::Little, Endian::Big].into_iter().find(|endian| endian.u16(*magic) == MAGIC);
        let found = u16::from_le_bytes(*magic);
        let endian = endian.ok_or_else(|| Error::value(0, "BTF magic", found.into(), "0xeb9f"))?;
        let parts = header::Sections::locate(bytes, endian)?;
        let mut starts = Vec::new();
        let mut at = 0;
        let mut problem = None;
        while at < parts.types.len() {
            match types::record_bytes(endian, &parts.types[at..], parts.layout) {
                Ok(bytes) => {
                    starts.push(at as u32);
                    at += bytes;
                }
                Err(error) => {
                    problem = Some(error.at(parts.types_offset + at as u64));
                    break;
                }
            }
        }
        Ok(Btf { endian, types: parts.types, strings: parts.strings, starts, problem })
    }

    /// Byte order of the blob and of its machine.
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// Damage that ended the index of types early, if any.
    pub fn problem(&self) -> Option<&Error> {
        self.problem.as_ref()
    }

    /// Count of types without `void`; equal to the id of the last type.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Returns true if `void` is the only type.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// String at an offset of the string section, without its NUL; `None` for an invalid offset or a missing NUL.
    pub fn name(&self, offset: u32) -> Option<&'a [u8]> {
        types::string(self.strings, offset)
    }

    /// Type with this id; `None` for `void` (0) and for ids that the blob does not have.
    pub fn type_by_id(&self, id: u32) -> Option<Type<'a>> {
        let start = *self.starts.get((id as usize).checked_sub(1)?)?;
        let end = self.starts.get(id as usize).map_or(self.types.len(), |end| *end as usize);
        Type::new(self.endian, id, self.types.get(start as usize..end)?, self.strings)
    }

    /// All types in order of their ids, from 1.
    pub fn types(&self) -> impl Iterator<Item = Type<'a>> + '_ {
        (1..=self.starts.len() as u32).filter_map(|id| self.type_by_id(id))
    }

    /// The first type of this kind and name.
    pub fn find(&self, kind: Kind, name: &[u8]) -> Option<Type<'a>> {
        self.types().find(|t| t.kind() == kind && t.name() == Some(name))
    }

    /// The name of the function that a FUNC type describes, for [`FuncInfo`](super::prog_info::FuncInfo).
    pub fn func_name(&self, type_id: u32) -> Option<&'a [u8]> {
        self.type_by_id(type_id).filter(|t| t.kind() == Kind::FUNC)?.name()
    }

    /// The file name of a line table entry.
    pub fn line_file(&self, line: &LineInfo) -> Option<&'a [u8]> {
        self.name(line.file_name_off).filter(|name| !name.is_empty())
    }

    /// The source text of a line table entry, with its indentation.
    pub fn line_text(&self, line: &LineInfo) -> Option<&'a [u8]> {
        self.name(line.line_off).filter(|text| !text.is_empty())
    }

    /// The type behind typedefs, qualifiers and tags; `None` for `void`, unknown ids, and chains of 32 modifiers or more.
    pub fn resolve(&self, id: u32) -> Option<Type<'a>> {
        let mut found = self.type_by_id(id)?;
        for _ in 0..MAX_HOPS {
            if !found.kind().is_modifier() {
                return Some(found);
            }
            found = self.type_by_id(found.target()?)?;
        }
        None
    }

    /// Size in bytes of a value of the type. `None` for types without a size (`void`, functions, forward declarations), for chains of references
    /// that are too long, and if the size exceeds 64 bits.
    pub fn size_of(&self, id: u32) -> Option<u64> {
        let mut found = self.resolve(id)?;
        let mut count = 1u64;
        for _ in 0..MAX_HOPS {
            found = match found.kind() {
                Kind::ARRAY => {
                    let array = found.array()?;
                    count = count.checked_mul(u64::from(array.len))?;
                    self.resolve(array.element)?
                }
                Kind::VAR => self.resolve(found.target()?)?,
                // BPF pointers have 8 bytes on every machine.
                Kind::PTR => return count.checked_mul(8),
                _ => return count.checked_mul(u64::from(found.size_bytes()?)),
            };
        }
        None
    }

    /// Variables of a DATASEC, which make up the value of a `.rodata`, `.data` or `.bss` map.
    pub fn variables(&self, datasec_id: u32) -> impl Iterator<Item = Variable<'a>> + '_ {
        self.type_by_id(datasec_id).into_iter().flat_map(|section| section.section_vars()).filter_map(|entry| {
            let var = self.type_by_id(entry.type_id).filter(|t| t.kind() == Kind::VAR)?;
            Some(Variable {
                name: var.name()?,
                type_id: var.target()?,
                offset: entry.offset,
                size_bytes: entry.size_bytes,
            })
        })
    }

    /// Variables named `bpf_metadata_*` in the `value` of a map, as (name without this prefix, [text of the value](Self::value_text)). `datasec_id`
    /// is the value type of the map, a DATASEC.
    pub fn metadata(&self, datasec_id: u32, value: &[u8]) -> Vec<(&'a [u8], String)> {
        self.variables(datasec_id)
            .filter_map(|variable| {
                let name = variable.name.strip_prefix(b"bpf_metadata_")?;
                let start = variable.offset as usize;
                let bytes = value.get(start..start.checked_add(variable.size_bytes as usize)?)?;
                Some((name, self.value_text(variable.type_id, bytes, &Limits::default())))
            })
            .collect()
    }

    /// Key and value type of a map that was declared with `BPF_ANNOTATE_KV_PAIR`, from its `____btf_map_<name>` struct. The kernel cuts map names to
    /// 15 characters. A map name of that length also matches a longer struct name, if exactly one struct name starts with it.
    pub fn annotated_map_types(&self, map: &[u8]) -> Option<(u32, u32)> {
        const KERNEL_NAME_BYTES: usize = 15;
        let name = [b"____btf_map_", map].concat();
        let longer = || {
            let starts = |t: &Type<'_>| t.kind() == Kind::STRUCT && t.name().is_some_and(|it| it.starts_with(&name));
            let mut found = self.types().filter(starts);
            let only = found.next()?;
            (map.len() == KERNEL_NAME_BYTES && found.next().is_none()).then_some(only)
        };
        let pair = self.find(Kind::STRUCT, &name).or_else(longer)?;
        let member = |name: &[u8]| pair.members().find(|m| m.name == Some(name)).map(|m| m.type_id);
        Some((member(b"key")?, member(b"value")?))
    }
}

/// A variable in a DATASEC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Variable<'a> {
    /// Name as in the source code.
    pub name: &'a [u8],
    /// Id of the variable's type.
    pub type_id: u32,
    /// Offset in the section, in bytes.
    pub offset: u32,
    /// Size in bytes.
    pub size_bytes: u32,
}

#[cfg(test)]
mod tests;
