//! A blob with other strings.

use std::collections::BTreeSet;

use super::Btf;
use crate::Result;

/// Offsets, in a header, of the offset and the length of the strings.
const STR_OFF_AT: usize = 16;

impl Btf<'_> {
    /// The same types, with only those strings that they need for their names and those at the offsets `kept`: of all others nothing
    /// is left. `added` are put behind them. The blob, and the offset of each added string.
    ///
    /// # Errors
    /// When `blob` is no BTF.
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
        // They are within the blob: it could be parsed.
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
