//! Header of a BTF blob, and the sections that it locates.

use crate::{Endian, Error, Result};

/// Offset of `hdr_len` in `struct btf_header`, after magic (`u16`), version and flags (`u8` each).
const HEADER_LEN_AT: usize = 4;
/// Offset of `type_off`, followed by `type_len`.
const TYPES_AT: usize = 8;
/// Offset of `str_off`, followed by `str_len`.
const STRINGS_AT: usize = 16;
/// Offset of `layout_off`, followed by `layout_len`: the end of the header before Linux 7.3.
const LAYOUT_AT: usize = 24;

/// Sections of a blob.
pub(super) struct Sections<'a> {
    pub(super) types: &'a [u8],
    pub(super) types_offset: u64,
    pub(super) strings: &'a [u8],
    pub(super) layout: &'a [u8],
}

impl<'a> Sections<'a> {
    /// Finds the sections of a blob in this byte order.
    pub(super) fn locate(bytes: &'a [u8], endian: Endian) -> Result<Sections<'a>> {
        let short = |needed: usize| Error::truncated(0, "BTF header", needed as u64, bytes.len() as u64);
        let word = |at| endian.u32_at(bytes, at).ok_or_else(|| short(LAYOUT_AT));
        let header_bytes = word(HEADER_LEN_AT)? as usize;
        if header_bytes < LAYOUT_AT {
            return Err(Error::value(HEADER_LEN_AT as u64, "BTF hdr_len", header_bytes as u64, "at least 24"));
        }
        let body = bytes.get(header_bytes..).ok_or_else(|| short(header_bytes))?;
        let part = |what: &'static str, at: usize| {
            let (offset, len) = (word(at)?, word(at + 4)?);
            let end = u64::from(offset) + u64::from(len);
            let range = usize::try_from(end).ok().map(|end| offset as usize..end);
            range
                .and_then(|range| body.get(range))
                .ok_or_else(|| Error::truncated(header_bytes as u64, what, end, body.len() as u64))
        };
        let has_layout = header_bytes >= LAYOUT_AT + 8;
        Ok(Sections {
            types: part("BTF type section", TYPES_AT)?,
            types_offset: header_bytes as u64 + u64::from(word(TYPES_AT)?),
            strings: part("BTF string section", STRINGS_AT)?,
            layout: if has_layout { part("BTF layout section", LAYOUT_AT)? } else { &[] },
        })
    }
}
