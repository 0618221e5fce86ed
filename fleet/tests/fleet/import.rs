//! Import: repeating an import, or splitting it, gives the same lake.

use crate::support::{Lake, TABLES, program, recordings, run, text, whole_recordings};
use bprec_report::{RewriteOptions, Source, rewrite};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;

#[test]
fn what_is_there_is_not_imported_again() {
    let files = whole_recordings();
    let lake = Lake::with(&files, &[]);
    let before = lake.contents();
    let again = lake.import(&files, &[]);
    assert!(again.status.success());
    let said = format!("0 recordings imported in 0 batches, {} already in the lake, 0 refused\n", files.len());
    assert_eq!(text(&again.stdout), said);
    // Another order, with a copy of one file.
    let copies = tempfile::tempdir().unwrap();
    let mut names: Vec<PathBuf> = files.iter().rev().cloned().collect();
    names.push(copies.path().join("copy.data"));
    std::fs::copy(&files[0], &names[files.len()]).unwrap();
    let again = lake.import(&names, &["--batch", "2", "--threads", "3"]);
    assert!(text(&again.stdout).starts_with("0 recordings imported"), "{}", text(&again.stdout));
    assert_eq!(lake.contents(), before);
}

#[test]
fn batches_and_threads_change_nothing() {
    let files = whole_recordings();
    let at_once = Lake::with(&files, &[]).contents();
    assert!(TABLES.iter().all(|table| !at_once[table].is_empty()), "{at_once:?}");
    let lake = Lake::with(&files[..5], &["--batch", "2", "--threads", "1"]);
    let names = files.iter().map(|path| format!("{}\n", path.display())).collect::<String>();
    let mut child = program()
        .args(["import", "--batch", "3", "--threads", "4", "-", "--out"])
        .arg(lake.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(names.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(text(&output.stdout).contains("5 already in the lake, 0 refused"), "{}", text(&output.stdout));
    assert_eq!(lake.contents(), at_once);
}

/// A compressed copy of a recording has the same host and start, and is refused.
#[test]
fn another_form_of_a_recording_is_refused() {
    let files = whole_recordings();
    let lake = Lake::with(&files[..1], &[]);
    let copies = tempfile::tempdir().unwrap();
    let packed = copies.path().join("same.data.gz");
    let bytes = std::fs::read(&files[0]).unwrap();
    std::fs::write(&packed, gzip(&bytes)).unwrap();
    let output = lake.import(&[packed], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("not imported, because the lake already has this recording in another form"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(lake.sql("SELECT * FROM recording").len(), 1);
}

/// The complete form of a recording that was imported unfinished is refused.
#[test]
fn a_recording_that_was_taken_unfinished_is_not_counted_again() {
    let cut_off = recordings().into_iter().find(|path| path.to_string_lossy().contains("7.2/cut-off")).unwrap();
    let lake = Lake::with(std::slice::from_ref(&cut_off), &["--unfinished"]);
    let place = tempfile::tempdir().unwrap();
    let completed = place.path().join("completed.data");
    let options = RewriteOptions { repair: true, ..RewriteOptions::default() };
    rewrite(&mut Source::open(&cut_off).unwrap(), &options, &mut File::create_new(&completed).unwrap()).unwrap();
    let output = lake.import(&[completed], &["--unfinished"]);
    assert_eq!(text(&output.stdout), "0 recordings imported in 0 batches, 0 already in the lake, 1 refused\n");
    assert_eq!(lake.sql("SELECT * FROM recording").len(), 1);
}

/// Packs bytes as uncompressed blocks of gzip (RFC 1952, RFC 1951).
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let blocks: Vec<&[u8]> = bytes.chunks(0xffff).collect();
    for (at, block) in blocks.iter().enumerate() {
        out.push(u8::from(at + 1 == blocks.len()));
        let length = u16::try_from(block.len()).unwrap();
        out.extend(length.to_le_bytes());
        out.extend((!length).to_le_bytes());
        out.extend(*block);
    }
    let mut crc = !0_u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        (0..8).for_each(|_| crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 });
    }
    out.extend((!crc).to_le_bytes());
    out.extend(u32::try_from(bytes.len()).unwrap().to_le_bytes());
    out
}

/// Recordings that cannot be imported are named, and the others are imported.
#[test]
fn what_cannot_be_imported_is_named_and_the_rest_is_there() {
    let place = tempfile::tempdir().unwrap();
    let text_file = place.path().join("notes.txt");
    std::fs::write(&text_file, "no recording").unwrap();
    let of = |name: &str| recordings().into_iter().find(|path| path.to_string_lossy().contains(name)).unwrap();
    let (unfinished, undated, whole) =
        (of("7.2/cut-off"), of("perf-6.12-linux-6.1/ratio"), whole_recordings()[0].clone());
    let missing = place.path().join("missing.data");
    let lake = Lake::new();
    let output = lake.import(&[text_file, unfinished, undated, missing, whole], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stdout), "1 recordings imported in 1 batches, 0 already in the lake, 4 refused\n");
    let said = text(&output.stderr);
    for words in ["notes.txt: ", "cut-off.data: has no end", "ratio.data: has no date", "missing.data`: No such file"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(lake.sql("SELECT * FROM recording").len(), 1);
}

/// Count of seccomp filters of a process.
fn filters(process: &str) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let filters = status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"));
    filters.unwrap().trim().parse().unwrap()
}

#[test]
fn an_import_is_confined() {
    for options in [&[][..], &["--no-sandbox"][..]] {
        let lake = Lake::new();
        let mut command = program();
        command.args(["import", "--batch", "1", "-", "--out"]).arg(lake.path()).args(options);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        writeln!(input, "{}", whole_recordings()[0].display()).unwrap();
        // The first batch is committed, and the import waits for the next name.
        while !lake.path().join("v2/current").exists() {
            assert!(child.try_wait().unwrap().is_none());
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let filters = filters(&child.id().to_string()) - filters("self");
        drop(input);
        assert!(child.wait().unwrap().success());
        assert_eq!(filters > 0, options.is_empty());
    }
}

#[test]
fn labels_and_hosts_are_those_that_were_given() {
    let lake = Lake::with(&whole_recordings()[..1], &["--host", "edge-7", "--label", "role=edge", "--label", "a=\"b"]);
    let rows = lake.sql("SELECT host_id, host_name, labels, date FROM recording");
    assert_eq!(rows[0]["host_id"], "edge-7");
    assert_eq!(rows[0]["host_name"], "vm");
    assert_eq!(rows[0]["labels"], r#"{"a":"\"b","role":"edge"}"#);
    assert_eq!(lake.sql("SELECT DISTINCT host_id FROM run_stats")[0]["host_id"], "edge-7");
}

#[test]
fn mistakes_are_told() {
    for (args, words) in [
        (&["import", "--out", "/dev/null/lake", "x"][..], "create /dev/null/lake"),
        (&["query", "top", "--lake", "/nonexistent"][..], "is not a lake"),
        (&["query", "top", "--lake", "x", "--since", "2026-02-30"][..], "is not a date"),
        (&["verify", "--lake", "/nonexistent"][..], "is not a lake"),
        (&["query", "--lake", "x"][..], "required"),
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(words), "{args:?}: {}", text(&output.stderr));
    }
}
