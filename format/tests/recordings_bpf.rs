//! BPF programs read from real recordings, compared with the lists of perf and bpftool.
//!
//! The recordings are beside the checkout, with the outputs of the recorded machines' own tools.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use bprec_format::bpf::btf::{BpfBtfSection, Btf, Kind};
use bprec_format::bpf::prog_info::{self, BpfProgInfoSection, ProgInfo, ProgInfoBuf};
use bprec_format::{Endian, File};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const BPF_PROG_INFO: u8 = 25;
const BPF_BTF: u8 = 26;

/// The recordings that `test` can use, each with its bytes.
fn recordings(test: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/recordings");
    let mut found = Vec::new();
    for folder in fs::read_dir(root).into_iter().flatten().flatten() {
        for file in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
            let path = file.path();
            if path.extension().is_some_and(|e| e == "data") && path.with_extension("header.txt").exists() {
                found.push((path.clone(), fs::read(path).unwrap()));
            }
        }
    }
    if found.is_empty() {
        eprintln!("SKIP {test}: no recordings beside the checkout");
    }
    found.sort();
    found
}

/// Programs and BTF of a recording.
struct Bpf<'a> {
    endian: Endian,
    programs: Vec<ProgInfo<'a>>,
    btf: BTreeMap<u32, Btf<'a>>,
}

fn bpf<'a>(path: &Path, bytes: &'a [u8]) -> Bpf<'a> {
    let file = File::parse(bytes).unwrap();
    let (mut programs, mut btf) = (Vec::new(), BTreeMap::new());
    if let Some((section, base)) = file.feature(BPF_PROG_INFO) {
        let read = BpfProgInfoSection::new(section, base, file.endian()).unwrap();
        programs = read.map(|p| p.unwrap_or_else(|e| panic!("{}: {e}", path.display()))).collect();
    }
    if let Some((section, base)) = file.feature(BPF_BTF) {
        for blob in BpfBtfSection::new(section, base, file.endian()).unwrap() {
            let (id, blob) = blob.unwrap();
            btf.insert(id, Btf::parse(blob).unwrap());
        }
    }
    Bpf { endian: file.endian(), programs, btf }
}

/// perf's name of a function: the name from BTF, or the program's name if the program has only one function.
fn symbol(bpf: &Bpf<'_>, program: &ProgInfo<'_>, function: &prog_info::Function<'_>) -> String {
    let tag = function.tag.unwrap();
    let btf = bpf.btf.get(&program.btf_id().unwrap());
    let from_btf = btf.and_then(|btf| btf.func_name(function.type_id?));
    match from_btf.or(program.name()).map(String::from_utf8_lossy) {
        Some(name) if !name.is_empty() => format!("bpf_prog_{tag}_{name}"),
        _ => format!("bpf_prog_{tag}"),
    }
}

#[test]
fn names_addresses_and_sizes_are_those_that_perf_printed() {
    let mut endians = BTreeSet::new();
    let mut functions = 0;
    for (path, bytes) in recordings("names_addresses_and_sizes_are_those_that_perf_printed") {
        let bpf = bpf(&path, &bytes);
        let mut lines = Vec::new();
        for program in &bpf.programs {
            assert_eq!(program.dropped(), [], "{}", path.display());
            let id = program.id().unwrap();
            let texts: Vec<_> = program
                .functions()
                .zip(program.jited_ksyms().unwrap().iter())
                .map(|(f, ksym)| {
                    // perf gives interpreted programs the address of the interpreter.
                    let len = f.len.unwrap();
                    let addr = f.addr.unwrap_or(ksym);
                    assert_eq!(f.addr.is_some(), len > 0);
                    assert_eq!(f.jited.map(<[u8]>::len), Some(len as usize));
                    format!("{} addr {addr:#x} size {len}", symbol(&bpf, program, &f))
                })
                .collect();
            functions += texts.len();
            let bytes: u32 = program.functions().filter_map(|f| f.len).sum();
            assert_eq!(program.jited_prog_len(), Some(bytes), "{} program {id}", path.display());
            if let [text] = texts.as_slice() {
                lines.push(format!("# bpf_prog_info {id}: {text}"));
            } else {
                lines.push(format!("# bpf_prog_info {id}:"));
                lines.extend(texts.iter().enumerate().map(|(n, text)| format!("# \tsub_prog {n}: {text}")));
            }
        }
        lines.extend(bpf.btf.keys().map(|id| format!("# btf info of id {id}")));

        let header = fs::read_to_string(path.with_extension("header.txt")).unwrap();
        let expected: Vec<_> = header
            .lines()
            .filter(|l| l.contains("bpf_prog_info ") || l.contains("sub_prog ") || l.contains("btf info of id"))
            .collect();
        assert_eq!(lines, expected, "{}", path.display());
        if !bpf.programs.is_empty() {
            endians.insert(bpf.endian == Endian::Big);
        }
    }
    if functions > 0 {
        assert!(endians.len() == 2 && functions > 200, "{endians:?}, {functions} functions");
    }
}

#[test]
fn programs_are_as_bpftool_listed_them() {
    let mut compared = 0;
    for (path, bytes) in recordings("programs_are_as_bpftool_listed_them") {
        let bpf = bpf(&path, &bytes);
        let listing = fs::read_to_string(path.with_file_name("bpftool-prog.txt")).unwrap();
        let lines: Vec<&str> = listing.lines().collect();
        for program in &bpf.programs {
            // Programs of the recorder itself were already unloaded when bpftool ran.
            let Some(at) = lines.iter().position(|l| l.starts_with(&format!("{}: ", program.id().unwrap()))) else {
                continue;
            };
            let text = lines[at..at + 4].join(" ");
            let word = |before: &str| text.split(before).nth(1).unwrap().split_whitespace().next().unwrap();
            assert_eq!(word(": "), program.prog_type().unwrap().to_string());
            assert_eq!(word("name "), String::from_utf8_lossy(program.name().unwrap()));
            assert_eq!(word("tag "), program.tag().unwrap().to_string());
            assert_eq!(text.contains("  gpl"), program.gpl_compatible().unwrap());
            assert_eq!(word("uid "), program.created_by_uid().unwrap().to_string());
            assert_eq!(word("xlated "), format!("{}B", program.xlated_prog_len().unwrap()));
            assert_eq!(word(" jited "), format!("{}B", program.jited_prog_len().unwrap()));
            assert_eq!(word("btf_id "), program.btf_id().unwrap().to_string());
            assert_eq!(word("map_ids ").split(',').count(), program.nr_map_ids().unwrap() as usize);
            // perf does not request these arrays.
            assert!(program.xlated_insns().is_none() && program.map_ids().is_none());
            compared += 1;

            // The .rodata map: 15 bytes of value, "1.2.3" and "deadbeef" with their NULs, in the order of the object.
            let btf = &bpf.btf[&program.btf_id().unwrap()];
            let rodata = btf.find(Kind::DATASEC, b".rodata").unwrap().id();
            assert!(listing.contains("name w.rodata") && listing.contains("value 15B"));
            let metadata = btf.metadata(rodata, b"1.2.3\0deadbeef\0");
            let expected = [("version", "\"1.2.3\""), ("git_commit", "\"deadbeef\"")];
            assert_eq!(metadata, expected.map(|(name, value)| (name.as_bytes(), value.to_owned())));
        }
    }
    assert!(compared == 0 || compared >= 60, "{compared} programs compared");
}

/// bpftool's dump has `prototype:` before a function, and `; text` before each instruction with a line table entry.
#[test]
fn source_lines_are_where_bpftool_dumped_them() {
    let mut compared = 0;
    for (path, bytes) in recordings("source_lines_are_where_bpftool_dumped_them") {
        let bpf = bpf(&path, &bytes);
        for program in &bpf.programs {
            let dump = path.with_file_name(format!("xlated-{}.txt", program.id().unwrap()));
            let (Ok(dump), Some(btf)) = (fs::read_to_string(dump), bpf.btf.get(&program.btf_id().unwrap())) else {
                continue;
            };
            let mut expected = Vec::new();
            let mut pending = Vec::new();
            for line in dump.lines() {
                if let Some((insn, _)) = line.trim_start().split_once(": (") {
                    let insn: u32 = insn.parse().unwrap();
                    expected.extend(pending.drain(..).map(|text| (insn, text)));
                } else {
                    let text = line.trim_start_matches("; ").replace(" * ", " *");
                    // bpftool prints a whole prototype; only the name in it is compared with BTF.
                    let name = text.strip_suffix("):").and_then(|it| it.split_once('(')?.0.rsplit([' ', '*']).next());
                    pending.push(name.map(str::to_owned).unwrap_or(text));
                }
            }
            let mut found = Vec::new();
            for function in program.func_info().unwrap().iter() {
                let name = btf.func_name(function.type_id).map(String::from_utf8_lossy).unwrap_or_default();
                found.push((function.insn_off, 0, name.into_owned()));
            }
            for line in program.line_info().unwrap().iter() {
                let text =
                    String::from_utf8_lossy(btf.line_text(&line).unwrap_or_default()).trim_start().replace(" * ", " *");
                // Code without a source line, such as the entry of a loop, has line number 0.
                assert_eq!(line.line == 0, text.is_empty());
                assert!(line.line == 0 || btf.line_file(&line).unwrap().ends_with(b"w.bpf.c") && line.line <= 11);
                found.push((line.insn_off, 1, text));
            }
            found.sort();
            let found: Vec<_> = found.into_iter().map(|(insn, _, text)| (insn, text)).collect();
            assert_eq!(found, expected, "{} program {}", path.display(), program.id().unwrap());
            compared += 1;
        }
    }
    assert!(compared == 0 || compared >= 60, "{compared} programs compared");
}

/// Sections that are written again have the same length and content, so their layout equals perf's. (Only the padding after an array differs: perf
/// does not initialize it.)
#[test]
fn sections_are_written_as_perf_wrote_them() {
    for (path, bytes) in recordings("sections_are_written_as_perf_wrote_them") {
        let file = File::parse(&bytes).unwrap();
        let bpf = bpf(&path, &bytes);
        if let Some((section, _)) = file.feature(BPF_PROG_INFO) {
            let programs: Vec<_> = bpf.programs.iter().map(ProgInfoBuf::from_view).collect();
            let mut out = Vec::new();
            prog_info::write_section(&mut out, bpf.endian, &programs, prog_info::DEFAULT_INFO_LEN);
            assert_eq!(out.len(), section.len(), "{}", path.display());
            let again: Vec<_> = BpfProgInfoSection::new(&out, 0, bpf.endian).unwrap().map(Result::unwrap).collect();
            // The comparison includes the offsets in the info's pointer fields.
            assert_eq!(again, bpf.programs, "{}", path.display());
        }
        if let Some((section, base)) = file.feature(BPF_BTF) {
            let blobs: Vec<_> = BpfBtfSection::new(section, base, bpf.endian).unwrap().map(Result::unwrap).collect();
            let mut out = Vec::new();
            bprec_format::bpf::btf::write_section(&mut out, bpf.endian, &blobs);
            assert!(out == section, "{}", path.display());
        }
    }
}
