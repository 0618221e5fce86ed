//! Rewriting and recovering: canonical files come out as they went in, and perf opens what was cut off.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]

#[path = "../../format/tests/common/mod.rs"]
mod common;

use std::io::Cursor;
use std::path::Path;
use std::process::Command;

use bprec_format::{File, RecordType};
use bprec_report::{RewriteOptions, RewriteSummary, Source, rewrite};

fn rewritten(bytes: &[u8], repair: bool) -> bprec_report::Result<(Vec<u8>, RewriteSummary)> {
    let mut out = Cursor::new(Vec::new());
    let options = RewriteOptions { repair, ..RewriteOptions::default() };
    let summary = rewrite(&mut Source::from_bytes("test", bytes.to_vec()), &options, &mut out)?;
    Ok((out.into_inner(), summary))
}

fn perf_script(path: &Path, fields: &str) -> Option<String> {
    let empty = tempfile::tempdir().unwrap();
    let out = Command::new("perf")
        .args(["script", "-f", "-F", fields, "--symfs"])
        .arg(empty.path())
        .arg("-i")
        .arg(path)
        .output()
        .ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}

fn has_perf(test: &str) -> bool {
    let found = Command::new("perf").arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIP {test}: perf is not installed");
    }
    found
}

/// Files that perf wrote come out byte for byte; what it leaves between sections is not kept.
#[test]
fn canonical_files_stay_as_they_are() {
    let files = common::corpus_files();
    let (mut same, mut compared) = (0, 0);
    let inputs = files.into_iter().map(|f| (f.name, f.bytes)).chain(common::recordings());
    for (name, bytes) in inputs {
        if File::parse(&bytes).is_err() {
            continue;
        }
        let before = common::walk(&bytes).unwrap();
        if before.counts.contains_key(&RecordType::COMPRESSED) {
            continue;
        }
        let (out, _) = rewritten(&bytes, false).unwrap();
        same += u32::from(out == bytes);
        compared += 1;
        let mut after = common::walk(&out).unwrap();
        // Formats of tracepoints that stand among the records move to where files have them.
        if let Some(count) = before.counts.get(&RecordType::HEADER_TRACING_DATA) {
            after.counts.insert(RecordType::HEADER_TRACING_DATA, *count);
        }
        assert_eq!(before.counts, after.counts, "{name}");
        let (again, _) = rewritten(&out, false).unwrap();
        assert!(again == out, "{name}: a canonical file changes");
    }
    assert!(compared >= 10, "only {compared} files");
    eprintln!("{same} of {compared} files are canonical");
    assert!(2 * same >= compared, "only {same} of {compared} files come out as they went in");
}

/// What perf prints of a recording is what it prints of the rewritten one: streams and compressed recordings included.
#[test]
fn perf_prints_the_same_before_and_after() {
    const NAME: &str = "perf_prints_the_same_before_and_after";
    let files = common::corpus_files();
    if !has_perf(NAME) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (before, after) = (dir.path().join("before.data"), dir.path().join("after.data"));
    let mut compared = 0;
    let inputs = files.into_iter().map(|f| (f.name, f.bytes)).chain(common::recordings());
    // This perf does not read what a big-endian machine wrote as that machine's perf does.
    for (name, bytes) in inputs.filter(|(name, bytes)| bytes.len() < 1_000_000 && !name.contains("s390x")) {
        if !cfg!(feature = "zstd") && (name.ends_with("/z.data") || name.contains("compressed")) {
            continue;
        }
        std::fs::write(&before, &bytes).unwrap();
        let Some(expected) = perf_script(&before, "comm,pid,tid,time,event,ip") else { continue };
        let (out, _) = rewritten(&bytes, false).unwrap();
        std::fs::write(&after, out).unwrap();
        let found = perf_script(&after, "comm,pid,tid,time,event,ip");
        assert!(found.as_ref() == Some(&expected), "{name}: {:?} lines", found.map(|text| text.lines().count()));
        compared += 1;
    }
    assert!(compared >= 8, "only {compared} files");
}

/// Cut anywhere, a recording opens in perf, with every sample that was there whole.
#[test]
fn perf_opens_what_was_cut_off() {
    const NAME: &str = "perf_opens_what_was_cut_off";
    if !has_perf(NAME) {
        return;
    }
    let mut inputs = common::recordings();
    inputs.retain(|(name, _)| name.contains("amd64") && !name.ends_with("stat.data"));
    let files = common::corpus_files();
    // A sample of two events that are read together is two lines of perf's, and hardware traces become samples.
    let is_simple = |file: &common::CorpusFile| {
        let other_lines = ["add_counter", "aux_data"].iter().any(|part| file.name.contains(part));
        file.bytes.len() < 300_000 && !other_lines && !file.kind.contains("auxtrace")
    };
    inputs.extend(files.into_iter().filter(is_simple).map(|file| (file.name, file.bytes)));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cut.data");
    let mut seed = 1u64;
    let mut opened = 0;
    let cuts_per_file = std::env::var("BPREC_CUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
    for (name, bytes) in &inputs {
        if (name.ends_with("/z.data") || name.contains("compressed")) && !cfg!(feature = "zstd") {
            continue;
        }
        for _ in 0..cuts_per_file {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let cut = &bytes[..(seed >> 33) as usize % bytes.len()];
            // Recorders that are killed leave `data.size` 0.
            let mut cut = cut.to_vec();
            let is_file = bytes.get(8) == Some(&104);
            if is_file && cut.len() > 56 {
                cut[48..56].fill(0);
            }
            let expected =
                common::walk(&cut).map_or(0, |walk| walk.counts.get(&RecordType::SAMPLE).copied().unwrap_or(0));
            match rewritten(&cut, true) {
                Ok((out, summary)) => {
                    assert_eq!(summary.samples, expected, "{name} cut at {}", cut.len());
                    std::fs::write(&path, out).unwrap();
                    let text = perf_script(&path, "time,event");
                    let lines = text.as_ref().map(|text| text.lines().count() as u64);
                    assert_eq!(lines, Some(expected), "{name} cut at {}", cut.len());
                    opened += 1;
                }
                Err(error) => assert_eq!(expected, 0, "{name} cut at {}: {error}", cut.len()),
            }
        }
    }
    assert!(opened > inputs.len() / 2, "{opened} of {}", inputs.len());
}
