//! Rewriting: canonical files do not change, perf prints the same before and after, and only data outside of
//! the selection is left out.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]

#[path = "../../format/tests/common/mod.rs"]
mod common;

use std::io::Cursor;
use std::path::Path;
use std::process::Command;

use bprec_format::{File, RecordType, bprec::state};
use bprec_report::{RewriteOptions, RewriteSummary, Source, rewrite};

fn rewritten(bytes: &[u8], options: &RewriteOptions) -> bprec_report::Result<(Vec<u8>, RewriteSummary)> {
    let mut out = Cursor::new(Vec::new());
    let summary = rewrite(&mut Source::from_bytes("test", bytes.to_vec()), options, &mut out)?;
    Ok((out.into_inner(), summary))
}

/// Output of perf; `None` if perf is not installed or cannot read the file.
fn perf_script(path: &Path, arguments: &[&str]) -> Option<String> {
    let empty = tempfile::tempdir().unwrap();
    let mut command = Command::new("perf");
    command.args(["script", "-f", "--ns", "-i"]).arg(path).arg("--symfs").arg(empty.path()).args(arguments);
    let out = command.output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}

fn has_perf(test: &str) -> bool {
    let found = Command::new("perf").arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIP {test}: perf is not installed");
    }
    found
}

/// All recordings; without the feature `zstd`, only those without compressed records.
fn inputs() -> impl Iterator<Item = (String, Vec<u8>)> {
    let files = common::corpus_files().into_iter().map(|file| (file.name, file.bytes));
    let inputs = files.chain(common::recordings()).chain(common::fixtures());
    inputs.filter(|(name, _)| cfg!(feature = "zstd") || !(name.ends_with("/z.data") || name.contains("compressed")))
}

/// Recording without the zeros behind the table of features: perf leaves room for features that it then does not write.
fn without_room(bytes: &[u8]) -> Vec<u8> {
    let file = File::parse(bytes).unwrap();
    let table = (file.features().len() * 16) as u64;
    let first = file.features().iter().map(|(_, section)| section.offset).min();
    let Some(first) = first else { return bytes.to_vec() };
    let begin = file.data().offset + file.data().size;
    let room = match bytes.get((begin + table) as usize..first as usize) {
        Some(room) if room.iter().all(|byte| *byte == 0) => room.len(),
        _ => return bytes.to_vec(),
    };
    let mut kept = [&bytes[..(begin + table) as usize], &bytes[first as usize..]].concat();
    for (at, (_, section)) in (begin as usize..).step_by(16).zip(file.features()) {
        kept[at..at + 8].copy_from_slice(&file.endian().bytes_u64(section.offset - room as u64));
    }
    kept
}

/// Rewritten files have the same records, and a second rewrite changes nothing. Fixtures that were not cut off, and at least half of all files, are
/// unchanged by the first rewrite, too.
#[test]
fn canonical_files_stay_as_they_are() {
    let all = RewriteOptions::default();
    let (mut same, mut compared) = (0, 0);
    for (name, bytes) in inputs() {
        if File::parse(&bytes).is_err() {
            continue;
        }
        let before = common::walk(&bytes).unwrap();
        if before.counts.contains_key(&RecordType::COMPRESSED) {
            continue;
        }
        let (out, _) = rewritten(&bytes, &all).unwrap();
        let expected = without_room(&bytes);
        same += u32::from(out == expected);
        compared += 1;
        let is_fixture = name.starts_with("linux-") || name.starts_with("perf-6.12-");
        assert!(out == expected || !is_fixture || name.ends_with("/cut-off.data"), "{name} changes");
        let mut after = common::walk(&out).unwrap();
        // Formats of tracepoints that are records in the stream move to a section of the file.
        if let Some(count) = before.counts.get(&RecordType::HEADER_TRACING_DATA) {
            after.counts.insert(RecordType::HEADER_TRACING_DATA, *count);
        }
        assert_eq!(before.counts, after.counts, "{name}");
        let (again, _) = rewritten(&out, &all).unwrap();
        assert!(again == out, "{name}: rewriting changes a canonical file");
    }
    assert!(compared >= 10, "only {compared} files");
    eprintln!("{same} of {compared} files are canonical");
    assert!(2 * same >= compared, "rewriting leaves only {same} of {compared} files unchanged");
}

/// perf prints the same for a recording and for the rewritten recording, also for streams and compressed recordings.
#[test]
fn perf_prints_the_same_before_and_after() {
    const NAME: &str = "perf_prints_the_same_before_and_after";
    if !has_perf(NAME) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (before, after) = (dir.path().join("before.data"), dir.path().join("after.data"));
    let samples = ["-F", "comm,pid,tid,time,event,ip,sym"];
    let others = ["-F", "tid,time,event", "--show-task-events", "--show-mmap-events", "--show-bpf-events"];
    // Compares only records other than samples. Samples are compared separately; for samples of a stream, perf prints fields other than the requested
    // ones.
    let others = |path: &Path| {
        let text = perf_script(path, &others)?;
        Some(text.lines().filter(|line| line.contains(" PERF_RECORD_")).map(str::to_owned).collect::<Vec<_>>())
    };
    let mut compared = 0;
    // This perf reads recordings of a big-endian machine differently than the perf of that machine.
    for (name, bytes) in inputs().filter(|(name, bytes)| bytes.len() < 1_000_000 && !name.contains("s390x")) {
        std::fs::write(&before, &bytes).unwrap();
        let Some(expected) = perf_script(&before, &samples) else { continue };
        let (out, _) = rewritten(&bytes, &RewriteOptions::default()).unwrap();
        compared += 1;
        if out == bytes {
            continue;
        }
        std::fs::write(&after, out).unwrap();
        let found = perf_script(&after, &samples);
        assert!(found.as_ref() == Some(&expected), "{name}: {:?} lines", found.map(|text| text.lines().count()));
        assert!(others(&after) == others(&before), "{name}: other records");
    }
    assert!(compared >= 8, "only {compared} files");
}

/// Lines of `perf script`, one per sample, without those of the recorder's own event.
fn sample_lines(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.contains(state::EVENT_NAME)).collect()
}

/// Time in ns at the begin of a line.
fn time_ns(line: &str) -> u64 {
    let (seconds, nanoseconds) = line.trim().split_once(':').unwrap().0.split_once('.').unwrap();
    seconds.parse::<u64>().unwrap() * 1_000_000_000 + nanoseconds.parse::<u64>().unwrap()
}

/// A file with a selection of times and CPUs has the samples that perf prints for the whole file with the same selection.
#[test]
fn perf_selects_the_same_times_and_cpus() {
    const NAME: &str = "perf_selects_the_same_times_and_cpus";
    if !has_perf(NAME) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (whole, part) = (dir.path().join("whole.data"), dir.path().join("part.data"));
    let fields: &[&str] = &["-G", "-F", "time,event,cpu,tid,ip"];
    let mut compared = 0;
    // The stream is left out: for a stream, perf prints fields other than those requested.
    for (name, bytes) in common::fixtures().into_iter().filter(|(name, _)| !name.ends_with("/piped.data")) {
        std::fs::write(&whole, &bytes).unwrap();
        let Some(all) = perf_script(&whole, &["-F", "time,event"]) else { continue };
        let mut times: Vec<u64> = sample_lines(&all).iter().map(|line| time_ns(line)).collect();
        times.sort_unstable();
        let (from, to) = (times[times.len() / 4], times[times.len() / 2]);
        let seconds = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
        let range = format!("{},{}", seconds(from), seconds(to));
        let options = RewriteOptions {
            time: range.parse().unwrap(),
            cpus: Some("1".parse().unwrap()),
            ..RewriteOptions::default()
        };
        let (out, summary) = rewritten(&bytes, &options).unwrap();
        std::fs::write(&part, out).unwrap();
        // perf fails for recordings that were cut off, because it does not know their number of CPUs.
        let Some(expected) = perf_script(&whole, &[fields, &["--time", &range, "-C", "1"]].concat()) else { continue };
        let found = perf_script(&part, fields).unwrap();
        let (expected, found) = (sample_lines(&expected), sample_lines(&found));
        assert_eq!(expected, found, "{name}");
        assert!(!found.is_empty() && found.len() < times.len(), "{name}: {} of {}", found.len(), times.len());
        assert_eq!(summary.filtered as usize, times.len() - found.len(), "{name}");
        compared += 1;
    }
    assert!(compared >= 8, "only {compared} files");
}

/// Splits the output of `perf script` into samples with their call chains, and returns the samples with `part` in a symbol.
fn blocks_with<'t>(text: &'t str, part: &str) -> Vec<&'t str> {
    text.split("\n\n").map(str::trim).filter(|block| block.contains(part)).collect()
}

/// Two programs have the same name, type and attach point. A selection by name keeps both, a selection by tag only one. perf finds the same
/// samples: the symbols of the programs contain their tags.
#[test]
fn perf_finds_the_same_samples_in_a_program() {
    const NAME: &str = "perf_finds_the_same_samples_in_a_program";
    if !has_perf(NAME) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (whole, part) = (dir.path().join("whole.data"), dir.path().join("part.data"));
    let fields: &[&str] = &["-F", "time,event,cpu,tid,ip,sym"];
    let mut bytes = common::fixtures();
    let (_, bytes) = bytes.swap_remove(bytes.iter().position(|(name, _)| name == "linux-7.2/twins.data").unwrap());
    std::fs::write(&whole, &bytes).unwrap();
    let whole_text = perf_script(&whole, fields).unwrap();
    let of_both = blocks_with(&whole_text, "_same_name_in_two_objects");
    let symbol = of_both[0].split_whitespace().find(|word| word.starts_with("bpf_prog_")).unwrap();
    let tag = symbol.split('_').nth(2).unwrap();
    // The caller of the program is bpf_trace_run2. The return address of this call is in all chains below the call, and is never the leaf.
    let outer: Vec<&str> = of_both[0].lines().skip_while(|line| !line.contains("_same_name_in_two_objects")).collect();
    let hook = outer[2].split_whitespace().next().unwrap();
    assert_eq!(tag.len(), 16, "{symbol}");
    let of_one = blocks_with(&whole_text, &format!("bpf_prog_{tag}_"));
    assert!(of_one.len() > 10 && of_one.len() < of_both.len(), "{} of {}", of_one.len(), of_both.len());
    for (filter, expected, programs) in [("same_name_*", &of_both, 2), (tag, &of_one, 1)] {
        let options = RewriteOptions { programs: vec![filter.parse().unwrap()], ..RewriteOptions::default() };
        let (out, summary) = rewritten(&bytes, &options).unwrap();
        std::fs::write(&part, &out).unwrap();
        let text = perf_script(&part, fields).unwrap();
        assert_eq!(&blocks_with(&text, "_same_name_in_two_objects"), expected, "{filter}");
        // Entry code of the two programs belongs to both.
        let of_hook = blocks_with(&whole_text, hook);
        let is_below = |block: &&&str| !block.lines().nth(1).is_some_and(|leaf| leaf.contains(hook));
        let of_hook = of_hook.iter().filter(is_below);
        let entry = of_hook.filter(|block| !block.contains("_same_name_in_two_objects")).count();
        let found = sample_lines(&text).iter().filter(|line| line.contains("cpu-clock:")).count();
        assert_eq!(found, expected.len() + entry, "{filter}");
        assert!(entry > 0 || programs == 0);
        // All other records are unchanged.
        let records = |bytes: &[u8]| {
            let mut counts = common::walk(bytes).unwrap().counts;
            counts.remove(&RecordType::SAMPLE);
            counts
        };
        assert_eq!(records(&out), records(&bytes), "{filter}");
        let samples = |bytes: &[u8]| common::walk(bytes).unwrap().counts[&RecordType::SAMPLE];
        assert_eq!(samples(&out) + summary.filtered, samples(&bytes), "{filter}");
    }
}
