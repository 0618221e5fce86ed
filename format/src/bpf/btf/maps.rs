//! Map declarations in source code: variables of the section `.maps`. The struct type of such a variable has a member
//! for each property of the map.

use super::{Btf, Kind};

/// Map that an object declares; a property that the declaration omits is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeclaredMap<'a> {
    /// Full name; the kernel keeps its first 15 characters.
    pub name: &'a [u8],
    /// `BPF_MAP_TYPE_*`.
    pub map_type: Option<u32>,
    /// Bytes of a key.
    pub key_bytes: Option<u64>,
    /// Bytes of a value.
    pub value_bytes: Option<u64>,
    /// Limit on the entries; the loader can set another limit.
    pub max_entries: Option<u32>,
}

impl<'a> Btf<'a> {
    /// The maps of the section `.maps`.
    pub fn declared_maps(&self) -> impl Iterator<Item = DeclaredMap<'a>> + '_ {
        let section = self.find(Kind::DATASEC, b".maps").map_or(0, |section| section.id());
        self.variables(section).map(|variable| {
            let mut map = DeclaredMap {
                name: variable.name,
                map_type: None,
                key_bytes: None,
                value_bytes: None,
                max_entries: None,
            };
            for member in self.resolve(variable.type_id).into_iter().flat_map(|declaration| declaration.members()) {
                match member.name {
                    Some(b"type") => map.map_type = self.number(member.type_id),
                    Some(b"max_entries") => map.max_entries = self.number(member.type_id),
                    Some(b"key_size") => map.key_bytes = self.number(member.type_id).map(u64::from),
                    Some(b"value_size") => map.value_bytes = self.number(member.type_id).map(u64::from),
                    Some(b"key") => map.key_bytes = self.size_of_pointee(member.type_id),
                    Some(b"value") => map.value_bytes = self.size_of_pointee(member.type_id),
                    _ => {}
                }
            }
            map
        })
    }

    /// Returns the number that a declaration gives as `int (*name)[number]`; `member` is the type of this member.
    fn number(&self, member: u32) -> Option<u32> {
        let array = self.resolve(self.pointee(member)?)?;
        array.array().map(|array| array.len)
    }

    /// Returns the size of the type that a declaration gives as `type *name`; `member` is the type of this member.
    fn size_of_pointee(&self, member: u32) -> Option<u64> {
        self.size_of(self.pointee(member)?)
    }

    fn pointee(&self, type_id: u32) -> Option<u32> {
        self.resolve(type_id).filter(|found| found.kind() == Kind::PTR)?.target()
    }
}
