//! Files of a recorder at each step: their state if a step fails, and events that occur while a step is delayed. Real kernel, root.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::disk::{Answer, Step, run};
use crate::support::{bprec, root, wait_for};
use bprec_format::bprec::is_unfinished;
use bprec_format::{Events, File, Record, RecordType};

/// Records page faults of a shell that runs `script`; the file ends when the shell sends SIGUSR2 to its parent.
fn recorder(directory: &Path, script: &str) -> Command {
    let mut command = bprec();
    command.args(["record", "-q", "-e", "page-faults", "-c", "1", "--counters", "off", "--switch-output=signal"]);
    command.arg("-o").arg(directory.join("perf.data")).args(["--", "sh", "-c", script]).current_dir(directory);
    command
}

/// The closed files of a recording in their order, and the other files there.
fn files(directory: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let mut all: Vec<PathBuf> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    let is_closed = |path: &PathBuf| {
        path.to_string_lossy().contains("perf.data.2")
            && path.extension().is_none_or(|extension| extension != "journal")
    };
    all.into_iter().partition(is_closed)
}

/// A journal that cannot be deleted does not harm the recording: it is deleted later, or a message names it.
#[test]
fn a_journal_that_stays_is_tried_again_and_then_told() {
    if !root("a_journal_that_stays_is_tried_again_and_then_told") {
        return;
    }
    const SCRIPT: &str = r#"kill -USR2 $PPID; until set -- perf.data.2*; [ -e "$1" ]; do :; done"#;
    // The n-th deletion fails once; with `None`, every deletion fails.
    for only in [Some(1), Some(2), None] {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut deleted = 0;
        let ran = run(directory.path(), recorder(directory.path(), SCRIPT), &mut |_, step| match step {
            Step::Unlink { name } if name.ends_with(".journal") => {
                deleted += 1;
                if only.is_none_or(|only| only == deleted) { Answer::Fail(libc::EIO) } else { Answer::Go }
            }
            _ => Answer::Go,
        });
        let (recordings, others) = files(directory.path());
        assert!(deleted >= 2, "{deleted} journals: {}", ran.said);
        assert_eq!((recordings.len(), others.len()), (2, if only.is_some() { 0 } else { 2 }), "{only:?}: {others:?}");
        for path in recordings {
            assert!(!is_unfinished(&File::parse(&fs::read(&path).unwrap()).unwrap()), "{only:?}: {}", path.display());
        }
        if only.is_some() {
            assert_eq!((ran.status.code(), ran.said.trim()), (Some(0), ""), "{only:?}");
        } else {
            assert_eq!(ran.status.code(), Some(2), "{}", ran.said);
            assert!(ran.said.contains(".journal: the journal cannot be deleted: "), "{}", ran.said);
            assert!(ran.said.contains("The recording is complete"), "{}", ran.said);
        }
    }
}

/// The command ends between two files, before the recorder has read the command's data again. The command is then a zombie with a name and no
/// mappings. The second file still has the mappings for samples of the command.
#[test]
fn what_ends_between_two_files_has_its_mappings_in_the_second() {
    if !root("what_ends_between_two_files_has_its_mappings_in_the_second") {
        return;
    }
    // The variable `word` doubles in each round, which causes page faults.
    const SCRIPT: &str = "echo $$ >pid; kill -USR2 $PPID; while [ ! -e stop ]; do :; done
        word=word; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do word=$word$word; done";
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let in_directory = |name: &str| directory.path().join(name);
    let (mut begun, mut pid) = (Vec::new(), 0);
    let ran = run(directory.path(), recorder(directory.path(), SCRIPT), &mut |_, step| {
        match step {
            Step::Link { inode, name } if name == "perf.data" => begun.push(*inode),
            // This step writes the first records of the second file.
            Step::Write { inode, .. } if begun.get(1) == Some(inode) && pid == 0 => {
                pid = fs::read_to_string(in_directory("pid")).unwrap().trim().parse::<u32>().unwrap();
                fs::write(in_directory("stop"), "").unwrap();
                let stat = format!("/proc/{pid}/stat");
                // The command is a zombie until the recorder has waited for it.
                let runs = || fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
                wait_for("the end of the command", || (!runs()).then_some(()));
            }
            _ => {}
        }
        Answer::Go
    });
    assert!(ran.status.success(), "{}", ran.said);
    let (recordings, _) = files(directory.path());
    let bytes = fs::read(&recordings[1]).unwrap();
    let file = File::parse(&bytes).unwrap();
    let records: Vec<_> = file.records().map(Result::unwrap).collect();
    let events = Events::new(file.attrs(), file.endian()).unwrap();
    let is_fault = |record: &&Record<'_>| record.kind == RecordType::SAMPLE && events.index_of(record) == Some(0);
    let samples = records.iter().filter(is_fault).count();
    let mapped = records
        .iter()
        .filter(|record| record.kind == RecordType::MMAP2 && file.endian().u32_at(record.body(), 0) == Some(pid));
    assert!(samples > 0 && mapped.count() > 1, "{samples} samples");
}
