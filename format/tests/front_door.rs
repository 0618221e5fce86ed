//! Records through the main entry point: all records of files and of streams, in the order of the input and by time.

mod common;

use bprec_format::{Decoded, Recording};
use common::{corpus_files, fixtures};
use std::collections::BTreeMap;
use std::process::Command;

/// Returns (counts of records by type, times of the records that have a time, in ns, true if an error occurred).
fn read(bytes: &[u8], by_time: bool) -> (BTreeMap<u32, u64>, Vec<u64>, bool) {
    let Ok(recording) = Recording::open(bytes) else { panic!("no recording") };
    let mut records = if by_time { recording.records_by_time() } else { recording.records() };
    let (mut kinds, mut times, mut failed) = (BTreeMap::new(), Vec::new(), false);
    while let Some(item) = records.next() {
        let Ok(item) = item else {
            failed = true;
            continue;
        };
        *kinds.entry(item.record.kind.0).or_default() += 1;
        match item.decode() {
            Ok(Decoded::Sample(sample)) => times.extend(sample.time_ns()),
            Ok(Decoded::Other(_, id)) => times.extend(id.time_ns),
            _ => {}
        }
    }
    times.retain(|time_ns| *time_ns != 0 && *time_ns != u64::MAX);
    (kinds, times, failed)
}

/// Counts of records by type from the walk over chunks; records that contain other records are left out.
fn walked(bytes: &[u8]) -> BTreeMap<u32, u64> {
    let walk = common::walk(bytes).unwrap_or_default();
    let kinds = walk.counts.into_iter().map(|(kind, count)| (kind.0, count));
    kinds.filter(|(kind, _)| ![81, 83].contains(kind)).collect()
}

#[test]
fn each_record_of_each_recording_comes_once_in_either_order() {
    let mut sorted = 0;
    let corpus = corpus_files().into_iter().filter(|file| file.kind == "file" || file.kind == "pipe");
    let files = fixtures().into_iter().chain(corpus.map(|file| (file.name, file.bytes)));
    for (name, bytes) in files.filter(|(_, bytes)| Recording::open(bytes).is_ok()) {
        let (kinds, _, failed) = read(&bytes, false);
        if failed {
            continue;
        }
        assert_eq!(kinds, walked(&bytes), "{name}");
        let (kinds, times, _) = read(&bytes, true);
        assert_eq!(kinds, walked(&bytes), "{name} by time");
        if times.is_sorted() {
            sorted += 1;
        }
    }
    assert!(sorted > 10, "only {sorted} recordings are ordered by time");
}

#[test]
fn each_fixture_of_bprec_comes_in_the_order_of_its_times() {
    for (name, bytes) in fixtures().into_iter().filter(|(name, _)| name.starts_with("linux-")) {
        let (_, times, _) = read(&bytes, true);
        assert!(times.is_sorted(), "{name}");
        assert!(times.len() > 100, "{name}: {} times", times.len());
    }
}

#[test]
fn the_example_counts_samples_by_program_as_perf_does() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/recordings/perf-6.12-linux-6.1");
    let mut example = Command::new(env!("CARGO"));
    // The features of this build, so that nothing is compiled twice.
    let features = if cfg!(feature = "zstd") { "zstd" } else { "" };
    example.args(["run", "--quiet", "--locked", "--offline", "--package", "bprec-format", "--features", features]);
    example.args(["--example", "samples_by_program", "--", &format!("{dir}/tailcalls.data")]);
    let output = example.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).expect("names in ASCII");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    // Count, id, name.
    let counts: BTreeMap<_, _> = lines.lines().map(words).map(|it| (it[2].clone(), it[0].clone())).collect();
    // Columns: share, count, place, `bpf_prog_TAG_NAME`. Each program has one function with the full name of the program; the name in the program's
    // info is cut off after 15 bytes.
    let listing = std::fs::read_to_string(format!("{dir}/tailcalls.perf.txt")).expect("perf's listing");
    let of_perf = listing.lines().filter(|line| !line.starts_with('#')).map(words);
    let name = |symbol: &str| symbol.splitn(4, '_').last().map(|it| it.chars().take(15).collect()).unwrap_or_default();
    let of_perf = of_perf.map(|it| (name(&it[3]), it[1].clone()));
    assert_eq!(counts, of_perf.collect());
    assert_eq!(counts.len(), 4);
}
