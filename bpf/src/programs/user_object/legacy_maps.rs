//! Converts objects with maps in a section `maps`, as `struct bpf_map_def { type, key_size, value_size, max_entries, map_flags }`.
//!
//! libbpf 1.0 and later refuse this form; they accept only maps that BTF describes. The object is therefore rewritten in memory: the section
//! is renamed to `.maps`, and its variables get BTF types with the same values. Types of key and value come from
//! `struct ____btf_map_NAME { key; value; }`, if the object has this structure. Existing contents are not moved, so that code, relocations
//! and line tables stay valid; new contents are appended to the file.

mod definition;
mod elf;
mod types;

use definition::Definition;
use elf::Elf;

/// Converts an object's legacy map definitions to definitions by BTF. Returns `None` if the object has no legacy definition, or if it cannot
/// be parsed; libbpf then reports the error.
///
/// # Errors
/// Fails with a message if a definition cannot be expressed in BTF.
pub(crate) fn convert_legacy_maps(object: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let Some(elf) = Elf::parse(object) else { return Ok(None) };
    let Some(maps) = elf.section("maps") else { return Ok(None) };
    let Some(mut variables) = elf.variables_in(&maps) else { return Ok(None) };
    variables.sort_unstable_by_key(|(_, offset)| *offset);
    let ends = variables.iter().skip(1).map(|(_, offset)| *offset).chain([maps.data.len()]);
    let definitions: Vec<Definition<'_>> = variables
        .iter()
        .zip(ends)
        .map(|((name, start), end)| Definition::read(name, *start, maps.data.get(*start..end).unwrap_or_default()))
        .collect::<Result<_, _>>()?;
    if definitions.is_empty() {
        return Ok(None);
    }
    let old = elf.section(".BTF").map(|section| section.data);
    let btf = types::describe(&definitions, maps.data.len(), old);
    Ok(btf.and_then(|btf| elf.with(&maps, &btf)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bprec_format::bpf::btf::{Btf, Kind};

    const OLD_STYLE: &[u8] = include_bytes!("../../../../fixtures/bpf/old_style.bpf.o");
    const WITHOUT_BTF: &[u8] = include_bytes!("../../../../fixtures/bpf/old_style_nobtf.bpf.o");
    const NEW_STYLE: &[u8] = include_bytes!("../../../../fixtures/bpf/by_cookie.bpf.o");

    #[test]
    fn definitions_are_those_of_the_source() {
        let elf = Elf::parse(OLD_STYLE).unwrap();
        let maps = elf.section("maps").unwrap();
        let mut found = elf.variables_in(&maps).unwrap();
        found.sort_unstable();
        assert_eq!(found.iter().map(|(name, _)| *name).collect::<Vec<_>>(), [&b"by_cpu"[..], b"totals"]);
        let modern = convert_legacy_maps(OLD_STYLE).unwrap().unwrap();
        let elf = Elf::parse(&modern).unwrap();
        assert!(elf.section("maps").is_none());
        assert_eq!(elf.section(".maps").unwrap().data, maps.data);
        let btf = Btf::parse(elf.section(".BTF").unwrap().data).unwrap();
        assert!(btf.problem().is_none());
        let section = btf.find(Kind::DATASEC, b".maps").unwrap();
        let names: Vec<_> = btf.variables(section.id()).map(|variable| variable.name).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(btf.find(Kind::DATASEC, b"maps").is_none());
    }

    #[test]
    fn objects_of_today_and_rubbish_stay_as_they_are() {
        assert_eq!(convert_legacy_maps(NEW_STYLE), Ok(None));
        assert_eq!(convert_legacy_maps(b""), Ok(None));
        assert_eq!(convert_legacy_maps(b"\x7fELF\x02\x01\x01"), Ok(None));
        for object in [OLD_STYLE, WITHOUT_BTF] {
            for length in 0..object.len() {
                let _ = convert_legacy_maps(&object[..length]);
            }
            for at in 0..object.len() {
                let mut broken = object.to_vec();
                broken[at] ^= 0xff;
                let _ = convert_legacy_maps(&broken);
            }
        }
    }
}
