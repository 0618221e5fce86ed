//! The `BPF_BTF` feature section: `count u32`, then for each blob `id u32, data_size u32` and its bytes, unpadded.

use crate::{Endian, Reader, Result, Writer};

/// Iterator over `(btf_id, blob)`. The first damaged entry yields its error and ends the iteration.
#[derive(Debug, Clone)]
pub struct BpfBtfSection<'a> {
    reader: Reader<'a>,
    left: u32,
}

impl<'a> BpfBtfSection<'a> {
    /// Reads a section that starts at offset `base` of the file.
    ///
    /// # Errors
    /// Fails if the section is too short for its count.
    pub fn new(bytes: &'a [u8], base: u64, endian: Endian) -> Result<BpfBtfSection<'a>> {
        let mut reader = Reader::new(bytes, base, endian);
        let left = reader.u32("bpf_btf count")?;
        Ok(BpfBtfSection { reader, left })
    }

    /// Number of blobs not read yet, from the section's count. The count may be damaged: do not allocate by it.
    pub fn left(&self) -> u32 {
        self.left
    }

    fn read(&mut self) -> Result<(u32, &'a [u8])> {
        let id = self.reader.u32("bpf_btf.id")?;
        let len = self.reader.u32("bpf_btf.data_size")?;
        Ok((id, self.reader.take(len as usize, "bpf_btf.data")?))
    }
}

impl<'a> Iterator for BpfBtfSection<'a> {
    type Item = Result<(u32, &'a [u8])>;

    fn next(&mut self) -> Option<Result<(u32, &'a [u8])>> {
        self.left = self.left.checked_sub(1)?;
        let blob = self.read();
        if blob.is_err() {
            self.left = 0;
        }
        Some(blob)
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
