//! Recordings that a signal or another process ends, and recordings that run at the same time. Real kernel, root.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use crate::support::{Scratch, bprec, record, root, signal, skip, succeed, wait_for, wait_for_checkpoint};
use bprec_fixtures::Fixture;
use bprec_format::bpf::prog_info::BpfProgInfoSection;
use bprec_format::bprec::is_unfinished;
use bprec_format::bprec::journal::{Frame, Journal};
use bprec_format::records::Payload;
use bprec_format::{Endian, Events, File, Record, RecordType};

/// Starts to record the whole machine until a signal stops it.
fn recorder(path: &Path) -> Child {
    bprec().args(["record", "-q", "-a", "-e", "cpu-clock", "-F", "999", "-o"]).arg(path).spawn().unwrap()
}

/// Runs bprec, which must fail; returns its message.
fn fail<S: AsRef<OsStr>>(arguments: &[S]) -> String {
    let output = bprec().args(arguments).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stderr).unwrap()
}

fn journal_of(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}.journal", path.display()))
}

/// Returns the number of samples of the sampling event, and the ids of programs in the features. All records must be complete and belong to a known
/// event.
fn contents(path: &Path) -> (usize, Vec<u32>) {
    let bytes = fs::read(path).unwrap();
    let file = File::parse(&bytes).unwrap();
    assert!(file.problems().is_empty(), "{:?}", file.problems());
    let events = Events::new(file.attrs(), file.endian()).unwrap();
    let mut samples = 0;
    for record in file.records() {
        let record = record.unwrap();
        let event = events.index_of(&record).unwrap_or_else(|| panic!("{record:?} belongs to no event"));
        samples += usize::from(record.kind == RecordType::SAMPLE && event == 0);
        if record.kind != RecordType::SAMPLE {
            Payload::decode(&record, &events.all()[event].layout).unwrap();
        }
    }
    let programs = file.feature(25).map_or_else(Vec::new, |(bytes, offset)| ids(bytes, offset));
    (samples, programs)
}

fn ids(section: &[u8], offset: u64) -> Vec<u32> {
    let programs = BpfProgInfoSection::new(section, offset, Endian::NATIVE).unwrap();
    programs.map(|program| program.unwrap().id().unwrap()).collect()
}

/// True if a recording has samples so far.
fn has_samples(path: &Path) -> bool {
    let bytes = fs::read(path).unwrap();
    File::parse(&bytes).is_ok_and(|file| {
        let Ok(events) = Events::new(file.attrs(), file.endian()) else { return false };
        let is_sample = |record: &Record<'_>| record.kind == RecordType::SAMPLE && events.index_of(record) == Some(0);
        file.records().map_while(Result::ok).any(|record| is_sample(&record))
    })
}

/// Ids of the programs in the written part of a recording's journal.
fn journaled(path: &Path) -> Vec<u32> {
    let bytes = fs::read(journal_of(path)).unwrap_or_default();
    let journal = Journal::parse(&bytes, Endian::NATIVE).ok();
    let section = journal.and_then(|journal| journal.features.into_iter().find(|(bit, _)| *bit == 25));
    section.map_or_else(Vec::new, |(_, section)| ids(&section, 0))
}

#[test]
fn a_recording_ends_by_itself() {
    if !root("a_recording_ends_by_itself") {
        return;
    }
    let dir = Scratch::new();
    let path = dir.path("perf.data");
    fs::write(&path, "an older one").unwrap();
    record(&path, &["-q", "-a", "--", "sleep", "0.3"]);
    contents(&path);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read(dir.path("perf.data.old")).unwrap(), b"an older one");
    assert!(!journal_of(&path).exists());
    let before = fs::read(&path).unwrap();
    succeed(bprec().arg("recover").arg(&path));
    assert_eq!(fs::read(&path).unwrap(), before, "there was nothing to recover");
}

#[test]
fn a_killed_recorder_leaves_what_it_had() {
    if !root("a_killed_recorder_leaves_what_it_had") {
        return;
    }
    let dir = Scratch::new();
    let path = dir.path("perf.data");
    let before = Fixture::churn(1).unwrap().start().unwrap();
    let mut child = recorder(&path);
    wait_for_checkpoint(&path);
    let meanwhile = Fixture::churn(2).unwrap().start().unwrap();
    let known = [before.programs().unwrap(), meanwhile.programs().unwrap()].concat();
    let is_journaled = || known.iter().all(|program| journaled(&path).contains(&program.id));
    wait_for("samples, and a journal that has every program", || (has_samples(&path) && is_journaled()).then_some(()));
    signal(&child, "-KILL");
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    drop((before, meanwhile));

    let bytes = fs::read(&path).unwrap();
    let file = File::parse(&bytes).unwrap();
    assert!(is_unfinished(&file));
    let journaled = journaled(&path);
    for program in &known {
        assert!(journaled.contains(&program.id), "{program:?} is not in the journal");
    }

    let records_before = file.records().map_while(Result::ok).count();
    succeed(bprec().args(["recover", "--in-place"]).arg(&path));
    let (samples, mended) = contents(&path);
    let bytes = fs::read(&path).unwrap();
    assert_eq!(File::parse(&bytes).unwrap().records().count(), records_before);
    assert!(samples > 0);
    assert_eq!(mended, journaled);
    assert!(!journal_of(&path).exists());
}

#[test]
fn signals_end_a_recording_as_a_whole_one() {
    if !root("signals_end_a_recording_as_a_whole_one") {
        return;
    }
    let dir = Scratch::new();
    for (number, name) in [("-INT", "int"), ("-TERM", "term")] {
        let path = dir.path(name);
        let mut child = recorder(&path);
        wait_for_checkpoint(&path);
        signal(&child, number);
        signal(&child, number);
        assert!(child.wait().unwrap().success());
        contents(&path);
        assert!(!is_unfinished(&File::parse(&fs::read(&path).unwrap()).unwrap()));
    }
}

#[test]
fn recorders_beside_each_other_do_not_spoil_each_other() {
    if !root("recorders_beside_each_other_do_not_spoil_each_other") {
        return;
    }
    let dir = Scratch::new();
    let paths: Vec<PathBuf> = ["first", "second", "third"].iter().map(|name| dir.path(name)).collect();
    let mut children = Vec::new();
    for path in &paths {
        children.push(recorder(path));
        wait_for_checkpoint(path);
    }
    let mut loaded = Vec::new();
    for number in 10..30 {
        let program = Fixture::churn(number).unwrap().start().unwrap();
        loaded.extend(program.programs().unwrap().into_iter().map(|program| program.id));
        thread::sleep(Duration::from_millis(20));
    }
    for (child, path) in children.iter_mut().zip(&paths) {
        signal(child, "-INT");
        assert!(child.wait().unwrap().success());
        // `contents` asserts that every record belongs to an event of its file, so no trailer was lost.
        let (_, programs) = contents(path);
        let missing: Vec<_> = loaded.iter().filter(|id| !programs.contains(id)).collect();
        assert!(missing.is_empty(), "{}: not captured: {missing:?}", path.display());
    }
}

#[test]
fn a_full_disk_leaves_whole_records() {
    let test = "a_full_disk_leaves_whole_records";
    if !root(test) {
        return;
    }
    let dir = Scratch::new();
    let small = dir.path("small");
    fs::create_dir(&small).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1M", "tmpfs"]).arg(&small).status();
    if !mounted.is_ok_and(|status| status.success()) {
        skip(test, "a tmpfs cannot be mounted");
        return;
    }
    let path = small.join("perf.data");
    let arguments = ["record", "-a", "-e", "cpu-clock", "-F", "20000", "--duration", "60", "-o"].map(OsStr::new);
    let said = fail(&[&arguments[..], &[path.as_os_str()]].concat());
    let (samples, _) = contents(&path);
    let unfinished = is_unfinished(&File::parse(&fs::read(&path).unwrap()).unwrap());
    succeed(Command::new("umount").arg(&small));
    assert!(said.contains("No space left"), "{said}");
    assert!(samples > 0 && unfinished);
}

#[test]
fn a_command_that_cannot_run_leaves_nothing() {
    if !root("a_command_that_cannot_run_leaves_nothing") {
        return;
    }
    let dir = Scratch::new();
    fs::create_dir(dir.path("own")).unwrap();
    let path = dir.path("own/perf.data");
    let files = || -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(dir.path("own")).unwrap().map(|entry| entry.unwrap());
        entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
    };
    let mut begin = Vec::new();
    Frame::Begin { first_event_id: 1, recording_id: None }.encode(&mut begin, Endian::NATIVE);
    // A recording that cannot start leaves each existing file as it is.
    for (name, contents) in [
        ("perf.data", &b"an older one"[..]),
        ("perf.data.old", b"one older than that"),
        ("perf.data.old.journal", &begin),
        ("perf.data.cut-off", b"one that was cut off"),
    ] {
        fs::write(dir.path("own").join(name), contents).unwrap();
        let before = files();
        let said = fail(&["record", "-o", path.to_str().unwrap(), "--", "/nonexistent/command"]);
        assert!(said.contains("/nonexistent/command"), "{said}");
        assert_eq!(files(), before);
    }
    // After a recording with samples, one older recording remains.
    record(&path, &["-q", "--", "true"]);
    let names: Vec<String> = files().into_keys().collect();
    assert_eq!(names, ["perf.data", "perf.data.cut-off", "perf.data.old"]);
    assert_eq!(files()["perf.data.old"], b"an older one");
}

#[test]
fn the_command_starts_with_the_recording_and_ends_it() {
    if !root("the_command_starts_with_the_recording_and_ends_it") {
        return;
    }
    let dir = Scratch::new();
    let path = dir.path("perf.data");
    let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    record(&path, &["-q", "-e", "task-clock", "--", "sh", "-c", busy]);
    let bytes = fs::read(&path).unwrap();
    let file = File::parse(&bytes).unwrap();
    let events = Events::new(file.attrs(), file.endian()).unwrap();
    let layout = &events.all()[0].layout;
    let mut pids: Vec<u32> = file
        .records()
        .map(Result::unwrap)
        .filter(|record| record.kind == RecordType::SAMPLE && events.index_of(record) == Some(0))
        .filter_map(|record| layout.sample(record.body(), record.offset).unwrap().pid_tid())
        .map(|(pid, _)| pid)
        .collect();
    pids.dedup();
    assert_eq!(pids.len(), 1, "only the command is sampled: {pids:?}");
}

#[test]
fn what_the_command_prints_stays_out_of_the_stream() {
    if !root("what_the_command_prints_stays_out_of_the_stream") {
        return;
    }
    let output = succeed(bprec().args(["record", "-q", "-a", "-o", "-", "--", "echo", "printed by the command"]));
    assert!(String::from_utf8_lossy(&output.stderr).lines().any(|line| line == "printed by the command"));
    let mut offset = 16;
    while offset < output.stdout.len() {
        let record = Record::parse(&output.stdout[offset..], offset as u64, Endian::NATIVE).unwrap();
        assert!(record.kind.name().is_some(), "{record:?}");
        offset += record.total_bytes();
    }
}

/// If the reader of a stream has ended, the message says only this.
#[test]
fn a_reader_that_ends_is_said_to_have_ended() {
    if !root("a_reader_that_ends_is_said_to_have_ended") {
        return;
    }
    let mut recorder = bprec();
    recorder.args(["record", "-a", "-o", "-", "--duration", "60"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut recorder = recorder.spawn().unwrap();
    let mut start = [0; 1000];
    recorder.stdout.take().unwrap().read_exact(&mut start).unwrap();
    let output = recorder.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("samples, the reader of the pipe ended early") && !said.contains("not counted"), "{said}");
}

/// Files with the name of a journal that are not journals are neither overwritten nor deleted, and nothing is moved.
#[test]
fn files_of_others_beside_the_recording_stay() {
    if !root("files_of_others_beside_the_recording_stay") {
        return;
    }
    let dir = Scratch::new();
    let path = dir.path("perf.data");
    succeed(bprec().args(["record", "-q", "-a", "-o"]).arg(&path).args(["--", "true"]));
    let recording = fs::read(&path).unwrap();
    for name in ["perf.data.journal", "perf.data.old.journal"] {
        let diary = dir.path(name);
        fs::write(&diary, "Dear diary").unwrap();
        let output = bprec().args(["record", "-q", "-a", "-o"]).arg(&path).args(["--", "true"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains(name) && said.contains("the file is not a journal"),
            "{said}"
        );
        assert_eq!(fs::read(&diary).unwrap(), b"Dear diary");
        assert!(fs::read(&path).unwrap() == recording && !dir.path("perf.data.old").exists());
        fs::remove_file(&diary).unwrap();
    }
    succeed(bprec().args(["record", "-q", "-a", "-o"]).arg(&path).args(["--", "true"]));
    assert!(fs::read(dir.path("perf.data.old")).unwrap() == recording);
}
