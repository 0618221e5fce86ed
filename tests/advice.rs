//! Advice about running programs: each finding is caused by a program written for this purpose, and programs without a cause get no finding.
//! Real kernel, root.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::support::{Running, Scratch, bprec, root, succeed};
use bprec_fixtures::load::system_calls;
use bprec_fixtures::{Fixture, Loaded};
use serde_json::Value;

/// A program with a ring buffer that no process has open: bpftool attaches the program to the loopback device of a private network namespace, and
/// ends.
struct Unread {
    shell: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// Shell script: attaches the program and unmounts the bpf file system with its pin. Then sends a packet and prints a line for each input line.
const UNREAD: &str = r#"set -e
mount -t bpf bpf "$0"
ip link set lo up
bpftool prog load "$1" "$0/unread"
bpftool net attach xdpgeneric pinned "$0/unread" dev lo
umount "$0"
echo attached
while read -r _; do echo >/dev/udp/127.0.0.1/9; echo sent; done"#;

impl Unread {
    fn start(directory: &Path) -> Self {
        let object = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/bpf/unread.bpf.o");
        let mut shell = Command::new("unshare")
            .args(["--mount", "--net", "bash", "-c", UNREAD])
            .args([directory, &object])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(shell.stdout.take().unwrap());
        let mut unread = Self { commands: shell.stdin.take(), shell, answers };
        unread.expect("attached\n");
        unread
    }

    fn expect(&mut self, answer: &str) {
        let mut said = String::new();
        self.answers.read_line(&mut said).unwrap();
        assert_eq!(said, answer);
    }

    /// Sends a packet, for which the program runs.
    fn run(&mut self) {
        self.commands.as_ref().unwrap().write_all(b"\n").unwrap();
        self.expect("sent\n");
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        drop(self.commands.take());
        self.shell.wait().unwrap();
    }
}

/// Restores the kernel's tracing of BPF messages (`bpf_trace_printk`) on drop: loading a program that prints messages switches the tracing on, and
/// the unload does not switch it off.
struct MessagesAsBefore(Option<(PathBuf, String)>);

impl MessagesAsBefore {
    fn now() -> Self {
        let path = Path::new("/sys/kernel/tracing/events/bpf_trace/bpf_trace_printk/enable");
        Self(std::fs::read_to_string(path).ok().map(|before| (path.to_owned(), before)))
    }
}

impl Drop for MessagesAsBefore {
    fn drop(&mut self) {
        if let Some((path, before)) = &self.0 {
            std::fs::write(path, before.trim()).unwrap();
        }
    }
}

/// CPU time of this thread, which determines its number of samples, even on a busy machine.
fn cpu_time() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(spent.tv_sec.try_into().unwrap(), spent.tv_nsec.try_into().unwrap())
}

fn for_this_thread(fixture: &Fixture) -> Loaded {
    fixture.open().unwrap().for_this_thread().unwrap().start().unwrap()
}

/// Codes of the findings about this program.
fn codes(advice: &Value, name: &str, id: u32) -> Vec<String> {
    let program = format!("{name} ({id})");
    let findings = advice["findings"].as_array().unwrap().iter();
    let of_it = findings.filter(|finding| {
        finding["programs"].as_array().unwrap().iter().any(|of| of["program"].as_str() == Some(&program))
    });
    let mut codes: Vec<String> = of_it.map(|finding| finding["code"].as_str().unwrap().to_owned()).collect();
    codes.sort();
    codes.dedup();
    codes
}

#[test]
fn each_finding_has_its_cause_and_no_other_program_gets_one() {
    const NAME: &str = "each_finding_has_its_cause_and_no_other_program_gets_one";
    if !root(NAME) {
        return;
    }
    let scratch = Scratch::new();
    let (path, pins) = (scratch.path("perf.data"), scratch.path("pins"));
    std::fs::create_dir(&pins).unwrap();
    let mut unread = Unread::start(&pins);
    let _messages = MessagesAsBefore::now();
    let costly = for_this_thread(&Fixture::COSTLY);
    let (copy, another_copy) = (for_this_thread(&Fixture::TWIN_A), for_this_thread(&Fixture::TWIN_A));
    let sound = Fixture::TAIL_CALL.open().unwrap().for_this_thread().unwrap().loops(1).unwrap().start().unwrap();

    let recorder = Running::record(&path, &["-F", "4000", "-e", "cpu-clock"]);
    let until = cpu_time() + Duration::from_secs(1);
    while cpu_time() < until {
        system_calls(100);
        // The program must run throughout the recording, because the kernel may count runs only in windows.
        unread.run();
    }
    recorder.end();
    let output = succeed(bprec().args(["report", "--advise", "--json", "-i"]).arg(&path));
    let advice: Value = serde_json::from_slice(&output.stdout).unwrap();

    let of = |loaded: &Loaded, name: &str| codes(&advice, name, loaded.id_of(name).unwrap());
    assert_eq!(of(&costly, "look_up_keys"), ["hash_lookup"], "{advice:#}");
    let saves = |finding: &Value| finding["saves"]["weight"].as_u64().unwrap();
    let in_order: Vec<u64> = advice["findings"].as_array().unwrap().iter().map(saves).collect();
    assert!(in_order.is_sorted_by(|a, b| a >= b), "{advice:#}");
    assert_eq!(of(&costly, "output_to_each_cpu"), ["perf_event_output"], "{advice:#}");
    assert_eq!(of(&costly, "print_a_message"), ["trace_printk"], "{advice:#}");
    assert_eq!(of(&costly, "run_at_a_tracepoint"), ["tracepoint_entry"], "{advice:#}");
    for loaded in [&copy, &another_copy] {
        assert_eq!(of(loaded, "same_name_in_two_objects"), ["same_program_twice"], "{advice:#}");
    }
    let findings = advice["findings"].as_array().unwrap();
    let unread_outputs: Vec<&Value> =
        findings.iter().filter(|finding| finding["code"] == "output_without_reader").collect();
    let is_read_by_nobody = |finding: &&&Value| finding["maps"][0].as_str().unwrap().starts_with("read_by_nobody (");
    assert_eq!(unread_outputs.iter().filter(is_read_by_nobody).count(), 1, "{advice:#}");
    for program in sound.programs().unwrap() {
        let none: [&str; 0] = [];
        assert_eq!(codes(&advice, &program.name, program.id), none, "{advice:#}");
    }
}
