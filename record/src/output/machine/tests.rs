//! Compares bprec's feature sections with the sections that perf writes on the same machine, as perf prints both.

use std::fs;
use std::path::Path;
use std::process::Command;

use bprec_format::feature::Feature;
use bprec_format::{Endian, EventAttr, FileAttr, FileLayout};

use super::*;

/// Lines about the host that perf prints for a file, without times and sizes of the recording.
fn header_lines(path: &Path) -> Option<Vec<String>> {
    let output = Command::new("perf").args(["report", "--header-only", "-I", "-i"]).arg(path).output().ok()?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    const OTHER: [&str; 23] = [
        "# captured on",
        "# header version",
        "# data offset",
        "# data size",
        "# feat offset",
        "# perf version",
        "# cmdline",
        "# event :",
        "# time of",
        "# sample duration",
        "# missing features",
        "# contains",
        // Sections that neither bprec nor the reports of perf read.
        "# cpu pmu capabilities",
        "# pmu mappings",
        "# total memory",
        "# node",
        "# CPU cache info",
        "#  L",
        "# memory nodes",
        "#    ",
        // Lines about BPF programs: the set of loaded programs can differ between the two recordings.
        "# bpf_prog_info",
        "# btf info",
        "# \tsub_prog",
    ];
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = text.lines().filter(|line| !OTHER.iter().any(|other| line.starts_with(other)));
    Some(lines.map(str::to_owned).collect())
}

#[test]
fn perf_prints_the_same_host_from_our_sections_as_from_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let theirs = directory.path().join("perf.data");
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-a", "-e", "dummy", "-o"]).arg(&theirs).args(["--", "true"]);
    if !perf.output().is_ok_and(|output| output.status.success()) {
        println!("SKIP perf_prints_the_same_host_from_our_sections_as_from_its_own: perf cannot record here");
        return;
    }
    let attr = EventAttr { kind: 1, config: 9, size: 112, ..EventAttr::default() };
    let mut file = Vec::new();
    let layout = FileLayout::begin(&[FileAttr { attr, ids: vec![1] }], Endian::NATIVE, &mut file);
    // perf treats a file without data as a recording that was cut off.
    let finished_round = [68u32.to_le_bytes(), [0, 0, 8, 0]].concat();
    file.extend_from_slice(&finished_round);
    let sections = features(&["bprec".into(), "record".into(), "-a".into()]);
    let bits: Vec<u8> = sections.iter().map(|(bit, _)| *bit).collect();
    assert!(bits.is_sorted() && bits.contains(&Feature::CMDLINE.0), "{bits:?}");
    layout.features(finished_round.len() as u64, &sections, &mut file);
    let header = layout.header(finished_round.len() as u64, &bits);
    file[..header.len()].copy_from_slice(&header);
    let ours = directory.path().join("ours.data");
    fs::write(&ours, file).unwrap();
    let (ours, theirs) = (header_lines(&ours).unwrap(), header_lines(&theirs).unwrap());
    assert_eq!(ours.join("\n"), theirs.join("\n"));
    assert!(ours.len() > 10, "{ours:?}");
}
