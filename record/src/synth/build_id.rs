//! Build ids: the `NT_GNU_BUILD_ID` note of ELF files and of the kernel.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bprec_format::Endian;
use bprec_format::records::BuildId;

/// Type of the note that holds a build id; its name is `GNU`.
const NT_GNU_BUILD_ID: u32 = 3;
/// Program header type of a segment of notes.
const PT_NOTE: u32 = 4;
/// What is read at once: the headers of nearly every file, and its notes with them.
const HEAD_BYTES: usize = 4096;
/// A segment of notes beyond this is not looked through.
const NOTES_MAX_BYTES: u64 = 64 << 10;
/// More program headers than this are not looked through.
const PROGRAM_HEADERS_MAX: u64 = 1024;

/// Build ids of files by device and inode, each file read once.
#[derive(Debug, Default)]
pub(super) struct BuildIds {
    known: HashMap<(u32, u32, u64), Option<BuildId>>,
}

impl BuildIds {
    /// The build id of the file with this device and inode, which is opened through the first of `paths` that is a
    /// regular file with this inode.
    pub(super) fn get<P: AsRef<Path>>(
        &mut self,
        device: (u32, u32),
        inode: u64,
        paths: impl IntoIterator<Item = P>,
    ) -> Option<BuildId> {
        *self.known.entry((device.0, device.1, inode)).or_insert_with(|| {
            // Devices must not be opened: some act on it. Their inode tells before the file is touched.
            let path = paths.into_iter().find(|path| is_file(path.as_ref(), inode))?;
            of_file(&File::open(path).ok()?)
        })
    }
}

fn is_file(path: &Path, inode: u64) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.ino() == inode)
}

/// The build id of an ELF file, `None` when it has none or is no ELF file.
fn of_file(file: &File) -> Option<BuildId> {
    let mut head = [0; HEAD_BYTES];
    let len = file.read_at(&mut head, 0).ok()?;
    let head = head.get(..len)?;
    let elf = Elf::parse(head)?;
    let mut headers = Vec::new();
    let headers = elf.part(file, head, elf.headers_offset, elf.headers_bytes, &mut headers)?;
    let segments = headers.chunks_exact(elf.header_bytes);
    segments.filter_map(|header| elf.notes(header)).find_map(|notes| {
        let mut bytes = Vec::new();
        from_notes(elf.part(file, head, notes.0, notes.1, &mut bytes)?, elf.endian)
    })
}

/// The build id among notes, each `namesz u32, descsz u32, type u32`, name and description padded to 4 bytes.
pub(super) fn from_notes(notes: &[u8], endian: Endian) -> Option<BuildId> {
    let mut rest = notes;
    while let (Some(name_bytes), Some(desc_bytes), Some(kind)) =
        (endian.u32_at(rest, 0), endian.u32_at(rest, 4), endian.u32_at(rest, 8))
    {
        let desc_at = 12 + (name_bytes as usize).checked_next_multiple_of(4)?;
        let desc = rest.get(desc_at..)?.get(..desc_bytes as usize)?;
        if kind == NT_GNU_BUILD_ID && rest.get(12..12 + name_bytes as usize) == Some(b"GNU\0") && !desc.is_empty() {
            return Some(BuildId::new(desc));
        }
        rest = rest.get(desc_at + (desc_bytes as usize).checked_next_multiple_of(4)?..)?;
    }
    None
}

/// Where an ELF file's program headers are.
struct Elf {
    endian: Endian,
    is_64_bit: bool,
    headers_offset: u64,
    headers_bytes: u64,
    header_bytes: usize,
}

impl Elf {
    fn parse(head: &[u8]) -> Option<Elf> {
        if head.get(..4)? != b"\x7fELF" {
            return None;
        }
        let is_64_bit = head.get(4)? == &2;
        let endian = if head.get(5)? == &2 { Endian::Big } else { Endian::Little };
        let (headers_offset, size_at) = match is_64_bit {
            true => (endian.u64_at(head, 32)?, 54),
            false => (u64::from(endian.u32_at(head, 28)?), 42),
        };
        let (size, count) = (endian.u16_at(head, size_at)?, endian.u16_at(head, size_at + 2)?);
        let smallest = if is_64_bit { 56 } else { 32 };
        if size < smallest || u64::from(count) > PROGRAM_HEADERS_MAX {
            return None;
        }
        let headers_bytes = u64::from(size) * u64::from(count);
        Some(Elf { endian, is_64_bit, headers_offset, headers_bytes, header_bytes: usize::from(size) })
    }

    /// Offset and length of a program header's notes.
    fn notes(&self, header: &[u8]) -> Option<(u64, u64)> {
        if self.endian.u32_at(header, 0)? != PT_NOTE {
            return None;
        }
        let (offset, bytes) = match self.is_64_bit {
            true => (self.endian.u64_at(header, 8)?, self.endian.u64_at(header, 32)?),
            false => (u64::from(self.endian.u32_at(header, 4)?), u64::from(self.endian.u32_at(header, 16)?)),
        };
        (bytes <= NOTES_MAX_BYTES).then_some((offset, bytes))
    }

    /// A part of the file: from its head where that reaches, else read into `buffer`.
    fn part<'a>(
        &self,
        file: &File,
        head: &'a [u8],
        offset: u64,
        bytes: u64,
        buffer: &'a mut Vec<u8>,
    ) -> Option<&'a [u8]> {
        let (start, len) = (usize::try_from(offset).ok()?, usize::try_from(bytes).ok()?);
        if let Some(part) = start.checked_add(len).and_then(|end| head.get(start..end)) {
            return Some(part);
        }
        buffer.resize(len, 0);
        file.read_exact_at(buffer, offset).ok()?;
        Some(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_that_lie_are_refused() {
        let note = |name: u32, desc: u32, kind: u32, rest: &[u8]| {
            [&name.to_le_bytes()[..], &desc.to_le_bytes(), &kind.to_le_bytes(), rest].concat()
        };
        let good = note(4, 3, 3, b"GNU\0abc\0");
        let other = note(4, 4, 1, b"GNU\0abcd");
        let found = from_notes(&[other.as_slice(), &good].concat(), Endian::Little);
        assert_eq!(found.map(|id| id.as_bytes().to_vec()), Some(b"abc".to_vec()));
        for bad in [note(4, u32::MAX, 3, b"GNU\0abc\0"), note(u32::MAX, 3, 3, b"GNU\0abc\0"), note(4, 0, 3, b"GNU\0")] {
            assert_eq!(from_notes(&bad, Endian::Little), None);
        }
        for end in 0..good.len() - 1 {
            assert_eq!(from_notes(&good[..end.min(good.len() - 2)], Endian::Little), None);
        }
    }
}
