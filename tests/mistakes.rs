//! Mistakes of users, each with the expected message: what is wrong, with which input, and how to fix it.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Scratch, bprec, root, skip};

/// A command run in [`directory`], its exit code, and parts of its message.
type Mistake = (&'static str, i32, &'static [&'static str]);

/// Mistakes with commands that read.
const READING: [Mistake; 46] = [
    ("reprot", 2, &["unrecognized subcommand 'reprot'", "a similar subcommand exists: 'report'"]),
    ("report --jason", 2, &["'--jason'", "'--json'"]),
    (
        "report -i nofile",
        2,
        &["open nofile: No such file", "check the path; `bprec record -a -o FILE` makes a recording"],
    ),
    ("script -i nofile", 2, &["nofile: No such file", "check the path; `bprec record -a -o FILE` makes a recording"]),
    ("diff perf.data nofile", 2, &["open nofile: No such file", "check the path"]),
    ("recover nofile", 2, &["nofile: No such file", "`bprec record -a"]),
    (
        "report directory",
        2,
        &["directory: not a recording by bprec or perf: a directory without recordings; check the path"],
    ),
    ("report perf.data perf.data", 2, &["perf.data and perf.data: the same recording twice"]),
    ("report --since noon", 2, &["noon", "expected a time in UTC or with its zone"]),
    ("report --since 1999-01-01 --until 1999-01-02", 2, &["no file has samples in this range; the samples are from"]),
    ("script perf.data perf.data", 2, &["unexpected argument"]),
    ("report empty", 2, &["empty: ", "not a recording by bprec or perf", "check the path"]),
    (
        "report text",
        2,
        &["text: not a recording by bprec or perf: it starts with \"seconds \"", "check the path; `bprec record"],
    ),
    ("report text.gz", 2, &["text.gz: not a recording by bprec or perf: it starts", "check the path; `bprec record"]),
    ("report header", 2, &["header: ", "its header was cut off"]),
    ("recover text", 2, &["text: not a recording by bprec or perf", "check the path; `bprec record"]),
    (
        "report --prog nosuch",
        1,
        &["no program in the recording matches --prog nosuch; bprec report --all lists all programs"],
    ),
    ("report --prog acount_sys*", 1, &["similar names: account_syscall_"]),
    ("report --time 1000,2000", 1, &["outside the recording, which has samples from"]),
    ("report --time tomorrow", 2, &["tomorrow", "START,STOP in seconds, or 10%-20%"]),
    ("report --time 20%-10%", 2, &["20%-10%", "parts like 10%-20%"]),
    ("report -e nosuch", 2, &["nosuch: the recording has no samples of this event; it has samples of cpu-clock\n"]),
    ("report -e dummy:u", 2, &["dummy:u: the recording has no samples of this event"]),
    ("report --cpu first", 2, &["first", "a list like 0,2-5"]),
    ("report --cpu 77", 1, &["no sample in the recording matches the options; --by cpu"]),
    (
        "report --comms nosuch",
        1,
        &["no task in the recording matches --comms nosuch; ", "bprec report --by comm lists tasks"],
    ),
    ("report --by nosuch", 2, &["nosuch", "expected one of func comm"]),
    ("report --sort nosuch", 2, &["nosuch", "expected one of cost samples"]),
    ("report -s comm", 2, &["--by comm splits the cost of each"]),
    ("report -s sym", 2, &["--by func"]),
    ("report --limit many", 2, &["many", "--limit <N>", "expected a whole number"]),
    ("script --max-stack deep", 2, &["deep", "expected a whole number"]),
    ("report --over-time 100", 2, &["100", "a time with a unit"]),
    ("report --payers command", 2, &["command", "comm"]),
    ("report --maps=nosuch", 1, &["no such map", "--maps lists all"]),
    ("report --columns prog", 2, &["no such column; the columns are ID, PROGRAM"]),
    ("report --json --csv", 2, &["'--json' cannot be used with '--csv'"]),
    ("annotate nosuch", 1, &["no program in the recording matches", "bprec report --all lists all programs"]),
    ("annotate account_syscall_enter:nosuch", 1, &["no function of the program matches", "--by func"]),
    ("diff perf.data", 2, &["two recordings: bprec diff BASE NEW"]),
    ("diff perf.data perf.data --fail-if slow", 2, &["slow", "expected prog:NAME"]),
    ("report --bill nobody perf.data", 1, &["no owner of a BPF program matches --bill", "lists all owners"]),
    ("export --to svg", 2, &["svg", "expected one of html, folded, pprof, speedscope, firefox, otlp"]),
    ("export --to html -o directory", 2, &["directory exists and is not a file", "give the name of a file"]),
    (
        "export --to html -o nodirectory/page",
        2,
        &["create nodirectory/page: No such file or directory (os error 2); check the path: its directory must exist"],
    ),
    ("script -F nosuch", 2, &["nosuch", "no such field; the fields are comm"]),
];

/// Mistakes with commands that measure.
const MEASURING: [Mistake; 34] = [
    ("record -e cyclse -- true", 2, &["'cyclse': unknown event", "did you mean `cycles`?"]),
    ("record -e zzzzzzzzzz -- true", 2, &["unknown event", "`perf list` shows all events"]),
    ("record -e sched:sched_swich -- true", 2, &["has no tracepoint `sched_swich`", "`sched_switch`"]),
    ("record -F often -- true", 2, &["often", "samples per second, or max"]),
    ("record -c 0 -- true", 2, &["'0'", "--count"]),
    ("record -C 4095 -- true", 2, &["CPU 4095 is not online; online CPUs: 0"]),
    ("record -C first -- true", 2, &["first", "a list like 0,2-5"]),
    ("record -p 999999999", 2, &["no process with pid 999999999", "`pgrep NAME`"]),
    ("record -p nginx", 2, &["nginx", "`pgrep NAME`"]),
    ("record -a -p 1 -- true", 2, &["'--all-cpus' cannot be used with '--pid"]),
    ("record -q -o out -- nosuchcommand", 2, &["cannot run 'nosuchcommand'", "installed and in PATH"]),
    ("record -q -o out -- ./text", 2, &["cannot run './text'", "chmod +x"]),
    ("record -q -o directory -- true", 2, &["directory: exists and is not a file", "give the name of a file"]),
    ("record -q -o nodirectory/out -- true", 2, &["nodirectory/out: No such file", "its directory must exist"]),
    ("record -q -o /dev/full -- true", 2, &["No space left on device", "free space"]),
    ("record --duration soon", 2, &["soon", "500ms, 10s, 5m, 1h"]),
    ("record --dump-map a --dump-entries x -- true", 2, &["'x'", "expected a whole number above 0"]),
    ("record --switch-output --max-files 0 -- true", 2, &["'0'", "expected a whole number above 0"]),
    ("record --aggregate --aggregate-entries x -- true", 2, &["'x'", "expected a whole number from 1 to 1048576"]),
    ("record -z=99 -- true", 2, &["'99'", "expected a whole number from 1 to 22"]),
    ("top -d 9d", 2, &["'9d'", "expected 0.1 to 86400 seconds"]),
    ("record --counters all -- true", 2, &["expected stats, exact, exact=NAME or off"]),
    ("record --switch-output=often -- true", 2, &["often", "a size (4M), a time (30s"]),
    ("record --max-files 3 -- true", 2, &["--max-files", "needs --switch-output or --overwrite"]),
    ("record --aggregate-by ip -- true", 2, &["--aggregate\n"]),
    ("record --aggregate -g --aggregate-by ip -- true", 2, &["'-g' cannot be used with '--aggregate-by <WHAT>'"]),
    ("record --aggregate-entries 9 -- true", 2, &["--aggregate\n"]),
    ("record --dump-entries 9 -- true", 2, &["--dump-map <ID|NAME>"]),
    ("record --counters off --budget 1 -- true", 2, &["--budget limits", "omit one of them"]),
    ("record -D -1 -- true", 2, &["waits for perf's --control", "start bprec when sampling should begin"]),
    ("record --bpf-object text -- true", 2, &["text: cannot open the file as a BPF object", "clang -target bpf"]),
    ("stat --prog ,", 2, &["''", "expected an id, a tag of 16 hexadecimal digits, or a name"]),
    ("stat --prog 1 -p 1", 2, &["-b with -p", "Omit -b"]),
    ("stat -b 1 -p 1", 2, &["-b with -p", "Omit -b"]),
];

/// gzip output for the text below.
const PACKED_TEXT: &[u8] = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x2b\x4e\x4d\xce\xcf\x4b\x29\x56\x48\
    \xcd\x49\x2c\x28\x4e\x4d\xb1\x52\x30\xe6\x02\x00\x4c\xba\x38\xe7\x13\x00\x00\x00";

/// Files that users mistake for recordings, and a real recording.
fn directory() -> Scratch {
    let scratch = Scratch::new();
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/recordings/linux-7.2/ratio.data");
    let bytes = fs::read(recording).unwrap();
    fs::write(scratch.path("perf.data"), &bytes).unwrap();
    fs::write(scratch.path("header"), &bytes[..90]).unwrap();
    fs::write(scratch.path("empty"), b"").unwrap();
    fs::write(scratch.path("text"), b"seconds elapsed: 3\n").unwrap();
    fs::write(scratch.path("text.gz"), PACKED_TEXT).unwrap();
    fs::create_dir(scratch.path("directory")).unwrap();
    scratch
}

fn is_answered((line, code, words): &Mistake, scratch: &Scratch) {
    let output = bprec().args(line.split(' ')).current_dir(scratch.path("")).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(*code), "bprec {line}: {said}");
    for word in *words {
        assert!(said.contains(word), "bprec {line}: no `{word}` in: {said}");
    }
    assert!(!said.contains("panicked") && said.lines().count() <= 12, "bprec {line}: {said}");
}

/// If a selection matches nothing, all views and commands print only the error, before any output, and in the same words.
#[test]
fn selections_that_match_nothing_are_errors_alone() {
    let scratch = directory();
    let refused = |line: &str| {
        let output = bprec().args(line.split(' ')).current_dir(scratch.path("")).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), output.stdout.len(), said.lines().count()),
            (Some(1), 0, 1),
            "{line}: {said}"
        );
        said
    };
    let views = [
        "--by-prog",
        "--by=owner",
        "--tree",
        "--lines",
        "--payers",
        "--over-time",
        "--counters",
        "--advise",
        "--by=func",
    ];
    let lines = views.map(|view| format!("report {view} --json --prog acount_sys*"));
    let others = [
        "annotate acount_sys*",
        "export --to folded --prog acount_sys*",
        "export --to html --prog acount_sys*",
        "rewrite -o out --prog acount_sys*",
        "diff perf.data perf.data --prog acount_sys*",
    ];
    let first = refused("report --prog acount_sys*");
    assert!(first.contains("--prog acount_sys*; similar names: account_syscall_"), "{first}");
    lines.iter().map(String::as_str).chain(others).for_each(|line| assert_eq!(refused(line), first, "{line}"));
    let first = refused("report --comms nosuch");
    for view in views.iter().chain(&["--bill"]).filter(|view| **view != "--counters") {
        assert_eq!(refused(&format!("report {view} --comms nosuch")), first, "{view}");
    }
    for line in ["annotate account_syscall_enter --comms nosuch", "export --to folded --comms nosuch"] {
        assert_eq!(refused(line), first, "{line}");
    }
    assert!(!scratch.path("out").exists());
}

#[test]
fn mistakes_of_readers_are_answered() {
    let scratch = directory();
    READING.iter().for_each(|mistake| is_answered(mistake, &scratch));
    // The refused commands have left no files: the directory has only its initial files.
    let mut left: Vec<_> = fs::read_dir(scratch.path("")).unwrap().map(|it| it.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["directory", "empty", "header", "perf.data", "text", "text.gz"]);
}

#[test]
fn mistakes_of_those_who_measure_are_answered() {
    if !root("mistakes_of_those_who_measure_are_answered") {
        return;
    }
    let scratch = directory();
    MEASURING.iter().for_each(|mistake| is_answered(mistake, &scratch));
    assert!(!scratch.path("out").exists());
}

#[test]
fn a_full_disk_is_said_where_output_goes() {
    let scratch = directory();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = bprec().args(["report", "--json"]).current_dir(scratch.path("")).stdout(full).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("No space left on device") && said.contains("free space"), "{said}");
}

#[test]
fn who_may_not_is_told_what_is_needed() {
    let test = "who_may_not_is_told_what_is_needed";
    if !root(test) {
        return;
    }
    let nobody = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(env!("CARGO_BIN_EXE_bprec"));
        command.args(arguments).stdin(Stdio::null()).output()
    };
    if !nobody(&["--version"]).is_ok_and(|output| output.status.success()) {
        return skip(test, "the user nobody cannot execute the program in its directory, or setpriv is missing");
    }
    let scratch = directory();
    let recording = scratch.path("perf.data");
    fs::set_permissions(&recording, fs::Permissions::from_mode(0o600)).unwrap();
    let said = |arguments: &[&str]| String::from_utf8(nobody(arguments).unwrap().stderr).unwrap();
    let reading = said(&["report", recording.to_str().unwrap()]);
    assert!(reading.contains("Permission denied") && reading.contains("run bprec as that user"), "{reading}");
    let recording = said(&["record", "-a", "-o", "/dev/null", "--", "true"]);
    assert!(recording.contains("perf_event_paranoid") || recording.contains("CAP_PERFMON"), "{recording}");
    let watching = said(&["top", "--once"]);
    for said in [&recording, &watching] {
        assert!(said.contains("You can record your own processes: bprec record -- COMMAND"), "{said}");
    }
    let counting = said(&["stat", "--", "true"]);
    assert!(counting.contains("CAP_SYS_ADMIN (run as root)"), "{counting}");
}
