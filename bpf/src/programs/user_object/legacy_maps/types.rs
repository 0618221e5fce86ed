//! BTF types for legacy map definitions, appended to the object's own types.
//!
//! BTF defines a map by a struct type. Each member is a pointer, either to an array with a number as its length, or to the type of a key or
//! value. The legacy variables are smaller than this struct. The struct type therefore states the size of the variable, and all its members
//! have offset 0; only the types of the members matter.

use bprec_format::Endian;
use bprec_format::bpf::btf::{Btf, Kind, MAGIC};

use super::definition::Definition;

const HEADER_BYTES: usize = 24;
/// Size of the fixed part of a type record, bytes.
const RECORD_BYTES: usize = 12;

/// Builds BTF that describes the maps for libbpf: the types of `old`, followed by the new types. Returns `None` if `old` cannot be
/// read.
pub(super) fn describe(definitions: &[Definition<'_>], section_bytes: usize, old: Option<&[u8]>) -> Option<Vec<u8>> {
    let btf = match old {
        Some(blob) => {
            Some(Btf::parse(blob).ok().filter(|btf| btf.problem().is_none() && btf.endian() == Endian::NATIVE)?)
        }
        None => None,
    };
    let mut new = match (old, &btf) {
        (Some(blob), Some(btf)) => {
            Types { types: part(blob, 8)?.to_vec(), count: btf.len(), strings: part(blob, 16)?.to_vec() }
        }
        _ => Types { types: Vec::new(), count: 0, strings: vec![0] },
    };
    // If BTF describes the section, it describes all variables of the section: a compiler describes either all variables or none.
    let section = btf.as_ref().and_then(|btf| btf.find(Kind::DATASEC, b"maps"));
    let int = new.int();
    let mut variables = Vec::new();
    for definition in definitions {
        let annotated = btf.as_ref().and_then(|btf| btf.annotated_map_types(definition.name));
        let struct_id = new.definition(definition, annotated, int);
        match (&section, &btf) {
            (Some(section), Some(btf)) => {
                let is_it = |id: &u32| btf.type_by_id(*id).is_some_and(|it| it.name() == Some(definition.name));
                let variable = section.section_vars().map(|entry| entry.type_id).find(is_it)?;
                new.put(record_start(btf, variable) + 8, struct_id)?;
            }
            _ => variables.push((new.variable(definition.name, struct_id), definition)),
        }
    }
    let name = new.string(b".maps");
    match (section, btf) {
        (Some(section), Some(btf)) => new.put(record_start(&btf, section.id()), name)?,
        _ => {
            let entries =
                variables.iter().flat_map(|(id, it)| [*id, it.offset as u32, it.bytes as u32]).collect::<Vec<_>>();
            new.add(name, Kind::DATASEC, variables.len() as u32, section_bytes as u32, &entries);
        }
    }
    Some(new.encode())
}

/// Returns a section of a BTF blob: the types or the strings. The header has two words at `at`: the section's offset from the end of the header, and
/// its length.
fn part(blob: &[u8], at: usize) -> Option<&[u8]> {
    let header_bytes = Endian::NATIVE.u32_at(blob, 4)? as usize;
    let start = header_bytes.checked_add(Endian::NATIVE.u32_at(blob, at)? as usize)?;
    blob.get(start..start.checked_add(Endian::NATIVE.u32_at(blob, at + 4)? as usize)?)
}

/// Returns the offset of a type's record in the types, bytes.
fn record_start(btf: &Btf<'_>, id: u32) -> usize {
    btf.types().take_while(|it| it.id() < id).map(|it| RECORD_BYTES + it.raw().1.len()).sum()
}

/// BTF under construction.
struct Types {
    types: Vec<u8>,
    count: usize,
    strings: Vec<u8>,
}

impl Types {
    fn string(&mut self, text: &[u8]) -> u32 {
        let offset = self.strings.len() as u32;
        self.strings.extend(text);
        self.strings.push(0);
        offset
    }

    /// Appends a type and returns its id.
    fn add(&mut self, name: u32, kind: Kind, count: u32, size_or_type: u32, extra: &[u32]) -> u32 {
        let words = [name, u32::from(kind.0) << 24 | count, size_or_type];
        self.types.extend(words.iter().chain(extra).flat_map(|word| word.to_ne_bytes()));
        self.count += 1;
        self.count as u32
    }

    /// Overwrites the word at offset `at` of the types.
    fn put(&mut self, at: usize, word: u32) -> Option<()> {
        self.types.get_mut(at..at + 4)?.copy_from_slice(&word.to_ne_bytes());
        Some(())
    }

    fn int(&mut self) -> u32 {
        const SIGNED_32_BITS: u32 = 1 << 24 | 32;
        let name = self.string(b"int");
        self.add(name, Kind::INT, 0, 4, &[SIGNED_32_BITS])
    }

    /// Appends the struct type for `definition` and returns its id. `annotated` holds the types of key and value, if the object has them.
    fn definition(&mut self, definition: &Definition<'_>, annotated: Option<(u32, u32)>, int: u32) -> u32 {
        let mut members = Vec::new();
        let sizes = [("key_size", definition.key_bytes), ("value_size", definition.value_bytes)];
        let numbers =
            [("type", definition.map_type), ("max_entries", definition.max_entries), ("map_flags", definition.flags)];
        for (name, value) in numbers.into_iter().chain(sizes).filter(|(_, value)| *value != 0) {
            let array = self.add(0, Kind::ARRAY, 0, 0, &[int, int, value]);
            members.extend([self.string(name.as_bytes()), self.add(0, Kind::PTR, 0, array, &[]), 0]);
        }
        if let Some((key, value)) = annotated {
            for (name, type_id) in [("key", key), ("value", value)] {
                members.extend([self.string(name.as_bytes()), self.add(0, Kind::PTR, 0, type_id, &[]), 0]);
            }
        }
        self.add(0, Kind::STRUCT, members.len() as u32 / 3, definition.bytes as u32, &members)
    }

    fn variable(&mut self, name: &[u8], type_id: u32) -> u32 {
        const GLOBAL: u32 = 1;
        let name = self.string(name);
        self.add(name, Kind::VAR, 0, type_id, &[GLOBAL])
    }

    fn encode(self) -> Vec<u8> {
        let mut blob = MAGIC.to_ne_bytes().to_vec();
        // Version and flags.
        blob.extend([1, 0]);
        let (types, strings) = (self.types.len(), self.strings.len());
        let lengths = [HEADER_BYTES, 0, types, types, strings];
        blob.extend(lengths.into_iter().flat_map(|length| (length as u32).to_ne_bytes()));
        blob.extend(self.types);
        blob.extend(self.strings);
        blob
    }
}
