//! The `BPF_PROG_INFO` feature section: a count, then blobs back to back.

use super::{ProgInfo, ProgInfoBuf};
use crate::{Endian, Reader, Result, Writer};

/// Iterator over the programs of the section. The first damaged blob yields its error and ends it, since nothing says
/// where the next one starts.
#[derive(Debug, Clone)]
pub struct BpfProgInfoSection<'a> {
    reader: Reader<'a>,
    left: u32,
}

impl<'a> BpfProgInfoSection<'a> {
    /// Reads a section that starts at offset `base` of the file.
    ///
    /// # Errors
    /// When not even the count is there.
    pub fn new(bytes: &'a [u8], base: u64, endian: Endian) -> Result<BpfProgInfoSection<'a>> {
        let mut reader = Reader::new(bytes, base, endian);
        let left = reader.u32("bpf_prog_info count")?;
        Ok(BpfProgInfoSection { reader, left })
    }

    /// Programs not read yet, as the section's count has it: not to be trusted for an allocation.
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

/// Appends the section: the programs in ascending order of id, as perf writes them. All must be in the byte order of
/// the file. `max_info_len` as in [`ProgInfoBuf::encode`].
pub fn write_section(out: &mut Vec<u8>, endian: Endian, programs: &[ProgInfoBuf], max_info_len: usize) {
    let mut ordered: Vec<&ProgInfoBuf> = programs.iter().collect();
    ordered.sort_by_key(|program| {
        let view = program.view();
        (view.id(), view.load_time_ns())
    });
    Writer::new(out, endian).u32(ordered.len() as u32);
    for program in ordered {
        program.encode(out, max_info_len);
    }
}
