//! `struct bpf_map_def`, the form of map definitions in the section `maps`.

use bprec_format::Endian;

/// Size of a definition without `map_flags`, which the oldest objects lack.
const REQUIRED_BYTES: usize = 16;
/// Size of a definition with `map_flags`.
const KNOWN_BYTES: usize = 20;

/// Legacy definition of one map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Definition<'a> {
    pub(super) name: &'a [u8],
    /// Offset in the section, bytes.
    pub(super) offset: usize,
    pub(super) bytes: usize,
    pub(super) map_type: u32,
    pub(super) key_bytes: u32,
    pub(super) value_bytes: u32,
    pub(super) max_entries: u32,
    pub(super) flags: u32,
}

impl<'a> Definition<'a> {
    pub(super) fn read(name: &'a [u8], offset: usize, bytes: &[u8]) -> Result<Definition<'a>, String> {
        let shown = || String::from_utf8_lossy(name);
        let field = |at| Endian::NATIVE.u32_at(bytes, at);
        let (Some(map_type), Some(key_bytes), Some(value_bytes), Some(max_entries)) =
            (field(0), field(4), field(8), field(12))
        else {
            return Err(format!(
                "the definition of map {} has only {} bytes; a definition has {REQUIRED_BYTES} bytes or more",
                shown(),
                bytes.len()
            ));
        };
        if bytes.get(KNOWN_BYTES..).is_some_and(|rest| rest.iter().any(|byte| *byte != 0)) {
            return Err(format!(
                "the definition of map {} uses fields after map_flags (for a pin or an inner map) that bprec does not \
                 understand; define the map in SEC(\".maps\")",
                shown()
            ));
        }
        let flags = field(REQUIRED_BYTES).unwrap_or(0);
        Ok(Definition { name, offset, bytes: bytes.len(), map_type, key_bytes, value_bytes, max_entries, flags })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_another_loader_understands_is_refused() {
        let mut bytes = [0u8; 36];
        bytes[0] = 1;
        assert!(Definition::read(b"m", 0, &bytes).is_ok());
        bytes[24] = 2;
        assert!(Definition::read(b"m", 0, &bytes).unwrap_err().contains("map m uses fields after map_flags"));
        assert!(Definition::read(b"m", 0, &bytes[..12]).unwrap_err().contains("12 bytes; a definition has 16"));
    }
}
