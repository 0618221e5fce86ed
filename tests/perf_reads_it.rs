//! Stock perf opens recordings without an error message, and counts the same. Real kernel, root, Debian's perf.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::support::{Running, Scratch, bprec, perf, perf_installed, record, report, root, succeed};
use bprec_fixtures::Fixture;
use bprec_fixtures::load::system_calls;

/// Makes one recording for all tests of this file: two copies of the tracepoint programs and a running tail call chain, with user call chains, and a
/// program that is loaded meanwhile. The recording ends when the load has had a second of CPU time with the last program, even on a slow machine.
fn recording() -> &'static Path {
    static RECORDING: OnceLock<(Scratch, PathBuf)> = OnceLock::new();
    let (_, path) = RECORDING.get_or_init(|| {
        let scratch = Scratch::new();
        let path = scratch.path("perf.data");
        let start =
            |fixture: Fixture| fixture.open().unwrap().for_this_thread().unwrap().loops(10).unwrap().start().unwrap();
        let _before = [start(Fixture::TP), start(Fixture::TP), start(Fixture::TAIL_CALL)];
        let running = Running::record(&path, &["-q", "-g", "-F", "2000", "-e", "cpu-clock"]);
        let _meanwhile = start(Fixture::TWIN_A);
        let enough = processor_time() + Duration::from_secs(1);
        while processor_time() < enough {
            system_calls(100);
        }
        running.end();
        (scratch, path)
    });
    path
}

/// CPU time of this thread so far.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the timespec, which is ours.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn possible(test: &str) -> bool {
    root(test) && perf_installed(test)
}

fn with_input<'a>(arguments: &[&'a str], path: &'a Path) -> Vec<&'a str> {
    let mut all = arguments.to_vec();
    all.extend(["-i", path.to_str().unwrap()]);
    all
}

#[test]
fn every_command_of_perf_opens_it() {
    if !possible("every_command_of_perf_opens_it") {
        return;
    }
    let path = recording();
    let header = perf(&with_input(&["report", "--header-only"], path));
    // On some architectures, the kernel does not know the name of the processor.
    let has_name = std::fs::read_to_string("/proc/cpuinfo").unwrap().contains("model name");
    assert_eq!(header.contains("# cpudesc : "), has_name, "{header}");
    for line in [
        "# hostname : ",
        "# os release : ",
        "# nrcpus online : ",
        "# cmdline : ",
        "# bpf_prog_info ",
        "# btf info of id ",
    ] {
        assert!(header.contains(line), "no '{line}' in\n{header}");
    }
    let table = perf(&with_input(&["report", "--stdio", "--no-children", "-g", "none", "--sort", "sym"], path));
    assert!(table.contains("_account_syscall_enter"), "{table}");
    let dump = perf(&with_input(&["report", "-D"], path));
    for record in ["PERF_RECORD_KSYMBOL", "PERF_RECORD_BPF_EVENT", "PERF_RECORD_MMAP2", "PERF_RECORD_COMM"] {
        assert!(dump.contains(record), "no {record}");
    }
    // perf report does not handle THROTTLE and UNTHROTTLE records of any recorder.
    let unhandled = dump.lines().find(|line| line.contains("unhandled") && !line.contains("THROTTLE"));
    assert_eq!(unhandled, None, "perf does not know all records");

    let scratch = Scratch::new();
    let injected = scratch.path("injected.data");
    perf(&with_input(&["inject", "-b", "-o", injected.to_str().unwrap()], path));
    // A recording that perf has rewritten (`perf inject`) has the same programs.
    let (before, after) = (report(path, &[]), report(&injected, &[]));
    assert_eq!(before["events"][0]["rows"], after["events"][0]["rows"]);
}

#[test]
fn perf_converts_it() {
    if !possible("perf_converts_it") {
        return;
    }
    let scratch = Scratch::new();
    let json = scratch.path("perf.json");
    perf(&with_input(&["data", "convert", "--force", "--to-json", json.to_str().unwrap()], recording()));
    assert!(std::fs::metadata(&json).unwrap().len() > 1_000);
}

/// Samples by symbol `bpf_prog_<tag>_<name>`, as perf names it.
fn perf_samples_by_symbol(path: &Path) -> BTreeMap<String, u64> {
    let mut samples = BTreeMap::new();
    for line in perf(&with_input(&["script", "-G", "-F", "event,ip,sym"], path)).lines() {
        if let Some((event, rest)) = line.trim().split_once(':')
            && event == "cpu-clock"
        {
            let symbol = rest.split_whitespace().nth(1).unwrap_or_default();
            *samples.entry(symbol.to_owned()).or_default() += 1;
        }
    }
    samples
}

/// perf counts the same number of samples as bprec, also in each function of a program.
#[test]
fn perf_counts_the_same_samples() {
    if !possible("perf_counts_the_same_samples") {
        return;
    }
    let path = recording();
    let report = report(path, &["--by", "func", "--all"]);
    let event = &report["events"][0];
    let by_symbol = perf_samples_by_symbol(path);
    assert_eq!(event["samples"]["samples"].as_u64().unwrap(), by_symbol.values().sum::<u64>());

    // For perf, programs with the same name and tag are one symbol, so sums by name are compared.
    let mut ours: BTreeMap<String, u64> = BTreeMap::new();
    for row in event["rows"].as_array().unwrap() {
        for part in row["parts"].as_array().unwrap() {
            *ours.entry(part["name"].as_str().unwrap().to_owned()).or_default() +=
                part["self"]["samples"].as_u64().unwrap();
        }
    }
    let mut theirs: BTreeMap<String, u64> = BTreeMap::new();
    for (symbol, samples) in &by_symbol {
        if let Some(name) = symbol.strip_prefix("bpf_prog_").and_then(|rest| rest.get(17..)) {
            *theirs.entry(name.to_owned()).or_default() += samples;
        }
    }
    ours.retain(|_, samples| *samples > 0);
    assert!(theirs.len() >= 5, "{theirs:?}");
    assert_eq!(ours, theirs);
}

#[test]
fn perf_annotates_a_program() {
    if !possible("perf_annotates_a_program") {
        return;
    }
    let path = recording();
    let hottest = perf_samples_by_symbol(path)
        .into_iter()
        .filter(|(symbol, _)| symbol.starts_with("bpf_prog_"))
        .max_by_key(|(_, samples)| *samples)
        .unwrap()
        .0;
    // Debian's perf has no disassembler for BPF, and says so; nothing else can be tested with it.
    let output =
        Command::new("perf").args(with_input(&["annotate", "--stdio", "-s", &hottest], path)).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("libopcode") || output.status.success(), "{said}");
}

/// perf also reads a recording through a pipe.
#[test]
fn perf_reads_the_stream() {
    if !possible("perf_reads_the_stream") {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("stream.data");
    let loaded = Fixture::TP.open().unwrap().for_this_thread().unwrap().start().unwrap();
    let output = succeed(bprec().args(["record", "-q", "-a", "-e", "cpu-clock", "-o", "-", "--", "sleep", "0.5"]));
    drop(loaded);
    std::fs::write(&path, &output.stdout).unwrap();
    let text = perf(&with_input(&["script", "-F", "event,ip"], &path));
    let theirs = text.lines().filter(|line| line.contains("cpu-clock")).count() as u64;
    let ours = report(&path, &["--all"]);
    assert_eq!(ours["events"][0]["samples"]["samples"].as_u64().unwrap(), theirs);
    let names: Vec<_> = ours["programs"].as_array().unwrap().iter().filter_map(|p| p["name"].as_str()).collect();
    assert!(names.contains(&"account_syscall_enter"), "{names:?}");
}

/// perf prints the fields of a tracepoint by its format in the file.
#[test]
fn perf_prints_tracepoints() {
    if !possible("perf_prints_tracepoints") {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    record(&path, &["-q", "-a", "-e", "sched:sched_switch", "--", "sleep", "0.3"]);
    let text = perf(&with_input(&["script"], &path));
    let line = text.lines().find(|line| line.contains("sched:sched_switch")).unwrap();
    assert!(line.contains("prev_comm=") && line.contains("next_pid="), "{line}");
}

/// The shell has no frame pointers, so only DWARF gives its call chains.
#[test]
fn perf_unwinds_user_stacks_by_dwarf() {
    let test = "perf_unwinds_user_stacks_by_dwarf";
    if !root(test) || !perf_installed(test) {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let load = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    record(&path, &["-q", "-e", "cpu-clock:u", "-F", "499", "--call-graph", "dwarf", "--", "sh", "-c", load]);
    // On arm64, perf's library complains about every stack.
    let script = succeed(Command::new("perf").args(["script", "-F", "comm,ip,sym", "-i"]).arg(&path)).stdout;
    let script = String::from_utf8_lossy(&script).into_owned();
    let deepest = script.split("\n\n").map(|sample| sample.lines().count().saturating_sub(1)).max().unwrap();
    assert!(deepest >= 4, "the deepest chain has only {deepest} frames");
}
