//! Replaces the strings of a blob.

use std::collections::BTreeSet;

use super::Btf;
use crate::Result;

/// Offset of `str_off` in the header; `str_len` follows it.
const STR_OFF_AT: usize = 16;

impl Btf<'_> {
    /// Returns the blob with the same types but fewer strings. The names of types and their elements, and the strings at the offsets `kept`, stay at
    /// their offsets; the strings `added` come after them; all other strings become zeros. Also returns the offset of each added string.
    ///
    /// # Errors
    /// Fails if `blob` is not BTF.
    pub fn with_strings<'s>(
        blob: &[u8],
        kept: &BTreeSet<u32>,
        added: impl IntoIterator<Item = &'s [u8]>,
    ) -> Result<(Vec<u8>, Vec<u32>)> {
        let btf = Btf::parse(blob)?;
        let endian = btf.endian;
        let mut strings = vec![0; btf.strings.len().max(1)];
        let mut keep = |offset: u32| {
            if let Some(text) = btf.name(offset) {
                let start = offset as usize;
                strings[start..start + text.len()].copy_from_slice(text);
            }
        };
        btf.types().for_each(|found| found.name_offsets().for_each(&mut keep));
        kept.iter().copied().for_each(&mut keep);
        let offsets = added.into_iter().map(|text| {
            let offset = strings.len() as u32;
            strings.extend_from_slice(text);
            strings.push(0);
            offset
        });
        let offsets = offsets.collect();
        // The fields are within the blob, because it was parsed.
        let field = |at: usize| endian.u32_at(blob, at).unwrap_or_default() as usize;
        let (header_bytes, start, len) = (field(4), field(STR_OFF_AT), field(STR_OFF_AT + 4));
        let mut out = blob.to_vec();
        let place = header_bytes + start..header_bytes + start + len;
        let place = if place.end == blob.len() {
            out.truncate(place.start);
            place.start
        } else {
            out[place].fill(0);
            out.len()
        };
        out.extend_from_slice(&strings);
        out[STR_OFF_AT..STR_OFF_AT + 4].copy_from_slice(&endian.bytes_u32((place - header_bytes) as u32));
        out[STR_OFF_AT + 4..STR_OFF_AT + 8].copy_from_slice(&endian.bytes_u32(strings.len() as u32));
        Ok((out, offsets))
    }
}
