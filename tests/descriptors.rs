//! Programs of other tools are unloaded when their owners release them, with any number of recorders and with few descriptors. Real kernel, root;
//! other recorders may run on the machine.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::support::{self, Scratch, bpf_ids, report, root, signal, skip, succeed, wait_for, wait_for_checkpoint};
use bprec_fixtures::{Fixture, Loaded};
use serde_json::Value;

/// A recorder of the whole machine, which ends with the test.
struct Recorder {
    child: Option<Child>,
    path: PathBuf,
}

impl Recorder {
    /// Adds the arguments of a recorder to `command`, starts it, and waits until it records into `path`.
    fn start(command: &mut Command, path: &Path, more: &[&str]) -> Recorder {
        command.args(["record", "-a", "-F", "99", "-o"]).arg(path).args(more);
        let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let recorder = Recorder { child: Some(child), path: path.to_owned() };
        wait_for_checkpoint(path);
        recorder
    }

    fn child(&self) -> &Child {
        self.child.as_ref().unwrap()
    }

    /// Ids of the programs for which the recorder has descriptors.
    fn held(&self) -> BTreeSet<u64> {
        let [programs, ..] = support::held::held_by(self.child().id());
        programs
    }

    /// Ends the recorder; returns its messages and its report.
    fn end(mut self) -> (String, Value) {
        signal(self.child(), "-INT");
        let output = self.child.take().unwrap().wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        let last = if self.path.exists() { self.path.clone() } else { closed_files(&self.path).pop().unwrap() };
        (said, report(&last, &["--all"]))
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Closed files of a recording, the oldest first.
fn closed_files(path: &Path) -> Vec<PathBuf> {
    let name = format!("{}.2", path.file_name().unwrap().to_str().unwrap());
    let entries = fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap());
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    let mut files: Vec<PathBuf> = names
        .filter(|file| file.starts_with(&name) && !file.ends_with(".journal"))
        .map(|file| path.with_file_name(file))
        .collect();
    files.sort();
    files
}

/// Loads programs, each with its own name.
fn load(numbers: std::ops::Range<u32>) -> (Vec<Loaded>, BTreeSet<u64>) {
    let loaded: Vec<Loaded> =
        numbers.map(|number| Fixture::churn(number).unwrap().open().unwrap().load().unwrap()).collect();
    let ids = loaded.iter().flat_map(|loaded| loaded.programs().unwrap()).map(|program| program.id.into()).collect();
    (loaded, ids)
}

/// Waits until programs have left the kernel.
fn wait_until_gone(ids: &BTreeSet<u64>) {
    wait_for("programs to leave the kernel", || bpf_ids("prog").iter().all(|id| !ids.contains(id)).then_some(()));
}

fn programs<'a>(report: &'a Value, ids: &'a BTreeSet<u64>) -> impl Iterator<Item = &'a Value> {
    let all = report["programs"].as_array().unwrap().iter();
    all.filter(|program| program["id"].as_u64().is_some_and(|id| ids.contains(&id)) && program["captured"] == true)
}

/// Ids that the report lists as not captured.
fn missed(report: &Value) -> BTreeSet<u64> {
    report["missed"].as_array().unwrap().iter().filter_map(|program| program["id"].as_u64()).collect()
}

/// A shell that executes bprec after the commands `setup`; the caller adds the arguments of bprec.
fn shell(setup: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{setup}; exec \"$@\""), "sh", env!("CARGO_BIN_EXE_bprec")]);
    command
}

#[test]
fn at_the_limit_of_descriptors_programs_are_captured_and_go_and_files_change() {
    let test = "at_the_limit_of_descriptors_programs_are_captured_and_go_and_files_change";
    if !root(test) {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("few.data");
    let recorder = Recorder::start(&mut shell("ulimit -n 128"), &path, &["--switch-output"]);
    let (loaded, ids) = load(0..150);
    // The recorder has too few descriptors to hold all programs. It must still capture the last programs and close a file.
    wait_for("programs to be held", || (!recorder.held().is_disjoint(&ids)).then_some(()));
    signal(recorder.child(), "-USR2");
    let first = wait_for("a closed file", || {
        let closed = closed_files(&path).pop()?;
        (path.exists() && !Path::new(&format!("{}.journal", closed.display())).exists()).then_some(closed)
    });
    assert!(!ids.is_subset(&recorder.held()));
    drop(loaded);
    wait_until_gone(&ids);
    let (later, later_ids) = load(150..151);
    wait_for("a program to be held", || later_ids.is_subset(&recorder.held()).then_some(()));
    drop(later);
    let (said, last) = recorder.end();
    let first = report(&first, &["--all"]);
    let captured: BTreeSet<u64> = [&first, &last]
        .into_iter()
        .flat_map(|report| programs(report, &ids))
        .filter_map(|it| it["id"].as_u64())
        .collect();
    let missed: BTreeSet<u64> = missed(&first).union(&missed(&last)).copied().collect();
    assert_eq!(captured, ids, "{missed:?}");
    assert!(missed.is_disjoint(&ids), "{missed:?}");
    assert_eq!(programs(&last, &later_ids).count(), 1);
    assert_eq!(said.matches("limit of open files (128)").count(), 1, "{said}");
    assert!(said.contains("last runs of "), "{said}");
    assert!(last["notes"].to_string().contains("last_runs_unknown"), "{:#}", last["notes"]);
}

/// The recorders have different executables and names.
#[test]
fn recorders_let_go_of_programs_that_only_they_hold() {
    let test = "recorders_let_go_of_programs_that_only_they_hold";
    if !root(test) {
        return;
    }
    let scratch = Scratch::new();
    let others = ["one-recorder", "another-recorder"].map(|name| {
        let path = scratch.path(name);
        fs::copy(env!("CARGO_BIN_EXE_bprec"), &path).unwrap();
        path
    });
    let (before, mut ids) = load(200..205);
    let mut recorders = vec![Recorder::start(&mut support::bprec(), &scratch.path("0.data"), &[])];
    for (other, number) in others.iter().zip(1..) {
        recorders.push(Recorder::start(&mut Command::new(other), &scratch.path(&format!("{number}.data")), &[]));
    }
    let (during, more) = load(205..220);
    ids.extend(more);
    for recorder in &recorders {
        wait_for("all programs to be held", || ids.is_subset(&recorder.held()).then_some(()));
    }
    // After this time, each recorder has detected the other recorders. All recorders must still hold the programs: the owner uses them.
    thread::sleep(Duration::from_secs(5));
    for recorder in &recorders {
        wait_for("all programs to be held still", || ids.is_subset(&recorder.held()).then_some(()));
    }
    drop((before, during));
    wait_until_gone(&ids);
    for recorder in recorders {
        let (said, report) = recorder.end();
        assert_eq!(
            programs(&report, &ids).filter(|program| !program["unloaded"].is_null()).count(),
            ids.len(),
            "{said}"
        );
        // Names of the recorders, as cut by the kernel.
        let is_recorder =
            |owner: &Value| ["bprec", "one-recorder", "another-recorde"].iter().any(|it| owner["comm"] == *it);
        let owners = programs(&report, &ids).flat_map(|program| program["owners"].as_array().unwrap());
        assert_eq!(owners.filter(|owner| is_recorder(owner)).count(), 0, "{report:#}");
    }
}

/// One recorder is stopped, so it has no descriptors of programs that are loaded meanwhile. The other recorder must keep these programs for their
/// last runs: it must not take the loader's descriptor for one of the stopped recorder.
#[test]
fn last_runs_are_counted_beside_a_recorder_that_holds_nothing() {
    let test = "last_runs_are_counted_beside_a_recorder_that_holds_nothing";
    if !root(test) {
        return;
    }
    let scratch = Scratch::new();
    let stopped = Recorder::start(&mut support::bprec(), &scratch.path("stopped.data"), &[]);
    let recorder = Recorder::start(&mut support::bprec(), &scratch.path("0.data"), &["--budget", "100"]);
    const PROGRAM: &str = "loop_of_100";
    // Gives the other recorder time to detect the recorder that is stopped below.
    thread::sleep(Duration::from_secs(4));
    signal(stopped.child(), "-STOP");
    let loaded: Vec<Loaded> = (0..10).map(|_| Fixture::COUNTED.open().unwrap().load().unwrap()).collect();
    let ids: BTreeSet<u64> = loaded.iter().map(|one| one.id_of(PROGRAM).unwrap().into()).collect();
    // The recorder checks new programs ten times a second: enough time to open their descriptors and to close them again.
    thread::sleep(Duration::from_millis(1_500));
    let mut ran = BTreeMap::new();
    for one in &loaded {
        one.run(PROGRAM, 1_000).unwrap();
        ran.insert(u64::from(one.id_of(PROGRAM).unwrap()), one.ran(PROGRAM).unwrap());
    }
    drop(loaded);
    signal(stopped.child(), "-CONT");
    wait_until_gone(&ids);
    let (said, report) = recorder.end();
    drop(stopped);
    let counted: BTreeMap<u64, u64> = programs(&report, &ids)
        .map(|program| (program["id"].as_u64().unwrap(), program["runs"]["count"].as_u64().unwrap_or(0)))
        .collect();
    assert_eq!(counted, ran, "{said}");
    assert!(ran.values().all(|runs| *runs == 1_000), "{ran:?}");
}

/// Two recorders attach counting programs to the programs of an owner. Such attachments keep the owner's programs loaded, as descriptors do.
#[test]
fn recorders_that_count_exactly_let_go_of_programs_that_only_they_hold() {
    let test = "recorders_that_count_exactly_let_go_of_programs_that_only_they_hold";
    if !root(test) {
        return;
    }
    let scratch = Scratch::new();
    let exact = ["--counters", "exact=churn_*"];
    let names = ["0.data", "1.data"];
    let recorders = names.map(|name| Recorder::start(&mut support::bprec(), &scratch.path(name), &exact));
    let (loaded, ids) = load(500..505);
    for recorder in &recorders {
        wait_for("all programs to be held", || ids.is_subset(&recorder.held()).then_some(()));
    }
    // After this time, each recorder counts the programs and has detected the other recorder.
    thread::sleep(Duration::from_secs(5));
    drop(loaded);
    wait_until_gone(&ids);
    let mut refused = None;
    for recorder in recorders {
        let (_, report) = recorder.end();
        match report["recording"]["counters"].as_str() {
            Some("exact") => {
                let counted = programs(&report, &ids).filter(|program| program["exact"].is_object()).count();
                assert_eq!(counted, ids.len(), "{report:#}");
            }
            _ => refused = Some(report["recording"]["counters_note"].to_string()),
        }
    }
    if let Some(why) = refused {
        skip(test, &why);
    }
}

#[test]
fn without_kernel_btf_no_program_is_held() {
    let test = "without_kernel_btf_no_program_is_held";
    if !root(test) {
        return;
    }
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        skip(test, "the kernel has no BTF to hide");
        return;
    }
    let scratch = Scratch::new();
    let mut hidden = Command::new("unshare");
    let hide = "mount --bind /dev/null /sys/kernel/btf/vmlinux; exec \"$@\"";
    hidden.args(["-m", "sh", "-c", hide, "sh", env!("CARGO_BIN_EXE_bprec")]);
    let recorder = Recorder::start(&mut hidden, &scratch.path("btf.data"), &[]);
    let (loaded, ids) = load(300..310);
    thread::sleep(Duration::from_millis(500));
    drop(loaded);
    wait_until_gone(&ids);
    assert!(recorder.held().is_disjoint(&ids));
    let (said, report) = recorder.end();
    assert_eq!(programs(&report, &ids).filter(|program| !program["unloaded"].is_null()).count(), ids.len(), "{said}");
    assert!(
        said.contains("bprec cannot see which processes use a BPF program, so it keeps no descriptors of programs"),
        "{said}"
    );
    assert!(report["notes"].to_string().contains("last_runs_unknown"), "{:#}", report["notes"]);
}

/// The disk has files of an earlier recording and no space for another file: the oldest files are deleted, and the recording finishes.
#[test]
fn on_a_full_disk_the_oldest_files_go() {
    let test = "on_a_full_disk_the_oldest_files_go";
    if !root(test) {
        return;
    }
    const SCRIPT: &str = r#"
        bprec=$0
        cd "$1" && mount -t tmpfs -o size=64m tmpfs . && cd "$1" || exit 1
        record() { "$bprec" record -a -e cpu-clock -F 2000 --switch-output=1s --max-files 100 -o perf.data --duration "$1"; }
        record 6s || exit 2
        dd if=/dev/zero of=filler bs=64k 2>/dev/null
        truncate -s -256K filler
        ls perf.data.* >before
        echo full >&2
        record 3s || exit 3
        for file in perf.data.*; do "$bprec" report --json -i "$file" >/dev/null || exit 4; done
        cat before; echo; ls perf.data.*
    "#;
    let scratch = Scratch::new();
    let disk = scratch.path("disk");
    fs::create_dir(&disk).unwrap();
    let arguments = ["-m", "sh", "-c", SCRIPT, env!("CARGO_BIN_EXE_bprec")];
    let output = succeed(Command::new("unshare").args(arguments).arg(&disk));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let (_, said) = said.split_once("full\n").unwrap();
    let deleted = said.matches("the disk is full: bprec deleted perf.data.").count();
    let listed = String::from_utf8(output.stdout).unwrap();
    let (before, after) = listed.split_once("\n\n").unwrap();
    let kept = before.lines().filter(|file| after.lines().any(|kept| kept == *file));
    assert!(deleted > 0, "{said}");
    // Only the oldest files were deleted, in order. Files of the second recording may be among them.
    let expected = before.lines().skip(deleted).collect::<Vec<_>>();
    assert_eq!(kept.collect::<Vec<_>>(), expected, "{said}");
}
