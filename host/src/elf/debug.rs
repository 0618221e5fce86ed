//! Sources of the symbols of an ELF file: its own tables, a separate debug file, or `.gnu_debugdata`.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::elf::{SHT_DYNSYM, SHT_SYMTAB};
use xz4rust::XzDecoder;

use super::functions::Search;
use super::{Elf, ElfFunction, ReadAt, Section, open_regular};

/// Limit on the compressed size of `.gnu_debugdata`.
const PACKED_MAX_BYTES: u64 = 8 << 20;
/// Limit on the decompressed size of `.gnu_debugdata`.
const UNPACKED_MAX_BYTES: usize = 64 << 20;
/// Limit on the dictionary of the xz stream; `xz -6` uses 8 MiB.
const DICTIONARY_MAX_BYTES: usize = 16 << 20;
/// Directory of separate debug files, below the root.
const DEBUG_ROOT: &str = "usr/lib/debug";

/// Functions that contain the given file offsets, without duplicates, in ascending order. `place` is the root directory of the file's mount namespace
/// and the file's path below this root; separate debug files are searched there. The search ends early once `is_over` returns true.
pub fn functions_at<S: ReadAt>(
    elf: &Elf<S>,
    offsets: &[u64],
    place: Option<(&Path, &Path)>,
    is_over: &dyn Fn() -> bool,
) -> Vec<ElfFunction> {
    let vaddr = |offset: u64| {
        let segment = elf.segment_of(offset)?;
        Some((offset - segment.offset).wrapping_add(segment.vaddr))
    };
    let mut search = Search::new(offsets.iter().copied().filter_map(vaddr).collect());
    let symbols = |elf: &Elf<S>| of_kind(elf, SHT_SYMTAB).copied();
    match symbols(elf) {
        Some(table) => drop(search.table(elf, &table, is_over)),
        None => {
            let beside = place.and_then(|(root, path)| beside(elf, root, path));
            match beside {
                Some(debug) => drop(of_kind(&debug, SHT_SYMTAB).and_then(|table| search.table(&debug, table, is_over))),
                None => {
                    if let Some(table) = of_kind(elf, SHT_DYNSYM) {
                        search.table(elf, table, is_over);
                    }
                    // Decompression is slow, and exported functions often cover all addresses.
                    if !search.is_complete()
                        && let Some(packed) = elf.contents(b".gnu_debugdata", PACKED_MAX_BYTES)
                        && let Some(inner) = unpack(&packed, is_over).and_then(Elf::parse)
                        && let Some(table) = of_kind(&inner, SHT_SYMTAB)
                    {
                        search.table(&inner, table, is_over);
                    }
                }
            }
        }
    }
    let offset = |start: u64| {
        let holds = |it: &&super::Segment| start.checked_sub(it.vaddr).is_some_and(|within| within < it.file_bytes);
        elf.segments.iter().find(holds).and_then(|it| (start - it.vaddr).checked_add(it.offset))
    };
    search.into_functions(offset)
}

fn of_kind<S>(elf: &Elf<S>, kind: u32) -> Option<&Section> {
    elf.sections.iter().find(|section| section.kind == kind)
}

/// First separate debug file at the standard paths that has the same build id and a symbol table.
fn beside<S: ReadAt>(elf: &Elf<S>, root: &Path, path: &Path) -> Option<Elf<File>> {
    let id = elf.build_id().filter(|id| id.len() > 1)?;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let debug = root.join(DEBUG_ROOT);
    let by_id = debug.join(format!(".build-id/{}/{}.debug", hex(&id[..1]), hex(&id[1..])));
    let mut paths = vec![by_id];
    let link = elf.contents(b".gnu_debuglink", 4096);
    let name = link.as_deref().and_then(|link| link.split(|byte| *byte == 0).next());
    let directory = path.parent().and_then(|directory| directory.strip_prefix("/").ok());
    if let Some((name, directory)) = name.filter(|name| is_plain(name)).zip(directory) {
        let name = OsStr::from_bytes(name);
        let beside: [PathBuf; 3] = [
            root.join(directory).join(name),
            root.join(directory).join(".debug").join(name),
            debug.join(directory).join(name),
        ];
        paths.extend(beside);
    }
    let opened = paths.iter().filter_map(|path| Elf::parse(open_regular(path).ok()?));
    let mut fitting =
        opened.filter(|found| found.build_id().as_ref() == Some(&id) && of_kind(found, SHT_SYMTAB).is_some());
    fitting.next()
}

/// Returns true if the name is neither empty nor `..` and has no slash.
fn is_plain(name: &[u8]) -> bool {
    !name.is_empty() && !name.contains(&b'/') && name != b".."
}

/// Decompresses xz data; `None` if the data are damaged or exceed a limit, or if `is_over` returns true.
fn unpack(packed: &[u8], is_over: &dyn Fn() -> bool) -> Option<Vec<u8>> {
    let mut decoder = XzDecoder::in_heap_with_alloc_dict_size(0, DICTIONARY_MAX_BYTES);
    let (mut at, mut unpacked, mut piece) = (0, Vec::new(), vec![0; 64 << 10]);
    loop {
        let step = decoder.decode(packed.get(at..)?, &mut piece).ok()?;
        at += step.input_consumed();
        unpacked.extend_from_slice(piece.get(..step.output_produced())?);
        if step.is_end_of_stream() {
            return Some(unpacked);
        }
        if !step.made_progress() || unpacked.len() > UNPACKED_MAX_BYTES || is_over() {
            return None;
        }
    }
}
