//! `--redact` of each command; perf reads the written files.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../report/tests/support/page.rs"]
mod page;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::support::{Scratch, bprec, perf_installed, record, report, root, skip, succeed, wait_for};

/// Names of the fixtures' loader, and of the source of their programs.
const SECRETS: [&str; 2] = ["bprec-load", "tp.bpf.c"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/recordings").join(name)
}

fn rewrite(input: &Path, output: &Path, redact: &str) {
    succeed(bprec().args(["rewrite", "-i"]).arg(input).arg("-o").arg(output).arg(redact));
}

/// Output of perf. perf complains that it has no symbols of the recorded kernels.
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
        // Adds the data of an HTML page as text.
        let is_page = arguments.contains(&"html");
        let read = |command: &mut Command| {
            let mut said = succeed(command).stdout;
            if is_page {
                said.extend(page::data(&said));
            }
            said
        };
        let plain = read(bprec().args(arguments));
        let redacted = read(bprec().args(arguments).arg("--redact"));
        assert_eq!(secret_in(&redacted), None, "{arguments:?}");
        assert!(redacted.len() > plain.len() / 2, "{arguments:?}");
        // Some outputs do not contain the secrets even without redaction.
        assert!(secret_in(&plain).is_some() || arguments[0] == "export" && !is_page, "{arguments:?}");
    }
    // After redaction, a selection cannot find the original names.
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
        // perf also reads the recording if programs are redacted.
        rewrite(&input, &output, "--redact=+progs");
        assert_eq!(samples(&output).len(), before.len(), "{name}");
    }
}

/// Two network namespaces, each with a program on its loopback device: one has a name, the other is held by a process with a known name.
struct Networks {
    name: String,
    process: Child,
}

impl Networks {
    /// Returns `None` if the namespaces cannot be made.
    fn make(scratch: &Scratch, name: &str, comm: &str) -> Option<Networks> {
        let object = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/bpf/xdp.bpf.o");
        let attach = format!("ip link set dev lo xdpgeneric obj {} sec xdp", object.display());
        let run =
            |words: &[&str]| Command::new(words[0]).args(&words[1..]).status().is_ok_and(|status| status.success());
        if !run(&["ip", "netns", "add", name]) {
            return None;
        }
        let program = scratch.path(comm);
        fs::copy("/bin/sleep", &program).unwrap();
        let script = format!("{attach} && exec {} 1000", program.display());
        let process = Command::new("unshare").args(["-n", "sh", "-c", &script]).spawn().unwrap();
        let networks = Networks { name: name.to_owned(), process };
        let is_attached = run(&["ip", "netns", "exec", name, "sh", "-c", &attach]);
        is_attached.then_some(networks)
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

#[test]
fn nobody_learns_of_other_network_namespaces() {
    let test = "nobody_learns_of_other_network_namespaces";
    if !root(test) {
        return;
    }
    let scratch = Scratch::new();
    let number = std::process::id() % 10_000;
    let (name, comm) = (format!("acme-{number}-net"), format!("acme-{number}-task"));
    let Some(networks) = Networks::make(&scratch, &name, &comm) else {
        return skip(test, "no `ip netns`, or no `ip link` that loads programs");
    };
    let pid = networks.process.id();
    wait_for("the process in its namespace", || {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|found| found.trim() == comm).then_some(())
    });
    let link = fs::read_link(format!("/proc/{pid}/ns/net")).unwrap().to_str().unwrap().to_owned();
    let inode = link.trim_matches(|c: char| !c.is_ascii_digit()).to_owned();
    let input = scratch.path("perf.data");
    record(&input, &["-a", "--", "true"]);
    drop(networks);

    let targets = |json: &serde_json::Value| {
        let programs = json["programs"].as_array().unwrap().iter();
        let attachments = programs.filter_map(|program| program["attached"].as_array()).flatten();
        let targets = attachments.map(|target| target.as_str().unwrap().to_owned());
        targets.filter(|target| target.starts_with("xdp:lo in ")).collect::<Vec<_>>()
    };
    let before = targets(&report(&input, &["--all"]));
    assert!(before.contains(&format!("xdp:lo in netns {name}")), "{before:?}");
    assert!(before.contains(&format!("xdp:lo in {link} of process {pid} ({comm})")), "{before:?}");
    for level in ["--redact", "--redact=+progs"] {
        let output = scratch.path("redacted.data");
        rewrite(&input, &output, level);
        let after = targets(&report(&output, &["--all"]));
        assert_eq!(after.len(), before.len(), "{level}");
        let is_redacted = |target: &&String| {
            target.starts_with("xdp:lo in netns netns-")
                || target.starts_with("xdp:lo in net:[") && target.contains(&format!("of process {pid} (comm-"))
        };
        assert!(after.iter().filter(is_redacted).count() >= 2, "{level}: {after:?}");
        let path = output.to_str().unwrap();
        let texts = [
            fs::read(&output).unwrap(),
            succeed(bprec().args(["script", "-F", "+state", "-i", path])).stdout,
            succeed(bprec().args(["report", "--all", "--by", "hook", "--header", "-i", path])).stdout,
        ];
        for (text, secret) in texts.iter().flat_map(|text| [&name, &comm, &inode].map(|secret| (text, secret))) {
            let is_in = text.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!is_in, "{level}: {secret}");
        }
    }
}
