//! Redaction of BPF program data: addresses, code, and file names in BTF.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bprec_format::bpf::Elements;
use bprec_format::bpf::btf::{BpfBtfSection, Btf, write_section as write_btf};
use bprec_format::bpf::prog_info::{
    Array, BpfProgInfoSection, DEFAULT_INFO_LEN, LineInfo, ProgInfo, ProgInfoBuf, SectionOrder, write_encoded,
};
use bprec_format::feature::Feature;
use bprec_format::{Endian, FeatureSection};

use super::{Redactor, code};

/// Offset of `file_name_off` in `struct bpf_line_info`.
const FILE_NAME_OFF_AT: usize = 4;
/// Offset of `tag` in `struct bpf_prog_info`.
const TAG_AT: usize = 8;
/// Offset of `jited_prog_len`, the length of the machine code, in `struct bpf_prog_info`.
const JITED_LEN_AT: usize = 16;
/// Offset of `name` in `struct bpf_prog_info`.
const NAME_AT: usize = 64;
/// Size of `name` in `struct bpf_prog_info`.
const NAME_BYTES: usize = 16;
/// Offset of `btf_id` in `struct bpf_prog_info`.
const BTF_ID_AT: usize = 128;

/// Offsets of the BTF strings that the programs' line information refers to: file names, and texts of lines.
#[derive(Default)]
struct LineTexts {
    files: BTreeSet<u32>,
    texts: BTreeSet<u32>,
}

impl Redactor {
    /// Returns the redacted sections about programs: infos and BTF. `machine` is the recording's architecture, as uname names it.
    pub(super) fn programs(
        &mut self,
        sections: &[FeatureSection<'_>],
        endian: Endian,
        machine: &str,
    ) -> [(Feature, Vec<u8>); 2] {
        let of = |feature| sections.iter().filter(move |section| section.feature == feature && section.is_whole);
        // The infos are parsed again for each use, because in parsed form they may take many times the memory of the section.
        let infos = || {
            of(Feature::BPF_PROG_INFO)
                .filter_map(|section| BpfProgInfoSection::new(&section.bytes, section.offset, endian).ok())
                .flatten()
                .map_while(Result::ok)
        };
        let blobs: Vec<(u32, &[u8])> = of(Feature::BPF_BTF)
            .filter_map(|section| BpfBtfSection::new(&section.bytes, section.offset, endian).ok())
            .flatten()
            .map_while(Result::ok)
            .collect();
        let mut lines = BTreeMap::<u32, LineTexts>::new();
        for info in infos() {
            let lines = lines.entry(info.btf_id().unwrap_or_default()).or_default();
            for line in info.line_info().into_iter().flat_map(|lines: Elements<'_, LineInfo>| lines.iter()) {
                lines.files.insert(line.file_name_off);
                lines.texts.insert(line.line_off);
            }
        }
        let mut files = BTreeMap::new();
        let mut types = Vec::new();
        let keeps_types = !self.programs;
        for (id, blob) in blobs.into_iter().filter(|_| keeps_types) {
            let none = LineTexts::default();
            if let Some((blob, moved)) = self.types(blob, lines.get(&id).unwrap_or(&none)) {
                types.push((id, blob));
                files.insert(id, moved);
            }
        }
        let none = BTreeMap::new();
        let mut encoded = Vec::new();
        let mut ordered: Vec<(SectionOrder, Range<usize>)> = Vec::new();
        for info in infos() {
            let files = info.btf_id().and_then(|id| files.get(&id)).unwrap_or(&none);
            let start = encoded.len();
            self.program(&info, files, machine).encode(&mut encoded, DEFAULT_INFO_LEN);
            ordered.push((info.section_order(), start..encoded.len()));
        }
        let ordered = ordered.into_iter().map(|(order, range)| (order, &encoded[range])).collect();
        let mut sections = [(Feature::BPF_PROG_INFO, Vec::new()), (Feature::BPF_BTF, Vec::new())];
        write_encoded(&mut sections[0].1, endian, ordered);
        let types: Vec<(u32, &[u8])> = types.iter().map(|(id, blob)| (*id, blob.as_slice())).collect();
        write_btf(&mut sections[1].1, endian, &types);
        sections
    }

    /// Copies BTF with only the strings that types or the program's lines use, and with redacted file names. Also returns the offset of each file
    /// name in the new BTF, by its offset in the old.
    fn types(&mut self, blob: &[u8], lines: &LineTexts) -> Option<(Vec<u8>, BTreeMap<u32, u32>)> {
        let btf = Btf::parse(blob).ok()?;
        let files: Vec<Vec<u8>> =
            lines.files.iter().map(|file| self.names.mapping(btf.name(*file).unwrap_or_default())).collect();
        let (blob, offsets) = Btf::with_strings(blob, &lines.texts, files.iter().map(Vec::as_slice)).ok()?;
        Some((blob, lines.files.iter().copied().zip(offsets).collect()))
    }

    /// Redacts a program. `files` has the new string offsets of the file names that its lines refer to.
    fn program(&mut self, program: &ProgInfo<'_>, files: &BTreeMap<u32, u32>, machine: &str) -> ProgInfoBuf {
        let endian = program.endian();
        let mut redacted = ProgInfoBuf::from_view(program);
        let functions: Vec<(u64, usize)> =
            program.functions().map(|it| (it.addr.unwrap_or_default(), it.jited.map_or(0, <[u8]>::len))).collect();
        let arrays = &mut redacted.arrays;
        if let Some(code) = &mut arrays[Array::JitedInsns as usize] {
            let mut rest = code.as_mut_slice();
            let mut cut = Vec::new();
            for (addr, len) in functions {
                let Some((function, behind)) = std::mem::take(&mut rest).split_at_mut_checked(len) else { break };
                cut.push((addr, function));
                rest = behind;
            }
            // Code outside of functions has no known address and cannot be redacted. If there is such code, or the architecture is not supported, all
            // machine code is removed.
            if !rest.is_empty() || !code::machine_code(machine, &mut cut, &self.shift) {
                arrays[Array::JitedInsns as usize] = None;
            }
        }
        if let Some(code) = &mut arrays[Array::XlatedInsns as usize] {
            code::bpf_instructions(code, endian, &self.shift);
        }
        let stride = |array: Array, count: Option<usize>| {
            let bytes = program.array(array).map_or(0, <[u8]>::len);
            count.filter(|count| *count > 0).map_or(usize::MAX, |count| bytes / count)
        };
        for (array, count) in [
            (Array::JitedKsyms, program.jited_ksyms().map(|it| it.len())),
            (Array::JitedLineInfo, program.jited_line_info().map(|it| it.len())),
        ] {
            let stride = stride(array, count);
            for addr in arrays[array as usize].iter_mut().flat_map(|bytes| bytes.chunks_mut(stride)) {
                if let Some(place) = addr.first_chunk_mut::<8>() {
                    *place = endian.bytes_u64(self.shift.of(endian.u64(*place)));
                }
            }
        }
        let stride = stride(Array::LineInfo, program.line_info().map(|it| it.len()));
        for line in arrays[Array::LineInfo as usize].iter_mut().flat_map(|bytes| bytes.chunks_mut(stride)) {
            if let Some(place) = line.get_mut(FILE_NAME_OFF_AT..).and_then(|field| field.first_chunk_mut::<4>()) {
                *place = endian.bytes_u32(files.get(&endian.u32(*place)).copied().unwrap_or_default());
            }
        }
        let mut redacted = if self.programs { self.unnamed(redacted) } else { redacted };
        if redacted.arrays[Array::JitedInsns as usize].is_none() {
            // perf looks for the code if its length is not zero.
            if let Some(len) = redacted.info.get_mut(JITED_LEN_AT..).and_then(|field| field.first_chunk_mut::<4>()) {
                *len = [0; 4];
            }
        }
        redacted
    }

    /// Replaces the name and the tag of a program, and removes its code, its lines and the id of its types.
    fn unnamed(&mut self, program: ProgInfoBuf) -> ProgInfoBuf {
        let ProgInfoBuf { endian, mut info, mut arrays } = program;
        for array in [
            Array::JitedInsns,
            Array::XlatedInsns,
            Array::FuncInfo,
            Array::LineInfo,
            Array::JitedLineInfo,
            Array::ProgTags,
        ] {
            arrays[array as usize] = None;
        }
        if let Some(tag) = info.get_mut(TAG_AT..).and_then(|field| field.first_chunk_mut::<8>()) {
            *tag = self.names.tag(*tag);
        }
        if let Some(name) = info.get_mut(NAME_AT..).and_then(|field| field.first_chunk_mut::<NAME_BYTES>()) {
            let new = self.names.program(name.split(|byte| *byte == 0).next().unwrap_or_default());
            *name = [0; NAME_BYTES];
            new.iter().zip(name).take(NAME_BYTES - 1).for_each(|(from, to)| *to = *from);
        }
        if let Some(btf_id) = info.get_mut(BTF_ID_AT..).and_then(|field| field.first_chunk_mut::<4>()) {
            *btf_id = [0; 4];
        }
        ProgInfoBuf { endian, ..ProgInfoBuf::new(info, arrays) }
    }

    /// Redacts the symbol of a program's function: `bpf_prog_`, the tag in hexadecimal digits, and the name. Any other symbol stays, such as
    /// `bpf_prog_run_xdp`; all symbols stay if programs are not redacted.
    pub(super) fn symbol(&mut self, symbol: &[u8]) -> Vec<u8> {
        const TAG_DIGITS: usize = 16;
        let parts = symbol.strip_prefix(b"bpf_prog_").and_then(|rest| rest.split_at_checked(TAG_DIGITS));
        let parts = parts.filter(|(_, name)| matches!(name.first(), None | Some(b'_' | b' ')) && self.programs);
        let parts = parts.and_then(|(digits, name)| {
            let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
            Some((u64::from_str_radix(digits, 16).ok()?, name))
        });
        let Some((tag, name)) = parts else { return symbol.to_vec() };
        let tag = self.names.tag(tag.to_be_bytes());
        let mut symbol = format!("bpf_prog_{:016x}", u64::from_be_bytes(tag)).into_bytes();
        // A symbol in kallsyms may be followed by its module.
        let (name, module) = name.split_at(name.iter().position(|byte| *byte == b' ').unwrap_or(name.len()));
        if let Some(name) = name.strip_prefix(b"_") {
            symbol.push(b'_');
            symbol.extend(self.names.program(name));
        }
        symbol.extend_from_slice(module);
        symbol
    }
}
