//! `--redact` of each command, with perf as judge of what is written.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Scratch, bprec, perf_installed, report, succeed};

/// Who loaded the programs of the fixtures, and where they were compiled.
const SECRETS: [&str; 2] = ["bprec-load", "tp.bpf.c"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/recordings").join(name)
}

fn rewrite(input: &Path, output: &Path, redact: &str) {
    succeed(bprec().args(["rewrite", "-i"]).arg(input).arg("-o").arg(output).arg(redact));
}

/// What perf prints. It has no symbols of the kernels that the recordings are from, and says so.
fn perf(arguments: &[&str]) -> String {
    let output = succeed(Command::new("perf").args(arguments).env("PAGER", "cat").env("LC_ALL", "C"));
    String::from_utf8(output.stdout).unwrap()
}

fn secret_in(bytes: &[u8]) -> Option<&'static str> {
    SECRETS.into_iter().find(|secret| bytes.windows(secret.len()).any(|window| window == secret.as_bytes()))
}

#[test]
fn no_command_says_who_or_where() {
    let input = fixture("linux-7.2/everything.data");
    let path = input.to_str().unwrap();
    for arguments in [
        &["report", "--all", "-i", path][..],
        &["report", "--json", "--header", "-i", path],
        &["report", "--payers=comm,cgroup", "--csv", "-i", path],
        &["annotate", "account_syscall_enter", "-i", path],
        &["script", "-F", "+state", "--show-task-events", "--show-mmap-events", "-i", path],
        &["diff", path, path, "--json", "--all"],
        &["export", "--to", "folded", "-i", path],
        &["export", "--to", "html", "-i", path],
    ] {
        let plain = succeed(bprec().args(arguments)).stdout;
        let redacted = succeed(bprec().args(arguments).arg("--redact")).stdout;
        assert_eq!(secret_in(&redacted), None, "{arguments:?}");
        assert!(redacted.len() > plain.len() / 2, "{arguments:?}");
        // What it says of itself is not in every output.
        assert!(secret_in(&plain).is_some() || arguments[0] == "export", "{arguments:?}");
    }
    // The names that a selection would be by are not there any more.
    let refused = bprec().args(["report", "--redact", "--comm", "bprec-load", "-i", path]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

#[test]
fn a_pipe_is_redacted_too() {
    let stdin = || File::open(fixture("linux-7.2/piped.data")).unwrap();
    let redacted = bprec().args(["report", "--redact", "--json", "-i", "-"]).stdin(stdin()).output().unwrap();
    assert!(redacted.status.success(), "{redacted:?}");
    assert_eq!(secret_in(&redacted.stdout), None);
    let scratch = Scratch::new();
    let fifo = scratch.path("fifo");
    succeed(Command::new("mkfifo").arg(&fifo));
    let writer = std::thread::spawn({
        let fifo = fifo.clone();
        move || fs::copy(fixture("linux-7.2/piped.data"), fifo)
    });
    let from_fifo = report(&fifo, &["--redact"]);
    writer.join().unwrap().unwrap();
    let from_file: serde_json::Value = serde_json::from_slice(&redacted.stdout).unwrap();
    assert_eq!(from_fifo["events"][0]["rows"], from_file["events"][0]["rows"]);
}

#[test]
fn replacements_are_drawn_anew_each_time() {
    let (scratch, input) = (Scratch::new(), fixture("linux-7.2/twins.data"));
    let outputs = [scratch.path("first.data"), scratch.path("second.data")];
    outputs.iter().for_each(|output| rewrite(&input, output, "--redact"));
    let [first, second] = outputs.map(|output| fs::read(output).unwrap());
    assert!(first != second);
    assert_eq!(first.len(), second.len());
}

#[test]
fn perf_finds_the_same_functions() {
    if !perf_installed("perf_finds_the_same_functions") {
        return;
    }
    let scratch = Scratch::new();
    let empty = scratch.path("empty");
    fs::create_dir(&empty).unwrap();
    for name in ["linux-7.2/everything.data", "linux-7.2/tailcalls.data", "linux-6.1/everything.data"] {
        let (input, output) = (fixture(name), scratch.path("out.data"));
        rewrite(&input, &output, "--redact");
        let samples = |path: &Path| {
            let arguments = [
                "script",
                "--ns",
                "-F",
                "pid,tid,cpu,time,event,period,ip,sym",
                "--symfs",
                empty.to_str().unwrap(),
                "-i",
                path.to_str().unwrap(),
            ];
            let is_address = |word: &&str| word.len() > 4 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
            let text = perf(&arguments);
            let words =
                text.lines().map(|line| line.split_whitespace().filter(|word| !is_address(word)).collect::<Vec<_>>());
            words.map(|words| words.join(" ")).collect::<Vec<_>>()
        };
        let (before, after) = (samples(&input), samples(&output));
        assert!(before.iter().any(|line| line.contains("bpf_prog_")), "{name}: {before:#?}");
        assert_eq!(before, after, "{name}");
        let header = perf(&["report", "--header-only", "-i", output.to_str().unwrap()]);
        assert!(header.contains("# hostname : host-1"), "{header}");
        // perf reads what is left where programs are redacted, too.
        rewrite(&input, &output, "--redact=+progs");
        assert_eq!(samples(&output).len(), before.len(), "{name}");
    }
}
