//! KSYMBOL and BPF_EVENT records of BPF programs, and of trampolines, dispatchers and stubs.

use bprec_bpf::ProgSnapshot;
use bprec_format::bpf::btf::Btf;
use bprec_format::bprec::state::KernelSymbol;
use bprec_format::records::{BpfEvent, BpfEventKind, Ksymbol, KsymbolKind};
use bprec_format::{RecordType, SampleLayout};

use super::append;

/// Longest symbol name (`KSYM_NAME_LEN`), its NUL included.
const NAME_BYTES: usize = 512;
/// Size of the pages that hold images: an image alone in its page can have this length.
const IMAGE_BYTES: u64 = 4096;

/// Appends KSYMBOLs for all functions of a program, and its BPF_EVENT.
///
/// Functions without an address (not compiled, or hidden from this user) have no KSYMBOL.
pub(crate) fn program(layout: &SampleLayout, program: &ProgSnapshot, out: &mut Vec<u8>) {
    let info = program.info.view();
    let (Some(id), Some(tag)) = (info.id(), info.tag()) else { return };
    let btf = program.btf.as_deref().and_then(|bytes| Btf::parse(bytes).ok());
    for function in info.functions() {
        let Some(range) = function.range() else { continue };
        // The name follows the kernel's rule (bpf_prog_ksym_set_name): the entry function has the tag of the whole program. If
        // BTF has no name for a function, the entry function has the program's name and all other functions have `F`.
        let tag = if function.index == 0 { Some(tag) } else { function.tag };
        let Some(tag) = tag else { continue };
        let full = function.type_id.and_then(|id| btf.as_ref()?.func_name(id));
        let name = match (full, function.index) {
            (Some(full), _) => full,
            (None, 0) => info.name().unwrap_or_default(),
            (None, _) => b"F",
        };
        let mut symbol = format!("bpf_prog_{tag}").into_bytes();
        if !name.is_empty() {
            symbol.push(b'_');
            symbol.extend_from_slice(name);
        }
        symbol.truncate(NAME_BYTES - 1);
        ksymbol(layout, out, range.start, range.end - range.start, &symbol);
    }
    let event = BpfEvent { kind: BpfEventKind::PROG_LOAD, flags: 0, id, tag: tag.0 };
    append(layout, out, RecordType::BPF_EVENT, 0, |w| event.encode(w));
}

/// Sets the lengths of trampolines, dispatchers and stubs, because kallsyms has no lengths. Each ends at the next
/// symbol of `images` or `functions` (other symbols in the same memory), or at the end of its page.
pub(crate) fn measure_images(images: &mut [KernelSymbol], functions: &[KernelSymbol]) {
    let mut starts: Vec<u64> = images.iter().chain(functions).map(|symbol| symbol.addr).collect();
    starts.sort_unstable();
    for image in images {
        let page_end = (image.addr & !(IMAGE_BYTES - 1)).saturating_add(IMAGE_BYTES);
        let next = starts.get(starts.partition_point(|start| *start <= image.addr)).copied().unwrap_or(u64::MAX);
        image.len_bytes = u32::try_from(next.min(page_end) - image.addr).unwrap_or(0);
    }
}

/// Appends KSYMBOLs for trampolines, dispatchers and stubs.
pub(crate) fn images<'a>(layout: &SampleLayout, images: impl Iterator<Item = &'a KernelSymbol>, out: &mut Vec<u8>) {
    images.for_each(|image| ksymbol(layout, out, image.addr, image.len_bytes.into(), &image.name));
}

fn ksymbol(layout: &SampleLayout, out: &mut Vec<u8>, addr: u64, len_bytes: u64, name: &[u8]) {
    let Ok(len_bytes) = u32::try_from(len_bytes) else { return };
    let symbol = Ksymbol { addr, len_bytes, kind: KsymbolKind::BPF, flags: 0, name };
    append(layout, out, RecordType::KSYMBOL, 0, |w| symbol.encode(w));
}
