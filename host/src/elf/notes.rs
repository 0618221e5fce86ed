//! Build ids: the `NT_GNU_BUILD_ID` note of ELF files and of the kernel.

use object::elf::{ELF_NOTE_GNU, FileHeader32, FileHeader64, NT_GNU_BUILD_ID, PT_NOTE};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader};
use object::{Endianness, NativeEndian};

use super::{ReadAt, header, items, program_headers};

/// Limit on the bytes of a note segment; larger segments are skipped.
const NOTES_MAX_BYTES: u64 = 64 << 10;
/// Alignment of the kernel's notes, in bytes.
const NOTE_ALIGN: u32 = 4;

/// Build id of an ELF file; `None` if the file has none or is not an ELF file.
pub fn build_id<S: ReadAt>(source: &S) -> Option<Vec<u8>> {
    match source.read_at(0, 16)?.get(4) {
        Some(2) => of_class::<S, FileHeader64<Endianness>>(source),
        Some(1) => of_class::<S, FileHeader32<Endianness>>(source),
        _ => None,
    }
}

/// Build id in notes of this machine's byte order, such as `/sys/kernel/notes`.
pub fn build_id_in_notes(notes: &[u8]) -> Option<Vec<u8>> {
    among::<FileHeader64<NativeEndian>>(notes, NativeEndian, NOTE_ALIGN.into())
}

fn of_class<S: ReadAt, H: FileHeader<Endian = Endianness>>(source: &S) -> Option<Vec<u8>> {
    let (header, endian) = header::<S, H>(source)?;
    let headers = program_headers::<S, H>(source, &header, endian)?;
    let segments = items::<H::ProgramHeader>(&headers).iter().filter(|it| it.p_type(endian) == PT_NOTE);
    let mut small = segments.filter(|it| it.p_filesz(endian).into() <= NOTES_MAX_BYTES);
    small.find_map(|it| {
        let notes = source.read_at(it.p_offset(endian).into(), it.p_filesz(endian).into() as usize)?;
        among::<H>(&notes, endian, it.p_align(endian))
    })
}

fn among<H: FileHeader>(notes: &[u8], endian: H::Endian, align: H::Word) -> Option<Vec<u8>> {
    let mut notes = NoteIterator::<H>::new(endian, align, notes).ok()?;
    while let Ok(Some(note)) = notes.next() {
        if note.name() == ELF_NOTE_GNU && note.n_type(endian) == NT_GNU_BUILD_ID && !note.desc().is_empty() {
            return Some(note.desc().to_vec());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

    use super::*;

    #[test]
    fn notes_that_lie_are_refused() {
        let note = |name: u32, desc: u32, kind: u32, rest: &[u8]| {
            [&name.to_ne_bytes()[..], &desc.to_ne_bytes(), &kind.to_ne_bytes(), rest].concat()
        };
        let good = note(4, 3, 3, b"GNU\0abc\0");
        let other = note(4, 4, 1, b"GNU\0abcd");
        assert_eq!(build_id_in_notes(&[other.as_slice(), &good].concat()), Some(b"abc".to_vec()));
        for bad in [note(4, u32::MAX, 3, b"GNU\0abc\0"), note(u32::MAX, 3, 3, b"GNU\0abc\0"), note(4, 0, 3, b"GNU\0")] {
            assert_eq!(build_id_in_notes(&bad), None);
        }
        for end in 0..good.len() - 1 {
            assert_eq!(build_id_in_notes(&good[..end.min(good.len() - 2)]), None);
        }
    }

    /// Extreme offsets and sizes cause no large allocation and no panic.
    #[test]
    fn files_that_lie_have_none() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        let mut own = own[..own.len().min(8192)].to_vec();
        for at in 0..own.len().min(1024) {
            let _ = build_id(&&own[..at]);
            for lie in [0xff, 0x7f, 0x80, 0] {
                let byte = std::mem::replace(&mut own[at], lie);
                let _ = build_id(&own);
                own[at] = byte;
            }
        }
    }
}
