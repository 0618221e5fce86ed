//! BTF and program infos in the feature sections.

use std::collections::BTreeMap;

use bprec_format::bpf::Tag;
use bprec_format::bpf::btf::{BpfBtfSection, Btf};
use bprec_format::bpf::prog_info::{BpfProgInfoSection, Function, OLDEST_INFO_LEN, ProgInfo};
use bprec_format::feature::Feature;
use bprec_format::{Endian, FeatureSection};

/// Limit on the lines of a program that are searched for its source file. The first lines may be of inlined functions of headers.
const SEARCHED_LINES: usize = 16;
/// `NAME_MAX` of Linux: no file has a longer name.
const NAME_MAX: usize = 255;

/// Limit on functions of each kind: more than any kernel has.
pub(super) const SYMBOLS_MAX: usize = 1 << 20;

/// Returns the BTF of the sections by id, if `is_wanted`.
pub(crate) fn btf_of<'s>(
    sections: &'s [FeatureSection<'_>],
    endian: Endian,
    is_wanted: impl Fn(u32) -> bool,
) -> BTreeMap<u32, Btf<'s>> {
    let sections = sections.iter().filter(|section| section.feature == Feature::BPF_BTF);
    let blobs = sections.flat_map(|section| BpfBtfSection::new(&section.bytes, section.offset, endian));
    let blobs = blobs.flatten().flatten().filter(|(id, _)| is_wanted(*id));
    blobs.filter_map(|(id, blob)| Some((id, Btf::parse(blob).ok()?))).collect()
}

/// Returns all readable `bpf_prog_info`, in the order in which [`super::programs::ProgInfoSummary::at`] counts them.
pub(crate) fn prog_infos<'s>(sections: &'s [FeatureSection<'_>], endian: Endian) -> impl Iterator<Item = ProgInfo<'s>> {
    let sections = sections.iter().filter(|section| section.feature == Feature::BPF_PROG_INFO);
    let infos = sections.flat_map(move |section| BpfProgInfoSection::new(&section.bytes, section.offset, endian));
    infos.flatten().flatten().filter(is_whole)
}

/// Returns true for an info that is at least as long as the info of the oldest kernel with BPF_EVENT. Shorter infos are left out: no recorder
/// writes them, and a damaged section of such infos would give an implausible number of programs.
pub(crate) fn is_whole(info: &ProgInfo<'_>) -> bool {
    info.info().len() >= OLDEST_INFO_LEN
}

/// Returns the base name of a program's source file, from its first lines. Left out are headers, which many programs share, and names without an
/// extension: redaction replaces paths by such names.
pub(crate) fn source_file(info: &ProgInfo<'_>, types: &Btf<'_>) -> Option<Box<str>> {
    let paths = info.line_info()?.iter().take(SEARCHED_LINES).filter_map(|line| types.line_file(&line));
    let mut names = paths.filter_map(|path| path.rsplit(|byte| *byte == b'/').next());
    let is_source = |name: &&[u8]| name.len() <= NAME_MAX && name.contains(&b'.') && !name.ends_with(b".h");
    names.find(is_source).map(|name| String::from_utf8_lossy(name).into())
}

/// Returns the symbol of a function as perf synthesizes it: `bpf_prog_<tag>_<name>`, with the function's own tag.
pub(crate) fn symbol_of(info: &ProgInfo<'_>, function: &Function<'_>, btf: &BTreeMap<u32, Btf<'_>>) -> Vec<u8> {
    let types = info.btf_id().and_then(|id| btf.get(&id));
    let name = function.type_id.and_then(|id| types?.func_name(id));
    let name = name.or(info.name().filter(|_| function.index == 0)).unwrap_or(b"F");
    let tag = function.tag.or(info.tag()).unwrap_or(Tag([0; 8]));
    // The kernel omits the underscore if the name is empty.
    let separator: &[u8] = if name.is_empty() { b"" } else { b"_" };
    [format!("bpf_prog_{tag}").as_bytes(), separator, name].concat()
}
