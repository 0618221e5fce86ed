//! Full names of maps: the kernel keeps 15 characters, the BTF of a program has the whole name.

use bprec_format::bpf::btf::{Btf, DeclaredMap};
use bprec_format::bprec::state;
use std::collections::{BTreeMap, BTreeSet};

/// Length to which the kernel truncates a name, bytes.
const KERNEL_NAME_BYTES: usize = 15;

/// Maps that programs declare.
pub(super) struct Declared<'a> {
    /// Declared maps by BTF id, sorted by name.
    by_btf: BTreeMap<u32, Vec<DeclaredMap<'a>>>,
}

impl<'a> Declared<'a> {
    pub(super) fn new(btf: &'a BTreeMap<u32, Btf<'a>>) -> Declared<'a> {
        let declared = |btf: &Btf<'a>| {
            let mut maps: Vec<DeclaredMap<'a>> = btf.declared_maps().collect();
            maps.sort_by_key(|map| map.name);
            maps
        };
        Declared { by_btf: btf.iter().map(|(id, btf)| (*id, declared(btf))).collect() }
    }

    /// Returns the name of a map: the full name if only one declaration fits, otherwise the kernel's name. `programs` has the BTF ids of the programs
    /// that use the map.
    pub(super) fn name(&self, about: &state::Map, programs: &BTreeSet<u32>) -> String {
        let whole = || {
            let btf = programs.iter().chain([&about.btf_id]).collect::<BTreeSet<_>>();
            let fitting: Vec<&DeclaredMap<'a>> = btf.into_iter().flat_map(|btf| self.fitting(*btf, about)).collect();
            only_one(fitting.iter().copied())
                .or_else(|| only_one(fitting.iter().copied().filter(|map| map.max_entries == Some(about.max_entries))))
        };
        let name = if about.name.len() == KERNEL_NAME_BYTES { whole() } else { None };
        String::from_utf8_lossy(name.unwrap_or(&about.name)).into_owned()
    }

    /// Returns the declarations that have the map's type and sizes, and a name that starts with the map's name.
    fn fitting(&self, btf: u32, about: &state::Map) -> impl Iterator<Item = &DeclaredMap<'a>> {
        let maps = self.by_btf.get(&btf).map(Vec::as_slice).unwrap_or_default();
        let from = maps.partition_point(|map| map.name < about.name.as_slice());
        let has_name = |map: &&DeclaredMap<'a>| map.name.starts_with(&about.name);
        let fits = |map: &&DeclaredMap<'a>| {
            map.map_type.is_none_or(|map_type| map_type == about.map_type)
                && map.key_bytes.is_none_or(|bytes| bytes == u64::from(about.key_bytes))
                && map.value_bytes.is_none_or(|bytes| bytes == u64::from(about.value_bytes))
        };
        maps[from..].iter().take_while(has_name).filter(fits)
    }
}

/// Returns the name of the maps, if all maps have the same name.
fn only_one<'d>(maps: impl Iterator<Item = &'d DeclaredMap<'d>>) -> Option<&'d [u8]> {
    let names: BTreeSet<&[u8]> = maps.map(|map| map.name).collect();
    names.first().copied().filter(|_| names.len() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(maps: &[(&'static [u8], u32, u64, u32)]) -> String {
        let declared = |(name, map_type, value_bytes, max_entries): &(&'static [u8], u32, u64, u32)| DeclaredMap {
            name,
            map_type: Some(*map_type),
            key_bytes: Some(4),
            value_bytes: Some(*value_bytes),
            max_entries: Some(*max_entries),
        };
        let mut maps: Vec<DeclaredMap<'_>> = maps.iter().map(declared).collect();
        maps.sort_by_key(|map| map.name);
        let about = state::Map {
            name: b"requests_by_pro".into(),
            map_type: 1,
            key_bytes: 4,
            value_bytes: 8,
            max_entries: 64,
            ..state::Map::default()
        };
        Declared { by_btf: BTreeMap::from([(3, maps)]) }.name(&about, &BTreeSet::from([3]))
    }

    #[test]
    fn a_name_is_whole_where_one_declaration_fits() {
        let process: (&[u8], u32, u64, u32) = (b"requests_by_process", 1, 8, 64);
        let protocol: (&[u8], u32, u64, u32) = (b"requests_by_protocol", 1, 8, 64);
        let cut = "requests_by_pro";
        assert_eq!(name(&[process, (b"responses", 1, 8, 64)]), "requests_by_process");
        assert_eq!(name(&[process, protocol]), cut, "two fit");
        assert_eq!(name(&[(process.0, 2, 8, 64)]), cut, "another type");
        assert_eq!(name(&[process, (protocol.0, 1, 16, 64)]), "requests_by_process", "another size");
        assert_eq!(
            name(&[process, (protocol.0, 1, 8, 65)]),
            "requests_by_process",
            "the map has another number of entries"
        );
        assert_eq!(name(&[(process.0, 1, 8, 1)]), "requests_by_process", "the loader chose the number of entries");
        assert_eq!(name(&[(b"requests_by_pro", 1, 8, 64)]), cut);
        assert_eq!(name(&[]), cut);
    }
}
