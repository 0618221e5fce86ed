//! The `BPF_PROG_INFO` feature section: a count, then blobs back to back.

use super::{ProgInfo, ProgInfoBuf};
use crate::{Endian, Reader, Result, Writer};

/// Iterator over the programs of the section. The first damaged blob yields its error and ends the iteration, because
/// the start of the next blob is unknown.
#[derive(Debug, Clone)]
pub struct BpfProgInfoSection<'a> {
    reader: Reader<'a>,
    left: u32,
}

impl<'a> BpfProgInfoSection<'a> {
    /// Reads a section that starts at offset `base` of the file.
    ///
    /// # Errors
    /// Fails if the section is too short for its count.
    pub fn new(bytes: &'a [u8], base: u64, endian: Endian) -> Result<BpfProgInfoSection<'a>> {
        let mut reader = Reader::new(bytes, base, endian);
        let left = reader.u32("bpf_prog_info count")?;
        Ok(BpfProgInfoSection { reader, left })
    }

    /// Number of programs not read yet, from the section's count. The count may be damaged: do not allocate by it.
    pub fn left(&self) -> u32 {
        self.left
    }
}

impl<'a> Iterator for BpfProgInfoSection<'a> {
    type Item = Result<ProgInfo<'a>>;

    fn next(&mut self) -> Option<Result<ProgInfo<'a>>> {
        self.left = self.left.checked_sub(1)?;
        let program = ProgInfo::read(&mut self.reader);
        if program.is_err() {
            self.left = 0;
        }
        Some(program)
    }
}

/// Position of a program in the section: ascending by id, then by load time.
pub type SectionOrder = (Option<u32>, Option<u64>);

impl ProgInfo<'_> {
    /// Position of the program in a written section.
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
