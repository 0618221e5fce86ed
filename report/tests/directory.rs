//! Recordings that are a directory: one file with the header, and files of records that were written in parallel.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../../format/tests/common/mod.rs"]
mod common;

use std::io::Cursor;

use bprec_format::File;
use bprec_report::{Fields, RewriteOptions, ScriptOptions, Source, rewrite, script};

fn lines(mut source: Source) -> (Vec<String>, bprec_report::ScriptSummary) {
    let fields = Fields::parse("pid,tid,time,event,ip").unwrap();
    let mut text = Vec::new();
    let summary = script(&mut source, &ScriptOptions { fields, ..ScriptOptions::default() }, &mut text).unwrap();
    (String::from_utf8(text).unwrap().lines().map(str::to_owned).collect(), summary)
}

/// A recording that is split into a directory gives the same output, in the order of time, and is rewritten as one file.
#[test]
fn a_recording_in_a_directory_reads_like_one_file() {
    let mut compared = 0;
    for file in common::corpus_files() {
        let Ok(whole) = File::parse(&file.bytes) else { continue };
        let sorts = whole.attrs()[0].attr.flags.contains(bprec_format::AttrFlags::SAMPLE_ID_ALL);
        let names = ["branch-4.14", "group_desc", "sleep.data", "ro_sample"];
        if !sorts || whole.is_unfinished() || !names.iter().any(|name| file.name.contains(name)) {
            continue;
        }
        let records: Vec<_> = whole.records().map(Result::unwrap).collect();
        // Distributes the records over three files in turn, beginning with the last record in the first file: only their times give the right order.
        let mut parts = [Vec::new(), Vec::new(), Vec::new()];
        let first_sample = records.iter().position(|r| r.kind == bprec_format::RecordType::SAMPLE).unwrap();
        for (index, record) in records[first_sample..].iter().rev().enumerate() {
            if record.kind != bprec_format::RecordType::FINISHED_ROUND {
                parts[index % 3].splice(0..0, record.bytes.iter().copied());
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let head_bytes: usize = records[..first_sample].iter().map(|record| record.total_bytes()).sum();
        let data = whole.data();
        let mut head = file.bytes.clone();
        let removed = data.size as usize - head_bytes;
        head.drain(data.offset as usize + head_bytes..(data.offset + data.size) as usize);
        head[48..56].copy_from_slice(&(head_bytes as u64).to_le_bytes());
        // The new file lacks the removed records, so the offsets of its feature sections are smaller.
        let features = whole.features().len();
        for row in 0..features {
            let at = data.offset as usize + head_bytes + row * 16;
            let offset = u64::from_le_bytes(head[at..at + 8].try_into().unwrap()) - removed as u64;
            head[at..at + 8].copy_from_slice(&offset.to_le_bytes());
        }
        std::fs::write(dir.path().join("data"), &head).unwrap();
        for (index, part) in parts.iter().enumerate() {
            std::fs::write(dir.path().join(format!("data.{index}")), part).unwrap();
        }

        let (expected, _) = lines(Source::from_bytes("whole", file.bytes.clone()));
        let (found, summary) = lines(Source::open(dir.path()).unwrap());
        assert_eq!((summary.late, summary.unreadable, &summary.problems), (0, 0, &Vec::new()), "{}", file.name);
        assert_eq!(found, expected, "{}", file.name);

        let mut out = Cursor::new(Vec::new());
        rewrite(&mut Source::open(dir.path()).unwrap(), &RewriteOptions::default(), &mut out).unwrap();
        let (again, _) = lines(Source::from_bytes("rewritten", out.into_inner()));
        assert_eq!(again, expected, "{}", file.name);
        compared += 1;
    }
    assert!(compared >= 3, "{compared}");
}
