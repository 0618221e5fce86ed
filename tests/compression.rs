//! `bprec record -z`: perf and the reporter can unpack the whole recording. Real kernel, root; compared with perf.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{self, Scratch, bprec, perf, perf_installed, recording, report, root, signal, succeed, wait_for};

/// Pages that the load touches for the first time, one fault each.
const PAGES: usize = 20_000;

fn possible(test: &str) -> bool {
    root(test) && perf_installed(test)
}

/// The load, in a separate process: touches every page once, one fault each.
#[test]
#[ignore = "run by another test"]
fn touch_pages() {
    // SAFETY: a plain system call, which disables huge pages, so that each page causes one fault.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    let mut memory: Vec<u8> = Vec::with_capacity(PAGES * 4096);
    for page in 0..PAGES {
        memory.spare_capacity_mut()[page * 4096].write(1);
    }
}

/// Command that records the page faults of the load. Its rings are so large that none overflows before the recorder reads it.
fn record_page_faults(more: &[&str]) -> Command {
    let load = std::env::current_exe().unwrap();
    let mut command = bprec();
    command.args(["record", "-g", "-m", "16M", "-e", "page-faults", "-c", "1", "--counters", "off"]).args(more).args([
        "--",
        load.to_str().unwrap(),
        "--ignored",
        "--exact",
        "compression::touch_pages",
    ]);
    command
}

/// Number of samples in the closing line.
fn samples_said(stderr: &[u8]) -> usize {
    let said = String::from_utf8_lossy(stderr).into_owned();
    let line = said.lines().find(|line| line.starts_with("[ bprec: ")).unwrap_or_else(|| panic!("{said}"));
    line.split_whitespace().nth(2).unwrap().replace(',', "").parse().unwrap()
}

/// Numbers of samples and of MMAP2 records in perf's dump of a file.
fn dumped(path: &Path) -> (usize, usize) {
    let dump = perf(&["report", "-D", "-i", path.to_str().unwrap()]);
    let samples = dump.lines().filter(|line| line.contains("PERF_RECORD_SAMPLE(")).count();
    (samples, dump.matches("PERF_RECORD_MMAP2").count())
}

fn samples(path: &Path) -> usize {
    let out = perf(&["script", "-F", "event", "-i", path.to_str().unwrap()]);
    out.lines().filter(|line| line.trim().trim_end_matches(':') == "page-faults").count()
}

#[test]
fn perf_unpacks_what_was_recorded() {
    if !possible("perf_unpacks_what_was_recorded") {
        return;
    }
    let scratch = Scratch::new();
    for level in ["-z", "--compression-level=22"] {
        let path = scratch.path("perf.data");
        let path_name = path.to_str().unwrap();
        let output = succeed(&mut record_page_faults(&[level, "-o", path_name]));
        let said = samples_said(&output.stderr);
        assert!(said >= PAGES, "{said}");
        assert_eq!(samples(&path), said, "{level}");
        assert_eq!(report(&path, &["--all"])["events"][0]["samples"]["samples"], said, "{level}");

        // After unpacking to a plain file, perf finds the same numbers of records.
        let plain = scratch.path("plain.data");
        drop(fs::remove_file(&plain));
        succeed(bprec().args(["rewrite", "-i", path_name, "-o"]).arg(&plain));
        assert_eq!(dumped(&path), dumped(&plain), "{level}");
        let (packed_bytes, plain_bytes) = (fs::metadata(&path).unwrap().len(), fs::metadata(&plain).unwrap().len());
        assert!(packed_bytes * 3 < plain_bytes, "{packed_bytes} of {plain_bytes} bytes");

        let header = perf(&["report", "--header-only", "-i", path_name]);
        let level = if level == "-z" { "level = 1," } else { "level = 22," };
        assert!(header.contains("Zstd") && header.contains(level), "{header}");
    }
}

#[test]
fn perf_unpacks_a_stream() {
    if !possible("perf_unpacks_a_stream") {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("stream.data");
    let output = succeed(&mut record_page_faults(&["-z", "-o", "-"]));
    let said = samples_said(&output.stderr);
    fs::write(&path, &output.stdout).unwrap();
    assert!(said >= PAGES, "{said}");
    assert_eq!(report(&path, &["--all"])["events"][0]["samples"]["samples"], said);
    // perf reads a stream from standard input.
    let mut script = Command::new("perf");
    script.args(["script", "-F", "event", "-i", "-"]).stdin(fs::File::open(&path).unwrap()).stderr(Stdio::inherit());
    let out = script.output().unwrap();
    let theirs = String::from_utf8_lossy(&out.stdout).lines().filter(|line| line.contains("page-faults")).count();
    assert_eq!(theirs, said);
}

/// Each file of a recording over several files has its own zstd stream.
#[test]
fn each_file_is_unpacked_by_itself() {
    if !possible("each_file_is_unpacked_by_itself") {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let mut recorder = recording(&path, "600", &["-z", "-e", "cpu-clock", "-F", "999", "--switch-output"]);
    let files = || {
        let entries = fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
        let closed = entries.filter(|path| path.to_str().unwrap().contains("perf.data.2"));
        closed.filter(|path| !path.to_str().unwrap().ends_with(".journal")).collect::<Vec<_>>()
    };
    for round in 1..=2 {
        signal(&recorder, "-USR2");
        wait_for("a closed file", || (files().len() == round && path.exists()).then_some(()));
    }
    signal(&recorder, "-INT");
    assert!(recorder.wait().unwrap().success());
    assert_eq!(files().len(), 3);
    for file in files() {
        let script = perf(&["script", "-F", "event", "-i", file.to_str().unwrap()]);
        let theirs = script.lines().filter(|line| line.contains("cpu-clock")).count();
        assert_eq!(report(&file, &["--all"])["events"][0]["samples"]["samples"], theirs);
    }
}

/// The reporter reads a cut-off file directly. perf reads the file after recovery. The journal has the data that perf needs to unpack the file, but
/// recovery also works without the journal.
#[test]
fn a_killed_recorder_leaves_what_can_be_unpacked() {
    if !possible("a_killed_recorder_leaves_what_can_be_unpacked") {
        return;
    }
    for has_journal in [true, false] {
        let scratch = Scratch::new();
        let path = scratch.path("perf.data");
        let recorder = recording(&path, "600", &["-z", "-e", "cpu-clock", "-F", "999"]);
        let sampled = |path: &Path| {
            let output = bprec().args(["report", "--json", "--all", "-i"]).arg(path).output().unwrap();
            let report: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
            report["events"][0]["samples"]["samples"].as_u64().filter(|samples| *samples > 100)
        };
        wait_for("samples in the file", || sampled(&path));
        support::kill(&path, recorder);
        if !has_journal {
            fs::remove_file(path.with_extension("data.journal")).unwrap();
        }
        let cut_off = sampled(&path).unwrap();

        succeed(bprec().args(["recover", "--in-place"]).arg(&path));
        let script = perf(&["script", "-F", "event", "-i", path.to_str().unwrap()]);
        let theirs = script.lines().filter(|line| line.contains("cpu-clock")).count() as u64;
        assert_eq!(sampled(&path), Some(theirs));
        assert!(theirs >= cut_off, "{theirs} of {cut_off}");
        let header = perf(&["report", "--header-only", "-i", path.to_str().unwrap()]);
        assert!(header.contains("time of first sample"), "{header}");
    }
}
