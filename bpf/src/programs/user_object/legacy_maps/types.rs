//! Types for old map definitions, behind those that an object has already.
//!
//! A map definition of today is a struct type: its members are pointers, to arrays whose length is a number, or to the type
//! of a key or value. The variables are smaller than such a struct, so it says their size, and its members, of which only
//! the types count, all start at 0.

use bprec_format::Endian;
use bprec_format::bpf::btf::{Btf, Kind, MAGIC};

use super::definition::Definition;

const HEADER_BYTES: usize = 24;
/// Bytes that every type record starts with.
const RECORD_BYTES: usize = 12;

/// BTF that describes the maps as libbpf wants it: what there is already, then what it takes. `None` when what there is
/// cannot be read.
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
    // A compiler describes the section whole or not at all.
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

/// A part of a blob whose offset from the end of the header, and length, are at `at`.
fn part(blob: &[u8], at: usize) -> Option<&[u8]> {
    let header_bytes = Endian::NATIVE.u32_at(blob, 4)? as usize;
    let start = header_bytes.checked_add(Endian::NATIVE.u32_at(blob, at)? as usize)?;
    blob.get(start..start.checked_add(Endian::NATIVE.u32_at(blob, at + 4)? as usize)?)
}

/// Offset of the record of a type.
fn record_start(btf: &Btf<'_>, id: u32) -> usize {
    btf.types().take_while(|it| it.id() < id).map(|it| RECORD_BYTES + it.raw().1.len()).sum()
}

/// Types that grow.
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

    /// Appends a type; its id.
    fn add(&mut self, name: u32, kind: Kind, count: u32, size_or_type: u32, extra: &[u32]) -> u32 {
        let words = [name, u32::from(kind.0) << 24 | count, size_or_type];
        self.types.extend(words.iter().chain(extra).flat_map(|word| word.to_ne_bytes()));
        self.count += 1;
        self.count as u32
    }

    /// Overwrites a word of the types.
    fn put(&mut self, at: usize, word: u32) -> Option<()> {
        self.types.get_mut(at..at + 4)?.copy_from_slice(&word.to_ne_bytes());
        Some(())
    }

    fn int(&mut self) -> u32 {
        const SIGNED_32_BITS: u32 = 1 << 24 | 32;
        let name = self.string(b"int");
        self.add(name, Kind::INT, 0, 4, &[SIGNED_32_BITS])
    }

    /// The struct that says what `definition` says. `annotated` are the types of key and value.
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
