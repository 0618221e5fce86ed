//! The `BPF_PROG_INFO` feature section: a count, then blobs back to back.

use super::{ProgInfo, ProgInfoBuf};
use crate::bpf::CountedSection;
use crate::{Endian, Result, Writer};

/// Iterator over the programs of the section.
pub type BpfProgInfoSection<'a> = CountedSection<'a, ProgInfo<'a>>;

impl<'a> BpfProgInfoSection<'a> {
    /// Reads a section that starts at offset `base` of the file.
    ///
    /// # Errors
    /// Fails if the section is too short for its count.
    pub fn new(bytes: &'a [u8], base: u64, endian: Endian) -> Result<BpfProgInfoSection<'a>> {
        CountedSection::open(bytes, base, endian, ProgInfo::read)
    }
}

/// Sort key of programs in the section: (id, load time in ns since boot).
pub type SectionOrder = (Option<u32>, Option<u64>);

impl ProgInfo<'_> {
    /// Sort key of the program in a written section.
    pub fn section_order(&self) -> SectionOrder {
        (self.id(), self.load_time_ns())
    }
}

/// Appends the section: the programs in ascending order of id, as perf writes them. All programs must be in the byte
/// order of the file. `max_info_len` as in [`ProgInfoBuf::encode`].
pub fn write_section(out: &mut Vec<u8>, endian: Endian, programs: &[ProgInfoBuf], max_info_len: usize) {
    let mut ordered: Vec<&ProgInfoBuf> = programs.iter().collect();
    ordered.sort_by_key(|program| program.view().section_order());
    Writer::new(out, endian).u32(ordered.len() as u32);
    for program in ordered {
        program.encode(out, max_info_len);
    }
}

/// Appends the section from blobs that [`ProgInfoBuf::encode`] wrote. A blob needs less memory than a [`ProgInfoBuf`].
pub fn write_encoded(out: &mut Vec<u8>, endian: Endian, mut blobs: Vec<(SectionOrder, &[u8])>) {
    blobs.sort_by_key(|(order, _)| *order);
    out.reserve_exact(4 + blobs.iter().map(|(_, blob)| blob.len()).sum::<usize>());
    Writer::new(out, endian).u32(blobs.len() as u32);
    blobs.iter().for_each(|(_, blob)| out.extend_from_slice(blob));
}
