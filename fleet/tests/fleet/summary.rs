//! Summaries: a lake of summaries equals a lake of their recordings, and hostile summaries are refused.

use crate::support::{Lake, fleet_of, program, recordings_of, text, whole_recordings};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

fn summarize(files: &[PathBuf], output: &Path, options: &[&str]) -> Output {
    program().arg("summarize").args(options).arg("-o").arg(output).args(files).output().unwrap()
}

/// Returns a summary that must have all of these recordings.
fn summary_of(files: &[PathBuf], directory: &Path, options: &[&str]) -> PathBuf {
    let path = directory.join("host.summary");
    let output = summarize(files, &path, options);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), format!("{} recordings summarized, 0 refused\n", files.len()));
    path
}

#[test]
fn rows_equal_those_of_the_recordings() {
    let place = tempfile::tempdir().unwrap();
    let mut files = whole_recordings();
    files.extend(recordings_of(&fleet_of(3, 2, 20), place.path()));
    let options = ["--label", "role=edge"];
    let summary = summary_of(&files, place.path(), &options);
    let lake = Lake::with(&[summary], &[]);
    assert_eq!(lake.contents(), Lake::with(&files, &options).contents());
    let verified = lake.verify();
    assert!(verified.status.success(), "{}", text(&verified.stderr));
}

#[test]
fn a_recording_and_its_summary_count_once() {
    let place = tempfile::tempdir().unwrap();
    let recording = whole_recordings().remove(0);
    let summary = summary_of(std::slice::from_ref(&recording), place.path(), &[]);
    for [first, second] in [[&recording, &summary], [&summary, &recording]] {
        let lake = Lake::with(std::slice::from_ref(first), &[]);
        let output = lake.import(std::slice::from_ref(second), &[]);
        assert_eq!(text(&output.stdout), "0 recordings imported in 0 batches, 1 already in the lake, 0 refused\n");
        assert_eq!(lake.sql("SELECT * FROM recording").len(), 1);
    }
}

#[test]
fn recordings_that_cannot_be_read_are_named() {
    let place = tempfile::tempdir().unwrap();
    let (notes, summary) = (place.path().join("notes.txt"), place.path().join("summary"));
    std::fs::write(&notes, "no recording").unwrap();
    let output = summarize(&[notes, whole_recordings().remove(0)], &summary, &[]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stdout), "1 recordings summarized, 1 refused\n");
    assert!(text(&output.stderr).contains("notes.txt: "), "{}", text(&output.stderr));
    assert_eq!(Lake::with(&[summary], &[]).sql("SELECT * FROM recording").len(), 1);
}

fn packed(text: &str) -> Vec<u8> {
    zstd::encode_all(text.as_bytes(), 1).unwrap()
}

/// Summaries that no host wrote, and a part of the error. The lake stays empty.
#[test]
fn hostile_summaries_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = summary_of(&whole_recordings()[..1], place.path(), &[]);
    let bytes = std::fs::read(&path).unwrap();
    let plain = String::from_utf8(zstd::decode_all(&bytes[..]).unwrap()).unwrap();
    let (heading, line) = plain.split_once('\n').unwrap();
    let entry: Value = serde_json::from_str(line).unwrap();
    let changed = |pointer: &str, value: Value| {
        let mut entry = entry.clone();
        *entry.pointer_mut(pointer).unwrap() = value;
        packed(&format!("{heading}\n{entry}\n"))
    };
    let mut with_column = entry.clone();
    with_column["run_stats"][0]["x"] = json!(1);
    let recording = entry["recording"][0].clone();
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (bytes[..bytes.len() - 1].to_vec(), "damaged or incomplete"),
        (packed(&plain.replacen("\"version\":2", "\"version\":1", 1)), "expected a summary of version 2"),
        (packed("{}"), "expected a summary of version 2"),
        (packed(&format!("{heading}\n{}\n", &line[..line.len() / 2])), "recording 1: Json error: Truncated record"),
        (packed(&format!("{heading}\n{with_column}\n")), "column 'x' missing from schema"),
        (changed("/run_stats/0/run_cnt", json!(-1)), "a number is negative"),
        (changed("/run_stats/0/run_cnt", json!(u64::MAX)), "failed to parse 18446744073709551615"),
        (changed("/run_stats/0/prog_key", Value::Null), "Encountered unmasked nulls in non-nullable"),
        (changed("/run_stats", json!([null])), "expected { got null"),
        (changed("/run_stats", Value::Null), "expected [ got null"),
        (changed("/recording", json!([])), "must have one row of `recording`"),
        (changed("/recording", json!([recording, recording])), "must have one row of `recording`"),
        (changed("/recording/0/recording_id", json!("+1")), "recording_id is no hash"),
        (changed("/recording/0/schema_version", json!(1)), "schema_version is not 2"),
        (changed("/date", json!("2001-01-01")), "start_time is not on 2001-01-01"),
        (changed("/date", json!("../..")), "is not a date"),
        (packed(&format!("{heading}\n{}", " ".repeat(64 << 20))), "exceeds 67108864 bytes"),
    ];
    let lake = Lake::new();
    for (bytes, words) in cases {
        std::fs::write(&path, bytes).unwrap();
        let output = lake.import(std::slice::from_ref(&path), &[]);
        assert_eq!(output.status.code(), Some(2), "{words}");
        assert!(text(&output.stderr).contains(words), "{words}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "0 recordings imported in 0 batches, 0 already in the lake, 1 refused\n");
    }
    std::fs::write(&path, &bytes).unwrap();
    let output = lake.import(std::slice::from_ref(&path), &["--host", "edge-7"]);
    assert!(text(&output.stderr).contains("give them to `bprec-fleet summarize`"), "{}", text(&output.stderr));
    // An older host does not know the columns and tables that were added later.
    let mut older = entry.clone();
    assert!(older.as_object_mut().unwrap().remove("bill").is_some());
    let rows = older["run_stats"].as_array_mut().unwrap();
    rows.iter_mut().for_each(|row| drop(row.as_object_mut().unwrap().remove("time_margin_ns")));
    std::fs::write(&path, packed(&format!("{heading}\n{older}\n"))).unwrap();
    assert!(lake.import(std::slice::from_ref(&path), &[]).status.success());
}

/// Count of seccomp filters of a process; `None` after its end.
fn filters(process: &str) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"))?.trim().parse().ok()
}

#[test]
fn a_summary_is_written_by_a_confined_process() {
    let place = tempfile::tempdir().unwrap();
    let mut command = program();
    command.args(["summarize", "-", "-o"]).arg(place.path().join("summary"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    // The process waits for names.
    while filters(&child.id().to_string()) <= filters("self") {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}
