//! The `BPF_BTF` feature section: `count u32`, then for each blob `id u32, data_size u32` and its bytes, unpadded.

use crate::bpf::CountedSection;
use crate::{Endian, Result, Writer};

/// Iterator over `(btf_id, blob)`.
pub type BpfBtfSection<'a> = CountedSection<'a, (u32, &'a [u8])>;

impl<'a> BpfBtfSection<'a> {
    /// Reads a section that starts at offset `base` of the file.
    ///
    /// # Errors
    /// Fails if the section is too short for its count.
    pub fn new(bytes: &'a [u8], base: u64, endian: Endian) -> Result<BpfBtfSection<'a>> {
        CountedSection::open(bytes, base, endian, |r| {
            let id = r.u32("bpf_btf.id")?;
            let len = r.u32("bpf_btf.data_size")?;
            Ok((id, r.take(len as usize, "bpf_btf.data")?))
        })
    }
}

/// Appends the section: the blobs in ascending order of id, as perf writes them.
pub fn write_section(out: &mut Vec<u8>, endian: Endian, blobs: &[(u32, &[u8])]) {
    let mut ordered: Vec<&(u32, &[u8])> = blobs.iter().collect();
    ordered.sort_by_key(|(id, _)| *id);
    let mut writer = Writer::new(out, endian);
    writer.u32(ordered.len() as u32);
    for (id, data) in ordered {
        writer.u32(*id).u32(data.len() as u32).bytes(data);
    }
}
