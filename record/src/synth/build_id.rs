//! Build ids: the `NT_GNU_BUILD_ID` note of ELF files and of the kernel.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use bprec_format::records::BuildId;
use object::elf::{ELF_NOTE_GNU, FileHeader32, FileHeader64, NT_GNU_BUILD_ID};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader};
use object::{Endianness, FileKind, NativeEndian, ReadCache};

/// A segment of notes beyond this is not looked through.
const NOTES_MAX_BYTES: u64 = 64 << 10;
/// Neither are files with more program headers than this.
const PROGRAM_HEADERS_MAX: u16 = 1024;
/// How the kernel aligns its notes.
const NOTE_ALIGN: u32 = 4;

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
    let parts = ReadCache::new(file);
    match FileKind::parse(&parts).ok()? {
        FileKind::Elf64 => of_elf::<FileHeader64<Endianness>>(&parts),
        FileKind::Elf32 => of_elf::<FileHeader32<Endianness>>(&parts),
        _ => None,
    }
}

fn of_elf<Elf: FileHeader<Endian = Endianness>>(parts: &ReadCache<&File>) -> Option<BuildId> {
    let elf = Elf::parse(parts).ok()?;
    let endian = elf.endian().ok()?;
    // What the headers say is not to be believed: the number of them could be 32 bits wide, and notes as large as the file.
    if elf.e_phnum(endian) > PROGRAM_HEADERS_MAX {
        return None;
    }
    let segments = elf.program_headers(endian, parts).ok()?;
    let small = segments.iter().filter(|segment| segment.p_filesz(endian).into() <= NOTES_MAX_BYTES);
    small.filter_map(|segment| segment.notes(endian, parts).ok()?).find_map(|notes| among::<Elf>(notes, endian))
}

/// The build id among notes of this machine, as the kernel shows its own.
pub(super) fn from_notes(notes: &[u8]) -> Option<BuildId> {
    type Elf = FileHeader64<NativeEndian>;
    among::<Elf>(NoteIterator::new(NativeEndian, NOTE_ALIGN.into(), notes).ok()?, NativeEndian)
}

fn among<Elf: FileHeader>(mut notes: NoteIterator<'_, Elf>, endian: Elf::Endian) -> Option<BuildId> {
    while let Ok(Some(note)) = notes.next() {
        if note.name() == ELF_NOTE_GNU && note.n_type(endian) == NT_GNU_BUILD_ID && !note.desc().is_empty() {
            return Some(BuildId::new(note.desc()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_that_lie_are_refused() {
        let note = |name: u32, desc: u32, kind: u32, rest: &[u8]| {
            [&name.to_ne_bytes()[..], &desc.to_ne_bytes(), &kind.to_ne_bytes(), rest].concat()
        };
        let good = note(4, 3, 3, b"GNU\0abc\0");
        let other = note(4, 4, 1, b"GNU\0abcd");
        let found = from_notes(&[other.as_slice(), &good].concat());
        assert_eq!(found.map(|id| id.as_bytes().to_vec()), Some(b"abc".to_vec()));
        for bad in [note(4, u32::MAX, 3, b"GNU\0abc\0"), note(u32::MAX, 3, 3, b"GNU\0abc\0"), note(4, 0, 3, b"GNU\0")] {
            assert_eq!(from_notes(&bad), None);
        }
        for end in 0..good.len() - 1 {
            assert_eq!(from_notes(&good[..end.min(good.len() - 2)]), None);
        }
    }

    /// Offsets and sizes as large as they go are no reason to reserve memory, or to panic.
    #[test]
    fn files_that_lie_have_none() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        let write = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            std::io::Write::write_all(&mut file, bytes).unwrap();
            file
        };
        for at in 0..own.len().min(1024) {
            let mut broken = own[..own.len().min(8192)].to_vec();
            broken[at] = 0xff;
            let _ = of_file(&write(&broken));
            let _ = of_file(&write(&own[..at]));
        }
    }
}
